"""Runs by request on PostgreSQL, and runs that wait for their time.

An order is carried out in one statement, its idempotency key included: what waits together is one commit. Only `queue`
and `replace` need a transaction of several, where they meet another run of their job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horae.core.definitions import Group, Idempotency, MadeAlike, Receipt
from horae.core.model import Moment, Overlap, Reason, Run, State
from horae.core.runs.orders import MadeRun, Order, Outcome, Swept
from horae.stores import limits, orders
from horae.stores.audit import confirm, orders_text
from horae.stores.idempotency import replay, replay_group
from horae.stores.parts.writes import LOCK_RETRY
from horae.stores.postgres.arrays import alike_row, calm_rows, columns, group_row, order_rows, together_rows
from horae.stores.postgres.lanes import Connection, Cut
from horae.stores.postgres.moments import PostgresMoments
from horae.stores.rows import from_json

FEW = 100  # orders that come together, from as many people; of more, the list of them is joined by what it needs


class PostgresOrders(PostgresMoments):
    """What people ask for, and what waits."""

    async def enqueue(self, asked: Sequence[Order], group: Group | None = None) -> list[Receipt]:
        try:
            receipts = await self._enqueue(asked, group)
        except Cut:
            if group is None and not all(order.idempotency for order in asked):
                raise
            receipts = await self._enqueue(asked, group)
        confirm(asked)
        return receipts

    async def enqueue_alike(
        self, order: Order, data: Sequence[str | None], promise: Idempotency | None = None
    ) -> MadeAlike | None:
        async def work(connection: Connection) -> MadeAlike | None:
            made = await self._try_alike(connection, order, data, promise)
            return MadeAlike(made.ids, orders.made_alike(order, made.ids[0], made.now)) if made.ids else None

        try:
            made = await self._repeated(self._submit, work)
        except Cut:
            if promise is None:
                raise
            made = await self._repeated(self._submit, work)
        confirm([order])
        return made

    async def _try_alike(
        self, connection: Connection, order: Order, data: Sequence[str | None], promise: Idempotency | None = None
    ) -> _Tried:
        row = await connection.fetchrow(
            self.queries["enqueue_alike"], self._clock(), *alike_row(order, data, promise, self._lines),
            orders_text([order]),
        )  # fmt: skip
        assert row is not None
        version, ids, now, is_held = row
        if order.deed is not None:
            order.deed.is_sent = bool(ids)
        return _Tried(version, sorted(ids), now, is_held)  # they were given out in the order of the data

    async def _enqueue(self, asked: Sequence[Order], group: Group | None) -> list[Receipt]:
        if group is None and len(asked) == 1 and asked[0].is_ordinary:
            receipt = await self._repeated(self._submit, lambda connection: self._carry_out_one(connection, asked[0]))
            if receipt is not None:
                return [receipt]

        async def work(connection: Connection) -> list[Receipt]:
            if group is not None:
                return await self._carry_out_group(connection, asked, group)
            return await self._carry_out_once(connection, asked)

        if any(order.run.overlap >= Overlap.QUEUE or order.calm is not None for order in asked):
            return await self._retried(self._submit, work)
        return await self._repeated(self._submit, work)

    async def _carry_out_once(self, connection: Connection, asked: Sequence[Order]) -> list[Receipt]:
        """Of orders with the same idempotency key the first, if nobody was before; the others get its answer."""
        first = orders.first_of_each(asked)
        calm = [number for number in first if orders.waits_for_calm(asked[number])]
        rest_of = [number for number in first if not orders.waits_for_calm(asked[number])]
        receipts = await self._calm(connection, [asked[number] for number in calm]) if calm else []
        if rest_of:
            rest_asked = [asked[number] for number in rest_of]
            is_lean = len(rest_asked) <= FEW and orders.are_alike(rest_asked)
            carry_out = self._carry_out_together if is_lean else self._carry_out
            receipts += await carry_out(connection, rest_asked)
        done = zip([*calm, *rest_of], receipts, strict=True)
        made = {number: receipt for number, receipt in done if receipt is not None}
        rest = [order.idempotency for number, order in enumerate(asked) if number not in made]
        return orders.replies(asked, made, await self._known(connection, rest))

    async def _carry_out_one(self, connection: Connection, order: Order) -> Receipt | None:
        """Return what became of an ordinary order; None where it met another run of its job, or the key of one that
        came to nothing."""
        tried = await self._try_alike(connection, order, [order.run.data])
        if tried.ids:
            return orders.receipt(order.made(tried.ids[0], tried.now), orders.waiting_outcome(order.run), tried.now)
        if (refused := orders.refused(order, tried.version)) is not None:
            return refused
        if tried.is_held or order.idempotency is None:
            return None
        return replay(order.idempotency, await self._known(connection, [order.idempotency]))

    async def _carry_out_group(self, connection: Connection, asked: Sequence[Order], group: Group) -> list[Receipt]:
        """All, or none if the group was carried out before: then the receipts of that time."""
        plain = [number for number, order in enumerate(asked) if not orders.waits_for_calm(order)]
        known = await self._known(connection, [group.promise]) if len(plain) < len(asked) else {}
        made: dict[int, Receipt] = {}
        if plain and not known:
            part = Group(group.promise, [group.places[number] for number in plain])
            receipts = await self._carry_out(connection, [asked[number] for number in plain], part)
            made = {number: one for number, one in zip(plain, receipts, strict=True) if one is not None}
            known = {} if len(made) == len(plain) else await self._known(connection, [group.promise])
        return [made.get(number) or before for number, before in enumerate(replay_group(group, known))]

    async def _calm(self, connection: Connection, asked: Sequence[Order]) -> list[Receipt | None]:
        """Let orders wait for others of their kind; as _carry_out. What waits is locked before any share, as `sweep`
        does it."""
        rows = await connection.fetch(self.queries["calm"], self._clock(), *calm_rows(asked))
        receipts: list[Receipt | None] = []
        for order, (version, run_id, created_at, due_at, replaced, last, now) in zip(asked, rows, strict=True):
            if run_id is None:
                receipts.append(orders.refused(order, version))
            else:
                made = orders.calmed(asked[last - 1], run_id, created_at, due_at, now)
                receipts.append(orders.calm_receipt(made, now, replaced=replaced))
        pairs = [(order.idempotency, receipt) for order, receipt in zip(asked, receipts, strict=True)]
        keyed = [(key.scope, key.key, receipt.ids[0]) for key, receipt in pairs if key and receipt and receipt.ids]
        if keyed:
            await connection.execute(self.queries["key_calm"], *columns(keyed, 3))
        return receipts

    async def _carry_out_together(self, connection: Connection, asked: Sequence[Order]) -> list[Receipt | None]:
        """As _carry_out, of orders that are alike."""
        row = await connection.fetchrow(
            self.queries["enqueue_together"], self._clock(), *together_rows(asked, self._lines), orders_text(asked)
        )
        assert row is not None
        versions, run_ids, now = row
        receipts: list[Receipt | None] = []
        for order, version, run_id in zip(asked, versions, run_ids, strict=True):
            if run_id is None:
                receipts.append(orders.refused(order, version))
                continue
            if order.deed is not None:
                order.deed.is_sent = True
            receipts.append(orders.receipt(order.made(run_id, now), orders.waiting_outcome(order.run), now))
        return receipts

    async def _carry_out(
        self, connection: Connection, asked: Sequence[Order], group: Group | None = None
    ) -> list[Receipt | None]:
        """Return what became of each; None where its idempotency key was used before."""
        row = await connection.fetchrow(
            self.queries["enqueue"], self._clock(), *order_rows(asked, self._lines), *group_row(group),
            orders_text(asked),
        )  # fmt: skip
        assert row is not None
        versions, run_ids, made_ids, now, said = row
        for order, run_id in zip(asked, run_ids, strict=True):
            if order.deed is not None and run_id is not None:
                order.deed.is_sent = True
        made, skipped = set(made_ids), from_json(said or "{}")
        return [
            orders.refused(order, version)
            if run_id is None
            else orders.receipt(order.made(run_id, now), _outcome(order, now), now)
            if run_id in made
            else await self._unmade(connection, order.made(run_id, now), skipped.get(str(run_id), ""), now)
            for order, version, run_id in zip(asked, versions, run_ids, strict=True)
        ]

    async def _unmade(self, connection: Connection, made: MadeRun, said: str, now: Moment) -> Receipt:
        """Of an order that may not run, or met another run of its job; `said`: its message, if that skipped it."""
        if made.run.barred:
            return orders.receipt(made, orders.BARRED, now)
        skipped = Outcome(State.SKIPPED, Reason.OVERLAP, said)
        waits = made.run.overlap >= Overlap.QUEUE
        return orders.receipt(made, await self._follow(connection, made, now) if waits else skipped, now)

    async def sweep(self) -> Swept:
        row = (await self._get("look_over", self._clock()))[0]
        eligible, start_by, orphans, now = row
        due = [moment for moment in (eligible, start_by) if moment is not None]
        if not orphans and not any(moment <= now for moment in due):
            return Swept(0, 0, min(due, default=None))

        async def transact(connection: Connection) -> Swept:
            await connection.execute(self.queries["postpone"], now, now + LOCK_RETRY, limits.ROWS_AT_ONCE)
            released = await connection.fetch(self.queries["release"], now, limits.ROWS_AT_ONCE)
            expired = await connection.fetch(self.queries["expire"], now, limits.ROWS_AT_ONCE)
            jobs = [row[1] for row in expired if row[1] is not None] + list(orphans)
            promoted = await connection.fetch(self.queries["promote"], jobs) if jobs else ()
            begun = await self._begin_later(connection, now)
            overdue = await connection.fetch(self.queries["end_overdue"], now, limits.ROWS_AT_ONCE)
            return orders.swept([*released, *promoted], begun, len(expired), now, len(overdue))

        return await self._retried(self._finish, transact)

    async def _begin_later(self, connection: Connection, now: Moment) -> list[Run]:
        """Make runs of orders whose moment has come; return them."""
        rows = await connection.fetch(self.queries["take_later"], now, limits.ROWS_AT_ONCE)
        receipts = await self._carry_out(connection, [orders.waited(row) for row in rows]) if rows else []
        runs = [receipt.run for receipt in receipts if receipt is not None and receipt.run is not None]
        assert len(runs) == len(rows), "their jobs are locked, so none can have vanished"
        return runs


class _Tried(NamedTuple):
    """What came of orders that are alike; no ids: nothing was done."""

    version: int | None  # of their job
    ids: list[int]
    now: Moment
    is_held: bool  # another run of the job had its gate


def _outcome(order: Order, now: Moment) -> Outcome:
    """Of an order of which a run was made that waits."""
    return orders.LATER if order.is_later(now) else orders.waiting_outcome(order.run)
