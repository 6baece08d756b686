"""Faults, seeded: what is done to whom follows from the seed; what really happened is written down.

Lanes go on side by side: deaths of nodes, deaths of what does the work, pauses, the database, and the broker and the
object store where there are such. No two
faults are at one process together, and everything that was ended is begun again. Each lane goes through all of its
faults once before it draws at random, so a short campaign has seen every one of them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import asyncpg

from campaign.cluster import LEASE, Cluster, Member
from campaign.history import CRASH, LOST, SECOND, Fault, Journal, now
from campaign.services import Service

LOST_WITHIN = 60.0  # seconds in which the cluster should give up a process that stands still
SETTLE = 2.5  # seconds after a pause in which nothing else happens to the process: its late results are refused now
WORK_WITHIN = 3.0  # seconds to wait for a process to have work before it is stopped

Deed = Callable[[], Awaitable[None]]


class Nemesis:
    def __init__(self, cluster: Cluster, journal: Journal, seed: int) -> None:
        self._cluster = cluster
        self._journal = journal
        self._seed = seed
        self._chance = random.Random(f"{seed} nemesis")

    async def run(self, seconds: float) -> None:
        """Do harm until the time is up; what is under way then is left for `Cluster.heal`."""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                for name, deeds, calm in self._lanes():
                    group.create_task(self._lane(random.Random(f"{self._seed} {name}"), deeds, calm))
        except TimeoutError:
            return

    def _lanes(self) -> list[tuple[str, Sequence[Deed], float]]:
        """Name, faults, and the seconds between two of them."""
        pauses = [self._pause_briefly, self._pause_beyond_lease]
        lanes: list[tuple[str, Sequence[Deed], float]] = [
            ("nodes", [self._kill_leader, self._kill_node], 1.5),
            ("work", [self._kill_keeper, self._stop, *[self._kill_agent] * len(self._cluster.agents)], 4.0),
            ("pauses", pauses, 4.0),
        ]
        if self._cluster.postgres is not None:
            pauses.insert(0, self._pause_until_lost)
            lanes.append(("database", [self._restart_database, self._cut_connections], 12.0))
        if (broker := self._cluster.broker) is not None:
            restart, wipe = partial(self._restart, broker), partial(self._restart, broker, is_wiped=True)
            lanes.append(("broker", [restart, wipe, partial(self._hold, broker)], 9.0))
        if (bucket := self._cluster.bucket) is not None:
            lanes.append(("bucket", [partial(self._restart, bucket), partial(self._hold, bucket)], 15.0))
        return lanes

    async def _lane(self, chance: random.Random, deeds: Sequence[Deed], calm: float) -> None:
        first = list(deeds)
        while True:
            await asyncio.sleep(chance.uniform(0.5, 1.5) * calm)
            await (first.pop(0) if first else chance.choice(deeds))()

    def _record(self, kind: str, target: str, began: int) -> None:
        self._journal.add(Fault(kind, target, began, (now() - began) / SECOND))

    def _draw(self, members: Sequence[Member]) -> Member | None:
        """One that lives and has no other fault at it."""
        free = [member for member in members if member.is_alive and not member.busy.locked()]
        return self._chance.choice(free) if free else None

    async def _pick(self, members: Sequence[Member]) -> Member:
        """Wait for one of these. Its lock is free until the next await."""
        while (member := self._draw(members)) is None:
            await asyncio.sleep(0.1)
        return member

    # ── deaths ──
    async def _kill_node(self) -> None:
        await self._kill("kill node", await self._pick(self._cluster.nodes))

    async def _kill_agent(self) -> None:
        await self._kill("kill agent", await self._pick(self._cluster.agents))

    async def _kill_leader(self) -> None:
        while (member := self._draw([leader] if (leader := await self._leader()) else [])) is None:
            await asyncio.sleep(0.1)
        await self._kill("kill leader", member)

    async def _leader(self) -> Member | None:
        try:
            return await self._cluster.leader()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return None  # the database has a fault of its own just now

    async def _kill(self, kind: str, member: Member) -> None:
        async with member.busy:
            began = now()
            member.signal(signal.SIGKILL)
            await member.ended()
            self._record(kind, member.name, began)
            await self._begin_again(member)

    async def _kill_keeper(self) -> None:
        member = await self._pick(list(self._cluster.members.values()))
        keeper = member.keeper()
        if keeper is None:
            return
        async with member.busy:
            began = now()
            with suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGKILL)
                self._record("kill keeper", member.name, began)
            if not await member.ended(10.0):  # it should end by itself; whether it must is not for us to say
                member.signal(signal.SIGKILL)
                await member.ended()
            await self._begin_again(member)

    async def _stop(self) -> None:
        member = await self._pick(list(self._cluster.members.values()))
        async with member.busy:
            began = now()
            member.signal(signal.SIGTERM)
            if await member.ended():
                self._record("stop", member.name, began)
            else:
                member.signal(signal.SIGKILL)
                await member.ended()
                self._record("stop without end", member.name, began)
            await self._begin_again(member)

    async def _begin_again(self, member: Member) -> None:
        """A start may fail while the database is away; then it is tried again."""
        await asyncio.sleep(self._chance.choice((0.0, 0.5, 1.0, 5.0)) * self._chance.random())
        began = now()
        member.start()
        while not await self._cluster.up(member):
            self._record("start failed", member.name, began)
            member.signal(signal.SIGKILL)
            await member.ended()
            await asyncio.sleep(0.5)
            began = now()
            member.start()

    async def _watch(self) -> None:
        """Begin again what ended by itself, and write that down: nobody may end for a fault of another."""
        while True:
            for member in self._cluster.members.values():
                if not member.is_alive and not member.busy.locked():
                    async with member.busy:
                        self._record(CRASH, member.name, now())
                        await self._begin_again(member)
            await asyncio.sleep(0.1)

    # ── pauses ──
    async def _pause_briefly(self) -> None:
        await self._pause("pause below lease", LEASE * self._chance.uniform(0.1, 0.7))

    async def _pause_beyond_lease(self) -> None:
        await self._pause("pause beyond lease", LEASE * self._chance.uniform(1.1, 2.5))

    async def _pause(self, kind: str, seconds: float) -> None:
        member = await self._pick(list(self._cluster.members.values()))
        async with member.busy:
            with self._stopped(kind, member):
                await asyncio.sleep(seconds)
            await asyncio.sleep(SETTLE)

    async def _pause_until_lost(self) -> None:
        """Stop one that has work until the cluster has given it up, then let it go on with its late results."""
        leader = await self._leader()
        member = await self._pick([one for one in self._cluster.members.values() if one is not leader])
        async with member.busy:
            await _wait_for_work(member)
            with self._stopped("pause beyond lease", member) as fault:
                if await self._is_given_up(member):
                    fault[0] = LOST
                await asyncio.sleep(self._chance.uniform(0.0, 3.0))
            await asyncio.sleep(SETTLE)

    @contextmanager
    def _stopped(self, kind: str, member: Member) -> Iterator[list[str]]:
        """Within, a process stands still. What is yielded holds the kind of the fault; written down however it ends."""
        began, fault = now(), [kind]
        member.signal(signal.SIGSTOP)
        try:
            yield fault
        finally:
            member.signal(signal.SIGCONT)
            self._record(fault[0], member.name, began)

    async def _is_given_up(self, member: Member) -> bool:
        deadline = time.monotonic() + LOST_WITHIN
        while time.monotonic() < deadline:
            await asyncio.sleep(0.3)
            if await self._cluster.state_of(member) == "gone":
                return True
        return False

    # ── the database ──
    async def _restart_database(self) -> None:
        """Not broken off when the time is up: a server that is half stopped can be neither stopped nor started."""
        restart = asyncio.create_task(self._end_and_begin_database())
        try:
            await asyncio.shield(restart)
        except asyncio.CancelledError:
            await restart
            raise

    async def _end_and_begin_database(self) -> None:
        assert self._cluster.postgres is not None
        began = now()
        await self._cluster.postgres.end()
        await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        await self._cluster.postgres.begin()
        self._record("restart database", "postgres", began)

    async def _cut_connections(self) -> None:
        assert self._cluster.postgres is not None
        began = now()
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            if await self._cluster.postgres.cut():
                self._record("cut connections", "postgres", began)

    # ── broker and object store ──
    async def _restart(self, service: Service, *, is_wiped: bool = False) -> None:
        """Not broken off either: it must be there when all is healed."""
        restart = asyncio.create_task(self._end_and_begin(service, is_wiped=is_wiped))
        try:
            await asyncio.shield(restart)
        except asyncio.CancelledError:
            await restart
            raise

    async def _end_and_begin(self, service: Service, *, is_wiped: bool) -> None:
        began = now()
        await service.end()
        if is_wiped:
            service.wipe()
        await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        await service.begin()
        self._record("wipe" if is_wiped else "restart", service.name, began)

    async def _hold(self, service: Service) -> None:
        """As behind a cut in the network: connections stay open, and nobody answers."""
        began = now()
        service.stop()
        try:
            await asyncio.sleep(self._chance.choice((5.0, 5.0, 25.0)))
        finally:
            service.go_on()
            self._record("hold", service.name, began)


async def _wait_for_work(member: Member) -> None:
    deadline = time.monotonic() + WORK_WITHIN
    while time.monotonic() < deadline and not member.has_work():
        await asyncio.sleep(0.01)
