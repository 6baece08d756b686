"""The connections of Client: streams of asyncio. Several tasks of one event loop may share them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from horae.client.address import Server
from horae.client.pool import CONNECT, PIECE, Pool
from horae.client.wire import Answer, Request
from horae.errors import Conflict
from horae.wire.http import Fault, Incoming, NotConnected

MOST = 100  # connections at once: further calls wait for one


@dataclass(frozen=True, slots=True)
class Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


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
        incoming = coming.incoming
        return Answer(self.server, incoming.status, incoming.headers, body, coming if request.streamed else None)

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
        return not line.reader.at_eof() and not line.writer.is_closing()

    def end(self, line: Line) -> None:
        if self._loop is not None and not self._loop.is_closed():
            line.writer.close()

    async def _connect(self) -> Line:
        server = self.server
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT):
                host, port = server.proxy or (server.host, server.port)
                direct_tls = server.tls if not server.proxy else None
                name = server.host if direct_tls else None
                reader, writer = await asyncio.open_connection(host, port, ssl=direct_tls, server_hostname=name)
                if server.proxy and server.tls:
                    await self._tunnel(reader, writer)
                    await writer.start_tls(server.tls, server_hostname=server.host)
            writer.transport.set_write_buffer_limits(0)  # what was drained is sent
            return Line(reader, writer)
        except BaseException as error:
            if writer is not None:
                writer.close()
            if isinstance(error, OSError | Fault):
                raise NotConnected(server, str(error)) from None
            raise

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.server.tunnel)
        incoming = Incoming()
        while not incoming.has_head:
            incoming.feed(await reader.read(PIECE))
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
            self._line.writer.write(data)
            if len(data) > PIECE:
                async with asyncio.timeout(self._timeout):
                    await self._line.writer.drain()
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
            async with asyncio.timeout(self._timeout):
                data = await self._line.reader.read(PIECE)
            self.incoming.feed(data)
        except (OSError, Fault) as error:
            raise self._pool.fault(error) from None

    def close(self) -> None:
        if self._line is not None:
            line, self._line = self._line, None
            self._pool.give_back(line, self.incoming)
