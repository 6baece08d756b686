"""The past of jobs at a glance: how their last runs ended, and how each day went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from horae.core.insight.activity import Activity, activity_of, pieces_of
from horae.core.insight.arrivals import Window
from horae.core.insight.timeline import Mark, Sample
from horae.core.model import LARGEST_ID, SECOND, Moment, Run, State
from horae.ports.store.glances import Glances as GlanceStore
from horae.ports.store.glances import Held, Late
from horae.ports.store.moments import StoreClock
from horae.ports.store.runs import Runs

FATES = 30  # of a job
DAY = 86_400 * SECOND
KEPT_FOR = 600 * SECOND  # counts of days that are over: what was made then has mostly ended
TODAY_KEPT_FOR = 60 * SECOND  # where today begins
MOST_KEPT = 100  # jobs whose days are kept
LATE = 3600 * SECOND  # runs that were made so long after their moment are looked for too
READ_WHOLE = 3000  # ids of a time that are all looked at; of more,
PIECES, PIECE = 60, 20  # so many pieces with so many ids each
MOST_LIVE = 600
NEWEST = 100  # runs of a job
MOST_FIRST = 20_000  # days whose first run is known
PART_PIECES, PART_PIECE = 3, 25  # of each part of a time: so many pieces with so many ids each
MOST_LATE = 1_000  # runs that are counted
MOST_HELD = 50_000  # blocked runs that are looked at
FEW_FAILURES = 1000  # of each bad end, that are looked at first; and if these are not of enough jobs,
MOST_FAILURES = 10_000


class GlancesStore(GlanceStore, Runs, StoreClock, Protocol):
    """Past runs, and the clock that judges dueness."""


class Day(NamedTuple):
    """A day of some zone."""

    date: date
    start_at: Moment
    runs: Mapping[State, int]


class _Kept(NamedTuple):
    """How the days of a job went that were over by then."""

    until: Moment
    runs: dict[Moment, Mapping[State, int]]  # by the start of the day


class _Today(NamedTuple):
    """Where a day begins that is not over."""

    start_at: Moment
    until: Moment  # how long that is good
    first_id: int


class Glances:
    def __init__(self, store: GlancesStore) -> None:
        self._store = store
        self._kept: dict[int, _Kept] = {}  # by job, the oldest first
        self._first_ids: dict[Moment, int] = {}  # of days that are over: the first run of each has its number for good
        self._today: _Today | None = None

    async def fates(self, job_ids: Sequence[int]) -> dict[int, list[tuple[int, State]]]:
        """Return how the last runs of jobs ended, oldest first, as (run, state)."""
        return await self._store.load_fates(job_ids, FATES)

    async def named(self, text: str, org: int | None, most: int) -> list[int]:
        """Return the newest jobs whose name holds a text, whatever the case."""
        return await self._store.find_named(text, org, most)

    async def sample(self, start: Moment, end: Moment, org: int | None = None) -> Sample:
        """Return the runs that were due in a time and have ended: all, or of very many, some of each part of it."""
        first, last = await self._bounds(start, end)
        if last - first <= READ_WHOLE:
            return Sample(_due(await self._store.load_marks([first], last - first, org), start, end))
        starts = [first + (last - first) * piece // PIECES for piece in range(PIECES)]
        marks = await self._store.load_marks(starts, PIECE, org)
        return Sample(_due(marks, start, end), (last - first) / (PIECES * PIECE))

    async def live(self, end: Moment, org: int | None = None) -> list[Mark]:
        """Return the newest live runs that were due before a moment."""
        return await self._store.load_live_marks(end, org, MOST_LIVE)

    async def newest(self, job_ids: Sequence[int], start: Moment, end: Moment) -> list[Mark]:
        """Return the newest runs of each of these jobs that were due in a time, and those that go on."""
        first, last = await self._bounds(start, end)
        marks = await self._store.load_marks_of(job_ids, first, last, NEWEST)
        return _due(marks, start, end)

    async def running(self, org: int | None, most: int) -> Sequence[Run]:
        """Return the newest runs that are running, however many wait."""
        return sorted(await self._store.load_runs(await self._store.find_running(org, most)), key=lambda run: -run.id)

    async def late(self, before: Moment, org: int | None) -> Late:
        """Return how many runs wait for an agent that were due before a moment, and the oldest."""
        return await self._store.count_late(before, org, MOST_LATE)

    async def held(self, before: Moment, org: int | None) -> tuple[Sequence[Held], bool]:
        """Return how many runs are blocked since before a moment, by reason; and whether there are more than were
        looked at."""
        found = await self._store.count_held(before, org, MOST_HELD)
        return found, sum(one.looked for one in found) >= MOST_HELD

    async def failing(self, since: Moment, org: int | None, shown: int, most: int) -> tuple[Sequence[Run], int]:
        """Return the newest runs that failed since a moment and were the last of their jobs, and of how many jobs there
        are some, up to so many. A job that fails ever again does not hide others."""
        (first,) = await self._store.find_made_since([since])
        found = await self._store.find_failing(first, org, FEW_FAILURES, most)
        if len(found) < most:
            found = await self._store.find_failing(first, org, MOST_FAILURES, most)
        return sorted(await self._store.load_runs(found[:shown]), key=lambda run: -run.id), len(found)

    async def made_since(self, moments: Sequence[Moment]) -> list[int]:
        """Return about how many runs were made since each of these, and have ended."""
        *firsts, last = await self._store.find_made_since([*moments, await self._store.now() + DAY])
        return [last - first for first in firsts]

    async def activity(self, window: Window, parts: int, org: int | None) -> Activity:
        """Return what ended, and how late runs began, in each part of a window; of very many runs, about. Those that
        were made as long before it may have ended within."""
        length = window.end - window.start
        moments = [window.start - length, *(window.start + length * part // parts for part in range(parts))]
        bounds = await self._store.find_made_since([*moments, window.end + DAY])
        pieces = pieces_of(bounds, PART_PIECES, PART_PIECE)
        if bounds[-1] - bounds[0] <= READ_WHOLE:
            pieces = pieces_of([bounds[0], bounds[-1]], 1, READ_WHOLE)
        firsts = [piece.first for piece in pieces]
        marks = await self._store.load_marks(firsts, max((piece.length for piece in pieces), default=0), org)
        return activity_of(window, parts, pieces, {mark.id: mark for mark in marks})

    async def _bounds(self, start: Moment, end: Moment) -> tuple[int, int]:
        """Return the ids between which runs lie that were due in a time. None is made before it is due."""
        first, last = await self._store.find_made_since([start, end + LATE])
        return first, last

    async def days(self, job_id: int, count: int, zone: str = "UTC") -> list[Day]:
        """Return how the last days of a job went, oldest first, today included; a run belongs to the day on which it
        was made, by the clocks of a zone."""
        now = await self._store.now()
        dates = last_days(now, count, zone)
        starts = [start_of(each, zone) for each in dates]
        today = starts[-1]
        known = self._known(job_id, now)
        new = starts[next(place for place, start in enumerate(starts) if start not in known) :]
        first = await self._first(new, today, now)
        counted = dict(zip(new, await self._store.count_between(job_id, [*first, LARGEST_ID]), strict=True))
        known.update((start, runs) for start, runs in counted.items() if start < today - DAY)
        return [
            Day(each, start, counted[start] if start in counted else known[start])
            for each, start in zip(dates, starts, strict=True)
        ]

    def _known(self, job_id: int, now: Moment) -> dict[Moment, Mapping[State, int]]:
        """Return the days of a job that are over, as they were counted lately."""
        if job_id not in self._kept or now >= self._kept[job_id].until:
            self._kept.pop(job_id, None)
            self._kept[job_id] = _Kept(now + KEPT_FOR, {})
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return self._kept[job_id].runs

    async def _first(self, starts: Sequence[Moment], today: Moment, now: Moment) -> list[int]:
        """Return the first run of each day. Of today an earlier one may still end: what was found is good for a
        minute."""
        if len(self._first_ids) > MOST_FIRST:  # viewers of many zones have looked
            self._first_ids.clear()
        known = {start: self._first_ids[start] for start in starts if start in self._first_ids}
        if self._today is not None and self._today.start_at == today and now < self._today.until:
            known[today] = self._today.first_id
        unknown = [start for start in starts if start not in known]
        found = dict(zip(unknown, await self._store.find_made_since(unknown), strict=True)) if unknown else {}
        self._first_ids.update((start, run_id) for start, run_id in found.items() if start < today)
        if today in found:
            self._today = _Today(today, now + TODAY_KEPT_FOR, found[today])
        return [known[start] if start in known else found[start] for start in starts]


def _due(marks: Sequence[Mark], start: Moment, end: Moment) -> list[Mark]:
    return [mark for mark in marks if mark.due_at < end and (start <= mark.due_at or not mark.state.is_terminal)]


def last_days(now: Moment, count: int, zone: str) -> list[date]:
    """Return the last days of a zone, today last."""
    today = datetime.fromtimestamp(now // SECOND, ZoneInfo(zone)).date()
    return [today - timedelta(days=count - 1 - number) for number in range(count)]


@lru_cache(maxsize=MOST_FIRST)  # a page asks for those of a year
def start_of(day: date, zone: str) -> Moment:
    """Return when a day begins; where clocks are put forward over midnight, that is when they are."""
    return round(datetime.combine(day, time(), ZoneInfo(zone)).timestamp()) * SECOND
