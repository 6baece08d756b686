"""What the handlers of this machine take, for whoever checks data before there is a run.

Their code is imported by worker processes that do nothing else, so that neither the server nor running work feels an
import that takes forever: such a one costs the process, and whoever asked goes on without an answer. It ends when
nobody has asked for a while, and a changed file is read by a new one. Handlers that need packages are imported in an
environment of the describer's own, which no run may touch.
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
from horae.errors import Error, Invalid
from horae.executors.handlers.descriptions import description_of
from horae.executors.handlers.environments import Environments, worker_program
from horae.executors.handlers.messages import Description, Report, Setup
from horae.executors.handlers.processes import Pool, WorkerProcess
from horae.executors.handlers.requirements import Requirements
from horae.ports.clock import Clock
from horae.ports.work import Keeper

ANSWER_SECONDS = 5.0  # for a process to start and load what is asked for
FRESH_SECONDS = 1.0  # for which an answer is taken without a look at its files
UNKNOWN_SECONDS = 10.0  # until a handler that could not be described is asked for again
IDLE_SECONDS = 60.0  # without a question, after which the process ends
KEPT = 10_000  # handlers remembered
NOBODY = ""  # owns the environments in which handlers are only looked at

Stamp = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Known:
    schema: Json | None
    result: Json | None
    files: Sequence[str]
    stamp: Stamp
    looked_at: float


class Describer:
    """A HandlerSchemas port."""

    def __init__(
        self, keeper: Keeper, clock: Clock, jobs_directory: Path | None, environments: Path | None = None
    ) -> None:
        """`environments` as of PythonExecutor; without it, nobody can say what handlers take that need one."""
        self._keeper = keeper
        self._clock = clock
        self._jobs = None if jobs_directory is None else str(jobs_directory.absolute())  # links may be swapped
        self._environments = None if environments is None else Environments(keeper, environments)
        self._known: dict[str, _Known] = {}
        self._base = self._interpreter(None)
        self._others: dict[Path, _Interpreter] = {}  # by their environment
        self._builds: dict[Path, asyncio.Task[bool]] = {}
        self._is_closed = False

    async def load(self, names: Collection[str]) -> dict[str, Json]:
        """Return the JSON Schemas of the data of handlers, of those that are here and take data of some type."""
        if stale := [name for name in names if not self._is_fresh(name)]:
            await self._learn(stale)
        known = self._known
        return {name: schema for name in names if name in known and (schema := known[name].schema) is not None}

    async def load_result(self, name: str) -> Json | None:
        """Return the JSON Schema of what a handler returns, if it is here and says so."""
        await self.load((name,))
        known = self._known.get(name)
        return None if known is None else known.result

    async def close(self) -> None:
        self._is_closed = True
        for build in self._builds.values():
            build.cancel()
        await asyncio.gather(*self._builds.values(), return_exceptions=True)
        await asyncio.gather(*(each.close() for each in (self._base, *self._others.values())))

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
            for interpreter in (self._base, *self._others.values()):
                interpreter.end("its code has changed")
        return False

    async def _learn(self, names: Sequence[str]) -> None:
        """Know of these handlers. Those of which there is no answer in time are unknown for a while."""
        if len(self._known) > KEPT:
            self._known.clear()
        found = {name: _own(name) or Description(name) for name in names}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._ask([name for name, own in found.items() if not own.files], found)
        except TimeoutError:
            pass  # what is not found is unknown
        for each in found.values():
            self._keep(each)

    async def _ask(self, names: Sequence[str], found: dict[str, Description]) -> None:
        if not names or self._is_closed:
            return
        needy: dict[str, list[str]] = {}
        for each in await self._base.ask(names):
            found[each.handler] = each
            if each.requirements:
                needy.setdefault(each.requirements, []).append(each.handler)
        await asyncio.gather(*(self._ask_elsewhere(text, those, found) for text, those in needy.items()))

    async def _ask_elsewhere(self, requirements: str, names: Sequence[str], found: dict[str, Description]) -> None:
        """Ask where handlers have the packages that they need. What is not made in time is there for the next."""
        wanted = msgspec.json.decode(requirements, type=Requirements)
        if self._environments is None:
            return
        place = self._environments.place(wanted, NOBODY)
        if not self._environments.is_made(place) and not await self._make(self._environments, place, wanted):
            return
        if place not in self._others:
            self._others[place] = self._interpreter(place, wanted.digest)
        found.update((each.handler, each) for each in await self._others[place].ask(names))

    async def _make(self, environments: Environments, place: Path, wanted: Requirements) -> bool:
        """Return whether an environment was made. A build is of all who wait for it, and goes on when they give up."""
        build = self._builds.get(place)
        if build is None:
            build = self._builds[place] = asyncio.create_task(_build(environments, place, wanted))
            build.add_done_callback(lambda _: self._builds.pop(place, None))
        return await asyncio.shield(build)

    def _keep(self, it: Description) -> None:
        schema, result = (
            None if text is None else msgspec.json.decode(text, type=Json) for text in (it.schema, it.result)
        )
        self._known[it.handler] = _Known(schema, result, it.files, _stamp(it.files), self._clock.elapsed())

    def _interpreter(self, place: Path | None, digest: str = "") -> _Interpreter:
        setup = Setup(True, [*([self._jobs] if self._jobs else []), os.getcwd()], self._jobs, digest)
        return _Interpreter(self._keeper, self._clock, setup, place)


class _Interpreter:
    """A worker process in one environment, which starts when it is asked something."""

    def __init__(self, keeper: Keeper, clock: Clock, setup: Setup, place: Path | None) -> None:
        self._keeper = keeper
        self._setup = setup
        self._place = place
        self._pool = Pool(self._launch, 1, clock, place, setup.environment)
        self._asking = asyncio.Lock()
        self._lives: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, names: Sequence[str]) -> Sequence[Description]:
        """Return what handlers take, as far as it answers. Whoever gives up asking ends it: it may never answer."""
        async with self._asking:
            if self._idle is not None:
                self._idle.cancel()
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.end, "nobody asked")
            try:
                found = await self._pool.pick_shared().describe(names)
            except asyncio.CancelledError:
                self.end("it did not answer")
                raise
        if any(each.is_stale for each in found):
            self.end("its code has changed")
        return found

    def end(self, why: str) -> None:
        for worker in list(self._pool.shared):
            worker.doom(why)

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self.end("the server was stopped")
        if self._lives:
            await asyncio.wait(self._lives)

    def _launch(self, pool: Pool, is_shared: bool) -> WorkerProcess:
        worker = WorkerProcess(self._setup, pool, _ignore, worker_program(self._place))
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


async def _build(environments: Environments, place: Path, wanted: Requirements) -> bool:
    """Return whether it was made. Why not, the run says that needs it."""
    try:
        gone, _ = await environments.make(place, wanted, lambda _: None)
    except (Error, OSError):
        return False
    return gone.code == 0


def _own(name: str) -> Description | None:
    """Return what a handler takes whose code is in this process: a built-in one."""
    found = loaded(name)
    if found is None:
        return None
    try:
        return description_of(name, found, [__file__])
    except Invalid:
        return Description(name, None, [__file__])


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
