"""The store on SQLite: one process, one writer thread, group commit; readers apart, by urgency.

All writes that wait are carried out in one transaction and share one fsync; each stands in its own
savepoint, so one that fails takes nobody with it. Rows travel in few, large steps: many rows in one
VALUES list, results as one JSON text. A step per row would hand the interpreter lock back and forth
between this thread and the event loop, and under load each hand-over can cost milliseconds.
"""

from __future__ import annotations

import asyncio
import copy
import fcntl
import json
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

import structlog

from horae.core.lifecycle import first_phase
from horae.core.model import Job, Lease, Moment, Overlap, Phase, State
from horae.errors import ConfigError, Invalid, Superseded, Unavailable
from horae.ports import (
    NEVER,
    Assignment,
    Backlog,
    Beat,
    Birth,
    Cancelled,
    Definition,
    Due,
    Finished,
    Fire,
    Fired,
    Idempotency,
    Lend,
    NewLine,
    Order,
    Receipt,
    Result,
    Sign,
    Submission,
    Swept,
    Waiting,
    Want,
)
from horae.stores import lanes, sql
from horae.stores.datawork import PATIENCE, DataWorkStore, has_cursors
from horae.stores.loans import Steps
from horae.stores.nodes import beat_of
from horae.stores.sql import Row, encode, from_json

log = structlog.get_logger()
T = TypeVar("T")
Write = Callable[[sqlite3.Connection], Any]
Outcome = tuple[Any, BaseException | None]  # what a write returned, or why it did not happen

CHUNKS = (1000, 100, 10, 1)  # rows per VALUES list: few sizes, so that every statement is prepared once
HAND_OVER = 0.001  # seconds the event loop may keep the interpreter lock while the writer waits for it
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
        async with lanes.turn(self._free, lanes.PATIENCE):
            return await self._run(statement, args, Deadline(time.monotonic() + sql.READ_TIME))

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
                raise sql.too_slow() from error
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


class SqliteStore(DataWorkStore):
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
        self._is_for_roles = False
        self._ids = {"job": 0, "trigger": 0, "run": 0}

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

    def for_roles(self) -> SqliteStore:
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

    # ── plumbing ──
    async def _do(self, write: Callable[[sqlite3.Connection], T]) -> T:
        if self._writer is None:
            raise Unavailable("the store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.put(write, future)
        try:
            return await future
        except (UnicodeEncodeError, OverflowError) as error:  # no text, or no number of 64 bits
            raise Invalid(f"the database cannot keep a value: {error}", code="E_CHAR") from error

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        return await (self._upkeep if self._is_for_roles else self._users).fetch(statement, args)

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        if self._is_for_roles and name in sql.URGENT:
            return await self._urgent.fetch(self.queries[name], args)
        return await self.read(self.queries[name], *args)

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        return await self._do(lambda connection: connection.execute(statement, args).fetchall())

    def _run(self, connection: sqlite3.Connection, name: str, *args: Any) -> sqlite3.Cursor:
        return connection.execute(self.queries[name], args)

    def _json(self, connection: sqlite3.Connection, name: str, *args: Any) -> Any:
        """The one JSON text a query answers with, read."""
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

    # ── definitions ──
    async def allocate(self, jobs: int, triggers: int) -> tuple[Sequence[int], Sequence[int]]:
        """From memory: the counters are stored with the rows that use them, so a crash loses nothing."""
        return self._next("job", jobs), self._next("trigger", triggers)

    def _next(self, name: str, count: int) -> range:
        first = self._ids[name] + 1
        self._ids[name] += count
        return range(first, first + count)

    def _save_ids(self, connection: sqlite3.Connection) -> None:
        self._run(connection, "save_ids", self._ids["job"], self._ids["trigger"], self._ids["run"])

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        def write(connection: sqlite3.Connection) -> list[Receipt]:
            known = self._known(connection, [s.idempotency for s in submissions])
            taken = self._taken(connection, [job for s in submissions for job in s.jobs if job.key])
            receipts: list[Receipt] = []
            jobs: list[Job] = []
            for submission in submissions:
                receipt = sql.judge(submission, known, taken)
                if receipt is None:
                    receipt = Receipt([job.id for job in submission.jobs])
                    sql.remember(submission, known, taken)
                    self._note(connection, submission.idempotency, receipt.ids)
                    jobs += submission.jobs
                receipts.append(receipt)
            self._rows(connection, "insert_jobs", [sql.job_values(job) for job in jobs])
            self._rows(connection, "insert_due", _due_rows(jobs))
            self._save_ids(connection)
            return receipts

        return await self._do(write)

    def _known(self, connection: sqlite3.Connection, keys: Sequence[Idempotency | None]) -> sql.Known:
        known: sql.Known = {}
        for key in filter(None, keys):
            row = self._run(connection, "load_idempotency", key.scope, key.key).fetchone()
            if row:
                known[key.scope, key.key] = (row[0], from_json(row[1]))
        return known

    def _taken(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> sql.Taken:
        keys = [(job.org, job.owner, job.key) for job in jobs]
        return {key for key in keys if self._run(connection, "load_key", *key).fetchone()}

    def _note(self, connection: sqlite3.Connection, key: Idempotency | None, ids: list[int]) -> None:
        if key:
            self._run(connection, "save_idempotency", key.scope, key.key, key.digest, encode(ids), self._clock())

    async def save_job(self, job: Job, expected_version: int, idempotency: Idempotency | None = None) -> Receipt | None:
        def write(connection: sqlite3.Connection) -> Receipt | None:
            if earlier := sql.replay(idempotency, self._known(connection, [idempotency])):
                return earlier
            row = self._run(connection, "lock_job", job.id).fetchone()
            if row is None or row[0] != expected_version:
                return None
            before = [doc["id"] for doc in from_json(row[1])]
            fired = {row[0]: row[2] for row in self._run(connection, "due_of", encode(before))}
            if sql.has_fired(job, fired):
                return None  # it fired meanwhile: the next moment must be worked out anew
            try:
                self._run(connection, "save_job", *sql.job_values(job))
            except sqlite3.IntegrityError as error:
                raise sql.key_taken(job) from error
            kept = {t.id for t in job.triggers}
            self._run(connection, "drop_due", encode([id for id in before if id not in kept]))
            for t in job.triggers:
                if t.id in fired:
                    self._run(connection, "save_due", t.id, _moment(t.next_at), job.version, job.segment)
            self._rows(connection, "insert_due", [row for row in _due_rows([job]) if row[0] not in fired])
            self._note(connection, idempotency, [job.id])
            self._save_ids(connection)
            return Receipt([job.id])

        return await self._do(write)

    async def delete_job(self, job_id: int, seen: Job | None = None) -> Cancelled | None:
        def write(connection: sqlite3.Connection) -> sql.Part | None:
            row = self._run(connection, "lock_job", job_id).fetchone()
            if row is None or (seen is not None and row[0] != seen.version):
                return None
            triggers = encode([doc["id"] for doc in from_json(row[1])])
            fired = {row[0]: row[2] for row in self._run(connection, "due_of", triggers)}
            if seen is not None and sql.has_fired(seen, fired):
                return None
            waiting = [row[0] for row in self._run(connection, "waiting_live", job_id, sql.BATCH)]
            if len(waiting) == sql.BATCH:
                return self._end(connection, waiting, "deleted", promote=False), False
            self._run(connection, "drop_due", triggers)
            self._run(connection, "bury_job", job_id, self._clock())
            runs = [row[0] for row in self._run(connection, "live_of_job", job_id)]
            return self._end(connection, runs, "deleted"), True

        return await sql.ended_in_parts(lambda: self._do(write))

    # ── firing ──
    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        rows = await self._get("load_due", encode(list(segments)), *after, until, limit)
        return [Due._make(row) for row in from_json(rows[0][0])]

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]:
        rows = await self._get("load_definitions", encode(list(trigger_ids)))
        return [sql.definition_from_row(row) for row in from_json(rows[0][0])]

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        def write(connection: sqlite3.Connection) -> Fired:
            now = self._clock()
            stale = self._stale(connection, terms) if terms else frozenset()
            ripe = [f for f in fires if f.newest <= now and f.newest < f.next_at and f.segment not in stale]
            held = self._holding(connection, ripe)
            run_ids = [f.reserved or next(fresh) for fresh in (iter(self._next("run", len(held))),) for f in held]
            advances = [
                (f.trigger_id, f.cur_at, f.next_at, f.last_at, run_id if f.reserve else None)
                for f, run_id in zip(held, run_ids, strict=True)
            ]
            self._rows(connection, "advance_due", advances)
            born = [(i, f.birth, f.trigger_id, f.due_at) for i, f in zip(run_ids, held, strict=True) if f.born]
            queued, skipped = self._bear(connection, born, now)
            self._pass(connection, held, run_ids, now)
            self._save_ids(connection)
            if lend is not None:
                lent = self._walk(connection, self._lend_runs(run_ids, lend, now))
                queued = max(0, queued - len(lent))  # one that took the place of a waiting run was not among them
            reserved = {f.trigger_id: run_id for f, run_id in zip(held, run_ids, strict=True) if f.reserve}
            return Fired({f.trigger_id for f in held}, queued, skipped, now, stale, reserved)

        return await self._do(write)

    def _stale(self, connection: sqlite3.Connection, terms: Mapping[int, int]) -> frozenset[int]:
        """Segments that have another term than the caller believes."""
        rows = self._run(connection, "load_segments")
        return frozenset(segment for segment, _, term in rows if terms.get(segment, term) != term)

    def _holding(self, connection: sqlite3.Connection, fires: Sequence[Fire]) -> Sequence[Fire]:
        """Those whose due row still says what the scheduler saw."""
        rows = [(f.trigger_id, f.cur_at, f.version) for f in fires]
        found: set[int] = set()
        for statement, values in self._chunks("match_due", rows) if rows else ():
            found.update(from_json(connection.execute(statement, values).fetchone()[0]))
        return fires if len(found) == len(fires) else [f for f in fires if f.trigger_id in found]

    def _bear(
        self,
        connection: sqlite3.Connection,
        births: Sequence[tuple[int, Birth, int | None, Moment]],
        now: Moment,
    ) -> tuple[int, int]:
        """Write new runs as their overlap policy decides; (queued, skipped)."""
        gated = [birth.job_id for _, birth, _, _ in births if birth.overlap != Overlap.ALLOW]
        taken = set(self._json(connection, "taken_gates", encode(gated))) if gated else set()
        live, past, late = [], [], []
        for run_id, birth, trigger_id, due_at in births:
            if birth.overlap == Overlap.ALLOW:
                live.append(_live_row(run_id, birth, trigger_id, due_at, now, None))
            elif birth.job_id not in taken:
                taken.add(birth.job_id)
                live.append(_live_row(run_id, birth, trigger_id, due_at, now, birth.job_id))
            elif birth.overlap == Overlap.FORBID:
                past.append(_skipped_row(run_id, birth, trigger_id, due_at, now, "another run of this job was live"))
            else:
                late.append((run_id, birth, trigger_id, due_at))
        self._rows(connection, "insert_live", live)
        self._rows(connection, "insert_history", past)
        skipped = sum(self._follow(connection, *item, now) for item in late)
        return len(live), len(past) + skipped

    def _follow(
        self,
        connection: sqlite3.Connection,
        run_id: int,
        birth: Birth,
        trigger_id: int | None,
        due_at: Moment,
        now: Moment,
    ) -> int:
        """Write a run that found its gate taken, under `queue` or `replace`. Returns 1 if it was skipped."""
        waiting = [row[0] for row in self._run(connection, "waiting_of_job", birth.job_id)]
        if birth.overlap == Overlap.QUEUE and len(waiting) >= birth.overlap_limit:
            why = f"{len(waiting)} runs of this job were waiting already"
            self._rows(connection, "insert_history", [_skipped_row(run_id, birth, trigger_id, due_at, now, why)])
            return 1
        holder = self._run(connection, "gate_holder", birth.job_id).fetchone()
        if birth.overlap == Overlap.REPLACE:
            ended = self._end(connection, [*waiting, *([holder[0]] if holder else [])], "replaced", promote=False)
            holder = holder if holder and holder[0] not in ended.ended else None
        gate = None if holder else birth.job_id
        self._rows(connection, "insert_live", [_live_row(run_id, birth, trigger_id, due_at, now, gate)])
        return 0

    def _pass(self, connection: sqlite3.Connection, fires: Sequence[Fire], run_ids: Sequence[int], now: Moment) -> None:
        passed = [
            (f, run_id, *moment) for f, run_id in zip(fires, run_ids, strict=True) if f.passed for moment in f.passed
        ]
        fresh = self._next("run", len(passed))
        rows = [
            _history_row(i, f.birth, f.trigger_id, at, now, state, reason, "", run_id if state == 15 else None)
            for i, (f, run_id, at, state, reason) in zip(fresh, passed, strict=True)
        ]
        self._rows(connection, "insert_history", rows)

    async def enqueue(self, orders: Sequence[Order]) -> list[Receipt]:
        def write(connection: sqlite3.Connection) -> list[Receipt]:
            now = self._clock()
            known = self._known(connection, [order.idempotency for order in orders])
            fresh = sql.first_of_each([o for o in orders if sql.replay(o.idempotency, known) is None])
            jobs = set(self._json(connection, "alive", encode([o.birth.job_id for o in fresh])))
            fresh = [o for o in fresh if o.birth.job_id in jobs]
            run_ids = self._next("run", len(fresh))
            births = [(run_id, o.birth, None, now) for run_id, o in zip(run_ids, fresh, strict=True)]
            self._bear(connection, births, now)
            self._save_ids(connection)
            made = [Receipt([run_id]) for run_id in run_ids]
            for order, receipt in zip(fresh, made, strict=True):
                self._note(connection, order.idempotency, receipt.ids)
            return sql.order_receipts(orders, fresh, made, known)

        return await self._do(write)

    # ── runs ──
    async def claim(self, wants: Sequence[Want], labels: Sequence[str] = ()) -> list[list[Assignment] | None]:
        def write(connection: sqlite3.Connection) -> list[list[Any] | None]:
            now, text = self._clock(), encode(list(labels))
            valid = [want for want in wants if self._may_claim(connection, want)]
            found = []
            for kind, room in sql.room_by_kind(valid).items():
                found += self._json(connection, "pick", kind, text, room, now)
            for want in valid:
                found += self._json(connection, "pick_pinned", want.kind, text, want.room, now, want.node)
            given = dict(zip(valid, sql.deal(valid, found), strict=True))
            for want, rows in given.items():
                ids = encode([row[2] for row in rows])
                self._run(connection, "claim", want.node, now, ids, first_phase(want.kind)) if rows else None
            return [given.get(want) for want in wants]

        answers = await self._do(write)
        return [None if rows is None else [Assignment(*row[2:]) for row in rows] for rows in answers]

    async def look_again(self, labels: Sequence[str]) -> float | None:
        return None

    def _may_claim(self, connection: sqlite3.Connection, want: Want) -> bool:
        return want.session is None or bool(self._run(connection, "may_claim", want.node, want.session).fetchone())

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]:
        rows = [row for kind in kinds for row in await self._get("load_backlog", kind, limit)]
        return [Backlog(row[0], row[1], from_json(row[2] or "[]"), row[3]) for row in rows]

    async def finish(self, results: Sequence[Result], waiting: Sequence[Waiting] = ()) -> Finished:
        def write(connection: sqlite3.Connection) -> Finished:
            ids = [r.run_id for r in results] + [w.result.run_id for w in waiting]
            current = {row[0]: row for row in self._json(connection, "match_running", encode(ids))}
            final, again = sql.settle(waiting, {run_id for run_id, row in current.items() if row[3]})
            ended = [r for r in (*results, *final) if r.run_id in current and current[r.run_id][1] == r.fence]
            now = self._clock()
            self._rows(
                connection, "archive", [_result_row(r, sql.place_in_time(r, current[r.run_id][4], now)) for r in ended]
            )
            self._run(connection, "drop_live", encode([r.run_id for r in ended]))
            jobs = [current[r.run_id][2] for r in ended if current[r.run_id][2] is not None]
            promoted = self._run(connection, "promote", encode(jobs)).rowcount if jobs else 0
            again = [w for w in again if w.result.run_id in current and current[w.result.run_id][1] == w.result.fence]
            for w in again:
                self._wait(connection, w, sql.place_in_time(w.result, current[w.result.run_id][4], now))
            if has_cursors(ended):
                self._walk(connection, self._move_cursors(ended, current, self._clock()))
            return Finished({r.run_id for r in ended} | {w.result.run_id for w in again}, promoted)

        return await self._do(write)

    def _wait(self, connection: sqlite3.Connection, waiting: Waiting, times: tuple[Moment | None, Moment]) -> None:
        r = waiting.result
        self._run(
            connection, "add_attempt", r.run_id, r.state, r.reason, *times, r.exit_code, r.message, r.output,
        )  # fmt: skip
        state, reason = (0, "") if waiting.eligible_at is None else (2, "retry")
        reason = "lost" if waiting.lost else reason
        self._run(connection, "wait", r.run_id, state, reason, waiting.eligible_at, int(waiting.lost))

    async def cancel(self, run_ids: Sequence[int], reason: str) -> Cancelled:
        return await self._do(lambda connection: self._end(connection, run_ids, reason))

    def _end(
        self, connection: sqlite3.Connection, run_ids: Sequence[int], reason: str, *, promote: bool = True
    ) -> Cancelled:
        rows = self._run(connection, "look_up_live", encode(list(run_ids))).fetchall()
        ended = [row[0] for row in rows if row[1] != State.RUNNING]
        asked = {row[0]: row[2] for row in rows if row[1] == State.RUNNING}
        self._bury(connection, ended, State.CANCELLED, reason, "")
        self._run(connection, "ask_cancel", encode(list(asked)), reason)
        jobs = [row[3] for row in rows if row[1] != State.RUNNING and row[3] is not None]
        promoted = self._run(connection, "promote", encode(jobs)).rowcount if jobs and promote else 0
        return Cancelled(set(ended), asked, promoted)

    def _bury(self, connection: sqlite3.Connection, ids: Sequence[int], state: State, reason: str, why: str) -> None:
        if ids:
            text = encode(list(ids))
            self._run(connection, "bury_live", text, self._clock(), state, reason, why)
            self._run(connection, "drop_live", text)

    async def sweep(self) -> Swept:
        eligible, start_by, orphans = (await self._get("look_over"))[0]
        now = self._clock()
        due = [moment for moment in (eligible, start_by) if moment is not None]
        if orphans == "[]" and not any(moment <= now for moment in due):
            return Swept(0, 0, min(due, default=None))

        def write(connection: sqlite3.Connection) -> Swept:
            self._run(connection, "postpone", now, now + PATIENCE, sql.BATCH)
            released = self._run(connection, "release", now, sql.BATCH).rowcount
            expired = self._run(connection, "expired", now, sql.BATCH).fetchall()
            why = "no agent took it before its start deadline"
            self._bury(connection, [row[0] for row in expired], State.SKIPPED, "start_deadline", why)
            jobs = [row[1] for row in expired if row[1] is not None] + from_json(orphans)
            promoted = self._run(connection, "promote", encode(jobs)).rowcount if jobs else 0
            return Swept(released + promoted, len(expired), now)

        return await self._do(write)

    async def set_phases(self, phases: Sequence[tuple[int, int, Phase]], *, session: int | None = None) -> None:
        await self._put("set_phases", encode(list(phases)), session)

    async def fail_unrunnable(self, kinds: Sequence[str], message: str, remedies: Mapping[str, str]) -> int:
        def write(connection: sqlite3.Connection) -> int:
            found = self._run(connection, "unrunnable", encode(list(kinds)), sql.BATCH).fetchall()
            for kind in {row[1] for row in found}:
                words = f"{message}: {remedies[kind]}" if kind in remedies else message
                self._bury(connection, [row[0] for row in found if row[1] == kind], State.FAILED, "no_agent", words)
            return len(found)

        return await self._do(write)

    async def mark_unlabelled(self, agents: Sequence[Sequence[str]]) -> int:
        text = encode([list(labels) for labels in agents])
        return await self._do(lambda connection: self._run(connection, "mark_unlabelled", text, sql.BATCH).rowcount)

    async def purge(self, run_ids: Sequence[int]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            ids = encode(list(run_ids))
            self._run(connection, "purge_attempts", ids)
            jobs = {row[0] for row in self._run(connection, "purge", ids).fetchall()}
            self._run(connection, "forget_untold", ids)
            self._run(connection, "drop_cursors", encode(sorted(jobs)))

        await self._do(write)

    # ── nodes and leases ──
    async def open_lines(self, lines: Sequence[NewLine]) -> list[int | None]:
        def write(connection: sqlite3.Connection) -> list[int | None]:
            return [self._open_line(connection, line) for line in lines]

        return await self._do(write)

    def _open_line(self, connection: sqlite3.Connection, line: NewLine) -> int | None:
        opened = self._run(connection, "open_line", *line).fetchone()
        is_known = opened is not None or self._run(connection, "session_of", line.name).fetchone() is not None
        return int(opened[0]) if opened is not None else None if is_known else 0

    async def _beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        def write(connection: sqlite3.Connection) -> list[Beat | Superseded | None]:
            return [self._beat_one(connection, sign) for sign in signs]

        return await self._do(write)

    def _beat_one(self, connection: sqlite3.Connection, sign: Sign) -> Beat | Superseded | None:
        own = self._run(connection, "beat", sign.name, sign.busy, self._clock(), sign.session).fetchone()
        if own is None:
            return beat_of(sign, self._run(connection, "session_of", sign.name).fetchall())
        books = self._run(connection, "digest_of", sign.name).fetchone() if sign.held is not None else None
        return beat_of(sign, [(*own, books), *self._run(connection, "cancels_of", sign.name)])

    async def assign_segments(self, moves: dict[int, str], lease: Lease) -> bool:
        text = json.dumps(moves)
        rows = await self._put("assign_segments", text, lease.name, lease.owner, lease.term)
        return len(rows) == len(moves)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",  # an answered request survives a power cut; batches share the cost
        "busy_timeout = 5000",
        "temp_store = MEMORY",
        "cache_size = -65536",
        "mmap_size = 268435456",
        f"wal_autocheckpoint = {WAL_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


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
    """A table of somebody else in a file without ours; files of older versions say nothing but that they have ours."""
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


@lru_cache(maxsize=256)
def _with_rows(statement: str, count: int, width: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return statement.replace("{rows}", ",".join([row] * count))


def _moment(moment: Moment | None) -> Moment:
    return NEVER if moment is None else moment


def _due_rows(jobs: Sequence[Job]) -> list[tuple[Any, ...]]:
    return [(t.id, job.id, _moment(t.next_at), job.version, job.segment) for job in jobs for t in job.triggers]


def _live_row(
    run_id: int, birth: Birth, trigger_id: int | None, due_at: Moment, now: Moment, gate: int | None
) -> tuple[Any, ...]:
    """A run that waits for an agent, or, without the gate it needs, for its predecessor."""
    blocked = gate is None and birth.overlap != Overlap.ALLOW
    return (
        run_id, birth.job_id, trigger_id, due_at, now, gate, birth.start_by, 2 if blocked else 0,
        "overlap" if blocked else "", birth.priority, birth.overlap, birth.kind,
        encode(birth.needs) if birth.needs else None, birth.data, birth.pin,
    )  # fmt: skip


def _history_row(
    run_id: int,
    birth: Birth,
    trigger_id: int | None,
    due_at: Moment,
    now: Moment,
    state: int,
    reason: str,
    message: str,
    into: int | None,
) -> tuple[Any, ...]:
    return (
        run_id, birth.job_id, trigger_id, due_at, now, None, now, into, 0, None, int(state), 0, birth.priority, 0,
        birth.kind, reason, None, message, None, None, birth.data,
    )  # fmt: skip


def _skipped_row(
    run_id: int, birth: Birth, trigger_id: int | None, due_at: Moment, now: Moment, message: str
) -> tuple[Any, ...]:
    return _history_row(run_id, birth, trigger_id, due_at, now, State.SKIPPED, "overlap", message, None)


def _result_row(r: Result, times: tuple[Moment | None, Moment]) -> tuple[Any, ...]:
    return r.run_id, int(r.state), r.reason, *times, r.exit_code, r.message, r.result, r.output
