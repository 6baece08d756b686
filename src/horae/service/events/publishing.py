"""Events over a broker: the leader reads them from where it was, publishes them, and notes its place when the broker
has them. Whatever dies when, and however long the broker is away, all are published, those of a run in their order;
two leaders at once publish some twice, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from horae.core.events import BEGINNING, Cursor
from horae.errors import Conflict, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.events import Events
from horae.ports.transport import EventPublisher, Message, Queue
from horae.service.events.documents import DetailStore, Documents, Told

log = structlog.get_logger()

READER = "nats"
MOST_TOGETHER = 500  # events published in one go
FAREWELL_SECONDS = 2.0  # seconds for the last ones when the process stops
BATCH_GAP = 0.02  # seconds between two batches: publishing must not hold up what it is about
LOOK = 0.25  # seconds after which it looks for what other nodes did


class PublishingStore(Events, DetailStore, Protocol):
    """Events, and what they are about."""


class Publishing:
    def __init__(
        self, store: PublishingStore, publisher: EventPublisher, queue: Queue, clock: Clock, documents: Documents, *,
        is_leader: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._documents = documents
        self._is_leader = is_leader
        self._watch = queue.watch("events")
        self._place: Cursor | None = None  # None: to be looked up, because others may have led meanwhile

    async def step(self) -> None:
        """Publish a batch; wait for more when there are none."""
        if await self._publish():
            await self._clock.sleep(BATCH_GAP)
        else:
            await self._watch.wait(LOOK)

    async def _publish(self) -> bool:
        """Whether there were any."""
        if not self._is_leader():
            self._place = None
            return False
        if self._place is None:
            self._place = await self._begin()
        try:
            events, place = await self._store.read_events(self._place, MOST_TOGETHER)
        except Conflict as error:
            log.error("events.left_out", why=error.message)
            self._place = BEGINNING
            return True
        if events:
            await self._publisher.publish_events([_message(told) for told in await self._documents.describe(events)])
            await self._store.save_reader(READER, place)
            self._place = place
        return bool(events)

    async def _begin(self) -> Cursor:
        """Where whoever led before has stopped; who publishes for the first time begins now, and notes it."""
        place = await self._store.load_reader(READER)
        if place is None:
            place = await self._store.last_event()
            await self._store.save_reader(READER, place)
        return place

    async def drain(self) -> None:
        """Publish what is left, if the broker takes it soon; else whoever leads next does."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while await self._publish():
                    pass
        except (Unavailable, TimeoutError):
            log.info("events.later", why="the broker did not take the last events")


def _message(told: Told) -> Message:
    return Message(told.event.kind, told.event.id, told.document)
