"""Every transition is an event, in the transaction that makes it, and is read in its order: the same on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.events import BEGINNING, KINDS, Cursor, Event, EventFilter
from horae.core.insight.learning import Mark
from horae.core.model import LARGEST_ID, SECOND, Job, Node, NodeState, OperatorWish, Overlap, Policy, Reason, State
from horae.core.policy.queues import Queue, QueueState
from horae.core.runs.orders import Fire, NewRun, Order, Result, Waiting
from horae.errors import Conflict
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

Said = tuple[str, str, str, int]  # kind, state, reason, fence


async def everything(store: Store, after: Cursor = BEGINNING, where: EventFilter | None = None) -> list[Event]:
    found: list[Event] = []
    while True:
        events, after = await store.read_events(after, 100, where or EventFilter())
        if not events:
            return found
        found += events


async def of_run(store: Store, run_id: int) -> list[Said]:
    events = await everything(store, where=EventFilter(run_id=run_id))
    assert {event.run_id for event in events} == {run_id}
    return [(e.kind, State(e.state or 0).word, e.reason, e.fence or 0) for e in events]


async def queue(
    store: Store, job_id: int = 1, *, overlap: Overlap = Overlap.ALLOW, run_at: int | None = None, **fields: Any
) -> int:
    if await store.get_job(job_id) is None:
        await store.submit([Submission([make_job(job_id, kind="shell", policy=Policy(overlap=overlap))])])
    [receipt] = await store.enqueue([Order(NewRun(job_id, "shell", 5, overlap, **fields), run_at=run_at)])
    return receipt.ids[0]


async def start(store: Store) -> tuple[int, int]:
    [claimed] = await claim(store, "n1", "shell", [], 1)
    return claimed.run_id, claimed.fence


async def end(store: Store, state: State = State.SUCCEEDED) -> None:
    run_id, fence = await start(store)
    await store.finish([Result(run_id, fence, state, finished_at=START)])


# ── each way of a run, and what is told of it ──


async def succeeds(store: Store, clock: FakeClock) -> int:
    run_id = await queue(store)
    await end(store)
    return run_id


async def fails_and_is_tried_again(store: Store, clock: FakeClock) -> int:
    run_id, fence = await queue(store), (await start(store))[1]
    failed = Result(run_id, fence, State.FAILED, "", started_at=START, finished_at=START, exit_code=3)
    await store.finish([], [Waiting(failed, START + SECOND)])
    clock.advance(2)
    await store.sweep()
    await end(store)
    return run_id


async def is_lost_with_its_agent(store: Store, clock: FakeClock) -> int:
    run_id, fence = await queue(store), (await start(store))[1]
    await store.finish([], [Waiting(Result(run_id, fence, State.FAILED, Reason.LOST), None, lost=True)])
    await end(store)
    return run_id


async def is_cancelled_while_it_waits(store: Store, clock: FakeClock) -> int:
    run_id = await queue(store)
    await store.cancel([run_id], "requested")
    return run_id


async def is_cancelled_at_work(store: Store, clock: FakeClock) -> int:
    run_id, fence = await queue(store), (await start(store))[1]
    await store.cancel([run_id], "requested")
    await store.cancel([run_id], "requested")
    await store.finish([Result(run_id, fence, State.CANCELLED, finished_at=START)])
    return run_id


async def is_ordered_for_later(store: Store, clock: FakeClock) -> int:
    run_id = await queue(store, run_at=START + 5 * SECOND)
    clock.advance(6)
    await store.sweep()
    await end(store)
    return run_id


async def comes_too_late(store: Store, clock: FakeClock) -> int:
    run_id = await queue(store, start_by=START + SECOND)
    clock.advance(2)
    await store.sweep()
    return run_id


async def finds_nobody_who_can_run_it(store: Store, clock: FakeClock) -> int:
    run_id = await queue(store)
    await store.fail_unrunnable(["python"], "nobody", {})
    return run_id


async def finds_another_live(store: Store, clock: FakeClock) -> int:
    await queue(store, 2, overlap=Overlap.FORBID)
    return await queue(store, 2, overlap=Overlap.FORBID)


async def waits_for_the_one_before(store: Store, clock: FakeClock) -> int:
    await queue(store, 3, overlap=Overlap.QUEUE)
    run_id = await queue(store, 3, overlap=Overlap.QUEUE)
    await end(store)
    await end(store)
    return run_id


QUEUED, STARTED = ("run.queued", "queued", "", 0), ("run.started", "running", "", 1)
DONE = ("run.finished", "succeeded", "", 1)
WAYS: dict[Callable[[Store, FakeClock], Awaitable[int]], Sequence[Said]] = {
    succeeds: [QUEUED, STARTED, DONE],
    fails_and_is_tried_again: [
        QUEUED, STARTED, ("run.retrying", "blocked", "retry", 1), ("run.queued", "queued", "", 1),
        ("run.started", "running", "", 2), ("run.finished", "succeeded", "", 2),
    ],
    is_lost_with_its_agent: [
        QUEUED, STARTED, ("run.retrying", "queued", "lost", 1), ("run.started", "running", "", 2),
        ("run.finished", "succeeded", "", 2),
    ],
    is_cancelled_while_it_waits: [QUEUED, ("run.finished", "cancelled", "requested", 0)],
    is_cancelled_at_work: [
        QUEUED, STARTED, ("run.cancelling", "running", "requested", 1), ("run.finished", "cancelled", "requested", 1),
    ],
    is_ordered_for_later: [("run.blocked", "blocked", "later", 0), QUEUED, STARTED, DONE],
    comes_too_late: [QUEUED, ("run.finished", "skipped", "start_deadline", 0)],
    finds_nobody_who_can_run_it: [QUEUED, ("run.finished", "failed", "no_agent", 0)],
    finds_another_live: [("run.finished", "skipped", "overlap", 0)],
    waits_for_the_one_before: [("run.blocked", "blocked", "overlap", 0), QUEUED, STARTED, DONE],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_run_has_its_complete_ordered_events_when_it(
    store: Store, clock: FakeClock, way: Callable[[Store, FakeClock], Awaitable[int]]
):
    run_id = await way(store, clock)
    assert await of_run(store, run_id) == list(WAYS[way])


async def test_moments_that_were_passed_over_are_told(store: Store):
    job: Job = make_job(1, kind="shell", trigger_id=1, next_at=START)
    await store.submit([Submission([job])])
    (trigger,) = job.triggers
    passed = [(START - 2, State.SKIPPED, "misfire"), (START - 1, State.COALESCED, "misfire")]
    new = NewRun(1, "shell", 5, Overlap.ALLOW)
    await store.fire(
        [Fire(trigger.id, job.segment, job.version, START, START + SECOND, START, new, START, passed=passed)], {}
    )
    told = {(e.kind, e.state) for e in await everything(store, where=EventFilter(job_id=1)) if e.run_id}
    assert told == {
        ("run.queued", State.QUEUED), ("run.finished", State.SKIPPED), ("run.finished", State.COALESCED)
    }  # fmt: skip


async def test_notes_and_phases_of_a_run_are_no_transitions(store: Store):
    run_id, fence = await queue(store), (await start(store))[1]
    await store.note_progress([(run_id, fence, '{"done":1}')])
    assert await of_run(store, run_id) == [QUEUED, STARTED]


# ── jobs, triggers, queues, nodes, segments, settings ──


def changed(job: Job, **fields: Any) -> Job:
    return replace(job, version=job.version + 1, **fields)


async def save(store: Store, job: Job) -> Job:
    assert await store.save_job(job, job.version - 1)
    return job


async def test_what_becomes_of_a_job_and_its_triggers_is_told(store: Store):
    job = make_job(1, trigger_id=1, next_at=START)
    await store.submit([Submission([job])])
    (first,) = job.triggers
    job = await save(store, changed(job, name="another"))
    job = await save(store, changed(job, paused=True))
    job = await save(store, changed(job, paused=False))
    job = await save(store, changed(job, triggers=(first, replace(first, id=2))))
    job = await save(store, changed(job, triggers=(replace(first, enabled=False), replace(first, id=2))))
    job = await save(store, changed(job, triggers=(replace(first, enabled=True, schedule={"every": "2m"}),)))
    job = await save(store, changed(job))
    await store.delete_job(1)

    told = [(e.kind, e.trigger_id, e.fence) for e in await everything(store, where=EventFilter(job_id=1))]
    assert told == [
        ("job.submitted", None, 1), ("job.changed", None, 2), ("job.paused", None, 3), ("job.resumed", None, 4),
        ("trigger.added", 2, 5), ("trigger.disabled", 1, 6), ("trigger.removed", 2, 7), ("trigger.changed", 1, 7),
        ("trigger.enabled", 1, 7), ("job.deleted", None, 9),
    ]  # fmt: skip


async def test_what_becomes_of_the_cluster_is_told_and_a_beat_is_not(store: Store):
    node = Node("n1", ("agent",), ("python",), (), 8, "0.1", "127.0.0.1:1", START, START, 0)
    await store.register_node(node)
    begin = await store.last_event()
    await store.beat("n1", 3)
    await store.want_node("n1", OperatorWish.DRAINED)
    await store.retire_node("n1", NodeState.DRAINING)
    await store.retire_node("n1", NodeState.GONE)
    await store.register_node(replace(node, started_at=START + 1))
    lease = await store.take_lease("leader", "n1", None)
    assert lease is not None
    await store.assign_segments({0: "n1", 1: "n1"}, lease)
    kept = await store.add_queue(Queue(0, "night"), 10)
    assert kept is not None
    await store.set_queue_state("night", QueueState.PAUSED)
    await store.set_queue_state("night", QueueState.OPEN)
    (night,) = [each for each in await store.list_queues() if each.name == "night"]
    await store.delete_queue(night)
    await store.keep_setting("colour", "red")
    await store.keep_setting("colour", "blue")

    events = await everything(store, begin)
    told = [(e.kind, e.name, e.reason) for e in events if e.kind != "segment.assigned"]
    assert told == [
        ("node.wanted", "n1", "drained"), ("node.draining", "n1", ""), ("node.gone", "n1", ""),
        ("node.joined", "n1", ""), ("node.leading", "n1", ""), ("queue.created", "night", "open"),
        ("queue.paused", "night", "paused"), ("queue.resumed", "night", "open"),
        ("queue.deleted", "night", "open"), ("setting.changed", "colour", ""),
    ]  # fmt: skip
    assert sorted(n for e in events if e.kind == "segment.assigned" for n in e.segments) == [0, 1]
    assert {event.kind for event in events} <= set(KINDS)


async def test_an_election_is_told_once_with_its_term_and_a_renewal_or_a_resignation_is_not(store: Store):
    begin = await store.last_event()
    first = await store.take_lease("leader", "a", None)
    assert first is not None
    assert await store.take_lease("leader", "b", None) is None  # too late
    renewed = await store.renew_lease(first)
    assert renewed is not None
    await store.resign_lease(renewed)
    second = await store.take_lease("leader", "b", await store.get_lease("leader"))
    assert second is not None
    assert await store.take_lease("leader", "a", renewed) is None  # what it saw is over
    again = await store.take_lease("leader", "b", second)  # the same, after a restart
    assert again is not None
    await store.take_lease("another", "a", None)
    told = [(e.kind, e.name, e.fence) for e in await everything(store, begin)]
    assert told == [("node.leading", "a", 1), ("node.leading", "b", 2), ("node.leading", "b", 3)]


async def test_how_far_durations_were_learned_is_not_told(store: Store):
    begin = await store.last_event()
    await store.begin_learning(Mark(0, 0, 0))
    assert await store.save_baselines(Mark(0, 0, 0), Mark(1, 1, 0), {}, START)
    assert await everything(store, begin) == []


# ── reading ──


async def test_a_reader_goes_on_from_any_event_without_gap_or_repeat(store: Store):
    await store.submit([Submission([make_job(1, kind="shell")])])
    await store.enqueue([Order(NewRun(1, "shell", 5, Overlap.ALLOW)) for _ in range(7)])
    await claim(store, "n1", "shell", [], 7)
    every = await everything(store)
    assert len({event.id for event in every}) == len(every)

    for number, event in enumerate(every):
        assert [e.id for e in await everything(store, event.cursor)] == [e.id for e in every[number + 1 :]]
    one_by_one, place = [], BEGINNING
    while True:
        found, place = await store.read_events(place, 1)
        if not found:
            break
        one_by_one += found
    assert one_by_one == every


async def test_what_is_asked_for_is_found_among_the_others(store: Store):
    first, second = await queue(store, 1), await queue(store, 2)
    assert {e.job_id for e in await everything(store, where=EventFilter(job_id=2))} == {2}
    assert {e.run_id for e in await everything(store, where=EventFilter(run_id=first))} == {first}
    kinds = EventFilter(("run.queued",))
    assert [e.run_id for e in await everything(store, where=kinds)] == [first, second]


async def test_a_reader_may_begin_now_or_at_a_moment(store: Store, clock: FakeClock):
    await queue(store)
    now = await store.last_event()
    clock.advance(60)
    later = await queue(store)
    assert [e.run_id for e in await everything(store, now)] == [later]
    begin = await store.find_events(START + 30 * SECOND)
    assert [e.run_id for e in await everything(store, begin)] == [later]
    nothing = await store.find_events(START + 10**15)
    assert await everything(store, nothing) == []


async def test_what_is_old_is_dropped_and_who_has_not_read_it_is_told_so(store: Store, clock: FakeClock):
    await queue(store)
    place = (await store.read_events(BEGINNING, 1))[1]
    clock.advance(3600)
    later = await queue(store)

    assert await store.drop_events(START + 1800 * SECOND, 1000) > 0
    assert await store.drop_events(START + 1800 * SECOND, 1000) == 0

    assert [e.run_id for e in await everything(store)] == [later]
    with pytest.raises(Conflict) as refused:
        await store.read_events(place, 10)
    assert refused.value.code == "E_EVENTS_GONE"


async def test_few_are_dropped_at_a_time(store: Store, clock: FakeClock):
    for _ in range(5):
        await queue(store)
    assert await store.drop_events(START + SECOND, 2) == 2


async def test_a_reader_keeps_its_place(store: Store):
    assert await store.load_reader("nats") is None
    await store.save_reader("nats", Cursor(1, 2, 3))
    await store.save_reader("nats", Cursor(4, 5, 6))
    assert await store.load_reader("nats") == Cursor(4, 5, 6)


# ── many writers ──


async def test_an_open_writer_delays_readers_and_shows_and_nothing_is_skipped(
    postgres_store: PostgresStore, postgres_url: str, clock: FakeClock
):
    store = postgres_store
    await queue(store)
    begin = await store.last_event()
    writer = await asyncpg.connect(postgres_url)
    transaction = writer.transaction()
    await transaction.start()
    await writer.execute("INSERT INTO settings (name, value) VALUES ('open', 'x')")
    later = await queue(store)

    assert await everything(store, begin) == []
    clock.advance(7)
    assert await store.events_delay() >= 7
    await transaction.commit()
    await writer.close()

    told = [(e.kind, e.name, e.run_id) for e in await everything(store, begin)]
    assert told == [("setting.changed", "open", None), ("run.queued", None, later)]
    assert await store.events_delay() == 0


async def test_one_that_began_early_and_changes_a_run_late_is_read_late(
    postgres_store: PostgresStore, postgres_url: str
):
    """Its transaction has a lower number than those that changed the run before."""
    store = postgres_store
    run_id = await queue(store)
    early, open_one = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    for connection in (early, open_one):
        await connection.execute("BEGIN")
        await connection.fetchval("SELECT pg_current_xact_id()::text")
    await start(store)
    await early.execute("UPDATE live SET cancel = true, reason = 'requested' WHERE id = $1", run_id)
    await early.execute("COMMIT")

    seen = [kind for kind, *_ in await of_run(store, run_id)]
    assert seen in (["run.queued"], ["run.queued", "run.started", "run.cancelling"]), (
        "never the last without the middle"
    )
    await open_one.execute("COMMIT")
    await asyncio.gather(early.close(), open_one.close())
    assert [kind for kind, *_ in await of_run(store, run_id)] == ["run.queued", "run.started", "run.cancelling"]


async def test_a_batch_of_runs_is_one_row(postgres_store: PostgresStore, postgres_url: str):
    store = postgres_store
    await store.submit([Submission([make_job(1, kind="shell")])])
    await store.enqueue([Order(NewRun(1, "shell", 5, Overlap.ALLOW)) for _ in range(200)])
    claimed = await claim(store, "n1", "shell", [], 200)
    await store.finish([Result(c.run_id, c.fence, State.SUCCEEDED, finished_at=START) for c in claimed])
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetch(
        "SELECT kind, cardinality(id_steps), cardinality(job_steps) FROM events WHERE kind LIKE 'run.%' ORDER BY id"
    )
    await connection.close()
    said = [("run.queued", 200, 200), ("run.started", 200, 200), ("run.finished", 200, 200)]
    assert [tuple(row) for row in rows] == said


async def test_numbers_of_a_thousand_runs_are_written_as_they_are_for_packing_them_takes_longer_than_all_else(
    postgres_store: PostgresStore, postgres_url: str
):
    await postgres_store.submit([Submission([make_job(1, kind="shell")])])
    await postgres_store.enqueue([Order(NewRun(1, "shell", 5, Overlap.ALLOW)) for _ in range(1000)])
    connection = await asyncpg.connect(postgres_url)
    rows = await connection.fetch(
        "SELECT pg_column_compression(id_steps), pg_column_size(id_steps) FROM events WHERE kind = 'run.queued'"
        if connection.get_server_version() >= (14,)
        else "SELECT NULL, pg_column_size(id_steps) FROM events WHERE kind = 'run.queued'"
    )
    await connection.close()
    [(packed_by, size)] = rows
    assert packed_by is None
    assert 4000 <= size <= 4100


HIGH = 1 << 31  # numbers from here on need a base
RUNS = [HIGH - 2, HIGH - 1, HIGH, HIGH + 1, 5 * HIGH + 7, LARGEST_ID - 1]


async def test_large_numbers_of_runs_and_jobs_are_told_and_found_as_small_ones(
    postgres_store: PostgresStore, postgres_url: str
):
    store, connection = postgres_store, await asyncpg.connect(postgres_url)
    jobs = dict(zip(RUNS, [1, 3 * HIGH + 5, 1, HIGH, LARGEST_ID, 2], strict=True))
    for job_id in sorted({*jobs.values()}):
        await store.submit([Submission([make_job(job_id, kind="shell")])])
    for run_id, job_id in jobs.items():
        await connection.execute(f"ALTER SEQUENCE run_id RESTART WITH {run_id}")
        await store.enqueue([Order(NewRun(job_id, "shell", 5, Overlap.ALLOW))])
    await connection.close()
    claimed = await claim(store, "n1", "shell", [], len(RUNS))
    await store.finish([Result(c.run_id, c.fence, State.SUCCEEDED, finished_at=START) for c in claimed])

    for kind in ("run.queued", "run.started", "run.finished"):
        told = await everything(store, where=EventFilter((kind,)))
        assert {event.run_id: event.job_id for event in told} == jobs
    for run_id, job_id in jobs.items():
        of_one = [("run.queued", job_id), ("run.started", job_id), ("run.finished", job_id)]
        assert [(e.kind, e.job_id) for e in await everything(store, where=EventFilter(run_id=run_id))] == of_one
        of_job = {e.run_id for e in await everything(store, where=EventFilter(job_id=job_id)) if e.run_id is not None}
        assert of_job == {run for run, job in jobs.items() if job == job_id}


async def test_what_was_told_before_numbers_were_steps_is_read_as_ever(
    postgres_store: PostgresStore, postgres_url: str
):
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "INSERT INTO events (stamp, at, kind, state, reason, fence, ids, jobs) "
        f"VALUES (event_stamp(), {START}, 'run.queued', 0, '', 0, '{{7,{HIGH}}}', '{{1,2}}')"
    )
    await connection.close()
    await succeeds(postgres_store, FakeClock(START))  # after it
    told = await everything(postgres_store, where=EventFilter(("run.queued",)))
    assert [(e.run_id, e.job_id) for e in told][:2] == [(7, 1), (HIGH, 2)]
    assert len(told) == 3
    assert [e.job_id for e in await everything(postgres_store, where=EventFilter(run_id=HIGH))] == [2]


async def test_a_database_that_was_restored_on_another_server_goes_on_where_it_was(
    postgres_store: PostgresStore, postgres_url: str
):
    store = postgres_store
    await queue(store)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("UPDATE events SET stamp = stamp + 1000000000000")
    await connection.close()
    again = PostgresStore(postgres_url)
    await again.open()
    before = await everything(again)
    place = before[-1].cursor
    later = await queue(again)
    assert [e.run_id for e in await everything(again, place)] == [later]
    await again.close()
