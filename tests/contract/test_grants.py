"""Runs that demand more than a slot and are started beside ordinary ones, without a look; on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import SECOND, ConcurrencyLimit, Overlap, Policy, RateLimit, State
from horae.core.policy.grants import HOLDS
from horae.core.policy.queues import Queue
from horae.core.runs.orders import Claimed, NewRun, Order
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, changed, make_job

from .test_limits import FIVE, beside, define, done, ids, make_queue, offer, order, running, start

MANY = Policy(concurrency_limits=(ConcurrencyLimit(50),))
OTHER = Policy(concurrency_limits=(ConcurrencyLimit(50),), priority=6)
THRICE = Policy(rate_limits=(RateLimit("1/min", 3),))


async def look(store: Store, policy: Policy = MANY, **fields: Any) -> None:
    """Make a run and start it by a look: from then on one knows how its keys stand."""
    made = await order(store, 1, policy, **fields)
    assert ids(await start(store, offer(free={"gpu": 1}))) == made


async def ask(store: Store, room: int = 100, *, is_fresh: bool = False, **fields: Any) -> Claimed:
    return await store.claim_beside([offer(room, **fields)], is_fresh=is_fresh)


def given(claimed: Claimed) -> list[int]:
    return ids([one for each in claimed.given for one in each or ()])


@pytest.fixture
async def other(postgres_url: str, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    """Another process."""
    store = PostgresStore(postgres_url, clock=clock)
    await store.open()
    yield store
    await store.close()


# ── what needs a look ──
async def test_a_claim_takes_ordinary_runs_and_says_that_others_wait(store: Store):
    await define(store)
    [plain] = [r.ids[0] for r in await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))])]
    assert not (await ask(store, 0)).is_waiting
    await order(store)
    claimed = await ask(store)
    assert (given(claimed), claimed.room, claimed.is_waiting) == ([plain], [{"python": 99}], True)


async def test_what_a_full_limit_holds_needs_no_look_whoever_made_more_of_it(store: Store):
    await define(store)
    await order(store, 9)
    assert len(await start(store)) == 5
    await order(store, 3)
    assert not (await ask(store, is_fresh=True)).is_waiting
    await define(store, FIVE, 2)
    await order(store, 1, job_id=2)
    assert (await ask(store)).is_waiting


async def test_what_lacks_an_agent_needs_a_look_only_when_somebody_has_made_runs(store: Store):
    await define(store, Policy())
    await order(store, 1, Policy(), asks=[("gpu", 1)])
    assert await start(store) == []
    assert not (await ask(store)).is_waiting
    assert (await ask(store, is_fresh=True)).is_waiting


async def test_when_all_that_waited_has_started_nothing_waits(store: Store):
    await define(store)
    await order(store, 3)
    claimed = await store.claim_demanding([offer()])
    assert (len(given(claimed)), claimed.is_waiting, len(claimed.holding)) == (3, False, 3)
    assert not (await ask(store, is_fresh=True)).is_waiting


# ── what goes with ordinary runs ──
async def test_where_there_is_plenty_runs_start_without_a_look(postgres_store: PostgresStore, clock: FakeClock):
    await define(postgres_store, MANY)
    await look(postgres_store)
    [plain] = [r.ids[0] for r in await postgres_store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))])]
    made = await order(postgres_store, 3, MANY, data={"a": 1}, start_by=clock() + SECOND)

    claimed = await ask(postgres_store)

    assert sorted(given(claimed)) == [plain, *made]
    assert (sorted(claimed.holding), claimed.room, claimed.is_waiting) == (made, [{"python": 96}], False)
    run = await postgres_store.get_run(made[0])
    assert run is not None
    assert (run.state, run.node, run.reason, run.started_at, run.eligible_at) == (
        State.RUNNING,
        "n1",
        "",
        clock(),
        None,
    )


async def test_a_grant_is_used_up(postgres_store: PostgresStore):
    await define(postgres_store)
    await look(postgres_store, FIVE)
    for _ in range(4):
        await order(postgres_store)
        assert len(await beside(postgres_store)) == 1
    await order(postgres_store)
    claimed = await ask(postgres_store)
    assert (given(claimed), claimed.is_waiting) == ([], True)
    assert await start(postgres_store) == []
    assert len(await running(postgres_store)) == 5


async def test_what_has_ended_is_found_free_without_a_look(postgres_store: PostgresStore):
    await define(postgres_store)
    await look(postgres_store, FIVE)
    for _ in range(30):
        await order(postgres_store, 2)
        held = await beside(postgres_store)
        assert len(held) == 2
        await postgres_store.finish([done(one) for one in held])


async def test_where_more_waits_than_may_start_a_look_decides_who_does(postgres_store: PostgresStore):
    await define(postgres_store)
    await look(postgres_store, FIVE)
    made = await order(postgres_store, 5)
    claimed = await ask(postgres_store)
    assert (given(claimed), claimed.is_waiting) == ([], True)
    assert ids(await start(postgres_store)) == made[:4]


async def test_demands_that_share_a_key_have_no_more_than_it_together(postgres_store: PostgresStore):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(6, "owner"), ConcurrencyLimit(5, "data.tenant")))
    await define(postgres_store, policy)
    for tenant in "ab":
        await look(postgres_store, policy, data={"tenant": tenant})
    for tenant in "ab":
        await order(postgres_store, 3, policy, data={"tenant": tenant})
    assert await beside(postgres_store) == []
    assert len(await start(postgres_store)) == 4


async def test_a_key_that_another_process_has_used_is_looked_at_again(
    postgres_store: PostgresStore, other: PostgresStore
):
    await define(postgres_store)
    await look(postgres_store, FIVE)
    await order(postgres_store, 3)
    assert len(await start(other)) == 3
    await order(postgres_store)
    claimed = await ask(postgres_store)
    assert (given(claimed), claimed.is_waiting) == ([], True)
    assert len(await start(postgres_store)) == 1


async def test_a_key_that_another_process_has_used_beside_is_looked_at_again(
    postgres_store: PostgresStore, other: PostgresStore
):
    await define(postgres_store)
    for store in (postgres_store, other):
        await look(store, FIVE)
    await order(postgres_store, 1)
    assert await beside(postgres_store) == []  # the other one was the last
    assert len(await beside(other)) == 1
    await order(postgres_store, 1)
    assert await beside(postgres_store) == []
    assert len(await start(postgres_store)) == 1


async def test_a_rate_is_moved_on_and_never_exceeded(postgres_store: PostgresStore, clock: FakeClock):
    await define(postgres_store, THRICE)
    await look(postgres_store, THRICE)
    await order(postgres_store, 2, THRICE)
    assert len(await beside(postgres_store)) == 2
    await order(postgres_store, 1, THRICE)
    assert (await ask(postgres_store)).is_waiting
    assert await start(postgres_store) == []
    clock.advance(60)
    assert len(await start(postgres_store)) == 1
    states = await postgres_store.load_limits()
    assert [state.limit.ready_at for state in states] == [START + 240 * SECOND]


async def test_a_clock_that_was_set_back_starts_no_more_than_the_rate_allows(
    postgres_store: PostgresStore, clock: FakeClock
):
    await define(postgres_store, THRICE)
    await look(postgres_store, THRICE)
    clock.advance(-3600)
    await order(postgres_store, 1, THRICE)
    assert await beside(postgres_store) == []


@pytest.mark.parametrize("policy", [replace(MANY, concurrency_limits=(ConcurrencyLimit(1),)), OTHER])
async def test_a_job_that_was_changed_is_looked_at_again(postgres_store: PostgresStore, policy: Policy):
    await define(postgres_store, MANY)
    await look(postgres_store)
    assert await postgres_store.save_job(changed(make_job(1, policy=policy)), 1)
    await order(postgres_store, 1, MANY)
    assert await beside(postgres_store) == []
    assert len(await start(postgres_store)) == (policy is OTHER)
    if policy is OTHER:
        await order(postgres_store, 1, MANY)
        assert len(await beside(postgres_store)) == 1


async def test_a_queue_that_was_changed_is_looked_at_again(postgres_store: PostgresStore):
    await define(postgres_store, Policy())
    queue = Queue(3, "q3", concurrency=9)
    await make_queue(postgres_store, 3, '{"concurrency": 9}')
    await look(postgres_store, Policy(), queue=queue)
    await order(postgres_store, 1, Policy(), queue=queue)
    assert len(await beside(postgres_store)) == 1
    await postgres_store.write("""UPDATE queues SET document = '{"concurrency": 1}', version = 2 WHERE id = 3""")
    await order(postgres_store, 1, Policy(), queue=queue)
    assert (await ask(postgres_store)).is_waiting
    assert await start(postgres_store) == []


async def test_of_a_resource_that_was_made_less_no_more_starts(postgres_store: PostgresStore):
    await postgres_store.set_resource("tape", 9)
    await define(postgres_store, Policy())
    await look(postgres_store, Policy(), resources=[("tape", 2)])
    await order(postgres_store, 1, Policy(), resources=[("tape", 2)])
    assert len(await beside(postgres_store)) == 1
    await postgres_store.set_resource("tape", 5)
    await order(postgres_store, 1, Policy(), resources=[("tape", 2)])
    assert await beside(postgres_store) == []
    assert await start(postgres_store) == []


async def test_what_is_asked_of_an_agent_is_had_of_each_that_offers_something(postgres_store: PostgresStore):
    await define(postgres_store, Policy())
    await look(postgres_store, Policy(), asks=[("gpu", 1)])
    await order(postgres_store, 2, Policy(), asks=[("gpu", 1)])
    for free in (0, 1):
        claimed = await ask(postgres_store, free={"gpu": free})
        assert (given(claimed), claimed.is_waiting) == ([], True)
    poor, rich = offer(1, "n1", free={"gpu": 1}), offer(1, "n2", free={"gpu": 2})
    assert await beside(postgres_store, poor, rich) == []  # both could go to the first
    assert len(await beside(postgres_store, rich, offer(1, "n3", free={"gpu": 2}))) == 2


async def test_what_wants_several_slots_is_never_granted(postgres_store: PostgresStore):
    await define(postgres_store, Policy())
    await look(postgres_store, Policy(), asks=[("slots", 2)])
    await order(postgres_store, 1, Policy(), asks=[("slots", 2)])
    assert await beside(postgres_store) == []


async def test_runs_start_in_the_order_of_all_that_waits(postgres_store: PostgresStore):
    await define(postgres_store, MANY)
    await look(postgres_store)
    [low] = await order(postgres_store, 1, MANY, priority=1)
    [high] = await order(postgres_store, 1, MANY, priority=9)
    plain = [r.ids[0] for r in await postgres_store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))])]
    assert [given(await ask(postgres_store, 1)) for _ in range(3)] == [[high], plain, [low]]


async def test_pins_labels_kinds_deadlines_and_paused_queues_are_kept(postgres_store: PostgresStore, clock: FakeClock):
    await define(postgres_store, MANY)
    await look(postgres_store)
    await make_queue(postgres_store, 3, state="paused")
    for fields in ({"pin": "n2"}, {"needs": ("gpu",)}, {"kind": "shell"}, {"start_by": clock()}):
        await order(postgres_store, 1, MANY, **fields)
    await order(postgres_store, 1, MANY, queue=Queue(3, "q3"))
    claimed = await ask(postgres_store)
    assert (given(claimed), claimed.is_waiting) == ([], False)
    assert len(await beside(postgres_store, offer(name="n2"))) == 1
    assert len(await beside(postgres_store, offer(kind="shell"))) == 1
    assert len(given(await postgres_store.claim_beside([offer()], ["gpu"]))) == 1


async def test_a_session_that_is_over_gets_nothing_beside_either(postgres_store: PostgresStore):
    await define(postgres_store, MANY)
    await look(postgres_store)
    await order(postgres_store, 1, MANY)
    claimed = await ask(postgres_store, session=7)
    assert claimed.given == [None]
    assert len(await beside(postgres_store)) == 1


async def test_what_was_seen_long_ago_is_looked_at_again(postgres_store: PostgresStore, clock: FakeClock):
    await define(postgres_store, MANY)
    await look(postgres_store)
    clock.advance(HOLDS / SECOND)
    await order(postgres_store, 1, MANY)
    await beside(postgres_store)  # tells what time it is
    await order(postgres_store, 1, MANY)
    assert await beside(postgres_store) == []


# ── many at once ──
async def test_many_processes_never_exceed_limits_beside_ordinary_runs(postgres_url: str):
    """Rather wide limits, so that much of it goes without a look."""
    policy = Policy(concurrency_limits=(ConcurrencyLimit(12, "owner"), ConcurrencyLimit(7, "data.tenant")))
    stores = [PostgresStore(postgres_url) for _ in range(4)]
    for one in stores:
        await one.open()
    await define(stores[0], policy)
    started: Counter[str] = Counter()

    async def work(number: int) -> None:
        chance, store = random.Random(number), stores[number]
        for turn in range(600):
            if turn >= 60 and started["beside"]:
                break
            await order(store, chance.randint(1, 2), policy, data={"tenant": chance.randint(0, 1)})
            claimed = await ask(store, name=f"n{number}")
            started["beside"] += len(given(claimed))
            held = [one for each in claimed.given for one in each or ()]
            held += await start(store, offer(name=f"n{number}")) if claimed.is_waiting else []
            by_demand = await store.read("SELECT demand, count(*) FROM live WHERE state = 1 GROUP BY demand")
            assert sum(row[1] for row in by_demand) <= 12
            assert all(row[1] <= 7 for row in by_demand)
            await store.finish([done(one) for one in held])

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(work(number))
    for one in stores:
        await one.close()
    assert started["beside"] > 0
