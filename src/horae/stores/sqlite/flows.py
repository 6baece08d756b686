"""Workflows under way on SQLite: each step is one write of the one writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from horae.core.model import Moment, State
from horae.core.runs.calls import Answered, Calls
from horae.core.runs.flows import Move, Moved, Unrun
from horae.core.runs.orders import Cancelled
from horae.stores.attempts import count_demanding, has_some_for_servers
from horae.stores.parts.flows import FlowPart, apart, by_reason, made_calls, unmade, unrun_row
from horae.stores.rows import encode
from horae.stores.sqlite.orders import SqliteOrders


class SqliteFlows(SqliteOrders, FlowPart):
    """Runs that wait for their tasks."""

    async def move_flows(self, moves: Sequence[Move]) -> Moved:
        def write(connection: sqlite3.Connection) -> Moved:
            begun = {move.run_id: self._begin_flow(connection, move) for move in moves if move.begin is not None}
            steps = [(move.run_id, move.version) for move in moves if move.begin is None]
            accepted = {row[0] for row in self._run(connection, "step_flows", encode(steps))} if steps else set()
            accepted |= {run_id for run_id, cancel in begun.items() if cancel is not None}
            unwanted = [run_id for run_id, cancel in begun.items() if cancel]
            self._run(connection, "note_cancel", encode(unwanted)) if unwanted else None
            held = [move for move in moves if move.run_id in accepted and move.run_id not in unwanted]
            return self._step(connection, accepted, held, is_noted=bool(unwanted))

        return await self._do(write)

    def _begin_flow(self, connection: sqlite3.Connection, move: Move) -> bool | None:
        """Return whether somebody wants it cancelled; None: it is not to be begun."""
        begin = move.begin
        assert begin is not None
        row = self._run(connection, "begin_flow", move.run_id, begin.fence, begin.until_at).fetchone()
        if row is not None:
            self._run(connection, "add_flow", move.run_id, begin.job_id, begin.document, begin.adopted)
        return None if row is None else bool(row[0])

    def _step(
        self, connection: sqlite3.Connection, accepted: set[int], moves: Sequence[Move], *, is_noted: bool
    ) -> Moved:
        now = self._clock()
        unrun = [one for move in moves for one in move.unrun]
        orders, barred = apart(order for move in moves for order in move.orders)
        receipts = self._carry_out(connection, orders, now) if orders else []
        gone = barred + [unmade(order) for order, receipt in zip(orders, receipts, strict=True) if not receipt.ids]
        self._add_unrun(connection, [*unrun, *gone], now)
        cancelled = self._cancel_tasks(connection, moves)
        promoted, is_followed = self._end_flows(connection, [move for move in moves if move.end is not None], now)
        handled = [each for move in moves for each in move.endings]
        self._run(connection, "drop_endings", encode(handled)) if handled else None
        runs = [receipt.run for receipt in receipts if receipt.run is not None]
        demanding = count_demanding(promoted) + sum(run.state is State.BLOCKED for run in runs)
        is_noted = is_noted or is_followed or bool(gone) or cancelled.noted or has_some_for_servers(promoted)
        return Moved(accepted, len(runs) + len(promoted), demanding, cancelled.asked, is_noted)

    def _make_calls(self, connection: sqlite3.Connection, calls: Sequence[Calls]) -> Answered:
        """Make what runs call that begin to wait for it."""
        orders, barred = apart(order for each in calls for order in each.orders)
        unrun = [one for each in calls for one in each.unrun]
        receipts = self._carry_out(connection, orders, self._clock()) if orders else []
        gone = barred + [unmade(o) for o, r in zip(orders, receipts, strict=True) if not r.ids]
        self._add_unrun(connection, [*unrun, *gone], self._clock()) if unrun or gone else None
        return made_calls(receipts, is_noted=bool(unrun or gone))

    def _add_unrun(self, connection: sqlite3.Connection, unrun: Sequence[Unrun], now: Moment) -> None:
        rows = [unrun_row(i, one, now) for i, one in zip(self._next("run", len(unrun)), unrun, strict=True)]
        self._rows(connection, "insert_history", rows)
        self._save_ids(connection) if rows else None

    def _cancel_tasks(self, connection: sqlite3.Connection, moves: Sequence[Move]) -> Cancelled:
        parents = [move.run_id for move in moves if move.cancel is not None]
        live = self._run(connection, "live_tasks", encode(parents)).fetchall() if parents else []
        asked: dict[int, str] = {}
        is_noted = False
        for reason, run_ids in by_reason(moves, live).items():
            part = self._end(connection, run_ids, reason)
            asked |= part.asked
            is_noted |= part.noted
        return Cancelled(set(), asked, noted=is_noted)

    def _end_flows(
        self, connection: sqlite3.Connection, moves: Sequence[Move], now: Moment
    ) -> tuple[list[tuple[int, int | None]], bool]:
        """Return the successors that took their gates, and whether somebody waits for any of them."""
        ids = encode([move.run_id for move in moves])
        rows = [
            (m.run_id, int(m.end.state), str(m.end.reason), m.end.message, m.end.result, now) for m in moves if m.end
        ]
        if not rows:
            return [], False
        left = self._run(connection, "gates_of", ids).fetchall()
        self._rows(connection, "end_flows", rows)
        self._run(connection, "drop_live", ids)
        jobs = [row[0] for row in left if row[0] is not None]
        promoted = self._run(connection, "promote", encode(jobs)).fetchall() if jobs else []
        return promoted, any(row[1] for row in left)
