"""When runs that demand more than a slot are looked for: as soon as one may start, and else as seldom as can be.

An agent that asks for work gets them first, as far as their place in the order is before that of ordinary runs. To look
costs a statement, so it is done when somebody said that there may be something ("limits": one was made, or one that
held something has ended), when a rate allows the next start, and now and then: what others say may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from horae.core.policy.demands import Offer
from horae.core.runs.orders import Claimed
from horae.ports.clock import Clock
from horae.ports.transport import Queue, Topic

LOOK_GAP = 1.0  # seconds between looks for which there is no reason
SELDOM = 30.0  # seconds between looks while nobody has said that there is anything
MOST_HELD = 100_000  # runs of which is remembered that they hold something


class DemandingRuns(Protocol):
    """The one thing that is asked of the store here."""

    async def claim_demanding(self, offers: Sequence[Offer], *, standby: str | None = None) -> Claimed: ...


class Starting:
    def __init__(self, store: DemandingRuns, queue: Queue, clock: Clock) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._news = queue.watch("limits")
        self._look_at = 0.0
        self._is_waiting = False
        self._held: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_due(self) -> bool:
        """Return whether the next claim looks for such runs, and may find some."""
        gap = 0.0 if self._is_waiting else SELDOM
        return self._news.is_due or self._clock.elapsed() >= self._look_at + gap

    async def claim(self, offers: Sequence[Offer], standby: str | None) -> Claimed | None:
        """Return what was started for these; None if nobody looked."""
        if not self._news.is_due and self._clock.elapsed() < self._look_at:
            self._wake_in(self._look_at - self._clock.elapsed())
            return None
        if self._news.is_due:
            await self._news.wait(0)
        claimed = await self._store.claim_demanding(offers, standby=standby)
        self._is_waiting = claimed.is_waiting
        self._look_at = self._clock.elapsed() + (0.0 if claimed.is_cut else LOOK_GAP)
        if claimed.is_waiting:
            self._wake_in(LOOK_GAP if claimed.wait is None else min(claimed.wait, LOOK_GAP))
        self._remember({one.run_id for given in claimed.given for one in given or ()})
        return claimed

    def note_ended(self, run_ids: Collection[int]) -> None:
        """Attempts have ended, whatever became of them: others may have what they held."""
        ended = self._held.intersection(run_ids)
        self._held -= ended
        if ended and self._is_waiting:
            self._announce(("limits", "runs"))

    def _remember(self, run_ids: set[int]) -> None:
        if len(self._held) > MOST_HELD:
            self._held.clear()  # then a look finds out, a little later
        self._held |= run_ids

    def _wake_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() <= loop.time() + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._look_at = 0.0
        self._announce(("runs",))

    def _announce(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._queue.announce(topic)
