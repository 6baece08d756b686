"""Jobs, their triggers and policies; what would come of a document."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from horae.core import model
from horae.schemas.basics import Count, Id, JobName, Object, Problem, StateWord, When


class Trigger(Struct):
    """When to do it."""

    id: Id
    job_id: Id
    schedule: Annotated[Object, Meta(description="The schedule in its canonical form.")]
    description: Annotated[str, Meta(description="The schedule in words.")]
    data: Object | None
    enabled: bool
    next_at: When | None
    last_at: When | None
    version: Count
    created_at: When
    key: Annotated[
        str | UnsetType, Meta(description="By which it stays itself when its schedule is changed; unique in its job.")
    ] = UNSET
    name: Annotated[str | UnsetType, Meta(description="For people.")] = UNSET
    job_name: JobName = UNSET
    hook: Annotated[
        str | UnsetType, Meta(description="Of a webhook: its address. The token in it is shown once, when it is made.")
    ] = UNSET


class HookAnswer(Struct):
    """What became of a call to a webhook."""

    run_id: Annotated[
        Id | None, Meta(description="Of the run that was made, now or when the same delivery came before.")
    ]
    state: Annotated[StateWord | None, Meta(description="Of that run.")]
    message: Annotated[str, Meta(description="Why there is no run, or why it waits.")]


class PingAddress(Struct):
    """Where whoever runs a watched job tells of it without a login."""

    job_id: Id
    path: Annotated[str, Meta(description="On any server of the installation. Its last part is a secret.")]


class PingAnswer(Struct):
    """The run that a ping is about."""

    run_id: Annotated[Id, Meta(description="To be given as ?run= with what else is told of it.")]
    state: StateWord


class Retry(Struct):
    attempts: Annotated[int, Meta(description="How often it is tried in all.")]
    backoff_seconds: float
    factor: float
    cap_seconds: float
    jitter: float
    on: Annotated[list[str], Meta(description="Classes of exceptions: only after these it is tried again.")] = []
    never: Annotated[list[str], Meta(description="Classes of exceptions after which it is not.")] = []


class RateLimit(Struct):
    rate: Annotated[str, Meta(description="Starts in a time, such as 100/min.")]
    burst: Annotated[int, Meta(description="Starts at once.")]
    per: Annotated[str, Meta(description="What is counted together: job, owner, queue or data.PATH.")]


class ConcurrencyLimit(Struct):
    limit: Annotated[int, Meta(description="Runs at once.")]
    per: Annotated[str, Meta(description="What is counted together: job, owner, queue or data.PATH.")]


Resources = Annotated[
    dict[str, int | float], Meta(description="By name: cpus, memory in bytes, pieces of all else; a run's slots too.")
]


class Debounce(Struct):
    seconds: Annotated[float, Meta(description="For which no other order may have come.")]
    at_most: Annotated[float | None, Meta(description="Seconds after the first of them.")] = None
    per: Annotated[str, Meta(description="Which are of one kind: job, or data.<path>.")] = "job"


class After(Struct):
    """A job whose run must have ended before."""

    job: Annotated[Id | str, Meta(description="Its id, or its key.")]
    on: Annotated[
        str, Meta(description="How it must have ended.", extra_json_schema={"enum": ["success", "failure", "end"]})
    ] = "success"
    moment: Annotated[
        str, Meta(description="Which of its runs counts.", extra_json_schema={"enum": ["same", "latest"]})
    ] = "same"
    id: Annotated[Id | None, Meta(description="Of that job, as it was found when this one was submitted.")] = None


class Policy(Struct):
    overlap: Annotated[str, Meta(extra_json_schema={"enum": ["forbid", "allow", "queue", "replace"]})]
    overlap_limit: int
    misfire: Annotated[str, Meta(extra_json_schema={"enum": ["run_latest", "run_all", "skip"]})]
    misfire_limit: int
    retry: Retry
    timeout_seconds: float | None
    start_deadline_seconds: float | None
    priority: int
    labels: list[str]
    offered: bool
    synced_at: Annotated[
        int | None,
        Meta(
            description="Of syncs of the lake contract: the last success before the job came here, in microseconds "
            "since 1970. At each start of Horae such a job runs if its last success is longer ago than its interval."
        ),
    ]
    queue: Annotated[str, Meta(description="Where its runs wait.")] = model.DEFAULT_QUEUE_NAME
    share: Annotated[str, Meta(description="With whom they share it: owner, or a path into their data.")] = "owner"
    pause_after_failures: Annotated[
        int | None, Meta(description="Failed runs in a row after which the job pauses itself.")
    ] = None
    rate_limits: list[RateLimit] = []
    concurrency_limits: list[ConcurrencyLimit] = []
    after: Annotated[list[After], Meta(description="Jobs after which it comes.")] = []
    debounce: Annotated[Debounce | None, Meta(description="Of many orders one run.")] = None
    resources: Resources = {}
    every: Annotated[
        str | None,
        Meta(
            description="agent: a run has a child on each live agent that has the kind and the labels.",
            extra_json_schema={"enum": [model.EVERY_AGENT, None]},
        ),
    ] = None
    tags: Annotated[list[str], Meta(description="By which people find it, and are given rights on it.")] = []


class Cursor(Struct):
    """How far the syncs of a job have come."""

    value: Annotated[Any, Meta(description="As its syncs understand it.")]
    run_id: Annotated[Id | None, Meta(description="The run that moved it; null: it was set by hand.")]
    moved_at: When


class Follower(Struct):
    """A job that comes after another."""

    id: Id
    name: str
    key: str | None


class Job(Struct):
    """What to do."""

    id: Id
    name: str
    key: str | None
    owner: str
    org: int
    kind: str
    spec: Object
    policy: Policy
    segment: Annotated[int, Meta(ge=0, le=99)]
    paused: bool
    annotations: Object
    version: Count
    created_at: When
    updated_at: When
    triggers: list[Trigger]
    deleted_at: When | UnsetType = UNSET
    cursor: Annotated[Cursor | UnsetType | None, Meta(description="Of a sync that is read by its id.")] = UNSET
    paused_because: Annotated[str | UnsetType, Meta(description="Why it has paused itself.")] = UNSET
    followers: Annotated[
        list[Follower] | UnsetType, Meta(description="Of a job that is read by its id: those that come after it.")
    ] = UNSET


class Submitted(Struct):
    """The jobs that were made, now or by an earlier request with the same Idempotency-Key."""

    jobs: list[Job]
    replayed: bool
    warnings: Annotated[list[str], Meta(description="What their owner should know, such as what no agent offers.")] = []


class Previewed(Struct):
    at: When
    local: str
    note: str


class Preview(Struct):
    """The next moments of a schedule."""

    dialect: str | None
    description: str
    moments: list[Previewed]


class JobPage(Struct):
    items: list[Job]
    cursor: str | None


class JobChange(Struct):
    """What became of the wish to change a job."""

    job_id: Id
    name: str | UnsetType = UNSET
    outcome: Annotated[
        str | UnsetType,
        Meta(
            extra_json_schema={"enum": ["changed", "unchanged"]},
            description="Of a dry run, what it would be. `unchanged`: it was like that.",
        ),
    ] = UNSET
    error: Problem | UnsetType = UNSET


class JobChanges(Struct):
    items: list[JobChange]


class Day(Struct):
    """How the runs that were made on a day of UTC ended."""

    date: str
    runs: dict[str, int]  # by state


class DayPage(Struct):
    items: list[Day]


class DataSchema(Struct):
    """What the data of a run may be, what it is unless said, and what a run returns."""

    schema: Annotated[
        Object | None, Meta(description="JSON Schema; null: anything goes, or the handler cannot be seen here.")
    ]
    data: Annotated[Object, Meta(description="What the job has itself.")]
    result: Annotated[
        Object | None, Meta(description="JSON Schema of what its runs return; null: anything, or nobody can say.")
    ] = None


class TriggerPage(Struct):
    items: list[Trigger]
    cursor: str | None


class PlannedJob(Struct):
    """What a submit would do with a document."""

    name: str
    key: str | None
    outcome: Annotated[str, Meta(extra_json_schema={"enum": ["created", "changed", "unchanged"]})]
    job_id: Annotated[Id | None, Meta(description="The job that is there.")]
    triggers: list[Preview] = []  # with their next moments, of the first jobs of a request


class SubmitPlan(Struct):
    items: list[PlannedJob]
