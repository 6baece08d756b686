"""The output store: logs of attempts as chunk objects, over obstore.

    runs/<run id // 1000>/<run id>/<attempt>-<fence>/<chunk number, eight digits>
    runs/<run id // 1000>/<run id>/<attempt>-<fence>-files/<number>/<chunk number>      files beside the log

A chunk is written when 64 KiB wait or a quarter of a second after the first byte that waits, whichever
comes first. What must stay true: chunks of a log are written one after the other and never changed, so a
reader that takes them in order, up to the first missing number, sees neither a gap nor a repetition;
a writer never blocks and never holds more than MAX_WAITING bytes; what was dropped is marked in the log, and a mark
that cannot be stored either is kept in memory until it can; names are made of integers only, and nothing else
is ever read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import BinaryIO

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from horae.errors import MACHINE_FAULTS, Invalid, MachineFault, NotFound, Unavailable

CHUNK = 64 * 1024
THOUSAND = 1000  # runs whose logs lie in one directory
LARGEST_CHUNK = 256 * 1024  # what remote agents send in one piece
LINGER = 0.25  # seconds the first byte of a chunk may wait for more
MAX_WAITING = 4 * 1024 * 1024
PAUSE_AT = MAX_WAITING // 2  # bytes waiting from which a writer that can pause should
LONGEST_PAUSE = 1.0  # seconds; what a writer brings after that may be dropped, and is marked
PATIENCE = 10.0  # seconds a closing output keeps trying to store
RETRY = 0.2  # seconds between tries
FOLLOW = 0.5  # seconds after which a follower looks again, whoever writes
DELETED = 1_000  # objects removed by one request: what S3 takes
KNOWN_LOGS = 1_000  # whose chunk sizes are remembered
MAX_MARKS = 10_000  # kept in memory

_REF = re.compile(r"runs/[0-9]{1,16}/[0-9]{1,19}/[0-9]{1,10}-[0-9]{1,19}(?:-files/[0-9]{1,4})?")
_CHUNK_NAME = re.compile(r"[0-9]{8,}")
_OS_ERROR = re.compile(r"(.*) \(os error ([0-9]+)\)")

log = logging.getLogger("horae.files")


class ObjectFiles:
    """Files over any object store."""

    is_shared = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._sizes: dict[str, list[int]] = {}  # log → sizes of its chunks as far as seen
        self._removals = 0  # what was looked up before one is not remembered after it
        self._followers: dict[str, set[asyncio.Future[None]]] = {}
        self._marks: dict[str, tuple[int, bytes]] = {}  # log → its last chunk, which the store does not have yet
        self.on_stored: Callable[[str, int], None] = lambda ref, number: None  # told of every chunk

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        return f"runs/{run_id // THOUSAND:d}/{run_id:d}/{attempt:d}-{fence:d}"

    def file_ref(self, ref: str, number: int) -> str:
        return f"{ref}-files/{number:d}"

    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> ChunkedOutput:
        return ChunkedOutput(self, (run_id, attempt, fence), limit)

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> ChunkedOutput:
        sizes = await self.stored_sizes(self.ref(run_id, attempt, fence))
        return ChunkedOutput(self, (run_id, attempt, fence), limit, sizes)

    async def stored_sizes(self, ref: str) -> list[int]:
        """Of the chunks of a log, in order."""
        return list(await self._look(ref, None))

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        _check(ref)
        if offset < 0 or limit < 0:
            raise Invalid(f"offset and limit are 0 or more; got {offset} and {limit}", code="E_RANGE")
        parts = []
        for number, begin, end in _spans(await self._look(ref, offset + limit), offset, offset + limit):
            parts.append(await self._read_chunk(ref, number, begin, end))
        return b"".join(parts)

    async def size(self, ref: str) -> int:
        _check(ref)
        return sum(await self._look(ref, None))

    async def remove(self, ref: str) -> None:
        """Chunks from the last to the first: a reader never sees a log that begins in the middle."""
        _check(ref)
        for place in (f"{ref}-files/", f"{ref}/"):
            with _translated(ref):
                names = [each["path"] async for page in obstore.list(self._store, prefix=place) for each in page]
                for name in sorted(names, reverse=True):
                    with suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, name)
        self._forget_sizes(lambda known: is_part(known, ref))
        self._marks.pop(ref, None)

    async def remove_all(self, refs: Sequence[str]) -> None:
        """One look at each thousand of runs, and as few requests as the store takes for what is found."""
        by_thousand: dict[str, set[str]] = {}
        for ref in refs:
            _check(ref)
            by_thousand.setdefault(ref.split("/")[1], set()).add(ref)
        for thousand, wanted in by_thousand.items():
            with _translated("runs"):
                names = [
                    each["path"]
                    async for page in obstore.list(self._store, prefix=f"runs/{thousand}/")
                    for each in page
                    if _log_of(each["path"]) in wanted
                ]
                await self._delete(names)
            self._forget_sizes(lambda known, gone=wanted: _log_of(known) in gone)  # type: ignore[misc]

    async def _delete(self, names: Sequence[str]) -> None:
        """Many in one request where the store can; what is gone already is no error."""
        for start in range(0, len(names), DELETED):
            some = names[start : start + DELETED]
            try:
                await obstore.delete_async(self._store, some)
            except FileNotFoundError:
                for name in some:
                    with suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, name)

    async def stored_ranges(self) -> tuple[list[int], int]:
        with _translated("runs"):
            paths = (await obstore.list_with_delimiter_async(self._store, prefix="runs"))["common_prefixes"]
        names = [path.rpartition("/")[2] for path in paths]
        return sorted(int(name) * THOUSAND for name in names if name.isdecimal()), THOUSAND

    async def remove_range(self, first_id: int) -> None:
        with _translated("runs"):
            await self._remove_below(f"runs/{first_id // THOUSAND}")

    async def _remove_below(self, path: str) -> None:
        async for page in obstore.list(self._store, prefix=f"{path}/"):
            await self._delete([each["path"] for each in page])
        self._forget_sizes(lambda known: known.startswith(f"{path}/"))

    def _forget_sizes(self, is_gone: Callable[[str], bool]) -> None:
        self._removals += 1
        self._sizes = {known: sizes for known, sizes in self._sizes.items() if not is_gone(known)}

    async def trim(self, limit: int) -> int:
        """Oldest runs first, by whole thousands as long as that is not too much."""
        sizes: dict[int, int] = {}
        async for ref, _, size in self.list_chunks():
            thousand = int(ref.split("/")[1])
            sizes[thousand] = sizes.get(thousand, 0) + size
        beyond = sum(sizes.values()) - limit
        removed = 0
        for thousand in sorted(sizes):
            if removed >= beyond:
                break
            if sizes[thousand] <= beyond - removed:
                with _translated("runs"):
                    await self._remove_below(f"runs/{thousand}")
                removed += sizes[thousand]
            else:
                removed += await self._trim_thousand(thousand, beyond - removed)
        return removed

    async def _trim_thousand(self, thousand: int, beyond: int) -> int:
        sizes: dict[int, int] = {}
        async for ref, _, size in self.list_chunks(f"runs/{thousand}/"):
            run_id = int(ref.split("/")[2])
            sizes[run_id] = sizes.get(run_id, 0) + size
        removed = 0
        for run_id in sorted(sizes):
            if removed >= beyond:
                break
            with _translated("runs"):
                await self._remove_below(f"runs/{thousand}/{run_id}")
            removed += sizes[run_id]
        return removed

    async def take_up(self) -> None:
        """Nothing was left to do by an earlier life."""

    async def settle(self, seconds: float) -> None:
        """Nothing waits: what is stored is stored."""

    def changed(self, ref: str) -> asyncio.Future[None]:
        """Watches from the call on, not from the await: ask before reading, and nothing is missed."""
        loop = asyncio.get_running_loop()
        follower: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(FOLLOW, _wake, follower)
        self._followers.setdefault(ref, set()).add(follower)
        follower.add_done_callback(lambda _: self._forget(ref, follower, timer))
        return follower

    def announce(self, ref: str) -> None:
        """A log has grown or ended: wake its followers."""
        for follower in list(self._followers.get(ref, ())):
            _wake(follower)

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        """Store one chunk. A repeat after a lost answer finds it there and is content."""
        await self._put(ref, number, data)
        self.on_stored(ref, number)
        self.announce(ref)
        if self._marks:
            await self._store_marks()

    async def _put(self, ref: str, number: int, data: bytes) -> None:
        with _translated(ref), suppress(AlreadyExistsError):
            await obstore.put_async(self._store, _key(ref, number), data, mode="create")

    async def end_with_mark(self, ref: str, number: int, mark: bytes) -> None:
        """End a log whose rest could not be stored: this is its last chunk, in memory if need be."""
        self._marks[ref] = number, mark
        while len(self._marks) > MAX_MARKS:
            del self._marks[next(iter(self._marks))]
        self.on_stored(ref, number)
        await self._store_marks()

    async def _store_marks(self) -> None:
        """Try to store what is in memory only; there is room again, or there is not."""
        for ref, (number, mark) in list(self._marks.items()):
            try:
                await self._put(ref, number, mark)
            except Unavailable:
                return
            self._marks.pop(ref, None)

    def _marked(self, ref: str, number: int) -> bytes | None:
        last, mark = self._marks.get(ref, (-1, b""))
        return mark if number == last else None

    async def load_chunk(self, ref: str, number: int) -> bytes:
        if (mark := self._marked(ref, number)) is not None:
            return mark
        with _translated(ref):
            try:
                return bytes(await (await obstore.get_async(self._store, _key(ref, number))).bytes_async())
            except FileNotFoundError as error:
                raise NotFound(f"the output {ref} has no chunk {number}") from error

    async def remove_chunk(self, ref: str, number: int) -> None:
        with _translated(ref), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, _key(ref, number))

    async def list_chunks(self, prefix: str = "runs/") -> AsyncIterator[tuple[str, int, int]]:
        """(log or file, number, size) of every chunk there is, in no order."""
        with _translated("runs"):
            async for page in obstore.list(self._store, prefix=prefix):
                for each in page:
                    ref, _, name = each["path"].rpartition("/")
                    if _CHUNK_NAME.fullmatch(name) and _REF.fullmatch(ref):
                        yield ref, int(name), each["size"]

    async def _read_chunk(self, ref: str, number: int, start: int, end: int) -> bytes:
        if (mark := self._marked(ref, number)) is not None:
            return mark[start:end]
        with _translated(ref):
            try:
                piece = await obstore.get_range_async(self._store, _key(ref, number), start=start, end=end)
            except FileNotFoundError as error:
                raise NotFound(f"the output {ref} was removed while it was read") from error
        return bytes(piece)

    async def _look(self, ref: str, needed: int | None) -> list[int]:
        """Sizes of a log's chunks, in order; the store is asked only beyond what is known."""
        known, removals = self._sizes.get(ref, []), self._removals
        if needed is not None and sum(known) >= needed:
            return known
        sizes = dict(enumerate(known))
        after = _key(ref, len(known) - 1) if known else None
        with _translated(ref):
            async for page in obstore.list(self._store, prefix=f"{ref}/", offset=after):
                for each in page:
                    name = each["path"].rpartition("/")[2]
                    if _CHUNK_NAME.fullmatch(name):
                        sizes[int(name)] = each["size"]
        if ref in self._marks:
            number, mark = self._marks[ref]
            sizes[number] = len(mark)
        found = _unbroken(sizes)
        return self._remember(ref, found) if removals == self._removals else found

    def _remember(self, ref: str, sizes: list[int]) -> list[int]:
        self._sizes.pop(ref, None)
        if sizes:
            self._sizes[ref] = sizes
        while len(self._sizes) > KNOWN_LOGS:
            del self._sizes[next(iter(self._sizes))]
        return sizes

    def _forget(self, ref: str, follower: asyncio.Future[None], timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        followers = self._followers[ref]
        followers.discard(follower)
        if not followers:
            del self._followers[ref]


def _log_of(ref: str) -> str:
    """The log that a file lies beside, or the log itself."""
    return "/".join(ref.split("/")[:4]).removesuffix("-files")


class ChunkedOutput:
    """The log of one attempt, from first byte to close."""

    __slots__ = (
        "_attempt", "_buffer", "_count", "_deadline", "_files", "_is_full", "_is_told", "_is_used", "_latest", "_left",
        "_limit", "_lost", "_resume", "_skipped", "_storing", "_task", "_timer", "has_gaps",
    )  # fmt: skip

    def __init__(
        self, files: ObjectFiles, attempt: tuple[int, int, int], limit: int, stored: Sequence[int] = ()
    ) -> None:
        """`stored` are the sizes of chunks that are there already: as many bytes are left out of what is written."""
        self._files = files
        self._attempt = attempt
        self._left = limit
        self._limit = limit
        self._buffer = bytearray()  # not yet given to the store
        self._storing = 0  # bytes in the store's hands
        self._lost = 0  # bytes dropped since the last that was taken
        self._count = len(stored)  # chunks stored
        self._skipped = sum(stored)  # bytes to be left out, since they are stored
        self.has_gaps = False
        self._is_used = bool(stored)
        self._is_full = False
        self._is_told = False  # that the store cannot be used
        self._deadline: float | None = None  # set by close: when to give up
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._resume: Callable[[], None] | None = None  # a writer that pauses
        self._latest: asyncio.TimerHandle | None = None  # when it goes on at the latest

    @property
    def is_full(self) -> bool:
        return self._is_full

    def when_free(self, resume: Callable[[], None]) -> bool:
        if self._storing + len(self._buffer) < PAUSE_AT:
            return False
        self._resume = resume
        self._latest = asyncio.get_running_loop().call_later(LONGEST_PAUSE, self._wake_writer)
        return True

    def _wake_writer(self) -> None:
        if self._resume is not None and self._latest is not None:
            self._latest.cancel()
            resume, self._resume = self._resume, None
            resume()

    @property
    def _ref(self) -> str:
        return self._files.ref(*self._attempt)  # made when it is wanted: most runs write nothing

    @property
    def ref(self) -> str | None:
        return self._ref if self._is_used else None

    def write(self, data: bytes) -> None:
        if self._is_full or not data or self._deadline is not None:
            return
        self._is_used = True
        room = MAX_WAITING - self._storing - len(self._buffer)
        if room > 0:
            self._take(data[:room])
        if len(data) > room and not self._is_full:
            self._lost += len(data) - max(room, 0)
            self.has_gaps = True

    async def close(self) -> None:
        """Store the rest; Unavailable when the store stays out of reach, and then the log ends with a mark."""
        if self._lost:
            self._mark_gap()
        self._deadline = asyncio.get_running_loop().time() + PATIENCE
        if self._buffer or self._task is not None:
            self._begin()
        try:
            if self._task is not None:
                await self._task
        except Unavailable:
            left = self._storing + len(self._buffer)
            mark = b"\n[output truncated: the last %d bytes could not be stored]\n" % left
            await self._files.end_with_mark(self._ref, self._count, mark)
            raise
        finally:
            self._files.announce(self._ref)

    async def attach(self, number: int, file: BinaryIO, size: int) -> int:
        """Store up to `size` bytes of a file beside the log; Unavailable when the store stays out of reach."""
        ref, taken = self._files.file_ref(self._ref, number), 0
        for chunk in count():
            data = await asyncio.to_thread(file.read, min(LARGEST_CHUNK, size - taken))
            if not data:
                break
            until = asyncio.get_running_loop().time() + PATIENCE
            await self._keep_trying(ref, chunk, data, partial(float, until))
            taken += len(data)
        self._is_used = True
        return taken

    def _take(self, data: bytes) -> None:
        if self._lost:
            self._mark_gap()
        self._is_full = len(data) > self._left
        self._add(data[: self._left])
        self._left -= len(data)
        if self._is_full:
            self._add(b"\n[output truncated: the limit is %d bytes]\n" % self._limit)
        if self._buffer:
            self._schedule()

    def _add(self, data: bytes) -> None:
        self._buffer += data[self._skipped :] if self._skipped else data
        self._skipped = max(0, self._skipped - len(data))

    def _mark_gap(self) -> None:
        self._buffer += b"\n[%d bytes lost: the output store was too slow]\n" % self._lost
        self._lost = 0

    def _schedule(self) -> None:
        if self._task is not None:
            return  # it looks at the buffer again when its chunk is stored
        if len(self._buffer) >= CHUNK:
            self._begin()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._store())

    async def _store(self) -> None:
        """Store what waits, chunk by chunk, until there is no whole chunk left, or nothing when closing."""
        try:
            while self._buffer:
                data = bytes(self._buffer[:LARGEST_CHUNK])
                del self._buffer[:LARGEST_CHUNK]
                self._storing = len(data)
                await self._store_one(data)
                self._storing = 0
                self._wake_writer()
                if self._deadline is None and len(self._buffer) < CHUNK:
                    break
        finally:
            self._task = None
        if self._buffer:
            self._schedule()

    async def _store_one(self, data: bytes) -> None:
        """Try until it is stored; a closing output gives up when its time is over."""
        await self._keep_trying(self._ref, self._count, data, lambda: self._deadline)
        self._count += 1

    async def _keep_trying(self, ref: str, number: int, data: bytes, deadline: Callable[[], float | None]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._files.store_chunk(ref, number, data)
            except Unavailable as error:
                until = deadline()
                if until is not None and loop.time() >= until:
                    raise
                if not self._is_told:
                    log.warning("%s: %s", ref, error.message)
                self._is_told = True
                await asyncio.sleep(RETRY)
            else:
                self._is_told = False
                return


def _check(ref: str) -> None:
    if not _REF.fullmatch(ref):
        raise Invalid(f"not the name of an output: {ref[:100]!r}", code="E_PATTERN")


def is_part(ref: str, of: str) -> bool:
    return ref == of or ref.startswith(f"{of}-files/")


def _key(ref: str, number: int) -> str:
    return f"{ref}/{number:08d}"


def _unbroken(sizes: dict[int, int]) -> list[int]:
    """Sizes from chunk 0 up to the first missing one: a listing may show a later chunk sooner."""
    found: list[int] = []
    while len(found) in sizes:
        found.append(sizes[len(found)])
    return found


def _spans(sizes: list[int], start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(chunk, from, until) for every chunk that holds bytes of [start, end)."""
    at = 0
    for number, size in enumerate(sizes):
        begin, until = max(start - at, 0), min(end - at, size)
        if begin < until:
            yield number, begin, until
        at += size


def _wake(follower: asyncio.Future[None]) -> None:
    if not follower.done():
        follower.set_result(None)


@contextmanager
def _translated(ref: str) -> Iterator[None]:
    """Foreign errors become ours here and nowhere else."""
    try:
        yield
    except (BaseError, OSError) as error:
        why = str(error).partition(chr(10))[0]
        found = _OS_ERROR.search(why)
        kind = MachineFault if found and int(found[2]) in MACHINE_FAULTS else Unavailable
        raise kind(f"the output store cannot be used for {ref}: {found[1] if found else why}") from error
