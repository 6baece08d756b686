"""How some runs stand, for those who look at them: state, attempt, progress, and how far their logs are.

However many look, and at however many runs, they are read together once a second; nothing is read while nobody looks.
A run that has ended is told of once more, and not read again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from horae.core.model import Run, State
from horae.ports.clock import Clock
from horae.ports.store.definitions import Definitions
from horae.ports.store.runs import Runs

LOOK = 1.0  # seconds between two


class RunWatchStore(Runs, Definitions, Protocol):
    """Runs, and the jobs that they are of."""


class LogSizes(Protocol):
    async def log_sizes(self, runs: Sequence[Run], known: Mapping[int, int]) -> dict[int, int]: ...


class Standing(NamedTuple):
    """How a run stands."""

    run: Run
    log_size: int  # bytes of the log of its latest attempt that are there at least

    @property
    def signs(self) -> tuple[Any, ...]:
        """Return what is told when it has changed."""
        it = self.run
        return it.state, it.reason, it.attempt, it.phase, it.cancel_requested, it.progress, it.message, self.log_size


class RunWatch:
    def __init__(self, store: RunWatchStore, logs: LogSizes, clock: Clock) -> None:
        self._store = store
        self._logs = logs
        self._clock = clock
        self._watched: Counter[int] = Counter()
        self._seen: dict[int, Standing | None] = {}  # None: there is no such run
        self._seen_at = -LOOK
        self._looking = asyncio.Lock()

    async def visible(self, run_ids: Collection[int], org: int | None) -> frozenset[int]:
        """Return those that there are, and that belong to an organisation. None sees all."""
        runs = await self._store.load_runs(sorted(run_ids)) if run_ids else []
        if org is None or not runs:
            return frozenset(run.id for run in runs)
        ours = {job.id for job in await self._store.load_jobs(sorted({run.job_id for run in runs})) if job.org == org}
        return frozenset(run.id for run in runs if run.job_id in ours)

    async def follow(self, run_ids: frozenset[int]) -> AsyncGenerator[Standing, None]:
        """Yield how each stands, and again when that has changed, until all have ended."""
        told: dict[int, tuple[Any, ...]] = {}
        self._watched.update(open_ids := set(run_ids))
        try:
            while open_ids:
                seen = await self._look()
                for run_id in sorted(open_ids):
                    standing = seen[run_id]
                    if standing is None or standing.run.state.is_terminal:
                        open_ids.discard(run_id)
                        self._leave({run_id})
                    if standing is not None and told.get(run_id) != standing.signs:
                        told[run_id] = standing.signs
                        yield standing
                if open_ids:
                    await self._clock.sleep(LOOK)
        finally:
            self._leave(open_ids)

    def _leave(self, run_ids: Collection[int]) -> None:
        self._watched.subtract(run_ids)
        self._watched = +self._watched

    async def _look(self) -> dict[int, Standing | None]:
        """Return how those that are watched stand, or stood less than a second ago."""
        async with self._looking:
            is_fresh = self._clock.elapsed() - self._seen_at < LOOK
            if not (is_fresh and self._watched.keys() <= self._seen.keys()):
                self._seen, self._seen_at = await self._read(sorted(self._watched)), self._clock.elapsed()
            return self._seen

    async def _read(self, run_ids: Sequence[int]) -> dict[int, Standing | None]:
        runs = {run.id: run for run in await self._store.load_runs(run_ids)}
        sizes = {run_id: it.log_size for run_id, it in self._seen.items() if it and self._is_same_log(it, runs)}
        grown = [run for run in runs.values() if run.id not in sizes or run.state is State.RUNNING or self._is_new(run)]
        sizes |= await self._logs.log_sizes(grown, sizes)
        return {run_id: Standing(runs[run_id], sizes.get(run_id, 0)) if run_id in runs else None for run_id in run_ids}

    def _is_same_log(self, before: Standing, runs: Mapping[int, Run]) -> bool:
        run = runs.get(before.run.id)
        return run is not None and run.attempt == before.run.attempt

    def _is_new(self, run: Run) -> bool:
        before = self._seen.get(run.id)
        return before is None or before.run.state is not run.state
