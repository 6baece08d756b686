"""What explanations are drawn from: looks of bounded cost, by indexes that claims, lists and history have anyway."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.insight.why.facts import SHOWN, Busy, Done, Line, Neighbour, Owner, Standing
from horae.core.model import Moment, Run
from horae.core.policy.demands import NOTHING, demand_from_text
from horae.core.runs.orders import NEVER
from horae.stores.parts.history import PastPart
from horae.stores.parts.lists import ENDED
from horae.stores.rows import decode, from_json

BEFORE = 200  # ids before the first that was made at a moment: an id may be given out some time before its run is made


class ExplainingPart(PastPart):
    """What is known of runs beside themselves."""

    async def load_at(self, job_id: int, at: Moment, limit: int) -> list[Run]:
        since = await self._get("made_since", at)
        first = max(0, since[0][0] - BEFORE) if since else 0
        rows = await self.read(self._statement(self._records(limit)), job_id, at, first)
        ids = [row[0] for row in rows]
        found: list[Run] = await self.load_runs(ids) if ids else []
        return sorted(found, key=lambda run: run.id)

    def _records(self, limit: int) -> str:
        """Return the statement for the ids of a job's records of a moment; see Stretch.between for its form."""
        of_job = "(gate = $1 OR (gate IS NULL AND job_id = $1))"
        parts = [f"SELECT id FROM live WHERE {of_job} AND due_at = $2 AND parent_id IS NULL"]  # noqa: S608
        for state in ENDED:
            if self.dialect == "sqlite":
                where, order = f"job_id = $1 AND state = {state:d} AND id >= $3", "id"
            else:
                key = "(job_id, state, id)"
                where = f"{key} >= ($1, {state:d}, $3) AND {key} < ($1, {state:d}, {NEVER})"
                order = "job_id, state, id"
            inner = f"SELECT id, due_at, parent_id FROM history WHERE {where} ORDER BY {order} LIMIT {limit:d}"  # noqa: S608
            parts.append(f"SELECT id FROM ({inner}) AS s{state:d} WHERE due_at = $2 AND parent_id IS NULL")  # noqa: S608
        return " UNION ALL ".join(parts)

    async def load_standing_of(self, run_id: int) -> Standing | None:
        rows = await self._get("standing_of", run_id)
        if not rows:
            return None
        queue, needs, demand, start_by, waits_for, latest_at, cancel_note = rows[0]
        asked = NOTHING if demand is None else demand_from_text(demand)
        labels = tuple(decode(needs) or ())
        return Standing(queue, labels, asked, start_by, waits_for, latest_at, cancel_note or "")

    async def load_line(self, run_id: int, limit: int) -> Line:
        rows = await self._get("line_of", run_id, limit)
        if not rows or not any(rows[0]):
            return Line()
        same, higher, others = rows[0]
        first = tuple(row[0] for row in await self._get("heads_of", run_id, SHOWN))
        return Line(same, higher, others, first, limit in (same, higher, others))

    async def load_busy_of(self, nodes: Sequence[str], limit: int) -> list[Busy]:
        return [Busy(*row) for row in await self._get("busy_of", self._list(nodes), limit)]

    async def load_beside(self, run: Run, limit: int) -> list[Neighbour]:
        return [Neighbour(*row) for row in await self._get("beside", run.id, limit, run.node)]

    async def load_done(self, kind: str, subject: str, org: int, limit: int) -> list[Done]:
        rows = await self._get("done_to", kind, subject, org, limit)
        return [Done(at, who, from_json(change)) for at, who, change in rows]

    async def load_names_in(self, org: int, job_ids: Sequence[int]) -> dict[int, str]:
        return {row[0]: row[1] for row in await self._get("names_in", self._list(job_ids), org)}

    async def load_owner(self, segment: int) -> Owner | None:
        rows = await self._get("owner_of", segment)
        return Owner(rows[0][0], rows[0][1]) if rows else None
