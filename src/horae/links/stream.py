"""One line to one server, and what goes over it: requests out, answers in, by their ids; output, a window at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from horae.errors import Unavailable
from horae.wire.generated import agents_pb2 as pb
from horae.wire.outbox import Outbox, Urgency

LINGER_SECONDS = 2.0  # for answers under way when the server asks us to leave


class LineEnded(Exception):
    """A line has ended with a status, named as gRPC names them."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text or status


class NoAnswer(Unavailable):
    """Nothing came back in time."""


class Line(Protocol):
    """One connection to one server: frames there and back, in order, none lost before its end."""

    async def open(self, seconds: float) -> None:
        """Reach the other side, or raise Unavailable; no try takes longer than `seconds`."""

    async def read(self) -> bytes | None:
        """Return the next frame; None when the server ended it well. LineEnded says how else it ended."""

    async def write(self, frame: bytes) -> None: ...

    async def close(self) -> None:
        """At once, whatever is still under way."""


class Stream:
    def __init__(self, line: Line, on_notice: Callable[[Stream, pb.ServerFrame], None]) -> None:
        """`on_notice` is called with what the server sends unasked."""
        self._line = line
        self._on_notice = on_notice
        self._outbox = Outbox()
        self._ids = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[None], list[pb.ServerFrame]]] = {}
        self._under_way: dict[tuple[int, int, int, int], int] = {}  # chunk → bytes
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving: asyncio.TimerHandle | None = None
        self._why = "the server is stopping"  # for which it is left
        self.is_welcome = False
        self.takes_ailments = False
        self.server = ""
        self.room = 0  # bytes of output that may be sent
        self.has_room = asyncio.Event()
        self.has_room.set()

    async def run(self, greet: Callable[[], Any]) -> None:
        """Until the stream ends: LineEnded, or Unavailable."""
        tasks = [asyncio.create_task(step) for step in (self._read(), self._write(), greet(), self._wait_for_failure())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:  # reading first: the status of the stream says more than a write that failed
                if task.done():
                    task.result()
        finally:
            if self._leaving is not None:
                self._leaving.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while (raw := await self._line.read()) is not None:
            try:
                frame = pb.ServerFrame.FromString(raw)
            except DecodeError:
                raise Unavailable("the server sent a frame that cannot be read") from None
            if frame.id in self._waiting:
                self._answer(*self._waiting[frame.id], frame)
            elif frame.id == 0:
                self._on_notice(self, frame)
        raise Unavailable("the server ended the stream")

    def _answer(self, future: asyncio.Future[None], frames: list[pb.ServerFrame], frame: pb.ServerFrame) -> None:
        frames.append(frame)
        if not frame.more and not future.done():
            future.set_result(None)

    async def _write(self) -> None:
        while frame := await self._outbox.get():
            await self._line.write(frame)

    async def _wait_for_failure(self) -> None:
        await asyncio.shield(self._failed)

    def fail(self, message: str) -> None:
        """The stream is of no use any more: whoever waits for an answer learns it now."""
        error = Unavailable(message)
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # it may be that nobody asks
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def leave(self, why: str = "") -> None:
        """End as soon as nothing is under way, or in a moment."""
        self._why = why = why or self._why
        loop = asyncio.get_running_loop()
        if not self._waiting or self._leaving is not None:
            self.fail(why)
        else:
            self._leaving = loop.call_later(LINGER_SECONDS, self.fail, why)

    async def ask(self, seconds: float, urgency: Urgency = Urgency.REQUEST, **body: Any) -> list[pb.ServerFrame]:
        if self._failed.done():
            raise Unavailable("the connection to the server broke")
        number = next(self._ids)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        frames: list[pb.ServerFrame] = []
        self._waiting[number] = future, frames
        self._outbox.put(pb.AgentFrame(id=number, **body).SerializeToString(), urgency)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise NoAnswer(f"the server did not answer within {seconds:g} s") from None
        finally:
            del self._waiting[number]
            if self._leaving is not None and not self._waiting:
                self.leave()
        if frames[-1].WhichOneof("body") == "failure":
            raise Unavailable(frames[-1].failure.message, hint=frames[-1].failure.hint)
        return frames

    def tell(self, **body: Any) -> None:
        """Send what has no answer."""
        self._outbox.put(pb.AgentFrame(**body).SerializeToString())

    # ── output ──
    def send_chunks(self, chunks: list[pb.Chunk]) -> None:
        for chunk in chunks:
            self._under_way[chunk.run_id, chunk.fence, chunk.file, chunk.number] = len(chunk.data)
            self.room -= len(chunk.data)
        self._outbox.put(pb.AgentFrame(chunks=pb.Chunks(items=chunks)).SerializeToString(), Urgency.OUTPUT)
        if self.room <= 0:
            self.has_room.clear()

    def note_stored(self, stored: pb.Stored) -> None:
        for name in (*stored.items, *stored.refused):
            self.room += self._under_way.pop((name.run_id, name.fence, name.file, name.number), 0)
        if self.room > 0:
            self.has_room.set()
