"""Handlers that do nothing, for the worker processes: what is measured is the way there and back."""

from __future__ import annotations

import time

from horae.handlers import Context, handler


@handler
async def noop(context: Context) -> None:
    """Nothing."""


@handler
async def told(context: Context) -> int:
    """Return how many microseconds ago it was told."""
    sent: int = context.signal("go")
    return time.time_ns() // 1000 - sent
