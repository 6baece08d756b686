"""The page of one job: what it does, when, how it went, and why."""

from __future__ import annotations

from typing import NamedTuple

from horae import schemas
from horae.core import model
from horae.core.policy.listening import followed_ids
from horae.core.roles import Permission
from horae.core.workflows.picture import picture
from horae.errors import Error
from horae.service import Services
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
        page = await self._jobs.list_runs(model.RunFilter(job_id=job.id), request.args["cursor"], LATEST)
        runs = [render.run(run) for run in page.items]
        days = await self._jobs.glances.days(job.id, DAYS, self._shell.zone_of(request))
        latest = (await self._jobs.standing([job.id]))[job.id].latest
        return await self._shell.page_of(
            job, request, "job.html", job=render.job(job), runs=runs, listed=LISTED,
            drawing=draw(picture(job.spec)) if "tasks" in job.spec else None,
            why=(await self._explaining.of_job(job)).sentences,
            heat=heat([render.day(it) for it in days], job.id, self._shell.zone_of(request)),
            trend=trend(runs, await self._forecasting.expected(job.id)),
            whens=[self._when(one) for one in job.triggers], neighbours=await self._neighbours(job),
            latest=None if latest is None else render.run(latest), work=_work(job), rules=how_it_runs(job.policy),
            cursor=page.cursor, is_first=request.args["cursor"] is None,
        )  # fmt: skip

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
