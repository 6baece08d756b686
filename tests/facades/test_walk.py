"""The walk: every operation of every interface, as everybody.

Nobody, those with a token or a session that has expired, was revoked or is of a disabled user, each role, a browser
that has logged in, who runs the installation, and a stranger: the admin of another organisation, who has the same name.
What is declared is what happens; what the stranger names is not there, and nothing of it is seen or changed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from horae import wire
from horae.contracts import CONTRACTS
from horae.contracts.admin.grpc import NEEDED, SERVICE, Administration
from horae.contracts.rpc.caller import Caller
from horae.contracts.rpc.calls import Calls
from horae.contracts.rpc.grpc import METHODS, Scheduling
from horae.core.identity import EVERYWHERE, Principal, User
from horae.core.model import State
from horae.core.roles import PERMISSIONS, Permission, Role
from horae.core.signs import Terms
from horae.errors import NotFound
from horae.rpc.agents.admission import Agents
from horae.rpc.callers import Callers
from horae.rpc.handlers import Handlers
from horae.rpc.outputs import Outputs
from horae.rpc.server import RpcServer
from horae.service.access.agents import AgentAccess
from horae.service.events.feed import EventFeed
from horae.service.events.pulse import Pulse
from horae.web import app as web
from horae.wire.generated import administration_pb2
from tests.facades.lake.bodies import java, source, sync
from tests.facades.theirs import MARK, Theirs, furnish, rows_of
from tests.facades.world import World

FAR = "https://10.0.0.1:8443"
MINUTE = 61.0  # seconds, and one more
OTHER = 7  # the organisation of the stranger
OPEN_TO_ALL = 18  # operations
ELSEWHERE = {"x": "1"}  # a parameter that none of our own operations has: who may, gets no further
DEADLINE = 60.0  # seconds
FOR_AGENTS = "/api/worker-agent/dispatch"

Asked = tuple[str, str]  # method and path


@pytest.fixture
def gate(world: World) -> web.Gate:
    return web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)


@pytest.fixture
async def far(gate: web.Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=FAR) as client:
        yield client


def operations(gate: web.Gate) -> dict[Asked, dict[str, Any]]:
    paths = gate.api.document["paths"].items()
    return {(method.upper(), path): shown for path, methods in paths for method, shown in methods.items()}


def sent_with(text: str | None) -> dict[str, str]:
    """Return a token in every place where one of the interfaces looks for it."""
    if text is None:
        return {}
    if text.startswith("horae_s"):
        return {"cookie": f"__Host-horae={text}; session={text}", "origin": FAR}
    return {"authorization": f"Bearer {text}", "access-token": text, "cookie": f"session={text}"}


async def token_of(world: World, role: Role = Role.ADMIN, org: int = 1, seconds: float | None = None) -> str:
    return (await world.services.access.create(role, "user", "ann", seconds, org=org, role=role))[1]


async def unknown(world: World) -> dict[str, str | None]:
    """Return those whom nobody lets in, by what is wrong with them."""
    expired = await token_of(world, seconds=1.0)
    revoked, text = await world.services.access.create("gone", "user", "ann", None)
    await world.services.access.revoke(revoked.id)
    agent = (await world.services.access.create("a", "agent", "ann", None))[1]
    sessions, bob = world.services.access.sessions, await user_of(world, "bob", 1)
    short, _ = await world.services.access.create("short", "user", "ann", 5.0)
    over = await sessions.open(short)
    ended = await sessions.open((bob, 1))
    await sessions.end_all(bob.id)
    theirs = (await world.services.access.create("bob", "user", "bob", None))[1]
    stayed = await sessions.open((bob, 1))
    await world.store.set_disabled(bob.id, world.clock.now())
    world.clock.advance(10)
    return {
        "nobody": None, "expired": expired, "revoked": text, "agent": agent, "wrong": revoked_like(text),
        "session over": over, "session ended": ended, "token of a disabled user": theirs,
        "session of a disabled user": stayed,
    }  # fmt: skip


async def user_of(world: World, name: str, org: int, role: Role = Role.ADMIN) -> User:
    made = await world.store.add_user(User(0, name, roles={org: role}))
    assert made is not None
    return made


def revoked_like(text: str) -> str:
    return text[:-4] + "AAAA"


def address(path: str) -> str:
    return re.sub(r"{\w+}", "7", path)


# ── over HTTP ──


async def test_F01_who_is_not_let_in_gets_nothing_but_what_is_open(
    far: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    asked, seen = operations(gate), Counter[str]()
    for who, text in (await unknown(world)).items():
        for (method, path), shown in asked.items():
            if "x-permission" not in shown or (who == "agent" and path == FOR_AGENTS):
                continue
            answer = await far.request(method, address(path), headers=sent_with(text))
            expected = (401, 403) if who == "agent" or path == FOR_AGENTS else (401,)
            assert answer.status_code in expected, (who, method, path, answer.status_code, answer.text)
            seen[who] += 1
            world.clock.advance(MINUTE)  # else it would answer that this address was wrong too often
    closed = len([shown for shown in asked.values() if "x-permission" in shown])
    assert len(asked) - closed == OPEN_TO_ALL
    assert set(seen.values()) == {closed, closed - 1}, seen
    assert seen.total() == len(seen) * closed - 1 >= 9 * 200, seen
    print(f"{closed} routes × {len(seen)} who are not let in")


async def principals(world: World) -> dict[str, tuple[Role, str]]:
    """Return everybody who is let in, with what they may do."""
    people = {str(role): (role, await token_of(world, role)) for role in (*Role, *SOME)}
    sessions = world.services.access.sessions
    for role in (Role.VIEWER, Role.ADMIN):
        opened = await sessions.open((await user_of(world, f"{role}-at-a-browser", 1, role), 1))
        people[f"{role} at a browser"] = role, opened
    installer = await user_of(world, "root", EVERYWHERE)
    people["admin of the installation"] = Role.ADMIN, await sessions.open((installer, 1))
    people["token of that"] = Role.ADMIN, (await world.services.access.create("r", "user", "root", None))[1]
    return people


SOME = Role("runs.start+jobs.pause"), Role("read+jobs.write+tokens.write"), Role("logs.read")
NOT_FOR_PEOPLE = {FOR_AGENTS}
WITHOUT_COOKIES = {"lake", "sync", "administration"}  # programs bring tokens


async def test_S04_each_principal_may_do_what_is_declared_and_nothing_else(
    far: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    asked, walked = operations(gate), 0
    people = await principals(world)
    closed = [it for it, shown in asked.items() if "x-permission" in shown and it[1] not in NOT_FOR_PEOPLE]
    for who, (role, text) in people.items():
        for method, path in closed:
            if text.startswith("horae_s") and ends_the_session(method, path):
                continue
            shown = asked[method, path]
            needed = Permission(shown["x-permission"])
            answer = await far.request(method, address(path), headers=sent_with(text), params=ELSEWHERE)
            case = who, method, path, answer.status_code, answer.text
            walked += 1
            if text.startswith("horae_s") and shown["tags"][0] in WITHOUT_COOKIES:
                assert answer.status_code == 401, case
                continue
            refused = answer.status_code == 403 and str(needed) in answer.text
            assert refused == (needed not in PERMISSIONS[role]), case
            assert answer.status_code not in (401, 500), case
    left_out = 3 * len([it for it in closed if ends_the_session(*it)])
    assert walked == len(people) * len(closed) - left_out >= 11 * 200
    print(f"{len(closed)} routes × {len(people)} who are let in")


def ends_the_session(method: str, path: str) -> bool:
    return path.endswith("/logout")


NAMES = {
    "/rules/": "nights", "/channels/": "ops", "/secrets/": "A", "/nodes/": f"{MARK}-agent", "/queues/": f"{MARK}-queue",
}  # fmt: skip


# What a stranger asks for, where the first of its kind will not do.
def path_of(theirs: Theirs, method: str, path: str, tag: str) -> str:
    jobs = {"lake": theirs.lake, "sync": theirs.sync, "segment contract": theirs.segment}
    given = {
        "job_id": theirs.watched if "ping" in path else jobs.get(tag, theirs.job),
        "run_id": theirs.approval if path.endswith(("approve", "reject")) else theirs.ended,
        "execution_id": theirs.ended, "trigger_id": theirs.hook if "hook" in path else theirs.trigger,
        "alert_id": theirs.alert, "grant_id": theirs.grant, "token_id": theirs.token, "source_id": theirs.source,
        "org_id": 1, "path": f"{MARK}.txt", "token": "known", "state": "start", "worker": "w",
        "session_id": 1, "org": 1,
        "name": next((name for place, name in NAMES.items() if place in path), "x"),
    }  # fmt: skip
    return re.sub(r"{(\w+)}", lambda found: str(given[found[1]]), path)


def body_of(theirs: Theirs, method: str, path: str, shown: dict[str, Any]) -> Any:
    progress = {"class_name": "java_job_progress", "job_id": theirs.lake, "job_status": "Synced", "message": "mine"}
    ids = {"ids": [theirs.job, theirs.lake, theirs.sync], "job_ids": [theirs.lake, theirs.sync]}
    known = {
        ("POST", "/v1/runs"): {"runs": [{"job": theirs.job}, {"job": "k"}]},
        ("POST", "/v1/runs/rerun"): {"runs": [theirs.ended]},
        ("POST", "/v1/jobs/pause"): {"jobs": [theirs.job]},
        ("POST", "/v1/jobs/resume"): {"jobs": [theirs.job]},
        ("POST", "/v1/jobs/tag"): {"jobs": [theirs.job], "add": ["walked"]},
        ("POST", "/lake/schedule/job/report"): {**progress, "run_id": theirs.lake_run * 1000 + 1},
        ("DELETE", "/job/multi_delete"): ids,
        ("PUT", "/schedule/job/multi_sync/now"): ids,
        ("DELETE", "/source/multi_delete"): {"ids": [theirs.source]},
        ("POST", "/api/v1/job"): {"JobId": guid(theirs.job)},
        ("POST", "/api/v1/job-statuses"): {"PageSize": 100, "Page": 1},
        ("POST", "/api/job-store/executions"): {"jobId": theirs.segment, "workerId": "w", "status": "RUNNING"},
        ("POST", FOR_AGENTS): {"jobId": theirs.segment},
        ("PUT", "/lake/job/{job_id}"): java(),
        ("PUT", "/job/{job_id}"): sync(source_id=theirs.source),
        ("POST", "/job/create"): sync(source_id=theirs.source),
        ("PUT", "/source/{source_id}"): source(),
        ("POST", "/lake/job/list"): {"from": 0, "size": 100},
        ("POST", "/job/list"): {"from": 0, "size": 100},
    }
    if (method, path) in known:
        return known[method, path]
    return shown.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")


def guid(job_id: int) -> str:
    from horae.contracts.admin import guids

    return guids.guid(guids.Kind.JOB, job_id)


QUERIES: dict[str, list[dict[str, Any]]] = {
    "/v1/triggers": [{"job_id": "{job}"}], "/v1/runs": [{"job_id": "{job}"}, {"trigger_id": "{trigger}"}],
    "/v1/events": [{"job": "{job}"}, {"run": "{ended}"}, {"limit": 1}], "/v1/events/stream": [{"after": "0.0.0"}],
    "/v1/jobs": [{"owner": "ann"}, {"key": "k"}, {"name": MARK}], "/api/v1/user_jobs": [{"user_id": "ann"}],
    "/v1/forecast": [{"by": by} for by in ("job", "owner", "queue")],
    "/api/jobs": [{"status": word} for word in ("PENDING", "SCHEDULED", "RUNNING", "COMPLETED", "FAILED")],
    "/api/jobs/{job_id}/status": [{"status": "CANCELLED"}, {"status": "SCHEDULED"}],
    "/api/job-schedules/due": [{"asOf": "2100-01-01T00:00:00Z", "segments": ",".join(map(str, range(100)))}],
    "/api/executions": [{"jobId": "{segment}"}, {"workerId": "node-1"}],
    "/v1/runs/{run_id}/log/follow": [{}], "/api/v1/last_execution_logs/{job_id}": [{"format": "text"}],
    "/api/segments/assign": [{"workerId": "w", "desiredSegments": 3}], "/api/segments/release": [{"workerId": "w"}],
    "/api/workers/{worker}/status": [{"status": "OFFLINE"}],
}  # fmt: skip


def queries(theirs: Theirs, path: str) -> list[dict[str, Any]]:
    def filled(value: Any) -> Any:
        return getattr(theirs, value[1:-1]) if isinstance(value, str) and value.startswith("{") else value

    asked = [{name: filled(value) for name, value in one.items()} for one in QUERIES.get(path, [])]
    return asked if path.startswith("/api/") and asked else [{}, *asked]


IDS = r"{(job_id|run_id|execution_id|trigger_id|alert_id|token_id|source_id|grant_id)}"
NAMED = re.compile(rf"{IDS}|/(queues|nodes)/{{name}}")
TAKEN = ("PUT", "/v1/queues/{name}")  # names of queues are those of all: this one, it is told, is another's


def is_as_absent(tag: str, method: str, status: int) -> bool:
    """Return whether a thing that is not there is answered so, in the words of each contract."""
    if tag in ("lake", "sync"):
        return status == 400 or (method == "DELETE" and status == 200)
    return status == 404 or (tag == "segment contract" and method == "DELETE" and status == 200)


async def test_F47_S03_a_stranger_finds_and_changes_nothing_of_another_organisation(
    far: httpx.AsyncClient, gate: web.Gate, world: World, tmp_path: Path
) -> None:
    theirs = await furnish(world)
    headers, before = sent_with(await token_of(world, org=OTHER)), rows_of(tmp_path)
    gate.streams.close()  # what would never end ends at once
    wrong = []
    for (method, path), shown in operations(gate).items():
        tag = shown["tags"][0]
        if shown.get("x-permission") is None or path in ("/logout", "/api/v1/logout", "/v1/me/token"):
            continue
        for query in queries(theirs, path):
            asked = path_of(theirs, method, path, tag)
            body = body_of(theirs, method, path, shown)
            answer = await far.request(method, asked, headers=headers, params=query, json=body)
            case = method, path, query, answer.status_code, answer.text[:300]
            if answer.status_code >= 500 and answer.status_code != 503:
                wrong.append(("broke", *case))
            if MARK in re.sub(rf"{MARK}-(queue|agent)" if NAMED.search(path) else asked, "", answer.text):
                wrong.append(("told", *case))
            if (method, path) == TAKEN:
                assert (answer.status_code, answer.json()["code"]) == (409, "E_NAME_TAKEN")
            elif NAMED.search(path) and path != FOR_AGENTS and not is_as_absent(tag, method, answer.status_code):
                wrong.append(("was there", *case))
            if lost := before - rows_of(tmp_path):
                wrong.append(("changed", *case, *list(lost)[:2]))
                before = rows_of(tmp_path)
    assert not wrong, "\n".join(map(str, wrong))


async def test_F47_the_runs_of_another_organisation_are_not_there_for_many_at_once(
    far: httpx.AsyncClient, world: World, tmp_path: Path
) -> None:
    theirs = await furnish(world)
    headers, before = sent_with(await token_of(world, org=OTHER)), rows_of(tmp_path)
    ids = [theirs.queued, theirs.ended, theirs.approval, theirs.lake_run, theirs.user_run]
    for verb in ("cancel", "rerun"):
        for body in ({"runs": ids}, {"where": {"job": theirs.job}}, {"where": {"owner": "ann"}}, {"where": {}}):
            answer = await far.post(f"/v1/runs/{verb}", json=body, headers=headers)
            assert MARK not in answer.text, (verb, body, answer.text)
            told = answer.json().get("items", [])
            assert {each["error"]["code"] for each in told} <= {"E_NOT_FOUND"}, (verb, body, answer.text)
            assert len(told) == (len(ids) if "runs" in body else 0), (verb, body, answer.text)
            assert not before - rows_of(tmp_path), (verb, body)


async def test_F47_a_stranger_who_follows_hears_nothing_of_another_organisation(
    far: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    headers = sent_with(await token_of(world, org=OTHER))
    feeds = {"/v1/events/stream": world.services.events, "/v1/events/pulse": world.services.pulse}
    heard: dict[str, bytes] = dict.fromkeys(feeds, b"")
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        loops = [group.create_task(_step_on(feed)) for feed in feeds.values()]
        for path in feeds:
            group.create_task(_follow(gate, path, headers, heard))
        while not all(feed._seats for feed in feeds.values()):
            await asyncio.sleep(0.001)
        await furnish(world)
        mine = await far.post("/v1/jobs", json={"name": "mine", "steps": [{"run": "true"}]}, headers=headers)
        job_id = mine.json()["jobs"][0]["id"]
        while not all(re.search(rf'"jobs?":\[?{job_id}\b'.encode(), said) for said in heard.values()):
            world.clock.advance(1)
            await asyncio.sleep(0.001)
        gate.streams.close()
        for task in loops:
            task.cancel()
    for path, said in heard.items():
        assert MARK.encode() not in said, (path, said)
        assert {int(it) for it in re.findall(rb'"jobs?":\[?(\d+)', said)} == {job_id}, (path, said)


async def _step_on(feed: EventFeed | Pulse) -> None:
    while True:
        await feed.step()


async def _follow(gate: web.Gate, path: str, headers: dict[str, str], heard: dict[str, bytes]) -> None:
    """Note what a stream says while it says it."""
    sent = [(b"host", b"10.0.0.1:8443"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": sent, "scheme": "https"}

    async def receive() -> dict[str, Any]:
        return await asyncio.Future()

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200, message
        heard[path] += message.get("body", b"")

    await gate({**scope, "client": ("10.0.0.2", 1)}, receive, send)


async def test_a_stranger_of_the_same_name_repeats_nobody_elses_request(far: httpx.AsyncClient, world: World) -> None:
    job, once = {"name": f"{MARK} job", "steps": [{"run": "true"}]}, {"idempotency-key": "1"}
    for org in (1, OTHER):
        headers = {**sent_with(await token_of(world, org=org)), **once}
        answer = (await far.post("/v1/jobs", json=job, headers=headers)).json()
        assert (answer["replayed"], answer["jobs"][0]["org"]) == (False, org)


async def test_an_agent_is_of_the_organisation_that_lets_it_in(far: httpx.AsyncClient, world: World) -> None:
    wanted = {"name": "a", "scope": "agent", "node": "n"}
    for org in (1, OTHER):
        made = await far.post("/v1/tokens", json=wanted, headers=sent_with(await token_of(world, org=org)))
        assert (made.status_code, made.json()["org"]) == (201, org)
    for_all = {**wanted, "org": 1}
    refused = await far.post("/v1/tokens", json=for_all, headers=sent_with(await token_of(world, org=OTHER)))
    assert (refused.status_code, refused.json()["code"]) == (403, "E_INSTALLATION")
    editor = sent_with(await token_of(world, Role("read+tokens.write"), org=OTHER))
    refused = await far.post("/v1/tokens", json=wanted, headers=editor)
    assert (refused.status_code, refused.json()["code"]) == (403, "E_ROLE")


async def test_what_belongs_to_the_installation_is_seen_by_a_stranger_and_not_changed(
    far: httpx.AsyncClient, world: World
) -> None:
    await world.join()
    headers = sent_with(await token_of(world, org=OTHER))
    for kind, name, verbs in (("queues", "default", ("pause", "drain")), ("nodes", "node-1", ("cordon", "evict"))):
        assert name in (await far.get(f"/v1/{kind}", headers=headers)).text
        for verb in verbs:
            answer = await far.post(f"/v1/{kind}/{name}/{verb}", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "E_INSTALLATION")
    answer = await far.put("/v1/queues/default", json={"concurrency": 1}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "E_INSTALLATION")


async def test_a_worker_from_outside_is_given_what_its_own_organisation_has(
    far: httpx.AsyncClient, world: World
) -> None:
    """By whatever contract it asks for work: it gets its own, though another's is more urgent."""
    theirs = await furnish(world)
    headers = sent_with(await token_of(world, org=OTHER))
    made = await far.post("/lake/job/create", json=java(display_name="mine"), headers=headers)
    await world.fire()
    taken = (await far.get("/lake/schedule/job/next", headers=headers)).json()
    assert taken["data"]["job"]["job_id"] == made.json()["job"]["job_id"]
    assert (await world.jobs.get_run(theirs.lake_run)).state is State.QUEUED
    again = (await far.get("/lake/schedule/job/next", headers=sent_with(await token_of(world)))).json()
    assert again["data"]["job"]["job_id"] == theirs.lake


async def test_a_registered_worker_belongs_to_the_organisation_that_had_its_name_first(
    far: httpx.AsyncClient, world: World
) -> None:
    ours, theirs = sent_with(await token_of(world)), sent_with(await token_of(world, org=OTHER))
    address = "/api/execution-coordinator/workers/w1"
    at = {"host": "10.1.2.3", "port": 9000}
    assert (await far.post(address, params=at, headers=ours)).status_code == 200
    assert (await far.post(address, params={**at, "port": 9001}, headers=theirs)).status_code == 409
    for method, path in (("GET", address), ("POST", f"{address}/heartbeat"), ("DELETE", address)):
        assert (await far.request(method, path, headers=theirs)).status_code == 404
    for path in ("/api/workers", "/v1/nodes"):
        assert "w1" not in (await far.get(path, headers=theirs)).text
        assert "w1" in (await far.get(path, headers=ours)).text
    other = "/api/execution-coordinator/workers/w2"
    assert (await far.post(other, params=at, headers=theirs)).status_code == 200
    named = [[node.name for node in await world.dispatching.candidates("segments", org)] for org in (1, OTHER)]
    assert named == [["w1@agent"], ["w2@agent"]]


# ── by calls ──


def calls_about(theirs: Theirs) -> dict[str, dict[str, Any]]:
    """Return what to ask for, by the calls that name something."""
    run, job = {"execution_id": theirs.user_run}, {"job_id": theirs.user}
    return {
        "retrieve_all_jobs": {"user_id": MARK}, "delete_job": {"user_id": MARK, **job}, "get_exec_history": job,
        "get_log": {"execution_id": theirs.ended}, "dispatch": job, "cancel": run, "heartbeat": {"worker_id": "w"},
        "take_due_jobs": {"worker_id": "w", "limit": 100},
        "status_update": {**run, "status": "running", "worker_id": "w"},
        "write_log": {**run, "worker_id": "w", "text": "mine"},
        "submit_job": {"user_id": "x", "code_location": "horae.handlers:noop"},
    }  # fmt: skip


async def test_F47_a_stranger_finds_and_changes_nothing_by_any_call(world: World, tmp_path: Path) -> None:
    theirs = await furnish(world)
    calls, before = Calls(world.services), rows_of(tmp_path)
    caller = Caller(Principal("ann", OTHER, Role.ADMIN, via="token 1"))
    named = {"delete_job", "get_exec_history", "get_log", "dispatch", "cancel", "status_update", "write_log"}
    for name in calls.methods:
        said: Any = None
        try:
            said = await calls.call(name, calls_about(theirs).get(name, {}), caller)
        except NotFound:
            named.discard(name)
        assert MARK not in str(said), (name, said)
        assert not before - rows_of(tmp_path), name
    assert not named


@pytest.fixture
async def port(world: World) -> AsyncIterator[int]:
    """Every service, over gRPC."""
    callers = Callers(world.services.access, world.audit, lambda _: False)
    contracts = (Scheduling(Calls(world.services), callers), Administration(world.services, callers))
    credentials = AgentAccess(world.services.access, world.store, world.audit, renewed_after=3600.0)
    agents = Agents(
        world.execution, world.store, world.queue, world.files, world.clock, node="node-1", version="1",
        terms=Terms(15.0, 5.0), admit=credentials.admit, credentials=credentials,
    )  # fmt: skip
    handlers = Handlers(world.services.catalogues, "secret")
    outputs = Outputs(world.files, "secret")
    server = RpcServer(agents, outputs, contracts, identify=callers.identify, handlers=handlers)
    yield await server.start("127.0.0.1:0")
    await server.stop()


async def test_S02_over_grpc_each_call_is_for_whom_it_is_declared(port: int, world: World) -> None:
    needed = {f"/horae.v1.Scheduling/{name}": Calls(world.services).methods[METHODS[name][0]].needs for name in METHODS}
    for name in SERVICE.methods_by_name:
        needed[f"/{SERVICE.full_name}/{name}"] = NEEDED[name]
    people = await unknown(world)
    people |= {role: await token_of(world, role) for role in Role}
    walked = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for who, text in people.items():
            metadata = () if text is None else (("authorization", f"Bearer {text}"),)
            for path, permission in needed.items():
                world.clock.advance(MINUTE)
                status = await status_of(channel.unary_unary(path)(b"", metadata=metadata))
                if who in set(Role):
                    is_denied = permission not in PERMISSIONS[Role(who)]
                    assert (status is grpc.StatusCode.PERMISSION_DENIED) == is_denied, (who, path, status)
                else:
                    expected = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
                    assert status in expected, (who, path, status)
                walked += 1
    assert walked == len(people) * len(needed) == 13 * 20


async def test_S02_what_is_for_agents_and_servers_is_for_nobody_else(port: int, world: World) -> None:
    people = {who: text for who, text in (await unknown(world)).items() if who != "agent"}
    people |= {who: text for who, (_, text) in (await principals(world)).items()}
    people["stranger"] = await token_of(world, org=OTHER)
    people["agent"] = (await world.services.access.create("a", "agent", "ann", None))[1]
    people["evicted"] = (await world.services.access.create("b", "agent", "ann", 1.0))[1]
    world.clock.advance(10)
    walked = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for who, text in people.items():
            metadata = () if text is None else (("authorization", f"Bearer {text}"),)
            for path in (wire.READ_OUTPUT, wire.LIST_PIECES, wire.LIST_HANDLERS):
                status = await status_of(channel.unary_unary(path)(b"", metadata=metadata))
                assert status is grpc.StatusCode.PERMISSION_DENIED, (who, path, status)
                walked += 1
            world.clock.advance(MINUTE)
            frames = channel.stream_stream(wire.CONNECT)(iter([b""]), metadata=metadata)
            status = await status_of(frames.read())
            if who == "agent":  # let in, it says no hello
                assert status is grpc.StatusCode.INVALID_ARGUMENT, status
            else:
                assert status in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED), (who, status)
            walked += 1
    assert walked == 4 * len(people) == 4 * 22


async def test_F47_a_stranger_finds_and_changes_nothing_over_grpc(port: int, world: World, tmp_path: Path) -> None:
    theirs = await furnish(world)
    metadata = (("authorization", f"Bearer {await token_of(world, org=OTHER)}"),)
    asked = {f"/horae.v1.Scheduling/{name}": scheduled(theirs, name) for name in METHODS}
    execute = administration_pb2.ExecuteJobRequest(JobId=guid(theirs.job))
    for name in SERVICE.methods_by_name:
        asked[f"/{SERVICE.full_name}/{name}"] = execute.SerializeToString() if name == "ExecuteJob" else b""
    before, absent = rows_of(tmp_path), set()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for path, raw in asked.items():
            call = channel.unary_unary(path)(raw, metadata=metadata)
            status = await status_of(call)
            said = await call if status is grpc.StatusCode.OK else str(await call.details()).encode()
            absent |= {path.rpartition("/")[2]} if status is grpc.StatusCode.NOT_FOUND else set()
            assert MARK.encode() not in said, (path, said)
            assert not before - rows_of(tmp_path), path
    assert absent == {
        "DeleteJob", "GetExecHistory", "GetLog", "Dispatch", "Cancel", "StatusUpdate", "WriteLog", "ExecuteJob",
    }, absent  # fmt: skip


def scheduled(theirs: Theirs, name: str) -> bytes:
    """Return the message of a call, which names what is another's."""
    call, form, _ = METHODS[name]
    fields = calls_about(theirs).get(call, {})
    return form(
        **{key: value.encode() if key == "text" else value for key, value in fields.items()}
    ).SerializeToString()


async def status_of(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
