"""Fair shares of what waits, on SQLite and PostgreSQL: by weight, at once for newcomers, kept over restarts."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND, Overlap, Policy, RunFilter, State
from horae.core.runs.orders import Fire, NewRun, Order, Result
from horae.ports.store import Store
from horae.stores.lines import SAVE_SECONDS, Lines
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

NEW = NewRun(job_id=1, kind="python", priority=5, overlap=Overlap.ALLOW)


@pytest.fixture
async def store(store: Store) -> Store:
    policy = Policy(overlap=Overlap.ALLOW)
    await store.submit([Submission([make_job(1, trigger_id=10, next_at=START, policy=policy, segment=1)])])
    return store


async def order(store: Store, share: str, count: int = 1, *, weight: int = 1, **other: object) -> None:
    new = replace(NEW, share=share, weight=weight, data=f'"{share}"', **other)  # type: ignore[arg-type]
    await store.enqueue([Order(new)] * count)


async def start(store: Store, limit: int) -> list[str]:
    """Return whose runs are started, in order, and end them."""
    given = await claim(store, "n1", "python", [], limit)
    await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=START) for a in given])
    return [str(a.data).strip('"') for a in sorted(given, key=lambda a: a.run_id)]


async def test_shares_with_something_waiting_get_starts_by_their_weight(store: Store):
    for share, weight in {"a": 1, "b": 2, "c": 4}.items():
        await order(store, share, 400, weight=weight)

    started = Counter[str]()
    for _ in range(35):
        started.update(await start(store, 10))

    assert started == pytest.approx({"a": 50, "b": 100, "c": 200}, abs=3)


async def test_what_one_share_has_waiting_does_not_delay_the_first_run_of_another(store: Store):
    await order(store, "a", 2000)
    await start(store, 10)

    await order(store, "newcomer")

    assert "newcomer" in await start(store, 2)


async def test_a_share_that_was_idle_has_saved_up_nothing(store: Store):
    await order(store, "a", 200)
    for _ in range(10):
        await start(store, 10)
    await order(store, "idle", 100)

    assert Counter(await start(store, 20)) == pytest.approx({"a": 10, "idle": 10}, abs=1)


async def test_the_order_of_one_share_is_that_of_its_orders(store: Store):
    receipts = await store.enqueue([Order(NEW)] * 5)

    given = [(await claim(store, "n1", "python", [], 1))[0].run_id for _ in receipts]

    assert given == [receipt.ids[0] for receipt in receipts]


async def test_higher_priority_goes_first_whoever_shares_it(store: Store):
    await order(store, "a", 10)
    await order(store, "a", 2, priority=6)
    await order(store, "b", 1)

    assert await start(store, 2) == ["a", "a"]


async def test_runs_of_triggers_and_of_orders_share_one_line(store: Store):
    await order(store, "a", 10)
    await start(store, 5)
    trigger = Fire(10, 1, 1, START, START + 1, START, replace(NEW, share="b", data='"b"'), START)

    fired = await store.fire([trigger])

    assert fired.queued == 1

    assert "b" in await start(store, 2)


async def test_one_batch_of_many_shares_is_dealt_out_evenly(store: Store):
    orders = [Order(replace(NEW, share=share, data=f'"{share}"')) for share in "aaaaaaaabc"]
    await store.enqueue(orders)

    assert sorted(await start(store, 3)) == ["a", "b", "c"]


async def test_an_order_that_came_to_nothing_does_not_cost_its_share_a_turn(store: Store):
    """Skipped because another run of its job was live: the share stays where it was."""
    forbid = replace(NEW, share="a", overlap=Overlap.FORBID, data='"a"')
    await store.enqueue([Order(forbid)])
    await store.enqueue([Order(forbid)] * 50)
    await order(store, "b", 20)
    await order(store, "a", 1)

    assert (await start(store, 4)).count("a") == 2


async def test_who_makes_runs_and_claims_none_knows_how_far_the_line_is(store: Store):
    """As a process that only fires, or one that was started anew: it reads what others wrote down."""
    times = itertools.count(step=SAVE_SECONDS)
    store._lines = Lines(lambda: next(times))  # type: ignore[attr-defined]
    await order(store, "a", 300)
    for _ in range(3):
        await start(store, 80)
    store._lines = Lines()  # type: ignore[attr-defined]

    await order(store, "b", 50)

    assert "a" in await start(store, 90)  # written down when 160 of its runs had started, and 240 have


async def test_an_order_for_later_takes_its_place_when_its_moment_comes(store: Store, clock: FakeClock):
    """Else one could order far ahead what shall go before everybody."""
    later = replace(NEW, share="ahead", data='"ahead"', weight=3)
    await store.enqueue([Order(later, run_at=clock.now() + 1)] * 20)
    await order(store, "a", 40)
    await start(store, 20)

    clock.advance(1)
    await store.sweep()

    assert Counter(await start(store, 12)) == pytest.approx({"a": 3, "ahead": 9}, abs=1)


async def test_what_has_waited_long_goes_up_one_priority_and_again(store: Store, clock: FakeClock):
    await order(store, "low", 2, priority=1)
    clock.advance(600)
    await order(store, "high", 5, priority=2)
    lifted = await store.lift_starved(clock.now() - 600 * SECOND, 100)

    assert lifted == 2
    assert await store.lift_starved(clock.now() - 600 * SECOND, 100) == 0
    assert await start(store, 2) == ["low", "low"]


async def test_what_was_lifted_waits_anew_before_it_is_lifted_again(store: Store, clock: FakeClock):
    await order(store, "low", priority=1)
    for minutes, expected in ((9, 0), (1, 1), (9, 0), (1, 1)):
        clock.advance(minutes * 60)
        assert await store.lift_starved(clock.now() - 600 * SECOND, 100) == expected

    assert [run.priority for run in (await store.list_runs(RunFilter(), None, 1)).items] == [3]


async def test_the_highest_priority_goes_no_higher(store: Store, clock: FakeClock):
    await order(store, "high", priority=9)
    clock.advance(6000)

    assert await store.lift_starved(clock.now(), 100) == 0


async def test_shares_that_are_behind_their_line_are_forgotten_and_begin_there(store: Store):
    times = itertools.count(step=SAVE_SECONDS)
    store._lines = Lines(lambda: next(times))  # type: ignore[attr-defined]
    await order(store, "idle", 1)
    await order(store, "busy", 30)
    for _ in range(4):
        await start(store, 6)

    assert await store.drop_idle_shares(100) == 1
    await order(store, "idle", 1)
    assert "idle" in await start(store, 2)


async def test_orders_of_the_same_shares_at_once_lock_nobody_in_a_circle(postgres_store: PostgresStore):
    store = postgres_store
    await store.submit([Submission([make_job(1)])])
    shares = [f"s{number}" for number in range(20)]

    async def place(shares: list[str]) -> None:
        await store.enqueue([Order(replace(NEW, share=share)) for share in shares])

    await asyncio.gather(*(place(shares[::step]) for step in (1, -1) * 10))

    assert len(await claim(store, "n1", "python", [], 1000)) == 400
