"""How many runs are under way in each tick of a window, of runs that begin at given moments and take given times.

A pool is whatever many runs share: the slots of a kind of work, a queue, a limit. Its load has three parts: the work
(slots in use, on the average of a tick), its variance, for nobody knows a duration, and what of it comes at once: runs
that begin in the same instant and are shorter than a tick are under way together, though they fill little of it.

Runs begin in stretches. One that repeats within the hour is added to one cycle, which is laid end to end when all are
in it: so the cost depends on how different the moments are, not on how many there are. Others are added one by one.

Of thousands of limits few ever run out: a load remembers what was added, and says at most how much that may be
(`bound`). The ticks of a day take megabytes, and are made for those alone that may.

When a pool has fewer places than are wanted, what cannot start is carried on, as water is: the work above the capacity
of a tick is done in later ones. So much work waiting, divided by the capacity, is how late a run begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, cycle
from math import modf
from operator import add
from typing import NamedTuple

from horae.core.insight.arrivals import Stretch, Window
from horae.core.insight.baselines import Expected
from horae.core.model import SECOND, Moment

POINTS = (-1.2247, 0.0, 1.2247)  # deviations: three equally likely durations with the spread of all
SHARE = 1 / len(POINTS)
TICKS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)  # seconds: all of them divide a minute
MOST_TICKS = 17_280  # of a day that is one in 5 seconds: finer ones say hardly more, and take four times as long
HOUR_SECONDS = 3600
ROUNDED = 20  # ticks: longer runs end with a whole one
SLACK = 0.5  # of a run: what was added up in fractions is not exact
NEAR = 60  # ticks between two shortages that are told as one


class Grid(NamedTuple):
    """A window in ticks. They lie as clocks have them: one begins at midnight, and the first may begin before the
    window."""

    start: Moment
    tick: int  # seconds
    size: int  # ticks

    @classmethod
    def of(cls, window: Window) -> Grid:
        seconds = (window.end - window.start) // SECOND
        tick = next((tick for tick in TICKS if seconds <= MOST_TICKS * tick), TICKS[-1])
        start = window.start // (tick * SECOND) * (tick * SECOND)
        return cls(start, tick, -(-(window.end - start) // (tick * SECOND)))

    def tick_of(self, moment: Moment) -> int:
        return (moment - self.start) // (self.tick * SECOND)

    def moment(self, index: int) -> Moment:
        return self.start + index * self.tick * SECOND


class Kernel(NamedTuple):
    """What one run adds to the ticks from its beginning on."""

    changes: tuple[tuple[int, float], ...]  # twice the tick, one more of the variance; by how much it changes there
    burst: float  # in its first tick, where it shares its instant with others
    seconds: float  # that it takes, on the average
    reach: int  # the last tick in which anything changes


Part = tuple[Kernel, float]  # so many runs, of those that begin together


@lru_cache(maxsize=8192)
def kernel_of(expected: Expected, tick: int, is_exact: bool) -> Kernel:
    """Return what a run does that takes one of three durations. Those below a tick fill a part of it."""
    lengths = [expected.at(point) / tick for point in POINTS]
    seconds = sum(lengths) * SHARE * tick
    if lengths[1] < 1:
        part = min(1.0, sum(lengths) * SHARE)
        doubt = part * (1 - part)
        changes = _changes(((0, part), (1, -part)), ((0, doubt), (1, -doubt)))
        return Kernel(changes, is_exact * (1 - part), seconds, 1)
    work = {0: 1.0}
    for length in lengths:
        for end, share in _ends(length):
            work[end] = work.get(end, 0.0) - share * SHARE
    doubt, first, last = SHARE * (1 - SHARE), max(1, round(lengths[0])), round(lengths[2])
    variance = ((first, doubt), (last, -doubt)) if last > first else ()
    return Kernel(_changes(work.items(), variance), is_exact * (1 - work[0]), seconds, max(*work, last))


def _changes(work: Iterable[tuple[int, float]], variance: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return both as _Ticks has them. What changes nothing is left out."""
    both = [(2 * at, change) for at, change in work] + [(2 * at + 1, change) for at, change in variance]
    return tuple((at, change) for at, change in both if change)


def _ends(length: float) -> Iterator[tuple[int, float]]:
    """Return the ticks in which a run of so many ends, and which share of it: a short one fills a part of its last."""
    if length >= ROUNDED:
        yield round(length), 1.0
        return
    part, whole = modf(length)
    yield int(whole), 1 - part
    yield int(whole) + 1, part


class Load:
    """The load of one pool."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._added: list[tuple[Stretch, Sequence[Part]]] = []
        self._under_way: Counter[int] = Counter()  # ticks → runs that end after so many

    def add(self, stretches: Iterable[Stretch], parts: Sequence[Part]) -> None:
        """Let runs begin at each of these moments."""
        self._added += [(stretch, parts) for stretch in stretches if stretch.times]

    def add_under_way(self, left: Iterable[int]) -> None:
        """Let runs be under way at the beginning, each for so many µs."""
        tick = self._grid.tick * SECOND
        half = tick // 2
        self._under_way.update([(some + half) // tick or 1 for some in left])

    def bound(self, *, of_starts: bool) -> float:
        """Return how many may be under way at once, or start in one tick: never less than are."""
        tick = self._grid.tick * SECOND
        if of_starts:
            return sum(runs * (1 + _turns(stretch, tick)) for stretch, parts in self._added for _, runs in parts)
        return self._under_way.total() + sum(
            runs * (1 + _turns(stretch, max(tick * kernel.reach, kernel.seconds * SECOND)))
            for stretch, parts in self._added
            for kernel, runs in parts
        )

    def finish(self) -> Levels:
        """Return the load in each tick. Cycles of an hour and its parts are laid into one hour first."""
        grid, hour = self._grid, HOUR_SECONDS // self._grid.tick
        ticks, cycles = _Ticks(grid.size), dict[int, _Cycle]()
        for stretch, parts in self._added:
            size = self._cycle_of(stretch)
            if size:
                if size not in cycles:
                    cycles[size] = _Cycle(size)
                cycles[size].add(grid.tick_of(stretch.first) % size, parts)
            elif stretch.times > 1 and stretch.step < 2 * grid.tick * SECOND:
                ticks.add_evenly(grid.tick_of(stretch.first), grid.tick_of(stretch.last) + 1, stretch, parts)
            else:
                for number in range(stretch.times):
                    ticks.add(grid.tick_of(stretch.first + number * stretch.step), parts)
        ticks.add_under_way(self._under_way)
        whole = [cycle.levels() for cycle in cycles.values() if hour % cycle.size == 0]
        others = [cycle.levels() for cycle in cycles.values() if hour % cycle.size]
        if whole:
            others.append(_laid(_zeros(hour), whole))
        return _laid(ticks.levels(), others)

    def _cycle_of(self, stretch: Stretch) -> int:
        """Return after how many ticks a stretch repeats itself all through the window; 0 if it does not, or rarely."""
        grid, tick = self._grid, self._grid.tick * SECOND
        first, step, times = stretch
        if times < 2 or step % tick or not 2 * tick <= step <= HOUR_SECONDS * SECOND:
            return 0
        is_whole = first - step < grid.moment(1) and first + times * step > grid.moment(grid.size - 1)
        return step // tick if is_whole else 0


class _Ticks:
    """Ticks, while runs are added to them. Work and variance are kept as changes from tick to tick, by turns: a run is
    added in one go."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changes, self.burst, self.starts = [0.0] * (2 * size), [0.0] * size, [0.0] * size

    def add(self, at: int, parts: Sequence[Part]) -> None:
        """Let runs begin in a tick."""
        changes, begin, nearest, burst, starts = self.changes, 2 * at, self.size - at, 0.0, 0.0
        for (own, at_once, _, reach), runs in parts:
            if reach < nearest:
                for offset, change in own:
                    changes[begin + offset] += change * runs
            else:
                self._add_beyond(begin, own, runs)
            burst += at_once * runs
            starts += runs
        self.burst[at] += burst
        self.starts[at] += starts

    def _add_beyond(self, begin: int, own: Iterable[tuple[int, float]], runs: float) -> None:
        """What changes after the last tick is not seen."""
        for offset, change in own:
            if begin + offset < len(self.changes):
                self.changes[begin + offset] += change * runs

    def add_evenly(self, first: int, end: int, stretch: Stretch, parts: Sequence[Part]) -> None:
        """More often than ticks: as a level. What is longer than the step is under way several times at once."""
        for kernel, runs in parts:
            share = kernel.seconds * SECOND / stretch.step
            for part, level in ((0, runs * share), (1, runs * share * max(0.0, 1 - share))):
                self.changes[2 * first + part] += level
                if end < self.size:
                    self.changes[2 * end + part] -= level
        each = sum(runs for _, runs in parts) * stretch.times / (end - first)
        self.starts[first:end] = [count + each for count in self.starts[first:end]]

    def add_under_way(self, ends: Counter[int]) -> None:
        self.changes[0] += ends.total()
        for end, runs in ends.items():
            if end < self.size:
                self.changes[2 * end] -= runs

    def levels(self) -> Levels:
        work, variance = accumulate(self.changes[::2]), accumulate(self.changes[1::2])
        return Levels([*work], [*variance], self.burst, self.starts)


class _Cycle(_Ticks):
    """Ticks that repeat."""

    def _add_beyond(self, begin: int, own: Iterable[tuple[int, float]], runs: float) -> None:
        """What changes so many turns later has not changed yet in this one: a run that is longer than the cycle is
        under way several times at once."""
        for offset, change in own:
            turns, place = divmod(begin + offset, len(self.changes))
            self.changes[place] += change * runs
            self.changes[place % 2] -= change * runs * turns


def _turns(stretch: Stretch, length: float) -> int:
    """Return how many more of a stretch begin within a length of time after one of them."""
    return min(stretch.times - 1, int(length // stretch.step)) if stretch.times > 1 else 0


def _zeros(size: int) -> Levels:
    return Levels(*([0.0] * size for _ in range(4)))


def _laid(levels: Levels, cycles: Iterable[Levels]) -> Levels:
    """Return levels with cycles laid end to end upon them."""
    for each in cycles:
        levels = Levels(*(list(map(add, level, cycle(some))) for level, some in zip(levels, each, strict=True)))
    return levels


class Levels(NamedTuple):
    """A load, tick by tick."""

    work: list[float]
    variance: list[float]
    burst: list[float]
    starts: list[float]

    def wanted(self) -> list[float]:
        """Runs that would be under way at once if all had a place."""
        return list(map(add, self.work, self.burst))


def together(levels: Sequence[Levels], size: int) -> Levels:
    """Return the load of several pools together."""
    return _laid(levels[0], levels[1:]) if levels else _zeros(size)


class Shortage(NamedTuple):
    """Places ran out from one tick to another."""

    first: int
    last: int
    wanted: float  # at most
    late_ticks: float  # the longest that a run waits


def delays(demand: Sequence[float], capacity: float, waiting: float = 0.0) -> list[float]:
    """Return how late, in ticks, a run begins that comes in each tick. `waiting` is work that waits at the
    beginning."""
    late: list[float] = []
    for wanted in demand:
        late.append(waiting / capacity)
        waiting += wanted - capacity
        if waiting < 0.0:
            waiting = 0.0
    return late


def shortages(wanted: Sequence[float], late: Sequence[float], capacity: float) -> list[Shortage]:
    """Return when more is wanted than there is, or somebody still waits for it; near ones are one."""
    found: list[Shortage] = []
    for at, (some, wait) in enumerate(zip(wanted, late, strict=True)):
        if some <= capacity + SLACK and wait <= SLACK:
            continue
        if found and at - found[-1].last <= NEAR:
            one = found[-1]
            found[-1] = Shortage(one.first, at, max(one.wanted, some), max(one.late_ticks, wait))
        else:
            found.append(Shortage(at, at, some, wait))
    return found
