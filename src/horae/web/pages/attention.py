"""What needs a hand, in plain words, with where to go: the head of the overview."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import NamedTuple

from horae.core.insight.shortages import Shortage
from horae.core.members import is_for
from horae.core.model import SECOND, Job, Moment, NodeState
from horae.service import Services
from horae.service.jobs.signals import approval_of
from horae.web import render
from horae.web.pages.words import because, count, day, plain

LOOK_BACK = 7 * 86_400 * SECOND  # for failures
MOST_FAILING = 100  # jobs that are counted
LATE = 60 * SECOND  # a run that nobody has begun
LONG = 3600 * SECOND  # a run that waits for something
MEANT_TO_WAIT = ("later", "signal", "snoozed", "children")
STEP = 10 * SECOND  # to which moments in links are rounded
AHEAD = 12.0  # hours of the forecast
SHORTAGES = 3
SHOWN = 8  # of a kind


class Item(NamedTuple):
    level: str  # bad: somebody must act; wait: somebody should know
    title: str
    text: str
    href: str
    at: str | None = None
    job_id: int | None = None  # that can be run again


class Attention:
    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._alerts = services.alerts
        self._forecasting = services.forecasting

    async def read(self, org: int | None, zone: str) -> list[Item]:
        now = await self._jobs.now()
        found = await asyncio.gather(
            self._nodes(org), self._failing(org, now), self._late(org, now), self._short(org, zone), self._asked(org),
            self._held(org, now), self._told(org),
        )  # fmt: skip
        return [*chain.from_iterable(found)]

    async def _failing(self, org: int | None, now: Moment) -> list[Item]:
        """Jobs whose latest run failed: those that have recovered need nobody."""
        bad, number = await self._jobs.glances.failing(now - LOOK_BACK, org, SHOWN, MOST_FAILING)
        names = await self._insight.job_names(run.job_id for run in bad)
        items = [
            Item("bad", names.get(run.job_id, str(run.job_id)),
                 run.message or because(run.reason) or plain(run.state.word),
                 f"/runs/{run.id}", render.when(run.finished_at), run.job_id)
            for run in bad
        ]  # fmt: skip
        more = number - SHOWN
        many = f"{more}{'+' if number == MOST_FAILING else ''} more jobs failed last"
        return items + ([Item("bad", many, "", "/jobs?state=failing")] if more > 0 else [])

    async def _late(self, org: int | None, now: Moment) -> list[Item]:
        before = (now - LATE) // STEP * STEP
        late = await self._jobs.glances.late(before, org)
        if late.run_id is None:
            return []
        where = f"/runs?state=queued&until={render.stamp(before)}" if late.number > 1 else f"/runs/{late.run_id}"
        title = f"{_runs(late.number, is_cut=late.is_cut)} late"
        text = "no agent has taken them; the page of each says why"
        return [Item("bad", title, text, where, render.when(late.due_at))]

    async def _held(self, org: int | None, now: Moment) -> list[Item]:
        before = (now - LONG) // STEP * STEP
        held, is_cut = await self._jobs.glances.held(before, org)
        return [
            Item("wait", f"{_runs(one.number, is_cut=is_cut)} blocked for long: {because(one.reason)}", "",
                 f"/runs?state=blocked&until={render.stamp(before)}" if one.number > 1 else f"/runs/{one.run_id}",
                 render.when(one.created_at))
            for one in held
            if one.number and one.reason not in MEANT_TO_WAIT
        ]  # fmt: skip

    async def _short(self, org: int | None, zone: str) -> list[Item]:
        """Where places run out, by the forecast; until there is one, nobody knows."""
        foretold = await self._forecasting.look(hours=AHEAD, org=org, limit=0)
        return [] if foretold is None else [_shortage(one, zone) for one in foretold.shortages[:SHORTAGES]]

    async def _asked(self, org: int | None) -> list[Item]:
        """What waits for somebody to say yes."""
        asked = await self._jobs.signals.list_asked(org)
        ids = [run.parent_id or run.id for run, _ in asked[:SHOWN]]
        names = await self._insight.job_names(job.id for _, job in asked[:SHOWN])
        items = [
            Item("wait", f"{names.get(job.id, job.name)} waits for an approval", _asked_whom(job), f"/runs/{run_id}",
                 render.when(run.created_at))
            for run_id, (run, job) in zip(ids, asked, strict=False)
        ]  # fmt: skip
        more = len(asked) - SHOWN
        return items + (
            [Item("wait", f"{more} more wait for an approval", "", "/runs?state=blocked")] if more > 0 else []
        )

    async def _nodes(self, org: int | None) -> list[Item]:
        nodes = [node for node in await self._insight.nodes() if is_for(node, org)]
        found = [
            Item(
                "bad",
                f"Node {node.name} is gone",
                "what it ran is given to others",
                "/cluster",
                render.stamp(node.heartbeat_at),
            )
            for node in nodes
            if node.state == NodeState.GONE
        ]
        if not any(node.slots for node in nodes if node.state == NodeState.LIVE):
            found.append(
                Item(
                    "bad",
                    "No agent is there",
                    "nothing runs until one joins: `horae agent --server HOST:PORT`",
                    "/cluster",
                )
            )
        return found

    async def _told(self, org: int | None) -> list[Item]:
        alerts = await self._alerts.open_alerts(org, 0, SHOWN)
        return [
            Item("wait", f"Alert {one.rule}: {one.name}", one.text, "/alerts", render.when(one.since_at))
            for one in alerts
        ]


def _runs(number: int, *, is_cut: bool) -> str:
    return "1 run is" if number == 1 and not is_cut else f"{count(number)}{'+' if is_cut else ''} runs are"


def _shortage(one: Shortage, zone: str) -> Item:
    at = render.stamp(one.start_at)
    what = {"slots": "Slots for ", "queue": "Queue ", "limit": "Limit "}[one.what] + one.name
    there = one.rate if one.capacity is None else count(one.capacity)
    title = f"{what} {'run' if one.what == 'slots' else 'runs'} out at {day(at, zone)[4:]}"
    return Item("wait", title, f"{count(round(one.wanted))} wanted, {there} there", "/forecast", at)


def _asked_whom(job: Job) -> str:
    asked = approval_of(job) or {}
    return " · ".join(
        text for text in (asked.get("message", ""), f"{', '.join(asked.get('by', []))} may decide") if text
    )
