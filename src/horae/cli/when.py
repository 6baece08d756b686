"""Moments as people write them on a command line: how long ago, a time of today, a date, or RFC 3339.

What names no zone is read in that of the terminal, as everything is shown in it.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta

from horae.errors import Invalid

_TIME = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?", re.ASCII)


def read_when(option: str, text: str) -> str:
    """Return a moment as RFC 3339 in UTC. A date is its beginning."""
    from horae.core.time import moments  # not needed to start, and slow to load

    with contextlib.suppress(Invalid, OverflowError):
        ago = timedelta(microseconds=moments.read_duration(text))
        if timedelta() <= ago < timedelta(days=36_500):
            return (datetime.now(UTC) - ago).isoformat()
    with contextlib.suppress(ValueError, OverflowError):
        if (local := _local(text)) is not None:
            return local.astimezone(UTC).isoformat()
    with contextlib.suppress(Invalid):
        return moments.format_moment(moments.parse_moment(text))
    raise Invalid(
        f"{option} must be how long ago (30m, 2h, 1d), a time of today (14:30), a date (2027-03-28) or a moment "
        f"(2027-03-28T02:30:00Z); got {text!r}",
        code="E_USAGE",
    )


def _local(text: str) -> datetime | None:
    if _TIME.fullmatch(text):
        clock = "%H:%M:%S" if text.count(":") == 2 else "%H:%M"
        return datetime.combine(datetime.now().date(), datetime.strptime(text, clock).time())  # noqa: DTZ005, DTZ007
    return datetime.fromisoformat(text) if _DATE.fullmatch(text) else None
