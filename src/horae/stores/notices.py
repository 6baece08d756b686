"""The wire of hints between nodes: one PostgreSQL connection that listens and notifies. What is said, and when, is
the business of queues.shared."""

from __future__ import annotations

from collections.abc import Callable

from horae.stores import lanes
from horae.stores.sql import load_queries

LISTENER = "horae listener"  # application_name, by which listeners count each other
SETTINGS = {"application_name": LISTENER, "synchronous_commit": "off"}  # a hint is not worth waiting for the disk


class Notices:
    """Every notice on a channel reaches every connection that listens to it, its sender's too."""

    def __init__(self, connection: lanes.Connection, channel: str) -> None:
        self._connection = connection
        self._channel = channel
        self._queries = load_queries("postgres")

    @classmethod
    async def open(cls, url: str, *, timeout: float) -> Notices:
        """`timeout`: seconds after which a connection that does not answer counts as lost."""
        connection = await lanes.connect(url, timeout=timeout, settings=SETTINGS)
        try:
            channel = await connection.fetchval(load_queries("postgres")["channel"])
        except BaseException:
            connection.terminate()
            raise
        return cls(connection, channel)

    async def listen(self, heard: Callable[[str], None], closed: Callable[[], None]) -> None:
        """From now on, give every notice to `heard`, and tell when the connection is gone."""
        self._connection.add_termination_listener(lambda _: closed())
        await self._connection.add_listener(self._channel, lambda *notice: heard(str(notice[-1])))

    async def count_others(self) -> int:
        """How many listen beside us, in this database."""
        return int(await self._connection.fetchval(self._queries["count_listeners"], LISTENER))

    async def say(self, text: str) -> None:
        await self._connection.execute(self._queries["notify"], self._channel, text)

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def close(self) -> None:
        await self._connection.close()

    def terminate(self) -> None:
        self._connection.terminate()
