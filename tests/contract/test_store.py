"""What every Store must do: the sentences of ports.Store, run on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from horae.core.definitions import Idempotency, Receipt, Save, Submission
from horae.core.model import (
    SECOND,
    JobFilter,
    Misfire,
    Node,
    Overlap,
    Phase,
    Policy,
    Retry,
    RunFilter,
    Secret,
    Source,
    State,
    Token,
)
from horae.core.runs.orders import NEVER, Fire, NewRun, Order, Result, Waiting
from horae.core.secrets.sealing import Sealed
from horae.core.signs import Beat
from horae.errors import Invalid
from horae.ports.store import Store
from horae.ports.store.cluster import SegmentLoad
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, changed, make_job

from ..claiming import claim


def run_to_be(job_id: int = 1, overlap: Overlap = Overlap.FORBID, **fields: object) -> NewRun:
    return NewRun(job_id=job_id, kind="python", priority=5, overlap=overlap, **fields)  # type: ignore[arg-type]


def fire_of(job, trigger, at=None, *, next_at=None, overlap=Overlap.FORBID, version=1, **fields) -> Fire:
    at = trigger.next_at if at is None else at
    return Fire(
        trigger_id=trigger.id, segment=job.segment, version=version, cur_at=at, next_at=next_at or at + 60 * SECOND,
        last_at=at, run=run_to_be(job.id, overlap), due_at=at, **fields,
    )  # fmt: skip


async def submit(store: Store, *jobs):
    receipts = await store.submit([Submission([job]) for job in jobs])
    assert all(receipt.ids for receipt in receipts)


async def due_job(store: Store, job_id: int = 1, overlap: Overlap = Overlap.FORBID, **fields):
    """A job with one trigger that is due now."""
    job = make_job(job_id, trigger_id=job_id * 10, next_at=START, policy=Policy(overlap=overlap), **fields)
    await submit(store, job)
    return job


async def order(store: Store, *new_runs: NewRun) -> list[int]:
    return [receipt.ids[0] for receipt in await store.enqueue([Order(b) for b in new_runs])]


async def claim_one(store: Store, node: str = "n1"):
    claimed = await claim(store, node, "python", [], 1)
    assert len(claimed) == 1
    return claimed[0]


def ended(assignment, state: State = State.SUCCEEDED, **fields) -> Result:
    return Result(assignment.run_id, assignment.fence, state, finished_at=START, **fields)


async def runs_of(store: Store, **where):
    return (await store.list_runs(RunFilter(**where), None, 100)).items


# ── definitions ──


async def test_a_submitted_job_reads_back_as_it_was(store: Store):
    job = make_job(7, trigger_id=70, next_at=START, name="näme", key="k", data={"a": 1},
                   policy=Policy(priority=9, retry=Retry(attempts=3), misfire=Misfire.SKIP))  # fmt: skip

    await submit(store, job)

    assert await store.get_job(7) == job
    assert await store.find_keys(1, "local", ["k"]) == [job]
    assert await store.get_trigger(70) == job.triggers[0]


async def test_allocated_ids_are_never_given_twice(store: Store):
    first = await store.allocate(3, 2)
    second = await store.allocate(2, 1)

    assert len({*first[0], *second[0]}) == 5
    assert len({*first[1], *second[1]}) == 3


async def test_an_idempotency_key_acts_once_and_gives_the_first_ids(store: Store):
    key = Idempotency("local POST /v1/jobs", "abc", "d1")
    first = await store.submit([Submission([make_job(1)], key)])
    again = await store.submit([Submission([make_job(2)], key)])
    other = await store.submit([Submission([make_job(3)], replace(key, digest="d2"))])

    assert first[0].ids == again[0].ids == [1]
    assert again[0].replayed
    assert not first[0].replayed
    assert other[0].mismatch
    assert await store.get_job(2) is None
    assert await store.get_job(3) is None


async def test_two_submissions_in_one_call_with_one_idempotency_key_act_once(store: Store):
    key = Idempotency("s", "abc", "d1")

    receipts = await store.submit([Submission([make_job(1)], key), Submission([make_job(2)], key)])

    assert [r.ids for r in receipts] == [[1], [1]]
    assert await store.get_job(2) is None


async def test_a_taken_key_refuses_the_whole_submission(store: Store):
    await submit(store, make_job(1, key="nightly"))

    receipts = await store.submit([Submission([make_job(2), make_job(3, key="nightly")]), Submission([make_job(4)])])

    assert receipts[0].key_taken == "nightly"
    assert await store.get_job(2) is None
    assert receipts[1].ids == [4]


async def test_a_deleted_jobs_key_is_free_again(store: Store):
    await submit(store, make_job(1, key="k"))
    await store.delete_job(1)

    await submit(store, make_job(2, key="k"))

    [found] = await store.find_keys(1, "local", ["k"])
    assert found.id == 2


async def test_concurrent_submits_of_one_key_make_one_job(store: Store):
    receipts = await asyncio.gather(*(store.submit([Submission([make_job(i, key="k")])]) for i in range(1, 9)))

    assert sum(bool(r[0].ids) for r in receipts) == 1
    assert sum(r[0].key_taken == "k" for r in receipts) == 7


async def test_a_thousand_jobs_are_submitted_in_one_call(store: Store):
    jobs = [make_job(i, trigger_id=i, next_at=START + i) for i in range(1, 1201)]

    await store.submit([Submission(jobs)])

    page = await store.list_jobs(JobFilter(), None, 1000)
    assert [job.id for job in page.items[:2]] == [1200, 1199]
    assert page.items[0] == jobs[-1]
    rest = await store.list_jobs(JobFilter(), page.cursor, 1000)
    assert len(rest.items) == 200
    assert rest.cursor is None


async def test_a_save_with_an_old_version_changes_nothing(store: Store):
    job = await due_job(store)

    assert await store.save_job(changed(job, name="new"), 1)
    assert not await store.save_job(changed(job, name="newer"), 1)
    found = await store.get_job(1)
    assert found is not None
    assert (found.name, found.version) == ("new", 2)


async def test_a_save_under_an_idempotency_key_acts_once(store: Store):
    job = await due_job(store)
    key = Idempotency("s", "k", "d1")

    first = await store.save_job(changed(job, name="new"), 1, key)
    found = await store.get_job(1)
    assert found is not None
    again = await store.save_job(changed(found, name="newer"), 2, key)
    late = await store.save_job(changed(job, name="newer"), 1, key)
    other = await store.save_job(changed(found, name="newer"), 2, replace(key, digest="d2"))

    assert (first, again, late) == (Receipt([1]), Receipt([1], replayed=True), Receipt([1], replayed=True))
    assert other == Receipt([], mismatch=True)
    assert await store.get_job(1) == found
    assert (await store.submit([Submission([make_job(2)], key)]))[0] == Receipt([1], replayed=True)


async def test_a_save_that_is_refused_leaves_its_idempotency_key_free(store: Store):
    job = await due_job(store)
    key = Idempotency("s", "k", "d1")

    assert not await store.save_job(changed(job, name="new"), 7, key)
    assert await store.save_job(changed(job, name="new"), 1, key) == Receipt([1])


async def test_many_saves_at_once_are_judged_each_for_itself(store: Store):
    jobs = [make_job(number, name=f"job {number}", trigger_id=number * 10) for number in range(1, 6)]
    await store.submit([Submission(jobs)])
    key = Idempotency("s", "k", "d1")
    await store.save_job(changed(jobs[3], name="before"), 1, key)
    fresh = replace(jobs[4].triggers[0], id=99)

    receipts = await store.save_jobs([
        Save(changed(jobs[0], name="new"), 1, Idempotency("s", "other", "d")),
        Save(changed(jobs[1], name="new"), 7),
        Save(changed(jobs[0], name="twin"), 1),
        Save(changed(jobs[3], name="after"), 2, key),
        Save(changed(jobs[4], triggers=(fresh,)), 1),
        Save(make_job(77), 1),
    ])  # fmt: skip

    assert receipts == [Receipt([1]), None, None, Receipt([4], replayed=True), Receipt([5]), None]
    found = await store.load_jobs([job.id for job in jobs])
    assert [(job.name, job.version) for job in found] == [
        ("new", 2), ("job 2", 1), ("job 3", 1), ("before", 2), ("job 5", 2),
    ]  # fmt: skip
    assert [t.id for t in found[4].triggers] == [99]
    assert await store.get_trigger(jobs[4].triggers[0].id) is None
    assert await store.save_jobs([Save(changed(found[0], name="again"), 2, Idempotency("s", "other", "d"))]) == [
        Receipt([1], replayed=True)
    ]


async def test_jobs_that_are_there_are_remembered_with_a_key(store: Store):
    await store.submit([Submission([make_job(1), make_job(2)])])
    key = Idempotency("s", "k", "d1")

    assert await store.submit([Submission([], key, [2, 1])]) == [Receipt([2, 1])]
    assert await store.submit([Submission([make_job(3)], key)]) == [Receipt([2, 1], replayed=True)]


async def test_concurrent_saves_under_one_idempotency_key_act_once(store: Store):
    job = await due_job(store)
    key = Idempotency("s", "k", "d1")

    receipts = await asyncio.gather(*(store.save_job(changed(job, name=f"name {i}"), 1, key) for i in range(6)))

    assert [receipt and receipt.ids for receipt in receipts] == [[1]] * 6
    assert sum(receipt is not None and not receipt.replayed for receipt in receipts) == 1
    found = await store.get_job(1)
    assert found is not None
    assert found.version == 2


async def test_a_save_after_the_trigger_fired_is_refused(store: Store):
    job = await due_job(store)
    await store.fire([fire_of(job, job.triggers[0])])

    assert not await store.save_job(changed(job, name="new"), 1)


async def test_a_save_adds_changes_and_drops_triggers(store: Store):
    job = await due_job(store)
    fresh = make_job(1, trigger_id=11, next_at=START + 5).triggers[0]

    assert await store.save_job(changed(job, triggers=(fresh,)), 1)

    assert await store.get_trigger(10) is None
    found = await store.get_trigger(11)
    assert found is not None
    assert (found.next_at, found.version) == (START + 5, 2)


async def test_a_look_ahead_from_before_a_change_fires_nothing(store: Store):
    job = await due_job(store)
    stale = fire_of(job, job.triggers[0])
    await store.save_job(changed(job, name="new"), 1)

    fired = await store.fire([stale])

    assert fired.advanced == set()
    assert await runs_of(store) == []


async def test_a_parked_trigger_is_not_due(store: Store):
    job = await due_job(store)
    await store.save_job(changed(job, triggers=(replace(job.triggers[0], next_at=None),)), 1)

    assert await store.load_due(range(100), (0, 0), NEVER, 10) == []


async def test_deleting_leaves_a_tombstone_and_ends_waiting_runs(store: Store):
    job = await due_job(store)
    await store.fire([fire_of(job, job.triggers[0])])

    cancelled = await store.delete_job(1)

    assert cancelled is not None
    assert len(cancelled.ended) == 1
    assert await store.delete_job(1) is None
    assert (await store.list_jobs(JobFilter(), None, 10)).items == []
    found = await store.get_job(1)
    assert found is not None
    assert found.deleted_at is not None
    run = (await runs_of(store, job_id=1))[0]
    assert (run.state, run.reason) == (State.CANCELLED, "deleted")
    assert await store.load_due(range(100), (0, 0), NEVER, 10) == []


async def test_deleting_asks_for_the_running_one(store: Store):
    await due_job(store)
    await order(store, run_to_be())
    assignment = await claim_one(store)

    cancelled = await store.delete_job(1)

    assert cancelled is not None
    assert cancelled.asked == {assignment.run_id: "n1"}


async def test_jobs_are_found_by_filters(store: Store):
    await submit(store, make_job(1, name="Nightly 100%"), make_job(2, name="daily", key="d"), make_job(3, kind="shell"))

    async def found(**where: object) -> list[int]:
        return [job.id for job in (await store.list_jobs(JobFilter(**where), None, 10)).items]  # type: ignore[arg-type]

    assert await found() == [3, 2, 1]
    assert await found(name="NIGHT") == [1]
    assert await found(name="0%") == [1]
    assert await found(name="_") == []
    assert await found(key="d") == [2]
    assert await found(kind="shell") == [3]
    assert await found(paused=True) == []
    assert await found(owner="somebody") == []


async def test_a_rubbish_cursor_is_refused(store: Store):
    with pytest.raises(Invalid, match="cursor"):
        await store.list_jobs(JobFilter(), "'; DROP TABLE jobs", 10)


async def test_triggers_are_listed_by_id_and_by_job(store: Store):
    await due_job(store, 1)
    await due_job(store, 2)

    assert [t.id for t in (await store.list_triggers(None, None, 10)).items] == [10, 20]
    assert [t.id for t in (await store.list_triggers(2, None, 10)).items] == [20]
    first = await store.list_triggers(None, None, 1)
    assert [t.id for t in (await store.list_triggers(None, first.cursor, 1)).items] == [20]


# ── firing ──


async def test_due_rows_come_soonest_first_within_the_bounds_and_segments(store: Store):
    jobs = [make_job(i, trigger_id=i, next_at=START + 10 - i, segment=i) for i in range(1, 6)]
    await submit(store, *jobs)

    rows = await store.load_due([1, 2, 3, 4], (START + 6, 0), START + 9, 10)

    assert [row.trigger_id for row in rows] == [4, 3, 2]
    assert (rows[0].next_at, rows[0].version, rows[0].segment, rows[0].reserved) == (START + 6, 1, 4, None)
    rest = await store.load_due([1, 2, 3, 4], (START + 6, 4), START + 9, 1)
    assert [row.trigger_id for row in rest] == [3]


async def test_a_definition_carries_the_schedule_as_text(store: Store):
    job = make_job(1, trigger_id=10, schedule={"cron": "* * * * *"}, data={"x": 1}, policy=Policy(priority=7))
    await submit(store, job)

    (definition,) = await store.load_definitions([10])

    assert definition.schedule == '{"cron":"* * * * *"}'
    assert definition.data == '{"x":1}'
    assert definition.policy == '{"priority":7}'
    assert (definition.job_id, definition.kind, definition.created_at) == (1, "python", START)


async def test_firing_advances_and_makes_one_run(store: Store):
    job = await due_job(store)

    fired = await store.fire([fire_of(job, job.triggers[0])])

    assert fired.advanced == {10}
    assert (fired.queued, fired.skipped, fired.now) == (1, 0, START)
    (run,) = await runs_of(store)
    assert (run.state, run.due_at, run.trigger_id, run.job_id) == (State.QUEUED, START, 10, 1)
    found = await store.get_trigger(10)
    assert found is not None
    assert (found.next_at, found.last_at) == (START + 60 * SECOND, START)


async def test_the_same_moment_fires_once_however_many_schedulers_try(store: Store):
    jobs = [await due_job(store, i) for i in range(1, 21)]
    fires = [fire_of(job, job.triggers[0]) for job in jobs]

    results = await asyncio.gather(*(store.fire(fires) for _ in range(8)))

    assert sum(len(fired.advanced) for fired in results) == 20
    assert len(await runs_of(store)) == 20


async def test_nothing_fires_before_its_moment(store: Store, clock: FakeClock):
    job = make_job(1, trigger_id=10, next_at=START + SECOND)
    await submit(store, job)

    assert (await store.fire([fire_of(job, job.triggers[0])])).advanced == set()
    clock.advance(1)
    assert (await store.fire([fire_of(job, job.triggers[0])])).advanced == {10}


@pytest.mark.parametrize(
    "ahead",
    [
        {"due_at": START + 60 * SECOND, "last_at": START + 60 * SECOND},
        {"passed": [(START, State.COALESCED, "misfire"), (START + 60 * SECOND, State.COALESCED, "misfire")]},
        {"passed": [(START + 1, State.SKIPPED, "misfire")], "born": False},
        {"last_at": START + 60 * SECOND},
        {"next_at": START},
    ],
    ids=["its run", "a passed moment", "a skipped moment", "its last moment", "its next one is no later"],
)
async def test_a_fire_that_accounts_for_what_has_not_come_leaves_no_trace(ahead: dict[str, Any], store: Store):
    job = await due_job(store)
    before = await store.get_job(job.id)
    fire = replace(fire_of(job, job.triggers[0], next_at=START + 120 * SECOND), **ahead)

    fired = await store.fire([fire])

    assert (fired.advanced, fired.queued, fired.skipped) == (set(), 0, 0)
    assert await runs_of(store) == []
    assert await store.get_job(job.id) == before


async def test_the_run_id_that_is_kept_for_a_later_fire_is_told(store: Store):
    job = await due_job(store)
    passed = [(START, State.COALESCED, "misfire")]
    fire = fire_of(job, job.triggers[0], next_at=START + 1, born=False, passed=passed, reserve=True)

    fired = await store.fire([fire])

    (due,) = await store.load_due([job.segment], (-1, 0), START + 2, 10)
    assert fired.reserved == {job.triggers[0].id: due.reserved}
    assert [run.into_run_id for run in await runs_of(store)] == [due.reserved]


async def test_a_trigger_that_is_over_is_never_due_again(store: Store):
    job = await due_job(store)
    await store.fire([fire_of(job, job.triggers[0], next_at=NEVER)])

    assert await store.load_due(range(100), (0, 0), NEVER, 10) == []
    found = await store.get_trigger(10)
    assert found is not None
    assert found.next_at is None


async def test_a_batch_of_a_thousand_fires_in_one_call(store: Store):
    jobs = [make_job(i, trigger_id=i, next_at=START) for i in range(1, 1101)]
    await store.submit([Submission(jobs)])

    fired = await store.fire([fire_of(job, job.triggers[0]) for job in jobs])

    assert len(fired.advanced) == fired.queued == 1100


async def test_missed_moments_become_history_that_points_at_the_run(store: Store, clock: FakeClock):
    job = await due_job(store)
    clock.advance(1)
    latest = START + 3
    fire = replace(
        fire_of(job, job.triggers[0], START),
        due_at=latest, last_at=latest, passed=[(START + i, State.COALESCED, "misfire") for i in range(3)],
    )  # fmt: skip

    assert (await store.fire([fire])).advanced == {10}
    runs = await runs_of(store)

    born = next(run for run in runs if run.state is State.QUEUED)
    passed = sorted((run for run in runs if run.state is State.COALESCED), key=lambda run: run.due_at)
    assert born.due_at == latest
    assert [run.due_at for run in passed] == [START, START + 1, START + 2]
    assert {run.into_run_id for run in passed} == {born.id}


async def test_a_reserved_run_stands_for_moments_of_an_earlier_call(store: Store, clock: FakeClock):
    job = await due_job(store)
    first = replace(
        fire_of(job, job.triggers[0], next_at=START + 2), born=False, reserve=True, last_at=START + 1,
        passed=[(START, State.COALESCED, "misfire"), (START + 1, State.COALESCED, "misfire")],
    )  # fmt: skip
    clock.advance(1)
    assert (await store.fire([first])).queued == 0
    (due,) = await store.load_due(range(100), (0, 0), NEVER, 10)

    fired = await store.fire([replace(fire_of(job, job.triggers[0], START + 2), reserved=due.reserved)])

    assert fired.queued == 1
    runs = await runs_of(store)
    born = next(run for run in runs if run.state is State.QUEUED)
    assert born.id == due.reserved
    assert {run.into_run_id for run in runs if run.state is State.COALESCED} == {born.id}
    (due,) = await store.load_due(range(100), (0, 0), NEVER, 10)
    assert due.reserved is None


async def test_moments_skipped_by_policy_leave_records_without_a_run(store: Store):
    job = await due_job(store)
    fire = replace(fire_of(job, job.triggers[0]), born=False, passed=[(START, State.SKIPPED, "misfire")])

    fired = await store.fire([fire])

    assert fired.queued == 0
    (run,) = await runs_of(store)
    assert (run.state, run.reason, run.into_run_id) == (State.SKIPPED, "misfire", None)


# ── overlap ──


async def test_forbid_makes_the_second_run_history_at_birth(store: Store):
    job = await due_job(store)
    await order(store, run_to_be())

    fired = await store.fire([fire_of(job, job.triggers[0])])

    assert (fired.queued, fired.skipped) == (0, 1)
    run = next(run for run in await runs_of(store) if run.trigger_id == 10)
    assert (run.state, run.reason) == (State.SKIPPED, "overlap")


async def test_two_triggers_of_one_job_due_at_once_make_one_live_run(store: Store):
    job = replace(
        make_job(1),
        triggers=(
            make_job(1, trigger_id=10, next_at=START).triggers[0],
            make_job(1, trigger_id=11, next_at=START).triggers[0],
        ),
    )
    await submit(store, job)

    fired = await store.fire([fire_of(job, trigger) for trigger in job.triggers])

    assert len(fired.advanced) == 2
    assert (fired.queued, fired.skipped) == (1, 1)


async def test_allow_lets_runs_of_one_job_live_together(store: Store):
    await due_job(store)
    ids = await order(store, *[run_to_be(overlap=Overlap.ALLOW)] * 3)

    claimed = await claim(store, "n1", "python", [], 10)

    assert sorted(a.run_id for a in claimed) == sorted(ids)


async def test_a_queued_successor_takes_the_gate_when_its_predecessor_ends(store: Store):
    await due_job(store)
    first, second, third = await order(store, *[run_to_be(overlap=Overlap.QUEUE, overlap_limit=1)] * 3)
    states = {run.id: (run.state, run.reason) for run in await runs_of(store)}
    assert states[second] == (State.BLOCKED, "overlap")
    assert states[third] == (State.SKIPPED, "overlap")
    assignment = await claim_one(store)
    assert assignment.run_id == first
    assert await claim(store, "n1", "python", [], 10) == []

    finished = await store.finish([ended(assignment)])

    assert finished.promoted == 1
    assert (await claim_one(store)).run_id == second


async def test_replace_ends_what_waits_and_asks_what_runs_to_stop(store: Store):
    await due_job(store)
    (first,) = await order(store, run_to_be(overlap=Overlap.REPLACE))
    running = await claim_one(store)
    await register(store, "n1")

    (second,) = await order(store, run_to_be(overlap=Overlap.REPLACE))
    (third,) = await order(store, run_to_be(overlap=Overlap.REPLACE))

    states = {run.id: (run.state, run.reason) for run in await runs_of(store)}
    assert states[second] == (State.CANCELLED, "replaced")
    assert states[third] == (State.BLOCKED, "overlap")
    assert await store.beat("n1", 1) == Beat([(first, running.fence)])
    await store.finish([ended(running, State.CANCELLED, reason="requested")])
    assert (await claim_one(store)).run_id == third
    run = await store.get_run(first)
    assert run is not None
    assert (run.state, run.reason) == (State.CANCELLED, "replaced")


async def test_replace_takes_the_place_of_a_run_that_has_not_started(store: Store):
    await due_job(store)
    first, second = await order(store, *[run_to_be(overlap=Overlap.REPLACE)] * 2)

    assert (await claim_one(store)).run_id == second
    run = await store.get_run(first)
    assert run is not None
    assert (run.state, run.reason) == (State.CANCELLED, "replaced")


# ── claim and finish ──


async def test_higher_priority_goes_first_then_the_older_moment(store: Store, clock: FakeClock):
    for i in (1, 2, 3):
        await due_job(store, i)
    (low,) = await order(store, made_with(run_to_be(1), priority=1))
    clock.advance(1)
    (old,) = await order(store, made_with(run_to_be(2), priority=9))
    clock.advance(1)
    (new,) = await order(store, made_with(run_to_be(3), priority=9))

    claimed = [(await claim_one(store)).run_id for _ in range(3)]

    assert claimed == [old, new, low]


def made_with(b: NewRun, **fields: object) -> NewRun:
    for name, value in fields.items():
        setattr(b, name, value)
    return b


async def test_a_claim_says_everything_the_agent_needs(store: Store):
    job = make_job(1, name="hello", spec={"handler": "m:f"}, policy=Policy(timeout_seconds=5))
    await submit(store, job)
    await order(store, run_to_be(data='{"a":1}'))

    a = await claim_one(store)

    assert (a.fence, a.attempt, a.job_id, a.trigger_id, a.due_at) == (1, 1, 1, None, START)
    assert (a.kind, a.name, a.spec, a.data) == ("python", "hello", '{"handler":"m:f"}', '{"a":1}')
    assert a.owner == job.owner != ""
    assert a.policy == '{"timeout_seconds":5}' or a.policy == '{"timeout_seconds":5.0}'


async def test_many_claimers_never_share_a_run(store: Store):
    await due_job(store)
    await order(store, *[run_to_be(overlap=Overlap.ALLOW)] * 200)

    lists = await asyncio.gather(*(claim(store, f"n{i}", "python", [], 40) for i in range(8)))

    ids = [a.run_id for claimed in lists for a in claimed]
    assert len(ids) == len(set(ids)) == 200


async def test_claims_match_kind_labels_and_pin(store: Store):
    for i in range(1, 4):
        await due_job(store, i)
    await order(store, run_to_be(1, needs=("gpu", "eu")), run_to_be(2, pin="n2"), made_with(run_to_be(3), kind="shell"))

    assert await claim(store, "n1", "python", ["gpu"], 10) == []
    assert [a.job_id for a in await claim(store, "n1", "python", ["eu", "gpu", "x"], 10)] == [1]
    assert [a.job_id for a in await claim(store, "n2", "python", [], 10)] == [2]
    assert [a.job_id for a in await claim(store, "n1", "shell", [], 10)] == [3]


async def test_finishing_moves_the_run_to_history_with_its_result(store: Store):
    await due_job(store)
    await order(store, run_to_be(data='{"a":1}'))
    a = await claim_one(store)
    result = ended(a, State.FAILED, reason="exit", exit_code=3, message="step 1", result='{"x":[1]}', output="o")

    finished = await store.finish([result])

    assert finished.accepted == {a.run_id}
    run = await store.get_run(a.run_id)
    assert run is not None
    assert (run.state, run.reason, run.exit_code, run.message) == (State.FAILED, "exit", 3, "step 1")
    assert (run.result, run.output, run.data, run.node) == ({"x": [1]}, "o", {"a": 1}, "n1")
    assert (run.started_at, run.finished_at, run.attempt, run.fence) == (START, START, 1, 1)
    assert (await store.census()).live == {}


WRONG_CLOCKS = pytest.mark.parametrize("wrong", [-3600, -200 * 86400, 3600, 300 * 86400])  # seconds


@WRONG_CLOCKS
async def test_an_attempt_by_a_wrong_clock_neither_began_before_it_was_claimed_nor_ended_later_than_now(
    store: Store, clock: FakeClock, wrong: int
):
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    clock.advance(10)
    began = START + (wrong + 2) * SECOND

    await store.finish([replace(ended(a), started_at=began, finished_at=began + 3 * SECOND)])

    run = await store.get_run(a.run_id)
    assert run is not None
    assert run.started_at is not None
    assert run.finished_at is not None
    assert START <= run.started_at <= run.finished_at <= START + 10 * SECOND
    assert run.finished_at - run.started_at == 3 * SECOND


@WRONG_CLOCKS
async def test_an_attempt_whose_clock_jumped_while_it_ran_ended_after_it_began_and_not_later_than_now(
    store: Store, clock: FakeClock, wrong: int
):
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    clock.advance(10)

    await store.finish([replace(ended(a), started_at=START + SECOND, finished_at=START + (wrong + 9) * SECOND)])

    run = await store.get_run(a.run_id)
    assert run is not None
    assert run.started_at is not None
    assert run.finished_at is not None
    assert START <= run.started_at < run.finished_at <= START + 10 * SECOND


@WRONG_CLOCKS
async def test_so_it_is_with_an_attempt_that_is_repeated(store: Store, clock: FakeClock, wrong: int):
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    clock.advance(10)
    began = START + (wrong + 2) * SECOND
    failed = replace(ended(a, State.FAILED, reason="exit"), started_at=began, finished_at=began + 3 * SECOND)

    await store.finish([], [Waiting(failed, START + 15 * SECOND)])

    (attempt,) = await store.list_attempts(a.run_id)
    assert await store.load_attempts([a.run_id, a.run_id + 1]) == [attempt]
    assert attempt.started_at is not None
    assert START <= attempt.started_at <= attempt.finished_at <= START + 10 * SECOND
    assert attempt.finished_at - attempt.started_at == 3 * SECOND


async def test_a_stale_fence_is_refused_and_changes_nothing(store: Store):
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    lost = Result(a.run_id, a.fence, State.FAILED, reason="lost", finished_at=START)
    await store.finish([], [Waiting(lost, None, lost=True)])
    again = await claim_one(store, "n2")
    assert again.fence == a.fence + 1

    assert (await store.finish([ended(a)])).accepted == set()
    run = await store.get_run(a.run_id)
    assert run is not None
    assert (run.state, run.node) == (State.RUNNING, "n2")
    assert (await store.finish([ended(again)])).accepted == {a.run_id}


async def test_a_terminal_run_never_changes(store: Store):
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    await store.finish([ended(a)])

    assert (await store.finish([ended(a, State.FAILED)])).accepted == set()
    assert (await store.cancel([a.run_id], "requested")).ended == set()
    run = await store.get_run(a.run_id)
    assert run is not None
    assert run.state is State.SUCCEEDED


async def test_a_failed_attempt_waits_for_its_retry_and_leaves_a_record(store: Store, clock: FakeClock):
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    failed = ended(a, State.FAILED, reason="exit", exit_code=1, message="no")

    finished = await store.finish([], [Waiting(failed, START + 5 * SECOND)])

    assert finished.accepted == {a.run_id}
    run = await store.get_run(a.run_id)
    assert run is not None
    assert (run.state, run.reason, run.eligible_at, run.lost) == (
        State.BLOCKED,
        "retry",
        START + 5 * SECOND,
        0,
    )
    (attempt,) = await store.list_attempts(a.run_id)
    assert (attempt.attempt, attempt.fence, attempt.node, attempt.exit_code) == (1, 1, "n1", 1)
    swept = await store.sweep()
    assert (swept.queued, swept.next_at) == (0, START + 5 * SECOND)
    clock.advance(5)
    assert (await store.sweep()).queued == 1
    assert (await claim_one(store)).attempt == 2


async def test_a_run_that_waits_for_its_retry_still_holds_the_gate(store: Store):
    job = await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    await store.finish([], [Waiting(ended(a, State.FAILED), START + SECOND)])

    assert (await store.fire([fire_of(job, job.triggers[0])])).skipped == 1


async def test_a_mixed_batch_of_results_is_accepted_one_by_one(store: Store):
    for i in range(1, 5):
        await due_job(store, i)
    await order(store, *[run_to_be(i) for i in range(1, 5)])
    a, b, c, d = sorted(await claim(store, "n1", "python", [], 10), key=lambda a: a.run_id)

    finished = await store.finish(
        [ended(a), replace(ended(b), fence=99)],
        [
            Waiting(ended(c, State.FAILED), START + 1),
            Waiting(replace(ended(d, State.FAILED), fence=99), START + 1),
        ],
    )

    assert finished.accepted == {a.run_id, c.run_id}
    states = {run.job_id: run.state for run in await runs_of(store)}
    assert states == {1: State.SUCCEEDED, 2: State.RUNNING, 3: State.BLOCKED, 4: State.RUNNING}


async def test_what_decides_about_a_failed_run_can_be_read(store: Store):
    await submit(store, make_job(1, policy=Policy(retry=Retry(attempts=3))))
    await order(store, run_to_be())
    a = await claim_one(store)

    (held,) = await store.load_held([a.run_id])

    assert (held.attempt, held.lost, held.cancel_requested) == (1, 0, False)
    assert "attempts" in held.policy
    assert await store.load_running("n1") == [(a.run_id, a.fence)]


# ── cancel, deadlines ──


async def test_cancelling_a_waiting_run_ends_it_and_frees_the_gate(store: Store):
    job = await due_job(store)
    (run_id,) = await order(store, run_to_be())

    assert (await store.cancel([run_id], "requested")).ended == {run_id}

    assert (await store.fire([fire_of(job, job.triggers[0])])).queued == 1


async def test_cancelling_a_running_run_asks_its_node(store: Store):
    await due_job(store)
    await register(store, "n1")
    await order(store, run_to_be())
    a = await claim_one(store)

    assert (await store.cancel([a.run_id], "requested")).asked == {a.run_id: "n1"}
    assert await store.beat("n1", 1) == Beat([(a.run_id, a.fence)])
    run = await store.get_run(a.run_id)
    assert run is not None
    assert run.cancel_requested


@pytest.mark.parametrize(
    ("lost", "state", "reason"), [(False, State.FAILED, "exit"), (True, State.CANCELLED, "replaced")]
)
async def test_a_run_that_shall_stop_does_not_wait_for_another_attempt(
    lost: bool, state: State, reason: str, store: Store
):
    """Its agent decided before the cancel came; the store has the last word."""
    await due_job(store)
    await order(store, run_to_be())
    a = await claim_one(store)
    await store.cancel([a.run_id], "replaced")

    failed = ended(a, State.FAILED, reason="lost" if lost else "exit")
    finished = await store.finish([], [Waiting(failed, None if lost else START + SECOND, lost=lost)])

    assert finished.accepted == {a.run_id}
    run = await store.get_run(a.run_id)
    assert run is not None
    assert (run.state, run.reason, run.attempt) == (state, reason, 1)
    assert await store.list_attempts(a.run_id) == []


async def test_cancelling_a_gate_holder_lets_its_successor_go(store: Store):
    await due_job(store)
    first, second = await order(store, *[run_to_be(overlap=Overlap.QUEUE)] * 2)

    assert (await store.cancel([first], "requested")).promoted == 1
    assert (await claim_one(store)).run_id == second


async def test_a_run_past_its_start_deadline_is_skipped_not_claimed(store: Store, clock: FakeClock):
    await due_job(store)
    (run_id,) = await order(store, run_to_be(start_by=START + SECOND))
    clock.advance(2)

    assert await claim(store, "n1", "python", [], 10) == []
    assert (await store.sweep()).expired == 1
    run = await store.get_run(run_id)
    assert run is not None
    assert (run.state, run.reason) == (State.SKIPPED, "start_deadline")


async def test_a_running_run_does_not_expire(store: Store, clock: FakeClock):
    await due_job(store)
    await order(store, run_to_be(start_by=START + SECOND))
    await claim_one(store)
    clock.advance(2)

    assert (await store.sweep()).expired == 0


async def test_runs_of_a_kind_nobody_has_fail_with_the_reason(store: Store):
    await due_job(store, 1)
    await due_job(store, 2)
    await due_job(store, 3)
    kinds = [run_to_be(1), made_with(run_to_be(2), kind="cobol"), made_with(run_to_be(3), kind="ada")]
    _, cobol, ada = await order(store, *kinds)

    assert await store.fail_unrunnable(["python", "shell"], "nobody can", {"ada": "install gnat"}) == 2

    runs = {run.id: (run.state, run.reason, run.message) for run in await runs_of(store) if run.id in (cobol, ada)}
    assert runs[cobol] == (State.FAILED, "no_agent", "nobody can")
    assert runs[ada] == (State.FAILED, "no_agent", "nobody can: install gnat")


async def claimed_project(store: Store) -> tuple[int, int]:
    await due_job(store)
    await order(store, made_with(run_to_be(), kind="git_java"))
    (claimed,) = await claim(store, "n1", "git_java", [], 1)
    return claimed.run_id, claimed.fence


async def test_a_project_is_claimed_preparing_and_any_other_work_running(store: Store):
    run_id, _ = await claimed_project(store)
    await due_job(store, 2)
    await order(store, run_to_be(2))
    other = await claim_one(store)

    assert (await store.get_run(run_id)).phase is Phase.PREPARING
    assert (await store.get_run(other.run_id)).phase is Phase.RUNNING


async def test_a_phase_is_noted_under_the_current_fence_only(store: Store):
    run_id, fence = await claimed_project(store)

    await store.set_phases([(run_id, fence + 1, Phase.RUNNING), (run_id + 999, fence, Phase.RUNNING)])
    assert (await store.get_run(run_id)).phase is Phase.PREPARING

    await store.set_phases([(run_id, fence, Phase.RUNNING)])
    assert (await store.get_run(run_id)).phase is Phase.RUNNING


async def test_the_next_attempt_prepares_again(store: Store):
    run_id, fence = await claimed_project(store)
    await store.set_phases([(run_id, fence, Phase.RUNNING)])
    lost = Result(run_id, fence, State.FAILED, "lost", finished_at=START)
    await store.finish([], [Waiting(lost, None, lost=True)])

    (again,) = await claim(store, "n2", "git_java", [], 1)
    await store.set_phases([(run_id, fence, Phase.RUNNING)])

    assert again.fence > fence
    assert (await store.get_run(run_id)).phase is Phase.PREPARING


async def test_a_run_whose_labels_nobody_has_waits_and_says_so(store: Store):
    await due_job(store, 1)
    await due_job(store, 2)
    gpu, eu = await order(store, run_to_be(1, needs=("gpu",)), run_to_be(2, needs=("eu",)))

    assert await store.mark_unlabelled([["eu"], []]) == 1

    runs = {run.id: (run.state, run.reason) for run in await runs_of(store)}
    assert runs == {gpu: (State.QUEUED, "no_label"), eu: (State.QUEUED, "")}
    assert [a.run_id for a in await claim(store, "n1", "python", ["gpu"], 10)] == [gpu]
    run = await store.get_run(gpu)
    assert run is not None
    assert run.reason == ""


# ── lists ──


async def test_runs_are_listed_newest_first_across_live_and_history(store: Store):
    await due_job(store)
    ids = await order(store, *[run_to_be(overlap=Overlap.ALLOW)] * 5)
    claimed = await claim(store, "n1", "python", [], 3)
    await store.finish([ended(a) for a in claimed])

    first = await store.list_runs(RunFilter(job_id=1), None, 2)
    second = await store.list_runs(RunFilter(job_id=1), first.cursor, 2)
    third = await store.list_runs(RunFilter(job_id=1), second.cursor, 2)

    listed = [run.id for page in (first, second, third) for run in page.items]
    assert listed == sorted(ids, reverse=True)
    assert third.cursor is None
    assert len(await runs_of(store, states=(State.SUCCEEDED,))) == 3
    assert len(await runs_of(store, states=(State.QUEUED, State.SUCCEEDED))) == 5
    assert await runs_of(store, due_from=START + 1) == []
    assert await runs_of(store, due_until=START) == []


async def test_the_census_counts(store: Store):
    await due_job(store, 1)
    await due_job(store, 2)
    await order(store, run_to_be(1))

    census = await store.census()

    assert (census.jobs, census.triggers, census.live) == (2, 2, {"queued": 1})
    assert (census.oldest_due_at, census.oldest_queued_at) == (START, START)


async def test_the_last_real_run_of_a_trigger_is_known(store: Store):
    job = await due_job(store)
    assert [(r.is_live, r.finished_at) for r in await store.load_last_runs([10])] == [(False, None)]
    await store.fire([fire_of(job, job.triggers[0])])
    assert [(r.is_live, r.finished_at) for r in await store.load_last_runs([10])] == [(True, None)]

    await store.finish([ended(await claim_one(store))])

    assert [(r.is_live, r.finished_at) for r in await store.load_last_runs([10])] == [(False, START)]


async def test_history_past_its_age_is_found_oldest_first_and_purged(store: Store):
    await due_job(store)
    ids = await order(store, *[run_to_be(overlap=Overlap.ALLOW)] * 3)
    await store.finish([ended(a) for a in await claim(store, "n1", "python", [], 3)])

    assert (await store.load_outdated(START, 0, 10)).run_ids == []
    old = await store.load_outdated(START + 1, 0, 2)
    await store.purge(old.run_ids)

    assert old.outputs == []
    assert sorted(old.run_ids) == sorted(ids)[:2]
    assert [run.id for run in await runs_of(store)] == [max(ids)]


async def test_history_is_walked_past_what_is_kept(store: Store, clock: FakeClock):
    await due_job(store)
    ids = await order(store, *[run_to_be(overlap=Overlap.ALLOW)] * 4)
    given = {a.run_id: a for a in await claim(store, "n1", "python", [], 4)}
    clock.advance(1)
    for run_id, late in zip(ids, (0, 9, 0, 0), strict=True):
        await store.finish([replace(ended(given[run_id]), finished_at=START + late)])

    first = await store.load_outdated(START + 1, 0, 2)
    rest = await store.load_outdated(START + 1, first.last or 0, 3)

    assert (first.run_ids, first.last) == ([ids[0]], ids[1])
    assert (rest.run_ids, rest.last) == ([ids[2], ids[3]], None)


async def test_a_range_without_runs_is_one_in_which_none_is_live_or_ended(store: Store):
    job = await due_job(store, overlap=Overlap.ALLOW)
    first, second = await order(store, NewRun(job.id, "python", 5, 1), NewRun(job.id, "python", 5, 1))
    assert await store.without_runs([0, 1000], 1000) == [1000]
    given = await claim(store, "n1", "python", [], 1)
    await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=START) for a in given])
    assert await store.without_runs([first, second], 1) == []

    await store.purge([first])

    assert await store.without_runs([first, second], 1) == [first]


async def test_a_tombstone_goes_when_nothing_is_left_of_its_job_and_its_id_is_not_given_again(
    store: Store, clock: FakeClock
):
    for job_id in (1, 2, 3):
        await submit(store, make_job(job_id, name=f"j{job_id}"))
    (run_id,) = await order(store, NewRun(1, "python", 5, 1))
    await store.delete_job(1)
    await store.delete_job(2)
    clock.advance(60)
    now = await store.now()

    assert (await store.purge_remains(now - 61 * SECOND, 10)).jobs == 0
    assert (await store.purge_remains(now, 10)).jobs == 1
    assert [await store.get_job(job_id) is None for job_id in (1, 2, 3)] == [False, True, False]
    assert (await store.get_run(run_id)) is not None

    await store.purge([run_id])
    assert (await store.purge_remains(now, 10)).jobs == 1
    assert await store.get_job(1) is None


async def test_a_trigger_without_another_moment_goes_and_one_that_somebody_may_enable_stays(
    store: Store, clock: FakeClock
):
    jobs = [await due_job(store, number) for number in (1, 2, 3)]
    await store.fire([fire_of(job, job.triggers[0], next_at=NEVER) for job in jobs])
    paused = await store.get_job(2)
    assert paused is not None
    await store.save_job(replace(paused, paused=True, version=2), 1)
    off = await store.get_job(3)
    assert off is not None
    await store.save_job(replace(off, triggers=(replace(off.triggers[0], enabled=False),), version=2), 1)
    clock.advance(60)

    assert (await store.purge_remains(await store.now(), 1)).triggers == 1

    assert [await store.get_trigger(number) is None for number in (10, 20, 30)] == [True, False, False]
    job = await store.get_job(1)
    assert job is not None
    later = replace(job, triggers=(replace(job.triggers[0], next_at=START + 99 * SECOND),), version=2)
    assert await store.save_job(later, 1)
    again = await store.get_trigger(10)
    assert again is not None
    assert again.next_at == START + 99 * SECOND


async def test_the_name_of_a_node_that_is_gone_goes_after_a_while(store: Store, clock: FakeClock):
    for name in ("gone", "live"):
        await register(store, name)
    await store.retire_node("gone", "gone")
    clock.advance(60)

    assert (await store.purge_remains(START, 10)).nodes == 0
    assert (await store.purge_remains(await store.now(), 10)).nodes == 1
    assert [node.name for node in await store.list_nodes()] == ["live"]


async def test_outdated_runs_tell_of_every_attempt_that_may_have_left_output(store: Store):
    await due_job(store)
    (run_id,) = await order(store, run_to_be())
    for fence, result in enumerate(({"reason": "lost"}, {"reason": "error"}, {"reason": "error", "output": "o"}), 1):
        failed = ended(await claim_one(store), State.FAILED, **result)
        assert failed.fence == fence
        await store.finish([], [Waiting(failed, None)])
    await store.finish([ended(await claim_one(store), output="o")])

    old = await store.load_outdated(START + 1, 0, 10)

    assert old.run_ids == [run_id]
    assert sorted(old.outputs) == [(run_id, 1, 1), (run_id, 3, 3), (run_id, 4, 4)]
    await store.purge(old.run_ids)
    assert await store.list_attempts(run_id) == []


async def test_old_idempotency_keys_are_purged_oldest_first(store: Store, clock: FakeClock):
    await due_job(store)
    keys = [Idempotency("s", name, "d") for name in "abc"]
    for key in keys:
        await store.enqueue([Order(run_to_be(overlap=Overlap.ALLOW), key)])
        clock.advance(1)

    assert await store.purge_keys(START, 10) == 0
    assert await store.purge_keys(START + 2 * SECOND, 1) == 1
    assert await store.purge_keys(START + 2 * SECOND, 10) == 1
    receipts = await store.enqueue([Order(run_to_be(overlap=Overlap.ALLOW), key) for key in keys])
    assert [receipt.replayed for receipt in receipts] == [False, False, True]


@pytest.mark.parametrize("overlap", Overlap)
async def test_a_job_that_is_deleted_gets_no_run_by_request(store: Store, overlap: Overlap):
    await due_job(store, 1, overlap)
    await due_job(store, 2, overlap)
    await store.delete_job(1)
    key = Idempotency("s", "k", "d")

    plain = await store.enqueue(
        [Order(run_to_be(1, overlap)), Order(run_to_be(2, overlap)), Order(run_to_be(3, overlap))]
    )
    keyed = await store.enqueue([Order(run_to_be(1, overlap), key)])

    assert [bool(receipt.ids) for receipt in plain] == [False, True, False]
    assert keyed == [Receipt([])]
    assert [run.job_id for run in await runs_of(store)] == [2]
    assert (await store.enqueue([Order(run_to_be(2, overlap), key)]))[0].replayed is False


async def test_a_request_to_run_waits_for_a_deletion_that_is_under_way(
    postgres_store: PostgresStore, postgres_url: str
):
    await due_job(postgres_store)
    other = await asyncpg.connect(postgres_url)
    deletion = other.transaction()
    await deletion.start()
    await other.execute("SELECT 1 FROM jobs WHERE id = 1 FOR UPDATE")
    await other.execute("UPDATE jobs SET deleted_at = 1 WHERE id = 1")

    request = asyncio.create_task(postgres_store.enqueue([Order(run_to_be())]))
    async with asyncio.timeout(60):
        while not request.done() and not await other.fetchval("SELECT 1 FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
    await deletion.commit()
    await other.close()

    assert await request == [Receipt([])]
    assert await runs_of(postgres_store) == []


async def test_an_enqueue_with_an_idempotency_key_makes_one_run(store: Store):
    await due_job(store)
    key = Idempotency("s", "k", "d")
    first, twin = await store.enqueue([Order(run_to_be(), key), Order(run_to_be(), key)])
    again = await store.enqueue([Order(run_to_be(), key)])
    other = await store.enqueue([Order(run_to_be(), replace(key, digest="e"))])

    assert first.ids == twin.ids == again[0].ids
    assert not first.replayed
    assert twin.replayed
    assert again[0].replayed
    assert other[0].mismatch
    assert len(await runs_of(store)) == 1


# ── nodes and leases ──


async def register(store: Store, name: str, **fields: Any) -> None:
    node = Node(name, ("agent",), ("python",), (), 8, "0.1", "127.0.0.1:1", START, START, 0, **fields)
    await store.register_node(node)


async def test_a_node_beats_until_it_is_retired(store: Store):
    assert await store.beat("n1", 0) is None
    await register(store, "n1")
    before = (await store.list_nodes())[0]

    assert await store.beat("n1", 3) == Beat([])

    after = (await store.list_nodes())[0]
    assert after.beat > before.beat
    assert (after.busy, after.state, after.kinds) == (3, "live", ("python",))
    await store.retire_node("n1", "gone")
    assert await store.beat("n1", 0) is None
    await register(store, "n1")
    assert await store.beat("n1", 0) == Beat([])


async def test_what_an_operator_wants_of_a_node_outlives_its_restart(store: Store):
    assert not await store.want_node("n1", "cordoned")
    await register(store, "n1")

    assert await store.want_node("n1", "cordoned")

    assert await store.beat("n1", 0) == Beat([], "cordoned")
    await register(store, "n1")
    assert (await store.list_nodes())[0].wanted == "cordoned"
    assert await store.want_node("n1", "live")
    assert await store.beat("n1", 0) == Beat([])


async def test_what_ails_a_node_is_listed_until_it_says_otherwise_or_joins_anew(store: Store):
    await register(store, "n1")
    await register(store, "n2")
    await store.note_ailment("n1", "no room")

    assert [node.ailment for node in await store.list_nodes()] == ["no room", ""]
    await register(store, "n1")
    assert [node.ailment for node in await store.list_nodes()] == ["", ""]


async def test_a_node_has_what_it_offers_and_what_it_last_said_to_be_free(store: Store):
    offers, slots = {"cpus": 4000, "memory": 2**45, "gpu": 2}, {"python": 2000}
    await register(store, "n1", resources=offers, capacity=slots)
    await register(store, "n2")

    def shown(node: Node) -> tuple[Any, ...]:
        return node.resources, node.capacity, node.free

    assert [shown(node) for node in await store.list_nodes()] == [(offers, slots, offers), ({}, {}, {})]
    assert await store.beat("n1", 1, free={**offers, "gpu": 0}) == Beat([])
    assert await store.beat("n2", 1) == Beat([])
    assert [shown(node) for node in await store.list_nodes()] == [(offers, slots, {**offers, "gpu": 0}), ({}, {}, {})]
    assert await store.beat("n1", 1) == Beat([])  # who says nothing changes nothing
    found = await store.get_node("n1")
    assert found is not None
    assert found.free == {**offers, "gpu": 0}
    await register(store, "n1", resources={"gpu": 1})
    found = await store.get_node("n1")
    assert found is not None
    assert shown(found) == ({"gpu": 1}, {}, {"gpu": 1})


async def test_the_first_value_of_a_setting_is_kept_for_all(store: Store):
    kept = await asyncio.gather(*(store.keep_setting("secret", f"value {i}") for i in range(8)))

    assert len(set(kept)) == 1
    assert await store.keep_setting("secret", "another") == kept[0]
    assert await store.keep_setting("other", "another") == "another"
    assert await store.get_setting("secret") == kept[0]
    assert await store.get_setting("nobody's") is None


async def test_one_of_many_candidates_takes_a_lease(store: Store):
    taken = await asyncio.gather(*(store.take_lease("leader", f"n{i}", None) for i in range(8)))

    winners = [lease for lease in taken if lease]
    assert len(winners) == 1
    assert winners[0].term == 1


async def test_a_renewal_beats_a_candidate_that_saw_the_state_before_it(store: Store):
    lease = await store.take_lease("leader", "a", None)
    assert lease is not None
    seen = await store.get_lease("leader")

    renewed = await store.renew_lease(lease)

    assert renewed is not None
    assert await store.take_lease("leader", "b", seen) is None
    stolen = await store.take_lease("leader", "b", renewed)
    assert stolen is not None
    assert stolen.term == 2
    assert await store.renew_lease(renewed) is None


async def test_a_resigned_lease_has_no_owner(store: Store):
    lease = await store.take_lease("leader", "a", None)
    assert lease is not None
    await store.resign_lease(lease)

    seen = await store.get_lease("leader")

    assert seen is not None
    assert seen.owner == ""


async def test_only_the_leader_assigns_segments(store: Store):
    lease = await store.take_lease("leader", "a", None)
    assert lease is not None

    assert await store.assign_segments({0: "a", 1: "b"}, lease)
    assert not await store.assign_segments({0: "x"}, replace(lease, term=9))
    assert await store.assign_segments({1: "a"}, lease)
    assert await store.load_segments() == {0: ("a", 1), 1: ("a", 2)}


async def test_the_load_of_a_segment_is_its_triggers_and_those_that_are_due_soon(store: Store):
    hour = 3600 * SECOND
    places = ((7, START + 1), (7, START + hour - 1), (7, START + hour), (8, None), (99, START + 9 * hour))
    jobs = [
        make_job(number, segment=segment, trigger_id=number, next_at=at)
        for number, (segment, at) in enumerate(places, 1)
    ]
    await store.submit([Submission([job]) for job in jobs])

    assert await store.count_by_segment(START + hour) == {7: SegmentLoad(3, 2), 99: SegmentLoad(1, 0)}


# ── tokens ──


def a_token(name: str = "ci", **fields: Any) -> Token:
    return Token(0, name, "user", "ann", "ab" * 32, START, **fields)


async def test_a_token_is_kept_under_an_id_of_its_own(store: Store):
    first = await store.add_token(a_token())
    second = await store.add_token(a_token("night", expires_at=START + 7))

    assert 0 < first.id < second.id
    assert first == replace(a_token(), id=first.id)
    assert await store.get_token(second.id) == second == replace(a_token("night", expires_at=START + 7), id=second.id)
    assert await store.list_tokens() == [second, first]
    assert await store.get_token(second.id + 1) is None


async def test_a_token_is_revoked_once_and_stays_listed(store: Store):
    kept = await store.add_token(a_token())
    other = await store.add_token(a_token("other"))

    revoked = await store.revoke_token(kept.id, START + 5)
    again = await store.revoke_token(kept.id, START + 9)

    assert revoked == again == replace(kept, revoked_at=START + 5)
    assert await store.get_token(kept.id) == revoked
    assert await store.list_tokens() == [other, revoked]
    assert await store.revoke_token(other.id + 1, START) is None


async def test_a_token_is_revoked_with_those_by_which_it_was_made(store: Store):
    first = await store.add_token(a_token())
    second = await store.add_token(a_token(parent_id=first.id))
    third = await store.add_token(a_token(parent_id=second.id))
    other = await store.add_token(a_token())

    await store.revoke_token(first.id, START + 5)
    late = await store.add_token(a_token(parent_id=second.id))

    for token in (second, third, late):
        assert await store.get_token(token.id) == replace(token, revoked_at=START + 5)
    assert await store.get_token(other.id) == other
    ended = [replace(token, revoked_at=START + 5) for token in (late, third, second, first)]
    assert await store.list_tokens() == [ended[0], other, *ended[1:]]


# ── secrets ──


async def test_a_secret_that_is_set_again_has_the_new_value_and_the_next_version(store: Store):
    assert await store.put_secret(1, "B", "sealed one", START) == 1
    assert await store.put_secret(1, "A", "sealed other", START + 1) == 1
    assert await store.put_secret(1, "B", "sealed two", START + 2) == 2

    assert await store.list_secrets(1) == [Secret("A", 1, START + 1, START + 1), Secret("B", 2, START, START + 2)]
    assert await store.get_sealed(1, ["B", "C"]) == {"B": "sealed two"}


async def test_secrets_of_one_organisation_are_not_seen_by_another(store: Store):
    await store.put_secret(1, "A", "of one", START)
    await store.put_secret(2, "A", "of two", START)

    assert await store.get_sealed(2, ["A"]) == {"A": "of two"}
    assert await store.list_sealed() == [(1, "A", "of one"), (2, "A", "of two")]
    assert await store.delete_secret(2, "A")
    assert not await store.delete_secret(2, "A")
    assert await store.list_secrets(2) == []
    assert await store.get_sealed(1, ["A"]) == {"A": "of one"}


async def test_what_may_be_sealed_comes_in_order_of_ids_and_deleted_jobs_too(store: Store):
    kinds = {1: "sync", 2: "python", 3: "shell", 4: "git_java"}
    await store.submit([Submission([make_job(n, kind=kind, spec={"n": n})]) for n, kind in kinds.items()])
    await store.delete_job(3)
    source = await store.add_source(Source(0, 7, "a", "s", "k", {"x": 1}, START, START))
    await store.put_secret(2, "A", "sealed", START)

    rows = await store.load_sealable("job", 0, 2)
    assert rows == [Sealed("job", 1, "sync", '{"n":1}'), Sealed("job", 3, "shell", '{"n":3}')]
    assert [row.id for row in await store.load_sealable("job", 3, 2)] == [4]
    assert await store.load_sealable("job", 4, 2) == []
    assert await store.load_sealable("source", 0, 2) == [Sealed("source", source.id, "7", '{"x":1}')]
    assert await store.load_sealable("secret", 0, 2) == [Sealed("secret", 2, "A", "sealed")]
    assert await store.load_sealable("setting", 0, 2) == []


async def test_a_text_is_sealed_anew_only_if_it_is_the_one_that_was_loaded(store: Store):
    await store.submit([Submission([make_job(1, kind="sync", spec={"n": 1})])])
    await store.add_source(Source(0, 7, "a", "s", "k", {"x": 1}, START, START))
    await store.put_secret(2, "A", "before", START)
    await store.keep_setting("sealed", "before")

    for place in ("job", "source", "secret", "setting"):
        [row] = await store.load_sealable(place, 0, 9)
        text = '{"new":1}'
        assert not await store.reseal(row._replace(text="other"), text)
        assert await store.reseal(row, text)
        assert not await store.reseal(row, "late")
        assert await store.load_sealable(place, 0, 9) == [row._replace(text=text)]
    job, [secret] = await store.get_job(1), await store.list_secrets(2)
    assert job is not None
    assert (job.spec, job.version) == ({"new": 1}, 1)
    assert secret == Secret("A", 1, START, START)
