"""Runs lent to workers outside Horae, which pull work and report by the protocol of a source document.

Such a worker has no fence and no lease of its own, and cannot be made to kill its work. So it holds a run on loan:
every report prolongs the loan, and one that runs out is taken back as if its agent had died. A late report is told
from a good one by the attempt, which facades put into the id they give out. What cannot be promised: that a worker
that fell silent has stopped (see docs/explanation/delivery.md).

Whether a failed run is tried again is decided as for every other, by Execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from horae.core.model import SECOND, Job, Json, Loan, Phase, Reason, Run, State
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import Lend, Result
from horae.core.runs.stages import RPC, is_kept_outside, outside_pin
from horae.errors import Conflict, NotFound
from horae.ports.store.attempts import Attempts
from horae.ports.store.loans import Loans
from horae.ports.store.moments import StoreClock
from horae.ports.store.runs import Runs
from horae.service.execution import Execution
from horae.service.jobs import Jobs

FOR_USERS = ("python", "shell")  # kinds of work whose code has a location


class LendingStore(Loans, Runs, Attempts, StoreClock, Protocol):
    """Runs, and who has borrowed them."""


@dataclass(frozen=True, slots=True)
class Lent:
    job: Job  # with its secrets
    run: Run


class Lending:
    def __init__(self, store: LendingStore, jobs: Jobs, execution: Execution) -> None:
        self._store = store
        self._jobs = jobs
        self._execution = execution

    async def lend(self, kinds: Sequence[str], *, worker: str, seconds: float, org: int | None = None) -> Lent | None:
        """Return the next run of these kinds, for a worker that asks for one; None when there is nothing to do. With
        `org`, only of its jobs: they come with their secrets."""
        while (loan := await self._store.lend(kinds, await self._until(worker, seconds), org=org)) is not None:
            lent = Lent(await self._jobs.get(loan.job_id), await self._jobs.get_run(loan.run_id))
            if await self._may_begin(lent) and (job := await self._execution.open_lent(lent.job, lent.run)):
                return Lent(job, lent.run)
        return None

    async def lend_due(self, *, org: int, worker: str, seconds: float, limit: int) -> list[Lent]:
        """Return the next runs of jobs that were made for somebody by the RPC contract. Without their secrets: such a
        worker has its own."""
        loans = await self._store.lend_made_for(
            FOR_USERS, await self._until(worker, seconds), org, outside_pin(RPC), limit
        )
        jobs = {job.id: job for job in await self._jobs.get_many(sorted({loan.job_id for loan in loans}))}
        return [Lent(jobs[loan.job_id], await self._jobs.get_run(loan.run_id)) for loan in loans]

    async def _may_begin(self, lent: Lent) -> bool:
        """Return whether nobody else writes what it writes; else the run waits from now on."""
        return await self._execution.lock(lent.job, lent.run)

    async def lend_run(self, run_id: int, *, worker: str, seconds: float, pin: str | None = None) -> Run:
        """This run, if it is queued; with `pin` only workers outside Horae get it from now on."""
        loan = await self._store.lend([], await self._until(worker, seconds, pin), run_id)
        if loan is None:
            raise await self._refusal(run_id, "cannot be lent")
        run = await self._jobs.get_run(run_id)
        if not await self._may_begin(Lent(await self._jobs.get(loan.job_id), run)):
            raise await self._refusal(run_id, "cannot be lent")
        return run

    async def fire(self, job_id: int, *, worker: str, seconds: float, pin: str | None = None) -> Run:
        """Fire what is due of a job, and lend the run: what a scheduler outside Horae does with an offered moment."""
        run = await self._jobs.fire_due(job_id, await self._until(worker, seconds, pin))
        if run.state is State.RUNNING and not await self._may_begin(Lent(await self._jobs.get(job_id), run)):
            message = (await self._jobs.get_run(run.id)).message
            raise Conflict(f"job {job_id} was fired, but its run waits: {message}", code="E_NOT_DUE")
        return run

    async def report(
        self,
        run_id: int,
        attempt: int | None = None,
        *,
        worker: str,
        seconds: float,
        phase: Phase | None = None,
        progress: Json | None = None,
        holder: str | None = None,
        pin: str | None = None,
    ) -> bool:
        """Prolong a loan and note how far it is; return whether the worker shall stop. Refused when it is not, or no
        longer, that of `holder`."""
        text = None if progress is None else msgspec.json.encode(progress).decode()
        until = await self._until(worker, seconds, pin)
        asked = await self._store.renew_loan(run_id, attempt, until, phase, text, holder=holder)
        if asked is None:
            raise await self._refusal(run_id)
        return asked

    async def finish(
        self,
        run_id: int,
        attempt: int | None,
        state: State,
        *,
        message: str = "",
        result: Any = None,
        cursor: Json | None = None,
        exit_code: int | None = None,
        output: str | None = None,
    ) -> None:
        """End an attempt as its worker says: succeeded, failed or cancelled. A `cursor` counts with success only."""
        loan = await self._loan(run_id, attempt)
        reason = {State.FAILED: Reason.ERROR, State.CANCELLED: Reason.REQUESTED}.get(state, Reason.NONE)
        text = None if result is None else msgspec.json.encode(result).decode()
        now = await self._store.now()
        ended = Result(
            run_id, loan.fence, state, reason, finished_at=now, exit_code=exit_code, message=message, result=text,
            output=output, cursor=None if cursor is None else msgspec.json.encode(cursor).decode(),
        )  # fmt: skip
        if run_id not in await self._execution.finish([ended]):
            raise await self._refusal(run_id)

    async def pass_on(self, loan: Loan, lend: Lend) -> Loan:
        """From a worker that has not begun to another one, by compare-and-set."""
        if not await self._store.pass_loan(loan, lend):
            raise await self._refusal(loan.run_id, "was taken by somebody else")
        return replace(loan, worker=lend.worker, until_at=lend.until_at)

    async def give_back(self, run_id: int, attempt: int | None = None) -> None:
        """Let Horae's own agents have a lent run that was not begun; one that workers outside have begun before stays
        theirs."""
        loan = await self._loan(run_id, attempt)
        run = await self._jobs.get_run(run_id)
        was_begun = loan.attempt > 1 or not is_kept_outside(run)
        await self.put_back(loan, run.pin if was_begun else None)

    async def put_back(self, loan: Loan, pin: str | None) -> None:
        """To the queue, as if it had never been lent, for whom `pin` says."""
        job, run = await self._jobs.get(loan.job_id), await self._jobs.get_run(loan.run_id)
        start_by = new_run(job.id, job.kind, job.policy, run.due_at).start_by
        if not await self._store.return_loan(loan.run_id, loan.fence, start_by, pin=pin, holder=loan.worker):
            raise await self._refusal(loan.run_id)
        self._jobs.announce("runs")

    async def give_up(self, run_id: int, attempt: int | None, message: str) -> None:
        """Let others have a lent run that was begun: as if its worker had died."""
        loan = await self._loan(run_id, attempt)
        if not await self._execution.take_back(loan.worker, {run_id: loan.fence}, message):
            raise await self._refusal(run_id)

    async def loans(self, run_ids: Sequence[int] | None = None) -> list[Loan]:
        return await self._store.load_loans(run_ids)

    async def _loan(self, run_id: int, attempt: int | None) -> Loan:
        found = await self._store.load_loans([run_id])
        if not found or attempt not in (None, found[0].attempt):
            raise await self._refusal(run_id)
        return found[0]

    async def _until(self, worker: str, seconds: float, pin: str | None = None) -> Lend:
        return Lend(worker, await self._store.now() + round(seconds * SECOND), pin)

    async def _refusal(self, run_id: int, why: str = "is not on loan to you, or no longer") -> NotFound | Conflict:
        run = await self._store.get_run(run_id)
        if run is None:
            return NotFound(f"there is no run {run_id}")
        if run.state.is_terminal:
            return Conflict(f"run {run_id} has ended: {run.state.word}", code="E_TERMINAL")
        return Conflict(f"run {run_id} {why}: it is {run.state.word}")
