"""The past of jobs at a glance. Days are found by ids: runs are numbered as they are made, so that midnight is a
number, and counting what lies between two of them needs an index alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from horae.core.insight.timeline import Mark
from horae.core.model import Moment, State
from horae.ports.store.glances import Held, Late
from horae.stores.database import Database
from horae.stores.parts.pages import Where, like
from horae.stores.rows import Row, encode

_STATES = {int(state): state for state in State}  # of thousands of rows: asking the class takes longer


class GlancePart(Database):
    async def load_fates(self, job_ids: Sequence[int], most: int) -> dict[int, list[tuple[int, State]]]:
        if not job_ids:
            return {}
        found: dict[int, list[tuple[int, State]]] = {}
        for job_id, run_id, state in await self._get("load_fates", self._list(job_ids), most):
            found.setdefault(job_id, []).append((run_id, _STATES[state]))
        return {job_id: sorted(runs) for job_id, runs in found.items()}

    async def find_made_since(self, moments: Sequence[Moment]) -> list[int]:
        rows = await self._get("find_made_since", self._list(sorted(set(moments)))) if moments else ()
        found = {row[0]: row[1] for row in rows}
        return [found[moment] for moment in moments]

    async def count_between(self, job_id: int, bounds: Sequence[int]) -> list[Mapping[State, int]]:
        pairs = list(pairwise(bounds))
        found: list[dict[State, int]] = [{} for _ in pairs]
        if not pairs:
            return []
        rows = await self._get("count_between", encode(pairs), job_id)
        for place, state, number in rows:
            found[place][State(state)] = number
        return list(found)

    async def find_named(self, text: str, org: int | None, most: int) -> list[int]:
        where = Where()
        where.add("deleted_at IS NULL AND part_of IS NULL")
        where.add(*like("name", text, self.dialect))
        if org is not None:
            where.add("org = ?", org)
        statement = f"SELECT id FROM jobs WHERE {where.text()} ORDER BY id DESC LIMIT {most:d}"  # noqa: S608
        return [row[0] for row in await self.read(self._statement(statement), *where.args)]

    async def load_marks(self, first_ids: Sequence[int], length: int, org: int | None) -> list[Mark]:
        return _marks(await self._get("load_marks", self._list(first_ids), length, org))

    async def load_live_marks(self, before: Moment, org: int | None, most: int) -> list[Mark]:
        return _marks(await self._get("load_live_marks", before, org, most))

    async def load_marks_of(self, job_ids: Sequence[int], first_id: int, last_id: int, most: int) -> list[Mark]:
        if not job_ids:
            return []
        return _marks(await self._get("load_marks_of", self._list(job_ids), first_id, last_id, most))

    async def find_running(self, org: int | None, most: int) -> list[int]:
        return [row[0] for row in await self._get("find_running", org, most)]

    async def count_late(self, before: Moment, org: int | None, most: int) -> Late:
        number, run_id, due_at = (await self._get("count_late", before, org, most + 1))[0]
        return Late(min(number, most), number > most, run_id, due_at)

    async def count_held(self, before: Moment, org: int | None, most: int) -> list[Held]:
        rows = await self._get("count_held", before, org, most)
        return [Held(reason, looked, int(number), *first) for reason, looked, number, *first in rows]

    async def find_failing(self, first_id: int, org: int | None, looked_at: int, most: int) -> list[int]:
        return [row[0] for row in await self._get("find_failing", first_id, org, looked_at, most)]


def _marks(rows: Sequence[Row]) -> list[Mark]:
    """Return thousands of them: what is done for each is paid as often."""
    return [Mark(run_id, job_id, _STATES[state], due, start, end) for run_id, job_id, state, due, start, end in rows]
