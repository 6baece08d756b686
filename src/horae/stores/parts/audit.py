"""Who did what: rows that only come, sealed later, and dropped from the front."""

from __future__ import annotations

import json
from collections.abc import Sequence

from horae.core.audit import SEALED, AuditFilter, Deed, Gone, Head, Hole, Row, Seal, holes_between
from horae.core.model import LARGEST_ID, Moment
from horae.stores.audit import audit_text
from horae.stores.database import Database, Steps
from horae.stores.rows import encode

STRAYS = 10  # that are named at once


class AuditPart(Database):
    """Who did what."""

    async def append_audit(self, deeds: Sequence[Deed]) -> None:
        await self._put("append_audit", self._frozen_now(), audit_text(deeds, self.dialect))

    async def list_audit(self, where: AuditFilter, before: int | None, limit: int) -> list[Row]:
        rows = await self._get(
            "list_audit", LARGEST_ID if before is None else before, where.org, where.who, where.action, where.kind,
            where.subject, where.outcome, where.since, where.until, limit,
        )  # fmt: skip
        found = await self._get("load_seals_of", self._list([row[0] for row in rows])) if rows else ()
        seals = {row_id: (seq, text) for row_id, seq, text in found}
        return [Row(*(*row, *seals.get(row[0], (None, None)))) for row in rows]

    async def audit_head(self) -> Head:
        return Head(*(await self._get("audit_head"))[0])

    async def seal_audit(self, limit: int) -> tuple[int, Head]:
        def steps() -> Steps[tuple[int, Head]]:
            *said, last_id, text, settled = (yield ("lock_audit_head",))[0]
            head, holes = Head(*said), [Hole(*hole) for hole in json.loads(text)]
            fresh = [Row(*row) for row in (yield "load_unsealed", last_id, limit)]
            late = [Row(*row) for row in (yield "load_late_audit", *_ends(holes))] if holes else []
            if not fresh and not late:
                return 0, head
            left = _left_open(holes, late, settled)
            if fresh and settled is not None:
                new = holes_between(last_id + 1, fresh[-1].id, [row.id for row in fresh])
                mark = (yield ("audit_mark",))[0][0] if new else 0
                left += [hole._replace(mark=mark) for hole in new]
            moved = head
            every = [*fresh, *late]
            for rows in (every[start : start + SEALED] for start in range(0, len(every), SEALED)):
                seal = Seal.of(rows, moved.seq, moved.hash)
                moved = moved._replace(seq=seal.seq, hash=seal.last_hash)
                span = min(seal.ids), max(seal.ids)
                yield "insert_seal", seal.seq, len(rows), *span, seal.newest_at, self._list(seal.ids), seal.hashes
            yield "move_audit_head", moved.seq, moved.hash, fresh[-1].id if fresh else last_id, encode(left)
            return moved.seq - head.seq, moved

        return await self._transact_apart(steps)

    async def read_sealed(self, after: int, limit: int) -> list[Row | Gone]:
        seals = [self._seal(*row) for row in await self._get("load_seals", after, limit)]
        entries = [entry for seal in seals for entry in seal.entries() if entry[1] > after][:limit]
        rows = await self._get("load_audit", self._list([row_id for row_id, _, _ in entries]))
        found = {row[0]: row for row in rows}
        return [
            Row._make((*found[row_id], seq, text)) if row_id in found else Gone(row_id, seq, text)
            for row_id, seq, text in entries
        ]

    async def find_strays(self, after: int, last: int) -> list[int]:
        rows = await self._get("find_strays", after, last, STRAYS)
        holes = [Hole(*hole) for hole in json.loads(rows[0][1])] if rows else []
        return [row[0] for row in rows if not any(hole.first <= row[0] <= hole.last for hole in holes)]

    async def drop_audit(self, before: Moment, limit: int) -> tuple[int, Head]:
        def steps() -> Steps[tuple[int, Head]]:
            *said, _, _, _ = (yield ("lock_audit_head",))[0]
            head, old = Head(*said), list[Seal]()
            for row in (yield "load_seals", 0, limit):
                seal = self._seal(*row)
                if seal.newest_at >= before:
                    break
                old.append(seal)
            if not old:
                return 0, head
            first = Head(head.seq, head.hash, old[-1].seq, old[-1].last_hash)
            yield "drop_audit", self._list([row_id for seal in old for row_id in seal.ids])
            yield "drop_seals", first.first_seq
            yield "keep_audit_from", first.first_seq, first.first_hash
            return first.first_seq - head.first_seq, first

        return await self._transact_apart(steps)

    def _seal(self, seq: int, ids: object, hashes: str, newest_at: Moment) -> Seal:
        return Seal(seq, self._column(ids), hashes, newest_at)


def _ends(holes: Sequence[Hole]) -> tuple[list[int], list[int]]:
    return [hole.first for hole in holes], [hole.last for hole in holes]


def _left_open(holes: Sequence[Hole], late: Sequence[Row], settled: int | None) -> list[Hole]:
    """Return what of the holes may still be filled, after some late rows were found in them."""
    return [
        part
        for hole in holes
        if settled is not None and hole.mark > settled
        for part in holes_between(
            hole.first, hole.last, [row.id for row in late if hole.first <= row.id <= hole.last], hole.mark
        )
    ]
