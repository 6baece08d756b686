"""What workers outside Horae write of their runs, kept as the log of the attempt.

A worker sends its output in pieces, each with the offset at which it begins. So a repeat after a lost answer is found
out, and what is stored already is left out; a gap is refused.

What must stay true: of one attempt no more is stored than the limit; a piece of a few bytes counts for LEAST_BYTES,
because it is a file.
"""

from __future__ import annotations

from horae.core.model import Loan
from horae.errors import Conflict, Limited
from horae.ports.outputs import OutputWriter

LEAST_BYTES = 64


class OutsideLogs:
    def __init__(self, files: OutputWriter, *, place: str, limit: int) -> None:
        """`place` is the node whose directory holds the output, empty where all nodes share one; `limit` are the bytes
        that are kept of one attempt."""
        self._files = files
        self._place = place
        self._limit = limit

    async def append(self, loan: Loan, offset: int, data: bytes) -> int:
        """Keep what is new of a piece; return how long the log is now."""
        ref = self._files.ref(loan.run_id, loan.attempt, loan.fence)
        sizes = await self._files.stored_sizes(ref)
        stored = sum(sizes)
        if offset > stored:
            raise Conflict(
                f"the log of execution {loan.run_id} has {stored} bytes: the next piece begins there, not at {offset}",
                hint="send everything through one server, where servers keep output in directories of their own",
            )
        fresh = data[stored - offset :]
        if not fresh:
            return stored
        if sum(max(size, LEAST_BYTES) for size in sizes) + max(len(fresh), LEAST_BYTES) > self._limit:
            raise Limited(f"the log of one attempt has at most {self._limit} bytes", hint="write less, or elsewhere")
        await self._files.store_chunk(ref, len(sizes), fresh)
        after = await self._files.stored_sizes(ref)
        if after[: len(sizes) + 1] != [*sizes, len(fresh)]:  # somebody wrote at the same time, and was first
            raise Conflict(f"another piece of the log of execution {loan.run_id} was written at the same time")
        return sum(after)

    async def find(self, loan: Loan) -> str | None:
        """Return where the log of an attempt lies, as results name it; None where nothing was written."""
        ref = self._files.ref(loan.run_id, loan.attempt, loan.fence)
        if not await self._files.stored_sizes(ref):
            return None
        return f"{self._place}:{ref}" if self._place else ref
