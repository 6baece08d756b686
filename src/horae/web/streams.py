"""Answers that go on: server-sent events, text as it comes, files of any size.

What must stay true:
- A stream ends when its events end, its client leaves, its token is no longer good, or the server closes its streams.
- A stream has a place among `Streams` from before its first byte, and gives it back however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from horae.errors import Error, Limited, Unavailable
from horae.web.http import DATA, RawHeaders, Request, encode

HEARTBEAT_SECONDS = 15.0  # between comments on a silent event stream
PROOF_SECONDS = 1.5  # between two looks whether a follower's token is still good
STREAM_LIMIT = 256  # followers at once


class Streams:
    """Counts the followers, and can send them all home: a server that ends must not wait for them."""

    def __init__(self, limit: int = STREAM_LIMIT) -> None:
        self.limit = limit
        self.taken = 0
        self.closing = asyncio.Event()

    def take(self) -> None:
        if self.taken >= self.limit:
            raise Limited(
                f"{self.taken} followers are connected, and {self.limit} is the limit",
                code="E_STREAM_LIMIT",
                hint="read the log in pieces, or wait until a follower leaves",
            )
        self.taken += 1

    def close(self) -> None:
        """End every stream; followers reconnect elsewhere and go on where they were."""
        self.closing.set()


class EventStream:
    """Server-sent events. Made with a seat taken from `streams`; gives it back when it ends."""

    media = b"text/event-stream"
    beat = b": still here\n\n"  # said when there was nothing to say for a while
    headers: RawHeaders = ()

    def __init__(self, events: AsyncGenerator[bytes, None], streams: Streams) -> None:
        self._events = events
        self._streams = streams

    async def send(self, request: Request) -> None:
        try:
            await request.start(200, [(b"content-type", self.media), *self.headers, *DATA])
            if not request.is_head:
                await self._pump(request)
            await request.send({"type": "http.response.body", "body": b""})
        finally:
            self._streams.taken -= 1
            await self._events.aclose()

    async def _pump(self, request: Request) -> None:
        """Pass events on until they end, the client leaves, its token ends, or the server closes its streams."""
        leaving = {
            asyncio.ensure_future(_left(request)),
            asyncio.ensure_future(self._streams.closing.wait()),
            asyncio.ensure_future(_shut_out(request)),
        }
        step = asyncio.ensure_future(anext(self._events, b""))
        try:
            while True:
                done, _ = await asyncio.wait(
                    {step, *leaving}, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if done & leaving or (done and not step.result()):
                    return
                if piece := step.result() if done else self.beat:
                    await request.send({"type": "http.response.body", "body": piece, "more_body": True})
                if done:
                    step = asyncio.ensure_future(anext(self._events, b""))
        finally:
            await _end({step, *leaving})


class TextStream(EventStream):
    """Plain text as it comes. In it, silence has no sign."""

    media = b"text/plain; charset=utf-8"
    beat = b""


class FileStream(TextStream):
    """A file to be kept, never shown: what it holds is anybody's. Its name is offered by its last part."""

    media = b"application/octet-stream"

    def __init__(self, pieces: AsyncGenerator[bytes, None], streams: Streams, name: str, size: int) -> None:
        super().__init__(pieces, streams)
        shown = quote(name.rpartition("/")[2], safe="")
        self.headers = (
            (b"content-disposition", f"attachment; filename*=UTF-8''{shown}".encode()),
            (b"content-length", b"%d" % size),
        )


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _shut_out(request: Request) -> None:
    """Returns when the token that a stream was opened with is no longer good."""
    while request.prove_again is not None:
        await asyncio.sleep(PROOF_SECONDS)
        try:
            await request.prove_again()
        except Unavailable:
            continue  # nobody can tell just now: the stream was allowed, and goes on
        except Error:
            return
    await asyncio.Event().wait()


async def _end(tasks: set[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def event(name: str, value: Any, event_id: str = "") -> bytes:
    """One server-sent event. JSON keeps the data on one line."""
    where = b"id: %b\n" % event_id.encode() if event_id else b""
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), where, encode(value))


def place(event_id: str) -> bytes:
    """Where to go on, without an event: readers keep it, and show nothing."""
    return b"id: %b\n\n" % event_id.encode()
