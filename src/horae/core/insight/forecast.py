"""Forecasts: which runs a window of time will see, how many of them at once, how late, and where places run out.

    triggers ─► moments (arrivals) ─► what is counted together (cells) ─► how many at once (load) ─► shortages, clashes,
    items

The number of due moments is exact, as long as nobody changes a schedule. All else is expected: durations come from
baselines, with their spread. Moments that find the last run of their job under way are skipped, queued or replace it,
as the job's policy says. Jobs that come after others begin when those have ended; jobs that listen to others, and the
tasks of workflows, are as many as the runs that make them.

Not foreseen: runs that somebody asks for by hand, by webhook or by program; the items of a `for_each`; retries; what
resources of agents hold up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import NamedTuple

from horae.core.insight.arrivals import Stretch, Window
from horae.core.insight.baselines import Expected
from horae.core.insight.cells import Cell, Cells
from horae.core.insight.clashes import MOST_JOBS, Clash, Shared, find_clashes
from horae.core.insight.items import JOB, OWNER, QUEUE, Item, Items, bucket_seconds
from horae.core.insight.load import Grid, Part, kernel_of
from horae.core.insight.planned import Columns, Follower, Places, Pool
from horae.core.insight.shortages import Looked, Shortage, look_at
from horae.core.model import SECOND, Moment

__all__ = ["JOB", "OWNER", "QUEUE", "Bucket", "Forecast", "Item", "Shortage", "forecast"]

LIKELY = 1.2816  # deviations that nine of ten stay below
UNFORESEEN = "runs that are asked for by hand, by webhooks or by programs are not foreseen, nor retries"


class Bucket(NamedTuple):
    at: Moment
    runs: float  # that begin
    running: float  # at once, at most, if all had a place
    high: float  # what nine of ten times is not exceeded
    late_seconds: float  # the longest that one waits for a place


@dataclass(frozen=True, slots=True)
class Forecast:
    window: Window
    bucket_seconds: int
    triggers: int
    moments: int  # that are due: exact
    runs: float  # that begin
    skipped: float  # moments that find a run of their job under way
    followers: float  # of the runs, those that others make
    busy_seconds: float
    slots: int
    peak: float  # runs at once
    peak_high: float
    peak_at: Moment
    late_seconds: float
    buckets: list[Bucket]
    items: list[Item]
    item_count: int
    shortages: list[Shortage]
    clashes: list[Clash]
    notes: list[str]  # what it assumes, and cannot foresee

    def jobs(self) -> set[int]:
        """Return those whose names are told."""
        crowds = (crowd for clash in self.clashes for crowd in clash.crowds)
        listed = {item.job_id for item in self.items if item.job_id is not None}
        return listed.union(*(crowd.jobs for crowd in crowds))

    def named(self, names: Mapping[int, str]) -> Forecast:
        """Return it with the names of its jobs; one that is gone meanwhile is called by its number."""
        items = [one if one.job_id is None else one._replace(name=names.get(one.job_id, one.key)) for one in self.items]
        return replace(self, items=items, clashes=[one.named(names) for one in self.clashes])


def forecast(
    window: Window,
    planned: Columns,
    followers: Sequence[Follower],
    places: Places,
    shares: Mapping[int, float],
    *,
    by: str = JOB,
    org: int | None = None,
    limit: int = 20,
) -> Forecast:
    """Return what a window will see, without the names of jobs. All triggers load the pools; items, and jobs that are
    told, are of one organisation, or of all. `shares`: of the runs of jobs that others follow, those that succeed."""
    cells = Cells(window, places, planned, followers, shares)
    _load(cells)
    looked = look_at([*cells.profiles.pools.values()], window, cells.grid, _waiting(cells, places))
    own, made = _totals(cells.own()), _totals([cell for _, cell in cells.followed])
    wanted = looked.wanted
    top = wanted.index(max(wanted))
    items, item_count = Items(cells, by, org).find(limit)
    found = Forecast(
        window=window, bucket_seconds=bucket_seconds(window), triggers=len(planned.trigger_id),
        moments=round(own.moments), runs=own.runs + made.runs, skipped=own.moments - own.runs, followers=made.runs,
        busy_seconds=own.busy + made.busy, slots=looked.slots, peak=wanted[top],
        peak_high=_high(wanted[top], looked.total.variance[top]), peak_at=max(window.start, cells.grid.moment(top)),
        late_seconds=max(looked.late) * cells.grid.tick, buckets=_buckets(window, cells.grid, looked), items=items,
        item_count=item_count, shortages=looked.shortages,
        clashes=find_clashes(_shared(cells), partial(_jobs, cells, org)), notes=[*_notes(cells, looked)],
    )  # fmt: skip
    cells.let_go()
    return found


# ------------------------------------------------------------------------------------------------ loading


def _load(cells: Cells) -> None:
    """Load the pools with all runs, and with those that are under way."""
    for group in cells.loaded_groups():
        together, is_exact = dict[tuple[Pool, ...], list[Part]](), group.series.is_exact
        last, parts = None, list[Part]()
        for cell in group.loaded:
            use = cell.use
            if cell.delay or use.is_replaced:
                _load_alone(cell, cells)
            elif cell.runs and not use.is_held:
                if use.pools is not last:
                    last, parts = use.pools, together.setdefault(use.pools, [])
                parts.append((use.kernels[is_exact], cell.each * cell.count * cell.kept))
        stretches = (group.series if group.schedule else group.series.inside(cells.window)).stretches
        for pools, parts in together.items():
            for pool in pools:
                pool.load.add(stretches, parts)
    for use in cells.uses():
        since = round(use.since)
        left = [begun_at - since for begun_at in use.begun]
        for pool in use.pools:
            pool.load.add_under_way(left)


def _load_alone(cell: Cell, cells: Cells) -> None:
    """Of runs that come later than their moments, or that the next one replaces."""
    group, use, tick = cell.group, cell.use, cells.grid.tick
    if not cell.runs or use.is_held:
        return
    runs = cell.weight * cell.kept
    for stretch in group.series.later(cell.delay).inside(cells.window).stretches:
        took = _until_next(use.expected, stretch) if use.is_replaced else use.expected
        for pool in use.pools:
            pool.load.add([stretch], [(kernel_of(took, tick, group.series.is_exact), runs)])


def _until_next(expected: Expected, stretch: Stretch) -> Expected:
    """Of a run that the next one replaces."""
    longest = stretch.step / SECOND
    return expected if stretch.times < 2 or expected.median < longest else Expected(longest, 0.0)


def _waiting(cells: Cells, places: Places) -> dict[str, float]:
    """Return the seconds of work that wait for slots at the beginning, by kind."""
    return {kind: count * cells.durations.usual(kind).median for kind, count in places.waiting.items()}


# -------------------------------------------------------------------------------------------- reading it off


class _Totals(NamedTuple):
    moments: float
    runs: float
    busy: float  # slots times seconds


def _totals(cells: Iterable[Cell]) -> _Totals:
    moments = runs = busy = 0.0
    for cell in cells:
        weight = cell.each * cell.count
        moments += cell.group.moments * weight
        begun = cell.runs * weight
        runs += begun
        busy += begun * cell.use.seconds
    return _Totals(moments, runs, busy)


def _buckets(window: Window, grid: Grid, looked: Looked) -> list[Bucket]:
    """Return the buckets of a window. Ticks begin a little before it: the last bucket has what is left of them."""
    width, wanted, total = bucket_seconds(window), looked.wanted, looked.total
    starts, found = range(window.start, window.end, width * SECOND), list[Bucket]()
    for number, at in enumerate(starts):
        first = number * width // grid.tick
        ticks = slice(first, grid.size if number == len(starts) - 1 else first + width // grid.tick)
        part = wanted[ticks]
        top = first + part.index(max(part))
        found.append(Bucket(
            at, sum(total.starts[ticks]), wanted[top], _high(wanted[top], total.variance[top]),
            max(looked.late[ticks]) * grid.tick,
        ))  # fmt: skip
    return found


def _high(mean: float, variance: float) -> float:
    return mean + LIKELY * sqrt(max(0.0, variance))


def _shared(cells: Cells) -> Iterator[Shared]:
    for group in cells.groups:
        yield Shared(group.schedule, group.series, group.triggers, group)


def _jobs(cells: Cells, org: int | None, groups: set[object]) -> dict[object, list[int]]:
    """Return some jobs of each group."""
    found: dict[object, list[int]] = {group: [] for group in groups}
    wanting = dict(found)
    for cell, job_id, its_org in zip(cells.of_rows, cells.planned.job_id, cells.planned.org, strict=True):
        if not wanting:
            break
        if cell.group in wanting and org in (None, its_org):
            wanting[cell.group].append(job_id)
            if len(wanting[cell.group]) == MOST_JOBS:
                del wanting[cell.group]
    return found


# ---------------------------------------------------------------------------------------------------- notes


def _notes(cells: Cells, looked: Looked) -> Iterator[str]:
    """What it assumes, and cannot foresee."""
    yield UNFORESEEN
    if cells.unknown == 1:
        yield "1 trigger is of a job that never succeeded: it is taken as long as others of its kind"
    elif cells.unknown:
        those = f"{cells.unknown:,} triggers are of jobs that never succeeded"
        yield f"{those}: they are taken as long as others of their kind"
    has_held = any(use.is_held for use in cells.uses())
    held = sum(cell.count for cell in cells.own() if cell.use.is_held) if has_held else 0
    if held == 1:
        yield "1 trigger is of a queue that is paused: its runs wait, and load nothing"
    elif held:
        yield f"{held:,} triggers are of queues that are paused: their runs wait, and load nothing"
    yield from _too_many(cells, looked)


def _too_many(cells: Cells, looked: Looked) -> Iterator[str]:
    """What there is too much of to be looked at."""
    estimated = sum(group.triggers for group in cells.groups if group.series.is_estimated)
    if estimated:
        whose = "1 trigger has" if estimated == 1 else f"{estimated:,} triggers have"
        yield f"{whose} so many moments that the later ones are estimated: how many are due is not exact"
    if looked.passed_over:
        those = "1 queue or limit" if looked.passed_over == 1 else f"{looked.passed_over:,} queues and limits"
        yield f"{those} more may run out: only those that are tightest were looked at"
