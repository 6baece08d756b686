"""The store's clock, as far as a scheduler knows it.

Between two answers of the store it is the elapsed time of this machine, plus the distance that was measured: what its
wall clock shows decides nothing, and a jump of it is only a reason to measure again, because the store's clock may be
the same one.
"""

from __future__ import annotations

import structlog

from horae.core.model import SECOND, Moment
from horae.core.time import moments
from horae.ports.clock import Clock
from horae.ports.store.moments import StoreClock

log = structlog.get_logger()

JUMP = SECOND // 2  # of the wall clock against elapsed time: more than the time between reading the two
LONGEST_ANSWER = SECOND // 4  # of the store; by so much may its clock be older than it looks


class StoreTime:
    def __init__(self, store: StoreClock, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._wall = self._wall_offset()
        self._offset = self._wall  # store's clock minus elapsed time, µs: until it is measured, as the wall clock says

    def now(self) -> Moment:
        return self._elapsed() + self._offset

    def _elapsed(self) -> int:
        return round(self._clock.elapsed() * SECOND)

    def _wall_offset(self) -> int:
        return self._clock.now() - self._elapsed()

    async def measure(self) -> None:
        """Measure how far the store's clock is from ours; half of the way there and back is its age, unless that took
        long: nobody knows which half did, and ahead of the store we would take moments for missed that are not."""
        before = self._elapsed()
        theirs = await self._store.now()
        after = self._elapsed()
        self._offset = theirs - max((before + after) // 2, after - LONGEST_ANSWER)
        if self.has_jumped():
            seconds = (self._wall_offset() - self._wall) / SECOND
            log.warning("clock.jumped", seconds=round(seconds, 3), store_now=moments.format_moment(theirs))
        self._wall = self._wall_offset()

    def has_jumped(self) -> bool:
        return abs(self._wall_offset() - self._wall) > JUMP

    def is_at_least(self, theirs: Moment) -> None:
        """The store has just said so."""
        self._offset = max(self._offset, theirs - self._elapsed())

    def is_only(self, theirs: Moment) -> None:
        """The store was behind what we took for its time."""
        self._offset = theirs - self._elapsed()
