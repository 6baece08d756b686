"""What a forecast is made from: triggers with a moment ahead, jobs that follow others, and the places that runs need.

A profile is what the runs of many triggers have in common: the pools in which they need a place, and what becomes of a
moment while the last run is under way. It is worked out once for each policy, kind of work and, where a limit is one of
an owner or a job, for each of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from horae.core.insight.baselines import UNKNOWN_SPREAD, Expected
from horae.core.insight.load import Grid, Load
from horae.core.model import SECOND, Moment, Node, NodeState, OperatorWish, Overlap, Policy
from horae.core.policy.limits import parse_rate
from horae.core.policy.queues import Queue, QueueState
from horae.core.work.kinds import BY_SERVERS
from horae.core.work.policies import policy_from_text

AGENT = "agent"
PER_E = 5  # classes of durations from one to 2.7 times as long: within one they differ by a fifth
SPREADS = 4  # classes of spread in one of 1.0
WIDEST = 2.0
UNKNOWN = Expected(1.0, UNKNOWN_SPREAD)  # where nothing of that kind has ever run


class Planned(NamedTuple):
    """A trigger whose next moment lies ahead, and what is known of its job."""

    trigger_id: int
    next_at: Moment
    last_at: Moment | None
    job_id: int
    org: int
    name: str
    owner: str
    kind: str
    policy: str  # as stored
    schedule: str  # as stored
    created_at: Moment
    median: int | None  # µs that its runs take; None: nothing is known
    spread: float | None
    share: float | None  # of them that succeed


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
    share: float | None
    part_of: int | None = None  # the workflow of which it is a task


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


class Profile(NamedTuple):
    pools: tuple[Pool, ...]
    overlap: Overlap
    queue: str
    is_closed: bool  # its queue takes nothing new: its moments are skipped
    is_held: bool  # its queue is paused: its runs wait
    after: tuple[int, ...]  # jobs whose runs of the same moment must have ended


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
            whose = (owner, job_id) if read.rate_limits or read.concurrency_limits else ()
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


class Durations:
    """How long runs take, in classes: those that differ little are counted together. Jobs that never ran are taken as
    long as the others of their kind."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[tuple[int, float | None], int]] = {}  # kind → how often each, of what is known
        self._classes: dict[tuple[int, float | None], Expected] = {}
        self._usual: dict[str, Expected] = {}
        self.unknown = 0  # triggers of jobs that never ran

    def of(self, kind: str, median: int | None, spread: float | None) -> Expected | None:
        """Return the class of a duration; None where nothing is known of it."""
        if not median:
            return None
        key = (median, spread)
        seen = self._seen.get(kind)
        if seen is None:
            seen = self._seen[kind] = {}
        seen[key] = seen.get(key, 0) + 1
        found = self._classes.get(key)
        if found is None:
            spreads = round(min(spread or 0.0, WIDEST) * SPREADS)
            found = self._classes[key] = _class(round(math.log(median) * PER_E), spreads)
        return found

    def usual(self, kind: str) -> Expected:
        """Return how long runs of a kind take, as far as that is known when it is first asked."""
        seen = self._seen.get(kind)
        if not seen:
            return UNKNOWN
        if kind not in self._usual:
            total = sum(math.log(median) * times for (median, _), times in seen.items())
            self._usual[kind] = _class(round(total / sum(seen.values()) * PER_E), round(UNKNOWN_SPREAD * SPREADS))
        return self._usual[kind]

    def guess(self, kind: str) -> Expected:
        """As usual, for a trigger of which nothing is known."""
        self.unknown += 1
        return self.usual(kind)


@lru_cache(maxsize=4096)
def _class(median: int, spread: int) -> Expected:
    return Expected(math.exp(median / PER_E) / SECOND, spread / SPREADS)
