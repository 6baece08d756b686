"""The past of jobs at a glance. Days are found by ids: runs are numbered as they are made, so that midnight is a
number, and counting what lies between two of them needs an index alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from horae.core.model import Moment, State
from horae.core.runs.orders import NEVER
from horae.stores.database import Database
from horae.stores.rows import encode


class GlancePart(Database):
    async def load_fates(self, job_ids: Sequence[int], most: int) -> dict[int, list[tuple[int, State]]]:
        if not job_ids:
            return {}
        found: dict[int, list[tuple[int, State]]] = {}
        for job_id, run_id, state in await self._get("load_fates", self._list(job_ids), most):
            found.setdefault(job_id, []).append((run_id, State(state)))
        return {job_id: sorted(runs) for job_id, runs in found.items()}

    async def find_made_since(self, moments: Sequence[Moment]) -> list[int]:
        """All moments are looked for together, each time in half of what is left."""
        newest = (await self._get("newest_ended_id"))[0][0] or 0
        low, high = [0] * len(moments), [newest + 1] * len(moments)
        while wanted := [place for place in range(len(moments)) if low[place] < high[place]]:
            middles = {place: (low[place] + high[place]) // 2 for place in wanted}
            made = {row[0]: row[1] for row in await self._get("made_from", self._list(sorted(set(middles.values()))))}
            for place, middle in middles.items():
                if (made[middle] or NEVER) >= moments[place]:
                    high[place] = middle
                else:
                    low[place] = middle + 1
        return low

    async def count_between(self, job_id: int, bounds: Sequence[int]) -> list[Mapping[State, int]]:
        pairs = list(pairwise(bounds))
        found: list[dict[State, int]] = [{} for _ in pairs]
        if not pairs:
            return []
        rows = await self._get("count_between", encode(pairs), job_id)
        for place, state, number in rows:
            found[place][State(state)] = number
        return list(found)
