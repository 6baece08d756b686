"""That something happened, in a few words, for pages that show how things stand: at most one beat a second.

A page reads anew what it shows; it needs not each event, but which jobs were touched and in what way. A beat is made
once for all who watch. What it costs does not grow with what happens: beyond so many events it only says that there
were many, and the rest is passed over.

What must stay true: whoever watches is told of everything after it came, by name or as one of many; and whoever is slow
gets the beats that it missed as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from horae.core.events import Cursor, Event
from horae.errors import Conflict
from horae.ports.clock import Clock
from horae.ports.store.definitions import Definitions
from horae.ports.store.events import Events
from horae.ports.transport import Queue
from horae.service.events.documents import is_shown

BEAT = 1.0  # seconds between two
LOOK = 1.0  # seconds after which it looks for what other nodes did
TOGETHER = 500  # events read at once
READS = 5  # for one beat
MOST_JOBS = 200  # that a beat names


class PulseStore(Events, Definitions, Protocol):
    """Events, and the jobs that they are of."""


class Beat(NamedTuple):
    """What happened since the last one."""

    kinds: frozenset[str] = frozenset()
    jobs: frozenset[int] = frozenset()
    is_many: bool = False  # there was more than it names

    def __add__(self, other: Beat) -> Beat:  # type: ignore[override]
        jobs = self.jobs | other.jobs
        is_many = self.is_many or other.is_many or len(jobs) > MOST_JOBS
        return Beat(self.kinds | other.kinds, frozenset(sorted(jobs)[:MOST_JOBS]), is_many)


NOTHING = Beat()


class _Seat:
    """What waits for one who watches."""

    def __init__(self, org: int | None) -> None:
        self.org = org
        self._waiting = NOTHING
        self._stir = asyncio.Event()

    def put(self, beat: Beat) -> None:
        self._waiting = beat if self._waiting is NOTHING else self._waiting + beat
        self._stir.set()

    async def take(self) -> Beat:
        await self._stir.wait()
        self._stir.clear()
        taken, self._waiting = self._waiting, NOTHING
        return taken


class Pulse:
    def __init__(self, store: PulseStore, queue: Queue, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watch = queue.watch("events")
        self._seats: set[_Seat] = set()
        self._place: Cursor | None = None  # None while nobody watches
        self._wanted = asyncio.Event()

    async def begin(self) -> Cursor:
        """Return where to follow from."""
        return await self._store.last_event()

    async def follow(self, org: int | None, begin: Cursor) -> AsyncIterator[Beat]:
        """Yield beats of what comes after a place. None is whoever runs the server."""
        seat = _Seat(org)
        self._place = self._place or begin
        if self._place > begin:
            seat.put(Beat(is_many=True))  # what lies between was handed round already
        self._seats.add(seat)
        self._wanted.set()
        try:
            while True:
                yield await seat.take()
        finally:
            self._seats.discard(seat)
            if not self._seats:
                self._place = None

    async def step(self) -> None:
        """Hand round what is new; wait for more."""
        while not self._seats:
            self._wanted.clear()
            await self._wanted.wait()
        place = self._place
        if place is None:
            return
        events, after, is_many = await self._read(place)
        beats = await self._beats(events, is_many=is_many)
        if self._place != place:
            return  # all have left meanwhile, and others have come
        self._place = after
        for seat in self._seats:
            if (beat := beats.get(seat.org, NOTHING)) != NOTHING:
                seat.put(beat)
        if not events:
            await self._watch.wait(LOOK)
        else:
            await self._clock.sleep(BEAT)

    async def _read(self, place: Cursor) -> tuple[list[Event], Cursor, bool]:
        """Return events, where to go on, and whether some were passed over."""
        found: list[Event] = []
        try:
            for _ in range(READS):
                events, place = await self._store.read_events(place, TOGETHER)
                found += events
                if not events:
                    return found, place, False
        except Conflict:  # some were dropped before they were read
            pass
        return found, await self._store.last_event(), True

    async def _beats(self, events: list[Event], *, is_many: bool) -> dict[int | None, Beat]:
        """Return what each organisation is told."""
        everything = _beat(events, is_many=is_many)
        orgs = {seat.org for seat in self._seats}
        if orgs <= {None} or everything == NOTHING:
            return dict.fromkeys(orgs, everything)
        org_of = {job.id: job.org for job in await self._store.load_jobs(sorted(everything.jobs))}
        return {
            org: _beat(
                [one for one in events if is_shown(one, org_of.get(one.job_id or 0), org)], is_many=everything.is_many
            )
            for org in orgs
        }


def _beat(events: list[Event], *, is_many: bool) -> Beat:
    kinds, jobs = {event.kind for event in events}, {event.job_id for event in events if event.job_id is not None}
    return NOTHING + Beat(frozenset(kinds), frozenset(jobs), is_many)
