"""The past: looked at one by one, counted, and removed."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Attempt, Census, Moment, Run, State
from horae.core.runs.past import HistoryPart, Outdated, Remains
from horae.core.workflows.picture import TaskTally
from horae.stores.database import Database
from horae.stores.rows import _trigger_texts, attempt_from_row, run_from_row


class PastPart(Database):
    """Runs that have ended, and how they are removed."""

    async def get_run(self, run_id: int) -> Run | None:
        rows = await self._get("get_run", run_id)
        return run_from_row(rows[0]) if rows else None

    async def load_runs(self, run_ids: Sequence[int]) -> list[Run]:
        return [run_from_row(row) for row in await self._get("load_runs", self._list(run_ids))]

    async def tally_tasks(self, run_id: int) -> TaskTally:
        counts: dict[str, dict[str, int]] = {}
        runs: dict[str, int] = {}
        for name, state, count, newest in await self._get("tally_tasks", run_id):
            counts.setdefault(name, {})[State(state).word] = count
            runs[name] = max(newest, runs.get(name, 0))
        flow = await self._get("document_of_flow", run_id)
        document, adopted = flow[0] if flow else (None, None)
        return TaskTally(document, adopted, counts, runs)

    async def list_attempts(self, run_id: int) -> list[Attempt]:
        rows = await self._get("list_attempts", run_id)
        return [attempt_from_row(row) for row in rows]

    async def load_attempts(self, run_ids: Sequence[int]) -> list[Attempt]:
        rows = await self._get("load_attempts", self._list(run_ids)) if run_ids else ()
        return [attempt_from_row(row) for row in rows]

    async def list_turns(self, run_id: int) -> list[Attempt]:
        return [attempt_from_row(row) for row in await self._get("list_turns", run_id)]

    async def census(self) -> Census:
        counts = {row[0]: row[1] for row in await self._get("count_live")}
        jobs, triggers, oldest_due, oldest_queued = (await self._get("census"))[0]
        live = {State(state).word: count for state, count in counts.items()}
        return Census(jobs, triggers, live, oldest_due, oldest_queued)

    async def load_outdated(self, before: Moment, after: int, limit: int) -> Outdated:
        seen = await self._get("outdated", before, after, limit)
        gone = [row for *row, is_outdated in seen if is_outdated]
        ids = [run_id for run_id, *_ in gone]
        earlier = await self._get("outdated_attempts", self._list(ids)) if ids else ()
        outputs = [(run_id, attempt, fence) for run_id, attempt, fence, is_kept in (*gone, *earlier) if is_kept]
        return Outdated(ids, outputs, seen[-1][0] if len(seen) == limit else None)

    async def tend_history(self) -> bool:
        return False

    async def load_outdated_parts(self, before: Moment) -> list[HistoryPart]:
        return []

    async def drop_part(self, part: HistoryPart) -> None:
        raise NotImplementedError  # there are none

    async def without_runs(self, first_ids: Sequence[int], width: int) -> list[int]:
        return [row[0] for row in await self._get("without_runs", self._list(first_ids), width)]

    async def purge_remains(self, before: Moment, limit: int) -> Remains:
        jobs = [row[0] for row in await self._put("drop_tombstones", before, limit)]
        if jobs:
            await self._put("drop_cursors_of", self._list(jobs))
            await self._put("drop_durations_of", self._list(jobs))
        return Remains(len(jobs), await self._purge_parked(before, limit), len(await self._put("drop_nodes", before)))

    async def _purge_parked(self, before: Moment, limit: int) -> int:
        """Triggers that are enabled and have no moment left; the others wait for somebody to enable them."""
        after, dropped = 0, 0
        while rows := await self._get("parked", before, after, limit):
            over = [row[0] for row in rows if any(t.id == row[0] and t.enabled for t in _trigger_texts(row[1]))]
            await self._put("drop_parked", self._list(over))
            after, dropped = rows[-1][0], dropped + len(over)
        return dropped

    async def purge_keys(self, before: Moment, limit: int) -> int:
        return len(await self._put("purge_keys", before, limit))
