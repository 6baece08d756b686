"""Runs by request: one statement, keys that act once, and orders that wait for their moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from horae.core.definitions import Group, Idempotency, Receipt
from horae.core.model import SECOND, Overlap, Policy, Reason, Run, State
from horae.core.policy.debounce import Calm
from horae.core.runs.orders import NewRun, Order
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs
from horae.service.jobs.orders import BATCH, Asker, OrderBatch, RunRequest
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, changed, make_job

from ..claiming import claim
from ..counting import counted_store, take
from .test_store import ended, runs_of, submit

HOUR = 3600 * SECOND


def new(job_id: int = 1, overlap: Overlap = Overlap.FORBID, **fields: Any) -> NewRun:
    return NewRun(job_id, "python", 5, overlap, **fields)


def key(name: str = "k", digest: str = "d") -> Idempotency:
    return Idempotency("s", name, digest)


async def make(store: Store, job_id: int = 1, **fields: Any) -> None:
    await submit(store, make_job(job_id, **fields))


async def place(store: Store, *orders: Order) -> list[Receipt]:
    return await store.enqueue(orders)


async def place_many(
    jobs: Jobs, asked: Sequence[RunRequest], asker: Asker, promise: Idempotency | None = None
) -> list[Any]:
    async def batches() -> AsyncIterator[OrderBatch]:
        for start in range(0, len(asked), BATCH):
            yield OrderBatch(asked[start : start + BATCH], promise)

    return list(await jobs.orders.place_many(batches(), asker))


async def run_of(store: Store, receipt: Receipt) -> Run:
    run = await store.get_run(receipt.ids[0])
    assert run is not None
    return run


# ── what is answered ──


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("idempotency", [None, key()])
async def test_a_receipt_has_the_run_as_a_reader_finds_it(
    store: Store, overlap: Overlap, idempotency: Idempotency | None
):
    await make(store, policy=Policy(overlap=overlap))
    wanted = new(1, overlap, data='{"a":1}', pin="n9", needs=("big",))
    for name in "abc":
        mine = idempotency and replace(idempotency, key=name)
        [receipt] = await place(store, Order(wanted, mine, 1, start_within=9 * SECOND))
        assert receipt.run == await run_of(store, receipt)
    [waiting] = await place(store, Order(wanted, idempotency, 1, run_at=START + HOUR, start_within=9 * SECOND))
    assert waiting.run == await run_of(store, waiting)


@pytest.mark.parametrize("overlap", Overlap)
async def test_an_order_made_from_another_version_of_its_job_does_nothing(store: Store, overlap: Overlap):
    await make(store)
    [stale] = await place(store, Order(new(1, overlap), key(), version=2))
    assert stale == Receipt([], stale=True)
    assert await runs_of(store) == []

    [made] = await place(store, Order(new(1, overlap), key(), version=1))
    assert made.ids
    assert not made.replayed


async def test_orders_of_one_batch_stand_or_fall_alone(store: Store):
    await make(store, 1)
    await make(store, 2, policy=Policy(overlap=Overlap.QUEUE))
    await place(store, Order(new(1, Overlap.ALLOW), key("used")))
    asked = [
        Order(new(1, Overlap.ALLOW), key("a")), Order(new(1, Overlap.ALLOW), key("a")),
        Order(new(1, Overlap.ALLOW), key("a", "other")), Order(new(1), key("b"), version=7), Order(new(9), key("c")),
        Order(new(1, Overlap.ALLOW), key("used")), Order(new(2, Overlap.QUEUE), run_at=START + HOUR),
        Order(new(1, Overlap.ALLOW)),
    ]  # fmt: skip
    got = await place(store, *asked)
    assert [bool(r.ids) for r in got] == [True, True, False, False, False, True, True, True]
    assert [r.replayed for r in got] == [False, True, False, False, False, True, False, False]
    assert [r.mismatch for r in got] == [False, False, True, False, False, False, False, False]
    assert [r.stale for r in got] == [False, False, False, True, False, False, False, False]
    assert got[0].ids == got[1].ids
    assert len(await runs_of(store)) == 4


async def test_one_key_from_two_servers_at_once_makes_one_run(
    postgres_store: PostgresStore, postgres_url: str, clock: FakeClock
):
    await make(postgres_store)
    other = PostgresStore(postgres_url, clock=clock.now)
    await other.open()
    try:
        for batch in range(20):
            names = [f"{batch}-{number}" for number in range(10)]
            one, two = await asyncio.gather(
                place(postgres_store, *[Order(new(1, Overlap.ALLOW), key(name)) for name in names]),
                place(other, *[Order(new(1, Overlap.ALLOW), key(name)) for name in reversed(names)]),
            )
            assert [r.ids for r in one] == [r.ids for r in reversed(two)]
            assert [r.replayed for r in one] == [not r.replayed for r in reversed(two)]
    finally:
        await other.close()


# ── what it costs ──


@pytest.fixture
async def counted(postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    async with counted_store(postgres_url, clock, monkeypatch) as pair:
        yield pair


async def count(sent: list[str]) -> int:
    """Return how many were sent since the last look."""
    return len(await take(sent))


async def test_requests_that_wait_together_are_one_statement(counted: tuple[PostgresStore, list[str]]):
    store, sent = counted
    await make(store, policy=Policy(overlap=Overlap.ALLOW, start_deadline_seconds=60))
    jobs = Jobs(store, LocalQueue())
    await jobs.run_now(1)  # and from now on it is known
    await count(sent)

    await jobs.run_now(1, idempotency=key("one"))
    assert await count(sent) == 1
    await jobs.run_now(1, data={"a": 1})
    assert await count(sent) == 1
    await asyncio.gather(*(jobs.run_now(1, idempotency=key(f"n{number}")) for number in range(16)))
    assert await count(sent) == 1
    asked = [RunRequest(1, idempotency=key(f"m{number}")) for number in range(2500)]
    assert len(await place_many(jobs, asked, Asker())) == 2500
    assert await count(sent) == 3


async def test_a_repeat_is_two_more_statements(counted: tuple[PostgresStore, list[str]]):
    store, sent = counted
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    jobs = Jobs(store, LocalQueue())
    asked = [RunRequest(1, idempotency=key(f"m{number}")) for number in range(1000)]
    first = await place_many(jobs, asked, Asker())
    await count(sent)
    assert await place_many(jobs, asked, Asker()) == first
    assert await count(sent) == 3  # nothing is made; the keys; the runs


# ── orders that wait ──


async def later(store: Store, *orders: Order) -> list[Run]:
    """Place orders for an hour from now."""
    receipts = await store.enqueue([replace(order, run_at=START + HOUR) for order in orders])
    return [await run_of(store, receipt) for receipt in receipts]


async def test_an_order_for_later_waits_without_a_gate_until_its_moment(store: Store, clock: FakeClock):
    await make(store)
    [waiting] = await later(store, Order(new(data='{"a":1}', pin="n1")))
    assert (waiting.state, waiting.reason) == (State.BLOCKED, Reason.LATER)
    assert (waiting.due_at, waiting.eligible_at) == (START + HOUR, START + HOUR)

    [now] = await place(store, Order(new()))
    assert now.run is not None
    assert now.run.state is State.QUEUED
    await store.finish([ended((await claim(store, "n1", "python", [], 1))[0])])

    clock.advance(3599)
    swept = await store.sweep()
    assert (swept.queued, swept.next_at) == (0, START + HOUR)
    clock.advance(1)
    assert (await store.sweep()).queued == 1
    run = await store.get_run(waiting.id)
    assert run == replace(waiting, state=State.QUEUED, reason="", eligible_at=None)
    [assignment] = await claim(store, "n1", "python", [], 1)
    assert assignment.run_id == waiting.id
    assert (await store.sweep()).queued == 0


async def test_a_moment_that_has_passed_is_now(store: Store):
    await make(store)
    [receipt] = await place(store, Order(new(), run_at=START - HOUR))
    assert receipt.run is not None
    assert (receipt.run.state, receipt.run.due_at) == (State.QUEUED, START)


async def test_of_forbidden_orders_for_one_moment_the_first_runs(store: Store, clock: FakeClock):
    await make(store)
    first, second = await later(store, Order(new()), Order(new()))
    clock.advance(3600)
    assert (await store.sweep()).queued == 1
    states = {run.id: (run.state, run.reason) for run in await runs_of(store)}
    assert states == {first.id: (State.QUEUED, ""), second.id: (State.SKIPPED, Reason.OVERLAP)}
    skipped = await store.get_run(second.id)
    assert skipped is not None
    assert (skipped.created_at, skipped.due_at, skipped.finished_at) == (START, START + HOUR, START + HOUR)


async def test_queue_and_replace_are_decided_when_the_moment_has_come(store: Store, clock: FakeClock):
    await make(store, 1, policy=Policy(overlap=Overlap.QUEUE))
    await make(store, 2, policy=Policy(overlap=Overlap.REPLACE))
    queued = await later(store, *[Order(new(1, Overlap.QUEUE)) for _ in range(3)])
    replaced = await later(store, *[Order(new(2, Overlap.REPLACE)) for _ in range(2)])
    clock.advance(3600)
    assert (await store.sweep()).queued >= 2
    states = {run.id: (run.state, run.reason) for run in await runs_of(store)}
    assert [states[run.id] for run in queued] == [
        (State.QUEUED, ""), (State.BLOCKED, Reason.OVERLAP), (State.SKIPPED, Reason.OVERLAP),
    ]  # fmt: skip
    assert [states[run.id] for run in replaced] == [(State.CANCELLED, Reason.REPLACED), (State.QUEUED, "")]


async def test_an_order_runs_as_its_job_is_when_the_moment_has_come(store: Store, clock: FakeClock):
    job = make_job(1)
    await submit(store, job)
    [waiting] = await later(store, Order(replace(new(), priority=8)))
    await store.save_job(changed(job, kind="shell", policy=Policy(overlap=Overlap.ALLOW, labels=("big",))), 1)
    await place(store, Order(new(1, Overlap.ALLOW)))
    clock.advance(3600)
    await store.sweep()
    run = await store.get_run(waiting.id)
    assert run is not None
    assert (run.state, run.kind, run.priority) == (State.QUEUED, "shell", 8)
    assert await claim(store, "n1", "shell", [], 1) == []
    assert len(await claim(store, "n1", "shell", ["big"], 1)) == 1


async def test_an_order_that_waits_ends_by_cancel_delete_and_start_deadline(store: Store, clock: FakeClock):
    for number in (1, 2, 3):
        await make(store, number)
    one, two, three = await later(store, *[Order(new(number), start_within=SECOND) for number in (1, 2, 3)])
    assert (await store.cancel([one.id], Reason.REQUESTED)).ended == {one.id}
    await store.delete_job(2)
    clock.advance(3599)
    assert (await store.sweep()).expired == 0
    clock.advance(2)  # nobody has swept: the deadline, counted from its moment, has come too
    assert (await store.sweep()).expired == 1
    states = {run.id: (run.state, run.reason) for run in await runs_of(store)}
    assert states == {
        one.id: (State.CANCELLED, Reason.REQUESTED),
        two.id: (State.CANCELLED, Reason.DELETED),
        three.id: (State.SKIPPED, Reason.START_DEADLINE),
    }


async def test_more_orders_than_one_sweep_takes_all_run(store: Store, clock: FakeClock):
    await make(store)
    await later(store, *[Order(new(1, Overlap.ALLOW)) for _ in range(1500)])
    job = make_job(2)
    await submit(store, job)
    await store.save_job(changed(await store.get_job(1) or job, policy=Policy(overlap=Overlap.ALLOW)), 1)
    clock.advance(3600)
    swept = await store.sweep()
    assert (swept.queued, swept.next_at) == (1000, START + HOUR)
    assert (await store.sweep()).queued == 500


# ── the service ──


async def test_a_job_that_was_changed_elsewhere_is_looked_at_again(store: Store):
    here, there = Jobs(store, LocalQueue()), Jobs(store, LocalQueue())
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    await here.run_now(1)
    await there.set_paused(1, True)
    with pytest.raises(Exception, match="paused"):
        await here.run_now(1)
    await there.set_paused(1, False)
    assert (await here.run_now(1)).state is State.QUEUED
    await there.delete(1)
    with pytest.raises(Exception, match="deleted"):
        await here.run_now(1)


async def test_a_key_that_moved_to_another_job_is_followed(store: Store):
    jobs = Jobs(store, LocalQueue())
    await make(store, 1, key="report")
    await make(store, 2)
    asker = Asker()
    assert [run.job_id for run in await place_many(jobs, [RunRequest("report")], asker)] == [1]
    one, two = await store.get_job(1), await store.get_job(2)
    assert one is not None
    assert two is not None
    await store.save_job(changed(one, key=None), 1)
    await store.save_job(changed(two, key="report"), 1)
    assert [run.job_id for run in await place_many(jobs, [RunRequest("report")], asker)] == [2]


# ── one key for many ──


def group(*places: int, digest: str = "d") -> Group:
    return Group(key("all", digest), places)


async def test_a_group_is_made_once_under_one_key(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    orders = [Order(new(overlap=Overlap.ALLOW)) for _ in range(3)]
    first = await store.enqueue(orders, group(0, 1, 2))
    again = await store.enqueue(orders, group(0, 1, 2))
    assert [receipt.ids for receipt in again] == [receipt.ids for receipt in first]
    assert all(receipt.replayed for receipt in again)
    assert not any(receipt.replayed for receipt in first)
    assert len(await runs_of(store)) == 3


async def test_another_group_under_the_same_key_is_a_mismatch(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    orders = [Order(new(overlap=Overlap.ALLOW)) for _ in range(2)]
    await store.enqueue(orders, group(0, 1))
    other = await store.enqueue(orders, group(0, 1, digest="other"))
    assert [receipt.mismatch for receipt in other] == [True, True]
    assert len(await runs_of(store)) == 2


async def test_places_tell_orders_of_a_group_apart_when_others_are_left_out(store: Store) -> None:
    """What was refused before it came to the store may be taken the second time, or the reverse."""
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    order = Order(new(overlap=Overlap.ALLOW))
    [zero, two] = await store.enqueue([order, order], group(0, 2))
    [_, one, again] = await store.enqueue([order, order, order], group(0, 1, 2))
    assert again.ids == two.ids
    assert again.ids != zero.ids
    assert one.stale
    assert not one.ids
    [alone] = await store.enqueue([order], group(2))
    assert alone.ids == two.ids


async def test_orders_of_a_group_whose_job_has_changed_are_stale_then_and_later(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    good, old = Order(new(overlap=Overlap.ALLOW)), Order(new(overlap=Overlap.ALLOW), version=99)
    first = await store.enqueue([good, old], group(0, 1))
    assert [(len(receipt.ids), receipt.stale) for receipt in first] == [(1, False), (0, True)]
    again = await store.enqueue([good, good], group(0, 1))
    assert again[0].ids == first[0].ids
    assert again[1].stale
    assert len(await runs_of(store)) == 1


async def test_two_at_once_make_a_group_once(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    orders = [Order(new(overlap=Overlap.ALLOW)) for _ in range(50)]
    both = await asyncio.gather(*(store.enqueue(orders, group(*range(50))) for _ in range(2)))
    assert [r.ids for r in both[0]] == [r.ids for r in both[1]]
    assert len(await runs_of(store)) == 50


async def test_a_batch_with_one_promise_takes_one_row_and_is_answered_again(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    jobs = Jobs(store, LocalQueue())
    asked = [RunRequest(1, {"n": n}, idempotency=key(f"k#{n}")) for n in range(20)]
    asked[7] = RunRequest(99, idempotency=key("k#7"))  # there is no such job
    first = await place_many(jobs, asked, Asker(), key("k#0+"))
    assert [str(answer) for answer in first if not isinstance(answer, Run)] == ["there is no job 99"]
    again = await place_many(jobs, asked, Asker(), key("k#0+"))
    assert [a.id for a in again if isinstance(a, Run)] == [a.id for a in first if isinstance(a, Run)]
    assert len(await runs_of(store)) == 19


async def test_a_job_that_is_debounced_by_now_makes_no_second_run_of_a_group(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    jobs = Jobs(store, LocalQueue())
    asked = [RunRequest(1, idempotency=key(f"k#{n}")) for n in range(3)]
    first = await place_many(jobs, asked, Asker(), key("k#0+"))
    calm = Order(new(overlap=Overlap.ALLOW), calm=Calm("", 10 * SECOND, None))
    again = await store.enqueue([calm] * 3, Group(key("k#0+"), [0, 1, 2]))
    assert [receipt.ids for receipt in again] == [[run.id] for run in first]
    [fresh] = await store.enqueue([calm], Group(key("k#1000+"), [0]))
    assert fresh.stale, "it is debounced by its own key"


# ── orders that differ in their data alone ──

DATA = ['{"n":0}', None, '{"n":2}']


async def test_orders_that_come_together_and_are_alike_stand_or_fall_alone(store: Store) -> None:
    for job_id in (1, 2):
        await make(store, job_id, policy=Policy(overlap=Overlap.ALLOW))
    [earlier] = await place(store, Order(new(1, Overlap.ALLOW), key("used")))
    runs = [new(job_id, Overlap.ALLOW, data=f'{{"n":{number}}}') for number, job_id in enumerate((1, 2, 1, 3, 1, 1))]
    told = await place(
        store, Order(runs[0], key("a"), 1), Order(runs[1]), Order(runs[2], key("used"), 1), Order(runs[3]),
        Order(runs[4], version=7), Order(runs[5], key("a"), 1),
    )  # fmt: skip
    first, second, repeat, gone, stale, twin = told
    assert (repeat.ids, repeat.replayed, twin.ids, twin.replayed) == (earlier.ids, True, first.ids, True)
    assert (gone.ids, gone.stale, stale.ids, stale.stale) == ([], False, [], True)
    for receipt, run in ((first, runs[0]), (second, runs[1])):
        assert receipt.run == await run_of(store, receipt)
        assert (await run_of(store, receipt)).job_id == run.job_id
    assert first.ids < second.ids
    assert len(await runs_of(store)) == 3


async def test_orders_that_come_together_wait_behind_those_before(store: Store) -> None:
    for job_id in (1, 2, 3):
        await make(store, job_id, policy=Policy(overlap=Overlap.ALLOW))
    asked = [Order(new(job_id, Overlap.ALLOW, share="ann")) for job_id in (3, 1, 2)]
    receipts = [*await place(store, *asked), *await place(store, *asked)]
    assert [one.run_id for one in await claim(store, "n1", "python", (), 10)] == [
        receipt.ids[0] for receipt in receipts
    ]


@pytest.mark.parametrize("demand", [None, 7])
async def test_orders_alike_become_runs_as_a_reader_finds_them(store: Store, demand: int | None) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    wanted = new(overlap=Overlap.ALLOW, pin="n9", needs=("big",), demand=demand, followed=True)
    made = await store.enqueue_alike(Order(wanted, version=1, start_within=9 * SECOND), DATA)
    assert made is not None
    found = {run.id: run for run in await store.load_runs(made.ids)}
    data = [{"n": 0}, None, {"n": 2}]
    alike = [replace(made.run, id=run_id, data=mine) for run_id, mine in zip(made.ids, data, strict=True)]
    assert [found[run_id] for run_id in made.ids] == alike


async def test_orders_alike_wait_in_their_order_behind_those_before(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    order = Order(new(overlap=Overlap.ALLOW), version=1)
    [first] = await store.enqueue([order])
    made = await store.enqueue_alike(order, DATA)
    [last] = await store.enqueue([order])
    assert made is not None
    claimed = [one.run_id for one in await claim(store, "n1", "python", [], 9)]
    assert claimed == [*first.ids, *made.ids, *last.ids]


async def test_orders_alike_are_a_group_under_one_key(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    order = Order(new(overlap=Overlap.ALLOW), version=1)
    made = await store.enqueue_alike(order, DATA, key("all"))
    assert made is not None
    assert await store.enqueue_alike(order, DATA, key("all")) is None
    assert await store.enqueue_alike(order, DATA, key("all", "other")) is None
    again = await store.enqueue([order] * 3, group(0, 1, 2))
    assert [receipt.ids for receipt in again] == [[run_id] for run_id in made.ids]
    assert all(receipt.replayed for receipt in again)
    assert len(await runs_of(store)) == 3


async def test_orders_alike_of_a_job_that_has_changed_or_is_gone_do_nothing(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    order = Order(new(overlap=Overlap.ALLOW), version=2)
    assert await store.enqueue_alike(order, DATA, key()) is None
    assert await store.enqueue_alike(replace(order, run=new(99, Overlap.ALLOW)), DATA, key()) is None
    assert await runs_of(store) == []


async def test_two_at_once_make_orders_alike_once(store: Store) -> None:
    await make(store, policy=Policy(overlap=Overlap.ALLOW))
    order = Order(new(overlap=Overlap.ALLOW), version=1)
    made = await asyncio.gather(*(store.enqueue_alike(order, DATA, key()) for _ in range(8)))
    assert sum(one is not None for one in made) == 1
    assert len(await runs_of(store)) == 3


@pytest.mark.parametrize("overlap", [Overlap.FORBID, Overlap.QUEUE, Overlap.REPLACE])
async def test_of_orders_at_once_that_want_one_gate_one_has_it(store: Store, overlap: Overlap) -> None:
    await make(store, policy=Policy(overlap=overlap))
    order = Order(new(overlap=overlap, overlap_limit=9), version=1)
    receipts = await asyncio.gather(*(store.enqueue([replace(order, idempotency=key(name))]) for name in "abcd"))
    runs = [await run_of(store, receipt) for [receipt] in receipts]
    assert sum(run.state is State.QUEUED for run in runs) == 1
    again = [await store.enqueue([replace(order, idempotency=key(name))]) for name in "abcd"]
    assert [receipt.ids for [receipt] in again] == [receipt.ids for [receipt] in receipts]
