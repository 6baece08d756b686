"""Turning due moments into runs.

    store's due table ── refill, some seconds ahead ──► a heap in memory ── at the moment ──► Store.fire

The heap is only a look-ahead: it may be stale, and two schedulers may hold the same trigger. What counts
is the compare-and-set inside Store.fire. So nothing here is ever lost by forgetting the heap: a sweep from
the beginning of time, at start, on every hint and every `scan_interval`, finds whatever is due.

Work per moment is kept to a few dictionary look-ups; next moments are computed once per (schedule, moment)
by core.schedule, and one statement fires a batch while the next is being prepared.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from horae.core import lifecycle, specs
from horae.core.model import SECOND, Misfire, Moment, Overlap, Policy, State
from horae.core.schedule import Schedule, compile_text
from horae.ports import NEVER, Birth, Clock, Definition, Due, Fire, Fired, Queue, Store
from horae.service.jobs import LOOK_AHEAD, birth_of
from horae.service.metrics import Metrics

BATCH = 1000  # moments fired in one statement
REFILL = 2 * SECOND  # the look-ahead is topped up when it has lost this much
PAGE = 10_000  # due rows read at once
CATCH_UP = 2000  # missed moments of one trigger looked at in one go; more than any limit of `run_all` and a half
CACHE = 200_000  # definitions kept; the oldest go first
DELAY_POLL = SECOND  # how often a fixed-delay trigger looks whether its run has ended

Entry = tuple[Moment, int, int, int, int | None]  # next_at, trigger_id, version, segment, reserved


class Known(NamedTuple):
    """A trigger as the scheduler remembers it."""

    version: int
    schedule: Schedule
    policy: Policy
    birth: Birth  # shared by all its runs, unless the policy sets a start deadline
    is_plain: bool  # one moment, one run: nothing to decide when it fires


class Firing:
    def __init__(self, store: Store, queue: Queue, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._heap: list[Entry] = []
        self._ahead: dict[int, tuple[Moment, int]] = {}  # trigger → (next_at, version) now in the heap
        self._known: dict[int, Known] = {}
        self._loaded_until: Moment = 0
        self._offset = 0  # store's clock minus ours, µs
        self.segments: frozenset[int] = frozenset()
        self.fired_at: Moment | None = None  # for readiness: the last time a tick came through

    def now(self) -> Moment:
        return self._clock.now() + self._offset

    async def set_clock(self) -> None:
        """Measure how far the store's clock is from ours; half of the way there and back is its age."""
        before = self._clock.now()
        theirs = await self._store.now()
        after = self._clock.now()
        self._offset = theirs - (before + after) // 2

    def own(self, segments: Iterable[int]) -> bool:
        """Take over a set of segments; what is not ours any more is forgotten. True when it changed."""
        wanted = frozenset(segments)
        if wanted == self.segments:
            return False
        self.segments = wanted
        self._heap.clear()
        self._ahead.clear()
        self._loaded_until = 0
        return True

    # ── the look-ahead ──
    async def refill(self, *, sweep: bool = False) -> None:
        """Read due rows up to the look-ahead; with `sweep`, from the beginning of time."""
        until = self.now() + LOOK_AHEAD
        if not self.segments or (not sweep and until < self._loaded_until + REFILL):
            return
        start = 0 if sweep else self._loaded_until
        after, segments = (start - 1, NEVER), sorted(self.segments)
        while True:
            rows = await self._store.load_due(segments, after, until, PAGE)
            await self._remember(rows)
            if len(rows) < PAGE:
                self._loaded_until = max(until, self._loaded_until)
                return
            after = (rows[-1].next_at, rows[-1].trigger_id)
            if rows[-1].next_at <= self.now():
                self._loaded_until = rows[-1].next_at  # what is overdue goes out first
                return

    async def _remember(self, rows: Sequence[Due]) -> None:
        fresh = [row for row in rows if self._ahead.get(row.trigger_id) != (row.next_at, row.version)]
        unknown = [row.trigger_id for row in fresh if not self._is_known(row.trigger_id, row.version)]
        for start in range(0, len(unknown), BATCH):
            for definition in await self._store.load_definitions(unknown[start : start + BATCH]):
                self._known[definition.trigger_id] = _know(definition)
        while len(self._known) > CACHE:
            del self._known[next(iter(self._known))]
        for row in fresh:
            self._push((row.next_at, row.trigger_id, row.version, row.segment, row.reserved))

    def _is_known(self, trigger_id: int, version: int) -> bool:
        known = self._known.get(trigger_id)
        return known is not None and known.version == version

    def _push(self, entry: Entry) -> None:
        self._ahead[entry[1]] = (entry[0], entry[2])
        heapq.heappush(self._heap, entry)

    # ── firing ──
    async def tick(self) -> Moment:
        """Fire everything that is due; answer when to look again."""
        flight: asyncio.Task[None] | None = None
        try:
            while entries := self._due(BATCH):
                fires = await self._prepare(entries)
                if flight is not None:
                    await flight
                flight = asyncio.create_task(self._commit(fires))
            if flight is not None:
                await flight
        except BaseException:
            self._loaded_until = 0  # what was taken off the heap is found again by the next refill
            self._ahead.clear()
            self._heap.clear()
            raise
        self.fired_at = self._clock.now()
        refill_at = self._loaded_until - LOOK_AHEAD + REFILL
        return min(self._heap[0][0], refill_at) if self._heap else refill_at

    def _due(self, limit: int) -> list[Entry]:
        """Take what is due off the heap, leaving out what has been replaced meanwhile."""
        heap, ahead, now = self._heap, self._ahead, self.now()
        found: list[Entry] = []
        while heap and heap[0][0] <= now and len(found) < limit:
            entry = heapq.heappop(heap)
            if ahead.get(entry[1]) == (entry[0], entry[2]):
                del ahead[entry[1]]
                found.append(entry)
        return found

    async def _prepare(self, entries: list[Entry]) -> list[Fire]:
        now = self.now()
        fires = []
        for entry in entries:
            known = self._known.get(entry[1])
            if known is None or known.version != entry[2]:
                continue  # evicted or changed: a sweep brings it back
            if known.schedule.delay is not None:
                fires.append(await self._after_delay(entry, known, known.schedule.delay, now))
            else:
                fires.append(_fire(entry, known, now))
        if len(fires) < len(entries):
            self._loaded_until = 0
        return fires

    async def _after_delay(self, entry: Entry, known: Known, delay: int, now: Moment) -> Fire:
        """A fixed-delay trigger counts from the end of its last run: fire, or move to the right moment."""
        (last,) = await self._store.load_last_runs([entry[1]])
        fire = _one(entry, known, next_at=entry[0] + delay)
        if last.is_live:
            return replace(fire, born=False, last_at=None, next_at=now + min(delay, DELAY_POLL))
        if last.finished_at is not None and last.finished_at + delay > now:
            return replace(fire, born=False, last_at=None, next_at=last.finished_at + delay)
        return replace(fire, next_at=now + min(delay, DELAY_POLL))

    async def _commit(self, fires: list[Fire]) -> None:
        if not fires:
            return
        fired = await self._store.fire(fires)
        self._offset = max(self._offset, fired.now - self._clock.now())
        self._metrics.batches["fire"] += 1
        self._metrics.fired += fired.queued
        self._metrics.passed += fired.skipped + sum(len(fire.passed) for fire in fires)
        if fired.queued:
            self._queue.announce("runs")
        if any(fire.birth.overlap == Overlap.REPLACE for fire in fires):
            self._queue.announce("cancel")
        self._follow_up(fires, fired)

    def _follow_up(self, fires: Sequence[Fire], fired: Fired) -> None:
        """Put the next moments within the look-ahead on the heap; see to those that did not fire."""
        advanced, until = fired.advanced, self._loaded_until
        all_held = len(advanced) == len(fires)
        for fire in fires:
            if not all_held and fire.trigger_id not in advanced:
                if fired.now < fire.cur_at:  # the store's clock was behind: soon
                    self._offset = fired.now - self._clock.now()
                    self._push((fire.cur_at, fire.trigger_id, fire.version, fire.segment, fire.reserved))
            elif fire.reserve:
                self._loaded_until = 0  # the reserved run id is in the store: read it from there
            elif fire.next_at < until:
                self._push((fire.next_at, fire.trigger_id, fire.version, fire.segment, None))


def _know(definition: Definition) -> Known:
    policy = specs.policy_from_text(definition.policy)
    schedule = compile_text(definition.schedule, definition.trigger_id, definition.created_at)
    birth = birth_of(definition.job_id, definition.kind, policy, 0, data=definition.data)
    is_plain = policy.start_deadline_seconds is None and policy.misfire is Misfire.RUN_LATEST
    return Known(definition.version, schedule, policy, birth, is_plain)


def _one(entry: Entry, known: Known, next_at: Moment) -> Fire:
    at, trigger_id, version, segment, reserved = entry
    birth = known.birth
    if known.policy.start_deadline_seconds is not None:
        birth = replace(birth, start_by=at + round(known.policy.start_deadline_seconds * SECOND))
    return Fire(trigger_id, segment, version, at, next_at, at, birth, at, reserved=reserved)


def _fire(entry: Entry, known: Known, now: Moment) -> Fire:
    """What one due trigger asks of the store: one run, and an account of all moments it missed."""
    next_at = known.schedule.next_after(entry[0])
    if known.is_plain and (next_at is None or next_at > now):
        return _one(entry, known, NEVER if next_at is None else next_at)
    moments = [entry[0], *known.schedule.moments(entry[0], now, CATCH_UP)]
    if len(moments) > CATCH_UP:
        return _first_part(entry, known, moments, now)
    count, state = lifecycle.missed(known.policy, moments, now)
    passed = [(moment, state, "misfire") for moment in moments[:count]]
    if count == len(moments):
        fire = _one(entry, known, NEVER if (after := known.schedule.next_after(moments[-1])) is None else after)
        return replace(fire, born=False, last_at=moments[-1], passed=passed)
    runs_at = moments[count]
    after = known.schedule.next_after(runs_at)
    fire = _one((runs_at, *entry[1:]), known, NEVER if after is None else after)
    return replace(fire, cur_at=entry[0], passed=passed)


def _first_part(entry: Entry, known: Known, moments: list[Moment], now: Moment) -> Fire:
    """More moments were missed than one statement takes: account for the older half of those seen.

    So many follow that none of these can be among the last that run; the rest is looked at right after.
    """
    half = CATCH_UP // 2
    _, state = lifecycle.missed(known.policy, moments, now)
    passed = [(moment, state, "misfire") for moment in moments[:half]]
    fire = _one(entry, known, moments[half])
    return replace(fire, born=False, last_at=moments[half - 1], passed=passed, reserve=state is State.COALESCED)
