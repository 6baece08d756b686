"""What people ask of runs of workflows: to go on from where they failed."""

from __future__ import annotations

from typing import Protocol

from horae.core.definitions import Idempotency
from horae.core.model import Run, State
from horae.core.work.kinds import WORKFLOW
from horae.errors import Conflict, NotFound
from horae.ports.store.flows import Flows
from horae.ports.store.runs import Runs
from horae.service.jobs.orders import Asker, Orders, RunRequest


class WorkflowStore(Flows, Runs, Protocol):
    """Runs and their tasks."""


class WorkflowRuns:
    def __init__(self, store: WorkflowStore, orders: Orders) -> None:
        self._store = store
        self._orders = orders

    async def retry(self, run_id: int, asker: Asker, idempotency: Idempotency | None = None) -> Run:
        """Return a new run of the same graph and data, which takes over the tasks that succeeded."""
        run = await self._store.get_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        _refuse_unfit(run)
        if not await self._store.load_flows([run_id]):
            message = f"run {run_id} ended before it had tasks"
            raise Conflict(message, code="E_NO_TASKS", hint=f"horae runs rerun {run.id} runs it from its beginning")
        request = RunRequest(run.job_id, run.data, priority=run.priority, idempotency=idempotency, resumes=run_id)
        return await self._orders.place(request, asker)


def _refuse_unfit(run: Run) -> None:
    if run.kind != WORKFLOW:
        message = f"run {run.id} is no workflow: it has no tasks of which some could have succeeded"
        raise Conflict(message, code="E_NO_TASKS", hint=f"horae runs rerun {run.id} runs it again")
    if run.parent_id is not None:
        message = f"run {run.id} is a task of run {run.parent_id}"
        raise Conflict(message, code="E_NO_TASKS", hint=f"retry run {run.parent_id}, which begins it again")
    if not run.state.is_terminal:
        raise Conflict(f"run {run.id} has not ended: {run.state.word}", code="E_NOT_ENDED", hint="cancel it first")
    if run.state is State.SUCCEEDED:
        message = f"run {run.id} has succeeded: nothing of it is left to do"
        raise Conflict(message, code="E_TERMINAL", hint=f"horae runs rerun {run.id} runs it from its beginning")
