"""Runs on their way: what fires and makes them, what is claimed, held and finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from horae.core.audit import Deed
from horae.core.definitions import Idempotency, Receipt
from horae.core.model import DEFAULT_ORG, Json, Moment, Overlap, State, record
from horae.core.policy.debounce import Calm
from horae.core.policy.demands import Demand
from horae.core.policy.queues import DEFAULT_QUEUE
from horae.core.waits import Wait

NEVER: Moment = 2**63 - 1  # the due moment of a trigger that has none


class Due(NamedTuple):
    """A row of the due table, in the order in which a heap wants it."""

    next_at: Moment
    trigger_id: int
    version: int
    segment: int
    reserved: int | None  # id kept for the run that will stand for moments already coalesced


class Definition(NamedTuple):
    """What the scheduler must know of a trigger and its job to fire it."""

    trigger_id: int
    version: int
    job_id: int
    schedule: str  # canonical JSON text
    created_at: Moment
    data: str | None  # JSON text
    kind: str
    policy: str  # JSON text
    owner: str = ""  # of the job, as the rest
    org: int = DEFAULT_ORG
    annotations: str = "{}"  # JSON text
    spec: str | None = None  # JSON text, where the policy looks at data
    followed: bool = False  # others come after it


@dataclass(slots=True)
class NewRun:
    """A run to be made, before overlap is decided."""

    job_id: int
    kind: str
    priority: int
    overlap: int
    overlap_limit: int = 1
    start_by: Moment | None = None
    data: str | None = None  # JSON text
    needs: tuple[str, ...] = ()
    pin: str | None = None
    queue: int = DEFAULT_QUEUE
    share: str = ""  # with whom it shares its place among others of its queue and priority (core.policy.order)
    weight: int = 1  # of that share
    demand: int | None = None  # what it must have beyond a slot; such a run is born blocked(limit)
    parent_id: int | None = None  # the run of which it is a task,
    task: str | None = None  # and its name there
    followed: bool = False  # its end is noted for those who wait for it (ports.store.endings)
    depends: bool = False  # it comes after others: such a run is born blocked(dependency)
    resumes: int | None = None  # the run of a workflow of which it takes over what succeeded
    barred: bool = False  # the owner of its job may not run it: whoever writes it skips it
    placed_at: float = float("-inf")  # by the watch of this process: when queue, share and demand were decided


# Of runs that come by the hundred, thousands a second: lists, because `any` of a generator takes three times as long.


def concern_others(runs: Sequence[NewRun]) -> bool:
    """Return whether somebody acts on the birth or the end of any of these, beside agents (ports.store.endings)."""
    return bool([run for run in runs if run.depends or run.followed])


def highest_overlap(runs: Sequence[NewRun]) -> int:
    """Return the policy of theirs that asks for most: `queue` and `replace` have more to be done."""
    return max([run.overlap for run in runs], default=Overlap.FORBID)


@dataclass(slots=True)
class Fire:
    """Advance one trigger and account for its moments.

    If `born`, the moment `due_at` becomes a run like `run`. `passed` are further moments in order,
    each with its terminal state and reason; those COALESCED point at that run, or, with `reserve`, at
    a run id kept in the due row for a later Fire, which brings it back as `reserved`.
    """

    trigger_id: int
    segment: int
    version: int
    cur_at: Moment  # what the due row says now: the compare of compare-and-set
    next_at: Moment  # what it shall say: NEVER when over
    last_at: Moment | None  # the newest moment accounted for; None when it was only moved
    run: NewRun
    due_at: Moment  # the moment that runs
    born: bool = True
    passed: list[tuple[Moment, State, str]] = field(default_factory=list)
    reserved: int | None = None
    reserve: bool = False

    @property
    def newest(self) -> Moment:
        """The last moment that it accounts for: what lies after the store's now is nobody's to account for yet."""
        newest = self.cur_at if self.last_at is None else max(self.cur_at, self.last_at)
        if self.born and self.due_at > newest:
            newest = self.due_at
        return max(newest, *(at for at, _, _ in self.passed)) if self.passed else newest


@dataclass(frozen=True, slots=True)
class Fired:
    """What one `fire` call did."""

    advanced: set[int]  # trigger ids whose compare-and-set held
    queued: int  # runs now waiting for an agent
    skipped: int  # runs born skipped(overlap)
    now: Moment  # the store's clock
    stale: frozenset[int] = frozenset()  # segments that have another term by now: nothing of theirs was fired
    reserved: Mapping[int, int] = field(default_factory=dict)  # trigger id → run id that was kept for it (`reserve`)


class Lend(NamedTuple):
    """To whom a run is lent, and until when."""

    worker: str
    until_at: Moment
    pin: str | None = None  # who alone gets it from now on (core.runs.stages.outside_pin); None: as it was


class Kept(NamedTuple):
    """A queued run that only workers outside Horae may have."""

    run_id: int
    job_id: int
    progress: Json | None  # what its last worker said, as it said it


@dataclass(frozen=True, slots=True)
class LastRun:
    trigger_id: int
    is_live: bool
    finished_at: Moment | None


class MadeRun(NamedTuple):
    """A new run with its id, about to be written."""

    run_id: int
    run: NewRun
    trigger_id: int | None
    due_at: Moment
    created_at: Moment


class Outcome(NamedTuple):
    """What a new run became when it was written."""

    state: State
    reason: str = ""
    message: str = ""


class Placed(NamedTuple):
    """What an order that waits has had since it was placed."""

    run_id: int
    created_at: Moment


@record
class Order:
    """A request to run a job: now, or at a moment that is still to come."""

    run: NewRun
    idempotency: Idempotency | None = None
    version: int | None = None  # of the job from which it was made; None: whatever it is
    run_at: Moment | None = None  # until then it waits, if that is still to come
    start_within: int | None = None  # µs from the moment it is due to its start deadline; None: as `run` says
    placed: Placed | None = None  # of one that has waited until now
    trigger_id: int | None = None  # by which it was asked for, if that has no moments of its own
    calm: Calm | None = None  # for what it waits, if others of its kind may come
    deed: Deed | None = None  # of whoever asks

    def made(self, run_id: int, now: Moment) -> MadeRun:
        """Return its run; one that is late is due when it is asked for."""
        is_set = self.placed is not None or self.is_later(now)
        due_at = self.run_at if is_set and self.run_at is not None else now
        run = self.run
        if self.start_within is not None:
            run = replace(run, start_by=due_at + self.start_within)
        return MadeRun(run_id, run, self.trigger_id, due_at, self.placed.created_at if self.placed else now)

    @property
    def is_ordinary(self) -> bool:
        """Whether it is for now, for itself alone, and may run."""
        return self.run_at is None and self.placed is None and self.calm is None and not self.run.barred

    @property
    def may_start_at_once(self) -> bool:
        """Whether its run would wait for a slot alone, on any node."""
        run = self.run
        is_free = run.demand is None and not run.depends and not run.needs and run.pin is None
        is_whole = run.parent_id is None and run.resumes is None
        is_in_time = run.start_by is None and (self.start_within is None or self.start_within > 0)
        return self.is_ordinary and is_free and is_whole and is_in_time

    def is_later(self, now: Moment) -> bool:
        """Return whether it has to wait for its moment. Its overlap policy is decided then, not before."""
        return self.placed is None and self.run_at is not None and self.run_at > now and not self.run.barred


class Assignment(NamedTuple):
    """A claimed run: everything an agent needs to execute one attempt."""

    run_id: int
    fence: int
    attempt: int
    job_id: int
    trigger_id: int | None
    due_at: Moment
    kind: str
    name: str  # of the job
    spec: str  # JSON text, equal for equal jobs: cache by it
    policy: str  # JSON text
    data: str | None  # JSON text
    owner: str = ""  # of the job
    secrets: str | None = None  # JSON text, name → value, of a spec that refers to some; null where it has none
    source: str | None = None  # JSON text: the source that its spec names, secrets in clear
    cursor: str | None = None  # JSON text: how far the job's earlier syncs have come
    answers: str | None = None  # JSON text: what it was told while it waited, by the name of the signal
    callbacks: str | None = None  # of a handler: the key of its addresses, and where they are (core.waits)
    root: int | None = None  # the run at the top, of one that is a task: whose trace it is part of

    def __repr__(self) -> str:
        """Without anything that could be secret: this may end in a log."""
        return f"Assignment(run_id={self.run_id}, fence={self.fence}, attempt={self.attempt}, kind={self.kind!r})"


class Started(NamedTuple):
    """What became of an order whose run was to start as it was made."""

    receipt: Receipt
    assignment: Assignment | None  # None: it was made, and was not started


class Claimed(NamedTuple):
    """What claims of runs that demand more than a slot came to (core.policy.admission)."""

    given: list[list[Assignment] | None]  # to each offer; None: of a session that is over
    room: list[dict[str, int]]  # that each offer has left, by kind
    is_waiting: bool = False  # such runs wait
    is_cut: bool = False  # and some of them could start, if there were room, or if one looked again
    wait: float | None = None  # seconds until a rate allows another start
    holding: Mapping[int, Demand] = MappingProxyType({})  # of the runs that were started, those that demand something
    wanted: frozenset[str] | None = None  # the keys of those that wait; None: they may want something of an agent


@dataclass(slots=True)
class Result:
    """How one attempt ended, as its agent saw it."""

    run_id: int
    fence: int
    state: State  # SUCCEEDED, FAILED, TIMED_OUT or CANCELLED; QUEUED hands it back unstarted; BLOCKED: `wait`
    reason: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None
    exit_code: int | None = None
    message: str = ""
    result: str | None = None  # JSON text
    output: str | None = None
    retry_after: float | None = None  # seconds, when the work itself asked for a retry
    final: bool = False  # the work said that a retry cannot help
    cursor: str | None = None  # JSON text: how far a sync has come; kept only with the run that succeeds by this result
    ailment: str = ""  # what the machine of the agent is short of: for the agent alone, who takes no more for a while
    wait: Wait | None = None  # for what, if it goes on later


@dataclass(frozen=True, slots=True)
class Waiting:
    """A Result that does not end its run: back to blocked until `eligible_at`, or to queued."""

    result: Result
    eligible_at: Moment | None
    lost: bool = False
    begun: bool = True  # else it was no attempt: it is not counted, and leaves no record but its message
    wait: Wait | None = None  # of one that is not over: it is not counted either, and its output is kept


@dataclass(frozen=True, slots=True)
class Held:
    """What decides about a run whose attempt has failed."""

    run_id: int
    attempt: int
    lost: int
    policy: str
    cancel_requested: bool
    trigger_id: int | None
    job_id: int
    progress: Json | None = None  # as its attempt last told it
    root: int | None = None  # as of Assignment


@dataclass(frozen=True, slots=True)
class Finished:
    accepted: set[int]  # run ids whose fence was current
    promoted: int  # successors that took the gate and wait for an agent now
    demanding: int = 0  # of those, who demand more than a slot
    noted: bool = False  # somebody waits for the end of a run that has ended (ports.store.endings)


@dataclass(frozen=True, slots=True)
class Cancelled:
    ended: set[int]  # were waiting, are now cancelled
    asked: dict[int, str]  # are running: run id → node that must kill it
    promoted: int = 0
    marked: frozenset[int] = frozenset()  # wait for their children, and end when the last of those has
    noted: bool = False  # there is something to act on now (ports.store.endings)


@dataclass(frozen=True, slots=True)
class Swept:
    """One pass over waiting runs."""

    queued: int  # released: wait for an agent now, those that demand more than a slot among them
    expired: int  # skipped(start_deadline)
    next_at: Moment | None  # when the next waiting run becomes eligible or expires
    demanding: int = 0  # of those that were released
    noted: bool = False  # servers may have something to do: a parent took too long, an expired run has followers, …


class Want(NamedTuple):
    """How many runs of a kind a node could start."""

    node: str
    kind: str
    capacity: int
    session: int | None = None  # under which it asks: see Store.register_node


class Backlog(NamedTuple):
    """Runs that wait for an agent, counted."""

    kind: str
    pin: str | None  # the node that alone may take them
    needs: Sequence[str]  # labels that an agent must have
    runs: int


class Queued(NamedTuple):
    """A run that waits for an agent."""

    run_id: int
    attempt: int  # the fence that its next claim gets at least: one that has waited keeps its number, and not this
    kind: str
    priority: int
    is_choosy: bool  # it needs labels or a certain node: not every agent of its kind may take it


class LockRequest(NamedTuple):
    """What an attempt writes, and so must have for itself."""

    run_id: int
    fence: int
    names: tuple[str, ...]
    start_by: Moment | None = None  # the start deadline of one that never began: it binds while it waits
