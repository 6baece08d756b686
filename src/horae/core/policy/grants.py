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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    used: int  # units, at most


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


class Grants:
    def __init__(self) -> None:
        self._terms: dict[int, Terms] = {}
        self._keys: dict[str, Key] = {}
        self._running: dict[int, int] = {}  # runs of each demand, at most
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
        self._keys = {key: known[key]._replace(used=usage.get(key, 0)) for key in wanted}
        self._running = {id_: running.get(id_, 0) for id_ in self._terms}
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
                self._keys[key] = self._keys[key]._replace(used=self._keys[key].used + more * cost)
        for key in moved.keys() & self._keys.keys():
            self._keys[key] = self._keys[key]._replace(stamp=stamp, ready_at=moved[key])
        self._now = now

    def plenty(self) -> frozenset[int]:
        """Return the demands of which more could start wherever there is a slot."""
        anywhere = Offer("", None, {"": resources.MOST_SLOTS}, {})
        return frozenset(grant.demand_id for grant in self.of([anywhere])[0])

    def of(self, offers: Sequence[Offer]) -> tuple[list[Grant], list[Bound]]:
        """Return what may be started on these, and what it is bound by."""
        sharing = Counter(name for terms in self._terms.values() for name in _names(terms.demand))
        limits, room = self._limits(), sum(sum(offer.room.values()) for offer in offers)
        grants = []
        for id_, terms in self._terms.items():
            if terms.until > self._now and terms.demand.slots == 1:
                most = min(self._most(terms, limits, sharing), _most_asked(terms.demand, offers, sharing), room)
                if most > 0:
                    keys = [use.key for use in terms.demand.uses]
                    grants.append(Grant(id_, most, keys, sorted(terms.policies), terms.queue_version))
        return grants, list(self._bounds(grants, limits))

    def demand(self, demand_id: int) -> Demand:
        return self._terms[demand_id].demand

    def _limits(self) -> dict[str, Limit]:
        """Return what each key allows: of terms that differ, what both do."""
        limits: dict[str, Limit] = {}
        for terms in self._terms.values():
            for key, limit in terms.limits.items():
                limits[key] = limit.tightened(limits[key]) if key in limits else limit
        return {key: limit._replace(ready_at=self._keys[key].ready_at) for key, limit in limits.items()}

    def _most(self, terms: Terms, limits: Mapping[str, Limit], sharing: Mapping[str, int]) -> int:
        """Of each key, what is left is divided among the demands that use it."""
        parts = (
            limits[key].starts_left(self._keys[key].used, cost, self._now) // sharing.get(key, 1)
            for key, cost in terms.demand.uses
        )
        return min(parts, default=resources.MOST_SLOTS)

    def _bounds(self, grants: Iterable[Grant], limits: Mapping[str, Limit]) -> Iterator[Bound]:
        starts: Counter[str] = Counter()
        for grant in grants:
            starts.update(dict.fromkeys(grant.keys, grant.most))
        for key, most in starts.items():
            yield Bound(key, *self._keys[key][:2], most, limits[key].period, limits[key].burst)


def _names(demand: Demand) -> list[str]:
    return [*(use.key for use in demand.uses), *(name for name, _ in demand.asks)]


def _most_asked(demand: Demand, offers: Sequence[Offer], sharing: Mapping[str, int]) -> int:
    """Return how many could go to any one of these, whichever it is."""
    return min(
        (
            min((offer.free.get(name, 0) for offer in offers), default=0) // (amount * sharing[name])
            for name, amount in resources.beyond_slots(demand.asks)
        ),
        default=resources.MOST_SLOTS,
    )
