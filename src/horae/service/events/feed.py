"""Events for those who ask and those who follow.

One loop in a process reads what is new, while somebody follows, and hands it to all: however many they are, each event
is read and described once. The loop is woken by what this process does, and looks by itself now and then for what
others did. Nobody who follows, no statements.

What must stay true:
- Whoever follows gets every event after its place, once, in their order. It takes its seat first, then reads what lies
  between its place and the loop's by itself, and then what was put on its seat.
- A slow follower costs nothing but its seat, which is bounded: when that is full it is cleared, and the follower reads
  by itself from where it was, at its own pace.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

import structlog

from horae.core.events import BEGINNING, EVERYTHING, Cursor, EventFilter
from horae.core.model import Json, Moment
from horae.errors import Invalid
from horae.ports.clock import Clock
from horae.ports.store.events import Events
from horae.ports.transport import Queue
from horae.service.events.documents import DetailStore, Documents, Told

log = structlog.get_logger()

TOGETHER = 500  # events read at once
SEAT = 5000  # events that wait for a follower before it has to read by itself
GAP = 0.02  # seconds between two looks: what was just begun ends meanwhile, and a storm is one look
LOOK = 1.0  # seconds after which the loop looks for what other nodes did
MOST_READS = 20  # in one answer, where nothing was found that whoever asks may see

Place = tuple[Cursor, Json | None]  # with the event before it


class FeedStore(Events, DetailStore, Protocol):
    """Events, and what they are about."""


class EventPage(NamedTuple):
    items: list[Json]
    cursor: Cursor  # to go on from


class Follower(NamedTuple):
    """Who wants what of the events."""

    where: EventFilter = EVERYTHING
    org: int | None = None  # None: whoever runs the server


class _Seat:
    """What waits for one follower."""

    def __init__(self, begin: Cursor) -> None:
        self.begin = begin  # what is put here comes after this
        self._waiting: list[Told] = []
        self._stir = asyncio.Event()
        self.is_lost = False  # it was full

    def put(self, told: list[Told]) -> None:
        if self.is_lost:
            return
        self._waiting += told
        if len(self._waiting) > SEAT:
            self.is_lost, self._waiting = True, []
        self._stir.set()

    async def take(self) -> list[Told]:
        await self._stir.wait()
        self._stir.clear()
        taken, self._waiting = self._waiting, []
        return taken


class EventFeed:
    def __init__(self, store: FeedStore, queue: Queue, clock: Clock, documents: Documents) -> None:
        self._store = store
        self._clock = clock
        self.documents = documents
        self._watch = queue.watch("events")
        self._seats: set[_Seat] = set()
        self._place: Cursor | None = None  # of the loop; None while nobody follows
        self._wanted = asyncio.Event()

    # ── asking ──
    async def page(
        self, follower: Follower, after: Cursor | None, limit: int, since: Moment | None = None
    ) -> EventPage:
        """Return up to `limit` events after a cursor, or since a moment, or since the oldest that is kept; and where to
        go on. None at all: there are no more just now."""
        place = await self._begin(follower.where, after, since)
        found: list[Json] = []
        for _ in range(MOST_READS):
            events, place = await self._store.read_events(place, limit - len(found), follower.where)
            if not events:
                break
            told = await self.documents.describe(events)
            found += [one.document for one in told if one.is_for(follower.org)]
            if len(found) == limit:
                break
        if not found and place > await self._store.last_event():
            raise _beyond(place)
        return EventPage(found, place)

    async def _begin(self, where: EventFilter, after: Cursor | None, since: Moment | None) -> Cursor:
        if after is not None:
            return after
        if since is None and where.run_id is not None and (run := await self._store.get_run(where.run_id)):
            since = run.created_at  # nothing happened to it before
        return BEGINNING if since is None else await self._store.find_events(since)

    # ── following ──
    async def begin(self, after: Cursor | None) -> Cursor:
        """Return where to follow from: after this cursor, if it is good, else from now on."""
        last = await self._store.last_event()
        if after is None:
            return last
        if after > last:
            raise _beyond(after)
        await self._store.read_events(after, 1)  # what was dropped is refused
        return after

    async def follow(self, follower: Follower, place: Cursor) -> AsyncIterator[Place]:
        """Yield events as they come, each with the place after it; without an event, the place alone, when much was
        passed over that this follower does not want."""
        while True:
            seat = await self._sit()
            try:
                async for told in self._missed(place, seat, follower):
                    place = told[0]
                    yield told
                while not seat.is_lost:
                    for told in _wanted(await seat.take(), place, follower):
                        place = told[0]
                        yield told
            finally:
                self._leave(seat)

    async def _missed(self, place: Cursor, seat: _Seat, follower: Follower) -> AsyncIterator[Place]:
        """Read up to where the seat begins."""
        while place < seat.begin and not seat.is_lost:
            events, place = await self._store.read_events(place, TOGETHER)
            told = [one for one in await self.documents.describe(events) if one.event.cursor <= seat.begin]
            for each in _wanted(told, BEGINNING, follower):
                yield each
            if not events:
                return

    async def _sit(self) -> _Seat:
        if self._place is None:
            place = await self._store.last_event()
            self._place = self._place or place  # another may have been faster
        seat = _Seat(self._place)
        self._seats.add(seat)
        self._wanted.set()
        return seat

    def _leave(self, seat: _Seat) -> None:
        self._seats.discard(seat)
        if not self._seats:
            self._place = None

    async def step(self) -> None:
        """Read what is new and hand it round; wait for more."""
        while not self._seats:
            self._wanted.clear()
            await self._wanted.wait()
        place = self._place
        if place is None:
            return
        events, after = await self._store.read_events(place, TOGETHER)
        told = await self.documents.describe(events) if events else []
        if self._place != place:
            return  # all have left meanwhile, and others have come
        self._place = after
        if told:
            for seat in self._seats:
                seat.put(told)
        else:
            await self._watch.wait(LOOK)
        await self._clock.sleep(GAP)


def _beyond(place: Cursor) -> Invalid:
    return Invalid(
        f"the cursor {place} lies after all that has happened",
        code="E_RANGE",
        path="after",
        hint="it is of another installation, or this one was restored from before; begin anew without it",
    )


def _wanted(told: list[Told], place: Cursor, follower: Follower) -> list[Place]:
    """Of these, what comes after a place and this follower wants and may see; at the end the place of the last one, if
    it is not among them."""
    new = [one for one in told if one.event.cursor > place]
    found: list[Place] = [
        (one.event.cursor, one.document) for one in new if follower.where.takes(one.event) and one.is_for(follower.org)
    ]
    if new and (not found or found[-1][0] != new[-1].event.cursor):
        found.append((new[-1].event.cursor, None))
    return found
