"""Who goes next: weighted fair shares, decided when a run is made.

Runs of one line (kind of work, queue and priority) are started in the order of their *pass*. Each share (an owner,
or a key of one's choice) counts its own passes: a run comes one stride after the one before it, and the heavier the
share, the shorter its stride. So among shares that all have something waiting, starts are dealt out by weight, while a
claim stays one walk along an index, however much waits.

A share that was idle goes on from where its line is by now, not from where it stopped: it starts with the next claim,
and nobody can save up a right of way. What one share has waiting delays nobody else.

Higher priorities go first, and could for ever: so what has waited long is lifted to the head of the next priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from horae.core.model import SECOND

STRIDE = 1_000_000  # of a share of weight 1
HIGHEST = 9  # priority
LIFTED_AFTER = 600 * SECOND  # a run that waits so long for an agent goes one priority up, and again
ANYONE = "-"  # the share of runs that name none


class Line(NamedTuple):
    """Runs that are compared with each other."""

    kind: str
    queue: int
    priority: int


class Sharer(Protocol):
    """What of a run to be decides about its place."""

    kind: str
    queue: int
    priority: int
    share: str
    weight: int


class Share(NamedTuple):
    """Who shares a line, in the one order in which everybody locks them."""

    kind: str
    queue: int
    priority: int
    key: str
    weight: int

    @property
    def line(self) -> Line:
        return Line(self.kind, self.queue, self.priority)

    @property
    def stride(self) -> int:
        return STRIDE // self.weight


class Places(NamedTuple):
    """New runs, told apart by share: which one of `shares` (from 1) each belongs to, and which run of it (from 1) it
    is. Both are empty where there is one share."""

    shares: list[Share]
    numbers: list[int]
    nths: list[int]


def share_of(run: Sharer) -> Share:
    return Share(run.kind, run.queue, run.priority, run.share or ANYONE, run.weight)


def places_of(runs: Sequence[Sharer]) -> Places:
    """Runs come by the thousand, and most batches have few shares: those are found out by plain tuples."""
    found = {
        one: Share(kind, queue, priority, key or ANYONE, weight)
        for one in {(run.kind, run.queue, run.priority, run.share, run.weight) for run in runs}
        for kind, queue, priority, key, weight in (one,)
    }
    shares = sorted({*found.values()})
    if len(shares) < 2:
        return Places(shares, [], [])
    order = {share: number for number, share in enumerate(shares, 1)}
    numbers = {one: order[share] for one, share in found.items()}
    by_key = {one[3]: number for one, number in numbers.items()}
    if len(by_key) == len(numbers):  # as a rule: a text is looked up in a third of the time
        whose = [by_key[run.share] for run in runs]
    else:
        whose = [numbers[run.kind, run.queue, run.priority, run.share, run.weight] for run in runs]
    counts = [0] * (len(shares) + 1)
    nths = []
    for number in whose:
        counts[number] += 1
        nths.append(counts[number])
    return Places(shares, whose, nths)


def passes(places: Places, count: int, last: Sequence[int]) -> list[int]:
    """Return the pass of each new run; `last` is that of each share, or a stride before that of its line, whichever is
    further."""
    strides = [share.stride for share in places.shares]
    if not places.numbers:
        return [last[0] + nth * strides[0] for nth in range(1, count + 1)]
    return [
        last[number - 1] + nth * strides[number - 1] for number, nth in zip(places.numbers, places.nths, strict=True)
    ]


def furthest(places: Places, passes: Sequence[int]) -> list[int]:
    """Return how far each share is with these runs."""
    if not places.numbers:
        return [max(passes)]
    far = [0] * len(places.shares)
    for number, at in zip(places.numbers, passes, strict=True):
        far[number - 1] = max(far[number - 1], at)
    return far
