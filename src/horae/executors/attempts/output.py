"""Output of an attempt: what its processes write, and our own lines between."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from horae.core.insight.symptoms import SEEN
from horae.core.model import Json
from horae.executors.attempts.stash import PIECE_BYTES, Stash
from horae.ports.outputs import Output

FLOOD_TIMES = 10  # times the output that is kept: beyond that nobody will read it, and the work is stopped
LONGEST_NOTE = 1 << 20  # bytes


class Log:
    """The output of an attempt: what its processes write, and our own lines between."""

    def __init__(self, output: Output, on_flood: Callable[[], None], stash: Stash | None = None) -> None:
        """`stash` has what the processes have written."""
        self._output = output
        self._on_flood = on_flood
        self.stash = stash
        self.lines: list[tuple[int, str]] = []  # our own, each with how much of the stash comes before it
        self._written = 0
        self._kept = 0  # bytes, once no more is kept
        self._is_line_open = False
        self.tail = b""  # the end of what was written

    def write(self, data: bytes) -> None:
        self._output.write(data)
        self.tail = (self.tail + data)[-SEEN:]
        self._is_line_open = not data.endswith(b"\n")
        self._written += len(data)
        if self._output.is_full:
            self._kept = self._kept or self._written
            if self._written > FLOOD_TIMES * self._kept:
                self._on_flood()

    def when_free(self, resume: Callable[[], None]) -> bool:
        return self._output.when_free(resume)

    @property
    def has_gaps(self) -> bool:
        return self._output.has_gaps

    def say(self, text: str) -> None:
        line = f"{chr(10) * self._is_line_open}── {text} ──\n"
        if self.stash is not None:
            self.lines.append((self.stash.size, line.encode(errors="replace").decode()))
        self.write(line.encode(errors="replace"))

    async def replay(self, lines: list[tuple[int, str]], at: int, watch: Callable[[bytes], None] | None) -> None:
        """Write everything again that an earlier agent wrote, or had yet to; `watch` sees what comes after `at`."""
        stash = self.stash
        assert stash is not None
        self.lines = lines
        start = 0
        for end, line in sorted([*lines, (at, ""), (stash.size, "")], key=lambda one: one[0]):
            for data in stash.read(start, end):
                self.write(data)
                if watch is not None and start >= at:
                    watch(data)
                await self.catch_breath()
            if line:
                self.write(line.encode())
            start = max(start, end)

    async def catch_breath(self) -> None:
        """Wait while so much waits to be stored that nobody should write."""
        is_free = asyncio.Event()
        if self.when_free(is_free.set):
            await is_free.wait()


class Notes:
    """Lines of JSON that a section of ours tells, whole ones one by one; what is none is passed over."""

    def __init__(self, note: Callable[[Json], None]) -> None:
        self._note = note
        self._begun = b""

    def write(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun[:LONGEST_NOTE]
        for line in lines:
            with suppress(ValueError):
                if isinstance(told := json.loads(line), dict):
                    self._note(told)

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    @property
    def has_gaps(self) -> bool:
        return False


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """A file of no name that holds these bytes, open for reading."""
    held = os.memfd_create("given")
    try:
        os.write(held, data)
        os.lseek(held, 0, os.SEEK_SET)
        yield held
    finally:
        os.close(held)


class Pipe:
    """Carries what a step writes to the log, in large chunks."""

    def __init__(
        self,
        log: Log | Notes,
        watch: Callable[[bytes], None] | None = None,
        stash: Stash | None = None,
        read_end: int | None = None,
        *,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """All of it goes through the `stash`; `on_loss` hears of it when that, or the log, does not have all any more.
        `read_end` is that of a pipe which an earlier agent made."""
        self._log = log
        self._watch = watch
        self._stash = stash
        self._on_loss = on_loss
        self.read_end, self.write_end = os.pipe() if read_end is None else (read_end, -1)
        os.set_blocking(self.read_end, False)
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._is_listening = False

    def listen(self) -> None:
        """Read whatever comes; but of a program that is over by now, all at once when the pipe is closed."""
        self._loop.call_soon(self._listen)

    def _listen(self) -> None:
        if self._is_open:
            self._is_listening = True
            self._loop.add_reader(self.read_end, self._on_data)

    def _on_data(self) -> None:
        """Read, and pause when the store cannot keep up: the step then waits at its full pipe."""
        data = self._take()
        if data == b"" or self._log.when_free(self._listen):  # at its end there is nothing more to wait for
            self._is_listening = False
            self._loop.remove_reader(self.read_end)

    def _take(self) -> bytes | None:
        """Return what is there now; empty at the end, None when there is nothing."""
        stash = self._stash
        data = _read_pipe(self.read_end) if stash is None else stash.take(self.read_end)
        if data:
            self._log.write(data)
            if self._watch is not None:
                self._watch(data)
        if stash is not None and (not stash.is_whole or self._log.has_gaps):
            self._on_loss()
        return data

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        """Take what is in the pipe and no more: a writer that survived elsewhere must not hold us."""
        if self.write_end >= 0:
            os.close(self.write_end)
        self._is_open = False
        if self._is_listening:
            self._loop.remove_reader(self.read_end)
        left = fcntl.fcntl(self.read_end, fcntl.F_GETPIPE_SZ)
        while left > 0 and (data := self._take()):
            left -= len(data)
        os.close(self.read_end)


def _read_pipe(read_end: int) -> bytes | None:
    try:
        return os.read(read_end, PIECE_BYTES)
    except BlockingIOError:
        return None
