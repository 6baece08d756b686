"""Turns: one after the other, or a few at a time, and never for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from horae.errors import Unavailable

WAIT_SECONDS = 3.0  # seconds a reader waits for a connection of the pool; beyond, there are too many


@asynccontextmanager
async def turn(gate: asyncio.Lock | asyncio.Semaphore, seconds: float) -> AsyncIterator[None]:
    """Wait for a turn, but not for long: a crowd is refused while it can still be told why."""
    if gate.locked():
        try:
            async with asyncio.timeout(seconds):
                await gate.acquire()
        except TimeoutError:
            raise Unavailable("too many requests wait for the database; try again", code="E_OVERLOADED") from None
    else:
        await gate.acquire()
    try:
        yield
    finally:
        gate.release()
