"""The output store: logs of attempts as chunk objects, over obstore.

    runs/<run id // 1000>/<run id>/<attempt>-<fence>/<chunk number, eight digits>
    runs/<run id // 1000>/<run id>/<attempt>-<fence>-files/<number>/<chunk number>      files beside the log
    runs/<run id // 1000>/<run id>/<attempt>-<fence>-artifacts/<path>                   the same, whole, by their names

What must stay true: chunks of a log are written one after the other (files.output) and never changed, so a reader
that takes them in order, up to the first missing number, sees neither a gap nor a repetition; a mark of what was
dropped that cannot be stored either is kept in memory until it can; names are made of integers, and those of artifacts
of parts that lead nowhere else (`can_be_named`); nothing else is ever read. An artifact lies there by its name before
its chunks go, so it can be read at any time.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import accumulate, takewhile

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from horae.core.model import Moment
from horae.errors import MACHINE_FAULTS, Invalid, MachineFault, NotFound, Unavailable
from horae.files.output import ChunkedOutput
from horae.ports.outputs import Written

_ARTIFACTS = "-artifacts/"
PIECE = 1 << 20  # bytes of a file that are read at once, to be written under its name
THOUSAND = 1000  # runs whose logs lie in one directory
FOLLOW_SECONDS = 0.5  # after which a follower looks again, whoever writes
MAX_DELETED = 1_000  # objects removed by one request: what S3 takes
KNOWN_LOGS = 1_000  # whose chunk sizes are remembered
MAX_MARKS = 10_000  # kept in memory

_REF = re.compile(r"runs/[0-9]{1,16}/[0-9]{1,19}/[0-9]{1,10}-[0-9]{1,19}(?:-files/[0-9]{1,4})?")
_ARTIFACT = re.compile(r"runs/[0-9]{1,16}/[0-9]{1,19}/[0-9]{1,10}-[0-9]{1,19}-artifacts/(?P<path>.+)", re.DOTALL)
MAX_NAME = 200  # bytes of a part of an artifact's name: file systems take 255, and a part of one is made first
MAX_PATH = 900  # bytes of all of it: S3 takes 1024 of a key
_STAGED = re.compile(r".*#[0-9]+", re.DOTALL)  # what a local store calls files that are not whole yet
_OF_RUN = re.compile(r"runs/([0-9]{1,16})/([0-9]{1,19})/")
_CHUNK_NAME = re.compile(r"[0-9]{8,}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OS_ERROR = re.compile(r"(.*) \(os error ([0-9]+)\)")


class ObjectFiles:
    """Files over any object store."""

    is_shared = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._sizes = _Sizes()
        self._followers = _Followers()
        self._marks: dict[str, tuple[int, bytes]] = {}  # log → its last chunk, which the store does not have yet
        self.on_stored: Callable[[str, int], None] = lambda ref, number: None  # told of every chunk
        self.names_files = True  # else chunks stay as they are, because somebody sends them on

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        return f"runs/{run_id // THOUSAND:d}/{run_id:d}/{attempt:d}-{fence:d}"

    def file_ref(self, ref: str, number: int) -> str:
        return f"{ref}-files/{number:d}"

    def artifact_ref(self, ref: str, path: str) -> str:
        return f"{ref}{_ARTIFACTS}{path}"

    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> ChunkedOutput:
        return ChunkedOutput(self, (run_id, attempt, fence), limit)

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> ChunkedOutput:
        sizes = await self.stored_sizes(self.ref(run_id, attempt, fence))
        return ChunkedOutput(self, (run_id, attempt, fence), limit, sizes)

    async def stored_sizes(self, ref: str) -> list[int]:
        """Of the chunks of a log, in order."""
        return list(await self._look(ref, None))

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        if offset < 0 or limit < 0:
            raise Invalid(f"offset and limit are 0 or more; got {offset} and {limit}", code="E_RANGE")
        if found := _ARTIFACT.fullmatch(ref):
            return (
                await _read_named(self._store, self._sizes, ref, offset, limit) if can_be_named(found["path"]) else b""
            )
        _check(ref)
        parts = []
        for number, begin, end in _spans(await self._look(ref, offset + limit), offset, offset + limit):
            parts.append(await self._read_chunk(ref, number, begin, end))
        return b"".join(parts)

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None:
        """Make one object of the chunks of a file beside a log, under its own name; then the chunks go. What cannot be
        named, or is not whole, or was named before, stays as it is."""
        place, name = self.file_ref(ref, number), self.artifact_ref(ref, path)
        _check(place)
        if not self.names_files or not can_be_named(path) or sum(await self._look(place, None)) != size:
            return
        with _translated(name):
            whole = _pieces(self, place, size) if size else b""
            await obstore.put_async(self._store, name, whole)
            await self._remove_below(place)
        self._sizes.forget(lambda known: known in (place, name))

    async def size(self, ref: str) -> int:
        _check(ref)
        return sum(await self._look(ref, None))

    async def written(self, ref: str, offset: int, limit: int) -> list[Written]:
        _check(ref)
        ends = list(accumulate(await self._look(ref, None), initial=0))
        first = max(0, bisect_right(ends, offset) - 1)
        stored: dict[int, Moment] = {}
        with _translated(ref):
            async for page in obstore.list(
                self._store, prefix=f"{ref}/", offset=_key(ref, first - 1) if first else None
            ):
                for each in page:
                    name = each["path"].rpartition("/")[2]
                    if _CHUNK_NAME.fullmatch(name):
                        stored[int(name)] = _moment_of(each["last_modified"])
        known = takewhile(stored.__contains__, range(first, min(len(ends) - 1, first + limit)))
        return [Written(ends[number], stored[number]) for number in known]

    async def remove(self, ref: str) -> None:
        """Chunks from the last to the first: a reader never sees a log that begins in the middle."""
        _check(ref)
        for place in (f"{ref}{_ARTIFACTS}", f"{ref}-files/", f"{ref}/"):
            with _translated(ref):
                names = [each["path"] async for page in obstore.list(self._store, prefix=place) for each in page]
                for name in sorted(names, reverse=True):
                    with suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, name)
        self._sizes.forget(lambda known: is_part(known, ref))
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
                await _delete(self._store, names)
            self._sizes.forget(lambda known, gone=wanted: _log_of(known) in gone)  # type: ignore[misc]

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
            await _delete(self._store, [each["path"] for each in page])
        self._sizes.forget(lambda known: known.startswith(f"{path}/"))

    async def trim(self, limit: int) -> int:
        """Oldest runs first, by whole thousands as long as that is not too much."""
        sizes: dict[int, int] = {}
        async for thousand, _, size in _list_sizes(self._store, "runs/"):
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
        async for _, run_id, size in _list_sizes(self._store, f"runs/{thousand}/"):
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
        return self._followers.watch(ref)

    def announce(self, ref: str) -> None:
        """A log has grown or ended: wake its followers."""
        self._followers.wake(ref)

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        """Store one chunk. A repeat after a lost answer finds it there and is content."""
        await _put(self._store, ref, number, data)
        self.on_stored(ref, number)
        self.announce(ref)
        if self._marks:
            await self._store_marks()

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
                await _put(self._store, ref, number, mark)
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
        known, removals = self._sizes.get(ref), self._sizes.removals
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
        return self._sizes.remember(ref, found) if removals == self._sizes.removals else found


class _Sizes:
    """The sizes of the chunks of logs, as far as seen."""

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}
        self.removals = 0  # what was looked up before one is not remembered after it

    def get(self, ref: str) -> list[int]:
        return self._known.get(ref, [])

    def remember(self, ref: str, sizes: list[int]) -> list[int]:
        self._known.pop(ref, None)
        if sizes:
            self._known[ref] = sizes
        while len(self._known) > KNOWN_LOGS:
            del self._known[next(iter(self._known))]
        return sizes

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        self.removals += 1
        self._known = {ref: sizes for ref, sizes in self._known.items() if not is_gone(ref)}


class _Followers:
    """Those who wait for logs to grow."""

    def __init__(self) -> None:
        self._by_log: dict[str, set[asyncio.Future[None]]] = {}

    def watch(self, ref: str) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        follower: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(FOLLOW_SECONDS, _wake, follower)
        self._by_log.setdefault(ref, set()).add(follower)
        follower.add_done_callback(lambda _: self._forget(ref, follower, timer))
        return follower

    def wake(self, ref: str) -> None:
        for follower in list(self._by_log.get(ref, ())):
            _wake(follower)

    def _forget(self, ref: str, follower: asyncio.Future[None], timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        followers = self._by_log[ref]
        followers.discard(follower)
        if not followers:
            del self._by_log[ref]


async def _read_named(store: ObjectStore, sizes: _Sizes, ref: str, offset: int, limit: int) -> bytes:
    """Of an artifact by its name; empty at its end, and where there is none (yet)."""
    with _translated(ref):
        try:
            if not sizes.get(ref):
                sizes.remember(ref, [(await obstore.head_async(store, ref))["size"]])
            end = min(offset + limit, sum(sizes.get(ref)))
            if offset >= end:
                return b""
            return bytes(await obstore.get_range_async(store, ref, start=offset, end=end))
        except FileNotFoundError:
            return b""


async def _pieces(files: ObjectFiles, place: str, size: int) -> AsyncIterator[bytes]:
    for offset in range(0, size, PIECE):
        yield await files.read(place, offset, PIECE)


async def _delete(store: ObjectStore, names: Sequence[str]) -> None:
    """Many in one request where the store can; what is gone already is no error."""
    for start in range(0, len(names), MAX_DELETED):
        some = names[start : start + MAX_DELETED]
        try:
            await obstore.delete_async(store, some)
        except FileNotFoundError:
            for name in some:
                with suppress(FileNotFoundError):
                    await obstore.delete_async(store, name)


async def _list_sizes(store: ObjectStore, prefix: str) -> AsyncIterator[tuple[int, int, int]]:
    """(thousand, run, size) of everything that is kept, in no order."""
    with _translated("runs"):
        async for page in obstore.list(store, prefix=prefix):
            for each in page:
                if found := _OF_RUN.match(each["path"]):
                    yield int(found[1]), int(found[2]), each["size"]


async def _put(store: ObjectStore, ref: str, number: int, data: bytes) -> None:
    with _translated(ref), suppress(AlreadyExistsError):
        await obstore.put_async(store, _key(ref, number), data, mode="create")


def _moment_of(when: datetime) -> Moment:
    return (when - _EPOCH) // timedelta(microseconds=1)


def _log_of(ref: str) -> str:
    """Return the log that a file lies beside, or the log itself."""
    return "/".join(ref.split("/")[:4]).removesuffix("-files").removesuffix("-artifacts")


def can_be_named(path: str) -> bool:
    """Return whether an object can have this name: one that every store takes, finds again, and reads as nothing else.
    Names come from builds, and from agents that may not mean well."""
    parts = path.split("/")
    is_plain = path.isprintable() and len(path.encode(errors="replace")) <= MAX_PATH
    return is_plain and all(
        part not in ("", ".", "..") and len(part.encode(errors="replace")) <= MAX_NAME and not _STAGED.fullmatch(part)
        for part in parts
    )


def _check(ref: str) -> None:
    if not _REF.fullmatch(ref):
        raise Invalid(f"not the name of an output: {ref[:100]!r}", code="E_PATTERN")


def is_part(ref: str, of: str) -> bool:
    return ref == of or ref.startswith((f"{of}-files/", f"{of}{_ARTIFACTS}"))


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
        found = _OS_ERROR.match(why)
        kind = MachineFault if found and int(found[2]) in MACHINE_FAULTS else Unavailable
        raise kind(f"the output store cannot be used for {ref}: {found[1] if found else why}") from error
