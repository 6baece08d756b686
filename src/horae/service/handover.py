"""Word of queued runs, for agents that hear nothing but the broker.

The queued runs of the store are the outbox: whoever queues runs reads them after the commit and hands them over, and
every node now and then hands over what still waits. So a message may be lost with its server, its broker or its agent,
and comes again; the id of a message is the run's and its attempt's, so repeats are dropped by the broker, or by the
claim, which alone decides. What is written here is never trusted: a message only says that a claim may be worth it.

Runs that not every agent of their kind may take would be lost on the first that may not: for them everybody is called.
So it is when more wait than can be named: then there is work for everybody, and a message for each run would cost more
than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.errors import Unavailable
from horae.ports import Clock, Courier, Queue, Queued, Store

MOST = 1000  # runs named at once
AGAIN = 15.0  # seconds after which a run that still waits is named again
SWEEP = 5.0  # seconds between two looks that nobody asked for
GAP = 0.001  # seconds between two looks at most
CALL_GAP = 0.05  # and after a call, which costs every agent a claim


class Handover:
    def __init__(self, store: Store, queue: Queue, own: Queue, courier: Courier, clock: Clock) -> None:
        """`queue` hears of everything, `own` only of what is announced in this process."""
        self._store = store
        self._courier = courier
        self._clock = clock
        self._queued = own.watch("runs")
        self._joined = queue.watch("nodes")
        self._told: dict[tuple[int, int], float] = {}  # (run, attempt) → when
        self._connections = 0  # of the courier, when they were told
        self._kinds: tuple[str, ...] = ()  # of agents that come in through a server

    async def attend(self) -> None:
        """See who comes and goes: only what somebody takes is carried."""
        nodes = [node for node in await self._store.list_nodes() if node.via and node.state == "live"]
        self._kinds = tuple(sorted({kind for node in nodes for kind in node.kinds}))
        if self._kinds:
            await self._courier.prepare(self._kinds)
        await self._joined.wait(SWEEP)

    async def step(self) -> None:
        """Wait for runs, and hand them over."""
        is_new = await self._queued.wait(SWEEP)
        if not self._kinds:
            return  # all agents are here, and hear of it by themselves
        queued = await self._store.load_queued(MOST)
        fresh = self._fresh(queued)
        if len(queued) < MOST:
            await self._carry(fresh) if fresh else None
            await self._clock.sleep(GAP)
        elif fresh or is_new:  # what is new may be behind these, and for others
            await self._call(fresh)
            await self._clock.sleep(CALL_GAP)

    def _fresh(self, queued: Sequence[Queued]) -> list[Queued]:
        """Those that were not named of late; others are forgotten."""
        now = self._clock.elapsed()
        if self._courier.connections != self._connections:
            self._connections = self._courier.connections
            self._told.clear()
        self._told = {key: at for key, at in self._told.items() if now - at < AGAIN}
        return [run for run in queued if (run.run_id, run.attempt) not in self._told]

    async def _carry(self, runs: Sequence[Queued]) -> None:
        plain = [run for run in runs if not run.is_choosy and run.kind in self._kinds]
        is_named = True
        try:
            if plain:
                await self._courier.hand_over(plain)
        except Unavailable:
            is_named = False
        if not is_named or len(plain) < len(runs):
            await self._call(runs)
        else:
            self._note(runs)

    async def _call(self, runs: Sequence[Queued]) -> None:
        await self._courier.call_all()
        self._note(runs)

    def _note(self, runs: Sequence[Queued]) -> None:
        now = self._clock.elapsed()
        self._told |= {(run.run_id, run.attempt): now for run in runs}
