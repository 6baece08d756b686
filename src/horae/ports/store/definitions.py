"""Jobs and triggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.definitions import Idempotency, Receipt, Save, Sort, Submission
from horae.core.model import Found, Job, JobFilter, Page, Trigger
from horae.core.runs.orders import Cancelled


class Definitions(Protocol):
    """Jobs and their triggers."""

    async def allocate(self, jobs: int, triggers: int) -> tuple[Sequence[int], Sequence[int]]:
        """Fresh ids of jobs and triggers, never given before."""

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        """Create jobs with their triggers. Each submission stands or falls alone, in order.

        A repeated idempotency key gives the earlier ids and does nothing; a live job with the same
        (org, owner, key) makes the whole submission refused with `key_taken`.
        """

    async def save_job(self, job: Job, expected_version: int, idempotency: Idempotency | None = None) -> Receipt | None:
        """Replace a job and all its triggers if its version is still `expected_version`.

        Versions of the job and of every trigger become `job.version`, so nothing that was looked up
        before can fire. A trigger's `next_at` None parks it. None when the version has moved on.
        A repeated idempotency key gives the earlier id and does nothing, whatever the version.
        """

    async def save_jobs(self, saves: Sequence[Save]) -> list[Receipt | None]:
        """As save_job, of many at once, each for itself; of several, their keys stay as they are."""

    async def delete_job(self, job_id: int, seen: Job | None = None) -> Cancelled | None:
        """Leave a tombstone: drop the triggers, end waiting runs as cancelled(deleted), ask for the running ones, all
        at once; of very many waiting runs, most are ended before. None when there is no such job, it is deleted
        already, or it is no longer as it was `seen`: its version or the last moment of a trigger has moved on."""

    async def get_job(self, job_id: int) -> Job | None:
        """Deleted ones too (deleted_at says so). Triggers come with next_at and last_at."""

    async def find_keys(self, org: int, owner: str, keys: Sequence[str]) -> list[Job]:
        """Return the live jobs with these keys, in any order."""

    async def list_jobs(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        """Jobs that are not deleted, newest first."""

    async def next_org(self, after: int) -> int | None:
        """Return the next organisation, by number, that has a job."""

    async def load_jobs(self, job_ids: Sequence[int]) -> list[Job]:
        """These jobs, deleted ones too, in this order; what does not exist is left out."""

    async def load_job_names(self, job_ids: Sequence[int]) -> dict[int, str]:
        """Return the names of these jobs by id, deleted ones too; what does not exist is left out."""

    async def search_jobs(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """Jobs that are not deleted, sorted (newest first unless said), with their total. Names of
        JOB_SORTS only: they are columns, not user text. For people who page by number; lists page by cursor."""

    async def list_triggers(self, job_id: int | None, cursor: str | None, limit: int) -> Page:
        """Triggers of jobs that are not deleted, by id."""

    async def get_trigger(self, trigger_id: int) -> Trigger | None: ...

    async def load_triggers(self, trigger_ids: Sequence[int]) -> list[Trigger]:
        """These triggers, in this order; those of deleted jobs, and what does not exist, are left out."""
