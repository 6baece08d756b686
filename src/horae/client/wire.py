"""HTTP/1.1 as a client speaks it, without a socket: bytes of a request, and an answer out of bytes.

What must stay true: nothing that a caller gives can end a header, and what is no answer of HTTP/1.1 is a Garbled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

import httptools

from horae.client.address import Server
from horae.errors import Invalid

TIMEOUT = 30.0  # seconds without a byte after which a call counts as unanswered
MAX_HEAD = 1 << 16  # bytes before the body of an answer


class Fault(Exception):
    """An exchange did not come to its end."""


class NotConnected(Fault):
    """Nothing was sent: there is no connection."""


class Silent(Fault):
    """No answer came in time."""


class Cut(Fault):
    """The connection ended before the answer did."""


class Garbled(Fault):
    """What came is no answer of HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. `near` are headers that only a server on this machine is sent; the body of a `streamed` answer
    is left to be read piece by piece."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    near: Mapping[str, str] = field(default_factory=dict)
    timeout: float = TIMEOUT
    streamed: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Return whether sending it again cannot act twice."""
        return self.method == "GET" or "Idempotency-Key" in self.headers

    def encode(self, server: Server) -> bytes:
        headers = {**self.headers, **self.near} if server.is_near and self.near else self.headers
        lines = [f"{self.method} {server.target}{self.path} HTTP/1.1\r\n{server.headers}"]
        for name, value in headers.items():
            if not re.fullmatch(r"[\x20-\x7e]*", value):
                raise Invalid(f"a header holds visible ASCII only, got {value!r}", code="E_CHAR", path=name)
            lines.append(f"{name}: {value}\r\n")
        if self.body is not None or self.method != "GET":
            lines.append(f"Content-Length: {len(self.body or b'')}\r\n")
        return "".join(lines).encode("ascii") + b"\r\n" + (self.body or b"")


def to_address(path: str, where: Mapping[str, Any]) -> str:
    """Return a path with its query; what is None is not asked for."""
    said = {name: str(value).lower() if isinstance(value, bool) else value for name, value in where.items()}
    given = urlencode({name: value for name, value in said.items() if value is not None})
    return f"{path}?{given}" if given else path


class Open(Protocol):
    """An answer whose body is still coming. Closing it is always safe."""

    def read(self) -> Any:
        """Return the next bytes, none at the end; of Client, what to await for them."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Answer:
    server: Server
    status: int
    headers: dict[str, str]  # names in small letters
    body: bytes
    rest: Open | None = None  # where more of a streamed body comes from

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Incoming:
    """One answer, as its bytes come in."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = self.is_whole = self.may_stay = False
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take what came; no bytes are the end of the connection."""
        if not data:
            if not self.has_head or "content-length" in self.headers or "transfer-encoding" in self.headers:
                raise Cut("the connection ended before the answer did")
            self.is_whole = True  # an answer without a length ends with its connection
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise Garbled(str(error)) from None
        if not self.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                raise Garbled(f"more than {MAX_HEAD} bytes of headers")

    def take(self) -> bytes:
        """Return what has come of the body since the last time."""
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return taken

    # ── what the parser calls; after the end of the answer, bytes belong to nobody ──

    def on_message_begin(self) -> None:
        self.may_stay = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self.is_whole:
            self.status = self._parser.get_status_code()
            self.has_head = self.status >= 200

    def on_body(self, data: bytes) -> None:
        if not self.is_whole:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if not self.has_head:
            self.headers.clear()  # of a 1xx: the answer follows
        elif not self.is_whole:
            self.is_whole, self.may_stay = True, self._parser.should_keep_alive()
