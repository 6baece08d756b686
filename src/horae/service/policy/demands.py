"""What new runs demand, as the id that goes with them.

A job that asks for nothing, without limits, in a queue without limits costs nothing here: `is_limited` says so once for
a job or a plan. Equal demands are written once, and then remembered for a while: not for ever, because the store drops
what nobody asked for in a day.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from horae.core.model import Policy
from horae.core.policy.demands import Demand, terms_of
from horae.core.policy.queues import Queue
from horae.core.policy.resources import Asks, asks_of

REMEMBERED_SECONDS = 600.0  # for which an id is known to be good
RESOURCES_SECONDS = 5.0  # for which it is known what the cluster has
MOST_REMEMBERED = 100_000  # demands


class DemandStore(Protocol):
    """What demands are written with."""

    async def demand_ids(self, demands: Sequence[Demand]) -> list[int]: ...
    async def load_resources(self) -> dict[str, int]: ...


def is_limited(policy: Policy, queue: Queue) -> bool:
    """Return whether runs of such a job may demand anything."""
    return bool(asks_of(policy.resources) or terms_of(policy, queue))


class Demands:
    def __init__(self, store: DemandStore, elapsed: Callable[[], float]) -> None:
        self._store = store
        self._elapsed = elapsed
        self._ids: dict[Demand, tuple[int, float]] = {}  # with the moment until which it is good
        self._resources: dict[str, int] = {}
        self._resources_until = 0.0

    async def ids_of(self, demands: Sequence[Demand | None]) -> list[int | None]:
        """Return the ids of many, those that are not known in one statement."""
        now = self._elapsed()
        unknown = [one for one in dict.fromkeys(demands) if one is not None and self._ids.get(one, (0, 0.0))[1] <= now]
        if unknown:
            if len(self._ids) + len(unknown) > MOST_REMEMBERED:
                self._ids.clear()
            found = await self._store.demand_ids(unknown)
            self._ids |= {one: (id_, now + REMEMBERED_SECONDS) for one, id_ in zip(unknown, found, strict=True)}
        return [None if one is None else self._ids[one][0] for one in demands]

    async def of_cluster(self, asked: Iterable[Asks]) -> Collection[str]:
        """Return the names of what is asked of the cluster, not of an agent."""
        if not any(asked):
            return ()
        if self._resources_until <= self._elapsed():
            self._resources = await self._store.load_resources()
            self._resources_until = self._elapsed() + RESOURCES_SECONDS
        return self._resources.keys()
