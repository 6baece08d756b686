"""Our jobs, triggers and runs in the words of the administration contract.

Objects are dictionaries with the contract's own keys, which are the field names of its messages: HTTP sends them as
they are, gRPC makes messages of them. A field that may be missing is left out when there is nothing to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from horae.contracts.admin import guids
from horae.contracts.admin.guids import Kind, guid
from horae.core.model import SECOND, Job, Json, Moment, Phase, Reason, Run, State, Trigger
from horae.core.runs.traces import trace_id
from horae.core.time import moments, schedule
from horae.core.work import webhooks

# An absolute path of two parts or more; what stands in an address of the web is none.
_PATH = re.compile(r"""(?:file://|(?<![\w:/.~…-]))(?:/[^\s/'"`<>|:;,()\[\]{}]+)+/([^\s/'"`<>|:;,()\[\]{}]*)""")

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
    shown: Json = {"JobId": guids.of_job(found), "JobName": found.name, "JobType": job_type(found)}
    if isinstance(own.get("description"), str):
        shown["Description"] = own["description"]
    return {**shown, "IsDisabled": found.paused}


def job_type(found: Job) -> str:
    """Return what the declaration said, else the handler, else the kind of work."""
    said = _annotations(found).get("job_type") or found.spec.get("handler")
    return said if isinstance(said, str) else found.kind


def trigger(found: Trigger, of: Job, name: str) -> Json:
    return {
        "TriggerId": guids.of_trigger(found),
        "JobId": guids.of_job(of),
        "JobType": job_type(of),
        "JobName": of.name,
        "TriggerName": name,
        "CronExpression": _expression(found.schedule),
        "CronExpressionText": schedule.describe(found.schedule),
        "IsDisabled": not found.enabled,
    }


def trigger_names(of: Job) -> dict[int, str]:
    """Trigger id → name: its own, else the one that an older version noted for its schedule, else its number."""
    declared = _annotations(of).get("triggers")
    left = [each for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    names: dict[int, str] = {}
    for number, each in enumerate(of.triggers, start=1):
        match = next((one for one in left if one.get("schedule") == each.schedule), None)
        if match is not None:
            left.remove(match)
        name = each.name or (match and match.get("name"))
        names[each.id] = name if isinstance(name, str) and name else f"{of.name} #{number}"
    return names


def status(run: Run, job_name: str, of: Job | None, installation: str) -> Json:
    """`of` is its job, None when that is gone for good."""
    return dict(_status(run, job_name, of, installation))


def _status(run: Run, job_name: str, of: Job | None, installation: str) -> Iterator[tuple[str, Any]]:
    yield "JobId", guid(Kind.JOB, run.job_id) if of is None else guids.of_job(of)
    yield "JobName", job_name
    if run.trigger_id is not None:
        yield from _status_trigger(run.trigger_id, of)
    yield "Status", status_word(run.state, run.reason, run.phase)
    yield "StartedAt", date_time(run.created_at)  # as the original has it; this moment never moves
    if run.finished_at is not None:
        yield "StatusChangedAt", date_time(run.finished_at)
    yield "TraceId", trace_id(run.id, installation)
    yield "ScheduleJobStatusId", guid(Kind.RUN, run.id)
    if message := _failed_message(run):
        yield "FailedMessage", message


def _status_trigger(trigger_id: int, of: Job | None) -> Iterator[tuple[str, str]]:
    found = next((each for each in of.triggers if each.id == trigger_id), None) if of is not None else None
    yield "TriggerId", guid(Kind.TRIGGER, trigger_id) if found is None else guids.of_trigger(found)
    if of is not None and found is not None:
        yield "TriggerName", trigger_names(of)[trigger_id]


def _failed_message(run: Run) -> str:
    if not run.state.is_terminal or run.state is State.SUCCEEDED:
        return ""
    why = without_paths(run.message) or (f"{run.state.word}: {run.reason}" if run.reason else run.state.word)
    return why if run.into_run_id is None else f"{why}, see {guid(Kind.RUN, run.into_run_id)}"


def without_paths(message: str) -> str:
    """Return where things lie on the machines is nobody's business who administers jobs: of a path, its last part is
    left.

    >>> without_paths('File "/srv/horae/jobs/MyJob/job.py", line 3: no /etc/app/secret.ini, see https://wiki/a/b')
    'File "…/job.py", line 3: no …/secret.ini, see https://wiki/a/b'
    """
    return _PATH.sub(r"…/\1", message)


def date_time(moment: Moment) -> Json:
    at = moments.wall_clock(moment)
    return {
        "year": at.year, "month": at.month, "day": at.day, "hours": at.hour, "minutes": at.minute,
        "seconds": at.second, "nanos": moment % SECOND * 1000,
    }  # fmt: skip


def _expression(document: Json) -> str:
    """Return the cron expression; of other schedules, what would be written in its place."""
    for name in ("cron", "at", "rrule"):
        if name in document:
            return str(document[name])
    if "every" in document:
        return f"@every {document['every']}"
    return schedule.canonical_text(webhooks.shown(document))


def _annotations(found: Job) -> Json:
    own = found.annotations.get("admin")
    return own if isinstance(own, dict) else {}
