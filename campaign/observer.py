"""Counts what no single fault shows: elections, refused results, lost attempts. It only looks.

Counters of a process start anew with each of its lives, so each life is counted by the highest value seen in it.
"""

from __future__ import annotations

import asyncio
import re

import httpx

from campaign.cluster import Cluster, Member
from campaign.patroni import UNREACHED

LOOK = 0.4  # seconds between two looks
METRICS = {"fenced writes": "horae_fenced_writes_total", "lost attempts": "horae_attempts_lost_total"}


class Observer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._terms: list[int] = []  # the first and the last one seen
        self._seen: dict[tuple[str, str, int], float] = {}  # (count, member, life) → highest value

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        await asyncio.gather(self._look_at_lease(), *(self._look_at(member) for member in self._cluster.nodes))

    async def _look_at_lease(self) -> None:
        try:
            found = await self._cluster.database.leader()
        except UNREACHED:
            return
        if found is not None:
            self._terms = [*self._terms[:1], found[1]]

    async def _look_at(self, member: Member) -> None:
        life = member.lives
        try:
            text = (await self._cluster.http.get(f"{member.url}/metrics", timeout=1)).text
        except httpx.TransportError:
            return
        for name, metric in METRICS.items():
            if found := re.search(rf"^{metric} (\S+)$", text, re.MULTILINE):
                place = (name, member.name, life)
                self._seen[place] = max(self._seen.get(place, 0.0), float(found[1]))

    def counts(self) -> dict[str, int]:
        elections = self._terms[-1] - self._terms[0] if self._terms else 0
        sums = {name: int(sum(value for place, value in self._seen.items() if place[0] == name)) for name in METRICS}
        return {"elections": elections, **sums}
