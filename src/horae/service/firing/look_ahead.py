"""The moments of the next seconds, in memory: a heap by moment, and beside it what is offered to others first.

A trigger may be in the heap more than once. What counts is the newest entry of it (`_newest`); older ones are left out
when they are taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from horae.core.model import Moment
from horae.core.runs.orders import Due


class LookAhead:
    def __init__(self) -> None:
        self._heap: list[Due] = []
        self._newest: dict[int, tuple[Moment, int]] = {}  # trigger → (next_at, version) of the entry that counts
        self._aside: list[tuple[Moment, Due]] = []  # a heap of what is offered to others, by when to look again

    def __len__(self) -> int:
        """Triggers with an entry."""
        return len(self._newest)

    def without_known(self, rows: Sequence[Due]) -> list[Due]:
        """Return those that have no entry yet."""
        newest = self._newest
        return [row for row in rows if newest.get(row[1]) != (row[0], row[2])]

    def push(self, entry: Due) -> None:
        self._newest[entry[1]] = (entry[0], entry[2])
        heapq.heappush(self._heap, entry)

    def keep(self, entry: Due) -> None:
        """An entry that waits elsewhere, on the backlog, is the newest of its trigger."""
        self._newest[entry[1]] = (entry[0], entry[2])

    def drop(self, entry: Due) -> bool:
        """Forget an entry that is taken; False when it has been replaced meanwhile."""
        if self._newest.get(entry[1]) != (entry[0], entry[2]):
            return False
        del self._newest[entry[1]]
        return True

    def take_due(self, now: Moment, limit: int) -> list[Due]:
        """Take what is due off the heap, leaving out what has been replaced meanwhile."""
        heap, newest = self._heap, self._newest
        found: list[Due] = []
        while heap and heap[0][0] <= now and len(found) < limit:
            entry = heapq.heappop(heap)
            if newest.get(entry[1]) == (entry[0], entry[2]):
                del newest[entry[1]]
                found.append(entry)
        return found

    def is_due(self, now: Moment) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now

    def put_aside(self, entry: Due, until: Moment) -> None:
        self.keep(entry)
        heapq.heappush(self._aside, (until, entry))

    def bring_back(self, until: Moment) -> None:
        """Look again at moments that were put aside up to then, unless they have been replaced meanwhile."""
        while self._aside and self._aside[0][0] <= until:
            entry = heapq.heappop(self._aside)[1]
            if self._newest.get(entry[1]) == (entry[0], entry[2]):
                heapq.heappush(self._heap, entry)

    def next_at(self, refill_at: Moment) -> Moment:
        """When there is something to do, at the latest when the look-ahead is to be refilled."""
        first = min(self._aside[0][0], refill_at) if self._aside else refill_at
        return min(self._heap[0][0], first) if self._heap else first

    def clear(self) -> None:
        for part in (self._heap, self._newest, self._aside):
            part.clear()
