"""Jobs and triggers, one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from horae.core.definitions import Idempotency, Receipt, Save
from horae.core.model import Job, Trigger
from horae.stores.database import Database
from horae.stores.rows import Row, from_json, job_from_row, trigger_of


class DefinitionPart(Database):
    """Jobs with their triggers."""

    async def get_job(self, job_id: int) -> Job | None:
        return await self._job(await self._get("get_job", job_id))

    async def find_keys(self, org: int, owner: str, keys: Sequence[str]) -> list[Job]:
        return await self._with_triggers(await self._get("find_keys", self._list(keys), org, owner))

    @abstractmethod
    async def save_jobs(self, saves: Sequence[Save]) -> list[Receipt | None]: ...

    async def save_job(self, job: Job, expected_version: int, idempotency: Idempotency | None = None) -> Receipt | None:
        return (await self.save_jobs([Save(job, expected_version, idempotency)]))[0]

    async def _job(self, rows: Sequence[Row]) -> Job | None:
        return (await self._with_triggers(rows))[0] if rows else None

    async def _with_triggers(self, rows: Sequence[Row]) -> list[Job]:
        ids = [doc["id"] for row in rows for doc in from_json(row[15])]
        due = {row[0]: row for row in await self._due_of(ids)} if ids else {}
        return [job_from_row(row, due) for row in rows]

    async def _due_of(self, trigger_ids: Sequence[int]) -> Sequence[Row]:
        return await self._get("due_of", self._list(trigger_ids))

    async def get_trigger(self, trigger_id: int) -> Trigger | None:
        found = await self.load_triggers([trigger_id])
        return found[0] if found else None

    async def load_triggers(self, trigger_ids: Sequence[int]) -> list[Trigger]:
        rows = {row[0]: row for row in await self._get("load_triggers", self._list(trigger_ids))}
        return [trigger_of(rows[id_]) for id_ in trigger_ids if id_ in rows]

    async def next_org(self, after: int) -> int | None:
        found: int | None = (await self._get("next_org", after))[0][0]
        return found

    async def load_jobs(self, job_ids: Sequence[int]) -> list[Job]:
        jobs = {job.id: job for job in await self._with_triggers(await self._get("load_jobs", self._list(job_ids)))}
        return [jobs[job_id] for job_id in job_ids if job_id in jobs]
