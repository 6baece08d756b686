"""Runs by request on SQLite, and runs that wait for their time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from horae.core.definitions import Group, Idempotency, MadeAlike, Receipt
from horae.core.model import Moment, Reason, Run, State
from horae.core.runs.orders import Order, Swept
from horae.stores import limits, orders
from horae.stores.audit import confirm, deeds_done
from horae.stores.idempotency import replay, replay_group
from horae.stores.parts.writes import LOCK_RETRY
from horae.stores.rows import encode, from_json
from horae.stores.sqlite.moments import SqliteMoments, live_row


class SqliteOrders(SqliteMoments):
    """What people ask for, and what waits."""

    async def enqueue(self, asked: Sequence[Order], group: Group | None = None) -> list[Receipt]:
        def write(connection: sqlite3.Connection) -> list[Receipt]:
            if group is not None:
                receipts = self._carry_out_group(connection, asked, group)
            else:
                receipts = self._carry_out_once(connection, asked, self._clock())
            self._append(connection, deeds_done(asked, receipts))
            return receipts

        receipts = await self._do(write)
        confirm(asked)
        return receipts

    async def enqueue_alike(
        self, order: Order, data: Sequence[str | None], promise: Idempotency | None = None
    ) -> MadeAlike | None:
        asked = [replace(order, run=replace(order.run, data=one)) for one in data]
        receipts = await self.enqueue(asked, None if promise is None else Group(promise, range(len(asked))))
        first = receipts[0].run
        if first is None:  # then so are the others: they share whatever could be in their way
            return None
        return MadeAlike([receipt.ids[0] for receipt in receipts], replace(first, data=None))

    def _carry_out_group(self, connection: sqlite3.Connection, asked: Sequence[Order], group: Group) -> list[Receipt]:
        """All, or none if the group was carried out before: then the receipts of that time."""
        known = self._known(connection, [group.promise])
        if known:
            return replay_group(group, known)
        plain = [number for number, order in enumerate(asked) if not orders.waits_for_calm(order)]
        receipts = self._carry_out(connection, [asked[number] for number in plain], self._clock())
        made = dict(zip(plain, receipts, strict=True))
        ids = [(group.places[number], receipt.ids[0]) for number, receipt in made.items() if receipt.ids]
        self._note(connection, [(group.promise, list(chain.from_iterable(ids)))])
        return [made.get(number) or orders.STALE for number in range(len(asked))]

    def _carry_out_once(self, connection: sqlite3.Connection, asked: Sequence[Order], now: Moment) -> list[Receipt]:
        """Of orders with the same idempotency key the first, if nobody was before; the others get its answer."""
        known = self._known(connection, [order.idempotency for order in asked])
        first = [n for n in orders.first_of_each(asked) if replay(asked[n].idempotency, known) is None]
        calm = [n for n in first if orders.waits_for_calm(asked[n])]
        rest = [n for n in first if not orders.waits_for_calm(asked[n])]
        made = {n: self._calm(connection, asked[n], now) for n in calm}
        receipts = self._carry_out(connection, [asked[n] for n in rest], now)
        made |= zip(rest, receipts, strict=True)
        keys = [(asked[n].idempotency, receipt.ids) for n, receipt in made.items() if receipt.ids]
        self._note(connection, keys)
        known |= {(key.scope, key.key): (key.digest, ids) for key, ids in keys if key}
        return orders.replies(asked, made, known)

    def _carry_out(self, connection: sqlite3.Connection, asked: Sequence[Order], now: Moment) -> list[Receipt]:
        versions = dict(self._json(connection, "alive", encode([order.run.job_id for order in asked])))
        refused = [orders.refused(order, versions.get(order.run.job_id)) for order in asked]
        fresh = [order for order, receipt in zip(asked, refused, strict=True) if receipt is None]
        numbers = iter(self._next("run", sum(order.placed is None for order in fresh)))
        born = [order.made(order.placed.run_id if order.placed else next(numbers), now) for order in fresh]
        is_later = [order.is_later(now) for order in fresh]
        waiting = [made for made, later in zip(born, is_later, strict=True) if later]
        self._rows(connection, "insert_live", [live_row(made, orders.LATER, 0) for made in waiting])
        begun = iter(self._bear(connection, [m for m, later in zip(born, is_later, strict=True) if not later], now))
        self._save_ids(connection)
        made = iter(
            orders.receipt(run, orders.LATER if later else next(begun), now)
            for run, later in zip(born, is_later, strict=True)
        )
        return [receipt or next(made) for receipt in refused]

    def _calm(self, connection: sqlite3.Connection, order: Order, now: Moment) -> Receipt:
        """Let an order wait for others of its kind, in the place of the one that does."""
        assert order.calm is not None
        versions = dict(self._json(connection, "alive", encode([order.run.job_id])))
        if (refused := orders.refused(order, versions.get(order.run.job_id))) is not None:
            return refused
        waiting = self._run(connection, "find_calm", order.run.job_id, order.calm.key).fetchone()
        run_id, created_at, latest_at = waiting or (self._next("run", 1)[0], now, None)
        due_at, latest_at = order.calm.moments(now, latest_at, is_first=waiting is None)
        made = orders.calmed(order, run_id, created_at, due_at, now)
        if waiting is not None:
            self._run(connection, "drop_live", encode([run_id]))
        self._rows(connection, "insert_live", [live_row(made, orders.CALMING, 0)])
        self._run(connection, "note_calm", run_id, order.calm.key, latest_at)
        self._save_ids(connection)
        return orders.calm_receipt(made, now, replaced=waiting is not None)

    async def sweep(self) -> Swept:
        eligible, start_by, orphans = (await self._get("look_over"))[0]
        now = self._clock()
        due = [moment for moment in (eligible, start_by) if moment is not None]
        if orphans == "[]" and not any(moment <= now for moment in due):
            return Swept(0, 0, min(due, default=None))

        def write(connection: sqlite3.Connection) -> Swept:
            self._run(connection, "postpone", now, now + LOCK_RETRY, limits.ROWS_AT_ONCE)
            released = self._run(connection, "release", now, limits.ROWS_AT_ONCE).fetchall()
            expired = self._run(connection, "expired", now, limits.ROWS_AT_ONCE).fetchall()
            why = "no agent took it before its start deadline"
            self._bury(connection, [row[0] for row in expired], State.SKIPPED, "start_deadline", why)
            jobs = [row[1] for row in expired if row[1] is not None] + from_json(orphans)
            promoted = self._run(connection, "promote", encode(jobs)).fetchall() if jobs else []
            begun = self._begin_later(connection, now)
            overdue = [row[0] for row in self._run(connection, "overdue_parents", now, limits.ROWS_AT_ONCE)]
            self._mark(connection, overdue, Reason.TIMEOUT)
            return orders.swept([*released, *promoted], begun, len(expired), now, len(overdue))

        return await self._do(write)

    def _begin_later(self, connection: sqlite3.Connection, now: Moment) -> list[Run]:
        """Make runs of orders whose moment has come; return them."""
        rows = self._run(connection, "later", now, limits.ROWS_AT_ONCE).fetchall()
        if not rows:
            return []
        self._run(connection, "drop_live", encode([row[0] for row in rows]))
        receipts = self._carry_out(connection, [orders.waited(row) for row in rows], now)
        runs = [receipt.run for receipt in receipts if receipt.run is not None]
        assert len(runs) == len(rows), "jobs that are deleted have no orders left"
        return runs
