"""The RPC contract for workers of their own: they pull, are called, write and report; and its lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tests.listening
from horae.contracts.rpc.workers import RpcDialect
from horae.core.model import SECOND, State
from horae.core.work.specs import parse_job
from horae.ports.transport import Reply
from horae.service.external.pushing import Health
from horae.testing import START
from tests.facades.rpc.test_rpc import NOOP, NOW, call, refused
from tests.facades.world import BOTH, World


async def make(world: World, count: int = 1, **fields: Any) -> list[int]:
    """Executions that wait, oldest first."""
    for _ in range(count):
        await call(world, "submit_job", user_id="u", code_location=NOOP, **fields)
    await world.fire()
    return sorted(each["execution_id"] for each in await call(world, "get_due_jobs"))


async def take(world: World, worker: str = "w", limit: int = 10) -> list[Any]:
    return list(await call(world, "take_due_jobs", worker, limit))


async def history(world: World, execution: int) -> Any:
    run = await world.jobs.get_run(execution)
    return (await call(world, "get_exec_history", run.job_id))[0]


# ── lists ──────────────────────────────────────────────────────────────────────────────────────────


async def fill(world: World, count: int, document: dict[str, Any]) -> None:
    for start in range(0, count, 500):
        draft = parse_job({**document, "handler": NOOP, "name": NOOP, "annotations": {"rpc": {"user_id": "u"}}})
        await world.jobs.submit([draft] * min(500, count - start))


async def walk(world: World, method: str, name: str, limit: int, **params: Any) -> list[Any]:
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await call(world, method, limit=limit, cursor=cursor, **params)
        assert len(page[name]) <= limit
        rows, cursor = rows + page[name], page["cursor"]
    return rows


async def test_lists_have_everything_whatever_there_is(world: World) -> None:
    await fill(world, 10_500, {"schedule": "1m"})
    everything = await call(world, "retrieve_all_jobs", "u")
    assert [job["job_id"] for job in everything] == list(range(10_500, 0, -1))
    coming = await call(world, "get_jobs_in_next_5_mins")
    assert sorted(job["job_id"] for job in coming) == list(range(1, 10_501))


@BOTH
async def test_pages_have_together_what_the_whole_list_has(world: World) -> None:
    await fill(world, 7, {"schedule": "1m"})
    theirs = parse_job({"name": "x", "schedule": "1m", "steps": [{"run": "x"}]})
    await world.jobs.submit([theirs], owner="x", org=2)
    twice = parse_job({"name": "t", "handler": NOOP, "triggers": [{"every": "2m"}, {"every": "1m"}, {"every": "1h"}]})
    await world.jobs.submit([twice], owner="x")

    coming = await call(world, "get_jobs_in_next_5_mins")
    assert len(coming) == len({job["job_id"] for job in coming}) == 8
    assert [job["next_execution"] for job in coming] == [NOW + 60] * 8
    for limit in (1, 3, 8, 100):
        assert await walk(world, "get_jobs_in_next_5_mins", "jobs", limit) == coming
        assert await walk(world, "retrieve_all_jobs", "jobs", limit, user_id="u") == await call(
            world, "retrieve_all_jobs", "u"
        )
    assert await call(world, "retrieve_all_jobs", "u", 2) == (await call(world, "retrieve_all_jobs", "u"))[:2]


async def test_a_user_with_a_long_name_has_pages_too(world: World) -> None:
    for user in ("x" * 64, "x" * 65):
        for _ in range(3):
            await call(world, "submit_job", user, "1h", NOOP)
    assert [job["job_id"] for job in await walk(world, "retrieve_all_jobs", "jobs", 2, user_id="x" * 65)] == [6, 5, 4]


async def test_history_has_pages(world: World) -> None:
    job_id = await call(world, "submit_job", "u", "1m", NOOP)
    for _ in range(5):
        world.clock.advance(60)
        await world.fire()
        await world.work("python")
    rows = await call(world, "get_exec_history", job_id)
    assert len(rows) == 5
    assert await walk(world, "get_exec_history", "executions", 2, job_id=job_id) == rows


# ── pulling ────────────────────────────────────────────────────────────────────────────────────────


@BOTH
async def test_a_batch_is_taken_most_urgent_first_and_by_one_worker(world: World) -> None:
    [plain, *_] = await make(world, 2)
    [urgent] = [each for each in await make(world, 1, priority=9) if each > plain + 1]
    native = await world.queue_run()
    theirs = parse_job({"name": NOOP, "handler": NOOP, "annotations": {"rpc": {"user_id": "u"}}})
    [job] = (await world.jobs.submit([theirs], org=2)).jobs
    await world.jobs.run_now(job.id)

    batch = await take(world, limit=2)
    assert [each["execution_id"] for each in batch] == [urgent, plain]
    assert batch[0] == {
        "execution_id": urgent, "attempt": 1, "job_id": batch[0]["job_id"], "user_id": "u", "code_location": NOOP,
        "priority": 9, "retry_count": 0, "scheduled_for": NOW, "timeout": None, "lease_seconds": 30,
    }  # fmt: skip
    assert [each["execution_id"] for each in await take(world, "other")] == [plain + 1]
    assert await take(world) == []
    assert (await world.jobs.get_run(native.id)).state is State.QUEUED


async def test_what_is_due_can_be_looked_at_and_stays_where_it_is(world: World) -> None:
    ids = await make(world, 3)
    assert ids == [1, 2, 3]
    pages = await walk(world, "get_due_jobs", "executions", 2)
    assert [each["execution_id"] for each in pages] == [3, 2, 1]
    assert len(await take(world)) == 3
    assert await call(world, "get_due_jobs") == []


@BOTH
async def test_what_is_blocked_can_be_read_with_the_reason_and_when_it_may_start(world: World) -> None:
    await world.http.put("/v1/queues/default", json={"rate": "1/min"})
    for user in ("ann", "bob", "bob"):
        await call(world, "submit_job", user_id=user, code_location=NOOP)
        await world.fire()
    assert len(await world.claim("python")) == 1  # what a rate allows
    rows = await call(world, "get_blocked_jobs")
    first = rows[0]
    assert [(row["execution_id"], row["user_id"], row["reason"]) for row in rows] == [
        (3, "bob", "limit"), (2, "bob", "limit")
    ]  # fmt: skip
    assert first["message"].startswith("waits for the rate 1/min of queue default: next at ")
    assert (first["eligible_at"], first["code_location"], first["attempt"]) == (NOW + 60, NOOP, 0)
    assert await call(world, "get_blocked_jobs", user_id="ann") == []
    assert await walk(world, "get_blocked_jobs", "executions", 1, user_id="bob") == rows
    assert await call(world, "get_due_jobs") == []


@BOTH
async def test_a_worker_that_knows_no_ids_gets_as_much_as_limits_allow(world: World) -> None:
    await world.http.put("/v1/queues/default", json={"concurrency": 2})
    await make(world, 3)

    first, second = await take(world)
    assert (first["execution_id"], second["execution_id"]) == (1, 2)
    assert await take(world, "other") == []
    await call(world, "status_update", 1, "completed", "w")
    [third] = await take(world, "other")
    assert third["execution_id"] == 3


async def test_a_worker_that_knows_no_ids_gets_what_is_due_now_and_nothing_that_is_not(world: World) -> None:
    await call(world, "submit_job", user_id="u", code_location=NOOP)
    await call(world, "submit_job", user_id="u", code_location=NOOP, schedule=NOW + 600)
    await world.fire()
    [taken] = await take(world)
    assert taken["scheduled_for"] == NOW
    world.clock.advance(601)
    await world.fire()
    [later] = await take(world)
    assert later["scheduled_for"] == NOW + 600


async def test_a_batch_whose_answer_was_lost_is_not_kept_alive_for_ever(world: World) -> None:
    await make(world, 2)
    await take(world, limit=1)
    await take(world, limit=1)  # nobody hears what this gave
    world.clock.advance(20)
    assert await call(world, "heartbeat", worker_id="w", held=[1, 7]) == {
        "status": "ok", "worker_id": "w", "cancel": [], "lost": [7],
    }  # fmt: skip
    until = {loan.run_id: (loan.until_at - START) // SECOND for loan in await world.services.lending.loans()}
    assert until == {1: 50, 2: 30}


async def test_what_was_not_begun_is_given_back_as_if_nothing_had_been(world: World) -> None:
    await make(world)
    await take(world)
    await call(world, "status_update", execution_id=1, status="scheduled", worker_id="w", attempt=1)
    run = await world.jobs.get_run(1)
    assert (run.state, run.attempt, run.lost) == (State.QUEUED, 0, 0)


async def test_what_was_begun_and_given_back_counts_as_lost(world: World) -> None:
    await make(world)
    await take(world)
    await call(world, "status_update", 1, "running", "w")
    await call(world, "status_update", 1, "scheduled", "w")
    run = await world.jobs.get_run(1)
    assert (run.state, run.attempt, run.lost) == (State.QUEUED, 1, 1)
    [attempt] = await world.jobs.list_attempts(1)
    assert attempt.message == "given back by its worker w"


async def test_a_late_word_of_an_earlier_attempt_is_refused(world: World) -> None:
    await make(world)
    await take(world)
    await call(world, "status_update", execution_id=1, status="scheduled", worker_id="w", attempt=1)
    late = {"execution_id": 1, "worker_id": "w", "attempt": 5}
    for status in ("running", "completed", "scheduled"):
        assert await refused(world, "status_update", **late, status=status) == (-32009, "E_CONFLICT")
    [again] = await take(world)
    assert again["attempt"] == 1
    assert await refused(world, "status_update", **late, status="completed") == (-32009, "E_CONFLICT")
    assert await refused(world, "write_log", execution_id=1, worker_id="w", attempt=5, text="x") == (
        -32009,
        "E_CONFLICT",
    )


async def test_a_report_that_is_repeated_does_no_harm_and_another_one_is_refused(world: World) -> None:
    await make(world, 1, retry_times=1)
    await take(world)
    for _ in range(2):
        assert await call(world, "status_update", execution_id=1, status="failed", worker_id="w", attempt=1)
    assert (await world.jobs.get_run(1)).state is State.BLOCKED
    world.clock.advance(30)
    await world.store.sweep()
    [taken] = await take(world)
    assert (taken["attempt"], taken["retry_count"]) == (2, 1)
    for _ in range(2):
        assert await call(world, "status_update", execution_id=1, status="completed", worker_id="w", attempt=2)
    assert await refused(world, "status_update", 1, "failed", "w") == (-32009, "E_TERMINAL")
    assert await refused(world, "status_update", 1, "completed", "other") == (-32009, "E_TERMINAL")


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


async def write(world: World, offset: int, text: str, worker: str = "w") -> int:
    said = await call(world, "write_log", execution_id=1, worker_id=worker, offset=offset, text=text)
    return int(said["next_offset"])


async def test_a_worker_writes_its_output_and_everybody_reads_it(world: World) -> None:
    await make(world)
    await take(world)
    assert (await history(world, 1))["logs_path"] == "/v1/runs/1/log"
    assert await write(world, 0, "grün\n") == 6
    assert await write(world, 0, "grün\nrot\n") == 10  # a repeat with more
    assert await write(world, 6, "rot\n") == 10  # a repeat
    assert await refused(world, "write_log", 1, "w", 99, "x") == (-32009, "E_CONFLICT")
    assert await refused(world, "write_log", 1, "thief", 10, "x") == (-32009, "E_CONFLICT")
    piece = await call(world, "get_log", 1)
    assert piece == {"execution_id": 1, "attempt": 1, "text": "grün\nrot\n", "next_offset": 10, "status": "running"}
    assert (await call(world, "get_log", execution_id=1, offset=6, limit=4))["text"] == "rot\n"
    await call(world, "status_update", execution_id=1, status="failed", worker_id="w", message="no", exit_code=3)
    assert (await world.http.get("/v1/runs/1/log")).text == "grün\nrot\n"
    row = await history(world, 1)
    assert (row["status"], row["message"], row["exit_code"], row["worker_id"]) == ("failed", "no", 3, "w")
    assert await refused(world, "write_log", 1, "w", 10, "late") == (-32009, "E_CONFLICT")


async def test_a_character_is_never_cut_in_two(world: World) -> None:
    await make(world)
    await world.work("python", log="aäöü".encode() + b"\xc3")
    text, offset = "", 0
    while piece := await call(world, "get_log", execution_id=1, offset=offset, limit=4):
        if not piece["text"]:
            break
        text, offset = text + piece["text"], piece["next_offset"]
    assert (text, offset) == ("aäöü\N{REPLACEMENT CHARACTER}", 8)


async def test_the_output_of_one_attempt_has_a_limit(world: World) -> None:
    await make(world)
    await take(world)
    offset = 0
    for _ in range(4):
        offset = await write(world, offset, "x" * 250_000)
    assert await refused(world, "write_log", 1, "w", offset, "x" * 100_000) == (-32029, "E_LIMITED")


# ── workers that are called ────────────────────────────────────────────────────────────────────────


class Listening:
    """A worker that keeps what it was asked, and answers as it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answer: Any = {"result": {"status": "ok"}}
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        document = json.loads(await reader.readexactly(length))
        assert head.startswith(b"POST /rpc ")
        self.asked.append((document["method"], document["params"]))
        body = json.dumps({"jsonrpc": "2.0", "id": document["id"], **self.answer}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()


@asynccontextmanager
async def listening(world: World, name: str = "w", capacity: int = 2) -> AsyncIterator[Listening]:
    worker = Listening()
    async with tests.listening.listening(worker.serve) as port:
        worker.address = f"127.0.0.1:{port}"
        await call(world, "heartbeat", worker_id=name, capacity=capacity, address=worker.address)
        yield worker


async def test_what_waits_is_sent_to_workers_within_their_capacity(world: World) -> None:
    ids = await make(world, 3)
    async with listening(world) as worker:
        await world.pushing.push()
        assert [method for method, _ in worker.asked] == ["dispatch", "dispatch"]
        sent = worker.asked[0][1]
        assert (sent["attempt"], sent["code_location"], sent["lease_seconds"]) == (1, NOOP, 30)
        await world.pushing.push()
        assert len(worker.asked) == 2
        taken = sorted(params["execution_id"] for _, params in worker.asked)
        assert taken == ids[:2]
        for execution in taken:
            await call(world, "status_update", execution_id=execution, status="completed", worker_id="w", attempt=1)
        await world.pushing.push()
    assert worker.asked[2][1]["execution_id"] == ids[2]
    assert (await history(world, ids[0]))["worker_id"] == "w"


async def test_a_worker_that_refuses_has_nothing_and_is_left_alone_for_a_while(world: World) -> None:
    [execution] = await make(world)
    async with listening(world) as worker:
        worker.answer = {"error": {"code": -32000, "message": "full"}}
        await world.pushing.push()
        await world.pushing.push()
        assert len(worker.asked) == 1
        run = await world.jobs.get_run(execution)
        assert (run.state, run.attempt) == (State.QUEUED, 0)
        worker.answer = {"result": True}
        world.clock.advance(6)
        await world.pushing.push()
    assert (await world.jobs.get_run(execution)).node == "w@agent"


async def test_a_job_is_dispatched_to_the_worker_that_is_named(world: World) -> None:
    job_id = await call(world, "submit_job", "u", "1h", NOOP)
    async with listening(world, "v"), listening(world) as worker:
        execution = await call(world, "dispatch", job_id=job_id, worker_id="w")
        assert [(method, params["execution_id"]) for method, params in worker.asked] == [("dispatch", execution)]
        assert await world.claim("python") == []
        worker.answer = {"error": {"code": 1, "message": "no"}}
        other = await call(world, "submit_job", "u", "1h", NOOP)
        assert await refused(world, "dispatch", job_id=other, worker_id="w") == (-32053, "E_AT_CAPACITY")
        assert [row["status"] for row in await call(world, "get_exec_history", other)] == ["cancelled"]
    assert await refused(world, "dispatch", job_id=job_id, worker_id="nobody") == (-32004, "E_NOT_FOUND")
    await call(world, "heartbeat", worker_id="mute")
    assert (await refused(world, "dispatch", job_id=other, worker_id="mute"))[0] == -32053


async def test_a_worker_that_answers_for_its_health_lives_and_keeps_what_it_has(world: World) -> None:
    await make(world, 2)
    async with listening(world) as worker:
        await world.pushing.push()
        world.clock.advance(20)
        worker.answer = {"result": {"status": "ok", "load": 1, "capacity": 5, "held": [1]}}
        await world.pushing.ask_health()
    assert worker.asked[-1] == ("health", {})
    until = {loan.run_id: (loan.until_at - START) // SECOND for loan in await world.services.lending.loans()}
    assert until == {1: 50, 2: 30}
    node = await world.services.external_members.get("agent", "w")
    assert (node.busy, node.slots) == (1, 5)
    await world.pushing.ask_health()  # it is gone by now, which is no failure of ours


async def test_a_worker_is_told_once_to_stop_what_was_cancelled(world: World) -> None:
    [execution] = await make(world)
    async with listening(world) as worker:
        await world.pushing.push()
        await world.pushing.tell_cancelled()
        await call(world, "cancel", execution_id=execution)
        await world.pushing.tell_cancelled()
        await world.pushing.tell_cancelled()
        stop = ("cancel", {"execution_id": execution, "attempt": 1, "job_id": 1})
        assert [each for each in worker.asked if each[0] == "cancel"] == [stop]
        world.clock.advance(10)
        await world.pushing.tell_cancelled()
        assert len(worker.asked) == 3
    await call(world, "status_update", execution, "cancelled", "w")
    assert (await history(world, execution))["status"] == "cancelled"


@pytest.mark.parametrize(
    ("reply", "accepts"),
    [
        (Reply(200, {"result": None}), True), (Reply(200, {"error": {}}), False), (Reply(404, None), False),
        (Reply(500, None), None), (Reply(200, None), None), (Reply(500, {"error": {}}), False), (Reply(302, "x"), None),
    ],
)  # fmt: skip
def test_an_answer_is_yes_no_or_leaves_it_open(reply: Reply, accepts: bool | None) -> None:
    assert RpcDialect().accepts(reply) is accepts


@pytest.mark.parametrize(
    ("result", "health"),
    [
        (True, Health(None, None, frozenset())),
        ({"load": 1, "capacity": 2, "held": [1, "x", True]}, Health(1, 2, frozenset({1}))),
        ({"load": -1, "capacity": 0, "held": 5}, Health(None, None, frozenset())),
        ({"load": "1", "capacity": 2**40}, Health(None, None, frozenset())),
    ],
)
def test_what_a_worker_says_of_its_health_is_taken_as_far_as_it_makes_sense(result: Any, health: Health) -> None:
    assert RpcDialect().read_health(Reply(200, {"result": result})) == health
