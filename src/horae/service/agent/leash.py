"""The leash: an agent trusts itself no longer than its lease, and kills what is not its own.

    beat ──► answered ──► the lease is renewed, by the keeper too, which kills all work when it is over
                 └──► the service gave us up ──► kill everything, then join as if new

While it is in doubt what is ours (a claim broke off, or the books of the service differ from ours), it agrees with the
service first, and claims only then.

What must stay true: the lease counts from before the call that was answered, so that no run goes on here after somebody
else was allowed to start it; and it is renewed only when all that is not ours in the books is told to end.
"""

from __future__ import annotations

import asyncio

from horae.core.model import Node, OperatorWish
from horae.core.runs.holdings import Fenced, Holding, holding_of
from horae.ports.clock import Clock
from horae.ports.transport import Link
from horae.ports.work import Keeper
from horae.service.agent.delivery import Delivery
from horae.service.agent.health import Health
from horae.service.agent.workload import Workload

RENEWALS_PER_LEASE = 10  # while there is work
SHORTEST_RENEWAL_SECONDS = 0.2
TRUSTED_SHARE = 0.85  # of the lease, after which the keeper kills: the rest is time for the killing


class Leash:
    def __init__(
        self,
        node: Node,
        link: Link,
        keeper: Keeper,
        clock: Clock,
        workload: Workload,
        delivery: Delivery,
        health: Health,
        lease_seconds: float,
    ) -> None:
        """The lease holds until the service names its own."""
        self._node = node
        self._link = link
        self._keeper = keeper
        self._clock = clock
        self._workload = workload
        self._delivery = delivery
        self._health = health
        self._lease = lease_seconds
        self._trusted_until = 0.0  # by our clock: when the keeper kills all work and starts no more
        self._compared_at = float("-inf")  # when a beat last said what we hold
        self.heartbeat_seconds: float | None = None  # as the service wants it
        self.installation = ""  # whose runs these are (core.runs.traces)
        self.trace_ratio: float | None = None  # of which traces the service tells
        self.is_joined = False
        self.life = 0  # begun when the service gave us up, or the lease was over: what an earlier one claimed is stale
        self.in_doubt = False  # a claim broke off, or the books differ: runs may be ours without our knowing
        self.claims = 0  # under way: what one is about to bring is not held yet
        self.agreeing = asyncio.Lock()  # on what is ours; held too while a run is made that is to be ours
        self.cordoned = False  # by its operator: what runs goes on, nothing new is taken

    @property
    def renewal_seconds(self) -> float:
        """How long to wait between two beats while something is held."""
        return max(self._lease / RENEWALS_PER_LEASE, SHORTEST_RENEWAL_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whatever we claimed now would be lost at once, and claimed and lost again until it counts as failed."""
        return self._clock.elapsed() >= self._trusted_until

    # ── lease ──
    async def greet(self) -> None:
        """Join. What was taken up is ours only if the service still knows us, and this is answered within a lease of
        its saying so: nobody is declared gone in less."""
        since = self._clock.elapsed()
        if self._workload.held and not await self._is_still_ours():
            self._workload.let_go_all()
            await self._workload.is_idle.wait()
        sent = self._clock.elapsed()
        terms = await self._link.hello(self._node, self._attempts())
        if terms is not None:
            self._lease, self.heartbeat_seconds, self.installation, self.trace_ratio = terms
        if self._workload.held and self._clock.elapsed() - since >= self._lease * TRUSTED_SHARE:
            self._workload.let_go_all()
            await self._workload.is_idle.wait()
            await self.greet()
            return
        self._renew(sent)
        self.is_joined = True
        if self._health.ailment:  # which the service forgets when we join
            self._health.changed.set()

    async def _is_still_ours(self) -> bool:
        """Return whether the service has not given us up; what is not ours in its books is killed."""
        await self._link.take_up(self._node)
        if await self._link.beat(self._workload.busy) is None:
            return False
        self._workload.drop_strangers(await self._link.disown(self._attempts()))
        return True

    def _renew(self, sent: float) -> None:
        """The lease counts from before the call that was answered: a slow answer does not lengthen it."""
        was_over = self.is_over
        self._trusted_until = sent + self._lease * TRUSTED_SHARE
        self._keeper.renew(self._trusted_until - self._clock.elapsed())
        if was_over:
            self.life += 1
            self._ask_for_more()

    async def beat(self) -> None:
        """Say that we live, renew the lease, kill what shall be cancelled."""
        self._workload.check_keeper()
        if not self.is_joined:
            await self._come_back()  # which broke off
            return
        sent = self._clock.elapsed()
        workload = self._workload
        answer = await self._link.beat(workload.busy, self._holding(sent), dict(workload.free_resources))
        if answer is None:
            await self._start_anew()
            return
        self._renew(sent)
        if answer.in_doubt:
            self.doubt()
        self._set_cordoned(answer.wanted is not OperatorWish.LIVE)
        self._workload.cancel(answer.cancel)

    async def _start_anew(self) -> None:
        """The service gave us up for dead: nothing we hold is ours any more, and all of it is gone before
        we come back. What a claim that is under way brings belongs to the old life."""
        self.is_joined = False
        self.life += 1
        self._workload.let_go_all()
        await self._come_back()

    async def _come_back(self) -> None:
        await self._workload.is_idle.wait()
        await self.greet()
        self._workload.wake()

    def _set_cordoned(self, cordoned: bool) -> None:
        was, self.cordoned = self.cordoned, cordoned
        if was and not cordoned:
            self._ask_for_more()

    def _ask_for_more(self) -> None:
        self._workload.wake()
        self._workload.slot_freed.set()

    # ── doubt ──
    async def clear_doubt(self) -> None:
        """Agree with the service on what is ours. Only between claims: what one is about to bring is not held yet.
        Should a claim that broke off have its effect later still, the beats find it."""
        async with self.agreeing:
            self.in_doubt = False
            try:
                strangers = await self._link.disown(self._attempts())
            except BaseException:
                self.in_doubt = True
                raise
            self._workload.drop_strangers(strangers)

    def doubt(self) -> None:
        """Runs may be ours without our knowing."""
        self.in_doubt = True
        self._workload.slot_freed.set()

    def _attempts(self) -> list[Fenced]:
        """Return all that is ours, as far as we know: what runs, what waits for our own copy to end, what is to
        report."""
        return [*self._workload.attempts(), *self._delivery.attempts()]

    def _holding(self, now: float) -> Holding | None:
        """Return what we hold, for the service to compare. While something is under way the two sides differ as a rule,
        so nothing is said then; but not for long, because under load something always is."""
        is_busy = self.claims or self._delivery.is_reporting
        if is_busy and now - self._compared_at < self._lease / 3:
            return None
        self._compared_at = now
        return holding_of(self._attempts())
