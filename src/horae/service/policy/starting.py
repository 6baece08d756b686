"""When runs that demand more than a slot are looked for: as soon as one may start, and else as seldom as can be.

A claim of ordinary runs takes with it those of which it is known that they may start, and says whether others wait
(Store.claim_beside). To look at those (Store.claim_demanding) costs a transaction. It is done when a claim has said so;
when somebody said that what they wait for may be free ("units": a run that held something has ended); when a rate
allows the next start; and, while something waits, now and then: what others say may be lost. Now and then is for each
node: what one cannot have may be for another.

Where one looks before the claim, what is found gets its slots in the order of all that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from horae.core.policy import resources
from horae.core.policy.demands import Demand, Offer
from horae.core.runs.orders import Assignment, Claimed
from horae.ports.clock import Clock
from horae.ports.transport import Queue, Topic

LOOK_GAP = 1.0  # seconds between looks for which there is no reason
MOST_NODES = 10_000  # that are remembered
MOST_HELD = 100_000  # runs of which is remembered that they hold something

Given = list[list[Assignment] | None]  # to each offer; None: of a session that is over


class Claims(Protocol):
    """What is asked of the store here."""

    async def claim_demanding(self, offers: Sequence[Offer], *, standby: str | None = None) -> Claimed: ...
    async def claim_beside(
        self, offers: Sequence[Offer], labels: Sequence[str] = (), *, standby: str | None = None, is_fresh: bool = False
    ) -> Claimed: ...


class Starting:
    def __init__(self, store: Claims, queue: Queue, clock: Clock) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._made = queue.watch("limits")
        self._freed = queue.watch("units")
        self._looks: dict[str, float] = {}  # node → when it looks again, if something waits
        self._is_waiting = True  # as far as is known when it begins
        self._wanted: frozenset[str] | None = None  # by what waits: as Claimed has it
        self._held: dict[int, Demand] = {}
        self._timer: asyncio.Handle | None = None
        self._wakes_at = 0.0  # by the loop's clock; a timer of uvloop that is due at once does not know it

    async def claim(self, offers: Sequence[Offer], labels: Sequence[str], standby: str | None) -> Given:
        """Return what was started for these, which have the same labels."""
        is_fresh = self._made.is_due
        if is_fresh:
            await self._made.wait(0)
        looked = await self._look(offers, standby) if await self._is_due(offers) else None
        if looked is not None:
            # Of what else is free some may be kept for a large run, so nothing is offered.
            offers = [o._replace(room=room, free={}) for o, room in zip(offers, looked.room, strict=True)]
        if not any(map(_has_room, offers)):
            return [[] for _ in offers] if looked is None else looked.given
        beside = await self._store.claim_beside(
            offers, labels, standby=standby, is_fresh=is_fresh and looked is None
        )  # fmt: skip
        self._remember(beside.holding)
        if beside.is_waiting:
            self._forget_looks()
            if looked is None:
                return _together(beside.given, await self._look_behind(offers, beside, standby))
        return beside.given if looked is None else _together(looked.given, beside.given)

    @property
    def is_waiting(self) -> bool:
        """Whether runs may wait that demand more than a slot, as far as is known here."""
        return self._is_waiting or self._made.is_due or self._freed.is_due

    async def _look_behind(self, offers: Sequence[Offer], beside: Claimed, standby: str | None) -> Given:
        """Look with what ordinary runs have left; where that is nothing, the next claim looks before them."""
        rest = [_left(offer, beside, number) for number, offer in enumerate(offers)]
        return (await self._look(rest, standby)).given if any(map(_has_room, rest)) else [[] for _ in rest]

    async def _is_due(self, offers: Sequence[Offer]) -> bool:
        if self._freed.is_due:
            await self._freed.wait(0)
            self._forget_looks()
        if not self._is_waiting:
            return False
        wait = min(self._looks.get(offer.node, 0.0) for offer in offers) - self._clock.elapsed()
        if wait > 0:
            self._wake_in(wait)
        return wait <= 0

    async def _look(self, offers: Sequence[Offer], standby: str | None) -> Claimed:
        claimed = await self._store.claim_demanding(offers, standby=standby)
        self._is_waiting, self._wanted = claimed.is_waiting, claimed.wanted
        if len(self._looks) > MOST_NODES:
            self._looks.clear()
        until = self._clock.elapsed() + LOOK_GAP
        self._looks |= {offer.node: 0.0 if claimed.is_cut else until for offer in offers}
        if claimed.is_waiting:
            self._wake_in(LOOK_GAP if claimed.wait is None else min(claimed.wait, LOOK_GAP))
        self._remember(claimed.holding)
        return claimed

    def _forget_looks(self) -> None:
        self._is_waiting = True
        self._looks.clear()

    def note_ended(self, run_ids: Collection[int]) -> None:
        """Attempts have ended, whatever became of them: others may have what they held."""
        ended = [self._held.pop(run_id) for run_id in run_ids if run_id in self._held]
        if self._is_waiting and any(self._is_wanted(demand) for demand in ended):
            self._announce(("units", "runs"))

    def _is_wanted(self, demand: Demand) -> bool:
        return self._wanted is None or any(use.key in self._wanted for use in demand.uses)

    def _remember(self, holding: Mapping[int, Demand]) -> None:
        if len(self._held) > MOST_HELD:
            self._held.clear()  # then a look finds out, a little later
        self._held.update(holding)

    def _wake_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        wakes_at = loop.time() + seconds
        if self._timer is not None and self._wakes_at <= wakes_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wakes_at = loop.call_later(seconds, self._wake), wakes_at

    def _wake(self) -> None:
        self._timer = None
        self._forget_looks()
        self._announce(("runs",))

    def _announce(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._queue.announce(topic)


def _left(offer: Offer, claimed: Claimed, number: int) -> Offer:
    """Return what a node still has after a claim."""
    free = dict(offer.free)
    for one in claimed.given[number] or ():
        if one.run_id in claimed.holding:
            resources.take(free, resources.beyond_slots(claimed.holding[one.run_id].asks))
    return offer._replace(room=claimed.room[number], free=free)


def _has_room(offer: Offer) -> bool:
    return any(slots > 0 for slots in offer.room.values())


def _together(one: Given, other: Given) -> Given:
    """Return what each got in two claims; None when its line is not the one that counts any more."""
    return [None if a is None or b is None else [*a, *b] for a, b in zip(one, other, strict=True)]
