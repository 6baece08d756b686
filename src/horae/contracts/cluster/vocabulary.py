"""Horae's words in those of this contract, and jobs, runs and members as its objects.

What must stay true: the tables are total, whatever made the job; nothing here fails on a job without annotations
of ours.
"""

from __future__ import annotations

from collections.abc import Collection
from zlib import crc32

from horae.core.fields import encode
from horae.core.members import Life, Member, is_external, node_name, plain_name
from horae.core.model import (
    Attempt,
    Job,
    Json,
    Loan,
    Moment,
    Node,
    Reason,
    Run,
    Standing,
    State,
    Trigger,
)
from horae.core.runs.stages import Stage, job_stage, last_at, next_at, run_stage
from horae.core.time import moments
from horae.core.work.kinds import shown_spec
from horae.service.external.transitions import WrongStage

FACADE = "cluster"  # our part of a job's annotations
PAYLOAD_HANDLER = "horae.handlers:payload"  # writes the payload to the output
FREQUENCIES = ("ONE_TIME", "DAILY", "WEEKLY", "MONTHLY")
UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month"}
DEFAULT_CAPACITY = 10  # of an agent that never said
WORKER_STATUSES = ("ONLINE", "OFFLINE", "UNASSIGNED", "UNHEALTHY")

_BY_STAGE = {
    Stage.WAITING: "PENDING",
    Stage.FIRED: "SCHEDULED",
    Stage.RUNNING: "RUNNING",
    Stage.SUCCEEDED: "COMPLETED",
    Stage.FAILED: "FAILED",
    Stage.CANCELLED: "CANCELLED",
}
STAGES = {word: stage for stage, word in _BY_STAGE.items()}
ENDS = ("COMPLETED", "FAILED")
STATUSES = tuple(STAGES)


def word_of(run: Run) -> str:
    return _BY_STAGE[run_stage(run)]


def job_word(job: Job, standing: Standing) -> str:
    return _BY_STAGE[job_stage(job, standing)]


def refusal(error: WrongStage) -> str:
    now, wanted = _BY_STAGE[error.now], _BY_STAGE[error.wanted]
    return f"job {error.job_id} is {now}, which does not become {wanted} this way"


_BY_LIFE = {
    Life.ONLINE: "ONLINE",
    Life.RESERVED: "UNASSIGNED",
    Life.SILENT: "UNHEALTHY",
    Life.LEFT: "OFFLINE",
}


def member_word(member: Member) -> str:
    return _BY_LIFE[member.life]


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


def stamp(moment: Moment | None) -> str | None:
    return None if moment is None else moments.format_moment(moment)


def sent_with(job: Job) -> Json:
    """Return what the client of this contract said about its job; nothing for one that others made."""
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
        "id": execution_id(run.id, run.attempt),
        "jobId": run.job_id,
        "workerId": worker_of(run),
        "status": word_of(run),
        "startTime": stamp(run.started_at),
        "endTime": stamp(run.finished_at),
        "errorMessage": run.message or None if word_of(run) in ("FAILED", "PENDING") else None,
        "checkpointData": checkpoint_of(loan),
        "createdAt": stamp(run.created_at),
        "history": show_history(run),
    }


def execution_id(run_id: int, attempt: int) -> int:
    """Of one attempt: that of the run for the first, and the same from the moment it is shown."""
    return run_id + (max(0, attempt - 1) << 40)


def is_execution(attempt: Attempt) -> bool:
    """Return whether somebody worked at it: a scheduler outside Horae only passes it on."""
    return not (attempt.node or "").endswith(node_name("scheduler", ""))


def show_attempt(run: Run, attempt: Attempt) -> Json:
    """One that failed and was tried again, or was lost with its agent."""
    return {
        "id": execution_id(run.id, attempt.attempt),
        "jobId": run.job_id,
        "workerId": None if attempt.node is None else plain_name(attempt.node),
        "status": "FAILED",
        "startTime": stamp(attempt.started_at),
        "endTime": stamp(attempt.finished_at),
        "errorMessage": attempt.message or None,
        "checkpointData": None,
        "createdAt": stamp(attempt.started_at or run.created_at),
    }


def show_history(run: Run) -> list[Json]:
    """Return the statuses of a run, each with its moment: also those that passed too quickly to be seen."""
    ended = word_of(run) if run.state.is_terminal else ""
    passed = (("SCHEDULED", run.created_at), ("RUNNING", run.started_at), (ended, run.finished_at))
    return [{"status": word, "at": stamp(moment)} for word, moment in passed if word and moment is not None]


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
    """Return the id of a member: members have names only, so it is drawn from the name and stays the same."""
    return crc32(name.encode()) or 1


def label_of(node: Node, name: str) -> int | None:
    """Return a number that was said at registration and means nothing to Horae."""
    found = next((label for label in node.labels if label.startswith(f"{name}=")), None)
    return int(found.partition("=")[2]) if found and is_external(node) else None


def show_member(member: Member) -> Json:
    """Return what members of every role have in common."""
    node = member.node
    return {
        "id": number_of(member.name),
        "workerId": member.name,
        "status": member_word(member),
        "lastHeartbeat": stamp(node.heartbeat_at),
        "createdAt": stamp(node.started_at),
        "updatedAt": stamp(node.heartbeat_at),
    }


def show_scheduler(member: Member, held: Collection[int]) -> Json:
    return {**show_member(member), "assignedSegments": sorted(held)}


def show_worker(member: Member) -> Json:
    """Return an agent, as the job store and the execution coordinator know it."""
    node = member.node
    host, _, port = node.address.rpartition(":")
    return {
        **show_member(member),
        "segment": label_of(node, "segment"),
        "capacity": capacity_of(node),
        "currentLoad": member.load,
        "workerHost": host.strip("[]") or None,
        "workerPort": int(port) if port.isdigit() else None,
        "registeredAt": stamp(node.started_at),
    }


def capacity_of(node: Node) -> int:
    return node.slots or (DEFAULT_CAPACITY if is_external(node) else 0)


def show_coordinator(node: Node, *, is_leader: bool, elected_at: Moment | None = None) -> Json:
    name = plain_name(node.name)
    return {
        "id": number_of(name),
        "nodeId": name,
        "leader": is_leader,
        "priority": label_of(node, "priority"),
        "lastHeartbeat": stamp(node.heartbeat_at),
        "createdAt": stamp(node.started_at),
        "updatedAt": stamp(node.heartbeat_at),
        "coordinatorId": name,
        "isLeader": is_leader,
        "electedAt": stamp(elected_at),
    }
