"""A workflow under way, as a store keeps it: the graph of its run, the tasks, and a step forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.model import Moment, State, record
from horae.core.runs.orders import NewRun, Order


@record
class Flow:
    """A run that waits for its tasks."""

    run_id: int
    job_id: int
    version: int  # how often it moved on: whoever moves it compares and sets
    document: str  # JSON text: the graph, as it was when the run began
    adopted: str | None  # JSON text: task → run of an earlier try of the same workflow, which need not be done again
    data: str | None  # JSON text, of the run
    priority: int
    is_cancelled: bool  # somebody wants it to end,
    reason: str  # and why, if so
    is_over: bool = False  # the run has ended; the graph is kept with it


class Parent(NamedTuple):
    """What is to be known of a run that was claimed and becomes a parent."""

    run_id: int
    priority: int
    resumes: int | None
    parent_id: int | None


class Task(NamedTuple):
    """A task of a workflow: live or ended."""

    parent_id: int
    run_id: int
    task: str
    state: State
    result: str | None  # JSON text, if it was asked for


class Unrun(NamedTuple):
    """A task that ends without having run."""

    run: NewRun
    state: State
    reason: str
    message: str


class FlowEnd(NamedTuple):
    state: State
    reason: str
    message: str
    result: str | None  # JSON text


@record
class Begin:
    """A run that was claimed becomes a parent; under its fence."""

    fence: int
    job_id: int
    document: str
    adopted: str | None = None
    until_at: Moment | None = None  # when it has to be over


@record
class Move:
    """One step of a workflow: all of it, or nothing."""

    run_id: int
    version: int = 0  # that it must have
    begin: Begin | None = None
    orders: Sequence[Order] = ()  # tasks to make
    unrun: Sequence[Unrun] = ()
    cancel: str | None = None  # why its live tasks are to be cancelled
    end: FlowEnd | None = None
    endings: Sequence[int] = ()  # rows of the outbox that were acted on by this


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of some moves."""

    accepted: set[int]  # runs that moved on; the others have moved meanwhile, or ended
    queued: int = 0  # tasks and successors that wait for an agent now
    demanding: int = 0  # of these and others, those that demand more than a slot
    asked: Mapping[int, str] | None = None  # running tasks that shall stop → their nodes
    noted: bool = False  # something else is to be acted on now
