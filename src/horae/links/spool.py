"""What a remote agent must not lose: output on its way to the server, and results nobody has heard of yet.

    <directory>/outputs/runs/…   chunks, written by the Files the executors use, shipped in order
    <directory>/results/N.json   one batch of results each, removed when all of them were delivered or refused

A chunk is sent as often as it takes, always with the same number and the same bytes, so a repeat is harmless.
Where the disk takes nothing more, results stay in the agent's memory and are delivered all the same; the log says once
that they would not survive a crash.
Another server has none of the earlier chunks: for it everything starts at chunk 0 again. The chunks of an attempt
stay until its result was answered, because until then its output may have to go somewhere else.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import structlog

from horae.core.runs.orders import Result
from horae.errors import Error, MachineFault
from horae.ports.outputs import Files, Output

log = structlog.get_logger()

MOST_READ = 128 << 10  # bytes of chunks, at once


class Chunks(Files, Protocol):
    """Files that can be read by the chunk, as they were written."""

    on_stored: Callable[[str, int], None]
    names_files: bool

    async def load_chunk(self, ref: str, number: int) -> bytes: ...


class Piece(NamedTuple):
    """A chunk ready to be sent."""

    run_id: int
    attempt: int
    fence: int
    number: int
    data: bytes
    file: int  # 0: of the log; else of a file beside it, counted from 1


@dataclass(slots=True)
class _Shipment:
    """The log of one attempt, or a file beside it, on its way."""

    run_id: int
    attempt: int
    fence: int
    ref: str
    file: int = 0  # as of Piece
    written: int = 0  # chunks on our disk
    sent: int = 0
    stored: int = 0  # chunks on the server's
    is_refused: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.run_id, self.fence

    @property
    def is_settled(self) -> bool:
        return self.is_refused or self.stored >= self.written


class _Kept(msgspec.Struct):
    """A result as it lies on disk, with what is needed to ship its output."""

    result: Result
    attempt: int
    chunks: int
    files: list[int] = []  # chunks of each file beside the log


class AgentSpool:
    """Where the executors of a remote agent write output, and its Spool. Output goes to the server, unless `files` are
    those that everybody shares: then it is there already."""

    def __init__(self, files: Chunks, directory: Path) -> None:
        self._files = files
        self.is_shared = files.is_shared
        self._outputs = directory / "outputs"
        self._results = directory / "results"
        self._shipments: dict[str, _Shipment] = {}  # by ref
        self._by_fence: dict[tuple[int, int], list[_Shipment]] = {}  # the log first
        self._takes_files = True  # the server knows of files beside logs
        self._batches: dict[Path, set[tuple[int, int]]] = {}  # file → what in it is not delivered
        self._numbers = count(1)
        self._garbage: asyncio.Queue[str] = asyncio.Queue()
        self._is_failing = False  # nothing can be written to the disk, and the log says so
        self._server = ""
        self.work = asyncio.Event()  # there may be chunks to send
        self.unsettled: set[tuple[int, int]] = set()
        self.on_settled: Callable[[], None] = lambda: None
        if not self.is_shared:
            files.on_stored, files.names_files = self._note_written, False

    # ── OutputWriter ──
    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        if not self.is_shared:
            self._add(_Shipment(run_id, attempt, fence, self._files.ref(run_id, attempt, fence)))
        return self._files.open(run_id, attempt, fence, limit)

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        output = await self._files.reopen(run_id, attempt, fence, limit)
        if not self.is_shared:
            ref = self._files.ref(run_id, attempt, fence)
            shipment = _Shipment(run_id, attempt, fence, ref, written=len(await self._files.stored_sizes(ref)))
            self._add(shipment)
            self._judge(shipment)
            self.work.set()
        return output

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        return self._files.ref(run_id, attempt, fence)

    def file_ref(self, ref: str, number: int) -> str:
        return self._files.file_ref(ref, number)

    def artifact_ref(self, ref: str, path: str) -> str:
        return self._files.artifact_ref(ref, path)

    async def stored_sizes(self, ref: str) -> list[int]:
        return await self._files.stored_sizes(ref)

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        await self._files.store_chunk(ref, number, data)

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None:
        await self._files.name_file(ref, number, path, size)

    def _log_ref(self, shipment: _Shipment) -> str:
        return self._files.ref(shipment.run_id, shipment.attempt, shipment.fence)

    def _add(self, shipment: _Shipment) -> None:
        self._shipments[shipment.ref] = shipment
        self._by_fence.setdefault(shipment.key, []).append(shipment)

    def _note_written(self, ref: str, number: int) -> None:
        shipment = self._shipments.get(ref) or self._begin_file(ref)
        if shipment is None or shipment.is_refused:
            return
        shipment.written = number + 1
        self.unsettled.add(shipment.key)
        self.work.set()

    def _begin_file(self, ref: str) -> _Shipment | None:
        """Return the first chunk of a file beside a log that is on its way."""
        log_ref, found, number = ref.rpartition("-files/")
        log = self._shipments.get(log_ref)
        if not found or log is None:
            return None
        refused = log.is_refused or not self._takes_files
        self._add(_Shipment(log.run_id, log.attempt, log.fence, ref, int(number) + 1, is_refused=refused))
        return self._shipments[ref]

    # ── shipping ──
    def begin(self, server: str, *, takes_files: bool = True) -> None:
        """A new stream: what was sent and not answered goes again; to another server, everything."""
        self._takes_files = takes_files
        for shipment in self._shipments.values():
            shipment.is_refused = shipment.is_refused or (shipment.file > 0 and not takes_files)
            shipment.stored = shipment.stored if server == self._server else 0
            shipment.sent = shipment.stored
            self._judge(shipment)
        self._server = server
        self.work.set()

    async def take(self, room: int) -> list[Piece]:
        """Return the next chunks to send, a little of every attempt, up to `room` bytes unless one alone is larger."""
        pieces: list[Piece] = []
        size = 0
        for shipment in list(self._shipments.values()):
            if size >= min(room, MOST_READ):
                return pieces
            if shipment.sent < shipment.written and not shipment.is_refused:
                data = await self._load(shipment)
                if pieces and size + len(data) > room:
                    return pieces
                about = shipment.run_id, shipment.attempt, shipment.fence, shipment.sent
                pieces.append(Piece(*about, data, shipment.file))
                shipment.sent += 1
                size += len(data)
        return pieces

    async def _load(self, shipment: _Shipment) -> bytes:
        try:
            return await self._files.load_chunk(shipment.ref, shipment.sent)
        except Error as error:
            log.error("spool.damaged", run=shipment.run_id, chunk=shipment.sent, error=error.message)
            return b"\n[a piece of the output was lost: it could not be read from the agent's spool]\n"

    def note_stored(self, run_id: int, fence: int, number: int, file: int = 0) -> None:
        for shipment in self._by_fence.get((run_id, fence), ()):
            if shipment.file == file:
                shipment.stored = max(shipment.stored, number + 1)
                self._judge(shipment)

    def note_refused(self, run_id: int, fence: int) -> None:
        """The attempt is over for the server: its output goes nowhere."""
        for shipment in self._by_fence.get((run_id, fence), ()):
            shipment.is_refused = True
            self._judge(shipment)

    def _judge(self, shipment: _Shipment) -> None:
        if not shipment.is_settled:
            self.unsettled.add(shipment.key)
        elif shipment.key in self.unsettled and all(one.is_settled for one in self._by_fence[shipment.key]):
            self.unsettled.discard(shipment.key)
            self.on_settled()

    async def tidy(self) -> None:
        """Remove the output of answered results, for ever."""
        while True:
            ref = await self._garbage.get()
            try:
                await self._files.remove(ref)
            except Error as error:
                log.warning("spool.untidy", output=ref, error=error.message)

    # ── results ──
    async def load(self, kept: Collection[tuple[int, int]] = ()) -> list[Result]:
        """`kept` are attempts that go on: their output stays."""
        found = await asyncio.to_thread(self._read_all)
        for one in found:
            result = one.result
            ref = self._files.ref(result.run_id, one.attempt, result.fence)
            names = [ref, *(self._files.file_ref(ref, number) for number in range(len(one.files)))]
            for file, (name, chunks) in enumerate(zip(names, (one.chunks, *one.files), strict=True)):
                if chunks:
                    self._add(_Shipment(result.run_id, one.attempt, result.fence, name, file, written=chunks))
                    self.unsettled.add((result.run_id, result.fence))
        await asyncio.to_thread(_remove_others, self._outputs, set(map(self._log_ref, self._shipments.values())), kept)
        return [one.result for one in found]

    def _read_all(self) -> list[_Kept]:
        self._results.mkdir(parents=True, exist_ok=True)
        found: dict[tuple[int, int], _Kept] = {}
        for file in sorted(self._results.iterdir()):
            batch = _read(file)
            if not batch:
                with suppress(OSError):
                    file.unlink()
                continue
            self._batches[file] = {_key(one.result) for one in batch}
            found |= {_key(one.result): one for one in batch}
        last = max((int(file.stem) for file in self._batches), default=0)
        self._numbers = count(last + 1)
        return list(found.values())

    async def keep(self, results: Sequence[Result]) -> None:
        file = self._results / f"{next(self._numbers):012d}.json"
        content = msgspec.json.encode([self._kept(result) for result in results])
        self._batches[file] = set(map(_key, results))
        try:
            await asyncio.to_thread(_write, file, content)
        except OSError as error:
            self._batches.pop(file, None)
            raise self._refusal(file, error) from error
        if self._is_failing:
            log.info("spool.writable", directory=str(self._results))
        self._is_failing = False

    def _refusal(self, file: Path, error: OSError) -> MachineFault:
        with suppress(OSError):  # what was begun takes room
            file.with_suffix(".part").unlink(missing_ok=True)
        if not self._is_failing:
            hint = "results are kept in memory until they are delivered, and would not survive a crash of this agent"
            log.error("spool.unwritable", directory=str(self._results), error=error.strerror, hint=hint)
        self._is_failing = True
        return MachineFault(f"{self._results}: {error.strerror}")

    def _kept(self, result: Result) -> _Kept:
        log, *files = self._by_fence.get(_key(result)) or [_Shipment(0, 0, 0, "")]
        written = {shipment.file: shipment.written for shipment in files}
        return _Kept(result, log.attempt, log.written, [written.get(n + 1, 0) for n in range(max(written, default=0))])

    def forget(self, results: Sequence[Result]) -> None:
        gone = set(map(_key, results))
        for key in gone:
            shipments = self._by_fence.pop(key, [])
            for shipment in shipments:
                del self._shipments[shipment.ref]
            if any(shipment.written for shipment in shipments):
                self._garbage.put_nowait(self._log_ref(shipments[0]))
        self.unsettled -= gone
        for file, waiting in list(self._batches.items()):
            waiting -= gone
            if not waiting:
                del self._batches[file]
                try:
                    file.unlink(missing_ok=True)
                except OSError as error:  # it is read again by the next life, and refused
                    log.warning("spool.untidy", file=str(file), error=error.strerror)


def _key(result: Result) -> tuple[int, int]:
    return result.run_id, result.fence


def _read(file: Path) -> list[_Kept]:
    """Return the results in a file; none of one that was not written to its end."""
    if file.suffix != ".json":
        return []
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[_Kept])
    except (msgspec.DecodeError, OSError) as error:
        log.error("spool.unreadable", file=str(file), error=str(error))
        return []


def _write(file: Path, content: bytes) -> None:
    """All of it or nothing, and it survives the machine."""
    part = file.with_suffix(".part")
    with part.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    part.rename(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove_others(outputs: Path, wanted: set[str], kept: Collection[tuple[int, int]]) -> None:
    """Output of attempts that died with an earlier life: nobody will ask for the rest of it."""
    for directory in outputs.glob("runs/*/*/*"):
        name = str(directory.relative_to(outputs)).removesuffix("-files")
        if name not in wanted and _attempt_of(name) not in kept:
            shutil.rmtree(directory, ignore_errors=True)


def _attempt_of(name: str) -> tuple[int, int] | None:
    """Run and fence of an output."""
    *_, run, last = name.split("/")
    fence = last.rpartition("-")[2]
    return (int(run), int(fence)) if run.isdecimal() and fence.isdecimal() else None
