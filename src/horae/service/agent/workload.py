"""What an agent holds: the runs at work, the slots and resources that they take, and the kinds of which it may claim
more.

    claimed ──► held ──► ended
                  ▲
    waits for our own earlier copy of the same run to end, then is held in its place

What must stay true:
- A run is held once. The copy that was taken from us is certainly gone before the next attempt starts.
- Each attempt has one timeout, which is counted here; it stops nobody once the attempt has ended.
- What we let go ends as `lost`, so that the agent can hand it back.
- What is free is what is offered less what is held: every way out of being held gives back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from horae.core.model import Reason
from horae.core.policy.resources import SLOTS, Asks, asks_of, beyond_slots, fits, give_back, of_kind, slots_of, take
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Assignment
from horae.core.work import policies
from horae.errors import Error
from horae.ports.work import Executor, Keeper, LastingExecutor

NOTHING: Mapping[str, int] = MappingProxyType({})


class Running(NamedTuple):
    """A run at work."""

    executor: Executor
    fence: int
    timer: asyncio.TimerHandle | None  # of its timeout
    asks: Asks


class Successor(NamedTuple):
    """A run that waits until our earlier copy of it is gone."""

    executor: Executor
    assignment: Assignment
    previous: str | None  # as Work.previous


class Workload:
    def __init__(self, executors: Mapping[str, Executor], keeper: Keeper, offers: Mapping[str, int] = NOTHING) -> None:
        """`offers`: what runs may have of this agent beside slots."""
        self._executors = executors
        self._keeper = keeper
        # Found once: to look whether something has all methods of a protocol is slow.
        self.lasters = {kind: one for kind, one in executors.items() if isinstance(one, LastingExecutor)}
        self.held: dict[int, Running] = {}  # by run
        self.successors: dict[int, Successor] = {}  # by run
        self.free = {kind: executor.slots for kind, executor in executors.items()}  # slots
        self.free_resources = dict(offers)
        self.hungry = set(executors)  # kinds of which more may be waiting
        self._let_go: set[int] = set()  # runs that we stop because they are not ours any more
        self._unreleased: set[Fenced] = set()  # attempts that the keeper may still hold for a next life
        self.slot_freed = asyncio.Event()
        self.is_idle = asyncio.Event()  # nothing is held
        self.is_idle.set()

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return sum(slots_of(running.asks) if running.asks else 1 for running in self.held.values())

    @property
    def has_hunger(self) -> bool:
        """Whether there are free slots for kinds of which more may wait."""
        return any(self.free[kind] > 0 for kind in self.hungry)

    def has_room_for(self, runs: int) -> bool:
        """Return whether so many of a wanted kind fit, or half of what it has slots for."""
        return any(self.free[kind] >= min(runs, (self._executors[kind].slots + 1) // 2) for kind in self.hungry)

    def wake(self) -> None:
        """Somebody announced runs: every kind may have some."""
        self.hungry = set(self._executors)

    def attempts(self) -> list[Fenced]:
        """Return what runs, and what waits for our own copy to end."""
        return [
            *((run_id, running.fence) for run_id, running in self.held.items()),
            *((run_id, successor.assignment.fence) for run_id, successor in self.successors.items()),
        ]

    # ── holding ──
    def may_outlive_us(self, kind: str) -> bool:
        return kind in self.lasters and self._keeper.keeps

    def hold(self, executor: Executor, claimed: Sequence[Assignment], timeouts: Sequence[float | None]) -> None:
        """Runs of one kind. `timeouts` are what is left of each, in seconds."""
        loop, plain = asyncio.get_running_loop(), 0
        known: dict[str, Asks] = {}  # by policy: a batch has few
        for a, timeout in zip(claimed, timeouts, strict=True):
            timer = None
            if timeout is not None:
                timer = loop.call_later(timeout, executor.stop, a.run_id, Reason.TIMEOUT)
            asks = known.get(a.policy)
            if asks is None:
                asks = known[a.policy] = self._asks_for(a)
            if asks:
                self._take(executor, asks)
            else:
                plain += 1
            self.held[a.run_id] = Running(executor, a.fence, timer, asks)
        self.free[executor.kind] -= plain
        if self.may_outlive_us(executor.kind):
            self._unreleased.update((a.run_id, a.fence) for a in claimed)

    def end(self, run_id: int) -> Running | None:
        """Return what was held of a run, and is no longer. Whether anything waits for the resources that it gives back,
        the service knows: it announces that when the end is reported."""
        running = self.held.pop(run_id, None)
        if running is None:
            return None
        if running.asks:
            self._give_back(running.executor, running.asks)
        else:
            self.free[running.executor.kind] += 1
        if running.timer is not None:
            running.timer.cancel()
        return running

    def release(self, attempts: Iterable[Fenced]) -> None:
        """A next life need not find out once more how these ended."""
        for attempt in attempts if self._unreleased else ():
            if attempt in self._unreleased:
                self._unreleased.discard(attempt)
                self._keeper.release(f"{attempt[0]}-{attempt[1]}")

    def add_successor(self, successor: Successor) -> None:
        """It takes a slot, and what else it asks for, from now on, in the place of one that waited already."""
        run_id = successor.assignment.run_id
        self._take(successor.executor, self._asks_for(successor.assignment))
        if run_id in self.successors:
            self.pop_successor(run_id)
        self.successors[run_id] = successor

    def pop_successor(self, run_id: int) -> Successor:
        """What it took is free until it is started."""
        successor = self.successors.pop(run_id)
        self._give_back(successor.executor, self._asks_for(successor.assignment))
        return successor

    def lasting(self) -> set[int]:
        """Return the runs that would go on without us."""
        return set(self.held) & set[int]().union(*(one.lasting() for one in self.lasters.values()))

    # ── killing ──
    def check_keeper(self) -> None:
        """Without its keeper an agent can neither start nor kill anything, and what ran is dead: it ends.
        The next start takes the runs back."""
        if not self._keeper.is_alive:
            raise Error("the keeper process of this agent died; its work died with it, and so must the agent")

    def let_go(self, run_id: int) -> None:
        """Kill what is not ours any more."""
        if run_id not in self._let_go:
            self._let_go.add(run_id)
            self.held[run_id].executor.stop(run_id, Reason.LOST)

    def let_go_all(self) -> None:
        for run_id in list(self.held):
            self.let_go(run_id)

    def was_let_go(self, run_id: int) -> bool:
        """Return whether our own stop ended a run; asked once."""
        if run_id not in self._let_go:
            return False
        self._let_go.discard(run_id)
        return True

    def drop_strangers(self, strangers: Collection[Fenced]) -> None:
        """What we hold and is not ours."""
        for run_id, fence in strangers:
            running = self.held.get(run_id)
            if running is not None and running.fence == fence:
                self.let_go(run_id)
            successor = self.successors.get(run_id)
            if successor is not None and successor.assignment.fence == fence:
                self.pop_successor(run_id)

    def cancel(self, attempts: Collection[Fenced]) -> None:
        """Kill what somebody asked to end."""
        for run_id, fence in attempts:
            running = self.held.get(run_id)
            if running is not None and running.fence == fence:
                running.executor.stop(run_id, Reason.REQUESTED)

    # ── resources ──
    def _asks_for(self, a: Assignment) -> Asks:
        """Return what a run takes of this agent beside one slot; most take nothing. What is not offered here at all is
        not ours to count: the service has seen to it."""
        resources = policies.resources_of(a.policy)
        if not resources:
            return ()
        return tuple(one for one in asks_of(resources) if one[0] == SLOTS or one[0] in self.free_resources)

    def _take(self, executor: Executor, asks: Asks) -> None:
        self.free[executor.kind] -= slots_of(asks) if asks else 1
        if asks:
            take(self.free_resources, beyond_slots(asks))

    def _give_back(self, executor: Executor, asks: Asks) -> None:
        self.free[executor.kind] += slots_of(asks) if asks else 1
        if asks:
            give_back(self.free_resources, beyond_slots(asks))

    def beyond_room(self, claimed: Iterable[Assignment], plain: Mapping[str, int]) -> list[Assignment]:
        """Return those of many for which there is no room, should the others be started, and beside them so many of
        each kind that ask for a slot alone (`plain`)."""
        slots = {kind: free - plain.get(kind, 0) for kind, free in self.free.items()}
        others = dict(self.free_resources)
        beyond = []
        for a in claimed:
            asks = self._asks_for(a)
            if fits(asks, of_kind(slots[a.kind], others)):
                slots[a.kind] -= slots_of(asks)
                take(others, beyond_slots(asks))
            else:
                beyond.append(a)
        return beyond
