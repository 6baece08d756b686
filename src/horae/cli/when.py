"""Moments as the command line takes them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from horae.errors import Invalid


def read_since(text: str) -> str:
    """Return how long ago, or a moment → RFC 3339 in UTC."""
    from horae.core.time import moments  # not needed to start, and slow to load

    with contextlib.suppress(Invalid):
        ago = timedelta(microseconds=moments.read_duration(text))
        if timedelta() <= ago < timedelta(days=36_500):
            return (datetime.now(UTC) - ago).isoformat()
    with contextlib.suppress(Invalid):
        return moments.format_moment(moments.parse_moment(text))
    raise Invalid(
        f"--since must be how long ago (30m, 2h, 1d) or a moment (2027-03-28T02:30:00Z); got {text!r}", code="E_USAGE"
    )
