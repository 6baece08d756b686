"""Natural group commit: what arrives while a flush is under way goes with the next one.

An idle system adds no delay, a busy one makes larger batches by itself. A caller is answered only
after its flush has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from horae.errors import Unavailable

In = TypeVar("In")
Out = TypeVar("Out")


class Coalescer(Generic[In, Out]):
    """Collects single calls into batches of one function; answers come in the order of the items."""

    def __init__(self, flush: Callable[[list[In]], Awaitable[Sequence[Out]]], *, limit: int = 1000) -> None:
        self._flush = flush
        self._limit = limit
        self._waiting: list[tuple[In, asyncio.Future[Out]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: In) -> Out:
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._limit]
            del self._waiting[: self._limit]
            await self._settle(batch)

    async def _settle(self, batch: list[tuple[In, asyncio.Future[Out]]]) -> None:
        try:
            answers = await self._flush([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, Unavailable):
                for one in batch:  # an item that cannot be written takes nobody with it
                    await self._settle([one])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
