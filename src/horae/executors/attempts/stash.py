"""The output of an attempt that may outlive its agent, as it was written, from the first byte on.

What comes out of a pipe is moved here by the kernel in one call, and only then read: whoever dies at whichever moment,
each byte is either still in the pipe or here, and never in both. The log is made from this; a later agent makes it
again from the beginning, and the Output leaves out what is stored already.

It lies in memory: nothing is masked in it yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from horae.executors.processes.keeper import COLLECTED_LIMIT

PIECE_BYTES = 1 << 16  # bytes


class Stash:
    def __init__(self, file: int | None = None) -> None:
        """`file` is that of an earlier agent."""
        self.file = os.memfd_create("output", os.MFD_CLOEXEC) if file is None else file
        self.size = 0 if file is None else os.fstat(file).st_size
        self.is_whole = True  # everything that was written is here

    def take(self, source: int) -> bytes | None:
        """Return what a pipe holds, moved here; empty at its end, None when there is nothing now."""
        if self.is_whole:
            try:
                if self.size >= COLLECTED_LIMIT:
                    raise OSError("no more is kept")
                count = os.splice(source, self.file, PIECE_BYTES, offset_dst=self.size, flags=os.SPLICE_F_NONBLOCK)
                data = os.pread(self.file, count, self.size)
                self.size += count
                return data
            except BlockingIOError:
                return None
            except OSError:  # beyond its limit, or no memory for it: the work goes on, and ends with its agent
                self.is_whole = False
        try:
            return os.read(source, PIECE_BYTES)
        except BlockingIOError:
            return None

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """What was written, piece by piece."""
        while start < end and (data := os.pread(self.file, min(PIECE_BYTES, end - start), start)):
            yield data
            start += len(data)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.file)
