"""Horae's words in those of this contract, and jobs, runs and members as its objects.

What must stay true: the tables are total, whatever made the job; nothing here fails on a job without annotations
of ours.
"""

from __future__ import annotations

from zlib import crc32

from horae.core import moments
from horae.core.fields import encode
from horae.core.hiding import shown_spec
from horae.core.model import Job, Json, Loan, Moment, Node, Phase, Reason, Run, Standing, State, Trigger
from horae.service.outside import plain_name

FACADE = "cluster"  # our part of a job's annotations
PAYLOAD_HANDLER = "horae.handlers:payload"  # writes the payload to the output
FREQUENCIES = ("ONE_TIME", "DAILY", "WEEKLY", "MONTHLY")
UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month"}
STATUSES = ("PENDING", "SCHEDULED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")
DEFAULT_CAPACITY = 10  # of an agent that never said
WORKER_STATUSES = ("ONLINE", "OFFLINE", "UNASSIGNED", "UNHEALTHY")

_BY_STATE = {
    State.QUEUED: "SCHEDULED",
    State.BLOCKED: "SCHEDULED",
    State.SUCCEEDED: "COMPLETED",
    State.FAILED: "FAILED",
    State.TIMED_OUT: "FAILED",
    State.CANCELLED: "CANCELLED",
    State.SKIPPED: "FAILED",
    State.COALESCED: "CANCELLED",  # another run stands for it; never a job's own status
}
_BY_PHASE = {Phase.PREPARING: "SCHEDULED", Phase.RUNNING: "RUNNING"}


def run_word(state: State, reason: str, phase: Phase) -> str:
    if state is State.RUNNING:
        return _BY_PHASE[phase]
    if state is State.BLOCKED and reason == Reason.RETRY:
        return "PENDING"
    return _BY_STATE[state]


def word_of(run: Run) -> str:
    return run_word(run.state, run.reason, run.phase)


def job_word(job: Job, standing: Standing) -> str:
    """A job's own status: that of its latest run, or of the moment it waits for."""
    run = standing.latest
    if job.deleted_at is not None:
        return "CANCELLED"
    if run is not None and not run.state.is_terminal:
        return word_of(run)
    if next_at(job) is not None:
        return "PENDING"
    if run is not None:
        return word_of(run)
    return "FAILED" if last_at(job) is not None else "PENDING"  # fired, and never ran


# Whether a member lives, and what was wanted of it.
_BY_LIFE = {
    ("live", "live"): "ONLINE",
    ("live", "cordoned"): "UNASSIGNED",
    ("live", "drained"): "UNASSIGNED",
    ("draining", "live"): "UNASSIGNED",
    ("draining", "cordoned"): "UNASSIGNED",
    ("draining", "drained"): "UNASSIGNED",
    ("gone", "live"): "UNHEALTHY",
    ("gone", "cordoned"): "UNHEALTHY",
    ("gone", "drained"): "OFFLINE",
}


def member_word(state: str, wanted: str) -> str:
    return _BY_LIFE[state, wanted]


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


def next_at(job: Job) -> Moment | None:
    return min((t.next_at for t in job.triggers if t.next_at is not None), default=None)


def last_at(job: Job) -> Moment | None:
    return max((t.last_at for t in job.triggers if t.last_at is not None), default=None)


def stamp(moment: Moment | None) -> str | None:
    return None if moment is None else moments.format_moment(moment)


def sent_with(job: Job) -> Json:
    """What the client of this contract said about its job; nothing for one that others made."""
    found = job.annotations.get(FACADE)
    return found if isinstance(found, dict) else {}


def frequency_of(job: Job) -> str:
    """As submitted, or the nearest of the four words."""
    return str(sent_with(job).get("frequency") or _nearest_frequency(job.triggers))


def _nearest_frequency(triggers: tuple[Trigger, ...]) -> str:
    schedule: Json = triggers[0].schedule if triggers else {"at": ""}
    if "at" in schedule:
        return "ONE_TIME"
    period: Json = schedule.get("period") or {}
    return {"week": "WEEKLY", "month": "MONTHLY", "year": "MONTHLY"}.get(period.get("unit", ""), "DAILY")


def payload_of(job: Job) -> str:
    """As submitted; of jobs that others made, the work as text that could be submitted here."""
    sent = sent_with(job).get("payload")
    if isinstance(sent, str):
        return sent
    if job.spec.get("handler") == PAYLOAD_HANDLER:
        return str((job.spec.get("data") or {}).get("payload", ""))
    return encode(shown_spec(job.kind, job.spec))


def name_of(job: Job) -> str:
    return str(sent_with(job).get("jobName") or job.name)


def retries_of(run: Run | None) -> int:
    """Attempts that failed and were, or will be, repeated; those lost with their agent do not count."""
    if run is None:
        return 0
    waits = run.state is State.BLOCKED and run.reason == Reason.RETRY
    return max(0, run.attempt - run.lost - (0 if waits else 1))


def show_job(job: Job, standing: Standing) -> Json:
    run = standing.latest
    changes = [job.updated_at, job.deleted_at, *((run.started_at, run.finished_at) if run else ())]
    started = sent_with(job).get("executionTime") or stamp(next_at(job) or last_at(job) or job.created_at)
    return {
        "id": job.id,
        "jobName": name_of(job),
        "userId": sent_with(job).get("userId"),
        "frequency": frequency_of(job),
        "payload": payload_of(job),
        "executionTime": started,
        "retryCount": retries_of(run),
        "maxRetries": job.policy.retry.attempts - 1,
        "status": job_word(job, standing),
        "createdAt": stamp(job.created_at),
        "updatedAt": stamp(max(moment for moment in changes if moment is not None)),
        "segment": job.segment,
        "nextRunTime": stamp(next_at(job)),
        "lastRunTime": stamp(last_at(job)),
    }


def show_due(job: Job, trigger_id: int, at: Moment) -> Json:
    return {
        "jobId": job.id,
        "scheduleId": trigger_id,
        "jobName": name_of(job),
        "frequency": frequency_of(job),
        "status": "PENDING",
        "nextRunTime": stamp(at),
        "segment": job.segment,
        "payload": payload_of(job),
    }


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────


def show_execution(run: Run, loan: Loan | None) -> Json:
    return {
        "id": run.id,
        "jobId": run.job_id,
        "workerId": worker_of(run),
        "status": word_of(run),
        "startTime": stamp(run.started_at),
        "endTime": stamp(run.finished_at),
        "errorMessage": run.message or None if word_of(run) in ("FAILED", "PENDING") else None,
        "checkpointData": checkpoint_of(loan),
        "createdAt": stamp(run.created_at),
    }


def show_assignment(run: Run, loan: Loan | None) -> Json:
    return {
        "jobId": run.job_id,
        "workerId": worker_of(run),
        "assignedAt": stamp(run.started_at),
        "checkpointData": checkpoint_of(loan),
    }


def worker_of(run: Run) -> str | None:
    return None if run.node is None else plain_name(run.node)


def checkpoint_of(loan: Loan | None) -> object:
    return None if loan is None or loan.progress is None else loan.progress.get("checkpointData")


def show_elapsed(microseconds: int) -> str:
    seconds = max(0, microseconds // 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


# ── members ────────────────────────────────────────────────────────────────────────────────────────


def number_of(name: str) -> int:
    """The id of a member: members have names only, so it is drawn from the name and stays the same."""
    return crc32(name.encode()) or 1


def label_of(node: Node, name: str) -> int | None:
    """A number that was said at registration and means nothing to Horae."""
    found = next((label for label in node.labels if label.startswith(f"{name}=")), None)
    return int(found.partition("=")[2]) if found else None


def show_member(node: Node) -> Json:
    """What members of every role have in common."""
    name = plain_name(node.name)
    return {
        "id": number_of(node.name),
        "workerId": name,
        "status": member_word(node.state, node.wanted),
        "lastHeartbeat": stamp(node.heartbeat_at),
        "createdAt": stamp(node.started_at),
        "updatedAt": stamp(node.heartbeat_at),
    }


def show_worker(node: Node) -> Json:
    """An agent, as the job store and the execution coordinator know it."""
    host, _, port = node.address.rpartition(":")
    return {
        **show_member(node),
        "segment": label_of(node, "segment"),
        "capacity": node.slots or DEFAULT_CAPACITY,
        "currentLoad": node.busy,
        "workerHost": host.strip("[]") or None,
        "workerPort": int(port) if port.isdigit() else None,
        "registeredAt": stamp(node.started_at),
    }


def show_coordinator(node: Node, *, is_leader: bool, elected_at: Moment | None = None) -> Json:
    name = plain_name(node.name)
    shown = show_member(node)
    return {
        "id": shown["id"],
        "nodeId": name,
        "leader": is_leader,
        "priority": label_of(node, "priority"),
        "lastHeartbeat": shown["lastHeartbeat"],
        "createdAt": shown["createdAt"],
        "updatedAt": shown["updatedAt"],
        "coordinatorId": name,
        "isLeader": is_leader,
        "electedAt": stamp(elected_at),
    }
