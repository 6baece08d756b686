"""What is kept for how long: history for as many days as the settings say, idempotency keys for one.

Order matters. The outputs of a run go first, then its record: should the process die in between, the record is
still there, and the next round finds it and removes what is left. The other way round, files would stay for
ever that nothing points at. Removing is idempotent, so two leaders at once do no harm.

The leader removes what it can reach. What lies on other nodes each of them tidies away itself: whatever belongs to
runs older than the oldest that is kept, and the oldest beyond the size that is allowed. Outputs that all nodes share
are tidied by the leader alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from horae.core.model import SECOND, Moment
from horae.ports import Files, Store

log = structlog.get_logger()

DAY = 86_400 * SECOND
KEYS_KEPT = DAY  # a client that repeats a request later than this has made a new one
BATCH = 1000  # runs or keys dropped at once
REMOVALS = 16  # outputs removed at the same time


class Retention:
    def __init__(self, store: Store, files: Files, *, history_days: int, files_limit: int = 0) -> None:
        """`history_days` 0 keeps history for ever, `files_limit` 0 all output."""
        self._store = store
        self._files = files
        self._history_days = history_days
        self._files_limit = files_limit

    async def purge(self) -> bool:
        """Drop a batch of what is past its time; True when there may be more."""
        now = await self._store.now()
        keys = await self._store.purge_keys(now - KEYS_KEPT, BATCH)
        runs = await self._purge_history(now - self._history_days * DAY) if self._history_days else 0
        return max(keys, runs) == BATCH

    async def tidy(self, *, is_leader: bool) -> None:
        """Remove outputs of runs that are no longer kept, and those that are too much."""
        if self._files.is_shared and not is_leader:
            return
        if self._files_limit and (removed := await self._files.trim(self._files_limit)):
            log.info("outputs.trimmed", bytes=removed, limit=self._files_limit)
        first = await self._store.first_run() if self._history_days else None
        if first is not None:
            await self._files.remove_before(first)

    async def _purge_history(self, before: Moment) -> int:
        old = await self._store.load_outdated(before, BATCH)
        if not old.run_ids:
            return 0
        # By the names that are ours to give, not by those that agents reported.
        refs = [self._files.ref(*attempt) for attempt in old.outputs]
        for start in range(0, len(refs), REMOVALS):
            await self._remove(refs[start : start + REMOVALS])
        await self._store.purge(old.run_ids)
        return len(old.run_ids)

    async def _remove(self, refs: Sequence[str]) -> None:
        """All of them, or the first error that one met; a task group would wrap it up."""
        outcomes = await asyncio.gather(*map(self._files.remove, refs), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
