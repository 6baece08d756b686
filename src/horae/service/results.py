"""Every attempt ends, whatever it says of its end.

What cannot be kept is left out, and a success of which something would be missing is a failure that says so. The agent
does this before anybody else sees a result, so that neither its spool nor its line nor the store meets one that they
cannot take; a server does it again with what agents send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from horae.core.model import Moment, Reason, State
from horae.core.runs.orders import Result
from horae.core.runs.results import EXIT_CODES, MAX_CURSOR, MAX_RESULT, MAX_WAIT, believable, clean, fault_of, is_wait
from horae.core.runs.waits import wait_fault

BLOCKED = State.BLOCKED  # looked up once: for every run that takes a third of all that is done here


def make_sound(result: Result, faults: Sequence[str] = ()) -> None:
    """`faults` were found before, by whoever read it. Its times are those of a clock that may be wrong, and ours may be
    wrong too: the store places them."""
    if result.message:
        result.message = clean(result.message)
    result.started_at, result.finished_at = believable(result.started_at), believable(result.finished_at)
    if result.retry_after is not None:
        result.retry_after = min(result.retry_after, MAX_WAIT) if is_wait(result.retry_after) else None
    has_more = result.result is not None or result.cursor is not None or result.exit_code is not None
    if not has_more and not faults and result.state is not BLOCKED:
        return  # as most of them
    found = [*faults, *_faults(result)]
    if result.state is BLOCKED and (fault := wait_fault(result.wait)):
        found = [*found, f"it {fault}"]
    if found:
        _blame(result, Reason.BAD_RESULT, "; ".join(found))
    elif result.state is State.SUCCEEDED and result.exit_code:
        _blame(result, Reason.EXIT, f"it is said to have succeeded with exit code {result.exit_code}")


def make_plain(result: Result, now: Moment, why: str) -> None:
    """As little as a store must be able to write."""
    result.started_at, result.finished_at = None, now
    result.exit_code = result.result = result.output = result.cursor = None
    result.message = ""
    said = clean(why, 300).encode("ascii", "replace").decode()
    _blame(result, Reason.BAD_RESULT, f"what it said of its end could not be written: {said}")


def _faults(result: Result) -> Iterator[str]:
    """What cannot be kept; it is left out."""
    if result.result is not None and (fault := _fault_of(result.result, MAX_RESULT)):
        result.result = None
        yield f"its result {fault}"
    if result.cursor is not None and (fault := _fault_of(result.cursor, MAX_CURSOR)):
        result.cursor = None
        yield f"its cursor {fault}"
    if result.exit_code is not None and result.exit_code not in EXIT_CODES:
        result.exit_code = None
        yield "its exit code is that of no process"


def _fault_of(text: str, limit: int) -> str:
    if fault := fault_of(text, limit):
        return fault
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return "is not JSON"
    return ""


def _blame(result: Result, reason: Reason, why: str) -> None:
    if result.state in (State.SUCCEEDED, State.BLOCKED):
        result.state, result.reason, result.wait = State.FAILED, reason, None
    result.message = clean("; ".join(filter(None, (why, result.message))))
