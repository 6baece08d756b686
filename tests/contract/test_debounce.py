"""Orders that wait for others of their kind, on both stores."""

from __future__ import annotations

import asyncio
from typing import Any

from horae.core.definitions import Idempotency, Receipt
from horae.core.model import SECOND, Debounce, Overlap, Policy, Reason, Run, RunFilter, State
from horae.core.policy.debounce import Calm
from horae.core.runs.orders import NewRun, Order
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs
from horae.testing import START, FakeClock, make_job

from ..claiming import claim
from .test_store import submit

CALM = Calm("", 10 * SECOND, 60 * SECOND)


def order(data: str, calm: Calm = CALM, key: str | None = None, **fields: Any) -> Order:
    run = NewRun(1, "python", fields.pop("priority", 5), Overlap.ALLOW, data=f'{{"n":"{data}"}}')
    return Order(run, Idempotency("s", key, data) if key else None, calm=calm, **fields)


async def make(store: Store, **fields: Any) -> None:
    await submit(store, make_job(1, policy=Policy(overlap=Overlap.ALLOW), **fields))


async def place(store: Store, *orders: Order) -> list[Receipt]:
    return await store.enqueue(orders)


async def runs(store: Store) -> list[Run]:
    return list((await store.list_runs(RunFilter(job_id=1), None, 100)).items)


async def test_an_order_waits_until_no_more_have_come_for_a_while(store: Store, clock: FakeClock):
    await make(store)
    [first] = await place(store, order("a", trigger_id=7, priority=3))
    assert first.run is not None
    assert (first.run.state, first.run.reason, first.run.replaced) == (State.BLOCKED, Reason.DEBOUNCE, False)
    assert first.run.eligible_at == START + 10 * SECOND
    assert await store.get_run(first.ids[0]) == first.run
    clock.advance(9)
    [second] = await place(store, order("b", priority=8))
    assert second.ids == first.ids
    assert second.run is not None
    assert (second.run.replaced, second.run.eligible_at, second.run.created_at) == (True, START + 19 * SECOND, START)
    clock.advance(9)
    assert (await store.sweep()).next_at == START + 19 * SECOND
    assert await claim(store, "n", "python", (), 9) == []
    clock.advance(1)
    assert (await store.sweep()).queued == 1
    [run] = await runs(store)
    assert (run.state, run.data, run.priority, run.due_at) == (State.QUEUED, {"n": "b"}, 8, START + 19 * SECOND)
    [claimed] = await claim(store, "n", "python", (), 9)
    assert claimed.run_id == first.ids[0]


async def test_it_waits_no_longer_than_it_may_after_the_first(store: Store, clock: FakeClock):
    await make(store)
    for number in range(12):
        [receipt] = await place(store, order(str(number)))
        clock.advance(5)
    assert receipt.run is not None
    assert receipt.run.eligible_at == START + 60 * SECOND
    assert (await store.sweep()).queued == 1
    assert [run.data for run in await runs(store)] == [{"n": "11"}]
    [later] = await place(store, order("12"))
    assert later.ids != receipt.ids
    assert later.run is not None
    assert later.run.eligible_at == START + 70 * SECOND


async def test_an_order_that_comes_when_the_latest_moment_has_passed_is_still_taken_up(store: Store, clock: FakeClock):
    await make(store)
    await place(store, order("a"))
    clock.advance(100)
    [late] = await place(store, order("b"))
    assert late.run is not None
    assert (late.run.replaced, late.run.eligible_at) == (True, START + 60 * SECOND)
    assert (await store.sweep()).queued == 1
    assert [run.data for run in await runs(store)] == [{"n": "b"}]


async def test_without_a_latest_moment_it_waits_as_long_as_more_come(store: Store, clock: FakeClock):
    await make(store)
    for _ in range(100):
        [receipt] = await place(store, order("a", Calm("", 10 * SECOND, None)))
        clock.advance(9)
        assert (await store.sweep()).queued == 0
    clock.advance(1)
    assert (await store.sweep()).queued == 1
    assert [run.id for run in await runs(store)] == receipt.ids


async def test_each_kind_and_each_job_waits_for_itself(store: Store, clock: FakeClock):
    await make(store)
    await submit(store, make_job(2))
    asked = [order("a"), order("b", CALM._replace(key="x")), order("c", CALM._replace(key="x"))]
    other = Order(NewRun(2, "python", 5, Overlap.ALLOW), calm=CALM)
    receipts = await place(store, *asked, other)
    first, second, third, fourth = (receipt.ids[0] for receipt in receipts)
    assert second == third
    assert len({first, second, fourth}) == 3
    assert [receipt.run is not None and receipt.run.replaced for receipt in receipts] == [False, False, True, False]
    clock.advance(10)
    assert (await store.sweep()).queued == 3
    assert {run.id: run.data for run in await runs(store)} == {first: {"n": "a"}, second: {"n": "c"}}


async def test_orders_beside_it_are_carried_out_at_once(store: Store):
    await make(store)
    plain = Order(NewRun(1, "python", 5, Overlap.ALLOW))
    calm, now = await place(store, order("a"), plain)
    assert calm.run is not None
    assert now.run is not None
    assert (calm.run.state, now.run.state) == (State.BLOCKED, State.QUEUED)


async def test_a_repeat_of_an_order_changes_nothing(store: Store, clock: FakeClock):
    await make(store)
    [first] = await place(store, order("a", key="k1"))
    clock.advance(5)
    [second] = await place(store, order("b", key="k2"))
    clock.advance(2)
    [again] = await place(store, order("a", key="k1"))
    assert (again.replayed, again.ids, second.ids) == (True, first.ids, first.ids)
    [other] = await place(store, order("c", key="k1"))
    assert other.mismatch
    twins = await place(store, order("d", key="k3"), order("d", key="k3"))
    assert [twin.ids for twin in twins] == [first.ids] * 2
    [run] = await runs(store)
    assert (run.data, run.eligible_at) == ({"n": "d"}, START + 17 * SECOND)


async def test_an_order_of_another_version_or_to_a_deleted_job_does_nothing(store: Store):
    await make(store)
    [stale] = await place(store, order("a", version=2, key="k"))
    assert stale.stale
    [good] = await place(store, order("a", version=1, key="k"))
    assert good.ids
    await store.delete_job(1)
    [gone] = await place(store, order("b"))
    assert gone == Receipt([])
    assert [run.state for run in await runs(store)] == [State.CANCELLED]


async def test_a_cancelled_one_leaves_its_place_to_the_next(store: Store, clock: FakeClock):
    await make(store)
    [first] = await place(store, order("a"))
    assert (await store.cancel(first.ids, Reason.REQUESTED)).ended == set(first.ids)
    clock.advance(5)
    [second] = await place(store, order("b"))
    assert second.run is not None
    assert (second.ids == first.ids, second.run.replaced) == (False, False)
    clock.advance(10)
    assert (await store.sweep()).queued == 1


async def test_it_obeys_the_overlap_policy_when_its_moment_has_come(store: Store, clock: FakeClock):
    await submit(store, make_job(1))
    forbid = NewRun(1, "python", 5, Overlap.FORBID)
    [calm] = await place(store, Order(forbid, calm=CALM))
    [now] = await place(store, Order(forbid))
    assert now.run is not None
    assert now.run.state is State.QUEUED
    clock.advance(10)
    await store.sweep()
    run = await store.get_run(calm.ids[0])
    assert run is not None
    assert (run.state, run.reason) == (State.SKIPPED, Reason.OVERLAP)


async def test_a_start_deadline_counts_from_the_moment_it_is_due(store: Store, clock: FakeClock):
    await make(store)
    await place(store, order("a", start_within=3 * SECOND))
    clock.advance(9)
    await place(store, order("b", start_within=3 * SECOND))
    clock.advance(10)
    assert (await store.sweep()).expired == 0
    clock.advance(3)
    assert (await store.sweep()).expired == 1


async def test_sixteen_callers_at_once_are_one_run(store: Store, clock: FakeClock):
    await make(store)
    answers = await asyncio.gather(*(store.enqueue([order(str(n))]) for n in range(16)))
    ids = {receipt.ids[0] for [receipt] in answers}
    assert len(ids) == 1
    assert sum(receipt.run is not None and not receipt.run.replaced for [receipt] in answers) == 1
    clock.advance(10)
    assert (await store.sweep()).queued == 1


async def test_a_sweep_between_callers_loses_none_of_them(store: Store, clock: FakeClock):
    """Every answer names a run that has the data of its caller, or of one that came later."""
    await make(store)
    calm = Calm("", 1, None)

    async def call(start: int) -> list[tuple[int, int]]:
        return [
            (number, (await store.enqueue([order(str(number), calm)]))[0].ids[0]) for number in range(start, start + 10)
        ]

    async def sweep() -> None:
        for _ in range(40):
            clock.advance(1)
            await store.sweep()

    *answers, _ = await asyncio.gather(*(call(1000 * n) for n in range(8)), sweep())
    clock.advance(1)
    await store.sweep()
    made = {run.id: run for run in await runs(store)}
    assert {run.state for run in made.values()} == {State.QUEUED}
    for own in answers:
        for number, run_id in own:
            said = int(made[run_id].data["n"])  # type: ignore[index]
            assert said // 1000 != number // 1000 or said >= number


async def test_a_request_for_a_moment_of_its_own_is_not_held_back(store: Store, clock: FakeClock):
    jobs = Jobs(store, LocalQueue())
    policy = Policy(overlap=Overlap.ALLOW, debounce=Debounce(10, 60, "data.path"))
    await submit(store, make_job(1, policy=policy))
    one = await jobs.run_now(1, data={"path": "a"})
    two = await jobs.run_now(1, data={"path": "a", "x": 1})
    other = await jobs.run_now(1, data={"path": "b"})
    later = await jobs.run_now(1, data={"path": "a"}, run_at=START + 3600 * SECOND)
    assert (one.id == two.id, two.replaced, other.id != one.id, later.reason) == (True, True, True, Reason.LATER)
    assert one.message == (
        "more orders like it may come: it waits until 2027-01-15T08:00:10Z, and runs 10s after the last, at most 1m "
        "after the first"
    )
    shown = await jobs.limits.explain(await jobs.get_run(other.id))
    assert shown.message.startswith("more orders like it may come")
