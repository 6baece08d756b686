"""Runs that wait already are ended when the owner of their job may not run it any more.

A job runs with the rights of its owner. Whoever makes a run looks at these (service.policy.owners); this is for what
was made before they changed, and has not begun. What runs is left alone.

Nobody who makes, claims or ends runs pays for it: the leader asks now and then who among the owners of jobs has no
role that is enough, which are few, and looks at what waits of those alone.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from horae.core.model import Job
from horae.core.rights import Granted, may_run
from horae.core.roles import PERMISSIONS, Permission, Role
from horae.ports.clock import Clock
from horae.ports.store.definitions import Definitions
from horae.ports.store.grants import Grants, Owners
from horae.ports.store.runs import WaitingRuns
from horae.ports.transport import Queue

REST = 5.0  # seconds between two looks,
REST_SHARE = 20  # and not less than so many times what the last one took: with very many owners, it is asked less often
JOBS_TOGETHER, RUNS_TOGETHER = 200, 500
ENOUGH = sorted(role for role in Role if Permission.RUN in PERMISSIONS[role])

log = structlog.get_logger(__name__)


class BarringStore(Owners, Grants, Definitions, WaitingRuns, Protocol):
    """Owners, their jobs, and what waits of these."""


class Barring:
    def __init__(self, store: BarringStore, queue: Queue, clock: Clock) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._next_at = float("-inf")

    async def tend(self) -> None:
        """End what there is to end, unless that was looked at a moment ago."""
        began = self._clock.elapsed()
        if began < self._next_at:
            return
        await self.end()
        now = self._clock.elapsed()
        self._next_at = now + max(REST, REST_SHARE * (now - began))

    async def end(self) -> int:
        """End waiting runs of owners that may not run them; return how many."""
        count = sum([await self._end_of(*key) for key in await self._store.list_short_owners(ENOUGH, Permission.RUN)])
        if count:
            self._queue.announce("endings")
            log.info("runs.barred", runs=count)
        return count

    async def _end_of(self, org: int, owner: str) -> int:
        after, count = 0, 0
        while ids := await self._store.load_waiting_jobs(org, owner, after, JOBS_TOGETHER):
            after = ids[-1]
            for job_id in await self._barred(org, owner, await self._store.load_jobs(ids)):
                count += await self._end_job(job_id)
        return count

    async def _barred(self, org: int, owner: str, jobs: list[Job]) -> list[int]:
        """Return those that their owner may not run, by what is known now: its rights may be back meanwhile."""
        users = await self._store.load_owners([owner])
        granted = Granted(await self._store.load_grants(org, owner))
        return [job.id for job in jobs for user in users if not may_run(user, granted, org, job.id, job.policy)]

    async def _end_job(self, job_id: int) -> int:
        count = ended = await self._store.end_barred(job_id, RUNS_TOGETHER)
        while ended == RUNS_TOGETHER:
            ended = await self._store.end_barred(job_id, RUNS_TOGETHER)
            count += ended
        return count
