"""Runs lent to workers outside Horae, which pull work and report by the protocol of a source document.

Such a worker has no fence and no lease of its own, and cannot be made to kill its work. So it holds a run on loan:
every report prolongs the loan, and one that runs out is taken back as if its agent had died. A late report is told
from a good one by the attempt, which facades put into the id they give out. What cannot be promised: that a worker
that fell silent has stopped (see docs/explanation/delivery.md).

Whether a failed run is tried again is decided as for every other, by Execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from horae.core.model import SECOND, Job, Json, Loan, Phase, Reason, Run, State
from horae.errors import Conflict, NotFound
from horae.ports import Lend, Result, Store
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.ledger import birth_of


@dataclass(frozen=True, slots=True)
class Lent:
    job: Job  # with its secrets
    run: Run


class Lending:
    def __init__(self, store: Store, jobs: Jobs, execution: Execution) -> None:
        self._store = store
        self._jobs = jobs
        self._execution = execution

    async def lend(self, kinds: Sequence[str], *, worker: str, seconds: float) -> Lent | None:
        """The next run of these kinds, for a worker that asks for one; None when there is nothing to do."""
        while (loan := await self._store.lend(kinds, await self._until(worker, seconds))) is not None:
            lent = Lent(await self._jobs.get(loan.job_id), await self._jobs.get_run(loan.run_id))
            if await self._may_begin(lent) and (job := await self._execution.open_lent(lent.job, lent.run)):
                return Lent(job, lent.run)
        return None

    async def _may_begin(self, lent: Lent) -> bool:
        """Whether nobody else writes what it writes; else the run waits from now on."""
        return await self._execution.lock(lent.job, lent.run)

    async def lend_run(self, run_id: int, *, worker: str, seconds: float) -> Run:
        """This run, if it is queued."""
        loan = await self._store.lend([], await self._until(worker, seconds), run_id)
        if loan is None:
            raise await self._refusal(run_id, "cannot be lent")
        run = await self._jobs.get_run(run_id)
        if not await self._may_begin(Lent(await self._jobs.get(loan.job_id), run)):
            raise await self._refusal(run_id, "cannot be lent")
        return run

    async def fire(self, job_id: int, *, worker: str, seconds: float) -> Run:
        """Fire what is due of a job, and lend the run: what a scheduler outside Horae does with an offered moment."""
        run = await self._jobs.fire_due(job_id, await self._until(worker, seconds))
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
    ) -> bool:
        """Prolong a loan and note how far it is; answers whether the worker shall stop."""
        text = None if progress is None else msgspec.json.encode(progress).decode()
        until = await self._until(worker, seconds)
        asked = await self._store.renew_loan(run_id, attempt, until, phase, text)
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
    ) -> None:
        """End an attempt as its worker says: succeeded, failed or cancelled. A `cursor` counts with success only."""
        loan = await self._loan(run_id, attempt)
        reason = {State.FAILED: Reason.ERROR, State.CANCELLED: Reason.REQUESTED}.get(state, Reason.NONE)
        text = None if result is None else msgspec.json.encode(result).decode()
        now = await self._store.now()
        ended = Result(
            run_id, loan.fence, state, reason, finished_at=now, message=message, result=text,
            cursor=None if cursor is None else msgspec.json.encode(cursor).decode(),
        )  # fmt: skip
        if run_id not in await self._execution.finish([ended]):
            raise await self._refusal(run_id)

    async def give_back(self, run_id: int) -> None:
        """Let Horae's own agents have a lent run that was not begun."""
        loan = await self._loan(run_id, None)
        job, run = await self._jobs.get(loan.job_id), await self._jobs.get_run(run_id)
        start_by = birth_of(job.id, job.kind, job.policy, run.due_at).start_by
        if not await self._store.return_loan(run_id, loan.fence, start_by):
            raise await self._refusal(run_id)
        self._jobs.announce("runs")

    async def loans(self, run_ids: Sequence[int] | None = None) -> list[Loan]:
        return await self._store.load_loans(run_ids)

    async def _loan(self, run_id: int, attempt: int | None) -> Loan:
        found = await self._store.load_loans([run_id])
        if not found or attempt not in (None, found[0].attempt):
            raise await self._refusal(run_id)
        return found[0]

    async def _until(self, worker: str, seconds: float) -> Lend:
        return Lend(worker, await self._store.now() + round(seconds * SECOND))

    async def _refusal(self, run_id: int, why: str = "is not on loan to you, or no longer") -> NotFound | Conflict:
        run = await self._store.get_run(run_id)
        if run is None:
            return NotFound(f"there is no run {run_id}")
        if run.state.is_terminal:
            return Conflict(f"run {run_id} has ended: {run.state.word}", code="E_TERMINAL")
        return Conflict(f"run {run_id} {why}: it is {run.state.word}")
