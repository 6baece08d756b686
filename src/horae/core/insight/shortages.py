"""Where places run out: the load of each pool held against what there is of it.

Slots are looked at always, for they are shown. Of queues and limits, of which there may be thousands, those alone that
may run out at all, the tightest first, and no more than MOST_LOOKED_AT: each takes the ticks of the whole window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from horae.core.insight import load
from horae.core.insight.arrivals import Window
from horae.core.insight.load import SLACK, Grid, Levels
from horae.core.insight.planned import Pool
from horae.core.model import Moment

MOST_SHORTAGES = 20
MOST_LOOKED_AT = 20  # pools beside slots


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
class Looked:
    """What the pools of a window told."""

    total: Levels  # of all slots together
    wanted: list[float]  # of all slots, tick by tick
    slots: int
    late: list[float]  # ticks that a run waits that comes in each tick, the longest of any pool
    shortages: list[Shortage]
    passed_over: int  # pools that may run out and were not looked at


def look_at(
    pools: Sequence[Pool], window: Window, grid: Grid, waiting: Mapping[str, float], *, most: int = MOST_LOOKED_AT
) -> Looked:
    """Return where there is too little. `waiting`: seconds of work that wait for slots of a kind at the beginning."""
    slots = [pool for pool in pools if pool.is_all_slots]
    others = [pool for pool in pools if not pool.is_all_slots and pool.pressure() > 1]
    chosen = nlargest(most, others, key=Pool.pressure)
    found, worst, total = list[Shortage](), [0.0] * grid.size, list[Levels]()
    for pool in (*slots, *chosen):
        levels = pool.load.finish()
        late, short = _judged(pool, levels, window, grid, waiting.get(pool.name, 0.0) if pool.is_all_slots else 0.0)
        worst = list(map(max, worst, late)) if late else worst
        found += short
        if pool.is_all_slots:
            total.append(levels)
    summed = load.together(total, grid.size)
    return Looked(
        summed, summed.wanted(), sum(pool.capacity or 0 for pool in slots), worst,
        sorted(nlargest(MOST_SHORTAGES, found, key=_badness), key=lambda one: one.start_at), len(others) - len(chosen),
    )  # fmt: skip


def _judged(
    pool: Pool, levels: Levels, window: Window, grid: Grid, waiting: float
) -> tuple[Sequence[float], list[Shortage]]:
    """Return how late runs begin, tick by tick, or nothing where none does; and when places run out."""
    wanted = levels.starts if pool.rate else levels.wanted()
    capacity = pool.per_tick if pool.rate else float(pool.capacity or 0)
    if not capacity:
        return (), list(_without_any(pool, wanted, window, grid))
    if not waiting and max(wanted) <= capacity + SLACK:
        return (), []
    late = load.delays(levels.starts if pool.rate else levels.work, capacity, waiting / grid.tick)
    return late, [_shortage(pool, one, window, grid) for one in load.shortages(wanted, late, capacity)]


def _shortage(pool: Pool, one: load.Shortage, window: Window, grid: Grid) -> Shortage:
    start, end = max(window.start, grid.moment(one.first)), min(window.end, grid.moment(one.last + 1))
    late = one.late_ticks * grid.tick
    return Shortage(pool.what, pool.name, pool.capacity, pool.rate, start, end, one.wanted, late)


def _without_any(pool: Pool, wanted: Sequence[float], window: Window, grid: Grid) -> Iterator[Shortage]:
    first = next((at for at, some in enumerate(wanted) if some > 0), None)
    if first is not None:
        start = max(window.start, grid.moment(first))
        yield Shortage(pool.what, pool.name, pool.capacity, pool.rate, start, window.end, max(wanted), None)


def _badness(one: Shortage) -> tuple[bool, float, float]:
    """What nobody can run is worst."""
    return one.late_seconds is None, one.late_seconds or 0.0, one.wanted
