"""Which run is at the top: of tasks of a workflow, of what a handler calls, and of tasks of those."""

from __future__ import annotations

from collections.abc import Iterable

from horae.core.model import Run
from horae.ports.store.runs import Runs

REMEMBERED = 20_000  # runs of which it is known what they are part of


class Roots:
    def __init__(self, store: Runs) -> None:
        self._store = store
        self._parents: dict[int, int | None] = {}

    async def find(self, runs: Iterable[Run]) -> dict[int, int]:
        """Return the run at the top of each; of those that are part of nothing, themselves."""
        if len(self._parents) > REMEMBERED:
            self._parents.clear()
        given = {run.id: run.parent_id for run in runs}
        self._parents |= {run_id: parent for run_id, parent in given.items() if parent is not None}
        unknown = {parent for parent in given.values() if parent is not None and parent not in self._parents}
        while unknown:
            found = {run.id: run.parent_id for run in await self._store.load_runs(sorted(unknown))}
            self._parents |= {run_id: found.get(run_id) for run_id in unknown}
            unknown = {parent for parent in found.values() if parent is not None and parent not in self._parents}
        return {run_id: self._top(run_id) for run_id in given}

    def _top(self, run_id: int) -> int:
        while (parent := self._parents.get(run_id)) is not None:
            run_id = parent
        return run_id
