"""HTTP/1.1 as a client speaks it, without a socket: bytes of a request; how its answer is read says wire.http.

What must stay true: nothing that a caller gives can end a header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from horae.client.address import Server
from horae.errors import Invalid
from horae.wire.http import Incoming

TIMEOUT = 30.0  # seconds without a byte after which a call counts as unanswered
NONE: Mapping[str, str] = MappingProxyType({})


class Request(NamedTuple):
    """What to send. `near` are headers that only a server on this machine is sent; the body of a `streamed` answer
    is left to be read piece by piece; `meanwhile` is done once all is sent, before the answer is waited for."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = NONE
    near: Mapping[str, str] = NONE
    timeout: float = TIMEOUT
    streamed: bool = False
    meanwhile: Callable[[], None] | None = None  # also when it is sent again

    @property
    def is_repeatable(self) -> bool:
        """Return whether sending it again cannot act twice."""
        return self.method == "GET" or "Idempotency-Key" in self.headers

    def encode(self, server: Server) -> bytes:
        headers = {**self.headers, **self.near} if server.is_near and self.near else self.headers
        lines = [f"{self.method} {server.target}{self.path} HTTP/1.1\r\n{server.headers}"]
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
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


class Answer:
    """What a server sent; more of a streamed body comes from `rest`."""

    __slots__ = ("_head", "body", "rest", "server")

    def __init__(self, server: Server, head: Incoming, body: bytes, rest: Open | None = None) -> None:
        self.server, self._head, self.body, self.rest = server, head, body, rest

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def headers(self) -> dict[str, str]:
        """By names in small letters."""
        return self._head.headers

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def close(self) -> None:
        """What is left of a streamed body is not wanted."""
        if self.rest is not None:
            self.rest.close()
