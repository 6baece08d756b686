"""Files of a workspace that outlive it: found by glob when the sections are over, stored with the attempt's output.

What must stay true:
- Nothing outside of the workspace is read: links are neither followed nor stored, and what is no plain file
  (a device, a socket, a pipe that would wait for ever) is not opened.
- Files, bytes, names and the walk itself are bounded; what is left out is told.
Every process of the attempt is gone by now, so nobody moves what was looked at.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Event
from typing import BinaryIO, TypeVar

from horae.core.model import Json
from horae.core.work.builds import Globs
from horae.errors import Invalid
from horae.executors.attempts.testreports import read_junit
from horae.ports.outputs import Output

MAX_FILES = 1000
MAX_WALKED = 500_000  # entries of a workspace that are looked at
MAX_NAMES = 64 << 10  # bytes of the names of all artifacts, which stand in the run's result
MAX_REPORTS = 500
_OWN = re.compile(r"\.git|\.horae-[^/]*")
T = TypeVar("T")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Stopped(Exception):
    """Nobody wants it any more."""


async def in_thread(work: Callable[[Event], T]) -> T:
    """Work on files beside the event loop. Cancelled, it returns when the thread has seen the event and is gone: nobody
    is left in the workspace then."""
    stop = Event()
    thread = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({thread})
        thread.exception()
        raise


def heed(stop: Event) -> None:
    if stop.is_set():
        raise Stopped


@dataclass(slots=True)
class Found:
    """Files that matched, with what is to be said about others."""

    files: list[tuple[str, int]] = field(default_factory=list)  # path, size
    remarks: list[str] = field(default_factory=list)


def find(workspace: Path, globs: Sequence[str], most: int, stop: Event) -> Found:
    """Plain files that match, by name."""
    found, wanted = Found(), Globs(globs)
    skipped = names = 0
    for path, entry in _walk(workspace, found.remarks):
        heed(stop)
        if not wanted.match(path):
            continue
        if not entry.is_file(follow_symlinks=False) or not _is_text(path):
            skipped += 1
            continue
        names += len(path.encode())
        if len(found.files) == most or names > MAX_NAMES:
            found.remarks.append(f"more than {most} files or {MAX_NAMES} bytes of names: the rest is left out")
            break
        found.files.append((path, entry.stat(follow_symlinks=False).st_size))
    if skipped:
        found.remarks.append(f"{skipped} left out: a link, no plain file, or a name that is not UTF-8")
    return found


def _walk(workspace: Path, remarks: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything that is no directory, with its path from the workspace; git's and our own directories, which may
    hold secrets, are not looked into."""
    directories, left = [""], MAX_WALKED
    while directories:
        directory = directories.pop()
        try:
            with os.scandir(workspace / directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            remarks.append(f"{directory or '.'}: {error.strerror}")
            continue
        left -= len(entries)
        if left < 0:
            remarks.append(f"more than {MAX_WALKED} files in the workspace: the rest was not looked at")
            return
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield path, entry
            elif not _OWN.fullmatch(path):
                directories.append(path)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_plain(root: Path, path: str) -> BinaryIO:
    """Return a plain file below a directory, to read from, that is no link and is reached through none: whoever made
    the directory could lead us anywhere."""
    *parents, name = PurePosixPath(path).parts or ("",)
    if ".." in parents or path.startswith("/"):
        raise Invalid("it leads out of the workspace")
    with ExitStack() as stack:
        place = os.open(root, _FLAGS | os.O_DIRECTORY)
        stack.callback(os.close, place)
        for parent in parents:
            place = os.open(parent, _FLAGS | os.O_DIRECTORY, dir_fd=place)
            stack.callback(os.close, place)
        number = os.open(name, _FLAGS, dir_fd=place)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Invalid("not a plain file")
    return open(number, "rb")


def read_reports(workspace: Path, globs: Sequence[str], tests: Json, stop: Event) -> list[str]:
    """Add the tests of all reports to the counts; return what is to be said."""
    found = find(workspace, globs, MAX_REPORTS, stop)
    remarks = list(found.remarks) if found.files else ["no test report matches"]
    for path, _ in found.files:
        heed(stop)
        try:
            with open_plain(workspace, path) as file:
                read_junit(file, tests)
        except (Invalid, OSError) as error:
            remarks.append(f"{path}: {error}")
    return remarks


async def store(output: Output, workspace: Path, found: Found, limit: int) -> list[Json]:
    """Store what was found, in order, until `limit` bytes are reached; return what was stored."""
    stored: list[Json] = []
    for path, size in found.files:
        if size > limit:
            found.remarks.append(f"{path} and what comes after is left out: artifact_limit is reached")
            break
        try:
            file = open_plain(workspace, path)
        except (Invalid, OSError) as error:
            found.remarks.append(f"{path}: {error}")
            continue
        with file:
            taken = await output.attach(len(stored), file, size, path)
        limit -= taken
        stored.append({"path": path, "size": taken})
    return stored
