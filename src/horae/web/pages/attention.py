"""What needs a hand, in plain words, with where to go: the head of the overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horae.core.members import is_for
from horae.core.model import SECOND, Moment, NodeState, Run, RunFilter, State
from horae.service import Services
from horae.web import render
from horae.web.pages.words import plain

FAILED = (State.FAILED, State.TIMED_OUT)
LOOK_BACK = 7 * 86_400 * SECOND  # for failures
LOOKED_AT = 200  # runs of a kind
LATE = 60 * SECOND  # a run that nobody has begun
LONG = 3600 * SECOND  # a run that waits for something
MEANT_TO_WAIT = ("later", "signal", "snoozed", "children")
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

    async def read(self, org: int | None) -> list[Item]:
        now = await self._jobs.now()
        return [
            *await self._nodes(org),
            *await self._failing(org, now),
            *await self._waiting(org, now),
            *await self._told(org),
        ]

    async def _failing(self, org: int | None, now: Moment) -> list[Item]:
        """Jobs whose latest run failed: those that have recovered need nobody."""
        where = RunFilter(states=FAILED, due_from=now - LOOK_BACK, org=org)
        runs: Sequence[Run] = (await self._jobs.list_runs(where, None, LOOKED_AT)).items
        standing = await self._jobs.standing(list({run.job_id: None for run in runs}))
        bad = [one.ended for one in standing.values() if one.ended is not None and one.ended.state in FAILED]
        jobs = {job.id: job for job in await self._jobs.get_many([run.job_id for run in bad])}
        bad = [run for run in bad if run.job_id in jobs and jobs[run.job_id].deleted_at is None]
        items = [
            Item("bad", jobs[run.job_id].name, run.message or plain(run.reason) or plain(run.state.word),
                 f"/runs/{run.id}", render.when(run.finished_at), run.job_id)
            for run in sorted(bad, key=lambda each: -each.id)
        ]  # fmt: skip
        more = len(items) - SHOWN
        rest = [Item("bad", f"{more} more jobs failed last", "", "/jobs?state=failing")] if more > 0 else []
        return items[:SHOWN] + rest

    async def _waiting(self, org: int | None, now: Moment) -> list[Item]:
        live = (
            await self._jobs.list_runs(RunFilter(states=(State.QUEUED, State.BLOCKED), org=org), None, LOOKED_AT)
        ).items
        late = [run for run in live if run.state is State.QUEUED and run.due_at < now - LATE]
        found = []
        if late:
            oldest = min(late, key=lambda run: run.due_at)
            text = "no agent has taken them; the oldest says why"
            found.append(
                Item("bad", f"{_runs(len(late))} late", text, f"/runs/{oldest.id}", render.stamp(oldest.due_at))
            )
        held: dict[str, list[Run]] = {}
        for run in live:
            if run.state is State.BLOCKED and run.reason not in MEANT_TO_WAIT and run.created_at < now - LONG:
                held.setdefault(run.reason, []).append(run)
        for reason, runs in held.items():
            oldest = min(runs, key=lambda run: run.created_at)
            title = f"{_runs(len(runs))} blocked for long: {plain(reason)}"
            found.append(Item("wait", title, "", f"/runs/{oldest.id}", render.stamp(oldest.created_at)))
        return found

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


def _runs(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"
