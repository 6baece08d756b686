"""The W3C trace of a run: its id is made from the run's, so that it can be told before, during and after the run
from anywhere, and a trace id found in some log leads back to the run. Attempts are its spans."""

from __future__ import annotations

import re

_PREFIX = "686f726165000000"  # "horae"; the run id fills the other half
_ID = re.compile(f"{_PREFIX}([0-7][0-9a-f]{{15}})", re.IGNORECASE)


def trace_id(run_id: int) -> str:
    return f"{_PREFIX}{run_id:016x}"


def traceparent(run_id: int, fence: int) -> str:
    """The header and environment variable by which programs hand a trace on; an attempt is a span."""
    return f"00-{trace_id(run_id)}-{fence:016x}-01"


def run_of(text: str) -> int | None:
    """The run of a trace id; None when it is nobody's here."""
    match = _ID.fullmatch(text)
    return int(match[1], 16) or None if match else None
