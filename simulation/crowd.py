"""Many runs that wait for the same things: a queue that tenants share by weight, and jobs with limits.

Of most seeds there is none: a crowd costs as much as all the rest. It has dice of its own, so that seeds without one
are what they would be anyway.
"""

from __future__ import annotations

import asyncio
import random

from campaign.crowd import WEIGHTS, limited, tenants
from campaign.history import FAIL, RUN, Operation, QueuePlan

from simulation.workload import Workload, run_with
from simulation.world import World

SHARE = 0.35  # of the seeds that have a crowd
TOGETHER = 10  # requests
EACH = (25, 40)  # runs of a tenant, at least and at most
FEW = (4, 8)  # runs of a job with a limit


class Crowd:
    def __init__(self, world: World, workload: Workload) -> None:
        self._world, self._workload = world, workload
        self._chance = random.Random(f"{world.seed} crowd")
        self.queue: QueuePlan | None = None
        if self._chance.random() < SHARE:
            self.queue = QueuePlan("crowd", WEIGHTS, self._chance.choice((None, None, 2, 3)))

    @property
    def queues(self) -> tuple[QueuePlan, ...]:
        return (self.queue,) if self.queue is not None else ()

    async def begin(self) -> None:
        if self.queue is not None:
            await self._workload.make_queue(self.queue)
            for plan, (least, most, percent) in (*tenants(self._chance), *limited(self._chance)):
                await self._workload.submit(plan, f"witness {least} {most} {percent} none")

    async def run(self, seconds: float) -> None:
        """One tenant after the other asks for very many, while those before still wait."""
        if self.queue is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await asyncio.sleep(self._chance.uniform(0.0, seconds / 4))
                for name in ("narrow", "tight", "paced"):
                    await self._ask(name, self._chance.randint(*FEW))
                for tenant in self._chance.sample(sorted(WEIGHTS), len(WEIGHTS)):
                    await self._ask(f"crowd-{tenant}", self._chance.randint(*EACH))
        except TimeoutError:
            return

    async def _ask(self, name: str, count: int) -> None:
        if name in self._workload.jobs:
            for first in range(0, count, TOGETHER):
                numbers = range(first, min(count, first + TOGETHER))
                async with asyncio.TaskGroup() as group:
                    for number in numbers:
                        group.create_task(self._ask_one(name, f"{name}-{number}"))

    async def _ask_one(self, name: str, key: str) -> None:
        job_id, plan = self._workload.jobs[name], self._workload.made[name]
        await self._workload.insist(Operation(RUN, key, FAIL, 0, 0, job_id=job_id), run_with(plan, job_id, key))
