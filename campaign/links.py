"""A link that can be made slow, mute or deaf: a relay for streams between two places of one machine.

The kernel's own means (netem) are not in every kernel, and say nothing about sockets of files; this one is everywhere.
Bytes are never lost or reordered within a connection, as TCP promises; they come late, or not until the link is whole
again, or the connection ends. Each end sees a peer that is silent, as behind a switch that was turned off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

Place = tuple[str, int] | Path  # host and port, or the socket's file
UP, DOWN = "up", "down"  # to the target, and back
CHUNK = 65536
WAITING = 64  # chunks under way in one direction of a connection


class Link:
    def __init__(self, at: Place, to: Place) -> None:
        self._at, self._to = at, to
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._is_free = {UP: asyncio.Event(), DOWN: asyncio.Event()}
        self.delay = 0.0  # seconds, each way
        self.delayed = 0  # chunks that came late on purpose
        self.held = 0  # chunks that met a held direction
        self.latest = 0.0  # seconds that the latest chunk took
        self.release()

    def hold(self, *directions: str) -> None:
        """Let nothing through in these directions; connections stay open."""
        for direction in directions:
            self._is_free[direction].clear()

    def release(self) -> None:
        self.delay = 0.0
        for event in self._is_free.values():
            event.set()

    def cut(self) -> None:
        """End every connection, with what is still under way on it."""
        for task in self._open:
            task.cancel()

    def forget(self) -> None:
        """Begin to count anew."""
        self.delayed, self.held, self.latest = 0, 0, 0.0

    # ── life ──
    async def begin(self) -> None:
        if isinstance(self._at, Path):
            self._at.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, self._at)
            self._at.chmod(0o777)
        else:
            self._server = await asyncio.start_server(self._serve, *self._at)

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        writers = [writer]
        try:
            far_reader, far_writer = await _reached(self._to)
            writers.append(far_writer)
            ways = (self._pump(UP, reader, far_writer), self._pump(DOWN, far_reader, writer))
            await _first_end(*ways)
        except (OSError, asyncio.CancelledError):
            pass  # whoever called sees that the connection ends
        finally:
            self._open.discard(task)
            for one in writers:
                one.transport.abort()

    async def _pump(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bring over what comes, each chunk `delay` after it came, until the one end or the other is gone."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)

        async def read() -> None:
            while data := await reader.read(CHUNK):
                await waiting.put((time.monotonic(), data))
            await waiting.put((time.monotonic(), b""))

        async def write() -> None:
            while True:
                came, data = await waiting.get()
                await self._wait(direction, came)
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        await _first_end(write(), _for_ever(read()))

    async def _wait(self, direction: str, came: float) -> None:
        is_late = self.delay > 0
        self.delayed += is_late
        while (left := came + self.delay - time.monotonic()) > 0:
            await asyncio.sleep(left)
        if not self._is_free[direction].is_set():
            self.held += 1
            await self._is_free[direction].wait()
        if is_late:
            self.latest = max(self.latest, time.monotonic() - came)


async def _reached(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(place, Path):
        return await asyncio.open_unix_connection(place)
    return await asyncio.open_connection(*place)


async def _for_ever(work: Awaitable[None]) -> None:
    """A reader that is at its end leaves the last words to the writer."""
    await work
    await asyncio.Event().wait()


async def _first_end(*works: Awaitable[None]) -> None:
    """Until the first of these ends; the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with suppress(OSError):
            await asyncio.gather(*tasks, return_exceptions=True)
