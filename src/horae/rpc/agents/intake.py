"""What a server stores of the output that its agents send.

An agent is believed in nothing that costs others: its chunks are stored under the number that the attempt has in the
books, in order, and only as many as one attempt may have. What is beyond that is taken and dropped, so that an agent
whose own limits are wider goes on; the log says where it was cut.

What must stay true: of one attempt no more is stored than the limits and one mark, however often its agent comes
again; a chunk of nothing counts too, for it is a file.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from horae.ports.outputs import OutputWriter
from horae.wire.generated import agents_pb2 as pb

log = structlog.get_logger()

LEAST_BYTES = 64  # bytes that a chunk counts for
MARGIN = 4096  # bytes beyond the limit, for what an agent itself says of what it left out


class Limits(NamedTuple):
    """Bytes that are stored of one attempt."""

    log: int
    files: int  # beside the log, together


DEFAULT_LIMITS = Limits(100 << 20, 1 << 30)


class _Part:
    """A log, or a file beside it."""

    def __init__(self, sizes: list[int]) -> None:
        self.count = len(sizes)  # chunks stored
        self.bytes = sum(max(size, LEAST_BYTES) for size in sizes)
        self.is_cut = False


class Intake:
    """Of one line of an agent."""

    def __init__(self, files: OutputWriter, limits: Limits) -> None:
        self._files = files
        self._limits = limits
        self._attempts: dict[tuple[int, int], dict[int, _Part]] = {}  # (run, fence) → its log (0) and files

    def begin(self, run_id: int, fence: int) -> None:
        """An attempt that was claimed just now, of which nothing is stored."""
        self._attempts[run_id, fence] = {0: _Part([])}

    def forget(self, run_id: int, fence: int) -> None:
        self._attempts.pop((run_id, fence), None)

    async def store(self, chunk: pb.Chunk) -> bool:
        """Return whether the chunk is done with: stored, stored before, or beyond what is kept. One that leaves out
        others before it is not."""
        ref = self._files.ref(chunk.run_id, chunk.attempt, chunk.fence)
        parts = self._attempts.get((chunk.run_id, chunk.fence))
        if parts is None:
            parts = self._attempts[chunk.run_id, chunk.fence] = {0: _Part(await self._files.stored_sizes(ref))}
        place = self._files.file_ref(ref, chunk.file - 1) if chunk.file else ref
        if chunk.file not in parts:
            parts[chunk.file] = _Part(await self._files.stored_sizes(place))
        part = parts[chunk.file]
        if chunk.number < part.count or part.is_cut:
            return True
        if chunk.number > part.count:
            log.warning("output.out_of_order", run=chunk.run_id, fence=chunk.fence, number=chunk.number)
            return False
        if self._has_room(parts, chunk):
            await self._files.store_chunk(place, chunk.number, chunk.data)
            part.count, part.bytes = part.count + 1, part.bytes + max(len(chunk.data), LEAST_BYTES)
        else:
            await self._cut(place, part, chunk)
        return True

    def _has_room(self, parts: dict[int, _Part], chunk: pb.Chunk) -> bool:
        taken = max(len(chunk.data), LEAST_BYTES)
        if not chunk.file:
            return parts[0].bytes + taken <= self._limits.log + MARGIN
        return sum(part.bytes for file, part in parts.items() if file) + taken <= self._limits.files + MARGIN

    async def _cut(self, place: str, part: _Part, chunk: pb.Chunk) -> None:
        limit = self._limits.files if chunk.file else self._limits.log
        log.warning("output.beyond_limit", run=chunk.run_id, fence=chunk.fence, file=chunk.file, limit=limit)
        if not chunk.file:
            await self._files.store_chunk(
                place, part.count, b"\n[output truncated: this server's limit is %d bytes]\n" % limit
            )
        part.is_cut = True
