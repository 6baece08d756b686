"""Hints between nodes, over one connection of its own: NOTIFY and LISTEN of PostgreSQL, or a subject of NATS.

The store holds the truth, and everybody looks at it now and then; a hint only saves the wait. So this may lose
whatever it likes, but it must never hold up or break whoever announces, and never cost a lone node a commit:

- announcements wake the watches of this process at once; to the others they go from a task, several topics in
  one message, one message in `debounce` at most, and none at all while nobody else listens;
- a connection that was lost is made anew; listening comes before all watches are woken, so that whatever was
  announced in between is found by a look;
- a connection that is open at one end only is found by the count of listeners, a round trip every few seconds.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import structlog

from horae.queues.database import LocalQueue

log = structlog.get_logger()

DEBOUNCE = 0.02  # seconds between two messages, where each costs a commit
COUNT = 3.0  # seconds between two counts of the listeners
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between tries to come back
FAREWELL = 1.0  # seconds for the last message and the goodbye

MESSAGE = re.compile(r"([0-9a-f]{12}) ([a-z]{1,20}(?:,[a-z]{1,20}){0,20})")


class Wire(Protocol):
    """One connection that hears and says (stores.notices, queues.nats)."""

    async def listen(self, heard: Callable[[str], None], closed: Callable[[], None]) -> None: ...
    async def count_others(self) -> int: ...
    async def say(self, text: str) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...


class SharedQueue(LocalQueue):
    """Announcements to every process on the database, or the broker."""

    def __init__(self, connect: Callable[[], Awaitable[Wire]], *, debounce: float = DEBOUNCE) -> None:
        """What `connect` gives times out when nobody answers."""
        super().__init__()
        self.debounce = debounce
        self._connect = connect
        self.name = uuid.uuid4().hex[:12]
        self._outbox: set[str] = set()
        self._stir = asyncio.Event()  # there is something to do before the next count
        self._is_count_due = True
        self.others: int | None = None  # listeners beside us; None until they were counted
        self._sent_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self.sent = 0  # messages
        self.is_listening = asyncio.Event()
        self.own = LocalQueue()  # what was announced here, without what others say

    async def open(self) -> None:
        """Begin to listen; a server that is away is tried again in the background."""
        self._task = asyncio.create_task(self._stay())

    async def close(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()  # again and again: the library of NATS swallows one now and then
            await asyncio.wait([task], timeout=FAREWELL)

    def announce(self, topic: str) -> None:
        super().announce(topic)
        self.own.announce(topic)
        if self.others != 0:
            self._outbox.add(topic)
            self._stir.set()

    # ── the connection ──
    async def _stay(self) -> None:
        """Be connected, for ever."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._visit()
            except Exception as error:  # whatever it is: hints are never worth a process
                log.warning("hints.lost", error=str(error) or type(error).__name__, retry_seconds=pause)
            if self.is_listening.is_set():
                self.is_listening.clear()
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  all nodes lost it at once
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _visit(self) -> None:
        """One connection, from its first word to its end."""
        wire = await self._connect()
        try:
            await wire.listen(self._hear, self._stir.set)
            self.is_listening.set()
            self._wake_all()
            self._is_count_due = True
            self._outbox.add("nodes")
            while not wire.is_closed:
                await self._exchange(wire)
            raise ConnectionError("the server closed the connection")
        except asyncio.CancelledError:
            await self._part(wire)
            raise
        finally:
            wire.terminate()

    async def _exchange(self, wire: Wire) -> None:
        """Count when it is time, say what is to be said, wait for more."""
        self._stir.clear()
        if self._is_count_due:
            self._is_count_due = False
            self.others = await wire.count_others()
        if self._outbox and self.others:
            await asyncio.sleep(self._sent_at + self.debounce - time.monotonic())
            await self._send(wire)
        elif not self.others:
            self._outbox.clear()
        try:
            async with asyncio.timeout(COUNT):
                await self._stir.wait()
        except TimeoutError:
            self._is_count_due = True

    async def _send(self, wire: Wire) -> None:
        topics, self._outbox = self._outbox, set()
        try:
            await wire.say(f"{self.name} {','.join(sorted(topics))}")
        except BaseException:
            self._outbox |= topics
            raise
        self._sent_at = time.monotonic()
        self.sent += 1

    async def _part(self, wire: Wire) -> None:
        """Say the last words (what a stopping node announced) and goodbye, if the server hears them."""
        with suppress(Exception):
            async with asyncio.timeout(FAREWELL):
                if self._outbox and self.others:
                    await self._send(wire)
                await wire.close()

    # ── what others say ──
    def _hear(self, message: str) -> None:
        found = MESSAGE.fullmatch(message)
        if found is None or found[1] == self.name:
            return
        topics = found[2].split(",")
        for topic in topics:
            super().announce(topic)
        self.others = self.others or 1
        if "nodes" in topics:
            self._is_count_due = True
            self._stir.set()

    def _wake_all(self) -> None:
        for topic in list(self._watches):
            super().announce(topic)
