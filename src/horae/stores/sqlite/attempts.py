"""Claims and results on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from horae.core.definitions import Receipt
from horae.core.members import org_in
from horae.core.model import Moment, Phase, State
from horae.core.policy.demands import Offer
from horae.core.runs.calls import Calls
from horae.core.runs.lifecycle import first_phase
from horae.core.runs.orders import Assignment, Backlog, Claimed, Finished, Order, Result, Started, Waiting, Want
from horae.core.runs.waits import read_answers
from horae.core.waits import awaited
from horae.ports.store.attempts import NO_CALLS
from horae.stores import limits
from horae.stores.attempts import (
    ANSWERS,
    DEMANDS,
    HEADS,
    KIND,
    PASS,
    PIN,
    PRIORITY,
    QUEUE,
    ROOT,
    RUN,
    claimed_by,
    count_demanding,
    deal,
    has_some_for_servers,
    next_standing,
    place_in_time,
    room_by_kind,
    settle,
    wants_of,
)
from horae.stores.audit import confirm, deeds_done
from horae.stores.parts.limits import LimitPart
from horae.stores.parts.writes import WritePart, has_cursors
from horae.stores.rows import Row, encode, from_json
from horae.stores.sqlite.flows import SqliteFlows


class SqliteAttempts(SqliteFlows, WritePart, LimitPart):
    """Runs that agents work on, and what nobody has begun."""

    async def claim(
        self, wants: Sequence[Want], labels: Sequence[str] = (), *, standby: str | None = None
    ) -> list[list[Assignment] | None]:
        return (await self._claim_runs(wants, labels, standby, None))[0]

    async def claim_beside(
        self, offers: Sequence[Offer], labels: Sequence[str] = (), *, standby: str | None = None, is_fresh: bool = False
    ) -> Claimed:
        passed = self._passed.of(is_fresh=is_fresh)
        answers, is_waiting = await self._claim_runs(wants_of(offers), labels, standby, passed)
        return claimed_by(offers, answers, {}, is_waiting and not self._looked_at)

    async def _claim_runs(
        self, wants: Sequence[Want], labels: Sequence[str], standby: str | None, passed: Sequence[int] | None
    ) -> tuple[list[list[Assignment] | None], bool]:
        """Return what each want got, and whether a run waits whose demand is not among those `passed`, if given."""
        unsaved = [(*line, "", at) for *line, at in self._lines.unsaved()]

        def write(connection: sqlite3.Connection) -> tuple[list[list[Any] | None], bool]:
            now, text = self._clock(), encode(list(labels))
            valid = [want for want in wants if self._may_claim(connection, want)]
            queues, found = self._open_queues(connection, labels), []
            for kind, room in room_by_kind(valid).items():
                if standby is None or self._run(connection, "is_open", standby, kind).fetchone():
                    for queue, offset in queues.items():
                        found += self._json(connection, "pick", kind, text, room, now, queue, offset)
            for want in valid:
                pinned = want.kind, text, want.capacity, now, want.node, encode(list(queues))
                found += self._json(connection, "pick_pinned", *pinned)
            given = dict(zip(valid, deal(valid, found), strict=True))
            for want, rows in given.items():
                ids = encode([row[RUN] for row in rows])
                self._run(connection, "claim", want.node, now, ids, first_phase(want.kind)) if rows else None
            self._run(connection, "move_passes", encode(unsaved)) if unsaved else None
            is_waiting = (
                passed is not None and self._run(connection, "is_waiting", encode(passed)).fetchone() is not None
            )
            return [given.get(want) for want in wants], is_waiting

        answers, is_waiting = await self._do(write)
        taken = [row for rows in answers for row in rows or ()]
        self._lines.note_started((row[KIND], row[QUEUE], row[PRIORITY], row[PASS]) for row in taken if row[PIN] is None)
        claimed = [None if rows is None else [_assignment(row) for row in rows] for rows in answers]
        return claimed, is_waiting

    async def enqueue_started(self, order: Order, want: Want, labels: Sequence[str]) -> Started | None:
        def write(connection: sqlite3.Connection) -> tuple[Receipt, Row | None] | None:
            queue = order.run.queue
            is_open = self._may_claim(connection, want) and queue in self._open_queues(connection, labels)
            if not is_open or self._run(connection, "has_queued", want.kind).fetchone():
                return None
            now = self._clock()
            [receipt] = self._carry_out_once(connection, [order], now)
            self._append(connection, deeds_done([order], [receipt]))
            if receipt.run is None or receipt.run.state is not State.QUEUED:
                return receipt, None
            [row] = self._json(connection, "pick", want.kind, encode(list(labels)), 1, now, queue, 0)
            self._run(connection, "claim", want.node, now, encode([row[RUN]]), first_phase(want.kind))
            return receipt, row

        done = await self._do(write)
        if done is None:
            return None
        confirm([order])
        receipt, row = done
        if row is None:
            return Started(receipt, None)
        self._lines.note_started([(row[KIND], row[QUEUE], row[PRIORITY], row[PASS])])
        return Started(replace(receipt, is_started=True), _assignment(row))

    def _open_queues(self, connection: sqlite3.Connection, labels: Sequence[str]) -> dict[int, int]:
        """Queue → offset of its priorities, for those from which an agent with these labels may take."""
        rows, own = self._run(connection, "open_queues").fetchall(), org_in(labels)
        open_ones = [row for row in rows if set(from_json(row[2] or "[]")) <= set(labels)]
        return {id_: offset for id_, offset, _, org in open_ones if own in (None, org)}

    async def look_again(self, labels: Sequence[str]) -> float | None:
        return None

    def _may_claim(self, connection: sqlite3.Connection, want: Want) -> bool:
        return want.session is None or bool(self._run(connection, "may_claim", want.node, want.session).fetchone())

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]:
        rows = [row for kind in kinds for row in await self._get("load_backlog", kind, limit)]
        return [Backlog(row[0], row[1], from_json(row[2] or "[]"), row[3]) for row in rows]

    async def finish(
        self, results: Sequence[Result], waiting: Sequence[Waiting] = (), calls: Mapping[int, Calls] = NO_CALLS
    ) -> Finished:
        def write(connection: sqlite3.Connection) -> Finished:
            ids = [r.run_id for r in results] + [w.result.run_id for w in waiting]
            current = {row[0]: row for row in self._json(connection, "match_running", encode(ids))}
            final, again = settle(waiting, {run_id for run_id, row in current.items() if row[3]})
            ended = [r for r in (*results, *final) if r.run_id in current and current[r.run_id][1] == r.fence]
            now = self._clock()
            self._rows(
                connection, "archive", [_result_row(r, place_in_time(r, current[r.run_id][4], now)) for r in ended]
            )
            self._run(connection, "drop_live", encode([r.run_id for r in ended]))
            jobs = [current[r.run_id][2] for r in ended if current[r.run_id][2] is not None]
            promoted = self._run(connection, "promote", encode(jobs)).fetchall() if jobs else []
            again = [w for w in again if w.result.run_id in current and current[w.result.run_id][1] == w.result.fence]
            told = [
                row
                for w in again
                for row in self._wait(connection, w, place_in_time(w.result, current[w.result.run_id][4], now))
            ]
            if has_cursors(ended):
                self._walk(connection, self._move_cursors(ended, current, self._clock()))
            accepted = {r.run_id for r in ended} | {w.result.run_id for w in again}
            going_on = [*promoted, *told]
            is_noted = any(current[r.run_id][5] for r in ended) or has_some_for_servers(going_on)
            made = self._make_calls(connection, [calls[i] for w in again if (i := w.result.run_id) in calls])
            demanding = count_demanding(going_on) + made.demanding
            return Finished(accepted, len(going_on) + made.queued, demanding, is_noted or made.noted)

        return await self._do(write)

    def _wait(self, connection: sqlite3.Connection, waiting: Waiting, times: tuple[Moment | None, Moment]) -> list[Row]:
        """Return its run (id, demand, kind), if it goes on at once because it was told already what it waits for."""
        r, awaits = waiting.result, None if waiting.wait is None else awaited(waiting.wait)
        if waiting.begun or (waiting.wait is not None and r.output is not None):
            self._run(
                connection, "add_attempt", r.run_id, r.state, r.reason, *times, r.exit_code, r.message, r.output,
            )  # fmt: skip
        else:
            self._run(connection, "note_given", r.run_id, *times)  # that a node had it stays known, once
        is_told = awaits is not None and self._is_told(connection, r.run_id, awaits)
        rows = self._run(
            connection, "wait", r.run_id, *next_standing(waiting), waiting.eligible_at, int(waiting.lost),
            None if waiting.begun else r.message, waiting.wait is not None, awaits, is_told,
        ).fetchall()  # fmt: skip
        return rows if is_told else []

    def _is_told(self, connection: sqlite3.Connection, run_id: int, name: str) -> bool:
        row = self._run(connection, "load_answers", encode([run_id])).fetchone()
        return name in read_answers(row[1])

    async def set_phases(self, phases: Sequence[tuple[int, int, Phase]], *, session: int | None = None) -> None:
        await self._put("set_phases", encode(list(phases)), session)

    async def fail_unrunnable(self, kinds: Sequence[str], message: str, remedies: Mapping[str, str]) -> int:
        unfit = await self._look_through(kinds)

        def write(connection: sqlite3.Connection) -> int:
            given = encode(list(kinds)), limits.ROWS_AT_ONCE, HEADS, DEMANDS, encode(unfit)
            found = self._run(connection, "unrunnable", *given).fetchall()
            for kind in {row[1] for row in found}:
                words = f"{message}: {remedies[kind]}" if kind in remedies else message
                self._bury(connection, [row[0] for row in found if row[1] == kind], State.FAILED, "no_agent", words)
            return len(found)

        return await self._do(write)

    async def mark_unlabelled(self, agents: Sequence[Sequence[str]]) -> int:
        text = encode([list(labels) for labels in agents])
        return await self._do(
            lambda connection: self._run(connection, "mark_unlabelled", text, limits.ROWS_AT_ONCE).rowcount
        )

    async def purge(self, run_ids: Sequence[int]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            ids = encode(list(run_ids))
            self._run(connection, "purge_attempts", ids)
            self._run(connection, "purge_flows", ids)
            jobs = {row[0] for row in self._run(connection, "purge", ids).fetchall()}
            self._run(connection, "drop_cursors", encode(sorted(jobs)))

        await self._do(write)


def _result_row(r: Result, times: tuple[Moment | None, Moment]) -> tuple[Any, ...]:
    return r.run_id, int(r.state), r.reason, *times, r.exit_code, r.message, r.result, r.output


def _assignment(row: Row) -> Assignment:
    return Assignment._make((*row[RUN:QUEUE], None, None, None, row[ANSWERS], None, row[ROOT]))
