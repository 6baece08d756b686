"""The timeline: what ran, runs and is to run between two moments, on the rows of the busiest jobs.

The work is bounded: so many runs are looked at, so many rows are shown, and whoever asks is told when there is more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from horae.core.insight.arrivals import Window
from horae.core.insight.forecast import Forecast
from horae.core.insight.timeline import EXPECTED, Bar, Load, bar_of, busiest, is_live, load_of
from horae.core.model import SECOND, Job, Moment, NodeState, Run, RunFilter, State
from horae.core.time.schedule import compile_schedule
from horae.errors import Error, Invalid
from horae.service.insight.forecasting import MOST_ITEMS, Forecasting
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs

LONGEST = 62 * 86_400 * SECOND
SHORTEST = 60 * SECOND
FARTHEST = 31 * 86_400 * SECOND  # ahead: as far as forecasts look
PAGES = 20  # of the past that are looked at,
PAGE = 1000  # with so many runs at most
LATE = 3600 * SECOND  # runs that were made so long after their moment are looked for too
MOST_BARS = 300  # of a row, on each side of now
KEPT_SECONDS = 20.0  # for which a forecast serves all who look at the same time
LIVE = (State.QUEUED, State.BLOCKED, State.RUNNING)


@dataclass(slots=True)
class Row:
    job_id: int
    name: str
    bars: list[Bar]
    count: int


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
        self._kept: tuple[tuple[object, ...], float, Forecast] | None = None
        self._alone = asyncio.Lock()

    async def make(self, window: Window, most: int, name: str | None = None, org: int | None = None) -> Timeline:
        """Return up to `most` rows; of jobs whose name holds a text, if one is given."""
        _check(window)
        now = await self._jobs.now()
        runs, is_cut = await self._past(window, now, name, org) if window.start < now else ([], False)
        foretold = await self._foretell(window, now, org) if window.end > now else None
        expected = {int(it.key): it for it in foretold.items if not name or name.lower() in it.name.lower()} \
            if foretold else {}  # fmt: skip
        counts = Counter(run.job_id for run in runs)
        counts.update({job_id: it.moments for job_id, it in expected.items()})
        chosen = busiest(counts, most)
        bars: dict[int, list[Bar]] = {job_id: [] for job_id in chosen}
        for run in sorted(runs, key=lambda run: -run.id):
            if run.job_id in bars and len(bars[run.job_id]) < MOST_BARS:
                bars[run.job_id].append(bar_of(run))
        if foretold is not None:
            for job in await self._jobs.get_many(chosen):
                known = expected.get(job.id)
                lasts = known.expected.median if known is not None and known.expected is not None else 0.0
                bars[job.id] += _expected(job, max(now, window.start - 1), window.end, lasts)
        names = await self._insight.job_names(chosen)
        rows = [Row(job_id, names.get(job_id, f"job {job_id}"), bars[job_id], counts[job_id]) for job_id in chosen]
        load = load_of(runs, window, now) + [Load(it.at, it.running, True) for it in foretold.buckets] \
            if foretold else load_of(runs, window, now)  # fmt: skip
        is_more = foretold is not None and foretold.item_count > len(foretold.items)
        return Timeline(window, now, await self._slots(), rows, len(counts), is_cut or is_more, load, foretold)

    async def _past(self, window: Window, now: Moment, name: str | None, org: int | None) -> tuple[list[Run], bool]:
        """Return runs that were due in the window or go on since before, and whether there are more."""
        live = (await self._jobs.list_runs(RunFilter(states=LIVE, name=name, org=org), None, PAGE)).items
        found = {run.id: run for run in live if run.due_at < window.end and is_live(run)}
        before = window.end + LATE if window.end + LATE < now else None
        where = RunFilter(due_from=window.start, due_until=window.end, name=name, org=org, made_before=before)
        cursor = None
        for _ in range(PAGES):
            page = await self._jobs.list_runs(where, cursor, PAGE)
            found |= {run.id: run for run in page.items}
            cursor = page.cursor
            if cursor is None or len(found) >= PAGES * PAGE // 2:
                break
        return list(found.values()), cursor is not None

    async def _foretell(self, window: Window, now: Moment, org: int | None) -> Forecast:
        """Return the part of the window that is to come; one that was made a moment ago will do."""
        start = window.start if window.start > now else None
        hours = (window.end - (start or now)) / SECOND / 3600
        asked = (start, window.end // (60 * SECOND), org)
        async with self._alone:
            tick = asyncio.get_running_loop().time()
            if self._kept is None or self._kept[0] != asked or self._kept[1] < tick:
                found = await self._forecasting.make(hours=hours, start=start, org=org, limit=MOST_ITEMS)
                self._kept = asked, tick + KEPT_SECONDS, found
            return self._kept[2]

    async def _slots(self) -> int:
        return sum(node.slots for node in await self._insight.nodes() if node.state != NodeState.GONE)


def _check(window: Window) -> None:
    if not SHORTEST <= window.end - window.start <= LONGEST:
        raise Invalid("until must lie after from, by a minute to 62 days", code="E_RANGE", path="until")


def _expected(job: Job, after: Moment, until: Moment, seconds: float) -> Iterable[Bar]:
    """Return the moments of a job that come; of one that is paused, none do."""
    if job.paused or job.deleted_at is not None:
        return []
    moments: list[Moment] = []
    for trigger in job.triggers:
        if trigger.enabled and trigger.next_at is not None and trigger.next_at <= until:
            moments += [trigger.next_at] if trigger.next_at > after else []
            moments += _later(trigger.schedule, trigger.id, trigger.created_at, max(after, trigger.next_at), until)
    lasts = round(seconds * SECOND)
    return [Bar(at, at + lasts, EXPECTED) for at in sorted(moments)[:MOST_BARS]]


def _later(schedule: dict[str, object], seed: int, created_at: Moment, after: Moment, until: Moment) -> list[Moment]:
    try:
        return compile_schedule(schedule, seed=seed, created_at=created_at).moments(after, until - 1, MOST_BARS)
    except Error:  # of a kind that has no moments of its own, or that this release cannot read
        return []
