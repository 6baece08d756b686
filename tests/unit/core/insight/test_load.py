"""How many runs are at once, and how late they begin: held against what a simulation run by run says."""

from __future__ import annotations

import heapq
import random

import pytest

from horae.core.insight.arrivals import Stretch, Window
from horae.core.insight.baselines import Expected
from horae.core.insight.load import Grid, Load, delays, kernel_of, shortages
from horae.core.model import SECOND

HOUR = 3600 * SECOND
GRID = Grid.of(Window(0, 4 * HOUR))


def begin(load: Load, stretch: Stretch, expected: Expected, runs: float, *, is_exact: bool) -> None:
    load.add([stretch], [(kernel_of(expected, GRID.tick, is_exact), runs)])


def at_once(stretches: list[tuple[Stretch, float]], ticks: int) -> list[int]:
    """Runs under way at the beginning of each second."""
    change = [0] * (ticks + 1)
    for stretch, seconds in stretches:
        for number in range(-100, stretch.times):  # it has always gone on like this
            first = (stretch.first + number * stretch.step) // SECOND
            for at, by in ((first, 1), (first + round(seconds), -1)):
                if at < ticks:
                    change[max(0, at)] += by
    total, found = 0, []
    for each in change[:ticks]:
        total += each
        found.append(total)
    return found


@pytest.mark.parametrize("step", [60, 300, 420, 3600])
@pytest.mark.parametrize("seconds", [5, 45, 1000])
def test_what_repeats_loads_as_run_by_run(step: int, seconds: int) -> None:
    dice, load, made = random.Random(step + seconds), Load(GRID), list[tuple[Stretch, float]]()
    for _ in range(20):
        first = dice.randrange(step) * SECOND
        stretch = Stretch(first, step * SECOND, (4 * HOUR - 1 - first) // (step * SECOND) + 1)
        begin(load, stretch, Expected(seconds, 0.0), 1.0, is_exact=True)
        made.append((stretch, seconds))
    levels = load.finish()
    assert levels.wanted() == pytest.approx(at_once(made, GRID.size), abs=1e-6)
    assert sum(levels.starts) == pytest.approx(sum(stretch.times for stretch, _ in made))


def test_runs_that_stand_alone_load_from_their_beginning_to_their_end() -> None:
    load = Load(GRID)
    begin(load, Stretch(100 * SECOND, HOUR, 1), Expected(50, 0.0), 3.0, is_exact=True)
    wanted = load.finish().wanted()
    assert [wanted[99], wanted[100], wanted[149], wanted[150]] == [0, 3, 3, 0]


def test_short_runs_at_the_same_instant_are_at_once_and_do_little_work() -> None:
    load = Load(GRID)
    begin(load, Stretch(100 * SECOND, HOUR, 1), Expected(0.1, 0.0), 500.0, is_exact=True)
    levels = load.finish()
    assert levels.wanted()[100] == pytest.approx(500)
    assert levels.work[100] == pytest.approx(50)


def test_a_trigger_that_is_due_more_often_than_ticks_is_a_level() -> None:
    load = Load(GRID)
    begin(load, Stretch(0, SECOND // 2, 2 * GRID.size), Expected(0.25, 0.0), 1.0, is_exact=False)
    levels = load.finish()
    assert levels.work == pytest.approx([0.5] * GRID.size)
    assert sum(levels.starts) == pytest.approx(2 * GRID.size)


def test_a_spread_of_durations_is_a_spread_of_runs_at_once() -> None:
    load = Load(GRID)
    begin(load, Stretch(0, HOUR, 1), Expected(100, 0.5), 90.0, is_exact=True)
    levels = load.finish()
    assert levels.work[10] == pytest.approx(90)
    assert levels.variance[10] == 0
    assert levels.work[100] == pytest.approx(30, abs=30)
    assert levels.variance[80] > 0


def waits(arrivals: list[tuple[int, int]], slots: int) -> float:
    """Seconds of the longest wait of runs (second, seconds) that take the first free slot."""
    free, worst = [0] * slots, 0
    for at, seconds in sorted(arrivals):
        begins = max(at, heapq.heappop(free))
        heapq.heappush(free, begins + seconds)
        worst = max(worst, begins - at)
    return worst


@pytest.mark.parametrize("slots", [4, 10, 30])
def test_delays_are_about_those_of_a_simulation_run_by_run(slots: int) -> None:
    dice, load = random.Random(slots), Load(GRID)
    arrivals = [(dice.randrange(60) + 3600, dice.choice([20, 40, 90])) for _ in range(300)]
    for at, seconds in arrivals:
        begin(load, Stretch(at * SECOND, HOUR, 1), Expected(seconds, 0.0), 1.0, is_exact=True)
    late = max(delays(load.finish().work, slots))
    assert late == pytest.approx(waits(arrivals, slots), rel=0.2)


def test_what_waits_at_the_beginning_delays_what_comes() -> None:
    assert delays([2.0, 2.0, 2.0], 2.0, waiting=4.0) == [2.0, 2.0, 2.0]
    assert delays([0.0, 0.0, 0.0], 2.0, waiting=4.0) == [2.0, 1.0, 0.0]


def test_places_run_out_from_when_to_when() -> None:
    wanted = [1.0] * 10 + [9.0] * 5 + [1.0] * 200
    late = delays(wanted, 4.0)
    [found] = shortages(wanted, late, 4.0)
    assert found.first == 10
    assert found.wanted == 9.0
    assert found.late_ticks == pytest.approx(max(late))
    assert late[found.last + 1] <= 0.5


def test_long_windows_have_wider_ticks() -> None:
    assert [Grid.of(Window(0, days * 24 * HOUR)).tick for days in (1, 2, 7, 31)] == [5, 10, 60, 60]


@pytest.mark.parametrize("seconds", [0.3, 2.5, 4.9, 5.1, 7.3, 12.0, 33.3, 60.0, 99.0])
def test_a_run_fills_as_much_of_its_ticks_as_it_takes(seconds: float) -> None:
    kernel = kernel_of(Expected(seconds, 0.1), 5, True)
    work = {at // 2: change for at, change in kernel.changes if at % 2 == 0}
    filled = -sum(at * change for at, change in work.items()) * 5
    assert filled == pytest.approx(kernel.seconds, rel=0.01)
    assert work[0] + kernel.burst == pytest.approx(1)


def test_ticks_lie_as_clocks_have_them() -> None:
    grid = Grid.of(Window(34 * SECOND, 34 * SECOND + 24 * HOUR))
    assert (grid.start, grid.tick, grid.moment(grid.size)) == (30 * SECOND, 5, 35 * SECOND + 24 * HOUR)
