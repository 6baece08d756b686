"""What somebody has to act on: ends of runs for which others wait, and whatever else wakes a run that waits."""

from __future__ import annotations

from typing import Final, NamedTuple

from horae.core.model import Moment, State

RUN: Final = "run"  # a run that is followed has ended
CANCEL: Final = "cancel"  # a parent that waits for its children shall end
ARRIVED: Final = "arrived"  # a run was made that comes after others
JOB: Final = "job"  # a job that is followed, or has runs that wait for others, was changed or deleted
NODE: Final = "node"  # a node is gone


class Ending(NamedTuple):
    """A row of the outbox. With a `parent_id` it concerns that run, which waits for its children."""

    id: int
    kind: str
    run_id: int | None
    job_id: int | None
    parent_id: int | None
    due_at: Moment | None
    state: State | None
    name: str | None
    task: str | None  # of a run that has ended: its name among those of its parent
