"""Telling runs what they wait for.

Those of many callers go to the store together; each has its own answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from horae.core.definitions import Idempotency
from horae.core.model import Job, Json, Run
from horae.core.runs.waits import Signal, Told
from horae.core.waits import DECISION
from horae.core.work.kinds import BY_SERVERS
from horae.core.work.waiting import WAIT
from horae.errors import Conflict, Denied, Error, NotFound
from horae.ports.store.definitions import Definitions
from horae.ports.store.runs import Runs
from horae.ports.store.signals import Signals as SignalStore
from horae.ports.transport import Queue
from horae.service.batching import Coalescer

TOGETHER = 1000  # signals that one statement writes at most


MOST_LISTED = 1000  # approvals that are looked through
MOST_OF_ONE = 20  # approvals for which one run and its tasks wait, that are shown


class SignalsStore(Definitions, Runs, SignalStore, Protocol):
    """Jobs, runs, and what they are told."""


class Decider(NamedTuple):
    """Who decides. The one user of a server without logins may decide whatever it is asked."""

    owner: str
    is_alone: bool = False

    def may(self, asked: Json) -> bool:
        return self.is_alone or self.owner in asked["by"]


def approval_of(job: Job) -> Json | None:
    """Return whom a job asks, and what; None: nobody."""
    return job.spec["wait"].get("approval") if job.kind == WAIT else None


class Signals:
    def __init__(self, store: SignalsStore, queue: Queue) -> None:
        self._store = store
        self._queue = queue
        self._signals = Coalescer(self._send_all, limit=TOGETHER)

    async def send(self, run_id: int, name: str, value: str, by: str, idempotency: Idempotency | None = None) -> Run:
        """Tell a run something (JSON text); return it as it stands then. Who repeats it with the same key is told the
        same."""
        told = await self._signals.add(Signal(run_id, name, value, by, idempotency))
        run = await self._store.get_run(run_id)
        if run is None:  # there was none, or it ended and was removed since
            raise NotFound(f"there is no run {run_id}")
        if (error := _refusal(run, name, told)) is not None:
            raise error
        if run.kind in BY_SERVERS:
            self._queue.announce("endings")
        return run

    async def decide(
        self, run_id: int, who: Decider, *, approved: bool, comment: str, idempotency: Idempotency | None = None
    ) -> Run:
        """Say yes or no to a run that waits for an approval."""
        run = await self._store.get_run(run_id)
        jobs = [] if run is None else await self._store.load_jobs([run.job_id])
        if not jobs:
            raise NotFound(f"there is no run {run_id}")
        asked = approval_of(jobs[0])
        if asked is None:
            raise Conflict(f"run {run_id} waits for nobody's approval", code="E_NOT_ASKED")
        if not who.may(asked):
            names = ", ".join(asked["by"])
            raise Denied(f"{names} may decide about run {run_id}, and you are {who.owner}", code="E_NOT_ASKED")
        value = msgspec.json.encode({"approved": approved, "comment": comment}).decode()
        return await self.send(run_id, DECISION, value, who.owner, idempotency)

    async def list_approvals(self, who: Decider, org: int | None) -> list[tuple[Run, Job]]:
        """Return what waits for the decision of somebody, oldest first."""
        return [(run, job) for run, job, asked in await self._all_asked(org) if who.may(asked)]

    async def list_asked(self, org: int | None) -> list[tuple[Run, Job]]:
        """Return what waits for a decision, whoever may make it, oldest first."""
        return [(run, job) for run, job, _ in await self._all_asked(org)]

    async def _all_asked(self, org: int | None) -> list[tuple[Run, Job, Json]]:
        found = await self._asking(await self._store.load_awaiting(DECISION, MOST_LISTED))
        return [one for one in found if org is None or one[1].org == org]

    async def approvals_of(self, run: Run) -> list[tuple[Run, Job]]:
        """Return the decisions for which a run waits, or its tasks do, whoever may make them."""
        found = await self._asking(await self._store.load_awaiting_of(run.id, DECISION, MOST_OF_ONE))
        return [(run, job) for run, job, _ in found]

    async def _asking(self, runs: Sequence[Run]) -> list[tuple[Run, Job, Json]]:
        """Return runs with their jobs, and whom these ask for what."""
        ids = sorted({run.job_id for run in runs})
        jobs = {job.id: job for job in await self._store.load_jobs(ids)} if ids else {}
        found = [(run, jobs[run.job_id]) for run in runs if run.job_id in jobs]
        return [(run, job, asked) for run, job in found if (asked := approval_of(job)) is not None]

    async def _send_all(self, signals: list[Signal]) -> Sequence[Told]:
        told = await self._store.signal(signals)
        if any(one in (Told.WOKEN, Told.REPEATED) for one in told):  # who came first may not have lived to say it
            self._queue.announce("runs")
            self._queue.announce("limits")  # one of them may demand more than a slot
        return told


def answered_already(run_id: int, name: str) -> Conflict:
    return Conflict(f"run {run_id} was told {name} already; a name is answered once", code="E_ANSWERED")


def _refusal(run: Run, name: str, told: Told) -> Error | None:
    match told:
        case Told.ABSENT:
            return Conflict(f"run {run.id} has ended: {run.state.word}; it cannot be told anything", code="E_TERMINAL")
        case Told.ANSWERED:
            return answered_already(run.id, name)
        case Told.LATE:
            return Conflict(f"run {run.id} waited for {name} in vain, and has gone on", code="E_ANSWERED")
        case Told.FULL:
            return Conflict(f"run {run.id} was told so much that this does not fit", code="E_ANSWERS_FULL")
        case Told.MISMATCH:
            message = "this Idempotency-Key was used with a different request"
            return Conflict(message, code="E_IDEMPOTENCY_MISMATCH")
        case _:
            return None
