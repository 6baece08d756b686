"""When triggers are due within a window of time, as few numbers: evenly spaced stretches, and moments that stand alone.

Triggers by the hundred thousand share a few schedules, and most of those repeat. So moments are worked out once for all
triggers whose schedule and next moment are the same to the second, and a series that goes on evenly is one stretch,
however long: an interval; a cron expression that is the same in every hour, or comes once a day; within a day, what
comes every second from eight to six. A trigger that is due every second is counted, never listed.

What must stay true: a series has as many moments as the schedule has within the window, and where `next_at` is the
first of them, they are the moments of the schedule, to the second. Only where a schedule must be asked one by one for
very many (a rule that comes every second), the rest is estimated from the first of them, and the series says so.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from horae.core.model import SECOND, Moment
from horae.core.time import cron, outside
from horae.core.time.cron import Cron
from horae.core.time.document import Plan, read_text
from horae.core.time.moments import parse_duration, zone
from horae.core.time.schedule import Schedule, compile_text
from horae.core.time.wallclock import Zone, offsets_of
from horae.errors import Error

HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
MOST_ASKED = 20_000  # moments for which one schedule is asked one by one
LEAST_EVEN = 3  # moments in a row that are one stretch
_EVERY = re.compile(r'\{"every":"([^"]+)"')
_DAILY = re.compile(
    r'\{"cron":"[0-5]?[0-9] (?:[01]?[0-9]|2[0-3]) \* \* \*"(?:,"timezone":"([A-Za-z0-9_/+-]+)")?\}', re.ASCII
)


class Window(NamedTuple):
    """The time that is looked at: [start, end), whole seconds."""

    start: Moment
    end: Moment


class Stretch(NamedTuple):
    """Moments that are evenly spaced."""

    first: Moment
    step: int  # µs; of one moment it says nothing
    times: int

    @property
    def last(self) -> Moment:
        return self.first + (self.times - 1) * self.step


class Series(NamedTuple):
    """The moments of triggers that share them."""

    stretches: tuple[Stretch, ...]
    delay: int = 0  # µs from the end of a run to the next moment: then `stretches` is the first moment alone
    is_exact: bool = False  # they fall on whole seconds, so that those of several triggers come at once
    is_estimated: bool = False  # there are too many to be asked for: how many is not exact

    @property
    def moments(self) -> int:
        """Return how many there are."""
        return sum(stretch.times for stretch in self.stretches)

    def in_turn(self) -> tuple[Stretch, ...]:
        """Return stretches of which each ends before the next begins: these, or, of those that repeat every hour, a day
        of them."""
        if all(one.last < following.first for one, following in pairwise(self.stretches)):
            return self.stretches
        end = min(stretch.first for stretch in self.stretches) + DAY
        return _evened(
            sorted(
                moment
                for first, step, times in self.stretches
                for moment in range(first, min(end, first + times * step), step)
            )
        )

    def later(self, seconds: float) -> Series:
        """Return moments so much later, in whole seconds: who comes after another does not meet it."""
        if not seconds:
            return self
        by = ceil(seconds) * SECOND
        return self._replace(stretches=tuple(one._replace(first=one.first + by) for one in self.stretches))

    def inside(self, window: Window) -> Series:
        """Return what of moments that were put off still lies within the window."""
        return self._replace(stretches=tuple(_cut(one, window) for one in self.stretches))

    def with_runs(self, seconds: float, window: Window) -> Series:
        """Of an interval that counts from the end of a run: the run, and then the interval."""
        if not self.delay or not self.stretches:
            return self
        return self._replace(stretches=_evenly(self.stretches[0].first, self.delay + round(seconds * SECOND), window))


def _cut(stretch: Stretch, window: Window) -> Stretch:
    most = (window.end - 1 - stretch.first) // stretch.step + 1
    return stretch if stretch.times <= most else stretch._replace(times=max(0, most))


NOTHING = Series(())


class Pace(NamedTuple):
    """How a schedule goes on from any moment of it, where that is always the same."""

    step: int  # µs; 0: it is not
    zone: Zone | None = None  # whose clock must not be changed meanwhile; None: clocks do not matter
    has_jitter: bool = False


_UNEVEN = Pace(0)


@lru_cache(maxsize=8192)
def pace_of(schedule: str) -> Pace:
    """Return how a schedule goes on. Of those that people have most, and each another one, without reading them: that
    takes a quarter of a millisecond. `schedule` is canonical text."""
    step = _step_of(schedule)
    if step:
        return Pace(step)
    try:
        daily = _DAILY.fullmatch(schedule)
        if daily:
            return Pace(DAY, offsets_of(zone(daily[1] or "UTC")))
        return _pace_of_plan(read_text(schedule)) if schedule.startswith('{"cron"') else _UNEVEN
    except Error:  # a newer node wrote it
        return _UNEVEN


def _pace_of_plan(plan: Plan) -> Pace:
    if plan.kind != "cron" or plan.end is not None:
        return _UNEVEN
    repeated = _repeated(cron.parse(plan.expression, plan.dialect), plan.spread)
    return Pace(repeated, plan.zone, bool(plan.jitter)) if repeated == DAY or plan.spread else _UNEVEN


def clock_of(schedule: str) -> object:
    """Return what schedules have in common whose triggers have the same moments from the same second on."""
    return _step_of(schedule) or schedule


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


def even_series(schedule: str, next_at: Moment, window: Window) -> Series | None:
    """Return the moments of a trigger that are evenly spaced, all of them; None: they are not, or nobody knows yet."""
    pace = pace_of(schedule)
    if not pace.step or (pace.zone is not None and not _keeps_offset(pace.zone, window)):
        return None
    return Series(_evenly(next_at, pace.step, window), 0, next_at % SECOND == 0 and not pace.has_jitter)


def series_of(schedule: str, next_at: Moment, window: Window, *, seed: int, created_at: Moment) -> Series:
    """Return the moments of a trigger in a window, from its next one on; none of a schedule that cannot be read."""
    even = even_series(schedule, next_at, window)
    if even is not None:
        return even
    if schedule.startswith('{"at"'):
        return Series(_once(next_at, window))
    try:
        return _of_plan(read_text(schedule), schedule, next_at, window, seed, created_at)
    except Error:  # a newer node wrote it: whoever fires it can read it, and we cannot
        return NOTHING


def _of_plan(plan: Plan, schedule: str, next_at: Moment, window: Window, seed: int, created_at: Moment) -> Series:
    is_exact = next_at % SECOND == 0 and not plan.jitter
    if plan.kind in outside.KINDS:
        return NOTHING
    if plan.delay:
        return Series(_once(max(next_at, window.start), window), delay=plan.step)
    is_steady = plan.kind == "cron" and plan.end is None and _keeps_offset(plan.zone, window)
    own = compile_text(schedule, seed, created_at)
    if is_steady and _repeated(cron.parse(plan.expression, plan.dialect), plan.spread):
        return Series(_hourly(own, next_at, window), is_exact=is_exact)
    if is_steady and not plan.jitter:
        return Series(_by_day(own, seed, next_at, window), is_exact=is_exact)
    return _one_by_one(own, next_at, window, is_exact=is_exact)


def _one_by_one(own: Schedule, next_at: Moment, window: Window, *, is_exact: bool) -> Series:
    moments = _asked(own, next_at, window)
    if len(moments) < MOST_ASKED:
        return Series(_evened(moments), is_exact=is_exact)
    step = (moments[-1] - moments[0]) // (len(moments) - 1)
    rest = _evenly(moments[-1] + step, step, window)
    return Series(_evened(moments) + rest, is_exact=is_exact, is_estimated=True)


@lru_cache(maxsize=1024)
def _keeps_offset(zone: Zone, window: Window) -> bool:
    """Return whether no clock is changed within the window."""
    days = range(window.start, window.end, DAY)
    return len({zone.offset_at(moment) for moment in (*days, window.end)}) == 1


def _repeated(expression: Cron, is_spread: bool) -> int:
    """Return after how many µs an expression repeats itself: an hour, a day, or 0 for what does neither. What H stands
    for differs from trigger to trigger: there it must come once in that time."""
    if not all(expression[name].is_any for name in ("day", "month", "weekday", "year")):
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


def _hourly(own: Schedule, next_at: Moment, window: Window) -> tuple[Stretch, ...]:
    """One hour of it is worked out, and the others are the same."""
    begin = max(next_at, window.start - HOUR)
    hour = _asked(own, next_at, Window(begin, begin + HOUR))
    gaps = {later - sooner for sooner, later in pairwise([*hour, hour[0] + HOUR])}
    if len(gaps) == 1:
        return _evenly(hour[0], gaps.pop(), window)
    return tuple(stretch for moment in hour for stretch in _evenly(moment, HOUR, window))


def _by_day(own: Schedule, seed: int, next_at: Moment, window: Window) -> tuple[Stretch, ...]:
    """Days are asked for; their times are those of the expression, and alike on all of them."""
    expression = cron.parse(own.plan.expression, own.plan.dialect, seed=seed)
    times, offset = [second * SECOND for second in expression.times], own.plan.zone.offset_at(window.start)
    whole, found = _evened(times), list[Stretch]()
    if window.start <= next_at < window.end:
        found.append(Stretch(next_at, DAY, 1))
    after = max(next_at, window.start - 1)
    while (at := own.next_after(after)) is not None and at < window.end:
        midnight = (at + offset) // DAY * DAY - offset
        part = times[bisect_right(times, after - midnight) : bisect_left(times, window.end - midnight)]
        day = whole if len(part) == len(times) else _evened(part)
        found += [stretch._replace(first=midnight + stretch.first) for stretch in day]
        after = midnight + DAY - 1
    return tuple(found)


def _asked(own: Schedule, next_at: Moment, window: Window) -> list[Moment]:
    moments = own.moments(max(next_at, window.start - 1), window.end - 1, MOST_ASKED)
    return [next_at, *moments] if window.start <= next_at < window.end else moments


def _evened(moments: Sequence[Moment]) -> tuple[Stretch, ...]:
    """Return moments as stretches: those in a row that are evenly spaced are one."""
    found, at, count = list[Stretch](), 0, len(moments)
    while at < count:
        step, end = (moments[at + 1] - moments[at] if at + 1 < count else DAY), at + 1
        while end < count and moments[end] - moments[end - 1] == step:
            end += 1
        if end - at < LEAST_EVEN:
            step, end = DAY, at + 1
        found.append(Stretch(moments[at], step, end - at))
        at = end
    return tuple(found)
