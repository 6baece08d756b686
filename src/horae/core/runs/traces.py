"""The W3C trace of a run: its id is made of the installation's own random part and the run's id, so that it can be told
before, during and after the run from anywhere, no two installations have the same, and a trace id found in some log
leads back to the run. Attempts are its spans."""

from __future__ import annotations

import re

UNNAMED = "686f726165000000"  # "horae": of every installation, before they had parts of their own
_ID = re.compile(r"([0-9a-f]{16})([0-7][0-9a-f]{15})")


def trace_id(run_id: int, installation: str = "") -> str:
    """`installation` is its random part, sixteen hexadecimal digits."""
    return f"{installation or UNNAMED}{run_id:016x}"


def traceparent(run_id: int, fence: int, installation: str = "") -> str:
    """Return the header and environment variable by which programs hand a trace on; an attempt is a span."""
    return f"00-{trace_id(run_id, installation)}-{fence:016x}-01"


def run_of(text: str, installation: str = "") -> int | None:
    """Return the run of a trace id, also of one from before installations had parts; None when it is nobody's here."""
    match = _ID.fullmatch(text.lower())
    if match is None or match[1] not in (installation, UNNAMED):
        return None
    return int(match[2], 16) or None
