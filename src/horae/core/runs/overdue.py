"""Jobs that run as soon as their last success is longer ago than their interval (`Policy.synced_at`).

So a source document wants it of its syncs: when one is made, and whenever Horae starts. The schedule goes on from its
own moments.

What must stay true: of two who decide at once, or of one who decides twice, only the first finds something owed: it is
due from then on, then it is live, and then it was made since the start.
"""

from __future__ import annotations

from dataclasses import replace

from horae.core.model import Job, Json, Moment, Standing, Trigger
from horae.core.time import document
from horae.core.time.moments import DAY

_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


def interval_of(schedule: Json) -> Moment | None:
    """Return how long a round of a schedule takes, in µs; None where it has no rounds of one length."""
    plan = document.read(schedule)
    if plan.step:
        return plan.step
    return None if plan.period is None else plan.period.every * _DAYS[plan.period.unit] * DAY


def hastened(job: Job, now: Moment) -> Job:
    """Return a new job, whose first moment is the one that its last success makes it owe, if that is sooner."""
    if not job.policy.synced_at or job.paused:
        return job
    return replace(job, triggers=tuple(_sooner(trigger, job.policy.synced_at, now) for trigger in job.triggers))


def _sooner(trigger: Trigger, synced_at: Moment, now: Moment) -> Trigger:
    interval = interval_of(trigger.schedule)
    if interval is None or trigger.next_at is None:
        return trigger
    return replace(trigger, next_at=min(trigger.next_at, max(now, synced_at + interval)))


def owed(job: Job, at: Standing, succeeded_at: Moment | None, started_at: Moment, now: Moment) -> Trigger | None:
    """Return the trigger to fire now because its job is overdue at a start; None where nothing is owed. `succeeded_at`
    is the end of its last success here."""
    last = succeeded_at or job.policy.synced_at
    if not last or job.policy.synced_at is None or job.paused or job.deleted_at is not None:
        return None
    if at.latest is not None and (not at.latest.state.is_terminal or at.latest.created_at >= started_at):
        return None
    waiting = [trigger for trigger in job.triggers if trigger.next_at is not None]
    if any(trigger.next_at is not None and trigger.next_at <= now for trigger in waiting):
        return None  # it fires as it is
    late = (t for t in waiting if (interval := interval_of(t.schedule)) is not None and last + interval <= now)
    return next(late, None)
