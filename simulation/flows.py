"""Workflows, and runs that wait to be told: they are asked for, told, cancelled, and retried from where they failed.

As with crowds, not in every seed, and with dice of their own. Who waits for a signal is told once it was answered: what
is lost then, nobody tells again, and it waits for ever.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from campaign.flows import calm, followers, workflows
from campaign.history import FAIL, ORDER, RUN, SIGNAL, Operation, Plan

from horae.core.definitions import Idempotency
from horae.core.model import Run
from horae.service.jobs import Jobs
from horae.service.jobs.orders import Asker
from simulation.cluster import Cluster
from simulation.workload import Workload, run_with
from simulation.world import World

SHARE = 0.4  # of the seeds that have workflows
HASTE = 0.3  # of the looks for those that wait, those by which one is told
LATE = 1.0  # seconds between two looks for those that were never told, once all is healed


class Flows:
    def __init__(self, world: World, cluster: Cluster, workload: Workload) -> None:
        self._world, self._cluster, self._workload = world, cluster, workload
        self._chance = random.Random(f"{world.seed} flows")
        self.is_there = self._chance.random() < SHARE
        self._plans: dict[str, Plan] = {}
        self._told: set[int] = set()  # runs, by somebody who was answered
        self._retried: set[int] = set()
        self._keys = 0

    @property
    def followers(self) -> set[int]:
        """Jobs whose runs are made by the ends of others."""
        jobs, made = self._workload.jobs, self._workload.made
        return {job_id for name, job_id in jobs.items() if not made[name].has_moments}

    async def begin(self) -> None:
        if not self.is_there:
            return
        for plan, (least, most, percent) in workflows(self._chance, listed=True):
            await self._workload.submit(plan, f"witness {least} {most} {percent} none")
            self._plans[plan.name] = plan
        for plan, (least, most, percent) in followers(self._chance):
            await self._workload.submit(plan, f"witness {least} {most} {percent} none")
        orders, (least, most, percent) = calm(self._chance)
        await self._workload.submit(orders, f"witness {least} {most} {percent} none")
        waiter = Plan("waiter", at=0, overlap="allow", waits=True)
        await self._workload.submit(waiter, f"witness 0.0 {self._chance.choice((0.1, 1.0))} 5.0 waits")
        self._plans[waiter.name] = waiter

    async def run(self, seconds: float) -> None:
        if not self.is_there:
            return
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for act in (self._ask, self._tell, self._cancel, self._retry, self._order):
                    group.create_task(act())
        except TimeoutError:
            return

    async def tell_the_rest(self) -> None:
        """Once everything is healed, whoever still waits and was never told is."""
        while True:
            for run_id in self._waiting():
                await self._signal(run_id)
            await asyncio.sleep(LATE)

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(1.0, 8.0))
            name = self._chance.choice(sorted(self._plans))
            if name in self._workload.jobs:
                self._keys += 1
                job_id, key = self._workload.jobs[name], f"flow-{self._keys}"
                blank = Operation(RUN, key, FAIL, 0, 0, job_id=job_id)
                await self._workload.insist(blank, run_with(self._plans[name], job_id, key))

    async def _order(self) -> None:
        """Some in a row, by several clients at once, and then none for a while."""
        while True:
            await asyncio.sleep(self._chance.uniform(3.0, 12.0))
            async with asyncio.TaskGroup() as group:
                for number in range(self._chance.randint(2, 6)):
                    group.create_task(self._order_one(number * self._chance.uniform(0.0, 1.5)))

    async def _order_one(self, after: float) -> None:
        await asyncio.sleep(after)
        if (job_id := self._workload.jobs.get("calm")) is not None:
            self._keys += 1
            key = f"order-{self._keys}"
            call = run_with(self._workload.made["calm"], job_id, key)
            await self._workload.insist(Operation(ORDER, key, FAIL, 0, 0, job_id=job_id), call)

    async def _tell(self) -> None:
        """Some before they wait, some just then, and some long after."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.0, 0.2))
            waiting = self._waiting()
            if waiting and self._chance.random() < HASTE:
                await self._signal(self._chance.choice(waiting))

    async def _signal(self, run_id: int) -> None:
        key = f"signal-{run_id}"
        answer = await self._workload.insist(
            Operation(SIGNAL, key, FAIL, 0, 0, run_id=run_id), partial(_signal, run_id, key)
        )
        if answer is not None or key in self._workload.refused:
            self._told.add(run_id)

    async def _cancel(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(5.0, 25.0))
            if going := self._ids("live", "state <= 2"):
                await self._workload.cancel(self._chance.choice(going))

    async def _retry(self) -> None:
        """Those whose jobs let them run beside others: else it may come to nothing."""
        while True:
            await asyncio.sleep(self._chance.uniform(2.0, 10.0))
            jobs = [
                self._workload.jobs[name]
                for name, plan in self._plans.items()
                if plan.overlap == "allow" and name in self._workload.jobs
            ]
            among = f"state BETWEEN 11 AND 13 AND job_id IN ({', '.join(map(str, jobs)) or 'NULL'})"
            if ended := [run_id for run_id in self._ids("history", among) if run_id not in self._retried]:
                run_id = self._chance.choice(ended)
                self._retried.add(run_id)
                key = f"retry-{run_id}"
                await self._workload.insist(Operation(RUN, key, FAIL, 0, 0), partial(_retry, run_id, key))

    # ── what the API would show ──
    def _waiting(self) -> list[int]:
        waiter = self._workload.jobs.get("waiter", 0)
        rows = self._cluster.database.connection.execute(
            "SELECT id FROM live WHERE kind = 'wait' OR job_id = ? ORDER BY id", (waiter,)
        )
        return [row[0] for row in rows if row[0] not in self._told]

    def _ids(self, table: str, among: str) -> list[int]:
        """Return workflows that are no tasks of others."""
        text = f"SELECT id FROM {table} WHERE kind = 'workflow' AND parent_id IS NULL AND {among} ORDER BY id"
        return [row[0] for row in self._cluster.database.connection.execute(text)]


async def _signal(run_id: int, key: str, jobs: Jobs) -> Run:
    return await jobs.signals.send(run_id, "go", "true", "local", Idempotency("client signal", key, key))


async def _retry(run_id: int, key: str, jobs: Jobs) -> Run:
    return await jobs.workflows.retry(run_id, Asker("local"), Idempotency("client retry", key, key))
