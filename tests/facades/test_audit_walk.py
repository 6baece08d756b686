"""The walk of the audit log: every operation that changes something, of every interface, leaves its row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.message_factory import GetMessageClass

from horae.contracts import CONTRACTS
from horae.contracts.admin.grpc import NEEDED, SERVICE
from horae.contracts.rpc.calls import Calls
from horae.contracts.rpc.grpc import METHODS
from horae.core.audit import AuditFilter, Row
from horae.core.roles import Permission
from horae.web import app as web
from horae.web import auditing, http
from horae.wire.generated import scheduling_pb2 as pb
from tests.facades import test_walk
from tests.facades.lake.bodies import java, source, sync
from tests.facades.test_walk import Asked, body_of, guid, operations, path_of, queries, token_of
from tests.facades.theirs import MARK, Theirs, furnish
from tests.facades.world import HERE, OWN, World, from_here

port = test_walk.port  # a fixture of theirs
ORDER = {"GET": 0, "POST": 0, "PUT": 1, "PATCH": 1, "DELETE": 2}
PAGE = {"accept": "text/html, */*"}
WORKER = {"workerId": "w", "host": "127.0.0.1", "port": 9000}
# What needs a world of its own to be done; each has a test where it is at home.
NOT_DONE = {
    ("POST", "/login"), ("POST", "/login/invite"), ("POST", "/v1/device/token"),  # these by tests/facades/test_users.py
    ("GET", "/login/callback"), ("POST", "/organisation"), ("POST", "/device"), ("DELETE", "/v1/me/token"),
    ("DELETE", "/v1/sessions/{session_id}"),
    ("POST", "/v1/callbacks/{run_id}/{name}/{token}"), ("POST", "/v1/runs/{run_id}/signals/{name}"),
    ("POST", "/v1/runs/{run_id}/reject"), ("POST", "/v1/runs/{run_id}/retry"), ("DELETE", "/v1/queues/{name}"),
    ("POST", "/api/scheduler-worker/segments"), ("PUT", "/api/workers/{worker}/status"),
    ("DELETE", "/v1/jobs/{job_id}/cursor"),
    ("DELETE", "/v1/orgs/{org}"),  # of the first organisation, which stays: tests/facades/test_organisation_limits.py
}  # fmt: skip
# What changes a definition says what it was before, and what it is now.
CHANGES = {
    ("PUT", "/v1/alerts/channels/{name}"),
    ("PUT", "/v1/alerts/rules/{name}"),
    ("PUT", "/v1/queues/{name}"),
    ("PUT", "/v1/secrets/{name}"),
    ("PUT", "/v1/resources/{name}"),
    ("PUT", "/v1/orgs/{org}/members/{name}"),
    ("POST", "/v1/grants"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/users"),
    ("POST", "/v1/orgs"),
    ("POST", "/v1/jobs"),
    ("PUT", "/v1/jobs/{job_id}"),
    ("POST", "/v1/jobs/{job_id}/triggers"),
    ("POST", "/v1/jobs/{job_id}/pause"),
    ("PUT", "/v1/triggers/{trigger_id}"),
    ("POST", "/v1/nodes/{name}/cordon"),
    ("POST", "/v1/users/{name}/link"),
    ("POST", "/source/create"),
    ("PUT", "/source/{source_id}"),
    ("PUT", "/lake/job/{job_id}"),
    ("PUT", "/job/{job_id}"),
    ("DELETE", "/v1/grants/{grant_id}"),
    ("DELETE", "/v1/alerts/rules/{name}"),
    ("DELETE", "/v1/alerts/channels/{name}"),
    ("DELETE", "/v1/tokens/{token_id}"),
    ("DELETE", "/v1/secrets/{name}"),
    ("DELETE", "/v1/resources/{name}"),
    ("DELETE", "/v1/orgs/{org}/members/{name}"),
}
CHANGED = {
    ("POST", "/v1/queues/{name}/pause"): {"state": ["draining", "paused"]},
    ("POST", "/v1/users/{name}/disable"): {"disabled": [False, True]},
    ("PUT", "/v1/secrets/{name}"): {"value": ["******", "****** anew"]},
    ("PUT", "/v1/orgs/{org}/members/{name}"): {"role": [None, "editor"]},
    ("DELETE", "/v1/grants/{grant_id}"): {"role": ["editor", None], "tag": ["t", None], "who": ["canary", None]},
    ("DELETE", "/v1/tokens/{token_id}"): {"state": ["good", "revoked"]},
}
ONLY_LOOKS = {("POST", "/v1/jobs/{job_id}/plan"), ("POST", "/jobs/picture")}


@pytest.fixture
def gate(world: World) -> web.Gate:
    return web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN)


@pytest.fixture
async def near(gate: web.Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield client


def told(gate: web.Gate) -> list[tuple[Asked, dict[str, Any]]]:
    """Return what the audit log tells of, in an order in which it can be done."""
    asked = [(each, shown) for each, shown in operations(gate).items() if auditing.is_told(operation(gate, *each))]
    return sorted(asked, key=lambda it: place_of(*it[0]))


def place_of(method: str, path: str) -> tuple[Any, ...]:
    """Beats come after what they are of, triggers are changed before the jobs that have them, and what deletes is
    last."""
    is_trigger = method != "POST" and path.startswith("/v1/triggers")
    return ORDER[method], path.endswith("/heartbeat"), not is_trigger, path


def operation(gate: web.Gate, method: str, path: str) -> http.Operation:
    return gate._routes.find(path)[0][method]


def bodies(theirs: Theirs) -> dict[Asked, Any]:
    """What to send, where the example of the document will not do."""
    job = {"name": "n", "run_once": True, "steps": [{"run": "true"}]}
    stored = {"jobName": "n", "userId": 7, "frequency": "DAILY", "executionTime": "2001-01-01T00:00:00Z"}
    return {
        ("POST", "/api/jobs"): {**stored, "payload": "p"},
        ("POST", "/api/v1/submit_job"): {"jobs": [job]},
        ("POST", "/api/scheduler-workers/register"): WORKER,
        ("POST", "/api/scheduler-workers/heartbeat"): WORKER,
        ("POST", "/api/coordinator/register"): {"nodeId": "c", "host": "127.0.0.1", "port": 9001},
        ("POST", "/api/coordinator/heartbeat"): {"nodeId": "c"},
        ("POST", "/api/v1/job"): {"JobId": guid(theirs.job)},
        ("POST", "/job/multi_create"): {"base_job": sync(source_id=theirs.source)["job"], "table_names": ["a"]},
        ("POST", "/job/multi_create_jobs"): {"jobs": [sync(source_id=theirs.source)["job"]]},
        ("POST", "/lake/job/create"): java(),
        ("POST", "/source/create"): source(),
        ("DELETE", "/job/multi_delete"): {"ids": [theirs.sync]},
        ("POST", "/v1/users"): {"name": "x"},
        ("POST", "/v1/users/{name}/link"): {"issuer": "https://id.example", "subject": "7"},
        ("POST", "/v1/jobs/{job_id}/triggers"): {"every": "2h"},
        ("PUT", "/v1/orgs/{org}/members/{name}"): {"role": "editor"},
        ("PUT", "/v1/triggers/{trigger_id}"): {"every": "1h"},
        ("PATCH", "/v1/triggers/{trigger_id}"): {"enabled": True},
    }  # fmt: skip


def place(theirs: Theirs, method: str, path: str, tag: str) -> str:
    """Return the address of something that is there, and still is when its turn comes."""
    known = {
        ("POST", "/v1/runs/{run_id}/cancel"): f"/v1/runs/{theirs.queued}/cancel",
        ("DELETE", "/api/v1/job/{job_id}"): f"/api/v1/job/{theirs.watched}",
        ("DELETE", "/v1/alerts/channels/{name}"): "/v1/alerts/channels/canary",
        ("DELETE", "/v1/triggers/{trigger_id}"): f"/v1/triggers/{theirs.hook}",
    }
    return known.get((method, path)) or path_of(theirs, method, path, tag)


SHOWN = {("GET", "/v1/jobs/{job_id}/ping"), ("GET", "/v1/runs/{run_id}/callbacks/{name}")}


async def rows_with(world: World, answer: httpx.Response) -> list[Row]:
    found = await world.store.list_audit(AuditFilter(), None, 1000)
    return [row for row in found if row.request_id == answer.headers["x-request-id"]]


async def test_S41_each_operation_that_was_done_has_one_row_and_none_has_a_secret(
    near: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    theirs, wrong, not_done = await furnish(world), list[Any](), set[Asked]()
    given, changes = bodies(theirs), dict[Asked, Any]()
    for (method, path), shown in told(gate):
        body = given.get((method, path)) or body_of(theirs, method, path, shown)
        [query, *_] = queries(theirs, path)
        asked = place(theirs, method, path, shown["tags"][0])
        answer = await near.request(method, asked, params=query, json=body)
        found = await rows_with(world, answer)
        outcome = "read" if operation(gate, method, path).shows_secret else "done"
        changes[method, path] = json.loads(found[0].change) if found and found[0].change else {}
        if answer.status_code >= 400:
            not_done.add((method, path))
        elif (method, path) in ONLY_LOOKS:
            assert found == [], (method, path)
        elif [(row.operation, row.outcome, row.who) for row in found] != [(f"{method} {path}", outcome, "local")]:
            wrong.append((method, path, answer.status_code, found))
    assert not wrong, "\n".join(map(str, wrong))
    assert not_done == NOT_DONE
    assert {each for each, _ in told(gate)} >= SHOWN
    assert {key for key in CHANGES if not changes.get(key)} == set()
    assert {key: changes[key] for key in CHANGED} == CHANGED
    assert "hunter2" not in str(await world.store.list_audit(AuditFilter(), None, 1000))


async def test_F51_the_value_of_a_secret_is_read_back_by_nothing(
    near: httpx.AsyncClient, gate: web.Gate, world: World
) -> None:
    """Neither by an answer, a page, a log of the audit, an explanation nor the metrics, though a job was given it, and
    a channel, a source and a hook have some of their own."""
    theirs, value = await furnish(world), "correct-horse-battery"
    job = {"name": "n", "steps": [{"run": "env"}], "env": {"P": {"secret": "DB"}}}
    answers = [
        await near.put("/v1/secrets/DB", json={"value": value}),
        await near.put(
            "/v1/alerts/channels/hook", json={"kind": "webhook", "url": "https://x.example", "secret": {"secret": "DB"}}
        ),
        await near.put(f"/source/{theirs.source}", json=source(password=value)),
        made := await near.post("/v1/jobs", json={**job, "triggers": [{"webhook": {"secret": value}}]}),
    ]
    assert [each.status_code for each in answers if each.status_code >= 300] == [], [each.text for each in answers]
    job_id = made.json()["jobs"][0]["id"]
    answers.append(await near.post(f"/v1/jobs/{job_id}/run"))
    claimed = await world.claim("shell")
    assert value in str([each.secrets for each in claimed])
    gate.streams.close()  # what would never end ends at once
    for (method, path), shown in operations(gate).items():
        is_work = shown.get("x-permission") == Permission.WORK  # whoever does a run is given what it needs
        if method == "GET" and not is_work and "invitation" not in path:
            named = {path_of(theirs, method, path, shown["tags"][0]), path.replace("{job_id}", str(job_id))}
            answers += [await near.get(each, headers=PAGE) for each in named if "{" not in each]
    assert len(answers) > 90
    assert [str(each.url) for each in answers if value in each.text] == []


# ── over gRPC ──


def writing(world: World) -> dict[str, str]:
    """Return the calls that change something, with how the audit log names them."""
    calls = Calls(world.services).methods
    found = {
        f"/horae.v1.Scheduling/{name}": f"rpc {METHODS[name][0]}"
        for name in METHODS
        if calls[METHODS[name][0]].needs not in auditing.UNTOLD
    }
    theirs = [name for name in SERVICE.methods_by_name if NEEDED.get(name, Permission.READ) not in auditing.UNTOLD]
    return found | {f"/{SERVICE.full_name}/{name}": f"grpc {name}" for name in theirs}


def messages(theirs: Theirs) -> dict[str, bytes]:
    """What to ask for, by the name of the call. One that changes something and is not here fails the walk."""
    execute = GetMessageClass(SERVICE.methods_by_name["ExecuteJob"].input_type)
    return {
        "SubmitJob": pb.SubmitJobRequest(user_id="u", code_location="horae.handlers:noop").SerializeToString(),
        "Dispatch": pb.DispatchRequest(job_id=theirs.user).SerializeToString(),
        "Cancel": pb.CancelRequest(execution_id=theirs.user_run).SerializeToString(),
        "ExecuteJob": execute(JobId=guid(theirs.job)).SerializeToString(),
        "UpdateScheduler": b"",
        "DeleteJob": pb.DeleteJobRequest(user_id=MARK, job_id=theirs.user).SerializeToString(),
    }


async def test_S41_over_grpc_each_call_that_was_done_has_one_row(port: int, world: World) -> None:
    theirs, text = await furnish(world), await token_of(world)
    asked, named = messages(theirs), writing(world)
    assert {path.rpartition("/")[2] for path in named} == set(asked)
    by_name = {path.rpartition("/")[2]: path for path in named}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name, message in asked.items():
            before = {row.id for row in await world.store.list_audit(AuditFilter(), None, 1000)}
            await channel.unary_unary(by_name[name])(message, metadata=(("authorization", f"Bearer {text}"),))
            rows = [row for row in await world.store.list_audit(AuditFilter(), None, 1000) if row.id not in before]
            told = [(row.operation, row.outcome, row.who, row.kind) for row in rows]
            assert told == [(named[by_name[name]], "done", "ann", "job")], name
