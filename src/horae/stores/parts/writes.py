"""What stores keep for work on data: cursors of syncs, locks on destinations, progress of running attempts.

A cursor moves in the transaction that ends the run which moved it. A lock counts only together with its running run
and the same fence, so ending and reaping, which are hot, know nothing of locks; who takes a void one takes it over.

Locks are taken by one at a time (`hold_locks`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from horae.core.model import SECOND, Cursor, Moment
from horae.core.runs.orders import LockRequest, Result
from horae.stores.database import Database, Steps
from horae.stores.rows import decode, encode

LOCK_RETRY = 3 * SECOND  # after which a run that waits for a destination looks again


def has_cursors(results: Sequence[Result]) -> bool:
    return any(result.cursor is not None for result in results)


class WritePart(Database):
    """Cursors of syncs, and locks on destinations."""

    async def load_cursors(self, job_ids: Sequence[int]) -> dict[int, Cursor]:
        rows = await self._get("load_cursors", self._list(job_ids)) if job_ids else ()
        return {job_id: Cursor(decode(value), *rest) for job_id, value, *rest in rows}

    async def set_cursor(self, job_id: int, value: str | None) -> None:
        await self._put("set_cursor", job_id, value, await self.now())

    def _move_cursors(self, results: Sequence[Result], accepted: Collection[int], now: Moment) -> Steps[None]:
        """In the order of the results: of two for one job, the last one counts."""
        for result in results:
            if result.cursor is not None and result.run_id in accepted:
                yield "move_cursor", result.run_id, result.cursor, now

    async def take_locks(self, requests: Sequence[LockRequest]) -> set[int]:
        now = await self.now()

        def steps() -> Steps[set[int]]:
            yield ("hold_locks",)
            first: dict[str, LockRequest] = {}
            for request in requests:
                for name in request.names:
                    first.setdefault(name, request)
            rows = yield (
                "take_locks",
                encode([(name, request.run_id, request.fence) for name, request in first.items()]),
            )
            taken = {row[0]: row[1] for row in rows}
            granted = {
                request.run_id
                for request in requests
                if all(taken.get(name) == request.run_id for name in request.names)
            }
            refused = [request for request in requests if request.run_id not in granted]
            if refused:
                yield from self._refuse(refused, now)
            return granted

        return await self._transact(steps)

    def _refuse(self, requests: Sequence[LockRequest], now: Moment) -> Steps[None]:
        """All or nothing: who did not get everything keeps nothing, and waits."""
        yield "drop_locks", self._list([request.run_id for request in requests])
        names = sorted({name for request in requests for name in request.names})
        rows = yield "lock_holders", self._list(names)
        holders = {row[0]: row[1] for row in rows}
        for request in requests:
            yield from self._block(request, holders, now)

    def _block(self, request: LockRequest, holders: Mapping[str, int], now: Moment) -> Steps[None]:
        busy = next((name for name in request.names if name in holders), request.names[0])
        holder = holders.get(busy)
        who = f"run {holder}" if holder is not None else "another run"
        note = f"{who} writes to {busy}; this one begins when that has ended"
        yield "note_blocked", request.run_id, request.fence, now
        rows = yield "block_run", request.run_id, request.fence, holder, note, now + LOCK_RETRY, request.start_by
        if rows and rows[0][0]:
            yield "bury_returned", request.run_id, now
            yield "drop_returned", request.run_id
            yield "promote", self._list([rows[0][1]])
