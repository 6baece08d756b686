"""The bare loops: the least a database can be asked for, with no scheduler around it.

They set the scale. Horae does more per run than these (overlap, fence, ledger, due table, policy), so its
quotient says what all of that costs on this machine, today. Each loop answers rows per second.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable

import asyncpg

from bench.places import Place, PostgresPlace

BATCH = 1000

CLAIM = """UPDATE bare SET state = 1 WHERE id = ANY(ARRAY(
  SELECT id FROM bare WHERE state = 0 ORDER BY due_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING id"""
ADVANCE = """WITH a AS (UPDATE bare SET due_at = due_at + 3600000000 WHERE id = ANY($1::bigint[]) RETURNING id)
INSERT INTO made (id, state, due_at) SELECT id, 0::smallint, 0 FROM a"""


def _url(place: Place) -> str:
    assert isinstance(place, PostgresPlace)
    return place.url


async def _tables(connection: asyncpg.Connection, rows: int) -> None:
    for table in ("bare", "made"):
        await connection.execute(
            f"DROP TABLE IF EXISTS {table};"
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, state smallint NOT NULL, due_at bigint NOT NULL);"
            f"CREATE INDEX ON {table} (due_at) WHERE state = 0"
        )
    await connection.execute("INSERT INTO bare SELECT i, 0, i FROM generate_series(1, $1::bigint) i", rows)
    await connection.execute("VACUUM ANALYZE bare")


def _sqlite(place: Place, rows: int) -> sqlite3.Connection:
    connection = sqlite3.connect(place.directory / "bare.db", isolation_level=None, check_same_thread=False)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "PRAGMA wal_autocheckpoint = 8000",
        "DROP TABLE IF EXISTS bare",
        "DROP TABLE IF EXISTS made",
        "CREATE TABLE bare (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, due_at INTEGER NOT NULL) STRICT",
        "CREATE TABLE made (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, due_at INTEGER NOT NULL) STRICT",
        "CREATE INDEX bare_due ON bare (due_at) WHERE state = 0",
        "CREATE INDEX made_due ON made (due_at) WHERE state = 0",
    ):
        connection.execute(statement)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO bare VALUES (?, 0, ?)", ((i, i) for i in range(1, rows + 1)))
    connection.execute("COMMIT")
    return connection


async def _timed_on_sqlite(place: Place, rows: int, loop: Callable[[sqlite3.Connection], int]) -> float:
    """Run a loop in a thread; answers rows per second."""

    def work() -> float:
        connection = _sqlite(place, rows)
        began = time.perf_counter()
        done = loop(connection)
        seconds = time.perf_counter() - began
        connection.close()
        return done / seconds

    return await asyncio.to_thread(work)


# ── claim a thousand, delete a thousand ──


async def claim_and_delete(place: Place, rows: int) -> float:
    """Two commits per thousand rows: what a queue cannot do without."""
    if place.store == "sqlite":
        return await _timed_on_sqlite(place, rows, _claim_and_delete_sqlite)
    connection = await asyncpg.connect(_url(place))
    await _tables(connection, rows)
    began, done = time.perf_counter(), 0
    while claimed := await connection.fetch(CLAIM):
        await connection.execute("DELETE FROM bare WHERE id = ANY($1::bigint[])", [row[0] for row in claimed])
        done += len(claimed)
    seconds = time.perf_counter() - began
    await connection.close()
    return done / seconds


def _claim_and_delete_sqlite(connection: sqlite3.Connection) -> int:
    done = 0
    while True:
        ids = connection.execute(
            "UPDATE bare SET state = 1 WHERE id IN (SELECT id FROM bare WHERE state = 0 ORDER BY due_at LIMIT 1000)"
            " RETURNING id"
        ).fetchall()
        if not ids:
            return done
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM bare WHERE id = ?", ids)
        connection.execute("COMMIT")
        done += len(ids)


# ── advance a thousand, insert a thousand ──


async def advance_and_insert(place: Place, rows: int) -> float:
    """One commit per thousand rows: what firing cannot do without."""
    if place.store == "sqlite":
        return await _timed_on_sqlite(place, rows, lambda connection: _advance_sqlite(connection, rows))
    connection = await asyncpg.connect(_url(place))
    await _tables(connection, rows)
    began = time.perf_counter()
    for start in range(1, rows + 1, BATCH):
        await connection.execute(ADVANCE, list(range(start, start + BATCH)))
    seconds = time.perf_counter() - began
    await connection.close()
    return rows / seconds


def _advance_sqlite(connection: sqlite3.Connection, rows: int) -> int:
    for start in range(1, rows + 1, BATCH):
        ids = [(i,) for i in range(start, start + BATCH)]
        connection.execute("BEGIN")
        connection.executemany("UPDATE bare SET due_at = due_at + 3600000000 WHERE id = ?", ids)
        connection.executemany("INSERT INTO made VALUES (?, 0, 0)", ids)
        connection.execute("COMMIT")
    return rows


# ── load ──


async def copy(place: Place, rows: int) -> float:
    """Binary COPY of one narrow table, ten thousand rows a transaction."""
    records = [(i, 0, i) for i in range(1, rows + 1)]
    if place.store == "sqlite":
        return await _timed_on_sqlite(place, 0, lambda connection: _insert_sqlite(connection, records, 10_000))
    connection = await asyncpg.connect(_url(place))
    await _tables(connection, 0)
    began = time.perf_counter()
    for start in range(0, rows, 10_000):
        await connection.copy_records_to_table("bare", records=records[start : start + 10_000])
    seconds = time.perf_counter() - began
    await connection.close()
    return rows / seconds


def _insert_sqlite(connection: sqlite3.Connection, records: list[tuple[int, int, int]], batch: int) -> int:
    for start in range(0, len(records), batch):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO bare VALUES (?, ?, ?)", records[start : start + batch])
        connection.execute("COMMIT")
    return len(records)


async def insert_one_by_one(place: Place, rows: int, clients: int) -> float:
    """One row, one commit, many clients at once (on SQLite: one, because there is one writer)."""
    if place.store == "sqlite":
        records = [(i, 0, i) for i in range(1, rows + 1)]
        return await _timed_on_sqlite(place, 0, lambda connection: _insert_sqlite(connection, records, 1))
    connections = [await asyncpg.connect(_url(place)) for _ in range(clients)]
    await _tables(connections[0], 0)

    async def client(number: int, connection: asyncpg.Connection) -> None:
        for i in range(number, rows, clients):
            await connection.execute("INSERT INTO bare VALUES ($1, 0, $2)", i, i)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, connection in enumerate(connections):
            group.create_task(client(number, connection))
    seconds = time.perf_counter() - began
    for connection in connections:
        await connection.close()
    return rows / seconds
