"""Firing on SQLite: triggers move on, and runs are made as their overlap policy decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.model import Moment, Overlap, State
from horae.core.policy import order
from horae.core.runs.orders import Definition, Due, Fire, Fired, Lend, MadeRun, NewRun, Outcome
from horae.stores.orders import BARRED, FOLLOWING, TIMED, full, kept_share, overlapped, waiting_outcome
from horae.stores.parts.loans import LoanPart
from horae.stores.rows import definition_from_row, encode, from_json
from horae.stores.sqlite.definitions import SqliteDefinitions


class SqliteMoments(SqliteDefinitions, LoanPart):
    """Due moments, and the runs made of them."""

    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        rows = await self._get("load_due", encode(list(segments)), *after, until, limit)
        return [Due._make(row) for row in from_json(rows[0][0])]

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]:
        rows = await self._get("load_definitions", encode(list(trigger_ids)))
        return [definition_from_row(row) for row in from_json(rows[0][0])]

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        def write(connection: sqlite3.Connection) -> Fired:
            now = self._clock()
            stale = self._stale(connection, terms) if terms else frozenset()
            ripe = [f for f in fires if f.newest <= now and f.newest < f.next_at and f.segment not in stale]
            held = self._holding(connection, ripe)
            run_ids = [f.reserved or next(fresh) for fresh in (iter(self._next("run", len(held))),) for f in held]
            advances = [
                (f.trigger_id, f.cur_at, f.next_at, f.last_at, run_id if f.reserve else None)
                for f, run_id in zip(held, run_ids, strict=True)
            ]
            self._rows(connection, "advance_due", advances)
            born = [
                MadeRun(i, f.run, f.trigger_id, f.due_at, now) for i, f in zip(run_ids, held, strict=True) if f.born
            ]
            states = [outcome.state for outcome in self._bear(connection, born, now)]
            queued, skipped = states.count(State.QUEUED), states.count(State.SKIPPED)
            self._pass(connection, held, run_ids, now)
            self._save_ids(connection)
            if lend is not None:
                lent = self._walk(connection, self._lend_runs(run_ids, lend, now))
                queued -= len(lent)
            reserved = {f.trigger_id: run_id for f, run_id in zip(held, run_ids, strict=True) if f.reserve}
            return Fired({f.trigger_id for f in held}, queued, skipped, now, stale, reserved)

        return await self._do(write)

    def _stale(self, connection: sqlite3.Connection, terms: Mapping[int, int]) -> frozenset[int]:
        """Segments that have another term than the caller believes."""
        rows = self._run(connection, "load_segments")
        return frozenset(segment for segment, _, term in rows if terms.get(segment, term) != term)

    def _holding(self, connection: sqlite3.Connection, fires: Sequence[Fire]) -> Sequence[Fire]:
        """Return those whose due row still says what the scheduler saw."""
        rows = [(f.trigger_id, f.cur_at, f.version) for f in fires]
        found: set[int] = set()
        for statement, values in self._chunks("match_due", rows) if rows else ():
            found.update(from_json(connection.execute(statement, values).fetchone()[0]))
        return fires if len(found) == len(fires) else [f for f in fires if f.trigger_id in found]

    def _bear(self, connection: sqlite3.Connection, born: Sequence[MadeRun], now: Moment) -> list[Outcome]:
        """Write new runs as their overlap policy decides."""
        gated = [made.run.job_id for made in born if made.run.overlap != Overlap.ALLOW and not made.run.barred]
        taken = dict(self._json(connection, "taken_gates", encode(gated))) if gated else {}  # job → who has its gate
        outcomes: list[Outcome] = []
        live, past = [], []
        for made in born:
            new = made.run
            if new.barred:
                outcomes.append(BARRED)
                past.append(_skipped_row(made, BARRED, now))
                continue
            if new.overlap == Overlap.ALLOW or new.job_id not in taken:
                outcomes.append(waiting_outcome(new))
                live.append((made, outcomes[-1]))
            elif new.overlap == Overlap.FORBID:
                outcomes.append(overlapped(taken[new.job_id]))
                past.append(_skipped_row(made, outcomes[-1], now))
            else:
                outcomes.append(FOLLOWING)
            if new.overlap != Overlap.ALLOW:
                taken.setdefault(new.job_id, made.run_id)
        self._insert(connection, live)
        self._rows(connection, "insert_history", past)
        return [
            self._follow(connection, made, now) if outcome is FOLLOWING else outcome
            for made, outcome in zip(born, outcomes, strict=True)
        ]

    def _follow(self, connection: sqlite3.Connection, made: MadeRun, now: Moment) -> Outcome:
        """Write a run that found its gate taken, under `queue` or `replace`."""
        new = made.run
        waiting = [row[0] for row in self._run(connection, "waiting_of_job", new.job_id)]
        if new.overlap == Overlap.QUEUE and len(waiting) >= new.overlap_limit:
            outcome = full(len(waiting))
            self._rows(connection, "insert_history", [_skipped_row(made, outcome, now)])
            return outcome
        holder = self._run(connection, "gate_holder", new.job_id).fetchone()
        if new.overlap == Overlap.REPLACE:
            older, note = [*waiting, *([holder[0]] if holder else [])], f"replaced by run {made.run_id}"
            ended = self._end(connection, older, "replaced", promote=False, note=note)
            holder = holder if holder and holder[0] not in ended.ended else None
        outcome = FOLLOWING if holder else waiting_outcome(new)
        self._insert(connection, [(made, outcome)])
        return outcome

    def _insert(self, connection: sqlite3.Connection, made: Sequence[tuple[MadeRun, Outcome]]) -> None:
        """Write runs that wait, each behind those of its share."""
        at = self._take_places(connection, [one.run for one, _ in made])
        self._rows(connection, "insert_live", [live_row(*one, at) for one, at in zip(made, at, strict=True)])

    def _take_places(self, connection: sqlite3.Connection, runs: Sequence[NewRun]) -> list[int]:
        """Return the passes of new runs."""
        if not runs:
            return []
        places = order.places_of(runs)
        last = self._json(connection, "load_passes", encode([(*share[:4], share.stride) for share in places.shares]))
        last = [
            max(at, self._lines.at(share.line) - share.stride) for share, at in zip(places.shares, last, strict=True)
        ]
        at = order.passes(places, len(runs), last)
        far = zip(places.shares, order.furthest(places, at), strict=True)
        self._run(connection, "move_passes", encode([(*share[:4], pass_) for share, pass_ in far]))
        return at

    def _pass(self, connection: sqlite3.Connection, fires: Sequence[Fire], run_ids: Sequence[int], now: Moment) -> None:
        passed = [
            (f, run_id, *moment) for f, run_id in zip(fires, run_ids, strict=True) if f.passed for moment in f.passed
        ]
        fresh = self._next("run", len(passed))
        rows = [
            _history_row(
                i, f.run, f.trigger_id, at, now, state, reason, "", run_id if state == State.COALESCED else None
            )
            for i, (f, run_id, at, state, reason) in zip(fresh, passed, strict=True)
        ]
        self._rows(connection, "insert_history", rows)


def live_row(made: MadeRun, outcome: Outcome, at: int) -> tuple[Any, ...]:
    """Return a run that waits: for an agent, for what it asks for, for its predecessor, or for its moment. `at` is its
    pass."""
    new = made.run
    gate = new.job_id if outcome not in (*TIMED, FOLLOWING) and new.overlap != Overlap.ALLOW else None
    return (
        made.run_id, new.job_id, made.trigger_id, made.due_at, made.created_at, gate, new.start_by, int(outcome.state),
        str(outcome.reason), new.priority, new.overlap, new.kind, encode(new.needs) if new.needs else None, new.data,
        new.pin, made.due_at if outcome in TIMED else None, new.queue, at,
        kept_share(new) if outcome in TIMED else None, new.demand, new.parent_id, new.task, new.followed or None,
        new.resumes, new.depends or None,
    )  # fmt: skip


def _history_row(
    run_id: int,
    new: NewRun,
    trigger_id: int | None,
    due_at: Moment,
    now: Moment,
    state: int,
    reason: str,
    message: str,
    into: int | None,
) -> tuple[Any, ...]:
    return (
        run_id, new.job_id, trigger_id, due_at, now, None, now, into, 0, None, int(state), 0, new.priority, 0,
        new.kind, reason, None, message, None, None, new.data, new.parent_id, new.task, new.followed or None,
    )  # fmt: skip


def _skipped_row(made: MadeRun, outcome: Outcome, now: Moment) -> tuple[Any, ...]:
    state, reason, message = outcome
    row = _history_row(made.run_id, made.run, made.trigger_id, made.due_at, now, state, str(reason), message, None)
    return (*row[:4], made.created_at, *row[5:])
