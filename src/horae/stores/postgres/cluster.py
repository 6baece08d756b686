"""Nodes and segments on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Lease
from horae.core.signs import Beat, NewLine, Sign
from horae.errors import Superseded
from horae.stores.parts.cluster import LeasePart, NodePart, beat_of
from horae.stores.postgres.arrays import columns
from horae.stores.postgres.database import PostgresDatabase
from horae.stores.postgres.lanes import HeldUp
from horae.stores.rows import Row, encode


class PostgresCluster(PostgresDatabase, NodePart, LeasePart):
    """Nodes and segments."""

    async def open_lines(self, lines: Sequence[NewLine]) -> list[int | None]:
        """Of one name, one at a time: a row can be moved only once in a statement."""
        first = {line.name: line for line in reversed(lines)}
        rows = await self._put("open_lines", *columns(list(first.values()), 4))
        sessions: dict[str, int | None] = {row[0]: row[1] for row in rows}
        rest = [line for line in lines if line is not first[line.name]]
        later = iter(await self.open_lines(rest) if rest else ())
        return [sessions.get(line.name, 0) if line is first[line.name] else next(later) for line in lines]

    async def _beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        names, busy, sessions = ([sign[column] for sign in signs] for column in range(3))
        tells = [sign.held is not None for sign in signs]
        free = [None if sign.free is None else encode(sign.free) for sign in signs]
        try:
            rows = await self._put("beat", names, busy, sessions, tells, self._clock(), free)
        except HeldUp:  # somebody has locked the live runs: what runs goes on, only cancels wait
            rows = await self._put("beat_alone", names, busy, sessions, self._clock())
        by_sign: list[list[Row]] = [[] for _ in signs]
        for row in rows:
            by_sign[row[0] - 1].append(row[1:])
            if row[1] == 0:
                self._past.note_beat(names[row[0] - 1], row[2])
        return [beat_of(sign, found, self._past.is_in_doubt) for sign, found in zip(signs, by_sign, strict=True)]

    async def assign_segments(self, moves: dict[int, str], lease: Lease) -> bool:
        rows = await self._put(
            "assign_segments", list(moves), list(moves.values()), lease.name, lease.owner, lease.term, self._clock()
        )
        return len(rows) == len(moves)
