"""Runs on loan to workers outside Horae, and the segments of schedulers outside Horae.

A loan is a claim with a date: the run is running under a fence, and a row beside it says who works at it and until
when. Ending a run is hot and knows nothing of loans, so the row outlives it: a loan counts only together with its
running run and the same fence, and what is left of ended ones is dropped when the overdue ones are looked for.

What is done in one transaction is written once for both databases, as a generator of named queries: it is handed the
rows of each before it says the next. Rows of `live` are always locked before those of `loans`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from horae.core.model import SEGMENTS, Loan, Moment, Phase
from horae.errors import Unavailable
from horae.ports import Lend
from horae.stores.search import SearchStore
from horae.stores.sql import BATCH, Row, decode

T = TypeVar("T")
Steps = Generator[tuple[Any, ...], Sequence[Row], T]  # yields (name of a query, *arguments)


class LoanStore(SearchStore):
    async def now(self) -> Moment:
        raise NotImplementedError  # each database has its own clock

    async def _transact(self, steps: Callable[[], Steps[T]]) -> T:
        """Carry out the steps in one transaction, again from the first if it lost a race."""
        raise NotImplementedError  # and its own way to keep several statements together

    def _fence_floor(self) -> int | None:
        """The lowest fence that a claim may get now; None while nothing may be claimed."""
        raise NotImplementedError

    # ── loans ──
    async def lend(self, kinds: Sequence[str], lend: Lend, run_id: int | None = None) -> Loan | None:
        now = await self.now()

        def steps() -> Steps[Loan | None]:
            if self._fence_floor() is None:
                return None
            picked = [(run_id,)] if run_id is not None else (yield "pick_loan", self._list(kinds), now)
            lent = yield from self._lend_runs([row[0] for row in picked], lend, now)
            return lent[0] if lent else None

        return await self._transact(steps)

    def _lend_runs(self, run_ids: Sequence[int], lend: Lend, now: Moment) -> Steps[list[Loan]]:
        """Lend those of these runs that are queued."""
        floor = self._fence_floor()
        if floor is None:
            raise Unavailable("nothing is lent so soon after a failover of the database; try again")
        rows = (yield "lend_runs", self._list(run_ids), lend.worker, now, floor) if run_ids else ()
        if rows:
            yield "note_loans", self._list([row[0] for row in rows]), lend.worker, lend.until_at
        return [Loan(row[0], row[1], row[2], row[3], lend.worker, lend.until_at) for row in rows]

    async def renew_loan(
        self, run_id: int, attempt: int | None, lend: Lend, phase: Phase | None = None, progress: str | None = None
    ) -> bool | None:
        def steps() -> Steps[bool | None]:
            rows = yield "renew_run", run_id, attempt, lend.worker, phase
            if not rows:
                return None
            yield "renew_loan", run_id, lend.worker, lend.until_at, progress
            return bool(rows[0][0])

        return await self._transact(steps)

    async def load_loans(self, run_ids: Sequence[int] | None = None) -> list[Loan]:
        given = None if run_ids is None else self._list(run_ids)
        return [_loan_of(row) for row in await self._get("load_loans", given)]

    async def load_overdue_loans(self) -> list[Loan]:
        while len(await self._put("drop_loans", BATCH)) == BATCH:
            pass  # others have their turn in between
        return [_loan_of(row) for row in await self._get("load_overdue_loans", await self.now(), BATCH)]

    async def return_loan(self, run_id: int, fence: int, start_by: Moment | None = None) -> bool:
        now = await self.now()

        def steps() -> Steps[bool]:
            rows = yield "return_run", run_id, fence, start_by
            if not rows:
                return False
            is_unwanted, job_id = rows[0]
            if is_unwanted:
                yield "bury_returned", run_id, now
                yield "drop_returned", run_id
                yield "promote", self._list([job_id])
            yield "drop_loan", run_id
            return True

        return await self._transact(steps)

    # ── segments of schedulers outside Horae ──
    async def take_segments(self, worker: str, wanted: int) -> list[int]:
        now = await self.now()

        def steps() -> Steps[list[int]]:
            yield ("lock_segments",)
            yield ("drop_dead_segments",)
            yield "give_segments", worker, wanted, now, SEGMENTS
            yield "trim_segments", worker, wanted
            rows = yield "segments_of", worker
            return [row[0] for row in rows]

        return await self._transact(steps)

    async def drop_segments(self, worker: str) -> None:
        await self._put("drop_segments", worker)

    async def load_taken_segments(self) -> dict[int, tuple[str, Moment]]:
        return {row[0]: (row[1], row[2]) for row in await self._get("load_taken_segments")}


def _loan_of(row: Row) -> Loan:
    return Loan(row[0], row[1], row[2], row[3], row[4], row[5], decode(row[6]))
