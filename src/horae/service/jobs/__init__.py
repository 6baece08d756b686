"""What people do with jobs: submit, change, pause, run, cancel, delete, read.

How a change is written is in changes.py, what is due by then in due.py; triggers, cursors and runs by request have
their own modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

from horae.core.definitions import Idempotency, Receipt, Sort, Submission
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
from horae.core.work import kinds
from horae.core.work.specs import Draft
from horae.errors import Conflict, Invalid, NotFound
from horae.ports.store.attempts import Attempts, Writes
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import Moments
from horae.ports.store.runs import Runs
from horae.ports.store.vault import Settings
from horae.ports.transport import Queue, Topic
from horae.ports.work import HandlerSchemas
from horae.service.batching import Coalescer
from horae.service.events import Events
from horae.service.jobs.changes import TRIES, Changes, Submitted, refuse_mismatch
from horae.service.jobs.cursors import Cursors
from horae.service.jobs.data import DataCheck
from horae.service.jobs.drafts import Request, job_from_draft, merge_triggers
from horae.service.jobs.due import DueMoments, Upcoming
from horae.service.jobs.offers import Offers
from horae.service.jobs.orders import Orders, RunRequest
from horae.service.jobs.overdue import Overdue
from horae.service.jobs.triggers import Triggers
from horae.service.no_events import NoEvents
from horae.service.secrets.sealing import Sealing

BATCH = 1000  # jobs in one transaction


class JobStore(Definitions, Moments, Runs, Writes, Attempts, Settings, Nodes, Protocol):
    """Jobs, their triggers and their runs."""


class Jobs:
    def __init__(
        self, store: JobStore, queue: Queue, events: Events | None = None, sealing: Sealing | None = None,
        schemas: HandlerSchemas | None = None,
    ) -> None:  # fmt: skip
        """`events` tells others what happens. Without `sealing`, jobs that hold secrets are refused. `schemas` says
        what data handlers take."""
        self._sealing = sealing or Sealing(store)
        self._store = store
        self._queue = queue
        self._events = events or NoEvents()
        self._due = DueMoments(store, queue)
        self._changes = Changes(store, queue, self._due, self._sealing)
        self._submits = Coalescer(self._submit_batch, limit=BATCH, weigh=lambda request: len(request.drafts))
        self._data = DataCheck(schemas)
        self.orders = Orders(store, queue, self._events, self._data)
        self.triggers = Triggers(store, self._changes, self._data)
        self.cursors = Cursors(store)
        self.overdue = Overdue(store, self._changes)
        self.offers = Offers(store, store)

    # ── submit ──
    async def submit(
        self,
        drafts: Sequence[Draft],
        *,
        owner: str = "local",
        org: int = DEFAULT_ORG,
        idempotency: Idempotency | None = None,
    ) -> Submitted:
        """Create jobs, up to BATCH all of them or none, and more a batch at a time; a draft whose key exists already
        replaces that job.

        Where keys exist, each of several drafts is done for itself. Whatever is done has an idempotency key of its own
        in the transaction that does it: whatever a broken request had done, its repeat goes on from there.
        """
        await self._data.check_drafts(drafts)
        for number, draft in enumerate(drafts):
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)
            await self._check_secrets(draft, owner, org)
        parts = []
        with self._sealing.writing():
            for start in range(0, len(drafts), BATCH):
                # The first has the key as it came, so that it means the same for a request of any size.
                part = idempotency and replace(idempotency, scope=f"{idempotency.scope} +{start}".removesuffix(" +0"))
                parts.append(await self._submit(drafts[start : start + BATCH], owner, org, part))
        return Submitted([job for part in parts for job in part.jobs], all(part.replayed for part in parts))

    async def _submit(
        self, drafts: Sequence[Draft], owner: str, org: int, idempotency: Idempotency | None
    ) -> Submitted:
        if len(drafts) == 1:
            return await self._put(drafts[0], owner, org, idempotency)
        request = Request(drafts, owner, org, idempotency)
        if (done := await self._create(request)) is not None:
            return done
        keys = [idempotency and replace(idempotency, scope=f"{idempotency.scope} #{n}") for n in range(len(drafts))]
        parts = [await self._put(draft, owner, org, key) for draft, key in zip(drafts, keys, strict=True)]
        replayed = all(part.replayed for part in parts)
        if idempotency is not None and not replayed:
            await self._store.submit([Submission([], idempotency)])  # from now on a repeat creates nothing at all
        return Submitted([job for part in parts for job in part.jobs], replayed)

    async def _check_secrets(self, draft: Draft, owner: str, org: int) -> None:
        """Refuse what could not be kept. With a key it may stand for a job that is there, and knows the secrets."""
        if kinds.has_secrets(draft.kind, draft.spec):
            await self._sealing.check()
        try:
            kinds.refuse_hidden_spec(draft.kind, draft.spec)
        except Invalid:
            if draft.key is None or await self._store.find_key(org, owner, draft.key) is None:
                raise

    async def _create(self, request: Request) -> Submitted | None:
        """Make the jobs of a request, or recall them; None where a key exists."""
        receipt, jobs = await self._submits.add(request)
        refuse_mismatch(receipt)
        if not receipt.ids:
            return None
        return Submitted(list(await self.get_many(receipt.ids)) if receipt.replayed else jobs, receipt.replayed)

    async def _put(self, draft: Draft, owner: str, org: int, idempotency: Idempotency | None) -> Submitted:
        """Make one job, or replace the one with its key; whoever is first, the other replaces."""
        for _ in range(TRIES):
            if (done := await self._create(Request([draft], owner, org, idempotency))) is not None:
                return done
            found = await self._store.find_key(org, owner, draft.key or "")
            if found is not None:
                return await self._replace(found.id, draft, None, idempotency)
        raise Conflict(f"the key '{draft.key}' is being changed by somebody else; try again", code="E_KEY_TAKEN")

    async def _submit_batch(self, requests: list[Request]) -> list[tuple[Receipt, list[Job]]]:
        drafts = [draft for request in requests for draft in request.drafts]
        job_ids, trigger_ids = await self._store.allocate(len(drafts), sum(len(draft.triggers) for draft in drafts))
        now = await self._store.now()
        ids, triggers = iter(job_ids), iter(trigger_ids)
        made = [
            [
                self._sealing.seal_job(job_from_draft(draft, next(ids), triggers, request, now))
                for draft in request.drafts
            ]
            for request in requests
        ]
        receipts = await self._store.submit(
            [Submission(jobs, request.idempotency) for jobs, request in zip(made, requests, strict=True)]
        )
        self._changes.announce_due([job for jobs in made for job in jobs], now)
        for receipt, jobs in zip(receipts, made, strict=True):
            for job in jobs if receipt.ids and not receipt.replayed else ():
                self._events.job_submitted(job)
        return list(zip(receipts, made, strict=True))

    # ── read ──
    async def get(self, job_id: int, *, org: int | None = None) -> Job:
        """Return a job, deleted ones too; with `org`, those of other organisations do not exist."""
        return await self._changes.get(job_id, org=org)

    async def get_many(self, job_ids: Sequence[int]) -> Sequence[Job]:
        """As get, of many; those that do not exist are left out."""
        return await self._store.load_jobs(job_ids)

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
        await self._data.check_drafts([draft])
        return (await self._replace(job_id, draft, expected_version, None)).jobs[0]

    async def _replace(
        self, job_id: int, draft: Draft, expected_version: int | None, idempotency: Idempotency | None
    ) -> Submitted:
        fresh = (await self._store.allocate(0, len(draft.triggers)))[1]

        def change(job: Job, now: Moment) -> Job:
            triggers = merge_triggers(job, draft.triggers, iter(fresh), now)
            spec = kinds.kept_spec(draft.kind, draft.spec, job.spec if job.kind == draft.kind else {})
            return replace(
                job, name=draft.name, key=draft.key, kind=draft.kind, spec=spec, policy=draft.policy,
                segment=job.segment if draft.segment is None else draft.segment, paused=draft.paused,
                annotations=draft.annotations, triggers=triggers,
            )  # fmt: skip

        return await self._changes.change_once(job_id, change, expected_version, idempotency)

    async def set_paused(self, job_id: int, paused: bool) -> Job:
        """Stop or go on firing. Moments that pass while paused are not made up for."""
        return await self._changes.change(job_id, lambda job, _: replace(job, paused=paused))

    async def delete(self, job_id: int) -> None:
        """For good. Moments that are due get their records first, and end with the other runs that wait."""
        cancelled = await self._changes.delete(job_id)
        self._events.job_deleted(job_id)
        if cancelled.asked:
            self._queue.announce("cancel")

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

    async def cancel(self, run_id: int) -> Run:
        """End a waiting run now; ask the agent of a running one to kill it."""
        for _ in range(TRIES):  # it may be claimed between our look and our write
            run = await self.get_run(run_id)
            if run.state.is_terminal:
                raise Conflict(f"run {run_id} has ended: {run.state.word}", code="E_TERMINAL")
            cancelled = await self._store.cancel([run_id], Reason.REQUESTED)
            if cancelled.ended or cancelled.asked:
                self._queue.announce("cancel" if cancelled.asked else "runs")
                return await self.get_run(run_id)
        raise Conflict(f"run {run_id} keeps changing its state; try again")
