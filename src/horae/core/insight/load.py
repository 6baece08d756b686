"""How many runs are under way in each tick of a window, of runs that begin at given moments and take given times.

A pool is whatever many runs share: the slots of a kind of work, a queue, a limit. Its load has three parts: the work
(slots in use, on the average of a tick), its variance, for nobody knows a duration, and what of it comes at once: runs
that begin in the same instant and are shorter than a tick are under way together, though they fill little of it.

Runs begin in stretches. One that repeats within the hour is added to one cycle, which is laid end to end when all are
in it: so the cost depends on how different the moments are, not on how many there are. Others are added one by one.

When a pool has fewer places than are wanted, what cannot start is carried on, as water is: the work above the capacity
of a tick is done in later ones. So much work waiting, divided by the capacity, is how late a run begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import NamedTuple

from horae.core.insight.arrivals import Stretch, Window
from horae.core.insight.baselines import Expected
from horae.core.model import SECOND, Moment

POINTS = (-1.2247, 0.0, 1.2247)  # deviations: three equally likely durations with the spread of all
SHARE = 1 / len(POINTS)
TICKS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)  # seconds: all of them divide a minute
MOST_TICKS = 86_400
HOUR_SECONDS = 3600
SLACK = 0.5  # of a run: what was added up in fractions is not exact
NEAR = 60  # ticks between two shortages that are told as one


class Grid(NamedTuple):
    """A window in ticks."""

    start: Moment
    tick: int  # seconds
    size: int  # ticks

    @classmethod
    def of(cls, window: Window) -> Grid:
        seconds = (window.end - window.start) // SECOND
        tick = next((tick for tick in TICKS if seconds <= MOST_TICKS * tick), TICKS[-1])
        return cls(window.start, tick, -(-seconds // tick))

    def tick_of(self, moment: Moment) -> int:
        return (moment - self.start) // (self.tick * SECOND)

    def moment(self, index: int) -> Moment:
        return self.start + index * self.tick * SECOND


class Kernel(NamedTuple):
    """What one run adds to the ticks from its beginning on."""

    work: tuple[tuple[int, float], ...]  # tick, and by how much the work changes there
    variance: tuple[tuple[int, float], ...]
    burst: float  # in its first tick, where it shares its instant with others


@lru_cache(maxsize=8192)
def kernel_of(expected: Expected, tick: int, is_exact: bool) -> Kernel:
    """Return what a run does that takes one of three durations. Those below a tick fill a part of it."""
    lengths = [expected.at(point) / tick for point in POINTS]
    if lengths[1] < 1:
        part = min(1.0, sum(lengths) * SHARE)
        return Kernel(((0, part), (1, -part)), ((0, part * (1 - part)), (1, -part * (1 - part))), is_exact * (1 - part))
    ends = [max(1, round(length)) for length in lengths]
    work = [(0, 1.0), *((end, -SHARE) for end in ends)]
    doubt = SHARE * (1 - SHARE)
    variance = ((ends[0], doubt), (ends[2], -doubt)) if ends[2] > ends[0] else ()
    return Kernel(tuple(_merged(work)), variance, 0.0)


def _merged(changes: Iterable[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    found: dict[int, float] = {}
    for at, change in changes:
        found[at] = found.get(at, 0.0) + change
    return iter(found.items())


class _Cycle:
    """What repeats after so many ticks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.work, self.variance, self.burst, self.starts = ([0.0] * size for _ in range(4))

    def add(self, at: int, kernel: Kernel, runs: float) -> None:
        for changes, into in ((kernel.work, self.work), (kernel.variance, self.variance)):
            for offset, change in changes:
                self._change(into, at, offset, change * runs)
        self.burst[at] += kernel.burst * runs
        self.starts[at] += runs

    def _change(self, into: list[float], at: int, offset: int, change: float) -> None:
        """What changes so many turns later has not changed yet in this one: a run that is longer than the cycle is
        under way several times at once."""
        turns, place = divmod(at + offset, self.size)
        into[place] += change
        into[0] -= change * turns

    def levels(self) -> list[list[float]]:
        return [list(accumulate(self.work)), list(accumulate(self.variance)), self.burst, self.starts]


class Load:
    """The load of one pool."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._work, self._variance = [0.0] * (grid.size + 1), [0.0] * (grid.size + 1)
        self.burst, self.starts = [0.0] * grid.size, [0.0] * grid.size
        self._cycles: dict[int, _Cycle] = {}

    def add(self, stretch: Stretch, expected: Expected, runs: float, *, is_exact: bool) -> None:
        """Let so many runs begin at each of these moments."""
        grid, tick = self._grid, self._grid.tick * SECOND
        kernel = kernel_of(expected, grid.tick, is_exact)
        if stretch.times > 1 and stretch.step < 2 * tick:
            return self._add_evenly(stretch, expected, runs)
        is_even = stretch.step % tick == 0 and stretch.step <= HOUR_SECONDS * SECOND
        if stretch.times > 1 and is_even and stretch.first - stretch.step < grid.start:
            return self._cycle(stretch.step // tick).add(grid.tick_of(stretch.first), kernel, runs)
        for number in range(stretch.times):
            self._add_once(grid.tick_of(stretch.first + number * stretch.step), kernel, runs)
        return None

    def _cycle(self, size: int) -> _Cycle:
        found = self._cycles.get(size)
        if found is None:
            found = self._cycles[size] = _Cycle(size)
        return found

    def _add_once(self, at: int, kernel: Kernel, runs: float) -> None:
        for changes, into in ((kernel.work, self._work), (kernel.variance, self._variance)):
            for offset, change in changes:
                if at + offset < self._grid.size:
                    into[at + offset] += change * runs
        self.burst[at] += kernel.burst * runs
        self.starts[at] += runs

    def _add_evenly(self, stretch: Stretch, expected: Expected, runs: float) -> None:
        """More often than ticks: as a level. What is longer than the step is under way several times at once."""
        first, last = self._grid.tick_of(stretch.first), self._grid.size
        seconds = sum(map(expected.at, POINTS)) * SHARE
        level = runs * seconds * SECOND / stretch.step
        self._work[first] += level
        self._variance[first] += level * max(0.0, 1 - seconds * SECOND / stretch.step)
        each = runs * stretch.times / (last - first)
        self.starts[first:] = [count + each for count in self.starts[first:]]

    def add_under_way(self, runs: float, seconds: float) -> None:
        """Let so many runs be under way at the beginning, for as long as that."""
        end = max(1, round(seconds / self._grid.tick))
        self._work[0] += runs
        if end < self._grid.size:
            self._work[end] -= runs

    def finish(self) -> Levels:
        """Return the load in each tick. Cycles of an hour and its parts are laid into one hour first."""
        size, hour = self._grid.size, HOUR_SECONDS // self._grid.tick
        levels = [
            list(accumulate(self._work[:size])),
            list(accumulate(self._variance[:size])),
            self.burst,
            self.starts,
        ]
        whole = [cycle for cycle in self._cycles.values() if hour % cycle.size == 0]
        others = [cycle.levels() for cycle in self._cycles.values() if hour % cycle.size]
        if whole:
            others.append(_together([cycle.levels() for cycle in whole], hour))
        for each in others:
            levels = [list(map(add, level, _tiled(cycle, size))) for level, cycle in zip(levels, each, strict=True)]
        return Levels(*levels)


def _together(cycles: Sequence[list[list[float]]], size: int) -> list[list[float]]:
    total = [[0.0] * size for _ in range(4)]
    for each in cycles:
        total = [list(map(add, level, _tiled(cycle, size))) for level, cycle in zip(total, each, strict=True)]
    return total


def _tiled(cycle: list[float], size: int) -> list[float]:
    return (cycle * -(-size // len(cycle)))[:size]


class Levels(NamedTuple):
    """A load, tick by tick."""

    work: list[float]
    variance: list[float]
    burst: list[float]
    starts: list[float]

    def wanted(self) -> list[float]:
        """Runs that would be under way at once if all had a place."""
        return list(map(add, self.work, self.burst))


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
