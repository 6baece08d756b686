"""What the API shows: the form of every answer.

The structs are the contract: the server encodes them with msgspec, web/openapi.py takes their schemas from the types,
and the client reads them, so that what is sent is what is documented and what a program gets. Moments are RFC 3339 in
UTC; ids are whole numbers. A field that is added has a default, so that a newer client reads an older server.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from horae.core import model
from horae.core.identity import UserKind
from horae.core.roles import ROLE_PATTERN

Id = Annotated[int, Meta(ge=1, le=model.LARGEST_ID)]
Count = Annotated[int, Meta(ge=0)]
When = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, examples=["2027-03-28T02:30:00Z"])]
StateWord = Annotated[str, Meta(extra_json_schema={"enum": [state.word for state in model.State]})]
Object = dict[str, Any]
JobName = Annotated[str | UnsetType, Meta(description="Name of its job, in lists and where one is read.")]


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


class Callback(Struct):
    """Where a run can be told something without a login."""

    run_id: Id
    name: str
    path: Annotated[str, Meta(description="On any server of the installation. Its last part is a secret.")]


class CallbackAnswer(Struct):
    """What a run was told, now or when the same came before."""

    run_id: Id
    name: str


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


class Node(Struct):
    name: str
    state: str
    roles: list[str]
    kinds: list[str]
    labels: list[str]
    slots: int
    busy: int
    version: str
    address: Annotated[str, Meta(description="Of its API; empty for a remote agent.")]
    started_at: When
    heartbeat_at: When
    via: Annotated[str, Meta(description="The node through which a remote agent comes in.")]
    wanted: Annotated[str, Meta(extra_json_schema={"enum": ["live", "cordoned", "drained"]})]
    segments: Annotated[int, Meta(ge=0, le=100, description="How many of the 100 segments it schedules.")]
    ailment: Annotated[
        str,
        Meta(description="What its machine is short of: it takes nothing new until it has some. Empty: it is well."),
    ]
    resources: Annotated[Resources, Meta(description="What runs may have of it beside slots.")] = {}
    free: Annotated[Resources, Meta(description="What of that was free when it last said so.")] = {}
    capacity: Annotated[dict[str, int], Meta(description="Slots of the kinds of work that it does.")] = {}
    evicted_at: Annotated[When | None, Meta(description="When an operator sent it off for good.")] = None


class Handler(Struct):
    """A Python handler of an agent."""

    name: Annotated[str, Meta(description="As a job names it.")]
    node: str
    kind: Annotated[str, Meta(description="async, plain or inline; empty where that cannot be told.")]
    version: Annotated[str, Meta(description="Of its code: the same on every node where that says the same.")]
    file: str
    loaded_at: Annotated[When | None, Meta(description="When a worker loaded this version, if one has.")]
    error: Annotated[str, Meta(description="Why it cannot be used; empty if it can.")]


class HandlerNode(Struct):
    """What a node with an agent told of its handlers."""

    name: str
    state: Annotated[
        str,
        Meta(
            description="silent: it did not answer in time. unknown: it cannot be asked.",
            extra_json_schema={"enum": ["listed", "silent", "unknown"]},
        ),
    ]
    note: Annotated[str, Meta(description="Why its handlers are not in the list, or not all; empty if they are.")]


class HandlerPage(Struct):
    items: list[Handler]
    nodes: Annotated[list[HandlerNode], Meta(description="Those that were asked, by name.")]
    cursor: None = None


class Segment(Struct):
    segment: Annotated[int, Meta(ge=0, le=99)]
    owner: str
    term: Count


class Census(Struct):
    """How much of everything there is."""

    jobs: Count
    triggers: Count
    live: dict[str, int]
    oldest_due_at: When | None
    oldest_queued_at: When | None


class CatchUp(Struct):
    """What the node that answers has still to record of moments that were missed."""

    triggers: Count
    moments: Annotated[Count, Meta(description="About how many.")]


class Overview(Struct):
    """What the front page shows. `names` maps ids of jobs to their names; `unreadable` maps ids of triggers that the
    node that answers cannot fire to the reason."""

    at: When
    node: str
    census: Census
    nodes: list[Node]
    live: list[Run]
    recent: list[Run]
    due: list[Trigger]
    names: dict[str, str]
    catch_up: CatchUp
    unreadable: dict[str, str]


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


class Day(Struct):
    """How the runs that were made on a day of UTC ended."""

    date: str
    runs: dict[str, int]  # by state


class DayPage(Struct):
    items: list[Day]


class DataSchema(Struct):
    """What the data of a run may be, and what it is unless said."""

    schema: Annotated[
        Object | None, Meta(description="JSON Schema; null: anything goes, or the handler cannot be seen here.")
    ]
    data: Annotated[Object, Meta(description="What the job has itself.")]


class TriggerPage(Struct):
    items: list[Trigger]
    cursor: str | None


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


class NodePage(Struct):
    items: list[Node]
    cursor: None = None


class SegmentPage(Struct):
    items: list[Segment]
    cursor: None = None


class Artifact(Struct):
    """A file that a run kept."""

    path: str
    size: int


class ArtifactPage(Struct):
    items: list[Artifact]
    cursor: None = None


class Token(Struct):
    """A token, without its secret."""

    id: Id
    name: str
    scope: Annotated[str, Meta(extra_json_schema={"enum": list(model.SCOPES)})]
    owner: Annotated[str, Meta(description="Who owns what is made with it.")]
    state: Annotated[str, Meta(extra_json_schema={"enum": ["good", "expired", "revoked", "used"]})]
    created_at: When
    expires_at: When | None
    revoked_at: When | None
    parent_id: Annotated[Id | None, Meta(description="The token by which it was made, with which it ends.")]
    org: Annotated[int, Meta(description="The organisation of what is made and seen with it.")]
    role: Annotated[
        str | None,
        Meta(description="What may be done with it: a role, or a list of permissions. Null of an agent."),
    ]
    node: Annotated[
        str | None, Meta(description="The agent that it is for, `*` for any; of an agent without one, any.")
    ]
    kinds: Annotated[list[str] | None, Meta(description="What that agent may take; `*` is any.")]
    labels: Annotated[list[str] | None, Meta(description="What that agent may say to have; `*` is any.")]
    resources: Annotated[list[str] | None, Meta(description="What that agent may offer at most: gpu=2; `*` is any.")]


class NewToken(Token):
    """A token that was just made. Its text is not shown again."""

    token: Annotated[str, Meta(description="What to send: Authorization: Bearer …")]


class Grant(Struct):
    """A role that somebody has on some jobs: of `job`, `tag` and `queue`, one says which."""

    id: int
    who: Annotated[str, Meta(description="The name of a user, or the owner of tokens.")]
    role: Annotated[str, Meta(extra_json_schema={"enum": ["operator", "editor"]})]
    job: int | None
    tag: str | None
    queue: str | None
    created_at: str
    created_by: str


class GrantPage(Struct):
    items: list[Grant]
    cursor: str | None = None


class TokenPage(Struct):
    items: list[Token]
    cursor: None = None


class Me(Struct):
    """Who asks."""

    name: str
    org: Annotated[int, Meta(description="The organisation of what is made and seen.")]
    role: Annotated[str, Meta(extra_json_schema={"pattern": ROLE_PATTERN})]
    via: Annotated[str, Meta(description="What proves it: local, token 7, session 12.")]
    user_id: Annotated[Id | None, Meta(description="Null of who has no account.")]
    orgs: Annotated[list[int], Meta(description="Organisations in which it may go on; 0: all of them.")]


class Session(Struct):
    """A login, without its secret."""

    id: Id
    org: int
    created_at: When
    seen_at: Annotated[When, Meta(description="About when it was last used.")]
    expires_at: Annotated[When, Meta(description="When it ends if nobody uses it any more.")]
    address: Annotated[str, Meta(description="From where it was opened.")]
    agent: Annotated[str, Meta(description="With what.")]
    issuer: Annotated[str, Meta(description="Who vouched for its user; empty for a password.")]
    is_current: Annotated[bool, Meta(description="Whether it is the one that asks.")]


class SessionPage(Struct):
    items: list[Session]
    cursor: None = None


class User(Struct):
    """Somebody who may log in, or a program."""

    id: Id
    name: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(UserKind)})]
    email: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["good", "disabled"]})]
    created_at: When
    roles: Annotated[dict[str, str], Meta(description="Role by organisation; `*` stands for all of them.")]


class UserPage(Struct):
    items: list[User]
    cursor: str | None = None


class Invitation(Struct):
    """What somebody sets a password with, once. It is not shown again."""

    user: str
    link: Annotated[str, Meta(description="The page to open; only its path where nobody said how it is reached.")]
    expires_in: Annotated[int, Meta(description="Seconds.")]


class Organisation(Struct):
    id: Id
    name: str
    created_at: When


class OrganisationPage(Struct):
    items: list[Organisation]
    cursor: None = None


class Member(Struct):
    name: str
    role: Annotated[str, Meta(extra_json_schema={"pattern": ROLE_PATTERN})]
    source: Annotated[str, Meta(description="`manual`, or the issuer whose claims said so.")]


class MemberPage(Struct):
    items: list[Member]
    cursor: None = None


class DeviceLogin(Struct):
    """A program that waits to be let in (RFC 8628)."""

    device_code: Annotated[str, Meta(description="For the program itself.")]
    user_code: Annotated[str, Meta(description="For the user to type.")]
    verification_uri: Annotated[str, Meta(description="Where to type it.")]
    expires_in: Annotated[int, Meta(description="Seconds.")]
    interval: Annotated[int, Meta(description="Seconds between two questions.")]


class AuditRow(Struct):
    """What somebody did, was refused, or was given."""

    id: Id
    at: When
    org: int
    who: Annotated[str, Meta(description="Name of who asked; empty: a stranger, or Horae itself.")]
    via: Annotated[str, Meta(description="What proved it: local, a token, a session, an agent.")]
    address: Annotated[str, Meta(description="From where.")]
    action: Annotated[str, Meta(description="The permission that it needs.")]
    operation: str
    kind: Annotated[str, Meta(description="Of what it was done to.")]
    subject: Annotated[str, Meta(description="Its id or name.")]
    made: Annotated[str, Meta(description="Ids of what was made: one, or the first and the last.")]
    count: int
    change: Annotated[Any, Meta(description="What is different: path → [before, after]. Secrets are left out.")]
    request_id: str
    nth: Annotated[int, Meta(description="Row of the request, from 0.")]
    outcome: Annotated[str, Meta(extra_json_schema={"enum": ["done", "failed", "refused", "read"]})]
    code: Annotated[str, Meta(description="Of the error.")]
    seq: Annotated[int | None, Meta(description="Its number, once it is sealed.")]
    hash: Annotated[str | None, Meta(description="Of the row and the hash of the one before it.")]


class AuditPage(Struct):
    items: list[AuditRow]
    cursor: str | None


class AuditFault(Struct):
    """Where the chain of the audit log is broken."""

    seq: int
    what: Annotated[str, Meta(extra_json_schema={"enum": ["missing", "changed", "inserted"]})]
    id: int | None
    message: str


class AuditCheck(Struct):
    """What was found in the next rows of the audit log."""

    checked: int
    faults: list[AuditFault]
    first: Annotated[int, Meta(description="Number of the first row that is kept.")]
    head: Annotated[str, Meta(description="Number and hash of the last sealed row, to be written down elsewhere.")]
    cursor: Annotated[str | None, Meta(description="Where to go on; null: that was all.")]


class Secret(Struct):
    """A secret, without its value."""

    name: str
    version: Annotated[int, Meta(ge=1, description="How often it was set.")]
    created_at: When
    updated_at: When


class SecretPage(Struct):
    items: list[Secret]
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


class QueueFigures(Struct):
    """How a queue stands. Counts stop at some limit: then they say at least how much there is."""

    waiting: Annotated[Count, Meta(description="Runs that wait for an agent.")]
    waiting_is_cut: Annotated[bool, Meta(description="There are more.")]
    blocked: Annotated[dict[str, int], Meta(description="Runs that wait for something else, by reason.")]
    blocked_is_cut: Annotated[bool, Meta(description="There are more, of this queue or of others.")]
    running: Count
    oldest_due_at: Annotated[When | None, Meta(description="Due moment of what waits longest for an agent.")]
    oldest_wait_seconds: float | None
    in_last_minute: Annotated[Count, Meta(description="Runs that came.")]
    out_last_minute: Annotated[Count, Meta(description="Runs that ended.")]


class Queue(Struct):
    """Where runs wait for an agent."""

    name: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["open", "paused", "draining"]})]
    priority_offset: int
    labels: list[str]
    kinds: list[str]
    concurrency: int | None
    rate: str | None
    burst: int
    weights: dict[str, int]
    most_waiting: int | None
    org: Annotated[int | None, Meta(description="The organisation that it belongs to; null: it is for all.")]
    version: Count
    created_at: Annotated[When | None, Meta(description="Null for the default queue, which was always there.")]
    updated_at: When | None
    figures: QueueFigures | UnsetType = UNSET


class QueuePage(Struct):
    items: list[Queue]
    cursor: None = None


class AlertRule(Struct):
    """Of what somebody is to be told."""

    name: str
    when: str
    job: int | str | None
    owner: str | None
    queue: str | None
    count: int | None
    after: Annotated[float | None, Meta(description="Seconds.")]
    above: Annotated[float | None, Meta(description="Percent.")]
    channels: list[str]
    tell: str
    wait: Annotated[float, Meta(description="Seconds.")]
    every: Annotated[float, Meta(description="Seconds.")]
    repeat: Annotated[float, Meta(description="Seconds.")]
    quiet: dict[str, str] | None
    enabled: bool
    version: Count
    created_at: When
    updated_at: When


class AlertRulePage(Struct):
    items: list[AlertRule]
    cursor: None = None


class AlertChannel(Struct):
    """By which somebody is told. It names secrets, and holds none."""

    name: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": ["webhook", "slack", "teams", "email", "command"]})]
    url: str | dict[str, str] | None
    secret: dict[str, str] | None
    to: list[str] | None
    version: Annotated[Count, Meta(description="0 of a command of the settings.")]
    created_at: When | None
    updated_at: When | None


class AlertChannelPage(Struct):
    items: list[AlertChannel]
    cursor: None = None


class Alert(Struct):
    """Something that goes on, of which a rule is."""

    id: Id
    rule: str
    subject: Annotated[str, Meta(description="job:12, node:NAME, queue:NAME; empty: all that the rule is of.")]
    name: Annotated[str, Meta(description="The same for people.")]
    count: Annotated[Count, Meta(description="How often it was seen since it opened.")]
    since_at: When
    last_at: When
    text: Annotated[str, Meta(description="What was seen last.")]
    run_id: Id | None
    told_at: Annotated[When | None, Meta(description="When somebody was last told of it.")]
    acked_at: Annotated[When | None, Meta(description="Since when somebody knows of it: it is told no more.")]
    acked_by: str | None


class AlertPage(Struct):
    items: list[Alert]
    cursor: str | None = None


class AlertDelivery(Struct):
    """A message on its way to a channel."""

    id: Id
    rule: str
    channel: str
    title: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["waiting", "sent", "failed"]})]
    tries: Count
    made_at: When
    next_at: Annotated[When | None, Meta(description="When it is tried again, while it waits.")]
    sent_at: When | None
    error: str


class AlertDeliveryPage(Struct):
    items: list[AlertDelivery]
    cursor: None = None


class AlertTest(Struct):
    """What came of a message by which a channel was tried."""

    channel: str
    is_sent: bool
    detail: str
    seconds: float


class Limit(Struct):
    """What holds for all runs that are counted together, and how it stands."""

    key: Annotated[str, Meta(description="Under which they are counted.")]
    name: Annotated[str, Meta(description="The same for people, such as: owner ann.")]
    per: Annotated[str, Meta(description="job, owner, queue, data.<path>; resource for what the cluster has.")]
    capacity: Annotated[int | None, Meta(description="Units that may be in use at once; null: any number.")]
    rate: Annotated[str | None, Meta(description="Starts, such as 100/min; null: as many as come.")]
    burst: Count
    used: Annotated[Count, Meta(description="Units in use.")]
    waiting: Annotated[Count, Meta(description="Runs that wait with it, for this or another limit.")]
    next_at: Annotated[When | None, Meta(description="When its rate allows the next start; null without a rate.")]
    runs: Annotated[list[Id], Meta(description="Some of those that use it.")]


class LimitPage(Struct):
    items: list[Limit]
    cursor: None = None


class Resource(Struct):
    """Something that the whole cluster has, counted."""

    name: str
    capacity: Count
    used: Count
    waiting: Annotated[Count, Meta(description="Runs that wait and want some of it.")]


class ResourcePage(Struct):
    items: list[Resource]
    cursor: None = None


class KeyRotation(Struct):
    key: str
    resealed: int
    unopened: int
    old: list[str]


class Health(Struct):
    status: str
    version: str | UnsetType = UNSET
    node: str | UnsetType = UNSET


class Readiness(Struct):
    ready: bool
    checks: dict[str, str]


class FieldError(Struct):
    path: str
    code: str
    message: str
    hint: str | UnsetType = UNSET


class Problem(Struct):
    """Why a request was not done (RFC 9457). `code` is stable; every code is explained on /docs."""

    type: str
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    code: Annotated[str, Meta(pattern="^E_[A-Z_]+$")]
    detail: str
    request_id: str
    errors: list[FieldError]
    hint: str | UnsetType = UNSET


class Rerun(Struct):
    """What became of the wish to run a run again: the new run, or why there is none."""

    run_id: Annotated[Id, Meta(description="The run that was to be run again.")]
    run: Annotated[Run | UnsetType, Meta(description="The new run; of a dry run, the old one.")] = UNSET
    error: Problem | UnsetType = UNSET


class RerunAnswers(Struct):
    items: list[Rerun]


class PlannedJob(Struct):
    """What a submit would do with a document."""

    name: str
    key: str | None
    outcome: Annotated[str, Meta(extra_json_schema={"enum": ["created", "changed", "unchanged"]})]
    job_id: Annotated[Id | None, Meta(description="The job that is there.")]
    triggers: list[Preview] = []  # with their next moments, of the first jobs of a request


class SubmitPlan(Struct):
    items: list[PlannedJob]


SHOWN = (
    After, Alert, AlertChannel, AlertChannelPage, AlertDelivery, AlertDeliveryPage, AlertPage, AlertRule, AlertRulePage,
    AlertTest, Approval, ApprovalPage, Artifact, ArtifactPage, Attempt, AuditCheck, AuditFault, AuditPage, AuditRow,
    Callback, CallbackAnswer, CatchUp, Census, ConcurrencyLimit,
    Cursor, DataResult, DataSchema, Day, DayPage, Debounce, Event, EventPage, FieldError, Follower, Grant,
    GrantPage, Handler, HandlerNode, HandlerPage, Health, HookAnswer, Job, JobPage, KeyRotation, Limit, LimitPage,
    NewToken, Node, NodePage,
    Overview, PingAddress, PingAnswer, PlannedJob, Policy, Preview, Previewed, Problem, Progress, Queue, QueueFigures,
    QueuePage, RateLimit,
    Readiness, Rerun, RerunAnswers, Resource, ResourcePage, Retry, Run, RunDetail, RunPage, Secret, SecretPage,
    Segment, SegmentPage, Share, SubmitPlan, Submitted, TableResult, Task, Token, TokenPage, Trigger, TriggerPage,
    DeviceLogin, Invitation, Me, Member, MemberPage, Organisation, OrganisationPage, Session, SessionPage, User,
    UserPage,
)  # fmt: skip
