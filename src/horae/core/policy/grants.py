"""Grants: how many runs of a demand may start for certain, so that nobody has to look first.

A look at the limits of a run (`admit`) is a transaction of its own. While there is plenty, it says the same each time.
So whoever has looked remembers how the keys stood, and by the *stamp* of each: whoever starts runs writes a number on
their keys that nobody uses twice. As long as a key has the stamp that was seen, nobody has started anything under it
since, and what is in use of it has only grown less. So a claim of ordinary runs may take others with it: at most as
many of each demand as can be had of each of its keys if all the others take theirs too, and only under those stamps.

Where there is less than waits, nothing is granted: then the order decides, and that takes a look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horae.core.model import SECOND, Moment
from horae.core.policy import resources
from horae.core.policy.demands import Demand, Offer
from horae.core.policy.limits import Limit

MOST_KNOWN = 50  # demands
MOST_POLICIES = 20  # of jobs whose runs have the same demand
HOLDS = 60 * SECOND  # for which terms are remembered: one that was changed is forgotten at last


class Key(NamedTuple):
    """How a key stood when somebody last looked."""

    stamp: int
    capacity: int | None  # of what the cluster has
    ready_at: Moment


class Terms(NamedTuple):
    """What the runs of a demand are bound by, as far as it was seen."""

    demand: Demand
    limits: Mapping[str, Limit]  # by key
    policies: frozenset[str]  # digests of the policies that say so
    queue_version: int | None = None  # of the queue that says so, if one does
    until: Moment = 0

    def beside(self, other: Terms | None) -> Terms:
        """Return these with those that were seen before, if they still count."""
        if other is None or other.until <= self.until - HOLDS or other.queue_version != self.queue_version:
            return self
        limits = {key: limit.tightened(other.limits[key]) for key, limit in self.limits.items()}
        return self._replace(limits=limits, policies=self.policies | other.policies, until=other.until)


class Grant(NamedTuple):
    """Of a demand, so many may start."""

    demand_id: int
    most: int
    keys: list[str]
    policies: list[str]
    queue_version: int | None


class Bound(NamedTuple):
    """Under which circumstances a key may be used, and how often."""

    key: str
    stamp: int
    capacity: int | None
    most: int
    period: int | None
    burst: int


class Part(NamedTuple):
    """A demand, and by how much of what there is it is held: worked out once for many claims."""

    demand_id: int
    until: Moment
    uses: list[tuple[str, int, int]]  # key, cost, and how many demands use it
    asks: list[tuple[str, int]]  # of an agent, as often as demands ask for it
    keys: list[str]
    policies: list[str]
    queue_version: int | None


class Grants:
    def __init__(self) -> None:
        self._terms: dict[int, Terms] = {}
        self._keys: dict[str, Key] = {}
        self._used: dict[str, int] = {}  # units of each key, at most
        self._running: dict[int, int] = {}  # runs of each demand, at most
        self._limits: dict[str, Limit] = {}  # what each key allows
        self._parts: list[Part] = []
        self._now: Moment = 0

    def learn(
        self, seen: Mapping[int, Terms], keys: Mapping[str, Key], running: Mapping[int, int], usage: Mapping[str, int],
        now: Moment,
    ) -> None:  # fmt: skip
        """After a look: the terms of demands that wait, the keys that were held, and all that runs."""
        for id_, terms in seen.items():
            every = terms.beside(self._terms.pop(id_, None))
            if len(every.policies) <= MOST_POLICIES:
                self._terms[id_] = every
        for id_ in [*self._terms][: max(0, len(self._terms) - MOST_KNOWN)]:
            del self._terms[id_]
        wanted = {use.key for terms in self._terms.values() for use in terms.demand.uses}
        known = self._keys | dict(keys)
        self._keys = {key: known[key] for key in wanted}
        self._used = {key: usage.get(key, 0) for key in wanted}
        self._running = {id_: running.get(id_, 0) for id_ in self._terms}
        self._limits = self._tightest()
        self._parts = self._divide()
        self._now = now

    def note(self, started: Mapping[int, int], running: Mapping[int, int], moved: Mapping[str, Moment], stamp: int,
             now: Moment) -> None:  # fmt: skip
        """After a claim that has started so many of demands, of which so many ran before; where it has left keys, with
        its stamp."""
        for id_, runs in started.items():
            if id_ not in self._terms:
                continue  # somebody looked meanwhile, and it was one too many to remember
            more = running.get(id_, 0) + runs - self._running[id_]
            self._running[id_] += more
            for key, cost in self._terms[id_].demand.uses:
                self._used[key] += more * cost
        for key, ready_at in moved.items():
            if key in self._keys:
                self._keys[key] = Key(stamp, self._keys[key].capacity, ready_at)
                if self._limits[key].period is not None:
                    self._limits[key] = self._limits[key]._replace(ready_at=ready_at)
        self._now = now

    def plenty(self) -> frozenset[int]:
        """Return the demands of which more could start wherever there is a slot."""
        anywhere = Offer("", None, {"": resources.MOST_SLOTS}, {})
        return frozenset(grant.demand_id for grant in self.of([anywhere])[0])

    def of(self, offers: Sequence[Offer]) -> tuple[list[Grant], list[Bound]]:
        """Return what may be started on these, and what it is bound by. Asked with every claim."""
        room = sum(sum(offer.room.values()) for offer in offers)
        grants: list[Grant] = []
        starts: dict[str, int] = {}  # under each key
        for part in self._parts:
            most = self._most(part, offers, room)
            if most > 0:
                grants.append(Grant(part.demand_id, most, part.keys, part.policies, part.queue_version))
                for key in part.keys:
                    starts[key] = starts.get(key, 0) + most
        return grants, [self._bound(key, most) for key, most in starts.items()]

    def demand(self, demand_id: int) -> Demand:
        return self._terms[demand_id].demand

    def _most(self, part: Part, offers: Sequence[Offer], room: int) -> int:
        """Return how many of a demand could go to any one of these, whichever it is."""
        now = self._now
        most = room if part.until > now else 0
        for name, amount in part.asks:
            most = min(most, min([offer.free.get(name, 0) for offer in offers], default=0) // amount)
        for key, cost, users in part.uses:
            most = min(most, self._limits[key].starts_left(self._used[key], cost, now) // users)
        return most

    def _bound(self, key: str, most: int) -> Bound:
        stamp, capacity, _ = self._keys[key]
        limit = self._limits[key]
        return Bound(key, stamp, capacity, most, limit.period, limit.burst)

    def _tightest(self) -> dict[str, Limit]:
        """Return what each key allows: of terms that differ, what both do."""
        limits: dict[str, Limit] = {}
        for terms in self._terms.values():
            for key, limit in terms.limits.items():
                limits[key] = limit.tightened(limits[key]) if key in limits else limit
        return {key: limit._replace(ready_at=self._keys[key].ready_at) for key, limit in limits.items()}

    def _divide(self) -> list[Part]:
        """Return how what is left of each key, and of what agents have, is divided among the demands that use it. What
        takes several slots has no part."""
        sharing = Counter(name for terms in self._terms.values() for name in _names(terms.demand))
        return [
            Part(
                id_, terms.until, [(key, cost, sharing[key]) for key, cost in terms.demand.uses],
                [(name, amount * sharing[name]) for name, amount in resources.beyond_slots(terms.demand.asks)],
                [use.key for use in terms.demand.uses], sorted(terms.policies), terms.queue_version,
            )
            for id_, terms in self._terms.items() if terms.demand.slots == 1
        ]  # fmt: skip


def _names(demand: Demand) -> list[str]:
    return [*(use.key for use in demand.uses), *(name for name, _ in demand.asks)]
