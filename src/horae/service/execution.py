"""Attempts: given to agents, taken back with a result, decided upon.

This is the Link of an agent in the same process, and what a session calls for agents elsewhere (rpc.agents).
An agent reports what it saw; whether a failed run is tried again is decided here, from the job's policy.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from secrets import token_hex
from typing import NamedTuple, Protocol

import structlog

from horae.core.definitions import Receipt
from horae.core.model import SECOND, Job, Moment, Node, NodeState, Phase, Reason, Run, State
from horae.core.policy.demands import Offer
from horae.core.runs import lifecycle, traces
from horae.core.runs.calls import Calls
from horae.core.runs.holdings import Fenced, Holding
from horae.core.runs.orders import Assignment, Finished, Held, Order, Result, Waiting, Want
from horae.core.runs.waits import goes_on_at, in_words
from horae.core.signs import Beat, Sign
from horae.core.waits import Wait
from horae.core.work import policies
from horae.core.work.kinds import WRITERS
from horae.errors import ConfigError, Invalid, Superseded, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.attempts import NO_CALLS, Attempts
from horae.ports.store.cluster import Nodes
from horae.ports.store.limits import Limits
from horae.ports.store.moments import StoreClock
from horae.ports.store.vault import Settings
from horae.ports.transport import Queue, Topic
from horae.service.batching import Coalescer
from horae.service.jobs.callbacks import RunKeys
from horae.service.metrics import Metrics
from horae.service.policy.starting import Starting
from horae.service.preparation import Preparation, PreparationStore
from horae.service.results import make_plain
from horae.service.secrets.named import Secrets, reading
from horae.service.secrets.sealing import Sealing, may_be_sealed, unopened
from horae.service.workflows.beside import Beside
from horae.service.workflows.calls import Callers

log = structlog.get_logger(__name__)
CLAIMED_TOGETHER = 2000  # runs that one statement claims at most, unless one agent alone has more room
FINISHED_TOGETHER = 2000  # and finishes, unless one batch alone is larger
CONVINCING_BEATS = 2  # in a row that must find the books different
REFUSED_WAIT = 5 * SECOND  # of a run for which an agent had less free than was believed
ANY_FENCE = 0  # of an agent that does not tell under which it holds a run
LINK_TOPICS: tuple[Topic, ...] = ("runs", "cancel")  # that wake an agent
DOUBTFUL = (State.FAILED, State.TIMED_OUT, State.QUEUED, State.BLOCKED)  # the run may not be over


class ExecutionStore(Attempts, Limits, Nodes, PreparationStore, Settings, StoreClock, Protocol):
    """Runs that agents work on, and the agents."""


class _Claimants(NamedTuple):
    """Who claims in one statement."""

    labels: tuple[str, ...]  # that they all have
    standby: str | None = None  # the one node that they are, where it may stand by


class Execution:
    def __init__(
        self,
        store: ExecutionStore,
        queue: Queue,
        clock: Clock,
        metrics: Metrics,
        *,
        foreign_kinds: Collection[str] = (),
        secrets: Secrets | None = None,
        sealing: Sealing | None = None,
        beat_gap: float = 0.0,
        installation: str = "",
        after_failures: Callable[[Collection[int]], Awaitable[None]] | None = None,
        run_keys: RunKeys | None = None,
    ) -> None:
        """`foreign_kinds` are left to workers outside Horae (see Lending): no agent gets any. Without `secrets`, runs
        that name some fail, without `sealing`, those that hold some.
        `beat_gap`: seconds for which signs of life are gathered, so that those of many nodes cost no more than one.
        `installation` is its part of trace ids. `after_failures` is told of jobs whose runs have failed, of those that
        pause themselves when that happens too often. With `run_keys`, handlers know their addresses."""
        self._installation = installation
        self._after_failures = after_failures
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._foreign_kinds = frozenset(foreign_kinds)
        self._secrets = secrets
        self._run_keys = run_keys
        self._sealing = sealing or Sealing(store)
        self._preparation = Preparation(store, self._sealing, secrets)
        self._finishes = Coalescer(self._finish_all, limit=FINISHED_TOGETHER, weigh=lambda books: len(books.run_ids))
        self._beats = Coalescer(store.beat_all, gap=beat_gap)
        self._callers: Callers | None = None
        self._claims: dict[_Claimants, Coalescer[Offer, list[Assignment] | None]] = {}
        self._is_looking_again = False
        self._starting = Starting(store, queue, clock)

    def serve_calls(self, callers: Callers) -> None:
        """From now on, handlers may call other jobs."""
        self._callers = callers

    async def claim(
        self,
        node: Node,
        room: Mapping[str, int],
        session: int | None = None,
        *,
        free: Mapping[str, int] | None = None,
        may_stand_by: bool = False,
    ) -> list[Assignment]:
        """Runs for the free slots of a node, by kind. Claims of many nodes go together: see Coalescer. `free` is what
        else is free there, for runs that ask for some of it; agents of before there were resources do not say."""
        own = {kind: slots for kind, slots in room.items() if kind not in self._foreign_kinds}
        if not own:
            return []
        asked = Offer(node.name, session, own, free or {}, node.labels)
        claimants = _Claimants(tuple(sorted(node.labels)), node.name if may_stand_by else None)
        claimed = await self._claims_of(claimants).add(asked)
        if claimed is None:
            known = await self._store.get_node(node.name)
            if known is not None and known.session == session:
                return []  # it was given up while it stood still: its next beat says so, and it joins again
            raise Superseded(f"{node.name} goes on over a newer line, or under another process of that name")
        # Should this break off, the agent is in doubt about the claim, and gives back what it does not know of.
        writes = not WRITERS.isdisjoint([a.kind for a in claimed])
        ready = await self._ready(claimed, room, node.name) if writes else claimed
        return await self._equip(ready, node.name)

    def may_start_new(self, order: Order) -> bool:
        """Return whether an agent may have the run of an order as it is made. What demands more than a slot may
        wait for many of them to be free: then none is given away."""
        kind = order.run.kind
        is_for_agents = kind not in self._foreign_kinds and kind not in WRITERS
        return is_for_agents and order.may_start_at_once and not self._starting.is_waiting

    async def start_new(self, order: Order, node: Node, session: int) -> tuple[Receipt | None, list[Assignment] | None]:
        """Make the run of an order and give it to a node, with what it needs; None where it was not made so, and for
        what is the node's and could not be had."""
        want = Want(node.name, order.run.kind, 1, session)
        started = await self._store.enqueue_started(order, want, tuple(sorted(node.labels)))
        if started is None:
            return None, []
        if started.assignment is None:
            return started.receipt, []
        self._note_claimed([started.assignment])
        try:
            return started.receipt, await self._equip([started.assignment], node.name)
        except Unavailable:  # the run is there: whoever asked for it is told so
            return started.receipt, None

    async def _equip(self, claimed: Sequence[Assignment], node: str) -> list[Assignment]:
        """Return those that can be given to their agent, with what they need."""
        given = claimed if self._secrets is None else await self._secrets.provide(claimed, node)
        given = given if self._run_keys is None else await self._run_keys.provide(given)
        opened = await self._opened(given, node)
        if opened:
            self._queue.announce("events")
        return opened

    def _claims_of(self, who: _Claimants) -> Coalescer[Offer, list[Assignment] | None]:
        """Nodes with the same labels claim together: there may be many of them, and few such sets."""
        if who not in self._claims:
            self._claims[who] = Coalescer(partial(self._claim_all, who), limit=CLAIMED_TOGETHER, weigh=_room)
        return self._claims[who]

    async def _claim_all(self, who: _Claimants, offers: list[Offer]) -> list[list[Assignment] | None]:
        labels, standby = who
        claimed = await self._starting.claim(offers, labels, standby)
        given = [a for each in claimed for a in each or ()]
        await self._look_again(labels)
        if given:
            self._note_claimed(given)
        return claimed

    def _note_claimed(self, given: Sequence[Assignment]) -> None:
        now, metrics = self._clock.now(), self._metrics
        metrics.claimed += len(given)
        metrics.batches["claim"] += 1
        metrics.observe_lateness([(now - a.due_at) / SECOND for a in given if a.attempt == 1])

    async def _look_again(self, labels: Sequence[str]) -> None:
        """Have those told who wait, if the store may have overlooked a run."""
        seconds = await self._store.look_again(labels)
        if seconds is not None and not self._is_looking_again:
            self._is_looking_again = True
            asyncio.get_running_loop().call_later(seconds, self._announce_again)

    def _announce_again(self) -> None:
        self._is_looking_again = False
        self._queue.announce("runs")

    async def beat(self, sign: Sign) -> Beat | None:
        """As Store.beat; those of many nodes are gathered, and go together."""
        answer = await self._beats.add(sign)
        if isinstance(answer, Superseded):
            raise answer
        return answer

    async def _opened(self, claimed: Sequence[Assignment], node: str) -> list[Assignment]:
        """Return those whose own secrets open; the others have failed."""
        if not any(map(may_be_sealed, {a.spec for a in claimed})):  # of many runs, few differ in it
            return list(claimed)
        opened, failed = self._sealing.open_claimed(claimed, await self._store.now())
        if failed:
            await self.finish(failed)
        sealed = {a.run_id: a.spec for a in claimed}
        runs: dict[int, list[int]] = {}
        for a in opened:
            if a.spec != sealed[a.run_id]:
                runs.setdefault(a.job_id, []).append(a.run_id)
        await self._note_read(f"agent {node}", runs)
        return opened

    async def _note_read(self, reader: str, runs: Mapping[int, Sequence[int]]) -> None:
        """Secrets that stand in jobs are about to be given out: job → its runs."""
        if self._secrets is not None and runs:
            orgs = {job.id: job.org for job in await self._store.load_jobs(sorted(runs))}
            await self._secrets.note_read(
                [reading(reader, orgs[job_id], "job", str(job_id), ids) for job_id, ids in runs.items()]
            )

    async def open_lent(self, job: Job, run: Run) -> Job | None:
        """Return the job of a run that was lent, with its secrets; None when they do not open, and the run has
        failed."""
        try:
            opened = self._sealing.open_job(job)
        except ConfigError as error:
            await self.finish([unopened(run.id, run.fence, error, await self._store.now())])
            return None
        if opened.spec != job.spec:
            await self._note_read(f"worker {run.node or ''}".strip(), {job.id: [run.id]})
        return opened

    async def _ready(self, claimed: list[Assignment], room: Mapping[str, int], node: str) -> list[Assignment]:
        """Return those that may begin on a node, with what they need."""
        writers = [a for a in claimed if a.kind in WRITERS]
        locked = await self._preparation.lock(writers)
        if len(locked) < len(writers):
            self._queue.announce("waiting")
        ready, gone = await self._preparation.equip(locked, await self._store.now(), node)
        if gone:
            await self.finish(gone)
        asked, left = Counter(a.kind for a in writers), Counter(a.kind for a in ready)
        if any(left[kind] < count == room[kind] for kind, count in asked.items()):
            self._queue.announce("runs")  # whoever gets less than it asked for believes that there is no more
        return [*(a for a in claimed if a.kind not in WRITERS), *ready]

    async def lock(self, job: Job, run: Run) -> bool:
        """Return whether a run that was lent may begin; else it waits from now on."""
        may_begin = job.kind not in WRITERS or await self._preparation.lock_one(job, run)
        if not may_begin:
            self._queue.announce("waiting")
        return may_begin

    async def finish(self, results: Sequence[Result]) -> set[int]:
        """End attempts or send them round again; return the run ids whose fence was current."""
        doubtful = [r.run_id for r in _doubtful(results)]
        held = {h.run_id: h for h in await self._store.load_held(doubtful)} if doubtful else {}
        # A retry waits by the store's clock: that of another machine may be anywhere.
        books = _Books(await self._store.now() if held else 0, () if doubtful else results)
        for result in results if doubtful else ():
            if result.state not in DOUBTFUL:
                books.final.append(result)
            elif result.run_id in held:  # else it is no longer running, whoever ended it
                books.judge(result, held[result.run_id])
        await self._make_calls(books)
        return await self._write(books, len(results))

    async def _make_calls(self, books: _Books) -> None:
        callers = {w.result.run_id: w.result for w in books.waiting if w.wait is not None and w.wait.calls}
        if callers:
            assert self._callers is not None, "whoever runs handlers serves their calls"
            books.calls = await self._callers.make({i: (books.jobs[i], result) for i, result in callers.items()})

    def note_fenced(self, count: int) -> None:
        """Results that were refused before they came here."""
        self._metrics.fenced += count

    async def reap(self, node: str, keep: Collection[Fenced] = (), session: int | None = None) -> set[Fenced]:
        """Take back what a node no longer runs; return what it holds in the books. Under its fence, so a pause between
        the look and the taking does no harm: what was claimed again meanwhile has another one."""
        books = await self._store.load_running(node, session=session)
        lost = [one for one in books if one not in keep and (one[0], ANY_FENCE) not in keep]
        await self.take_back(node, dict(lost))
        return set(books)

    async def take_back(self, node: str, running: Mapping[int, int], why: str = "", wait: float = 0.0) -> int:
        """Runs with the fence under which a dead node held them: queued again, or ended when lost too often. `wait` is
        in seconds: whoever held them may still be about to kill them."""
        return await self.take_back_all({node: running}, why, wait)

    async def take_back_all(self, dead: Mapping[str, Mapping[int, int]], why: str = "", wait: float = 0.0) -> int:
        """The same for many nodes at once."""
        lost = {run_id: (fence, node) for node, running in dead.items() for run_id, fence in running.items()}
        held = await self._store.load_held(list(lost)) if lost else []
        if not held:
            return 0
        books = _Books(await self._store.now(), loss_wait=wait)
        for h in held:
            fence, node = lost[h.run_id]
            message = lifecycle.lost_words(why or f"its agent {node} died", h.progress)
            books.judge(Result(h.run_id, fence, State.FAILED, Reason.LOST, message=message), h)
        return len(await self._write(books, len(held)))

    async def _write(self, books: _Books, count: int) -> set[int]:
        finished = await self._finishes.add(books)
        self._starting.note_ended(finished.accepted)
        metrics = self._metrics
        metrics.fenced += count - len(finished.accepted)
        for w in books.waiting:
            metrics.lost += w.lost and w.result.run_id in finished.accepted
            metrics.retried += w.begun and not w.lost and w.result.run_id in finished.accepted
        for result in books.unlucky(finished.accepted):
            _log_failure(result, books.roots.get(result.run_id), self._installation)
        if finished.accepted:
            self._queue.announce("events")
        metrics.count_ended([result.state for result in books.final if result.run_id in finished.accepted])
        is_back = any(w.eligible_at is None and w.wait is None for w in books.waiting)
        if finished.demanding or is_back:  # what was lost may have had more than a slot
            self._queue.announce("limits")
        if is_back:
            self._queue.announce("units")
        if finished.promoted or is_back:
            self._queue.announce("runs")
        if any(w.eligible_at is not None for w in books.waiting):
            self._queue.announce("waiting")
        if finished.noted or books.calls:
            self._queue.announce("endings")  # servers do some of what is called themselves
        if self._after_failures is not None and (failing := books.failing(finished.accepted)):
            await self._after_failures(failing)
        return finished.accepted

    async def _finish_all(self, every: list[_Books]) -> list[Finished]:
        """Those of many agents in one go; but of one run only one word at a time, whoever says it."""
        together: list[_Books] = []
        seen: set[int] = set()
        for books in every:
            if not seen.isdisjoint(books.run_ids):
                break
            together.append(books)
            seen |= books.run_ids
        final, waiting = ([one for books in together for one in getattr(books, part)] for part in ("final", "waiting"))
        calls = {run_id: made for books in together for run_id, made in books.calls.items()}
        finished = await self._put(final, waiting, calls)
        self._metrics.batches["finish"] += 1
        answers = [replace(finished, accepted=finished.accepted & books.run_ids) for books in together]
        return answers + (await self._finish_all(every[len(together) :]) if len(together) < len(every) else [])

    async def _put(
        self, final: Sequence[Result], waiting: Sequence[Waiting], calls: Mapping[int, Calls] = NO_CALLS
    ) -> Finished:
        """Into the store. An attempt whose words cannot be written takes nobody with it: it has failed, and says so."""
        try:
            return await self._store.finish(final, waiting, calls)
        except Invalid as error:
            every: list[Result | Waiting] = [*final, *waiting]
            if len(every) == 1:
                return await self._put_plainly(every[0], error)
        finished = Finished(set(), 0)
        for part in (every[: len(every) // 2], every[len(every) // 2 :]):
            ends = [one for one in part if isinstance(one, Result)]
            other = await self._put(ends, [one for one in part if isinstance(one, Waiting)], calls)
            finished = _sum(finished, other)
        return finished

    async def _put_plainly(self, one: Result | Waiting, error: Invalid) -> Finished:
        make_plain(one if isinstance(one, Result) else one.result, await self._store.now(), error.message)
        return await self._store.finish(*([one], []) if isinstance(one, Result) else ([], [one]))


def _sum(one: Finished, other: Finished) -> Finished:
    return Finished(
        one.accepted | other.accepted, one.promoted + other.promoted, one.demanding + other.demanding,
        one.noted or other.noted,
    )  # fmt: skip


def _doubtful(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if r.state is not State.SUCCEEDED and r.state in DOUBTFUL]


def _room(offer: Offer) -> int:
    return sum(offer.room.values())


class _Books:
    """What a batch of attempts comes to: runs that end, and runs that are tried again."""

    def __init__(self, now: Moment, final: Sequence[Result] = (), loss_wait: float = 0.0) -> None:
        """`loss_wait`: seconds before what was lost may begin again."""
        self.now = now
        self._after_loss = now + round(loss_wait * SECOND) if loss_wait else None
        self.final = list(final)
        self.waiting: list[Waiting] = []
        self.jobs: dict[int, int] = {}  # run → job, of those judged
        self.roots: dict[int, int] = {}  # run → the one at the top, of tasks among them
        self.calls: Mapping[int, Calls] = NO_CALLS  # what they call
        self.breakers: set[int] = set()  # runs of jobs that pause themselves when they fail too often

    @cached_property
    def run_ids(self) -> set[int]:
        """Asked once all are judged."""
        return {result.run_id for result in self.final} | {waiting.result.run_id for waiting in self.waiting}

    def unlucky(self, accepted: Collection[int]) -> Iterator[Result]:
        """Attempts that failed, ran out of time or were lost, whether or not their run is tried again."""
        results = (*self.final, *(waiting.result for waiting in self.waiting if waiting.begun))
        return (each for each in _doubtful(results) if each.run_id in accepted)

    def failing(self, accepted: Collection[int]) -> set[int]:
        """Return the jobs of runs that failed for good, of those that want it to have consequences."""
        failed = (State.FAILED, State.TIMED_OUT)
        ended = (each.run_id for each in self.final if each.run_id in self.breakers and each.state in failed)
        return {self.jobs[run_id] for run_id in ended if run_id in accepted}

    def judge(self, result: Result, held: Held) -> None:
        """Decide about an attempt that did not succeed."""
        self.jobs[result.run_id] = held.job_id
        if held.root is not None:
            self.roots[result.run_id] = held.root
        if "pause_after_failures" in held.policy:
            self.breakers.add(result.run_id)
        if result.state is State.BLOCKED and result.wait is not None:
            self._judge_wait(result, result.wait, held)
        elif result.state is State.QUEUED or result.reason == Reason.LOST:
            self._judge_loss(result, held)
        else:
            self._judge_failure(result, held)

    def _judge_loss(self, result: Result, held: Held) -> None:
        """A run for which its agent had less free than it asks for was not lost: it has not begun. It is not given out
        at once again: should they go on to differ about what is free, they do so in peace."""
        is_refused = result.state is State.QUEUED and result.reason == Reason.LIMIT
        reason, losses = (Reason.LIMIT, 0) if is_refused else (Reason.LOST, held.lost + 1)
        verdict = lifecycle.after_loss(lost=losses, cancel_requested=held.cancel_requested)
        lost = replace(result, state=State.FAILED, reason=reason, finished_at=result.finished_at or self.now)
        if verdict.state is not State.QUEUED:
            self.final.append(replace(lost, state=verdict.state, reason=verdict.reason))
        elif is_refused:
            self.waiting.append(Waiting(lost, self.now + REFUSED_WAIT, begun=False))
        else:
            self.waiting.append(Waiting(lost, self._after_loss, lost=True))

    def _judge_wait(self, result: Result, wait: Wait, held: Held) -> None:
        """One that is not over. What it waits for may have come already: the store sees that."""
        waits = replace(result, reason=wait.reason, finished_at=result.finished_at or self.now)
        if held.cancel_requested:
            self.final.append(replace(waits, state=State.CANCELLED, reason=Reason.REQUESTED, wait=None))
            return
        waits.message = in_words(wait, self.now)
        self.waiting.append(Waiting(waits, goes_on_at(wait, self.now), begun=False, wait=wait))

    def _judge_failure(self, result: Result, held: Held) -> None:
        verdict = lifecycle.after_failure(
            policies.policy_from_text(held.policy), state=result.state, reason=result.reason, attempt=held.attempt,
            lost=held.lost, run_id=result.run_id, final=result.final or held.cancel_requested,
            retry_after=result.retry_after,
        )  # fmt: skip
        if verdict.state is State.BLOCKED:
            self.waiting.append(Waiting(result, self.now + round(verdict.wait_seconds * SECOND)))
        else:
            self.final.append(result)


def _log_failure(result: Result, root: int | None, installation: str) -> None:
    """One line in our own log, under the trace id that the run's own lines and calls have."""
    log.warning(
        "attempt.failed", run_id=result.run_id, trace_id=traces.trace_id(root or result.run_id, installation),
        state=result.state.word, reason=str(result.reason), message=result.message,
    )  # fmt: skip


class LocalLink:
    """The Link of an agent that lives in this process, or whose frames arrive in it.

    `place` is the node whose directory holds the output of its runs, and is noted with them. Who `may_stand_by` takes
    only what is pinned to it, unless it is the active node (see Store.claim).
    """

    def __init__(
        self, execution: Execution, store: ExecutionStore, queue: Queue, *, place: str = "", may_stand_by: bool = False
    ) -> None:
        self._execution = execution
        self._store = store
        self._place = place
        self._may_stand_by = may_stand_by
        self._watches = {topic: queue.watch(topic) for topic in LINK_TOPICS}
        self._node: Node | None = None
        self.beside = Beside()
        self.line = token_hex(16)
        self.session: int | None = None  # of our line; None before there is one, and then whoever comes is welcome
        self._is_joining = False  # a registration is under way, or broke off: whether it happened, nobody knows
        self._differed = 0  # beats in a row after which the books differed from what the agent holds

    async def hello(self, node: Node, held: Collection[Fenced] = ()) -> None:
        """Registered first: from then on no claim of an earlier line or life can come, and what is held is all there
        is to take back."""
        self._node = node
        self._is_joining = True
        self.session = await self._store.register_node(node, session=self.session, line=self.line)
        await self._execution.reap(node.name, keep={*held, *self.beside.attempts}, session=self.session)
        self._is_joining = False

    async def take_up(self, node: Node) -> None:
        self._node = node

    def resume(self, node: Node, session: int) -> None:
        """Go on with a node that has joined through another link; with session 0, one that is not there yet."""
        self._node, self.session = node, session

    async def claim(self, room: Mapping[str, int], free: Mapping[str, int] | None = None) -> list[Assignment]:
        session = self.session
        try:
            return await self._execution.claim(self._me, room, session, free=free, may_stand_by=self._may_stand_by)
        except Superseded as error:
            if session == self.session:
                raise
            raise Unavailable("this node has registered anew since it asked") from error

    def may_start_new(self, order: Order) -> bool:
        """Return whether this node may have the run of an order as it is made."""
        return self.session is not None and not self._may_stand_by and self._execution.may_start_new(order)

    async def start_new(self, order: Order) -> tuple[Receipt | None, list[Assignment] | None]:
        """As Execution.start_new, for this node."""
        assert self.session is not None, "may_start_new comes first"
        return await self._execution.start_new(order, self._me, self.session)

    async def finish(self, results: Sequence[Result]) -> set[int]:
        return await self._execution.finish([self._placed(result) for result in results] if self._place else results)

    async def note_phases(self, phases: Sequence[tuple[int, int, Phase]]) -> None:
        await self._store.set_phases(phases, session=self.session)

    async def note_progress(self, notes: Sequence[tuple[int, int, str]]) -> None:
        """What the store cannot write is left out: it is no more than a word on the way."""
        try:
            await self._store.note_progress(notes, session=self.session)
        except Invalid:
            for note in notes if len(notes) > 1 else ():
                await self.note_progress([note])

    def _placed(self, result: Result) -> Result:
        """What others wrote says itself where it lies."""
        return (
            result
            if result.output is None or ":" in result.output
            else replace(result, output=f"{self._place}:{result.output}")
        )

    async def beat(self, busy: int, held: Holding | None = None, free: Mapping[str, int] | None = None) -> Beat | None:
        """One beat after which the books differ says little: a claim or a result may be under way. Two in a row do.
        Who has not joined must do that first, under whatever session we have by now."""
        if self._is_joining:
            return None
        held = held and self.beside.added_to(held)
        answer = await self._execution.beat(Sign(self._me.name, busy, self.session, held, free))
        if answer is None or (held is not None and not answer.differs):
            self._differed = 0
        elif answer.differs:
            self._differed += 1
            if self._differed >= CONVINCING_BEATS:
                self._differed = 0
                log.warning("books.differ", node=self._me.name, held=held.size if held else 0)
                return replace(answer, in_doubt=True)
        return answer

    async def note_ailment(self, ailment: str) -> None:
        await self._store.note_ailment(self._me.name, ailment, session=self.session)

    async def wait(self, topic: Topic, seconds: float) -> bool:
        return await self._watches[topic].wait(seconds)

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        return await self._store.load_previous(job_ids)

    async def disown(self, held: Collection[Fenced]) -> set[Fenced]:
        async with self.beside.claiming:
            keep = {*held, *self.beside.attempts}
            ours = await self._execution.reap(self._me.name, keep=keep, session=self.session)
        runs = {run_id for run_id, _ in ours}
        return {one for one in held if one not in ours and (one[1] != ANY_FENCE or one[0] not in runs)}

    async def goodbye(self) -> None:
        await self._store.retire_node(self._me.name, NodeState.GONE, session=self.session)

    @property
    def _me(self) -> Node:
        assert self._node is not None, "hello comes first"
        return self._node
