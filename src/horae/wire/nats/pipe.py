"""Frames over a broker that promises nothing: numbered pieces on two subjects, one each way.

A frame larger than a message goes in several. A piece that is missing, repeated or out of order ends the pipe, as a
broken stream would: nothing is ever delivered around a gap. Every piece names the other end as its reply, so that the
broker itself tells when nobody is there any more.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any

from horae import wire

PART, WHOLE, END = 0, 1, 2  # a piece of a frame, the last piece of one, the end with a status
HEAD = struct.Struct(">BQ")  # what it is, and its number from 1
PIECE = 512 << 10  # bytes: a server of NATS takes a megabyte unless told otherwise
MAX_UNREAD = 2 * wire.MAX_MESSAGE
NOBODY = "503"


class Ended(Exception):
    """The pipe is over. `status` is empty when its other end closed it well."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Pipe:
    def __init__(self, client: Any, to: str, here: str) -> None:
        """`to` and `here` are the subjects of the other end and of this one."""
        self._client, self.to, self._here = client, to, here
        self._sent = self._received = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._unread: deque[bytes] = deque()
        self._unread_size = 0
        self._ended: Ended | None = None
        self._stir = asyncio.Event()

    # ── in ──
    def take(self, message: Any) -> None:
        """A message of the subject `here`."""
        status = (message.headers or {}).get("Status")
        data: bytes = message.data
        if status is not None:
            return self.end("UNAVAILABLE", "nobody is there" if status == NOBODY else f"the broker said {status}")
        if len(data) < HEAD.size:
            return self.end("INVALID_ARGUMENT", "a piece that cannot be read")
        kind, number = HEAD.unpack_from(data)
        if number != self._received + 1:
            return self.end("UNAVAILABLE", f"piece {self._received + 1} was lost")
        self._received = number
        return self._accept(kind, data[HEAD.size :])

    def _accept(self, kind: int, piece: bytes) -> None:
        if kind == END:
            status, _, text = piece.decode(errors="replace").partition("\n")
            return self.end(status, text)
        self._parts.append(piece)
        self._size += len(piece)
        self._unread_size += len(piece)
        if self._size > wire.MAX_MESSAGE or self._unread_size > MAX_UNREAD:
            return self.end("RESOURCE_EXHAUSTED", f"a frame of more than {wire.MAX_MESSAGE} bytes, or too many unread")
        if kind == WHOLE:
            self._unread.append(b"".join(self._parts))
            self._parts, self._size = [], 0
            self._stir.set()
        return None

    def end(self, status: str, text: str) -> None:
        """What was received before is still read."""
        self._ended = self._ended or Ended(status, text)
        self._stir.set()

    async def read(self) -> bytes:
        while not self._unread:
            if self._ended is not None:
                raise self._ended
            self._stir.clear()
            await self._stir.wait()
        frame = self._unread.popleft()
        self._unread_size -= len(frame)
        return frame

    # ── out ──
    async def write(self, frame: bytes, headers: dict[str, str] | None = None) -> None:
        pieces = [frame[start : start + PIECE] for start in range(0, len(frame), PIECE)] or [b""]
        for piece in pieces[:-1]:
            await self._send(PART, piece, headers)
        await self._send(WHOLE, pieces[-1], headers)

    async def finish(self, status: str = "", text: str = "") -> None:
        """Tell the other end that this is all."""
        await self._send(END, f"{status}\n{text}".encode(), None)

    async def _send(self, kind: int, piece: bytes, headers: dict[str, str] | None) -> None:
        self._sent += 1
        message = HEAD.pack(kind, self._sent) + piece
        try:
            await self._client.publish(self.to, message, reply=self._here, headers=headers)
        except Exception as error:
            self.end("UNAVAILABLE", f"the broker is gone: {error or type(error).__name__}")
            assert self._ended is not None
            raise self._ended from None
