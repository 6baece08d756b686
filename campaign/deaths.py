"""Faults of the processes themselves: they die, they stop, they stand still."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from campaign.cluster import LEASE, Member
from campaign.history import LOST, now
from campaign.scene import Deed, Lane, Scene

LOST_WITHIN = 30.0  # seconds in which the cluster should give up a process that stands still
SETTLE = 2.5  # seconds after a pause in which nothing else happens to the process: its late results are refused now
WORK_WITHIN = 3.0  # seconds to wait for a process to have work before it is stopped
KEEPER_WITHIN = 10.0  # seconds for a process that begins to have its keeper
A_MINUTE = (61.0, 75.0)  # seconds: longer than every timer of a server, those of its connections included
MINUTE_FITS = 200  # seconds of campaign from which such a pause has room


class Deaths:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster

    def lanes(self) -> list[Lane]:
        work = [Deed("kill keeper", self._kill_keeper), Deed("stop", self._stop)]
        nodes = [Deed("kill leader", self._kill_leader), Deed("kill node", self._kill_node)]
        lanes = [Lane("nodes", nodes, 1.8), Lane("work", work, 6.0)]
        if self._cluster.agents:
            lanes.append(Lane("agents", [Deed("kill agent", self._kill_agent)], 2.6))
        return lanes

    async def _kill_node(self) -> None:
        await self._kill("kill node", await self._scene.pick_spare(self._cluster.nodes))

    async def _kill_agent(self) -> None:
        await self._kill("kill agent", await self._scene.pick_spare(self._cluster.agents))

    async def _kill_leader(self) -> None:
        await self._scene.pick_spare(self._cluster.nodes)
        while (member := self._scene.draw([leader] if (leader := await self._scene.leader()) else [])) is None:
            await asyncio.sleep(0.1)
        await self._kill("kill leader", member)

    async def _kill(self, kind: str, member: Member) -> None:
        async with self._ended(member):
            began = now()
            member.signal(signal.SIGKILL)
            await member.ended()
            assert member.process is not None
            code = member.process.returncode
            self._scene.record(kind, member.name, began, f"ended with {code}", happened=code == -signal.SIGKILL)

    @asynccontextmanager
    async def _ended(self, member: Member) -> AsyncIterator[None]:
        """Within, it is brought to its end. It is begun again beside what else happens: others die meanwhile."""
        await member.busy.acquire()
        try:
            yield
        except BaseException:
            member.busy.release()
            raise
        self._scene.begin_soon(member)

    async def _kill_keeper(self) -> None:
        member = await self._any()
        async with self._ended(member):
            began, keeper = now(), await _keeper_of(member)
            if keeper is not None:
                with suppress(ProcessLookupError):
                    os.kill(keeper, signal.SIGKILL)
                    self._scene.record("kill keeper", member.name, began, f"pid {keeper}")
            if not await member.ended(10.0):  # it should end by itself; whether it must is not for us to say
                member.signal(signal.SIGKILL)
                await member.ended()

    async def _any(self) -> Member:
        kinds = [members for members in (self._cluster.nodes, self._cluster.agents) if members]
        return await self._scene.pick_spare(self._scene.chance.choice(kinds))

    async def _stop(self) -> None:
        member = await self._any()
        async with self._ended(member):
            began = now()
            member.signal(signal.SIGTERM)
            if await member.ended():
                assert member.process is not None
                code = member.process.returncode
                self._scene.record("stop", member.name, began, f"ended with {code}", happened=code == 0)
            else:
                member.signal(signal.SIGKILL)
                await member.ended()
                self._scene.record("stop without end", member.name, began)


class Pauses:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster

    def lanes(self) -> list[Lane]:
        pauses = [
            Deed("pause below lease", self._pause_briefly),
            Deed("pause beyond lease", self._pause_beyond_lease),
        ]
        if len(self._cluster.members) > 1:
            pauses.append(Deed(LOST, self._pause_until_lost))
        return [Lane("pauses", pauses, 4.0)]

    def long_lanes(self) -> list[Lane]:
        return [Lane("long pauses", [Deed("pause beyond a minute", self._pause_a_server)], 15.0)]

    async def _pause_briefly(self) -> None:
        await self._pause("pause below lease", LEASE * self._scene.chance.uniform(0.1, 0.7))

    async def _pause_beyond_lease(self) -> None:
        await self._pause("pause beyond lease", LEASE * self._scene.chance.uniform(1.1, 2.5))

    async def _pause(self, kind: str, seconds: float) -> None:
        member = await self._scene.pick(list(self._cluster.members.values()))
        async with member.busy:
            with self._stopped(kind, member):
                await asyncio.sleep(seconds)
            await asyncio.sleep(SETTLE)

    async def _pause_a_server(self) -> None:
        """A server with the lines of remote agents in its hands: whatever it believed is long untrue when it wakes."""
        member = await self._scene.pick_spare(self._cluster.nodes)
        async with member.busy:
            with self._stopped("pause beyond a minute", member, A_MINUTE[0]):
                await asyncio.sleep(self._scene.chance.uniform(*A_MINUTE))
            await asyncio.sleep(SETTLE)

    async def _pause_until_lost(self) -> None:
        """Stop one that has work until the cluster has given it up, then let it go on with its late results."""
        leader = await self._scene.leader()
        member = await self._scene.pick([one for one in self._cluster.members.values() if one is not leader])
        async with member.busy:
            await _wait_for_work(member)
            with self._stopped("pause beyond lease", member) as fault:
                if await self._is_given_up(member):
                    fault[0] = LOST
                await asyncio.sleep(self._scene.chance.uniform(0.0, 3.0))
            await asyncio.sleep(SETTLE)

    @contextmanager
    def _stopped(self, kind: str, member: Member, least: float = 0.0) -> Iterator[list[str]]:
        """Within, a process stands still. What is yielded holds the kind of the fault; written down however it ends."""
        began, since, fault = now(), time.monotonic(), [kind]
        member.signal(signal.SIGSTOP)
        try:
            yield fault
        finally:
            stood, is_still = time.monotonic() - since, member.stands_still
            member.signal(signal.SIGCONT)
            evidence = f"stood still for {stood:.1f} s" if is_still else "it did not stand still"
            self._scene.record(fault[0], member.name, began, evidence, happened=is_still and stood >= least)

    async def _is_given_up(self, member: Member) -> bool:
        deadline = time.monotonic() + LOST_WITHIN
        while time.monotonic() < deadline:
            await asyncio.sleep(0.3)
            if await self._cluster.state_of(member) == "gone":
                return True
        return False


async def _keeper_of(member: Member) -> int | None:
    """One that has just begun may not have it yet."""
    deadline = time.monotonic() + KEEPER_WITHIN
    while (keeper := member.keeper()) is None and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return keeper


async def _wait_for_work(member: Member) -> None:
    deadline = time.monotonic() + WORK_WITHIN
    while time.monotonic() < deadline and not member.has_work():
        await asyncio.sleep(0.01)
