"""Firing on PostgreSQL: triggers move on, and runs are made as their overlap policy decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from horae.core.definitions import Receipt
from horae.core.model import Moment, Overlap, State
from horae.core.runs.orders import Definition, Due, Fire, Fired, Lend, NewRun, Order
from horae.stores.idempotency import first_of_each, order_receipts, replay
from horae.stores.parts.loans import LoanPart
from horae.stores.postgres.arrays import fire_arrays, order_arrays
from horae.stores.postgres.definitions import PostgresDefinitions
from horae.stores.postgres.lanes import Connection, Cut
from horae.stores.rows import definition_from_row


class PostgresMoments(PostgresDefinitions, LoanPart):
    """Due moments, and the runs made of them."""

    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        rows = await self._get("load_due", list(segments), *after, until, limit)
        return [Due._make(row) for row in rows]

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]:
        rows = await self._get("load_definitions", trigger_ids)
        return [definition_from_row((*row[:3], *row[3])) for row in rows]

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        arrays = [*fire_arrays(fires), list(terms or ()), list((terms or {}).values())]
        if lend is None and not any(f.passed or f.reserve or f.run.overlap >= Overlap.QUEUE for f in fires):
            advanced, _, made, skipped, now, refused = await self._row(self._fire, "fire", self._clock(), *arrays)
            return Fired(set(advanced or ()), len(made or ()), skipped, now, frozenset(refused))

        async def transact(connection: Connection) -> Fired:
            row = await connection.fetchrow(self.queries["fire"], self._clock(), *arrays)
            assert row is not None
            advanced, reserved_ids, made_ids, skipped, now, refused = row
            made, run_ids = set(made_ids or ()), dict(zip(advanced or (), reserved_ids or (), strict=True))
            held = [f for f in fires if f.trigger_id in run_ids]
            await self._pass(connection, held, run_ids, now)
            for f in held:
                run_id = run_ids[f.trigger_id]
                if f.born and run_id not in made and f.run.overlap >= Overlap.QUEUE:
                    skipped += await self._follow(connection, run_id, f.run, f.trigger_id, f.due_at, now)
            if lend is not None:
                lent = await self._walk(connection, self._lend_runs(list(run_ids.values()), lend, now))
                made -= {loan.run_id for loan in lent}
            reserved = {f.trigger_id: run_ids[f.trigger_id] for f in held if f.reserve}
            return Fired(set(run_ids), len(made), skipped, now, frozenset(refused), reserved)

        return await self._retried(self._fire if lend is None else self._claim, transact)

    async def _pass(self, connection: Connection, fires: Sequence[Fire], run_ids: dict[int, int], now: Moment) -> None:
        rows = [
            (f.run.job_id, f.trigger_id, at, run_ids[f.trigger_id] if state == State.COALESCED else None, state,
             f.run.priority, f.run.kind, reason)
            for f in fires
            for at, state, reason in f.passed
        ]  # fmt: skip
        if rows:
            await connection.execute(self.queries["passed"], now, *map(list, zip(*rows, strict=True)))

    async def _follow(
        self,
        connection: Connection,
        run_id: int,
        new: NewRun,
        trigger_id: int | None,
        due_at: Moment,
        now: Moment,
    ) -> int:
        """Write a run that found its gate taken, under `queue` or `replace`. Returns 1 if it was skipped."""
        holder = await connection.fetchrow(self.queries["lock_gate"], new.job_id)
        waiting = [row[0] for row in await connection.fetch(self.queries["waiting_of_job"], new.job_id)]
        if new.overlap == Overlap.QUEUE and len(waiting) >= new.overlap_limit:
            await connection.execute(
                self.queries["add_skipped"], run_id, new.job_id, trigger_id, due_at, now, new.priority, new.kind,
                f"{len(waiting)} runs of this job were waiting already", new.data,
            )  # fmt: skip
            return 1
        if new.overlap == Overlap.REPLACE:
            ended = await self._end(connection, [*waiting, *([holder[0]] if holder else [])], "replaced", promote=False)
            holder = holder if holder and holder[0] not in ended.ended else None
        gate, state, reason = (None, State.BLOCKED, "overlap") if holder else (new.job_id, State.QUEUED, "")
        await connection.execute(
            self.queries["add_successor"], run_id, new.job_id, trigger_id, due_at, now, gate, new.start_by, state,
            reason, new.priority, new.overlap, new.kind, list(new.needs) or None, new.data, new.pin,
        )  # fmt: skip
        return 0

    async def enqueue(self, orders: Sequence[Order]) -> list[Receipt]:
        if any(order.idempotency or order.run.overlap >= Overlap.QUEUE for order in orders):
            try:
                return await self._retried(self._submit, lambda connection: self._enqueue_checked(connection, orders))
            except Cut:
                if not all(order.idempotency for order in orders):
                    raise
                return await self._retried(self._submit, lambda connection: self._enqueue_checked(connection, orders))
        row = await self._row(self._submit, "enqueue", self._clock(), *order_arrays(orders))
        run_ids, _, _ = row
        return _receipts(run_ids)

    async def _enqueue_checked(self, connection: Connection, orders: Sequence[Order]) -> list[Receipt]:
        known = await self._known(connection, [order.idempotency for order in orders])
        fresh = first_of_each([o for o in orders if replay(o.idempotency, known) is None])
        made = await self._make(connection, fresh) if fresh else []
        await self._note(connection, [(o.idempotency, r.ids) for o, r in zip(fresh, made, strict=True) if r.ids])
        return order_receipts(orders, fresh, made, known)

    async def _make(self, connection: Connection, orders: Sequence[Order]) -> list[Receipt]:
        row = await connection.fetchrow(self.queries["enqueue"], self._clock(), *order_arrays(orders))
        assert row is not None
        run_ids, made_ids, now = row
        made = set(made_ids or ())
        for run_id, order in zip(run_ids, orders, strict=True):
            if run_id is not None and run_id not in made and order.run.overlap >= Overlap.QUEUE:
                await self._follow(connection, run_id, order.run, None, now, now)
        return _receipts(run_ids)


def _receipts(run_ids: Sequence[int | None]) -> list[Receipt]:
    return [Receipt([] if run_id is None else [run_id]) for run_id in run_ids]
