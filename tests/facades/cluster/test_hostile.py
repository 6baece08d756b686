"""Hundreds of requests that no client should send: each is refused in the contract's form, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from horae.core.work import specs
from tests.facades.cluster.commands import ENVELOPE, JOB, data_of
from tests.facades.world import World

LIMIT_OF_WORDS = 600  # characters of a message: what was sent is not thrown back
SQL, PATH = "1'; DROP TABLE jobs; --", "../../../../etc/passwd"

BAD: dict[str, list[Any]] = {
    "whole": ["x", 1.5, True, [], {}, [1], SQL, PATH, 2**70, -(2**70), "1e9", "0x10", ""],
    "instant": ["now", 5, True, [], {}, "2024-13-01T00:00:00Z", "2024-12-31T10:00:00", "1066-01-01T00:00:00Z", SQL],
    "word": ["LATE", 5, True, [], {}, SQL, PATH, "PENDING,RUNNING", "\u0000"],
    "name": ["", " ", 5, True, [], {}, "a@b", "a/b", "x" * 101, "a\u0000b", "a\nb"],
    "line": [5, True, [], {}, "\u0000", "x" * 300, "a\nb"],
    "payload": [5, True, [], "\u0000", '{"steps": 5}', '{"steps": []}', '{"handler": "rm -rf /"}', "x" * 300_000],
    "segments": ["", "x", "100", "-1", "1,,2", SQL, ",".join(["1"] * 101), "1.5"],
}
BODIES = [b"", b"{", b"null", b"[]", b'"x"', b"5", b"{'a': 1}", b"\xff\xfe", b'{"jobId": NaN}', b'{"a": 1, "a": 2}',
          b"[" * 100_000, b'{"a":' * 10_000, b"a: &x [*x]"]  # fmt: skip

EXECUTION = {"jobId": 1, "workerId": "agent-1", "status": "RUNNING", "startTime": "2027-01-15T08:00:00Z"}
DISPATCHED = {"jobId": 1, "jobName": "x", "executionTime": "2027-01-15T08:00:00Z", "maxRetries": 3, "retryCount": 0}
AGENTS = "/api/execution-coordinator/workers"

# method, path, a body that would do, and what its fields are
WITH_BODY: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
    ("POST", "/api/jobs", dict(JOB), {
        "jobName": "line", "userId": "whole", "frequency": "word", "executionTime": "instant", "payload": "payload",
        "maxRetries": "whole", "segment": "whole",
    }),
    ("POST", "/api/job-store/executions", EXECUTION, {
        "jobId": "whole", "workerId": "name", "status": "word", "startTime": "instant",
    }),
    ("POST", "/api/worker-agent/dispatch", DISPATCHED, {
        "jobId": "whole", "jobName": "line", "executionTime": "instant", "maxRetries": "whole", "retryCount": "whole",
    }),
    ("POST", "/api/workers", {"workerId": "agent-9", "segment": 1}, {
        "workerId": "name", "segment": "whole", "capacity": "whole",
    }),
    ("POST", f"{AGENTS}/agent-9", {}, {"capacity": "whole", "host": "line", "port": "whole"}),
    ("POST", f"{AGENTS}/agent-1/heartbeat", {}, {"currentLoad": "whole", "capacity": "whole", "status": "word"}),
    ("POST", "/api/coordinator/register", {"coordinatorId": "c-9"}, {
        "coordinatorId": "name", "host": "line", "port": "whole",
    }),
]  # fmt: skip
# method, path, parameters that would do, and what they are
WITH_QUERY: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
    ("GET", "/api/jobs", {}, {"status": "word"}),
    ("PUT", "/api/jobs/1/status", {}, {"status": "word"}),
    ("GET", "/api/job-schedules/due", {"asOf": "2027-01-15T08:00:00Z", "segments": "5"}, {
        "asOf": "instant", "segments": "segments",
    }),
    ("GET", "/api/executions", {}, {"jobId": "whole"}),
    ("POST", "/api/scheduler-workers/register", {}, {"workerId": "name"}),
    ("POST", "/api/scheduler-workers/heartbeat", {}, {"workerId": "name"}),
    ("POST", "/api/segments/assign", {"workerId": "worker-1", "desiredSegments": "9"}, {
        "workerId": "name", "desiredSegments": "whole",
    }),
    ("DELETE", "/api/segments/release", {}, {"workerId": "name"}),
    ("POST", "/api/coordinator/heartbeat", {}, {"nodeId": "name"}),
    ("PUT", "/api/workers/agent-1/status", {}, {"status": "word"}),
    ("GET", "/api/execution-coordinator/reassignments", {}, {"limit": "whole"}),
]  # fmt: skip
IDS = ["2", "0", "-1", "999", str(2**63), str(2**80), "abc", "1.5", "1;DROP", "%00", "1%20OR%201=1", "%F0%9F%98%80"]
OF_A_JOB = [
    ("GET", "/api/jobs/{}"),
    ("PUT", "/api/jobs/{}/status?status=SCHEDULED"),
    ("PUT", "/api/jobs/{}/status?status=CANCELLED"),
    ("GET", "/api/execution-coordinator/assignments/{}"),
]
NAMES = ["nobody", "%20", "a%40b", "%00", "x" * 101, "1'%3B%20DROP%20TABLE%20nodes%3B%20--"]
OF_A_WORKER = [
    ("PUT", "/api/workers/{}/status?status=OFFLINE"),
    ("POST", "/api/workers/{}/heartbeat"),
    ("GET", f"{AGENTS}/{{}}"),
    ("DELETE", f"{AGENTS}/{{}}"),
]


class Hostile(NamedTuple):
    method: str
    url: str
    params: dict[str, str] | None = None
    body: bytes | None = None


def bodies() -> Iterator[Hostile]:
    for method, path, good, fields in WITH_BODY:
        for name, kind in fields.items():
            for value in BAD[kind]:
                if not (value == "" and kind in ("line", "payload")):
                    yield Hostile(method, path, body=json.dumps({**good, name: value}).encode())
        for body in BODIES:
            if body or good:
                yield Hostile(method, path, body=body)
        yield Hostile(method, path, body=json.dumps({**good, "more": "x" * 10_000_000}).encode())
    for body in (b"", b"{}", b"5", b"[[0]]", b"[null]", b"[100]", b"[-1]", b'["x"]', b'{"segments": "a"}', b"[true]"):
        yield Hostile("POST", "/api/scheduler-worker/segments", body=body)


def queries() -> Iterator[Hostile]:
    for method, path, good, fields in WITH_QUERY:
        for name, kind in fields.items():
            for value in BAD[kind]:
                if isinstance(value, str):
                    yield Hostile(method, path, {**good, name: value})
            without = {key: value for key, value in good.items() if key != name}
            if name != "limit":
                yield Hostile(method, path, without)


def addresses() -> Iterator[Hostile]:
    for method, path in OF_A_JOB:
        yield from (Hostile(method, path.format(text)) for text in IDS)
    for method, path in OF_A_WORKER:
        yield from (Hostile(method, path.format(text)) for text in NAMES)
    yield from (Hostile("DELETE", f"/api/jobs/{text}") for text in ("abc", "0", "1;DROP", "%00", str(2**80)))
    yield from (Hostile(method, "/api/jobs/1") for method in ("POST", "PATCH", "PUT"))
    yield from (Hostile(method, "/api/segments/assign") for method in ("GET", "DELETE"))


HOSTILE = [*bodies(), *queries(), *addresses()]


async def prepare(world: World) -> None:
    """A job that is not due, one of another organisation, and a member of each kind."""
    data_of(await world.http.post("/api/jobs", json={**JOB, "executionTime": "2100-01-01T00:00:00Z"}))
    theirs = specs.parse_job({"name": "theirs", "run_once": True, "handler": "horae.handlers:echo"})
    await world.jobs.submit([theirs], owner="eve", org=2)
    for path in (
        "/api/scheduler-workers/register?workerId=worker-1",
        "/api/segments/assign?workerId=worker-1&desiredSegments=3",
        f"{AGENTS}/agent-1?capacity=4",
    ):
        data_of(await world.http.post(path))


async def seen(world: World) -> Any:
    """Everything that a refused request must leave as it was."""
    jobs = await world.jobs.get_many([1, 2])
    members = [(node.name, node.state, node.wanted, node.slots, node.beat) for node in await world.store.list_nodes()]
    return await world.rows(), jobs, members, await world.store.load_taken_segments()


def test_there_are_hundreds_and_all_differ() -> None:
    assert len({(each.method, each.url, str(each.params), each.body) for each in HOSTILE}) == len(HOSTILE) > 400


@pytest.mark.parametrize("part", range(4))
async def test_S49_hostile_requests_are_refused_in_the_contracts_form_and_change_nothing(
    world: World, part: int
) -> None:
    await prepare(world)
    before = await seen(world)
    for each in HOSTILE[part::4]:
        answer = await world.http.request(each.method, each.url, params=each.params, content=each.body)
        said = f"{each.method} {each.url} {each.params} {(each.body or b'')[:200]!r}: {answer.text[:300]}"
        assert 400 <= answer.status_code < 500, said
        shown = answer.json()
        assert set(shown) == ENVELOPE, said
        assert (shown["success"], shown["data"]) == (False, None), said
        assert shown["errorCode"].isupper(), said
        assert 0 < len(shown["message"]) < LIMIT_OF_WORDS, said
        assert "Traceback" not in shown["message"]
    assert await seen(world) == before
