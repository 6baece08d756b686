"""What people do with jobs: submit, change, pause, run, cancel, delete, read.

Every change of a job or its triggers is one compare-and-set on the job's version; the next moments are
worked out here, from the store's clock, before the write. A trigger that fired meanwhile makes the write
fail, and it is worked out anew. A change takes effect at the moment it was worked out (`updated_at`): what
was due by then and would lose its moment is fired first, so that no change drops a due moment silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from horae.core import datawork, hiding, specs
from horae.core.model import (
    DEFAULT_ORG,
    SECOND,
    Attempt,
    Cursor,
    Found,
    Job,
    JobFilter,
    Json,
    Moment,
    Overlap,
    Page,
    Reason,
    Run,
    RunFilter,
    Standing,
    State,
    Trigger,
)
from horae.core.schedule import compile_schedule
from horae.core.segments import segment_of
from horae.core.specs import Draft, TriggerDraft
from horae.errors import Conflict, Invalid, NotFound, Stale
from horae.ports import (
    NEVER,
    Cancelled,
    Definition,
    Due,
    Fire,
    Idempotency,
    LastRun,
    Lend,
    Order,
    Queue,
    Receipt,
    Sort,
    Store,
    Submission,
)
from horae.service.batching import Coalescer
from horae.service.events import Events
from horae.service.ledger import Unreadable, account, birth_of, entry_of, give_up, know
from horae.service.sealing import Sealing

LOOK_AHEAD = 10 * SECOND  # how far schedulers look: only what falls within needs telling
TELL_WITHIN = 2 * LOOK_AHEAD  # twice that: the write takes time, and the scheduler's now is later than ours
TRIES = 8  # of a change that races with firing

UNSET = object()  # a field that was not sent, where null is a value


@dataclass(frozen=True, slots=True)
class Submitted:
    jobs: list[Job]
    replayed: bool = False


class Upcoming(NamedTuple):
    """A job and its next moment."""

    job: Job
    trigger_id: int
    at: Moment


@dataclass(frozen=True, slots=True)
class Request:
    """One submit, before ids are given."""

    drafts: Sequence[Draft]
    owner: str
    org: int
    idempotency: Idempotency | None


class Jobs:
    def __init__(
        self, store: Store, queue: Queue, events: Events | None = None, sealing: Sealing | None = None
    ) -> None:
        """`events` tells others what happens. Without `sealing`, jobs that hold secrets are refused."""
        self._sealing = sealing or Sealing(store)
        self._store = store
        self._queue = queue
        self._events = events
        self._submits = Coalescer(self._submit_batch, limit=500)
        self._orders = Coalescer(store.enqueue)

    # ── submit ──
    async def submit(
        self,
        drafts: Sequence[Draft],
        *,
        owner: str = "local",
        org: int = DEFAULT_ORG,
        idempotency: Idempotency | None = None,
    ) -> Submitted:
        """Create jobs, all of them or none; a draft whose key exists already replaces that job.

        Where keys exist, each of several drafts is done for itself, under an idempotency key of its own in the
        transaction that does it: whatever a broken request had done, its repeat goes on from there.
        """
        for draft in drafts:
            await self._check_secrets(draft, owner, org)
        with self._sealing.writing():
            return await self._submit(drafts, owner, org, idempotency)

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
        if hiding.has_secrets(draft.kind, draft.spec):
            await self._sealing.check()
        try:
            hiding.refuse_hidden_spec(draft.kind, draft.spec)
        except Invalid:
            if draft.key is None or await self._store.find_key(org, owner, draft.key) is None:
                raise

    async def _create(self, request: Request) -> Submitted | None:
        """Make the jobs of a request, or recall them; None where a key exists."""
        receipt, jobs = await self._submits.add(request)
        _refuse_mismatch(receipt)
        if not receipt.ids:
            return None
        return Submitted([await self.get(i) for i in receipt.ids] if receipt.replayed else jobs, receipt.replayed)

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
                self._sealing.seal_job(_job_from_draft(draft, next(ids), triggers, request, now))
                for draft in request.drafts
            ]
            for request in requests
        ]
        receipts = await self._store.submit(
            [Submission(jobs, request.idempotency) for jobs, request in zip(made, requests, strict=True)]
        )
        self._tell([job for jobs in made for job in jobs], now)
        for receipt, jobs in zip(receipts, made, strict=True) if self._events is not None else ():
            self._tell_submitted(receipt, jobs)
        return list(zip(receipts, made, strict=True))

    def _tell_submitted(self, receipt: Receipt, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if self._events is not None and job.id in receipt.ids:
                self._events.job_submitted(job)

    def _tell(self, jobs: Sequence[Job], now: Moment) -> None:
        moments = [t.next_at for job in jobs for t in job.triggers if t.next_at is not None]
        if moments and min(moments) < now + TELL_WITHIN:
            self._queue.announce("due")

    # ── read ──
    async def get(self, job_id: int, *, org: int | None = None) -> Job:
        """A job, deleted ones too; with `org`, those of other organisations do not exist."""
        job = await self._store.get_job(job_id)
        if job is None or org not in (None, job.org):
            raise NotFound(f"there is no job {job_id}")
        return job

    async def get_many(self, job_ids: Sequence[int]) -> Sequence[Job]:
        """As get, of many; those that do not exist are left out."""
        return await self._store.load_jobs(job_ids)

    async def standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        """Where jobs stand: a job's own status is that of its latest run."""
        return await self._store.load_standing(job_ids) if job_ids else {}

    async def last_results(self, job_ids: Sequence[int]) -> dict[int, Any]:
        """What the last success of each job left, for those that left something."""
        found = await self._store.load_previous(job_ids) if job_ids else {}
        return {job_id: msgspec.json.decode(text) for job_id, text in found.items()}

    async def cursor(self, job_id: int) -> Cursor | None:
        """How far the syncs of a job have come."""
        return (await self.cursors([job_id])).get(job_id)

    async def cursors(self, job_ids: Sequence[int]) -> dict[int, Cursor]:
        return await self._store.load_cursors(job_ids)

    async def set_cursor(self, job_id: int, value: Json | None) -> None:
        """Let the next sync of a job go on from there; with None, from the beginning."""
        job = await self.get(job_id)
        if job.deleted_at is not None:
            raise NotFound(f"job {job_id} was deleted")
        if job.kind != datawork.SYNC:
            raise Conflict(f"job {job_id} is no sync but of kind {job.kind}: it has no cursor")
        await self._store.set_cursor(job_id, None if value is None else msgspec.json.encode(value).decode())

    async def search(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """Jobs for people who page by number; `list` is for everybody else."""
        return await self._store.search_jobs(where, sorts, offset, limit)

    async def due_between(self, start: Moment, end: Moment, segments: Sequence[int], limit: int) -> Sequence[Upcoming]:
        """Jobs with a trigger whose next moment lies in [start, end), soonest first."""
        rows = await self._store.load_due(segments, (start - 1, NEVER), end, limit)
        by_trigger = {t.id: job for job in await self._jobs_of(rows) for t in job.triggers}
        return [
            Upcoming(by_trigger[row.trigger_id], row.trigger_id, row.next_at)
            for row in rows
            if row.trigger_id in by_trigger
        ]

    async def _jobs_of(self, rows: Sequence[Due]) -> Sequence[Job]:
        definitions = await self._store.load_definitions([row.trigger_id for row in rows]) if rows else []
        return await self._store.load_jobs(sorted({found.job_id for found in definitions}))

    async def now(self) -> Moment:
        """The clock that judges dueness."""
        return await self._store.now()

    async def list(self, where: JobFilter, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._store.list_jobs(where, cursor, limit)

    # ── change ──
    async def replace(self, job_id: int, draft: Draft, *, expected_version: int | None = None) -> Job:
        return (await self._replace(job_id, draft, expected_version, None)).jobs[0]

    async def _replace(
        self, job_id: int, draft: Draft, expected_version: int | None, idempotency: Idempotency | None
    ) -> Submitted:
        fresh = (await self._store.allocate(0, len(draft.triggers)))[1]

        def change(job: Job, now: Moment) -> Job:
            triggers = _merge_triggers(job, draft.triggers, iter(fresh), now)
            spec = hiding.kept_spec(draft.kind, draft.spec, job.spec if job.kind == draft.kind else {})
            return replace(
                job, name=draft.name, key=draft.key, kind=draft.kind, spec=spec, policy=draft.policy,
                segment=job.segment if draft.segment is None else draft.segment, paused=draft.paused,
                annotations=draft.annotations, triggers=triggers,
            )  # fmt: skip

        return await self._change_once(job_id, change, expected_version, idempotency)

    async def set_paused(self, job_id: int, paused: bool) -> Job:
        """Stop or go on firing. Moments that pass while paused are not made up for."""
        return await self._change(job_id, lambda job, _: replace(job, paused=paused))

    async def delete(self, job_id: int) -> None:
        """For good. Moments that are due get their records first, and end with the other runs that wait."""
        cancelled = await self._delete(job_id)
        if self._events is not None:
            self._events.job_deleted(job_id)
        if cancelled.asked:
            self._queue.announce("cancel")

    async def _delete(self, job_id: int) -> Cancelled:
        tries = TRIES
        while tries:
            before = await self._alive(job_id)
            now = await self._store.now()
            if due := [t for t in before.triggers if t.next_at is not None and t.next_at <= now]:
                tries -= not await self._fire_first(before, due, now)
            elif (cancelled := await self._store.delete_job(job_id, before)) is not None:
                return cancelled
            else:
                tries -= 1
        raise Conflict(f"job {job_id} is being changed by somebody else; try again")

    async def _alive(self, job_id: int) -> Job:
        job = await self.get(job_id)
        if job.deleted_at is not None:
            raise NotFound(f"job {job_id} was deleted")
        return job

    async def _change(self, job_id: int, change: Callable[[Job, Moment], Job]) -> Job:
        return (await self._change_once(job_id, change, None, None)).jobs[0]

    async def _change_once(
        self,
        job_id: int,
        change: Callable[[Job, Moment], Job],
        expected_version: int | None,
        idempotency: Idempotency | None,
    ) -> Submitted:
        """Read, work out the next version, write it if nothing moved in between; again if it did.

        What changes nothing bumps no version, and is written only to remember the idempotency key.
        """
        with self._sealing.writing():
            return await self._change_while(job_id, change, expected_version, idempotency)

    async def _change_while(
        self,
        job_id: int,
        change: Callable[[Job, Moment], Job],
        expected_version: int | None,
        idempotency: Idempotency | None,
    ) -> Submitted:
        tries = TRIES
        while tries:
            before = await self._alive(job_id)
            if expected_version not in (None, before.version):
                raise Stale(f"job {job_id} is at version {before.version}, you changed version {expected_version}")
            now = await self._store.now()
            after = self._sealing.seal_job(change(before, now), before)
            if after.spec != before.spec and hiding.has_secrets(after.kind, after.spec):
                await self._sealing.check()
            if after != before:
                after = _reschedule(before, replace(after, version=before.version + 1, updated_at=now), now)
            elif idempotency is None:
                return Submitted([before])
            if after.key != before.key and after.key is not None:
                await self._refuse_taken(after)
            if robbed := _robbed(before, after, now):
                tries -= not await self._fire_first(before, robbed, now)
                continue
            receipt = await self._store.save_job(after, before.version, idempotency)
            if receipt is not None:
                _refuse_mismatch(receipt)
                self._tell([after], now)
                saved = await self.get(receipt.ids[0]) if receipt.replayed else after
                return Submitted([saved], receipt.replayed)
            tries -= 1
        raise Conflict(f"job {job_id} is being changed by somebody else; try again")

    async def _fire_first(
        self, job: Job, triggers: Sequence[Trigger], now: Moment, lend: Lend | None = None
    ) -> Sequence[Fire]:
        """Give moments that are due their records; answers what was fired, nothing when somebody was faster."""
        ids = [t.id for t in triggers]
        known = {found.trigger_id: found for found in await self._store.load_definitions(ids)}
        last = {run.trigger_id: run for run in await self._store.load_last_runs(ids)}
        rows = [row for t in triggers for row in await self._due_row(job, t)]
        fires = [_account(row, known[row.trigger_id], now, last.get(row.trigger_id)) for row in rows]
        fired = await self._store.fire(fires, lend=lend) if fires else None
        if fired is not None and fired.queued:
            self._queue.announce("runs")
        if any(fire.birth.overlap == Overlap.REPLACE for fire in fires):
            self._queue.announce("cancel")
        return [fire for fire in fires if fired is not None and fire.trigger_id in fired.advanced]

    async def _due_row(self, job: Job, trigger: Trigger) -> Sequence[Due]:
        """The due row of one trigger, unless it has moved."""
        at = trigger.next_at or 0
        rows = await self._store.load_due([job.segment], (at, trigger.id - 1), at + 1, 1)
        return [row for row in rows if (row.trigger_id, row.version) == (trigger.id, job.version)]

    async def _refuse_taken(self, job: Job) -> None:
        other = await self._store.find_key(job.org, job.owner, job.key or "")
        if other is not None and other.id != job.id:
            raise Conflict(f"job {other.id} has the key '{job.key}' already", code="E_KEY_TAKEN")

    # ── triggers ──
    async def list_triggers(self, job_id: int | None = None, cursor: str | None = None, limit: int = 100) -> Page:
        if job_id is not None:
            await self.get(job_id)
        return await self._store.list_triggers(job_id, cursor, limit)

    async def get_trigger(self, trigger_id: int) -> Trigger:
        trigger = await self._store.get_trigger(trigger_id)
        if trigger is None:
            raise NotFound(f"there is no trigger {trigger_id}")
        return trigger

    async def add_trigger(self, job_id: int, draft: TriggerDraft) -> Trigger:
        trigger_id = (await self._store.allocate(0, 1))[1][0]

        def change(job: Job, now: Moment) -> Job:
            if len(job.triggers) >= specs.MAX_TRIGGERS:
                raise Invalid(f"a job has at most {specs.MAX_TRIGGERS} triggers", code="E_LIMIT")
            return replace(job, triggers=(*job.triggers, _trigger_from_draft(draft, trigger_id, job_id, now)))

        return _trigger_of(await self._change(job_id, change), trigger_id)

    async def replace_trigger(self, trigger_id: int, draft: TriggerDraft) -> Trigger:
        return await self._change_trigger(trigger_id, lambda _, trigger, now: _redrafted(trigger, draft, now))

    async def patch_trigger(
        self,
        trigger_id: int,
        *,
        enabled: bool | None = None,
        next_at: Moment | None = None,
        data: Json | object | None = UNSET,
    ) -> Trigger:
        """Change some fields. `next_at` moves the next moment once; then the schedule goes on from there."""

        def change(job: Job, trigger: Trigger, now: Moment) -> Trigger:
            changed = trigger if data is UNSET else replace(trigger, data=data)  # type: ignore[arg-type]
            if enabled is not None:
                changed = replace(changed, enabled=enabled)
            return changed if next_at is None else replace(changed, next_at=_movable(job, changed, next_at))

        return await self._change_trigger(trigger_id, change)

    async def delete_trigger(self, trigger_id: int) -> None:
        trigger = await self.get_trigger(trigger_id)

        def change(job: Job, _: Moment) -> Job:
            return replace(job, triggers=tuple(t for t in job.triggers if t.id != trigger_id))

        await self._change(trigger.job_id, change)

    async def _change_trigger(self, trigger_id: int, change: Callable[[Job, Trigger, Moment], Trigger]) -> Trigger:
        job_id = (await self.get_trigger(trigger_id)).job_id

        def change_job(job: Job, now: Moment) -> Job:
            triggers = tuple(change(job, t, now) if t.id == trigger_id else t for t in job.triggers)
            return replace(job, triggers=triggers)

        return _trigger_of(await self._change(job_id, change_job), trigger_id)

    # ── runs ──
    async def run_now(
        self,
        job_id: int,
        *,
        data: Json | None = None,
        node: str | None = None,
        idempotency: Idempotency | None = None,
    ) -> Run:
        """Make a run due now. It obeys the job's overlap policy: the answer may be skipped(overlap)."""
        job = await self._alive(job_id)
        if job.paused:
            raise Conflict(f"job {job_id} is paused; resume it first", code="E_PAUSED")
        # Only a start deadline needs the time before the run is made: the store sets all its moments itself.
        now = await self._store.now() if job.policy.start_deadline_seconds is not None else 0
        birth = birth_of(job.id, job.kind, job.policy, now, data=_text(data), pin=node)
        receipt = await self._orders.add(Order(birth, idempotency))
        _refuse_mismatch(receipt)
        if not receipt.ids:
            raise NotFound(f"job {job_id} was deleted")
        self._queue.announce("runs")
        if job.policy.overlap.name == "REPLACE":
            self._queue.announce("cancel")
        run = await self.get_run(receipt.ids[0])
        if self._events is not None and not receipt.replayed:
            self._events.run_queued(run)
        return run

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

    async def list_attempts(self, run_id: int) -> Sequence[Attempt]:
        return await self._store.list_attempts(run_id)

    async def list_lost(self, limit: int) -> Sequence[tuple[Attempt, Run]]:
        """Attempts lost with their agent, newest first, each with its run as it is now."""
        return await self._store.list_lost(limit)

    async def fire_due(self, job_id: int, lend: Lend | None = None) -> Run:
        """Fire the oldest due moment of a job now, without waiting for its scheduler; answers its run. With `lend`
        it is lent from its birth. Refused where nothing is due, and where the moment made no run that can go."""
        job = await self.get(job_id)
        now = await self._store.now()
        due = [t for t in job.triggers if t.next_at is not None and t.next_at <= now]
        if job.deleted_at is not None or not due:
            raise Conflict(f"nothing of job {job_id} is due", code="E_NOT_DUE")
        fires = await self._fire_first(job, [min(due, key=lambda t: (t.next_at, t.id))], now, lend)
        if not fires:
            raise Conflict(f"job {job_id} was fired by somebody else", code="E_NOT_DUE")
        run = await self._run_of(job_id, fires[0])
        if run is None or run.state is State.SKIPPED or (lend is not None and run.state is not State.RUNNING):
            raise Conflict(f"job {job_id} was fired, but {_why_not(run)}", code="E_NOT_DUE")
        return run

    async def _run_of(self, job_id: int, fire: Fire) -> Run | None:
        """The run of the moment that was fired: each has one record."""
        if not fire.born:
            return None
        moment = RunFilter(job_id, fire.trigger_id, due_from=fire.due_at, due_until=fire.due_at + 1)
        found: list[Run] = (await self._store.list_runs(moment, None, 1)).items
        return found[0] if found else None

    def announce(self, topic: str) -> None:
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


def _account(row: Due, definition: Definition, now: Moment, last: LastRun | None) -> Fire:
    try:
        known = know(definition)
    except Unreadable:  # whoever may not change or delete it could never be rid of it
        return give_up(entry_of(row), definition)
    return account(entry_of(row), known, now, last)


def _why_not(run: Run | None) -> str:
    """Why a moment gave nobody anything to do."""
    if run is None:
        return "its schedule or its misfire policy passed the moment over"
    if run.reason == Reason.OVERLAP:
        return f"another run of it is live, so run {run.id} is {run.state.word} (overlap)"
    return f"run {run.id} could not be lent: it is {run.state.word}"


def _text(data: Json | None) -> str | None:
    return None if data is None else msgspec.json.encode(data).decode()


def _refuse_mismatch(receipt: Receipt) -> None:
    if receipt.mismatch:
        raise Conflict(
            "this Idempotency-Key was used with a different request; use a new key for a new request",
            code="E_IDEMPOTENCY_MISMATCH",
        )


def _job_from_draft(draft: Draft, job_id: int, trigger_ids: Iterator[int], request: Request, now: Moment) -> Job:
    triggers = tuple(_trigger_from_draft(trigger, next(trigger_ids), job_id, now) for trigger in draft.triggers)
    job = Job(
        id=job_id, org=request.org, owner=request.owner, name=draft.name, key=draft.key, kind=draft.kind,
        spec=draft.spec, policy=draft.policy, segment=segment_of(job_id) if draft.segment is None else draft.segment,
        paused=draft.paused, annotations=draft.annotations, version=1, created_at=now, updated_at=now,
        triggers=triggers,
    )  # fmt: skip
    return replace(job, triggers=tuple(replace(t, next_at=None) for t in triggers)) if draft.paused else job


def _trigger_from_draft(draft: TriggerDraft, trigger_id: int, job_id: int, now: Moment) -> Trigger:
    schedule = draft.schedule_from(now, trigger_id)
    first = compile_schedule(schedule, seed=trigger_id, created_at=now).first() if draft.enabled else None
    return Trigger(
        id=trigger_id, job_id=job_id, schedule=schedule, data=draft.data, enabled=draft.enabled, version=1,
        next_at=first, last_at=None, created_at=now,
    )  # fmt: skip


def _is_of(trigger: Trigger, draft: TriggerDraft) -> bool:
    """Whether a trigger has the schedule that a draft asks for."""
    return trigger.schedule == draft.schedule_from(trigger.created_at, trigger.id)


def _redrafted(trigger: Trigger, draft: TriggerDraft, now: Moment) -> Trigger:
    """The trigger as a draft wants it; with a new schedule it begins anew."""
    same = replace(trigger, data=draft.data, enabled=draft.enabled)
    if _is_of(trigger, draft):
        return same
    return replace(same, schedule=draft.schedule_from(now, trigger.id), created_at=now)


def _merge_triggers(job: Job, drafts: Sequence[TriggerDraft], fresh: Iterator[int], now: Moment) -> tuple[Trigger, ...]:
    """The triggers of a changed job: one with the same id, else with the same schedule, stays itself."""
    left = list(job.triggers)
    merged = []
    for draft in drafts:
        old = next((t for t in left if t.id == draft.id), None) if draft.id is not None else None
        old = old or next((t for t in left if _is_of(t, draft)), None)
        if old is None:
            merged.append(_trigger_from_draft(draft, next(fresh), job.id, now))
        else:
            left.remove(old)
            merged.append(_redrafted(old, draft, now))
    return tuple(merged)


def _robbed(before: Job, after: Job, now: Moment) -> list[Trigger]:
    """The triggers that a change takes a moment from which is due already."""
    kept = {t.id: t.next_at for t in after.triggers}
    return [t for t in before.triggers if t.next_at is not None and t.next_at <= now and kept.get(t.id) != t.next_at]


def _reschedule(before: Job, after: Job, now: Moment) -> Job:
    """Give every trigger of a changed job its next moment."""
    old = {t.id: t for t in before.triggers}
    triggers = tuple(
        replace(t, version=after.version, next_at=_next_moment(old.get(t.id), t, before.paused, after.paused, now))
        for t in after.triggers
    )
    return replace(after, triggers=triggers)


def _next_moment(old: Trigger | None, new: Trigger, was_paused: bool, is_paused: bool, now: Moment) -> Moment | None:
    """The next moment of a trigger after a change.

    One that goes on as it was keeps its moment, even if it is due: nothing may be lost by an edit.
    One that starts anew begins with its first moment from now; one that resumes, with the next.
    """
    if is_paused or not new.enabled:
        return None
    if old is not None and old.next_at != new.next_at:
        return new.next_at  # moved by hand
    ran = old is not None and old.enabled and not was_paused
    if ran and old is not None and old.schedule == new.schedule:
        return old.next_at
    schedule = compile_schedule(new.schedule, seed=new.id, created_at=new.created_at)
    is_new = old is None or old.schedule != new.schedule
    found = schedule.first() if is_new else schedule.next_after(now)
    if found is not None and new.last_at is not None and found <= new.last_at:
        return schedule.next_after(new.last_at)
    return found


def _movable(job: Job, trigger: Trigger, next_at: Moment) -> Moment:
    if trigger.last_at is not None and next_at <= trigger.last_at:
        raise Invalid(
            "next_at must lie after the last moment that fired; a moment never fires twice",
            code="E_RANGE",
            path="next_at",
        )
    if not trigger.enabled:
        raise Conflict(f"trigger {trigger.id} is not enabled; enable it first", code="E_PAUSED")
    if job.paused:
        raise Conflict(f"job {job.id} is paused; resume it first", code="E_PAUSED")
    return next_at


def _trigger_of(job: Job, trigger_id: int) -> Trigger:
    found = next((t for t in job.triggers if t.id == trigger_id), None)
    if found is None:
        raise NotFound(f"there is no trigger {trigger_id}")
    return found
