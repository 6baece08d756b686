"""A server that says exactly the bytes that a test gives it, on one connection after the other."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Sequence

WAIT = 60.0  # seconds after which a test that hangs is over


def answer(body: bytes = b"{}", head: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {head}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Scripted:
    """`replies` has a list per connection: what is said to each request in turn; then the connection is closed.
    With `tls`, an answer to CONNECT is followed by a handshake, as a proxy and the server behind it would have it."""

    def __init__(self, *replies: Sequence[bytes], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[int, bytes]] = []  # number of the connection, request
        self._replies, self._tls = replies, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.closed = [threading.Event() for _ in replies]
        self._talks = [threading.Thread(target=self._serve)]

    def __enter__(self) -> Scripted:
        self._talks[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who accepts
        self._listener.close()
        for talk in self._talks:
            talk.join(WAIT)

    def heads(self) -> list[str]:
        return [request.split(b"\r\n")[0].decode() for _, request in self.requests]

    def _serve(self) -> None:
        for number, replies in enumerate(self._replies):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the test is over
            connection.settimeout(WAIT)
            talk = threading.Thread(target=self._talk, args=(number, connection, replies))
            self._talks.append(talk)
            talk.start()

    def _talk(self, number: int, connection: socket.socket, replies: Sequence[bytes]) -> None:
        with contextlib.suppress(OSError):
            for reply in replies:
                request = _read_request(connection)
                if not request:
                    break
                self.requests.append((number, request))
                connection.sendall(reply)
                if self._tls and request.startswith(b"CONNECT"):
                    connection = self._tls.wrap_socket(connection, server_side=True)
        connection.close()
        self.closed[number].set()


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while not (found := re.search(rb"\r\n\r\n", data)):
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    length = re.search(rb"(?i)content-length: (\d+)", data)
    wanted = found.end() + (int(length[1]) if length else 0)
    while len(data) < wanted:
        data += connection.recv(65536)
    return data
