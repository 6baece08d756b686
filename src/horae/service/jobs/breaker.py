"""Pauses jobs whose runs keep failing.

Looked at right after the result that may have made it so is written, and only for jobs that want it: a run that
succeeds costs nothing. The look is at history, and the pause a compare-and-set on the job's version, so of many who
look one pauses it. A process that dies between the two leaves it to the next failure, which finds the same history and
one more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import structlog

from horae.core.model import Job, Moment
from horae.core.policy import breaker
from horae.errors import Error
from horae.ports.store.queues import PolicyCounts
from horae.ports.transport import Queue
from horae.service.jobs.changes import Changes, ChangeStore
from horae.service.jobs.due import DueMoments
from horae.service.policy.placing import Placing, PlacingStore
from horae.service.secrets.sealing import Sealing

log = structlog.get_logger(__name__)


class BreakerStore(ChangeStore, PolicyCounts, PlacingStore, Protocol):
    """Jobs, and how their runs ended."""


class Breaker:
    def __init__(
        self, store: BreakerStore, queue: Queue, sealing: Sealing, *,
        foreign_kinds: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`foreign_kinds`: as Placing has them."""
        self._store = store
        placing = Placing(store, queue, foreign_kinds)
        self._changes = Changes(store, queue, DueMoments(store, queue, placing), sealing)

    async def look(self, job_ids: Collection[int]) -> None:
        """Pause those whose runs have failed too often in a row. Whoever wrote a result does not fail by this."""
        try:
            for job in await self._store.load_jobs(sorted(job_ids)):
                await self._look_at(job)
        except Error as error:
            log.warning("breaker.left", jobs=sorted(job_ids), error=error.message)

    async def _look_at(self, seen: Job) -> None:
        most = seen.policy.pause_after_failures
        if most is None or seen.paused or seen.deleted_at is not None:
            return
        if await self._store.count_failures(seen.id, seen.updated_at, most) < most:
            return

        is_ours = False

        def change(job: Job, _: Moment) -> Job:
            nonlocal is_ours
            is_ours = job.version == seen.version  # else somebody changed it, and the row begins anew
            return breaker.trip(job, most) if is_ours else job

        after = await self._changes.change(seen.id, change)
        if is_ours:
            log.warning("job.paused", job_id=after.id, because=breaker.paused_because(after))
