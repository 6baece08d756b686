"""Workflows under way on PostgreSQL: a transaction of a few statements, however many workflows and tasks."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Moment, State
from horae.core.runs.calls import Answered, Calls
from horae.core.runs.flows import Move, Moved, Unrun
from horae.core.runs.orders import Cancelled
from horae.stores.attempts import count_demanding, has_some_for_servers
from horae.stores.parts.flows import FlowPart, apart, by_reason, made_calls, unmade
from horae.stores.postgres.lanes import Connection
from horae.stores.postgres.orders import PostgresOrders
from horae.stores.rows import Row, encode


class PostgresFlows(PostgresOrders, FlowPart):
    """Runs that wait for their tasks."""

    async def move_flows(self, moves: Sequence[Move]) -> Moved:
        async def transact(connection: Connection) -> Moved:
            begun = await self._begin_flows(connection, [move for move in moves if move.begin is not None])
            accepted = await self._step_flows(connection, [move for move in moves if move.begin is None])
            unwanted = {run_id for run_id, cancel in begun.items() if cancel}
            accepted |= begun.keys()
            held = [move for move in moves if move.run_id in accepted and move.run_id not in unwanted]
            return await self._step(connection, accepted, held, is_noted=bool(unwanted))

        return await self._retried(self._submit, transact)

    async def _begin_flows(self, connection: Connection, moves: Sequence[Move]) -> dict[int, bool]:
        """Return those that were begun, and whether somebody wants them cancelled."""
        rows = [
            (m.run_id, m.begin.fence, m.begin.job_id, m.begin.document, m.begin.adopted, m.begin.until_at)
            for m in moves
            if m.begin is not None
        ]
        return dict(await connection.fetch(self.queries["begin_flows"], *zip(*rows, strict=True))) if rows else {}

    async def _step_flows(self, connection: Connection, moves: Sequence[Move]) -> set[int]:
        if not moves:
            return set()
        rows = await connection.fetch(self.queries["lock_flows"], [move.run_id for move in moves])
        there = {row[0] for row in rows}
        left = [(move.run_id, move.version) for move in moves if move.run_id in there]
        arrays = zip(*left, strict=True) if left else ((), ())
        return {row[0] for row in await connection.fetch(self.queries["step_flows"], *arrays)}

    async def _step(
        self, connection: Connection, accepted: set[int], moves: Sequence[Move], *, is_noted: bool
    ) -> Moved:
        now = await self._moment(connection)
        unrun = [one for move in moves for one in move.unrun]
        orders, barred = apart(order for move in moves for order in move.orders)
        receipts = await self._carry_out(connection, orders) if orders else []
        made = [receipt for receipt in receipts if receipt is not None]  # none has a key
        gone = barred + [unmade(order) for order, receipt in zip(orders, made, strict=True) if not receipt.ids]
        await self._add_unrun(connection, [*unrun, *gone], now)
        cancelled = await self._cancel_tasks(connection, moves)
        promoted, is_followed = await self._end_flows(connection, moves, now)
        if handled := [each for move in moves for each in move.endings]:
            await connection.execute(self.queries["drop_endings"], handled)
        runs = [receipt.run for receipt in made if receipt.run is not None]
        demanding = count_demanding(promoted) + sum(run.state is State.BLOCKED for run in runs)
        is_noted = is_noted or is_followed or bool(gone) or cancelled.noted or has_some_for_servers(promoted)
        return Moved(accepted, len(runs) + len(promoted), demanding, cancelled.asked, is_noted)

    async def _make_calls(self, connection: Connection, calls: Sequence[Calls]) -> Answered:
        """Make what runs call that begin to wait for it."""
        orders, barred = apart(order for each in calls for order in each.orders)
        unrun = [one for each in calls for one in each.unrun]
        receipts = await self._carry_out(connection, orders) if orders else []
        gone = barred + [unmade(o) for o, r in zip(orders, receipts, strict=True) if r is None or not r.ids]
        await self._add_unrun(connection, [*unrun, *gone], await self._moment(connection)) if unrun or gone else None
        return made_calls(receipts, is_noted=bool(unrun or gone))

    async def _add_unrun(self, connection: Connection, unrun: Sequence[Unrun], now: Moment) -> None:
        rows = [
            {
                "job_id": one.run.job_id, "state": int(one.state), "priority": one.run.priority, "kind": one.run.kind,
                "reason": one.reason, "message": one.message, "data": one.run.data, "parent_id": one.run.parent_id,
                "task": one.run.task, "followed": one.run.followed or None,
            }
            for one in unrun
        ]  # fmt: skip
        if rows:
            await connection.execute(self.queries["add_unrun"], encode(rows), now)

    async def _cancel_tasks(self, connection: Connection, moves: Sequence[Move]) -> Cancelled:
        parents = [move.run_id for move in moves if move.cancel is not None]
        live = await connection.fetch(self.queries["live_tasks"], parents) if parents else ()
        asked: dict[int, str] = {}
        is_noted = False
        for reason, run_ids in by_reason(moves, live).items():
            part = await self._end(connection, run_ids, reason)
            asked |= part.asked
            is_noted |= part.noted
        return Cancelled(set(), asked, noted=is_noted)

    async def _end_flows(
        self, connection: Connection, moves: Sequence[Move], now: Moment
    ) -> tuple[Sequence[Row], bool]:
        """Return the successors that took their gates, and whether somebody waits for any of them."""
        ends = [
            (m.run_id, int(m.end.state), str(m.end.reason), m.end.message, m.end.result)
            for m in moves
            if m.end is not None
        ]
        if not ends:
            return (), False
        left = await connection.fetch(self.queries["end_flows"], *zip(*ends, strict=True), now)
        jobs = [row[0] for row in left if row[0] is not None]
        promoted = await connection.fetch(self.queries["promote"], jobs) if jobs else ()
        return promoted, any(row[1] for row in left)
