"""Orders whose run is given to a node as it is made: what an order and a claim would have come to, or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from horae.core.audit import AuditFilter, Deed
from horae.core.definitions import Idempotency, Submission
from horae.core.model import SECOND, NodeState, Overlap, Policy, Reason, RunFilter, State
from horae.core.policy.queues import QueueState
from horae.core.runs.orders import NewRun, Order, Result, Started, Waiting, Want
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim
from .test_event_log import of_run
from .test_sessions import node

KEY = Idempotency("s", "k", "d")


@pytest.fixture
async def session(store: Store) -> int:
    """Of the node n1, which may claim; and a job."""
    await store.submit([Submission([make_job(1, kind="shell", policy=Policy(overlap=Overlap.ALLOW))])])
    return await store.register_node(node("n1"))


def an_order(overlap: Overlap = Overlap.ALLOW, **fields: Any) -> Order:
    return Order(NewRun(1, "shell", 5, overlap), **fields)


async def start(store: Store, session: int, order: Order | None = None, *labels: str) -> Started | None:
    return await store.enqueue_started(order or an_order(), Want("n1", "shell", 1, session), labels)


async def started(store: Store, session: int, order: Order | None = None) -> Started:
    done = await start(store, session, order)
    assert done is not None
    return done


async def live(store: Store) -> list[tuple[int, State]]:
    return sorted((run.id, run.state) for run in (await store.list_runs(RunFilter(), None, 100)).items)


async def test_it_is_what_an_order_and_a_claim_would_have_come_to(store: Store, session: int):
    order = Order(replace(an_order().run, data='{"n":1}', followed=True))
    [receipt] = await store.enqueue([order])
    [claimed] = await claim(store, "n1", "shell", [], 1, session=session)
    usual = await store.get_run(claimed.run_id)
    await store.finish([Result(claimed.run_id, claimed.fence, State.SUCCEEDED, finished_at=START)])

    done = await started(store, session, order)

    assert done.assignment is not None
    assert done.assignment == claimed._replace(run_id=done.assignment.run_id, due_at=done.assignment.due_at)
    assert done.receipt.is_started
    assert done.receipt.run is not None
    assert receipt.run is not None
    alike = {"id": receipt.ids[0], "due_at": START, "created_at": START}
    assert replace(done.receipt.run, **alike) == replace(receipt.run, **alike)
    made = await store.get_run(done.assignment.run_id)
    assert made is not None
    assert usual is not None
    assert made.state is State.RUNNING
    times = {"due_at": START, "created_at": START, "started_at": START}
    assert replace(made, id=usual.id, **times) == replace(usual, **times)


async def test_its_events_are_those_of_both_steps_in_their_order(store: Store, session: int):
    done = await started(store, session)
    assert done.assignment is not None

    assert await of_run(store, done.assignment.run_id) == [
        ("run.queued", "queued", "", 0),
        ("run.started", "running", "", done.assignment.fence),
    ]


async def test_its_result_counts_under_its_fence_alone(store: Store, session: int):
    run = (await started(store, session)).assignment
    assert run is not None

    late = await store.finish([Result(run.run_id, run.fence + 1, State.FAILED, finished_at=START)])
    ended = await store.finish([Result(run.run_id, run.fence, State.SUCCEEDED, finished_at=START)])

    assert (late.accepted, ended.accepted) == (set(), {run.run_id})


async def test_it_belongs_to_its_node_and_is_taken_back_with_it(store: Store, session: int):
    run = (await started(store, session)).assignment
    assert run is not None

    assert await store.load_running("n1", session=session) == [(run.run_id, run.fence)]


@pytest.mark.parametrize("way", ["queued", "pinned elsewhere"])
async def test_nothing_starts_before_a_run_of_its_kind_that_waits(store: Store, session: int, way: str):
    pin = "n2" if way == "pinned elsewhere" else None
    [before] = await store.enqueue([Order(replace(an_order().run, pin=pin))])

    assert await start(store, session) is None
    assert await live(store) == [(before.ids[0], State.QUEUED)]


async def test_runs_of_other_kinds_may_wait(store: Store, session: int):
    await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))])

    assert (await started(store, session)).assignment is not None


async def test_a_node_of_another_session_or_that_is_gone_gets_none(store: Store, session: int):
    assert await start(store, session + 1) is None
    await store.retire_node("n1", NodeState.GONE, session=session)

    assert await start(store, session) is None
    assert await live(store) == []


async def test_a_queue_that_is_paused_or_for_others_gives_none(store: Store, session: int):
    default = (await store.list_queues())[0]
    await store.save_queue(replace(default, labels=("gpu",)))
    assert await start(store, session) is None
    assert await start(store, session, None, "gpu") is not None
    await store.set_queue_state(default.name, QueueState.PAUSED)

    assert await start(store, session, None, "gpu") is None


async def test_the_gate_of_its_job_holds_off_the_next(store: Store, session: int):
    first = (await started(store, session, an_order(Overlap.FORBID))).assignment
    assert first is not None
    second = await start(store, session, an_order(Overlap.FORBID))

    assert second is None or (second.assignment is None and second.receipt.run.state is State.SKIPPED)
    assert (first.run_id, State.RUNNING) in await live(store)


async def test_a_job_that_was_changed_or_is_not_there_makes_none(store: Store, session: int):
    changed = await start(store, session, an_order(version=99))
    gone = await start(store, session, Order(NewRun(7, "shell", 5, Overlap.ALLOW)))

    assert [one and one.assignment for one in (changed, gone)] == [None, None]
    assert await live(store) == []


async def test_its_idempotency_key_acts_once(store: Store, session: int):
    first = await started(store, session, an_order(idempotency=KEY))
    again = await start(store, session, an_order(idempotency=KEY))
    [receipt] = await store.enqueue([an_order(idempotency=KEY)])

    assert again is None or (again.assignment is None and again.receipt.replayed)
    assert (receipt.ids, receipt.replayed) == (first.receipt.ids, True)
    assert len(await live(store)) == 1


async def test_its_start_deadline_is_met(store: Store, session: int, clock: FakeClock):
    """As after a claim, it does not bind the attempt that comes after a lost one."""
    run = (await started(store, session, an_order(start_within=SECOND))).assignment
    assert run is not None
    lost = Result(run.run_id, run.fence, State.FAILED, Reason.LOST)
    await store.finish([], [Waiting(lost, None, lost=True)])
    clock.advance(2)

    assert (await store.sweep()).expired == 0
    assert await live(store) == [(run.run_id, State.QUEUED)]


async def test_of_many_at_once_each_is_one_run(store: Store, session: int):
    done = await asyncio.gather(*(start(store, session) for _ in range(20)))

    runs = [one.assignment.run_id for one in done if one is not None and one.assignment is not None]
    assert len(set(runs)) == len(runs) == 20
    assert await live(store) == [(run, State.RUNNING) for run in sorted(runs)]


async def test_a_share_goes_on_behind_what_was_started(store: Store, session: int):
    """Who orders one by one is not before those who ordered many."""
    for _ in range(3):
        await started(store, session, Order(replace(an_order().run, share="eve")))
    await store.enqueue([Order(replace(an_order().run, share="eve"))])
    [ann] = await store.enqueue([Order(replace(an_order().run, share="ann"))])

    [claimed] = await claim(store, "n1", "shell", [], 1, session=session)
    assert claimed.run_id == ann.ids[0]


async def test_no_run_starts_while_another_line_of_its_node_opens(postgres_store: PostgresStore):
    """A registration and a start take their turn: what was started first is seen by what is taken back then."""
    store = postgres_store
    await store.submit([Submission([make_job(1, kind="shell", policy=Policy(overlap=Overlap.ALLOW))])])
    session = await store.register_node(node("n1"))

    for _ in range(10):
        done, newer = await asyncio.gather(start(store, session), store.register_node(node("n1"), session=session))
        held = await store.load_running("n1", session=newer)
        if done is not None and done.assignment is not None:
            assert (done.assignment.run_id, done.assignment.fence) in held
        session = newer


def test_an_order_that_waits_for_more_than_a_slot_does_not_start_at_once():
    run = an_order().run
    others = [
        Order(replace(run, demand=1)), Order(replace(run, needs=("gpu",))), Order(replace(run, pin="n1")),
        Order(replace(run, depends=True)), Order(replace(run, parent_id=1)), Order(run, run_at=START),
        Order(run, start_within=0),
    ]  # fmt: skip

    assert an_order().may_start_at_once
    assert not any(order.may_start_at_once for order in others)


async def test_who_asked_is_written_with_the_run_and_only_then(store: Store, session: int):
    asked = Deed("ann", via="token 7", action="runs.start", request_id="r1")
    done = await started(store, session, an_order(deed=asked))
    assert done.assignment is not None
    assert [(row.who, row.made) for row in await store.list_audit(AuditFilter(), None, 10)] == [
        ("ann", str(done.assignment.run_id))
    ]
    assert asked.rows == 1

    await store.enqueue([an_order()])  # something waits now
    late = Deed("ann", request_id="r2")
    assert await start(store, session, an_order(deed=late)) is None
    assert (late.rows, len(await store.list_audit(AuditFilter(), None, 10))) == (0, 1)
