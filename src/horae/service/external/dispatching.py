"""Work sent to workers outside Horae that registered: lend a run to one of them, then call it and hand it over.

The loan is a compare-and-set in the store and comes first, so of two who send the same run one is refused before
anybody is called. A worker that was not reached, or that refuses, has done nothing: the loan goes back to where it
came from, and all is as before. One that gave no answer may have begun: it keeps the loan until that runs out.

What such a worker has begun, or may have, is kept for workers of its contract (core.runs.stages.outside_pin): Horae's
own agents would do something else under its name. What it lost comes back here (`reassign`), what failed is offered
first to the scheduler that holds its segment; where no worker is left, it waits and says so.

How a worker is spoken to, a `Dialect` says: one for each contract whose workers are called.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from horae.core.members import is_for, node_name, plain_name
from horae.core.model import SECOND, Attempt, Job, Json, Loan, Node, NodeState, OperatorWish, Phase, Reason, Run, State
from horae.core.runs.orders import Kept, Lend
from horae.core.runs.stages import outside_pin
from horae.errors import Conflict, Denied, Error, Invalid, NotFound, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.loans import Loans
from horae.ports.store.moments import StoreClock
from horae.ports.transport import NOT_SENT, OWN_PORT, OutsideWorkers, Reply
from horae.service.external.loans import Lending
from horae.service.external.members import ExternalMembers
from horae.service.jobs import Jobs

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 10.0  # in which a worker must answer a call
CAPACITY = 10  # of a worker that never said
KEPT_TOGETHER = 200  # runs looked at in one round


class Call(NamedTuple):
    """What is sent to a worker."""

    path: str
    document: Json


class Errand(NamedTuple):
    """A run on its way to a worker."""

    job: Job
    run: Run
    progress: Json | None = None  # what the worker before it said last, as it said it
    previous: Attempt | None = None  # the attempt before, which failed or was lost


class Dialect(Protocol):
    """How workers of one contract are spoken to."""

    @property
    def name(self) -> str:
        """Of the contract: workers are found by it."""

    @property
    def seconds(self) -> float:
        """For which a worker that was sent a run may be silent before it says that it has begun."""

    def dispatch(self, errand: Errand) -> Call: ...

    def cancel(self, errand: Errand) -> Call | None:
        """None where the contract has no such call: its workers hear of it when they report."""

    def health(self) -> Call | None: ...

    def accepts(self, reply: Reply) -> bool | None:
        """Return whether the worker does it; None when the answer leaves that open."""


def tags(contract: str, *, is_trusted: bool) -> tuple[str, ...]:
    """Labels with which a worker registers that can be called: it may be called beyond loopback only if this very
    registration came with a token."""
    return f"contract={contract}", f"trusted={'yes' if is_trusted else 'no'}"


class DispatchStore(Loans, StoreClock, Protocol):
    """Runs, and who has borrowed them."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A run that was lent for a call, and how it was before."""

    loan: Loan
    pin: str | None
    before: Loan | None  # to somebody who had not begun


class Dispatching:
    def __init__(
        self,
        store: DispatchStore,
        clock: Clock,
        jobs: Jobs,
        lending: Lending,
        members: ExternalMembers,
        workers: OutsideWorkers,
        dialects: Collection[Dialect],
        *,
        offer_seconds: float,
    ) -> None:
        """`offer_seconds`: for which a failed run is left to the scheduler outside Horae that holds its segment."""
        self._store = store
        self._clock = clock
        self._jobs = jobs
        self._lending = lending
        self._members = members
        self._workers = workers
        self._dialects = {dialect.name: dialect for dialect in dialects}
        self._offer = offer_seconds
        self._doors: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # of workers
        self._offered: dict[tuple[int, int], float] = {}  # (run, attempt) → since when it is offered to a scheduler

    # ── one worker ──
    async def dispatch(self, job: Job, run: Run | None, node: Node) -> Run:
        """Send a job's run to a worker: the one that waits, or that somebody holds who has not begun; without one,
        that of its due moment. Unavailable, and nothing changed, where the worker does not take it. Conflict where
        somebody else was faster."""
        dialect = self._dialect(node)
        async with self._doors[node.name]:
            taken = await self._take_within(job, run, node, dialect)
        return await self._send(job, taken, node, dialect)

    async def cancel(self, job: Job, run: Run) -> None:
        """Tell the worker that holds a run to stop it, if its contract has a word for that. It may not hear it."""
        node = await self._holder(run)
        dialect = self._dialects.get(_tag(node, "contract")) if node else None
        call = dialect.cancel(Errand(job, run)) if dialect else None
        if node is not None and call is not None:
            try:
                await self._post(node, call)
            except Error as error:
                log.warning("worker.not_told", worker=node.name, run_id=run.id, error=error.message)

    async def ask_health(self, node: Node) -> Reply | None:
        """Return what a worker says of itself; None where its contract has no such call."""
        call = self._dialect(node).health()
        return None if call is None else await self._post(node, call)

    async def candidates(self, contract: str, org: int | None = None) -> list[Node]:
        """Workers of a contract that are live, can be called and have room, the least loaded first; with `org`, those
        that work for it."""
        held = await self._held()
        nodes = [node for node in await self.callable_workers(contract) if is_for(node, org)]
        return sorted((n for n in nodes if held.get(n.name, 0) < capacity(n)), key=lambda n: _load(n, held))

    async def callable_workers(self, contract: str) -> list[Node]:
        """Workers of a contract that are live and can be called, with room or without."""
        return [node for node in await self._members.members("agent") if _is_callable(node, contract)]

    async def choose(self, contract: str, org: int) -> Node:
        """Return the worker of an organisation with the most room."""
        found = await self.candidates(contract, org)
        if not found:
            message = "no registered agent has room for it, and others may not have it"
            raise Unavailable(message, code="E_AT_CAPACITY", hint="it waits for one")
        return found[0]

    async def waiting(self, contract: str, limit: int) -> list[tuple[Job, Run]]:
        """Return what waits for a worker of this contract, and for nobody else."""
        kept = await self._store.load_kept(outside_pin(contract), limit)
        jobs = {job.id: job for job in await self._jobs.get_many(sorted({each.job_id for each in kept}))}
        runs = [await self._jobs.get_run(each.run_id) for each in kept if each.job_id in jobs]
        return [(jobs[run.job_id], run) for run in runs if run.state is State.QUEUED]

    async def free(self, run: Run) -> bool:
        """Let everybody have a run that was kept for workers outside and never begun."""
        is_free = run.pin is not None and await self._store.free_kept([run.id], run.pin) > 0
        if is_free:
            self._jobs.announce("runs")
        return is_free

    def _dialect(self, node: Node) -> Dialect:
        found = self._dialects.get(_tag(node, "contract"))
        name = plain_name(node.name)
        if found is None or node.address.startswith(":") or not node.address[-1:].isdigit():
            raise Unavailable(f"agent {name} registered no host and port, so it is not called", code=NOT_SENT)
        if not _is_callable(node, found.name):
            raise Unavailable(f"agent {name} takes nothing now", code="E_AT_CAPACITY", hint="ask another")
        return found

    async def _holder(self, run: Run) -> Node | None:
        return next((node for node in await self._members.members("agent") if node.name == run.node), None)

    async def _held(self) -> dict[str, int]:
        held: dict[str, int] = {}
        for loan in await self._lending.loans():
            held[loan.worker] = held.get(loan.worker, 0) + 1
        return held

    async def _take_within(self, job: Job, run: Run | None, node: Node, dialect: Dialect) -> _Taken:
        """Within the worker's capacity. In one process one at a time is counted and lent; another process may lend
        meanwhile, so it is counted again: then both may step back, but never is one too many sent."""
        if (await self._held()).get(node.name, 0) >= capacity(node):
            raise _full(node)
        taken = await self._take(job, run, node, dialect)
        if (await self._held()).get(node.name, 0) > capacity(node):
            await self._undo(taken)
            raise _full(node)
        return taken

    async def _take(self, job: Job, run: Run | None, node: Node, dialect: Dialect) -> _Taken:
        worker, pin = node.name, outside_pin(dialect.name)
        if run is None or run.state.is_terminal:
            fired = await self._lending.fire(job.id, worker=worker, seconds=dialect.seconds, pin=pin)
            return _Taken(await self._loan(fired), pin, None)  # its moment is gone: it waits for workers like this one
        if run.state is State.QUEUED:
            lent = await self._lending.lend_run(run.id, worker=worker, seconds=dialect.seconds, pin=pin)
            return _Taken(await self._loan(lent), run.pin, None)
        loan = await self._loan(run)
        if run.phase is not Phase.PREPARING or is_agent(loan.worker):
            raise Conflict(f"job {job.id} is with {plain_name(loan.worker)} already")
        until = await self._store.now() + round(dialect.seconds * SECOND)
        return _Taken(await self._lending.pass_on(loan, Lend(worker, until, pin)), run.pin, loan)

    async def _loan(self, run: Run) -> Loan:
        found = await self._lending.loans([run.id]) if run.state is State.RUNNING else []
        if not found:
            raise Conflict(f"run {run.id} of job {run.job_id} cannot be sent: it is {run.state.word}")
        return found[0]

    async def _undo(self, taken: _Taken) -> None:
        try:
            if taken.before is None:
                await self._lending.put_back(taken.loan, taken.pin)
            else:
                before = Lend(taken.before.worker, taken.before.until_at, taken.pin)
                await self._lending.pass_on(taken.loan, before)
        except (Conflict, NotFound):
            log.warning("run.refused_and_begun", run_id=taken.loan.run_id, worker=taken.loan.worker)

    async def _send(self, job: Job, taken: _Taken, node: Node, dialect: Dialect) -> Run:
        run = await self._jobs.get_run(taken.loan.run_id)
        errand = Errand(job, run, taken.loan.progress, await self._previous(run))
        name = plain_name(node.name)
        try:
            accepts = dialect.accepts(reply := await self._post(node, dialect.dispatch(errand)))
        except (Denied, Invalid) as error:
            await self._undo(taken)
            code = OWN_PORT if error.code == OWN_PORT else NOT_SENT
            raise Unavailable(f"agent {name} is not called: {error.message}", code=code, hint=error.hint) from None
        except Unavailable as error:
            if error.code == NOT_SENT:
                await self._undo(taken)
                raise
            return await self._begun(run, error.message)
        if accepts is None:
            return await self._begun(run, f"agent {name} answered with {reply.status}")
        if not accepts:
            await self._undo(taken)
            raise Unavailable(f"agent {name} refused it with {reply.status}", code="E_AT_CAPACITY", hint="ask another")
        log.info("run.dispatched", run_id=run.id, worker=node.name, attempt=run.attempt)
        return run

    async def _begun(self, run: Run, why: str) -> Run:
        """Return a run of which nobody knows whether the worker has it, unless the worker itself has said so
        meanwhile."""
        now = await self._jobs.get_run(run.id)
        if now.state is State.RUNNING and now.phase is Phase.PREPARING:
            raise Unavailable(f"{why}; job {run.job_id} may have begun, and is kept for it until it reports")
        return now

    async def _previous(self, run: Run) -> Attempt | None:
        """Return the last attempt of a worker that ended, and not the run with it."""
        scheduler = node_name("scheduler", "")  # held it, and did nothing
        past = [each for each in await self._jobs.list_attempts(run.id) if not (each.node or "").endswith(scheduler)]
        return max(past, key=lambda attempt: attempt.attempt, default=None)

    async def _post(self, node: Node, call: Call) -> Reply:
        is_trusted = _tag(node, "trusted") == "yes"
        return await self._workers.post(
            node.address, call.path, call.document, trusted=is_trusted, seconds=ANSWER_SECONDS
        )

    # ── what workers lost, or failed at ──
    async def reassign(self) -> None:
        """One round of the leader: send what is kept for workers outside Horae to those that are left."""
        seen: set[tuple[int, int]] = set()
        for dialect in self._dialects.values():
            kept = await self._store.load_kept(outside_pin(dialect.name), KEPT_TOGETHER)
            if kept:
                seen |= await self._reassign(dialect, kept)
        self._offered = {key: since for key, since in self._offered.items() if key in seen}

    async def _reassign(self, dialect: Dialect, kept: Sequence[Kept]) -> set[tuple[int, int]]:
        taken = await self._members.segments()
        silent: set[str] = set()  # workers that did not take one in this round
        waiting, seen = [], set()
        for each in kept:
            job, run = await self._jobs.get(each.job_id), await self._jobs.get_run(each.run_id)
            seen.add((run.id, run.attempt))
            if await self._is_offered(run, job.segment in taken):
                continue
            if run.attempt == 0:
                await self.free(run)  # nobody has begun with it, and its offer has passed
            elif not await self._send_on(job, run, dialect, silent):
                waiting.append(run.id)
        if waiting:
            await self._store.mark_kept(waiting, outside_pin(dialect.name), Reason.NO_AGENT)
        return seen

    async def _is_offered(self, run: Run, has_scheduler: bool) -> bool:
        """Return whether it is left to a scheduler for now. What was lost is not: it is sent on at once."""
        previous = await self._previous(run)
        if not has_scheduler or (previous is not None and previous.reason == Reason.LOST):
            return False
        since = self._offered.setdefault((run.id, run.attempt), self._clock.elapsed())
        return self._clock.elapsed() - since < self._offer

    async def _send_on(self, job: Job, run: Run, dialect: Dialect, silent: set[str]) -> bool:
        """Return whether it need not wait: a worker has it, or somebody else saw to it."""
        while nodes := [n for n in await self.candidates(dialect.name, job.org) if n.name not in silent]:
            try:
                await self.dispatch(job, run, nodes[0])
            except (Conflict, NotFound):
                return True  # it was taken meanwhile, or cancelled
            except Unavailable as error:
                log.info("run.not_taken", run_id=run.id, worker=nodes[0].name, error=error.message)
                silent.add(nodes[0].name)
            else:
                return True
        return False


def capacity(node: Node) -> int:
    return node.slots or CAPACITY


def is_agent(worker: str) -> bool:
    """Return whether a loan is with one who runs jobs; others only pass them on."""
    return worker.endswith(node_name("agent", ""))


def _tag(node: Node | None, name: str) -> str:
    labels = node.labels if node is not None else ()
    return next((label.partition("=")[2] for label in labels if label.startswith(f"{name}=")), "")


def _is_callable(node: Node, contract: str) -> bool:
    is_live = node.state == NodeState.LIVE and node.wanted == OperatorWish.LIVE
    host, _, port = node.address.rpartition(":")
    return is_live and bool(host and port) and _tag(node, "contract") == contract


def _load(node: Node, held: dict[str, int]) -> tuple[float, str]:
    return held.get(node.name, 0) / capacity(node), node.name


def _full(node: Node) -> Unavailable:
    message = f"agent {plain_name(node.name)} has no room: all {capacity(node)} are taken"
    return Unavailable(message, code="E_AT_CAPACITY", hint="try again later, or ask another")
