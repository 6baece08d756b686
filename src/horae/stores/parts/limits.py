"""Demands, limits, and claims of runs that demand more than a slot.

Nothing is counted beside the runs themselves: what is in use of a key is the running rows that use it. So an attempt
that ends, is lost or is cancelled gives back all it had in the statement that moves its row, and a crash leaks nothing.

Two claims at once must not both see the last unit as free. So each first takes the rows of its keys, in one order, in a
statement of its own; what the next statement counts includes every start of whoever had them before. Locks are taken in
the order limits, nodes, live, and nobody waits for a row of `live`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import md5
from random import getrandbits
from types import MappingProxyType
from typing import Any, NamedTuple

from horae.core.model import SECOND, Moment
from horae.core.policy import grants, resources
from horae.core.policy.admission import Admission, Head, admit, large_ones
from horae.core.policy.demands import NOTHING, RESOURCE, Demand, Offer, demand_from_text, limits_of
from horae.core.policy.limits import Limit, LimitState
from horae.core.policy.queues import Queue
from horae.core.runs.lifecycle import first_phase
from horae.core.runs.orders import Assignment, Backlog, Claimed
from horae.core.work import policies
from horae.stores.database import Database, Steps
from horae.stores.limits import ROWS_AT_ONCE
from horae.stores.lines import Lines
from horae.stores.rows import Row, encode, from_json

DEMANDS_AT_ONCE = 500  # that one claim looks at; the next one goes on behind them
HEADS_AT_ONCE = 2000  # runs of them, if there are many
LOOKED_THROUGH = 20_000  # runs that are looked through at once for kinds that nobody has
COUNTED = 1000  # runs that wait with one demand, for people to see
MOST_HOLDING = 5000  # running ones
ROUND_GAP = 0.1  # seconds between two claims while there are more demands than one looks at
STAMP_BITS = 62
HOUR = 3600 * SECOND  # a row that is used says so at most once in it

Moved = tuple[str, int, int, int]  # a line (core.policy.order), and the pass to which it has come


class Passed(NamedTuple):
    """Waiting demands that the last look has passed over."""

    held: frozenset[int | None] = frozenset()  # because no more may start, wherever it were
    every: frozenset[int] = frozenset()  # those, and what these agents could not take

    def of(self, *, is_fresh: bool) -> list[int]:
        """Return those that need no look now; `is_fresh`: somebody has made runs since."""
        return [id_ for id_ in self.every if id_ in self.held or not is_fresh]


class LimitPart(Database):
    """What runs demand, and what is to be had of it."""

    _clock: Callable[[], Moment | None]
    _lines: Lines
    _grants: grants.Grants | None = None  # where runs may be started without a look
    _passed = Passed()
    _looked_at = 0  # the demand behind which the next claim goes on
    _looked_through = 0  # the run behind which `_look_through` goes on
    _kept: Mapping[str, int] = MappingProxyType({})  # node → run (core.policy.resources.reserve)
    _kept_at: Moment = 0  # when that was found out

    async def demand_ids(self, demands: Sequence[Demand]) -> list[int]:
        now = await self.now()
        documents = {demand.digest: demand.text for demand in demands}
        keys = sorted({use.key for demand in demands for use in demand.uses})

        def steps() -> Steps[dict[str, int]]:
            yield "put_limits", self._list(keys), now, now - HOUR
            yield "put_demands", encode(sorted(documents.items())), now, now - HOUR
            rows = yield "load_demand_ids", self._list(sorted(documents))
            return {row[0]: row[1] for row in rows}

        ids = await self._transact(steps)
        return [ids[demand.digest] for demand in demands]

    async def claim_demanding(self, offers: Sequence[Offer], *, standby: str | None = None) -> Claimed:
        waiting = await self._load_waiting()
        self._passed = Passed()
        if not waiting:
            return nothing_for(offers)
        outcome = await self._transact(lambda: self._claim_waiting(offers, waiting, standby))
        if outcome is None:
            return nothing_for(offers)._replace(is_waiting=True)
        self._lines.note_started(outcome.moved_lines())
        granted: Collection[int] = ()
        if self._grants is not None:
            outcome.teach(self._grants)
            granted = self._grants.plenty()
        left = frozenset(outcome.left_over()) - frozenset(granted)
        self._passed = Passed(outcome.admission.held, left)
        claimed = outcome.claimed(offers, ROUND_GAP if self._looked_at else None)
        return claimed._replace(is_waiting=bool(left), wanted=_keys([waiting[id_] for id_ in left]))

    async def _load_waiting(self) -> dict[int, Demand]:
        """Return demands with which runs wait; of very many, the next ones."""
        rows = await self._get("waiting_demands", self._looked_at, DEMANDS_AT_ONCE)
        if not rows and self._looked_at:
            rows = await self._get("waiting_demands", 0, DEMANDS_AT_ONCE)
        self._looked_at = rows[-1][0] if len(rows) == DEMANDS_AT_ONCE else 0
        return {row[0]: _demand(row[1]) for row in rows}

    def _claim_waiting(
        self, offers: Sequence[Offer], waiting: Mapping[int, Demand], standby: str | None
    ) -> Steps[Outcome | None]:
        """Return what became of it; None while nothing may be claimed."""
        floor = self._fence_floor()
        if floor is None:
            return None
        scene = yield from self._look(offers, waiting, standby)
        asked = [offer if scene.is_valid(offer) else offer._replace(room={}) for offer in offers]
        kept = yield from self._keep(scene)
        admission = admit(scene.heads, scene.usage, scene.limits, asked, scene.ordinary, scene.now, kept)
        started = yield from self._start(admission, offers, floor, scene.now)
        outcome = Outcome(scene, admission, started, getrandbits(STAMP_BITS))
        if keys := list(outcome.moved):
            yield "move_limits", self._list(keys), self._list([outcome.moved[key] for key in keys]), outcome.stamp
        return outcome

    def _look(self, offers: Sequence[Offer], waiting: Mapping[int, Demand], standby: str | None) -> Steps[Scene]:
        held = yield from self._hold(sorted({use.key for demand in waiting.values() for use in demand.uses}))
        kinds = sorted({kind for offer in offers for kind, room in offer.room.items() if room > 0})
        labels = sorted({label for offer in offers for label in offer.labels})
        room = sum(sum(offer.room.values()) for offer in offers)
        most = max(1, min(room, HEADS_AT_ONCE // len(waiting)))
        [row] = yield (
            "look_over_demands", self._clock(), self._list([offer.node for offer in offers]),
            self._list(list(waiting)), self._list(kinds), self._list(labels), most, room,
        )  # fmt: skip
        scene = Scene(row, waiting, held, most)
        if standby is not None:
            rows = yield "open_kinds", self._list(kinds), standby
            scene.leave_to_others({row[0] for row in rows})
        return scene

    def _keep(self, scene: Scene) -> Steps[dict[str, resources.Head]]:
        """Return which nodes are kept, and for whom. What is found holds for a second, as long as that run waits."""
        large, fronts = large_ones(scene.heads, scene.usage, scene.limits, scene.ordinary, scene.now)
        if not any(scene.now - one.since_at >= resources.RESERVE_AFTER for one in large):
            return {}
        if not self._kept_at <= scene.now < self._kept_at + SECOND:
            rows = yield ("load_supplies",)
            self._kept = resources.reserve(large, [_supply(row) for row in rows], scene.now, fronts)
            self._kept_at = scene.now
        waiting = {one.run_id: one for one in large}
        return {node: waiting[run_id] for node, run_id in self._kept.items() if run_id in waiting}

    def _start(
        self, admission: Admission, offers: Sequence[Offer], floor: int, now: Moment
    ) -> Steps[list[list[Assignment]]]:
        """Return what each offer got."""
        given: list[list[Assignment]] = [[] for _ in offers]
        numbers = {start.run_id: start.offer for start in admission.starts}
        starts = [(start.run_id, offers[start.offer].node, first_phase(start.kind)) for start in admission.starts]
        for row in (yield "start_demanding", encode(starts), floor, now) if starts else ():
            given[numbers[row[0]]].append(_assignment(row))
        return given

    def _hold(self, keys: Sequence[str]) -> Steps[dict[str, Row]]:
        """Hold the rows of keys; one that is not there any more is made again, because only a row can be held."""
        rows = yield "lock_limits", self._list(keys)
        if missing := sorted(set(keys) - {row[0] for row in rows}):
            yield "put_limits", self._list(missing), 0, 0
            rows = yield "lock_limits", self._list(keys)
        return {row[0]: row for row in rows}

    async def _look_through(self, kinds: Sequence[str]) -> list[int]:
        """Return runs that wait for limits and are of none of these kinds, of the next ones; the next time goes on
        behind them, and at last from the first."""
        rows = await self._get("look_through", self._list(kinds), self._looked_through, LOOKED_THROUGH)
        [(last, seen)] = [row for row in rows if row[1] is not None]
        found = sorted(row[0] for row in rows if row[1] is None)[:ROWS_AT_ONCE]
        is_cut = len(found) == ROWS_AT_ONCE
        self._looked_through = found[-1] if is_cut else last if seen == LOOKED_THROUGH else 0
        return found

    async def load_demanding(self, limit: int) -> list[Backlog]:
        demands = [row[0] for row in await self._get("waiting_demands", 0, DEMANDS_AT_ONCE)]
        rows = await self._get("load_demanding", self._list(demands), limit) if demands else ()
        counted = Counter((kind, pin, needs) for kind, pin, needs in rows)
        return [Backlog(kind, pin, _read(needs), runs) for (kind, pin, needs), runs in counted.items()]

    async def load_limits(self, run_id: int | None = None) -> list[LimitState]:
        wanted = ("waiting_demands", 0, DEMANDS_AT_ONCE) if run_id is None else ("demand_of_run", run_id)
        demands = {row[0]: _demand(row[1]) for row in await self._get(*wanted)}
        queues = {row[0]: _queue(row[0], 0, None, row[1]) for row in await self._get("load_queue_documents")}
        states: dict[str, LimitState] = {}
        for id_, waiting, policy, queue in await self._get("load_waiting_of", self._list(list(demands)), COUNTED):
            if policy is not None:  # else it started meanwhile
                _add(states, demands[id_], policy, queues[queue], waiting=waiting)
        asked = {use.key for demand in demands.values() for use in demand.uses} if run_id is not None else None
        for id_, document, policy, queue in await self._get("load_holding", MOST_HOLDING):
            _add(states, _demand(document), policy, queues[queue], run_id=id_, only=asked)
        kept = {row[0]: row for row in await self._get("load_limit_rows", self._list(sorted(states)))}
        return [_with_row(states[key], kept.get(key)) for key in sorted(states)]

    async def drop_demands(self, before: Moment, limit: int) -> int:
        dropped = await self._put("drop_demands", before, limit)
        limits = await self._put("drop_limits", before, await self.now())
        return len(dropped) + len(limits)

    async def load_resources(self) -> dict[str, int]:
        rows = await self._get("load_resources")
        return {row[0].removeprefix(RESOURCE): row[1] for row in rows}

    async def set_resource(self, name: str, capacity: int) -> None:
        await self._put("set_resource", f"{RESOURCE}{name}", capacity, await self.now())

    async def load_supplies(self) -> list[resources.Supply]:
        return [_supply(row) for row in await self._get("load_supplies")]

    async def drop_resource(self, name: str) -> bool:
        return bool(await self._put("drop_resource", f"{RESOURCE}{name}"))


class Scene:
    """What the database says before anybody is started, read."""

    def __init__(self, row: Row, waiting: Mapping[int, Demand], held: Mapping[str, Row], most: int) -> None:
        """`most`: runs of each demand that were looked at."""
        self.most = most
        self.waiting = waiting
        self.held = held
        now, lines, queues, running, heads, ordinary = row
        self.now: Moment = now
        self._sessions = dict(_read(lines))
        self.queues = {queue[0]: _queue(*queue) for queue in _read(queues)}
        self.running: Counter[int] = Counter()
        self.usage: Counter[str] = Counter()
        for id_, runs, document in _read(running):
            self.running[id_] = runs
            for use in _demand(document).uses:
                self.usage[use.key] += use.cost * runs
        self.limits: dict[str, Limit] = {}
        self.terms: dict[int, grants.Terms] = {}
        self.heads = [self._head(found, waiting[found[1]]) for found in _read(heads)]
        self.ordinary = [self._head(found, NOTHING) for found in _read(ordinary)]
        for found in _read(heads):
            self._note_limits(found, waiting[found[1]])

    def _head(self, found: Row, demand: Demand) -> Head:
        run_id, demand_id, queue, priority, turn, due_at, kind, pin, needs, _ = found
        offset, labels = self.queues[queue].priority_offset, frozenset(needs or ())
        return Head(run_id, priority + offset, turn, kind, queue, due_at, pin, labels, None, demand_id, demand)

    def _note_limits(self, found: Row, demand: Demand) -> None:
        text = found[9] or "{}"
        queue, own = self.queues[found[2]], {}
        for key, limit in limits_of(policies.policy_from_text(text), queue, demand.uses).items():
            _, capacity, ready_at, _ = self.held[key]
            own[key] = limit._replace(ready_at=ready_at, capacity=limit.capacity if capacity is None else capacity)
            self.limits[key] = own[key].tightened(self.limits[key]) if key in self.limits else own[key]
        version = queue.version if any(use.key.startswith("queue") for use in demand.uses) else None
        digest = md5(text.encode(), usedforsecurity=False).hexdigest()
        terms = grants.Terms(demand, own, frozenset([digest]), version, self.now + grants.HOLDS)
        self.terms[found[1]] = terms.beside(self.terms.get(found[1]))

    def is_valid(self, offer: Offer) -> bool:
        """Return whether it is of the line that counts."""
        return offer.session is None or self._sessions.get(offer.node) == offer.session

    def leave_to_others(self, open_kinds: set[str]) -> None:
        """Of the other kinds, a node that stands by takes only what is pinned to it."""
        self.heads = [head for head in self.heads if head.pin is not None or head.kind in open_kinds]
        self.ordinary = [head for head in self.ordinary if head.pin is not None or head.kind in open_kinds]


def moved_keys(scene: Scene, admission: Admission, started: Collection[int]) -> dict[str, Moment]:
    """Return the keys under which these runs were started: when each is ready."""
    moved: dict[str, Moment] = {}
    for key, _ in (use for head in scene.heads if head.run_id in started for use in head.demand.uses):
        limit = admission.moved.get(key)
        moved[key] = scene.held[key][2] if limit is None else limit.ready_at
    return moved


class Outcome:
    """What became of a look."""

    def __init__(self, scene: Scene, admission: Admission, started: list[list[Assignment]], stamp: int) -> None:
        self._scene = scene
        self._given = started
        self._started = {one.run_id for each in started for one in each}
        self.admission = admission
        self.stamp = stamp
        self.moved = moved_keys(scene, admission, self._started)

    def _heads(self) -> Iterator[Head]:
        """Those that were started."""
        return (head for head in self._scene.heads if head.run_id in self._started)

    def claimed(self, offers: Sequence[Offer], wait: float | None) -> Claimed:
        admission, scene = self.admission, self._scene
        given = [self._given[number] if scene.is_valid(offer) else None for number, offer in enumerate(offers)]
        waits = [] if wait is None else [wait]
        waits += [] if admission.next_at is None else [(admission.next_at - scene.now) / SECOND]
        waits += [0.0] if self._has_more() else []
        holding = {head.run_id: head.demand for head in self._heads()}
        return Claimed(
            given, admission.room_left(offers), True, admission.is_cut, min(waits, default=None), holding
        )  # fmt: skip

    def moved_lines(self) -> list[Moved]:
        """Return the lines of runs that were started, each with its pass. What is pinned says nothing of the others."""
        offsets = {id_: queue.priority_offset for id_, queue in self._scene.queues.items()}
        return [
            (head.kind, head.queue, head.rank - offsets[head.queue], head.turn)
            for head in self._heads()
            if head.pin is None
        ]

    def _has_more(self) -> bool:
        """Return whether all that was looked at of some demand has started, and there may be more of it."""
        return any(runs == self._scene.most for runs in self._done().values())

    def _done(self) -> dict[int | None, int]:
        """Return the demands of which all that was looked at has started, with its number."""
        found = Counter(head.demand_id for head in self._scene.heads)
        left = {head.demand_id for head in self._scene.heads if head.run_id not in self._started}
        return {id_: runs for id_, runs in found.items() if id_ not in left}

    def left_over(self) -> list[int]:
        """Return the demands of which some still wait, as far as one can tell."""
        done = self._done()
        return [id_ for id_ in self._scene.waiting if done.get(id_, self._scene.most) == self._scene.most]

    def teach(self, known: grants.Grants) -> None:
        scene = self._scene
        running, usage = scene.running.copy(), scene.usage.copy()
        for head in self._heads():
            running[head.demand_id or 0] += 1
            usage.update({use.key: use.cost for use in head.demand.uses})
        keys = {key: grants.Key(stamp, capacity, at) for key, capacity, at, stamp in scene.held.values()}
        keys |= {key: keys[key]._replace(stamp=self.stamp, ready_at=at) for key, at in self.moved.items()}
        known.learn(scene.terms, keys, running, usage, scene.now)


def _add(
    states: dict[str, LimitState], demand: Demand, policy: str, queue: Queue, *, waiting: int = 0,
    run_id: int | None = None, only: Collection[str] | None = None,
) -> None:  # fmt: skip
    """Count runs that wait, or one that runs, with what they demand."""
    limits = limits_of(policies.policy_from_text(policy), queue, demand.uses)
    for use in demand.uses:
        if only is None or use.key in only:
            known = states.get(use.key)
            limit = limits[use.key] if known is None else known.limit
            if known is None:
                known = LimitState(limit)
            elif run_id is None:
                known = known._replace(limit=limit.tightened(limits[use.key]))
            used, runs = (0, ()) if run_id is None else (use.cost, (run_id,))
            known = known._replace(used=known.used + used, waiting=known.waiting + waiting, runs=(*known.runs, *runs))
            states[use.key] = known if run_id is not None else known._replace(cost=use.cost)


def _with_row(state: LimitState, row: Row | None) -> LimitState:
    if row is None:
        return state
    _, capacity, ready_at = row
    limit = state.limit._replace(ready_at=ready_at)
    return state._replace(limit=limit if capacity is None else limit._replace(capacity=capacity))


def _keys(demands: Collection[Demand]) -> frozenset[str] | None:
    """Return what these use; None if some of them ask something of an agent."""
    if any(demand.asks for demand in demands):
        return None
    return frozenset(use.key for demand in demands for use in demand.uses)


def nothing_for(offers: Sequence[Offer]) -> Claimed:
    return Claimed([[] for _ in offers], [dict(offer.room) for offer in offers])


def _read(text: str | None) -> Any:
    return [] if text is None else from_json(text)


def _demand(document: str | None) -> Demand:
    """Of one whose row is gone, nothing is known that it would have to wait for."""
    return NOTHING if document is None else demand_from_text(document)


def _queue(id_: int, offset: int, labels: Sequence[str] | None, document: str, version: int = 1) -> Queue:
    said = from_json(document)
    return Queue(
        id_, "", priority_offset=offset, labels=tuple(labels or ()), concurrency=said.get("concurrency"),
        rate=said.get("rate"), burst=said.get("burst") or 1, version=version,
    )  # fmt: skip


def _supply(row: Row) -> resources.Supply:
    """Of a node, with the runs that it has: kind, how many, and what each of them demands."""
    name, labels, kinds, slots, capacity, offered, running = row
    every, own = from_json(capacity), from_json(offered)
    slots_of = {kind: every.get(kind, slots) for kind in from_json(kinds)}
    free_slots, free = Counter(slots_of), Counter(own)
    for kind, runs, document in _read(running):
        asks = _demand(document).asks
        free_slots[kind] -= runs * resources.slots_of(asks)
        free.subtract({name: runs * amount for name, amount in resources.beyond_slots(asks)})
    return resources.Supply(name, frozenset(from_json(labels)), slots_of, own, free_slots, free)


def _assignment(row: Row) -> Assignment:
    *run, job, data, answers, root = row
    name, spec, policy, owner = from_json(job)
    return Assignment._make((*run, name, spec, policy, data, owner, None, None, None, answers, None, root))
