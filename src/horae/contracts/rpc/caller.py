"""Who calls, and what of jobs and executions it may see."""

from __future__ import annotations

from dataclasses import dataclass

from horae.core.audit import Deed
from horae.core.definitions import Idempotency
from horae.core.identity import Principal
from horae.core.model import Job, Run
from horae.errors import NotFound
from horae.service.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Caller:
    who: Principal
    idempotency: Idempotency | None = None
    deed: Deed | None = None  # of whom and from where, for the audit log


class Finder:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def job(self, job_id: int | None, caller: Caller) -> Job:
        assert job_id is not None, "its absence was noted"
        return await self._jobs.get(job_id, org=caller.who.org)

    async def run(self, execution_id: int | None, caller: Caller) -> Run:
        """Return an execution, if its job is one that the caller may see."""
        assert execution_id is not None, "its absence was noted"
        run = await self._jobs.get_run(execution_id)
        try:
            await self._jobs.get(run.job_id, org=caller.who.org)
        except NotFound:
            raise NotFound(f"there is no run {execution_id}") from None
        return run
