"""How often somebody may ask: who floods is told to wait, on every way in, and nobody else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.admin.grpc import Administration
from horae.contracts.rpc.calls import Calls
from horae.contracts.rpc.grpc import Scheduling
from horae.core.audit import AuditFilter
from horae.rpc.callers import Callers
from horae.rpc.outputs import Outputs
from horae.rpc.server import RpcServer
from horae.service.access.rates import BURST, REMEMBERED, Rates
from horae.web import app as web
from tests.facades.test_native import problem_of
from tests.facades.world import HERE, OWN, World, from_here

RATE = 2  # requests a second
FULL = int(RATE * BURST)
FAR = "https://10.0.0.1:8443"
HTML = {"accept": "text/html"}


@pytest.fixture
def gate(world: World) -> web.Gate:
    """Listens beyond loopback."""
    world.services.access.rates = Rates(world.clock, RATE)
    return web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)


def from_address(gate: web.Gate, address: str = "192.0.2.1") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate, client=(address, 4711)), base_url=FAR)


@pytest.fixture
async def far(gate: web.Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with from_address(gate) as client:
        yield client


async def login(world: World, owner: str, org: int = 1) -> dict[str, str]:
    return {"authorization": f"Bearer {(await world.services.access.create('t', 'user', owner, None, org=org))[1]}"}


async def flood(client: httpx.AsyncClient, path: str = "/v1/jobs", **kwargs: Any) -> httpx.Response:
    """Return the first answer beyond what may be asked at once: all before it were good."""
    for _ in range(FULL):
        assert (await client.get(path, **kwargs)).status_code == 200
    return await client.get(path, **kwargs)


async def test_S40_while_one_user_floods_another_is_answered_at_once(far: httpx.AsyncClient, world: World) -> None:
    ann, bob = await login(world, "ann"), await login(world, "bob")
    answer = await flood(far, headers=ann)
    assert "ann" in problem_of(answer, 429, "E_REQUEST_RATE")["detail"]
    assert answer.headers["retry-after"] == "1"
    for _ in range(FULL):
        assert (await far.get("/v1/jobs", headers=ann)).status_code == 429
        assert (await far.get("/v1/jobs", headers=bob)).status_code == 200


async def test_S40_a_user_who_waits_as_told_is_answered_again(far: httpx.AsyncClient, world: World) -> None:
    ann = await login(world, "ann")
    wait = int((await flood(far, headers=ann)).headers["retry-after"])
    for _ in range(3 * FULL):  # asking in vain costs no further wait
        assert (await far.get("/v1/jobs", headers=ann)).status_code == 429
    world.clock.advance(wait)
    answers = [(await far.get("/v1/jobs", headers=ann)).status_code for _ in range(RATE + 1)]
    assert answers == [200] * RATE + [429]
    world.clock.advance(BURST)
    assert (await flood(far, headers=ann)).status_code == 429


async def test_S40_several_tokens_and_sessions_of_a_user_are_one(far: httpx.AsyncClient, world: World) -> None:
    first, second = await login(world, "ann"), await login(world, "ann")
    elsewhere = await login(world, "ann", org=2)  # of another organisation: somebody else
    await flood(far, headers=first)
    assert (await far.get("/v1/jobs", headers=second)).status_code == 429
    assert (await far.get("/v1/jobs", headers=elsewhere)).status_code == 200
    form = {"token": second["authorization"].removeprefix("Bearer ")}
    cookie = (await far.post("/login", data=form, headers=HTML)).headers["set-cookie"].partition(";")[0]
    assert (await far.get("/v1/jobs", headers={"cookie": cookie})).status_code == 429


async def test_S40_strangers_are_counted_by_address_and_take_nothing_of_users(
    far: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    ann = await login(world, "ann")
    problem_of(await flood(far, "/healthz"), 429, "E_REQUEST_RATE")
    problem_of(await far.get("/v1/jobs"), 429, "E_REQUEST_RATE")  # also where a login is needed
    assert (await far.get("/v1/jobs", headers=ann)).status_code == 200
    async with from_address(gate, "192.0.2.2") as beside:
        assert (await beside.get("/healthz")).status_code == 200


async def test_S40_one_customer_has_one_share_of_its_many_addresses(gate: web.Gate) -> None:
    async with from_address(gate, "2001:db8::1") as client:
        await flood(client, "/healthz")
    for address, status in (("2001:db8::ffff:2", 429), ("2001:db8:0:1::1", 200)):
        async with from_address(gate, address) as client:
            assert (await client.get("/healthz")).status_code == status, address


async def test_S40_a_refused_flood_writes_nothing_and_is_counted(far: httpx.AsyncClient, world: World) -> None:
    ann = await login(world, "ann")
    await flood(far, headers=ann)
    await flood(far, "/healthz")
    before = len(await world.store.list_audit(AuditFilter(), None, 100))
    for _ in range(FULL):
        await far.post("/v1/jobs", json={}, headers=ann)
        await far.post("/v1/jobs", json={})
    world.clock.advance(60)
    await world.audit.tell_refused()
    assert len(await world.store.list_audit(AuditFilter(), None, 100)) == before
    assert world.services.access.rates.refused == 2 + 2 * FULL


async def test_S40_a_browser_sees_a_page_as_of_any_other_failure(far: httpx.AsyncClient, world: World) -> None:
    known = await flood(far, headers={**HTML, **await login(world, "ann")})
    assert known.status_code == 429
    answer = await far.get("/jobs", headers={**HTML, **await login(world, "ann")})
    stranger = await flood(far, "/login", headers=HTML)
    for shown, place in ((answer, 'aria-label="Pages"'), (stranger, "E_REQUEST_RATE")):
        assert (shown.status_code, shown.headers["content-type"]) == (429, "text/html; charset=utf-8")
        assert 'href="/docs#E_REQUEST_RATE"' in shown.text
        assert place in shown.text
        assert shown.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/lake/v1/nothing", "quota_exceed"),
        ("/api/v1/user_jobs", "E_REQUEST_RATE"),
        ("/api/segments", "TOO_MANY_REQUESTS"),
        ("/v1/nodes", "E_REQUEST_RATE"),
    ],
)
async def test_S40_contracts_say_it_in_their_own_words(
    far: httpx.AsyncClient, world: World, path: str, word: str
) -> None:
    ann = await login(world, "ann")
    await flood(far, headers=ann)
    answer = await far.get(path, headers=ann)
    assert (answer.status_code, answer.headers["retry-after"], word in answer.text) == (429, "1", True)


async def test_S40_whoever_runs_a_loopback_server_and_agents_are_not_counted(world: World) -> None:
    world.services.access.rates = Rates(world.clock, RATE)
    gate = web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as near:
        assert (await flood(near)).status_code == 200
        assert (await flood(near, "/healthz")).status_code == 200


async def test_S40_calls_over_grpc_are_counted_with_those_over_http(far: httpx.AsyncClient, world: World) -> None:
    callers = Callers(world.services.access, world.audit, lambda _: False)
    contracts = (Scheduling(Calls(world.services), callers), Administration(world.services, callers))
    server = RpcServer(None, Outputs(world.files, "secret"), contracts, identify=callers.identify)
    port = await server.start("127.0.0.1:0")
    ann, bob = await login(world, "ann"), await login(world, "bob")

    async def call(method: str, metadata: dict[str, str]) -> str:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                await channel.unary_unary(method)(b"", metadata=list(metadata.items()))
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name} {error.details()}"
        return "OK"

    try:
        await flood(far, headers=ann)
        for method in (f"/{Administration.descriptor.full_name}/GetJobs", "/horae.v1.Scheduling/GetBlockedJobs"):
            refused = await call(method, ann)
            assert refused.startswith("RESOURCE_EXHAUSTED"), refused
            assert "ann asks more often than 2 times a second" in refused
            assert not (await call(method, bob)).startswith("RESOURCE_EXHAUSTED")
    finally:
        await server.stop()


def test_S40_what_is_remembered_is_bounded_and_strangers_push_out_no_user(world: World) -> None:
    rates = Rates(world.clock, RATE)
    for address in range(2 * REMEMBERED):
        rates.take_stranger(f"10.{address >> 16}.{address >> 8 & 255}.{address & 255}")
    assert (len(rates._strangers), len(rates._users)) == (REMEMBERED, 0)
