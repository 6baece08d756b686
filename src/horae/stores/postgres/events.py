"""Events on PostgreSQL, where transactions are open side by side."""

from __future__ import annotations

from horae.stores.events import EventPart
from horae.stores.postgres.database import PostgresDatabase


class PostgresEvents(PostgresDatabase, EventPart):
    """What happened."""

    async def events_delay(self) -> float:
        return float((await self._get("events_delay", self._clock()))[0][0])
