"""Faults of what is around a process: its network, its wall clock, its disk. They may meet a death or a pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import httpx

from campaign.cluster import LEASE, Cluster, Member
from campaign.disks import Disk
from campaign.history import now
from campaign.links import DOWN, UP, Link
from campaign.scene import Deed, Lane, Scene, until_seen
from campaign.spaces import TO_AGENT, TO_SERVERS

ENOSPC = "No space left"
HOUR = 3600.0
JUMPS = (30.0, 300.0, HOUR, 24 * HOUR, 400 * 24 * HOUR)  # seconds


class Network:
    """The wire between an agent and its servers, and the links between nodes and their database."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def lanes(self) -> list[Lane]:
        cluster = self._scene.cluster
        lanes = []
        if agents := [agent for agent in cluster.agents if agent.space]:
            splits = {
                "split agent": (TO_SERVERS, TO_AGENT),
                "split to servers": (TO_SERVERS,),
                "split to agent": (TO_AGENT,),
            }
            deeds = [Deed(kind, partial(self._split, kind, agents, ways)) for kind, ways in splits.items()]
            deeds.append(Deed("slow line", partial(self._slow, "slow line", agents)))
            lanes.append(Lane("wires", deeds, 5.0))
        if nodes := [node for node in cluster.nodes if node.links]:
            holds = {"split database": (UP, DOWN), "database unheard": (DOWN,)}
            deeds = [Deed(kind, partial(self._hold, kind, nodes, ways)) for kind, ways in holds.items()]
            deeds.append(Deed("slow database", partial(self._slow, "slow database", nodes)))
            lanes.append(Lane("links", deeds, 8.0))
        return lanes

    def _seconds(self) -> float:
        """Some shorter than the lease, some longer, some longer than everything."""
        return LEASE * self._scene.chance.choice((0.5, 1.5, 3.0, 6.0)) * self._scene.chance.uniform(0.7, 1.3)

    async def _split(self, kind: str, agents: Sequence[Member], ways: Sequence[str]) -> None:
        agent = self._scene.alive(agents)
        assert agent.space is not None
        began, dropped = now(), 0
        agent.space.split(*ways)
        try:
            await until_seen(self._seconds(), agent.space.dropped)
        finally:
            dropped = agent.space.dropped()
            agent.space.join()
            self._scene.record(kind, agent.name, began, f"{dropped} packets dropped", happened=dropped > 0)

    async def _hold(self, kind: str, nodes: Sequence[Member], ways: Sequence[str]) -> None:
        node = self._scene.alive(nodes)
        began = now()
        for link in node.links:
            link.forget()
            link.hold(*ways)
        try:
            await until_seen(self._seconds(), lambda: sum(link.held for link in node.links))
        finally:
            held = sum(link.held for link in node.links)
            is_cut = self._scene.chance.random() < 0.5
            for link in node.links:
                if is_cut:
                    link.cut()  # else what is under way arrives, late as it is
                link.release()
            fate = "ended" if is_cut else "went on"
            self._scene.record(kind, node.name, began, f"{held} connections were mute, and {fate}", happened=held > 0)

    async def _slow(self, kind: str, members: Sequence[Member]) -> None:
        member = self._scene.alive(members)
        began, delay = now(), self._scene.chance.choice((0.02, 0.1, 0.4))
        for link in member.links:
            link.forget()
            link.delay = delay
        try:
            await until_seen(self._seconds() + 2.0, lambda: _late(member.links)[0])
        finally:
            late, most = _late(member.links)
            for link in member.links:
                link.release()
            evidence = f"{late} pieces late by {delay * 1000:.0f} ms each way, at most {most * 1000:.0f} ms"
            self._scene.record(kind, member.name, began, evidence, happened=late > 0 and most >= delay)


def _late(links: Sequence[Link]) -> tuple[int, float]:
    return sum(link.delayed for link in links), max((link.latest for link in links), default=0.0)


class Clocks:
    """The wall clock of one process jumps, and is wrong for a while, also over its deaths."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def lanes(self) -> list[Lane]:
        deeds = [Deed("clock forward", partial(self._jump, "clock forward", 1.0)),
                 Deed("clock back", partial(self._jump, "clock back", -1.0))]  # fmt: skip
        return [Lane("clocks", deeds, 4.0)]

    async def _jump(self, kind: str, sign: float) -> None:
        member = self._scene.alive(list(self._scene.cluster.members.values()))
        offset = sign * self._scene.chance.choice(JUMPS)
        assert member.clock is not None
        began, seen, clock = now(), "", member.clock
        clock.set(offset)
        try:
            await until_seen(self._scene.chance.uniform(3.0, 12.0), lambda: clock.told()[0])
            seen = await _date_of(self._scene.cluster, member)
        finally:
            told, last = clock.told()
            clock.set(0.0)
            evidence = f"{offset:+.0f} s, told {told} times{seen}"
            is_wrong = told > 0 and abs(last - time.time() - offset) < 20.0
            self._scene.record(kind, member.name, began, evidence, happened=is_wrong)


async def _date_of(cluster: Cluster, member: Member) -> str:
    """Return what a node says the time is, in its answers."""
    if not member.is_node:
        return ""
    try:
        answer = await cluster.http.get(f"{member.url}/healthz", timeout=1)
    except httpx.TransportError:
        return ""
    return f", it says that it is {answer.headers['date']}" if "date" in answer.headers else ""


class Disks:
    """A disk without room for a byte: of a node's data, of an agent's, of all output."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def lanes(self) -> list[Lane]:
        cluster = self._scene.cluster
        deeds = [Deed("full disk of a node", partial(self._fill_own, "full disk of a node", cluster.nodes))]
        if cluster.agents:
            deeds.append(
                Deed("full disk of an agent", partial(self._fill_own, "full disk of an agent", cluster.agents))
            )
        if cluster.outputs is not None:
            everybody = list(cluster.members.values())
            deeds.append(
                Deed("full disk of output", partial(self._fill, "full disk of output", cluster.outputs, everybody))
            )
        return [Lane("disks", deeds, 12.0)]

    async def _fill_own(self, kind: str, members: Sequence[Member]) -> None:
        member = self._scene.alive(members)
        assert member.disk is not None
        await self._fill(kind, member.disk, [member])

    async def _fill(self, kind: str, disk: Disk, members: Sequence[Member]) -> None:
        began = now()
        before = sum(member.mentions(ENOSPC) for member in members)
        is_full = await asyncio.to_thread(disk.fill)
        try:
            until = time.monotonic() + self._scene.chance.uniform(3.0, 9.0)
            while time.monotonic() < until:
                await asyncio.sleep(0.2)
                is_full = await asyncio.to_thread(disk.fill)  # what was given back meanwhile is taken again
        finally:
            said = sum(member.mentions(ENOSPC) for member in members) - before
            disk.clear()
            evidence = f"ENOSPC for {(now() - began) / 1e6:.1f} s, told {said} times in the logs"
            self._scene.record(kind, ", ".join(member.name for member in members), began, evidence, happened=is_full)
