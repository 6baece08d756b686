"""What one attempt writes, cut into chunks and handed to the store.

A chunk is written when 64 KiB wait or a quarter of a second after the first byte that waits, whichever comes first.

What must stay true: chunks are stored one after the other; a writer never blocks and never holds more than MAX_WAITING
bytes; what was dropped is marked in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import BinaryIO, Protocol

from horae.errors import Unavailable

CHUNK = 64 * 1024  # bytes from which on a chunk is stored at once
LARGEST_CHUNK = 256 * 1024  # what remote agents send in one piece
LINGER = 0.25  # seconds the first byte of a chunk may wait for more
MAX_WAITING = 4 * 1024 * 1024
PAUSE_AT = MAX_WAITING // 2  # bytes waiting from which a writer that can pause should
LONGEST_PAUSE = 1.0  # seconds; what a writer brings after that may be dropped, and is marked
CLOSE_SECONDS = 10.0  # that a closing output keeps trying to store
RETRY_SECONDS = 0.2  # between two tries

log = logging.getLogger("horae.files")


class ChunkStore(Protocol):
    """Where chunks go (ObjectFiles)."""

    def ref(self, run_id: int, attempt: int, fence: int) -> str: ...

    def file_ref(self, ref: str, number: int) -> str: ...

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None: ...

    async def end_with_mark(self, ref: str, number: int, mark: bytes) -> None: ...

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None: ...

    def announce(self, ref: str) -> None: ...


class ChunkedOutput:
    """The log of one attempt, from first byte to close. Most write nothing, and there are thousands a second: what is
    as usual is said by the class."""

    has_gaps = False
    _storing = 0  # bytes in the store's hands
    _lost = 0  # bytes dropped since the last that was taken
    _count = 0  # chunks stored
    _skipped = 0  # bytes to be left out, since they are stored
    _is_used = False
    _is_full = False
    _is_told = False  # that the store cannot be used
    _deadline: float | None = None  # set by close: when to give up
    _timer: asyncio.TimerHandle | None = None
    _task: asyncio.Task[None] | None = None
    _resume: Callable[[], None] | None = None  # a writer that pauses
    _latest: asyncio.TimerHandle | None = None  # when it goes on at the latest

    def __init__(
        self, files: ChunkStore, attempt: tuple[int, int, int], limit: int, stored: Sequence[int] = ()
    ) -> None:
        """`stored` are the sizes of chunks that are there already: as many bytes are left out of what is written."""
        self._files = files
        self._attempt = attempt
        self._left = self._limit = limit
        self._buffer = bytearray()  # not yet given to the store
        if stored:
            self._count, self._skipped, self._is_used = len(stored), sum(stored), True

    @property
    def is_full(self) -> bool:
        return self._is_full

    def when_free(self, resume: Callable[[], None]) -> bool:
        if self._storing + len(self._buffer) < PAUSE_AT:
            return False
        self._resume = resume
        self._latest = asyncio.get_running_loop().call_later(LONGEST_PAUSE, self._wake_writer)
        return True

    def _wake_writer(self) -> None:
        if self._resume is not None and self._latest is not None:
            self._latest.cancel()
            resume, self._resume = self._resume, None
            resume()

    @property
    def _ref(self) -> str:
        return self._files.ref(*self._attempt)  # made when it is wanted: most runs write nothing

    @property
    def ref(self) -> str | None:
        return self._ref if self._is_used else None

    def write(self, data: bytes) -> None:
        if self._is_full or not data or self._deadline is not None:
            return
        self._is_used = True
        room = MAX_WAITING - self._storing - len(self._buffer)
        if room > 0:
            self._take(data[:room])
        if len(data) > room and not self._is_full:
            self._lost += len(data) - max(room, 0)
            self.has_gaps = True

    async def close(self) -> None:
        """Store the rest; Unavailable when the store stays out of reach, and then the log ends with a mark."""
        if self._lost:
            self._mark_gap()
        self._deadline = asyncio.get_running_loop().time() + CLOSE_SECONDS
        if self._buffer or self._task is not None:
            self._begin()
        try:
            if self._task is not None:
                await self._task
        except Unavailable:
            left = self._storing + len(self._buffer)
            mark = b"\n[output truncated: the last %d bytes could not be stored]\n" % left
            await self._files.end_with_mark(self._ref, self._count, mark)
            raise
        finally:
            self._files.announce(self._ref)

    async def attach(self, number: int, file: BinaryIO, size: int, path: str) -> int:
        """Store up to `size` bytes of a file beside the log, then give it its name; Unavailable when the store stays
        out of reach. Without its name it can be read all the same."""
        ref, taken = self._files.file_ref(self._ref, number), 0
        for chunk in count():
            data = await asyncio.to_thread(file.read, min(LARGEST_CHUNK, size - taken))
            if not data:
                break
            until = asyncio.get_running_loop().time() + CLOSE_SECONDS
            await self._keep_trying(ref, chunk, data, partial(float, until))
            taken += len(data)
        self._is_used = True
        try:
            await self._files.name_file(self._ref, number, path, taken)
        except Unavailable as error:
            log.warning("%s: %s", ref, error.message)
        return taken

    def _take(self, data: bytes) -> None:
        if self._lost:
            self._mark_gap()
        self._is_full = len(data) > self._left
        self._add(data[: self._left])
        self._left -= len(data)
        if self._is_full:
            self._add(b"\n[output truncated: the limit is %d bytes]\n" % self._limit)
        if self._buffer:
            self._schedule()

    def _add(self, data: bytes) -> None:
        self._buffer += data[self._skipped :] if self._skipped else data
        self._skipped = max(0, self._skipped - len(data))

    def _mark_gap(self) -> None:
        self._buffer += b"\n[%d bytes lost: the output store was too slow]\n" % self._lost
        self._lost = 0

    def _schedule(self) -> None:
        if self._task is not None:
            return  # it looks at the buffer again when its chunk is stored
        if len(self._buffer) >= CHUNK:
            self._begin()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._store())

    async def _store(self) -> None:
        """Store what waits, chunk by chunk, until there is no whole chunk left, or nothing when closing."""
        try:
            while self._buffer:
                data = bytes(self._buffer[:LARGEST_CHUNK])
                del self._buffer[:LARGEST_CHUNK]
                self._storing = len(data)
                await self._store_one(data)
                self._storing = 0
                self._wake_writer()
                if self._deadline is None and len(self._buffer) < CHUNK:
                    break
        finally:
            self._task = None
        if self._buffer:
            self._schedule()

    async def _store_one(self, data: bytes) -> None:
        """Try until it is stored; a closing output gives up when its time is over."""
        await self._keep_trying(self._ref, self._count, data, lambda: self._deadline)
        self._count += 1

    async def _keep_trying(self, ref: str, number: int, data: bytes, deadline: Callable[[], float | None]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._files.store_chunk(ref, number, data)
            except Unavailable as error:
                until = deadline()
                if until is not None and loop.time() >= until:
                    raise
                if not self._is_told:
                    log.warning("%s: %s", ref, error.message)
                self._is_told = True
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._is_told = False
                return
