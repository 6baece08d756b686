"""Firing on PostgreSQL: triggers move on, and runs are made as their overlap policy decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.model import Moment, Overlap, State
from horae.core.policy.grants import Grants
from horae.core.policy.order import share_of
from horae.core.runs.orders import Definition, Due, Fire, Fired, Lend, MadeRun, Outcome, highest_overlap
from horae.stores.orders import FOLLOWING, full, waiting_outcome
from horae.stores.parts.loans import LoanPart
from horae.stores.postgres.arrays import fire_arrays, numbers
from horae.stores.postgres.definitions import PostgresDefinitions
from horae.stores.postgres.lanes import Connection
from horae.stores.rows import definition_from_row, new


class PostgresMoments(PostgresDefinitions, LoanPart):
    """Due moments, and the runs made of them."""

    _grants: Grants

    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        rows = await self._get("load_due", list(segments), *after, until, limit)
        return [new(Due, row) for row in rows]

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]:
        rows = await self._get("load_definitions", trigger_ids)
        return [definition_from_row((*row[:3], *row[3])) for row in rows]

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        owned = terms or {}
        arrays = [*fire_arrays(fires, self._lines), numbers([*owned]), numbers([*owned.values()])]
        runs = [f.run for f in fires]
        has_more = highest_overlap(runs) >= Overlap.QUEUE or bool([f for f in fires if f.passed or f.reserve])
        if lend is None and not has_more:
            return await self._fire_plainly(arrays, is_apart=len({run.job_id for run in runs}) == len(runs))

        async def transact(connection: Connection) -> Fired:
            row = await connection.fetchrow(self.queries["fire"], self._clock(), *arrays, False)
            assert row is not None
            advanced, reserved_ids, made_ids, skipped, now, refused = row
            made, run_ids = set(made_ids or ()), dict(zip(advanced or (), reserved_ids or (), strict=True))
            held = [f for f in fires if f.trigger_id in run_ids]
            await self._pass(connection, held, run_ids, now)
            for f in held:
                run_id = run_ids[f.trigger_id]
                if f.born and run_id not in made and f.run.overlap >= Overlap.QUEUE:
                    born = MadeRun(run_id, f.run, f.trigger_id, f.due_at, now)
                    state = (await self._follow(connection, born, now)).state
                    skipped += state is State.SKIPPED
                    made |= {run_id} if state is State.QUEUED else set()
            if lend is not None:
                lent = await self._walk(connection, self._lend_runs(list(run_ids.values()), lend, now))
                made -= {loan.run_id for loan in lent}
            reserved = {f.trigger_id: run_ids[f.trigger_id] for f in held if f.reserve}
            return Fired(set(run_ids), len(made), skipped, now, frozenset(refused), reserved)

        return await self._retried(self._fire if lend is None else self._claim, transact)

    async def _fire_plainly(self, arrays: Sequence[Any], *, is_apart: bool) -> Fired:
        """In one statement. `is_apart`: all are of different jobs."""
        ways = iter((is_apart,))

        async def fetch(connection: Connection) -> Fired:
            row = await connection.fetchrow(self.queries["fire"], self._clock(), *arrays, next(ways, False))
            assert row is not None
            advanced, _, made, skipped, now, refused = row
            return Fired(set(advanced or ()), len(made or ()), skipped, now, frozenset(refused))

        return await self._repeated(self._fire, fetch)

    async def _pass(self, connection: Connection, fires: Sequence[Fire], run_ids: dict[int, int], now: Moment) -> None:
        rows = [
            (f.run.job_id, f.trigger_id, at, run_ids[f.trigger_id] if state == State.COALESCED else None, state,
             f.run.priority, f.run.kind, reason, f.run.followed or None)
            for f in fires
            for at, state, reason in f.passed
        ]  # fmt: skip
        if rows:
            await connection.execute(self.queries["passed"], now, *map(list, zip(*rows, strict=True)))

    async def _follow(self, connection: Connection, made: MadeRun, now: Moment) -> Outcome:
        """Write a run that found its gate taken, under `queue` or `replace`."""
        run_id, new, trigger_id, due_at, created_at = made
        holder = await connection.fetchrow(self.queries["lock_gate"], new.job_id)
        waiting = [row[0] for row in await connection.fetch(self.queries["waiting_of_job"], new.job_id)]
        if new.overlap == Overlap.QUEUE and len(waiting) >= new.overlap_limit:
            outcome = full(len(waiting))
            await connection.execute(
                self.queries["add_skipped"], run_id, new.job_id, trigger_id, due_at, created_at, new.priority, new.kind,
                outcome.message, new.data, now, new.parent_id, new.task, new.followed or None,
            )  # fmt: skip
            return outcome
        if new.overlap == Overlap.REPLACE:
            older, note = [*waiting, *([holder[0]] if holder else [])], f"replaced by run {run_id}"
            ended = await self._end(connection, older, "replaced", promote=False, note=note)
            holder = holder if holder and holder[0] not in ended.ended else None
        outcome = FOLLOWING if holder else waiting_outcome(new)
        share = share_of(new)
        at = await connection.fetchval(
            self.queries["next_pass"], *share.line, share.key, share.stride, self._lines.at(share.line)
        )
        await connection.execute(
            self.queries["add_successor"], run_id, new.job_id, trigger_id, due_at, created_at,
            None if holder else new.job_id, new.start_by, outcome.state, outcome.reason, new.priority, new.overlap,
            new.kind, list(new.needs) or None, new.data, new.pin, new.queue, at, new.demand,
            new.parent_id, new.task, new.followed or None, new.resumes, new.depends or None,
        )  # fmt: skip
        return outcome
