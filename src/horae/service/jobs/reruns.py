"""Runs that are run again: each as it was asked for, with its data and its priority."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from horae.core.definitions import Idempotency
from horae.core.model import Run, RunFilter
from horae.errors import Conflict, Error, Invalid, NotFound
from horae.ports import deeds
from horae.service.jobs.orders import BATCH, Asker, OrderBatch, Orders, OrderStore, RunRequest

MAX_RUNS = 10_000  # run again by one request
MAX_LOOKED = 100_000  # runs that a filter looks at
PAGE = 1000


class Answered(NamedTuple):
    """A run with which something was to be done: the run that came of it, or why none did."""

    run_id: int
    answer: Run | Error


class Reruns:
    def __init__(self, store: OrderStore, orders: Orders) -> None:
        self._store = store
        self._orders = orders

    async def find(self, where: RunFilter) -> list[int]:
        """Return the ids of runs, oldest first; more than can be run again are refused. A task stands for the run of
        its workflow."""
        found: list[int] = []
        parents: set[int] = set()
        cursor, looked = None, 0
        while True:
            page = await self._store.list_runs(where, cursor, PAGE)
            wanted = [run for run in page.items if not where.nodes or run.node in where.nodes]
            found += [run.id for run in wanted if run.parent_id is None]
            parents |= {run.parent_id for run in wanted if run.parent_id is not None}
            cursor, looked = page.cursor, looked + len(page.items)
            if len(found) + len(parents) > MAX_RUNS or (cursor is not None and looked >= MAX_LOOKED):
                most = f"at most {MAX_RUNS} runs are run again at once, found among {MAX_LOOKED}; there are more"
                raise Invalid(most, code="E_LIMIT", path="where", hint="narrow it down with due_from and due_until")
            if cursor is None:
                return sorted({*found, *await self._workflows_of(parents)})

    async def _workflows_of(self, run_ids: set[int]) -> set[int]:
        """Return those of them that are no tasks themselves, and in place of the others the runs above them."""
        found = set()
        while run_ids:
            runs = await self._store.load_runs(sorted(run_ids))
            found |= {run.id for run in runs if run.parent_id is None}
            run_ids = {run.parent_id for run in runs if run.parent_id is not None}
        return found

    async def load(self, run_ids: Sequence[int], asker: Asker) -> list[Answered]:
        """Return the runs to run again, as they are; what has not ended, or is not to be seen, is an error."""
        deeds.note(is_void=True)  # until they are
        runs = {run.id: run for run in await self._store.load_runs(list(run_ids))}
        jobs = await self._store.load_jobs(sorted({run.job_id for run in runs.values()}))
        seen = {job.id for job in jobs if not asker.is_bound or job.org == asker.org}
        return [Answered(run_id, _judged(run_id, runs.get(run_id), seen)) for run_id in run_ids]

    async def run_again(self, runs: Sequence[Answered], asker: Asker, scope: str, key: str | None) -> list[Answered]:
        """Ask for a run like each of these. With a `key`, a repeat runs none of them a second time."""
        deeds.note(is_void=False)
        wanted = [run.answer for run in runs if isinstance(run.answer, Run)]
        made = iter(await self._orders.place_many(_batches([_request(run, scope, key) for run in wanted]), asker))
        return [Answered(run.run_id, next(made) if isinstance(run.answer, Run) else run.answer) for run in runs]


async def _batches(requests: Sequence[RunRequest]) -> AsyncIterator[OrderBatch]:
    for start in range(0, len(requests), BATCH):
        yield OrderBatch(requests[start : start + BATCH])


def _judged(run_id: int, run: Run | None, jobs: set[int]) -> Run | Error:
    if run is None or run.job_id not in jobs:
        return NotFound(f"there is no run {run_id}")
    if not run.state.is_terminal:
        return Conflict(f"run {run_id} has not ended: {run.state.word}", code="E_NOT_ENDED", hint="cancel it first")
    return run


def _request(run: Run, scope: str, key: str | None) -> RunRequest:
    digest = hashlib.sha256(f"rerun {run.id}".encode()).hexdigest()
    once = Idempotency(scope, f"{key}#{run.id}", digest) if key is not None else None
    return RunRequest(run.job_id, run.data, priority=run.priority, idempotency=once, is_alone=True)
