"""What is done when a run ends after which others come, or when one arrives that comes after others.

    a run ended ──► jobs that come after its job ──► without triggers: a run for the same moment is made
              │                                 └──► their runs that wait are judged anew
              └───► triggers that listen to it ────► each makes a run, once
    something became of a node ─► triggers that listen ──► each makes a run, once
    a run arrived that waits ───────────────────────► it is judged
    a job was changed or deleted ───────────────────► runs that wait for it, and its own, are judged anew

The store judges in the transaction in which it acts (ports.store.dependencies). What is decided here is only who might
be concerned, from what was read before: whoever comes to be concerned later leaves a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from horae.core.definitions import Idempotency
from horae.core.fields import encoded
from horae.core.model import SECOND, Job, Json, Moment, Run, State, Trigger
from horae.core.policy.debounce import calm_of
from horae.core.policy.demands import own_data
from horae.core.policy.dependencies import makers
from horae.core.policy.listening import fired_by, fired_by_node, followed_ids, told, told_of_node
from horae.core.policy.queues import user_of
from horae.core.runs.endings import ARRIVED, JOB, NODE, RUN, Ending, node_event
from horae.core.runs.following import Birth, Follow, Followed
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import NewRun, Order
from horae.errors import Conflict
from horae.ports.store.definitions import Definitions
from horae.ports.store.dependencies import Dependencies as DependencyPort
from horae.ports.store.runs import Runs
from horae.ports.transport import Queue
from horae.service.policy.placing import Candidate, Placing

ROWS = 200  # that are acted on in one transaction
TRIES = 8  # of rows whose followers are being changed


class DependencyStore(Definitions, DependencyPort, Runs, Protocol):
    """Jobs, who comes after whom, and what became of runs."""


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
        births = await self._births(rows, followers) + await self._events(rows, followers)
        births += await self._node_events([row for row in rows if row.kind == NODE])
        waiting = {job.id for after in followers.values() for job in after}
        waiting |= {row.job_id for row in rows if row.kind == JOB and row.job_id is not None}
        idle = [job.id for job in jobs if job.followed and not followers[job.id]]
        return Follow([row.id for row in rows], births, sorted(waiting), idle)

    async def _followers_of(self, jobs: Iterable[Job]) -> dict[int, list[Job]]:
        """Job → those that come after it, or listen to it."""
        found: dict[int, list[Job]] = {job.id: [] for job in jobs}
        for org, owner in {(job.org, job.owner) for job in jobs}:
            for follower in await self._store.load_following(org, owner):
                for job_id in followed_ids(follower):
                    if job_id in found:
                        found[job_id].append(follower)
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
        return await self._placed(made)

    async def _events(self, rows: Iterable[Ending], followers: dict[int, list[Job]]) -> list[Birth]:
        """Return the runs that triggers make which listen to these ends."""
        fired = [
            (row, job, trigger)
            for row in rows
            if row.kind == RUN
            for job in followers.get(row.job_id or 0, ())
            for trigger in fired_by(job, row.job_id, row.state)
        ]
        ids = sorted({row.run_id for row, _, _ in fired if row.run_id is not None})
        runs = {run.id: run for run in await self._store.load_runs(ids)} if ids else {}
        return await self._placed(
            [
                (job, Birth(row.id, _event_order(job, trigger, run), once=False))
                for row, job, trigger in fired
                if (run := runs.get(row.run_id or 0)) is not None  # else it is so old that it was removed
            ]
        )

    async def _node_events(self, rows: Sequence[Ending]) -> list[Birth]:
        """Return the runs that triggers make which listen to what became of nodes. The row is what makes it once:
        whoever takes it makes the runs."""
        listeners = await self._store.load_node_listeners() if rows else []
        return await self._placed(
            [
                (job, Birth(row.id, _order_by(job, trigger, told_of_node(job, trigger, event)), once=False))
                for row in rows
                for event in (node_event(row),)
                for job in listeners
                for trigger in fired_by_node(job, event)
            ]
        )

    async def _placed(self, made: Sequence[tuple[Job, Birth]]) -> list[Birth]:
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
        if done.held:
            self._queue.announce("waiting")


def _order(job: Job, due_at: Moment) -> Order:
    run = new_run(job.id, job.kind, job.policy, due_at, followed=job.followed)
    return Order(run, None, job.version, due_at, _start_within(job))


def _event_order(job: Job, trigger: Trigger, ended: Run) -> Order:
    """Return what a trigger asks for: now, and once for a run that has ended."""
    once = Idempotency(f"on {trigger.id}", str(ended.id), "")
    return _order_by(job, trigger, told(job, trigger, ended), once)


def _order_by(job: Job, trigger: Trigger, said: Json, once: Idempotency | None = None) -> Order:
    data = encoded(said)
    run = new_run(job.id, job.kind, job.policy, 0, data=data, followed=job.followed)
    calm = calm_of(job.policy.debounce, data)
    return Order(run, once, job.version, None, _start_within(job), trigger_id=trigger.id, calm=calm)


def _start_within(job: Job) -> int | None:
    deadline = job.policy.start_deadline_seconds
    return None if deadline is None else round(deadline * SECOND)


def _candidate(job: Job, run: NewRun) -> Candidate:
    user = user_of(job.owner, job.annotations)
    return Candidate(run, job.policy, job.owner, job.org, user, own_data(job.policy, job.spec))
