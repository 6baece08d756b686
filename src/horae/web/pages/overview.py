"""The first page: what needs a hand, what runs, what was and what comes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, NamedTuple

from horae import schemas
from horae.core.model import RunFilter
from horae.core.roles import Permission
from horae.core.time import moments
from horae.service import Services
from horae.web import http, render
from horae.web.native.cluster import Cluster
from horae.web.pages.attention import Attention
from horae.web.pages.charts import bars, line
from horae.web.pages.shell import HTML, Drawn, Shell
from horae.web.pages.words import count, day, span

PAST = 400  # runs that the pictures show
BUCKETS = 24
SECONDS = 2.0  # for which one look serves all who watch
WIDEST, NARROWEST = 180, 10  # minutes to each side of now


class Seen(NamedTuple):
    """What is shown, as it was a moment ago."""

    until: float  # when it is too old
    drawn: Drawn
    values: dict[str, Any]


class OverviewPage:
    def __init__(self, services: Services, cluster: Cluster, shell: Shell) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._attention = Attention(services)
        self._cluster = cluster
        self._shell = shell
        self._seen: dict[tuple[int | None, str, str], Seen] = {}  # by organisation, role and zone
        self._looking = asyncio.Lock()

    def operations(self) -> list[http.Operation]:
        return [http.Operation("GET", "/", self.show, "pages", "The overview page", HTML, needs=Permission.READ)]

    async def show(self, request: http.Request) -> http.Answer:
        """Everybody who sees the same is served by one look, however many have the page open."""
        who, zone = http.principal(request), self._shell.zone_of(request)
        key = (who.bound_to, who.role, zone)
        async with self._looking:
            seen = self._seen.get(key)
            if seen is None or time.monotonic() >= seen.until:
                values = await self._look(who.bound_to, zone)
                self._seen = {each: one for each, one in self._seen.items() if one.until > time.monotonic()}
                seen = self._seen[key] = Seen(time.monotonic() + SECONDS, Drawn(), values)
            return self._shell.shared_page(request, "overview.html", seen.drawn, seen.values)

    async def _look(self, org: int | None, zone: str) -> dict[str, Any]:
        overview = await self._cluster.read_overview(org)
        runs = (await self._jobs.list_runs(RunFilter(org=org), None, PAST)).items
        past = [render.run(run) for run in runs if run.started_at is not None]
        names = {
            **overview.names,
            **{str(key): name for key, name in (await self._insight.job_names(run.job_id for run in runs)).items()},
        }
        at = self._shell.now()
        minutes = _minutes(past, at)
        return {
            "seen": overview, "attention": await self._attention.read(org), "warnings": self._insight.warnings,
            "names": names, "minutes": minutes,
            "line": line(past, overview.due, names, at, minutes, zone),
            "running": [run for run in overview.live if run.state == "running"],
            "waiting": [run for run in overview.live if run.state != "running"],
            "done": bars(_ended(past, at, minutes, zone), count), "late": bars(_late(past, at, minutes, zone), span),
        }  # fmt: skip


def _minutes(past: list[schemas.Run], at: str) -> int:
    """Return how far the pictures reach: as far back as the runs that were read, within bounds."""
    oldest = min((run.started_at or at for run in past), default=at)
    far = (moments.parse_moment(at) - moments.parse_moment(oldest)) // 60_000_000 + 1
    return WIDEST if len(past) < PAST // 2 else max(NARROWEST, min(WIDEST, far))


def _places(past: list[schemas.Run], at: str, minutes: int, field: str) -> list[tuple[int, schemas.Run]]:
    now, step = moments.parse_moment(at), minutes * 60_000_000 // BUCKETS
    found = [
        (BUCKETS - 1 - (now - moments.parse_moment(moment)) // step, run)
        for run in past
        if (moment := getattr(run, field)) is not None
    ]
    return [(min(place, BUCKETS - 1), run) for place, run in found if place >= 0]


def _starts(at: str, minutes: int, zone: str) -> list[str]:
    now, step = moments.parse_moment(at), minutes * 60_000_000 // BUCKETS
    return [day(moments.format_moment(now - step * (BUCKETS - place)), zone) for place in range(BUCKETS)]


def _ended(past: list[schemas.Run], at: str, minutes: int, zone: str) -> list[tuple[str, Any, Any]]:
    placed = _places(past, at, minutes, "finished_at")
    total = Counter(place for place, _ in placed)
    bad = Counter(place for place, run in placed if run.state in ("failed", "timed_out"))
    return [(when, total[place], bad[place]) for place, when in enumerate(_starts(at, minutes, zone))]


def _late(past: list[schemas.Run], at: str, minutes: int, zone: str) -> list[tuple[str, Any, Any]]:
    """The worst of each stretch."""
    worst: dict[int, float] = {}
    for place, run in _places(past, at, minutes, "started_at"):
        worst[place] = max(worst.get(place, 0), run.late_ms or 0)
    return [(when, worst.get(place, 0), 0) for place, when in enumerate(_starts(at, minutes, zone))]
