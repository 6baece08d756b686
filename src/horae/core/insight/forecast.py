"""Forecasts: which runs a window of time will see, how many of them at once, how late, and where places run out.

    triggers ─► groups of equal moments (arrivals) ─► what becomes of each moment ─► load of each pool (load) ─► delays

The number of due moments is exact, as long as nobody changes a schedule. All else is expected: durations come from
baselines, with their spread. Moments that find the last run of their job under way are skipped, queued or replace it,
as the job's policy says. Jobs that come after others begin when those have ended; jobs that listen to others, and the
tasks of workflows, are as many as the runs that make them.

Not foreseen: runs that somebody asks for by hand, by webhook or by program; the items of a `for_each`; retries; what
resources of agents hold up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import ceil, sqrt
from typing import NamedTuple

from horae.core.insight import load
from horae.core.insight.arrivals import Series, Stretch, Window, series_of, share_key
from horae.core.insight.baselines import Expected
from horae.core.insight.clashes import Clash, Shared, find_clashes
from horae.core.insight.load import POINTS, SHARE, Grid, Levels
from horae.core.insight.planned import Durations, Follower, Places, Planned, Pool, Profile, Profiles
from horae.core.model import SECOND, Moment, Overlap

MOST_BUCKETS = 48
BUCKETS = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)  # seconds
LIKELY = 1.2816  # deviations that nine of ten stay below
DEEPEST = 10  # jobs that come one after another
MOST_SHORTAGES = 20
MOST_NAMES = 5
JOB, QUEUE, OWNER = "job", "queue", "owner"
UNFORESEEN = "runs that are asked for by hand, by webhooks or by programs are not foreseen, nor retries"
UNKNOWN_WORDS = "they are taken as long as others of their kind"


class Bucket(NamedTuple):
    at: Moment
    runs: float  # that begin
    running: float  # at once, at most, if all had a place
    high: float  # what nine of ten times is not exceeded
    late_seconds: float  # the longest that one waits for a place


class Item(NamedTuple):
    """A job, a queue or an owner."""

    key: str
    name: str
    moments: int  # that are due
    runs: float  # that begin
    busy_seconds: float  # slots times seconds
    expected: Expected | None  # how long one takes, of a job
    buckets: list[float]  # runs


class Shortage(NamedTuple):
    """There are fewer places than are wanted."""

    what: str  # slots, queue or limit
    name: str
    capacity: int | None
    rate: str | None
    start_at: Moment
    end_at: Moment
    wanted: float  # at most
    late_seconds: float | None  # the longest that a run waits; None: for as long as there is no place at all


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


class _Cell:
    """Triggers with the same moments, whose runs need the same places and take about as long: counted together."""

    __slots__ = ("busy", "delay", "expected", "group", "moments", "profile", "runs", "weight")

    def __init__(self, group: _Group, profile: Profile, expected: Expected, delay: float = 0.0) -> None:
        """`delay`: seconds that its runs wait for those of others."""
        self.group, self.profile, self.expected, self.delay = group, profile, expected, delay
        self.weight = 0.0  # triggers; of what others make, runs for each of their moments
        self.moments = group.moments
        kept = 0.0 if profile.is_closed else share_kept(group.series, group.moments, expected, profile.overlap)
        self.runs = self.moments * kept
        self.busy = self.runs * expected.median if profile.pools else 0.0


class _Group:
    """Triggers with the same moments."""

    __slots__ = ("moments", "names", "schedule", "series", "triggers")

    def __init__(self, schedule: str, series: Series) -> None:
        self.schedule, self.series = schedule, series
        self.moments = series.moments  # of each trigger
        self.triggers = 0
        self.names: list[str] = []


class _Row(NamedTuple):
    it: Planned | Follower
    cell: _Cell
    weight: float = 1.0


def forecast(
    window: Window,
    planned: Sequence[Planned],
    followers: Sequence[Follower],
    places: Places,
    *,
    by: str = JOB,
    org: int | None = None,
    limit: int = 20,
) -> Forecast:
    """Return what a window will see. All triggers load the pools; items and names are of one organisation, or of
    all."""
    made = _Making(window, places, org)
    made.place(planned)
    made.follow(followers)
    made.fill()
    return made.finish(by, limit)


class _Making:
    """A forecast while it is made."""

    def __init__(self, window: Window, places: Places, org: int | None) -> None:
        self.window, self.grid, self.places, self.org = window, Grid.of(window), places, org
        self.profiles = Profiles(places, self.grid)
        self.durations = Durations()
        self.groups: dict[tuple[object, ...], _Group] = {}
        self.cells: dict[tuple[int, int, int, float], _Cell] = {}
        self.rows: list[_Row] = []

    # ── reading ──

    def place(self, planned: Sequence[Planned]) -> None:
        """Put each trigger into the cell of its moments. Those that need to know the others come after them."""
        later = []
        for it in planned:
            profile = self.profiles.of(it.kind, it.policy, it.owner, it.job_id)
            known = None if profile.after else self.durations.of(it.kind, it.median, it.spread)
            if known is None:
                later.append(it)
            else:
                self._add(it, profile, known, 0.0)
        medians = {row.it.job_id: row.cell.expected.median for row in self.rows} if later else {}
        for it in later:
            profile = self.profiles.of(it.kind, it.policy, it.owner, it.job_id)
            expected = self.durations.of(it.kind, it.median, it.spread) or self.durations.guess(it.kind)
            delay = max((medians.get(one, 0.0) for one in profile.after), default=0.0)
            self._add(it, profile, expected, delay)

    def _add(self, it: Planned, profile: Profile, expected: Expected, delay: float) -> None:
        key = share_key(it.schedule, it.next_at)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = self._group(it)
        group.triggers += 1
        if group.triggers <= MOST_NAMES and self.org in (None, it.org):
            group.names.append(it.name)
        cell = self._cell(group, profile, expected, delay)
        cell.weight += 1
        self.rows.append(_Row(it, cell))
        if it.last_at is not None and 0 < self.window.start - it.last_at < expected.median * SECOND:
            self._add_under_way(cell, it.last_at)

    def _group(self, it: Planned) -> _Group:
        found = series_of(it.schedule, it.next_at, self.window, seed=it.trigger_id, created_at=it.created_at)
        return _Group(it.schedule, found)

    def _cell(self, group: _Group, profile: Profile, expected: Expected, delay: float = 0.0) -> _Cell:
        key = (id(group), id(profile), id(expected), delay)
        found = self.cells.get(key)
        if found is None:
            if group.series.delay:
                group = _Group(group.schedule, _with_delay(group.series, expected, self.window))
            found = self.cells[key] = _Cell(group, profile, expected, delay)
        return found

    def _add_under_way(self, cell: _Cell, last_at: Moment) -> None:
        """What began before the window may go on in it; what repeats within the hour is counted as if it always had."""
        left = (last_at - self.window.start) / SECOND + cell.expected.median
        stretches = cell.group.series.stretches
        if len(stretches) != 1 or stretches[0].times == 1 or stretches[0].step > 3600 * SECOND:
            for pool in cell.profile.pools:
                pool.load.add_under_way(1.0, left)

    # ── following ──

    def follow(self, followers: Sequence[Follower]) -> None:
        """Give jobs that follow others the moments at which those end; tasks of workflows one after another."""
        wanted = {source for it in followers for source in _sources_of(it)}
        sources: dict[int, list[_Row]] = {}
        for row in self.rows if wanted else ():
            if row.it.job_id in wanted:
                sources.setdefault(row.it.job_id, []).append(row)
        left, passed = list(followers), dict[int, float]()
        for _ in range(DEEPEST):
            ready = [it for it in left if any(source in sources for source in _sources_of(it))]
            left = [it for it in left if not any(source in sources for source in _sources_of(it))]
            for it in ready:
                made = list(self._followed(it, sources, passed))
                sources.setdefault(it.job_id, []).extend(made)
                self.rows += made

    def _followed(
        self, it: Follower, sources: Mapping[int, Sequence[_Row]], passed: dict[int, float]
    ) -> Iterator[_Row]:
        expected = self.durations.of(it.kind, it.median, it.spread) or self.durations.guess(it.kind)
        for job_id, ending in it.heard:
            for row in sources.get(job_id, ()):
                weight = row.weight * _share_of(ending, row.it.share)
                yield self._following(it, row, expected, row.cell.expected.median, weight)
        if it.part_of is not None:
            for row in sources.get(it.part_of, ()):
                yield self._following(it, row, expected, passed.get(it.part_of, 0.0), row.weight)
            passed[it.part_of] = passed.get(it.part_of, 0.0) + expected.median

    def _following(self, it: Follower, source: _Row, expected: Expected, later: float, weight: float) -> _Row:
        """Return the runs of one job that those of another make, so many seconds after those have begun."""
        cell, profile = source.cell, self.profiles.of(it.kind, it.policy, it.owner, it.job_id)
        made = self._cell(_Group("", _shifted(cell.group.series, cell.delay + later)), profile, expected)
        weight *= cell.runs / cell.moments if cell.moments else 0.0
        made.weight += weight
        return _Row(it, made, weight)

    # ── loading ──

    def fill(self) -> None:
        """Load the pools with all runs."""
        for cell in self.cells.values():
            if cell.runs and not cell.profile.is_held:
                self._load(cell)

    def _load(self, cell: _Cell) -> None:
        series, overlap = _shifted(cell.group.series, cell.delay), cell.profile.overlap
        runs = cell.weight * cell.runs / cell.moments
        for stretch in series.stretches:
            took = _cut(cell.expected, stretch) if overlap is Overlap.REPLACE else cell.expected
            inside = stretch if not cell.delay and cell.group.schedule else _inside(stretch, self.window)
            for pool in cell.profile.pools:
                pool.load.add(inside, took, runs, is_exact=series.is_exact)

    # ── reading it off ──

    def finish(self, by: str, limit: int) -> Forecast:
        levels = {pool: pool.load.finish() for pool in self.profiles.pools.values()}
        slots = [pool for pool in levels if pool.what == "slots" and not pool.labels]
        late, found = self._delays(levels)
        total = _summed([levels[pool] for pool in slots], self.grid.size)
        wanted = total.wanted()
        top = max(range(self.grid.size), key=wanted.__getitem__)
        items, item_count = self._items(by, limit)
        moments, runs, busy = _total(cell for cell in self.cells.values() if cell.group.schedule)
        _, made, busy_made = _total(cell for cell in self.cells.values() if not cell.group.schedule)
        return Forecast(
            window=self.window, bucket_seconds=_bucket_seconds(self.window),
            triggers=sum(group.triggers for group in self.groups.values()),
            moments=round(moments), runs=runs + made, skipped=moments - runs, followers=made,
            busy_seconds=busy + busy_made, slots=sum(pool.capacity or 0 for pool in slots),
            peak=wanted[top], peak_high=_high(wanted[top], total.variance[top]), peak_at=self.grid.moment(top),
            late_seconds=max(late) * self.grid.tick, buckets=self._buckets(total, wanted, late), items=items,
            item_count=item_count, shortages=found, clashes=find_clashes(self._shared()), notes=self._notes(),
        )  # fmt: skip

    def _notes(self) -> list[str]:
        found = [UNFORESEEN]
        if self.durations.unknown:
            found.append(f"{self.durations.unknown} triggers are of jobs that never succeeded: {UNKNOWN_WORDS}")
        held = round(sum(cell.weight for cell in self.cells.values() if cell.profile.is_held))
        if held:
            found.append(f"{held} triggers are of queues that are paused: their runs wait, and load nothing")
        return found

    def _delays(self, levels: Mapping[Pool, Levels]) -> tuple[list[float], list[Shortage]]:
        """Return how late runs begin, the latest of any pool, and where there are too few places."""
        worst, found = [0.0] * self.grid.size, list[Shortage]()
        for pool, level in levels.items():
            wanted = level.starts if pool.rate else level.wanted()
            capacity = pool.per_tick if pool.rate else float(pool.capacity or 0)
            waiting = self._waiting(pool)
            if not capacity:
                found += self._without_any(pool, wanted)
            elif waiting or max(wanted) > capacity + load.SLACK:
                late = load.delays(level.starts if pool.rate else level.work, capacity, waiting)
                worst = list(map(max, worst, late))
                found += [self._shortage(pool, one) for one in load.shortages(wanted, late, capacity)]
        return worst, sorted(nlargest(MOST_SHORTAGES, found, key=_badness), key=lambda one: one.start_at)

    def _waiting(self, pool: Pool) -> float:
        """Return the work, in ticks, that waits for slots at the beginning."""
        count = self.places.waiting.get(pool.name, 0) if pool.what == "slots" else 0
        return count * self.durations.usual(pool.name).median / self.grid.tick if count else 0.0

    def _shortage(self, pool: Pool, one: load.Shortage) -> Shortage:
        start, end = self.grid.moment(one.first), self.grid.moment(one.last + 1)
        late = one.late_ticks * self.grid.tick
        return Shortage(pool.what, pool.name, pool.capacity, pool.rate, start, end, one.wanted, late)

    def _without_any(self, pool: Pool, wanted: Sequence[float]) -> Iterator[Shortage]:
        first = next((at for at, some in enumerate(wanted) if some > 0), None)
        if first is not None:
            start = self.grid.moment(first)
            yield Shortage(pool.what, pool.name, pool.capacity, pool.rate, start, self.window.end, max(wanted), None)

    def _buckets(self, total: Levels, wanted: Sequence[float], late: Sequence[float]) -> list[Bucket]:
        size, found = _bucket_seconds(self.window) // self.grid.tick, list[Bucket]()
        for start in range(0, self.grid.size, size):
            part = range(start, min(start + size, self.grid.size))
            top = max(part, key=wanted.__getitem__)
            found.append(Bucket(
                self.grid.moment(start), sum(total.starts[start : start + size]), wanted[top],
                _high(wanted[top], total.variance[top]), max(late[start : start + size]) * self.grid.tick,
            ))  # fmt: skip
        return found

    def _shared(self) -> Iterator[Shared]:
        for group in self.groups.values():
            yield Shared(group.schedule, group.series, group.triggers, tuple(group.names))

    def _items(self, by: str, limit: int) -> tuple[list[Item], int]:
        """Return those with most runs, and how many there are."""
        sums: dict[object, float] = {}
        for it, cell, weight in self.rows:
            if self.org is None or self.org == it.org:
                key: object = it.job_id if by == JOB else cell.profile.queue if by == QUEUE else it.owner
                sums[key] = sums.get(key, 0.0) + cell.runs * weight
        top = nlargest(limit, sums, key=sums.__getitem__)
        rows: dict[object, list[_Row]] = {key: [] for key in top}
        for row in self.rows:
            key = row.it.job_id if by == JOB else row.cell.profile.queue if by == QUEUE else row.it.owner
            if key in rows and self.org in (None, row.it.org):
                rows[key].append(row)
        return [self._item(by, str(key), some) for key, some in rows.items()], len(sums)

    def _item(self, by: str, key: str, rows: Sequence[_Row]) -> Item:
        width = _bucket_seconds(self.window) * SECOND
        buckets = [0.0] * -(-(self.window.end - self.window.start) // width)
        weights: dict[_Cell, float] = {}
        for _, cell, weight in rows:
            weights[cell] = weights.get(cell, 0.0) + weight
        for cell, weight in weights.items():
            each = weight * cell.runs / cell.moments if cell.moments else 0.0
            for stretch in cell.group.series.stretches:
                _spread_over(buckets, _inside(stretch, self.window), self.window.start, width, each)
        first, is_job = rows[0], by == JOB
        return Item(
            key, first.it.name if is_job else key, round(sum(cell.moments * n for cell, n in weights.items())),
            sum(cell.runs * n for cell, n in weights.items()), sum(cell.busy * n for cell, n in weights.items()),
            _expected(first) if is_job else None, buckets,
        )  # fmt: skip


def _expected(row: _Row) -> Expected:
    """Return how long a run takes, as it was learned; what was not, as it was guessed."""
    median, spread = row.it.median, row.it.spread
    return Expected(median / SECOND, spread or 0.0) if median else row.cell.expected


def _total(cells: Iterable[_Cell]) -> tuple[float, float, float]:
    """Return moments, runs, and slots times seconds."""
    moments = runs = busy = 0.0
    for cell in cells:
        moments += cell.moments * cell.weight
        runs += cell.runs * cell.weight
        busy += cell.busy * cell.weight
    return moments, runs, busy


def _badness(one: Shortage) -> tuple[bool, float, float]:
    """What nobody can run is worst."""
    return one.late_seconds is None, one.late_seconds or 0.0, one.wanted


# ---------------------------------------------------------------------------- moments and what becomes of them


def share_kept(series: Series, moments: int, expected: Expected, overlap: Overlap) -> float:
    """Return the share of so many moments that become runs, where one that is under way keeps others from beginning."""
    if moments < 2 or overlap is Overlap.ALLOW or overlap is Overlap.REPLACE or series.delay:
        return 1.0
    step = series.stretches[0].step if len(series.stretches) == 1 else 0
    if expected.at(POINTS[-1]) * SECOND < step:
        return 1.0
    lengths = [expected.at(point) * SECOND for point in POINTS]
    if step:
        if overlap is Overlap.QUEUE:
            return min(1.0, step / (sum(lengths) * SHARE))
        return 1 / (sum(length // step + 1 for length in lengths) * SHARE)
    listed = sorted(_listed(series))
    return sum(_kept_of(listed, length) for length in lengths) * SHARE / moments


def _kept_of(moments: Sequence[Moment], length: float) -> int:
    """Return how many of these begin, if each takes so long and none begins during another."""
    kept, at = 0, 0
    while at < len(moments):
        kept, at = kept + 1, max(at + 1, bisect_left(moments, moments[at] + length))
    return kept


def _listed(series: Series) -> Iterator[Moment]:
    for stretch in series.stretches:
        yield from range(stretch.first, stretch.first + stretch.times * stretch.step, stretch.step)


def _with_delay(series: Series, expected: Expected, window: Window) -> Series:
    """Of an interval that counts from the end of a run: the run, and then the interval."""
    if not series.stretches:
        return series
    first, step = series.stretches[0].first, series.delay + round(expected.median * SECOND)
    return Series((Stretch(first, step, (window.end - 1 - first) // step + 1),), series.delay)


def _shifted(series: Series, seconds: float) -> Series:
    """Return moments so much later, in whole seconds: who comes after another does not meet it."""
    if not seconds:
        return series
    later = ceil(seconds) * SECOND
    return Series(tuple(stretch._replace(first=stretch.first + later) for stretch in series.stretches), series.delay)


def _inside(stretch: Stretch, window: Window) -> Stretch:
    """Return what of a stretch that was shifted still lies within the window."""
    most = (window.end - 1 - stretch.first) // stretch.step + 1
    return stretch if stretch.times <= most else stretch._replace(times=max(0, most))


def _cut(expected: Expected, stretch: Stretch) -> Expected:
    """Of a run that the next one replaces."""
    longest = stretch.step / SECOND
    return expected if stretch.times < 2 or expected.median < longest else Expected(longest, 0.0)


def _sources_of(it: Follower) -> list[int]:
    return [heard for heard, _ in it.heard] + ([it.part_of] if it.part_of else [])


def _share_of(ending: str, share: float | None) -> float:
    """Return how many of the runs of a job end so."""
    succeeded = 1.0 if share is None else share
    return {"success": succeeded, "failure": 1 - succeeded, "never": 0.0}.get(ending, 1.0)


# ------------------------------------------------------------------------------------------------ buckets


def _bucket_seconds(window: Window) -> int:
    seconds = (window.end - window.start) // SECOND
    return next((size for size in BUCKETS if seconds <= size * MOST_BUCKETS), BUCKETS[-1])


def _spread_over(buckets: list[float], stretch: Stretch, start: Moment, width: int, each: float) -> None:
    """Add the moments of a stretch to the buckets in which they lie."""
    if stretch.times <= 1:
        if stretch.times:
            buckets[(stretch.first - start) // width] += each
        return
    before = 0
    for index in range(len(buckets)):
        end = start + (index + 1) * width
        passed = min(stretch.times, max(0, -(-(end - stretch.first) // stretch.step)))
        buckets[index] += each * (passed - before)
        before = passed


def _high(mean: float, variance: float) -> float:
    return mean + LIKELY * sqrt(max(0.0, variance))


def _summed(levels: Sequence[Levels], size: int) -> Levels:
    """Return the load of several pools together."""
    if len(levels) == 1:
        return levels[0]
    zero = [0.0] * size
    columns = zip(*levels, strict=True) if levels else ((zero,),) * 4
    return Levels(*([sum(each) for each in zip(*column, strict=True)] for column in columns))
