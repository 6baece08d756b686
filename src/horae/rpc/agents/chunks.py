"""Output that an agent sends over its line: taken as it comes, up to a window, and stored in order (rpc.agents.intake).

What must stay true: a chunk is stored only for an attempt that the agent holds, under that attempt's number and fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import structlog

from horae import wire
from horae.errors import Unavailable
from horae.rpc.agents.attempts import HeldAttempts
from horae.rpc.agents.frames import Refused, invalid
from horae.rpc.agents.intake import Intake
from horae.wire.generated import agents_pb2 as pb

log = structlog.get_logger()

STORE_PAUSE = 0.5  # seconds between tries when output cannot be stored


class ChunkQueue:
    """The chunks that one line of an agent sends, stored one batch after the other."""

    def __init__(self, intake: Intake, attempts: HeldAttempts, node: str) -> None:
        self._intake, self._attempts, self._node = intake, attempts, node
        self._waiting: asyncio.Queue[pb.Chunks] = asyncio.Queue()
        self._under_way = 0  # bytes of chunks taken and not yet stored

    def add(self, chunks: pb.Chunks) -> None:
        for chunk in chunks.items:
            if not 0 < len(chunk.data) <= wire.MAX_CHUNK or min(chunk.run_id, chunk.attempt, chunk.fence) < 1:
                raise invalid(f"a chunk holds 1 to {wire.MAX_CHUNK} bytes of an attempt under a fence")
            if chunk.file > wire.MAX_FILES:
                raise invalid(f"an attempt has at most {wire.MAX_FILES} files")
            self._under_way += len(chunk.data)
        if self._under_way > wire.WINDOW + wire.MAX_CHUNK:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {wire.WINDOW} bytes of output under way")
        self._waiting.put_nowait(chunks)

    async def run(self, send: Callable[[pb.ServerFrame], None]) -> None:
        """Store what was added, for ever, and tell the agent."""
        while True:
            chunks = await self._waiting.get()
            while True:
                try:
                    stored = await self._store(chunks)
                    break
                except Unavailable as error:  # the agent keeps it on its disk as long as it takes
                    log.warning("output.unavailable", node=self._node, error=error.message)
                    await asyncio.sleep(STORE_PAUSE)
            self._under_way -= sum(len(chunk.data) for chunk in chunks.items)
            send(pb.ServerFrame(stored=stored))

    async def _store(self, chunks: pb.Chunks) -> pb.Stored:
        attempts = self._attempts
        await attempts.look_up(((chunk.run_id, chunk.fence) for chunk in chunks.items), fresh=True)
        held = attempts.held  # a join that comes meanwhile forgets it, and to refuse a chunk is to refuse the whole log
        await attempts.learn_numbers(held, (chunk.run_id for chunk in chunks.items))
        stored = pb.Stored()
        for chunk in chunks.items:
            name = pb.ChunkName(run_id=chunk.run_id, fence=chunk.fence, number=chunk.number, file=chunk.file)
            is_mine = held.get(chunk.run_id) == chunk.fence
            is_right = is_mine and attempts.number_of(chunk.run_id, chunk.fence) == chunk.attempt
            (stored.items if is_right and await self._intake.store(chunk) else stored.refused).append(name)
        return stored
