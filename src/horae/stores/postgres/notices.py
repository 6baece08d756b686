"""The wire of hints between nodes: one PostgreSQL connection that listens and notifies, or, where a pooler lets nobody
listen, looks at a table a few times a second. What is published, and when, is the business of queues.shared.

Both kinds reach each other: whoever publishes notifies those that listen, and counts it in the table for those that
look, if there are any. All this is here and not in `queues`, because it needs the store's connections (lanes) and
queries, and adapters are strangers to each other.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from horae.stores.postgres import lanes
from horae.stores.queries import load_queries

LISTENER = "horae listener"  # application_name, by which listeners count each other
SETTINGS = {"application_name": LISTENER, "synchronous_commit": "off"}  # a hint is not worth waiting for the disk
POLL_GAP = 0.25  # seconds between two looks at the table


class Notices:
    """Every notice on a channel reaches every connection that listens to it, its sender's too."""

    def __init__(self, connection: lanes.Connection, channel: str) -> None:
        self._connection = connection
        self._channel = channel
        self._queries = load_queries("postgres")
        self._name = uuid.uuid4().hex[:12]  # in the table
        self._listeners = self._pollers = 0  # beside us, when they were last counted

    @classmethod
    async def open(cls, url: str, *, timeout: float) -> Notices:
        """`timeout`: seconds after which a connection that does not answer counts as lost."""
        connection = await lanes.connect(url, timeout=timeout, settings=SETTINGS)
        try:
            channel = await connection.fetchval(load_queries("postgres")["channel"])
        except BaseException:
            connection.terminate()
            raise
        return (PolledNotices if lanes.is_pooled(connection) else cls)(connection, channel)

    async def listen(self, on_message: Callable[[str], None], on_close: Callable[[], None]) -> None:
        """From now on, give every notice to `on_message`, and call `on_close` when the connection is gone."""
        self._connection.add_termination_listener(lambda _: on_close())
        await self._connection.add_listener(self._channel, lambda *notice: on_message(str(notice[-1])))

    async def count_others(self) -> int:
        """Return how many listen or look beside us, in this database."""
        row = await self._connection.fetchrow(self._queries["count_others"], LISTENER, self._name)
        assert row is not None
        self._listeners, self._pollers = row
        return self._listeners + self._pollers

    async def publish(self, text: str) -> None:
        """`text` ends with the topics, separated by commas."""
        if self._pollers:
            topics = sorted(text.rpartition(" ")[2].split(","))
            await self._connection.execute(self._queries["tell_pollers"], self._name, topics)
        if self._listeners or not self._pollers:
            await self._connection.execute(self._queries["notify"], self._channel, text)

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def close(self) -> None:
        await self._connection.close()

    def terminate(self) -> None:
        self._connection.terminate()


class PolledNotices(Notices):
    """Behind a pooler. Nothing is looked at while nobody else is there."""

    _task: asyncio.Task[None] | None = None

    def __init__(self, connection: lanes.Connection, channel: str) -> None:
        super().__init__(connection, channel)
        self._turn = asyncio.Lock()  # looks, counts and notices share the connection
        self._counts: dict[tuple[str, str], int] = {}  # what was last seen of the others

    async def listen(self, on_message: Callable[[str], None], on_close: Callable[[], None]) -> None:
        self._connection.add_termination_listener(lambda _: on_close())
        await self._connection.execute(self._queries["drop_hints"])
        await self._look()
        self._task = asyncio.create_task(self._poll(on_message))

    async def count_others(self) -> int:
        async with self._turn:
            await self._connection.execute(self._queries["tell_pollers"], self._name, [""])  # this one looks
            return await super().count_others()

    async def publish(self, text: str) -> None:
        async with self._turn:
            await super().publish(text)

    async def _poll(self, on_message: Callable[[str], None]) -> None:
        try:
            while True:
                await asyncio.sleep(POLL_GAP)
                if self._listeners or self._pollers:
                    async with self._turn:
                        news = await self._look()
                    for teller, topics in news.items():
                        on_message(f"{teller} {','.join(topics)}")
        except (*lanes.LOST, asyncpg.PostgresError):
            self._connection.terminate()  # which its owner is told

    async def _look(self) -> dict[str, list[str]]:
        """Return what others have announced since the last look. A count that is lower is news too: the table was
        emptied."""
        rows = await self._connection.fetch(self._queries["load_hints"], self._name)
        counts = {(row[0], row[1]): row[2] for row in rows}
        news: dict[str, list[str]] = defaultdict(list)
        for (teller, topic), count in counts.items():
            if self._counts.get((teller, topic)) != count:
                news[teller].append(topic)
        self._counts = counts
        return news

    async def close(self) -> None:
        async with self._turn:  # a look that is broken off takes its connection with it
            await self._end_task()
            with suppress(*lanes.LOST):
                await self._connection.execute("DELETE FROM hints WHERE teller = $1", self._name)
        await super().close()

    async def _end_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def terminate(self) -> None:
        if self._task is not None:
            self._task.cancel()
        super().terminate()
