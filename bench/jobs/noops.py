"""Handlers that do nothing, for the worker processes: what is measured is the way there and back."""

from __future__ import annotations

from horae.handlers import Context, handler


@handler
async def noop(context: Context) -> None:
    """Nothing."""
