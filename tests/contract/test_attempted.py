"""Which runs a node has had: also those that went elsewhere, and those of which it gave no sign."""

from __future__ import annotations

import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND, Reason, RunFilter, State
from horae.core.runs.orders import Assignment, LockRequest, NewRun, Order, Result, Waiting
from horae.core.waits import Wait
from horae.ports.store import Store
from horae.stores.parts import lists
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

JOBS = 5


@pytest.fixture
async def jobs(store: Store) -> Store:
    await store.submit([Submission([make_job(number, name=f"job {number}") for number in range(1, JOBS + 1)])])
    return store


async def given_to(store: Store, node: str, job_id: int = 1) -> Assignment:
    """Return an attempt of a new run, that this node has."""
    await store.enqueue([Order(NewRun(job_id, "python", 5, 1))])
    return await taken_by(store, node)


async def taken_by(store: Store, node: str) -> Assignment:
    [claimed] = await claim(store, node, "python", (), 1)
    return claimed


async def end(store: Store, at: Assignment, state: State = State.SUCCEEDED) -> None:
    await store.finish([Result(at.run_id, at.fence, state, "", START, START + SECOND)])


async def runs_of(store: Store, node: str, due_from: int | None = None) -> list[int]:
    found: list[int] = []
    cursor = None
    while True:
        page = await store.list_runs(RunFilter(attempted_by=node, tasks=True, due_from=due_from), cursor, 100)
        found += [run.id for run in page.items]
        cursor = page.cursor
        if cursor is None:
            return sorted(found)


async def test_S61_runs_that_a_node_has_or_had_are_listed_also_where_they_went_elsewhere(
    jobs: Store, clock: FakeClock
) -> None:
    done, lost, failed = [await given_to(jobs, "leaky", job_id) for job_id in (1, 2, 3)]
    await end(jobs, done)
    gone = Result(lost.run_id, lost.fence, State.FAILED, Reason.LOST, START, START + SECOND)
    late = Result(failed.run_id, failed.fence, State.FAILED, "", START, START + SECOND)
    await jobs.finish([], [Waiting(gone, None, lost=True), Waiting(late, START + SECOND)])
    clock.advance(2)
    await jobs.sweep()
    for _ in range(2):
        await end(jobs, await taken_by(jobs, "good"))
    held = await given_to(jobs, "leaky", 4)
    await given_to(jobs, "good", 5)
    assert await runs_of(jobs, "leaky") == sorted(each.run_id for each in (done, lost, failed, held))
    assert len(await runs_of(jobs, "good")) == 3
    assert await runs_of(jobs, "other") == []


async def test_S61_what_a_node_was_given_and_did_not_begin_is_listed_and_is_no_attempt(
    jobs: Store, clock: FakeClock
) -> None:
    refused, paused = await given_to(jobs, "leaky", 1), await given_to(jobs, "leaky", 2)
    for _ in range(3):  # as often as it says so, it is noted once
        no_room = Result(refused.run_id, refused.fence, State.FAILED, Reason.LIMIT, None, START)
        waits = Result(paused.run_id, paused.fence, State.BLOCKED, Reason.SNOOZED, START, START, message="waits")
        await jobs.finish(
            [],
            [
                Waiting(no_room, clock.now() + SECOND, begun=False),
                Waiting(waits, clock.now() + SECOND, begun=False, wait=Wait(Reason.SNOOZED, seconds=1.0)),
            ],
        )
        clock.advance(2)
        await jobs.sweep()
        refused, paused = sorted([await taken_by(jobs, "leaky") for _ in range(2)], key=lambda at: at.run_id)
    none = Result(refused.run_id, refused.fence, State.FAILED, Reason.LIMIT, None, START)
    await jobs.finish([], [Waiting(none, clock.now() + SECOND, begun=False)])
    clock.advance(2)
    await jobs.sweep()
    other = await taken_by(jobs, "good")
    assert (other.run_id, other.attempt) == (refused.run_id, 1)
    await end(jobs, other)
    await end(jobs, paused)
    assert await runs_of(jobs, "leaky") == [refused.run_id, paused.run_id]
    assert await runs_of(jobs, "good") == [refused.run_id]
    for run_id in (refused.run_id, paused.run_id):
        assert await jobs.list_attempts(run_id) == []
        assert await jobs.list_turns(run_id) == []


async def test_S61_a_node_that_had_to_wait_for_what_a_run_writes_has_seen_it(jobs: Store, clock: FakeClock) -> None:
    first, second = await given_to(jobs, "good", 1), await given_to(jobs, "leaky", 2)
    assert await jobs.take_locks([LockRequest(first.run_id, first.fence, ("a",))]) == {first.run_id}
    assert await jobs.take_locks([LockRequest(second.run_id, second.fence, ("a",))]) == set()
    run = await jobs.get_run(second.run_id)
    assert run is not None
    assert run.node is None
    assert await runs_of(jobs, "leaky") == [second.run_id]


async def test_S61_the_list_goes_back_to_a_moment_and_looks_at_a_bounded_part_at_a_time(
    jobs: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCANNED", 4)
    made = []
    for number in range(12):
        made.append(await given_to(jobs, "leaky" if number % 3 == 0 else "good"))
        await end(jobs, made[-1])
        clock.advance(1)
    mine = [each.run_id for each in made[::3]]
    assert await runs_of(jobs, "leaky") == mine
    third = await jobs.get_run(mine[2])
    assert third is not None
    assert await runs_of(jobs, "leaky", due_from=third.due_at) == mine[2:]
    first = await jobs.list_runs(RunFilter(attempted_by="leaky"), None, 100)
    assert len(first.items) < len(mine)
