"""Turning due moments into runs.

    store's due table ── refill, some seconds ahead ──► a heap in memory ── at the moment ──► Store.fire

The heap is only a look-ahead: it may be stale, and two schedulers may hold the same trigger. What counts
is the compare-and-set inside Store.fire. So nothing here is ever lost by forgetting the heap: a sweep from
the beginning of time, at start, on every hint and every `scan_interval`, finds whatever is due.

A change whose hint was lost is found without it. While few moments come, every refill reads the whole look-ahead
again; when many come, that would cost too much, and each refill looks only at what should have fired since the
last one: so such a moment is late by a refill or two, not by a `scan_interval`.

A moment of a job that is offered (Policy.offered) is left for a while to the scheduler outside Horae that holds its
segment, if there is one. It is put aside, and looked at again when the offer ends, on every hint and every few seconds,
because its holder may have gone. Whoever fires it, the compare-and-set decides.

What was missed is caught up beside that (backlog.py): a trigger that is far behind is not fired with the others, but
put on the backlog, of which one portion at a time is accounted for, in a small transaction of its own. Portions are
steps: whoever dies in between, the next one goes on where the due row says. Of a long past, only what is punctual is
read at once, and the rest page by page, as the backlog has room.

Time is the store's (store_time.py). What is remembered of triggers is in plans.py, of their moments in look_ahead.py.

No moment waits for reading: what falls due while rows and definitions are read, on a connection of their own, is fired
beside that. Rows may then show a moment as it was before it fired: what was taken meanwhile is not taken from them.

Work per moment is kept to a few dictionary look-ups; next moments are computed once per (schedule, moment)
by core.schedule, and one statement fires a batch while the next is being prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from horae.core.members import is_external_name
from horae.core.model import SECOND, Moment, Overlap
from horae.core.runs.ledger import FiringPlan, account, account_one, missed_since, offered_until
from horae.core.runs.orders import NEVER, Due, Fire, Fired, NewRun, concern_others, highest_overlap
from horae.core.work.kinds import BY_SERVERS
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.store.cluster import Segments
from horae.ports.store.moments import Moments
from horae.ports.transport import Queue
from horae.service.firing.backlog import Backlog
from horae.service.firing.look_ahead import LookAhead
from horae.service.firing.plans import Plans
from horae.service.firing.store_time import StoreTime
from horae.service.jobs.changes import LOOK_AHEAD
from horae.service.metrics import Metrics
from horae.service.policy.placing import Placing, PlacingStore

FIRED_TOGETHER = 1000  # triggers fired in one statement
FEW = 10  # missed moments of a trigger that are accounted for at once
MOMENTS_TOGETHER = 2 * FIRED_TOGETHER  # moments accounted for in one statement
LATE = 10 * SECOND  # the age at which a due row that is read is no longer punctual
TURN = 0.005  # seconds of work after which others have their turn
AT_A_TIME = 8  # moments between two looks at the watch
REFILL = 2 * SECOND  # the look-ahead is topped up when it has lost this much
BUSY_REFILL = SECOND // 2  # or this, when many moments come: little at a time, so that none of them waits for it
PAGE = 2000  # due rows read at once
LOOK_UP = 250  # definitions read at once: moments that fall due meanwhile wait for no more than these
QUIET = 200  # moments in the look-ahead up to which reading all of it again costs nothing
LOOK_BACK = 10 * SECOND  # before the last look: the age of a moment that was written late
BEGINNING = (-1, 0)
VERSIONED = 3  # fields of a due row that say which moment of which version it is
T = TypeVar("T")
LONGEST_READ = 60.0  # seconds after which it is looked whether something is due beside it
LOOK_AGAIN = 5 * SECOND  # at moments put aside, while somebody may fire them who may also have gone


class FiringStore(Moments, Segments, PlacingStore, Protocol):
    """Due moments, whose they are, and where their runs wait."""


class Firing:
    def __init__(
        self, store: FiringStore, queue: Queue, clock: Clock, metrics: Metrics, *, offer_seconds: float = 60.0,
        foreign_kinds: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`offer_seconds`: how long a moment is left to a scheduler outside Horae. `foreign_kinds`: see Placing."""
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._ahead = LookAhead()
        self._offer = round(offer_seconds * SECOND)
        self._backlog = Backlog(clock)
        metrics.behind = lambda: (len(self._backlog), self._backlog.moments)
        self._past: tuple[Moment, int] | None = None  # what is overdue from here on was not read yet
        self._plans = Plans()
        self._placing = Placing(store, queue, foreign_kinds)
        metrics.unreadable = self._plans.unreadable
        self._cursor = BEGINNING  # everything due up to here was read: (next_at, trigger_id)
        self._reading = BEGINNING  # a refill is under way up to here
        self._taken_meanwhile: set[tuple[int | None, ...]] = set()  # by a tick, while a refill is under way
        self._refill = REFILL
        self._looked_until: Moment = 0  # nothing up to here was overdue
        self._time = StoreTime(store, clock)
        self._terms: dict[int, int] = {}  # our segments, with the term under which we own them
        self.is_superseded = False  # a write of ours was refused: ask which segments are left
        self.taken = 0  # due moments seen to, ever
        self.fired_at: Moment | None = None  # for readiness: the last time a tick came through

    def now(self) -> Moment:
        """Return the store's clock, as far as we know."""
        return self._time.now()

    async def set_clock(self) -> None:
        """Measure the store's clock anew."""
        await self._time.measure()

    def own(self, terms: Mapping[int, int]) -> bool:
        """Take over these segments, each under its term; what is not ours any more is forgotten. True when
        it changed."""
        self.is_superseded = False
        if terms == self._terms:
            return False
        self._terms = dict(terms)
        self._forget()
        return True

    # ── the look-ahead ──
    async def refill(self, *, sweep: bool = False) -> None:
        """Read due rows up to the look-ahead; with `sweep`, from the beginning of time.

        It stops where something is due: the rest is read after that was fired.
        """
        if self._time.has_jumped():
            await self.set_clock()
        until = self.now() + LOOK_AHEAD
        if not self._terms:
            self._cursor = (until, 0)  # nothing to look for until some are given
            return
        if not sweep and until < self._cursor[0] + self._refill:
            return
        if sweep:
            self._ahead.bring_back(NEVER)
            self._plans.try_again()
        segments = sorted(self._terms)
        self._reading = (until - 1, NEVER)
        try:
            if not sweep and len(self._ahead) > QUIET:
                await self._look_back(segments)
            cursor = BEGINNING if sweep or len(self._ahead) <= QUIET else self._cursor
            await self._read(segments, cursor, until)
        finally:
            self._reading = BEGINNING
            self._taken_meanwhile.clear()

    async def _read(self, segments: list[int], cursor: tuple[Moment, int], until: Moment) -> None:
        while True:
            rows = await self._beside(self._store.load_due(segments, cursor, until, PAGE))
            await self._remember(rows)
            if self._reading == BEGINNING:
                return  # a moment that fired in between asks for a new start
            if len(rows) < PAGE:
                self._cursor = max(self._cursor, (until - 1, NEVER))
                break
            cursor = (rows[-1].next_at, rows[-1].trigger_id)
            if cursor < (recent := (self.now() - LATE, 0)):  # a long past: what is punctual comes first
                self._past, cursor = cursor, recent
                continue
            self._cursor = cursor
            if self._ahead.is_due(self.now()):
                break
        self._refill = BUSY_REFILL if len(rows) > PAGE // 10 else REFILL

    def _start_over(self) -> None:
        """The next refill reads from the beginning of time; one under way does not count."""
        self._cursor = self._reading = BEGINNING

    def _forget(self) -> None:
        """Drop the look-ahead: the next refill finds all of it again."""
        self._start_over()
        self._past = None
        self._ahead.clear()
        self._backlog.clear()

    async def _look_back(self, segments: list[int]) -> None:
        """Find moments that came into the look-ahead behind our back and are due by now. There are none, as a rule,
        and the range is short, because in a long one the index is full of what has fired."""
        now = self.now()
        rows = await self._beside(self._store.load_due(segments, (self._looked_until - LOOK_BACK, 0), now, PAGE))
        await self._remember(rows)
        self._looked_until = now if len(rows) < PAGE else rows[-1].next_at

    async def _remember(self, rows: Sequence[Due]) -> None:
        ahead, plans = self._ahead, self._plans
        unknown = plans.unknown(plans.untried(ahead.without_known(rows)))
        turn = self._turn()
        for start in range(0, len(unknown), LOOK_UP):
            some = unknown[start : start + LOOK_UP]
            for definition in await self._beside(self._store.load_definitions(some)):
                plans.read(definition)
                await turn()
            if ahead.is_due(self.now()):
                await self.tick()
        plans.shrink()
        overdue, taken = self.now() - LATE, self._taken_meanwhile
        for entry in plans.readable(ahead.without_known(rows)):
            if entry[:VERSIONED] in taken:
                continue
            if entry[0] > overdue or not self._is_overdue(entry):
                ahead.push(entry)

    async def _beside(self, reading: Coroutine[Any, Any, T]) -> T:
        """Fire what falls due while something is read."""
        task = asyncio.create_task(reading)
        try:
            while not await self._is_done_first(task):
                await self.tick()
        except BaseException:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        return task.result()

    async def _is_done_first(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a task is done before the next moment is due."""
        seconds = (self._ahead.next_at(NEVER) - self.now()) / SECOND
        if seconds > 0:
            await asyncio.wait({task}, timeout=min(seconds, LONGEST_READ))
        return task.done()

    def _turn(self) -> Callable[[], Awaitable[None]]:
        """To be awaited between pieces of work: gives way to others whenever ours has taken long enough."""
        began = self._clock.elapsed()

        async def turn() -> None:
            nonlocal began
            if self._clock.elapsed() - began >= TURN:
                await asyncio.sleep(0)
                began = self._clock.elapsed()

        return turn

    def note_scan(self, seconds: float) -> None:
        """A sweep, and the firing of what it found, took so long."""
        self._metrics.observe_scan(seconds)

    # ── firing ──
    async def tick(self) -> Moment:
        """Fire everything that is due, but what is far behind; return when to look again."""
        flight: asyncio.Task[None] | None = None
        self._ahead.bring_back(self.now())
        try:
            while entries := self._ahead.take_due(self.now(), FIRED_TOGETHER):
                if self._reading != BEGINNING:
                    self._taken_meanwhile.update([entry[:VERSIONED] for entry in entries])
                is_full = len(entries) == FIRED_TOGETHER
                fires = await self._prepare(entries)
                if flight is not None:
                    await flight
                flight = asyncio.create_task(self._commit(fires))
                if not is_full:
                    break  # what falls due meanwhile makes the next batch
            if flight is not None:
                await flight
        except BaseException:
            if flight is not None:
                flight.cancel()
                await asyncio.gather(flight, return_exceptions=True)
            self._forget()  # what was taken off the heap is found again by the next refill
            raise
        self.fired_at = self._clock.now()
        return self._ahead.next_at(self._cursor[0] - LOOK_AHEAD + self._refill)

    async def _prepare(self, entries: list[Due]) -> list[Fire]:
        """Return what these ask of the store; of those that are far behind, nothing yet."""
        now, turn = self.now(), self._turn()
        fires: list[Fire] = []
        asking = []
        moments = 0
        plans = await self._placed(entries)
        for count, (entry, plan) in enumerate(zip(entries, plans, strict=True)):
            if plan is None:
                self._start_over()  # evicted or changed: a sweep brings it back
            elif plan.asks_first:
                asking.append((entry, plan))
            elif (fire := account_one(entry, plan, now)) is not None:
                fires.append(fire)
                moments += 1
            elif not self._fall_behind(entry, plan, now):
                fires.append(account(entry, plan, now, most=FEW))
                moments += 1 + len(fires[-1].passed)
            if moments >= MOMENTS_TOGETHER:
                for rest in entries[count + 1 :]:
                    self._ahead.push(rest)
                break
            if not count % AT_A_TIME:
                await turn()
        self.taken += len(fires) + len(asking)
        return self._placing.let_in(fires + await self._prepare_asking(asking, now) if asking else fires)

    async def _placed(self, entries: Sequence[Due]) -> list[FiringPlan | None]:
        """Return the plans of these, as far as they are known, each with its place."""
        plans = [self._plans.get(entry[1], entry[2]) for entry in entries]
        await self._placing.place_plans(plans)
        return plans

    async def _prepare_asking(self, asking: Sequence[tuple[Due, FiringPlan]], now: Moment) -> list[Fire]:
        """Return those whose firing depends on what the store knows of other runs, or of other schedulers."""
        taken = await self._load_taken() if any(plan.policy.offered for _, plan in asking) else set()
        free = [(entry, plan) for entry, plan in asking if not self._is_offered(entry, plan, taken, now)]
        delayed = [entry[1] for entry, plan in free if plan.schedule.delay is not None]
        last = {run.trigger_id: run for run in await self._store.load_last_runs(delayed)} if delayed else {}
        return [
            account(entry, plan, now, last.get(entry[1]), FEW)
            for entry, plan in free
            if not self._fall_behind(entry, plan, now)
        ]

    async def _load_taken(self) -> set[int]:
        """Segments that schedulers outside Horae hold; those that our own were told of are fired at once."""
        taken = await self._store.load_taken_segments()
        return {segment for segment, (worker, _) in taken.items() if is_external_name(worker)}

    def _is_offered(self, entry: Due, plan: FiringPlan, taken: Collection[int], now: Moment) -> bool:
        """Return whether a moment is left to somebody else for now; if so, it is put aside."""
        if not plan.policy.offered or entry[3] not in taken:
            return False
        until = offered_until(entry[0], plan.policy, self._offer)
        if until <= now:
            return False
        self._ahead.put_aside(entry, min(until, now + LOOK_AGAIN))
        return True

    # ── what was missed ──
    @property
    def is_behind(self) -> bool:
        """Whether there is something for `catch_up` to do."""
        return bool(self._backlog) or self._past is not None

    @property
    def backlog(self) -> Backlog:
        return self._backlog

    def _is_overdue(self, entry: Due) -> bool:
        """Put a trigger whose moment is long past on the backlog; not one that asks first, nor one unknown."""
        plan = self._plans.get(entry[1], entry[2])
        return plan is not None and not plan.asks_first and self._fall_behind(entry, plan, self.now(), least=0)

    def _fall_behind(self, entry: Due, plan: FiringPlan, now: Moment, least: int = FEW) -> bool:
        """Put a trigger on the backlog if it has missed more than so many moments, or in any case (`least` 0)."""
        missed = missed_since(entry, plan, now)
        if least and missed <= least:
            return False
        self._ahead.keep(entry)
        self._backlog.add(entry, missed + 1)
        return True

    async def catch_up(self) -> None:
        """Account for one portion of what was missed."""
        try:
            if self._past is not None and len(self._backlog) < PAGE:
                await self._read_past(self._past)
            began = self._clock.elapsed()
            fires = self._placing.let_in(await self._portion())
            await self._commit(fires)
        except BaseException:
            self._backlog.shrink()
            self._forget()
            raise
        moments = sum(len(fire.passed) + fire.born for fire in fires)
        self._backlog.note(moments, self._clock.elapsed() - began)
        self._backlog.report(more=self._past is not None)

    async def _read_past(self, cursor: tuple[Moment, int]) -> None:
        """One more page of what is overdue."""
        rows = await self._store.load_due(sorted(self._terms), cursor, self.now() - LATE, PAGE)
        self._past = (rows[-1].next_at, rows[-1].trigger_id) if len(rows) == PAGE else None
        await self._remember(rows)

    async def _portion(self) -> list[Fire]:
        """Return the next moments of the backlog. Where they are hard to find, fewer, so that nobody waits for it."""
        now, began = self.now(), self._clock.elapsed()
        room, fires = self._backlog.portion, []
        for entry in self._backlog.take():
            if not self._ahead.drop(entry):
                continue  # replaced meanwhile
            [plan] = await self._placed([entry])
            if plan is None:
                self._start_over()
                continue
            fires.append(account(entry, plan, now, most=room))
            room -= len(fires[-1].passed) + 1
            if room <= self._backlog.portion // 4 or self._clock.elapsed() - began >= TURN:
                break
        return fires

    async def _commit(self, fires: Sequence[Fire]) -> None:
        if not fires:
            return
        try:
            fired = await self._store.fire(fires, self._terms)
        except Unavailable:
            self._queue.announce("runs")  # it may have happened
            raise
        self._time.is_at_least(fired.now)
        self._metrics.batches["fire"] += 1
        self._metrics.fired += fired.queued
        self._count(fires, fired.advanced)
        passed = sum(len(fire.passed) for fire in fires if fire.passed and fire.trigger_id in fired.advanced)
        self._metrics.passed += fired.skipped + passed
        self._announce([fire.run for fire in fires], fired)
        if fired.stale:
            fires = self._give_up(fires, fired.stale)
        self._follow_up(fires, fired)

    def _announce(self, runs: Sequence[NewRun], fired: Fired) -> None:
        """Tell those who wait for such runs."""
        overlap = highest_overlap(runs)
        demanding = [run for run in runs if run.demand is not None]
        if demanding:
            self._queue.announce("limits")
        if demanding or fired.queued or overlap >= Overlap.QUEUE:  # a successor may be free to go
            self._queue.announce("runs")
        if overlap == Overlap.REPLACE:
            self._queue.announce("cancel")
        if concern_others(runs) or not BY_SERVERS.isdisjoint([run.kind for run in runs]):
            self._queue.announce("endings")

    def _count(self, fires: Sequence[Fire], advanced: Collection[int]) -> None:
        """Each moment once, when it is accounted for: however often it was looked at before."""
        load, before = self._metrics.segment_load, self._metrics.scanned
        for fire in fires:
            if fire.trigger_id in advanced:
                moments = fire.born + len(fire.passed)
                load[fire.segment] += moments
                before += moments
        self._metrics.scanned = before

    def _give_up(self, fires: Sequence[Fire], stale: Collection[int]) -> list[Fire]:
        """Segments that somebody else owns by now: what we wanted to fire there was refused, and is theirs."""
        self._terms = {segment: term for segment, term in self._terms.items() if segment not in stale}
        self.is_superseded = True
        kept = [fire for fire in fires if fire.segment not in stale]
        self._metrics.fenced += len(fires) - len(kept)
        return kept

    def _follow_up(self, fires: Sequence[Fire], fired: Fired) -> None:
        """Put the next moments within the look-ahead on the heap; see to those that did not fire.

        A refill under way may have read its rows before these moved on: up to its end they are remembered here.
        """
        advanced, cursor, overdue = fired.advanced, max(self._cursor, self._reading), self.now() - LATE
        all_held = len(advanced) == len(fires)
        for fire in fires:
            if not all_held and fire.trigger_id not in advanced:
                if fired.now < fire.newest:  # the store's clock was behind: soon
                    self._time.is_only(fired.now)
                    self._ahead.push(Due(fire.cur_at, fire.trigger_id, fire.version, fire.segment, fire.reserved))
                else:
                    self._start_over()  # somebody else moved it: see where to
            elif (fire.next_at, fire.trigger_id) <= cursor:
                reserved = fired.reserved.get(fire.trigger_id)
                entry = Due(fire.next_at, fire.trigger_id, fire.version, fire.segment, reserved)
                if fire.next_at > overdue or not self._is_overdue(entry):
                    self._ahead.push(entry)
