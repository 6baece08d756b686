"""Worker processes as the agent sees them, and the work that they have under way.

What must stay true: whatever happens to a worker, its runs end only when the keeper says that the whole process tree is
gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable

import msgspec

from horae.core.model import Json
from horae.discovery import loaded
from horae.executors.handlers.messages import Call, Frames, Orders, Report, Setup, frame
from horae.ports.work import Command, Done, Exit, Keeper, Process, Work

KILL_GRACE = 1.0  # seconds from TERM to KILL for a worker that has had its grace already
PIPE_READ_BYTES = 64 * 1024
PIPE_READS = 16  # at a time: more than a pipe holds, and not so much that others starve
INHERITED = ("PATH", "HOME", "LANG", "PYTHONPATH")

log = logging.getLogger("horae.python")


class Route:
    """What is known about one spec."""

    __slots__ = ("data", "function", "name", "sort")

    def __init__(self, spec: Json) -> None:
        self.name = str(spec.get("handler", ""))
        self.data: str | None = msgspec.json.encode(spec["data"]).decode() if spec.get("data") else None
        found = loaded(self.name)
        self.function = found.function if found is not None and found.inline else None
        self.sort = "inline" if self.function is not None else "async"


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
        self, setup: Setup, pool: list[WorkerProcess], report: Callable[[WorkerProcess, Report], None]
    ) -> None:
        self.live: dict[int, Live] = {}
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
            self.retire()

    def retire(self) -> None:
        """No more calls: its code is not current. What it has under way goes on to its end."""
        if self in self._pool:
            self._pool.remove(self)

    @property
    def is_done(self) -> bool:
        """Whether nobody needs it any more."""
        return not self.live and self not in self._pool

    def epitaph(self, gone: Exit) -> str:
        """Return what to say about runs that ended with this process."""
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


def _command(sock: int, pipe: int) -> Command:
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    argv = [sys.executable, "-P", "-m", "horae.executors.handlers.worker", str(sock)]
    return Command(argv, {**env, "TZ": "UTC"}, os.getcwd(), stdout=pipe, stderr=pipe, keep=(sock,))
