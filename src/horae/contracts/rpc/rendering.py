"""Jobs and executions in the words of the RPC contract.

`WORDS` is total over what a run can be; times are whole seconds since 1970 in UTC. What a job is, is told from the
job itself, whoever made it: only for whom it was made is kept beside it.
"""

from __future__ import annotations

from horae.core.members import plain_name
from horae.core.model import SECOND, Job, Json, Moment, Run, State, Trigger
from horae.core.time import schedule
from horae.core.time.moments import parse_moment
from horae.core.time.outside import is_outside
from horae.core.work.kinds import shown_spec
from horae.core.work.specs import AT_ONCE

FACADE = "rpc"  # under which annotations our own fields are kept

WORDS: dict[State, str] = {
    State.QUEUED: "scheduled",
    State.BLOCKED: "pending",
    State.RUNNING: "running",
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
    State.TIMED_OUT: "failed",
    State.CANCELLED: "cancelled",
    State.SKIPPED: "skipped",
    State.COALESCED: "coalesced",
}
PENDING = "pending"  # of a job that has not run yet
DELETED = "deleted"


def seconds(moment: Moment | None) -> int | None:
    return None if moment is None else moment // SECOND


def seconds_after(moment: Moment | None) -> int | None:
    """As seconds, but never before the moment."""
    return None if moment is None else -(-moment // SECOND)


def user_of(job: Job) -> str | int:
    """Whom a job was made for; one that came another way belongs to its owner."""
    ours = job.annotations.get(FACADE)
    user = ours.get("user_id") if isinstance(ours, dict) else None
    return user if isinstance(user, str | int) else job.owner


def job(it: Job, latest: Run | None, next_at: Moment | None = None) -> Json:
    """`latest` is its newest run; `next_at` its next moment, where that was looked up already."""
    coming = [t.next_at for t in it.triggers if t.next_at is not None]
    return {
        "job_id": it.id,
        "user_id": user_of(it),
        "job_type": _type_of(it),
        "schedule": _schedule_of(it.triggers[0]) if it.triggers else None,
        "code_location": code_location(it),
        "status": DELETED if it.deleted_at is not None else PENDING if latest is None else WORDS[latest.state],
        "priority": it.policy.priority,
        "retry_count": 0 if latest is None else _retries(latest),
        "created_at": seconds(it.created_at),
        "next_execution": seconds(next_at if next_at is not None else min(coming, default=None)),
    }


def execution(run: Run) -> Json:
    return {
        "execution_id": run.id,
        "job_id": run.job_id,
        "status": WORDS[run.state],
        "worker_id": None if run.node is None else plain_name(run.node),
        "retry_count": _retries(run),
        "scheduled_for": seconds(run.due_at),
        "started_at": seconds(run.started_at),
        "finished_at": seconds(run.finished_at),
        "created_at": seconds(run.created_at),
        "message": run.message,
        "exit_code": run.exit_code,
        "logs_path": f"/v1/runs/{run.id}/log" if run.fence else None,
    }


def order(it: Job, run: Run) -> Json:
    """Return an execution as a worker needs it to do it."""
    return {
        "execution_id": run.id,
        "attempt": run.attempt,
        "job_id": it.id,
        "user_id": user_of(it),
        "code_location": code_location(it),
        "priority": run.priority,
        "retry_count": _retries(run),
        "scheduled_for": seconds(run.due_at),
        "timeout": it.policy.timeout_seconds,
    }


def blocked(it: Job, run: Run) -> Json:
    """Return an execution that waits for something else than a worker."""
    shown = {name: value for name, value in order(it, run).items() if name != "timeout"}
    return {**shown, "reason": run.reason, "message": run.message, "eligible_at": seconds_after(run.eligible_at)}


def _retries(run: Run) -> int:
    return max(0, run.attempt - 1)


def _type_of(it: Job) -> str:
    if all(is_outside(t.schedule) for t in it.triggers):
        return "event-based"
    return "one-time" if all("at" in t.schedule for t in it.triggers) else "periodic"


def _schedule_of(trigger: Trigger) -> str | int | None:
    """As submit_job would take it, where it can be written so; null is at once."""
    document = trigger.schedule
    if "at" in document:
        return None if document["at"] == AT_ONCE else seconds(parse_moment(document["at"]))
    text: str = document.get("cron") or document.get("every") or document.get("rrule") or schedule.describe(document)
    return text


def code_location(it: Job) -> str:
    """Return where the work of a job lies; that of a job with steps of its own is the job itself."""
    spec = shown_spec(it.kind, it.spec)
    checkout = spec.get("checkout")
    if checkout is not None:
        ref = f"@{checkout['ref']}" if "ref" in checkout else ""
        script = f"#{spec['script']}" if "script" in spec else ""
        return f"{checkout['url']}{ref}{script}"
    location: str = spec.get("handler") or spec.get("script") or it.name
    return location
