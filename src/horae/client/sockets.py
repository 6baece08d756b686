"""The connections of SyncClient: sockets. Several threads may share them."""

from __future__ import annotations

import select
import socket
from typing import Any

from horae.client.pool import CONNECT, PIECE, Pool
from horae.client.wire import Answer, Request
from horae.wire.http import Fault, Incoming, NotConnected


class Sockets(Pool[socket.socket]):
    """The sockets to one server."""

    def exchange(self, request: Request) -> Answer:
        """Send a request; returns its answer, without the body if that is streamed."""
        data = request.encode(self.server)
        coming = Coming(self, self.take() or self._connect(), request.timeout)
        try:
            coming.send(data)
            if request.meanwhile is not None:
                request.meanwhile()
            body = coming.head() if request.streamed else coming.whole()
        except BaseException:
            coming.close()
            raise
        return Answer(self.server, coming.incoming, body, coming if request.streamed else None)

    def is_usable(self, line: socket.socket) -> bool:
        """Return whether an idle socket is fit: one with something to read was closed, or is out of step."""
        poll = select.poll()
        poll.register(line, select.POLLIN)
        return not poll.poll(0)

    def end(self, line: socket.socket) -> None:
        line.close()

    def _connect(self) -> socket.socket:
        server = self.server
        line: socket.socket | None = None
        try:
            host, port = server.proxy or (server.host, server.port)
            plain: Any = host.encode() if host.isascii() else host  # text loads tables of other alphabets
            line = socket.create_connection((plain, port), CONNECT)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if server.tls is None:
                return line
            if server.proxy:
                self._tunnel(line)
            return server.tls.wrap_socket(line, server_hostname=server.host)
        except BaseException as error:
            if line is not None:
                line.close()
            if isinstance(error, OSError | Fault):
                raise NotConnected(self.server, str(error.args[-1])) from None
            raise

    def _tunnel(self, line: socket.socket) -> None:
        line.sendall(self.server.tunnel)
        incoming = Incoming()
        while not incoming.has_head:
            incoming.feed(line.recv(PIECE))
        self.check_tunnel(incoming)


class Coming:
    """An answer that comes in over a socket."""

    def __init__(self, pool: Sockets, line: socket.socket, timeout: float) -> None:
        self.incoming = Incoming()
        self._pool = pool
        self._line: socket.socket | None = line
        line.settimeout(timeout)

    def send(self, data: bytes) -> None:
        assert self._line is not None
        try:
            self._line.sendall(data)
        except OSError as error:
            raise self._pool.fault(error) from None

    def head(self) -> bytes:
        while not self.incoming.has_head:
            self._receive()
        return b""

    def whole(self) -> bytes:
        while not self.incoming.is_whole:
            self._receive()
        self.close()
        return self.incoming.take()

    def read(self) -> bytes:
        """Return the next bytes of the body; none at its end."""
        while not (piece := self.incoming.take()) and not self.incoming.is_whole:
            self._receive()
        return piece

    def _receive(self) -> None:
        assert self._line is not None
        try:
            self.incoming.feed(self._line.recv(PIECE))
        except (OSError, Fault) as error:
            raise self._pool.fault(error) from None

    def close(self) -> None:
        if self._line is not None:
            line, self._line = self._line, None
            self._pool.give_back(line, self.incoming)
