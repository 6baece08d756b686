"""The start-up rule of a source document: whatever is overdue by its interval is enqueued when Horae starts, once.

A leader does it, once in the life of its process. What is owed is decided in core; here its moment is moved to now by a
compare-and-set on what was seen, and from then on it is due like any other: whoever dies, a scheduler fires it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from horae.core.model import Job, JobFilter, Moment, Trigger
from horae.core.runs.overdue import owed
from horae.core.work.syncs import SYNC
from horae.errors import Conflict, NotFound
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import StoreClock
from horae.ports.store.runs import Runs
from horae.service.jobs.changes import Changes

LOOKED_AT_TOGETHER = 200  # jobs

log = structlog.get_logger(__name__)


class OverdueStore(Definitions, Runs, StoreClock, Protocol):
    """Jobs, how they stand, and the clock that judges dueness."""


class Overdue:
    def __init__(self, store: OverdueStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes
        self._started_at: Moment | None = None
        self._is_done = False

    async def begin(self) -> None:
        """Note when this process started: what is made from then on is not made again."""
        if self._started_at is None:
            self._started_at = await self._store.now()

    async def enqueue(self) -> int:
        """Make due what is owed; return how many. The second time there is nothing to do."""
        await self.begin()
        if self._is_done:
            return 0
        org, count = await self._store.next_org(0), 0
        while org is not None:
            count += await self._enqueue_of(org)
            org = await self._store.next_org(org)
        self._is_done = True
        if count:
            log.info("overdue.enqueued", jobs=count)
        return count

    async def _enqueue_of(self, org: int) -> int:
        cursor, count = None, 0
        while True:
            page = await self._store.list_jobs(JobFilter(org=org, kind=SYNC), cursor, LOOKED_AT_TOGETHER)
            count += await self._hasten([job for job in page.items if job.policy.synced_at is not None])
            cursor = page.cursor
            if cursor is None:
                return count

    async def _hasten(self, jobs: Sequence[Job]) -> int:
        ids = [job.id for job in jobs]
        if not ids:
            return 0
        standing, ended = await self._store.load_standing(ids), await self._store.load_successes(ids)
        now, started_at = await self._store.now(), self._started_at or 0
        late = [(job, owed(job, standing[job.id], ended.get(job.id), started_at, now)) for job in jobs]
        return sum([await self._make_due(job, trigger) for job, trigger in late if trigger is not None])

    async def _make_due(self, seen: Job, trigger: Trigger) -> bool:
        """Unless somebody was faster."""

        def change(job: Job, now: Moment) -> Job:
            if job.version != seen.version or job.triggers != seen.triggers:
                return job
            return replace(
                job, triggers=tuple(replace(t, next_at=now) if t.id == trigger.id else t for t in job.triggers)
            )

        try:
            return (await self._changes.change(seen.id, change)).version != seen.version
        except (Conflict, NotFound):
            return False
