"""Announces queued runs to agents that reach nothing but the broker.

The queued runs of the store are the outbox: whoever queues runs reads them after the commit and publishes them, and
every node now and then publishes what still waits. So a message may be lost with its server, its broker or its agent,
and comes again; the id of a message is the run's and its attempt's, so repeats are dropped by the broker, or by the
claim, which alone decides. What is written here is never trusted: a message only says that a claim may be worth it.

Runs that not every agent of their kind may take would be lost on the first that may not: for them everybody is called.
So it is when more wait than can be named: then there is work for everybody, and a message for each run would cost more
than it saves.

Nobody here knows whether runs that demand more than a slot may start: while some wait, everybody is called whenever
there is news. Such comes when one was made, when another has ended, when a rate allows the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import NodeState
from horae.core.runs.orders import Queued
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.store.attempts import Attempts
from horae.ports.store.cluster import Nodes
from horae.ports.transport import Queue, WorkPublisher

MOST_NAMED = 1000  # runs, at once
REPEAT_SECONDS = 15.0  # seconds after which a run that still waits is named again
SWEEP_SECONDS = 5.0  # seconds between two looks that nobody asked for
LOOK_GAP = 0.001  # seconds between two looks at least
CALL_GAP = 0.05  # and after a call, which costs every agent a claim


class AnnouncerStore(Attempts, Nodes, Protocol):
    """What waits, and who is there."""


class WorkAnnouncer:
    def __init__(self, store: AnnouncerStore, queue: Queue, own: Queue, publisher: WorkPublisher, clock: Clock) -> None:
        """`queue` knows of everything, `own` only of what is announced in this process."""
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._queued = own.watch("runs")
        self._demanded = own.watch("limits")
        self._has_demanding = True  # as far as we know
        self._joined = queue.watch("nodes")
        self._named: dict[tuple[int, int], float] = {}  # (run, attempt) → when
        self._connections = 0  # of the publisher, when they were named
        self._kinds: tuple[str, ...] = ()  # of agents that come in through a server

    async def watch_agents(self) -> None:
        """See who comes and goes: only what somebody takes is published."""
        nodes = [node for node in await self._store.list_nodes() if node.via and node.state is NodeState.LIVE]
        self._kinds = tuple(sorted({kind for node in nodes for kind in node.kinds}))
        if self._kinds:
            await self._publisher.prepare(self._kinds)
        await self._joined.wait(SWEEP_SECONDS)

    async def step(self) -> None:
        """Wait for runs, and publish them."""
        is_new = await self._queued.wait(SWEEP_SECONDS)
        if not self._kinds:
            return  # all agents are here, and are woken by the queue
        await self._see_to_demanding(is_new)
        queued = await self._store.load_queued(MOST_NAMED)
        fresh = self._fresh(queued)
        if len(queued) < MOST_NAMED:
            await self._publish(fresh) if fresh else None
            await self._clock.sleep(LOOK_GAP)
        elif fresh or is_new:  # what is new may be behind these, and for others
            await self._call_agents(fresh)
            await self._clock.sleep(CALL_GAP)

    async def _see_to_demanding(self, is_new: bool) -> None:
        """Call everybody while runs wait that demand more than a slot; now and then, look whether there are any."""
        if self._demanded.is_due:
            await self._demanded.wait(0)
        elif is_new and not self._has_demanding:
            return
        backlog = await self._store.load_backlog(self._kinds, 1)
        self._has_demanding = any(waiting.is_demanding for waiting in backlog)
        if self._has_demanding:
            await self._publisher.call_agents()
            await self._clock.sleep(CALL_GAP)

    def _fresh(self, queued: Sequence[Queued]) -> list[Queued]:
        """Return those that were not named of late; others are forgotten."""
        now = self._clock.elapsed()
        if self._publisher.connections != self._connections:
            self._connections = self._publisher.connections
            self._named.clear()
        self._named = {key: at for key, at in self._named.items() if now - at < REPEAT_SECONDS}
        return [run for run in queued if (run.run_id, run.attempt) not in self._named]

    async def _publish(self, runs: Sequence[Queued]) -> None:
        plain = [run for run in runs if not run.is_choosy and run.kind in self._kinds]
        is_named = True
        try:
            if plain:
                await self._publisher.publish_runs(plain)
        except Unavailable:
            is_named = False
        if not is_named or len(plain) < len(runs):
            await self._call_agents(runs)
        else:
            self._note(runs)

    async def _call_agents(self, runs: Sequence[Queued]) -> None:
        await self._publisher.call_agents()
        self._note(runs)

    def _note(self, runs: Sequence[Queued]) -> None:
        now = self._clock.elapsed()
        self._named |= {(run.run_id, run.attempt): now for run in runs}
