"""Workers of the RPC contract that can be called: what waits is sent to them, they are asked for their health, and told
to stop what was cancelled.

How a run is lent and handed over is in dispatching.py; here is when, and to whom. Nothing here is needed for truth: a
worker that is never called can pull, and hears of what it shall stop when it beats. Only the leader does it, so that
no worker is asked twice; should two lead for a moment, the loans decide.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import NamedTuple, Protocol

import structlog

from horae.core.definitions import Idempotency
from horae.core.members import org_of, plain_name
from horae.core.model import Job, Node, Run
from horae.core.runs.stages import RPC, outside_pin
from horae.errors import Conflict, Error, NotFound, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.loans import Loans
from horae.ports.transport import NOT_SENT, Reply
from horae.service.external.dispatching import Dispatching, capacity
from horae.service.external.loans import FOR_USERS, Lending
from horae.service.external.members import ExternalMembers
from horae.service.jobs import Jobs

log = structlog.get_logger(__name__)

PUSHED_TOGETHER = 32  # calls under way at once
ASIDE = 5.0  # seconds for which a worker that took nothing is not asked again
AGAIN = 10.0  # seconds after which a worker is told once more to stop what it still holds


class Health(NamedTuple):
    load: int | None
    capacity: int | None
    held: frozenset[int]  # runs that it says it has


class WorkerWords(Protocol):
    """What workers of the contract say of themselves."""

    @property
    def seconds(self) -> float:
        """For which a worker may be silent."""

    def read_health(self, reply: Reply) -> Health | None:
        """None from a worker that is not well."""


class Pushing:
    def __init__(
        self,
        store: Loans,
        clock: Clock,
        jobs: Jobs,
        lending: Lending,
        members: ExternalMembers,
        dispatching: Dispatching,
        words: WorkerWords,
    ) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs
        self._lending = lending
        self._members = members
        self._dispatching = dispatching
        self._words = words
        self._aside: dict[str, float] = {}  # worker → until when it is left alone
        self._told: dict[tuple[int, int], float] = {}  # (run, attempt) → when its worker was told to stop

    async def has_workers(self) -> bool:
        return bool(await self._dispatching.callable_workers(RPC))

    # ── dispatch ──
    async def push(self) -> bool:
        """Send what waits to workers with room; return whether there was any."""
        places: dict[int, list[Node]] = {}
        for node in await self._places():
            places.setdefault(org_of(node), []).append(node)
        sent: list[tuple[int, Node]] = []
        for org, nodes in places.items():
            waiting = await self._store.load_made_for(FOR_USERS, outside_pin(RPC), org, len(nodes))
            sent += zip(waiting, nodes, strict=False)
        await asyncio.gather(*(self._send(*each) for each in sent))
        return bool(sent)

    async def _places(self) -> list[Node]:
        """Free places, worker by worker in turn, the least loaded first."""
        now = self._clock.elapsed()
        self._aside = {name: until for name, until in self._aside.items() if until > now}
        nodes = [n for n in await self._dispatching.candidates(RPC) if n.name not in self._aside]
        held = Counter(loan.worker for loan in await self._lending.loans()) if nodes else Counter()
        room = {node.name: capacity(node) - held[node.name] for node in nodes}
        turns = range(max(room.values(), default=0))
        return [node for turn in turns for node in nodes if room[node.name] > turn][:PUSHED_TOGETHER]

    async def _send(self, run_id: int, node: Node) -> None:
        try:
            run = await self._jobs.get_run(run_id)
            await self._dispatching.dispatch(await self._jobs.get(run.job_id), run, node)
        except (Conflict, NotFound):
            return  # somebody else has it
        except Unavailable as error:
            log.info("run.not_taken", run_id=run_id, worker=node.name, error=error.message)
            self._aside[node.name] = self._clock.elapsed() + ASIDE

    async def send_to(self, job: Job, run: Run | None, worker: str, idempotency: Idempotency | None) -> Run:
        """Send a job to this worker: the run that waits, or one that is made for it. Unavailable where the worker does
        not take it; then what was made for it ends."""
        node = await self._members.get("agent", worker, org=job.org)
        if run is None:
            latest = (await self._jobs.standing([job.id]))[job.id].latest
            run = latest if latest is not None and not latest.state.is_terminal else None
        if run is not None:
            return await self._dispatching.dispatch(job, run, node)
        made = await self._jobs.run_now(job.id, node=outside_pin(RPC), idempotency=idempotency)
        try:
            return await self._dispatching.dispatch(job, made, node)
        except Unavailable as error:
            if error.code in (NOT_SENT, "E_AT_CAPACITY"):
                with suppress(Conflict):  # somebody else has it
                    await self._jobs.cancel(made.id)
            raise

    # ── health ──
    async def ask_health(self) -> None:
        """Workers that answer are alive, and keep what they say they hold; the others fall silent by themselves."""
        nodes = await self._dispatching.callable_workers(RPC)
        await asyncio.gather(*(self._ask(node) for node in nodes))

    async def _ask(self, node: Node) -> None:
        try:
            reply = await self._dispatching.ask_health(node)
        except Error as error:
            log.info("worker.silent", worker=node.name, error=error.message)
            return
        health = None if reply is None else self._words.read_health(reply)
        if health is None:
            log.warning("worker.unwell", worker=node.name)
            return
        await self._members.beat("agent", plain_name(node.name), busy=health.load, slots=health.capacity)
        for loan in await self._lending.loans(sorted(health.held)) if health.held else ():
            if loan.worker == node.name:
                with suppress(Conflict, NotFound):  # it has ended meanwhile
                    await self._lending.report(
                        loan.run_id, loan.attempt, worker=node.name, seconds=self._words.seconds, holder=node.name
                    )

    # ── cancel ──
    async def tell_cancelled(self) -> None:
        """Tell workers to stop what somebody cancelled, until they have."""
        names = {node.name for node in await self._dispatching.callable_workers(RPC)}
        held = [loan for loan in await self._lending.loans() if loan.worker in names] if names else []
        known = {(loan.run_id, loan.attempt) for loan in held}
        self._told = {key: at for key, at in self._told.items() if key in known}
        await asyncio.gather(*(self._tell(loan.run_id) for loan in held))

    async def _tell(self, run_id: int) -> None:
        run = await self._jobs.get_run(run_id)
        key, now = (run.id, run.attempt), self._clock.elapsed()
        if not run.cancel_requested or now - self._told.get(key, -AGAIN) < AGAIN:
            return
        self._told[key] = now
        await self._dispatching.cancel(await self._jobs.get(run.job_id), run)
