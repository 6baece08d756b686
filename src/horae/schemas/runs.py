"""Runs, their attempts, what they left, and what waits for an answer."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from horae.schemas.basics import Count, Id, JobName, Object, Problem, StateWord, When


class Callback(Struct):
    """Where a run can be told something without a login."""

    run_id: Id
    name: str
    path: Annotated[str, Meta(description="On any server of the installation. Its last part is a secret.")]


class CallbackAnswer(Struct):
    """What a run was told, now or when the same came before."""

    run_id: Id
    name: str


class Share(Struct, omit_defaults=True):
    """How many of how many."""

    done: Count | UnsetType = UNSET
    total: Count | UnsetType = UNSET


class Progress(Struct, omit_defaults=True):
    """How far work is."""

    step: str | UnsetType = UNSET
    rows: Count | UnsetType = UNSET
    bytes: Count | UnsetType = UNSET
    tables: Share | UnsetType = UNSET
    stages: Share | UnsetType = UNSET
    items: Annotated[Share | UnsetType, Meta(description="What a Python handler counts.")] = UNSET
    share: Annotated[float | UnsetType, Meta(description="How much is done, from 0 to 1.")] = UNSET


class TableResult(Struct, omit_defaults=True):
    """What was written into one table."""

    name: str
    changes: Annotated[list[str], Meta(description="How its columns changed.")]
    rows: Count | UnsetType = UNSET
    bytes: Count | UnsetType = UNSET


class DataResult(Struct, omit_defaults=True):
    """What of the result of work on data has a form; there may be more in it."""

    rows: Annotated[Count | UnsetType, Meta(description="Written in all.")] = UNSET
    bytes: Count | UnsetType = UNSET
    tables: list[TableResult] | UnsetType = UNSET
    stages: Share | UnsetType = UNSET
    query_id: Annotated[str | UnsetType, Meta(description="Under which the engine knows it.")] = UNSET
    cursor: Annotated[Object | UnsetType, Meta(description="How far this sync has come.")] = UNSET


class Run(Struct):
    """The record of one due moment, or of one manual request."""

    id: Id
    job_id: Id
    trigger_id: Id | None
    due_at: When
    state: StateWord
    reason: Annotated[str, Meta(description="Why it is in this state; empty when the state says it all.")]
    phase: Annotated[str | None, Meta(description="While it is running: preparing or running.")]
    attempt: Count
    fence: Count
    priority: int
    kind: str
    node: str | None
    created_at: When
    started_at: When | None
    finished_at: When | None
    eligible_at: Annotated[When | None, Meta(description="While it is blocked: when it goes on by itself.")]
    exit_code: int | None
    message: str
    progress: Annotated[Progress | None, Meta(description="While it is running, if it tells.")]
    result: Annotated[Any, Meta(description="What the work gave. Of Spark SQL and syncs: see DataResult.")]
    data: Object | None
    into_run_id: Id | None
    cancel_requested: bool
    lost: Count
    output: Annotated[bool, Meta(description="Whether it has written anything.")]
    late_ms: Annotated[int | None, Meta(description="Start minus due moment.")]
    job_name: JobName = UNSET
    replaced: Annotated[
        bool | UnsetType,
        Meta(description="In the answer to an order: it took the place of one that waited, as this run."),
    ] = UNSET
    parent_id: Annotated[Id | UnsetType, Meta(description="The run of a workflow of which it is a task,")] = UNSET
    task: Annotated[str | UnsetType, Meta(description="and what it is called there.")] = UNSET


class Attempt(Struct):
    """A try that did not end its run."""

    attempt: Count
    fence: Count
    node: str | None
    state: StateWord
    reason: str
    started_at: When | None
    finished_at: When
    exit_code: int | None
    message: str
    output: bool


class Task(Struct, omit_defaults=True):
    """A task of a workflow, and how it stands in one run of it."""

    name: str
    needs: Annotated[list[Any], Meta(description="As the document has them, in an order in which they can be done.")]
    runs: Annotated[dict[str, int], Meta(description="How many of its runs are in which state; none: it waits.")]
    kind: str | UnsetType = UNSET
    job: Annotated[str | int | UnsetType, Meta(description="The job that it is, by key or id.")] = UNSET
    for_each: Annotated[bool, Meta(description="Whether it has a run for each item of a list.")] = False


class RunDetail(Run, kw_only=True):
    """A run with its earlier attempts."""

    attempts: list[Attempt]
    tasks: Annotated[list[Task] | UnsetType, Meta(description="Of a workflow; of a run on every agent: these.")] = UNSET
    awaits: Annotated[
        str | UnsetType, Meta(description="While it is blocked(signal): the name of what it waits to be told.")
    ] = UNSET


class RunPage(Struct):
    items: list[Run]
    cursor: str | None


class Event(Struct):
    """What happened, as a CloudEvent 1.0."""

    specversion: str
    id: Annotated[str, Meta(description="The same however often it is told.")]
    source: Annotated[str, Meta(description="The installation.")]
    type: Annotated[str, Meta(examples=["horae.run.finished"])]
    subject: Annotated[str, Meta(examples=["runs/17"])]
    time: When
    datacontenttype: str
    data: Object


class EventPage(Struct):
    items: list[Event]
    cursor: Annotated[str, Meta(description="Where to go on, always.")]


class Artifact(Struct):
    """A file that a run kept."""

    path: str
    size: int


class ArtifactPage(Struct):
    items: list[Artifact]
    cursor: None = None


class Approval(Struct):
    """A run that waits for somebody's decision."""

    run_id: Id
    job_id: Id
    job_name: str
    by: Annotated[list[str], Meta(description="Who may decide.")]
    message: str
    created_at: When
    until: Annotated[When | None, Meta(description="When it goes on without; null: never.")]


class ApprovalPage(Struct):
    items: list[Approval]
    cursor: None = None


class Rerun(Struct):
    """What became of the wish to run a run again: the new run, or why there is none."""

    run_id: Annotated[Id, Meta(description="The run that was to be run again.")]
    run: Annotated[Run | UnsetType, Meta(description="The new run; of a dry run, the old one.")] = UNSET
    error: Problem | UnsetType = UNSET


class RerunAnswers(Struct):
    items: list[Rerun]
