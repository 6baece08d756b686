"""The first page: what needs a hand, what runs, what was and what comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from horae.core.insight.activity import Activity
from horae.core.insight.arrivals import Window
from horae.core.insight.timeline import Mark
from horae.core.model import SECOND, Moment, Run
from horae.core.roles import Permission
from horae.core.time import moments
from horae.service import Services
from horae.web import http, render
from horae.web.native.cluster import Cluster
from horae.web.pages.attention import Attention
from horae.web.pages.charts import bars, line
from horae.web.pages.shared import Shared
from horae.web.pages.shell import HTML, Shell
from horae.web.pages.words import count, day, span

MOST_DRAWN = 400  # runs that the line shows,
MOST_RUNNING = 200  # and of these, that go on
PARTS = 24
SECONDS = 2.0  # for which one look serves all who watch
MINUTE = 60 * SECOND
REACHES = (180, 60, 30, 10)  # minutes to each side of now


class OverviewPage:
    def __init__(self, services: Services, cluster: Cluster, shell: Shell) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._attention = Attention(services)
        self._cluster = cluster
        self._shell = shell
        self._shared = Shared(SECONDS)

    def operations(self) -> list[http.Operation]:
        return [http.Operation("GET", "/", self.show, "pages", "The overview page", HTML, needs=Permission.READ)]

    async def show(self, request: http.Request) -> http.Answer:
        """Everybody who sees the same is served by one look, however many have the page open."""
        who, zone = http.principal(request), self._shell.zone_of(request)
        seen = await self._shared.see((who.bound_to, who.role, zone), lambda: self._look(who.bound_to, zone))
        return self._shell.shared_page(request, "overview.html", seen.drawn, seen.values)

    async def _look(self, org: int | None, zone: str) -> dict[str, Any]:
        overview, attention, (minutes, activity, running) = await asyncio.gather(
            self._cluster.read_overview(org), self._attention.read(org, zone), self._active(org)
        )
        now, begun = activity.window.end, _begun(activity, running)
        drawn = _some(begun, MOST_DRAWN)
        named = await self._insight.job_names({mark.job_id for mark in drawn})
        names = {**overview.names, **{str(job_id): name for job_id, name in named.items()}}
        return {
            "seen": overview, "attention": attention, "warnings": self._insight.warnings,
            "names": names, "minutes": minutes, "is_whole": activity.is_whole and len(drawn) == len(begun),
            "line": line(drawn, overview.due, names, now, minutes, zone),
            "running": [run for run in overview.live if run.state == "running"],
            "waiting": [run for run in overview.live if run.state != "running"],
            "done": bars(_ended(activity, zone), count), "late": bars(_late(activity, zone), span),
            "oldest": _just_after(overview.census.oldest_queued_at),
        }  # fmt: skip

    async def _active(self, org: int | None) -> tuple[int, Activity, Sequence[Run]]:
        """Return how many minutes the pictures reach to each side, what they show, and what runs."""
        now = await self._jobs.now()
        minutes, running = await asyncio.gather(self._minutes(now), self._jobs.glances.running(org, MOST_RUNNING))
        # What runs was read first: what ends meanwhile is seen once.
        window = Window(now - minutes * MINUTE, now)
        return minutes, await self._jobs.glances.activity(window, PARTS, org), running

    async def _minutes(self, now: Moment) -> int:
        """As far as the line can show each run, if that is far enough to see anything."""
        made = await self._jobs.glances.made_since([now - minutes * MINUTE for minutes in REACHES])
        return next((reach for reach, number in zip(REACHES, made, strict=True) if number <= MOST_DRAWN), REACHES[-1])


def _just_after(moment: str | None) -> str | None:
    return None if moment is None else moments.format_moment(moments.parse_moment(moment) + 1)


def _begun(activity: Activity, running: Sequence[Run]) -> list[Mark]:
    """Return the runs that have begun, the newest first: those that run, and those that were looked at."""
    marks = {mark.id: mark for mark in activity.marks if mark.started_at is not None}
    for run in running:
        marks.setdefault(run.id, Mark(run.id, run.job_id, run.state, run.due_at, run.started_at, None))
    return sorted(marks.values(), key=lambda mark: -mark.id)


def _some(marks: Sequence[Mark], most: int) -> list[Mark]:
    """Return all, or as many from everywhere among them."""
    return [marks[place * len(marks) // most] for place in range(most)] if len(marks) > most else list(marks)


def _starts(window: Window, parts: int, zone: str) -> list[str]:
    length = window.end - window.start
    return [day(render.stamp(window.start + length * part // parts), zone) for part in range(parts)]


def _ended(activity: Activity, zone: str) -> list[tuple[str, Any, Any]]:
    counted = zip(_starts(activity.window, PARTS, zone), activity.ended, activity.bad, strict=True)
    return [(when, round(ended), round(bad)) for when, ended, bad in counted]


def _late(activity: Activity, zone: str) -> list[tuple[str, Any, Any]]:
    """The worst of each part."""
    return [
        (when, late / 1000, 0)
        for when, late in zip(_starts(activity.window, PARTS, zone), activity.late, strict=True)
    ]  # fmt: skip
