"""The timeline under /v1."""

from __future__ import annotations

from msgspec import UNSET

from horae.core.insight.arrivals import Window
from horae.core.insight.forecast import Forecast
from horae.core.insight.timeline import Bar
from horae.core.model import SECOND
from horae.core.roles import Permission
from horae.schemas import views
from horae.service import Services
from horae.service.insight.timelines import Timeline
from horae.service.insight.timelines import Timelines as Service
from horae.web import http, params, render

BACK, AHEAD = 3 * 3600 * SECOND, 3 * 3600 * SECOND  # what is shown unless asked otherwise
MOST_ROWS = 200
_ASKED = (
    params.moment("from", "Where to begin; three hours ago, unless given."),
    params.moment("until", "Where to end; in three hours, unless given."),
    params.number("rows", "How many jobs are shown at most.", 1, MOST_ROWS, 50),
    params.text("name", "Jobs whose name holds this text.", 200),
)


class Timelines:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._timelines = Service(services.jobs, services.forecasting, services.insight)

    def operations(self) -> list[http.Operation]:
        summary = "See what ran, runs and is to run, by job"
        return [
            http.Operation(
                "GET", "/v1/timeline", self.show, "runs", summary, "Timeline", params=_ASKED, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        """Past runs and due moments that come, on the rows of the jobs that have most of them. Of more than 3,000 runs,
        1,800 from all parts of the time stand for the others, and `is_cut` says so: counts are estimated then, the load
        of the past is an average, and of each row the newest 100 are shown beside them."""
        return http.reply(200, shown(await self.read(request)))

    async def read(self, request: http.Request) -> Timeline:
        args, now = request.args, await self._jobs.now()
        start = now - BACK if args["from"] is None else args["from"]
        end = now + AHEAD if args["until"] is None else args["until"]
        org = http.principal(request).bound_to
        return await self._timelines.make(Window(start, end), args["rows"], args["name"], org)


def shown(it: Timeline) -> views.Timeline:
    return views.Timeline(
        render.stamp(it.window.start), render.stamp(it.window.end), render.stamp(it.now), it.slots,
        [views.TimelineRow(row.job_id, row.name, [_run(bar) for bar in row.bars], row.count) for row in it.rows],
        it.jobs, it.is_cut, [views.TimelineLoad(render.stamp(one.at), one.running, one.is_expected) for one in it.load],
        _marks(it.forecast) if it.forecast else [],
    )  # fmt: skip


def _run(it: Bar) -> views.TimelineRun:
    return views.TimelineRun(
        render.stamp(it.start), render.when(it.end), it.state, UNSET if it.run_id is None else it.run_id
    )


def _marks(it: Forecast) -> list[views.TimelineMark]:
    short = [
        views.TimelineMark(
            render.stamp(one.start_at), render.stamp(one.end_at), "shortage",
            f"{one.what} of {one.name} run out: {one.wanted:.0f} wanted"
            + (f", {one.capacity} there" if one.capacity is not None else f", {one.rate} allowed"),
        )
        for one in it.shortages
    ]  # fmt: skip
    clashes = [
        views.TimelineMark(
            render.stamp(one.at), render.stamp(one.at), "clash",
            f"{one.triggers} triggers are due in the same second, {one.times} times",
        )
        for one in it.clashes
    ]  # fmt: skip
    return short + clashes
