"""What waits too long, and shares that nobody needs to know (core.policy.order)."""

from __future__ import annotations

from horae.core.model import Moment
from horae.core.policy.order import HIGHEST, STRIDE
from horae.stores.database import Database


class SharePart(Database):
    """The upkeep of lines."""

    async def lift_starved(self, before: Moment, limit: int) -> int:
        lifted = 0
        for kind, queue, priority in await self._get("lines_below", HIGHEST):
            found = await self._get("starved", kind, queue, priority, before, limit)
            if found:
                await self._put("add_line", kind, queue, priority + 1)
                ids = self._list([row[0] for row in found])
                lifted += len(await self._put("lift", ids, await self.now()))
        return lifted

    async def drop_idle_shares(self, limit: int) -> int:
        return len(await self._put("drop_idle_shares", STRIDE, limit))
