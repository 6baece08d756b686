"""The store on SQLite: one process, one writer thread, group commit; readers apart, by urgency.

All writes that wait are carried out in one transaction and share one fsync; each stands in its own
savepoint, so one that fails takes nobody with it. Rows travel in few, large steps: many rows in one
VALUES list, results as one JSON text. A step per row would hand the interpreter lock back and forth
between this thread and the event loop, and under load each hand-over can cost milliseconds.
"""

from __future__ import annotations

import asyncio
import copy
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, Self

from horae.core.audit import Deed
from horae.core.model import Moment
from horae.errors import Invalid, Unavailable
from horae.ports import deeds
from horae.stores.audit import audit_text, has_effect
from horae.stores.database import Database, Steps, T
from horae.stores.lines import Lines
from horae.stores.queries import load_lanes
from horae.stores.rows import Row, from_json
from horae.stores.sqlite.connections import READERS, Readers, Writer, connect, lock_file, refuse_foreign

CHUNKS = (1000, 100, 10, 1)  # rows per VALUES list: few sizes, so that every statement is prepared once
HAND_OVER = 0.001  # seconds the event loop may keep the interpreter lock while the writer waits for it


class SqliteDatabase(Database):
    dialect = "sqlite"

    def __init__(self, path: Path, *, clock: Callable[[], Moment], holder: str = "") -> None:
        """`holder` is what a second process is told about the one that holds the file."""
        super().__init__()
        self._path = path
        self._clock = clock
        self._holder = holder
        self._lock: IO[str] | None = None
        self._writer: Writer | None = None
        self._users = Readers(path, READERS, "reader", is_limited=True)
        self._urgent = Readers(path, 1, "roles")
        self._upkeep = Readers(path, 1, "upkeep")
        self._lane_names = load_lanes(self.dialect)
        self._is_for_roles = False
        self._ids = {"job": 0, "trigger": 0, "run": 0}
        self._lines = Lines()

    def hold(self) -> None:
        """Take the file for this process, before anything is read or migrated."""
        refuse_foreign(self._path)
        self._lock = self._lock or lock_file(self._path, self._holder)

    async def open(self) -> None:
        self.hold()
        sys.setswitchinterval(HAND_OVER)  # the writer gives the lock away in every statement: it must get it back soon
        with closing(connect(self._path)) as connection:
            self._ids = dict(connection.execute(self.queries["load_ids"]).fetchall())
        self._writer = Writer(self._path, asyncio.get_running_loop())
        self._writer.start()

    def for_roles(self) -> Self:
        store = copy.copy(self)
        store._is_for_roles = True
        return store

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.stop()
            await asyncio.to_thread(self._writer.join)
            self._writer = None
        for readers in (self._users, self._urgent, self._upkeep):
            readers.close()
        if self._lock is not None:
            self._lock.close()

    async def _do(self, write: Callable[[sqlite3.Connection], T]) -> T:
        if self._writer is None:
            raise Unavailable("the store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        deed = deeds.pending()
        self._writer.put(write if deed is None else partial(self._with_deed, write, deed), future)
        try:
            result = await future
        except (UnicodeEncodeError, OverflowError) as error:  # no text, or no number of 64 bits
            raise Invalid(f"the database cannot keep a value: {error}", code="E_CHAR") from error
        if deed is not None:
            deed.confirm()
        return result

    def _with_deed(self, write: Callable[[sqlite3.Connection], T], deed: Deed, connection: sqlite3.Connection) -> T:
        """Write, and who asked for it beside, unless that is written already."""
        deed.is_sent = False
        result = write(connection)
        if not deed.is_sent and has_effect(result):
            self._append(connection, [deed])
        return result

    def _append(self, connection: sqlite3.Connection, done: Sequence[Deed]) -> None:
        if done:
            self._run(connection, "append_audit", self._clock(), audit_text(done, self.dialect))
            for deed in done:
                deed.is_sent = True

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        return await (self._upkeep if self._is_for_roles else self._users).fetch(statement, args)

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        if self._is_for_roles and name in self._lane_names:
            return await self._urgent.fetch(self.queries[name], args)
        return await self.read(self.queries[name], *args)

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        return await self._do(lambda connection: connection.execute(statement, args).fetchall())

    def _run(self, connection: sqlite3.Connection, name: str, *args: Any) -> sqlite3.Cursor:
        return connection.execute(self.queries[name], args)

    def _json(self, connection: sqlite3.Connection, name: str, *args: Any) -> Any:
        """Return the one JSON text a query answers with, read."""
        return from_json(self._run(connection, name, *args).fetchone()[0])

    def _rows(self, connection: sqlite3.Connection, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a query with its {rows}, in as few statements as their sizes allow."""
        for statement, values in self._chunks(name, rows):
            connection.execute(statement, values)

    def _chunks(self, name: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, list[Any]]]:
        at, chunks = 0, []
        for size in CHUNKS:
            while len(rows) - at >= size:
                values = [value for row in rows[at : at + size] for value in row]
                chunks.append((_with_rows(self.queries[name], size, len(rows[0])), values))
                at += size
        return chunks

    async def _transact(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._do(lambda connection: self._walk(connection, steps()))

    def _walk(self, connection: sqlite3.Connection, steps: Steps[T]) -> T:
        """Carry out steps, handing each its rows."""
        rows = None
        while True:
            try:
                name, *args = steps.send(rows)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            rows = self._run(connection, name, *args).fetchall()

    def _fence_floor(self) -> int:
        return 1

    async def now(self) -> Moment:
        return self._clock()

    def _frozen_now(self) -> Moment:
        return self._clock()

    def _next(self, name: str, count: int) -> range:
        first = self._ids[name] + 1
        self._ids[name] += count
        return range(first, first + count)

    def _save_ids(self, connection: sqlite3.Connection) -> None:
        self._run(connection, "save_ids", self._ids["job"], self._ids["trigger"], self._ids["run"])


@lru_cache(maxsize=256)
def _with_rows(statement: str, count: int, width: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return statement.replace("{rows}", ",".join([row] * count))
