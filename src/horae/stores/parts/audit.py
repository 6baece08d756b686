"""Who did what: rows that only come, sealed later, and dropped from the front."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.audit import AuditFilter, Deed, Head, Row
from horae.core.model import LARGEST_ID, Moment
from horae.stores.audit import audit_text
from horae.stores.database import Database, Steps
from horae.stores.rows import encode


class AuditPart(Database):
    """Who did what."""

    async def append_audit(self, deeds: Sequence[Deed]) -> None:
        await self._put("append_audit", self._frozen_now(), audit_text(deeds, self.dialect))

    async def list_audit(self, where: AuditFilter, before: int | None, limit: int) -> list[Row]:
        rows = await self._get(
            "list_audit", LARGEST_ID if before is None else before, where.org, where.who, where.action, where.kind,
            where.subject, where.outcome, where.since, where.until, limit,
        )  # fmt: skip
        return [Row(*row) for row in rows]

    async def load_unsealed(self, limit: int) -> list[Row]:
        return [Row(*row) for row in await self._get("load_unsealed", limit)]

    async def audit_head(self) -> Head:
        return Head(*(await self._get("audit_head"))[0])

    async def seal_audit(self, seen: Head, rows: Sequence[tuple[int, str]]) -> bool:
        def steps() -> Steps[bool]:
            moved = yield "move_audit_head", seen.seq, seen.hash, seen.seq + len(rows), rows[-1][1]
            if not moved:
                return False
            yield "seal_audit", encode(rows), seen.seq
            return True

        return await self._transact_apart(steps)

    async def read_sealed(self, after: int, limit: int) -> list[Row]:
        return [Row(*row) for row in await self._get("read_sealed", after, limit)]

    async def drop_audit(self, before: Moment, limit: int) -> tuple[int, Head]:
        def steps() -> Steps[tuple[int, Head]]:
            head = Head(*(yield ("audit_head",))[0])
            recent = yield "first_recent_audit", head.first_seq, before
            last = min(head.seq, head.first_seq + limit, recent[0][0] - 1 if recent else head.seq)
            found = (yield "audit_hash", last) if last > head.first_seq else ()
            if not found:
                return 0, head
            yield "drop_audit", last
            yield "keep_audit_from", last, found[0][0]
            return last - head.first_seq, head._replace(first_seq=last, first_hash=found[0][0])

        return await self._transact_apart(steps)
