"""Who is alive, who leads, who owns which segment.

**The lease.** One coordinator leads. Its lease is a row (owner, term, beat); each renewal moves the beat.
Nobody compares wall clocks: a candidate may take the lease only after it has itself watched the beat stand
still for the whole time to live plus a margin, on its own clock that counts suspend. The holder, in turn,
trusts itself only for the time to live minus a margin, counted from before its last renewal was sent. So
whatever the clocks of the two show, the old leader stops before the new one starts. The term grows with
every change of hands, and what a leader writes is refused once its term is over.

**Segments** are given out by the leader, evenly, moving as few as possible. They only save work: two
schedulers that both believe to own a segment do no harm, because firing is a compare-and-set.

**Nodes** beat. The leader watches; one whose beat stands still for `DEAD_AFTER` seconds is declared gone
and what it held is taken back. That is longer than an agent's keeper lets work live without a beat.

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
    """A value that should keep moving, and when it last did on our clock."""

    value: object
    since: float

    def still_for(self, value: object, now: float) -> float:
        if value != self.value:
            self.value, self.since = value, now
        return now - self.since


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
        self._lease_watch: Watch | None = None
        self._node_watches: dict[str, Watch] = {}

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
        seen = await self._store.get_lease(LEADER)
        if seen is None or self._may_take(seen):
            return await self._store.take_lease(LEADER, self._node, seen)
        return None

    def _may_take(self, seen: Lease) -> bool:
        if self._is_exclusive or seen.owner in ("", self._node):
            return True
        if self._lease_watch is None:
            self._lease_watch = Watch(seen, self._clock.elapsed())
        return self._lease_watch.still_for(seen, self._clock.elapsed()) > self._ttl + MARGIN

    async def resign(self) -> None:
        if self._lease is not None:
            await self._store.resign_lease(self._lease)
            self._lease = None

    # ── the leader's work ──
    async def lead(self) -> None:
        """One round of a leader: bury the dead, share out segments, see to runs that wait."""
        nodes = await self._store.list_nodes()
        alive = [node for node in nodes if node.state != "gone" and not await self._bury_if_dead(node)]
        await self._share_out(alive)
        agents = [node for node in alive if "agent" in node.roles]
        if agents:
            kinds = sorted({kind for node in agents for kind in node.kinds})
            await self._store.fail_unrunnable(kinds, "no live agent can run this kind of work")
            await self._store.mark_unlabelled([node.labels for node in agents])

    async def _bury_if_dead(self, node: Node) -> bool:
        if node.name == self._node:
            return False
        now = self._clock.elapsed()
        watch = self._node_watches.setdefault(node.name, Watch(node.beat, now))
        if not self._is_exclusive and watch.still_for(node.beat, now) <= self._dead_after:
            return False
        await self._store.retire_node(node.name, "gone")
        await self._execution.reap(node.name)
        del self._node_watches[node.name]
        return True

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
