"""Waiting for a moment, a signal or other runs: what an attempt says that ends by it, and what it is told.

A run that waits is blocked, and holds no slot. What it is told is kept with it, as one JSON object by name:

    approve     {"at", "by", "value"}                         a signal, from whoever sent it
    approve     {"at", "late": true}                          nobody answered in time
    call:1      {"at", "run", "state", "message", "value"}    the first run that it called, as that ended

A name is answered once, for good: whoever goes on with the run, as often as it is begun, finds the same there. Names
with a colon are ours, and no signal from outside has one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from horae.core.definitions import Idempotency
from horae.core.model import SECOND, Moment, Reason
from horae.core.runs.results import MAX_RESULT, MAX_WAIT, believable, fault_of, is_wait
from horae.core.time.moments import format_moment
from horae.core.waits import CALL_NAME, DECISION, SIGNAL_NAME, WAITS, WATCH_END, Wait

MAX_CALLS = 1000  # at once
MAX_ANSWERS = 2 << 20  # bytes of all that a run was told; half of what one frame of a line may hold
SHORTEST = SECOND  # of a wait until a moment that has passed: the clock of whoever asks is behind


def goes_on_at(wait: Wait, now: Moment) -> Moment | None:
    """Return when a run goes on that is told nothing."""
    if wait.until is not None:
        return max(wait.until, now + SHORTEST)
    return None if wait.seconds is None else now + round(min(max(wait.seconds, 0.0), MAX_WAIT) * SECOND)


def wait_fault(wait: Wait | None) -> str:
    """Return why nobody can wait so, or nothing."""
    if wait is None or wait.reason not in WAITS:
        return "waits for nothing that is known"
    if wait.reason == Reason.SIGNAL and not (wait.awaits and SIGNAL_NAME.fullmatch(wait.awaits)):
        return "waits for a signal without a name"
    if wait.reason == Reason.SNOOZED and wait.seconds is None and wait.until is None:
        return "waits for no moment"
    if (wait.seconds is not None and not is_wait(wait.seconds)) or believable(wait.until) != wait.until:
        return "waits for a moment that never comes"
    return _call_fault(wait) if wait.calls or wait.reason == Reason.CHILDREN else ""


def _call_fault(wait: Wait) -> str:
    if wait.reason != Reason.CHILDREN or not 0 < len(wait.calls) <= MAX_CALLS:
        return f"calls no run, or more than {MAX_CALLS} at once"
    names = {call.task for call in wait.calls}
    if len(names) < len(wait.calls) or not all(map(CALL_NAME.fullmatch, names)):
        return "calls a run under a name that is none"
    return next((f"gives a call data that {why}" for call in wait.calls if (why := _data_fault(call.data))), "")


def _data_fault(text: str | None) -> str:
    return "" if text is None else fault_of(text, MAX_RESULT)


def in_words(wait: Wait, now: Moment) -> str:
    """Return one sentence for people on what a run waits for."""
    since = f"since {format_moment(now)}"
    if wait.awaits == WATCH_END:
        return f"waits for a ping {since}"
    if wait.reason == Reason.SIGNAL:
        return f"waits for {'an approval' if wait.awaits == DECISION else f'the signal {wait.awaits}'} {since}"
    if wait.calls:
        return f"waits for {len(wait.calls)} {'runs' if len(wait.calls) > 1 else 'run'} that it called, {since}"
    return f"asked to go on later, {since}"


class Signal(NamedTuple):
    """Something to tell a run."""

    run_id: int
    name: str
    value: str  # JSON text
    by: str = ""  # who says it
    idempotency: Idempotency | None = None  # by which a repeat is known, whatever has become of the run


class Told(StrEnum):
    """What became of a signal."""

    WOKEN = "woken"  # the run waited for it, and goes on
    KEPT = "kept"  # until the run asks
    REPEATED = "repeated"  # it was told this before, by the same request
    MISMATCH = "mismatch"  # the key came with another request before: nothing was done
    ANSWERED = "answered"  # it was told something else before: nothing was done
    LATE = "late"  # it has gone on without: nothing was done
    FULL = "full"  # it was told so much that no more fits: nothing was done
    ABSENT = "absent"  # no such run is live

    @property
    def is_done(self) -> bool:
        return self in (Told.WOKEN, Told.KEPT)


def answer_parts(signal: Signal) -> tuple[str, str]:
    """Return the member of the object that a signal becomes, without the moment that belongs between the two."""
    by = f',"by":{json.dumps(signal.by)}' if signal.by else ""
    return f'"{signal.name}":{{"at":', f'{by},"value":{signal.value}}}'


def rounds(signals: Sequence[Signal]) -> list[list[int]]:
    """Return the places of signals in lists that tell each run one thing at most, in the order in which they came."""
    seen: dict[int, int] = {}
    lists: list[list[int]] = []
    for place, signal in enumerate(signals):
        number = seen[signal.run_id] = seen.get(signal.run_id, -1) + 1
        if number == len(lists):
            lists.append([])
        lists[number].append(place)
    return lists


def read_answers(text: str | None) -> dict[str, dict[str, Any]]:
    told: dict[str, dict[str, Any]] = {} if text is None else json.loads(text)
    return told
