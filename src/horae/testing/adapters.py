"""What a world has in place of a machine: a database and output in memory, work that is only recorded."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from horae.core.model import Json, Moment, Reason, State
from horae.core.runs.orders import Result
from horae.errors import Invalid, Unavailable
from horae.ports.outputs import Output, Written
from horae.ports.work import Command, Done, Kept, Process, Work
from horae.stores import migrate
from horae.stores.rows import Row
from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite.connections import connect

T = TypeVar("T")
MEMORY = Path(":memory:")


# ── the database ───────────────────────────────────────────────────────────────────────────────────


@cache
def _template() -> sqlite3.Connection:
    """Return an empty database with our tables: made once in a process."""
    connection = connect(MEMORY)
    connection.execute("BEGIN EXCLUSIVE")
    migrate._migrate_sqlite(connection, check=False)
    connection.execute("COMMIT")
    return connection


class MemoryStore(SqliteStore):
    """The store on SQLite, in memory and without threads: every statement is done when it is asked for."""

    def __init__(self, clock: Callable[[], Moment]) -> None:
        super().__init__(MEMORY, clock=clock)
        self._connection = connect(MEMORY)
        _template().backup(self._connection)
        self._ids = dict(self._connection.execute(self.queries["load_ids"]).fetchall())
        self._connection.execute("BEGIN")  # and never COMMIT, which is dear: all of it goes with the world

    async def _do(self, write: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        connection.execute("SAVEPOINT one")
        try:
            result = write(connection)
        except BaseException as error:
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            if isinstance(error, (UnicodeEncodeError, OverflowError)):  # as the store of a server says it
                raise Invalid(f"the database cannot keep a value: {error}", code="E_CHAR") from error
            raise
        connection.execute("RELEASE one")
        return result

    def _stale(self, connection: sqlite3.Connection, terms: Mapping[int, int]) -> frozenset[int]:
        """Nobody else could own a segment."""
        return frozenset()

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        return self._connection.execute(statement, args).fetchall()

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        return self._connection.execute(self.queries[name], args).fetchall()

    async def close(self) -> None:
        await super().close()
        self._connection.close()


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


class MemoryOutputs:
    """Logs of attempts, by name."""

    is_shared = True

    def __init__(self) -> None:
        self.logs: dict[str, bytearray] = {}

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        return f"{run_id}/{attempt}-{fence}"

    def file_ref(self, ref: str, number: int) -> str:
        return f"{ref}-files/{number}"

    def artifact_ref(self, ref: str, path: str) -> str:
        return f"{ref}-artifacts/{path}"

    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        return _MemoryOutput(self.logs, self.ref(run_id, attempt, fence))

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        raise Unavailable("no work outlives a world")

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        raise Unavailable("a world has no remote agents")

    async def stored_sizes(self, ref: str) -> list[int]:
        return [len(self.logs.get(ref, b""))]

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None:
        raise Unavailable("a world keeps no files")

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        return bytes(self.logs.get(ref, b"")[offset : offset + limit])

    async def size(self, ref: str) -> int:
        return len(self.logs.get(ref, b""))

    async def written(self, ref: str, offset: int, limit: int) -> list[Written]:
        return []  # the clock of a world is not that of its memory

    def changed(self, ref: str) -> Awaitable[None]:
        return asyncio.sleep(0)


class _MemoryOutput:
    is_full = False
    has_gaps = False

    def __init__(self, logs: dict[str, bytearray], ref: str) -> None:
        self._logs = logs
        self._ref = ref

    def write(self, data: bytes) -> None:
        self._logs.setdefault(self._ref, bytearray()).extend(data)

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    @property
    def ref(self) -> str | None:
        return self._ref if self._ref in self._logs else None

    async def attach(self, number: int, file: BinaryIO, size: int, path: str) -> int:
        raise Unavailable("a world keeps no files")

    async def close(self) -> None:
        """Everything is there already."""


# ── work ───────────────────────────────────────────────────────────────────────────────────────────


class NoKeeper:
    """Nothing is started, so there is nothing to kill."""

    kept: Sequence[Kept] = ()
    keeps = False
    is_alive = True

    async def open(self) -> None:
        """Nothing to do."""

    def note(self, name: str, memo: str) -> None:
        """Nothing is held."""

    def release(self, name: str) -> None:
        """Nothing is held."""

    def renew(self, seconds: float) -> None:
        """Nothing would be killed."""

    async def spawn(self, command: Command) -> Process:
        raise Unavailable("a world starts no processes")

    async def leave(self) -> None:
        """Nothing is left."""

    async def close(self) -> None:
        """Nothing is left."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Work of a kind that a world does not do: what would have been done."""

    run_id: int
    job: str  # its name
    kind: str
    attempt: int
    spec: Json
    data: str | None  # JSON text

    @property
    def commands(self) -> list[str]:
        """The commands of shell steps."""
        return [step["run"] for step in self.spec.get("steps", ())] or [self.spec["script"]] * ("script" in self.spec)


Perform = Callable[[Recorded], Any]  # answers with an exit code, now or when awaited; nothing is success


class Recorder:
    """Does work of one kind by writing it down."""

    def __init__(self, kind: str, slots: int, record: Perform, now: Callable[[], Moment]) -> None:
        self.kind = kind
        self.slots = slots
        self._record = record
        self._now = now
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopped: dict[int, str] = {}  # run → why

    async def open(self) -> None:
        """Nothing to do."""

    def start(self, works: Sequence[Work], done: Done) -> None:
        for work in works:
            run_id = work.assignment.run_id
            self._tasks[run_id] = asyncio.create_task(self._execute(work, done))

    def stop(self, run_id: int, reason: str) -> None:
        if run_id in self._tasks:
            self._stopped.setdefault(run_id, reason)
            # Not before its first step, or it would never end.
            asyncio.get_running_loop().call_soon(self._tasks[run_id].cancel)

    async def _execute(self, work: Work, done: Done) -> None:
        given = work.assignment
        recorded = Recorded(given.run_id, given.name, self.kind, given.attempt, work.spec, given.data)
        result = Result(given.run_id, given.fence, State.SUCCEEDED, "", work.started_at)
        for command in recorded.commands:
            work.output.write(f"$ {command}\n".encode())
        try:
            code = self._record(recorded)
            result.exit_code = (await code if inspect.isawaitable(code) else code) or 0
            if result.exit_code:
                result.state, result.reason = State.FAILED, Reason.EXIT
        except asyncio.CancelledError:
            reason = self._stopped.get(given.run_id, Reason.LOST)
            states = {Reason.TIMEOUT: State.TIMED_OUT, Reason.LOST: State.FAILED}
            result.state, result.reason = states.get(Reason(reason), State.CANCELLED), reason
        except Exception as error:
            result.state, result.reason, result.message = State.FAILED, Reason.ERROR, f"{type(error).__name__}: {error}"
        result.finished_at, result.output = self._now(), work.output.ref
        self._tasks.pop(given.run_id)
        self._stopped.pop(given.run_id, None)
        done(result)

    async def close(self) -> None:
        for run_id in list(self._tasks):
            self.stop(run_id, Reason.LOST)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
