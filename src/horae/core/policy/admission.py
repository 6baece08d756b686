"""Who of those that demand more than a slot may start now, and where.

One walk in the order of all that waits (`in_order`). Each start takes its units of limits, and its
part of an agent; an ordinary run on the way takes its slot, so that nobody starts in front of it. Of a demand whose
limit is full, or whose rate has no start left yet, no further run is looked at.

A large run that has waited for long may have a node kept for it (`large_ones`, and `reserve` of core.policy.resources):
there nobody else gets what it needs, ordinary runs neither.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from horae.core.model import Moment
from horae.core.policy import resources
from horae.core.policy.demands import Demand, Offer
from horae.core.policy.limits import Limit

ONE_SLOT = Demand()
NOBODY: Mapping[str, resources.Head] = MappingProxyType({})


class Head(NamedTuple):
    """A run that waits, one of the first of its demand; or of its queue, if it demands nothing."""

    run_id: int
    rank: int  # its priority and the offset of its queue: the highest goes first
    turn: int  # its pass
    kind: str
    queue: int = 0
    due_at: Moment = 0
    pin: str | None = None
    needs: frozenset[str] = frozenset()  # labels, its own and those of its queue
    start_by: Moment | None = None
    demand_id: int | None = None
    demand: Demand = ONE_SLOT


class Start(NamedTuple):
    run_id: int
    offer: int  # its number
    kind: str
    slots: int


class Admission(NamedTuple):
    starts: list[Start]
    moved: dict[str, Limit]  # limits whose rate has moved on
    next_at: Moment | None  # when a rate allows another start
    is_cut: bool  # somebody may start, but there were no slots
    kept: Mapping[str, resources.Head] = NOBODY  # by node: for whom it is kept still
    held: frozenset[int | None] = frozenset()  # demands of which no more may start, wherever it were

    def room_left(self, offers: Sequence[Offer]) -> list[dict[str, int]]:
        """Return what is left for ordinary runs."""
        room = [dict(offer.room) for offer in offers]
        for start in self.starts:
            room[start.offer][start.kind] -= start.slots
        return [
            resources.room_beside(self.kept[offer.node], left) if offer.node in self.kept else left
            for offer, left in zip(offers, room, strict=True)
        ]


def admit(
    heads: Sequence[Head],
    usage: Mapping[str, int],
    limits: Mapping[str, Limit],
    offers: Sequence[Offer],
    ordinary: Sequence[Head],
    now: Moment,
    kept: Mapping[str, resources.Head] = NOBODY,
) -> Admission:
    """`usage`: units of each key that running runs have. A key of which `limits` has nothing allows everything. What
    waits in a paused queue is left out by whoever asks. `kept`: for whom a node is kept."""
    books, rooms = _Books(usage, limits, now), _Rooms(offers, kept)
    starts: list[Start] = []
    is_cut = False
    for head in in_order((*heads, *ordinary)):
        if head.start_by is not None and head.start_by <= now:
            continue
        if head.demand_id is not None and not books.allow(head):
            continue
        number = rooms.take(head)
        if number is None:
            is_cut = is_cut or (head.demand_id is not None and rooms.lack_only_slots(head))
            if is_cut and rooms.are_full:
                break
        elif head.demand_id is not None:
            books.start(head)
            starts.append(Start(head.run_id, number, head.kind, head.demand.slots))
    return Admission(
        starts, books.moved, books.next_at, is_cut or bool(rooms.kept), rooms.kept, frozenset(books.passed_over)
    )


def large_ones(
    heads: Sequence[Head],
    usage: Mapping[str, int],
    limits: Mapping[str, Limit],
    ordinary: Sequence[Head],
    now: Moment,
) -> tuple[list[resources.Head], dict[str, tuple[int, ...]]]:
    """Return those for which an agent might be kept, the first of each demand, with their place; and the place of the
    first ordinary run of each kind. Whom a limit holds anyway is not among them."""
    if not any(head.demand.asks and now - head.due_at >= resources.RESERVE_AFTER for head in heads):
        return [], {}
    books = _Books(usage, limits, now)
    found: dict[tuple[int | None, str], resources.Head] = {}
    fronts: dict[str, tuple[int, ...]] = {}
    for place, head in enumerate(in_order((*heads, *ordinary))):
        if head.demand_id is None:
            fronts.setdefault(head.kind, (place,))
        elif head.demand.asks and (head.demand_id, head.kind) not in found and books.allow(head):
            found[head.demand_id, head.kind] = resources.Head(
                head.run_id, head.kind, head.demand.asks, tuple(sorted(head.needs)), head.pin, head.due_at, (place,)
            )
    return list(found.values()), fronts


def in_order(heads: Iterable[Head]) -> list[Head]:
    """Return the best first: by rank; of queues with equal rank, that whose head waits longest; by pass, which only
    compares runs of one queue."""
    since: dict[tuple[str, int, int], Moment] = {}
    ordered = []
    for head in sorted(heads, key=lambda head: (head.turn, head.run_id)):
        line = head.kind, head.rank, head.queue
        since[line] = max(head.due_at, since.get(line, head.due_at))
        ordered.append((-head.rank, since[line], head.queue, head.turn, head.run_id, head))
    return [head for *_, head in sorted(ordered, key=lambda one: one[:5])]


class _Books:
    """What the limits still allow."""

    def __init__(self, usage: Mapping[str, int], limits: Mapping[str, Limit], now: Moment) -> None:
        self._used = dict(usage)
        self._limits = limits
        self._now = now
        self.passed_over: set[int | None] = set()
        self.moved: dict[str, Limit] = {}
        self.next_at: Moment | None = None

    def allow(self, head: Head) -> bool:
        if head.demand_id in self.passed_over:
            return False
        bound = [(self._limit(use.key), use) for use in head.demand.uses]
        is_full = any(limit and not limit.has_room(self._used.get(use.key, 0), use.cost) for limit, use in bound)
        free_at = max((limit.free_at(self._now) for limit, _ in bound if limit), default=self._now)
        if free_at > self._now and not is_full:  # one that is full is looked at again when something ends
            self.next_at = free_at if self.next_at is None else min(free_at, self.next_at)
        if is_full or free_at > self._now:
            self.passed_over.add(head.demand_id)
            return False
        return True

    def start(self, head: Head) -> None:
        for use in head.demand.uses:
            self._used[use.key] = self._used.get(use.key, 0) + use.cost
            limit = self._limit(use.key)
            if limit is not None and limit.period is not None:
                self.moved[use.key] = limit.started(self._now)

    def _limit(self, key: str) -> Limit | None:
        return self.moved.get(key) or self._limits.get(key)


class _Rooms:
    """What the agents still have. Every one gets one run before any gets two."""

    def __init__(self, offers: Sequence[Offer], kept: Mapping[str, resources.Head]) -> None:
        self.kept = dict(kept)
        self._nowhere: set[tuple[object, ...]] = set()  # what was found to fit on none; what is free only grows less
        self._offers = offers
        self._room = [dict(offer.room) for offer in offers]
        self._free = [dict(offer.free) for offer in offers]
        self._labels = [frozenset(offer.labels) for offer in offers]
        kinds = {kind for offer in offers for kind in offer.room}
        self._line = {kind: [(0, n) for n, offer in enumerate(offers) if kind in offer.room] for kind in kinds}

    @property
    def are_full(self) -> bool:
        return not any(self._line.values())

    def take(self, head: Head) -> int | None:
        """Return the number of the offer that gets it, whose room it takes; None if nobody has any for it."""
        alike = head.demand_id, head.kind, head.pin, head.needs
        if alike in self._nowhere and not self._is_kept_for(head):
            return None
        line = self._line.get(head.kind, [])
        tried: list[tuple[int, int]] = []
        chosen = None
        while line and chosen is None:
            given, number = heapq.heappop(line)
            if self._room[number][head.kind] <= 0:
                continue  # it is full, and leaves the line
            if self._fits(head, number):
                chosen = number
                given += 1
            tried.append((given, number))
        for one in tried:
            heapq.heappush(line, one)
        if chosen is None:
            self._nowhere.add(alike)
        else:
            self._room[chosen][head.kind] -= head.demand.slots
            resources.take(self._free[chosen], resources.beyond_slots(head.demand.asks))
            self.kept = {node: large for node, large in self.kept.items() if large.run_id != head.run_id}
        return chosen

    def lack_only_slots(self, head: Head) -> bool:
        """Return whether one of those who offer something could take it, had it one more slot. One that wants many may
        want more than there are: it is looked for now and then, until an agent is kept for it."""
        asks = resources.beyond_slots(head.demand.asks)
        return head.demand.slots == 1 and any(
            head.kind in offer.room and self._suits(head, n) and resources.fits(asks, resources.of_kind(1, offer.free))
            for n, offer in enumerate(self._offers)
        )

    def _is_kept_for(self, head: Head) -> bool:
        return any(large.run_id == head.run_id for large in self.kept.values())

    def _fits(self, head: Head, number: int) -> bool:
        return self._suits(head, number) and resources.fits(head.demand.asks, self._left_for(head, number))

    def _suits(self, head: Head, number: int) -> bool:
        return (head.pin is None or head.pin == self._offers[number].node) and head.needs <= self._labels[number]

    def _left_for(self, head: Head, number: int) -> Mapping[str, int]:
        """What a node has, less what is kept there for somebody else."""
        left = resources.of_kind(self._room[number][head.kind], self._free[number])
        large = self.kept.get(self._offers[number].node)
        if large is not None and large.run_id != head.run_id:
            resources.take(left, resources.beyond_slots(large.asks))
            left[resources.SLOTS] -= resources.slots_of(large.asks) if large.kind == head.kind else 0
        return left
