"""Clashes: many triggers that are due in the same second, and how their schedules would spread them.

`0 0 * * *` is midnight for everybody. Written with `H`, each trigger has a minute of its own, chosen by a hash of its
id: the same one every day, and evenly spread over all (core.time.cron).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from horae.core.insight.arrivals import Series
from horae.core.model import SECOND, Moment
from horae.core.time import cron
from horae.core.time.document import read_text
from horae.errors import Error

FEWEST = 10  # triggers that are due together
SHORTEST = 60 * SECOND  # of the time between moments: what comes more often meets others all the time
MOST = 10  # clashes that are told
MOST_SCHEDULES = 5  # of one clash
MOST_JOBS = 5  # that share a schedule
_NUMBER = re.compile(r"[0-9]{1,2}")
_STEPPED = re.compile(r"(?:\*|0)/([0-9]{1,2})")


class Shared(NamedTuple):
    """Triggers with the same moments."""

    schedule: str  # as stored
    series: Series
    triggers: int
    whose: object  # by which their jobs are asked for


class Crowd(NamedTuple):
    """The part of a clash that has one schedule."""

    expression: str
    timezone: str
    triggers: int
    jobs: tuple[int, ...]  # some of them
    instead: str | None  # an expression that spreads them; None: say so by hand
    names: tuple[str, ...] = ()  # of these jobs


class Clash(NamedTuple):
    at: Moment  # the first time
    times: int
    triggers: int
    crowds: tuple[Crowd, ...]  # the largest first

    def named(self, names: Mapping[int, str]) -> Clash:
        """Return it with the names of its jobs; one that is gone meanwhile is called by its number."""
        return self._replace(
            crowds=tuple(
                crowd._replace(names=tuple(names.get(job_id, str(job_id)) for job_id in crowd.jobs))
                for crowd in self.crowds
            )
        )


Jobs = Mapping[object, Sequence[int]]


def find_clashes(shared: Iterable[Shared], jobs_of: Callable[[set[object]], Jobs]) -> list[Clash]:
    """Return where most triggers come together, one of each kind: what clashes every hour is told once. Jobs are
    asked for where they are told."""
    groups = [one for one in shared if one.series.is_exact and _is_plain(one.schedule)]
    meeting: dict[Moment, list[int]] = {}
    for index, one in enumerate(groups):
        for moment in _moments(one.series):
            if moment in meeting:
                meeting[moment].append(index)
            else:
                meeting[moment] = [index]
    alike: dict[tuple[int, ...], tuple[Moment, int]] = {}
    for moment, indexes in meeting.items():
        first, times = alike.get(tuple(indexes), (moment, 0))
        alike[tuple(indexes)] = min(first, moment), times + 1
    sizes = {indexes: sum(groups[index].triggers for index in indexes) for indexes in alike}
    many = sorted((-size, alike[indexes][0], indexes) for indexes, size in sizes.items() if size >= FEWEST)
    told = [
        (_largest([groups[index] for index in indexes]), -size, *alike[indexes]) for size, _, indexes in many[:MOST]
    ]
    jobs = jobs_of({one.whose for crowds, *_ in told for one in crowds})
    return [
        Clash(at, times, size, tuple(_crowd(one, jobs[one.whose]) for one in crowds))
        for crowds, size, at, times in told
    ]


@lru_cache(maxsize=8192)
def _is_plain(schedule: str) -> bool:
    """Return whether a schedule that has moments has an expression that is not spread. It is not read: that takes as
    long as a hundred looks at it."""
    return schedule.startswith('{"cron"') and '"jitter"' not in schedule and not cron.uses_spread(schedule)


def _moments(series: Series) -> Iterable[Moment]:
    for stretch in series.stretches:
        if stretch.times == 1 or stretch.step >= SHORTEST:
            yield from range(stretch.first, stretch.first + stretch.times * stretch.step, stretch.step)


def _largest(groups: Sequence[Shared]) -> list[Shared]:
    return sorted(groups, key=lambda one: -one.triggers)[:MOST_SCHEDULES]


def _crowd(one: Shared, jobs: Sequence[int]) -> Crowd:
    expression, zone = _expression_of(one.schedule)
    return Crowd(expression, zone, one.triggers, tuple(jobs), spread(expression))


def _expression_of(schedule: str) -> tuple[str, str]:
    """Return the cron expression of a schedule, and its zone."""
    plan = read_text(schedule)
    return plan.expression, str(plan.document.get("timezone", "UTC"))


def spread(expression: str) -> str | None:
    """Return an expression as often as this one that is another for each trigger; None where it is not plain how."""
    fields = cron.MACROS.get(expression.lower(), expression).split()
    at = len(fields) - 5 if len(fields) in (5, 6) else 1  # the place of the minute
    if not 5 <= len(fields) <= 7:
        return None
    minute = _spread_field(fields[at])
    if minute is not None:
        fields[at] = minute
    elif fields[at] != "*":
        return None
    elif at == 0:
        fields.insert(0, "H")  # every minute, each at a second of its own
    elif _NUMBER.fullmatch(fields[0]):
        fields[0] = "H"
    return _readable(" ".join(fields))


def _spread_field(text: str) -> str | None:
    if _NUMBER.fullmatch(text):
        return "H"
    stepped = _STEPPED.fullmatch(text)
    return f"H/{stepped[1]}" if stepped else None


def _readable(expression: str) -> str | None:
    try:
        return expression if cron.parse(expression).spread else None
    except Error:
        return None
