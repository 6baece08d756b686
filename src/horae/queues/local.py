"""The queue when the database is the queue: announcements within this process.

The store holds the truth; this only saves the wait for the next poll. Processes that share a database or a broker tell
each other through queues.shared, which builds on this.
"""

from __future__ import annotations

import asyncio
from weakref import WeakSet

EVENTS = "events"  # the topic of whoever wants to hear of everything


class LocalWatch:
    """An event that whoever waits for it clears."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    @property
    def is_due(self) -> bool:
        return self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        if not self._event.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class LocalQueue:
    """Announcements within one process."""

    def __init__(self) -> None:
        self._watches: dict[str, WeakSet[LocalWatch]] = {}

    async def open(self) -> None:
        """Nothing to do: everybody who waits is here."""

    async def close(self) -> None:
        """Nothing to do."""

    def announce(self, topic: str) -> None:
        """Whatever it is, something happened: those who wait for events wake with all others."""
        for name in {topic, EVENTS}:
            for watch in self._watches.get(name, ()):
                watch.wake()

    def watch(self, topic: str) -> LocalWatch:
        watch = LocalWatch()
        self._watches.setdefault(topic, WeakSet()).add(watch)
        return watch
