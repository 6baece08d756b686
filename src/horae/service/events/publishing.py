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
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.store.events import Events
from horae.ports.transport import EventPublisher, Message, Queue
from horae.service.events.documents import DetailStore, Documents, Told
from horae.service.events.places import LeadersPlace

log = structlog.get_logger()

READER = "nats"
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
        self._publisher = publisher
        self._clock = clock
        self._documents = documents
        self._watch = queue.watch("events")
        self._place = LeadersPlace(store, READER, is_leader, _oldest)

    async def step(self) -> None:
        """Publish a batch; wait for more when there are none."""
        if await self._publish():
            await self._clock.sleep(BATCH_GAP)
        else:
            await self._watch.wait(LOOK)

    async def _publish(self) -> bool:
        """Whether there were any."""
        events, place = await self._place.read()
        if events:
            await self._publisher.publish_events([_message(told) for told in await self._documents.describe(events)])
            await self._place.save(place)
        return bool(events)

    async def drain(self) -> None:
        """Publish what is left, if the broker takes it soon; else whoever leads next does."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while await self._publish():
                    pass
        except (Unavailable, TimeoutError):
            log.info("events.later", why="the broker did not take the last events")


async def _oldest() -> Cursor:
    return BEGINNING


def _message(told: Told) -> Message:
    return Message(told.event.kind, told.event.id, told.document)
