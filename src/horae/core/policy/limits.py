"""Limits: how many may start in a time, and how many may run at once. Whole microseconds, whole units.

What is in use is counted from the runs that are running, nowhere else. A rate is one moment that is kept: GCRA, the
generic cell rate algorithm. `ready_at` is when the next start would come if starts came evenly; a start may come before
it by as much as the burst allows, and moves it on by one period. So in any window there are never more starts than
burst + window / period, over restarts too, since the moment is a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from horae.core.fields import shown
from horae.core.model import DEFAULT_ORG, SECOND, Moment
from horae.errors import Invalid

UNITS = {"s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "day": 86_400 * SECOND}
MOST_PER_SECOND = SECOND  # one start in a microsecond
LARGEST_BURST = 1_000_000
SHOWN_RUNS = 5  # of those that hold a limit
_RATE = re.compile(r"([1-9][0-9]{0,14})/(s|min|h|day)")
MOST_UNITS = 1_000_000  # that the cluster has of something
RESOURCE_PATTERN = r"[a-z][a-z0-9_-]{0,40}"
_RESOURCE = re.compile(RESOURCE_PATTERN)
_OF_AGENTS = ("slots", "cpus", "memory")  # nothing that the cluster has beside its machines


class Rate(NamedTuple):
    number: int
    unit: str  # one of UNITS

    @property
    def period(self) -> int:
        """Microseconds from one start to the next, rounded up: a rate is never exceeded by a fraction."""
        return -(-UNITS[self.unit] // self.number)

    def __str__(self) -> str:
        return f"{self.number}/{self.unit}"


@lru_cache(maxsize=4096)
def parse_rate(text: str) -> Rate:
    found = _RATE.fullmatch(text)
    if found is None:
        words = "a count and a unit such as 100/min expected, with s, min, h or day"
        raise Invalid(f"{words}, got {text[:40]!r}", code="E_PATTERN")
    rate = Rate(int(found[1]), found[2])
    if rate.number * SECOND > MOST_PER_SECOND * UNITS[rate.unit]:
        raise Invalid(f"at most {MOST_PER_SECOND}/s expected, got {text}", code="E_RANGE")
    return rate


class Limit(NamedTuple):
    """What holds for all runs that use one key."""

    key: str
    capacity: int | None = None  # units that may be in use at once; None: any number
    period: int | None = None  # µs from one start to the next; None: no rate
    burst: int = 1
    ready_at: Moment = 0  # when the next start would come if they came evenly

    def free_at(self, now: Moment) -> Moment:
        """Return the moment from which on the rate allows a start: `now` if it does already.

        Whatever is kept, a full burst is to be had again after as many periods: so a clock that was set back, or a
        rate that was raised, holds nobody up for longer than that.
        """
        if self.period is None:
            return now
        return max(now, min(self.ready_at, now + self.burst * self.period) - (self.burst - 1) * self.period)

    def started(self, now: Moment) -> Limit:
        """Return the limit after a start that the rate has allowed."""
        if self.period is None:
            return self
        kept = min(self.ready_at, now + self.burst * self.period)
        return self._replace(ready_at=max(kept, now) + self.period)

    def has_room(self, used: int, cost: int) -> bool:
        return self.capacity is None or used + cost <= self.capacity

    def starts_left(self, used: int, cost: int, now: Moment) -> int:
        """Return how many starts in a row are allowed now, MOST_UNITS at most."""
        left = MOST_UNITS if self.capacity is None else max(0, self.capacity - used) // cost
        if self.period is None:
            return left
        end = now + self.burst * self.period
        return min(left, (end - max(min(self.ready_at, end), now)) // self.period)

    def tightened(self, other: Limit) -> Limit:
        """Return what both allow: of two jobs that name the same key and different numbers, the smaller ones count
        while both wait."""
        return self._replace(
            capacity=_least(self.capacity, other.capacity),
            period=None if self.period is None and other.period is None else max(self.period or 0, other.period or 0),
            burst=min(self.burst, other.burst),
        )


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


NO_NAMES: Mapping[str, str] = {}
_OF_ORG = re.compile(r"([0-9]+)/")  # in front of an owner's name, but for those of the first organisation


class LimitState(NamedTuple):
    """A limit as it stands."""

    limit: Limit
    used: int = 0  # units
    waiting: int = 0  # runs, as far as they were counted
    runs: tuple[int, ...] = ()  # some of those that use it now
    cost: int = 1  # units that one that waits wants of it

    @property
    def rate(self) -> str:
        """The rate in words, in the unit in which it is a whole number; empty if there is none."""
        if self.limit.period is None:
            return ""
        counts = {unit: UNITS[unit] // self.limit.period for unit in UNITS}
        unit = next(
            (unit for unit, count in counts.items() if count and -(-UNITS[unit] // count) == self.limit.period), ""
        )
        return f"{counts[unit]}/{unit}" if unit else f"1 every {self.limit.period / SECOND:g} s"

    def next_at(self, now: Moment) -> Moment | None:
        """Return when the rate allows a start; None if there is no rate."""
        return None if self.limit.period is None else self.limit.free_at(now)


def name_of(key: str, queues: Mapping[str, str] = NO_NAMES) -> str:
    """Return a key in words: "owner ann", "tenant acme". `queues` are their names by id."""
    what, _, rest = key.partition(":")
    per, _, which = rest.partition(":")
    if per.startswith("data."):
        value = which.rpartition(":")[0].strip('"')
        return f"{per.rpartition('.')[2]} {value}" if value else f"no {per.rpartition('.')[2]}"
    if which:
        return f"{per} {queues.get(which, which) if per == 'queue' else which}"
    return f"{what.removesuffix('_rate')} {queues.get(per, per) if what.startswith('queue') else per}"


def per_of(key: str) -> str:
    """Return what a key counts per: job, owner, queue, data.<path>; `resource` for what the cluster has."""
    what, _, rest = key.partition(":")
    per, _, which = rest.partition(":")
    return per if which else what.removesuffix("_rate")


def job_of(key: str) -> int | None:
    """Return the job whose runs alone are counted under a key, if it is one job's."""
    _, per, which = [*key.split(":", 2), "", ""][:3]
    return int(which) if per == "job" else None


def queue_of(key: str) -> int | None:
    """Return the queue whose runs are counted under a key, if they are one queue's."""
    what, per, which = [*key.split(":", 2), "", ""][:3]
    found = per if what.startswith("queue") else which if per == "queue" else ""
    return int(found) if found.isdecimal() else None


def belongs_to(key: str, org: int, jobs: Collection[int]) -> bool:
    """Return whether an organisation may know a key: it is that of one of its jobs or its accounts, or everybody's."""
    job_id, per = job_of(key), per_of(key)
    if job_id is not None:
        return job_id in jobs
    if per not in ("owner",) and not per.startswith("data."):
        return True
    account = key.rpartition(":")[2]
    found = _OF_ORG.match(account)
    return (int(found[1]) if found else DEFAULT_ORG) == org


def check_resource(name: str) -> str:
    """Return the name of something that the whole cluster has, if it can be one."""
    if not _RESOURCE.fullmatch(name):
        message = f"the name of a resource has 1 to 41 small letters, digits, _ or -, got {shown(name)}"
        raise Invalid(message, code="E_PATTERN", path="name", hint="it begins with a letter, such as license-x")
    if name in _OF_AGENTS:
        raise Invalid(f"{name} is what agents have, not the cluster", code="E_PATTERN", path="name")
    return name


def why_waiting(
    states: Sequence[LimitState], now: Moment, stamp: Callable[[Moment], str], queues: Mapping[str, str] = NO_NAMES
) -> tuple[str, Moment | None]:
    """Return in one sentence what holds a run that uses these limits, and the moment from which a rate lets it start,
    unless something must end first."""
    for state in states:
        limit = state.limit
        if not limit.has_room(state.used, state.cost):
            held = f"{state.used} of {limit.capacity}"
            verb = "are in use of" if state.cost > 1 else "run with"
            wanted = f", and it wants {state.cost}" if state.cost > 1 else ""
            return f"{held} {verb} {name_of(limit.key, queues)}{wanted}{_holders(state.runs)}", None
    rates = [(at, state) for state in states if (at := state.next_at(now)) is not None and at > now]
    if rates:
        at, state = max(rates, key=lambda each: each[0])
        return f"waits for the rate {state.rate} of {name_of(state.limit.key, queues)}: next at {stamp(at)}", at
    return "waits for an agent that has room for it", None


def _holders(runs: Sequence[int]) -> str:
    if not runs:
        return ""
    return ": runs " + ", ".join(map(str, runs[:SHOWN_RUNS])) + ("…" if len(runs) > SHOWN_RUNS else "")
