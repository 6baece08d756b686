"""What the two halves of the contract, lake and sync, do alike: find, show, list and delete their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.hiding import masked
from horae.core.model import Job, JobFilter, Json, Run, RunFilter, State
from horae.errors import Conflict, NotFound
from horae.service import Services
from horae.web import http
from horae.web.facades.lake import reading, rendering, words
from horae.web.facades.lake.words import Side

DONE: Json = {"success": True}


class Desk:
    def __init__(self, services: Services, side: Side) -> None:
        self.side = side
        # The lake half shows every kind of work but that of the other.
        self._kinds: tuple[str, ...] = () if side == "lake" else (words.SYNC,)
        self._not_kinds: tuple[str, ...] = (words.SYNC,) if side == "lake" else ()
        self._jobs = services.jobs
        self._lending = services.lending
        self._sources = services.sources

    async def find(self, request: http.Request, job_id: int | None = None) -> Job:
        """The job of the address; deleted ones, those of other organisations and of the other half do not exist."""
        wanted = request.path_id("job_id") if job_id is None else job_id
        try:
            job = await self._jobs.get(wanted, org=http.principal(request).org)
        except NotFound:
            raise missing(wanted) from None
        if job.deleted_at is not None or not self.has(job):
            raise missing(wanted)
        return job

    def has(self, job: Job) -> bool:
        return (job.kind == words.SYNC) == (self.side == "sync")

    async def show(self, jobs: Sequence[Job], *, is_for_worker: bool = False) -> list[Json]:
        """{job, source?} of each. Workers get the secrets, people do not."""
        ids = [job.id for job in jobs]
        standing = await self._jobs.standing(ids)
        if self.side == "lake":
            return [{"job": rendering.lake_job(job, standing[job.id], is_for_worker=is_for_worker)} for job in jobs]
        results, cursors = await self._jobs.last_results(ids), await self._jobs.cursors(ids)
        sources = await self._load_sources(jobs, is_for_worker)
        return [
            {
                "job": rendering.sync_job(
                    job, standing[job.id], results.get(job.id), cursors.get(job.id), is_for_worker=is_for_worker
                ),
                **sources.get((job.org, job.spec.get("source_id", 0)), {}),
            }
            for job in jobs
        ]

    async def _load_sources(self, jobs: Sequence[Job], is_for_worker: bool) -> dict[tuple[int, int], Json]:
        """{source} by organisation and id; what is gone is left out."""
        found = {}
        for org, source_id in sorted({(job.org, job.spec.get("source_id", 0)) for job in jobs}):
            try:
                source = await self._sources.get(org, source_id)
            except NotFound:
                continue
            config = self._sources.opened(source).config if is_for_worker else masked(source.config)
            found[org, source_id] = {"source": rendering.source(source, config)}
        return found

    # ── endpoints ──
    async def delete(self, request: http.Request) -> http.Answer:
        """Success also when there was nothing to delete."""
        await self.delete_job(request, request.path_id("job_id"))
        return http.reply(200, DONE)

    async def delete_job(self, request: http.Request, job_id: int) -> None:
        try:
            await self._jobs.delete((await self.find(request, job_id)).id)
        except NotFound:
            return  # it is not there: that is what was wanted

    async def list_jobs(self, request: http.Request) -> http.Answer:
        """A page by number. `keyword` is part of the name; sorts.field is one of a list."""
        _, fields = await reading.body_of(request)
        statuses = reading.statuses(fields)
        page = reading.read_stretch(fields, words.JOB_SORTS, needed=self.side == "sync")
        where = JobFilter(
            org=http.principal(request).org, name=page.keyword, kinds=self._kinds, not_kinds=self._not_kinds
        )
        if statuses:
            return http.reply(200, await self._list_by_status(where, page, statuses))
        found = await self._jobs.search(where, page.sorts, page.offset, page.limit)
        return http.reply(200, {"data": await self.show(found.items), "total": found.total}, reading.reach(found))

    async def _list_by_status(self, where: JobFilter, page: reading.Stretch, statuses: frozenset[str]) -> Json:
        """The status of a job is that of its latest run, which no index has: all are looked at."""
        rows: list[Json] = []
        offset, total = 0, 1
        while offset < total:
            found = await self._jobs.search(where, page.sorts, offset, reading.MOST)
            shown = await self.show(found.items)
            rows += [row for row in shown if row["job"]["current_sync_status"] in statuses]
            offset, total = offset + reading.MOST, found.total
        return {"data": rows[page.offset : page.offset + page.limit], "total": len(rows)}

    async def list_history(self, request: http.Request) -> http.Answer:
        """Runs, newest first unless sorted. Moments that became no run of their own are not shown."""
        _, fields = await reading.body_of(request)
        page = reading.read_stretch(fields, words.RUN_SORTS)
        org = http.principal(request).org
        where = RunFilter(org=org, name=page.keyword, states=words.SHOWN, kinds=self._kinds, not_kinds=self._not_kinds)
        found = await self._jobs.search_runs(where, page.sorts, page.offset, page.limit)
        running = [run.id for run, _ in found.items if not run.state.is_terminal]
        loans = {loan.run_id: loan for loan in await self._lending.loans(running)} if running else {}
        render = rendering.lake_history if self.side == "lake" else rendering.sync_history
        data = [render(run, name, loans.get(run.id)) for run, name in found.items]
        return http.reply(200, {"data": data, "total": found.total}, reading.reach(found))

    async def waiting(self, request: http.Request, kinds: tuple[str, ...], limit: int) -> list[Run]:
        """Runs of these kinds that nobody has taken yet."""
        where = RunFilter(org=http.principal(request).org, states=words.WAITING, kinds=kinds)
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
