"""Directories that builds of one job hand on to each other, by key.

    <directory>/<job id>/<hash of the key>/<n>      the n-th of its paths; `size` beside them, in bytes

A key that exists is never written again: whoever changes what belongs into a cache changes its key. Jobs share
nothing. What was used longest ago goes first when all caches together exceed the limit.

What must stay true: an entry is whole or not there, because it gets its name when it is complete; what a crash left
under another name is removed; no link leads out: they are copied as links, and none is followed on the way in or out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event

from horae.core.model import Json
from horae.core.work.builds import fill_key
from horae.errors import Invalid, machine_fault
from horae.executors.attempts.artifacts import heed, in_thread, open_plain
from horae.executors.attempts.trees import remove_tree

SET_ID = stat.S_ISUID | stat.S_ISGID  # lends the rights of its owner to whoever runs a file: never kept
BLOCK_BYTES = 4096  # bytes that even an empty file counts for
MAX_HASHED = 64 << 20  # bytes of a file whose hash is in a key
_PART = ".part-"  # begins the name of what is not yet, or no longer, an entry


class Caches:
    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._numbers = count(1)
        self._parts: set[Path] = set()  # ours, under way

    async def restore(self, job_id: int, wanted: Sequence[Json], workspace: Path) -> list[Json]:
        """Bring what there is into the workspace; return each key, and whether it was there."""
        return await in_thread(partial(self._restore, job_id, wanted, workspace))

    async def save(self, job_id: int, wanted: Sequence[Json], used: Sequence[Json], workspace: Path) -> list[str]:
        """Keep the caches whose key is new; return what is to be said."""
        return await in_thread(partial(self._save, job_id, wanted, used, workspace))

    def _restore(self, job_id: int, wanted: Sequence[Json], workspace: Path, stop: Event) -> list[Json]:
        used = []
        for cache in wanted:
            key = fill_key(cache["key"], lambda name: _digest(workspace, name))
            is_hit = self._restore_one(self._entry(job_id, key), cache["paths"], workspace, stop)
            used.append({"key": key, "hit": is_hit})
        return used

    def _restore_one(self, entry: Path, paths: Sequence[str], workspace: Path, stop: Event) -> bool:
        try:
            os.utime(entry)  # used just now
            for number, path in enumerate(paths):
                source = entry / str(number)
                if source.is_dir():
                    _copy(source, _inside(workspace, path), self._limit, stop)
        except OSError as error:  # not there, or removed meanwhile: a build that relies on all of a cache is wrong
            if machine_fault(error):
                raise
            return False
        return True

    def _save(
        self, job_id: int, wanted: Sequence[Json], used: Sequence[Json], workspace: Path, stop: Event
    ) -> list[str]:
        remarks = []
        for cache, use in zip(wanted, used, strict=True):
            if use["hit"]:
                continue
            try:
                size = self._save_one(self._entry(job_id, use["key"]), cache["paths"], workspace, stop)
                remarks.append(f"cache {use['key']} saved, {size} bytes")
            except (Invalid, OSError) as error:
                remarks.append(f"cache {use['key']} was not saved: {error}")
        self._make_room()
        return remarks

    def _save_one(self, entry: Path, paths: Sequence[str], workspace: Path, stop: Event) -> int:
        part = self._part()
        try:
            part.mkdir(parents=True)
            size = 0
            for number, path in enumerate(paths):
                source = _inside(workspace, path)
                if source.is_dir():
                    size += _copy(source, part / str(number), self._limit - size, stop)
            (part / "size").write_text(str(size))
            entry.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # somebody else was first: his is as good
                part.rename(entry)
            return size
        finally:
            self._drop(part)

    def _make_room(self) -> None:
        """Remove what was used longest ago, and what a crash left."""
        for left in self._directory.glob(f"{_PART}*"):
            if left not in self._parts:
                remove_tree(left)
        entries = sorted(((*_look(entry), entry) for entry in self._directory.glob("[0-9]*/*")), reverse=True)
        total = 0
        for _, size, entry in entries:
            total += size
            if total > self._limit:
                gone = self._part()
                with suppress(OSError):
                    entry.rename(gone)
                self._drop(gone)

    def _part(self) -> Path:
        part = self._directory / f"{_PART}{os.getpid()}-{next(self._numbers)}"
        self._parts.add(part)
        return part

    def _drop(self, part: Path) -> None:
        remove_tree(part)
        self._parts.discard(part)

    def _entry(self, job_id: int, key: str) -> Path:
        return self._directory / f"{job_id:d}" / hashlib.sha256(key.encode()).hexdigest()


def _look(entry: Path) -> tuple[int, int]:
    """When it was used last, and its size; nothing of one that goes just now."""
    try:
        return entry.stat().st_mtime_ns, int((entry / "size").read_text())
    except (OSError, ValueError):
        return 0, 0


def _digest(workspace: Path, name: str) -> str:
    """Of a file that may be missing: then the key says so. A link on the way there is none: the key would tell of
    files that the job cannot see."""
    try:
        with open_plain(workspace, name) as file:
            return hashlib.sha256(file.read(MAX_HASHED)).hexdigest()
    except (OSError, Invalid):
        return "none"


def _inside(workspace: Path, path: str) -> Path:
    """Return a directory of the workspace, itself no link and reached through none that leads out."""
    place = workspace / path
    if place.is_symlink() or not place.parent.resolve().is_relative_to(workspace.resolve()):
        raise Invalid(f"the cached path {path!r} is a link, or lies behind one that leads out of the workspace")
    return place


def _copy(source: Path, target: Path, limit: int, stop: Event) -> int:
    """Directories, plain files and links; return the bytes. What is there already is replaced by name."""
    size = 0
    directories = [(source, target)]
    while directories:
        origin, place = directories.pop()
        if place.is_symlink():  # it may lead out
            place.unlink()
        place.mkdir(parents=True, exist_ok=True)
        with os.scandir(origin) as scan:
            for entry in scan:
                heed(stop)
                size += BLOCK_BYTES
                if entry.is_dir(follow_symlinks=False):
                    directories.append((Path(entry.path), place / entry.name))
                    continue
                size += entry.stat(follow_symlinks=False).st_size
                if size > limit:
                    raise Invalid(f"more than {limit} bytes, what cache_limit leaves")
                _copy_one(entry, place / entry.name)
    return size


def _copy_one(entry: os.DirEntry[str], target: Path) -> None:
    if not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
        return
    with suppress(FileNotFoundError):
        target.unlink()
    shutil.copy2(entry.path, target, follow_symlinks=False)
    if not entry.is_symlink() and (mode := target.stat().st_mode) & SET_ID:
        target.chmod(stat.S_IMODE(mode) & ~SET_ID)
