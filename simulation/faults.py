"""What is broken: a random set of faults for each seed, each of them again and again, then all of it healed."""

from __future__ import annotations

import asyncio

from simulation.cluster import Cluster, Place
from simulation.world import World


class Faults:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster
        self.names: list[str] = ["crash"]

    async def run(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for name in self.names:
                    group.create_task(getattr(self, f"_{name}")())
        except TimeoutError:
            return

    async def heal(self) -> None:
        for place in self._cluster.places.values():
            self._cluster.start(place)

    async def _crash(self) -> None:
        while True:
            await asyncio.sleep(self._world.between(2, 30))
            place = self._world.chance.choice(list(self._cluster.places.values()))
            if place.is_up and place.process is not None:
                self._world.note_fault("kill", place.name)
                self._cluster.kill(place)
                self._world.later(self._world.between(0.1, 20), self._cluster.start, place)
