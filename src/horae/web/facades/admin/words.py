"""Our jobs, triggers and runs in the words of the administration contract.

Objects are dictionaries with the contract's own keys, which are the field names of its messages: HTTP sends them as
they are, gRPC makes messages of them. A field that may be missing is left out when there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from horae.core import moments, schedule
from horae.core.guids import Kind, guid
from horae.core.model import SECOND, Job, Json, Moment, Phase, Reason, Run, State, Trigger
from horae.core.traces import trace_id

IN_PROGRESS, FINISHED, FAILED = "InProgress", "Finished", "Failed"
LOCKED, STALE = "FailedBecauseOfLock", "Stale"

# The word of a state, and of those reasons that have another. The phase has no word in this contract.
_BY_STATE: dict[State, str] = {
    State.QUEUED: IN_PROGRESS,
    State.RUNNING: IN_PROGRESS,
    State.BLOCKED: IN_PROGRESS,
    State.SUCCEEDED: FINISHED,
    State.FAILED: FAILED,
    State.TIMED_OUT: FAILED,
    State.CANCELLED: FAILED,
    State.SKIPPED: FAILED,
    State.COALESCED: FAILED,
}
_BY_REASON: dict[tuple[State, str], str] = {
    (State.FAILED, Reason.LOST): STALE,
    (State.SKIPPED, Reason.OVERLAP): LOCKED,
}
# What a list shows: a coalesced moment has no row of its own, because the run that stands for it has one.
LISTED = tuple(state for state in State if state is not State.COALESCED)


def status_word(state: State, reason: str, phase: Phase) -> str:
    return _BY_REASON.get((state, reason), _BY_STATE[state])


def job(found: Job) -> Json:
    own = _annotations(found)
    shown: Json = {"JobId": guid(Kind.JOB, found.id), "JobName": found.name, "JobType": job_type(found)}
    if isinstance(own.get("description"), str):
        shown["Description"] = own["description"]
    return {**shown, "IsDisabled": found.paused}


def job_type(found: Job) -> str:
    """What the declaration said, else the handler, else the kind of work."""
    said = _annotations(found).get("job_type") or found.spec.get("handler")
    return said if isinstance(said, str) else found.kind


def trigger(found: Trigger, of: Job, name: str) -> Json:
    return {
        "TriggerId": guid(Kind.TRIGGER, found.id),
        "JobId": guid(Kind.JOB, of.id),
        "JobType": job_type(of),
        "JobName": of.name,
        "TriggerName": name,
        "CronExpression": _expression(found.schedule),
        "CronExpressionText": schedule.describe(found.schedule),
        "IsDisabled": not found.enabled,
    }


def trigger_names(of: Job) -> dict[int, str]:
    """Trigger id → name: the one declared for its schedule, else its number."""
    declared = _annotations(of).get("triggers")
    left = [each for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    names: dict[int, str] = {}
    for number, each in enumerate(of.triggers, start=1):
        match = next((one for one in left if one.get("schedule") == each.schedule), None)
        if match is not None:
            left.remove(match)
        name = match and match.get("name")
        names[each.id] = name if isinstance(name, str) and name else f"{of.name} #{number}"
    return names


def status(run: Run, job_name: str, names: dict[int, str]) -> Json:
    return dict(_status(run, job_name, names))


def _status(run: Run, job_name: str, names: dict[int, str]) -> Iterator[tuple[str, Any]]:
    yield "JobId", guid(Kind.JOB, run.job_id)
    yield "JobName", job_name
    if run.trigger_id is not None:
        yield "TriggerId", guid(Kind.TRIGGER, run.trigger_id)
        if run.trigger_id in names:
            yield "TriggerName", names[run.trigger_id]
    yield "Status", status_word(run.state, run.reason, run.phase)
    yield "StartedAt", date_time(run.created_at if run.started_at is None else run.started_at)
    if run.finished_at is not None:
        yield "StatusChangedAt", date_time(run.finished_at)
    yield "TraceId", trace_id(run.id)
    yield "ScheduleJobStatusId", guid(Kind.RUN, run.id)
    if message := _failed_message(run):
        yield "FailedMessage", message


def _failed_message(run: Run) -> str:
    if not run.state.is_terminal or run.state is State.SUCCEEDED:
        return ""
    why = run.message or (f"{run.state.word}: {run.reason}" if run.reason else run.state.word)
    return why if run.into_run_id is None else f"{why}, see {guid(Kind.RUN, run.into_run_id)}"


def date_time(moment: Moment) -> Json:
    at = moments.wall_clock(moment)
    return {
        "year": at.year, "month": at.month, "day": at.day, "hours": at.hour, "minutes": at.minute,
        "seconds": at.second, "nanos": moment % SECOND * 1000,
    }  # fmt: skip


def _expression(document: Json) -> str:
    """The cron expression; of other schedules, what would be written in its place."""
    for name in ("cron", "at", "rrule"):
        if name in document:
            return str(document[name])
    if "every" in document:
        return f"@every {document['every']}"
    return schedule.canonical_text(document)


def _annotations(found: Job) -> Json:
    own = found.annotations.get("admin")
    return own if isinstance(own, dict) else {}
