"""Where claims begin while there is much to step over.

A run that was claimed leaves its entry behind in the index of queued runs until vacuum may take it away; and it may not
while any program holds an older snapshot (a dump, a forgotten session). Then each claim would step over all runs since.

So a claim that stepped over far more than it got leaves a mark: of each line, the place of the last run that was
claimed. For a while claims begin there; what lies before it (a run that came back, or that was made late) is found by
the next one that begins at the beginning: after a second, or, so that these never take more than a tenth of the time,
after ten times as long as it took. While there is nothing to step over there are no marks, and the order is exact.

Marks are those of one process and of one set of labels: what an agent may not run is stepped over too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from horae.core.policy.order import Line

FEW = 2000  # entries beyond those of the runs that were got, and twice these
SWEEP = 1.0  # seconds between two claims from the beginning
SHARE = 10  # times as long as such a claim takes
LOWEST, HIGHEST = -(2**15), 2**15 - 1  # priorities

Place = tuple[int, int]  # pass and id


class Begin(NamedTuple):
    """Where a claim looks: ranges of priorities that are looked through as a whole, and those from a mark on. Of kinds
    and queues that are not named, everywhere."""

    gaps: list[tuple[str, int, int, int]]  # kind, queue, lowest, highest
    marks: list[tuple[str, int, int, int, int]]  # line, place


class Taken(NamedTuple):
    """What a claim took of runs that were pinned to nobody and demanded nothing."""

    runs: int
    places: Sequence[tuple[Line, Place]]  # of each line, the last one


class Marks:
    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._last: dict[tuple[str, ...], dict[tuple[str, int], dict[int, Place]]] = {}  # by labels, line
        self._sweep_at: dict[tuple[str, ...], float] = {}

    def begin(self, labels: Sequence[str], kinds: Iterable[str]) -> Begin:
        last = self._last.get(tuple(labels), {}) if self._is_marked(labels) else {}
        gaps, marks = [], []
        wanted = set(kinds)
        for (kind, queue), places in last.items():
            if kind not in wanted:
                continue
            above = HIGHEST + 1
            for priority, place in sorted(places.items(), reverse=True):
                gaps.append((kind, queue, priority + 1, above - 1))
                marks.append((kind, queue, priority, *place))
                above = priority
            gaps.append((kind, queue, LOWEST, above - 1))
        return Begin([gap for gap in gaps if gap[2] <= gap[3]], marks)

    def note(self, labels: Sequence[str], begin: Begin, stepped: int, taken: Taken, seconds: float) -> None:
        """After a claim that went by so many entries, and took these."""
        key = tuple(labels)
        if not begin.marks:
            if stepped <= FEW + 3 * taken.runs:
                return
            self._sweep_at[key] = self._elapsed() + max(SWEEP, SHARE * seconds)
        last = self._last.setdefault(key, {})
        for line, place in taken.places:
            places = last.setdefault((line.kind, line.queue), {})
            places[line.priority] = max(places.get(line.priority, (0, 0)), place)

    def look_again(self, labels: Sequence[str]) -> float | None:
        """Seconds until a claim looks at everything again; None if each does."""
        return max(0.0, self._sweep_at[tuple(labels)] - self._elapsed()) if self._is_marked(labels) else None

    def _is_marked(self, labels: Sequence[str]) -> bool:
        return self._elapsed() < self._sweep_at.get(tuple(labels), 0.0)
