"""What a scheduler has missed: triggers whose moments passed while nobody fired them.

They are caught up in small portions beside punctual firing. Those with the fewest moments left come first: most jobs
are back soon, and one that missed a hundred thousand moments holds up nobody. A portion is as many moments as the store
writes in a moment that nobody notices: that is measured, not known.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import structlog

from horae.core.runs.orders import Due
from horae.ports.clock import Clock

log = structlog.get_logger()

FIRST_PORTION, LEAST_PORTION, LARGEST_PORTION = 200, 50, 1000  # moments accounted for in one transaction
PORTION_SECONDS = 0.02  # seconds that a portion shall take
REPORT_GAP = 10.0  # seconds between two words on how far it is


class Backlog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, Due]] = []  # by moments left, as far as they can be guessed
        self._left: dict[int, tuple[Due, int]] = {}  # trigger → what is in the heap of it, and its moments left
        self._began = self._reported_at = 0.0
        self._done = 0  # moments accounted for since it began
        self.portion = FIRST_PORTION
        self.seconds = PORTION_SECONDS  # that the last portion took

    def __len__(self) -> int:
        """Triggers that are behind."""
        return len(self._left)

    @property
    def moments(self) -> int:
        """About how many moments are left."""
        return sum(left for _, left in self._left.values())

    def add(self, entry: Due, left: int) -> None:
        if not self._left and not self._done:
            self._began = self._reported_at = self._clock.elapsed()
        self._left[entry.trigger_id] = (entry, left)
        heapq.heappush(self._heap, (left, entry))

    def take(self) -> Iterator[Due]:
        """Triggers off the backlog, one after the other, leaving out what has been replaced meanwhile."""
        while self._heap:
            left, entry = heapq.heappop(self._heap)
            if self._left.get(entry.trigger_id) == (entry, left):
                del self._left[entry.trigger_id]
                yield entry

    def clear(self) -> None:
        self._heap.clear()
        self._left.clear()

    def note(self, moments: int, seconds: float) -> None:
        """A portion of so many moments was accounted for in so many seconds."""
        self._done += moments
        self.seconds = seconds
        if seconds > 2 * PORTION_SECONDS:
            self.portion = max(LEAST_PORTION, self.portion // 2)
        elif seconds < PORTION_SECONDS and moments >= self.portion // 2:
            self.portion = min(LARGEST_PORTION, self.portion * 5 // 4)

    def shrink(self) -> None:
        """A portion was refused or too slow for the store: go on with the least."""
        self.portion = LEAST_PORTION

    def report(self, *, more: bool) -> None:
        """Say how far it is: now and then, and when nothing is left. `more`: there is some that was not read yet."""
        elapsed = self._clock.elapsed()
        if not self._left and not more:
            if self._done and elapsed - self._began >= REPORT_GAP:
                log.info("catch_up.done", moments=self._done, seconds=round(elapsed - self._began, 1))
            self._done = 0
        elif elapsed - self._reported_at >= REPORT_GAP:
            self._reported_at = elapsed
            log.info("catch_up", triggers=len(self), moments=self.moments, done=self._done)
