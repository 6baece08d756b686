"""Waiting for the store only so long, for callers who would rather have an answer that says so.

A question that nobody waits for any more goes on and is bounded by the store's own limits: taking it back would cost
its connection, which others use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from horae.errors import Unavailable

T = TypeVar("T")
_left: set[asyncio.Task[Any]] = set()  # asked, and not waited for any more


async def within(seconds: float, question: Coroutine[Any, Any, T]) -> T:
    """Return the answer; Unavailable when there is none in time."""
    task = asyncio.create_task(question)
    _left.add(task)
    task.add_done_callback(_forget)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        raise Unavailable(f"the database has not answered for {seconds:g} s", hint="try again when it does")
    return task.result()


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # which nobody else may look at
