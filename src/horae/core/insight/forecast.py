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
from dataclasses import dataclass, field
from heapq import nlargest
from math import sqrt
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


@dataclass(slots=True)
class _Group:
    """Triggers with the same moments."""

    schedule: str
    series: Series
    names: list[str] = field(default_factory=list)
    shares: dict[tuple[Overlap, Expected], float] = field(default_factory=dict)

    def kept(self, overlap: Overlap, expected: Expected) -> float:
        """Return the share of its moments that become runs."""
        found = self.shares.get((overlap, expected))
        if found is None:
            found = self.shares[overlap, expected] = share_kept(self.series, expected, overlap)
        return found


class _Row(NamedTuple):
    it: Planned | Follower
    group: _Group
    profile: Profile
    expected: Expected
    weight: float  # runs of it for each moment, before any is skipped


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
    made = _Making(
        window, places, [*((it.kind, it.median) for it in planned), *((it.kind, it.median) for it in followers)]
    )
    made.place(planned, org)
    made.follow(followers)
    made.fill()
    return made.finish(by, org, limit)


class _Making:
    """A forecast while it is made."""

    def __init__(self, window: Window, places: Places, known: Iterable[tuple[str, int | None]]) -> None:
        self.window, self.grid, self.places = window, Grid.of(window), places
        self.profiles = Profiles(places, self.grid)
        self.durations = Durations(known)
        self.groups: dict[tuple[object, ...], _Group] = {}
        self.rows: list[_Row] = []
        self.held = 0

    # ── reading ──

    def place(self, planned: Sequence[Planned], org: int | None) -> None:
        """Put each trigger into the group of its moments."""
        groups, rows = self.groups, self.rows
        for it in planned:
            key = share_key(it.schedule, it.next_at)
            group = groups.get(key)
            if group is None:
                group = groups[key] = self._group(it)
            profile = self.profiles.of(it.kind, it.policy, it.owner, it.job_id)
            expected = self.durations.of(it.kind, it.median, it.spread)
            if len(group.names) < MOST_NAMES and org in (None, it.org):
                group.names.append(it.name)
            if group.series.delay:
                group = _Group(it.schedule, _with_delay(group.series, expected, self.window))
            rows.append(_Row(it, group, profile, expected, 1.0))

    def _group(self, it: Planned) -> _Group:
        found = series_of(it.schedule, it.next_at, self.window, seed=it.trigger_id, created_at=it.created_at)
        return _Group(it.schedule, found)

    def follow(self, followers: Sequence[Follower]) -> None:
        """Give jobs that follow others the moments at which those end; tasks of workflows one after another."""
        sources: dict[int, list[_Row]] = {}
        wanted = {heard for it in followers for heard, _ in it.heard} | {it.part_of for it in followers if it.part_of}
        for row in self.rows:
            if row.it.job_id in wanted:
                sources.setdefault(row.it.job_id, []).append(row)
        left, passed = list(followers), dict[int, float]()
        for _ in range(DEEPEST):
            ready = [it for it in left if any(source in sources for source in _sources_of(it))]
            left = [it for it in left if it not in ready]
            for it in ready:
                made = list(self._followed(it, sources, passed))
                sources.setdefault(it.job_id, []).extend(made)
                self.rows += made

    def _followed(
        self, it: Follower, sources: Mapping[int, Sequence[_Row]], passed: dict[int, float]
    ) -> Iterator[_Row]:
        profile = self.profiles.of(it.kind, it.policy, it.owner, it.job_id)
        expected = self.durations.of(it.kind, it.median, it.spread)
        for job_id, ending in it.heard:
            for row in sources.get(job_id, ()):
                later = _shifted(row.group.series, row.expected.median)
                weight = (
                    row.weight * row.group.kept(row.profile.overlap, row.expected) * _share_of(ending, row.it.share)
                )
                yield _Row(it, _Group("", later), profile, expected, weight)
        for row in sources.get(it.part_of, ()) if it.part_of else ():
            later = _shifted(row.group.series, passed.get(it.part_of or 0, 0.0))
            yield _Row(it, _Group("", later), profile, expected, row.weight)
        if it.part_of:
            passed[it.part_of] = passed.get(it.part_of, 0.0) + expected.median

    # ── loading ──

    def fill(self) -> None:
        """Load the pools with all runs, those of equal moments and equal durations together."""
        together: dict[tuple[int, int, Expected, float], tuple[_Row, float]] = {}
        medians = {row.it.job_id: row.expected.median for row in self.rows}
        for row in self.rows:
            if row.profile.is_closed or row.profile.is_held:
                self.held += row.profile.is_held
                continue
            delay = max((medians.get(one, 0.0) for one in row.profile.after), default=0.0)
            key = (id(row.group), id(row.profile), row.expected, delay)
            found = together.get(key)
            together[key] = (row, row.weight if found is None else found[1] + row.weight)
            if isinstance(row.it, Planned):
                self._add_under_way(row, row.it)
        for (_, _, expected, delay), (row, runs) in together.items():
            self._load(row, expected, delay, runs)

    def _load(self, row: _Row, expected: Expected, delay: float, runs: float) -> None:
        group, overlap = row.group, row.profile.overlap
        runs *= group.kept(overlap, expected)
        series = _shifted(group.series, delay)
        for stretch in series.stretches:
            took = _cut(expected, stretch) if overlap is Overlap.REPLACE else expected
            for pool in row.profile.pools:
                pool.load.add(_inside(stretch, self.window), took, runs, is_exact=series.is_exact)

    def _add_under_way(self, row: _Row, it: Planned) -> None:
        """What began before the window may go on in it; what repeats within the hour is counted as if it always had."""
        if it.last_at is None or it.last_at >= self.window.start:
            return
        left = it.last_at / SECOND + row.expected.median - self.window.start / SECOND
        stretches = row.group.series.stretches
        is_repeated = len(stretches) == 1 and stretches[0].times > 1 and stretches[0].step <= 3600 * SECOND
        if left > 0 and not is_repeated:
            for pool in row.profile.pools:
                pool.load.add_under_way(1.0, left)

    def _notes(self) -> list[str]:
        found = [UNFORESEEN]
        if self.durations.unknown:
            found.append(f"{self.durations.unknown} triggers are of jobs that never succeeded: {UNKNOWN_WORDS}")
        if self.held:
            found.append(f"{self.held} triggers are of queues that are paused: their runs wait, and load nothing")
        return found

    # ── reading it off ──

    def finish(self, by: str, org: int | None, limit: int) -> Forecast:
        levels = {pool: pool.load.finish() for pool in self.profiles.pools.values()}
        slots = [pool for pool in levels if pool.what == "slots" and " on " not in pool.name]
        late, found = self._delays(levels)
        total = _summed([levels[pool] for pool in slots], self.grid.size)
        buckets = self._buckets(total, late)
        wanted = total.wanted()
        top = max(range(self.grid.size), key=wanted.__getitem__)
        items = self._items(by, org, limit)
        counted = [(_count(row), row) for row in self.rows]
        return Forecast(
            window=self.window, bucket_seconds=_bucket_seconds(self.window),
            triggers=sum(row.it.__class__ is Planned for row in self.rows),
            moments=round(sum(moments for (moments, _, _), row in counted if row.it.__class__ is Planned)),
            runs=sum(runs for (_, runs, _), _ in counted),
            skipped=sum(moments - runs for (moments, runs, _), row in counted if not row.profile.is_held),
            followers=sum(runs for (_, runs, _), row in counted if row.it.__class__ is Follower),
            busy_seconds=sum(busy for (_, _, busy), row in counted if row.profile.pools),
            slots=sum(pool.capacity or 0 for pool in slots),
            peak=wanted[top], peak_high=_high(wanted[top], total.variance[top]), peak_at=self.grid.moment(top),
            late_seconds=max(late, default=0.0) * self.grid.tick, buckets=buckets, items=items[0], item_count=items[1],
            shortages=found, clashes=find_clashes(self._shared()), notes=self._notes(),
        )  # fmt: skip

    def _delays(self, levels: Mapping[Pool, Levels]) -> tuple[list[float], list[Shortage]]:
        """Return how late runs begin, the latest of any pool, and where there are too few places."""
        worst, found = [0.0] * self.grid.size, list[Shortage]()
        for pool, level in levels.items():
            wanted = level.starts if pool.rate else level.wanted()
            capacity = pool.per_tick if pool.rate else float(pool.capacity or 0)
            waiting = self._waiting(pool)
            if max(wanted, default=0.0) <= capacity + load.SLACK and not waiting:
                continue
            if not capacity:
                found += self._without_any(pool, wanted)
                continue
            late = load.delays(level.starts if pool.rate else level.work, capacity, waiting)
            worst = list(map(max, worst, late))
            found += [self._shortage(pool, one) for one in load.shortages(wanted, late, capacity)]
        found.sort(
            key=lambda one: (-(one.late_seconds or 0.0) if one.late_seconds is not None else -1e18, one.start_at)
        )
        return worst, sorted(found[:MOST_SHORTAGES], key=lambda one: one.start_at)

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

    def _buckets(self, total: Levels, late: Sequence[float]) -> list[Bucket]:
        size, wanted = _bucket_seconds(self.window) // self.grid.tick, total.wanted()
        found = []
        for start in range(0, self.grid.size, size):
            part = range(start, min(start + size, self.grid.size))
            top = max(part, key=wanted.__getitem__)
            found.append(Bucket(
                self.grid.moment(start), sum(total.starts[start : start + size]), wanted[top],
                _high(wanted[top], total.variance[top]), max(late[start : start + size]) * self.grid.tick,
            ))  # fmt: skip
        return found

    def _shared(self) -> Iterator[Shared]:
        sizes: dict[int, int] = {}
        for row in self.rows:
            if row.it.__class__ is Planned:
                sizes[id(row.group)] = sizes.get(id(row.group), 0) + 1
        for group in self.groups.values():
            yield Shared(group.schedule, group.series, sizes[id(group)], tuple(group.names))

    def _items(self, by: str, org: int | None, limit: int) -> tuple[list[Item], int]:
        """Return those with most runs, and how many there are."""
        rows: dict[object, list[_Row]] = {}
        for row in self.rows:
            if org in (None, row.it.org):
                key: object = row.it.job_id if by == JOB else row.profile.queue if by == QUEUE else row.it.owner
                rows.setdefault(key, []).append(row)
        sums = {key: sum(_count(row)[1] for row in some) for key, some in rows.items()}
        top = nlargest(limit, sums, key=sums.__getitem__)
        return [self._item(by, str(key), rows[key]) for key in top], len(rows)

    def _item(self, by: str, key: str, rows: Sequence[_Row]) -> Item:
        counts = [_count(row) for row in rows]
        width = _bucket_seconds(self.window) * SECOND
        buckets = [0.0] * -(-(self.window.end - self.window.start) // width)
        for row, (moments, runs, _) in zip(rows, counts, strict=True):
            share = runs / moments * row.weight if moments else 0.0
            for stretch in row.group.series.stretches:
                _spread_over(buckets, _inside(stretch, self.window), self.window.start, width, share)
        is_job = by == JOB
        return Item(
            key, rows[0].it.name if is_job else key, round(sum(moments for moments, _, _ in counts)),
            sum(runs for _, runs, _ in counts), sum(busy for _, _, busy in counts),
            rows[0].expected if is_job else None, buckets,
        )  # fmt: skip


# ---------------------------------------------------------------------------- moments and what becomes of them


def share_kept(series: Series, expected: Expected, overlap: Overlap) -> float:
    """Return the share of moments that become runs, where a run that is under way keeps others from beginning."""
    if overlap in (Overlap.ALLOW, Overlap.REPLACE) or series.delay or series.moments < 2:
        return 1.0
    lengths = [expected.at(point) * SECOND for point in POINTS]
    if len(series.stretches) == 1:
        step = series.stretches[0].step
        if overlap is Overlap.QUEUE:
            return min(1.0, step / (sum(lengths) * SHARE))
        return 1 / (sum(length // step + 1 for length in lengths) * SHARE)
    moments = sorted(_listed(series))
    return sum(_kept_of(moments, length) for length in lengths) * SHARE / len(moments)


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
    if not seconds:
        return series
    later = round(seconds * SECOND)
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


def _count(row: _Row) -> tuple[float, float, float]:
    """Return moments, runs and slots times seconds of a row."""
    moments = row.group.series.moments * row.weight
    runs = 0.0 if row.profile.is_closed else moments * row.group.kept(row.profile.overlap, row.expected)
    return moments, runs, runs * row.expected.median


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
    zero = [0.0] * size
    columns = zip(*levels, strict=True) if levels else ((zero,),) * 4
    return Levels(*([sum(each) for each in zip(*column, strict=True)] for column in columns))
