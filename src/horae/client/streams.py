"""The connections of Client: transports of asyncio. Several tasks of one event loop may share them.

A call is mostly one write and one read: streams of asyncio, with their buffers and limits, took a third of its time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from horae.client.address import Server
from horae.client.pool import CONNECT, PIECE, Pool
from horae.client.wire import Answer, Request
from horae.errors import Conflict
from horae.wire.http import Fault, Incoming, NotConnected

if TYPE_CHECKING:
    import ssl

MOST = 100  # connections at once: further calls wait for one


AHEAD = 4 * PIECE  # bytes that may lie here unread before the server has to wait


class Line(asyncio.Protocol):
    """One connection. What comes is kept until somebody asks for it; at its end he gets nothing, or why it broke."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_over = self._is_paused = self._is_full = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent: one that has something to read was closed, or is out of step."""
        return not (self._is_over or self._pieces or self._transport.is_closing())

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def drain(self, seconds: float) -> None:
        """Wait until everything is sent."""
        if self._error is not None:
            raise self._error
        if self._is_full and not self._is_over:
            self._writer = self._loop.create_future()
            await self._wait(self._writer, seconds)

    async def read(self, seconds: float) -> bytes:
        if not self._pieces and not self._is_over:
            self._reader = self._loop.create_future()
            await self._wait(self._reader, seconds)
        if not self._pieces and self._error is not None:
            raise self._error
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=name)
        assert transport is not None, "a protocol of asyncio has one"
        self._take(transport)

    def close(self) -> None:
        self._transport.close()

    async def _wait(self, what: asyncio.Future[None], seconds: float) -> None:
        timer = self._loop.call_later(seconds, _give_up, what)
        try:
            await what
        finally:
            timer.cancel()

    def _take(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(0)  # what was drained is sent

    # ── what the event loop calls ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._take(transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        _tell(self._reader)

    def eof_received(self) -> bool:
        """What is being sent goes on, where that can be."""
        self._is_over = True
        _tell(self._reader)
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over, self._error = True, exc
        _tell(self._reader)
        _tell(self._writer)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _tell(self._writer)


def _tell(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _give_up(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())


class Streams(Pool[Line]):
    """The streams to one server."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free = asyncio.Semaphore(MOST)

    async def exchange(self, request: Request) -> Answer:
        """Send a request; returns its answer, without the body if that is streamed."""
        data = request.encode(self.server)
        self.refuse_misuse()
        await self._free.acquire()
        try:
            coming = Coming(self, self.take() or await self._connect(), request.timeout)
        except BaseException:
            self._free.release()
            raise
        try:
            await coming.send(data)
            if request.meanwhile is not None:
                request.meanwhile()
            body = await (coming.head() if request.streamed else coming.whole())
        except BaseException:
            coming.close()
            raise
        return Answer(self.server, coming.incoming, body, coming if request.streamed else None)

    def refuse_misuse(self) -> None:
        super().refuse_misuse()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise Conflict("this client belongs to another event loop: make one in each", code="E_CLIENT")

    def give_back(self, line: Line, incoming: Incoming) -> None:
        super().give_back(line, incoming)
        self._free.release()

    def is_usable(self, line: Line) -> bool:
        return line.is_usable

    def end(self, line: Line) -> None:
        if self._loop is not None and not self._loop.is_closed():
            line.close()

    async def _connect(self) -> Line:
        server, loop = self.server, asyncio.get_running_loop()
        line: Line | None = None
        try:
            async with asyncio.timeout(CONNECT):
                host, port = server.proxy or (server.host, server.port)
                direct_tls = server.tls if not server.proxy else None
                name = server.host if direct_tls else None
                _, line = await loop.create_connection(Line, host, port, ssl=direct_tls, server_hostname=name)
                if server.proxy and server.tls:
                    await self._tunnel(line)
                    await line.start_tls(server.tls, server.host)
            return line
        except BaseException as error:
            if line is not None:
                line.close()
            if isinstance(error, OSError | Fault):
                raise NotConnected(server, str(error)) from None
            raise

    async def _tunnel(self, line: Line) -> None:
        line.write(self.server.tunnel)
        incoming = Incoming()
        while not incoming.has_head:
            incoming.feed(await line.read(CONNECT))
        self.check_tunnel(incoming)


class Coming:
    """An answer that comes in over a stream."""

    def __init__(self, pool: Streams, line: Line, timeout: float) -> None:
        self.incoming = Incoming()
        self._pool = pool
        self._line: Line | None = line
        self._timeout = timeout

    async def send(self, data: bytes) -> None:
        assert self._line is not None
        try:
            self._line.write(data)
            if len(data) > PIECE:
                await self._line.drain(self._timeout)
        except OSError as error:
            raise self._pool.fault(error) from None

    async def head(self) -> bytes:
        while not self.incoming.has_head:
            await self._receive()
        return b""

    async def whole(self) -> bytes:
        while not self.incoming.is_whole:
            await self._receive()
        self.close()
        return self.incoming.take()

    async def read(self) -> bytes:
        """Return the next bytes of the body; none at its end."""
        while not (piece := self.incoming.take()) and not self.incoming.is_whole:
            await self._receive()
        return piece

    async def _receive(self) -> None:
        assert self._line is not None
        try:
            self.incoming.feed(await self._line.read(self._timeout))
        except (OSError, Fault) as error:
            raise self._pool.fault(error) from None

    def close(self) -> None:
        if self._line is not None:
            line, self._line = self._line, None
            self._pool.give_back(line, self.incoming)
