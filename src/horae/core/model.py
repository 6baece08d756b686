"""The nouns: job, trigger, run, node, lease, token. Frozen values, no behaviour beyond reading themselves.

Moments are whole microseconds since 1970 in UTC (`…_at`), because the hot tables, the timer and both
databases handle integers ten times cheaper than calendar objects. Text appears only at the borders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, TypeVar, dataclass_transform

from horae.core.roles import Role

SECOND = 1_000_000  # µs
Moment = int  # µs since 1970-01-01T00:00:00Z
Json = dict[str, Any]

SEGMENTS = 100
LOST_LIMIT = 5  # attempts lost with their agent before the run is failed(lost)
DEFAULT_ORG = 1
DEFAULT_QUEUE_NAME = "default"  # of jobs that name none
OWNER_SHARE = "owner"  # a run shares its queue with those of the same owner
LARGEST_ORG = 2**31 - 1
LARGEST_ID = 2**63 - 1  # of jobs, triggers, runs and everything else that the store numbers
JOIN = "join"
SCOPES = ("user", "agent", JOIN)  # what a token is good for: the HTTP API, being an agent, becoming one

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Return a frozen dataclass to the type checker, a plain one when it runs.

    For the values that come by the thousand: making a frozen one takes four times as long.
    """
    return dataclass(slots=True)(cls)


class State(IntEnum):
    """Where a run stands. The numbers are stored: never renumber."""

    QUEUED = 0
    RUNNING = 1
    BLOCKED = 2
    SUCCEEDED = 10
    FAILED = 11
    TIMED_OUT = 12
    CANCELLED = 13
    SKIPPED = 14
    COALESCED = 15

    @cached_property
    def word(self) -> str:
        return self.name.lower()

    @cached_property
    def is_terminal(self) -> bool:
        return self >= State.SUCCEEDED


class Reason(StrEnum):
    """Why a run is where it is. Empty when the state says it all."""

    NONE = ""
    OVERLAP = "overlap"  # another run of the job was live
    MISFIRE = "misfire"  # the moment passed while nobody could fire it
    START_DEADLINE = "start_deadline"  # nobody claimed it in time
    RETRY = "retry"  # waiting for the next attempt
    LATER = "later"  # ordered for a moment that is still to come
    QUEUE_DRAINING = "queue_draining"  # its queue takes nothing new
    OWNER = "owner"  # the owner of its job was disabled, or may not run it any more
    LIMIT = "limit"  # what it must have beyond a slot is not to be had yet
    DEPENDENCY = "dependency"  # it comes after others that have not ended, or ended otherwise
    CHILDREN = "children"  # its tasks, or runs that it called, have not ended
    SIGNAL = "signal"  # it waits to be told something
    SNOOZED = "snoozed"  # it asked to go on later
    DEBOUNCE = "debounce"  # more of the same may come
    REJECTED = "rejected"  # somebody who may decide said no
    LOST = "lost"  # its agent died too often
    EXIT = "exit"  # the work ended with a failure of its own
    ERROR = "error"  # the work could not be started or broke
    TIMEOUT = "timeout"  # the attempt ran longer than allowed
    REQUESTED = "requested"  # somebody cancelled it
    REPLACED = "replaced"  # a newer run took its place
    DELETED = "deleted"  # its job was deleted
    NO_AGENT = "no_agent"  # no live agent can run this kind
    NO_LABEL = "no_label"  # no live agent has the label it asks for
    DESTINATION_BUSY = "destination_busy"  # another run writes what it would write
    OUTPUT_LIMIT = "output_limit"  # it wrote more than allowed
    OOM = "oom"  # it needed more memory than its limit
    PROCESSES = "processes"  # it made more processes than its limit
    BAD_RESULT = "bad_result"  # what it gave cannot be kept
    MISSED = "missed"  # others run it, and did not tell of it in time


class Phase(IntEnum):
    PREPARING = 0
    RUNNING = 1


class NodeState(StrEnum):
    LIVE = "live"
    DRAINING = "draining"
    GONE = "gone"


class OperatorWish(StrEnum):
    """What an operator wants of a node."""

    LIVE = "live"
    CORDONED = "cordoned"  # take nothing new
    DRAINED = "drained"  # and own no segments


class Overlap(IntEnum):
    """What a new run does when its job still has a live one. Stored: never renumber."""

    FORBID = 0
    ALLOW = 1
    QUEUE = 2
    REPLACE = 3


class Misfire(IntEnum):
    """What happens to moments that passed while nobody could fire them."""

    RUN_LATEST = 0
    RUN_ALL = 1
    SKIP = 2


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and how long between. `attempts` counts the first one."""

    attempts: int = 1
    backoff_seconds: float = 1.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 0.1  # share of the wait added or taken, stable per run and attempt
    on: tuple[str, ...] = ()  # classes of exceptions (core.runs.retrying): only these are tried again
    never: tuple[str, ...] = ()  # these are not


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many starts in a time, however long what is started takes."""

    rate: str  # such as 100/min (core.policy.limits)
    burst: int = 1  # starts at once
    per: str = "job"  # or owner, queue, data.<path>: what is counted together


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """So many that run at the same time."""

    limit: int
    per: str = "job"  # as of RateLimit


@dataclass(frozen=True, slots=True)
class After:
    """A job whose run must have ended before (core.policy.dependencies)."""

    job: int | str  # as the document names it: an id, or the key of a job of the same owner
    on: str = "success"  # or failure, end
    moment: str = "same"  # which of its runs: that of the same moment, or the latest
    id: int | None = None  # of that job, found when the document was submitted


@dataclass(frozen=True, slots=True)
class Debounce:
    """Of many orders one run: when no more have come for a while."""

    seconds: float  # after the last
    at_most: float | None = None  # seconds after the first; None: as long as more keep coming
    per: str = "job"  # or data.<path>: which orders are of one kind


@dataclass(frozen=True, slots=True)
class Policy:
    overlap: Overlap = Overlap.FORBID
    overlap_limit: int = 1  # how many may wait under `queue`
    misfire: Misfire = Misfire.RUN_LATEST
    misfire_limit: int = 100  # how many missed moments run under `run_all`; the rest are coalesced
    retry: Retry = Retry()
    timeout_seconds: float | None = None  # of one attempt
    start_deadline_seconds: float | None = None
    priority: int = 5  # 0..9, higher first
    labels: tuple[str, ...] = ()  # an agent must have all of them
    resources: tuple[tuple[str, int], ...] = ()  # that it takes of one agent while it runs (core.policy.resources)
    offered: bool = False  # schedulers outside Horae that hold its segment may fire it first
    synced_at: Moment | None = None  # its last success before it came here; with it, what is overdue runs at a start
    queue: str = DEFAULT_QUEUE_NAME  # where its runs wait, by name (core.policy.queues)
    share: str = OWNER_SHARE  # with whom they share it; or data.<path>: with those that have the same there
    pause_after_failures: int | None = None  # runs in a row after which the job pauses itself
    rate_limits: tuple[RateLimit, ...] = ()
    concurrency_limits: tuple[ConcurrencyLimit, ...] = ()
    after: tuple[After, ...] = ()
    debounce: Debounce | None = None
    tags: tuple[str, ...] = ()  # by which people find it, and are given rights on it (core.rights)
    every: str | None = None  # EVERY_AGENT: a run is a parent, with a child on each agent that can do it


EVERY_AGENT = "agent"


@record
class Trigger:
    """When to do it. `schedule` is the trigger document of core.schedule, in its canonical form."""

    id: int
    job_id: int
    schedule: Json
    data: Json | None
    enabled: bool
    version: int
    next_at: Moment | None  # None: no further moment, or not enabled
    last_at: Moment | None  # the last fired moment
    created_at: Moment
    key: str | None = None  # by which it stays itself when its schedule is changed; unique in its job
    name: str | None = None  # for people
    hook: str | None = None  # hash of the token in the address of a webhook (core.hooks)
    token: str | None = None  # that token itself: only in the answer to whoever has it made, and never stored


@record
class Job:
    """What to do."""

    id: int
    org: int
    owner: str
    name: str
    key: str | None
    kind: str
    spec: Json
    policy: Policy
    segment: int
    paused: bool
    annotations: Json
    version: int
    created_at: Moment
    updated_at: Moment
    deleted_at: Moment | None = None
    triggers: tuple[Trigger, ...] = ()
    part_of: int | None = None  # the workflow of which it is a task that is written there: people see that alone
    followed: bool = False  # others come after it


@record
class Run:
    """The record of one due moment, or of one manual request."""

    id: int
    job_id: int
    trigger_id: int | None  # None: asked for by hand
    due_at: Moment
    state: State
    reason: str
    attempt: int
    fence: int
    priority: int
    kind: str
    created_at: Moment
    data: Json | None = None
    phase: Phase = Phase.PREPARING
    node: str | None = None  # who runs or ran it
    pin: str | None = None  # the only node that may
    lost: int = 0
    eligible_at: Moment | None = None
    cancel_requested: bool = False
    started_at: Moment | None = None
    finished_at: Moment | None = None
    exit_code: int | None = None
    message: str = ""  # one sentence for people
    result: Any = None
    output: str | None = None  # where its output lies, as the Files port names it
    into_run_id: int | None = None  # the run that stands for this coalesced one
    progress: Json | None = None  # while it runs: how far it is (core.work.progress)
    parent_id: int | None = None  # the run of which it is a task,
    task: str | None = None  # and its name there
    replaced: bool = False  # in the answer to an order: it took the place of one that waited (core.policy.debounce)
    awaits: str | None = None  # while it is blocked(signal): the name of what it waits to be told


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that did not end its run: it failed and was retried, or was lost with its agent."""

    run_id: int
    attempt: int
    fence: int
    node: str | None
    state: State
    reason: str
    started_at: Moment | None
    finished_at: Moment
    exit_code: int | None
    message: str
    output: str | None


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt at a run as a history shows it: a past one, or the run's last, which may be still to come."""

    run: Run
    name: str  # of its job
    number: int  # of the attempt, from 1; what is shown under a number stays under it
    since_at: Moment  # since when it waited or ran: the run was made, or the attempt before had ended
    past: Attempt | None = None  # None: the run itself says how it stands


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    roles: tuple[str, ...]
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    slots: int
    version: str
    address: str
    started_at: Moment
    heartbeat_at: Moment  # for display; liveness is judged by watching `beat` move
    beat: int
    state: NodeState = NodeState.LIVE
    busy: int = 0
    grpc: str = ""  # where other nodes and agents reach it; empty for an agent that only calls
    via: str = ""  # the node through which a remote agent comes in; empty for a node on the database itself
    wanted: OperatorWish = OperatorWish.LIVE  # by its operator
    identity: str = ""  # of its data directory: tells a restart from a stranger of the same name
    session: int = 0  # grows with every registration and every new line: what an earlier one asks is refused
    holder: str = ""  # the process, for people: "pid 4711 on build-3"
    ailment: str = ""  # what its machine is short of: it takes nothing new until it has some
    resources: Mapping[str, int] = field(default_factory=dict)  # that its runs may have (core.policy.resources)
    free: Mapping[str, int] = field(default_factory=dict)  # what was free of them when it last said so
    capacity: Mapping[str, int] = field(default_factory=dict)  # kind → runs of it at once, where that is not `slots`
    evicted_at: Moment | None = None  # by an operator: it may not come back


@dataclass(frozen=True, slots=True)
class Lease:
    """Time-limited ownership. `term` fences the previous owner; `beat` moves with every renewal."""

    name: str
    owner: str
    term: int
    beat: int


ANY = "*"  # in the bounds of a token: whatever it may be


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which agent may join with a token, and what it may take."""

    node: str  # its name, or ANY
    kinds: tuple[str, ...] = (ANY,)
    labels: tuple[str, ...] = ()  # that it may say to have
    resources: tuple[str, ...] = ()  # that it may offer, at most: gpu=2


@dataclass(frozen=True, slots=True)
class Token:
    """Proof of who asks, as it is kept: the secret itself is known to its bearer alone."""

    id: int
    name: str
    scope: str  # one of SCOPES
    owner: str  # of what is made with it
    hash: str  # what is kept of the secret: SHA-256, hexadecimal; of agents a verifier (horae.verifiers)
    created_at: Moment
    expires_at: Moment | None = None
    revoked_at: Moment | None = None
    parent_id: int | None = None  # the token by which it was made, with which it ends
    bounds: Bounds | None = None  # of an agent; None is any agent, as of tokens of before there were bounds
    org: int = DEFAULT_ORG  # the organisation of what is made and seen with it
    role: Role = Role.ADMIN  # what a user may do with it
    user_id: int | None = None  # whose it is, where its owner has an account: it may do no more than that user
    used_at: Moment | None = None  # of one to join by: when somebody did; it is good once
    next_hash: str | None = None  # of the secret that takes the place of this one as soon as it is used
    renewed_at: Moment | None = None  # of an agent that joined by itself: when it got the secret that it has


@dataclass(frozen=True, slots=True)
class Secret:
    """What may be known of a secret: all but its value."""

    name: str
    version: int  # how often it was set
    created_at: Moment
    updated_at: Moment


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands: its newest run that was neither skipped nor coalesced, and the newest that has ended."""

    latest: Run | None = None
    ended: Run | None = None


@dataclass(frozen=True, slots=True)
class Loan:
    """A running attempt that a worker outside Horae works at. It is taken back unless renewed in time."""

    run_id: int
    job_id: int
    fence: int
    attempt: int
    worker: str
    until_at: Moment
    progress: Json | None = None  # what the worker said last, as it said it


@dataclass(frozen=True, slots=True)
class Source:
    """Where a sync takes its data from. `config` belongs to the facade that made it."""

    id: int
    org: int
    owner: str
    name: str
    kind: str
    config: Json
    created_at: Moment
    updated_at: Moment


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the syncs of a job have come. What it says belongs to whoever syncs."""

    value: Any  # None: somebody wants them to begin anew
    moved_at: Moment
    run_id: int | None = None  # the run that moved it; None: set by hand


@dataclass(frozen=True, slots=True)
class Found:
    """One stretch of a sorted list, and how many there are in all."""

    items: list[Any]
    total: int
    is_cut: bool = False  # there is more than was looked at: the total counts what was
    is_part: bool = False  # the order too is only of what was looked at, the newest


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Any]
    cursor: str | None = None  # give it back to get the next page; None at the end


@dataclass(frozen=True, slots=True)
class RunFilter:
    job_id: int | None = None
    trigger_id: int | None = None
    states: tuple[State, ...] = ()
    due_from: Moment | None = None
    due_until: Moment | None = None
    org: int | None = None  # of its job
    name: str | None = None  # substring of its job's name; this and the rest only where runs are searched
    kinds: tuple[str, ...] = ()
    not_kinds: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # that run it or ran it
    attempted_by: str | None = None  # a node to which any attempt was given, also one after which it went elsewhere
    parent_id: int | None = None  # tasks of this run,
    task: str | None = None  # with this name there: of a fan-out, all of its items
    tasks: bool = False  # tasks of workflows too
    owner: str | None = None  # of its job
    queue_id: int | None = None  # in which it waits or runs: one that has ended is in none


@dataclass(frozen=True, slots=True)
class LatestRun:
    """What the latest run of a job shall be. Of a job without one, what its annotations say in its place counts."""

    runs: frozenset[tuple[State, Phase]]
    said_at: tuple[str, ...]  # a path in the annotations
    said: frozenset[str | None]  # None: nothing that is known
    known: frozenset[str]
    is_counted: bool = True  # else it is enough to know that there are more than are shown

    @classmethod
    def of(cls, states: Iterable[State], *, is_counted: bool = True) -> LatestRun:
        """Return that it is in one of these states, in whatever phase."""
        runs = frozenset((state, phase) for state in states for phase in Phase)
        return cls(runs, ("none",), frozenset(), frozenset(), is_counted)

    @property
    def is_live(self) -> bool:
        """Whether only jobs that have a live run are meant."""
        return not self.said and not any(state.is_terminal for state, _ in self.runs)

    def has(self, run: tuple[State, Phase] | None, said: str | None) -> bool:
        return run in self.runs if run is not None else (said if said in self.known else None) in self.said


@dataclass(frozen=True, slots=True)
class JobFilter:
    org: int | None = DEFAULT_ORG  # None: of all of them
    owner: str | None = None
    name: str | None = None  # substring
    named: str | None = None  # the whole name
    words: str | None = None  # all of them in the name, or all in the key
    key: str | None = None
    kind: str | None = None
    tag: str | None = None
    queue: str | None = None  # by name: where its runs wait
    paused: bool | None = None
    kinds: tuple[str, ...] = ()
    not_kinds: tuple[str, ...] = ()
    source: int | None = None  # a sync from this source
    deleted: bool = False  # tombstones instead
    made_for: str | None = None  # the user whom the RPC contract names; of jobs without one, the owner
    latest: LatestRun | None = None  # in lists that are paged by number


@dataclass(frozen=True, slots=True)
class Census:
    """How much of everything there is: for /metrics, /readyz and the overview page."""

    jobs: int = 0
    triggers: int = 0
    live: dict[str, int] = field(default_factory=dict)  # state word → runs
    oldest_due_at: Moment | None = None
    oldest_queued_at: Moment | None = None
