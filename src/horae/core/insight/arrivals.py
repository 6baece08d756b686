"""When triggers are due within a window of time, as few numbers: evenly spaced stretches, and moments that stand alone.

Triggers by the hundred thousand share a few schedules, and most of those repeat. So moments are worked out once for all
triggers whose schedule and next moment are the same to the second, and a series that goes on evenly is one stretch,
however long: an interval; a cron expression that is the same in every hour, or comes once a day. A trigger that is due
every second is counted, never listed.

What must stay true: a series has as many moments as the schedule has within the window, and where `next_at` is the
first of them, they are the moments of the schedule, to the second.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from horae.core.model import SECOND, Moment
from horae.core.time import cron, outside
from horae.core.time.cron import Cron
from horae.core.time.document import Plan, read_text
from horae.core.time.moments import parse_duration
from horae.core.time.schedule import compile_text
from horae.errors import Error

HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
MOST_LISTED = 50_000  # moments of one series that stand alone
_EVERY = re.compile(r'\{"every":"([^"]+)"')
_ANY = ("*", "?")


class Window(NamedTuple):
    """The time that is looked at: [start, end), whole seconds."""

    start: Moment
    end: Moment


class Stretch(NamedTuple):
    """Moments that are evenly spaced."""

    first: Moment
    step: int  # µs; of one moment it says nothing
    times: int


class Series(NamedTuple):
    """The moments of triggers that share them."""

    stretches: tuple[Stretch, ...]
    delay: int = 0  # µs from the end of a run to the next moment: then `stretches` is the first moment alone
    is_exact: bool = False  # they fall on whole seconds, so that those of several triggers come at once

    @property
    def moments(self) -> int:
        """Return how many there are."""
        return sum(stretch.times for stretch in self.stretches)


NOTHING = Series(())


def share_key(schedule: str, next_at: Moment) -> tuple[object, ...]:
    """Return what triggers with the same moments have in common. `schedule` is canonical text."""
    step = _step_of(schedule)
    return (step or schedule, next_at // SECOND)


@lru_cache(maxsize=8192)
def _step_of(schedule: str) -> int:
    """Return the µs of an interval that goes on for ever; 0 for anything else. Cheaper than reading it."""
    if not schedule.startswith('{"every"') or '"mode"' in schedule or '"end_at"' in schedule:
        return 0
    found = _EVERY.match(schedule)
    return _duration(found[1]) if found else 0


@lru_cache(maxsize=4096)
def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except Error:
        return 0


def series_of(schedule: str, next_at: Moment, window: Window, *, seed: int, created_at: Moment) -> Series:
    """Return the moments of a trigger in a window, from its next one on; none of a schedule that cannot be read."""
    step = _step_of(schedule)
    if step:
        return Series(_evenly(next_at, step, window), is_exact=next_at % SECOND == 0)
    if schedule.startswith('{"at"'):
        return Series(_once(next_at, window))
    try:
        plan = read_text(schedule)
        return _of_plan(plan, schedule, next_at, window, seed, created_at)
    except Error:  # a newer node wrote it: whoever fires it can read it, and we cannot
        return NOTHING


def _of_plan(plan: Plan, schedule: str, next_at: Moment, window: Window, seed: int, created_at: Moment) -> Series:
    is_exact = next_at % SECOND == 0 and not plan.jitter
    if plan.kind in outside.KINDS:
        return NOTHING
    if plan.delay:
        return Series(_once(max(next_at, window.start), window), delay=plan.step)
    if plan.kind == "cron" and plan.end is None and _keeps_offset(plan, window):
        repeated = _repeated(cron.parse(plan.expression, plan.dialect), plan.spread)
        if repeated == HOUR and not plan.spread:
            return Series(_hourly(schedule, next_at, window, seed, created_at), is_exact=is_exact)
        if repeated:
            return Series(_evenly(next_at, repeated, window), is_exact=is_exact)
    return Series(_listed(schedule, next_at, window, seed, created_at), is_exact=is_exact)


def _keeps_offset(plan: Plan, window: Window) -> bool:
    """Return whether no clock is changed within the window."""
    return plan.zone.offset_at(window.start) == plan.zone.offset_at(window.end)


def _repeated(expression: Cron, is_spread: bool) -> int:
    """Return after how many µs an expression repeats itself: an hour, a day, or 0 for what does neither. What H stands
    for differs from trigger to trigger: there it must come once in that time."""
    if any(expression[name].text not in _ANY for name in ("day", "month", "weekday", "year")):
        return 0
    if len(expression.times.hours) == 24 and (not is_spread or len(expression.times.within) == 1):
        return HOUR
    return DAY if len(expression.times) == 1 else 0


def _once(moment: Moment, window: Window) -> tuple[Stretch, ...]:
    return (Stretch(moment, DAY, 1),) if window.start <= moment < window.end else ()


def _evenly(first: Moment, step: int, window: Window) -> tuple[Stretch, ...]:
    if first < window.start:
        first += -(-(window.start - first) // step) * step
    return (Stretch(first, step, (window.end - 1 - first) // step + 1),) if first < window.end else ()


def _hourly(schedule: str, next_at: Moment, window: Window, seed: int, created_at: Moment) -> tuple[Stretch, ...]:
    """One hour of it is worked out, and the others are the same."""
    begin = max(next_at, window.start - HOUR)
    hour = [stretch.first for stretch in _listed(schedule, next_at, Window(begin, begin + HOUR), seed, created_at)]
    gaps = {later - sooner for sooner, later in pairwise([*hour, hour[0] + HOUR])}
    if len(gaps) == 1:
        return _evenly(hour[0], gaps.pop(), window)
    return tuple(stretch for moment in hour for stretch in _evenly(moment, HOUR, window))


def _listed(schedule: str, next_at: Moment, window: Window, seed: int, created_at: Moment) -> tuple[Stretch, ...]:
    own = compile_text(schedule, seed, created_at)
    before = max(next_at, window.start - 1)
    moments = own.moments(before, window.end - 1, MOST_LISTED)
    if window.start <= next_at < window.end:
        moments.insert(0, next_at)
    return tuple(Stretch(moment, DAY, 1) for moment in moments)
