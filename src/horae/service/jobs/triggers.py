"""When a job runs: its triggers, each changed as a part of its job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from horae.core.fields import Problems
from horae.core.model import Job, Json, Moment, Page, Trigger
from horae.core.time import outside
from horae.core.work import specs
from horae.core.work.made import check_trigger
from horae.core.work.specs import TriggerDraft
from horae.errors import Conflict, Invalid, NotFound
from horae.ports.store.definitions import Definitions
from horae.service.jobs.changes import Changes
from horae.service.jobs.data import DataCheck
from horae.service.jobs.drafts import movable, redrafted, trigger_from_draft, trigger_of, with_token
from horae.service.jobs.following import Following

UNSET = object()  # a field that was not sent, where null is a value


class Triggers:
    def __init__(self, store: Definitions, changes: Changes, data: DataCheck, following: Following) -> None:
        self._following = following
        self._store = store
        self._changes = changes
        self._data = data

    async def list(self, job_id: int | None = None, cursor: str | None = None, limit: int = 100) -> Page:
        if job_id is not None:
            await self._changes.get(job_id)
        return await self._store.list_triggers(job_id, cursor, limit)

    async def get(self, trigger_id: int) -> Trigger:
        trigger = await self._store.get_trigger(trigger_id)
        if trigger is None:
            raise NotFound(f"there is no trigger {trigger_id}")
        return trigger

    async def add(self, job_id: int, draft: TriggerDraft) -> Trigger:
        draft = await self._check_draft(job_id, draft)
        trigger_id = (await self._store.allocate(0, 1))[1][0]

        def change(job: Job, now: Moment) -> Job:
            if len(job.triggers) >= specs.MAX_TRIGGERS:
                raise Invalid(f"a job has at most {specs.MAX_TRIGGERS} triggers", code="E_LIMIT")
            return replace(job, triggers=(*job.triggers, trigger_from_draft(draft, trigger_id, job_id, now)))

        return trigger_of(await self._changes.change(job_id, change), trigger_id)

    async def _check_draft(self, job_id: int, draft: TriggerDraft) -> TriggerDraft:
        """Return the draft with the id of the job to which it listens, if it does."""
        await self._check(job_id, draft.data)
        if not outside.is_job_event(draft.schedule):
            return draft
        job = await self._changes.get_alive(job_id)
        return await self._following.resolve_trigger(draft, job.owner, job.org)

    async def _check(self, job_id: int, data: Json | None) -> None:
        """Refuse data that does not fit the job's handler."""
        if data is not None:
            await self._data.check_run(await self._changes.get(job_id), data)

    async def replace(self, trigger_id: int, draft: TriggerDraft) -> Trigger:
        draft = await self._check_draft((await self.get(trigger_id)).job_id, draft)

        def change(_: Job, trigger: Trigger, now: Moment) -> Trigger:
            problems = Problems()
            if draft.made is not None:
                check_trigger(draft.made, trigger, problems)
            problems.raise_any()
            return redrafted(trigger, draft, now)

        return await self._change(trigger_id, change)

    async def patch(
        self,
        trigger_id: int,
        *,
        enabled: bool | None = None,
        next_at: Moment | None = None,
        data: Json | object | None = UNSET,
    ) -> Trigger:
        """Change some fields. `next_at` moves the next moment once; then the schedule goes on from there."""
        if isinstance(data, dict):
            await self._check((await self.get(trigger_id)).job_id, data)

        def change(job: Job, trigger: Trigger, now: Moment) -> Trigger:
            changed = trigger if data is UNSET else replace(trigger, data=data)  # type: ignore[arg-type]
            if enabled is not None:
                changed = replace(changed, enabled=enabled)
            return changed if next_at is None else replace(changed, next_at=movable(job, changed, next_at))

        return await self._change(trigger_id, change)

    async def rotate(self, trigger_id: int) -> Trigger:
        """Give a webhook a new token: its address of before is nothing from now on."""
        if not outside.is_webhook((await self.get(trigger_id)).schedule):
            raise Conflict(f"trigger {trigger_id} is no webhook, so it has no address")
        return await self._change(trigger_id, lambda _, trigger, now: with_token(trigger, anew=True))

    async def delete(self, trigger_id: int) -> None:
        trigger = await self.get(trigger_id)

        def change(job: Job, _: Moment) -> Job:
            return replace(job, triggers=tuple(t for t in job.triggers if t.id != trigger_id))

        await self._changes.change(trigger.job_id, change)

    async def _change(self, trigger_id: int, change: Callable[[Job, Trigger, Moment], Trigger]) -> Trigger:
        job_id = (await self.get(trigger_id)).job_id

        def change_job(job: Job, now: Moment) -> Job:
            triggers = tuple(change(job, t, now) if t.id == trigger_id else t for t in job.triggers)
            return replace(job, triggers=triggers)

        return trigger_of(await self._changes.change(job_id, change_job), trigger_id)
