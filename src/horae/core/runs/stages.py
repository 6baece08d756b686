"""How far a job is, in six stages: for schedulers and workers outside Horae, which move jobs from one to the next.

The tables are total: every (state, reason, phase) of a run has its stage, whatever made the job.
"""

from __future__ import annotations

from enum import Enum

from horae.core.model import Job, Moment, Phase, Reason, Run, Standing, State


class Stage(Enum):
    WAITING = "waiting"  # for a moment, or for its next attempt
    FIRED = "fired"  # its run was made, and nobody has begun with it
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_BY_STATE = {
    State.QUEUED: Stage.FIRED,
    State.BLOCKED: Stage.FIRED,
    State.SUCCEEDED: Stage.SUCCEEDED,
    State.FAILED: Stage.FAILED,
    State.TIMED_OUT: Stage.FAILED,
    State.CANCELLED: Stage.CANCELLED,
    State.SKIPPED: Stage.FAILED,
    State.COALESCED: Stage.CANCELLED,  # another run stands for it; never a job's own stage
}
_BY_PHASE = {Phase.PREPARING: Stage.FIRED, Phase.RUNNING: Stage.RUNNING}


RPC = "rpc"  # the contract whose workers pull runs too
OUTSIDE = "@"  # begins the pin of what workers outside Horae have begun; no node has such a name


def outside_pin(contract: str) -> str:
    """Return the pin of a run that a worker of this contract has begun: from then on no agent of Horae may have it."""
    return OUTSIDE + contract


def is_kept_outside(run: Run) -> bool:
    return run.pin is not None and run.pin.startswith(OUTSIDE)


def run_stage(run: Run) -> Stage:
    """One that waits for its next worker outside Horae is offered again, as its moment was."""
    if run.state is State.QUEUED and is_kept_outside(run):
        return Stage.WAITING
    if run.state is State.RUNNING:
        return _BY_PHASE[run.phase]
    if run.state is State.BLOCKED and run.reason == Reason.RETRY:
        return Stage.WAITING
    return _BY_STATE[run.state]


def job_stage(job: Job, standing: Standing) -> Stage:
    """That of its latest run, or of the moment it waits for."""
    run = standing.latest
    if job.deleted_at is not None:
        return Stage.CANCELLED
    if run is not None and not run.state.is_terminal:
        return run_stage(run)
    if next_at(job) is not None:
        return Stage.WAITING
    if run is not None:
        return run_stage(run)
    return Stage.FAILED if last_at(job) is not None else Stage.WAITING  # fired, and never ran


def next_at(job: Job) -> Moment | None:
    return min((t.next_at for t in job.triggers if t.next_at is not None), default=None)


def last_at(job: Job) -> Moment | None:
    return max((t.last_at for t in job.triggers if t.last_at is not None), default=None)
