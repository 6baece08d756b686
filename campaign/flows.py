"""Workflows beside the workload: a fan-out, a diamond with a branch for failures, and one that waits to be told; and
jobs that come after another.

Shapes and sizes are drawn; what a run of one should come to follows from its plan (campaign.tasks).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace

import httpx

from campaign.cluster import Cluster
from campaign.history import RUN, SECOND, SIGNAL, Plan, TaskPlan
from campaign.workload import Labour, Workload, data_of

OVERLAPS = ("allow", "allow", "allow", "queue", "forbid", "replace")
FAILING = 12.0  # per cent of attempts
ASK_EVERY, TELL_EVERY = 3.0, 1.0  # seconds between two runs that are asked for, two looks for those that wait
LIVE = "queued,running,blocked"


def workflows(chance: random.Random, *, listed: bool) -> Iterator[tuple[Plan, Labour]]:
    """With `listed`, the first task of a fan-out returns its items; else they are written in its document."""
    for name, tasks in (("fan", _fan(chance, listed=listed)), ("diamond", _diamond(chance)), ("ask", _ask())):
        every = chance.randint(100, 400) * SECOND // 10 if chance.random() < 0.3 else None
        plan = Plan(
            f"flow-{name}", every=every, at=0 if every is None else None, overlap=chance.choice(OVERLAPS),
            attempts=chance.choice((1, 1, 2)), tasks=tasks,
        )  # fmt: skip
        yield plan, (0.0, chance.choice((0.1, 0.5, 2.0)), FAILING)


def followers(chance: random.Random) -> Iterator[tuple[Plan, Labour]]:
    """A job with moments of the clock, one that has the same and waits for it, and one that it makes."""
    before = Plan(
        "before", seconds=chance.choice((10, 15, 20)), minutes=1, overlap=chance.choice(OVERLAPS), key="before"
    )
    labour = (0.0, chance.choice((0.1, 0.5, 2.0)), 25.0)
    yield before, labour
    ends = ("success", "success", "failure", "end")
    yield replace(before, name="beside", key="", after="before", on=chance.choice(ends), overlap="allow"), labour
    yield Plan("behind", after="before", on=chance.choice(ends), overlap="allow"), labour


def _fan(chance: random.Random, *, listed: bool) -> tuple[TaskPlan, ...]:
    items, at_once = chance.choice((0, 2, 4, 7)), chance.choice((None, None, 2))
    return (
        TaskPlan("list"),
        TaskPlan("convert", (("list", "success"),), items, "list" if listed else "", at_once, chance.random() < 0.2),
        TaskPlan("check", (("convert", "success"),)),
        TaskPlan("clean", (("convert", "failure"),)),
    )


def _diamond(chance: random.Random) -> tuple[TaskPlan, ...]:
    return (
        TaskPlan("top"),
        TaskPlan("left", (("top", "success"),), may_fail=chance.random() < 0.3),
        TaskPlan("right", (("top", "success"),), items=chance.choice((None, 2))),
        TaskPlan("join", (("left", "success"), ("right", "success"))),
        TaskPlan("mend", (("right", "failure"), ("left", "end"))),
        TaskPlan("last", (("join", "end"), ("mend", "end"))),
    )


def _ask() -> tuple[TaskPlan, ...]:
    return (
        TaskPlan("first"),
        TaskPlan("ask", (("first", "success"),), waits=True),
        TaskPlan("then", (("ask", "success"),)),
    )


class Flows:
    """Asks for runs of workflows, and tells those that wait; each once it is known that it was told, no more."""

    def __init__(self, cluster: Cluster, workload: Workload, seed: int) -> None:
        self._cluster, self._workload = cluster, workload
        self._chance = random.Random(f"{seed} flows")
        self._plans: dict[str, Plan] = {}
        self._told: set[int] = set()
        self._keys = 0

    async def begin(self) -> None:
        for plan, labour in (*workflows(self._chance, listed=False), *followers(self._chance)):
            if not await self._workload.submit(plan, labour):
                raise RuntimeError("a workflow was refused in calm weather: ops.jsonl says why")
            if plan.tasks:
                self._plans[plan.name] = plan

    async def run(self, over: asyncio.Event) -> None:
        telling = asyncio.create_task(self.tell())
        while not over.is_set():
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * ASK_EVERY)
            name, plan = self._chance.choice(list(self._plans.items()))
            self._keys += 1
            key, job_id = f"flow-{self._keys}", self._workload.jobs[name]
            body = {"data": data_of(plan, key)}
            await self._workload.insist(RUN, key, f"/v1/jobs/{job_id}/run", body, job_id=job_id)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)

    async def tell(self) -> None:
        """Some before they wait, some when they do."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * TELL_EVERY)
            for run_id in await self._waiting():
                await self._signal(run_id)

    async def _waiting(self) -> list[int]:
        node = self._chance.choice(self._cluster.nodes)
        query = {"tasks": "true", "state": LIVE, "limit": "1000"}
        try:
            answer = await self._cluster.http.get(f"{node.url}/v1/runs", params=query, timeout=5)
            found = answer.raise_for_status().json()["items"]
        except httpx.HTTPError:
            return []
        return [run["id"] for run in found if run.get("task") == "ask" and run["id"] not in self._told]

    async def _signal(self, run_id: int) -> None:
        path = f"/v1/runs/{run_id}/signals/go"
        if await self._workload.insist(SIGNAL, f"signal-{run_id}", path, True, run_id=run_id) is not None:
            self._told.add(run_id)
