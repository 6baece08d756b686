"""Natural group commit: what arrives while a flush is under way goes with the next one.

An idle system adds no delay, a busy one makes larger batches by itself. Where a little delay does not matter but every
commit does (heartbeats), flushes keep a distance, and what arrives meanwhile is gathered. A caller is answered only
after its flush has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from horae.errors import Unavailable
from horae.ports import deeds

PASSES = 3  # of the event loop, from bytes at a socket to an item that waits

In = TypeVar("In")
Out = TypeVar("Out")


class Coalescer(Generic[In, Out]):
    """Collects single calls into batches of one function; answers come in the order of the items."""

    def __init__(
        self,
        flush: Callable[[list[In]], Awaitable[Sequence[Out]]],
        *,
        limit: int = 1000,
        weigh: Callable[[In], int] | None = None,
        gap: float = 0.0,
    ) -> None:
        """A batch weighs at most `limit`, unless one item alone does; an item weighs 1, unless `weigh` says otherwise.
        `gap`: seconds from the beginning of a flush to that of the next one, at least."""
        self._flush = flush
        self._limit = limit
        self._weigh = weigh
        self._gap = gap
        self._flushed_at = float("-inf")
        self._waiting: list[tuple[In, asyncio.Future[Out]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: In) -> Out:
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        deeds.carry(None)  # it works for whoever comes, not for who came first: items have deeds of their own
        loop = asyncio.get_running_loop()
        while self._waiting:
            wait = self._flushed_at + self._gap - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._flushed_at = loop.time()
            batch = self._next_batch()
            await self._deliver(batch)
            if len(batch) > 1:  # those who were answered, and those at the door, have their turn: they come along
                for _ in range(PASSES):
                    await asyncio.sleep(0)

    def _next_batch(self) -> list[tuple[In, asyncio.Future[Out]]]:
        count = self._limit if self._weigh is None else self._count_by_weight(self._weigh)
        batch = self._waiting[:count]
        del self._waiting[:count]
        return batch

    def _count_by_weight(self, weigh: Callable[[In], int]) -> int:
        weight = 0
        for count, (item, _) in enumerate(self._waiting):
            weight += weigh(item)
            if weight > self._limit:
                return max(count, 1)
        return len(self._waiting)

    async def _deliver(self, batch: list[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            answers = await self._flush([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, Unavailable):
                for one in batch:  # an item that cannot be written takes nobody with it
                    await self._deliver([one])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


async def read_ahead(items: AsyncIterator[In]) -> AsyncGenerator[In, None]:
    """Yield the items; the next one is made while whoever asked is busy with the last."""
    coming = asyncio.ensure_future(anext(items, None))
    try:
        while (item := await coming) is not None:
            coming = asyncio.ensure_future(anext(items, None))
            yield item
    finally:
        coming.cancel()
        await asyncio.wait([coming])
