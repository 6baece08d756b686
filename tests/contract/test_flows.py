"""The outbox and workflows under way, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from horae.core.model import Overlap, Policy, Reason, Run, State
from horae.core.runs.endings import CANCEL, RUN
from horae.core.runs.flows import Begin, FlowEnd, Move, Moved, Unrun
from horae.core.runs.orders import NewRun, Order, Result
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.testing import make_job

from ..claiming import claim
from . import test_orders
from .test_orders import count
from .test_store import submit

FLOW, PART = 1, 2  # jobs
counted = test_orders.counted


def child(parent_id: int, task: str, job_id: int = PART, **fields: Any) -> Order:
    return Order(NewRun(job_id, "python", 5, Overlap.ALLOW, parent_id=parent_id, task=task, followed=True, **fields))


async def begin(
    store: Store, tasks: Sequence[str] = ("a",), *, overlap: Overlap = Overlap.FORBID, **fields: Any
) -> tuple[int, int]:
    """A workflow that has begun with these tasks: its run, and its fence."""
    await submit(store, make_job(FLOW, policy=Policy(overlap=overlap)), make_job(PART))
    run_id, fence = await claimed(store, overlap, **fields)
    moved = await store.move_flows([first(run_id, fence, tasks)])
    assert moved.accepted == {run_id}
    return run_id, fence


async def claimed(store: Store, overlap: Overlap = Overlap.FORBID, **fields: Any) -> tuple[int, int]:
    [receipt] = await store.enqueue([Order(NewRun(FLOW, "python", 5, overlap, **fields))])
    [given] = await claim(store, "s1", "python", (), 1)
    assert given.run_id == receipt.ids[0]
    return given.run_id, given.fence


def first(run_id: int, fence: int, tasks: Sequence[str] = ("a",)) -> Move:
    orders = [child(run_id, task) for task in tasks]
    return Move(run_id, begin=Begin(fence, FLOW, '{"tasks":{}}'), orders=orders)


def over(state: State = State.SUCCEEDED, result: str | None = None) -> FlowEnd:
    return FlowEnd(state, "", "", result)


async def get(store: Store, run_id: int) -> Run:
    run = await store.get_run(run_id)
    assert run is not None
    return run


async def tasks_of(store: Store, run_id: int) -> dict[str, State]:
    return {task.task: task.state for task in await store.load_tasks([run_id])}


async def end_task(store: Store, node: str = "a1", state: State = State.SUCCEEDED, result: str | None = None) -> int:
    [given] = await claim(store, node, "python", (), 1)
    await store.finish([Result(given.run_id, given.fence, state, result=result)])
    return given.run_id


# ── beginning ──


async def test_a_run_that_begins_waits_for_its_tasks_and_holds_no_slot(store: Store):
    run_id, _ = await begin(store, ["a", "b"])
    run = await get(store, run_id)
    assert (run.state, run.reason, run.node) == (State.BLOCKED, Reason.CHILDREN, None)
    assert await tasks_of(store, run_id) == {"a": State.QUEUED, "b": State.QUEUED}
    [flow] = await store.load_flows([run_id])
    assert (flow.version, flow.document, flow.is_cancelled, flow.is_over) == (0, '{"tasks":{}}', False, False)
    task = await get(store, (await store.load_tasks([run_id]))[0].run_id)
    assert task.parent_id == run_id


async def test_a_run_begins_only_under_its_fence_and_only_once(store: Store):
    await submit(store, make_job(FLOW), make_job(PART))
    run_id, fence = await claimed(store)
    assert not (await store.move_flows([first(run_id, fence + 1)])).accepted
    assert (await store.move_flows([first(run_id, fence)])).accepted
    assert not (await store.move_flows([first(run_id, fence)])).accepted
    assert len(await store.load_tasks([run_id])) == 1


async def test_a_run_cancelled_before_it_begins_makes_no_task(store: Store):
    await submit(store, make_job(FLOW), make_job(PART))
    run_id, fence = await claimed(store)
    await store.cancel([run_id], Reason.REQUESTED)
    moved = await store.move_flows([first(run_id, fence)])
    assert moved.accepted == {run_id}
    assert moved.noted
    assert await store.load_tasks([run_id]) == []
    [row] = await store.load_endings(0, 10)
    assert (row.kind, row.parent_id) == (CANCEL, run_id)
    [flow] = await store.load_flows([run_id])
    assert (flow.is_cancelled, flow.reason) == (True, Reason.REQUESTED)


# ── the outbox ──


async def test_the_end_of_a_task_is_noted_and_that_of_an_ordinary_run_is_not(store: Store):
    run_id, _ = await begin(store)
    [given] = await claim(store, "a1", "python", (), 1)
    finished = await store.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])
    assert finished.noted
    [row] = await store.load_endings(0, 10)
    assert (row.kind, row.run_id, row.parent_id, row.state, row.task) == (
        RUN, given.run_id, run_id, State.SUCCEEDED, "a",
    )  # fmt: skip
    assert await store.load_endings(row.id, 10) == []
    await submit(store, make_job(3))
    await store.enqueue([Order(NewRun(3, "python", 5, Overlap.ALLOW))])
    [given] = await claim(store, "a1", "python", (), 1)
    assert not (await store.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])).noted
    await store.drop_endings([row.id])
    assert await store.load_endings(0, 10) == []


async def test_whoever_drops_a_row_late_drops_no_other(store: Store):
    await begin(store, ["a", "b"])
    await end_task(store)
    [row] = await store.load_endings(0, 10)
    await store.drop_endings([row.id])
    await end_task(store)
    await store.drop_endings([row.id])
    [other] = await store.load_endings(0, 10)
    assert other.id > row.id


# ── a step ──


async def test_of_two_who_move_a_workflow_one_does(store: Store):
    run_id, _ = await begin(store)
    step = Move(run_id, 0, orders=[child(run_id, "b")])
    assert (await store.move_flows([step])).accepted == {run_id}
    assert (await store.move_flows([step])).accepted == set()
    assert sorted(await tasks_of(store, run_id)) == ["a", "b"]


async def test_a_step_drops_the_rows_it_acted_on_only_if_it_holds(store: Store):
    run_id, _ = await begin(store)
    await end_task(store)
    [row] = await store.load_endings(0, 10)
    await store.move_flows([Move(run_id, 7, endings=[row.id])])
    assert await store.load_endings(0, 10) == [row]
    await store.move_flows([Move(run_id, 0, endings=[row.id])])
    assert await store.load_endings(0, 10) == []


async def test_a_task_that_does_not_run_is_history_and_wakes_nobody(store: Store):
    run_id, _ = await begin(store)
    unrun = Unrun(child(run_id, "b").run, State.SKIPPED, Reason.DEPENDENCY, "it needs a")
    unrun.run.followed = False
    moved = await store.move_flows([Move(run_id, 0, unrun=[unrun])])
    assert not moved.noted
    found = next(task for task in await store.load_tasks([run_id]) if task.task == "b")
    run = await get(store, found.run_id)
    assert (run.state, run.reason, run.message, run.parent_id) == (
        State.SKIPPED, Reason.DEPENDENCY, "it needs a", run_id,
    )  # fmt: skip


async def test_a_task_of_a_job_that_is_gone_fails_and_is_noted(store: Store):
    run_id, _ = await begin(store)
    await submit(store, make_job(3))
    await store.delete_job(3)
    moved = await store.move_flows([Move(run_id, 0, orders=[child(run_id, "b", 3)])])
    assert moved.noted
    assert (await tasks_of(store, run_id))["b"] is State.FAILED
    [row] = await store.load_endings(0, 10)
    assert (row.task, row.state) == ("b", State.FAILED)


async def test_a_workflow_ends_with_its_result_and_its_graph_stays(store: Store):
    run_id, _ = await begin(store)
    ended = await end_task(store, result='{"n":1}')
    assert await store.load_results([ended, run_id]) == {ended: '{"n":1}'}
    moved = await store.move_flows([Move(run_id, 0, end=over(result="[1]"))])
    assert moved.accepted == {run_id}
    run = await get(store, run_id)
    assert (run.state, run.result) == (State.SUCCEEDED, [1])
    assert run.started_at is not None
    [flow] = await store.load_flows([run_id])
    assert flow.is_over
    assert not (await store.move_flows([Move(run_id, 1, end=over())])).accepted


async def test_the_end_of_a_workflow_lets_its_successor_go(store: Store):
    run_id, _ = await begin(store, overlap=Overlap.QUEUE)
    [waiting] = await store.enqueue([Order(NewRun(FLOW, "python", 5, Overlap.QUEUE))])
    assert (await get(store, waiting.ids[0])).reason == Reason.OVERLAP
    moved = await store.move_flows([Move(run_id, 0, end=over())])
    assert moved.queued == 1
    assert (await get(store, waiting.ids[0])).state is State.QUEUED


async def test_the_end_of_a_followed_workflow_is_noted(store: Store):
    run_id, _ = await begin(store, followed=True, parent_id=99, task="sub")
    moved = await store.move_flows([Move(run_id, 0, end=over())])
    assert moved.noted
    [row] = await store.load_endings(0, 10)
    assert (row.run_id, row.parent_id, row.task) == (run_id, 99, "sub")


# ── cancelling ──


async def test_who_waits_for_its_tasks_is_marked_when_it_is_cancelled(store: Store):
    run_id, _ = await begin(store)
    cancelled = await store.cancel([run_id], Reason.REQUESTED)
    assert (cancelled.ended, cancelled.asked, cancelled.marked, cancelled.noted) == (set(), {}, {run_id}, True)
    run = await get(store, run_id)
    assert (run.state, run.cancel_requested) == (State.BLOCKED, True)
    [row] = await store.load_endings(0, 10)
    assert (row.kind, row.parent_id, row.name) == (CANCEL, run_id, Reason.REQUESTED)


async def test_cancelled_tasks_end_in_one_step(store: Store):
    run_id, _ = await begin(store, ["a", "b", "c"])
    [given] = await claim(store, "a1", "python", (), 1)
    await store.cancel([run_id], Reason.REQUESTED)
    rows = await store.load_endings(0, 10)
    moved: Moved = await store.move_flows([Move(run_id, 0, cancel=Reason.REQUESTED, endings=[r.id for r in rows])])
    assert moved.asked == {given.run_id: "a1"}
    assert moved.noted
    states = sorted((await tasks_of(store, run_id)).values())
    assert states == sorted([State.RUNNING, State.CANCELLED, State.CANCELLED])
    assert {row.kind for row in await store.load_endings(0, 10)} == {RUN}


@pytest.mark.parametrize(("before", "after"), [(State.QUEUED, State.RUNNING), (State.RUNNING, State.QUEUED)])
async def test_a_task_that_is_claimed_or_lost_meanwhile_is_cancelled_too(
    postgres_store: PostgresStore, before: State, after: State
):
    store = postgres_store
    run_id, _ = await begin(store, ["a"])
    [task] = await store.load_tasks([run_id])
    change = f"UPDATE live SET state = $2, node = 'a1' WHERE id = {task.run_id} AND state = $1"
    other = await asyncpg.connect(store._url)
    await other.execute(change, State.QUEUED, before)
    await store.cancel([run_id], Reason.REQUESTED)
    rows = [row.id for row in await store.load_endings(0, 10)]
    async with other.transaction():
        await other.execute(change, before, after)
        moving = asyncio.create_task(store.move_flows([Move(run_id, 0, cancel=Reason.REQUESTED, endings=rows)]))
        while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0)
    moved = await moving
    await other.close()

    run = await get(store, task.run_id)
    if after is State.QUEUED:
        assert run.state is State.CANCELLED
    else:
        assert (run.cancel_requested, moved.asked) == (True, {task.run_id: "a1"})


async def test_a_deleted_job_ends_its_workflow_as_one_cancelled(store: Store):
    run_id, _ = await begin(store)
    cancelled = await store.delete_job(FLOW)
    assert cancelled is not None
    assert cancelled.marked == {run_id}
    [flow] = await store.load_flows([run_id])
    assert (flow.is_cancelled, flow.reason) == (True, Reason.DELETED)


async def test_a_workflow_that_is_replaced_is_asked_to_end_and_its_successor_waits(store: Store):
    run_id, _ = await begin(store, overlap=Overlap.REPLACE)
    [receipt] = await store.enqueue([Order(NewRun(FLOW, "python", 5, Overlap.REPLACE))])
    assert (await get(store, receipt.ids[0])).reason == Reason.OVERLAP
    [flow] = await store.load_flows([run_id])
    assert (flow.is_cancelled, flow.reason) == (True, Reason.REPLACED)
    await store.move_flows([Move(run_id, 0, end=over(State.CANCELLED))])
    assert (await get(store, receipt.ids[0])).state is State.QUEUED


# ── what it costs ──


async def test_a_thousand_tasks_cost_as_many_statements_as_one(counted: tuple[PostgresStore, list[str]]):
    """Begin, now, make, and the transaction around them; then lock, compare, drop and end."""
    store, sent = counted
    await submit(store, make_job(FLOW), make_job(PART))
    run_id, fence = await claimed(store)
    await count(sent)
    await store.move_flows([first(run_id, fence, [f"each[{n}]" for n in range(1000)])])
    assert await count(sent) == 4, "BEGIN, begin_flows, enqueue, COMMIT: 0.004 of a task"

    given = await claim(store, "a1", "python", (), 1000)
    await store.finish([Result(run_id, 0, State.SUCCEEDED)])  # of nothing, which opens the connection
    await count(sent)
    await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED) for a in given])
    assert await count(sent) == 1
    await store.load_tasks([run_id])  # which opens the connection
    await count(sent)
    rows = await store.load_endings(0, 2000)
    tasks = await store.load_tasks([run_id])
    assert (len(rows), len(tasks)) == (1000, 1000)
    assert await count(sent) == 2
    await store.move_flows([Move(run_id, 0, end=over(), endings=[row.id for row in rows])])
    assert await count(sent) == 6, "BEGIN, lock_flows, step_flows, end_flows, drop_endings, COMMIT"


async def test_a_thousand_waiting_tasks_are_cancelled_by_one_statement(counted: tuple[PostgresStore, list[str]]):
    store, sent = counted
    run_id, _ = await begin(store, [f"each[{n}]" for n in range(1000)])
    await store.cancel([run_id], Reason.REQUESTED)
    rows = await store.load_endings(0, 10)
    await count(sent)
    await store.move_flows([Move(run_id, 0, cancel=Reason.REQUESTED, endings=[row.id for row in rows])])
    assert await count(sent) == 8, "BEGIN, lock_flows, step_flows, live_tasks, lock_held, cancel, drop_endings, COMMIT"
    assert set((await tasks_of(store, run_id)).values()) == {State.CANCELLED}
