"""What runs must have beyond a slot, and who may have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import Moment
from horae.core.policy.demands import Demand, Offer
from horae.core.policy.limits import LimitState
from horae.core.runs.orders import Backlog, Claimed


class Limits(Protocol):
    """Demands, the limits that they use, and runs that wait for them."""

    async def demand_ids(self, demands: Sequence[Demand]) -> list[int]:
        """Return the id of each demand; equal ones have the same. An id stays good for a day after it was asked for,
        and for as long as a live run has it."""

    async def claim_demanding(self, offers: Sequence[Offer], *, standby: str | None = None) -> Claimed:
        """Start runs that are blocked(limit) on nodes that offer room, as `claim` starts queued ones, with the same
        care for sessions, pins, labels, start deadlines, fences and nodes that stand by. In the order in which all that
        waits is started, ordinary runs included: none of those with a better place finds its slot taken.

        No limit is exceeded, however many ask at once: neither what its capacity is, by what job and queue say now, nor
        its rate, which is kept over restarts. Whatever ends an attempt gives back what it had."""

    async def claim_beside(
        self, offers: Sequence[Offer], labels: Sequence[str] = (), *, standby: str | None = None, is_fresh: bool = False
    ) -> Claimed:
        """As `claim`, all that these nodes offer; they have the same labels. Beside ordinary runs, those may be started
        that are blocked(limit) and of which all that wait can have what they demand, as the last `claim_demanding` of
        this process has shown. `is_waiting` is whether others wait for which somebody should look: not those that could
        not start then, unless (`is_fresh`) runs were made since and an agent was all that was missing."""

    async def load_demanding(self, limit: int) -> list[Backlog]:
        """Return what waits to be started by `claim_demanding`: of each demand the first `limit` runs are counted; of
        very many demands, some."""

    async def load_limits(self, run_id: int | None = None) -> list[LimitState]:
        """Return how the limits stand that runs use or wait for, by key, to look at; of very many, some. With a run,
        those that it waits for: none, if it waits for none."""

    async def drop_demands(self, before: Moment, limit: int) -> int:
        """Drop up to `limit` demands that no live run has and nobody asked for since a moment, and keys that no demand
        uses; return how many."""

    async def load_resources(self) -> dict[str, int]:
        """Return what the whole cluster has, by name."""

    async def set_resource(self, name: str, capacity: int) -> None:
        """Say how much of something the whole cluster has."""

    async def drop_resource(self, name: str) -> bool:
        """Nobody counts it any more; return whether somebody did."""
