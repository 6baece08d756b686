"""Debounce: of many orders of one kind one run, some time after the last of them, or at the latest after the first.

An order waits, blocked(debounce). One of the same kind that comes meanwhile takes its place: what it says counts, the
run stays the same, and it waits anew, never beyond the latest moment. Moments of triggers are not held back by this.

What is promised, of each kind (what `per` tells apart):
- After an order was answered, a run begins or is skipped by the overlap policy, with the data of that order or of one
  that came after it.
- It is due when `seconds` have passed without another order, or `at_most` after the first, whichever is sooner.
- So where nothing fails, orders that come less than `seconds` apart, for less than `at_most`, are one run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from horae.core.model import SECOND, Debounce, Moment
from horae.core.policy.demands import DATA, bounded, value_at
from horae.core.time.moments import format_duration


class Calm(NamedTuple):
    """For what an order waits."""

    key: str  # of its kind
    wait: int  # µs after the last
    at_most: int | None  # µs after the first

    def moments(self, now: Moment, latest_at: Moment | None, *, is_first: bool) -> tuple[Moment, Moment | None]:
        """Return when it is due, and at the latest, as an order that came now leaves it."""
        if is_first:
            latest_at = None if self.at_most is None else now + self.at_most
        return (now + self.wait if latest_at is None else min(now + self.wait, latest_at)), latest_at


def calm_of(policy: Debounce | None, data: str | None) -> Calm | None:
    """Return for what an order waits; `data` is what its run is given, JSON text."""
    if policy is None:
        return None
    at_most = None if policy.at_most is None else round(policy.at_most * SECOND)
    return Calm(_key(policy.per, data), round(policy.seconds * SECOND), at_most)


def _key(per: str, data: str | None) -> str:
    if not per.startswith(DATA):
        return ""
    value = None if data is None else value_at(json.loads(data), per.removeprefix(DATA))
    return "" if value is None else bounded(json.dumps(value, sort_keys=True, separators=(",", ":")))


def why_waiting(policy: Debounce | None, due_at: Moment | None, words: Callable[[Moment], str]) -> str:
    """Why a run waits that is blocked(debounce)."""
    until = "" if due_at is None else f" until {words(due_at)}"
    if policy is None:
        return f"it waits{until}, as its job wanted when it was ordered"
    last = f"{format_duration(round(policy.seconds * SECOND))} after the last"
    first = (
        "" if policy.at_most is None else f", at most {format_duration(round(policy.at_most * SECOND))} after the first"
    )
    return f"more orders like it may come: it waits{until}, and runs {last}{first}"
