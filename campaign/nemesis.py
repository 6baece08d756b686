"""Faults, seeded: what is done to whom follows from the seed; what really happened is written down.

Lanes go on side by side, so faults of different lanes meet. No two faults kill or stop one process together, and
everything that was ended is begun again. Each lane goes through all of its faults once before it draws at random, so a
short campaign has seen every one of them.

What a campaign cannot do on this machine is left out, and told: see `left_out`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from campaign import clocks, spaces
from campaign.cluster import Cluster
from campaign.deaths import MINUTE_FITS, Deaths, Pauses
from campaign.history import CRASH, Journal, now
from campaign.outages import Database, Failovers, Services
from campaign.scene import Lane, Scene
from campaign.surroundings import Clocks, Disks, Network

GROUPS = ("kills", "pauses", "long-pauses", "database", "services", "network", "clocks", "disks")
KINDS = (
    "kill leader", "kill node", "kill agent", "kill keeper", "stop",
    "pause below lease", "pause beyond lease", "lost agent", "pause beyond a minute",
    "restart database", "database outage", "cut connections", "kill primary", "freeze primary", "kill postmaster",
    "kill nats", "wipe nats", "hold nats", "kill s3", "hold s3", "full bucket",
    "split agent", "split to servers", "split to agent", "slow line",
    "split database", "database unheard", "slow database",
    "clock forward", "clock back",
    "full disk of a node", "full disk of an agent", "full disk of output", "full disk of the database",
)  # fmt: skip
FIRST = 0.4  # of the usual calm, while a lane goes through its faults for the first time


class Nemesis:
    def __init__(self, cluster: Cluster, journal: Journal, seed: int, seconds: float, groups: Sequence[str]) -> None:
        self._scene = Scene(cluster, journal, seed)
        self._cluster = cluster
        self._seed, self._seconds, self._groups = seed, seconds, groups
        self.left_out: dict[str, str] = {}  # group → why
        self.lanes = [lane for group in groups if self._is_possible(group) for lane in self._lanes_of(group)]
        assert set(self.kinds) <= set(KINDS), (
            "every fault has its name in KINDS, and docs/reference/faults.md says of it"
        )

    @property
    def kinds(self) -> list[str]:
        """The faults that were chosen: each must be seen."""
        return list(dict.fromkeys(deed.kind for lane in self.lanes for deed in lane.deeds))

    def _is_possible(self, group: str) -> bool:
        why = ""
        match group:
            case "long-pauses" if self._seconds < MINUTE_FITS:
                why = f"the campaign is shorter than {MINUTE_FITS} s"
            case "long-pauses" if not self._cluster.agents:
                why = "there is no remote agent"
            case "network" | "disks" if not spaces.is_within():
                why = spaces.missing() or "the campaign was told to stay outside"
            case "clocks":
                why = clocks.missing()
        if why:
            self.left_out[group] = why
        return not why

    def _lanes_of(self, group: str) -> list[Lane]:
        scene, cluster = self._scene, self._cluster
        match group:
            case "kills":
                return Deaths(scene).lanes()
            case "pauses":
                return Pauses(scene).lanes()
            case "long-pauses":
                return Pauses(scene).long_lanes()
            case "services":
                return Services(scene).lanes()
            case "network":
                return Network(scene).lanes()
            case "clocks":
                return Clocks(scene).lanes()
            case "disks":
                return [*Disks(scene).lanes(), *self._database_disk()]
        if cluster.postgres is not None:
            return Database(scene, cluster.postgres).lanes()
        return Failovers(scene, cluster.patroni).lanes() if cluster.patroni is not None else []

    def _database_disk(self) -> list[Lane]:
        postgres = self._cluster.postgres
        return Database(self._scene, postgres).disk_lanes() if postgres is not None and postgres.disk else []

    async def run(self, patience: float) -> None:
        """Do harm until the time is up, and for a while longer if a chosen fault was not seen by then; what is under
        way at the end is left for `Cluster.heal`."""
        harm = asyncio.create_task(self._harm())
        await asyncio.wait([harm], timeout=self._seconds)
        late = time.monotonic() + patience
        while not harm.done() and set(self.kinds) - self._scene.seen and time.monotonic() < late:
            await asyncio.wait([harm], timeout=0.2)
        harm.cancel()
        try:
            await harm
        except asyncio.CancelledError:
            return

    async def _harm(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._scene.begun = group
            group.create_task(self._watch())
            for lane in self.lanes:
                group.create_task(self._walk(lane, random.Random(f"{self._seed} {lane.name}")))

    async def _walk(self, lane: Lane, chance: random.Random) -> None:
        first = list(lane.deeds)
        while True:
            calm = lane.calm * self._cluster.slowness  # what dies must be up again before it dies next
            await asyncio.sleep(chance.uniform(0.5, 1.5) * calm * (FIRST if first else 1.0))
            deed = first.pop(0) if first else chance.choice(lane.deeds)
            await deed.act()

    async def _watch(self) -> None:
        """Begin again what ended by itself, and write that down: nobody may end for a fault of another."""
        while True:
            for member in self._cluster.members.values():
                if not member.is_alive and not member.busy.locked():
                    async with member.busy:
                        assert member.process is not None
                        self._scene.record(CRASH, member.name, now(), f"ended with {member.process.returncode}")
                        await self._scene.begin_again(member)
            await asyncio.sleep(0.1)
