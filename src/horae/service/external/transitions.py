"""Jobs moved from stage to stage by workers outside Horae: fire, lend, report, finish, give back, cancel.

Every transition is one compare-and-set of the service: of two clients that ask for the same, one is refused. A
transition to an end that was reached already is no error, so that a repeat after a lost answer is safe. A job that was
cancelled takes nothing more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NoReturn

from horae.core.members import is_for, node_name, plain_name
from horae.core.model import Job, JobFilter, Json, Loan, Node, NodeState, Phase, Run, Standing, State
from horae.core.runs.orders import Lend
from horae.core.runs.stages import Stage, is_kept_outside, job_stage, outside_pin, run_stage
from horae.errors import Conflict, NotFound, Unavailable
from horae.ports.transport import OWN_PORT
from horae.service.external.dispatching import Dispatching, is_agent
from horae.service.external.loans import Lending
from horae.service.external.members import ExternalMembers
from horae.service.jobs import Jobs
from horae.service.local_node import LocalNode

EXECUTION_SECONDS = 300.0  # that a run may go on without a word from its worker
SEGMENTS_CONTRACT = "segments"  # whose workers these are
NOBODY = "outside worker"  # who holds a run when the caller does not say who it is
ENDS = {Stage.SUCCEEDED: State.SUCCEEDED, Stage.FAILED: State.FAILED}
PAGE = 500  # jobs looked at together


class WrongStage(Conflict):
    """A job is not where it would have to be."""

    def __init__(self, job_id: int, now: Stage, wanted: Stage) -> None:
        super().__init__(f"job {job_id} is {now.value}, which does not become {wanted.value} this way")
        self.job_id, self.now, self.wanted = job_id, now, wanted


class Transitions:
    def __init__(
        self,
        jobs: Jobs,
        lending: Lending,
        members: ExternalMembers,
        dispatching: Dispatching,
        local_node: LocalNode,
    ) -> None:
        self._jobs = jobs
        self._lending = lending
        self._members = members
        self._dispatching = dispatching
        self._local_node = local_node

    async def standing(self, job: Job) -> Standing:
        return (await self._jobs.standing([job.id]))[job.id]

    async def jobs_at(self, stage: Stage, org: int) -> AsyncIterator[tuple[Job, Standing]]:
        """Jobs of a stage, newest first; the cancelled ones are those that were deleted, then others."""
        deleted = [JobFilter(org=org, deleted=True)] if stage is Stage.CANCELLED else []
        for where in (*deleted, JobFilter(org=org)):
            cursor = None
            while True:
                page = await self._jobs.list(where, cursor, PAGE)
                standings = await self._jobs.standing([job.id for job in page.items])
                for job in page.items:
                    if job_stage(job, standings[job.id]) is stage:
                        yield job, standings[job.id]
                if (cursor := page.cursor) is None:
                    break

    async def _latest(self, job: Job) -> tuple[Run | None, Stage]:
        """Return the run to move, and the job's stage; a cancelled job has none to move."""
        standing = await self.standing(job)
        return (None if job.deleted_at else standing.latest), job_stage(job, standing)

    async def move(self, job: Job, wanted: Stage) -> None:
        """Bring a job to a stage, for a caller who does not say who it is."""
        if wanted is Stage.CANCELLED:
            await self.cancel(job)
        elif wanted is Stage.FIRED:
            await self._fire(job)
        elif wanted is Stage.RUNNING:
            await self.begin(job)
        elif wanted in ENDS:
            await self.end(job, wanted)
        else:
            await self._give_back(job)

    async def _fire(self, job: Job) -> None:
        """Lent for one scan interval: by then somebody must have begun with it. One that failed before is the same run,
        offered again."""
        run, now = await self._latest(job)
        if now is not Stage.WAITING:
            _refuse(job, now, Stage.FIRED)
        holder = (await self._members.segments()).get(job.segment)
        worker = node_name("scheduler", holder[0]) if holder else NOBODY
        seconds = self._local_node.scan_interval
        if run is not None and run.state is State.QUEUED:
            await self._lending.lend_run(run.id, worker=worker, seconds=seconds)
        else:
            await self._lending.fire(job.id, worker=worker, seconds=seconds)

    async def begin(
        self, job: Job, worker: str | None = None, progress: Json | None = None, attempt: int | None = None
    ) -> Run:
        """A worker outside Horae runs it, and says so from time to time. It holds the run, or takes it from the
        scheduler that does; from then on no agent of Horae may have it."""
        run, now = await self._latest(job)
        loan = await self.loan(run) if run else None
        if run is None or loan is None:
            await self._let_go(job, worker)
            _refuse(job, now, Stage.RUNNING)
        if worker is not None and worker != loan.worker and run.phase is Phase.PREPARING and not is_agent(loan.worker):
            await self._refuse_stranger(worker, job.org)
            loan = await self._lending.pass_on(loan, Lend(worker, loan.until_at, outside_pin(SEGMENTS_CONTRACT)))
        _refuse_other(job, loan, worker, attempt)
        await self._lending.report(
            run.id, loan.attempt, worker=loan.worker, seconds=EXECUTION_SECONDS, phase=Phase.RUNNING, progress=progress,
            holder=loan.worker, pin=outside_pin(SEGMENTS_CONTRACT),
        )  # fmt: skip
        return await self._jobs.get_run(run.id)

    async def _let_go(self, job: Job, worker: str | None) -> None:
        """What runs of a cancelled job ends when its worker hears of it."""
        run = (await self.standing(job)).latest if job.deleted_at is not None else None
        loan = await self.loan(run) if run else None
        if run is not None and loan is not None and worker in (None, loan.worker):
            await self._lending.finish(run.id, loan.attempt, State.CANCELLED, message="its job was cancelled")

    async def _refuse_stranger(self, worker: str, org: int) -> None:
        agents = await self._members.members("agent")
        if not any(node.name == worker and node.state == NodeState.LIVE and is_for(node, org) for node in agents):
            raise Conflict(f"agent {plain_name(worker)} is not registered, or fell silent", hint="register it first")

    async def end(
        self, job: Job, wanted: Stage, worker: str | None = None, message: str = "", attempt: int | None = None
    ) -> Run:
        """Return the worker that holds it has done with it; whether a failure is tried again, the job's policy says."""
        run, now = await self._latest(job)
        if run is None:
            await self._let_go(job, worker)
            _refuse(job, now, wanted)
        if run.state.is_terminal and run_stage(run) is wanted and worker in (None, run.node):
            return run
        loan = await self.loan(run)
        if loan is None:
            _refuse(job, now, wanted)
        _refuse_other(job, loan, worker, attempt)
        await self._lending.finish(run.id, loan.attempt, ENDS[wanted], message=message)
        return await self._jobs.get_run(run.id)

    async def _give_back(self, job: Job) -> None:
        """One that was begun has failed: workers that give a job back want it tried again."""
        run, now = await self._latest(job)
        if now is Stage.WAITING:
            return
        loan = await self.loan(run) if run else None
        if run is None or loan is None:
            _refuse(job, now, Stage.WAITING)
        if run.phase is Phase.RUNNING:
            await self._lending.finish(run.id, loan.attempt, State.FAILED, message="given back by its worker")
        else:
            await self._lending.give_back(run.id)

    async def cancel(self, job: Job) -> None:
        try:
            await self._jobs.delete(job.id)
        except NotFound:
            return  # it was cancelled before

    async def dispatch(self, job: Job, agent: Node | None = None) -> None:
        """Let an agent have it, one that registered or Horae's own: once, so who comes second is refused. What agents
        outside have begun goes to one of them."""
        run, now = await self._latest(job)
        if now not in (Stage.WAITING, Stage.FIRED):
            _refuse(job, now, Stage.RUNNING)
        if agent is None and run is not None and is_kept_outside(run):
            agent = await self._dispatching.choose(SEGMENTS_CONTRACT, job.org)
        if agent is None:
            await self._dispatch_here(job, run, now)
            return
        try:
            await self._dispatching.dispatch(job, run, agent)
        except Unavailable as error:
            if error.code != OWN_PORT:
                raise
            await self._dispatch_here(job, *await self._latest(job))

    async def _dispatch_here(self, job: Job, run: Run | None, now: Stage) -> None:
        """What was lent comes back to the queue, what is due is fired; what is queued already was sent before."""
        self._refuse_full()
        loan = await self.loan(run) if run is not None else None
        if loan is not None and not is_agent(loan.worker):
            await self._lending.give_back(loan.run_id)
        elif now is not Stage.WAITING:
            _refuse(job, now, Stage.RUNNING)
        elif run is None or run.state is not State.QUEUED:
            await self._jobs.fire_due(job.id)
        elif not await self._dispatching.free(run):
            _refuse(job, now, Stage.RUNNING)

    def _refuse_full(self) -> None:
        node = self._local_node
        if "agent" not in node.roles:
            raise Unavailable(f"node {node.node} runs no jobs", code="E_AT_CAPACITY", hint="ask another")
        if node.busy() >= node.slots:
            message = f"all {node.slots} slots of node {node.node} are taken"
            raise Unavailable(message, code="E_AT_CAPACITY", hint="try again later, or ask another")

    async def loan(self, run: Run) -> Loan | None:
        """Return who outside Horae holds a run."""
        found = await self._lending.loans([run.id]) if run.state is State.RUNNING else []
        return found[0] if found else None


def _refuse_other(job: Job, loan: Loan, worker: str | None, attempt: int | None) -> None:
    """What a worker holds is no other's, nor that of an earlier attempt, as far as callers say who they are."""
    if worker not in (None, loan.worker):
        raise Conflict(f"job {job.id} is with another worker")
    if attempt not in (None, loan.attempt):
        raise Conflict(f"job {job.id} is at attempt {loan.attempt} by now, not {attempt}")


def _refuse(job: Job, now: Stage, wanted: Stage) -> NoReturn:
    raise WrongStage(job.id, now, wanted)
