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

Time is the store's. Between two answers of the store it is the elapsed time of this machine, plus the distance that was
measured: what its wall clock shows decides nothing, and a jump of it is only a reason to measure again, because the
store's clock may be the same one.

Work per moment is kept to a few dictionary look-ups; next moments are computed once per (schedule, moment)
by core.schedule, and one statement fires a batch while the next is being prepared.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import structlog

from horae.core import moments
from horae.core.model import SECOND, Moment, Overlap
from horae.errors import Unavailable
from horae.ports import NEVER, Clock, Definition, Due, Fire, Fired, Queue, Store
from horae.service.backlog import Backlog
from horae.service.jobs import LOOK_AHEAD
from horae.service.ledger import Entry, Known, Unreadable, account, entry_of, know, missed_since, offered_until
from horae.service.metrics import Metrics

log = structlog.get_logger()

BATCH = 1000  # triggers fired in one statement
FEW = 10  # missed moments of a trigger that are accounted for at once
MANY = 2 * BATCH  # moments accounted for in one statement
LATE = 10 * SECOND  # the age at which a due row that is read is no longer punctual
TURN = 0.005  # seconds of work after which others have their turn
REFILL = 2 * SECOND  # the look-ahead is topped up when it has lost this much
BUSY_REFILL = SECOND // 2  # or this, when many moments come: little at a time, so that none of them waits for it
PAGE = 2000  # due rows read at once
LOOK_UP = 250  # definitions read at once: moments that fall due meanwhile wait for no more than these
QUIET = 200  # moments in the look-ahead up to which reading all of it again costs nothing
LOOK_BACK = 10 * SECOND  # before the last look: the age of a moment that was written late
BEGINNING = (-1, 0)
CACHE = 200_000  # definitions kept; the oldest go first
JUMP = SECOND // 2  # of the wall clock against elapsed time: more than the time between reading the two
LONGEST_WAY = SECOND // 4  # of an answer from the store; by so much may its clock be older than it looks
LOOK_AGAIN = 5 * SECOND  # at moments put aside, while somebody may fire them who may also have gone


class Firing:
    def __init__(
        self, store: Store, queue: Queue, clock: Clock, metrics: Metrics, *, offer_seconds: float = 60.0
    ) -> None:
        """`offer_seconds`: how long a moment is left to a scheduler outside Horae."""
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._heap: list[Entry] = []
        self._ahead: dict[int, tuple[Moment, int]] = {}  # trigger → (next_at, version) now in the heap, or aside
        self._aside: list[tuple[Moment, Entry]] = []  # a heap of what is offered to others, by when to look again
        self._offer = round(offer_seconds * SECOND)
        self._backlog = Backlog(clock)
        metrics.behind = lambda: (len(self._backlog), self._backlog.moments)
        self._past: tuple[Moment, int] | None = None  # what is overdue from here on was not read yet
        self._known: dict[int, Known] = {}
        self._unreadable: dict[int, tuple[int, str]] = {}  # trigger → version, and why this node cannot fire it
        self._passed_by: dict[int, int] = {}  # those of them, with their version, that were met since the last sweep
        metrics.unreadable = lambda: {trigger_id: why for trigger_id, (_, why) in self._unreadable.items()}
        self._cursor = BEGINNING  # everything due up to here was read: (next_at, trigger_id)
        self._reading = BEGINNING  # a refill is under way up to here
        self._refill = REFILL
        self._looked_until: Moment = 0  # nothing up to here was overdue
        self._wall = self._wall_offset()
        self._offset = self._wall  # store's clock minus elapsed time, µs: until it is measured, as the wall clock says
        self._terms: dict[int, int] = {}  # our segments, with the term under which we own them
        self.is_superseded = False  # a write of ours was refused: ask which segments are left
        self.taken = 0  # due moments seen to, ever
        self.fired_at: Moment | None = None  # for readiness: the last time a tick came through

    def now(self) -> Moment:
        """The store's clock, as far as we know."""
        return self._elapsed() + self._offset

    def _elapsed(self) -> int:
        return round(self._clock.elapsed() * SECOND)

    def _wall_offset(self) -> int:
        return self._clock.now() - self._elapsed()

    async def set_clock(self) -> None:
        """Measure how far the store's clock is from ours; half of the way there and back is its age, unless that took
        long: nobody knows which half did, and ahead of the store we would take moments for missed that are not."""
        before = self._elapsed()
        theirs = await self._store.now()
        after = self._elapsed()
        self._offset = theirs - max((before + after) // 2, after - LONGEST_WAY)
        if self._has_jumped():
            seconds = (self._wall_offset() - self._wall) / SECOND
            log.warning("clock.jumped", seconds=round(seconds, 3), store_now=moments.format_moment(theirs))
        self._wall = self._wall_offset()

    def _has_jumped(self) -> bool:
        return abs(self._wall_offset() - self._wall) > JUMP

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
        if self._has_jumped():
            await self.set_clock()
        until = self.now() + LOOK_AHEAD
        if not self._terms:
            self._cursor = (until, 0)  # nothing to look for until some are given
            return
        if not sweep and until < self._cursor[0] + self._refill:
            return
        if sweep:
            self._bring_back(NEVER)
            self._try_again()
        segments = sorted(self._terms)
        self._reading = (until - 1, NEVER)
        try:
            if not sweep and len(self._ahead) > QUIET:
                await self._look_back(segments)
            cursor = BEGINNING if sweep or len(self._ahead) <= QUIET else self._cursor
            await self._read(segments, cursor, until)
        finally:
            self._reading = BEGINNING

    async def _read(self, segments: list[int], cursor: tuple[Moment, int], until: Moment) -> None:
        while True:
            rows = await self._store.load_due(segments, cursor, until, PAGE)
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
            if self._is_due():
                break
        self._refill = BUSY_REFILL if len(rows) > PAGE // 10 else REFILL

    def _is_due(self) -> bool:
        return bool(self._heap) and self._heap[0][0] <= self.now()

    def _start_over(self) -> None:
        """The next refill reads from the beginning of time; one under way does not count."""
        self._cursor = self._reading = BEGINNING

    def _forget(self) -> None:
        """Drop the look-ahead: the next refill finds all of it again."""
        self._start_over()
        self._past = None
        for part in (self._heap, self._ahead, self._aside, self._backlog):
            part.clear()

    async def _look_back(self, segments: list[int]) -> None:
        """Find moments that came into the look-ahead behind our back and are due by now. There are none, as a rule,
        and the range is short, because in a long one the index is full of what has fired."""
        now = self.now()
        rows = await self._store.load_due(segments, (self._looked_until - LOOK_BACK, 0), now, PAGE)
        await self._remember(rows)
        self._looked_until = now if len(rows) < PAGE else rows[-1].next_at

    async def _remember(self, rows: Sequence[Due]) -> None:
        ahead, passed_by = self._ahead, self._passed_by
        fresh = [
            row
            for row in rows
            if ahead.get(row.trigger_id) != (row.next_at, row.version) and passed_by.get(row.trigger_id) != row.version
        ]
        unknown = [row.trigger_id for row in fresh if not self._is_known(row.trigger_id, row.version)]
        turn = self._turn()
        for start in range(0, len(unknown), LOOK_UP):
            for definition in await self._store.load_definitions(unknown[start : start + LOOK_UP]):
                self._learn(definition)
                await turn()
            if self._is_due():
                await self.tick()
        while len(self._known) > CACHE:
            del self._known[next(iter(self._known))]
        overdue = self.now() - LATE
        for row in fresh:
            entry = entry_of(row)
            if row.trigger_id in passed_by:
                continue
            if row.next_at > overdue or not self._fall_behind(entry, least=0):
                self._push(entry)

    def _learn(self, definition: Definition) -> None:
        """Remember a definition. One that cannot be read here stops nobody else: it is passed by, and tried again at
        every sweep and with every new version; by then it may have an owner that can read it."""
        trigger_id, version = definition.trigger_id, definition.version
        try:
            self._known[trigger_id] = know(definition)
        except Unreadable as error:
            if self._unreadable.get(trigger_id) != (version, error.message):
                log.warning("trigger.unreadable", job_id=definition.job_id, version=version, error=error.message)
            self._unreadable[trigger_id] = (version, error.message)
            self._passed_by[trigger_id] = version
            self._known.pop(trigger_id, None)
        else:
            self._unreadable.pop(trigger_id, None)
            self._passed_by.pop(trigger_id, None)

    def _try_again(self) -> None:
        """Let what could not be read be read again; what was not met since the last time is gone, or not ours."""
        self._unreadable = {key: found for key, found in self._unreadable.items() if key in self._passed_by}
        self._passed_by.clear()

    def _is_known(self, trigger_id: int, version: int) -> bool:
        known = self._known.get(trigger_id)
        return known is not None and known.version == version

    def _turn(self) -> Callable[[], Awaitable[None]]:
        """To be awaited between pieces of work: gives way to others whenever ours has taken long enough."""
        began = self._clock.elapsed()

        async def turn() -> None:
            nonlocal began
            if self._clock.elapsed() - began >= TURN:
                await asyncio.sleep(0)
                began = self._clock.elapsed()

        return turn

    def _push(self, entry: Entry) -> None:
        self._ahead[entry[1]] = (entry[0], entry[2])
        heapq.heappush(self._heap, entry)

    def note_scan(self, seconds: float) -> None:
        """A sweep, and the firing of what it found, took so long."""
        self._metrics.observe_scan(seconds)

    # ── firing ──
    async def tick(self) -> Moment:
        """Fire everything that is due, but what is far behind; answer when to look again."""
        flight: asyncio.Task[None] | None = None
        self._bring_back(self.now())
        try:
            while entries := self._due(BATCH):
                is_full = len(entries) == BATCH
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
        wake_at = self._cursor[0] - LOOK_AHEAD + self._refill
        if self._aside:
            wake_at = min(self._aside[0][0], wake_at)
        return min(self._heap[0][0], wake_at) if self._heap else wake_at

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
        """What these ask of the store; of those that are far behind, nothing yet."""
        now, turn = self.now(), self._turn()
        fires: list[Fire] = []
        asking = []
        moments = 0
        for count, entry in enumerate(entries):
            known = self._known.get(entry[1])
            if known is None or known.version != entry[2]:
                self._start_over()  # evicted or changed: a sweep brings it back
            elif known.asks_first:
                asking.append((entry, known))
            elif not self._fall_behind(entry):
                fires.append(account(entry, known, now, most=FEW))
                moments += 1 + len(fires[-1].passed)
            if moments >= MANY:
                self._put_back(entries[count + 1 :])
                break
            await turn()
        self.taken += len(fires) + len(asking)
        self._metrics.scanned += len(fires) + len(asking)
        return fires + await self._prepare_asking(asking, now) if asking else fires

    def _put_back(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._push(entry)

    async def _prepare_asking(self, asking: Sequence[tuple[Entry, Known]], now: Moment) -> list[Fire]:
        """Those whose firing depends on what the store knows of other runs, or of other schedulers."""
        taken = await self._store.load_taken_segments() if any(known.policy.offered for _, known in asking) else {}
        free = [(entry, known) for entry, known in asking if not self._is_offered(entry, known, taken, now)]
        delayed = [entry[1] for entry, known in free if known.schedule.delay is not None]
        last = {run.trigger_id: run for run in await self._store.load_last_runs(delayed)} if delayed else {}
        return [
            account(entry, known, now, last.get(entry[1]), FEW) for entry, known in free if not self._fall_behind(entry)
        ]

    def _is_offered(self, entry: Entry, known: Known, taken: Collection[int], now: Moment) -> bool:
        """Whether a moment is left to somebody else for now; if so, it is put aside."""
        if not known.policy.offered or entry[3] not in taken:
            return False
        until = offered_until(entry[0], known.policy, self._offer)
        if until <= now:
            return False
        self._ahead[entry[1]] = (entry[0], entry[2])
        heapq.heappush(self._aside, (min(until, now + LOOK_AGAIN), entry))
        return True

    def _bring_back(self, until: Moment) -> None:
        """Look again at moments that were put aside up to then, unless they have been replaced meanwhile."""
        while self._aside and self._aside[0][0] <= until:
            entry = heapq.heappop(self._aside)[1]
            if self._ahead.get(entry[1]) == (entry[0], entry[2]):
                heapq.heappush(self._heap, entry)

    # ── what was missed ──
    @property
    def is_behind(self) -> bool:
        """Whether there is something for `catch_up` to do."""
        return bool(self._backlog) or self._past is not None

    @property
    def backlog(self) -> Backlog:
        return self._backlog

    def _fall_behind(self, entry: Entry, least: int = FEW) -> bool:
        """Put a trigger on the backlog if it has missed more than so many moments, or is overdue itself (`least` 0)."""
        known = self._known.get(entry[1])
        if known is None or known.version != entry[2] or (known.asks_first and not least):
            return False
        missed = missed_since(entry, known, self.now())
        if least and missed <= least:
            return False
        self._ahead[entry[1]] = (entry[0], entry[2])
        self._backlog.add(entry, missed + 1)
        return True

    async def catch_up(self) -> None:
        """Account for one portion of what was missed."""
        try:
            if self._past is not None and len(self._backlog) < PAGE:
                await self._read_past(self._past)
            began = self._clock.elapsed()
            fires = self._portion()
            await self._commit(fires)
        except BaseException:
            self._backlog.shrink()
            self._forget()
            raise
        moments = sum(len(fire.passed) + fire.born for fire in fires)
        self._metrics.scanned += len(fires)
        self._backlog.note(moments, self._clock.elapsed() - began)
        self._backlog.tell(more=self._past is not None)

    async def _read_past(self, cursor: tuple[Moment, int]) -> None:
        """One more page of what is overdue."""
        rows = await self._store.load_due(sorted(self._terms), cursor, self.now() - LATE, PAGE)
        self._past = (rows[-1].next_at, rows[-1].trigger_id) if len(rows) == PAGE else None
        await self._remember(rows)

    def _portion(self) -> list[Fire]:
        """The next moments of the backlog. Where they are hard to find, fewer, so that nobody waits for it."""
        now, began = self.now(), self._clock.elapsed()
        room, fires = self._backlog.portion, []
        for entry in self._backlog.take():
            if self._ahead.get(entry[1]) != (entry[0], entry[2]):
                continue  # replaced meanwhile
            del self._ahead[entry[1]]
            known = self._known.get(entry[1])
            if known is None or known.version != entry[2]:
                self._start_over()
                continue
            fires.append(account(entry, known, now, most=room))
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
        self._offset = max(self._offset, fired.now - self._elapsed())
        self._metrics.batches["fire"] += 1
        self._metrics.fired += fired.queued
        passed = sum(len(fire.passed) for fire in fires if fire.passed and fire.trigger_id in fired.advanced)
        self._metrics.passed += fired.skipped + passed
        if fired.queued or any(fire.birth.overlap >= Overlap.QUEUE for fire in fires):  # a successor may be free to go
            self._queue.announce("runs")
        if any(fire.birth.overlap == Overlap.REPLACE for fire in fires):
            self._queue.announce("cancel")
        if fired.stale:
            fires = self._give_up(fires, fired.stale)
        self._follow_up(fires, fired)

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
                    self._offset = fired.now - self._elapsed()
                    self._push(Entry(fire.cur_at, fire.trigger_id, fire.version, fire.segment, fire.reserved))
                else:
                    self._start_over()  # somebody else moved it: see where to
            elif (fire.next_at, fire.trigger_id) <= cursor:
                reserved = fired.reserved.get(fire.trigger_id)
                entry = Entry(fire.next_at, fire.trigger_id, fire.version, fire.segment, reserved)
                if fire.next_at > overdue or not self._fall_behind(entry, least=0):
                    self._push(entry)
