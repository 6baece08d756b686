"""Workspaces: a fresh directory for each attempt, which is gone when the attempt is over.

To make and remove a directory takes longer than all else that we do for a short program: most file systems wait for
their journal meanwhile, and so do we. One that an attempt left as it was made becomes a spare, and the next attempt has
it under its own name: to rename is quick.

What must stay true:
- A spare has nothing of the attempt before it: no entry, owner, right or attribute, and no size of a directory that was
  full once. Nobody is in it: it was the workspace of an attempt that succeeded, so all of its processes are gone.
- What cannot be removed is left for the next start.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from horae.executors.attempts.trees import remove_tree

MODE = 0o700
SPARE_WORKSPACES = 16
SMALL_BYTES = 4096  # bytes of a directory that never held much
_NAME = re.compile("[0-9]+-[0-9]+")


class Workspaces:
    """Those of one kind of work, below a directory that others may share."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory = directory.resolve()
        self._kind = kind
        self._place = self.directory.with_name(f"{self.directory.name}.spare")
        self._spares: list[Path] = []
        self._numbers = itertools.count(1)

    async def open(self, kept: Collection[str]) -> None:
        """Remove those of an earlier life, but for the ones that are kept."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._place.mkdir(mode=MODE, exist_ok=True)
        for entry in list(self.directory.iterdir()):
            if _NAME.fullmatch(entry.name) and entry.name not in kept:
                await remove(entry)
        for entry in list(self._place.glob(f"{self._kind}-*")):
            await remove(entry)

    async def make(self, place: Path) -> None:
        if self._spares:
            with suppress(OSError):
                os.rename(self._spares[-1], place)
                self._spares.pop()
                return
        try:
            os.mkdir(place, MODE)
        except FileExistsError:  # could not be removed last time
            await remove(place)
            os.mkdir(place, MODE)

    async def take_back(self, place: Path, *, has_succeeded: bool) -> None:
        if has_succeeded and len(self._spares) < SPARE_WORKSPACES and _is_as_made(place):
            spare = self._place / f"{self._kind}-{next(self._numbers)}"
            with suppress(OSError):
                os.rename(place, spare)
                self._spares.append(spare)
                return
        await remove(place)

    async def close(self) -> None:
        while self._spares:
            await remove(self._spares.pop())


def _is_as_made(place: Path) -> bool:
    try:
        found = os.lstat(place)
        is_plain = found.st_mode == stat.S_IFDIR | MODE and found.st_size <= SMALL_BYTES
        is_ours = found.st_uid == os.geteuid() and found.st_gid == os.getegid()
        return is_plain and is_ours and not os.listdir(place) and not os.listxattr(place)
    except OSError:
        return False


async def remove(place: Path) -> None:
    """What resists is tried again when the executor is opened next."""
    try:
        os.rmdir(place)  # mostly it is empty, and no thread is needed
    except FileNotFoundError:
        pass
    except OSError:
        await asyncio.to_thread(remove_tree, place)
