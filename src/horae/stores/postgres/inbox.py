"""Work handed over in others' transactions, on its way to the live table.

Rows leave the inbox in the transaction that makes their runs: whatever dies when, each is in exactly one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Moment, Overlap
from horae.core.runs.inbox import Drained, Grant, Handed, Level, Refusal, Since, Target, judge_receipt
from horae.core.runs.orders import Order
from horae.core.work import policies
from horae.errors import ConfigError, NotFound
from horae.ports.store.inbox import Judge, PlaceHanded
from horae.stores.postgres.arrays import columns
from horae.stores.postgres.lanes import Connection
from horae.stores.postgres.orders import PostgresOrders
from horae.stores.rows import Row

Name = tuple[int, str, int | str]  # organisation, owner, id or key of a job


class PostgresInbox(PostgresOrders):
    async def has_handed(self, since: Since) -> bool:
        return bool((await self._get("has_handed", *since))[0][0])

    async def drain(self, judge: Judge, place: PlaceHanded, limit: int, since: Since) -> Drained:
        async def take(connection: Connection) -> Drained:
            rows = await connection.fetch(self.queries["take_handed"], *since, limit)
            if not rows:
                return Drained([], [], [])
            handed = sorted(map(Handed._make, rows))
            now, targets = await self._moment(connection), await self._load_targets(connection, handed)
            judged = [judge(one, targets.get(_name(one)), now) for one in handed]
            await place([
                (targets[_name(one)], verdict.run)
                for one, verdict in zip(handed, judged, strict=True)
                if isinstance(verdict, Order)
            ])  # fmt: skip
            drained = await self._place(connection, list(zip(handed, judged, strict=True)))
            await self._refuse_handed(connection, drained.refused, now)
            return drained

        return await self._retried(self._submit, take)

    async def _place(self, connection: Connection, judged: Sequence[tuple[Handed, Order | Refusal]]) -> Drained:
        """Ask for the runs, as run-now does."""
        refused = [verdict for _, verdict in judged if isinstance(verdict, Refusal)]
        placed = [(one, verdict) for one, verdict in judged if isinstance(verdict, Order)]
        orders = [order for _, order in placed]
        receipts = await self._carry_out_once(connection, orders) if orders else []
        runs = []
        for (one, _), receipt in zip(placed, receipts, strict=True):
            if (refusal := judge_receipt(one, receipt)) is not None:
                refused.append(refusal)
            else:
                runs.append(receipt.ids[0])
        replaces = any(order.run.overlap == Overlap.REPLACE for order in orders)
        made = [receipt.run for receipt in receipts if receipt.run is not None]
        return Drained([one.id for one, _ in judged], runs, refused, made, replaces)

    async def _load_targets(self, connection: Connection, handed: Sequence[Handed]) -> dict[Name, Target]:
        """Return the jobs that are meant, as each is named by whoever may use it."""
        wanted = {_name(one) for one in handed}
        ids = [job for _, _, job in wanted if isinstance(job, int)]
        keys = [name for name in wanted if isinstance(name[2], str)]
        rows = await connection.fetch(self.queries["load_targets"], ids, *columns(keys, 3))
        found = [Target._make([*row[:6], policies.policy_from_text(row[6]), *row[7:]]) for row in rows]
        by_id: dict[Name, Target] = {(job.org, job.owner, job.id): job for job in found}
        return by_id | {(job.org, job.owner, job.key): job for job in found if job.key is not None}

    async def _refuse_handed(self, connection: Connection, refused: Sequence[Refusal], now: Moment) -> None:
        if refused:
            rows = [(*one.handed, one.code, one.message) for one in refused]
            await connection.execute(self.queries["refuse_handed"], *columns(rows, 12), now)

    async def readmit(self) -> int:
        return len(await self._put("readmit"))

    async def level(self) -> Level:
        return Level(*(await self._get("inbox_level", self._clock()))[0])

    async def drop_refused(self, before: Moment) -> int:
        return len(await self._put("drop_refused", before))

    # ── who may, and what was refused ──
    async def grant_inbox(self, role: str, org: int, owner: str) -> None:
        async def grant(connection: Connection) -> None:
            allow, _, enter = await self._rights(connection, role)
            await connection.execute(self.queries["grant_inbox"], role, org, owner)
            await connection.execute(allow)
            if enter is not None:
                await connection.execute(enter)
            if not await connection.fetchval(self.queries["may_hand_over"], role):
                raise ConfigError(
                    f"{role} was given no right: the functions belong to another role than that of this address",
                    code="E_DB_RIGHTS",
                    hint="give --database with the role that owns the tables of Horae",
                )

        await self._retried(self._submit, grant)

    async def revoke_inbox(self, role: str) -> bool:
        async def revoke(connection: Connection) -> bool:
            gone = await connection.fetch(self.queries["revoke_inbox"], role)
            if rights := await connection.fetchrow(self.queries["role_rights"], role):
                await connection.execute(rights[1])
            return bool(gone)

        return await self._retried(self._submit, revoke)

    async def _rights(self, connection: Connection, role: str) -> Row:
        row: Row | None = await connection.fetchrow(self.queries["role_rights"], role)
        if row is None:
            raise NotFound(f"the database has no role {role!r}", hint="make it first: CREATE ROLE … LOGIN")
        return row

    async def list_grants(self) -> list[Grant]:
        return [Grant._make(row) for row in await self._get("list_inbox_grants")]

    async def list_refused(self, limit: int) -> list[Refusal]:
        return [Refusal(Handed._make(row[:10]), *row[10:]) for row in await self._get("list_refused", limit)]

    async def retry_refused(self, receipts: Sequence[int] | None) -> list[int]:
        return [row[0] for row in await self._put("retry_refused", receipts)]


def _name(handed: Handed) -> Name:
    job_id = handed.job_id
    return handed.org, handed.owner, handed.job if job_id is None else job_id
