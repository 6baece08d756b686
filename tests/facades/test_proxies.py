"""Behind a reverse proxy: who is throttled, what the audit log, sessions and cookies say, and who needs a token."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.rpc.calls import Calls
from horae.contracts.rpc.grpc import Scheduling
from horae.core.audit import AuditFilter
from horae.rpc.callers import Callers
from horae.rpc.outputs import Outputs
from horae.rpc.server import RpcServer
from horae.service.access.credentials import TRIES
from horae.web import app as web
from horae.web.connections import Crowd
from horae.web.proxies import Proxies
from horae.wire.generated import scheduling_pb2 as pb
from tests.facades.test_native import JOB, problem_of
from tests.facades.world import BOTH, OWN, World, from_here

PROXY, CLIENT, OTHER = "10.0.0.7", "192.0.2.7", "198.51.100.9"
BELIEVED = Proxies(("10.0.0.0/24", "127.0.0.1"))
BEHIND = "http://horae.example"
PAGE = {"accept": "text/html"}
WRONG = {"authorization": "Bearer wrong"}


def through(gate: web.Gate, peer: str = PROXY) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate, client=(peer, 4711)), base_url=BEHIND)


@pytest.fixture
def gate(world: World) -> web.Gate:
    return web.create_app(world.services, CONTRACTS, version="1", loopback_only=False, proxies=BELIEVED)


@pytest.fixture
async def proxied(gate: web.Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with through(gate) as client:
        yield client


async def bearer(world: World) -> dict[str, str]:
    return {"authorization": f"Bearer {(await world.services.access.create('ci', 'user', 'ann', None))[1]}"}


def guess_of(number: int) -> str:
    return f"Bearer horae_u_{100 + number}_{'A' * 43}"


async def told_from(world: World) -> list[str]:
    return [row.address for row in reversed(await world.store.list_audit(AuditFilter(), None, 100))]


@BOTH
async def test_S41_the_audit_log_says_from_where_a_request_came_and_not_by_which_proxy(
    proxied: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    known = await bearer(world)
    listed = {"x-forwarded-for": f"{OTHER}, {CLIENT}, 10.0.0.9"}
    assert (await proxied.post("/v1/jobs", json=JOB, headers={**known, **listed})).status_code == 201
    problem_of(
        await proxied.post("/v1/jobs", json=JOB, headers={**WRONG, "forwarded": f"for={CLIENT}"}), 401, "E_TOKEN"
    )
    async with through(gate, OTHER) as direct:
        assert (await direct.post("/v1/jobs", json=JOB, headers={**known, **listed})).status_code == 201
    assert await told_from(world) == [CLIENT, CLIENT, OTHER]


async def test_S40_guessers_behind_a_proxy_keep_out_nobody_beside_them_and_cannot_pretend_to_be_others(
    proxied: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    for guess in range(TRIES):
        made_up = {"x-forwarded-for": f"203.0.113.{guess}, {CLIENT}"}
        answer = await proxied.get("/v1/jobs", headers={"authorization": guess_of(guess), **made_up})
        problem_of(answer, 401, "E_TOKEN")
    again = {"authorization": guess_of(TRIES)}
    problem_of(await proxied.get("/v1/jobs", headers={**again, "x-forwarded-for": CLIENT}), 429, "E_LIMITED")
    problem_of(await proxied.get("/v1/jobs", headers={**again, "x-forwarded-for": OTHER}), 401, "E_TOKEN")
    async with through(gate, OTHER) as direct:
        for guess in range(TRIES):
            made_up = {"x-forwarded-for": f"203.0.113.{guess}"}
            await direct.get("/v1/jobs", headers={"authorization": guess_of(guess), **made_up})
        again = {"authorization": guess_of(TRIES + 1), "x-forwarded-for": "203.0.113.99"}
        problem_of(await direct.get("/v1/jobs", headers=again), 429, "E_LIMITED")


async def test_F31_the_cookie_of_a_session_is_secure_where_the_proxy_speaks_tls(
    proxied: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    token = (await bearer(world))["authorization"].removeprefix("Bearer ")
    form = {"token": token, "next": "/"}
    by_tls = {**PAGE, "x-forwarded-for": CLIENT, "x-forwarded-proto": "https"}
    answer = await proxied.post("/login", data=form, headers=by_tls)
    sent = answer.headers["set-cookie"]
    assert sent.startswith("__Host-horae=")
    assert "; Secure" in sent
    assert "strict-transport-security" in answer.headers
    session = await world.store.get_session(1)
    assert session is not None
    assert session.address == CLIENT
    plain = await proxied.post("/login", data=form, headers={**PAGE, "x-forwarded-for": CLIENT})
    assert "Secure" not in plain.headers["set-cookie"]
    async with through(gate, OTHER) as direct:
        lied = await direct.post("/login", data=form, headers=by_tls)
        assert lied.headers["set-cookie"].startswith("horae=")
        assert "strict-transport-security" not in lied.headers


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-forwarded-proto", "forwarded", "via"])
async def test_S43_a_proxy_of_the_servers_own_user_that_is_believed_lets_nobody_in_without_a_token(
    world: World, header: str
) -> None:
    gate = web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN, proxies=BELIEVED)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as near:
        assert (await near.get("/v1/jobs")).status_code == 200
        for told in ("127.0.0.1", "for=127.0.0.1", CLIENT, "http", "garbage", ""):
            problem_of(await near.get("/v1/jobs", headers={header: told}), 401, "E_TOKEN")


async def test_a_call_over_grpc_is_from_where_the_proxy_says(world: World) -> None:
    known = (await bearer(world))["authorization"]
    for proxies, expected in ((BELIEVED, CLIENT), (Proxies(("10.0.0.0/24",)), "127.0.0.1")):
        callers = Callers(world.services.access, world.audit, lambda _: False, proxies)
        server = RpcServer(None, Outputs(world.files, "secret"), (Scheduling(Calls(world.services), callers),))
        port = await server.start("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                submit = channel.unary_unary(
                    "/horae.v1.Scheduling/SubmitJob",
                    pb.SubmitJobRequest.SerializeToString,
                    pb.SubmitJobReply.FromString,
                )
                sent = pb.SubmitJobRequest(user_id="ann", schedule="1h", code_location="horae.handlers:noop")
                await submit(sent, metadata=(("authorization", known), ("x-forwarded-for", f"{OTHER}, {CLIENT}")))
                with pytest.raises(grpc.aio.AioRpcError):
                    await submit(sent, metadata=(("authorization", "Bearer x"), ("x-forwarded-for", CLIENT)))
        finally:
            await server.stop()
        assert (await told_from(world))[-2:] == [expected, expected]


def test_S40_a_proxy_that_is_believed_brings_as_many_connections_as_there_is_room_for() -> None:
    crowd = Crowd(8, BELIEVED)
    assert [bool(crowd.enter(PROXY)) for _ in range(6)] == [False] * 6
    assert [bool(crowd.enter(CLIENT)) for _ in range(3)] == [False, False, True]
    assert "8 connections" in crowd.enter(PROXY)
