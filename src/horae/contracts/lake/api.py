"""What the two halves of the contract, lake and sync, do alike: find, show, list and delete their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from horae.contracts.lake import reading, rendering, vocabulary
from horae.contracts.lake.vocabulary import Side
from horae.core.model import SECOND, Job, JobFilter, Json, Run, RunFilter, Source, State
from horae.core.secrets.fields import masked
from horae.errors import Conflict, NotFound
from horae.service import Services
from horae.web import http

DONE: Json = {"success": True}


class LakeApi:
    def __init__(self, services: Services, side: Side) -> None:
        self.side = side
        # The lake half shows every kind of work but that of the other.
        self._kinds: tuple[str, ...] = () if side == "lake" else (vocabulary.SYNC,)
        self._not_kinds: tuple[str, ...] = (vocabulary.SYNC,) if side == "lake" else ()
        self._jobs = services.jobs
        self._lending = services.lending
        self._sources = services.sources
        self._lease = services.lake_lease

    async def find(self, request: http.Request, job_id: int | None = None) -> Job:
        """Return the job of the address; deleted ones and those of other organisations do not exist, and one of the
        other half has another address."""
        wanted = request.path_id("job_id") if job_id is None else job_id
        try:
            job = await self._jobs.get(wanted, org=http.principal(request).org)
        except NotFound:
            raise missing(wanted) from None
        if job.deleted_at is not None:
            raise missing(wanted)
        if (job.kind == vocabulary.SYNC) != (self.side == "sync"):
            raise _other_half(job)
        return job

    async def show(self, jobs: Sequence[Job], *, lent: Run | None = None) -> list[Json]:
        """{job, source?} of each. The worker of a run that is lent gets the secrets, people do not."""
        ids, is_for_worker = [job.id for job in jobs], lent is not None
        standing = await self._jobs.standing(ids)
        if self.side == "lake":
            return [{"job": rendering.lake_job(job, standing[job.id], is_for_worker=is_for_worker)} for job in jobs]
        results, cursors = await self._jobs.cursors.last_results(ids), await self._jobs.cursors.load(ids)
        sources = await self._load_sources(jobs, lent)
        return [
            {
                "job": rendering.sync_job(
                    job, standing[job.id], results.get(job.id), cursors.get(job.id), is_for_worker=is_for_worker
                ),
                **sources.get((job.org, job.spec.get("source_id", 0)), {}),
            }
            for job in jobs
        ]

    async def _load_sources(self, jobs: Sequence[Job], lent: Run | None) -> dict[tuple[int, int], Json]:
        """{source} by organisation and id; what is gone is left out."""
        found = {}
        for org, source_id in sorted({(job.org, job.spec.get("source_id", 0)) for job in jobs}):
            try:
                source = await self._sources.get(org, source_id)
            except NotFound:
                continue
            config = masked(source.config) if lent is None else await self._open(source, lent)
            found[org, source_id] = {"source": rendering.source(source, config)}
        return found

    async def _open(self, source: Source, lent: Run) -> Json:
        return (await self._sources.opened(source, f"worker {lent.node or ''}".strip(), [lent.id])).config

    # ── endpoints ──
    async def delete(self, request: http.Request) -> http.Answer:
        """Success also when there was nothing to delete; a job of the other half is left alone, and named."""
        await self.delete_jobs(request, [request.path_id("job_id")])
        return http.reply(200, DONE)

    async def delete_jobs(self, request: http.Request, job_ids: Sequence[int]) -> None:
        """What is not there is as it was wanted; one of the other half, and nothing is deleted."""
        found = []
        for job_id in job_ids:
            with suppress(NotFound):
                found.append(await self.find(request, job_id))
        for job in found:
            with suppress(NotFound):
                await self._jobs.delete(job.id)

    async def list_jobs(self, request: http.Request) -> http.Answer:
        """Return a page by number. `keyword` is part of the name; sorts.field is one of a list."""
        _, fields = await reading.body_of(request)
        statuses = reading.statuses(fields)
        page = reading.read_stretch(fields, vocabulary.JOB_SORTS, needed=self.side == "sync")
        where = JobFilter(
            org=http.principal(request).org, name=page.keyword, kinds=self._kinds, not_kinds=self._not_kinds,
            latest=vocabulary.latest_run(statuses, self.side) if statuses else None,
        )  # fmt: skip
        found = await self._jobs.search(where, page.sorts, page.offset, page.limit)
        return http.reply(200, {"data": await self.show(found.items), "total": found.total}, reading.reach(found))

    async def list_history(self, request: http.Request) -> http.Answer:
        """Attempts at runs, newest first unless sorted. Moments that became no run of their own are not shown."""
        _, fields = await reading.body_of(request)
        page = reading.read_stretch(fields, vocabulary.RUN_SORTS)
        org = http.principal(request).org
        where = RunFilter(
            org=org, name=page.keyword, states=vocabulary.SHOWN, kinds=self._kinds, not_kinds=self._not_kinds
        )
        found = await self._jobs.search_tries(where, page.sorts, page.offset, page.limit)
        running = [it.run.id for it in found.items if it.past is None and not it.run.state.is_terminal]
        loans = {loan.run_id: loan for loan in await self._lending.loans(running)} if running else {}
        now, lease = await self._jobs.now(), round(self._lease * SECOND)
        heard = {loan.run_id: min(now, loan.until_at - lease) for loan in loans.values()}  # each report prolongs it
        render = rendering.lake_history if self.side == "lake" else rendering.sync_history
        data = [render(it, loans.get(it.run.id), heard.get(it.run.id, now)) for it in found.items]
        return http.reply(200, {"data": data, "total": found.total}, reading.reach(found))

    async def waiting(self, request: http.Request, kinds: tuple[str, ...], limit: int) -> list[Run]:
        """Runs of these kinds that nobody has taken yet."""
        where = RunFilter(org=http.principal(request).org, states=vocabulary.WAITING, kinds=kinds)
        return [run for run, _ in (await self._jobs.search_runs(where, (), 0, limit)).items]

    async def running(self, request: http.Request, kinds: tuple[str, ...], limit: int) -> list[Run]:
        """Runs of these kinds that somebody works at."""
        where = RunFilter(org=http.principal(request).org, states=(State.RUNNING,), kinds=kinds)
        return [run for run, _ in (await self._jobs.search_runs(where, (), 0, limit)).items]

    async def cancel(self, run_id: int) -> bool:
        """False when it has ended meanwhile."""
        try:
            await self._jobs.cancel(run_id)
        except Conflict:
            return False
        return True


def missing(job_id: int) -> NotFound:
    return NotFound(f"No job was found for id = {job_id}.")


def _other_half(job: Job) -> Conflict:
    what, address = ("a sync job", "/job") if job.kind == vocabulary.SYNC else ("a lake job", "/lake/job")
    return Conflict(f"job {job.id} is {what}: its address is {address}/{job.id}; nothing was done")
