"""Who goes next: weighted fair shares, decided when a run is made.

Runs of a queue and priority are started in the order of their *pass*. Each share (an owner, or a key of one's choice)
counts its own passes: a run comes one stride after the one before it, and the heavier the share, the shorter its
stride. So among shares that all have something waiting, starts are dealt out by weight, while a claim stays one walk
along an index, however much waits.

A share that was idle begins where the others are by now (`now_at`), not where it stopped: it starts with the next
claim, and nobody can save up a right of way. What one share has waiting delays nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

STRIDE = 1_000_000  # of a share of weight 1


class Line(NamedTuple):
    """Runs that are compared with each other."""

    queue: int
    priority: int


class Share(NamedTuple):
    """A share of one line."""

    line: Line
    key: str


def stride(weight: int) -> int:
    return STRIDE // weight


def passes(last: int, now_at: int, count: int, weight: int) -> range:
    """Return the passes of as many new runs of a share, whose last run had the pass `last`; the others of its line are
    at `now_at`."""
    step = stride(weight)
    first = max(last, now_at) + step
    return range(first, first + count * step, step)


def counted(shares: Sequence[tuple[Share, int]]) -> list[tuple[Share, int, int]]:
    """(share, weight) of new runs → (share, weight, how many), in the one order in which everybody locks them."""
    ordered = sorted(shares)
    return [(share, max(weight for _, weight in same), len(same)) for share, group in groupby(ordered, _share_of)
            for same in (list(group),)]  # fmt: skip


def _share_of(one: tuple[Share, int]) -> Share:
    return one[0]


def furthest(started: Iterable[tuple[Line, int]]) -> dict[Line, int]:
    """(line, pass) of runs that were started → how far each line has come."""
    far: dict[Line, int] = {}
    for line, at in started:
        far[line] = max(at, far.get(line, at))
    return far
