"""Frames on their way out of one end of a stream: what is urgent overtakes, what is alike stays in order.

A beat must never wait behind output. Output in turn is bounded by its window, so no more than WINDOW bytes of it
are ever ahead in the pipe itself.
"""

from __future__ import annotations

import asyncio
import heapq
from enum import IntEnum
from itertools import count


class Urgency(IntEnum):
    BEAT = 0
    REQUEST = 1
    OUTPUT = 2


class Outbox:
    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, bytes]] = []
        self._order = count()
        self._filled = asyncio.Event()
        self._is_closed = False

    def put(self, frame: bytes, urgency: Urgency = Urgency.REQUEST) -> None:
        heapq.heappush(self._waiting, (urgency, next(self._order), frame))
        self._filled.set()

    async def get(self) -> bytes | None:
        """Return the next frame; None once it is closed."""
        while not self._waiting and not self._is_closed:
            self._filled.clear()
            await self._filled.wait()
        return None if self._is_closed else heapq.heappop(self._waiting)[2]

    def close(self) -> None:
        """Nothing more goes out, not even what waits."""
        self._is_closed = True
        self._filled.set()
