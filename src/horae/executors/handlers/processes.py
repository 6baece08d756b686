"""Worker processes as the agent sees them, and the work that they have under way.

What must stay true: whatever happens to a worker, its runs end only when the keeper says that the whole process tree is
gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from horae.core.insight.walls import Cause, Facts, decide
from horae.core.model import Json
from horae.discovery import loaded
from horae.executors.handlers.messages import Call, Description, Frames, Orders, Report, Setup, frame
from horae.executors.handlers.requirements import Requirements
from horae.ports.clock import Clock
from horae.ports.work import Command, Done, Exit, Keeper, Process, Work

RUNS_PER_WORKER = 100  # in every shared one before one more is started
KILL_GRACE = 1.0  # seconds from TERM to KILL for a worker that has had its grace already
PIPE_READ_BYTES = 64 * 1024
PIPE_READS = 16  # at a time: more than a pipe holds, and not so much that others starve
INHERITED = ("PATH", "HOME", "LANG", "PYTHONPATH", "HORAE_LOG_LEVEL")

log = logging.getLogger("horae.python")


class Route:
    """What is known about one spec."""

    __slots__ = ("data", "function", "name", "requirements", "sort")

    def __init__(self, spec: Json) -> None:
        self.name = str(spec.get("handler", ""))
        self.data: str | None = msgspec.json.encode(spec["data"]).decode() if spec.get("data") else None
        found = loaded(self.name)
        self.function = found.function if found is not None and found.inline else None
        self.sort = "inline" if self.function is not None else "async"
        self.requirements: Requirements | None = None  # what must be installed where it runs, as a worker read it


class Live:
    """One work under way; for an inline handler also the channel of its context."""

    __slots__ = ("done", "refusals", "route", "run_id", "started_at", "stopped", "task", "work", "worker")

    def __init__(self, work: Work, route: Route, done: Done) -> None:
        self.work = work
        self.run_id = work.assignment.run_id
        self.route = route
        self.done = done
        self.started_at = work.started_at
        self.worker: WorkerProcess | None = None
        self.task: asyncio.Task[None] | None = None  # that runs it inline
        self.stopped: str | None = None  # why
        self.refusals = 0  # of workers whose code was not current

    def write(self, data: bytes) -> None:
        self.work.output.write(data)

    def note_progress(self, progress: Json) -> None:
        self.work.note_progress(progress)

    def is_stopped(self) -> bool:
        return self.stopped is not None

    def env(self) -> dict[str, str]:
        """Of this attempt: equal specs may have other secrets the next time."""
        return self.work.spec.get("env") or {}

    def data(self) -> str | None:
        """Return the trigger's or the request's, else the job's own."""
        given = self.work.assignment.data
        return self.route.data if given is None else given


class WorkerProcess(asyncio.Protocol):
    """One worker process, seen from the agent. While it stands in its pool it may be given calls; one that is retired
    ends with its last."""

    def __init__(
        self,
        setup: Setup,
        pool: Pool,
        report: Callable[[WorkerProcess, Report], None],
        program: Sequence[str],
    ) -> None:
        """`program` is what is started, {} stands for its end of the socket."""
        self.live: dict[int, Live] = {}
        self._setup = setup
        self._program = program
        self.pool = pool
        self._peers = pool.shared if setup.is_shared else pool.sole
        self._report = report
        self._calls: list[Call] = []
        self._stops: list[int] = []
        self._asked: list[str] = []
        self._asking: deque[asyncio.Future[list[Description]]] = deque()
        self._frames = Frames()
        self._reports = msgspec.msgpack.Decoder(Report)
        self._transport: asyncio.Transport | None = None
        self._over = asyncio.Event()
        self._why = ""  # it was killed
        self._pipe = -1
        self._pid = 0
        self._peers.append(self)

    def load(self) -> int:
        return len(self.live)

    def give(self, live: Live) -> None:
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
                live.work.installation,
                given.answers,
                live.started_at,
                given.callbacks,
                live.work.trace,
            )
        )

    def stop(self, run_id: int) -> None:
        self._stops.append(run_id)
        self.flush()

    async def describe(self, names: Sequence[str]) -> list[Description]:
        """Return what handlers take; nothing if the process ends before it answers. One question at a time."""
        answer: asyncio.Future[list[Description]] = asyncio.get_running_loop().create_future()
        self._asking.append(answer)
        self._asked += names
        self.flush()
        return await answer

    def flush(self) -> None:
        if self._transport is not None and (self._calls or self._stops or self._asked):
            self._transport.write(frame(Orders(self._calls, self._stops, self._asked)))
            self._calls, self._stops, self._asked = [], [], []

    def _answer(self, descriptions: list[Description]) -> None:
        answer = self._asking.popleft()
        if not answer.done():
            answer.set_result(descriptions)

    def doom(self, why: str) -> None:
        """No more calls; the process is to end, or has."""
        if not self._over.is_set():
            self._why = why
            self._over.set()
            self.retire()
            while self._asking:
                self._answer([])

    def retire(self) -> None:
        """No more calls: its code is not current. What it has under way goes on to its end."""
        if self in self._peers:
            self._peers.remove(self)

    @property
    def is_done(self) -> bool:
        """Whether nobody needs it any more."""
        return not self.live and self not in self._peers

    def epitaph(self, gone: Exit) -> str:
        """Return what to say about runs that ended with this process."""
        if gone.message:
            return f"the worker process failed: {gone.message}"
        how = f"signal {-gone.code}" if gone.code < 0 else f"exit code {gone.code}"
        return self._why or f"the worker process died ({how})"

    def cause_of(self, gone: Exit) -> Cause | None:
        """Return what may have ended this process, where we have not."""
        return None if gone.message or self._why else decide(Facts(gone.code))

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
                process = await keeper.spawn(_command(self._program, theirs.fileno(), child_pipe))
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
            report = self._reports.decode(body)
            if report.descriptions and self._asking:
                self._answer(report.descriptions)
            self._report(self, report)

    def connection_lost(self, error: Exception | None) -> None:
        self.doom("")

    def _drain(self) -> None:
        """Descriptors 1 and 2 of the process: output of the only run, or a word for the agent's log."""
        for _ in range(PIPE_READS):
            try:
                data = os.read(self._pipe, PIPE_READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._pipe)
                return
            if not self._setup.is_shared and self.live:
                next(iter(self.live.values())).write(data)
            else:
                log.info("worker %d: %s", self._pid, data.decode(errors="backslashreplace").rstrip())


class Pool:
    """The workers of one environment, and the runs that wait for it or for one of them."""

    def __init__(
        self,
        launch: Callable[[Pool, bool], WorkerProcess],
        processes: int,
        clock: Clock,
        place: Path | None = None,
        digest: str = "",
    ) -> None:
        """`place` is the environment's; None: the agent's own. It may be used when it `is_ready`. `launch` starts a
        worker, shared or not; `processes` bounds both sorts."""
        self.place = place
        self.digest = digest  # of what it was made from
        self.is_ready = place is None
        self.shared: list[WorkerProcess] = []
        self.sole: list[WorkerProcess] = []
        self.waiting: dict[int, Live] = {}  # plain handlers without a process, in order
        self.preparing: dict[int, Live] = {}  # runs that wait for the environment
        self._launch = launch
        self._processes = processes
        self._clock = clock

    def pick_shared(self) -> WorkerProcess:
        """Return the least loaded; one more process when all of them have plenty."""
        best = min(self.shared, key=WorkerProcess.load, default=None)
        if best is None or (best.load() >= RUNS_PER_WORKER and len(self.shared) < self._processes):
            best = self._launch(self, True)
        return best

    def feed_sole(self) -> None:
        """Give waiting plain handlers to idle processes, and start processes while there may be more."""
        while self.waiting:
            worker = next((each for each in self.sole if not each.live), None)
            if worker is None and len(self.sole) < self._processes:
                worker = self._launch(self, False)
            if worker is None:
                return
            live = self.waiting.pop(next(iter(self.waiting)))
            live.started_at = self._clock.now()
            worker.give(live)
            worker.flush()

    def drop(self, run_id: int) -> bool:
        """Return whether a run waited here; it does no longer."""
        return (self.waiting.pop(run_id, None) or self.preparing.pop(run_id, None)) is not None

    def drop_all(self) -> list[Live]:
        """Return the runs that waited here; they do no longer."""
        dropped = [*self.waiting.values(), *self.preparing.values()]
        self.waiting.clear()
        self.preparing.clear()
        return dropped

    def flush(self) -> None:
        """Send what shared workers were given, one frame each."""
        for worker in self.shared:
            worker.flush()

    def warm(self, *, is_shared: bool) -> None:
        """Have one worker of a sort, before anybody needs it."""
        if not (self.shared if is_shared else self.sole):
            self._launch(self, is_shared)

    def retire(self, worker: WorkerProcess) -> None:
        """Give it nothing more: its code is not current. One that runs plain handlers has its successor at once: while
        that starts, a shared worker finds out what the handler is now."""
        is_sole = worker in self.sole
        worker.retire()
        if is_sole:
            self.warm(is_shared=False)

    def retire_all(self) -> None:
        """Nobody asks for this environment any more, as far as is known; should somebody, there will be workers."""
        for worker in [*self.shared, *self.sole]:
            worker.retire()
            if worker.is_done:
                worker.doom("")


def _command(program: Sequence[str], sock: int, pipe: int) -> Command:
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    argv = [str(sock) if word == "{}" else word for word in program]
    return Command(argv, {**env, "TZ": "UTC"}, os.getcwd(), stdout=pipe, stderr=pipe, keep=(sock,))
