"""`world()`: a whole Horae on a virtual clock, in a test's own process.

    with world() as horae:                        async with world() as horae:
        horae.submit({...})                           await horae.submit({...})
        horae.pass_time(days=30)                      await horae.pass_time(days=30)

Both are the same world: it has an event loop of its own, which the first runs in the test's thread, and the second in
another one while the test awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from horae.app.local_calls import Document, Job, Run, as_datetime
from horae.core.model import SECOND, Json, Moment
from horae.core.time.moments import parse_moment
from horae.errors import ConfigError, Error, Invalid
from horae.testing.adapters import Perform, Recorded
from horae.testing.clock import START
from horae.testing.engine import Engine

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(when: datetime | str) -> Moment:
    if isinstance(when, str):
        return parse_moment(when)
    if when.tzinfo is None:
        raise Invalid(f"a moment needs a time zone; got {when.isoformat()}", hint="datetime(..., tzinfo=UTC)")
    return (when - _EPOCH) // timedelta(microseconds=1)


def _refuse_loop() -> None:
    if asyncio._get_running_loop() is not None:
        raise Error("this world is for plain tests, and an event loop runs here: use `async with world()`")


class World:
    """A world for plain tests."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._do(engine.open())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            _refuse_loop()
        except Error:
            work.close()
            raise
        return self._engine.loop.run_until_complete(work)

    # ── jobs and runs ──
    def submit(self, document: Document) -> Job:
        """Submit one job: a mapping, in which the handler may be the function itself, or YAML, or a Path to it."""
        return self._do(self._engine.submit(document))

    def submit_all(self, document: Document) -> list[Job]:
        """Submit the jobs of a document `jobs: [...]`."""
        return self._do(self._engine.submit_all(document))

    def run_now(self, job: Job | int | str, data: Json | None = None) -> Run:
        """Run a job now; return its run as it stands when all has settled."""
        made: Run = self._do(self._engine.settled(self._engine.calls.run_now(job, data)))
        return self.run(made)

    def cancel(self, run: Run | int) -> Run:
        made: Run = self._do(self._engine.settled(self._engine.calls.cancel(run)))
        return self.run(made)

    def signal(self, run: Run | int, name: str, value: Any = None) -> Run:
        """Tell a run what it waits for, or will; return it as it stands when all has settled."""
        made: Run = self._do(self._engine.settled(self._engine.calls.signal(run, name, value)))
        return self.run(made)

    def pause(self, job: Job | int | str) -> Job:
        made: Job = self._do(self._engine.settled(self._engine.calls.pause(job)))
        return made

    def resume(self, job: Job | int | str) -> Job:
        made: Job = self._do(self._engine.settled(self._engine.calls.resume(job)))
        return made

    def delete(self, job: Job | int | str) -> None:
        self._do(self._engine.settled(self._engine.calls.delete(job)))

    def jobs(self) -> list[Job]:
        return self._do(self._engine.calls.jobs())

    def run(self, run: Run | int) -> Run:
        """Return a run as it stands now."""
        return self._do(self._engine.calls.run(run))

    def runs(self, job: Job | int | str | None = None, state: str | None = None) -> list[Run]:
        """Return runs in the order of their moments."""
        return self._do(self._engine.calls.runs(job, state))

    def log(self, run: Run | int, attempt: int | None = None) -> str:
        """Return what an attempt wrote; the latest, unless another is named."""
        return self._do(self._engine.calls.log(run, attempt))

    @property
    def recorded(self) -> list[Recorded]:
        """Work that was not Python, in the order in which it would have been done."""
        return list(self._engine.recorded)

    # ── time ──
    @property
    def now(self) -> datetime:
        return as_datetime(self._engine.clock.now())

    def pass_time(self, **span: float) -> None:
        """Let days, hours, minutes or seconds pass; whatever falls due on the way happens, in order."""
        self._do(self._engine.pass_until(self._after(span)))

    def pass_until(self, when: datetime | str) -> None:
        """Let time pass up to a moment."""
        self._do(self._engine.pass_until(_moment(when)))

    def outage(self, **span: float) -> None:
        """Let time pass while Horae is down: what falls due meanwhile is missed."""
        self._do(self._engine.outage(self._after(span)))

    def _after(self, span: dict[str, float]) -> Moment:
        try:
            seconds = timedelta(**span).total_seconds()
        except TypeError:
            raise Invalid(f"a span has days, hours, minutes or seconds; got {', '.join(span)}") from None
        if seconds <= 0:
            raise Invalid(f"time goes forward only; got {seconds:g} seconds", hint="for example days=30")
        return self._engine.clock.now() + round(seconds * SECOND)

    def close(self) -> None:
        loop = self._engine.loop
        try:
            self._do(self._engine.close())
        finally:
            loop.close()


class AsyncWorld:
    """A world for tests that are coroutines: as World, awaited."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def submit(self, document: Document) -> Job:
        return await asyncio.to_thread(self._world.submit, document)

    async def submit_all(self, document: Document) -> list[Job]:
        return await asyncio.to_thread(self._world.submit_all, document)

    async def run_now(self, job: Job | int | str, data: Json | None = None) -> Run:
        return await asyncio.to_thread(self._world.run_now, job, data)

    async def cancel(self, run: Run | int) -> Run:
        return await asyncio.to_thread(self._world.cancel, run)

    async def signal(self, run: Run | int, name: str, value: Any = None) -> Run:
        return await asyncio.to_thread(self._world.signal, run, name, value)

    async def pause(self, job: Job | int | str) -> Job:
        return await asyncio.to_thread(self._world.pause, job)

    async def resume(self, job: Job | int | str) -> Job:
        return await asyncio.to_thread(self._world.resume, job)

    async def delete(self, job: Job | int | str) -> None:
        await asyncio.to_thread(self._world.delete, job)

    async def jobs(self) -> list[Job]:
        return await asyncio.to_thread(self._world.jobs)

    async def run(self, run: Run | int) -> Run:
        return await asyncio.to_thread(self._world.run, run)

    async def runs(self, job: Job | int | str | None = None, state: str | None = None) -> list[Run]:
        return await asyncio.to_thread(self._world.runs, job, state)

    async def log(self, run: Run | int, attempt: int | None = None) -> str:
        return await asyncio.to_thread(self._world.log, run, attempt)

    @property
    def recorded(self) -> list[Recorded]:
        return self._world.recorded

    @property
    def now(self) -> datetime:
        return self._world.now

    async def pass_time(self, **span: float) -> None:
        await asyncio.to_thread(self._world.pass_time, **span)

    async def pass_until(self, when: datetime | str) -> None:
        await asyncio.to_thread(self._world.pass_until, when)

    async def outage(self, **span: float) -> None:
        await asyncio.to_thread(self._world.outage, **span)


class world:  # in lower case: it is called as a function is
    """A world, for `with` or `async with`."""

    def __init__(
        self,
        *,
        start: datetime | str | None = None,
        jobs_directory: str | Path | None = None,
        perform: Perform | None = None,
    ) -> None:
        """`start` is its first moment, 2027-01-15T08:00:00Z unless given. `jobs_directory` is where `jobs/NAME` lies,
        ./jobs unless given. Work that is not Python is recorded and succeeds, unless `perform` is given: it answers
        with an exit code, now or when awaited."""
        self._start = START if start is None else _moment(start)
        directory = Path("jobs" if jobs_directory is None else jobs_directory)
        if jobs_directory is not None and not directory.is_dir():
            raise ConfigError(f"the jobs directory {directory} is not there", path="jobs_directory")
        self._jobs_directory = directory.resolve() if directory.is_dir() else None
        self._perform = perform
        self._world: World | None = None

    def open(self) -> World:
        """Return the world; whoever does not use `with` closes it."""
        _refuse_loop()
        return World(Engine(self._start, self._jobs_directory, self._perform))

    def __enter__(self) -> World:
        self._world = self.open()
        return self._world

    def __exit__(self, *_: object) -> None:
        assert self._world is not None
        self._world.close()

    async def __aenter__(self) -> AsyncWorld:
        self._world = await asyncio.to_thread(self.open)
        return AsyncWorld(self._world)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._world is not None
        await asyncio.to_thread(self._world.close)
