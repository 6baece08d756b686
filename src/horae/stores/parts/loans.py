"""Runs on loan to workers outside Horae.

A loan is a claim with a date: the run is running under a fence, and a row beside it says who works at it and until
when. Ending a run is hot and knows nothing of loans, so the row outlives it: a loan counts only together with its
running run and the same fence, and what is left of ended ones is dropped when the overdue ones are looked for.

Rows of `live` are always locked before those of `loans`.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Loan, Moment, Phase, Reason
from horae.core.runs.orders import Kept, Lend
from horae.errors import Unavailable
from horae.stores import limits
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, decode


def _loan_of(row: Row) -> Loan:
    run_id, job_id, fence, attempt, worker, until_at, progress = row
    return Loan(run_id, job_id, fence, attempt, worker, until_at, decode(progress))


class LoanPart(Database):
    """Runs on loan."""

    async def lend(self, kinds: Sequence[str], lend: Lend, run_id: int | None = None) -> Loan | None:
        now = await self.now()

        def steps() -> Steps[Loan | None]:
            if self._fence_floor() is None:
                return None
            picked = [(run_id,)] if run_id is not None else (yield "pick_loan", self._list(kinds), now)
            lent = yield from self._lend_runs([row[0] for row in picked], lend, now)
            return lent[0] if lent else None

        return await self._transact(steps)

    async def lend_made_for(self, kinds: Sequence[str], lend: Lend, org: int, pin: str, limit: int) -> list[Loan]:
        now = await self.now()

        def steps() -> Steps[list[Loan]]:
            if self._fence_floor() is None:
                return []
            picked = yield "pick_made_for", self._list(kinds), now, org, limit, pin
            ids = [row[0] for row in picked]
            return sorted((yield from self._lend_runs(ids, lend, now)), key=lambda loan: ids.index(loan.run_id))

        return await self._transact(steps)

    async def load_made_for(self, kinds: Sequence[str], pin: str, limit: int) -> list[int]:
        return [row[0] for row in await self._get("load_made_for", self._list(kinds), await self.now(), pin, limit)]

    def _lend_runs(self, run_ids: Sequence[int], lend: Lend, now: Moment) -> Steps[list[Loan]]:
        """Lend those of these runs that are queued."""
        floor = self._fence_floor()
        if floor is None:
            raise Unavailable("nothing is lent so soon after a failover of the database; try again")
        rows = (yield "lend_runs", self._list(run_ids), lend.worker, now, floor, lend.pin) if run_ids else ()
        if rows:
            yield "note_loans", self._list([row[0] for row in rows]), lend.worker, lend.until_at
        return [Loan(row[0], row[1], row[2], row[3], lend.worker, lend.until_at) for row in rows]

    async def renew_loan(
        self,
        run_id: int,
        attempt: int | None,
        lend: Lend,
        phase: Phase | None = None,
        progress: str | None = None,
        *,
        holder: str | None = None,
    ) -> bool | None:
        def steps() -> Steps[bool | None]:
            rows = yield "renew_run", run_id, attempt, lend.worker, phase, lend.pin, holder
            if not rows:
                return None
            yield "renew_loan", run_id, lend.worker, lend.until_at, progress
            return bool(rows[0][0])

        return await self._transact(steps)

    async def pass_loan(self, loan: Loan, lend: Lend) -> bool:
        def steps() -> Steps[bool]:
            rows = yield "pass_run", loan.run_id, loan.fence, loan.worker, lend.worker, lend.pin
            if rows:
                yield "renew_loan", loan.run_id, lend.worker, lend.until_at, None
            return bool(rows)

        return await self._transact(steps)

    async def load_kept(self, pin: str, limit: int) -> list[Kept]:
        rows = await self._get("load_kept", pin, limit)
        return [Kept(run_id, job_id, decode(progress)) for run_id, job_id, progress in rows]

    async def mark_kept(self, run_ids: Sequence[int], pin: str, reason: Reason) -> None:
        await self._put("mark_kept", self._list(run_ids), pin, str(reason))

    async def free_kept(self, run_ids: Sequence[int], pin: str) -> int:
        return len(await self._put("free_kept", self._list(run_ids), pin))

    async def load_loans(self, run_ids: Sequence[int] | None = None) -> list[Loan]:
        given = None if run_ids is None else self._list(run_ids)
        return [_loan_of(row) for row in await self._get("load_loans", given)]

    async def load_overdue_loans(self) -> list[Loan]:
        while len(await self._put("drop_loans", limits.ROWS_AT_ONCE)) == limits.ROWS_AT_ONCE:
            pass  # others have their turn in between
        return [_loan_of(row) for row in await self._get("load_overdue_loans", await self.now(), limits.ROWS_AT_ONCE)]

    async def return_loan(
        self,
        run_id: int,
        fence: int,
        start_by: Moment | None = None,
        *,
        pin: str | None = None,
        holder: str | None = None,
    ) -> bool:
        now = await self.now()

        def steps() -> Steps[bool]:
            rows = yield "return_run", run_id, fence, start_by, pin, holder
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
