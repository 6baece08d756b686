"""What is kept for how long: history for as many days as the settings say, idempotency keys for one day.

Order matters. The outputs of a run go first, then its record: should the process die in between, the record is
still there, and the next round finds it and removes what is left. The other way round, files would stay for
ever that nothing points at. Removing is idempotent, so two leaders at once do no harm.

History is walked by the ids of runs, oldest first, past those that are kept: a run that waited or took long has a low
id and a late end, and must not keep the others. A walk ends at a batch of which all is kept, and the next one begins
anew.

The leader removes what it can reach. What lies on other nodes each of them tidies away itself: whatever belongs to
ranges of runs of which none is kept, and the oldest beyond the size that is allowed. Outputs that all nodes share
are tidied by the leader alone.

Events go after their own time, whoever has read them.

What else grows goes thirty days after it was of use: tombstones of jobs without any run, triggers that are enabled and
have no moment left, and names of nodes that are gone. Demands that no run has go after a day.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from horae.core.model import SECOND, Moment
from horae.errors import Unavailable
from horae.ports.outputs import OutputArchive
from horae.ports.store.events import Events
from horae.ports.store.history import History
from horae.ports.store.limits import Limits
from horae.ports.store.moments import StoreClock
from horae.service.metrics import Metrics

log = structlog.get_logger()

DAY = 86_400 * SECOND
KEYS_KEPT = DAY  # a client that repeats a request later than this has made a new one
REMAINS_KEPT = 30 * DAY  # of jobs, triggers and nodes that are over
DEMANDS_KEPT = DAY  # of which no run is left, since somebody asked for them last
TEND = 3_600 * SECOND  # between looks at the whole of history
DROPPED_TOGETHER = 5000  # runs or keys dropped at once


class RetentionStore(History, Events, Limits, StoreClock, Protocol):
    """The past, events, demands, and what time it is."""


class Retention:
    def __init__(
        self, store: RetentionStore, files: OutputArchive, *, history_days: int, files_limit: int = 0,
        events_days: int = 0, metrics: Metrics | None = None,
    ) -> None:  # fmt: skip
        """`history_days` 0 keeps history for ever, `files_limit` 0 all output, `events_days` 0 all events."""
        self._events_days = events_days
        self._metrics = metrics or Metrics()
        self._store = store
        self._files = files
        self._history_days = history_days
        self._files_limit = files_limit
        self._walked = 0  # the run up to which history was looked at
        self._tended_at: Moment | None = None
        self._is_in_parts = False

    async def purge(self) -> bool:
        """Drop a batch of what is past its time; True when there may be more."""
        now = await self._store.now()
        if self._tended_at is None or now - self._tended_at >= TEND:
            await self._tend(now)
        keys = await self._store.purge_keys(now - KEYS_KEPT, DROPPED_TOGETHER)
        # Where parts are dropped as a whole, that has its day first.
        days = self._history_days + (1 if self._is_in_parts else 0)
        has_more = await self._purge_history(now - days * DAY) if self._history_days else False
        events = await self._purge_events(now)
        return has_more or DROPPED_TOGETHER in (keys, events)

    async def _purge_events(self, now: Moment) -> int:
        """Of a batch of events, also how long those wait that nobody can read yet."""
        self._metrics.events_delay = await self._store.events_delay()
        if not self._events_days:
            return 0
        return await self._store.drop_events(now - self._events_days * DAY, DROPPED_TOGETHER)

    async def _tend(self, now: Moment) -> None:
        """Let history have room, and drop the parts of it that are past their time, their outputs first."""
        self._tended_at = now
        try:
            self._is_in_parts = await self._store.tend_history()
        except Unavailable as error:
            log.warning("history.untended", why=str(error))
        if not self._is_in_parts or not self._history_days:
            return
        for part in await self._store.load_outdated_parts(now - self._history_days * DAY):
            ranges, width = await self._files.stored_ranges()
            for first_id in ranges:
                if part.first <= first_id and first_id + width <= part.end:
                    await self._files.remove_range(first_id)
            await self._store.drop_part(part)

    async def tidy(self, *, is_leader: bool) -> None:
        """Remove outputs of runs that are no longer kept, and those that are too much."""
        if is_leader:
            await self._purge_remains()
        if self._files.is_shared and not is_leader:
            return
        if self._files_limit and (removed := await self._files.trim(self._files_limit)):
            log.info("outputs.trimmed", bytes=removed, limit=self._files_limit)
        if self._history_days:
            await self._remove_orphans()

    async def _purge_remains(self) -> None:
        before = await self._store.now() - REMAINS_KEPT
        while (gone := await self._store.purge_remains(before, DROPPED_TOGETHER)) and any(gone):
            log.info("remains.purged", jobs=gone.jobs, triggers=gone.triggers, nodes=gone.nodes)
            if gone.jobs < DROPPED_TOGETHER:
                break
        while (
            await self._store.drop_demands(await self._store.now() - DEMANDS_KEPT, DROPPED_TOGETHER) >= DROPPED_TOGETHER
        ):
            pass  # others have their turn in between

    async def _remove_orphans(self) -> None:
        ranges, width = await self._files.stored_ranges()
        for start in range(0, len(ranges), DROPPED_TOGETHER):
            for first_id in await self._store.without_runs(ranges[start : start + DROPPED_TOGETHER], width):
                await self._files.remove_range(first_id)

    async def _purge_history(self, before: Moment) -> bool:
        """Drop what is outdated in the next batch of the walk; True when the walk goes on."""
        old = await self._store.load_outdated(before, self._walked, DROPPED_TOGETHER)
        if old.run_ids:
            # By the names that are ours to give, not by those that agents reported.
            await self._files.remove_all([self._files.ref(*attempt) for attempt in old.outputs])
            await self._store.purge(old.run_ids)
        self._walked = old.last if old.last is not None and old.run_ids else 0
        return bool(self._walked)
