"""Cursors of syncs, locks on destinations and progress of attempts: the same on every store."""

from __future__ import annotations

import asyncio

import asyncpg

from horae.core.definitions import Submission
from horae.core.model import SECOND, Cursor, Overlap, Policy, State
from horae.core.runs.orders import Assignment, LockRequest, NewRun, Order, Result, Waiting
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim


async def queue(store: Store, job_id: int = 1, overlap: Overlap = Overlap.ALLOW) -> int:
    if await store.get_job(job_id) is None:
        await store.submit([Submission([make_job(job_id, kind="sync", policy=Policy(overlap=overlap))])])
    [receipt] = await store.enqueue([Order(NewRun(job_id, "sync", 5, overlap))])
    return receipt.ids[0]


async def running(store: Store, job_id: int = 1, overlap: Overlap = Overlap.ALLOW) -> Assignment:
    await queue(store, job_id, overlap)
    [claimed] = await claim(store, "n1", "sync", [], 1)
    return claimed


def ended(at: Assignment, cursor: str | None = None, state: State = State.SUCCEEDED, **fields: object) -> Result:
    return Result(at.run_id, at.fence, state, finished_at=START, cursor=cursor, **fields)  # type: ignore[arg-type]


def wish(at: Assignment, *names: str) -> LockRequest:
    return LockRequest(at.run_id, at.fence, names)


# ── cursors ──


async def test_a_run_that_succeeds_moves_the_cursor_of_its_job(store: Store, clock: FakeClock):
    first = await running(store)
    clock.advance(5)

    await store.finish([ended(first, '{"value":7}')])

    assert await store.load_cursors([1, 2]) == {1: Cursor({"value": 7}, START + 5 * SECOND, first.run_id)}


async def test_the_cursor_of_the_last_success_counts_also_within_one_batch(store: Store):
    first, second = await running(store), await running(store)

    await store.finish([ended(first, '{"value":1}'), ended(second, '{"value":2}')])

    assert (await store.load_cursors([1]))[1].value == {"value": 2}


async def test_a_run_that_fails_moves_nothing(store: Store):
    for state in (State.FAILED, State.TIMED_OUT, State.CANCELLED):
        await store.finish([ended(await running(store), '{"value":7}', state)])

    assert await store.load_cursors([1]) == {}


async def test_a_fenced_result_moves_nothing(store: Store):
    first = await running(store)
    await store.finish([], [Waiting(ended(first, state=State.FAILED), None, lost=True)])
    [second] = await claim(store, "n2", "sync", [], 1)

    assert (await store.finish([ended(first, '{"value":7}')])).accepted == set()
    assert await store.load_cursors([1]) == {}

    await store.finish([ended(second, '{"value":8}')])
    await store.finish([ended(first, '{"value":9}')])
    assert (await store.load_cursors([1]))[1].value == {"value": 8}


async def test_an_attempt_that_is_tried_again_moves_nothing(store: Store):
    first = await running(store)

    await store.finish([], [Waiting(ended(first, '{"value":7}', State.FAILED), START + SECOND)])

    assert await store.load_cursors([1]) == {}


async def test_a_success_without_a_cursor_leaves_it_where_it_was(store: Store):
    await store.finish([ended(await running(store), '{"value":7}')])

    await store.finish([ended(await running(store))])

    assert (await store.load_cursors([1]))[1].value == {"value": 7}


async def test_a_cursor_moves_beside_attempts_that_wait(store: Store):
    first, second = await running(store, 1), await running(store, 2)

    await store.finish([ended(first, '{"value":7}')], [Waiting(ended(second, state=State.FAILED), START + SECOND)])

    assert (await store.load_cursors([1]))[1].value == {"value": 7}
    assert (await store.get_run(second.run_id)).state is State.BLOCKED


async def test_a_cursor_can_be_set_and_taken_away_by_hand(store: Store):
    await queue(store)

    await store.set_cursor(1, '{"value":3}')
    assert await store.load_cursors([1]) == {1: Cursor({"value": 3}, START)}

    await store.set_cursor(1, None)
    assert await store.load_cursors([1]) == {1: Cursor(None, START)}


async def test_an_attempt_that_began_before_a_cursor_was_set_does_not_move_it(store: Store):
    early = await running(store)
    await store.set_cursor(1, '{"value":3}')

    assert (await store.finish([ended(early, '{"value":9}')])).accepted == {early.run_id}
    assert (await store.load_cursors([1]))[1].value == {"value": 3}

    await store.finish([ended(await running(store), '{"value":4}')])
    assert (await store.load_cursors([1]))[1].value == {"value": 4}


async def test_a_later_attempt_of_the_same_run_moves_a_cursor_that_was_set(store: Store):
    early = await running(store)
    await store.set_cursor(1, None)
    await store.finish([], [Waiting(ended(early, state=State.FAILED), None, lost=True)])
    [again] = await claim(store, "n2", "sync", [], 1)

    await store.finish([ended(again, '{"value":9}')])

    assert (await store.load_cursors([1]))[1].value == {"value": 9}


async def test_a_cursor_outlives_the_history_of_its_job_until_the_job_is_deleted(store: Store):
    first, other = await running(store, 1), await running(store, 2)
    await store.finish([ended(first, '{"value":1}'), ended(other, '{"value":2}')])
    await store.delete_job(2)
    assert set(await store.load_cursors([1, 2])) == {1, 2}

    await store.purge([first.run_id])
    assert set(await store.load_cursors([1, 2])) == {1, 2}

    await store.purge([other.run_id])
    assert set(await store.load_cursors([1, 2])) == {1}


# ── progress ──


async def test_progress_is_noted_with_the_running_attempt_and_gone_with_it(store: Store):
    first, second = await running(store, 1), await running(store, 2)

    await store.note_progress([(first.run_id, first.fence, '{"rows":7}'), (second.run_id, 99, '{"rows":8}')])

    assert (await store.get_run(first.run_id)).progress == {"rows": 7}
    assert (await store.get_run(second.run_id)).progress is None
    await store.finish([], [Waiting(ended(first, state=State.FAILED), None, lost=True)])
    assert (await store.get_run(first.run_id)).progress is None
    [again] = await claim(store, "n2", "sync", [], 1)
    assert again.run_id == first.run_id
    assert (await store.get_run(first.run_id)).progress is None


async def test_progress_of_a_run_that_has_ended_is_not_noted(store: Store):
    first = await running(store)
    await store.finish([ended(first)])

    await store.note_progress([(first.run_id, first.fence, '{"rows":7}')])

    assert (await store.get_run(first.run_id)).progress is None


# ── locks ──


async def test_the_second_run_that_writes_a_destination_waits_and_says_for_which(store: Store):
    first, second, third = [await running(store, job) for job in (1, 2, 3)]
    assert await store.take_locks([wish(first, "a", "b")]) == {first.run_id}

    assert await store.take_locks([wish(second, "b", "c"), wish(third, "d")]) == {third.run_id}

    run = await store.get_run(second.run_id)
    assert (run.state, run.reason, run.attempt, run.node, run.started_at) == (
        State.BLOCKED, "destination_busy", 0, None, None,
    )  # fmt: skip
    assert run.message == f"run {first.run_id} writes to b; this one begins when that has ended"
    assert run.eligible_at == START + 3 * SECOND


async def test_of_two_in_one_batch_the_first_gets_the_destination(store: Store):
    first, second = await running(store, 1), await running(store, 2)

    assert await store.take_locks([wish(first, "a"), wish(second, "a")]) == {first.run_id}
    assert f"run {first.run_id} writes" in (await store.get_run(second.run_id)).message


async def test_many_who_ask_at_once_for_one_destination_get_it_one_at_a_time(store: Store):
    attempts = [await running(store, job) for job in range(1, 9)]

    granted = await asyncio.gather(*(store.take_locks([wish(one, "a", f"b{one.run_id}")]) for one in attempts))

    assert sum(len(each) for each in granted) == 1


async def test_who_waits_goes_on_waiting_while_the_other_writes_and_begins_when_it_has_ended(
    store: Store, clock: FakeClock
):
    first, second = await running(store, 1), await running(store, 2)
    await store.take_locks([wish(first, "a"), wish(second, "a")])
    clock.advance(4)

    swept = await store.sweep()

    assert (swept.queued, (await store.get_run(second.run_id)).state) == (0, State.BLOCKED)
    assert (await store.get_run(second.run_id)).eligible_at == clock.now() + 3 * SECOND
    await store.finish([ended(first)])
    clock.advance(4)
    assert (await store.sweep()).queued == 1
    [again] = await claim(store, "n1", "sync", [], 1)
    assert (again.run_id, again.attempt, again.fence) == (second.run_id, 1, 2)
    assert await store.take_locks([wish(again, "a")]) == {second.run_id}
    assert (await store.get_run(second.run_id)).message == ""


async def test_a_lock_of_an_attempt_that_was_lost_is_void(store: Store):
    first, second = await running(store, 1), await running(store, 2)
    await store.take_locks([wish(first, "a")])
    await store.finish([], [Waiting(ended(first, state=State.FAILED), None, lost=True)])

    assert await store.take_locks([wish(second, "a")]) == {second.run_id}

    [again] = await claim(store, "n1", "sync", [], 1)
    assert await store.take_locks([wish(again, "a")]) == set()


async def test_a_younger_run_does_not_overtake_one_that_waits(store: Store, clock: FakeClock):
    first, second = await running(store, 1), await running(store, 2)
    await store.take_locks([wish(first, "a"), wish(second, "a")])
    await store.finish([ended(first)])
    third = await running(store, 3)

    assert await store.take_locks([wish(third, "a")]) == set()

    clock.advance(4)
    await store.sweep()
    [one, two] = await claim(store, "n1", "sync", [], 2)
    assert one.run_id == second.run_id
    assert await store.take_locks([wish(one, "a"), wish(two, "a")]) == {second.run_id}


async def test_a_run_that_gets_one_of_two_destinations_keeps_neither(store: Store):
    first, second, third = [await running(store, job) for job in (1, 2, 3)]
    await store.take_locks([wish(first, "a")])

    await store.take_locks([wish(second, "b", "a")])

    assert (await store.get_run(second.run_id)).message.startswith(f"run {first.run_id} writes to a;")
    assert await store.take_locks([wish(third, "b")]) == {third.run_id}


async def test_a_run_that_somebody_wants_cancelled_ends_instead_of_waiting(store: Store):
    first, second = await running(store, 1), await running(store, 2, Overlap.QUEUE)
    successor = await queue(store, 2, Overlap.QUEUE)
    await store.cancel([second.run_id], "requested")
    await store.take_locks([wish(first, "a")])

    assert await store.take_locks([wish(second, "a")]) == set()

    run = await store.get_run(second.run_id)
    assert (run.state, run.reason) == (State.CANCELLED, "requested")
    assert (await store.get_run(successor)).state is State.QUEUED


async def test_a_start_deadline_binds_a_run_that_waits_for_a_destination(store: Store, clock: FakeClock):
    first, second = await running(store, 1), await running(store, 2)
    await store.take_locks([wish(first, "a"), wish(second, "a")._replace(start_by=START + 2 * SECOND)])
    clock.advance(2)

    assert (await store.sweep()).expired == 1

    run = await store.get_run(second.run_id)
    assert (run.state, run.reason) == (State.SKIPPED, "start_deadline")


async def test_a_run_that_waits_for_a_destination_can_be_cancelled(store: Store):
    first, second = await running(store, 1), await running(store, 2)
    await store.take_locks([wish(first, "a"), wish(second, "a")])

    assert (await store.cancel([second.run_id], "requested")).ended == {second.run_id}


async def test_a_lock_that_another_server_takes_meanwhile_is_not_taken_for_void(
    postgres_store: PostgresStore, postgres_url: str, clock: FakeClock
):
    second = await running(postgres_store, 2)
    first = await queue(postgres_store, 1)
    other, connection = PostgresStore(postgres_url, clock=clock), await asyncpg.connect(postgres_url)
    async with connection.transaction():
        await connection.execute("INSERT INTO locks (name, run_id, fence) VALUES ('a', $1, 1)", first)
        taking = asyncio.create_task(postgres_store.take_locks([wish(second, "a")]))
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0)
        [claimed] = await claim(other, "n1", "sync", [], 1)
    await connection.close()
    await other.close()

    assert claimed.run_id == first
    assert await taking == set()
