"""Where new runs wait: in which queue, with whom they share it, and what they must have beyond a slot.

Decided when a run is made, by whoever makes it. What queues there are may be known a few seconds late; what a run
demands is known by an id that the store keeps for a day. So a plan that is kept for long is placed anew every now and
then, and whenever a queue has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from horae.core.model import OWNER_SHARE, Policy, Reason
from horae.core.policy.demands import Demand, Whose, demand_of, reads_data
from horae.core.policy.queues import QueueState, place
from horae.core.policy.resources import asks_of
from horae.core.runs.ledger import FiringPlan, skip
from horae.core.runs.orders import Fire, NewRun
from horae.core.work.kinds import EVERY
from horae.ports.transport import Queue as Hints
from horae.service.policy.demands import Demands, DemandStore, is_limited
from horae.service.policy.owners import Owners, OwnersStore
from horae.service.policy.queues import Queues, QueuesStore

HOLDS = 300.0  # seconds for which a run that is made again and again stays placed


class PlacingStore(QueuesStore, DemandStore, OwnersStore, Protocol):
    """Queues, what runs demand, and owners of jobs."""


class Candidate(NamedTuple):
    """A run to be, and to whom it belongs."""

    run: NewRun
    policy: Policy
    owner: str
    org: int
    user: str  # with whom it shares (core.policy.queues.user_of)
    own_data: str | None = None  # of the job, JSON text: what the run is given where nothing else is said


class Placing:
    def __init__(self, store: PlacingStore, hints: Hints, foreign_kinds: Collection[str] = ()) -> None:
        """Runs of `foreign_kinds` are left to workers outside Horae: whoever takes them is no agent that could be asked
        for more than a slot, and so they demand nothing."""
        self.queues = Queues(store, hints)
        self._owners = Owners(store)
        self._foreign_kinds = frozenset(foreign_kinds)
        self._demands = Demands(store, _elapsed)

    async def place(self, candidates: Sequence[Candidate]) -> None:
        """Write into each run where it waits."""
        if not candidates:
            return
        await self.queues.refresh()
        await self._owners.refresh({(one.org, one.owner) for one in candidates})
        now = _elapsed()
        limited: list[Candidate] = []
        known: dict[tuple[int, str], tuple[int, str, int, bool]] = {}  # of those that do not look at their data
        for one in candidates:
            run, policy = one.run, one.policy
            run.barred = self._owners.bars(one.org, one.owner, run.job_id, policy)
            key = id(policy), one.user
            found = known.get(key)
            if found is None:
                queue = self.queues.find(policy.queue)
                found = *place(policy, one.user, run.data or one.own_data, queue), is_limited(policy, queue)
                if policy.share == OWNER_SHARE:
                    known[key] = found
            run.queue, run.share, run.weight, has_limits = found
            if has_limits and run.kind not in self._foreign_kinds and run.kind != EVERY:  # its children are limited
                limited.append(one)
            else:
                run.demand, run.placed_at = None, now
        if limited:
            await self._place_limited(limited, now)

    async def _place_limited(self, candidates: Sequence[Candidate], now: float) -> None:
        """Write into each run what it demands. What can be had of the whole cluster is no matter of its agent. Only
        what is known to the end counts as placed: should this break off, it is asked for again."""
        of_cluster = await self._demands.of_cluster([asks_of(one.policy.resources) for one in candidates])
        demands = [self._demand(one, of_cluster) for one in candidates]
        for one, demand in zip(candidates, await self._demands.ids_of(demands), strict=True):
            one.run.demand, one.run.placed_at = demand, now

    async def place_plans(self, plans: Iterable[FiringPlan | None]) -> None:
        """Place the runs of plans that were never placed, or too long ago."""
        await self.queues.refresh()
        await self._owners.refresh()
        since = max(_elapsed() - HOLDS, self.queues.changed_at, self._owners.changed_at)
        stale = [plan for plan in plans if plan is not None and plan.run.placed_at < since]
        if stale:
            await self.place([_candidate(plan) for plan in stale])

    def _demand(self, one: Candidate, of_cluster: Collection[str]) -> Demand | None:
        whose = Whose(one.run.job_id, one.owner, one.run.queue, one.org)
        data = _decoded(one.run.data or one.own_data) if reads_data(one.policy) else None
        asks = asks_of(one.policy.resources)
        shared, own = ([ask for ask in asks if (ask[0] in of_cluster) is wanted] for wanted in (True, False))
        return demand_of(one.policy, self.queues.by_id(one.run.queue), whose, data, own, shared)

    def let_in(self, fires: list[Fire]) -> list[Fire]:
        """Return what these moments become: of queues that take nothing new, and of owners that may not run their jobs
        any more, they are skipped."""
        fires = [skip(f, Reason.OWNER) if f.born and f.run.barred else f for f in fires]
        draining = {queue for queue in {fire.run.queue for fire in fires} if self._is_draining(queue)}
        if not draining:
            return fires
        return [skip(f, Reason.QUEUE_DRAINING) if f.born and f.run.queue in draining else f for f in fires]

    def _is_draining(self, queue_id: int) -> bool:
        return self.queues.by_id(queue_id).state is QueueState.DRAINING


def _candidate(plan: FiringPlan) -> Candidate:
    return Candidate(plan.run, plan.policy, plan.owner, plan.org, plan.user, plan.own_data)


def _decoded(data: str | None) -> Any:
    return None if data is None else msgspec.json.decode(data)


def _elapsed() -> float:
    return asyncio.get_running_loop().time()
