"""Connections to a file of SQLite: one that writes, some that read, and the lock that keeps others out."""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import structlog

from horae.errors import ConfigError, Unavailable
from horae.stores import limits, turns
from horae.stores.database import too_slow
from horae.stores.rows import Row

log = structlog.get_logger()
Write = Callable[[sqlite3.Connection], Any]
Outcome = tuple[Any, BaseException | None]  # what a write returned, or why it did not happen
BUSY_SECONDS = 5  # for which another process is waited for
WAL_PAGES = 8000  # of 4 KiB before the log is worked into the database
APPLICATION = 0x686F7261  # "hora", in the head of each file of ours
READERS = 2  # threads for what users read
STEPS = 200_000  # of SQLite's machine between two looks whether a read has taken too long: some milliseconds


class Writer(threading.Thread):
    """Carries out writes in the order they come, as many as wait in one transaction.

    It outlives whatever happens to a write: a connection that cannot even be rolled back is replaced.
    """

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="horae-sqlite-writer", daemon=True)
        self._path = path
        self._connection = connect(path)
        self._loop = loop
        self._waiting: queue.SimpleQueue[tuple[Write, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._is_stopped = False

    def put(self, write: Write, future: asyncio.Future[Any]) -> None:
        if self._is_stopped:
            raise Unavailable("the store is closed")
        self._waiting.put((write, future))

    def stop(self) -> None:
        self._is_stopped = True
        self._waiting.put(None)

    def run(self) -> None:
        stopping = False
        while not stopping:
            batch, stopping = self._take()
            if batch:
                outcomes = self._carry_out([write for write, _ in batch])
                futures = [future for _, future in batch]
                self._loop.call_soon_threadsafe(_settle, list(zip(futures, outcomes, strict=True)))
        self._connection.close()

    def _take(self) -> tuple[list[tuple[Write, asyncio.Future[Any]]], bool]:
        """Wait for one write, then take all that are there."""
        batch = []
        item = self._waiting.get()
        while item is not None:
            batch.append(item)
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _carry_out(self, writes: Sequence[Write]) -> list[Outcome]:
        try:
            return self._transact(writes)
        except BaseException as error:
            self._replace_connection()
            return [(None, _unwritten(error))] * len(writes)

    def _replace_connection(self) -> None:
        """A fresh one, with nothing begun; closing the old one gives up what it had begun."""
        try:
            self._connection.close()
            self._connection = connect(self._path)
        except sqlite3.Error as error:  # the next write tries again, and is refused with the reason
            log.error("database.unwritable", path=str(self._path), error=str(error))

    def _transact(self, writes: Sequence[Write]) -> list[Outcome]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(write, alone=len(writes) == 1) for write in writes]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return [(None, _unwritten(error))] * len(writes)
        return outcomes

    def _attempt(self, write: Write, *, alone: bool) -> Outcome:
        self._connection.execute("SAVEPOINT one") if not alone else None
        try:
            result = write(self._connection)
        except BaseException as error:
            if isinstance(error, sqlite3.OperationalError):  # a full disk, a broken file: it may pass
                error = _unwritten(error)
            if alone:
                self._connection.execute("ROLLBACK")
                self._connection.execute("BEGIN IMMEDIATE")
            else:
                self._connection.execute("ROLLBACK TO one")
                self._connection.execute("RELEASE one")
            return None, error
        self._connection.execute("RELEASE one") if not alone else None
        return result, None


def _unwritten(error: BaseException) -> Unavailable:
    refused = Unavailable(f"the database could not be written: {error}")
    refused.__cause__ = error
    return refused


def _settle(settled: Sequence[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for future, (result, error) in settled:
        if future.cancelled():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class Readers:
    """Threads that read, each with a connection of its own."""

    def __init__(self, path: Path, threads: int, name: str, *, is_limited: bool = False) -> None:
        """With a limit, a read that takes too long is given up, and one that waits too long for its turn is refused."""
        self._path = path
        self._threads = ThreadPoolExecutor(threads, f"horae-sqlite-{name}")
        self._free = asyncio.Semaphore(threads)
        self._is_limited = is_limited
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []

    async def fetch(self, statement: str, args: Sequence[Any]) -> Sequence[Row]:
        if not self._is_limited:
            return await self._run(statement, args, Deadline(float("inf")))
        async with turns.turn(self._free, turns.WAIT_SECONDS):
            return await self._run(statement, args, Deadline(time.monotonic() + limits.READ_TIME))

    async def _run(self, statement: str, args: Sequence[Any], limit: Deadline) -> Sequence[Row]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._read, statement, args, limit)
        finally:
            limit.at = 0.0  # should whoever asked be gone, the thread must not go on

    def _read(self, statement: str, args: Sequence[Any], limit: Deadline) -> Sequence[Row]:
        try:
            connection = self._connection()
            connection.set_progress_handler(limit.has_passed, STEPS)
            return list(connection.execute(statement, args))
        except sqlite3.Error as error:
            if limit.has_passed():
                raise too_slow() from error
            raise Unavailable(f"the database could not be read: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path)
            connection.execute("PRAGMA query_only = 1")
            self._open.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._open:
            connection.interrupt()
        self._threads.shutdown(cancel_futures=True)
        for connection in self._open:
            connection.close()


class Deadline:
    """When a read is given up, by the clock of the process."""

    def __init__(self, at: float) -> None:
        self.at = at

    def has_passed(self) -> bool:
        return time.monotonic() >= self.at


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    _write_ahead(connection)
    for pragma in (
        "synchronous = FULL",  # an answered request survives a power cut; batches share the cost
        f"busy_timeout = {BUSY_SECONDS * 1000}",
        "temp_store = MEMORY",
        "cache_size = -65536",
        "mmap_size = 268435456",
        f"wal_autocheckpoint = {WAL_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for a writer before it leaves the first journal of a new file, so we do."""
    deadline = Deadline(time.monotonic() + BUSY_SECONDS)
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or deadline.has_passed():
                raise
            time.sleep(0.01)


def sign(connection: sqlite3.Connection) -> None:
    """Say in the head of the file whose it is."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")


def refuse_foreign(path: Path) -> None:
    """Before anything is written: a file that is there must be ours, or empty."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"the database {path} cannot be opened: {error.strerror}", code="E_FILE") from None
    if head and not head.startswith(b"SQLite format 3\0"):
        raise _foreign(path, "is no SQLite database")
    number = int.from_bytes(head[68:72], "big")
    if number not in (0, APPLICATION):
        raise _foreign(path, f"belongs to another program: its application id is {number:#x}")
    if number == 0 and head and (stranger := _stranger(path)):
        raise _foreign(path, f"belongs to another program: it has a table {stranger}")


def _stranger(path: Path) -> str:
    """Return a table of somebody else in a file without ours; files of older versions say nothing but that they have
    ours."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            ours = [row[1] for row in connection.execute("PRAGMA table_info(migrations)")]
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be used as a database: {error}") from error
    return "" if ours == ["version", "name", "fingerprint"] or not tables else str(tables[0][0])


def _foreign(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path} {why}; nothing was changed in it",
        code="E_DB_FOREIGN",
        hint="give the path of a file that does not exist yet, or of one that Horae made",
    )


def lock_file(path: Path, holder: str) -> IO[str]:
    """Hold the database for this process, or say who does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_name(path.name + ".lock"), "a+", encoding="utf-8")  # noqa: SIM115 - held while open
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be written: {error.strerror}", code="E_FILE") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        who = lock.read().strip() or "another process"
        lock.close()
        raise ConfigError(
            f"{path} is in use by {who}; SQLite is for one server process",
            code="E_SINGLE_NODE_LOCK",
            hint="stop that one, give this one another --data directory, or use --database postgresql://…",
        ) from None
    lock.truncate(0)
    lock.write(f"pid {os.getpid()}{', ' + holder if holder else ''}\n")
    lock.flush()
    return lock
