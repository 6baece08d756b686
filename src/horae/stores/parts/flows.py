"""The outbox and workflows under way, as far as both databases say it alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from horae.core.definitions import Receipt
from horae.core.model import Moment, Reason, State
from horae.core.rights import BARRED
from horae.core.runs.calls import Answered
from horae.core.runs.endings import Ending
from horae.core.runs.flows import Flow, Move, Parent, Task, Unrun
from horae.core.runs.orders import Order
from horae.stores.database import Database
from horae.stores.rows import encode


class FlowPart(Database):
    """What is to be acted on, and runs that wait for their tasks."""

    async def load_endings(self, after: int, limit: int) -> list[Ending]:
        rows = await self._get("load_endings", after, limit)
        return [
            Ending(id_, kind, run_id, job_id, parent_id, due_at, None if state is None else State(state), name, task)
            for id_, kind, run_id, job_id, parent_id, due_at, state, name, task in rows
        ]

    async def drop_endings(self, ids: Sequence[int]) -> None:
        if ids:
            await self._put("drop_endings", self._list(ids))

    async def load_parents(self, run_ids: Sequence[int]) -> list[Parent]:
        return [Parent(*row) for row in await self._get("load_parents", self._list(run_ids))]

    async def load_flows(self, run_ids: Sequence[int]) -> list[Flow]:
        rows = await self._get("load_flows", self._list(run_ids)) if run_ids else ()
        return [
            Flow(run_id, job_id, version, document, adopted, data, priority, bool(cancel), reason, bool(is_over))
            for run_id, job_id, version, document, adopted, data, priority, cancel, reason, is_over in rows
        ]

    async def load_tasks(self, parent_ids: Sequence[int]) -> list[Task]:
        """One that ends between two looks of a statement could be found twice, or not at all: it is one snapshot."""
        rows = await self._get("load_tasks", self._list(parent_ids)) if parent_ids else ()
        return [Task(parent_id, run_id, task, State(state), None) for parent_id, run_id, task, state in rows]

    async def load_busy(self, fan_outs: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
        rows = await self._get("load_busy", encode(list(fan_outs))) if fan_outs else ()
        return {(row[0], row[1]) for row in rows}

    async def load_results(self, run_ids: Sequence[int]) -> dict[int, str]:
        rows = await self._get("load_results", self._list(run_ids)) if run_ids else ()
        return {row[0]: row[1] for row in rows}


def apart(orders: Iterable[Order]) -> tuple[list[Order], list[Unrun]]:
    """Return the orders of tasks and calls that may be made, and what becomes of those whose owner may not run them."""
    every = list(orders)
    return [one for one in every if not one.run.barred], [unmade(one) for one in every if one.run.barred]


def unmade(order: Order) -> Unrun:
    """Return what becomes of a task whose job was deleted at this moment, or may not be run by its owner any more.
    Nobody has thought of it yet, so its end is noted."""
    order.run.followed = True
    if order.run.barred:
        return Unrun(order.run, State.FAILED, Reason.OWNER, BARRED)
    return Unrun(order.run, State.FAILED, Reason.ERROR, f"its job {order.run.job_id} was deleted")


def made_calls(receipts: Sequence[Receipt | None], *, is_noted: bool) -> Answered:
    runs = [receipt.run for receipt in receipts if receipt is not None and receipt.run is not None]
    return Answered(len(runs), sum(run.state is State.BLOCKED for run in runs), is_noted)


def by_reason(moves: Iterable[Move], live: Iterable[Sequence[int]]) -> dict[str, list[int]]:
    """Return the live tasks (id, parent) of moves that cancel theirs, by the reason."""
    reasons = {move.run_id: move.cancel for move in moves if move.cancel is not None}
    found: dict[str, list[int]] = {}
    for run_id, parent_id in live:
        found.setdefault(reasons[parent_id], []).append(run_id)
    return found


def unrun_row(run_id: int, unrun: Unrun, now: Moment) -> tuple[object, ...]:
    """Return a task that has not run as the columns of HISTORY_COLUMNS."""
    run = unrun.run
    return (
        run_id, run.job_id, None, now, now, None, now, None, 0, None, int(unrun.state), 0, run.priority, 0, run.kind,
        str(unrun.reason), None, unrun.message, None, None, run.data, run.parent_id, run.task, run.followed or None,
    )  # fmt: skip
