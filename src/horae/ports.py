"""Every seam of the system in one file. The docstrings are the contract; tests/contract checks them.

Store      state: jobs, due moments, live runs, history, nodes, leases, tokens (stores/)
Queue      wakes a waiting agent when a run is queued; a hint, never truth  (queues/)
Courier    takes word of queued runs to agents behind a broker                (queues/)
Poster     keeps events for others to read                                    (queues/)
Link       how an agent reaches the service: claim, finish, beat            (service/execution, links/)
Executor   does one kind of work                                            (executors/)
Keeper     the process that starts and kills work                           (executors/process)
Sandbox    where a process runs                                             (sandboxes/)
Files      output of attempts                                               (files)
Keys       seals secrets with a key outside the store                       (keys)
Spool      what a remote agent has not delivered yet                        (links/spool)
Peers      other servers of the cluster                                     (links/peers)
Clock      time, so that tests can move it
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, runtime_checkable

from horae.core.holdings import Fenced, Holding
from horae.core.model import (
    Attempt,
    Census,
    Cursor,
    Found,
    Job,
    JobFilter,
    Json,
    Lease,
    Loan,
    Moment,
    Node,
    Page,
    Phase,
    Run,
    RunFilter,
    Secret,
    Source,
    Standing,
    State,
    Token,
    Trigger,
)
from horae.errors import Superseded

NEVER: Moment = 2**63 - 1  # the due moment of a trigger that has none


class Clock(Protocol):
    def now(self) -> Moment:
        """Wall time."""

    def elapsed(self) -> float:
        """Seconds on a clock that never jumps and counts suspend; only differences mean anything."""

    async def sleep(self, seconds: float) -> None: ...


# ── values that cross the store ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's promise that a repeat is the same request."""

    scope: str  # who and what: principal, method, path
    key: str
    digest: str  # of the request body


@dataclass(frozen=True, slots=True)
class Submission:
    """One request to create jobs; all of them or none. Ids are set (see Store.allocate)."""

    jobs: Sequence[Job]
    idempotency: Idempotency | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a Submission, a save or an Order: ids made or saved now, or by an earlier same request."""

    ids: list[int]
    replayed: bool = False
    mismatch: bool = False  # the key was used for a different request; nothing was done
    key_taken: str | None = None  # a job key exists already; nothing was done


class Due(NamedTuple):
    """A row of the due table with what firing needs of the definition."""

    trigger_id: int
    next_at: Moment
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


@dataclass(slots=True)
class Birth:
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


@dataclass(slots=True)
class Fire:
    """Advance one trigger and account for its moments.

    If `born`, the moment `due_at` becomes a run like `birth`. `passed` are further moments in order,
    each with its terminal state and reason; those COALESCED point at that run, or, with `reserve`, at
    a run id kept in the due row for a later Fire, which brings it back as `reserved`.
    """

    trigger_id: int
    segment: int
    version: int
    cur_at: Moment  # what the due row says now: the compare of compare-and-set
    next_at: Moment  # what it shall say: NEVER when over
    last_at: Moment | None  # the newest moment accounted for; None when it was only moved
    birth: Birth
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


@dataclass(frozen=True, slots=True)
class Order:
    """A request to run a job now."""

    birth: Birth
    idempotency: Idempotency | None = None


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

    def __repr__(self) -> str:
        """Without anything that could be secret: this may end in a log."""
        return f"Assignment(run_id={self.run_id}, fence={self.fence}, attempt={self.attempt}, kind={self.kind!r})"


@dataclass(slots=True)
class Result:
    """How one attempt ended, as its agent saw it."""

    run_id: int
    fence: int
    state: State  # SUCCEEDED, FAILED, TIMED_OUT or CANCELLED; QUEUED hands it back unstarted
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


@dataclass(frozen=True, slots=True)
class Waiting:
    """A Result that does not end its run: back to blocked until `eligible_at`, or to queued."""

    result: Result
    eligible_at: Moment | None
    lost: bool = False


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


@dataclass(frozen=True, slots=True)
class Finished:
    accepted: set[int]  # run ids whose fence was current
    promoted: int  # successors that took the gate and wait for an agent now


@dataclass(frozen=True, slots=True)
class Cancelled:
    ended: set[int]  # were waiting, are now cancelled
    asked: dict[int, str]  # are running: run id → node that must kill it
    promoted: int = 0


@dataclass(frozen=True, slots=True)
class Swept:
    """One pass over waiting runs."""

    queued: int  # released: wait for an agent now
    expired: int  # skipped(start_deadline)
    next_at: Moment | None  # when the next waiting run becomes eligible or expires


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a node's sign of life."""

    cancel: list[tuple[int, int]]  # (run id, fence) of its runs that shall stop
    wanted: str = "live"  # see Node.wanted
    in_doubt: bool = False  # the store may have lost claims: the agent must compare what it holds (Link.disown)
    differs: bool = False  # what it said to hold is not what the books say: something may be under way, or lost


class Sign(NamedTuple):
    """A node's sign of life."""

    name: str
    busy: int
    session: int | None = None  # under which it is given: see Store.register_node
    held: Holding | None = None  # what the node holds, where it says so


class NewLine(NamedTuple):
    """A connection of a remote agent to a server."""

    name: str  # of the agent
    identity: str  # see Node.identity
    via: str  # the server
    line: str  # its own name


class Want(NamedTuple):
    """Room that a node has for runs of a kind."""

    node: str
    kind: str
    room: int
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
    attempt: int
    kind: str
    priority: int
    is_choosy: bool  # it needs labels or a certain node: not every agent of its kind may take it


@dataclass(frozen=True, slots=True)
class LastRun:
    trigger_id: int
    is_live: bool
    finished_at: Moment | None


class Outdated(NamedTuple):
    """Ended runs past their age."""

    run_ids: list[int]
    outputs: list[tuple[int, int, int]]  # (run id, attempt, fence)
    last: int | None = None  # the last run that was looked at, kept ones too; None when there were no more


class HistoryPart(NamedTuple):
    """A part of history that is dropped as a whole: runs from an id on, and below another."""

    name: str
    first: int
    end: int


class Remains(NamedTuple):
    """How much was dropped of what nobody needs any more."""

    jobs: int
    triggers: int
    nodes: int


class Wish(NamedTuple):
    """What an attempt writes, and so must have for itself."""

    run_id: int
    fence: int
    names: tuple[str, ...]
    start_by: Moment | None = None  # the start deadline of one that never began: it binds while it waits


SealedPlace = Literal["job", "source", "secret", "setting"]


class Sealed(NamedTuple):
    """A text of the store that is sealed, or whose parts are."""

    place: SealedPlace
    id: int  # of a job or source; of a secret, its organisation
    name: str  # of a secret or setting; the kind of a job; of a source, its organisation
    text: str


class Lend(NamedTuple):
    """To whom a run is lent, and until when."""

    worker: str
    until_at: Moment


class Sort(NamedTuple):
    by: str
    descending: bool = False


# What lists that are paged by number can be sorted by.
JOB_SORTS = ("id", "name", "owner", "kind", "created_at", "updated_at", "next_at", "last_at")
RUN_SORTS = ("id", "job_id", "name", "state", "due_at", "created_at", "started_at", "finished_at")
SOURCE_SORTS = ("id", "name", "owner", "kind", "created_at", "updated_at")


class Store(Protocol):
    """State. Every write is one transaction: all of it or nothing, durable when the call returns.

    A call that cannot reach the database raises Unavailable; it may or may not have happened.
    Dueness is judged by the store's own clock. Lists are ordered newest first unless said otherwise.
    As made, it serves users: what they read has a time limit, and waits behind what other users read.
    """

    def for_roles(self) -> Store:
        """The same store for schedulers, agents and coordinators: what is urgent waits neither for users nor for
        upkeep. To be asked for once it is open."""

    async def now(self) -> Moment:
        """The clock that judges dueness."""

    async def close(self) -> None: ...

    # ── definitions ──
    async def allocate(self, jobs: int, triggers: int) -> tuple[Sequence[int], Sequence[int]]:
        """Fresh ids of jobs and triggers, never given before."""

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        """Create jobs with their triggers. Each submission stands or falls alone, in order.

        A repeated idempotency key gives the earlier ids and does nothing; a live job with the same
        (org, owner, key) makes the whole submission refused with `key_taken`.
        """

    async def save_job(self, job: Job, expected_version: int, idempotency: Idempotency | None = None) -> Receipt | None:
        """Replace a job and all its triggers if its version is still `expected_version`.

        Versions of the job and of every trigger become `job.version`, so nothing that was looked up
        before can fire. A trigger's `next_at` None parks it. None when the version has moved on.
        A repeated idempotency key gives the earlier id and does nothing, whatever the version.
        """

    async def delete_job(self, job_id: int, seen: Job | None = None) -> Cancelled | None:
        """Leave a tombstone: drop the triggers, end waiting runs as cancelled(deleted), ask for the running ones, all
        at once; of very many waiting runs, most are ended before. None when there is no such job, it is deleted
        already, or it is no longer as it was `seen`: its version or the last moment of a trigger has moved on."""

    async def get_job(self, job_id: int) -> Job | None:
        """Deleted ones too (deleted_at says so). Triggers come with next_at and last_at."""

    async def find_key(self, org: int, owner: str, key: str) -> Job | None:
        """The live job with this key."""

    async def list_jobs(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        """Jobs that are not deleted, newest first."""

    async def load_jobs(self, job_ids: Sequence[int]) -> list[Job]:
        """These jobs, deleted ones too, in this order; what does not exist is left out."""

    async def search_jobs(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """Jobs that are not deleted, sorted (newest first unless said), with their total. Names of
        JOB_SORTS only: they are columns, not user text. For people who page by number; lists page by cursor."""

    async def list_triggers(self, job_id: int | None, cursor: str | None, limit: int) -> Page:
        """Triggers of jobs that are not deleted, by id."""

    async def get_trigger(self, trigger_id: int) -> Trigger | None: ...

    # ── firing ──
    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        """Due rows of these segments with (next_at, trigger_id) > after and next_at < until, soonest first."""

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]: ...

    async def load_last_runs(self, trigger_ids: Sequence[int]) -> list[LastRun]:
        """The newest run of each trigger that was neither skipped nor coalesced."""

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        """Advance triggers and make their runs; with `lend`, those that would be queued are lent instead.

        A fire happens only if the due row still says (cur_at, version), every moment that it accounts for has
        come by the store's clock, `next_at` lies after them all, and its segment does not have another term than
        the one in `terms`, under which the caller believes to own it; otherwise it leaves no trace.
        Each job's overlap policy is decided here: with a live run of the job, `forbid` makes the new one history
        as skipped(overlap), `queue` makes it blocked(overlap) up to its limit, `replace` makes it
        blocked(overlap), cancels those that wait and asks the running one to stop.
        Trigger ids are distinct within a call.
        """

    async def enqueue(self, orders: Sequence[Order]) -> list[Receipt]:
        """Make runs by request, due now, under the same overlap rules.

        A job that is not there, or deleted, gets none: its receipt has no ids, and no idempotency key is noted.
        """

    # ── runs ──
    async def claim(self, wants: Sequence[Want], labels: Sequence[str] = ()) -> list[list[Assignment] | None]:
        """Give queued runs to nodes, which all have these labels: running, attempt + 1, fence + 1. Answers what each
        want got, in their order; one that got less than its room would have got no more by asking alone.

        Of a kind, higher priority first, then the older due moment, and every node gets one before any gets two.
        Pinned runs go to their node only; runs that need labels go to nodes that have them all; runs past their start
        deadline go to nobody. A run is given to one caller, however many ask at once. Nobody gets any while claims that
        a failover of the database lost may still be held. The phase is the first one of the kind
        (lifecycle.first_phase). A want with a session gets nothing unless its node has that session and is not gone:
        None, where there would have been something to claim.
        While the database is made to keep very many runs that have ended, a run that comes before the last that was
        claimed may be overlooked for a second: see `look_again`.
        """

    async def look_again(self, labels: Sequence[str]) -> float | None:
        """After a claim with these labels that got less than its room: None, or the seconds after which another one may
        find what this one overlooked."""

    async def set_phases(self, phases: Sequence[tuple[int, int, Phase]], *, session: int | None = None) -> None:
        """(run id, fence, phase) each: noted where the run is running under the same fence, and, with `session`, on a
        node that has it."""

    async def finish(self, results: Sequence[Result], waiting: Sequence[Waiting] = ()) -> Finished:
        """End attempts. `results` move from live to history; `waiting` go back to blocked or queued and
        leave an Attempt record, unless somebody wants the run cancelled: then it ends, cancelled if the attempt
        was lost. Each is accepted only if the run is running under the same fence.
        A blocked(overlap) successor of an ended run takes the gate in the same transaction. So does the cursor of the
        job move, where a result that is accepted and succeeded brings one."""

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]:
        """What waits of these kinds. Of each, `limit` runs at most are counted of those that anybody may take, of those
        that are pinned, and of those that need labels."""

    async def load_held(self, run_ids: Sequence[int]) -> list[Held]:
        """What decides about failed attempts of these live runs."""

    async def load_queued(self, limit: int) -> list[Queued]:
        """Runs that wait for an agent now, kind by kind in the order of claims."""

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        """Job → result of its last success, JSON text, for those that have one."""

    async def note_progress(self, notes: Sequence[tuple[int, int, str]], *, session: int | None = None) -> None:
        """(run id, fence, JSON text) each: noted where the run is running under the same fence, until it stops; with
        `session`, on a node that has it."""

    async def load_cursors(self, job_ids: Sequence[int]) -> dict[int, Cursor]:
        """Job → how far its syncs have come, for those that have a cursor, or had one that was taken away (None)."""

    async def set_cursor(self, job_id: int, value: str | None) -> None:
        """Put the cursor (JSON text) where somebody wants it, or away. Attempts that are under way do not move it."""

    async def take_locks(self, wishes: Sequence[Wish]) -> set[int]:
        """Lock for each of these running attempts all that it names, first come, first served; answers whose were
        locked. The others become blocked(destination_busy), their attempt not counted, with a sentence that names
        the run that writes; one that somebody wants cancelled ends. A lock is void as soon as its run is no longer
        running under that fence. Older runs that wait are served before younger ones."""

    async def load_running(self, node: str, *, session: int | None = None) -> list[tuple[int, int]]:
        """(run id, fence) of everything running on a node; Superseded when it has another session than a given one."""

    async def load_running_of(self, nodes: Sequence[str]) -> dict[str, dict[int, int]]:
        """Node → run → fence of everything running on these nodes; one that runs nothing is left out."""

    async def cancel(self, run_ids: Sequence[int], reason: str) -> Cancelled:
        """Queued and blocked runs end as cancelled(reason); running ones are marked and reported."""

    async def sweep(self) -> Swept:
        """Blocked runs whose time has come and whose destination is free, or whose gate is, become queued; queued and
        blocked ones past their start deadline become history as skipped(start_deadline). Of very many, some: then
        `next_at` says to sweep again at once."""

    async def fail_unrunnable(self, kinds: Sequence[str], message: str, remedies: Mapping[str, str]) -> int:
        """Queued runs of a kind not in `kinds` end as failed(no_agent), with the message and the remedy of the kind.
        Of very many, some: whoever calls repeats it until it answers 0."""

    async def mark_unlabelled(self, agents: Sequence[Sequence[str]]) -> int:
        """Queued runs that need labels which none of these agents has get the reason no_label; they wait on. Of very
        many, some, as fail_unrunnable."""

    # ── loans ──
    async def lend(self, kinds: Sequence[str], lend: Lend, run_id: int | None = None) -> Loan | None:
        """As claim of one run of any of these kinds (or of that very run, if it is queued, whatever its kind), for a
        worker outside Horae: running, phase preparing, on loan until then. Runs that need labels or are pinned are
        not lent, unless asked for by id. None when there is none."""

    async def renew_loan(
        self, run_id: int, attempt: int | None, lend: Lend, phase: Phase | None = None, progress: str | None = None
    ) -> bool | None:
        """Prolong a loan, change its worker; note the phase and what the worker said, where given. Answers whether
        somebody wants the run cancelled; None when it is not lent, or (with `attempt`) not under that attempt."""

    async def load_loans(self, run_ids: Sequence[int] | None = None) -> list[Loan]:
        """Loans under way, of these runs or all of them, oldest first."""

    async def load_overdue_loans(self) -> list[Loan]:
        """Loans that ran out by the store's clock and are still running, of very many the oldest; what is left of
        ended ones is dropped."""

    async def return_loan(self, run_id: int, fence: int, start_by: Moment | None = None) -> bool:
        """Back to the queue, unstarted: the attempt does not count, and a run that was never begun must begin by
        `start_by` again. False when it is not lent under this fence."""

    async def load_standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        """Where these jobs stand; every one of them has an answer."""

    async def search_runs(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """As search_jobs, of runs: items are (Run, name of its job), of RUN_SORTS."""

    async def list_lost(self, limit: int) -> list[tuple[Attempt, Run]]:
        """Attempts lost with their agent, newest first, each with its run as it is now."""

    async def get_run(self, run_id: int) -> Run | None: ...

    async def list_runs(self, where: RunFilter, cursor: str | None, limit: int) -> Page:
        """Live runs and history together, newest id first."""

    async def list_attempts(self, run_id: int) -> list[Attempt]:
        """Attempts that did not end their run, oldest first."""

    async def load_outdated(self, before: Moment, after: int, limit: int) -> Outdated:
        """Ended runs that finished before a moment, among the `limit` oldest after an id, and the attempts of theirs
        that may have left output: named it, or were lost before they could."""

    async def tend_history(self) -> bool:
        """Make what history needs while it is used, such as indexes and room ahead; whether it lies in parts that are
        dropped as a whole."""

    async def load_outdated_parts(self, before: Moment) -> list[HistoryPart]:
        """Parts of which all runs finished before a moment, and into which none will come any more."""

    async def drop_part(self, part: HistoryPart) -> None:
        """Drop a part with the attempts of its runs."""

    async def without_runs(self, first_ids: Sequence[int], width: int) -> list[int]:
        """Those of these ids from which on, for `width` ids, there is no run, live or ended."""

    async def purge_remains(self, before: Moment, limit: int) -> Remains:
        """Drop what was of no use since before a moment: up to `limit` tombstones of jobs without any run, triggers
        without another moment, and names of nodes that are gone."""

    async def watch_ended(self, is_wanted: bool) -> None:
        """Whether runs that end from now on are noted as untold, in the transaction that ends them."""

    async def load_untold(self, limit: int) -> list[Run]:
        """Ended runs of which nobody was told yet."""

    async def forget_untold(self, run_ids: Sequence[int]) -> None:
        """Others were told of these."""

    async def purge(self, run_ids: Sequence[int]) -> None:
        """Drop ended runs with their attempts from history."""

    async def purge_keys(self, before: Moment, limit: int) -> int:
        """Drop up to `limit` idempotency keys that were noted before a moment. They are kept for a day: a
        repeat within that time is recognised."""

    async def census(self) -> Census: ...

    # ── nodes and leases ──
    # A node has a session number. Every registration and every new line takes the next one; what is asked with
    # another one is not done, and raises Superseded.
    async def register_node(self, node: Node, *, session: int | None = None, line: str = "") -> int:
        """Appear, or appear anew: state live, beat moved, the next session, which is answered. With `session`, only if
        that is the present one (0: there is no such node), or `line` itself took the present one: then that is answered
        again, because the answer to a registration may be lost, and what was sent twice may come late."""

    async def open_lines(self, lines: Sequence[NewLine]) -> list[int | None]:
        """Remote agents go on over new lines: answers the next session of each. 0 when there is no such node, None when
        it is a living one of another identity."""

    async def beat(
        self, name: str, busy: int, *, session: int | None = None, held: Holding | None = None
    ) -> Beat | None:
        """Move a node's beat; answer what is wanted of it, and whether what it holds differs from the books.
        None when the node was retired meanwhile: it must kill its work and register anew."""

    async def beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        """Many beats in one statement, answered in their order."""

    async def retire_node(self, name: str, state: str, *, session: int | None = None) -> None:
        """Say that a node is draining or gone."""

    async def bury_nodes(self, seen: Sequence[Node], lease: Lease) -> dict[str, dict[int, int]]:
        """Declare nodes gone that still are as `seen` (beat, session and state), if `lease`, the leader's, is held
        under its term; answers which of them are, each with run → fence of everything it holds, in the same
        transaction."""

    async def want_node(self, name: str, wanted: str) -> bool:
        """What an operator wants of a node (see Node.wanted), also when it comes back; False if unknown."""

    async def note_ailment(self, name: str, ailment: str, *, session: int | None = None) -> None:
        """What the machine of a node is short of (see Node.ailment), until it is told otherwise or joins anew. What
        an earlier session says is passed over."""

    async def list_nodes(self) -> list[Node]: ...

    async def get_node(self, name: str) -> Node | None: ...

    async def keep_setting(self, name: str, value: str) -> str:
        """Keep a value for the whole cluster unless there is one; answers the one that is kept."""

    async def get_setting(self, name: str) -> str | None:
        """The value that is kept for the whole cluster, if there is one."""

    async def get_lease(self, name: str) -> Lease | None: ...

    async def take_lease(self, name: str, owner: str, seen: Lease | None) -> Lease | None:
        """Become owner with term + 1, if the lease still is what was `seen` (None: does not exist)."""

    async def renew_lease(self, lease: Lease) -> Lease | None:
        """Move the beat; None when it is no longer held under this term."""

    async def resign_lease(self, lease: Lease) -> None:
        """Give it up at once, if still held: anyone may take it without waiting."""

    async def load_segments(self) -> dict[int, tuple[str, int]]:
        """Segment → (owner, term) for those assigned."""

    async def assign_segments(self, moves: dict[int, str], lease: Lease) -> bool:
        """Give segments to nodes, each term + 1, if `lease` (the leader's) is still held."""

    # ── segments of schedulers outside Horae ──
    async def take_segments(self, worker: str, wanted: int) -> list[int]:
        """Give a worker the lowest segments that no other live worker holds, until it holds `wanted`, or take the
        highest from it; answers all it holds now, in order. Workers are nodes; those that are not live hold nothing."""

    async def drop_segments(self, worker: str) -> None: ...

    async def load_taken_segments(self) -> dict[int, tuple[str, Moment]]:
        """Segment → (worker, since when), of live workers."""

    # ── sources ──
    async def add_source(self, source: Source) -> Source:
        """Keep a new one, under a fresh id in place of the given one."""

    async def save_source(self, source: Source) -> bool:
        """Replace name, kind, config and updated_at of the one with its org and id; False when there is none."""

    async def get_source(self, org: int, source_id: int) -> Source | None: ...

    async def load_sources(self, source_ids: Sequence[int]) -> list[Source]:
        """Those of them that exist, of any organisation."""

    async def search_sources(
        self, org: int, name: str | None, sorts: Sequence[Sort], offset: int, limit: int
    ) -> Found: ...

    async def delete_source(self, org: int, source_id: int) -> bool: ...

    # ── secrets ──
    async def put_secret(self, org: int, name: str, sealed: str, at: Moment) -> int:
        """Keep a sealed value in the place of any earlier one; answers its version, 1 for a new one."""

    async def list_secrets(self, org: int) -> list[Secret]:
        """By name."""

    async def get_sealed(self, org: int, names: Sequence[str]) -> dict[str, str]:
        """Name → sealed value, of those that exist."""

    async def list_sealed(self) -> list[tuple[int, str, str]]:
        """(org, name, sealed value) of every secret there is."""

    async def delete_secret(self, org: int, name: str) -> bool: ...

    # ── what is sealed ──
    async def load_sealable(self, place: SealedPlace, after: int, limit: int) -> list[Sealed]:
        """What may be sealed there, of rows with an id above `after`, by id; also of deleted jobs. Secrets and settings
        have none: all of them come at once, and with `after`, nothing."""

    async def reseal(self, row: Sealed, text: str) -> bool:
        """Put a text in the place of the one that was loaded, if that is still there. Nothing else changes: neither
        version nor moment."""

    # ── tokens ──
    async def add_token(self, token: Token) -> Token:
        """Keep a new token, under a fresh id in place of the given one."""

    async def get_token(self, token_id: int) -> Token | None:
        """Revoked and expired ones too. One that was made by another is revoked with it, at every remove."""

    async def load_tokens(self, token_ids: Sequence[int]) -> list[Token]: ...

    async def list_tokens(self) -> list[Token]: ...

    async def revoke_token(self, token_id: int, at: Moment) -> Token | None:
        """Mark it revoked; one that was revoked before keeps its moment. None when there is no such token."""

    async def add_session(self, token_id: int, hash: str, at: Moment, expires_at: Moment) -> int:
        """Keep a session of a token; answers its id. Those that have expired go."""

    async def get_session(self, session_id: int) -> tuple[int, str, Moment] | None:
        """(token, hash, when it expires); None when there is none."""


class Keys(Protocol):
    """Seals texts so that the store can keep them: whoever has the store alone cannot open them."""

    def seal(self, text: str, context: str) -> str:
        """With the newest key, which is made if there is none. What is sealed opens under the same context only."""

    def open(self, sealed: str, context: str) -> str:
        """ConfigError(E_SECRET_KEY) names the key that would be needed, or says that the text was tampered with."""

    @property
    def names(self) -> Sequence[str]:
        """Of the keys that there are, the newest first."""

    def is_newest(self, sealed: str) -> bool:
        """Whether the newest key sealed this."""

    def add(self) -> None:
        """Make a new key, which seals from now on. Whole or not at all, and durable when it returns."""

    def drop_old(self) -> None:
        """Forget every key but the newest: what they sealed is lost."""


class Watch(Protocol):
    """One listener's memory of a topic."""

    async def wait(self, seconds: float) -> bool:
        """True as soon as there was an announcement since the last True; False when the time is over."""

    @property
    def is_due(self) -> bool:
        """Whether there was an announcement since the last True."""


class Queue(Protocol):
    """Wakes whoever waits for something to do. May lose, repeat and reorder.

    Topics: "runs" (queued runs for agents), "due" (moments for schedulers), "waiting" (blocked runs for
    the sweep), "cancel" (running runs that shall stop, and nodes of which something is wanted), "nodes"
    (somebody came or went).
    """

    def announce(self, topic: str) -> None:
        """Something of this topic has changed; cheap, never blocks, may be merged with others."""

    def watch(self, topic: str) -> Watch:
        """Listen from now on. Every watch hears every announcement; one that is dropped is forgotten."""


class Courier(Protocol):
    """Carries messages to those who reach nothing but the broker. Raises Unavailable when that is away, and then some
    may have been carried: every message has an id, and a repeat is harmless."""

    @property
    def connections(self) -> int:
        """How many there were: what was carried by an earlier one may be lost, because the broker may have been."""

    async def prepare(self, kinds: Sequence[str]) -> None:
        """Make places from which agents take the messages of these kinds of work."""

    async def hand_over(self, runs: Sequence[Queued]) -> None:
        """One message per run and attempt, for one agent that can do its kind."""

    async def call_all(self) -> None:
        """Ask every agent to look for runs."""


class Event(NamedTuple):
    """Something that happened, for others to hear of."""

    kind: str  # such as run.finished
    name: str  # the same whenever it is told again
    document: Json  # a CloudEvent


class Poster(Protocol):
    """Keeps events where others can read them."""

    async def post(self, events: Sequence[Event]) -> None:
        """Return when they are kept. Unavailable: some may be; a repeat is harmless."""


class Terms(NamedTuple):
    """What a service tells an agent that joins."""

    lease_seconds: float
    heartbeat_seconds: float


class Link(Protocol):
    """What an agent may ask of the service. The same over a network or within one process."""

    async def hello(self, node: Node, held: Collection[Fenced] = ()) -> Terms | None:
        """Join. Everything this node held under an earlier life is given back, except attempts that it has taken up or
        of which it holds a result. Answers the terms; None within one process, where they are known."""

    async def take_up(self, node: Node) -> None:
        """Be a node that has joined in an earlier life: beats and questions may come before hello."""

    async def claim(self, room: Mapping[str, int]) -> list[Assignment]:
        """Runs for free slots: at most so many of each kind."""

    async def finish(self, results: Sequence[Result]) -> set[int]:
        """Report attempts; answers the run ids that were accepted."""

    async def note_phases(self, phases: Sequence[tuple[int, int, Phase]]) -> None:
        """As Store.set_phases, of runs that this node holds."""

    async def note_progress(self, notes: Sequence[tuple[int, int, str]]) -> None:
        """As Store.note_progress, of runs that this node holds."""

    async def beat(self, busy: int, held: Holding | None = None) -> Beat | None:
        """As Store.beat, but in doubt when what is held was found to differ from the books beat after beat."""

    async def note_ailment(self, ailment: str) -> None:
        """As Store.note_ailment, of this node."""

    async def wait(self, topic: str, seconds: float) -> bool:
        """Until there may be runs to claim ("runs") or to kill ("cancel"); False when the time is over."""

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        """As Store.load_previous."""

    async def disown(self, held: Collection[Fenced]) -> set[Fenced]:
        """Give back every attempt that is ours in the service's books but not among those we hold: a claim
        whose answer was lost. Answers those we hold that are not ours in the books."""

    async def goodbye(self) -> None: ...


# ── executing ──────────────────────────────────────────────────────────────────────────────────────


class Output(Protocol):
    """The log of one attempt, written in order. Opened lazily: no byte, no file."""

    def write(self, data: bytes) -> None:
        """Append; never blocks. Past the size limit a mark is written once and the rest is dropped."""

    @property
    def is_full(self) -> bool: ...

    @property
    def has_gaps(self) -> bool:
        """Whether bytes were dropped in the middle, because the store could not keep up."""

    def when_free(self, resume: Callable[[], None]) -> bool:
        """True when so much waits to be stored that the writer should pause: `resume` is called when there
        is room again, or after a second, because no job waits longer than that for its log."""

    @property
    def ref(self) -> str | None:
        """Where it lies; None while nothing was written."""

    async def attach(self, number: int, file: BinaryIO, size: int) -> int:
        """Store up to `size` bytes of a file beside the log, as the file of this number; answers how many there
        were. Raises Unavailable when the store stays out of reach."""

    async def close(self) -> None:
        """Return when everything written is stored. Raises Unavailable when the store stays out of reach: then the log
        ends with a mark."""


class Files(Protocol):
    @property
    def is_shared(self) -> bool:
        """Whether every node has the same ones; else each has its own."""

    async def take_up(self) -> None:
        """Take up what an earlier life of this process left undone."""

    async def settle(self, seconds: float) -> None:
        """Give what is not stored yet a last chance; what stays is taken up by the next life."""

    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> Output: ...

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        """An Output that is written from its beginning once more, by a later life: what is stored already is left
        out."""

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        """Store the next piece of a log that somebody else writes, and wake its followers. A repeat is harmless."""

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        """Bytes of a log from an offset; empty when there are none (yet)."""

    async def size(self, ref: str) -> int: ...

    async def stored_sizes(self, ref: str) -> list[int]:
        """Of the chunks of a log, in order."""

    async def remove(self, ref: str) -> None:
        """Remove a log and the files beside it. What is not there, or only in part, is no error: a repeat ends what
        was begun."""

    async def remove_all(self, refs: Sequence[str]) -> None:
        """As remove, of many at once."""

    async def stored_ranges(self) -> tuple[list[int], int]:
        """First ids of the ranges of runs that have output, and how many ids a range has."""

    async def remove_range(self, first_id: int) -> None:
        """Remove all output of a range of runs."""

    async def trim(self, limit: int) -> int:
        """Remove outputs, the oldest runs' first, until all that is left is at most `limit` bytes; answers how many
        bytes that were."""

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        """The name the output of this attempt has, or would have."""

    def file_ref(self, ref: str, number: int) -> str:
        """The name of a file beside a log, for `read` and `size`."""

    def changed(self, ref: str) -> Awaitable[None]:
        """Resolves when a log written by this process may have grown, or after a short while."""


class Peers(Protocol):
    """The other servers of the cluster."""

    async def read_output(self, node: Node, ref: str, offset: int, limit: int) -> bytes:
        """As Files.read, of another node. Unavailable names it when it does not answer."""

    async def close(self) -> None: ...


class Spool(Protocol):
    """What an agent must not lose while it cannot reach its service: results, on disk until they are delivered."""

    on_settled: Callable[[], None]  # the output of an attempt has arrived, so its result may go

    @property
    def unsettled(self) -> Collection[tuple[int, int]]:
        """(run id, fence) of attempts whose output is still on its way: their results wait for it."""

    async def load(self, kept: Collection[Fenced] = ()) -> list[Result]:
        """Results of an earlier life that were never delivered; what else it left is removed, but for the output of
        attempts that go on."""

    async def keep(self, results: Sequence[Result]) -> None:
        """Return when these results are on disk. Raises MachineFault when they cannot be put there."""

    def forget(self, results: Sequence[Result]) -> None:
        """They were delivered, or refused."""


@dataclass(slots=True)
class Work:
    """One attempt, ready to be executed."""

    assignment: Assignment
    spec: Any = field(repr=False)  # decoded once per distinct job; the values of secrets stand in it
    output: Output
    timeout_seconds: float | None
    started_at: Moment
    previous: str | None = None  # result of the job's last success, JSON text, if its spec asks for it
    cursor: str | None = None  # JSON text: how far the job's earlier syncs have come
    tell_phase: Callable[[Phase], None] = lambda _: None  # to be called when the work enters another phase
    tell_progress: Callable[[Json], None] = lambda _: None  # how far it is (core.figures); the newest word counts
    facts: Json = field(default_factory=dict)  # what became known while it was done: part of its result
    origin: Assignment | None = None  # the assignment with its secrets, where it may outlive this agent


Done = Callable[[Result], None]


class Executor(Protocol):
    """Does one kind of work. Every started work ends in exactly one call of `done`."""

    kind: str
    slots: int  # how many it can do at once

    async def open(self) -> None: ...

    def start(self, works: Sequence[Work], done: Done) -> None:
        """Begin; never raises, never blocks."""

    def stop(self, run_id: int, reason: str) -> None:
        """Kill one work (Reason.TIMEOUT → timed_out, Reason.REQUESTED → cancelled). Its `done` is
        called when the whole process tree is gone. Unknown ids are ignored."""

    async def close(self) -> None:
        """Kill what is left and return when it is gone."""


@runtime_checkable
class LastingExecutor(Executor, Protocol):
    """One whose work may outlive this agent, and is taken up by the next."""

    def expect(self, kept: Sequence[Kept]) -> None:
        """Leave everything of these in its place. Comes before `open`; they may be of any kind."""

    def take_up(self, work: Work, kept: Kept, memo: Memo, done: Done) -> None:
        """Go on with a work. As `start`."""

    def lasting(self) -> set[int]:
        """The runs that would go on without us."""

    async def leave(self) -> None:
        """As `close`, but leave those as they are; their `done` is never called."""


@dataclass(frozen=True, slots=True)
class Memo:
    """What is noted with held work."""

    assignment: Assignment
    begun: float  # when the attempt began, on Clock.elapsed
    own: str = field(repr=False)  # JSON text of the executor


@dataclass(frozen=True, slots=True)
class Hold:
    """What makes a process outlive its agent, and lets the next one go on with it."""

    name: str  # of the attempt, <run>-<fence>
    memo: str  # what the next agent needs to know; it may be secret
    source: int  # the read end of its output
    file: int  # where output goes as it is read


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make
class Command:
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    stdin: int | None = None  # file descriptors; None is /dev/null
    stdout: int | None = None
    stderr: int | None = None
    keep: Sequence[int] = ()  # further descriptors, inherited under the same number
    groups: Sequence[str] = ()  # files of control groups that it joins before it becomes its program
    rlimits: Mapping[int, int] = field(default_factory=dict)  # resource → most of it
    carries: bool = False  # it only carries the work: what asks the work to end passes it by
    gentle: bool = False  # should the agent die, it is asked to end (TERM) a moment before it is killed
    hold: Hold | None = field(default=None, repr=False)  # None: should the agent die, it is killed


@dataclass(frozen=True, slots=True)
class Exit:
    code: int  # negative: the signal that ended it
    message: str = ""  # why it could not be started, or was ended
    reason: str = ""  # Reason.OOM or Reason.PROCESSES: a limit ended it; Reason.LOST: not its own fault
    ailment: str = ""  # what the machine is short of, so that it could not be started
    seconds: float | None = field(default=None, compare=False)  # it ran, if it ended by itself before it was told to


class Process(Protocol):
    pid: int

    async def wait(self) -> Exit:
        """Return when the process and every descendant is gone."""

    async def kill(self, grace: float = 5.0) -> Exit:
        """TERM to the tree, KILL after `grace` seconds; returns when all of it is gone, verified."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Work of an earlier life of this agent that its keeper has kept."""

    name: str  # as of Hold
    memo: str = field(repr=False)
    process: Process  # the latest of it, which may have ended
    source: int  # as of Hold; ours to close
    file: int
    is_ending: bool = False  # somebody has told it to end


class Keeper(Protocol):
    """The process that starts and kills work. It outlives a crash of the agent just long enough to kill everything the
    agent had started; or, with what is held, for the rest of the lease, so that the next agent can go on with it."""

    @property
    def kept(self) -> Sequence[Kept]:
        """What an earlier life left to us; known once it is open."""

    @property
    def keeps(self) -> bool:
        """Whether held work outlives us."""

    async def open(self) -> None:
        """Take over the one that kept work for us, or start one; then it returns when any earlier keeper of this
        directory, and all its work, is gone."""

    def note(self, name: str, memo: str) -> None:
        """Note something else with work that is held."""

    def release(self, name: str) -> None:
        """It is held no longer: should we die, it dies with us; if it has ended, nobody need know."""

    async def leave(self) -> None:
        """Leave the keeper to the next agent, with what is held; everything else is killed."""

    async def spawn(self, command: Command) -> Process: ...

    def renew(self, seconds: float) -> None:
        """Everything dies unless renewed again within this time."""

    @property
    def is_alive(self) -> bool: ...

    async def close(self) -> None:
        """Kill everything and end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that the processes of an attempt may use together; None: no limit."""

    memory: int | None = None  # bytes
    cpus: float | None = None
    pids: int | None = None  # processes and threads


NO_LIMITS = Limits()


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make
class Room:
    """What a process may see and use besides the system itself."""

    workspace: str  # it owns this
    name: str  # of the attempt, <run>-<fence>: one process at a time is in a room
    network: str = "off"  # or "listed", or "on": the world without this machine; "machine" is for programs of ours
    limits: Limits = NO_LIMITS
    sees: Sequence[str] = ()  # further paths, to read
    keeps: Sequence[str] = ()  # further paths, to read and write
    image: str = ""  # of a container
    listed: Sequence[str] = ()  # host:port each: all that it reaches where its network is listed
    is_ours: bool = False  # what runs in it is a program of ours
    secrets: str = ""  # the directory of its secret files, to read


class Sandbox(Protocol):
    """Where processes run: how much of the machine they see, and how much of it they can use up."""

    name: str

    async def open(self, kept: Collection[str] = ()) -> None:
        """Remove what an earlier life left, but for the rooms of these names. The keeper must be open: then nothing
        else of it runs."""

    async def spawn(self, command: Command, room: Room) -> Process:
        """As Keeper.spawn, inside. Of the agent's own environment nothing reaches the command. Invalid when the
        sandbox cannot do it as asked. What a process left (groups, mounts) is gone when its end is told."""

    def take_up(self, process: Process, room: Room) -> Process:
        """Go on with what an earlier life has spawned in a room."""

    def can_hold(self, room: Room) -> bool:
        """Whether a process in such a room can outlive us."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Trust:
    """Of a server with one user: their own steps run as they do at their terminal."""

    directory: str  # where those start that name none
    environment: Mapping[str, str]  # of the user


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Those that work here, by name, and the one for work that does not say."""

    named: Mapping[str, Sandbox]
    default: str
    warning: str = ""  # what whoever runs this should know of its walls
    trust: Trust | None = None  # in steps of one's own: these run in plain, in place

    @property
    def walls(self) -> str:
        """In words: what work gets that does not say, and what it may ask for."""
        others = [name for name in self.named if name != self.default]
        own = "your own steps run as you, on this machine; all else: " if self.trust else ""
        return f"{own}{self.default or 'none'}{'; on offer: ' if others else ''}{', '.join(others)}"


LogChunks = AsyncIterator[bytes]
Payload = Json
