"""Answers of HTTP/1.1 out of bytes, without a socket: for the client of the API, and for work that makes requests.

What must stay true: what is no answer of HTTP/1.1 is a Garbled, and bytes after an answer belong to nobody.
"""

from __future__ import annotations

from functools import cached_property

import httptools

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


class Incoming:
    """One answer, as its bytes come in."""

    def __init__(self) -> None:
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self.has_head = self.is_whole = self.may_stay = False
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    @cached_property
    def headers(self) -> dict[str, str]:
        """By names in small letters, once the head is there: of a good answer hardly anybody asks for them."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers}

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
            stopped = error.__context__
            if stopped is not None and not isinstance(stopped, Exception):
                raise stopped from None  # a Ctrl-C that fell into a callback, and the parser takes for its own error
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
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self.is_whole:
            self.status = self._parser.get_status_code()
            self.has_head = self.status >= 200

    def on_body(self, data: bytes) -> None:
        if not self.is_whole:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if not self.has_head:
            self._headers.clear()  # of a 1xx: the answer follows
        elif not self.is_whole:
            self.is_whole, self.may_stay = True, self._parser.should_keep_alive()
