"""Connections that are kept open between calls, whatever they are made of.

What must stay true: a connection is lent to one call at a time, and comes back only after a whole answer, so that no
call can read the answer of another; and it is used only by the process (and the event loop) that opened it.
"""

from __future__ import annotations

import os
import time
from typing import Generic, TypeVar

from horae.client.address import Server
from horae.errors import Conflict
from horae.wire.http import Cut, Fault, Incoming, NotConnected, Silent

CONNECT = 5.0  # seconds to reach a server
KEEP = 4.0  # seconds that an idle connection is kept: less than servers keep theirs
MOST_IDLE = 100
PIECE = 1 << 16  # bytes that are read at once

Line = TypeVar("Line")


class Pool(Generic[Line]):
    """The connections to one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._idle: list[tuple[float, Line]] = []  # since when
        self._process = os.getpid()
        self._is_closed = False

    def take(self) -> Line | None:
        """Return an idle connection, if there is one that can be used."""
        self.refuse_misuse()
        while self._idle:
            since, line = self._idle.pop()
            if time.monotonic() - since < KEEP and self.is_usable(line):
                return line
            self.end(line)
        return None

    def give_back(self, line: Line, incoming: Incoming) -> None:
        """Keep a connection after a whole answer; end it after anything else."""
        is_fit = incoming.is_whole and incoming.may_stay and not self._is_closed
        if is_fit and len(self._idle) < MOST_IDLE:
            self._idle.append((time.monotonic(), line))
        else:
            self.end(line)

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self.end(self._idle.pop()[1])

    def refuse_misuse(self) -> None:
        if self._is_closed:
            raise Conflict("this client is closed: make a new one", code="E_CLIENT")
        if os.getpid() != self._process:
            raise Conflict("this client was made before a fork: make one in each process", code="E_CLIENT")

    def is_usable(self, line: Line) -> bool:
        raise NotImplementedError

    def end(self, line: Line) -> None:
        raise NotImplementedError

    def fault(self, error: OSError | Fault) -> Fault:
        """Return what became of an exchange, with the server that it was with."""
        if isinstance(error, Fault):
            return type(error)(self.server, str(error))
        return (Silent if isinstance(error, TimeoutError) else Cut)(self.server, str(error))

    def check_tunnel(self, incoming: Incoming) -> None:
        """Raise what a proxy refuses."""
        if incoming.status // 100 != 2:
            raise NotConnected(self.server, f"it answers with status {incoming.status}")
