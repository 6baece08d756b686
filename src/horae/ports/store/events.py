"""What happened, in its order."""

from __future__ import annotations

from typing import Protocol

from horae.core.events import EVERYTHING, Cursor, Event, EventFilter
from horae.core.model import Moment


class Events(Protocol):
    """Written in the transactions that they tell of, and read by cursor: every event once, those of one run in the
    order in which they happened. An event is read as soon as every transaction has ended that was open when it was
    written."""

    async def read_events(
        self, after: Cursor, limit: int, where: EventFilter = EVERYTHING
    ) -> tuple[list[Event], Cursor]:
        """Up to `limit` events, and where to go on; fewer do not mean that there are no more, none do. Gone where some
        of those that come after `after` were dropped already."""

    async def last_event(self) -> Cursor:
        """The place after all that can be read now."""

    async def find_events(self, since: Moment) -> Cursor:
        """The place before the first event of that moment or later."""

    async def drop_events(self, before: Moment, limit: int) -> int:
        """Drop up to `limit` batches that are older; return how many it were."""

    async def events_delay(self) -> float:
        """For how many seconds the oldest event has waited that cannot be read yet, because a transaction is open."""

    async def load_reader(self, name: str) -> Cursor | None:
        """How far a reader has come that keeps its place here; None: it has never read."""

    async def save_reader(self, name: str, place: Cursor) -> None:
        """It has come so far."""
