"""Runs on loan to workers outside Horae.

A loan is a claim with a date: the run is running under a fence, and a row beside it says who works at it and until
when. Ending a run is hot and knows nothing of loans, so the row outlives it: a loan counts only together with its
running run and the same fence, and what is left of ended ones is dropped when the overdue ones are looked for.

Rows of `live` are always locked before those of `loans`. Who is lent runs that limits hold takes the keys of those
first, and asks as every claim does (parts.limits): a worker outside has slots and nothing else to ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import getrandbits

from horae.core.model import Loan, Moment, Phase, Reason
from horae.core.policy.admission import admit, in_order
from horae.core.policy.demands import Demand, Offer, demand_from_text
from horae.core.runs.orders import Kept, Lend
from horae.errors import Unavailable
from horae.stores import limits
from horae.stores.database import Steps
from horae.stores.parts.limits import DEMANDS_AT_ONCE, STAMP_BITS, LimitPart, Scene, moved_keys
from horae.stores.rows import Row, decode, encode

LOOKED_AT = 1000  # runs of a demand, the first, among which those for workers outside are looked for


def _loan_of(row: Row) -> Loan:
    run_id, job_id, fence, attempt, worker, until_at, progress = row
    return Loan(run_id, job_id, fence, attempt, worker, until_at, decode(progress))


def _lendable(rows: Sequence[Row]) -> dict[int, Demand]:
    """Return the demands that ask for no more of an agent than a slot."""
    demands = {row[0]: demand_from_text(row[1]) for row in rows if row[1] is not None}
    return {id_: demand for id_, demand in demands.items() if not demand.asks}


def _keys(demands: Mapping[int, Demand]) -> set[str]:
    return {use.key for demand in demands.values() for use in demand.uses}


class LoanPart(LimitPart):
    """Runs on loan."""

    _lent_at = 0  # the demand behind which the next lending looks for runs that limits hold

    async def lend(
        self, kinds: Sequence[str], lend: Lend, run_id: int | None = None, org: int | None = None
    ) -> Loan | None:
        now = await self.now()
        waiting = _lendable(await self._get("demand_of_run", run_id)) if run_id is not None else {}

        def steps() -> Steps[Loan | None]:
            if self._fence_floor() is None:
                return None
            if waiting:
                held = yield from self._hold(sorted(_keys(waiting)))
                heads = yield "head_of_run", run_id, now
                yield from self._admit(heads, (), waiting, held, 1)
            picked = [(run_id,)] if run_id is not None else (yield "pick_loan", self._list(kinds), now, org)
            lent = yield from self._lend_runs([row[0] for row in picked], lend, now)
            return lent[0] if lent else None

        return await self._transact(steps)

    async def lend_made_for(self, kinds: Sequence[str], lend: Lend, org: int, pin: str, limit: int) -> list[Loan]:
        now = await self.now()
        wanted = self._list(kinds), pin, now, org
        waiting = await self._load_limited(wanted)

        def steps() -> Steps[list[Loan]]:
            if self._fence_floor() is None:
                return []
            held = (yield from self._hold(sorted(_keys(waiting)))) if waiting else {}
            picked = yield "pick_made_for", self._list(kinds), now, org, limit, pin
            ids = [row[0] for row in picked]
            if waiting:
                heads = yield "heads_made_for", self._list(list(waiting)), *wanted, limit, LOOKED_AT
                ids = yield from self._admit(heads, picked, waiting, held, limit)
            return sorted((yield from self._lend_runs(ids, lend, now)), key=lambda loan: ids.index(loan.run_id))

        return await self._transact(steps)

    async def _load_limited(self, wanted: tuple[object, ...]) -> dict[int, Demand]:
        """Return demands with which such runs wait; of very many, the next ones."""
        rows = await self._get("waiting_demands", self._lent_at, DEMANDS_AT_ONCE)
        if not rows and self._lent_at:
            rows = await self._get("waiting_demands", 0, DEMANDS_AT_ONCE)
        self._lent_at = rows[-1][0] if len(rows) == DEMANDS_AT_ONCE else 0
        demands = _lendable(rows)
        heads = await self._get("heads_made_for", self._list(list(demands)), *wanted, 1, LOOKED_AT) if demands else ()
        return {row[1]: demands[row[1]] for row in heads}

    def _admit(
        self, heads: Sequence[Row], picked: Sequence[Row], waiting: Mapping[int, Demand], held: Mapping[str, Row],
        limit: int,
    ) -> Steps[list[int]]:  # fmt: skip
        """Return the runs to lend, the most urgent first; those that limits held are queued from now on."""
        nobody = self._list([])
        [row] = yield "look_over_demands", self._clock(), nobody, nobody, nobody, nobody, 1, 0
        found = encode([list(head) for head in heads]), encode([list(head) for head in picked])
        scene = Scene((*row[:4], *found), waiting, held, limit)
        every = [head._replace(kind="") for head in in_order((*scene.heads, *scene.ordinary))]
        limited = [head for head in every if head.demand_id is not None]
        ordinary = [head for head in every if head.demand_id is None]
        offer = Offer("", None, {"": limit}, {})
        admission = admit(limited, scene.usage, scene.limits, [offer], ordinary, scene.now)
        starts = [start.run_id for start in admission.starts]
        begun = {row[0] for row in (yield "release_limited", self._list(starts))} if starts else set()
        if moved := moved_keys(scene, admission, begun):
            stamp = getrandbits(STAMP_BITS)
            yield "move_limits", self._list(list(moved)), self._list(list(moved.values())), stamp
        left = {head.run_id for head in ordinary[: limit - len(begun)]}
        return [head.run_id for head in every if head.run_id in begun | left]

    async def load_made_for(self, kinds: Sequence[str], pin: str, org: int, limit: int) -> list[int]:
        rows = await self._get("load_made_for", self._list(kinds), await self.now(), pin, limit, org)
        return [row[0] for row in rows]

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
