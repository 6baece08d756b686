"""How far the syncs of jobs have come, and what the last success of a job left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from horae.core.model import Cursor, Json
from horae.core.work import syncs
from horae.errors import Conflict, NotFound
from horae.ports.store.attempts import Attempts, Writes
from horae.ports.store.definitions import Definitions


class CursorStore(Definitions, Writes, Attempts, Protocol):
    """Jobs, their cursors and what their runs left."""


class Cursors:
    def __init__(self, store: CursorStore) -> None:
        self._store = store

    async def get(self, job_id: int) -> Cursor | None:
        """Return how far the syncs of a job have come."""
        return (await self.load([job_id])).get(job_id)

    async def load(self, job_ids: Sequence[int]) -> dict[int, Cursor]:
        return await self._store.load_cursors(job_ids)

    async def set(self, job_id: int, value: Json | None) -> None:
        """Let the next sync of a job go on from there; with None, from the beginning."""
        job = await self._store.get_job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        if job.deleted_at is not None:
            raise NotFound(f"job {job_id} was deleted")
        if job.kind != syncs.SYNC:
            raise Conflict(f"job {job_id} is no sync but of kind {job.kind}: it has no cursor")
        await self._store.set_cursor(job_id, None if value is None else msgspec.json.encode(value).decode())

    async def last_results(self, job_ids: Sequence[int]) -> dict[int, Any]:
        """Return what the last success of each job left, for those that left something."""
        found = await self._store.load_previous(job_ids) if job_ids else {}
        return {job_id: msgspec.json.decode(text) for job_id, text in found.items()}
