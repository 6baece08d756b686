"""Calls that nobody means well: each gets an error of JSON-RPC, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from horae.core.work.specs import parse_job
from tests.facades.world import World

SQL, PATH, LONG = "' OR 1=1 --", "../../etc/passwd", "x" * 5000
DEEP: Any = "x"
for _ in range(50):
    DEEP = [DEEP]
USERS: list[Any] = [None, True, 1.5, [], {}, "", " ", "a\x00b", "a\nb", LONG, 2**63, -(2**64), DEEP]
IDS: list[Any] = [None, True, 0, -1, 2**63, 2**70, 1.5, "1", SQL, [], {}, "", DEEP, 999_999]
WORKERS: list[Any] = [True, 5, [], {}, "", SQL, PATH, "a b", "-x", LONG, "w\x00"]
LIMITS: list[Any] = [0, -1, 10_001, "1", True, [], 1.5]
CURSORS: list[Any] = [5, True, [], {}, "x", SQL, PATH, LONG, "1", "-", "1-", "c" * 40, "\x00"]
PARAMS: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "submit_job": (
        {"user_id": "u", "schedule": "1h", "code_location": "a:b"},
        {
            "user_id": USERS,
            "schedule": [True, [], {}, "", SQL, PATH, "61 * * * *", "-1h", "0s", LONG, -1, 2**62, 10**15, DEEP,
                         "9" * 18],
            "code_location": [None, True, 5, [], {}, "", SQL, PATH, "-x", "a b", "ext::sh -c id", "fd::3", LONG, DEEP,
                              "ftp://example.org/x", "https://example.org/x@-b", "https://example.org/x#../y",
                              "https://example.org/x#-y", "/srv/../etc/shadow", "git@-oProxyCommand=id:x", "a:b:c",
                              "https://-oProxyCommand=id/x", "/a\x00b"],
            "priority": [-1, 10, "5", True, 1.5, [], 2**70],
            "retry_times": [-1, 100, "1", True, 1.5, [], 2**70],
            "resources": [5, [], {"gpu": -1}, {"gpu": 2**70}, {"GPU": 1}, {SQL: 1}, {"memory": LONG}, DEEP],
            "schedul": ["1h"],
            SQL: ["x"],
        },
    ),
    "retrieve_all_jobs": ({"user_id": "u"}, {"user_id": USERS, "limit": LIMITS, "cursor": CURSORS, "offset": [5]}),
    "delete_job": ({"user_id": "u", "job_id": 1}, {"user_id": [*USERS, "somebody"], "job_id": IDS}),
    "get_exec_history": ({"job_id": 1}, {"job_id": IDS, "limit": LIMITS, "cursor": CURSORS}),
    "get_jobs_in_next_5_mins": ({}, {"x": [1], "user_id": ["u"], "limit": LIMITS, "cursor": CURSORS}),
    "get_due_jobs": ({}, {"worker_id": ["w"], "limit": LIMITS, "cursor": CURSORS}),
    "get_blocked_jobs": (
        {},
        {
            "user_id": [each for each in USERS if each is not None], "worker_id": ["w"], "limit": LIMITS,
            "cursor": CURSORS,
        },
    ),
    "get_log": (
        {"execution_id": 1},
        {"execution_id": IDS, "attempt": [0, -1, "1", 2**40, 9], "offset": [-1, 2**63], "limit": [0, 3, 2**20 + 1]},
    ),
    "dispatch": (
        {"job_id": 1},
        {"job_id": IDS, "execution_id": [each for each in IDS if each is not None], "worker_id": [*WORKERS, "nobody"]},
    ),
    "take_due_jobs": ({"worker_id": "w"}, {"worker_id": [None, *WORKERS], "limit": [0, -1, 101, "1", True, []]}),
    "write_log": (
        {"execution_id": 2, "worker_id": "w", "offset": 0, "text": "x"},
        {
            "execution_id": IDS, "worker_id": [None, *WORKERS, "w"], "offset": [-1, "0", 2**63, 1.5],
            "attempt": [0, "1"], "text": [5, [], {}, "x" * 300_000, "\ud800"],
        },
    ),
    "heartbeat": (
        {"worker_id": "w"},
        {"worker_id": WORKERS, "load": [-1, "1", True, 2**70, []], "capacity": [0, -1, "1", True, 2**70, {}],
         "address": [5, "", "x", "x:0", "x:99999", "x:y", "a b:1", "u@h:1", "http://x:1", "x:1/y", SQL, LONG],
         "held": [5, "1", {}, [0], ["1"], [True], [2**63], [None], DEEP]},
    ),
    "status_update": (
        {"execution_id": 2, "status": "completed", "worker_id": "w"},
        {
            "execution_id": IDS, "status": [None, True, 5, "", "queued", SQL, [], {}, "RUNNING now"],
            "worker_id": WORKERS, "message": [5, [], {}, "\x00", LONG], "progress": [-1, 101, "5", True, [], 2**70],
            "exit_code": ["1", 2**31, 1.5, True, []], "attempt": [0, -1, "1", 2**40],
        },
    ),
    "cancel": ({}, {"job_id": IDS, "execution_id": IDS}),
}  # fmt: skip
METHODS: list[Any] = ["", "Submit_Job", "submit_job ", "__init__", "call", "methods", SQL, PATH, LONG, "rpc.discover"]
BODIES = (
    b"", b" ", b"\xff", b"\x00", b"{", b"[", b"[]", b"{}", b"5", b"null", b"true", b'"x"', b"[" * 10_000,
    b'{"a":' * 10_000, b"x" * 10_000_000, b"[1,2,3]", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","method":"cancel"',
    b'{"jsonrpc":"2.0","method":"submit_job","params":[1,2,3,4,5,6],"id":1}', b"1e999", b"-Infinity",
    b'{"jsonrpc":"2.0","method":"heartbeat","params":[],"id":[1]}', b"jsonrpc: '2.0'\nmethod: heartbeat\nid: 1\n",
)  # fmt: skip


def one(method: Any, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, "id": 1}).encode()


def hostile(job: int, run: int) -> Iterator[bytes]:
    for method, (good, bad) in PARAMS.items():
        for name, values in bad.items():
            for value in values:
                yield one(method, {**good, name: value})
    for method in METHODS:
        yield one(method, [])
    yield one("get_exec_history", [job])
    yield one("delete_job", ["ann", job])
    yield one("dispatch", [job])
    yield one("cancel", {"job_id": job})
    yield one("cancel", {"execution_id": run})
    yield one("status_update", [run, "running", "w"])
    yield from BODIES


async def test_hundreds_of_hostile_calls_are_refused_in_form_and_change_nothing(world: World) -> None:
    draft = parse_job({"name": "a", "schedule": "1h", "run_once": True, "steps": [{"run": "x"}]})
    [ours] = (await world.jobs.submit([draft], owner="local")).jobs
    await world.jobs.run_now(ours.id)
    [theirs] = (await world.jobs.submit([draft], owner="ann", org=2)).jobs
    their_run = await world.jobs.run_now(theirs.id)
    before = await world.rows()
    bodies = list(dict.fromkeys(hostile(theirs.id, their_run.id)))
    assert len(bodies) > 200

    for body in bodies:
        answer = await world.http.post("/rpc", content=body)
        what = f"{body[:200]!r}: {answer.status_code} {answer.text[:300]}"
        assert answer.status_code in (200, 413), what
        for shown in answer.json() if isinstance(answer.json(), list) else [answer.json()]:
            assert set(shown) == {"jsonrpc", "error", "id"}, what
            assert shown["error"]["code"] != -32603, what
            assert shown["error"]["data"]["code"].startswith("E_"), what
        assert len(answer.text) < 50_000, what
    for method in ("GET", "PUT", "DELETE"):
        answer = await world.http.request(method, "/rpc")
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, -32600)
    assert await world.rows() == before
    assert (await world.jobs.get_run(their_run.id)).state == their_run.state
