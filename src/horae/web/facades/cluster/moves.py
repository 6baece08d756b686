"""What a status asked for by a client of this contract comes to: fire, lend, report, finish, give back, cancel.

Every move is one compare-and-set of the service: of two clients that ask for the same, one is refused with 409.
A move to an end that was reached already is no error, so that a repeat after a lost answer is safe. A job that was
cancelled takes nothing more.
"""

from __future__ import annotations

from typing import NoReturn

from horae.core.model import Job, Json, Loan, Phase, Run, Standing, State
from horae.errors import Conflict, NotFound, Unavailable
from horae.service import Services
from horae.service.outside import node_name
from horae.web.facades.cluster.words import job_word, word_of

EXECUTION_SECONDS = 300.0  # that a run may go on without a word from its worker: the contract's execution timeout
NOBODY = "outside worker"  # who holds a run when the caller does not say who it is
ENDS = {"COMPLETED": State.SUCCEEDED, "FAILED": State.FAILED}


class Moves:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def standing(self, job: Job) -> Standing:
        return (await self._services.jobs.standing([job.id]))[job.id]

    async def _latest(self, job: Job) -> tuple[Run | None, str]:
        """The run to move, and the job's status; a cancelled job has none to move."""
        standing = await self.standing(job)
        return (None if job.deleted_at else standing.latest), job_word(job, standing)

    async def to(self, word: str, job: Job) -> None:
        """As PUT …/status asks."""
        if word == "CANCELLED":
            await self.cancel(job)
        elif word == "SCHEDULED":
            await self._fire(job)
        elif word == "RUNNING":
            await self.begin(job)
        elif word in ENDS:
            await self.end(job, word)
        else:
            await self._give_back(job)

    async def _fire(self, job: Job) -> None:
        """Lent for one scan interval: by then somebody must have begun with it."""
        _, now = await self._latest(job)
        if now != "PENDING":
            _refuse(job, now, "SCHEDULED")
        lending, station = self._services.lending, self._services.station
        holders = await self._services.outside.segments()
        holder = holders.get(job.segment)
        worker = node_name("scheduler", holder[0]) if holder else NOBODY
        await lending.fire(job.id, worker=worker, seconds=station.scan_interval)

    async def begin(self, job: Job, worker: str | None = None, progress: Json | None = None) -> Run:
        """A worker outside Horae runs it, and says so from time to time."""
        lending = self._services.lending
        run, now = await self._latest(job)
        if run is None or run.state not in (State.QUEUED, State.RUNNING):
            _refuse(job, now, "RUNNING")
        loan = await self.loan(run)
        if loan is None:
            run = await lending.lend_run(run.id, worker=worker or NOBODY, seconds=EXECUTION_SECONDS)
        else:
            _refuse_other(job, run, loan, worker)
        who = worker or (loan.worker if loan else NOBODY)
        await lending.report(
            run.id, run.attempt, worker=who, seconds=EXECUTION_SECONDS, phase=Phase.RUNNING, progress=progress
        )
        return await self._services.jobs.get_run(run.id)

    async def end(self, job: Job, word: str, worker: str | None = None, message: str = "") -> Run:
        """A worker outside Horae has done with it; whether a failure is tried again, the job's policy says."""
        run, now = await self._latest(job)
        if run is None:
            _refuse(job, now, word)
        if run.state.is_terminal and word_of(run) == word:
            return run
        loan = await self.loan(run)
        if loan is None:
            _refuse(job, now, word)
        _refuse_other(job, run, loan, worker)
        await self._services.lending.finish(run.id, loan.attempt, ENDS[word], message=message)
        return await self._services.jobs.get_run(run.id)

    async def _give_back(self, job: Job) -> None:
        """One that was begun has failed: the contract's agents ask for PENDING where they want it tried again."""
        run, now = await self._latest(job)
        if now == "PENDING":
            return
        loan = await self.loan(run) if run else None
        if run is None or loan is None:
            _refuse(job, now, "PENDING")
        if run.phase is Phase.RUNNING:
            await self._services.lending.finish(run.id, loan.attempt, State.FAILED, message="given back by its worker")
        else:
            await self._services.lending.give_back(run.id)

    async def cancel(self, job: Job) -> None:
        try:
            await self._services.jobs.delete(job.id)
        except NotFound:
            return  # it was cancelled before

    async def dispatch(self, job: Job) -> None:
        """Let Horae's agents have it: what was lent comes back to the queue, what is due is fired."""
        run, now = await self._latest(job)
        if now not in ("PENDING", "SCHEDULED"):
            _refuse(job, now, "RUNNING")
        self._refuse_full()
        if now == "PENDING":
            await self._services.jobs.fire_due(job.id)
        elif run is not None and await self.loan(run) is not None:
            await self._services.lending.give_back(run.id)

    def _refuse_full(self) -> None:
        station = self._services.station
        if "agent" not in station.roles:
            raise Unavailable(f"node {station.node} runs no jobs", code="E_AT_CAPACITY", hint="ask another")
        if station.busy() >= station.slots:
            message = f"all {station.slots} slots of node {station.node} are taken"
            raise Unavailable(message, code="E_AT_CAPACITY", hint="try again later, or ask another")

    async def loan(self, run: Run) -> Loan | None:
        """Who outside Horae holds a run."""
        found = await self._services.lending.loans([run.id]) if run.state is State.RUNNING else []
        return found[0] if found else None


def _refuse_other(job: Job, run: Run, loan: Loan, worker: str | None) -> None:
    """What a worker has begun is no other's, as far as callers say who they are."""
    if run.phase is Phase.RUNNING and worker not in (None, loan.worker):
        raise Conflict(f"job {job.id} is run by another worker")


def _refuse(job: Job, now: str, wanted: str) -> NoReturn:
    raise Conflict(f"job {job.id} is {now}, which does not become {wanted} this way")
