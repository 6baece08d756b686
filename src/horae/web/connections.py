"""Connections over HTTP: how many there may be, how long one may say nothing, and whose each is.

What must stay true:
- A connection that has not sent the whole head of a request within HEAD_SECONDS of its beginning, or of the end of the
  request before, is closed, however busily it trickles; so is one whose client does not read its answer.
  (Bodies have a time of their own: http.BODY_SECONDS.)
- There are never more connections than `Crowd` has room for, and beyond loopback no address has more than its share,
  but for proxies that are believed: whoever is one too many is told so and closed.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from horae.errors import Error, Limited, Malformed
from horae.values import is_loopback
from horae.web import http, peers
from horae.web.proxies import NOBODY, Proxies

HEADER_BYTES = 32 * 1024
HEAD_SECONDS = 15.0  # that a client has for the head of a request, and for the handshake of TLS before it
STALL_SECONDS = 60.0  # for which a client may read nothing of an answer
GOODBYE_SECONDS = 0.5  # that an idle client has to end its side of a TLS connection when the server stops
MAX_CONNECTIONS = 4096  # where files are not scarcer
SHARE = 4  # one address beyond loopback has at most one in so many of them
OWNER = "horae.owner"  # in the scope of a request: the user whose connection it is, if that is known


def most_connections(share: float) -> int:
    """As many as this share of the files that this process may open is enough for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, int(files * share))


class Crowd:
    """How many are connected, in all and by address."""

    def __init__(self, most: int | None = None, proxies: Proxies = NOBODY) -> None:
        """As many as `most`, or as half of the files that this process may open are enough for. `proxies` bring many
        from one address."""
        self.most = most_connections(1 / 2) if most is None else most
        self._proxies = proxies
        self._by_address: Counter[str] = Counter()
        self._count = 0

    def enter(self, address: str) -> str:
        """Why there is no room for another; empty when there is. Who entered must leave, let in or not."""
        self._by_address[address] += 1
        self._count += 1
        if self._count > self.most:
            return f"{self.most} connections are the limit"
        share = max(1, self.most // SHARE)
        if self._by_address[address] > share and not is_loopback(address) and not self._proxies.include(address):
            return f"{share} connections from one address are the limit"
        return ""

    def leave(self, address: str) -> None:
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Joining:
    """A transport that sends the head of an answer with its body, where both are there: one packet for the client to
    wake up for instead of two."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._transport.write(b"".join(held))

    def close(self) -> None:
        self.release()
        self._transport.close()


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which knows whose a connection is, and with these mended: it waits for a request for
    ever, it collects headers without end, it tells what is wrong with broken HTTP as plain text, and a client that is
    idle over TLS keeps the server from ending."""

    _in_headers = False
    _unfinished = 0  # bytes of the present request's headers, beyond the first packet
    _owner: int | None = None  # user id of the client, where it is of this machine
    _patience: asyncio.TimerHandle | None = None  # with a client that owes us the head of a request
    _stall: asyncio.TimerHandle | None = None  # with a client that does not read
    _is_refused = False

    def __init__(self, *args: Any, crowd: Crowd, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._crowd = crowd

    # ── the connection ──

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joining = Joining(transport)
        super().connection_made(self._joining)  # type: ignore[arg-type]  # it has all that a transport has
        self._await_head()
        if no_room := self._crowd.enter(self._address):
            self._is_refused = True
            self._refuse(Limited(no_room, code="E_CONNECTION_LIMIT", hint="close some, or try again in a minute"))
        elif self.client is not None and is_loopback(self.client[0]):
            self._owner = peers.owner_of(self.client, transport.get_extra_info("sockname")[:2])

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self._address)
        self._head_came()
        self.resume_writing()
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client is not None else ""

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self._stall or self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def shutdown(self) -> None:
        super().shutdown()
        if self.scheme == "https" and self._is_idle:  # TLS waits for the other side's goodbye, which may never come
            self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    # ── requests ──

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._patience = self._patience or self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_came(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def on_message_begin(self) -> None:
        self._in_headers, self._unfinished = True, 0
        super().on_message_begin()
        self.scope[OWNER] = self._owner  # type: ignore[literal-required]
        self.scope[http.JOINING] = self._joining  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._head_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.scope[http.WHOLE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._in_headers:
            self._unfinished += len(data)
            if self._unfinished > HEADER_BYTES:
                self._refuse(http.BadHeaders(f"at most {HEADER_BYTES} bytes of headers expected"))
                return
        super().data_received(data)
        if self._is_idle:  # it has said something that is no request yet
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Malformed("this is not a request that HTTP/1.1 allows", code="E_HEADER"))

    def _refuse(self, error: Error) -> None:
        answer = http.problem(error, "-")  # it never became a request, so it has no id
        lines = [b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode())]
        lines += [b"%b: %b" % pair for pair in (*answer.headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*lines, b"", answer.body]))
        self.transport.close()
