"""Attempts: given to agents, taken back with a result, decided upon.

Links call this: that of an agent in the same process (local_link), and sessions of agents elsewhere (rpc.agents).
An agent reports what it saw; whether a failed run is tried again is decided here, from the job's policy.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import structlog

from horae.core.definitions import Receipt
from horae.core.model import SECOND, Job, Node, Reason, Run, State
from horae.core.policy.demands import Offer
from horae.core.runs import lifecycle, traces
from horae.core.runs.calls import Calls
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Assignment, Finished, Order, Result, Waiting, Want
from horae.core.signs import Beat, Sign
from horae.core.work.kinds import WRITERS
from horae.errors import ConfigError, Invalid, Superseded, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.attempts import NO_CALLS, Attempts
from horae.ports.store.cluster import Nodes
from horae.ports.store.limits import Limits
from horae.ports.store.moments import StoreClock
from horae.ports.store.vault import Settings
from horae.ports.transport import Queue
from horae.service.batching import Coalescer
from horae.service.execution.books import DOUBTFUL, Books, those_in_doubt
from horae.service.jobs.callbacks import RunKeys
from horae.service.metrics import Metrics
from horae.service.policy.starting import Starting
from horae.service.preparation import Preparation, PreparationStore
from horae.service.results import make_plain
from horae.service.secrets.named import Secrets, reading
from horae.service.secrets.sealing import Sealing, may_be_sealed, unopened
from horae.service.workflows.calls import Callers

log = structlog.get_logger(__name__)
ANY_FENCE = 0  # of an agent that does not tell under which it holds a run
CLAIMED_TOGETHER = 2000  # runs that one statement claims at most, unless one agent alone has more room
FINISHED_TOGETHER = 2000  # and finishes, unless one batch alone is larger


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
        doubtful = [r.run_id for r in those_in_doubt(results)]
        held = {h.run_id: h for h in await self._store.load_held(doubtful)} if doubtful else {}
        # A retry waits by the store's clock: that of another machine may be anywhere.
        books = Books(await self._store.now() if held else 0, () if doubtful else results)
        for result in results if doubtful else ():
            if result.state not in DOUBTFUL:
                books.final.append(result)
            elif result.run_id in held:  # else it is no longer running, whoever ended it
                books.judge(result, held[result.run_id])
        await self._make_calls(books)
        return await self._write(books, len(results))

    async def _make_calls(self, books: Books) -> None:
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
        books = Books(await self._store.now(), loss_wait=wait)
        for h in held:
            fence, node = lost[h.run_id]
            message = lifecycle.lost_words(why or f"its agent {node} died", h.progress)
            books.judge(Result(h.run_id, fence, State.FAILED, Reason.LOST, message=message), h)
        return len(await self._write(books, len(held)))

    async def _write(self, books: Books, count: int) -> set[int]:
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

    async def _finish_all(self, every: list[Books]) -> list[Finished]:
        """Those of many agents in one go; but of one run only one word at a time, whoever says it."""
        together: list[Books] = []
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


def _room(offer: Offer) -> int:
    return sum(offer.room.values())


def _log_failure(result: Result, root: int | None, installation: str) -> None:
    """One line in our own log, under the trace id that the run's own lines and calls have."""
    log.warning(
        "attempt.failed", run_id=result.run_id, trace_id=traces.trace_id(root or result.run_id, installation),
        state=result.state.word, reason=str(result.reason), message=result.message,
    )  # fmt: skip
