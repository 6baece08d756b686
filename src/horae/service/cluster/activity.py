"""Which node is active: the one that has the segments. Told within seconds, whatever the store does.

While the store does not answer, what it said last is good for the time of a lease; after that nobody can know, and this
node least of all claims to be active.
"""

from __future__ import annotations

from typing import NamedTuple

from horae.core.model import SEGMENTS
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.store.cluster import Segments
from horae.service.cluster.coordination import margin
from horae.service.patience import within

ANSWER_SECONDS = 2.0  # after which we answer without the store


class Active(NamedTuple):
    is_here: bool
    node: str | None  # "" while nobody is; None: the store does not say


class Activity:
    def __init__(self, store: Segments, clock: Clock, *, node: str, lease_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._trusted_seconds = lease_seconds - margin(lease_seconds)
        self._last = Active(False, None)
        self._trusted_until = float("-inf")

    async def look(self) -> Active:
        """Return where several nodes have segments, each that is asked calls itself the active one."""
        asked = self._clock.elapsed()
        try:
            owners = await within(ANSWER_SECONDS, self._store.load_segments())
        except Unavailable:
            return self._last if self._clock.elapsed() < self._trusted_until else Active(False, None)
        names = [owners[segment][0] for segment in range(SEGMENTS) if segment in owners]
        is_here = self._node in names
        self._last = Active(is_here, self._node if is_here else next(iter(names), ""))
        self._trusted_until = asked + self._trusted_seconds
        return self._last
