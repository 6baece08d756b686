"""What firing reads."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.runs.orders import LastRun
from horae.stores.database import Database


class MomentPart(Database):
    """Due moments."""

    async def load_last_runs(self, trigger_ids: Sequence[int]) -> list[LastRun]:
        rows = await self._get("load_last_runs", self._list(trigger_ids))
        return [LastRun(row[0], bool(row[1]), row[2]) for row in rows]
