"""Who is alive, who leads, who owns which segment.

**The lease.** One coordinator leads. Its lease is a row (owner, term, beat); each renewal moves the beat.
Nobody compares wall clocks: a candidate may take the lease only after it has itself watched the beat stand
still for the whole time to live and a little more, on its own clock that counts suspend. The holder, in turn,
trusts itself only for the time to live minus a margin, counted from before its last renewal was sent. So
whatever the clocks of the two show, the old leader stops before the new one starts. The term grows with
every change of hands, and what a leader writes is refused once its term is over.

**Nodes** beat. Every coordinator watches, so that whoever takes the lead already knows who has been silent:

    silent for the lease      its segments are given to others, which costs nothing if it is alive after all
    silent for `dead_after`   it is declared gone, and its runs are taken back: by then its keeper has killed them

Silence counts only while somebody could have been heard: the time between two looks that lie far apart, because the
store did not answer or we stood still ourselves, counts for nothing. And the look may be old by the time it is acted
upon: a node is declared gone only if its row still is as it was seen, by a leader whose term still is the present one,
in one statement; what it held is read in the same transaction. So whatever pauses lie between our steps, a node that
was heard since lives, and what it claims in a new life has other fences than what is taken back.

Members that are not Horae (external/members.py) have `external_after` instead. What is lent to workers is taken back
when its time is over, whether its worker is known as a node or not.

What a node left running when it was declared gone, or said so itself, is taken back however often that breaks off; but
not before we have seen it gone for the time of a lease, because somebody else may have declared it.

**Segments** are given out by the leader, moving as few as possible: evenly (`shared`), or all to one scheduler
while the others stand by (`active-passive`). A scheduler that was told its segments by name has those, where they are
shared. They only save work: two schedulers that both believe to own a
segment do no harm, because firing is a compare-and-set. A node that stops hands its segments over first.

Who stands by also leaves the work to the active one: its agent claims only what is pinned to it, which the statement
that claims decides (Store.claim). So the active one must be able to take work: one that an operator has cordoned, or
whose machine is short of something, is active only while nobody better is there.

A store that one process holds exclusively (SQLite) makes all of this immediate: every other holder is dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from horae.core.members import is_external, is_external_name
from horae.core.model import SECOND, Lease, Moment, Node, NodeState, OperatorWish
from horae.core.policy.order import LIFTED_AFTER
from horae.core.runs.segments import gather, share
from horae.core.work.kinds import BY_SERVERS, REMEDIES
from horae.ports.clock import Clock
from horae.ports.store.cluster import Leases, Nodes, Segments
from horae.ports.store.loans import Loans
from horae.ports.store.moments import StoreClock
from horae.ports.store.runs import WaitingRuns
from horae.ports.transport import Queue
from horae.service.execution import Execution

log = structlog.get_logger()

LEADER = "leader"
BURIED_TOGETHER = 100  # nodes
LONGEST_MARGIN = 2.0  # seconds, of a long lease
HAND_OVER = 5.0  # seconds a stopping node waits for others to take its segments
LOOK = 0.05  # seconds between its looks
TEND_LINES = 30.0  # seconds between looks at what has waited long
LIFTED_TOGETHER = 1000  # runs of one line, and shares that are forgotten


class ClusterStore(Nodes, Leases, Segments, WaitingRuns, Loans, StoreClock, Protocol):
    """What a coordinator looks after."""


def margin(lease_seconds: float) -> float:
    """Seconds by which a holder's trust ends before its lease does."""
    return min(LONGEST_MARGIN, lease_seconds / 5)


def patience(lease_seconds: float) -> float:
    """Seconds of watched silence after which a lease may be taken: clocks may run one percent apart."""
    return lease_seconds + margin(lease_seconds) / 4


def longest_gap(lease_seconds: float) -> float:
    """Seconds between two looks beyond which nothing is known about the time between them."""
    return max(1.0, lease_seconds / 3)


@dataclass(slots=True)
class Watch:
    """A value that should keep moving, and since when we know that it does not."""

    value: object = None
    since: float = 0.0
    silence: float = 0.0  # seconds it has certainly stood still

    def see(self, value: object, asked: float, answered: float, blind: float = 0.0) -> float:
        """From the first answer that said so to the last question, but for the last `blind` seconds of that."""
        self.since += blind
        if value != self.value:
            self.value, self.since = value, answered
        self.silence = asked - self.since
        return self.silence


class Cluster:
    def __init__(
        self,
        store: ClusterStore,
        queue: Queue,
        clock: Clock,
        execution: Execution,
        *,
        node: str,
        lease_seconds: float,
        dead_after: float,
        is_exclusive: bool,
        is_shared: bool = True,
        external_after: float = 60.0,
        foreign_kinds: tuple[str, ...] = (),
    ) -> None:
        """`is_exclusive`: no other process can have this store open. `is_shared`: schedulers share the segments.
        `foreign_kinds` are left to workers outside Horae, so that nobody here can run them is no failure."""
        self._store = store
        self._queue = queue
        self._clock = clock
        self._execution = execution
        self._node = node
        self._ttl = lease_seconds
        self._dead_after = dead_after
        self._external_after = external_after
        self._foreign_kinds = foreign_kinds
        self._is_exclusive = is_exclusive
        self._is_shared = is_shared
        self._was_active: bool | None = None  # None: not known yet
        self._lease: Lease | None = None
        self._trusted_until = 0.0
        self._lease_watch = Watch()
        self._nodes: list[Node] = []  # as of the last look
        self._watches: dict[str, Watch] = {}
        self._asked_at = float("inf")  # when we last looked and were answered
        self.led_since: Moment | None = None  # for display: when we took the lead we have now
        self.rebalances = 0  # times that segments were moved
        self._tended_at = float("-inf")
        self._marked_at = float("-inf")  # when queued runs were last held against what agents can do
        self._collected_at = float("-inf")  # when overdue loans were last taken back
        self._cleared: dict[str, int] = {}  # gone nodes, with the beat under which nothing of theirs is left

    @property
    def is_leader(self) -> bool:
        return self._lease is not None and self._clock.elapsed() < self._trusted_until

    # ── the leader's lease ──
    async def campaign(self) -> bool:
        """Renew the lease, or try to get it; True while we lead."""
        sent = self._clock.elapsed()
        lease = await self._store.renew_lease(self._lease) if self._lease else await self._try_to_take()
        if self._lease is None and lease is not None:
            self.led_since = self._clock.now()
        self._lease = lease
        if lease is not None:
            self._trusted_until = sent + self._ttl - margin(self._ttl)
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
        return self._lease_watch.see(seen, asked, self._clock.elapsed()) > patience(self._ttl)

    async def resign(self) -> None:
        if self._lease is not None:
            await self._store.resign_lease(self._lease)
            self._lease = None

    # ── watching nodes ──
    async def look(self) -> None:
        """See who beats. Every coordinator does, leader or not."""
        asked = self._clock.elapsed()
        self._nodes = await self._store.list_nodes()
        answered = self._clock.elapsed()
        gap, self._asked_at = asked - self._asked_at, asked
        blind = gap if gap > longest_gap(self._ttl) else 0.0
        for node in self._nodes:
            sign = (node.beat, node.session, node.state)
            self._watches.setdefault(node.name, Watch()).see(sign, asked, answered, blind)

    @property
    def has_outside(self) -> bool:
        """Whether there was a member outside Horae at the last look, living or gone: only for such there is work that
        is kept for them, and calls."""
        return any(map(is_external, self._nodes))

    def _is_silent(self, node: Node, seconds: float) -> bool:
        if node.name == self._node:
            return False
        return (self._is_exclusive and not node.via) or self._watches[node.name].silence > seconds

    # ── the leader's work ──
    async def lead(self) -> None:
        """One round of a leader: bury the dead, share out segments."""
        await self.look()
        await self._clear([node for node in self._nodes if node.state == NodeState.GONE])
        there = [node for node in self._nodes if node.state != NodeState.GONE]
        silent = [node for node in there if self._is_silent(node, self._patience_with(node))]
        await self._bury(silent)
        await self._share_out([node for node in there if node not in silent])

    def _patience_with(self, node: Node) -> float:
        return self._external_after if is_external(node) else self._dead_after

    async def tidy(self) -> None:
        """What a leader does beside: see to runs that nobody can run, or whose worker has fallen silent."""
        await self._mark_unrunnable()
        await self._tend_lines()
        await self._take_back_loans()

    async def _mark_unrunnable(self) -> None:
        """A kind of work that nobody has fails; a label that nobody has is waited for, and said. Not in every
        round: it looks at all that is queued. The store does a part at a time, and each time it is asked anew who is
        there: an agent that has just come must not find its work failed."""
        now = self._clock.elapsed()
        if now - self._marked_at < self._ttl / 3:
            return
        while self.is_leader and (agents := [node for node in await self._store.list_nodes() if _may_run(node)]):
            self._marked_at = now
            kinds = {*self._foreign_kinds, *BY_SERVERS, *(kind for agent in agents for kind in agent.kinds)}
            failed = await self._store.fail_unrunnable(
                sorted(kinds), "no live agent can run this kind of work", REMEDIES
            )
            taking = await self._not_standing_by(agents)
            marked = await self._store.mark_unlabelled([agent.labels for agent in taking])
            if not failed and not marked:
                return

    async def _tend_lines(self) -> None:
        """What has waited long goes up; who has not been there for long is forgotten."""
        now = self._clock.elapsed()
        if now - self._tended_at < TEND_LINES:
            return
        self._tended_at = now
        lifted = await self._store.lift_starved(await self._store.now() - LIFTED_AFTER, LIFTED_TOGETHER)
        if lifted:
            log.info("runs.lifted", runs=lifted)
        await self._store.drop_idle_shares(LIFTED_TOGETHER)

    async def _not_standing_by(self, agents: Sequence[Node]) -> Sequence[Node]:
        """Return those whose labels count: what stands by takes nothing that is not pinned to it."""
        if self._is_shared:
            return agents
        owners = {owner for owner, _ in (await self._store.load_segments()).values()}
        return [agent for agent in agents if "scheduler" not in agent.roles or agent.name in owners]

    async def _take_back_loans(self) -> None:
        """Runs whose worker did not report in time; looked for as seldom."""
        now = self._clock.elapsed()
        if now - self._collected_at < self._ttl / 3:
            return
        self._collected_at = now
        taken = 1
        while taken and (overdue := await self._store.load_overdue_loans()) and self.is_leader:
            taken = 0
            for worker in sorted({loan.worker for loan in overdue}):
                held = {loan.run_id: loan.fence for loan in overdue if loan.worker == worker}
                taken += await self._execution.take_back(worker, held, f"worker {worker} did not report in time")

    async def _bury(self, silent: Sequence[Node]) -> None:
        """Declare nodes gone, unless they were heard since we looked, and take back what they held until then; should
        one return, what it claims then is its own."""
        for part in (silent[start : start + BURIED_TOGETHER] for start in range(0, len(silent), BURIED_TOGETHER)):
            if not self.is_leader or self._lease is None:
                return
            holders = await self._holders() if any(map(is_external, part)) else set()
            held = await self._store.bury_nodes(part, self._lease)
            if held:
                self._queue.announce("endings")  # somebody may listen to what becomes of nodes
            await self._execution.take_back_all(held)
            buried = [node for node in part if node.name in held]
            self._cleared |= {node.name: node.beat + 1 for node in buried}
            if any(map(is_external, buried)):
                self._queue.announce("due")  # moments that were offered to it are free
                self.rebalances += any(node.name in holders for node in buried)

    async def _holders(self) -> set[str]:
        """Return who was given segments by name."""
        return {name for name, _ in (await self._store.load_taken_segments()).values()}

    async def _clear(self, gone: Sequence[Node]) -> None:
        """Take back what gone nodes still hold, unless they have come back meanwhile: asked once about all of them."""
        ready = [node for node in gone if self._is_silent(node, self._ttl)]
        nodes = {node.name: node for node in ready if self._cleared.get(node.name) != node.beat}
        held = await self._store.load_running_of(list(nodes)) if nodes else {}
        if held:
            present = await self._store.list_nodes()
            nodes = {name: node for name, node in nodes.items() if node in present}
        if self.is_leader:
            await self._execution.take_back_all({name: held[name] for name in nodes if name in held})
            self._cleared |= {name: node.beat for name, node in nodes.items()}

    async def _share_out(self, present: Sequence[Node]) -> None:
        there = [node for node in present if _may_schedule(node) and not self._is_silent(node, self._ttl)]
        fit = there if self._is_shared else [node for node in there if _takes_work(node)] or there
        schedulers = [node.name for node in fit]
        owners, taken = await self._store.load_segment_holders()
        moves = (share if self._is_shared else gather)(owners, schedulers, _told(taken))
        if moves and self._lease is not None and await self._store.assign_segments(moves, self._lease):
            self.rebalances += 1
            self._queue.announce("due")

    async def sweep(self) -> float | None:
        """See to runs that wait; return in how many seconds there is more to do, if anything waits."""
        swept = await self._store.sweep()
        if swept.demanding:
            self._queue.announce("limits")
        if swept.queued:
            self._queue.announce("runs")
        if swept.noted:
            self._queue.announce("endings")
        if swept.next_at is None:
            return None
        return max(0.0, (swept.next_at - await self._store.now()) / SECOND)

    # ── a scheduler's part ──
    async def own_segments(self) -> dict[int, int]:
        """Return the segments that are ours, with the term under which they are."""
        owners = await self._store.load_segments()
        ours = {segment: term for segment, (owner, term) in owners.items() if owner == self._node}
        if not self._is_shared:
            self._note_activity(bool(ours), next((owner for owner, _ in owners.values()), ""))
        return ours

    def _note_activity(self, is_active: bool, owner: str) -> None:
        """Say that we have become the active node, or stand by from now on."""
        if is_active is self._was_active:
            return
        self._was_active = is_active
        if is_active:
            log.info("node.active", node=self._node, because="it has all segments: it fires, and runs what is due")
            self._queue.announce("runs")  # what waits is ours now
        else:
            log.info("node.passive", node=self._node, active=owner, because="it stands by")

    async def hand_over(self, session: int | None = None) -> None:
        """Say that we leave, and go on until others have taken our segments, or nobody is there to."""
        await self._store.retire_node(self._node, NodeState.DRAINING, session=session)
        until = self._clock.elapsed() + HAND_OVER
        while self._clock.elapsed() < until:
            if self.is_leader:
                await self.lead()
            heirs = [node for node in await self._store.list_nodes() if _may_schedule(node) and node.name != self._node]
            if not heirs or not await self.own_segments():
                return
            await self._clock.sleep(LOOK)


def _told(taken: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the nodes of Horae that were told their segments; one that shall have none, too."""
    told: dict[str, list[int]] = {}
    for segment, name in taken.items():
        if not is_external_name(name):
            told.setdefault(name, []).extend([segment] if segment >= 0 else [])
    return told


def _may_run(node: Node) -> bool:
    return bool(node.kinds) and node.state != NodeState.GONE


def _takes_work(node: Node) -> bool:
    return node.wanted == OperatorWish.LIVE and not node.ailment


def _may_schedule(node: Node) -> bool:
    return "scheduler" in node.roles and node.state == NodeState.LIVE and node.wanted != OperatorWish.DRAINED
