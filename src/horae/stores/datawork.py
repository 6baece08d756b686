"""What stores keep for work on data: cursors of syncs, locks on destinations, progress of running attempts.

A cursor moves in the transaction that ends the run which moved it. A lock counts only together with its running run
and the same fence, so ending and reaping, which are hot, know nothing of locks; who takes a void one takes it over.

Written once for both databases, as stores.loans is. Locks are taken by one at a time (`hold_locks`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from horae.core.model import SECOND, Cursor, Moment
from horae.ports import Result, Wish
from horae.stores.loans import Steps
from horae.stores.nodes import NodeStore
from horae.stores.sql import decode, encode

PATIENCE = 3 * SECOND  # after which a run that waits for a destination looks again


def has_cursors(results: Sequence[Result]) -> bool:
    return any(result.cursor is not None for result in results)


class DataWorkStore(NodeStore):
    async def note_progress(self, notes: Sequence[tuple[int, int, str]], *, session: int | None = None) -> None:
        if notes:
            await self._put("note_progress", encode(list(notes)), session)

    # ── cursors ──
    async def load_cursors(self, job_ids: Sequence[int]) -> dict[int, Cursor]:
        rows = await self._get("load_cursors", self._list(job_ids)) if job_ids else ()
        return {row[0]: Cursor(decode(row[1]), row[2], row[3]) for row in rows}

    async def set_cursor(self, job_id: int, value: str | None) -> None:
        await self._put("set_cursor", job_id, value, await self.now())

    def _move_cursors(self, results: Sequence[Result], accepted: Collection[int], now: Moment) -> Steps[None]:
        """In the order of the results: of two for one job, the last one counts."""
        for result in results:
            if result.cursor is not None and result.run_id in accepted:
                yield "move_cursor", result.run_id, result.cursor, now

    # ── locks ──
    async def take_locks(self, wishes: Sequence[Wish]) -> set[int]:
        now = await self.now()

        def steps() -> Steps[set[int]]:
            yield ("hold_locks",)
            first: dict[str, Wish] = {}
            for wish in wishes:
                for name in wish.names:
                    first.setdefault(name, wish)
            rows = yield "take_locks", encode([(name, wish.run_id, wish.fence) for name, wish in first.items()])
            taken = {row[0]: row[1] for row in rows}
            granted = {wish.run_id for wish in wishes if all(taken.get(name) == wish.run_id for name in wish.names)}
            refused = [wish for wish in wishes if wish.run_id not in granted]
            if refused:
                yield from self._refuse(refused, now)
            return granted

        return await self._transact(steps)

    def _refuse(self, wishes: Sequence[Wish], now: Moment) -> Steps[None]:
        """All or nothing: who did not get everything keeps nothing, and waits."""
        yield "drop_locks", self._list([wish.run_id for wish in wishes])
        names = sorted({name for wish in wishes for name in wish.names})
        rows = yield "lock_holders", self._list(names)
        holders = {row[0]: row[1] for row in rows}
        for wish in wishes:
            yield from self._block(wish, holders, now)

    def _block(self, wish: Wish, holders: Mapping[str, int], now: Moment) -> Steps[None]:
        busy = next((name for name in wish.names if name in holders), wish.names[0])
        holder = holders.get(busy)
        who = f"run {holder}" if holder is not None else "another run"
        note = f"{who} writes to {busy}; this one begins when that has ended"
        rows = yield "block_run", wish.run_id, wish.fence, holder, note, now + PATIENCE, wish.start_by
        if rows and rows[0][0]:
            yield "bury_returned", wish.run_id, now
            yield "drop_returned", wish.run_id
            yield "promote", self._list([rows[0][1]])
