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
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import structlog

from horae.ports.transport import OWN_TOPICS
from horae.queues.local import LocalQueue
from horae.wire.reconnect import Reconnect, end_task

log = structlog.get_logger()

DEBOUNCE = 0.02  # seconds between two messages, where each costs a commit
COUNT_GAP = 3.0  # seconds between two counts of the listeners
FAREWELL_SECONDS = 1.0  # seconds for the last message and the goodbye

MESSAGE = re.compile(r"([0-9a-f]{12}) ([a-z]{1,20}(?:,[a-z]{1,20}){0,20})")


class Wire(Protocol):
    """One connection that publishes and listens (stores.postgres.notices, queues.nats)."""

    async def listen(self, on_message: Callable[[str], None], on_close: Callable[[], None]) -> None: ...
    async def count_others(self) -> int: ...
    async def publish(self, text: str) -> None: ...
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
        self._reconnect = Reconnect(self._try_connection)
        self._task: asyncio.Task[None] | None = None
        self.sent = 0  # messages
        self.is_listening = asyncio.Event()
        self.own = LocalQueue()  # what was announced here, without what others say

    async def open(self) -> None:
        """Begin to listen; a server that is away is tried again in the background."""
        self._task = asyncio.create_task(self._reconnect.run())

    async def close(self) -> None:
        task, self._task = self._task, None
        await end_task(task)

    def announce(self, topic: str) -> None:
        super().announce(topic)
        self.own.announce(topic)
        if self.others != 0 and topic not in OWN_TOPICS:
            self._outbox.add(topic)
            self._stir.set()

    # ── the connection ──
    async def _try_connection(self) -> bool:
        try:
            await self._hold_connection()
        except Exception as error:  # whatever it is: hints are never worth a process
            error_text, seconds = str(error) or type(error).__name__, self._reconnect.pause
            log.warning("hints.lost", error=error_text, retry_seconds=seconds)
        was_listening = self.is_listening.is_set()
        self.is_listening.clear()
        return was_listening

    async def _hold_connection(self) -> None:
        """One connection, from its first word to its end."""
        wire = await self._connect()
        try:
            await wire.listen(self._read_message, self._stir.set)
            self.is_listening.set()
            self._wake_all()
            self._is_count_due = True
            self._outbox.add("nodes")
            while not wire.is_closed:
                await self._exchange(wire)
            raise ConnectionError("the server closed the connection")
        except asyncio.CancelledError:
            await self._say_goodbye(wire)
            raise
        finally:
            wire.terminate()

    async def _exchange(self, wire: Wire) -> None:
        """Count when it is time, publish what was announced, wait for more."""
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
            async with asyncio.timeout(COUNT_GAP):
                await self._stir.wait()
        except TimeoutError:
            self._is_count_due = True

    async def _send(self, wire: Wire) -> None:
        topics, self._outbox = self._outbox, set()
        try:
            await wire.publish(f"{self.name} {','.join(sorted(topics))}")
        except BaseException:
            self._outbox |= topics
            raise
        self._sent_at = time.monotonic()
        self.sent += 1

    async def _say_goodbye(self, wire: Wire) -> None:
        """Say the last words (what a stopping node announced) and goodbye, if the server hears them."""
        with suppress(Exception):
            async with asyncio.timeout(FAREWELL_SECONDS):
                if self._outbox and self.others:
                    await self._send(wire)
                await wire.close()

    # ── what others say ──
    def _read_message(self, message: str) -> None:
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
