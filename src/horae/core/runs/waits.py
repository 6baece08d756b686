"""Waiting for a moment, a signal or other runs: what an attempt says that ends by it, and what it is told.

A run that waits is blocked, and holds no slot. What it is told is kept with it, as one JSON object by name:

    approve     {"at", "value", "by", "key"}              a signal, from whoever sent it
    approve     {"at", "late": true}                      nobody answered in time
    call:1      {"at", "run", "state", "message", "value"}    the first run that it called, as that ended

A name is answered once, for good: whoever goes on with the run, as often as it is begun, finds the same there. Names
with a colon are ours, and no signal from outside has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from horae.core.model import SECOND, Moment, Reason
from horae.core.runs.results import MAX_WAIT

SIGNAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
MAX_ANSWERS = 2 << 20  # bytes of all that a run was told; half of what one frame of a line may hold
SHORTEST = SECOND  # of a wait until a moment that has passed: the clock of whoever asks is behind
WAITS = (Reason.SNOOZED, Reason.SIGNAL, Reason.CHILDREN)  # reasons for which an attempt ends by waiting

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Wait:
    """For what an attempt waits that has ended by it."""

    reason: str  # of WAITS
    awaits: str | None = None  # the name under which it shall be told
    seconds: float | None = None  # after which it goes on whatever happens,
    until: Moment | None = None  # or when


def goes_on_at(wait: Wait, now: Moment) -> Moment | None:
    """Return when a run goes on that is told nothing."""
    if wait.until is not None:
        return min(max(wait.until, now + SHORTEST), now + round(MAX_WAIT * SECOND))
    return None if wait.seconds is None else now + round(min(max(wait.seconds, 0.0), MAX_WAIT) * SECOND)


class Signal(NamedTuple):
    """Something to tell a run."""

    run_id: int
    name: str
    value: str  # JSON text
    by: str = ""  # who says it
    key: str | None = None  # by which a repeat is known


class Told(StrEnum):
    """What became of a signal."""

    WOKEN = "woken"  # the run waited for it, and goes on
    KEPT = "kept"  # until the run asks
    REPEATED = "repeated"  # it was told the same, by the same request, before
    ANSWERED = "answered"  # it was told something else before: nothing was done
    LATE = "late"  # it has gone on without: nothing was done
    FULL = "full"  # it was told so much that no more fits: nothing was done
    ABSENT = "absent"  # no such run is live


def answer_parts(signal: Signal) -> tuple[str, str]:
    """Return the member of the object that a signal becomes, without the moment that belongs between the two."""
    rest = {"by": signal.by} if signal.by else {}
    if signal.key is not None:
        rest["key"] = signal.key
    said = "".join(f',"{name}":{_encode(value).decode()}' for name, value in rest.items())
    return f'"{signal.name}":{{"at":', f'{said},"value":{signal.value}}}'


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
    return {} if text is None else msgspec.json.decode(text, type=dict[str, dict[str, Any]])
