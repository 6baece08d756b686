"""How long runs take, learned from history: the same on every store, and once for each run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.insight.learning import APART, FIRST, MOST_OF_JOB, Mark
from horae.core.model import SECOND, After, Overlap, Policy, State
from horae.core.runs.orders import NewRun, Order, Result
from horae.core.time.schedule import canonical
from horae.errors import Unavailable
from horae.ports.store import Store
from horae.service.insight.learning import Learned, Learning
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

ROUND = APART // SECOND + 1


async def define(store: Store, job_id: int = 1, **fields: Any) -> None:
    await store.submit([Submission([make_job(job_id, kind="shell", **fields)])])


async def begin(store: Store, job_id: int = 1) -> tuple[int, int]:
    await store.enqueue([Order(NewRun(job_id, "shell", 5, Overlap.ALLOW))])
    [claimed] = await claim(store, "n1", "shell", [], 1)
    return claimed.run_id, claimed.fence


async def end(store: Store, run: tuple[int, int], state: State = State.SUCCEEDED) -> None:
    await store.finish([Result(*run, state, finished_at=None)])


async def run_for(
    store: Store, clock: FakeClock, seconds: float, job_id: int = 1, state: State = State.SUCCEEDED
) -> None:
    run = await begin(store, job_id)
    clock.advance(seconds)
    await end(store, run, state)


async def rounds(store: Store, clock: FakeClock, count: int = 2) -> list[Learned]:
    found = []
    for _ in range(count):
        clock.advance(ROUND)
        found.append(await Learning(store).learn())
    return found


async def median(store: Store, job_id: int = 1) -> float | None:
    found = (await store.load_baselines([job_id])).get(job_id)
    expected = None if found is None else found.predict()
    return None if expected is None else expected.median


@pytest.fixture
async def learning(store: Store) -> Store:
    await define(store)
    await Learning(store).learn()  # from here on
    return store


async def test_ended_runs_are_learned_and_once(learning: Store, clock: FakeClock):
    for seconds in (10, 10, 10):
        await run_for(learning, clock, seconds)
    assert [one.runs for one in await rounds(learning, clock, 4)] == [0, 3, 0, 0]
    assert await median(learning) == pytest.approx(10, rel=0.01)
    assert (await learning.load_baselines([1]))[1].runs == 3


async def test_failures_count_for_the_share_alone(learning: Store, clock: FakeClock):
    await run_for(learning, clock, 10)
    await run_for(learning, clock, 1, state=State.FAILED)
    await rounds(learning, clock)
    found = (await learning.load_baselines([1]))[1]
    assert (found.runs, found.ended, found.share) == (1, 2, pytest.approx(0.5))
    assert await median(learning) == pytest.approx(10, rel=0.01)


async def test_a_run_that_ends_long_after_its_stretch_was_looked_at_is_learned(learning: Store, clock: FakeClock):
    slow = await begin(learning)
    await rounds(learning, clock, 3)
    assert (await learning.load_mark() or Mark(0, 0, 0)).waiting == (slow[0],)
    await end(learning, slow)
    assert [one.runs for one in await rounds(learning, clock, 3)] == [1, 0, 0]
    assert (await learning.load_mark() or Mark(0, 0, 0)).waiting == ()


async def test_two_who_learn_at_once_count_nothing_twice(learning: Store, clock: FakeClock):
    await run_for(learning, clock, 5)
    await rounds(learning, clock, 1)
    clock.advance(ROUND)
    both = await asyncio.gather(Learning(learning).learn(), Learning(learning).learn())
    assert sum(one.runs for one in both) == 1
    assert (await learning.load_baselines([1]))[1].runs == 1


async def test_who_dies_before_it_is_written_has_learned_nothing(
    learning: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    await run_for(learning, clock, 5)
    await rounds(learning, clock, 1)
    clock.advance(ROUND)

    async def die(*_: object) -> bool:
        raise Unavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(learning), "save_baselines", die)
        with pytest.raises(Unavailable):
            await Learning(learning).learn()
    assert (await Learning(learning).learn()).runs == 1
    assert (await Learning(learning).learn()).runs == 0
    assert (await learning.load_baselines([1]))[1].runs == 1


async def test_a_mark_that_has_moved_writes_nothing(learning: Store, clock: FakeClock):
    mark = await learning.load_mark()
    assert mark is not None
    stale = mark._replace(after=mark.after + 1)
    await run_for(learning, clock, 5)
    await rounds(learning, clock)
    known = await learning.load_baselines([1])
    assert not await learning.save_baselines(stale, mark, {1: known[1], 2: known[1]}, START)
    assert await learning.load_baselines([1, 2]) == known


async def test_an_idle_store_is_not_written_to(learning: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    await run_for(learning, clock, 5)
    await rounds(learning, clock, 3)

    async def refuse(*_: object) -> bool:
        raise AssertionError("nothing has happened")

    monkeypatch.setattr(type(learning), "save_baselines", refuse)
    assert await rounds(learning, clock, 3) == [Learned()] * 3


async def test_of_one_job_the_last_runs_of_a_round_are_learned(learning: Store, clock: FakeClock):
    for seconds in range(MOST_OF_JOB + 4):
        await run_for(learning, clock, 1 + seconds)
    assert (await rounds(learning, clock))[-1].runs == MOST_OF_JOB


async def test_of_very_many_runs_a_share_is_learned(learning: Store, clock: FakeClock):
    for _ in range(20):
        await run_for(learning, clock, 1)
    newest = await learning.newest_run()
    some = [await learning.load_ended_between(newest - 20, newest, share, 100) for share in (1, 3)]
    assert len(some[0]) == 20
    assert 0 < len(some[1]) < 20


async def test_learning_begins_with_the_latest_runs(store: Store, clock: FakeClock):
    await define(store)
    await run_for(store, clock, 7)
    assert [one.runs for one in await rounds(store, clock, 3)] == [0, 1, 0]
    assert await median(store) == pytest.approx(7, rel=0.01)
    assert FIRST > 1


async def test_what_was_learned_of_a_job_goes_with_its_tombstone(learning: Store, clock: FakeClock):
    await run_for(learning, clock, 5)
    await rounds(learning, clock)
    await learning.delete_job(1)
    ended = await learning.load_outdated(clock.now() + SECOND, 0, 100)
    await learning.purge(ended.run_ids)
    await learning.purge_remains(clock.now() + SECOND, 100)
    assert await learning.load_baselines([1]) == {}


async def test_triggers_ahead_are_planned_with_what_was_learned(learning: Store, clock: FakeClock):
    for seconds in (8, 8):
        await run_for(learning, clock, seconds)
    await rounds(learning, clock)
    await define(learning, 2, trigger_id=5, next_at=clock.now() + SECOND, schedule=canonical({"every": "10s"}))
    await define(learning, 3, trigger_id=6, next_at=clock.now() + 100 * SECOND)
    planned = await learning.load_planned(clock.now() + 50 * SECOND, 10)
    assert [(it.trigger_id, it.job_id, it.schedule, it.median) for it in planned.rows()] == [
        (5, 2, '{"every":"10s"}', None)
    ]


async def test_what_changes_while_triggers_are_read_is_told_of_as_it_was_or_not_at_all(
    learning: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    """Their moments and their jobs are read at once, each for itself, and come in any order."""
    due = clock.now() + SECOND
    for job_id in (9, 3, 5):
        await define(learning, job_id, trigger_id=job_id + 10, next_at=due, schedule=canonical({"every": f"{job_id}s"}))
    read, jobs = learning.read, asyncio.Event()  # type: ignore[attr-defined]

    async def jobs_first(statement: str, *args: object) -> object:
        if "durations" not in statement:
            found = await read(statement, *args)
            jobs.set()
            return found
        await jobs.wait()
        await learning.delete_job(3)
        await define(learning, 4, trigger_id=11, next_at=due, schedule=canonical({"every": "4s"}))
        return await read(statement, *args)

    monkeypatch.setattr(learning, "read", jobs_first)
    planned = await learning.load_planned(clock.now() + 50 * SECOND, 10)
    assert sorted((it.trigger_id, it.next_at, it.job_id, it.schedule) for it in planned.rows()) == [
        (15, due, 5, '{"every":"5s"}'), (19, due, 9, '{"every":"9s"}'),
    ]  # fmt: skip


async def test_jobs_that_follow_others_say_whom(store: Store):
    await define(store, 1)
    await define(store, 2, policy=Policy(after=(After("one", on="end", id=1),)))
    assert [(it.job_id, it.heard) for it in await store.load_followers(10)] == [(2, ((1, "end"),))]


async def test_what_waits_for_a_slot_is_counted_by_kind(store: Store):
    await define(store)
    await store.enqueue([Order(NewRun(1, "shell", 5, Overlap.ALLOW)) for _ in range(3)])
    assert await store.count_queued() == {"shell": 3}
