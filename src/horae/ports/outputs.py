"""Output of attempts: written by agents, read by everybody.

Output     what one attempt writes                                          (files, links/)
Files      all output that is kept                                          (files)
Spool      what a remote agent has not delivered yet                        (links/spool)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import BinaryIO, NamedTuple, Protocol

from horae.core.model import Moment
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Result


class Output(Protocol):
    """The log of one attempt, written in order. Opened lazily: no byte, no file."""

    def write(self, data: bytes) -> None:
        """Append; never blocks. Past the size limit a mark is written once and the rest is dropped."""

    @property
    def is_full(self) -> bool: ...

    @property
    def has_gaps(self) -> bool:
        """Whether bytes were dropped in the middle, because the store could not keep up."""

    def when_free(self, resume: Callable[[], None]) -> bool:
        """True when so much waits to be stored that the writer should pause: `resume` is called when there
        is room again, or after a second, because no job waits longer than that for its log."""

    @property
    def ref(self) -> str | None:
        """Where it lies; None while nothing was written."""

    async def attach(self, number: int, file: BinaryIO, size: int, path: str) -> int:
        """Store up to `size` bytes of a file beside the log, as the file of this number and path; answers how many
        there were. Raises Unavailable when the store stays out of reach."""

    async def close(self) -> None:
        """Return when everything written is stored. Raises Unavailable when the store stays out of reach: then the log
        ends with a mark."""


class OutputNames(Protocol):
    """How output is called."""

    @property
    def is_shared(self) -> bool:
        """Whether every node has the same ones; else each has its own."""

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        """Return the name the output of this attempt has, or would have."""

    def file_ref(self, ref: str, number: int) -> str:
        """Return the name of a file beside a log, for `read` and `size`."""

    def artifact_ref(self, ref: str, path: str) -> str:
        """Return the name that the same file has once it lies there whole, under its own path; for `read`."""


class OutputWriter(OutputNames, Protocol):
    """Where output is written."""

    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> Output: ...

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        """Return an Output that is written from its beginning once more, by a later life: what is stored already is
        left out."""

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        """Store the next piece of a log that somebody else writes, and wake its followers. A repeat is harmless."""

    async def stored_sizes(self, ref: str) -> list[int]:
        """Of the chunks of a log, in order."""

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None:
        """Make one object of a file beside a log, under its own path. A repeat is harmless."""


class Written(NamedTuple):
    """A piece of a log that was stored at once."""

    offset: int  # its first byte
    at: Moment  # by the clock of the store, which has it a quarter of a second after it was written, or later


class OutputReader(OutputNames, Protocol):
    """Where output is read."""

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        """Bytes of a log from an offset; empty when there are none (yet)."""

    async def size(self, ref: str) -> int: ...

    async def written(self, ref: str, offset: int, limit: int) -> list[Written]:
        """Return pieces of a log, in order, from the one that holds a byte on; as many as are stored, and no more than
        so many."""

    def changed(self, ref: str) -> Awaitable[None]:
        """Resolves when a log written by this process may have grown, or after a short while."""


class OutputArchive(OutputNames, Protocol):
    """What is kept of output, and removed."""

    async def remove(self, ref: str) -> None:
        """Remove a log and the files beside it. What is not there, or only in part, is no error: a repeat ends what
        was begun."""

    async def remove_all(self, refs: Sequence[str]) -> None:
        """As remove, of many at once."""

    async def stored_ranges(self) -> tuple[list[int], int]:
        """First ids of the ranges of runs that have output, and how many ids a range has."""

    async def remove_range(self, first_id: int) -> None:
        """Remove all output of a range of runs."""

    async def trim(self, limit: int) -> int:
        """Remove outputs, the oldest runs' first, until all that is left is at most `limit` bytes; answers how many
        bytes that were."""


class Files(OutputWriter, OutputReader, OutputArchive, Protocol):
    """All output that is kept."""

    async def take_up(self) -> None:
        """Take up what an earlier life of this process left undone."""

    async def settle(self, seconds: float) -> None:
        """Give what is not stored yet a last chance; what stays is taken up by the next life."""


class Archive(Protocol):
    """Rows of the audit log, taken elsewhere: whoever goes on after the last one loses none, and doubles none."""

    def last(self) -> int:
        """Return the number of the last row that is there; 0: there is none."""

    def put(self, first: int, last: int, lines: bytes) -> None:
        """Keep the rows of these numbers, all or none; those that are there already stay."""


class Spool(Protocol):
    """What an agent must not lose while it cannot reach its service: results, on disk until they are delivered."""

    on_settled: Callable[[], None]  # the output of an attempt has arrived, so its result may go

    @property
    def unsettled(self) -> Collection[tuple[int, int]]:
        """(run id, fence) of attempts whose output is still on its way: their results wait for it."""

    async def load(self, kept: Collection[Fenced] = ()) -> list[Result]:
        """Results of an earlier life that were never delivered; what else it left is removed, but for the output of
        attempts that go on."""

    async def keep(self, results: Sequence[Result]) -> None:
        """Return when these results are on disk. Raises MachineFault when they cannot be put there."""

    def forget(self, results: Sequence[Result]) -> None:
        """They were delivered, or refused."""
