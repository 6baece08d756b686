"""One change of a job: a compare-and-set on its version.

The next moments are worked out here, from the store's clock, before the write. A trigger that fired meanwhile makes
the write fail, and it is worked out anew. A change takes effect at the moment it was worked out (`updated_at`): what
was due by then and would lose its moment is fired first, so that no change drops a due moment silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import msgspec

from horae.core.audit import changes_of
from horae.core.definitions import Idempotency, Receipt, Save
from horae.core.model import SECOND, Job, Json, Moment
from horae.core.runs.orders import Cancelled
from horae.core.work import kinds, webhooks
from horae.core.work.policies import policy_text
from horae.errors import Conflict, Error, NotFound, Stale
from horae.ports import deeds
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import Moments
from horae.ports.store.runs import Runs
from horae.ports.transport import Queue
from horae.service.jobs.drafts import reschedule, robbed_triggers
from horae.service.jobs.due import DueMoments
from horae.service.secrets.sealing import Sealing

LOOK_AHEAD = 10 * SECOND  # how far schedulers look: only what falls within is announced
ANNOUNCED_WITHIN = 2 * LOOK_AHEAD  # twice that: the write takes time, and the scheduler's now is later than ours
TRIES = 8  # of a change that races with firing


class ChangeStore(Definitions, Moments, Runs, Protocol):
    """Jobs, their triggers and the moments that are due."""


@dataclass(frozen=True, slots=True)
class Submitted:
    jobs: list[Job]
    replayed: bool = False


class Change(NamedTuple):
    """A change of a job that was just read."""

    before: Job
    change: Callable[[Job, Moment], Job]
    idempotency: Idempotency | None


class Changes:
    def __init__(self, store: ChangeStore, queue: Queue, due: DueMoments, sealing: Sealing) -> None:
        self._store = store
        self._queue = queue
        self._due = due
        self._sealing = sealing

    async def get(self, job_id: int, *, org: int | None = None) -> Job:
        """Return a job, deleted ones too; with `org`, those of other organisations do not exist."""
        job = await self._store.get_job(job_id)
        if job is None or org not in (None, job.org):
            raise NotFound(f"there is no job {job_id}")
        return job

    async def get_alive(self, job_id: int) -> Job:
        """Return a job that can be changed."""
        found = judged(job_id, await self._store.get_job(job_id))
        if isinstance(found, Error):
            raise found
        return found

    async def change(self, job_id: int, change: Callable[[Job, Moment], Job]) -> Job:
        return (await self.change_once(job_id, change, None, None)).jobs[0]

    async def change_once(
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
            before = await self.get_alive(job_id)
            if expected_version not in (None, before.version):
                raise Stale(f"job {job_id} is at version {before.version}, you changed version {expected_version}")
            now = await self._store.now()
            after = await self._work_out(before, change, now)
            if after == before and idempotency is None:
                return Submitted([before])
            if after.key != before.key and after.key is not None:
                await self._refuse_taken(after)
            if robbed := robbed_triggers(before, after, now):
                tries -= not await self._due.fire(before, robbed, now)
                continue
            deeds.note(kind="job", subject=str(job_id), change=_changed(before, after))
            receipt = await self._store.save_job(after, before.version, idempotency)
            if receipt is not None:
                self.announce_due([after], now)
                return await self._answer(after, receipt)
            tries -= 1
        raise Conflict(f"job {job_id} is being changed by somebody else; try again")

    async def _work_out(self, before: Job, change: Callable[[Job, Moment], Job], now: Moment) -> Job:
        """Return the job after a change, with its next moments; what changes nothing gets no new version."""
        after = self._sealing.seal_job(change(before, now), before)
        is_sealed = after.spec != before.spec and kinds.has_secrets(after.kind, after.spec)
        if is_sealed or (
            after.triggers != before.triggers and any(webhooks.has_secret(t.schedule) for t in after.triggers)
        ):
            await self._sealing.check()
        if after == before:
            return before
        return reschedule(before, replace(after, version=before.version + 1, updated_at=now), now)

    async def change_many(self, changes: Sequence[Change]) -> list[Submitted | None]:
        """As change_once, of jobs that were just read and keep their keys: all in one write. None where a job has moved
        on meanwhile. What changes nothing is not written, and remembers no idempotency key: a repeat that finds it
        changed by somebody else has not been carried out yet."""
        now = await self._store.now()
        answers: dict[int, Submitted | None] = {}
        saves: dict[int, Save] = {}
        for number, (before, change, key) in enumerate(changes):
            after = await self._work_out(before, change, now)
            if after == before:
                answers[number] = Submitted([before])
            elif robbed_triggers(before, after, now):
                answers[number] = await self.change_once(before.id, change, None, key)  # which fires what is due first
            else:
                saves[number] = Save(after, before.version, key)
        for number, receipt in zip(saves, await self._save(list(saves.values()), now), strict=True):
            answers[number] = await self._answer(saves[number].job, receipt) if receipt is not None else None
        return [answers[number] for number in range(len(changes))]

    async def _save(self, saves: Sequence[Save], now: Moment) -> Sequence[Receipt | None]:
        receipts = await self._store.save_jobs(saves) if saves else []
        self.announce_due([save.job for save in saves], now)
        return receipts

    async def _answer(self, job: Job, receipt: Receipt) -> Submitted:
        refuse_mismatch(receipt)
        return Submitted([await self.get(receipt.ids[0]) if receipt.replayed else job], receipt.replayed)

    async def delete(self, job_id: int) -> Cancelled:
        """Fire what is due, then delete, if nothing moved in between; again if it did."""
        tries = TRIES
        while tries:
            before = await self.get_alive(job_id)
            now = await self._store.now()
            if due := [t for t in before.triggers if t.next_at is not None and t.next_at <= now]:
                tries -= not await self._due.fire(before, due, now)
            elif (cancelled := await self._store.delete_job(job_id, before)) is not None:
                return cancelled
            else:
                tries -= 1
        raise Conflict(f"job {job_id} is being changed by somebody else; try again")

    async def _refuse_taken(self, job: Job) -> None:
        for other in await self._store.find_keys(job.org, job.owner, [job.key or ""]):
            if other.id != job.id:
                raise Conflict(f"job {other.id} has the key '{job.key}' already", code="E_KEY_TAKEN")

    def announce_due(self, jobs: Sequence[Job], now: Moment) -> None:
        """Wake schedulers if one of these jobs is due soon, and whoever judges those that come after others."""
        moments = [t.next_at for job in jobs for t in job.triggers if t.next_at is not None]
        if moments and min(moments) < now + ANNOUNCED_WITHIN:
            self._queue.announce("due")
        if any(job.followed or job.policy.after for job in jobs):
            self._queue.announce("endings")  # runs may wait for what has changed


def judged(job_id: int, job: Job | None, org: int | None = None) -> Job | Error:
    """Return a job that can be changed, or why it cannot; with `org`, those of other organisations do not exist."""
    if job is None or org not in (None, job.org):
        return NotFound(f"there is no job {job_id}")
    if job.deleted_at is not None:
        return NotFound(f"job {job_id} was deleted")
    if job.part_of is not None:
        message = f"job {job_id} is a task that is written in job {job.part_of}"
        return Conflict(message, hint=f"change job {job.part_of}")
    return job


def _changed(before: Job, after: Job) -> str:
    """Return what is different, for the audit log."""
    return changes_of(_told(before), _told(after))


def _told(job: Job) -> Json:
    """Return what people decide about a job; of secrets, nothing."""
    triggers = {
        str(t.id): {"schedule": webhooks.shown(t.schedule), "enabled": t.enabled, "data": t.data, "name": t.name}
        for t in job.triggers
    }
    return {
        "name": job.name, "key": job.key, "kind": job.kind, "paused": job.paused, "triggers": triggers,
        "policy": msgspec.json.decode(policy_text(job.policy)), "spec": kinds.shown_spec(job.kind, job.spec),
        "annotations": job.annotations,
    }  # fmt: skip


def refuse_mismatch(receipt: Receipt) -> None:
    if receipt.mismatch:
        raise Conflict(
            "this Idempotency-Key was used with a different request; use a new key for a new request",
            code="E_IDEMPOTENCY_MISMATCH",
        )
