"""Workflows beside the workload: a fan-out, a diamond with a branch for failures, and one that waits to be told; and
jobs that come after another.

Shapes and sizes are drawn; what a run of one should come to follows from its plan (campaign.tasks).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import httpx

from campaign.cluster import Cluster
from campaign.history import AGAIN, CANCEL, ORDER, RUN, SECOND, SIGNAL, Plan, TaskPlan
from campaign.workload import Labour, Workload, data_of

OVERLAPS = ("allow", "allow", "allow", "queue", "forbid", "replace")
FAILING = 12.0  # per cent of attempts
ASK_EVERY, TELL_EVERY = 3.0, 1.0  # seconds between two runs that are asked for, two looks for those that wait
CANCEL_EVERY, RETRY_EVERY = 12.0, 5.0
ORDER_EVERY = 6.0  # seconds between two flurries of orders
LIVE, UNSUCCESSFUL = "queued,running,blocked", "failed,timed_out,cancelled"


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


def calm(chance: random.Random) -> tuple[Plan, Labour]:
    """A job whose orders wait for the next, and not for ever."""
    seconds = chance.choice((1.0, 3.0))
    return Plan("calm", at=0, overlap="allow", debounce=seconds, debounce_most=seconds * 3), (0.0, 0.5, 0.0)


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
    """Asks for runs of workflows, tells those that wait (each once it is known that it was told, no more), calls some
    off, lets some that failed go on, and places orders that become one run together."""

    def __init__(self, cluster: Cluster, workload: Workload, seed: int) -> None:
        self._cluster, self._workload = cluster, workload
        self._chance = random.Random(f"{seed} flows")
        self._plans: dict[str, Plan] = {}
        self._calm = calm(self._chance)
        self._told: set[int] = set()
        self._retried: set[int] = set()
        self._unsure: set[int] = set()  # of those: nobody knows whether it was
        self._keys = 0

    async def begin(self) -> None:
        for plan, labour in (*workflows(self._chance, listed=False), *followers(self._chance), self._calm):
            if not await self._workload.submit(plan, labour):
                raise RuntimeError("a workflow was refused in calm weather: ops.jsonl says why")
            if plan.tasks:
                self._plans[plan.name] = plan

    async def run(self, over: asyncio.Event) -> None:
        acts = (self._ask, self.tell, self._cancel, self._retry, self._order)
        going = [asyncio.create_task(act()) for act in acts]
        await over.wait()
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    async def settle(self) -> None:
        """Everything is healed: ask again for what nobody knows whether it happened."""
        for run_id in sorted(self._unsure):
            await self._go_on(run_id)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(self._chance.uniform(0.5, 1.5) * seconds)

    async def _ask(self) -> None:
        while True:
            await self._pause(ASK_EVERY)
            name, plan = self._chance.choice(list(self._plans.items()))
            self._keys += 1
            await self._request(RUN, f"flow-{self._keys}", name, plan)

    async def _request(self, kind: str, key: str, name: str, plan: Plan) -> None:
        job_id = self._workload.jobs[name]
        await self._workload.insist(kind, key, f"/v1/jobs/{job_id}/run", {"data": data_of(plan, key)}, job_id=job_id)

    async def _order(self) -> None:
        """Some in a row, by several clients at once, and then none for a while."""
        plan, _ = self._calm
        while True:
            await self._pause(ORDER_EVERY)
            async with asyncio.TaskGroup() as group:
                for _ in range(self._chance.randint(2, 8)):
                    self._keys += 1
                    group.create_task(self._order_one(f"order-{self._keys}", plan))
                    await asyncio.sleep(self._chance.uniform(0.0, 0.7))

    async def _order_one(self, key: str, plan: Plan) -> None:
        await self._request(ORDER, key, plan.name, plan)

    async def tell(self) -> None:
        """Some before they wait, some when they do."""
        while True:
            await self._pause(TELL_EVERY)
            for run in await self._runs(tasks="true", state=LIVE):
                if run.get("task") == "ask" and run["id"] not in self._told:
                    await self._signal(run["id"])

    async def _signal(self, run_id: int) -> None:
        path = f"/v1/runs/{run_id}/signals/go"
        if await self._workload.insist(SIGNAL, f"signal-{run_id}", path, True, run_id=run_id) is not None:
            self._told.add(run_id)

    async def _cancel(self) -> None:
        while True:
            await self._pause(CANCEL_EVERY)
            if going := await self._of(self._plans, LIVE):
                run_id = self._chance.choice(going)
                await self._workload.insist(CANCEL, f"cancel-{run_id}", f"/v1/runs/{run_id}/cancel", {}, run_id=run_id)

    async def _retry(self) -> None:
        """Those whose jobs let them run beside others: else it may come to nothing."""
        while True:
            await self._pause(RETRY_EVERY)
            beside = [name for name, plan in self._plans.items() if plan.overlap == "allow"]
            if ended := [run_id for run_id in await self._of(beside, UNSUCCESSFUL) if run_id not in self._retried]:
                await self._go_on(self._chance.choice(ended))

    async def _go_on(self, run_id: int) -> None:
        self._retried.add(run_id)
        self._unsure.add(run_id)
        path = f"/v1/runs/{run_id}/retry"
        if await self._workload.insist(RUN, f"{AGAIN}{run_id}", path, {}) is not None:
            self._unsure.discard(run_id)

    async def _of(self, names: Iterable[str], states: str) -> list[int]:
        """Return runs of these jobs in these states."""
        jobs = {self._workload.jobs[name] for name in names}
        return [run["id"] for run in await self._runs(state=states) if run["job_id"] in jobs]

    async def _runs(self, **query: str) -> list[dict[str, Any]]:
        """Return the newest runs, as any node shows them; nothing where it does not answer."""
        node = self._chance.choice(self._cluster.nodes)
        try:
            answer = await self._cluster.http.get(f"{node.url}/v1/runs", params={"limit": "1000", **query}, timeout=5)
            return list(answer.raise_for_status().json()["items"])
        except httpx.HTTPError:
            return []
