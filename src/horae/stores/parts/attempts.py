"""Runs that agents work on, as far as both databases say it alike."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.runs.orders import Held, Queued
from horae.stores.database import Database
from horae.stores.parts.cluster import superseded
from horae.stores.rows import decode, encode


class AttemptPart(Database):
    """Runs that agents work on."""

    async def load_held(self, run_ids: Sequence[int]) -> list[Held]:
        rows = await self._get("load_held", self._list(run_ids))
        return [
            Held(run_id, attempt, lost, policy, bool(cancel), trigger_id, job_id, decode(note), root)
            for run_id, attempt, lost, policy, cancel, trigger_id, job_id, note, root in rows
        ]

    async def load_queued(self, limit: int) -> list[Queued]:
        return [Queued(*row) for row in await self._get("load_queued", limit)]

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        rows = await self._get("load_previous", self._list(job_ids))
        return {row[0]: row[1] for row in rows if row[1] is not None}

    async def load_running(self, node: str, *, session: int | None = None) -> list[tuple[int, int]]:
        if session is None:
            return [(row[0], row[1]) for row in await self._get("load_running", node)]
        rows = await self._get("load_running_in_session", node, session)
        if not rows:
            raise superseded(node)
        return [(row[0], row[1]) for row in rows if row[0] is not None]

    async def load_running_of(self, nodes: Sequence[str]) -> dict[str, dict[int, int]]:
        held: dict[str, dict[int, int]] = {}
        for node, run_id, fence in await self._get("load_running_of", self._list(nodes)):
            held.setdefault(node, {})[run_id] = fence
        return held

    async def note_progress(self, notes: Sequence[tuple[int, int, str]], *, session: int | None = None) -> None:
        if notes:
            await self._put("note_progress", encode(list(notes)), session)
