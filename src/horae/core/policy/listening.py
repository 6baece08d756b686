"""Triggers that listen: the end of another job's run fires them, or what becomes of a node.

    triggers: [{on: {job: extract, states: [failed, timed_out]}}, {on: {node: any, states: [gone]}}]

They have no moment of their own, and share none: the run is due when it is made. A job that is listened to is followed,
as by one that comes after it (core.policy.dependencies), and circles are refused alike. Nodes are followed by nobody:
whatever becomes of one is noted, and who listens is looked up then.

What must stay true: the end of a run, or what became of a node, fires a trigger at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from horae.core.fields import encoded
from horae.core.jobdata import MAX_DATA
from horae.core.model import After, Job, Json, Run, State, Trigger
from horae.core.time.moments import format_moment
from horae.core.time.outside import ANY, JOINED, NODE, ON, NodeEvent, is_job_event, is_node_event

DATA = "event"  # where the data of a run has what fired it


class Following(Protocol):
    """What may come after others: a job, or the draft of one."""

    @property
    def policy(self) -> _Policy: ...

    @property
    def triggers(self) -> Sequence[Scheduled]: ...


class _Policy(Protocol):
    @property
    def after(self) -> Sequence[After]: ...


class Scheduled(Protocol):
    @property
    def schedule(self) -> Json: ...


def is_following(job: Following) -> bool:
    """Return whether a job comes after others, or listens to some."""
    return bool(job.policy.after) or any(is_job_event(trigger.schedule) for trigger in job.triggers)


def followed_ids(job: Following) -> list[int]:
    """Return the jobs after which it comes, and those to which it listens."""
    found = {one.id for one in job.policy.after} | {heard_id(trigger) for trigger in job.triggers}
    return sorted(job_id for job_id in found if job_id is not None)


def heard_id(trigger: Scheduled) -> int | None:
    """Return the job to which a trigger listens; None where it listens to none."""
    found: int | None = trigger.schedule[ON].get("id") if is_job_event(trigger.schedule) else None
    return found


def fired_by(job: Job, job_id: int | None, state: State | None) -> list[Trigger]:
    """Return the triggers of a job that the end of a run fires."""
    if job.paused or state is None:
        return []
    return [
        trigger
        for trigger in job.triggers
        if trigger.enabled and heard_id(trigger) == job_id and state.word in trigger.schedule[ON]["states"]
    ]


def fired_by_node(job: Job, event: NodeEvent) -> list[Trigger]:
    """Return the triggers of a job that fire by what became of a node."""
    if job.paused or job.deleted_at is not None:
        return []
    return [trigger for trigger in job.triggers if trigger.enabled and _hears(trigger, event)]


def _hears(trigger: Trigger, event: NodeEvent) -> bool:
    if not is_node_event(trigger.schedule):
        return False
    heard: Json = trigger.schedule[ON]
    is_news = event.state != JOINED or trigger.created_at <= event.seen_at  # else it was told late
    return is_news and heard[NODE] in (ANY, event.node) and event.state in heard["states"]


def told_of_node(job: Job, trigger: Trigger, event: NodeEvent) -> Json:
    """As told, of what became of a node."""
    said: Json = {
        "node": event.node, "state": event.state, "reason": event.reason, "seen_at": format_moment(event.seen_at),
    }  # fmt: skip
    return {**_own_data(job, trigger), DATA: said}


def told(job: Job, trigger: Trigger, run: Run, most: int = MAX_DATA) -> Json:
    """Return the data of the run that an end makes: that of the trigger, else of the job, and what has ended. A result
    that is too much for it is left out, and it says so."""
    event: Json = {
        "job": trigger.schedule[ON]["job"], "run": run.id, "state": run.state.word, "reason": run.reason,
        "message": run.message, "result": run.result, "due_at": format_moment(run.due_at),
    }  # fmt: skip
    size = len(encoded({"": run.result}) or "")
    if size > most:
        event |= {"result": None, "left_out": f"its result of {size:,} bytes is too large to hand on"}
    return {**_own_data(job, trigger), DATA: event}


def _own_data(job: Job, trigger: Trigger) -> Json:
    own: Json = (job.spec.get("data") or {}) if trigger.data is None else trigger.data
    return own


def all_followed(jobs: Iterable[Following]) -> list[int]:
    """As followed_ids, of several."""
    return sorted({job_id for job in jobs for job_id in followed_ids(job)})
