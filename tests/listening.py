"""A server of the test's own, of which nothing is left when the test is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

TURNS = 10  # of the loop, in which a connection that was just accepted gets its task

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Give the port; `talk` is had with each who connects, and ended with the listener."""
    talks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await talk(reader, writer)
        finally:
            writer.close()
            with suppress(Exception):
                await writer.wait_closed()
            talks.discard(task)

    server = await asyncio.start_server(serve, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for task in list(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
