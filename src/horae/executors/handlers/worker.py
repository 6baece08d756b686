"""The worker program: runs Python handlers in a process of their own.

    python -m horae.executors.handlers.worker FD

FD is one end of a socket pair, over which it speaks with its agent (`messages.py`).

A shared worker runs many `async def` handlers in one event loop; what they print is told apart by context
variable. Any other worker runs one `def` handler at a time in its only thread; its descriptors 1 and 2
are a pipe whose every byte belongs to that run. What must stay true: one End per Call; a run's output is
sent before its End; nothing a handler raises ends the worker; the end of the socket is the end of it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from contextvars import ContextVar
from typing import Any, NoReturn

import msgspec

from horae.core.model import Json, State
from horae.errors import Invalid
from horae.executors.handlers.descriptions import describe
from horae.executors.handlers.logs import RunLogs
from horae.executors.handlers.messages import (
    Call,
    Description,
    End,
    Frames,
    Orders,
    Report,
    Setup,
    frame,
)
from horae.executors.handlers.outcomes import extend_path, raised, read_data, read_previous, refused, returned
from horae.executors.handlers.resolver import Elsewhere, Resolver, Stale, elsewhere, stale
from horae.handlers import Channel, Context, Function

_FLUSH_BYTES = 256 * 1024  # output waiting in a shared worker before it is sent without waiting for more
_READ_BYTES = 256 * 1024
_PROGRESS_SECONDS = 0.5  # between two words to the agent on how far runs are


def _context(call: Call, channel: Channel) -> Context:
    return Context(
        channel,
        call.run_id,
        call.attempt,
        call.fence,
        call.job_id,
        call.job_name,
        call.due_at,
        read_data(call.data),
        call.env,
        read_previous(call.previous),
        call.installation,
        call.answers,
        call.begun_at,
        call.callbacks,
        call.trace,
    )


# ── many async handlers ────────────────────────────────────────────────────────────────────────────


class _Running:
    """One async run; the channel of its context."""

    __slots__ = ("_worker", "begun", "function", "level", "run_id", "stopped", "task")

    def __init__(self, worker: _SharedWorker, run_id: int) -> None:
        self._worker = worker
        self.run_id = run_id
        self.function: Function | None = None  # once it is found
        self.level: int | None = None  # of its log, if its job chose one
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.stopped = False

    def write(self, data: bytes) -> None:
        self._worker.emit(self.run_id, data)

    def note_progress(self, progress: Json) -> None:
        self._worker.note_progress(self.run_id, progress)

    def is_stopped(self) -> bool:
        return self.stopped


_current: ContextVar[_Running | None] = ContextVar("horae_run", default=None)


class _SharedWorker:
    def __init__(self, sock: socket.socket, setup: Setup) -> None:
        self._sock = sock
        self._frames = Frames()
        self._resolve = Resolver(setup)
        self._orders = msgspec.msgpack.Decoder(Orders)
        self._running: dict[int, _Running] = {}
        self._output: dict[int, bytearray] = {}
        self._output_bytes = 0
        self._ends: list[End] = []
        self._will_flush = False
        self._progress: dict[int, Json] = {}  # to be told
        self._will_tell = False
        self._told_at = 0.0  # by the loop's clock
        self._logs = RunLogs(_current.get)
        self._lock = threading.RLock()  # handlers may print from threads of theirs, and from __del__
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        sys.stdout = _Routed(sys.stdout)
        sys.stderr = _Routed(sys.stderr)
        self._logs.install()
        self._loop.add_reader(self._sock.fileno(), self._receive)
        self._loop.run_forever()

    def emit(self, run_id: int, data: bytes) -> None:
        """Take output of a run, from any thread. A full buffer is sent at once, which holds up the loop
        until the agent has read: a handler cannot print faster than that."""
        with self._lock:
            if run_id not in self._running:
                return  # a thread or task left behind by a run that has ended
            self._output.setdefault(run_id, bytearray()).extend(data)
            self._output_bytes += len(data)
            self._flush_soon()
        if self._output_bytes > _FLUSH_BYTES:
            self._flush()

    def note_progress(self, run_id: int, progress: Json) -> None:
        """Take how far a run is, from any thread. The newest word of every run goes out together, and not often."""
        with self._lock:
            if run_id not in self._running:
                return
            self._progress[run_id] = progress
            if not self._will_tell:
                self._will_tell = True
                self._loop.call_soon_threadsafe(self._tell_in_time)

    def _tell_in_time(self) -> None:
        self._loop.call_at(self._told_at + _PROGRESS_SECONDS, self._tell)

    def _tell(self) -> None:
        with self._lock:
            self._will_tell, self._told_at = False, self._loop.time()
            told, self._progress = self._progress, {}
            if told:
                _send(self._sock, Report({}, [], told))

    def _receive(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            _leave()
        for body in self._frames.feed(data):
            orders = _read_orders(self._orders, body)
            if orders.calls and (path := self._resolve.changed()):
                self._refuse(orders.calls, path)
                orders.calls = []
            for call in orders.calls:
                self._begin(call)
            for run_id in orders.stops:
                self._stop(run_id)
            if orders.asked:
                described = [self._describe(name) for name in orders.asked]
                _send(self._sock, Report({}, [], {}, described))

    def _describe(self, name: str) -> Description:
        try:
            return describe(name, self._resolve)
        except Stale:
            return Description(name, is_stale=True)
        except Elsewhere as error:
            wanted = error.wanted
            return Description(name, requirements=msgspec.json.encode(wanted).decode() if wanted else "")

    def _refuse(self, calls: list[Call], path: str) -> None:
        with self._lock:
            self._ends += [stale(call.run_id, path) for call in calls]
            self._flush_soon()

    def _begin(self, call: Call) -> None:
        running = self._running[call.run_id] = _Running(self, call.run_id)
        running.task = self._loop.create_task(self._run(running, call))

    def _stop(self, run_id: int) -> None:
        """A task cancelled before its first step would never report, so that one only sees the flag."""
        running = self._running.get(run_id)
        if running is None or running.task is None:
            return
        running.stopped = True
        if running.begun:
            running.task.cancel()

    async def _run(self, running: _Running, call: Call) -> None:
        running.begun = True
        _current.set(running)
        try:
            end = await self._call(running, call)
        except BaseException as error:  # SystemExit and cancellation too end a run, never the worker
            end = raised(call.run_id, error, running, running.function)
            end = _advised(end, self._resolve.advice(error, call.handler))
        self._logs.end(running)
        with self._lock:
            del self._running[call.run_id]
            self._progress.pop(call.run_id, None)
            self._ends.append(end)
            self._flush_soon()

    async def _call(self, running: _Running, call: Call) -> End:
        if running.stopped:
            return End(call.run_id, State.CANCELLED)
        try:
            found = self._resolve(call.handler)
        except Stale as error:
            return stale(call.run_id, error.path)
        except Elsewhere as error:
            return elsewhere(call.run_id, error.wanted)
        except Invalid as error:
            return refused(call.run_id, error, running)
        if found.inline or not found.is_async:
            return End(call.run_id, State.QUEUED, "inline" if found.inline else "sync")
        running.function = found.function
        self._logs.begin(running, call.env)
        context = _context(call, running)
        return returned(call.run_id, await found.function(context), context, found.function)

    def _flush_soon(self) -> None:
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._will_flush = False
            if not self._output and not self._ends:
                return
            output, ends = self._output, self._ends
            self._output, self._output_bytes, self._ends = {}, 0, []
            shown = {run_id: bytes(data) for run_id, data in output.items()}
            _send(self._sock, Report(shown, ends, loads=self._resolve.take_loads()))


class _Routed(io.TextIOBase):
    """Stands in for sys.stdout: what a run prints becomes its output, the rest goes where it went."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, real: Any) -> None:
        self._real = real
        self.buffer = _RoutedBytes(real.buffer)

    def write(self, text: str) -> int:
        running = _current.get()
        if running is None:
            return int(self._real.write(text))
        running.write(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        self._real.flush()

    def fileno(self) -> int:
        return int(self._real.fileno())

    def writable(self) -> bool:
        return True


class _RoutedBytes(io.RawIOBase):
    """Stands in for sys.stdout.buffer."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def write(self, data: Any) -> int:
        running = _current.get()
        if running is None:
            return int(self._real.write(data))
        taken = bytes(data)
        running.write(taken)
        return len(taken)

    def flush(self) -> None:
        self._real.flush()

    def writable(self) -> bool:
        return True


# ── one plain handler at a time ────────────────────────────────────────────────────────────────────


class _SoleWorker:
    """Is the channel of the only run. It reads the socket between runs, and when a handler asks whether
    it shall stop."""

    def __init__(self, sock: socket.socket, setup: Setup) -> None:
        self._sock = sock
        self._frames = Frames()
        self._resolve = Resolver(setup)
        self._orders = msgspec.msgpack.Decoder(Orders)
        self._calls: deque[Call] = deque()
        self._stops: set[int] = set()
        self._run_id = 0
        self._stdout = sys.stdout
        self._lock = threading.Lock()  # of what is told of progress, also from threads of the handler
        self._progress: Json | None = None  # to be told
        self._timer: threading.Timer | None = None  # that will tell it
        self._told_at = 0.0
        self._pid = os.getpid()
        self._function: Function | None = None  # of the only run, once it is found
        self.level: int | None = None  # of its log, if its job chose one
        self._logs = RunLogs(lambda: self)

    def run(self) -> NoReturn:
        self._logs.install()
        while True:
            while not self._calls:
                self._receive()
            call = self._calls.popleft()
            end = self._finish(call)
            self._stops.discard(call.run_id)
            with self._lock:
                self._progress = None
                _send(self._sock, Report({}, [end], loads=self._resolve.take_loads()))

    def write(self, data: bytes) -> None:
        self._stdout.flush()
        self._stdout.buffer.write(data)
        self._stdout.buffer.flush()

    def note_progress(self, progress: Json) -> None:
        """Tell how far the run is, and not often; what comes too soon waits for a timer, and the newest word counts.
        A forked child has no line to the agent."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._progress = progress
            rest = self._told_at + _PROGRESS_SECONDS - time.monotonic()
            if rest <= 0:
                self._tell()
            elif self._timer is None:
                self._timer = threading.Timer(rest, self._tell_in_time)
                self._timer.daemon = True
                self._timer.start()

    def _tell_in_time(self) -> None:
        with self._lock:
            self._timer = None
            self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            _send(self._sock, Report({}, [], {self._run_id: self._progress}))
            self._progress, self._told_at = None, time.monotonic()

    def is_stopped(self) -> bool:
        while select.select([self._sock], [], [], 0)[0]:
            self._receive()
        return self._run_id in self._stops

    def _receive(self) -> None:
        data = self._sock.recv(_READ_BYTES)
        if not data:
            _leave()
        for body in self._frames.feed(data):
            orders = _read_orders(self._orders, body)
            self._calls.extend(orders.calls)
            self._stops.update(orders.stops)

    def _finish(self, call: Call) -> End:
        self._run_id, self._function = call.run_id, None
        try:
            end = self._call(call)
        except BaseException as error:
            end = raised(call.run_id, error, self, self._function)
            end = _advised(end, self._resolve.advice(error, call.handler))
        self._logs.end(self)
        for stream in (sys.stdout, sys.stderr, self._stdout):
            stream.flush()
        return end

    def _call(self, call: Call) -> End:
        if self.is_stopped():
            return End(call.run_id, State.CANCELLED)
        if path := self._resolve.changed():
            return stale(call.run_id, path)
        try:
            found = self._resolve(call.handler)
        except Stale as error:
            return stale(call.run_id, error.path)
        except Elsewhere as error:
            return elsewhere(call.run_id, error.wanted)
        except Invalid as error:
            return refused(call.run_id, error, self)
        if found.inline:
            return End(call.run_id, State.QUEUED, "inline")
        self._function = found.function
        self._logs.begin(self, call.env)
        context = _context(call, self)
        value = found.function(context)
        return returned(call.run_id, asyncio.run(value) if found.is_async else value, context, found.function)


def _advised(end: End, advice: str) -> End:
    end.message += f" ({advice})" if advice and end.state == State.FAILED else ""
    return end


def _send(sock: socket.socket, report: Report) -> None:
    try:
        sock.sendall(frame(report))
    except OSError:
        _leave()


def _read_orders(decoder: msgspec.msgpack.Decoder[Orders], body: bytes) -> Orders:
    """Return the orders in a frame. One that cannot be read comes from an agent of another version: this process ends,
    and the agent sees its runs fail instead of waiting for them."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError:
        _leave()


def _leave() -> NoReturn:
    """The agent is gone. No tidying up: handlers' threads and exit hooks could keep the process alive."""
    os._exit(0)


def main(fd: int) -> None:
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    os.register_at_fork(after_in_child=sock.close)  # a forked child must not hold the line open
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    setup = _read_setup(sock)
    extend_path(setup.search_path)
    (_SharedWorker if setup.is_shared else _SoleWorker)(sock, setup).run()


def _read_setup(sock: socket.socket) -> Setup:
    """Not a byte beyond its end: what follows it belongs to the worker's own loop."""
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
    body = sock.recv(size, socket.MSG_WAITALL)
    if not size or len(body) < size:
        _leave()
    return msgspec.msgpack.decode(body, type=Setup)


if __name__ == "__main__":
    main(int(sys.argv[1]))
