"""Triggers that are counted together: those of a cell have the same moments, need the same places, and take about as
long.

    triggers ─► groups, by schedule and next moment ─► cells, by what their runs use and how long
    followers ─► cells of their own, so much later than those that they follow

A hundred thousand triggers pass through `_place`: so it works column by column, does little for each trigger, and all
else once for a cell, a group or a use.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat
from math import ceil
from operator import not_
from typing import NamedTuple

from horae.core.insight.arrivals import HOUR, Series, Stretch, Window, clock_of, even_series, series_of
from horae.core.insight.baselines import Expected
from horae.core.insight.load import POINTS, SHARE, Grid, kernel_of
from horae.core.insight.planned import (
    LENGTHS,
    SPREAD_PARTS,
    SPREADS,
    Columns,
    Durations,
    Follower,
    Places,
    Profile,
    Profiles,
    class_of,
    has_limits,
)
from horae.core.model import SECOND, Moment, Overlap

FROM_UNKNOWN = (1, *LENGTHS)  # µs, between classes: the first is that of which nothing is known
DEEPEST = 10  # jobs that come one after another
SECONDS_BITS = 40  # of the second of a moment, beside the number of what it shares with others
UNEVEN, ALONE = 0, -1  # of moments, in place of the step between two of them


class Use:
    """What a run needs a place in, and for how long."""

    __slots__ = (
        "_kept", "after", "begun", "expected", "is_held", "is_replaced", "kernels", "median", "pools", "profile",
        "seconds", "since",
    )  # fmt: skip

    def __init__(self, profile: Profile, expected: Expected, tick: int) -> None:
        self.profile, self.expected, self.pools = profile, expected, profile.pools
        self.after, self.is_held = profile.after, profile.is_held
        self.is_replaced = profile.overlap is Overlap.REPLACE
        self.median = expected.median * SECOND  # µs
        self.seconds = expected.median if profile.pools else 0.0  # that it takes of a place
        self.since = 0.0  # when one began, at the earliest, that may go on in the window
        self.begun: list[Moment] = []  # before the window, and may go on in it
        self.kernels = kernel_of(expected, tick, False), kernel_of(expected, tick, True)  # by whether it is exact
        self._kept: dict[int, float] = {}

    def kept(self, group: Group) -> float:
        """Return the share of the moments of a group that become runs."""
        found = self._kept.get(group.pace)
        if found is None:
            found = self._share_of(group)
            if group.pace != UNEVEN:
                self._kept[group.pace] = found
        return found

    def _share_of(self, group: Group) -> float:
        overlap = self.profile.overlap
        if self.profile.is_closed:
            return 0.0
        if group.pace == ALONE or overlap is Overlap.ALLOW or overlap is Overlap.REPLACE:
            return 1.0
        if group.pace == UNEVEN:
            return share_kept(group, self.expected)
        return share_kept_evenly(group.pace, self.expected, overlap)


class Group:
    """Triggers with the same moments."""

    __slots__ = (
        "_begun", "_closest", "_in_turn", "has_delay", "is_frequent", "loaded", "moments", "pace", "schedule", "series",
        "triggers",
    )  # fmt: skip

    def __init__(self, schedule: str, series: Series) -> None:
        """`schedule` is empty for what others make."""
        stretches = series.stretches
        self.schedule, self.series = schedule, series
        self.triggers, self.has_delay = 0, bool(series.delay)
        self.loaded: list[Cell] = []
        self.moments = stretches[0].times if len(stretches) == 1 else series.moments
        self.pace = stretches[0].step if len(stretches) == 1 else UNEVEN  # µs from one to the next, or what is above
        self.is_frequent = self.moments > 1 and 0 < self.pace <= HOUR
        if self.moments < 2 or self.has_delay:
            self.pace = ALONE
        self._in_turn: tuple[Stretch, ...] | None = None
        self._closest: int | None = None
        self._begun: dict[float, int] = {}

    @property
    def in_turn(self) -> tuple[Stretch, ...]:
        if self._in_turn is None:
            self._in_turn = self.series.in_turn()
        return self._in_turn

    @property
    def closest(self) -> int:
        """How many µs lie between two of its moments, at least."""
        if self._closest is None:
            steps = [stretch.step for stretch in self.in_turn if stretch.times > 1]
            gaps = [later.first - earlier.last for earlier, later in pairwise(self.in_turn)]
            self._closest = min((*steps, *gaps), default=0)
        return self._closest

    def begun(self, length: float) -> int:
        """Return how many of its moments begin, if each takes so many µs and none begins during another. Moments that
        lie whole seconds apart are as many for all lengths up to the next whole second."""
        if self.series.is_exact:
            length = -(-length // SECOND) * SECOND
        if length not in self._begun:
            self._begun[length] = _kept_of(self.in_turn, length)
        return self._begun[length]


class Cell:
    """Triggers whose runs are counted together."""

    __slots__ = ("count", "group", "kept", "runs", "use")
    delay = 0.0  # seconds that its runs wait for those of others
    each = 1.0  # of what others make: runs for each of their moments

    def __init__(self, group: Group, use: Use, count: int) -> None:
        self.group, self.use, self.count = group, use, count
        self.kept = kept = use.kept(group)  # the share of its moments that become runs
        self.runs = group.moments * kept  # of each of them
        group.loaded.append(self)

    @property
    def weight(self) -> float:
        return self.each * self.count

    @property
    def busy(self) -> float:
        """Slots times seconds."""
        return self.runs * self.use.seconds


class Following(Cell):
    """Triggers whose runs come after those of others, or a job whose runs others make."""

    __slots__ = ("delay", "each")

    def __init__(self, group: Group, use: Use, count: int, *, delay: float = 0.0, each: float = 1.0) -> None:
        super().__init__(group, use, count)
        self.delay, self.each = delay, each


class Source(NamedTuple):
    """A job that others follow, as one of its cells has it."""

    cell: Cell
    share: float | None  # of its runs that succeed


class Cells:
    """All cells of a forecast: those of triggers, and those of jobs that follow others."""

    def __init__(
        self, window: Window, places: Places, planned: Columns, followers: Sequence[Follower],
        shares: Mapping[int, float],
    ) -> None:  # fmt: skip
        """`shares`: of the runs of jobs that others follow, those that succeed."""
        self.window, self.grid, self.planned = window, Grid.of(window), planned
        self.profiles = Profiles(places, self.grid)
        self.durations = Durations(planned, followers)
        self.unknown = sum(map(not_, planned.median))  # triggers and followers that never succeeded
        self.groups: list[Group] = []  # of triggers
        self._made: list[Group] = []  # of what comes of them: moments that depend on a run, and those of followers
        self._uses: dict[tuple[int, Expected], Use] = {}
        self.of_rows = self._place()  # the cell of each trigger
        self._note_begun()
        self.followed: list[tuple[Follower, Cell]] = []
        self._follow(followers, shares)

    def __iter__(self) -> Iterator[Cell]:
        for group in self.loaded_groups():
            yield from group.loaded

    def loaded_groups(self) -> Iterator[Group]:
        yield from self.groups
        yield from self._made

    def let_go(self) -> None:
        """A cell and its group know each other: of very many, finding that nobody else does would take half a second
        in which nothing else goes on."""
        for group in self.loaded_groups():
            group.loaded.clear()

    def own(self) -> Iterator[Cell]:
        """Return those of triggers."""
        return chain.from_iterable(group.loaded for group in self.loaded_groups() if group.schedule)

    def uses(self) -> Iterator[Use]:
        return iter(self._uses.values())

    # ── triggers ──

    def _place(self) -> list[Cell]:
        """Put each trigger into its cell. Those that come after others come after them here too."""
        it, size = self.planned, len(self.planned.trigger_id)
        rows = range(size)
        when = _firsts(self._moment_keys(), rows)
        what = _firsts(zip(it.kind, it.policy, self._lengths(), self._spreads(), self._whose(), strict=False), rows)
        groups = {row: self._group(row) for row in dict.fromkeys(when)}
        uses = {row: self._use_of(row) for row in dict.fromkeys(what)}
        keys = [one * size + other for one, other in zip(when, what, strict=True)]
        cells, later = dict[int, Cell](), list[tuple[int, Group, Use, int]]()
        for key, count in Counter(keys).items():
            one, other = divmod(key, size)
            group, use = groups[one], uses[other]
            group.triggers += count
            if use.after:
                later.append((key, group, use, count))
            else:
                cells[key] = Cell(self._delayed(group, use) if group.has_delay else group, use, count)
        self._place_later(keys, cells, later)
        return [*map(cells.__getitem__, keys)]

    def _place_later(
        self, keys: Sequence[int], cells: dict[int, Cell], later: Sequence[tuple[int, Group, Use, int]]
    ) -> None:
        """Make cells of those that come after others."""
        wanted = {job_id for _, _, use, _ in later for job_id in use.after}
        medians = {
            job_id: cells[key].use.expected.median
            for job_id, key in zip(self.planned.job_id if wanted else (), keys, strict=False)
            if job_id in wanted and key in cells
        }
        for key, group, use, count in later:
            delay = max(medians.get(one, 0.0) for one in use.after)
            cells[key] = Following(self._delayed(group, use) if group.has_delay else group, use, count, delay=delay)

    def _delayed(self, group: Group, use: Use) -> Group:
        """Return a group of its own for moments that depend on how long a run takes."""
        made = Group(group.schedule, group.series.with_runs(use.expected.median, self.window))
        self._made.append(made)
        return made

    def _moment_keys(self) -> list[int]:
        """Return for each trigger what it has in common with those of the same moments."""
        it = self.planned
        clocks: dict[object, int] = {}  # what schedules share → the number of it
        of = {
            text: clocks.setdefault(clock_of(text), len(clocks)) << SECONDS_BITS for text in dict.fromkeys(it.schedule)
        }
        return [of[text] + at // SECOND for text, at in zip(it.schedule, it.next_at, strict=True)]

    def _lengths(self) -> list[int]:
        """Return the class of each duration, the number after it."""
        return [*map(bisect, repeat(FROM_UNKNOWN), [median or 0 for median in self.planned.median])]

    def _spreads(self) -> Iterator[int]:
        """Return the class of each spread. There are not many spreads."""
        classes = {spread: bisect(SPREADS, (spread or 0) / SPREAD_PARTS) for spread in {*self.planned.spread}}
        return map(classes.__getitem__, self.planned.spread)

    def _whose(self) -> Iterable[tuple[str, int] | None]:
        """Return for each trigger whose limits it has, where that matters."""
        it = self.planned
        limited = {policy for policy in {*it.policy} if has_limits(policy)}
        if not limited:
            return repeat(None)
        rows = zip(it.policy, it.owner, it.job_id, strict=True)
        return [(owner, job_id) if policy in limited else None for policy, owner, job_id in rows]

    def _profile(self, row: int) -> Profile:
        it = self.planned
        return self.profiles.of(it.kind[row], it.policy[row], it.owner[row], it.job_id[row])

    def _group(self, row: int) -> Group:
        """Return a new group, with the moments of a trigger."""
        it = self.planned
        schedule, next_at = it.schedule[row], it.next_at[row]
        found = even_series(schedule, next_at, self.window)
        if found is None:
            found = series_of(schedule, next_at, self.window, seed=it.trigger_id[row], created_at=it.created_at[row])
        group = Group(schedule, found)
        self.groups.append(group)
        return group

    def _use_of(self, row: int) -> Use:
        it = self.planned
        median, spread = it.median[row], it.spread[row]
        expected = self.durations.of(it.kind[row], *class_of(median, (spread or 0) / SPREAD_PARTS))
        return self._use(self._profile(row), expected)

    def _use(self, profile: Profile, expected: Expected) -> Use:
        found = self._uses.get((id(profile), expected))
        if found is None:
            found = self._uses[id(profile), expected] = Use(profile, expected, self.grid.tick)
        return found

    def _note_begun(self) -> None:
        """Note which runs began before the window and may go on in it."""
        start = self.window.start
        for use in self.uses():
            use.since = start - use.median
        earliest = min((use.since for use in self.uses()), default=start)
        begun = [(row, at) for row, at in enumerate(self.planned.last_at) if at is not None and earliest < at < start]
        for row, last_at in begun:
            cell = self.of_rows[row]
            # What repeats within the hour is counted as if it always had.
            if cell.use.since < last_at and not cell.group.is_frequent:
                cell.use.begun.append(last_at)

    # ── followers ──

    def _follow(self, followers: Sequence[Follower], shares: Mapping[int, float]) -> None:
        """Give jobs that follow others the moments at which those end; tasks of workflows one after another."""
        wanted, sources = {source for it in followers for source in it.sources}, dict[int, list[Source]]()
        for job_id, cell in zip(self.planned.job_id, self.of_rows, strict=True) if wanted else ():
            if job_id in wanted:
                sources.setdefault(job_id, []).append(Source(cell, shares.get(job_id)))
        left, passed = list(followers), dict[int, float]()
        for _ in range(DEEPEST):
            ready = [it for it in left if any(source in sources for source in it.sources)]
            left = [it for it in left if not any(source in sources for source in it.sources)]
            for it in ready:
                made = list(self._followed(it, sources, passed))
                self.followed += [(it, cell) for cell in made]
                sources.setdefault(it.job_id, []).extend(Source(cell, it.share) for cell in made)

    def _followed(
        self, it: Follower, sources: Mapping[int, Sequence[Source]], passed: dict[int, float]
    ) -> Iterator[Cell]:
        expected = self.durations.of(it.kind, *class_of(it.median, it.spread))
        self.unknown += 0 if it.median else 1
        for job_id, ending in it.heard:
            for source in sources.get(job_id, ()):
                each = source.cell.each * _share_of(ending, source.share)
                yield self._following(it, source.cell, expected, source.cell.use.expected.median, each)
        if it.part_of is not None:
            for source in sources.get(it.part_of, ()):
                yield self._following(it, source.cell, expected, passed.get(it.part_of, 0.0), source.cell.each)
            passed[it.part_of] = passed.get(it.part_of, 0.0) + expected.median

    def _following(self, it: Follower, source: Cell, expected: Expected, later: float, each: float) -> Cell:
        """Return the runs of one job that those of another make, so many seconds after those have begun."""
        profile = self.profiles.of(it.kind, it.policy, it.owner, it.job_id)
        group = Group("", source.group.series.later(source.delay + later))
        self._made.append(group)
        each *= source.kept if source.group.moments else 0.0
        return Following(group, self._use(profile, expected), 1, each=each)


def _firsts(keys: Iterable[Hashable], rows: range) -> list[int]:
    """Return for each row the first that has the same key: rows with one key are known by it."""
    known: dict[Hashable, int] = {}
    return [*map(known.setdefault, keys, rows)]


def _share_of(ending: str, share: float | None) -> float:
    """Return how many of the runs of a job end so."""
    succeeded = 1.0 if share is None else share
    return {"success": succeeded, "failure": 1 - succeeded, "never": 0.0}.get(ending, 1.0)


# ------------------------------------------------------------------------------- what becomes of a moment


def share_kept_evenly(step: int, expected: Expected, overlap: Overlap) -> float:
    """Return the share of evenly spaced moments that become runs, where one that is under way keeps others from
    beginning, or lets them wait."""
    lengths = [expected.at(point) * SECOND for point in POINTS]
    if lengths[-1] < step:
        return 1.0
    if overlap is Overlap.QUEUE:
        return min(1.0, step / (sum(lengths) * SHARE))
    return 1 / (sum(length // step + 1 for length in lengths) * SHARE)


def share_kept(group: Group, expected: Expected) -> float:
    """As share_kept_evenly, of moments that are not."""
    lengths = [expected.at(point) * SECOND for point in POINTS]
    if lengths[-1] <= group.closest:
        return 1.0
    kept = sum(map(group.begun, lengths))
    return kept * SHARE / sum(stretch.times for stretch in group.in_turn)


def _kept_of(stretches: Sequence[Stretch], length: float) -> int:
    """Return how many of these begin, if each takes so long and none begins during another."""
    kept, free_at = 0, 0.0
    for first, step, times in stretches:
        covered = max(0, ceil((free_at - first) / step))
        if covered < times:
            each = max(1, ceil(length / step))  # moments from one that begins to the next that does
            begun = -(-(times - covered) // each)
            kept += begun
            free_at = first + (covered + (begun - 1) * each) * step + length
    return kept
