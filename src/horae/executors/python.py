"""The executor of kind "python": runs handlers inline, in shared workers, or in a worker of their own.

    inline   built-ins and @handler(inline=True): tasks of the agent's own event loop, trusted
    async    `async def`: many at a time in each of a few shared workers, one event loop per process
    sync     `def`: one at a time in a worker of its own; the rest wait here for a free one

The agent never imports a job's code to find out which it is: the first call of a handler goes to a shared
worker, which runs it or says that it is of another sort. Only code that says `inline=True` is then
imported here. Workers are started by the keeper when first needed, and stay.

What must stay true: every work leads to one call of `done`, after its output is stored; a work that was
asked to stop ends as that asked, whatever its handler made of it; whatever happens to a worker, its runs
end only when the keeper says that the whole process tree is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from horae.core.model import Json, Moment, Reason, State
from horae.errors import Invalid, Unavailable, machine_fault
from horae.executors.keeper import LEASE_RAN_OUT
from horae.executors.process import DIED, GRACE
from horae.executors.worker import (
    Call,
    End,
    Frames,
    Orders,
    Report,
    Setup,
    extend_path,
    frame,
    raised,
    read_data,
    read_previous,
    refused,
    returned,
)
from horae.handlers import Context, Function, loaded, resolve
from horae.ports import Clock, Command, Done, Exit, Keeper, Process, Result, Work

SHARE = 100  # runs in every shared worker before one more is started
ROUTES = 10_000  # distinct specs remembered
KILL_GRACE = 1.0  # seconds from TERM to KILL for a worker that has had its grace already
PIPE_READ = 64 * 1024
PIPE_READS = 16  # at a time: more than a pipe holds, and not so much that others starve
INHERITED = ("PATH", "HOME", "LANG", "PYTHONPATH")

STATES = {int(state): state for state in State}  # calling the enum takes ten times as long
CLOSED = "closed"  # stands where a reason to stop does while the executor closes

log = logging.getLogger("horae.python")


class _Route:
    """What is known about one spec."""

    __slots__ = ("data", "function", "name", "sort")

    def __init__(self, spec: Json) -> None:
        self.name = str(spec.get("handler", ""))
        self.data: str | None = msgspec.json.encode(spec["data"]).decode() if spec.get("data") else None
        found = loaded(self.name)
        self.function = found.function if found is not None and found.inline else None
        self.sort = "inline" if self.function is not None else "async"


class _Live:
    """One work under way; for an inline handler also the channel of its context."""

    __slots__ = ("done", "route", "run_id", "started_at", "stopped", "task", "work", "worker")

    def __init__(self, work: Work, route: _Route, done: Done) -> None:
        self.work = work
        self.run_id = work.assignment.run_id
        self.route = route
        self.done = done
        self.started_at = work.started_at
        self.worker: _Worker | None = None
        self.task: asyncio.Task[None] | None = None  # that runs it inline
        self.stopped: str | None = None  # why

    def write(self, data: bytes) -> None:
        self.work.output.write(data)

    def is_stopped(self) -> bool:
        return self.stopped is not None

    def env(self) -> dict[str, str]:
        """Of this attempt: equal specs may have other secrets the next time."""
        return self.work.spec.get("env") or {}

    def data(self) -> str | None:
        """The trigger's or the request's, else the job's own."""
        given = self.work.assignment.data
        return self.route.data if given is None else given


class PythonExecutor:
    kind = "python"

    def __init__(
        self,
        keeper: Keeper,
        clock: Clock,
        *,
        slots: int = 1000,
        processes: int | None = None,
        jobs_directory: Path | None = None,
        search_path: Sequence[str] = (),
        grace: float = GRACE,
    ) -> None:
        """`processes` bounds the shared workers and the others alike; the default is one per core.
        `grace` is how long a run that was asked to stop may take before its process is killed."""
        self.slots = slots
        self._processes = processes or os.cpu_count() or 1
        self._jobs_directory = None if jobs_directory is None else jobs_directory.resolve()
        places = [str(self._jobs_directory)] if self._jobs_directory else []
        self._search_path = [*places, *search_path, os.getcwd()]
        self._keeper = keeper
        self._clock = clock
        self._grace = grace
        self._routes: dict[str, _Route] = {}
        self._live: dict[int, _Live] = {}
        self._shared: list[_Worker] = []
        self._sole: list[_Worker] = []
        self._waiting: dict[int, _Live] = {}  # plain handlers without a process, in order
        self._inline: deque[_Live] = deque()  # not begun
        self._carriers: set[asyncio.Task[None]] = set()
        self._will_carry = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def open(self) -> None:
        """Nothing to do: workers start when they are needed."""

    def start(self, works: Sequence[Work], done: Done) -> None:
        begin = self._begin
        routes = self._routes
        live_runs = self._live
        for work in works:
            route = routes.get(work.assignment.spec) or self._new_route(work)
            live = live_runs[work.assignment.run_id] = _Live(work, route, done)
            begin(live)
        for worker in self._shared:
            worker.flush()

    def stop(self, run_id: int, reason: str) -> None:
        live = self._live.get(run_id)
        if live is None or live.stopped is not None:
            return
        live.stopped = reason
        if self._waiting.pop(run_id, None) is not None:
            self._end(live, End(run_id, State.CANCELLED), self._clock.now())
        elif live.worker is not None:
            live.worker.stop(run_id)
            asyncio.get_running_loop().call_later(self._grace, self._condemn, live)
        elif live.task is not None:
            live.task.cancel()

    async def close(self) -> None:
        """What waits is handed back; what runs ends as failed. An inline handler that will not stop is
        left behind after the grace."""
        self._is_closed = True
        for live in [*self._waiting.values(), *self._inline]:
            self._end(live, End(live.run_id, State.QUEUED), self._clock.now())
        self._waiting.clear()
        self._inline.clear()
        for run_id in list(self._live):
            self.stop(run_id, CLOSED)
        for worker in [*self._shared, *self._sole]:
            worker.doom("the agent was stopped")
        if self._carriers:
            await asyncio.wait(self._carriers, timeout=self._grace)
        for live in [each for each in self._live.values() if each.task is not None]:
            self._end(live, End(live.run_id, State.FAILED), self._clock.now())
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ── the three ways ──

    def _new_route(self, work: Work) -> _Route:
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        route = self._routes[work.assignment.spec] = _Route(work.spec)
        return route

    def _begin(self, live: _Live) -> None:
        """Shared workers are flushed by the caller, so that a batch is one frame."""
        if self._is_closed:
            self._end(live, End(live.run_id, State.QUEUED), self._clock.now())
        elif live.route.function is not None:
            self._inline.append(live)
            if not self._will_carry:
                self._carry_on()
        elif live.route.sort == "sync":
            self._waiting[live.run_id] = live
            self._feed_sole()
        else:
            self._pick_shared().give(live)

    def _carry_on(self) -> None:
        """A task carries inline runs one after the other until one of them has to wait; what is left then
        is found here and carried by the next task. So handlers that never wait share one task."""
        self._will_carry = bool(self._inline)
        if self._will_carry:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._carry())
            self._carriers.add(task)
            task.add_done_callback(self._carriers.discard)
            loop.call_soon(self._carry_on)  # runs right after the task's first step

    async def _carry(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while self._inline and not task.cancelling():  # once cancelled, it is no place for another run
            live = self._inline.popleft()
            live.task = task
            try:
                end = await self._call_inline(live)
            except BaseException as error:
                end = raised(live.run_id, error, live)
            self._end(live, end, self._clock.now())

    async def _call_inline(self, live: _Live) -> End:
        function = live.route.function
        if live.stopped is not None or function is None:
            return End(live.run_id, State.CANCELLED)
        given = live.work.assignment
        context = Context(
            live,
            given.run_id,
            given.attempt,
            given.fence,
            given.job_id,
            given.name,
            given.due_at,
            read_data(live.data()),
            {**live.env()},
            read_previous(live.work.previous),
        )
        return returned(live.run_id, await function(context))

    def _pick_shared(self) -> _Worker:
        """The least loaded; one more process when all of them have plenty."""
        best = min(self._shared, key=_Worker.load, default=None)
        if best is None or (best.load() >= SHARE and len(self._shared) < self._processes):
            best = self._launch(self._shared, is_shared=True)
        return best

    def _feed_sole(self) -> None:
        """Give waiting plain handlers to idle processes, and start processes while there may be more."""
        while self._waiting:
            worker = next((each for each in self._sole if not each.live), None)
            if worker is None and len(self._sole) < self._processes:
                worker = self._launch(self._sole, is_shared=False)
            if worker is None:
                return
            live = self._waiting.pop(next(iter(self._waiting)))
            live.started_at = self._clock.now()
            worker.give(live)
            worker.flush()

    # ── what becomes of them ──

    def _report(self, worker: _Worker, report: Report) -> None:
        """Take what a worker said."""
        for run_id, data in report.output.items():
            if (live := worker.live.get(run_id)) is not None:
                live.write(data)
        now = self._clock.now()
        for end in report.ends:
            live = worker.live.pop(end.run_id, None)
            if live is None:
                continue
            live.worker = None
            if end.state == State.QUEUED and live.stopped is None:
                self._move(live, end.message)
            else:
                self._end(live, end, now)
        if self._waiting:
            self._feed_sole()

    def _move(self, live: _Live, sort: str) -> None:
        """Begin again the way a worker said is right for this handler."""
        live.route.sort = sort
        if sort == "inline" and live.route.function is None:
            try:
                live.route.function = self._load_inline(live.route.name)
            except Invalid as error:
                self._end(live, refused(live.run_id, error, live), self._clock.now())
                return
        self._begin(live)

    def _load_inline(self, name: str) -> Function:
        extend_path(self._search_path)
        found = resolve(name, self._jobs_directory)
        if not found.inline:
            raise Invalid(f"{name} was inline in a worker and is not here: restart the agent", code="E_HANDLER")
        return found.function

    def _condemn(self, live: _Live) -> None:
        """A run that was asked to stop has had its grace."""
        if live.worker is not None and self._live.get(live.run_id) is live:
            live.worker.doom(f"the worker process was killed because run {live.run_id}, which shared it, did not stop")

    def _end(self, live: _Live, end: End, now: Moment, failure: Reason = Reason.ERROR, ailment: str = "") -> None:
        if self._live.pop(live.run_id, None) is None:
            return
        result = _result(live, end, now, failure)
        result.ailment = ailment
        if result.output is None:
            live.done(result)
        else:
            self._keep(self._store(live, result))

    async def _store(self, live: _Live, result: Result) -> None:
        try:
            await live.work.output.close()
        except Exception as error:  # whatever it is, the run has ended and its result must be told
            log.warning("output of run %d: %s", live.run_id, error)
            result.message = result.message or f"the output is incomplete: {error}"
            result.ailment = result.ailment or machine_fault(error)
        live.done(result)

    # ── workers ──

    def _launch(self, pool: list[_Worker], *, is_shared: bool) -> _Worker:
        jobs = None if self._jobs_directory is None else str(self._jobs_directory)
        worker = _Worker(Setup(is_shared, self._search_path, jobs), pool, self._report)
        self._keep(self._attend(worker))
        return worker

    async def _attend(self, worker: _Worker) -> None:
        """The whole life of a worker: start it, wait until it is lost or doomed, bury it."""
        is_lost = False
        try:
            gone = await worker.live_through(self._keeper)
            is_lost = gone.message in (LEASE_RAN_OUT, DIED.message) or gone.reason == Reason.LOST
        except Unavailable as error:
            gone, is_lost = Exit(-1, error.message), True
        except Exception as error:
            ailment = machine_fault(error)
            gone, is_lost = Exit(-1, ailment or str(error), ailment=ailment), bool(ailment)
        worker.doom("")
        now = self._clock.now()
        failure = Reason.LOST if is_lost else Reason.ERROR
        for live in list(worker.live.values()):
            self._end(live, End(live.run_id, State.FAILED, worker.epitaph(gone)), now, failure, gone.ailment)
        worker.live.clear()
        self._feed_sole()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _result(live: _Live, end: End, now: Moment, failure: Reason) -> Result:
    """`failure` is why, if it failed: lost with the agent's keeper, it does not count as a try."""
    given = live.work.assignment
    result = Result(live.run_id, given.fence, STATES[end.state], "", live.started_at, now)
    result.output = live.work.output.ref
    if live.stopped is not None:
        _mark_stopped(result, live)
        return result
    result.message = end.message
    result.result = end.result
    result.retry_after = end.retry_after
    if end.state == State.FAILED:
        result.reason = failure
    elif end.state == State.CANCELLED:
        result.reason = Reason.REQUESTED
        result.final = True
    return result


def _mark_stopped(result: Result, live: _Live) -> None:
    assert live.stopped is not None
    if live.stopped == CLOSED:
        result.state, result.reason, result.message = State.FAILED, Reason.ERROR, "the agent was stopped"
        return
    is_late = live.stopped == Reason.TIMEOUT
    result.state = State.TIMED_OUT if is_late else State.CANCELLED
    result.reason = live.stopped
    if is_late and live.work.timeout_seconds is not None:
        result.message = f"the attempt ran longer than {live.work.timeout_seconds:g} s"


class _Worker(asyncio.Protocol):
    """One worker process, seen from the agent. While it stands in its pool it may be given calls."""

    def __init__(self, setup: Setup, pool: list[_Worker], report: Callable[[_Worker, Report], None]) -> None:
        self.live: dict[int, _Live] = {}
        self._setup = setup
        self._pool = pool
        self._report = report
        self._calls: list[Call] = []
        self._stops: list[int] = []
        self._frames = Frames()
        self._reports = msgspec.msgpack.Decoder(Report)
        self._transport: asyncio.Transport | None = None
        self._over = asyncio.Event()
        self._why = ""  # it was killed
        self._pipe = -1
        self._pid = 0
        pool.append(self)

    def load(self) -> int:
        return len(self.live)

    def give(self, live: _Live) -> None:
        given = live.work.assignment
        live.worker = self
        self.live[live.run_id] = live
        self._calls.append(
            Call(
                given.run_id,
                given.attempt,
                given.fence,
                given.job_id,
                given.name,
                given.due_at,
                live.route.name,
                live.data(),
                live.env(),
                live.work.previous,
            )
        )

    def stop(self, run_id: int) -> None:
        self._stops.append(run_id)
        self.flush()

    def flush(self) -> None:
        if self._transport is not None and (self._calls or self._stops):
            self._transport.write(frame(Orders(self._calls, self._stops)))
            self._calls, self._stops = [], []

    def doom(self, why: str) -> None:
        """No more calls; the process is to end, or has."""
        if not self._over.is_set():
            self._why = why
            self._over.set()
            self._pool.remove(self)

    def epitaph(self, gone: Exit) -> str:
        """What to say about runs that ended with this process."""
        if gone.message:
            return f"the worker process failed: {gone.message}"
        how = f"signal {-gone.code}" if gone.code < 0 else f"exit code {gone.code}"
        return self._why or f"the worker process died ({how})"

    async def live_through(self, keeper: Keeper) -> Exit:
        self._pipe, child_pipe = os.pipe()
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            os.close(self._pipe)
            os.close(child_pipe)
            raise
        os.set_blocking(self._pipe, False)
        loop = asyncio.get_running_loop()
        try:
            try:
                process = await keeper.spawn(_command(theirs.fileno(), child_pipe))
            finally:
                theirs.close()
                os.close(child_pipe)
            self._pid = process.pid
            loop.add_reader(self._pipe, self._drain)
            return await self._serve(process, ours)
        finally:
            loop.remove_reader(self._pipe)
            self._drain()
            os.close(self._pipe)
            ours.close()

    async def _serve(self, process: Process, ours: socket.socket) -> Exit:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)
        try:
            transport.write(frame(self._setup))
            self._transport = transport
            self.flush()
            await self._over.wait()
            return await process.kill(KILL_GRACE)
        finally:
            self._transport = None
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._drain()  # what a plain handler wrote lies in the pipe before its End is sent
        for body in self._frames.feed(data):
            self._report(self, self._reports.decode(body))

    def connection_lost(self, error: Exception | None) -> None:
        self.doom("")

    def _drain(self) -> None:
        """Descriptors 1 and 2 of the process: output of the only run, or a word for the agent's log."""
        for _ in range(PIPE_READS):
            try:
                data = os.read(self._pipe, PIPE_READ)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._pipe)
                return
            if not self._setup.is_shared and self.live:
                next(iter(self.live.values())).write(data)
            else:
                log.info("worker %d: %s", self._pid, data.decode(errors="backslashreplace").rstrip())


def _command(sock: int, pipe: int) -> Command:
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    argv = [sys.executable, "-P", "-m", "horae.executors.worker", str(sock)]
    return Command(argv, {**env, "TZ": "UTC"}, os.getcwd(), stdout=pipe, stderr=pipe, keep=(sock,))
