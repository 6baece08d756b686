"""Runs that are cancelled by the many: a batch at a time, and told what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Reason, Run
from horae.core.runs.orders import Cancelled
from horae.errors import Conflict, Error, NotFound
from horae.ports.transport import Queue
from horae.service.jobs.orders import Asker, OrderStore
from horae.service.jobs.reruns import Answered

BATCH = 500  # runs of one statement


class Cancels:
    def __init__(self, store: OrderStore, queue: Queue) -> None:
        self._store = store
        self._queue = queue

    async def load(self, run_ids: Sequence[int], asker: Asker) -> list[Answered]:
        """Return the runs to cancel, as they are; what has ended, or is not to be seen, is an error."""
        runs = {run.id: run for run in await self._store.load_runs(list(run_ids))}
        jobs = await self._store.load_jobs(sorted({run.job_id for run in runs.values()}))
        seen = {job.id for job in jobs if not asker.is_bound or job.org == asker.org}
        return [Answered(run_id, _judged(run_id, runs.get(run_id), seen)) for run_id in run_ids]

    async def cancel(self, runs: Sequence[Answered], by: str) -> list[Answered]:
        """End those that wait; ask the agents of the others to kill them. Each is told as it is afterwards."""
        done: dict[int, Run] = {}
        wanted = [run.run_id for run in runs if isinstance(run.answer, Run)]
        for start in range(0, len(wanted), BATCH):
            ids = wanted[start : start + BATCH]
            cancelled = await self._store.cancel(ids, Reason.REQUESTED, f"cancelled by {by}")
            self._announce(cancelled)
            done |= {run.id: run for run in await self._store.load_runs(ids)}
        return [Answered(it.run_id, done.get(it.run_id, it.answer)) for it in runs]

    def _announce(self, cancelled: Cancelled) -> None:
        if cancelled.noted:
            self._queue.announce("endings")
        if cancelled.promoted:
            self._queue.announce("limits")  # it may demand more than a slot
        if cancelled.asked:
            self._queue.announce("cancel")
        if cancelled.ended:
            self._queue.announce("runs")


def _judged(run_id: int, run: Run | None, jobs: set[int]) -> Run | Error:
    if run is None or run.job_id not in jobs:
        return NotFound(f"there is no run {run_id}")
    if run.state.is_terminal:
        return Conflict(f"run {run_id} has ended: {run.state.word}", code="E_TERMINAL")
    return run
