"""The W3C trace of a run: its id is made of the installation's own random part and the run's id, so that it can be told
before, during and after the run from anywhere, no two installations have the same, and a trace id found in some log
leads back to the run. Tasks, and what handlers call, are part of the trace of the run at the top.

The spans of a trace are known in the same way: whoever tells of one, and however often, calls it by the same id."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

UNNAMED = "686f726165000000"  # "horae": of every installation, before they had parts of their own
EXECUTE = "execute"  # the part of an attempt that its agent tells of
_ID = re.compile(r"([0-9a-f]{16})([0-7][0-9a-f]{15})")
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SPAN = slice(36, 52)  # where a traceparent has the id of its span


def trace_id(run_id: int, installation: str = "") -> str:
    """`installation` is its random part, sixteen hexadecimal digits."""
    return f"{installation or UNNAMED}{run_id:016x}"


def span_id(run_id: int, fence: int = 0, part: str = "") -> str:
    """Return the id of the span of a run, of an attempt at it, or of a part of either."""
    return blake2b(f"{run_id}.{fence}.{part}".encode(errors="replace"), digest_size=8).hexdigest()


def step_part(number: int) -> str:
    """Return which part of an attempt its nth step is, counted from 0."""
    return f"step.{number}"


def is_sampled(trace: str, ratio: float) -> bool:
    """Return whether spans of a trace are told of: the same for all of them, wherever they are made. Run ids are
    consecutive, so it is their digest that decides."""
    if ratio >= 1:
        return True
    return int.from_bytes(blake2b(trace.encode(), digest_size=8).digest()) < ratio * 2**64


def traceparent(
    run_id: int, fence: int, installation: str = "", *, root: int | None = None, part: str = "", ratio: float = 1.0
) -> str:
    """Return the header and environment variable by which programs hand a trace on; an attempt, or a part of it, is the
    span. `root` is the run at the top, of one that is a task."""
    trace = trace_id(run_id if root is None else root, installation)
    return f"00-{trace}-{span_id(run_id, fence, part)}-{is_sampled(trace, ratio):02x}"


def with_span(parent: str, span: str) -> str:
    """Return a traceparent of ours with another span of the same trace."""
    return f"{parent[: _SPAN.start]}{span}{parent[_SPAN.stop :]}"


class Caller(NamedTuple):
    """Who asks, as a part of a trace of theirs."""

    trace_id: str
    span_id: str
    is_sampled: bool


def read_traceparent(text: str) -> Caller | None:
    """Return what a header says that somebody sent; None where it says nothing, as W3C has it."""
    match = _PARENT.fullmatch(text.strip())
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if (version == "00" and more) or not int(trace, 16) or not int(span, 16):  # later versions may say more
        return None
    return Caller(trace, span, bool(int(flags, 16) & 1))


def run_of(text: str, installation: str = "") -> int | None:
    """Return the run of a trace id, also of one from before installations had parts; None when it is nobody's here."""
    match = _ID.fullmatch(text.lower())
    if match is None or match[1] not in (installation, UNNAMED):
        return None
    return int(match[2], 16) or None
