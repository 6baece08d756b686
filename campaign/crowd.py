"""Many runs that wait for the same things: a queue that tenants share by weight, and jobs with limits.

Beside the workload, and after it: what the workload asks for, releases before queues understand too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from campaign.cluster import Cluster
from campaign.history import RUN, SECOND, Plan, QueuePlan
from campaign.workload import Labour, Workload, data_of

WEIGHTS = {"ann": 1, "bob": 2, "eve": 4}
EACH, FEW = (40, 80), (6, 12)  # runs of a tenant, and of a job with a limit, at least and at most
TOGETHER = 10  # requests
CALM = 20.0  # seconds between two floods, about
NOTED_LATE = 15.0  # seconds from a claim to the first line of its witness, whatever its agent met


def tenants(chance: random.Random) -> Iterator[tuple[Plan, Labour]]:
    """Jobs that share the queue of the crowd."""
    most = chance.choice((0.2, 0.5, 1.0))
    for tenant in WEIGHTS:
        yield Plan(f"crowd-{tenant}", at=0, overlap="allow", queue="crowd", tenant=tenant), (0.0, most, 0.0)


def limited(chance: random.Random) -> Iterator[tuple[Plan, Labour]]:
    """Two that may have a key in common, and one with a rate."""
    labour = (0.0, chance.choice((0.5, 2.0, 8.0)), 10.0)
    every = chance.randint(30, 100) * SECOND // 10
    per, most = chance.choice(("job", "data.tenant", "owner")), chance.choice((1, 1, 2))
    for name in ("narrow", "tight"):
        attempts = chance.choice((1, 2))
        yield Plan(name, every=every, overlap="allow", tenant="ann", at_once=most, at_once_per=per,
                   attempts=attempts), labour  # fmt: skip
    rate, burst, per = chance.choice((30, 60)), chance.choice((1, 3)), chance.choice(("job", "data.tenant"))
    yield Plan("paced", at=0, overlap="allow", tenant="bob", rate=rate, burst=burst, rate_per=per), labour


class Crowd:
    def __init__(self, cluster: Cluster, workload: Workload, seed: int) -> None:
        self._cluster, self._workload = cluster, workload
        self._chance = random.Random(f"{seed} crowd")
        self.queue = QueuePlan("crowd", WEIGHTS, self._chance.choice((3, 6)))
        self._plans: dict[str, Plan] = {}
        self._keys = 0

    async def begin(self) -> None:
        document = {"weights": self.queue.weights, "concurrency": self.queue.concurrency}
        url = f"{self._cluster.nodes[0].url}/v1/queues/{self.queue.name}"
        (await self._cluster.http.put(url, json=document, timeout=30)).raise_for_status()
        for plan, labour in (*tenants(self._chance), *limited(self._chance)):
            if not await self._workload.submit(plan, labour):
                raise RuntimeError("a job of the crowd was refused in calm weather: ops.jsonl says why")
            self._plans[plan.name] = plan

    async def run(self, over: asyncio.Event) -> None:
        """Flood after flood, until it is over."""
        while not over.is_set():
            for name, plan in self._chance.sample(list(self._plans.items()), len(self._plans)):
                await self._ask(name, self._chance.randint(*(EACH if plan.queue else FEW)), over)
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * CALM)

    async def _ask(self, name: str, count: int, over: asyncio.Event) -> None:
        for first in range(0, count, TOGETHER):
            if over.is_set():
                return
            async with asyncio.TaskGroup() as group:
                for _ in range(min(TOGETHER, count - first)):
                    self._keys += 1
                    group.create_task(self._ask_one(name, f"crowd-{self._keys}"))

    async def _ask_one(self, name: str, key: str) -> None:
        job_id, body = self._workload.jobs[name], {"data": data_of(self._plans[name], key)}
        await self._workload.insist(RUN, key, f"/v1/jobs/{job_id}/run", body, job_id=job_id)
