"""What somebody has to act on: ends of runs for which others wait, and whatever else wakes a run that waits."""

from __future__ import annotations

from typing import Final, NamedTuple

from horae.core.model import Moment, NodeState, State
from horae.core.time.outside import JOINED, NodeEvent

RUN: Final = "run"  # a run that is followed has ended
CANCEL: Final = "cancel"  # a parent that waits for its children shall end
ARRIVED: Final = "arrived"  # a run was made that comes after others
JOB: Final = "job"  # a job that is followed, or has runs that wait for others, was changed or deleted
NODE: Final = "node"  # a node has joined, is draining or is gone


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


class NodeNote(NamedTuple):
    """What became of a node, and why: as it is written before the name of the node."""

    state: str  # as triggers name it (core.time.outside)
    reason: str

    @property
    def text(self) -> str:
        return f"{self.state} {self.reason} "


SILENT: Final = NodeNote(NodeState.GONE.value, "silent")  # it was declared so
LEFT: Final = NodeNote(NodeState.GONE.value, "left")  # by its own word
EVICTED: Final = NodeNote(NodeState.GONE.value, "evicted")  # by an operator
NEW: Final = NodeNote(JOINED, "new")
RETURNED: Final = NodeNote(JOINED, "returned")
STOPPING: Final = NodeNote(NodeState.DRAINING.value, "stopping")
ASKED: Final = NodeNote(NodeState.DRAINING.value, "asked")  # by an operator


def node_event(row: Ending) -> NodeEvent:
    state, reason, node = (row.name or "").split(" ", 2)
    return NodeEvent(node, state, reason, row.due_at or 0)
