"""Jobs and executions in the words of the CI contract.

`WORDS` is total over what a run can be; moments are ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from horae.core.model import Attempt, Job, Json, Moment, Run, Standing, State
from horae.core.time import moments
from horae.errors import Error, Unauthenticated
from horae.service.insight.views import artifacts_of
from horae.web import http

WORDS: dict[State, str] = {
    State.QUEUED: "SCHEDULED",
    State.BLOCKED: "SCHEDULED",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "SUCCEEDED",
    State.FAILED: "FAILED",
    State.TIMED_OUT: "TIMEOUT",
    State.CANCELLED: "CANCELLED",
    State.SKIPPED: "SKIPPED",
    State.COALESCED: "COALESCED",
}
DELETED = "DELETED"
IDLE = "IDLE"  # never ran, and nothing is to come


def when(moment: Moment | None) -> str | None:
    return None if moment is None else moments.format_moment(moment)


def next_moment(job: Job) -> Moment | None:
    return min((t.next_at for t in job.triggers if t.next_at is not None), default=None)


def execution(run: Run, earlier: Sequence[Attempt] = ()) -> Json:
    """Return a row of the history. `execution_time` is the due moment: when it was to run, whenever that was. `earlier`
    are the attempts that did not end it."""
    return {
        "execution_id": run.id,
        "job_id": run.job_id,
        "execution_time": when(run.due_at),
        "status": WORDS[run.state],
        "last_update_time": when(run.finished_at or run.started_at or run.created_at),
        "logs_path": _logs_path(run) if run.fence else None,
        "reason": run.reason,
        "message": run.message,
        "attempts": _attempts(run, earlier),
        "artifacts": [_artifact(run, *one) for one in artifacts_of(run)],
    }


def _logs_path(run: Run) -> str:
    return f"/api/v1/execution_logs/{run.id}"


def _attempts(run: Run, earlier: Sequence[Attempt]) -> list[Json]:
    """Oldest first. The last is in the run itself, unless the run waits to be tried again."""
    tried = [_attempt(run, one.attempt, one) for one in earlier]
    is_told = not run.fence or any(one.attempt == run.attempt for one in earlier)
    return tried if is_told else [*tried, _attempt(run, run.attempt, run)]


def _attempt(run: Run, number: int, it: Run | Attempt) -> Json:
    return {
        "attempt": number,
        "status": WORDS[it.state],
        "start_time": when(it.started_at),
        "end_time": when(it.finished_at),
        "exit_code": it.exit_code,
        "node": it.node,
        "reason": it.reason,
        "message": it.message,
        "logs_path": f"{_logs_path(run)}?attempt={number}",
    }


def _artifact(run: Run, path: str, size: int) -> Json:
    return {"path": path, "size": size, "url": f"/api/v1/artifacts/{run.id}/{quote(path)}"}


def user_job(job: Job, standing: Standing, schedule: str | None) -> Json:
    """Return a row of the document's job table, with how it stands."""
    next_at = next_moment(job)
    return {
        "user_id": job.owner,
        "job_id": job.id,
        "name": job.name,
        "is_recurring": any("at" not in trigger.schedule for trigger in job.triggers),
        "schedule": schedule,
        "created_time": when(job.created_at),
        "status": _status_word(job, standing.latest, next_at),
        "next_execution_time": when(next_at),
    }


def status(job: Job, standing: Standing, earlier: Sequence[Attempt]) -> Json:
    """`earlier` are attempts of its latest execution."""
    latest, next_at = standing.latest, next_moment(job)
    return {
        "job_id": job.id,
        "name": job.name,
        "status": _status_word(job, latest, next_at),
        "next_execution_time": when(next_at),
        "last_execution": None if latest is None else execution(latest, earlier),
    }


def _status_word(job: Job, latest: Run | None, next_at: Moment | None) -> str:
    if job.deleted_at is not None:
        return DELETED
    if latest is not None:
        return WORDS[latest.state]
    return IDLE if next_at is None else WORDS[State.QUEUED]


# ── failures ───────────────────────────────────────────────────────────────────────────────────────

# A file that makes no sense is a bad request here, like one that cannot be read.
_STATUSES = {422: 400}


def _failure(error: Error, request: http.Request) -> http.Reply:
    if isinstance(error, Unauthenticated):
        return http.Reply(401, http.encode({"message": "Not authenticated"}), headers=http.extra_headers(error))
    shown: Json = {"message": f"{error.message} ({error.hint})" if error.hint else error.message, "code": error.code}
    if error.problems:
        shown["errors"] = [problem.as_dict() for problem in error.listed()]
    status = _STATUSES.get(error.status, error.status)
    return http.Reply(status, http.encode(shown), headers=http.extra_headers(error))


SHAPE = http.Shape(
    _failure,
    schema={
        "type": "object",
        "required": ["message"],
        "properties": {"message": {"type": "string"}, "code": {"type": "string"}, "errors": {"type": "array"}},
    },
)
