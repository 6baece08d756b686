"""A reader of events that only the leader moves, and whose place the store keeps: whoever leads next goes on there.
What is done with a batch comes before its place is noted, so that whoever dies in between leaves nothing out; two who
lead at once do some of it twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from horae.core.events import BEGINNING, EVERYTHING, Cursor, Event, EventFilter
from horae.errors import Conflict
from horae.ports.store.events import Events

log = structlog.get_logger()

MOST_TOGETHER = 500  # events that are read in one go


class LeadersPlace:
    """How far a reader has come."""

    def __init__(
        self, store: Events, name: str, is_leader: Callable[[], bool], behind_gap: Callable[[], Awaitable[Cursor]],
        where: EventFilter = EVERYTHING,
    ) -> None:  # fmt: skip
        """`behind_gap` says where to go on if events were dropped before they were read."""
        self._store = store
        self._name = name
        self._is_leader = is_leader
        self._behind_gap = behind_gap
        self._where = where
        self._place: Cursor | None = None  # None: to be looked up, because others may have led meanwhile

    async def read(self) -> tuple[list[Event], Cursor]:
        """Return a batch, and the place behind it; none where others lead."""
        if not self._is_leader():
            self._place = None
            return [], BEGINNING
        if self._place is None:
            self._place = await self._begin()
        try:
            events, place = await self._store.read_events(self._place, MOST_TOGETHER, self._where)
        except Conflict as error:
            log.error("events.left_out", reader=self._name, why=error.message)
            self._place = await self._behind_gap()
            events, place = await self._store.read_events(self._place, MOST_TOGETHER, self._where)
        if not events:
            self._place = place  # what others read was passed by: to note that is not worth a write
        return events, place

    async def _begin(self) -> Cursor:
        """Where whoever led before has stopped; who reads for the first time begins now, and notes it."""
        place = await self._store.load_reader(self._name)
        if place is None:
            place = await self._store.last_event()
            await self.save(place)
        return place

    async def save(self, place: Cursor) -> None:
        """What is before this is done."""
        await self._store.save_reader(self._name, place)
        self._place = place
