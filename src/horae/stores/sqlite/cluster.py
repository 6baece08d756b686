"""Nodes and segments on SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import cast

from horae.core.model import Lease
from horae.core.signs import Beat, NewLine, Sign
from horae.errors import Superseded
from horae.stores.parts.cluster import LeasePart, NodePart, beat_of
from horae.stores.rows import Row, encode
from horae.stores.sqlite.database import SqliteDatabase


class SqliteCluster(SqliteDatabase, NodePart, LeasePart):
    """Nodes and segments."""

    async def open_lines(self, lines: Sequence[NewLine]) -> list[int | None]:
        def write(connection: sqlite3.Connection) -> list[int | None]:
            return [self._open_line(connection, line) for line in lines]

        return await self._do(write)

    def _open_line(self, connection: sqlite3.Connection, line: NewLine) -> int | None:
        opened = self._run(connection, "open_line", *line).fetchone()
        if opened is not None:
            return int(opened[0])
        refused = self._run(connection, "line_refused", line.name, line.identity).fetchone()
        return 0 if refused is None else cast("int | None", refused[0])

    async def _beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        def write(connection: sqlite3.Connection) -> list[Beat | Superseded | None]:
            return [self._beat_one(connection, sign) for sign in signs]

        return await self._do(write)

    def _beat_one(self, connection: sqlite3.Connection, sign: Sign) -> Beat | Superseded | None:
        free = None if sign.free is None else encode(sign.free)
        own = self._run(connection, "beat", sign.name, sign.busy, self._clock(), sign.session, free).fetchone()
        if own is None:
            return beat_of(sign, self._run(connection, "session_of", sign.name).fetchall())
        books = self._run(connection, "digest_of", sign.name).fetchone() if sign.held is not None else None
        return beat_of(sign, [(*own, books), *self._run(connection, "cancels_of", sign.name)])

    async def assign_segments(self, moves: dict[int, str], lease: Lease) -> bool:
        text = json.dumps(moves)

        def write(connection: sqlite3.Connection) -> list[Row]:
            now = self._clock()
            rows = self._run(connection, "assign_segments", text, lease.name, lease.owner, lease.term, now).fetchall()
            self._run(connection, "tell_segments", now, encode([row[0] for row in rows]))
            return rows

        return len(await self._do(write)) == len(moves)
