"""The page of one job: what it does, when, how it went, and why."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from horae import schemas
from horae.core import model
from horae.core.insight.baselines import Expected
from horae.core.policy.listening import followed_ids
from horae.core.roles import Permission
from horae.core.workflows.picture import picture
from horae.errors import Error
from horae.service import Services
from horae.service.jobs.glances import Day
from horae.web import http, params, render
from horae.web.pages.charts import heat, trend
from horae.web.pages.drawings import Drawing, Neighbour, draw, draw_dependencies
from horae.web.pages.ruled import how_it_runs
from horae.web.pages.shell import HTML, Shell

LATEST = 60  # runs that the trend shows
LISTED = 25  # of them in the table
DAYS = 371  # of the year, from a Monday on
MOMENTS = 4  # of each trigger
NEIGHBOURS = 12  # jobs before, and after, that are drawn


class When(NamedTuple):
    """A trigger, and its next moments."""

    trigger: schemas.Trigger
    preview: schemas.Preview | None


class JobPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._explaining = services.explaining
        self._forecasting = services.forecasting
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("GET", "/jobs/{job_id}", self.show, "pages", "The page of one job", HTML,
                           params=(params.CURSOR,), needs=Permission.READ),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        zone = self._shell.zone_of(request)
        # What the store is asked for is asked for at once.
        (page, days), (standing, expected), why, neighbours = await asyncio.gather(
            self._past(job, request.args["cursor"], zone), self._present(job), self._explaining.of_job(job),
            self._neighbours(job),
        )  # fmt: skip
        runs, latest = [render.run(run) for run in page.items], standing.latest
        return await self._shell.page_of(
            job, request, "job.html", job=render.job(job), runs=runs, listed=LISTED,
            drawing=draw(picture(job.spec)) if "tasks" in job.spec else None,
            why=why.sentences, heat=heat([render.day(it) for it in days], job.id, zone), trend=trend(runs, expected),
            whens=[self._when(one) for one in job.triggers], neighbours=neighbours,
            latest=None if latest is None else render.run(latest), work=_work(job), rules=how_it_runs(job.policy),
            cursor=page.cursor, is_first=request.args["cursor"] is None,
        )  # fmt: skip

    async def _past(self, job: model.Job, cursor: str | None, zone: str) -> tuple[model.Page, list[Day]]:
        where = model.RunFilter(job_id=job.id)
        page, days = await asyncio.gather(
            self._jobs.list_runs(where, cursor, LATEST), self._jobs.glances.days(job.id, DAYS, zone)
        )
        return page, days

    async def _present(self, job: model.Job) -> tuple[model.Standing, Expected | None]:
        standing, expected = await asyncio.gather(self._jobs.standing([job.id]), self._forecasting.expected(job.id))
        return standing[job.id], expected

    async def _neighbours(self, job: model.Job) -> Drawing | None:
        """Jobs before and after this one; None: it stands alone."""
        before = await self._jobs.get_many(followed_ids(job)[:NEIGHBOURS])
        after = (await self._jobs.following.followers_of(job))[:NEIGHBOURS]
        if not before and not after:
            return None
        return draw_dependencies(
            [_neighbour(it, job, it) for it in before], job.name, [_neighbour(job, it, it) for it in after]
        )

    def _when(self, it: model.Trigger) -> When:
        """A schedule that this release cannot read has no moments; the explanation says why."""
        try:
            found = self._insight.preview(it.schedule, start=it.next_at, count=MOMENTS) if it.next_at else []
            return When(render.trigger(it), render.preview(it.schedule, found))
        except Error:
            return When(render.trigger(it), None)


def _neighbour(first: model.Job, second: model.Job, shown: model.Job) -> Neighbour:
    """Return one of two jobs, of which the second comes after the first, or listens to it."""
    on = next((one.on for one in second.policy.after if one.id == first.id), None)
    return Neighbour(shown.id, shown.name, f"on {on}" if on else "on an event", on or "end")


def _work(job: model.Job) -> list[str]:
    """Return what a job does, a line for each thing, for kinds that can be said so."""
    spec = job.spec
    if "steps" in spec:
        return [str(step.get("run", step)) for step in spec["steps"]]
    return [str(spec[name]) for name in ("handler", "url", "sql", "repository", "script") if name in spec]
