"""The words of this contract: what a run's state is called, what a worker's report means, the classes of jobs.

Tables only. Those of states are total: every (state, reason, phase) has a word (tests/facades/lake holds them to it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from horae.core.model import LatestRun, Phase, Run, State, Try

NAME = "lake"  # of our annotations
Side = Literal["lake", "sync"]  # the two halves of the contract

SYNC = "sync"  # the kind of work of the one half; the other shows every other kind
LAKE_KINDS = ("git_java", "git_python", "spark_sql")
CLASSES = {"git_java": "java_job", "git_python": "python_job", "spark_sql": "sql_job"}
KINDS = {name: kind for kind, name in CLASSES.items()}
JOB_TYPES = {"git_java": "Java", "git_python": "Python", "spark_sql": "Sql"}
UNSUPPORTED, OTHERS = "unsupported_job", "Others"

INITIALIZED = "Initialized"
STATUSES = frozenset({
    "Init", "Initialized", "Queued", "Compiling", "Running", "Finished", "Error", "Killed", "Unknown",
    "Syncing", "Synced", "Terminated", "Canceled",
})  # fmt: skip

_LAKE: dict[State, str] = {
    State.QUEUED: "Queued",
    State.BLOCKED: "Queued",
    State.SUCCEEDED: "Finished",
    State.FAILED: "Error",
    State.TIMED_OUT: "Error",
    State.CANCELLED: "Killed",
    State.SKIPPED: "Unknown",
    State.COALESCED: "Unknown",
}
_SYNC: dict[State, str] = {
    State.QUEUED: "Queued",
    State.BLOCKED: "Queued",
    State.SUCCEEDED: "Synced",
    State.FAILED: "Error",
    State.TIMED_OUT: "Error",
    State.CANCELLED: "Terminated",
    State.SKIPPED: "Canceled",
    State.COALESCED: "Canceled",
}
_RUNNING: dict[Side, dict[Phase, str]] = {
    "lake": {Phase.PREPARING: "Compiling", Phase.RUNNING: "Running"},
    "sync": {Phase.PREPARING: "Syncing", Phase.RUNNING: "Syncing"},
}
_BY_STATE: dict[Side, dict[State, str]] = {"lake": _LAKE, "sync": _SYNC}

# Moments that became no run of their own are no rows of this contract's history.
SHOWN = tuple(state for state in State if state not in (State.SKIPPED, State.COALESCED))
WAITING = (State.QUEUED, State.BLOCKED)
LIVE = tuple(state for state in State if not state.is_terminal)


def status(run: Run, side: Side) -> str:
    return _status(run.state, run.phase, side)


def status_of_try(it: Try, side: Side) -> str:
    return status(it.run, side) if it.past is None else _BY_STATE[side][it.past.state]


def _status(state: State, phase: Phase, side: Side) -> str:
    return _RUNNING[side][phase] if state is State.RUNNING else _BY_STATE[side][state]


def latest_run(statuses: frozenset[str], side: Side) -> LatestRun:
    """Return the latest runs that have one of these statuses; before its first run, a job has the one that was sent."""
    runs = {(state, phase) for state in State for phase in Phase if _status(state, phase, side) in statuses}
    said = {*statuses, None} if INITIALIZED in statuses else statuses
    return LatestRun(frozenset(runs), (NAME, "current_status"), frozenset(said), STATUSES)


# What a worker says of a run: a phase (None: no news of it), or how it ended.
REPORTS: Mapping[str, Phase | State | None] = {
    "Initialized": None,
    "Queued": None,
    "Unknown": None,
    "Compiling": Phase.PREPARING,
    "Running": Phase.RUNNING,
    "Syncing": Phase.RUNNING,
    "Finished": State.SUCCEEDED,
    "Synced": State.SUCCEEDED,
    "Error": State.FAILED,
    "Killed": State.CANCELLED,
    "Terminated": State.CANCELLED,
    "Canceled": State.CANCELLED,
}

# A wire id names a run and the attempt at it, so that a worker whose run was given to another cannot speak for it.
ATTEMPTS = 1000


def wire_id(run_id: int, attempt: int) -> int:
    return run_id * ATTEMPTS + attempt


def split_wire_id(wire: int) -> tuple[int, int]:
    """(run id, attempt)."""
    return divmod(wire, ATTEMPTS)


# ── sorting ────────────────────────────────────────────────────────────────────────────────────────
# Names of both dialects → ports.JOB_SORTS, RUN_SORTS and SOURCE_SORTS. What is not here is not sorted by.

JOB_SORTS = {
    "id": "id", "job_id": "id", "name": "name", "display_name": "name", "creator_id": "owner", "job_type": "kind",
    "next_run_time": "next_at", "last_run_time": "last_at", "last_successful_sync": "last_at",
    "last_modified": "updated_at",
}  # fmt: skip
RUN_SORTS = {
    "id": "id", "run_id": "id", "sync_id": "id", "job_id": "job_id", "job_name": "name", "job_status": "state",
    "sync_status": "state", "start_time": "created_at", "last_sync_time": "created_at", "updated_time": "finished_at",
    "end_time": "finished_at",
}  # fmt: skip
SOURCE_SORTS = {
    "id": "id", "name": "name", "display_name": "name", "creator_id": "owner", "data_source_type": "kind",
    "last_modify": "updated_at", "last_modified": "updated_at",
}  # fmt: skip
