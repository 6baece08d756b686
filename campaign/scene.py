"""What every fault has at hand: the cluster, the seeded chance, and the journal in which it is written down."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from campaign.cluster import Cluster, Member
from campaign.history import SECOND, Fault, Journal, now
from campaign.patroni import UNREACHED

AGAIN = 0.2  # of those that are begun again die once more on their way up
BOLD = 0.1  # of the deaths may take the last one that is left
UNMET = 10.0  # seconds that a fault waits for somebody to meet it
Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Deed:
    """A fault that a campaign chose to make. It writes itself down, under its kind, with what was seen of it."""

    kind: str
    act: Act


@dataclass(frozen=True, slots=True)
class Lane:
    """Faults that are made one after the other, beside those of other lanes."""

    name: str
    deeds: Sequence[Deed]
    calm: float  # seconds between two of them


class Scene:
    def __init__(self, cluster: Cluster, journal: Journal, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(f"{seed} nemesis")
        self._journal = journal
        self.begun: asyncio.TaskGroup | None = None  # where starts go on
        self.seen: set[str] = set()  # kinds of faults that have really happened

    def record(self, kind: str, target: str, began: int, evidence: str = "", *, happened: bool = True) -> None:
        self._journal.add(Fault(kind, target, began, (now() - began) / SECOND, evidence, happened))
        if happened:
            self.seen.add(kind)

    def draw(self, members: Sequence[Member]) -> Member | None:
        """One that lives and has no other fault at it."""
        free = [member for member in members if member.is_alive and not member.busy.locked()]
        return self.chance.choice(free) if free else None

    async def pick_spare(self, members: Sequence[Member]) -> Member:
        """Wait for one of these that is not the last of its kind in peace: a cluster that is never up proves nothing.
        One time in ten it may be the last."""
        is_bold = self.chance.random() < BOLD
        while True:
            free = [member for member in members if member.is_alive and not member.busy.locked()]
            if len(free) > 1 or (free and (is_bold or len(members) == 1)):
                return self.chance.choice(free)
            await asyncio.sleep(0.1)

    async def pick(self, members: Sequence[Member]) -> Member:
        """Wait for one of these. Its lock is free until the next await."""
        while (member := self.draw(members)) is None:
            await asyncio.sleep(0.1)
        return member

    async def leader(self) -> Member | None:
        try:
            return await self.cluster.leader()
        except UNREACHED:
            return None  # the database has a fault of its own just now

    def alive(self, members: Sequence[Member]) -> Member:
        """Any of these, whatever is at it; one that lives and is left in peace if there is one."""
        living = [member for member in members if member.is_alive]
        free = [member for member in living if not member.busy.locked()]
        return self.chance.choice(free or living or list(members))

    def begin_soon(self, member: Member) -> None:
        """Begin again one whose lock is held, beside everything else, and then let go of it: also when all is over
        before this has begun."""
        assert self.begun is not None
        self.begun.create_task(self.begin_again(member)).add_done_callback(lambda _: member.busy.release())

    async def _kill_at_start(self, member: Member) -> None:
        """A process that dies while it is taking up its name, its locks and its earlier work."""
        began = now()
        await asyncio.sleep(self.chance.uniform(0.3, 6.0))
        if member.is_alive:
            member.signal(signal.SIGKILL)
            await member.ended()
            kind = "kill node" if member.is_node else "kill agent"
            self.record(kind, member.name, began, "SIGKILL while it started")

    async def begin_again(self, member: Member) -> None:
        """A start may fail while the database is away or the disk is full; then it is tried again."""
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.5, 3.0)) * self.chance.random())
        began = now()
        member.start()
        if self.chance.random() < AGAIN:
            await self._kill_at_start(member)
            began = now()
            member.start()
        while not await self.cluster.up(member):
            self.record("start failed", member.name, began)
            member.signal(signal.SIGKILL)
            await member.ended()
            await asyncio.sleep(0.5)
            began = now()
            member.start()


async def until_seen(seconds: float, count: Callable[[], int]) -> None:
    """Let a fault last for so long, and a while longer if nobody has met it by then."""
    await asyncio.sleep(seconds)
    deadline = time.monotonic() + UNMET
    while not count() and time.monotonic() < deadline:
        await asyncio.sleep(0.2)


async def whole(work: Coroutine[Any, Any, None]) -> None:
    """Not broken off when the time is up: what is half done could be neither undone nor healed."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


TROUBLE = (*UNREACHED, subprocess.SubprocessError, RuntimeError)
