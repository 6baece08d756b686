"""An output store elsewhere, shared by all nodes, with a spool on this disk for the time that it is away.

A chunk goes straight to the store. When that fails it goes to the spool, and so do all later ones of its log, until
the spool has been sent after, oldest first. So a log is never stored with a hole, whatever fails in between; work
never waits for a store that is away; and what an earlier life left in the spool is sent when this one starts.

What must stay true:
- Of one log, chunk n is in the store before chunk n + 1 is sent.
- A chunk leaves the spool only when the store has it.
- The spool is bounded. Beyond that the store counts as full: writers drop what they cannot hold, and mark it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog
from obstore.store import ObjectStore

from horae.errors import NotFound, Unavailable
from horae.files.objects import ObjectFiles, is_part

SPOOL_LIMIT = 2**30  # bytes
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between tries to send after

log = structlog.get_logger()


class ShippedFiles(ObjectFiles):
    """Files in a store that all nodes share."""

    is_shared = True

    def __init__(self, store: ObjectStore, spool: ObjectFiles) -> None:
        super().__init__(store)
        self._spool = spool
        self._waiting: dict[str, dict[int, int]] = {}  # log → its chunks in the spool, oldest first: number → size
        self._held = 0  # bytes in the spool
        self._unnamed: dict[str, tuple[str, int, str, int]] = {}  # file → how it is named once the store has it
        self._task: asyncio.Task[None] | None = None

    async def take_up(self) -> None:
        """Take up what an earlier life left."""
        left = sorted([chunk async for chunk in self._spool.list_chunks()])
        for ref, number, size in left:
            self._waiting.setdefault(ref, {})[number] = size
            self._held += size
        if self._waiting:
            log.info("outputs.left", logs=len(self._waiting), bytes=self._held)
            self._begin()

    async def stored_sizes(self, ref: str) -> list[int]:
        """Also of those that wait here."""
        sizes = dict(enumerate(await super().stored_sizes(ref))) | self._waiting.get(ref, {})
        return [sizes[number] for number in range(len(sizes)) if number in sizes]

    @property
    def waiting(self) -> int:
        """Bytes that the store does not have yet."""
        return self._held

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        if ref not in self._waiting and await self._stored(ref, number, data):
            return
        if self._held + len(data) > SPOOL_LIMIT:
            raise Unavailable(f"the output store is away, and {SPOOL_LIMIT >> 20} MiB wait for it already")
        await self._hold(ref, number, data)
        self._begin()
        self.announce(ref)

    async def _stored(self, ref: str, number: int, data: bytes) -> bool:
        try:
            await super().store_chunk(ref, number, data)
        except Unavailable as error:
            log.warning("outputs.away", error=error.message)
            return False
        return True

    async def _hold(self, ref: str, number: int, data: bytes) -> None:
        """Put a chunk in the spool. It is noted first: meanwhile no later one of its log may overtake it."""
        self._waiting.setdefault(ref, {})[number] = len(data)
        self._held += len(data)
        try:
            await self._spool.store_chunk(ref, number, data)
        except Unavailable:
            self._release(ref, number)
            raise

    def _release(self, ref: str, number: int) -> None:
        chunks = self._waiting.get(ref, {})
        self._held -= chunks.pop(number, 0)
        if not chunks:
            self._waiting.pop(ref, None)

    async def remove(self, ref: str) -> None:
        for held in [held for held in self._waiting if is_part(held, ref)]:
            self._held -= sum(self._waiting.pop(held).values())
        await self._spool.remove(ref)
        await super().remove(ref)

    async def remove_all(self, refs: Sequence[str]) -> None:
        for ref in refs:
            for held in [held for held in self._waiting if is_part(held, ref)]:
                self._held -= sum(self._waiting.pop(held).values())
        await self._spool.remove_all(refs)
        await super().remove_all(refs)

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        """As stored; what waits in this node's spool comes after it."""
        while ref in self._waiting:
            try:
                await self._look(ref, None)
            except Unavailable:
                if next(iter(self._waiting.get(ref, ())), 0) > len(self._sizes.get(ref)):
                    raise  # what comes before is there
            with suppress(NotFound):  # something was sent while we looked
                return await self._read_both(ref, offset, limit)
        return await super().read(ref, offset, limit)

    async def _read_both(self, ref: str, offset: int, limit: int) -> bytes:
        sizes = self._sizes.get(ref)
        count, at, parts = len(sizes), sum(sizes), []
        if offset < at:
            parts.append(await super().read(ref, offset, min(limit, at - offset)))
        for number in [each for each in self._waiting.get(ref, ()) if each >= count]:
            if number != count:
                raise NotFound(f"the output {ref} has no chunk {count}")
            data = await self._spool.load_chunk(ref, number)
            parts.append(data[max(offset - at, 0) : max(offset + limit - at, 0)])
            count, at = count + 1, at + len(data)
        return b"".join(parts)

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None:
        """A file of which something waits is named when it is there."""
        place = self.file_ref(ref, number)
        if place in self._waiting:
            self._unnamed[place] = ref, number, path, size
        else:
            await super().name_file(ref, number, path, size)

    # ── sending after ──
    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        """Until the spool is empty."""
        pause = FIRST_PAUSE
        while self._waiting:
            try:
                for ref in list(self._waiting):
                    with suppress(NotFound):  # not yet written to disk
                        await self._send_log(ref)
            except Unavailable:
                pause = min(pause * 2, LONGEST_PAUSE)
            if self._waiting:
                await asyncio.sleep(pause)
        log.info("outputs.settled")

    async def _send_log(self, ref: str) -> None:
        while chunks := self._waiting.get(ref):
            number = next(iter(chunks))
            data = await self._spool.load_chunk(ref, number)
            await super().store_chunk(ref, number, data)
            await self._spool.remove_chunk(ref, number)
            self._release(ref, number)
        if ref in self._unnamed:
            await super().name_file(*self._unnamed[ref])
            del self._unnamed[ref]

    async def settle(self, seconds: float) -> None:
        """Give what waits a last chance; what stays is sent by the next life."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
