"""What a forecast is made from: triggers with a moment ahead, jobs that follow others, and the places that runs need.

A profile is what the runs of many triggers have in common: the pools in which they need a place, and what becomes of a
moment while the last run is under way. It is worked out once for each policy, kind of work and, where a limit is one of
an owner or a job, for each of those.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

from horae.core.insight.baselines import UNKNOWN_SPREAD, Expected
from horae.core.insight.load import SLACK, Grid, Load
from horae.core.model import SECOND, Moment, Node, NodeState, OperatorWish, Overlap, Policy
from horae.core.policy.limits import parse_rate
from horae.core.policy.queues import Queue, QueueState
from horae.core.work.kinds import BY_SERVERS
from horae.core.work.policies import policy_from_text

AGENT = "agent"
PER_E = 5  # classes of durations from one to 2.7 times as long: within one they differ by a fifth
LENGTHS = tuple(math.ceil(math.exp((number + 0.5) / PER_E)) for number in range(35 * PER_E))  # µs, between classes
PER_SPREAD = 4  # classes of spread in one of 1.0
WIDEST = 2
SPREAD_PARTS = 10_000  # of one, in which spreads are read: as many as are stored
SPREADS = tuple((number + 0.5) / PER_SPREAD for number in range(WIDEST * PER_SPREAD))  # between classes
MOST_USUAL = 10_000  # triggers that say what is usual: of very many, every other one, or fewer
UNKNOWN = Expected(1.0, UNKNOWN_SPREAD)  # where nothing of that kind has ever run


class Planned(NamedTuple):
    """A trigger whose next moment lies ahead, and what is known of its job."""

    trigger_id: int
    next_at: Moment
    last_at: Moment | None
    job_id: int
    org: int
    owner: str
    kind: str
    policy: str  # as stored
    schedule: str  # as stored
    created_at: Moment
    median: int | None  # µs that its runs take; None: nothing is known
    spread: float | None


class Columns(NamedTuple):
    """Planned triggers, column by column: of a hundred thousand, that is read several times faster than row by row."""

    trigger_id: Sequence[int]
    next_at: Sequence[Moment]
    last_at: Sequence[Moment | None]
    job_id: Sequence[int]
    org: Sequence[int]
    owner: Sequence[str]
    kind: Sequence[str]
    policy: Sequence[str]
    schedule: Sequence[str]
    created_at: Sequence[Moment]
    median: Sequence[int | None]
    spread: Sequence[int | None]  # in parts of SPREAD_PARTS

    @classmethod
    def of(cls, rows: Sequence[Planned]) -> Columns:
        if not rows:
            return cls(*((),) * len(cls._fields))
        whole = cls(*zip(*rows, strict=True))
        return whole._replace(spread=[None if row.spread is None else round(row.spread * SPREAD_PARTS) for row in rows])

    def row(self, number: int) -> Planned:
        found = Planned._make(column[number] for column in self)
        return found if found.spread is None else found._replace(spread=found.spread / SPREAD_PARTS)

    def where(self, is_wanted: Sequence[bool]) -> Columns:
        return Columns._make([*compress(column, is_wanted)] for column in self)

    def rows(self) -> Iterator[Planned]:
        return map(self.row, range(len(self.trigger_id)))


class Follower(NamedTuple):
    """A job whose runs are made when those of others end, or a task of a workflow."""

    job_id: int
    org: int
    name: str
    owner: str
    kind: str
    policy: str
    heard: tuple[tuple[int, str], ...]  # jobs, and the end of their runs that makes one: success, failure, end or never
    median: int | None
    spread: float | None
    share: float | None  # of them that succeed
    part_of: int | None = None  # the workflow of which it is a task

    @property
    def sources(self) -> list[int]:
        """Return the jobs that it follows."""
        return [heard for heard, _ in self.heard] + ([self.part_of] if self.part_of else [])


@dataclass(frozen=True, slots=True)
class Places:
    """What runs need a place in."""

    nodes: Sequence[Node] = ()
    queues: Sequence[Queue] = ()
    waiting: Mapping[str, int] = field(default_factory=dict)  # kind → runs that wait for a slot at the beginning

    def slots(self, kind: str, labels: tuple[str, ...] = ()) -> int:
        """Return how many runs of a kind its agents do at once; with labels, those that have them all."""
        return sum(
            node.capacity.get(kind, node.slots)
            for node in self.nodes
            if _takes(node) and kind in node.kinds and set(labels) <= set(node.labels)
        )


def _takes(node: Node) -> bool:
    return AGENT in node.roles and node.state == NodeState.LIVE and node.wanted == OperatorWish.LIVE


class Pool:
    """Something that runs share, how much there is of it, and how much is wanted."""

    def __init__(self, what: str, name: str, grid: Grid, capacity: int | None = None, rate: str | None = None) -> None:
        """`what` is slots, queue or limit. With a `rate`, starts are counted, else runs that are under way."""
        self.what, self.name, self.capacity, self.rate = what, name, capacity, rate
        self.labels: tuple[str, ...] = ()  # of slots: that their agents must have
        self.per_tick = 0.0 if rate is None else grid.tick * SECOND / parse_rate(rate).period
        self.load = Load(grid)

    @property
    def is_all_slots(self) -> bool:
        """Of a kind of work, whatever labels its agents have."""
        return self.what == "slots" and not self.labels

    def pressure(self) -> float:
        """Return how much of it may be wanted at once, at most: above 1 it may run out."""
        there = self.per_tick if self.rate else float(self.capacity or 0)
        bound = self.load.bound(of_starts=self.rate is not None)
        return bound / (there + SLACK) if there else math.inf * (bound > 0)


class Profile(NamedTuple):
    pools: tuple[Pool, ...]
    overlap: Overlap
    queue: str
    is_closed: bool  # its queue takes nothing new: its moments are skipped
    is_held: bool  # its queue is paused: its runs wait
    after: tuple[int, ...]  # jobs whose runs of the same moment must have ended


def has_limits(policy: str) -> bool:
    """Return whether there are limits in a policy, which are those of an owner, a queue or a job."""
    read = policy_from_text(policy)
    return bool(read.rate_limits or read.concurrency_limits)


class Profiles:
    """Profiles, and the pools in them."""

    def __init__(self, places: Places, grid: Grid) -> None:
        self._places, self._grid = places, grid
        self._queues = {queue.name: queue for queue in places.queues}
        self._known: dict[tuple[object, ...], Profile] = {}
        self.pools: dict[tuple[object, ...], Pool] = {}

    def of(self, kind: str, policy: str, owner: str, job_id: int) -> Profile:
        found = self._known.get((kind, policy))
        if found is None:
            read = policy_from_text(policy)
            whose = (owner, job_id) if has_limits(policy) else ()
            found = self._known.get((kind, policy, *whose))
            if found is None:
                found = self._known[kind, policy, *whose] = self._make(kind, read, owner, job_id)
        return found

    def _make(self, kind: str, policy: Policy, owner: str, job_id: int) -> Profile:
        queue = self._queues.get(policy.queue, Queue(0, policy.queue))
        pools = [*self._slots(kind, (*policy.labels, *queue.labels)), *self._of_queue(queue)]
        who = {"job": str(job_id), "owner": owner, "queue": policy.queue}
        pools += [
            self._pool("limit", f"{one.per} {who[one.per]}", one.limit)
            for one in policy.concurrency_limits
            if one.per in who
        ]
        pools += [
            self._pool("limit", f"{one.per} {who[one.per]}", rate=one.rate)
            for one in policy.rate_limits
            if one.per in who
        ]
        return Profile(
            tuple(pools), policy.overlap, policy.queue, queue.state is QueueState.DRAINING,
            queue.state is QueueState.PAUSED, tuple(one.id for one in policy.after if one.id is not None),
        )  # fmt: skip

    def _slots(self, kind: str, labels: tuple[str, ...]) -> list[Pool]:
        if kind in BY_SERVERS:
            return []
        found = [self._pool("slots", kind, self._places.slots(kind))]
        if labels:
            wanted = tuple(sorted(set(labels)))
            pool = self._pool("slots", f"{kind} on {', '.join(wanted)}", self._places.slots(kind, wanted))
            pool.labels = wanted
            found.append(pool)
        return found

    def _of_queue(self, queue: Queue) -> list[Pool]:
        found = [] if queue.concurrency is None else [self._pool("queue", queue.name, queue.concurrency)]
        return found if queue.rate is None else [*found, self._pool("queue", queue.name, rate=queue.rate)]

    def _pool(self, what: str, name: str, capacity: int | None = None, rate: str | None = None) -> Pool:
        key = (what, name, capacity, rate)
        if key not in self.pools:
            self.pools[key] = Pool(what, name, self._grid, capacity, rate)
        return self.pools[key]


UNKNOWN_LENGTH = -1  # the class of a trigger of which nothing is known


def class_of(median: int | None, spread: float | None) -> tuple[int, int]:
    """Return the class of a duration in µs, and that of its spread."""
    return (bisect(LENGTHS, median) if median else UNKNOWN_LENGTH), bisect(SPREADS, spread or 0.0)


@lru_cache(maxsize=4096)
def _expected_of(length: int, spread: int) -> Expected:
    return Expected(math.exp(length / PER_E) / SECOND, spread / PER_SPREAD)


class Durations:
    """How long runs take: those of a class as long, those of which nothing is known as others of their kind."""

    def __init__(self, planned: Columns, followers: Sequence[Follower]) -> None:
        self._planned, self._followers = planned, followers
        self._usual: dict[str, Expected] = {}

    def of(self, kind: str, length: int, spread: int) -> Expected:
        """Return how long runs of a class take, or what is usual."""
        return self.usual(kind) if length == UNKNOWN_LENGTH else _expected_of(length, spread)

    def usual(self, kind: str) -> Expected:
        """Return how long runs of a kind take, as far as that is known."""
        if kind not in self._usual:
            medians = [it.median for it in self._followers if it.median and it.kind == kind]
            some = slice(None, None, len(self._planned.kind) // MOST_USUAL + 1)
            pairs = zip(self._planned.median[some], self._planned.kind[some], strict=True)
            medians += [median for median, its_kind in pairs if median and its_kind == kind]
            length = round(math.fsum(map(math.log, medians)) / len(medians) * PER_E) if medians else 0
            self._usual[kind] = _expected_of(length, round(UNKNOWN_SPREAD * PER_SPREAD)) if medians else UNKNOWN
        return self._usual[kind]
