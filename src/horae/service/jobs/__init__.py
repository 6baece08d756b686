"""What people do with jobs: submit, change, pause, run, cancel, delete, read.

How documents become jobs is in submitting.py, how a change is written in changes.py, what is due by then in due.py;
triggers, cursors and runs by request have their own modules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from horae.core.definitions import Idempotency, Sort
from horae.core.model import (
    DEFAULT_ORG,
    Attempt,
    Found,
    Job,
    JobFilter,
    Json,
    Moment,
    Page,
    Reason,
    Run,
    RunFilter,
    Standing,
)
from horae.core.runs.orders import Lend
from horae.core.work.specs import Draft
from horae.errors import Conflict, NotFound
from horae.ports.store.attempts import Attempts, Writes
from horae.ports.store.cluster import Nodes
from horae.ports.store.dependencies import Dependencies
from horae.ports.store.flows import Flows
from horae.ports.store.moments import Moments
from horae.ports.store.queues import PolicyCounts
from horae.ports.store.vault import Settings
from horae.ports.transport import Queue, Topic
from horae.ports.work import HandlerSchemas
from horae.service.jobs.admission import Admission
from horae.service.jobs.callbacks import Callbacks
from horae.service.jobs.cancels import Cancels
from horae.service.jobs.changes import TRIES, Changes, Submitted
from horae.service.jobs.cursors import Cursors
from horae.service.jobs.data import DataCheck
from horae.service.jobs.due import DueMoments, Upcoming
from horae.service.jobs.following import Following
from horae.service.jobs.glances import Glances, GlancesStore
from horae.service.jobs.many import ManyJobs, pausing, resuming
from horae.service.jobs.offers import Offers
from horae.service.jobs.orders import Orders, RunRequest
from horae.service.jobs.overdue import Overdue
from horae.service.jobs.reruns import Reruns
from horae.service.jobs.signals import Signals, SignalsStore
from horae.service.jobs.submitting import Planned, Submits
from horae.service.jobs.tasks import Tasks
from horae.service.jobs.triggers import Triggers
from horae.service.jobs.workflows import WorkflowRuns
from horae.service.policy.limits import Limits, LimitsStore
from horae.service.policy.placing import Placing, PlacingStore
from horae.service.policy.quotas import Quotas
from horae.service.secrets.sealing import Sealing


class JobStore(
    LimitsStore, SignalsStore, Moments, Flows, Writes, Attempts, Settings, PlacingStore, PolicyCounts, Nodes,
    Dependencies, GlancesStore, Protocol,
):  # fmt: skip
    """Jobs, their triggers, their runs, and where those wait."""


class Jobs:
    def __init__(
        self, store: JobStore, queue: Queue, sealing: Sealing | None = None,
        schemas: HandlerSchemas | None = None, most_waiting: int | None = None, foreign_kinds: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Without `sealing`, jobs that hold secrets are refused. `schemas` says
        what data handlers take. `most_waiting`: runs of one owner that may wait. `foreign_kinds`: see Placing."""
        self._sealing = sealing or Sealing(store)
        self._store = store
        self._queue = queue
        self._placing = Placing(store, queue, foreign_kinds)
        self.queues = self._placing.queues
        self.limits = Limits(store, self.queues, queue)
        self._due = DueMoments(store, queue, self._placing)
        self._changes = Changes(store, queue, self._due, self._sealing)
        self.data = DataCheck(schemas)
        self._admission = Admission(self.queues, Quotas(store, most_waiting))
        self.orders = Orders(store, queue, self.data, self._admission, self._placing)
        self.reruns = Reruns(store, self.orders)
        self.cancels = Cancels(store, queue)
        self.workflows = WorkflowRuns(store, self.orders)
        self.signals = Signals(store, queue)
        self.callbacks = Callbacks(self.signals, self._sealing)
        self.following = Following(store)
        self.triggers = Triggers(store, self._changes, self.data, self.following)
        self.cursors = Cursors(store)
        self.many = ManyJobs(store, self._changes, self._sealing)
        self._submits = Submits(
            store, self._changes, self._sealing, self.data, self._admission, self.cursors, self.following
        )
        self.overdue = Overdue(store, self._changes)
        self.offers = Offers(store)
        self.tasks = Tasks(store, store, store)
        self.glances = Glances(store)

    # ── submit ──
    async def submit(
        self,
        drafts: Sequence[Draft],
        *,
        owner: str = "local",
        org: int = DEFAULT_ORG,
        idempotency: Idempotency | None = None,
    ) -> Submitted:
        """Create jobs, or replace those that have their keys: up to a thousand at a time (jobs.submitting)."""
        return await self._submits.submit(drafts, owner, org, idempotency)

    async def plan(self, drafts: Sequence[Draft], *, owner: str = "local", org: int = DEFAULT_ORG) -> list[Planned]:
        """Return what submit would do."""
        return await self._submits.plan(drafts, owner, org)

    # ── read ──
    async def get(self, job_id: int, *, org: int | None = None) -> Job:
        """Return a job, deleted ones too; with `org`, those of other organisations do not exist."""
        return await self._changes.get(job_id, org=org)

    async def get_many(self, job_ids: Sequence[int]) -> Sequence[Job]:
        """As get, of many; those that do not exist are left out."""
        return await self._store.load_jobs(job_ids) if job_ids else []

    async def standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        """Return where jobs stand: a job's own status is that of its latest run."""
        return await self._store.load_standing(job_ids) if job_ids else {}

    async def search(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """Jobs for people who page by number; `list` is for everybody else."""
        return await self._store.search_jobs(where, sorts, offset, limit)

    async def due_between(self, start: Moment, end: Moment, segments: Sequence[int], limit: int) -> Sequence[Upcoming]:
        """Jobs with a trigger whose next moment lies in [start, end), soonest first."""
        return await self._due.between(start, end, segments, limit)

    def walk_due(
        self, start: Moment, end: Moment, after: tuple[Moment, int] | None, page: int
    ) -> AsyncIterator[Sequence[Upcoming]]:
        """As due_between, of all segments, each job once, and all there are: in pages, behind (moment, trigger)."""
        return self._due.walk(start, end, after, page)

    async def now(self) -> Moment:
        """Return the clock that judges dueness."""
        return await self._store.now()

    async def list(self, where: JobFilter, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._store.list_jobs(where, cursor, limit)

    # ── change ──
    async def replace(self, job_id: int, draft: Draft, *, expected_version: int | None = None) -> Job:
        """Of a document that was read before, what Horae made must be as it made it, and its version the present
        one."""
        return await self._submits.replace(job_id, draft, expected_version)

    async def set_paused(self, job_id: int, paused: bool, by: str = "") -> Job:
        """Stop or go on firing. Moments that pass while paused are not made up for. A job that has paused itself
        begins to count its failures anew."""
        return await self._changes.change(job_id, (pausing(by) if paused else resuming()).change)

    async def delete(self, job_id: int) -> None:
        """For good. Moments that are due get their records first, and end with the other runs that wait."""
        cancelled = await self._changes.delete(job_id)
        if cancelled.asked:
            self._queue.announce("cancel")
        self._queue.announce("endings")  # others may come after it

    # ── runs ──
    async def run_now(
        self,
        job_id: int,
        *,
        data: Json | None = None,
        node: str | None = None,
        priority: int | None = None,
        run_at: Moment | None = None,
        idempotency: Idempotency | None = None,
    ) -> Run:
        """Make a run due now, or at a later moment. It obeys the job's overlap policy when it is due: the answer may be
        skipped(overlap)."""
        return await self.orders.place(RunRequest(job_id, data, node, priority, run_at, idempotency))

    async def get_run(self, run_id: int) -> Run:
        run = await self._store.get_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return run

    async def list_runs(self, where: RunFilter, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._store.list_runs(where, cursor, limit)

    async def search_runs(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """As search; items are (Run, name of its job)."""
        return await self._store.search_runs(where, sorts, offset, limit)

    async def search_tries(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """As search_runs, but one item for each attempt at a run."""
        return await self._store.search_tries(where, sorts, offset, limit)

    async def list_attempts(self, run_id: int) -> Sequence[Attempt]:
        return await self._store.list_attempts(run_id)

    async def load_attempts(self, run_ids: Sequence[int]) -> Sequence[Attempt]:
        """As list_attempts, of many runs."""
        return await self._store.load_attempts(run_ids)

    async def list_lost(self, limit: int) -> Sequence[tuple[Attempt, Run]]:
        """Attempts lost with their agent, newest first, each with its run as it is now."""
        return await self._store.list_lost(limit)

    async def fire_due(self, job_id: int, lend: Lend | None = None) -> Run:
        """Fire the oldest due moment of a job now, without waiting for its scheduler. With `lend` its run is lent from
        its beginning."""
        return await self._due.fire_oldest(await self.get(job_id), lend)

    def announce(self, topic: Topic) -> None:
        """Wake whoever waits for something of this topic."""
        self._queue.announce(topic)

    async def cancel(self, run_id: int, by: str = "") -> Run:
        """End a waiting run now; ask the agent of a running one to kill it. Its message says who wanted it."""
        for _ in range(TRIES):  # it may be claimed between our look and our write
            run = await self.get_run(run_id)
            if run.state.is_terminal:
                raise Conflict(f"run {run_id} has ended: {run.state.word}", code="E_TERMINAL")
            cancelled = await self._store.cancel([run_id], Reason.REQUESTED, f"cancelled by {by}" if by else "")
            if cancelled.noted:
                self._queue.announce("endings")
            if cancelled.ended or cancelled.asked or cancelled.marked:
                if cancelled.promoted:
                    self._queue.announce("limits")  # it may demand more than a slot
                self._queue.announce("cancel" if cancelled.asked else "runs")
                return await self.get_run(run_id)
        raise Conflict(f"run {run_id} keeps changing its state; try again")
