"""Claims and results on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import getrandbits
from typing import Any, NamedTuple

from horae.core.model import Phase
from horae.core.policy.demands import Offer
from horae.core.policy.grants import Grants
from horae.core.policy.order import Line
from horae.core.runs.calls import Calls
from horae.core.runs.orders import Assignment, Backlog, Claimed, Finished, Order, Result, Started, Waiting, Want
from horae.ports.store.attempts import NO_CALLS
from horae.stores import limits, orders
from horae.stores.attempts import DEMANDS, HEADS, claimed_by, count_demanding, has_some_for_servers, settle, wants_of
from horae.stores.audit import confirm, orders_text
from horae.stores.parts.limits import STAMP_BITS, LimitPart
from horae.stores.parts.writes import WritePart, has_cursors
from horae.stores.postgres import marks
from horae.stores.postgres.arrays import (
    array_text,
    claim_arrays,
    columns,
    result_arrays,
    started_row,
    waiting_arrays,
    want_arrays,
)
from horae.stores.postgres.flows import PostgresFlows
from horae.stores.postgres.lanes import Connection
from horae.stores.rows import Row, decode, encode, from_json, new

# Columns of what a claim answers: those of the row of number 0, and of runs (number, Assignment …), with their line.
STEPPED, UNUSED, NOW, UNSEEN, FAR, MOVED, BEGUN = 1, 4, 5, 6, 7, 8, 9
RUN, KIND = 1, 7
GIVEN = slice(RUN, 19)
QUEUE, PRIORITY, PASS, DEMAND = 19, 20, 21, 22
NOBODY: Row = (None,) * 10
OTHERS_WAIT = 0.02  # seconds after which others find what one claim locked and did not take


class PostgresAttempts(PostgresFlows, WritePart, LimitPart):
    """Runs that agents work on, and what nobody has begun."""

    _grants: Grants
    _is_unused = False  # the last claim locked more than it took: another one may have found too little

    async def claim(
        self, wants: Sequence[Want], labels: Sequence[str] = (), *, standby: str | None = None
    ) -> list[list[Assignment] | None]:
        async with self._claim.use() as connection:
            rows, _ = await self._claim_rows(connection, wants, labels, standby, _Beside())
        return _dealt(wants, rows)

    async def claim_beside(
        self, offers: Sequence[Offer], labels: Sequence[str] = (), *, standby: str | None = None, is_fresh: bool = False
    ) -> Claimed:
        wants, stamp = wants_of(offers), getrandbits(STAMP_BITS)
        async with self._claim.use() as connection:
            granted, bounds = self._grants.of(offers)
            demands = {grant.demand_id: self._grants.demand(grant.demand_id) for grant in granted}
            beside = _Beside(granted, bounds, stamp, self._passed.of(is_fresh=is_fresh))
            rows, last = await self._claim_rows(connection, wants, labels, standby, beside)
        begun = from_json(last[BEGUN]) if last[BEGUN] else ()
        holding = {run_id: demands[id_] for id_, run_ids, _ in begun for run_id in run_ids}
        if begun:
            started = {id_: len(run_ids) for id_, run_ids, _ in begun}
            running = {id_: runs for id_, _, runs in begun}
            self._grants.note(started, running, from_json(last[MOVED] or "{}"), stamp, last[NOW])
        is_waiting = last[UNSEEN] is not None and not self._looked_at
        return claimed_by(offers, _dealt(wants, rows), holding, is_waiting)

    async def enqueue_started(self, order: Order, want: Want, labels: Sequence[str]) -> Started | None:
        async def work(connection: Connection) -> Started | None:
            floor = self._fence_floor()
            if floor is None:
                return None
            row = await connection.fetchrow(
                self.queries["enqueue_started"], self._clock(), *started_row(order, want, labels, floor, self._lines),
                orders_text([order]),
            )  # fmt: skip
            if order.deed is not None:
                order.deed.is_sent = row is not None
            return None if row is None else self._started(order, row)

        started = await self._repeated(self._claim, work)
        confirm([order])
        return started

    def _started(self, order: Order, row: Row) -> Started:
        run, (run_id, fence, now, at, name, spec, policy, owner) = order.run, row
        self._lines.note_started([(run.kind, run.queue, run.priority, at)])
        receipt = orders.receipt(order.made(run_id, now), orders.QUEUED, now)
        given = run_id, fence, 1, run.job_id, order.trigger_id, now, run.kind, name, spec, policy, run.data, owner
        return Started(replace(receipt, is_started=True), Assignment(*given))

    async def _claim_rows(
        self,
        connection: Connection,
        wants: Sequence[Want],
        labels: Sequence[str],
        standby: str | None,
        beside: _Beside,
    ) -> tuple[Sequence[Row], Row]:
        """Return the rows of runs, and that of number 0; nothing while nothing may be claimed."""
        floor = self._fence_floor()
        if floor is None:
            return (), NOBODY
        begin, began = self._marks.begin(labels, {want.kind for want in wants}), time.monotonic()
        unsaved = self._lines.unsaved()
        if standby is None and not (begin.marks or unsaved or beside.is_much) and _is_each_for_one(wants):
            asked = *want_arrays(wants), beside.passed is not None
            *rows, last = await connection.fetch(self.queries["claim_lean"], self._clock(), floor, labels, *asked)
            far: Sequence[Any] = _far(rows)
        else:
            more = *claim_arrays(wants, begin), standby, *columns(unsaved, 4), *beside.said()
            *rows, last = await connection.fetch(self.queries["claim"], self._clock(), floor, labels, *more)
            far = decode(last[FAR]) or ()
        self._lines.note_started((*line, at) for *line, at, _, _ in far)
        self._is_unused, stepped = bool(last[UNUSED]), last[STEPPED] or 0
        if begin.marks or stepped > marks.FEW:
            places = [(Line(*line), tuple(place)) for *line, _, _, place in far if place]
            taken = marks.Taken(sum(runs for *_, runs, _ in far), places)
            self._marks.note(labels, begin, stepped, taken, time.monotonic() - began)
        return rows, last

    async def look_again(self, labels: Sequence[str]) -> float | None:
        seconds = self._marks.look_again(labels)
        return OTHERS_WAIT if self._is_unused and seconds is None else seconds

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]:
        rows = await self._get("load_backlog", kinds, limit)
        return [Backlog(row[0], row[1], row[2] or (), row[3]) for row in rows]

    async def finish(
        self, results: Sequence[Result], waiting: Sequence[Waiting] = (), calls: Mapping[int, Calls] = NO_CALLS
    ) -> Finished:
        if not waiting and not has_cursors(results):
            return await self._repeated(self._finish, lambda connection: self._end_attempts(connection, results))

        async def transact(connection: Connection) -> Finished:
            ids = sorted(w.result.run_id for w in waiting)
            held = await connection.fetch(self.queries["lock_held"], ids) if ids else ()
            final, again = settle(waiting, {row[0] for row in held if row[1]})
            ended = await self._end_attempts(connection, [*results, *final])
            if has_cursors(results):
                now = await self._moment(connection)
                await self._walk(connection, self._move_cursors(results, ended.accepted, now))
            rows = await connection.fetch(self.queries["wait"], *waiting_arrays(again), self._clock()) if again else []
            told = [row for row in rows if row[3]]
            made = await self._make_calls(connection, [calls[row[0]] for row in rows if row[0] in calls])
            return replace(
                ended,
                accepted=ended.accepted | {row[0] for row in rows},
                promoted=ended.promoted + len(told) + made.queued,
                demanding=ended.demanding + count_demanding(told) + made.demanding,
                noted=ended.noted or made.noted or has_some_for_servers(told),
            )

        return await self._retried(self._finish, transact)

    async def _end_attempts(self, connection: Connection, results: Sequence[Result]) -> Finished:
        row = await connection.fetchrow(self.queries["finish"], *result_arrays(results), self._clock())
        assert row is not None
        return Finished(set(row[0] or ()), row[1], row[2], bool(row[3]))

    async def set_phases(self, phases: Sequence[tuple[int, int, Phase]], *, session: int | None = None) -> None:
        if phases:
            await self._put("set_phases", *map(list, zip(*phases, strict=True)), session)

    async def fail_unrunnable(self, kinds: Sequence[str], message: str, remedies: Mapping[str, str]) -> int:
        found = await self._look_through(kinds)
        async with self._upkeep.use() as connection:
            now = await self._moment(connection)
            given = (list(kinds), message, now, encode(dict(remedies)), limits.ROWS_AT_ONCE, HEADS, DEMANDS, found)
            return len(await connection.fetch(self.queries["fail_unrunnable"], *given))

    async def mark_unlabelled(self, agents: Sequence[Sequence[str]]) -> int:
        texts = [array_text(labels) or "{}" for labels in agents]
        return len(await self._put("mark_unlabelled", texts, limits.ROWS_AT_ONCE))


class _Beside(NamedTuple):
    """What goes with ordinary runs: runs that demand more than a slot, as far as they are granted."""

    granted: Sequence[Any] = ()
    bounds: Sequence[Any] = ()
    stamp: int = 0
    passed: Sequence[int] | None = None  # demands that somebody has looked at; None: nobody asks for others

    @property
    def is_much(self) -> bool:
        return bool(self.granted or self.passed)

    def said(self) -> tuple[Any, ...]:
        given = (encode(self.granted), encode(self.bounds)) if self.granted else (None, None)
        return *given, self.stamp, self.passed


def _is_each_for_one(wants: Sequence[Want]) -> bool:
    return len({want.kind for want in wants}) == len(wants)


def _far(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return how far each line has come, of runs pinned to nobody: the line, its last pass, how many of its runs demand
    nothing, and the last of these by pass and id."""
    lines: dict[tuple[str, int, int], tuple[int, int, tuple[int, int] | None]] = {}
    for row in rows:
        if row[RUN] is None or row[QUEUE] is None:
            continue
        line, at = (row[KIND], row[QUEUE], row[PRIORITY]), row[PASS]
        reached, runs, last = lines.get(line, (at, 0, None))
        if row[DEMAND] is None:
            runs, place = runs + 1, (at, row[RUN])
            last = place if last is None or place > last else last
        lines[line] = max(reached, at), runs, last
    return [(*line, *found) for line, found in lines.items()]


def _dealt(wants: Sequence[Want], rows: Sequence[Row]) -> list[list[Assignment] | None]:
    """Return what each want got."""
    claimed: list[list[Assignment] | None] = [[] for _ in wants]
    for row in rows:
        number = row[0] - 1
        given = claimed[number]
        if row[RUN] is None or given is None:  # of a session that is over
            claimed[number] = None
        else:
            given.append(new(Assignment, row[GIVEN]))
    return claimed
