"""What the handlers of this machine take, for whoever checks data before there is a run.

Their code is imported by a worker process that does nothing else, so that neither the server nor running work feels an
import that takes forever: such a one costs the process, and whoever asked goes on without an answer. It ends when
nobody has asked for a while, and a changed file is read by a new one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from horae.core.model import Json
from horae.discovery import loaded
from horae.errors import Invalid
from horae.executors.handlers.environments import worker_program
from horae.executors.handlers.messages import Description, Report, Setup
from horae.executors.handlers.processes import Pool, WorkerProcess
from horae.ports.clock import Clock
from horae.ports.work import Keeper

ANSWER_SECONDS = 5.0  # for a process to start and load what is asked for
FRESH_SECONDS = 1.0  # for which an answer is taken without a look at its files
UNKNOWN_SECONDS = 10.0  # until a handler that could not be described is asked for again
IDLE_SECONDS = 60.0  # without a question, after which the process ends
KEPT = 10_000  # handlers remembered

Stamp = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Known:
    schema: Json | None
    files: Sequence[str]
    stamp: Stamp
    looked_at: float


class Describer:
    """A HandlerSchemas port."""

    def __init__(self, keeper: Keeper, clock: Clock, jobs_directory: Path | None) -> None:
        self._keeper = keeper
        self._clock = clock
        jobs = None if jobs_directory is None else str(jobs_directory.absolute())  # links may be swapped
        self._setup = Setup(True, [*([jobs] if jobs else []), os.getcwd()], jobs)
        self._known: dict[str, _Known] = {}
        self._asking = asyncio.Lock()
        self._pool = Pool(self._launch, 1, clock)
        self._lives: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def load(self, names: Collection[str]) -> dict[str, Json]:
        """Return the JSON Schemas of the data of handlers, of those that are here and take data of some type."""
        if stale := [name for name in names if not self._is_fresh(name)]:
            await self._learn(stale)
        known = self._known
        return {name: schema for name in names if name in known and (schema := known[name].schema) is not None}

    async def close(self) -> None:
        self._is_closed = True
        self._end("the server was stopped")
        if self._lives:
            await asyncio.wait(self._lives)

    def _is_fresh(self, name: str) -> bool:
        known, now = self._known.get(name), self._clock.elapsed()
        if known is None:
            return False
        if now - known.looked_at < (FRESH_SECONDS if known.files else UNKNOWN_SECONDS):
            return True
        if known.files and _stamp(known.files) == known.stamp:
            known.looked_at = now
            return True
        if known.files:
            self._end("its code has changed")
        return False

    async def _learn(self, names: Sequence[str]) -> None:
        """Know of these handlers. Those of which there is no answer in time are unknown for a while."""
        if len(self._known) > KEPT:
            self._known.clear()
        here = {name: _own(name) for name in names}
        others = [name for name, own in here.items() if own is None]
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._asking:
                found = await self._ask([name for name in others if not self._is_fresh(name)]) if others else []
        except TimeoutError:
            self._end("it did not answer")
            found = [Description(name) for name in others]
        for each in [*found, *(own for own in here.values() if own is not None)]:
            self._keep(each)

    def _keep(self, it: Description) -> None:
        schema = None if it.schema is None else msgspec.json.decode(it.schema, type=Json)
        self._known[it.handler] = _Known(schema, it.files, _stamp(it.files), self._clock.elapsed())

    # ── the process ──

    async def _ask(self, names: Sequence[str]) -> Sequence[Description]:
        if not names or self._is_closed:
            return [Description(name) for name in names]
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end, "nobody asked")
        found = await self._pool.pick_shared().describe(names)
        if any(each.is_stale for each in found):
            self._end("its code has changed")
        return found or [Description(name) for name in names]

    def _launch(self, pool: Pool, is_shared: bool) -> WorkerProcess:
        worker = WorkerProcess(self._setup, pool, _ignore, worker_program(None))
        life = asyncio.get_running_loop().create_task(self._live(worker))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return worker

    async def _live(self, worker: WorkerProcess) -> None:
        try:
            await worker.live_through(self._keeper)
        except Exception:  # whatever it is, nobody can be told what handlers take, and runs tell it themselves
            worker.doom("it could not be started")
        finally:
            worker.doom("it ended")

    def _end(self, why: str) -> None:
        for worker in list(self._pool.shared):
            worker.doom(why)


def _own(name: str) -> Description | None:
    """Return what a handler takes whose code is in this process: a built-in one."""
    found = loaded(name)
    if found is None:
        return None
    try:
        schema = None if found.signature is None else found.signature.schema
    except Invalid:
        schema = None
    return Description(name, msgspec.json.encode(schema).decode() if schema else None, [__file__])


def _stamp(files: Sequence[str]) -> Stamp:
    return tuple(_look_at(file) for file in files)


def _look_at(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _ignore(worker: WorkerProcess, report: Report) -> None:
    """It has no runs."""
