"""Drafts of jobs and triggers become jobs and triggers, and a changed job keeps the moments it owes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from horae.core.audit import Deed
from horae.core.definitions import Idempotency
from horae.core.fields import Problems
from horae.core.hooks import hash_of
from horae.core.model import Cursor, Job, Moment, Trigger
from horae.core.runs.overdue import hastened
from horae.core.runs.segments import segment_of
from horae.core.time import outside
from horae.core.time.schedule import compile_schedule
from horae.core.work import made, webhooks
from horae.core.work.specs import Draft, TriggerDraft
from horae.errors import Conflict, Invalid, NotFound

TOKEN_BYTES = 32  # of chance in the address of a webhook


@dataclass(frozen=True, slots=True)
class Request:
    """One submit, before ids are given."""

    drafts: Sequence[Draft]
    owner: str
    org: int
    idempotency: Idempotency | None
    deed: Deed | None = None


def job_from_draft(draft: Draft, job_id: int, trigger_ids: Iterator[int], request: Request, now: Moment) -> Job:
    triggers = tuple(trigger_from_draft(trigger, next(trigger_ids), job_id, now) for trigger in draft.triggers)
    job = Job(
        id=job_id, org=request.org, owner=request.owner, name=draft.name, key=draft.key, kind=draft.kind,
        spec=draft.spec, policy=draft.policy, segment=segment_of(job_id) if draft.segment is None else draft.segment,
        paused=draft.paused, annotations=draft.annotations, version=1, created_at=now, updated_at=now,
        triggers=triggers,
    )  # fmt: skip
    paused = replace(job, triggers=tuple(replace(t, next_at=None) for t in triggers))
    return paused if draft.paused else hastened(job, now)


def trigger_from_draft(draft: TriggerDraft, trigger_id: int, job_id: int, now: Moment) -> Trigger:
    schedule = webhooks.kept(draft.schedule_from(now, trigger_id), {})
    first = compile_schedule(schedule, seed=trigger_id, created_at=now).first() if draft.enabled else None
    trigger = Trigger(
        id=trigger_id, job_id=job_id, schedule=schedule, data=draft.data, enabled=draft.enabled, version=1,
        next_at=first, last_at=None, created_at=now, key=draft.key, name=draft.name,
    )  # fmt: skip
    return with_token(trigger)


def with_token(trigger: Trigger, *, anew: bool = False) -> Trigger:
    """Return a trigger with a token of its own, if it is a webhook: the one it has, unless it shall be another."""
    if not outside.is_webhook(trigger.schedule):
        return trigger if trigger.hook is None else replace(trigger, hook=None)
    if trigger.hook is not None and not anew:
        return trigger
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return replace(trigger, hook=hash_of(token), token=token)


# ── documents that came from Horae ──


def refuse_changed(draft: Draft, job: Job, cursor: Cursor | None) -> None:
    """Refuse a document that shall replace this job if it is of an earlier version, or what Horae made is changed."""
    if draft.made is not None:
        made.refuse_stale(draft.made, job)
        problems = Problems()
        made.check_job(draft.made, [trigger.made for trigger in draft.triggers], job, cursor, problems)
        problems.raise_any()


def check_made(draft: Draft, known: Mapping[int, Job], cursors: Mapping[int, Cursor], problems: Problems) -> Draft:
    """Note what Horae made and somebody changed. A document of another installation loses its ids."""
    if draft.made is None:
        return draft
    job = known.get(draft.made.id) if draft.made.is_possible else None
    if job is None or not made.is_of(draft.made, job):
        return replace(draft, triggers=tuple(replace(trigger, id=None) for trigger in draft.triggers))
    made.check_job(draft.made, [trigger.made for trigger in draft.triggers], job, cursors.get(job.id), problems)
    return draft


# ── triggers ──


def is_of(trigger: Trigger, draft: TriggerDraft) -> bool:
    """Return whether a trigger has the schedule that a draft asks for."""
    return webhooks.outline(trigger.schedule) == webhooks.outline(draft.schedule_from(trigger.created_at, trigger.id))


def redrafted(trigger: Trigger, draft: TriggerDraft, now: Moment) -> Trigger:
    """Return the trigger as a draft wants it; with a new schedule it begins anew. A draft without a key takes none
    away."""
    same = replace(
        trigger, data=draft.data, enabled=draft.enabled, key=draft.key or trigger.key, name=draft.name
    )  # fmt: skip
    if is_of(trigger, draft):
        return replace(same, schedule=webhooks.kept(draft.schedule, trigger.schedule)) if trigger.hook else same
    schedule = webhooks.kept(draft.schedule_from(now, trigger.id), trigger.schedule)
    return with_token(replace(same, schedule=schedule, created_at=now))


def merge_triggers(job: Job, drafts: Sequence[TriggerDraft], fresh: Iterator[int], now: Moment) -> tuple[Trigger, ...]:
    """Return the triggers of a changed job: one with the same id, key, name or schedule stays itself, in this order."""
    old = _old_triggers(job, drafts)
    return tuple(
        redrafted(old[number], draft, now) if number in old else trigger_from_draft(draft, next(fresh), job.id, now)
        for number, draft in enumerate(drafts)
    )


def _old_triggers(job: Job, drafts: Sequence[TriggerDraft]) -> dict[int, Trigger]:
    """Number of a draft → the trigger that it stands for. The surest sign is looked for in all of them first: a
    schedule that moved from one trigger to another takes no key with it."""
    found: dict[int, Trigger] = {}
    left = list(job.triggers)
    signs: tuple[Callable[[Trigger, TriggerDraft], bool], ...] = (
        lambda t, draft: t.id == draft.id,
        lambda t, draft: t.key is not None and t.key == draft.key,
        lambda t, draft: t.name is not None and t.name == draft.name and None in (t.key, draft.key),
        lambda t, draft: is_of(t, draft) and None in (t.key, draft.key),
    )
    for is_same in signs:
        for number, draft in enumerate(drafts):
            match = next((t for t in left if number not in found and is_same(t, draft)), None)
            if match is not None:
                found[number] = match
                left.remove(match)
    return found


def robbed_triggers(before: Job, after: Job, now: Moment) -> list[Trigger]:
    """Return the triggers that a change takes a moment from which is due already."""
    kept = {t.id: t.next_at for t in after.triggers}
    return [t for t in before.triggers if t.next_at is not None and t.next_at <= now and kept.get(t.id) != t.next_at]


def reschedule(before: Job, after: Job, now: Moment) -> Job:
    """Give every trigger of a changed job its next moment."""
    old = {t.id: t for t in before.triggers}
    triggers = tuple(
        replace(t, version=after.version, next_at=_next_moment(old.get(t.id), t, before.paused, after.paused, now))
        for t in after.triggers
    )
    return replace(after, triggers=triggers)


def _next_moment(old: Trigger | None, new: Trigger, was_paused: bool, is_paused: bool, now: Moment) -> Moment | None:
    """Return the next moment of a trigger after a change.

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


def movable(job: Job, trigger: Trigger, next_at: Moment) -> Moment:
    if outside.is_outside(trigger.schedule):
        raise Invalid(
            "a trigger that something else fires has no moments to move", code="E_FIELD_CONFLICT", path="next_at"
        )
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


def trigger_of(job: Job, trigger_id: int) -> Trigger:
    found = next((t for t in job.triggers if t.id == trigger_id), None)
    if found is None:
        raise NotFound(f"there is no trigger {trigger_id}")
    return found
