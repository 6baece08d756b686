"""Who is alive, who leads, who owns which segment.

**The lease.** One coordinator leads. Its lease is a row (owner, term, beat); each renewal moves the beat.
Nobody compares wall clocks: a candidate may take the lease only after it has itself watched the beat stand
still for the whole time to live plus a margin, on its own clock that counts suspend. The holder, in turn,
trusts itself only for the time to live minus a margin, counted from before its last renewal was sent. So
whatever the clocks of the two show, the old leader stops before the new one starts. The term grows with
every change of hands, and what a leader writes is refused once its term is over.

**Segments** are given out by the leader, evenly, moving as few as possible. They only save work: two
schedulers that both believe to own a segment do no harm, because firing is a compare-and-set.

**Nodes** beat. The leader watches; one whose beat stands still for `dead_after` seconds is declared gone
and what it held is taken back. That is longer than an agent's keeper lets work live without a beat. What a
node left running when it was declared gone, or said so itself, is taken back however often that breaks off.

A store that one process holds exclusively (SQLite) makes all of this immediate: every other holder is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horae.core.model import SECOND, Lease, Node
from horae.core.segments import rebalance
from horae.ports import Clock, Queue, Store
from horae.service.execution import Execution

LEADER = "leader"
MARGIN = 2.0  # seconds between the end of a holder's trust and the start of a candidate's right
PURGE_BATCH = 5000


@dataclass(slots=True)
class Watch:
    """A value that should keep moving, and since when we know that it does not."""

    value: object = None
    since: float = 0.0

    def still_for(self, value: object, asked: float, answered: float) -> float:
        """Seconds it has certainly stood still: from the first answer that said so to the last question."""
        if value != self.value:
            self.value, self.since = value, answered
        return asked - self.since


class Cluster:
    def __init__(
        self,
        store: Store,
        queue: Queue,
        clock: Clock,
        execution: Execution,
        *,
        node: str,
        lease_seconds: float,
        dead_after: float,
        is_exclusive: bool,
        history_days: int = 0,
    ) -> None:
        """`is_exclusive`: no other process can have this store open."""
        self._store = store
        self._queue = queue
        self._clock = clock
        self._execution = execution
        self._node = node
        self._ttl = lease_seconds
        self._dead_after = dead_after
        self._is_exclusive = is_exclusive
        self._history_days = history_days
        self._lease: Lease | None = None
        self._trusted_until = 0.0
        self._lease_watch = Watch()
        self._node_watches: dict[str, Watch] = {}
        self._cleared: dict[str, int] = {}  # gone nodes, with the beat under which nothing of theirs is left

    @property
    def is_leader(self) -> bool:
        return self._lease is not None and self._clock.elapsed() < self._trusted_until

    # ── the leader's lease ──
    async def campaign(self) -> bool:
        """Renew the lease, or try to get it; True while we lead."""
        sent = self._clock.elapsed()
        lease = await self._store.renew_lease(self._lease) if self._lease else await self._try_to_take()
        self._lease = lease
        if lease is not None:
            self._trusted_until = sent + self._ttl - MARGIN
        return self.is_leader

    async def _try_to_take(self) -> Lease | None:
        asked = self._clock.elapsed()
        seen = await self._store.get_lease(LEADER)
        if seen is None or self._may_take(seen, asked):
            return await self._store.take_lease(LEADER, self._node, seen)
        return None

    def _may_take(self, seen: Lease, asked: float) -> bool:
        if self._is_exclusive or seen.owner in ("", self._node):
            return True
        return self._lease_watch.still_for(seen, asked, self._clock.elapsed()) > self._ttl + MARGIN

    async def resign(self) -> None:
        if self._lease is not None:
            await self._store.resign_lease(self._lease)
            self._lease = None

    # ── the leader's work ──
    async def lead(self) -> None:
        """One round of a leader: bury the dead, share out segments, see to runs that wait."""
        asked = self._clock.elapsed()
        nodes = await self._store.list_nodes()
        answered = self._clock.elapsed()
        silent = [node for node in nodes if self._is_silent(node, asked, answered)]
        for node in silent:
            await self._bury(node)
        for node in nodes:
            if node.state == "gone" and node.name != self._node and self._cleared.get(node.name) != node.beat:
                await self._clear(node)
        alive = [node for node in nodes if node.state != "gone" and node not in silent]
        await self._share_out(alive)
        kinds = {kind for node in alive for kind in node.kinds if "agent" in node.roles}
        if kinds:
            await self._store.fail_unrunnable(sorted(kinds), "no live agent can run this kind of work")

    def _is_silent(self, node: Node, asked: float, answered: float) -> bool:
        if node.name == self._node or node.state == "gone" or not self.is_leader:
            return False
        watch = self._node_watches.setdefault(node.name, Watch())
        return (self._is_exclusive and not node.via) or watch.still_for(node.beat, asked, answered) > self._dead_after

    async def _bury(self, node: Node) -> None:
        """Declare a node gone and take back what it held until now; should it return, what it claims then
        is its own."""
        held = await self._store.load_running(node.name)
        await self._store.retire_node(node.name, "gone")
        await self._execution.take_back(node.name, dict(held))
        del self._node_watches[node.name]

    async def _clear(self, node: Node) -> None:
        """Take back what a gone node still holds, unless it has come back meanwhile."""
        held = await self._store.load_running(node.name)
        if held and node not in await self._store.list_nodes():
            return
        await self._execution.take_back(node.name, dict(held))
        self._cleared[node.name] = node.beat

    async def _share_out(self, alive: Sequence[Node]) -> None:
        schedulers = [node.name for node in alive if "scheduler" in node.roles and node.state == "live"]
        owners = {segment: owner for segment, (owner, _) in (await self._store.load_segments()).items()}
        moves = rebalance(owners, schedulers)
        if moves and self._lease is not None and await self._store.assign_segments(moves, self._lease):
            self._queue.announce("due")

    async def sweep(self) -> float | None:
        """See to runs that wait; answers in how many seconds there is more to do, if anything waits."""
        swept = await self._store.sweep()
        if swept.queued:
            self._queue.announce("runs")
        if swept.next_at is None:
            return None
        return max(0.0, (swept.next_at - await self._store.now()) / SECOND)

    async def purge(self) -> int:
        """Drop history past its age, a batch at a time."""
        if not self._history_days:
            return 0
        before = await self._store.now() - self._history_days * 86_400 * SECOND
        return await self._store.purge(before, PURGE_BATCH)

    async def own_segments(self) -> list[int]:
        return [segment for segment, (owner, _) in (await self._store.load_segments()).items() if owner == self._node]
