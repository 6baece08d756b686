"""The queue when the database is the queue: announcements within this process.

The store holds the truth; this only saves the wait for the next poll. Each topic has one waiter.
"""

from __future__ import annotations

import asyncio


class LocalQueue:
    """Announcements within one process: a topic is an event that waiters clear."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def announce(self, topic: str) -> None:
        self._event(topic).set()

    async def wait(self, topic: str, seconds: float) -> bool:
        event = self._event(topic)
        if not event.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await event.wait()
            except TimeoutError:
                return False
        event.clear()
        return True

    def _event(self, topic: str) -> asyncio.Event:
        event = self._events.get(topic)
        if event is None:
            event = self._events[topic] = asyncio.Event()
        return event
