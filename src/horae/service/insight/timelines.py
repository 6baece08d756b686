"""The timeline: what ran, runs and is to run between two moments, on the rows of the busiest jobs.

The work is bounded: so many runs are looked at, so many rows are shown, and whoever asks is told when there is more. Of
very many runs, some of each part of the time tell which jobs are the busiest; of those the newest are read too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.insight.arrivals import NOTHING, Series, Window, series_of
from horae.core.insight.forecast import Forecast
from horae.core.insight.items import Item
from horae.core.insight.timeline import EXPECTED, Bar, Load, Mark, Sample, bar_of, busiest, load_of
from horae.core.model import SECOND, Job, Moment, NodeState, Trigger
from horae.core.time.schedule import canonical_text, compile_schedule
from horae.errors import Error, Invalid
from horae.service.insight.forecasting import MOST_ITEMS, Forecasting
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs

LONGEST = 62 * 86_400 * SECOND
SHORTEST = 60 * SECOND
MOST_BARS = 300  # of a row, on each side of now
STEP = 180 * SECOND  # to which forecasts are rounded up


class More(NamedTuple):
    """Moments that come after those that are told one by one."""

    start: Moment
    end: Moment
    many: int


@dataclass(slots=True)
class Row:
    job_id: int
    name: str
    bars: list[Bar]
    count: int
    more: More | None = None


@dataclass(slots=True)
class Timeline:
    window: Window
    now: Moment
    slots: int
    rows: list[Row]
    jobs: int
    is_cut: bool
    load: list[Load]
    forecast: Forecast | None


class Timelines:
    def __init__(self, jobs: Jobs, forecasting: Forecasting, insight: Insight) -> None:
        self._jobs = jobs
        self._forecasting = forecasting
        self._insight = insight

    async def make(
        self, window: Window, most: int, name: str | None = None, org: int | None = None, *, waits: bool = True
    ) -> Timeline:
        """Return up to `most` rows; of jobs whose name holds a text, if one is given. Who does not wait for a forecast
        of very many triggers sees what is to come of jobs that ran, until there is one."""
        _check(window)
        now, slots = await asyncio.gather(self._jobs.now(), self._slots())
        named = await self._jobs.glances.named(name, org, most + 1) if name else None
        past, foretold = await asyncio.gather(
            self._past(window, now, named, org), self._foretell(window, now, org, waits)
        )
        expected = {int(it.key): it for it in foretold.items if named is None or int(it.key) in named} \
            if foretold else {}  # fmt: skip
        counts = _counts(past, expected)
        chosen = busiest(counts if named is None else dict.fromkeys(named, 0) | counts, most)
        marks, jobs = await asyncio.gather(self._marks(window, past, chosen), self._jobs.get_many(chosen))
        bars, names = _bars(marks, chosen), {job.id: job.name for job in jobs}
        more: dict[int, More] = {}
        for job in jobs if window.end > now else ():
            known = expected.get(job.id)
            lasts = known.expected.median if known is not None and known.expected is not None else 0.0
            coming = _expected(job, max(now, window.start - 1), window.end, lasts)
            bars[job.id] += coming[:MOST_BARS]
            if len(coming) > MOST_BARS:
                more[job.id] = _beyond(job, Window(coming[MOST_BARS].start, window.end))
        rows = [
            Row(
                job_id, names.get(job_id, f"job {job_id}"), bars[job_id], max(counts[job_id], len(bars[job_id])),
                more.get(job_id),
            )
            for job_id in chosen
            if bars[job_id]
        ]  # fmt: skip
        ahead = [Load(it.at, it.running, True) for it in foretold.buckets if it.at < window.end] if foretold else []
        is_more = foretold is not None and foretold.item_count > len(foretold.items)
        is_cut = is_more or not past.is_whole or (named is not None and len(named) > most)
        return Timeline(window, now, slots, rows, len(counts), is_cut, load_of(past, window, now) + ahead, foretold)

    async def _past(self, window: Window, now: Moment, named: Sequence[int] | None, org: int | None) -> Sample:
        """Return runs that were due in the window or go on since before."""
        if window.start >= now:
            return Sample([])
        if named is not None:
            return Sample(await self._jobs.glances.newest(named, window.start, window.end))
        live = await self._jobs.glances.live(window.end, org)  # first: one that ends meanwhile is seen twice, not never
        ended = await self._jobs.glances.sample(window.start, window.end, org)
        return ended.beside(live)

    async def _marks(self, window: Window, past: Sample, chosen: Sequence[int]) -> Sequence[Mark]:
        """Return what is known of the jobs that are shown: of those in a sample, their newest runs too."""
        if past.is_whole or not chosen:
            return past.marks
        return [*past.marks, *await self._jobs.glances.newest(chosen, window.start, window.end)]

    async def _foretell(self, window: Window, now: Moment, org: int | None, waits: bool) -> Forecast | None:
        """Return the part of the window that is to come: up to a few minutes more, so that one serves for a while."""
        if window.end <= now:
            return None
        start = window.start if window.start > now else None
        steps = -(-(window.end - (start or now)) // STEP)
        ask = self._forecasting.lately if waits else self._forecasting.look
        return await ask(hours=steps * STEP / SECOND / 3600, start=start, org=org, limit=MOST_ITEMS)

    async def _slots(self) -> int:
        return sum(node.slots for node in await self._insight.nodes() if node.state != NodeState.GONE)


def _check(window: Window) -> None:
    if not SHORTEST <= window.end - window.start <= LONGEST:
        raise Invalid("until must lie after from, by a minute to 62 days", code="E_RANGE", path="until")


def _counts(past: Sample, expected: Mapping[int, Item]) -> Counter[int]:
    """Return how many runs of each job there were, or about as many, and moments that come."""
    seen = Counter(mark.job_id for mark in past.marks)
    counts = Counter({job_id: round(number * past.weight) for job_id, number in seen.items()})
    counts.update({job_id: item.moments for job_id, item in expected.items()})
    return counts


def _bars(marks: Iterable[Mark], chosen: Sequence[int]) -> dict[int, list[Bar]]:
    """Return the newest of each job that is shown."""
    bars: dict[int, list[Bar]] = {job_id: [] for job_id in chosen}
    known = {mark.id: mark for mark in marks if mark.job_id in bars}
    for _, mark in sorted(known.items(), reverse=True):
        if len(bars[mark.job_id]) < MOST_BARS:
            bars[mark.job_id].append(bar_of(mark))
    return bars


def _expected(job: Job, after: Moment, until: Moment, seconds: float) -> list[Bar]:
    """Return the moments of a job that come, and one more than are told; of one that is paused, none do."""
    if job.paused or job.deleted_at is not None:
        return []
    moments: list[Moment] = []
    for trigger in job.triggers:
        if trigger.enabled and trigger.next_at is not None and trigger.next_at <= until:
            moments += [trigger.next_at] if trigger.next_at > after else []
            moments += _later(trigger.schedule, trigger.id, trigger.created_at, max(after, trigger.next_at), until)
    lasts = round(seconds * SECOND)
    return [Bar(at, at + lasts, EXPECTED) for at in sorted(moments)[: MOST_BARS + 1]]


def _later(schedule: dict[str, object], seed: int, created_at: Moment, after: Moment, until: Moment) -> list[Moment]:
    try:
        return compile_schedule(schedule, seed=seed, created_at=created_at).moments(after, until - 1, MOST_BARS + 1)
    except Error:  # of a kind that has no moments of its own, or that this release cannot read
        return []


def _beyond(job: Job, window: Window) -> More:
    """Return how many moments of a job lie in a window that begins with one of them, and when the last of them is."""
    stretches = [
        one
        for it in job.triggers
        if it.enabled and it.next_at is not None
        for one in _series(it, it.next_at, window).stretches
        if one.times
    ]
    last = max((one.last for one in stretches), default=window.start)
    return More(window.start, last, sum(one.times for one in stretches))


def _series(it: Trigger, next_at: Moment, window: Window) -> Series:
    try:
        return series_of(canonical_text(it.schedule), next_at, window, seed=it.id, created_at=it.created_at)
    except Error:  # this release cannot read it
        return NOTHING
