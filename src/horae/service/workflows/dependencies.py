"""What is done when a run ends after which others come, or when one arrives that comes after others.

    a run ended ──► jobs that come after its job ──► without triggers: a run for the same moment is made
                                                └──► their runs that wait are judged anew
    a run arrived that waits ───────────────────────► it is judged
    a job was changed or deleted ───────────────────► runs that wait for it, and its own, are judged anew

The store judges in the transaction in which it acts (ports.store.dependencies). What is decided here is only who might
be concerned, from what was read before: whoever comes to be concerned later leaves a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from horae.core.model import SECOND, Job, Moment, State
from horae.core.policy.demands import own_data
from horae.core.policy.dependencies import makers
from horae.core.policy.queues import user_of
from horae.core.runs.endings import ARRIVED, JOB, RUN, Ending
from horae.core.runs.following import Birth, Follow, Followed
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import NewRun, Order
from horae.errors import Conflict
from horae.ports.store.definitions import Definitions
from horae.ports.store.dependencies import Dependencies as DependencyPort
from horae.ports.transport import Queue
from horae.service.policy.placing import Candidate, Placing

ROWS = 200  # that are acted on in one transaction
TRIES = 8  # of rows whose followers are being changed


class DependencyStore(Definitions, DependencyPort, Protocol):
    """Jobs, and who comes after whom."""


class Dependencies:
    def __init__(self, store: DependencyStore, queue: Queue, placing: Placing) -> None:
        self._store = store
        self._queue = queue
        self._placing = placing

    async def act(self, rows: Sequence[Ending]) -> None:
        """Act on rows of the outbox that have no parent."""
        for start in range(0, len(rows), ROWS):
            self._tell(await self._follow(rows[start : start + ROWS]))

    async def _follow(self, rows: Sequence[Ending]) -> Followed:
        for _ in range(TRIES):
            done = await self._store.follow(await self._concerned(rows))
            if not done.stale:
                return done
        raise Conflict("jobs that come after others are being changed all the time; their turn comes again")

    async def _concerned(self, rows: Sequence[Ending]) -> Follow:
        """Return what the rows ask for, by what is known now."""
        ids = sorted({row.job_id for row in rows if row.job_id is not None and row.kind != ARRIVED})
        jobs = await self._store.load_jobs(ids) if ids else []
        followers = await self._followers_of(jobs)
        births = await self._births(rows, followers)
        waiting = {job.id for after in followers.values() for job in after}
        waiting |= {row.job_id for row in rows if row.kind == JOB and row.job_id is not None}
        idle = [job.id for job in jobs if job.followed and not followers[job.id]]
        return Follow([row.id for row in rows], births, sorted(waiting), idle)

    async def _followers_of(self, jobs: Iterable[Job]) -> dict[int, list[Job]]:
        """Job → those that come after it."""
        found: dict[int, list[Job]] = {job.id: [] for job in jobs}
        for org, owner in {(job.org, job.owner) for job in jobs}:
            for follower in await self._store.load_following(org, owner):
                for one in follower.policy.after:
                    if one.id in found:
                        found[one.id].append(follower)
        return found

    async def _births(self, rows: Iterable[Ending], followers: dict[int, list[Job]]) -> list[Birth]:
        """Return the runs that ends make. Coalesced moments make none: the run that stands for them does."""
        made = [
            (job, Birth(row.id, _order(job, row.due_at), once=True))
            for row in rows
            if row.kind == RUN and row.due_at is not None and row.state is not State.COALESCED
            for job in followers.get(row.job_id or 0, ())
            if any(one.id == row.job_id for one in makers(job))
        ]
        await self._placing.place([_candidate(job, birth.order.run) for job, birth in made])
        return [birth for _, birth in made]

    def _tell(self, done: Followed) -> None:
        """Wake whoever has something to do now."""
        if done.demanding:
            self._queue.announce("limits")
        if done.queued:
            self._queue.announce("runs")
        if done.noted:
            self._queue.announce("endings")


def _order(job: Job, due_at: Moment) -> Order:
    deadline = job.policy.start_deadline_seconds
    within = None if deadline is None else round(deadline * SECOND)
    run = new_run(job.id, job.kind, job.policy, due_at, followed=job.followed)
    return Order(run, None, job.version, due_at, within)


def _candidate(job: Job, run: NewRun) -> Candidate:
    user = user_of(job.owner, job.annotations)
    return Candidate(run, job.policy, job.owner, job.org, user, own_data(job.policy, job.spec))
