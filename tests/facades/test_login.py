"""The gate with and without tokens: who is asked for one, who is let in, what strangers learn."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from horae.contracts import CONTRACTS
from horae.core.identity import LOCAL
from horae.core.roles import Role
from horae.errors import Unavailable
from horae.service.access import Access
from horae.service.access.credentials import CACHE_SECONDS, TRIES
from horae.service.insight.views import READY_SECONDS
from horae.web import app as web
from horae.web import streams
from tests.facades.test_native import DEADLINE, JOB, Follower, break_store, problem_of, submitted
from tests.facades.world import OWN, World, from_here

FAR = "https://10.0.0.1:8443"
NEAR = "http://127.0.0.1:8080"
STRANGER = os.geteuid() + 1


@pytest.fixture
def gate(world: World) -> web.Gate:
    """Listens beyond loopback."""
    return web.create_app(world.services, CONTRACTS, version="1.2.3", loopback_only=False)


@pytest.fixture
async def far(gate: web.Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=FAR) as client:
        yield client


@pytest.fixture
async def near(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=NEAR) as client:
        yield client


async def login(world: World, scope: str = "user", owner: str = "ann", **fields: Any) -> dict[str, str]:
    _, text = await world.services.access.create("ci", scope, owner, fields.get("expires_in"))
    return {"authorization": f"Bearer {text}"}


# ── beyond loopback ──


# In the address: any other is nowhere.
WITH_TOKENS_OF_THEIR_OWN = (
    "/v1/hooks/{trigger_id}/{token}", "/v1/callbacks/{run_id}/{name}/{token}",
    "/v1/pings/{job_id}/{token}", "/v1/pings/{job_id}/{token}/{state}",
)  # fmt: skip


# What strangers log in by, and what they are told who bring nothing.
WAYS_IN = {
    ("POST", "/login"): 401, ("GET", "/login/sso"): 409, ("GET", "/login/callback"): 400,
    ("GET", "/login/invite/{invitation}"): 200, ("POST", "/login/invite"): 401, ("POST", "/v1/device"): 200,
    ("POST", "/v1/device/token"): 415,
}  # fmt: skip


async def test_S02_every_operation_but_health_needs_a_token(far: httpx.AsyncClient, gate: web.Gate, world: World):
    paths = gate.api.document["paths"]
    asked = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(asked) > 25

    for method, path in [*asked, ("GET", "/nothing"), ("PATCH", "/v1/jobs"), ("HEAD", "/v1/jobs"), ("OPTIONS", "/")]:
        answer = await far.request(method, path.replace("{path}", "page.css").replace("{", "").replace("}", ""))
        if path in ("/healthz", "/readyz", "/ping", "/actuator/health", "/static/{path}") or (
            (method, path) == ("GET", "/login")
        ):
            assert answer.status_code == 200
        elif path in WITH_TOKENS_OF_THEIR_OWN:
            assert answer.status_code == 404
        elif (method, path) in WAYS_IN:
            assert answer.status_code == WAYS_IN[method, path], (method, path)
        else:
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    problem_of(await far.get("/v1/jobs"), 401, "E_TOKEN")
    assert await world.rows() == (0, 0, 0)


async def test_F57_S05_strangers_learn_that_it_lives_and_nothing_else(far: httpx.AsyncClient, world: World):
    await world.submit(schedule="* * * * *")
    world.clock.advance(180)  # and nobody fires

    assert (await far.get("/healthz")).json() == {"status": "ok"}
    ready = await far.get("/readyz")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "checks": {}})

    friend = await login(world)
    assert (await far.get("/healthz", headers=friend)).json()["version"] == "1.2.3"
    assert (await far.get("/readyz", headers=friend)).json()["checks"]


async def test_however_many_strangers_ask_readiness_is_looked_at_once_in_a_while(
    far: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    asked = 0
    readiness = world.services.insight.readiness

    async def counted() -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return await readiness()

    monkeypatch.setattr(world.services.insight, "readiness", counted)
    async with asyncio.TaskGroup() as group:
        for path in ("/readyz", "/actuator/health") * 20:
            group.create_task(far.get(path))
    assert asked == 1
    world.clock.advance(READY_SECONDS)
    answer = await far.get("/readyz")
    assert (asked, answer.json()) == (2, {"ready": True, "checks": {}})
    await far.get("/readyz", headers=await login(world))
    assert asked == 3


async def test_a_token_opens_everything_and_its_owner_owns_what_is_made(far: httpx.AsyncClient, world: World):
    friend = await login(world, owner="ann")

    made = await far.post("/v1/jobs", json=JOB, headers={**friend, "idempotency-key": "k"})

    assert made.json()["jobs"][0]["owner"] == "ann"
    other = await login(world, owner="bob")
    again = await far.post("/v1/jobs", json=JOB, headers={**other, "idempotency-key": "k"})
    assert (again.json()["replayed"], again.json()["jobs"][0]["owner"]) == (False, "bob")
    for path in ("/", "/docs", "/v1/overview", "/metrics", "/openapi.json", "/static/page.css"):
        assert (await far.get(path, headers=friend)).status_code == 200, path


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
async def test_the_scheme_may_be_written_in_any_case(far: httpx.AsyncClient, world: World, scheme: str):
    friend = await login(world)

    answer = await far.get("/v1/jobs", headers={"authorization": friend["authorization"].replace("Bearer", scheme)})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "sent",
    ["", "Bearer", "Bearer ", "Bearer x", "Digest x", "Bearer a b", "Bearer horae_u_1_", "Negotiate",
     pytest.param("Basic " + base64.b64encode(b"a:b").decode(), id="F03_basic"),
     pytest.param("Bearer " + "x" * 30_000, id="F07_long"), pytest.param(b"Bearer \xff\xfe", id="F07_bytes"),
     pytest.param("Bearer horae_u_1_\0", id="F07_nul"), pytest.param("Bearer ünïcödé".encode(), id="F07_unicode")],
)  # fmt: skip
async def test_what_is_no_good_token_is_refused_near_and_far(
    far: httpx.AsyncClient, near: httpx.AsyncClient, world: World, sent: str | bytes
):
    await login(world)
    for api in (far, near):
        answer = await api.get("/v1/jobs", headers=[("authorization", sent)])
        problem_of(answer, 401, "E_TOKEN")
        assert answer.headers["www-authenticate"] == 'Bearer realm="horae"'
    assert await world.rows() == (0, 0, 0)


async def test_F03_a_name_and_a_password_with_a_request_open_nothing(
    far: httpx.AsyncClient, gate: web.Gate, world: World
):
    """Also those of a user, and a token in the place of either."""
    token = (await login(world))["authorization"].removeprefix("Bearer ")
    await world.services.users.create("ann", LOCAL, roles={1: Role.ADMIN})
    for pair in ((b"ann", b"password"), (b"ann", token.encode()), (token.encode(), b"")):
        sent = {"authorization": f"Basic {base64.b64encode(b':'.join(pair)).decode()}"}
        for path in ("/v1/jobs", "/metrics", "/", "/lake/job/list", "/api/v1/user_jobs", "/openapi.json"):
            method = "POST" if path == "/lake/job/list" else "GET"
            answer = await far.request(method, path, headers=sent)
            assert answer.status_code == 401, (path, answer.text)


async def test_F07_a_token_of_a_megabyte_is_refused_without_looking_at_it(far: httpx.AsyncClient, world: World):
    """In a header it is too large to be read; a form takes it, and says no."""
    await login(world)
    huge = "x" * 1_000_000
    problem_of(await far.get("/v1/jobs", headers={"authorization": f"Bearer {huge}"}), 431, "E_HEADER")
    assert (await far.post("/login", data={"token": huge})).status_code in (401, 413)


async def test_two_authorization_headers_are_refused(far: httpx.AsyncClient, world: World):
    friend = (await login(world))["authorization"]

    answer = await far.get("/v1/jobs", headers=[("authorization", friend), ("authorization", "Bearer x")])

    problem_of(answer, 400, "E_HEADER")


async def test_revoked_and_expired_tokens_are_refused(far: httpx.AsyncClient, world: World):
    revoked, expired = await login(world), await login(world, expires_in=5)
    for headers in (revoked, expired):
        assert (await far.get("/v1/jobs", headers=headers)).status_code == 200

    assert (await far.delete("/v1/tokens/1", headers=expired)).status_code == 204
    problem_of(await far.get("/v1/jobs", headers=revoked), 401, "E_TOKEN")
    world.clock.advance(5)
    problem_of(await far.get("/v1/jobs", headers=expired), 401, "E_TOKEN")


async def test_a_token_of_an_agent_is_not_for_http(far: httpx.AsyncClient, near: httpx.AsyncClient, world: World):
    agent = await login(world, scope="agent")
    for api in (far, near):
        problem_of(await api.get("/v1/jobs", headers=agent), 403, "E_TOKEN_SCOPE")


async def test_S40_a_stranger_who_guesses_is_told_to_wait(far: httpx.AsyncClient, world: World):
    for number in range(TRIES):
        await far.get("/v1/jobs", headers={"authorization": f"Bearer horae_u_{number + 7}_{'A' * 43}"})

    answer = await far.get("/v1/jobs", headers={"authorization": f"Bearer horae_u_999_{'A' * 43}"})

    problem_of(answer, 429, "E_LIMITED")
    assert int(answer.headers["retry-after"]) > 0


async def test_S62_without_the_store_nobody_new_is_let_in(
    far: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    friend = await login(world)
    break_store(world, monkeypatch, "get_token", Unavailable("the database does not answer"))

    problem_of(await far.get("/v1/jobs", headers=friend), 503, "E_UNAVAILABLE")
    assert (await far.get("/healthz")).status_code == 200


async def test_a_browser_is_told_in_words_what_to_do(far: httpx.AsyncClient):
    answer = await far.get("/", headers={"accept": "text/html,application/xhtml+xml"})

    assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "horae token create" in answer.text
    assert "Authorization: Bearer" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert "1.2.3" not in answer.text


async def test_F55_browsers_are_told_to_stay_with_https(far: httpx.AsyncClient, near: httpx.AsyncClient):
    assert "max-age=" in (await far.get("/healthz")).headers["strict-transport-security"]
    assert "strict-transport-security" not in (await near.get("/healthz")).headers


async def test_a_foreign_page_gets_nothing_even_with_a_token(far: httpx.AsyncClient, world: World):
    friend = await login(world)

    answer = await far.get("/v1/jobs", headers={**friend, "origin": "https://evil.example"})

    problem_of(answer, 403, "E_ORIGIN")


@pytest.mark.parametrize("way", ["revoked", "expired", "revoked with its parent"])
@pytest.mark.parametrize("path", ["/v1/runs/{}/log/follow", "/api/v1/execution_logs/{}"])
async def test_S42_a_follower_whose_token_has_ended_is_sent_home(
    gate: web.Gate, world: World, monkeypatch: pytest.MonkeyPatch, way: str, path: str
):
    monkeypatch.setattr(streams, "PROOF_SECONDS", 0.01)
    run = await world.start_run()
    parent, _ = await world.services.access.create("ci", "user", "local", None)
    token, text = await world.services.access.create("ci", "user", "local", 3600.0, parent)
    follower = Follower(gate, run.run_id, headers=[(b"authorization", f"Bearer {text}".encode())], path=path)
    assert (await follower.start())["status"] == 200

    if way == "expired":
        world.clock.advance(3600)
    else:
        await world.services.access.revoke(token.id if way == "revoked" else parent.id)

    async with asyncio.timeout(DEADLINE):
        await follower.task
    assert world.followers == 0
    assert gate.streams.taken == 0


async def test_S42_a_token_that_was_revoked_on_another_node_follows_nothing_after_five_seconds(
    gate: web.Gate, world: World, monkeypatch: pytest.MonkeyPatch
):
    before_the_last_look = 5 - streams.PROOF_SECONDS
    monkeypatch.setattr(streams, "PROOF_SECONDS", 0.01)
    run = await world.start_run()
    token, text = await world.services.access.create("ci", "user", "local", None)
    follower = Follower(gate, run.run_id, headers=[(b"authorization", f"Bearer {text}".encode())])
    assert (await follower.start())["status"] == 200

    await Access(world.store, world.clock).revoke(token.id)
    world.clock.advance(before_the_last_look)

    async with asyncio.timeout(DEADLINE):
        await follower.task


# ── on loopback ──


async def test_on_loopback_no_token_is_needed_and_a_good_one_says_who_asks(near: httpx.AsyncClient, world: World):
    friend = await login(world, owner="ann")

    assert (await submitted(near))["owner"] == "local"
    made = await near.post("/v1/jobs", json=JOB, headers=friend)
    assert made.json()["jobs"][0]["owner"] == "ann"


@pytest.mark.parametrize("owner", [STRANGER, None])
async def test_on_loopback_other_accounts_and_what_cannot_be_told_need_a_token(world: World, owner: int | None):
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    transport = httpx.ASGITransport(gate) if owner is None else from_here(gate, owner)
    friend = await login(world)
    async with httpx.AsyncClient(transport=transport, base_url=NEAR) as other:
        shown = problem_of(await other.get("/v1/jobs"), 401, "E_TOKEN")
        assert "the user who runs this server" in shown["detail"]
        assert "horae token create" in shown["hint"]
        assert (await other.get("/ping", headers={"access-token": "of another system"})).status_code == 401
        assert (await other.get("/healthz")).json() == {"status": "ok"}
        assert (await other.get("/v1/jobs", headers=friend)).status_code == 200


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded"],
)
async def test_what_came_through_a_proxy_needs_a_token(near: httpx.AsyncClient, world: World, header: str):
    passed_on = {header: "192.0.2.7"}

    problem_of(await near.get("/v1/jobs", headers=passed_on), 401, "E_TOKEN")
    assert (await near.get("/v1/jobs", headers={**passed_on, **await login(world)})).status_code == 200


async def test_a_name_beyond_loopback_needs_a_token_also_where_it_is_listed(world: World):
    gate = web.create_app(world.services, CONTRACTS, version="1", allowed_hosts=["horae.example"], free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://horae.example") as proxied:
        problem_of(await proxied.get("/v1/jobs"), 401, "E_TOKEN")
        assert (await proxied.get("/v1/jobs", headers=await login(world))).status_code == 200
        assert (await proxied.get("/v1/jobs", headers={"host": "localhost:8080"})).status_code == 200


# ── /v1/tokens ──


async def test_a_token_made_over_http_is_shown_once_and_works(near: httpx.AsyncClient, far: httpx.AsyncClient):
    made = await near.post("/v1/tokens", json={"name": "ci", "owner": "ann", "expires_in": "30d"})

    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    token = made.json()
    secret = token.pop("token")
    assert token == {
        "id": 1, "name": "ci", "scope": "user", "owner": "ann", "org": 1, "state": "good", "revoked_at": None,
        "created_at": "2027-01-15T08:00:00Z", "expires_at": "2027-02-14T08:00:00Z", "parent_id": None,
        "role": "admin", "node": None, "kinds": None, "labels": None, "resources": None, "by_hash": False,
    }  # fmt: skip
    assert (await far.get("/v1/jobs", headers={"authorization": f"Bearer {secret}"})).status_code == 200
    listed = await near.get("/v1/tokens")
    assert listed.json() == {"items": [token], "cursor": None}
    assert secret[-43:] not in listed.text


async def test_a_token_made_with_a_token_has_its_owner_and_is_revoked_with_it(far: httpx.AsyncClient, world: World):
    friend = await login(world, owner="ann")

    made = (await far.post("/v1/tokens", json={"name": "laptop"}, headers=friend)).json()
    other = await far.post("/v1/tokens", json={"name": "x", "owner": "root"}, headers=friend)

    assert (made["owner"], made["parent_id"], made["expires_at"]) == ("ann", 1, "2027-04-15T08:00:00Z")
    problem_of(other, 403, "E_TOKEN_OWNER")
    child = {"authorization": f"Bearer {made['token']}"}
    assert (await far.delete("/v1/tokens/1", headers=child)).status_code == 204
    problem_of(await far.get("/v1/jobs", headers=child), 401, "E_TOKEN")


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "authorization"])
async def test_no_token_is_taken_from_the_query(far: httpx.AsyncClient, world: World, name: str):
    token = (await login(world))["authorization"].removeprefix("Bearer ")

    problem_of(await far.get("/v1/jobs", params={name: token}), 401, "E_TOKEN")


async def test_the_api_key_of_the_lake_contract_reaches_no_log(
    far: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    token = (await login(world))["authorization"].removeprefix("Bearer ")
    with capture_logs() as lines:
        assert (await far.post("/lake/job/list", params={"api_key": token}, json={})).status_code == 200
        wrong = await far.post("/lake/job/list", params={"api_key": token[:-2] + "__"}, json={})
        break_store(world, monkeypatch, "get_job", RuntimeError("broken"))
        broken = await far.get("/lake/job/1", params={"api_key": token})
    assert (wrong.status_code, broken.status_code) == (401, 500)
    assert [line["event"] for line in lines] == ["request failed"]
    assert token[-43:-2] not in f"{lines} {wrong.text} {broken.text}"


async def test_a_revoked_token_stays_listed_and_an_unknown_one_is_not_found(near: httpx.AsyncClient):
    await near.post("/v1/tokens", json={"name": "ci"})

    assert [(await near.delete("/v1/tokens/1")).status_code for _ in range(2)] == [204, 204]

    (shown,) = (await near.get("/v1/tokens")).json()["items"]
    assert (shown["state"], shown["revoked_at"]) == ("revoked", "2027-01-15T08:00:00Z")
    problem_of(await near.delete("/v1/tokens/2"), 404, "E_NOT_FOUND")


async def test_a_bad_request_for_a_token_makes_none(near: httpx.AsyncClient, world: World):
    answer = await near.post("/v1/tokens", json={"name": "", "scope": "admin", "expires_in": 0})

    shown = problem_of(answer, 422, "E_EMPTY")
    assert [one["path"] for one in shown["errors"]] == ["name", "scope", "expires_in"]
    assert await world.store.list_tokens() == []


async def test_a_check_costs_no_look_at_the_store_for_a_while(
    far: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    friend = await login(world)
    assert (await far.get("/v1/jobs", headers=friend)).status_code == 200
    break_store(world, monkeypatch, "get_token", Unavailable("asked"))

    assert (await far.get("/v1/jobs", headers=friend)).status_code == 200
    world.clock.advance(CACHE_SECONDS)
    assert (await far.get("/v1/jobs", headers=friend)).status_code == 503


# ── the document ──


def test_the_document_says_what_is_needed(gate: web.Gate, world: World):
    far, near = gate.api.document, web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN).api.document

    assert far["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert far["security"] == [{"token": []}]
    assert near["security"] == [{}, {"token": []}]
    assert far["paths"]["/healthz"]["get"]["security"] == [{}, {"token": []}]
    assert "security" not in far["paths"]["/v1/jobs"]["get"]
