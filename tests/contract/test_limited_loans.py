"""Runs that limits hold, on loan to workers outside that ask for what is due now; on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND, ConcurrencyLimit, Loan, Overlap, Policy, RateLimit, State
from horae.core.runs.orders import Lend, NewRun, Order, Result
from horae.ports.store import Store
from horae.stores.parts import loans as parts
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from .test_limits import FIVE, beside, ids, offer, order, running, start

PIN = "@rpc"
KINDS = ("python", "shell")
MINUTE = 60 * SECOND


async def define(
    store: Store, policy: Policy = FIVE, job_id: int = 1, annotations: Any = None, org: int = 1, **fields: Any
) -> None:
    """A job that the RPC contract made for somebody, unless said otherwise."""
    said = {"rpc": {"user_id": "u"}} if annotations is None else annotations
    job = replace(make_job(job_id, policy=policy, **fields), annotations=said, org=org)
    await store.submit([Submission([job])])


async def lend(store: Store, limit: int = 100, org: int = 1) -> list[Loan]:
    return await store.lend_made_for(KINDS, Lend("w@agent", START + MINUTE), org, PIN, limit)


def lent(loans: Sequence[Loan]) -> list[int]:
    return [loan.run_id for loan in loans]


async def test_as_many_are_lent_as_the_limit_allows_and_what_ends_makes_room(store: Store):
    await define(store)
    made = await order(store, 12)

    first = await lend(store)
    assert lent(first) == made[:5]
    assert await lend(store) == []
    assert await start(store) == [], "agents are held by what is lent"
    await store.finish([Result(loan.run_id, loan.fence, State.SUCCEEDED, finished_at=START) for loan in first[:2]])
    assert lent(await lend(store, 1)) == made[5:6]
    assert ids(await start(store)) == made[6:7], "and the other way round"
    assert len(await running(store)) == 5


async def test_a_rate_holds_workers_outside_too(store: Store, clock: FakeClock):
    policy = Policy(rate_limits=(RateLimit("60/min", 2),))
    await define(store, policy)
    made = await order(store, 6, policy)

    assert lent(await lend(store)) == made[:2]
    assert await lend(store) == []
    clock.advance(1)
    assert lent(await lend(store)) == made[2:3]
    assert await start(store) == []
    clock.advance(1)
    assert ids(await start(store)) == made[3:4]
    assert await lend(store) == []


async def test_they_are_lent_in_the_order_of_all_that_waits(store: Store):
    await define(store)
    await define(store, Policy(), 2)
    low, high = await order(store, 2, priority=1), await order(store, 2, priority=9)
    plain = NewRun(2, "python", 5, Overlap.ALLOW)
    ordinary = [receipt.ids[0] for receipt in await store.enqueue([Order(plain), Order(plain)])]

    assert lent(await lend(store, 3)) == [*high, ordinary[0]]
    assert lent(await lend(store, 3)) == [ordinary[1], *low]


async def test_only_those_are_lent_that_such_a_worker_may_have(store: Store):
    await define(store)
    await define(store, FIVE, 2, annotations={})
    await define(store, FIVE, 3, org=2)
    await store.set_resource("license", 1)
    of_nobody = await order(store, 1, job_id=2)
    elsewhere = await order(store, 1, job_id=3)
    await order(store, 1, pin="n1")
    await order(store, 1, asks=[("cpus", 500)])
    await order(store, 1, needs=("gpu",))
    kept, shared = await order(store, 1, pin=PIN), await order(store, 2, resources=[("license", 1)])

    assert lent(await lend(store)) == [*kept, shared[0]]
    assert lent(await lend(store, org=2)) == elsewhere
    assert of_nobody[0] in ids(await start(store))


async def test_one_that_is_given_back_waits_for_its_limit_again(store: Store):
    await define(store)
    made = await order(store, 6)
    loans = await lend(store)
    assert await store.return_loan(loans[0].run_id, loans[0].fence)
    run = await store.get_run(loans[0].run_id)
    assert run is not None
    assert (run.state, run.reason, run.attempt) == (State.BLOCKED, "limit", 0)
    assert len(await lend(store)) == 1
    assert len(await running(store)) == 5
    assert made[-1] not in await running(store)


async def test_one_that_is_asked_for_by_its_id_is_lent_if_its_limit_allows_it(store: Store):
    await define(store)
    await store.set_resource("license", 1)
    made = await order(store, 6)
    [large] = await order(store, 1, asks=[("slots", 2)])
    licensed = await order(store, 2, resources=[("license", 1)])

    async def ask(run_id: int) -> Loan | None:
        return await store.lend([], Lend("w@agent", START + MINUTE), run_id)

    assert [await ask(run_id) is not None for run_id in reversed(made[:4])] == [True] * 4
    assert [await ask(run_id) is not None for run_id in licensed] == [True, False]
    assert [await ask(run_id) for run_id in (*made[4:], large)] == [None] * 3, "five are lent"


async def test_those_of_many_demands_all_have_their_turn(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parts, "DEMANDS_AT_ONCE", 3)
    policy = Policy(concurrency_limits=(ConcurrencyLimit(1, "data.tenant"),))
    await define(store, policy)
    for tenant in range(8):
        await order(store, 2, policy, data={"tenant": tenant})
    assert sum([len(await lend(store)) for _ in range(6)]) == 8


async def test_what_was_granted_before_a_loan_is_granted_no_more(postgres_store: PostgresStore):
    store = postgres_store
    await define(store)
    await order(store, 2)
    assert len(await start(store)) == 2  # and three more may start, as far as this process knows
    await order(store, 3)
    assert len(await lend(store, 3)) == 3
    await order(store, 3)
    assert await beside(store) == []
    assert len(await running(store)) == 5


async def test_however_many_ask_at_once_the_limit_holds(postgres_store: PostgresStore):
    """Lenders and agents, against one key of capacity 5."""
    store = postgres_store
    await define(store)
    made = await order(store, 60)
    done: set[int] = set()

    async def seen() -> None:
        assert len(await running(store)) <= 5

    async def one_lender() -> None:
        while len(done) < len(made):
            loans = await lend(store, 2)
            await seen()
            await store.finish([Result(x.run_id, x.fence, State.SUCCEEDED, finished_at=START) for x in loans])
            done.update(lent(loans))

    async def one_agent(name: str) -> None:
        while len(done) < len(made):
            claimed = await start(store, offer(2, name))
            await seen()
            await store.finish([Result(x.run_id, x.fence, State.SUCCEEDED, finished_at=START) for x in claimed])
            done.update(ids(claimed))

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(one_lender())
            group.create_task(one_agent(f"n{number}"))
    assert done == set(made)
