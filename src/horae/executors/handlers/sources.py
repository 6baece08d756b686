"""The files that the code of a worker process came from, and whether they still say the same.

Modules of authors (all that lie neither in Python's own directories, nor in site-packages, nor in Horae) are compiled
from the very bytes that are remembered here, never from a .pyc: that is told apart by time and size alone, and a save
within the same second can have both. All Python files of a job's folder are read when the first of them is, so that an
import inside a function brings the code that the run began with.

What must stay true: a file that changed at any time after it was read here is found by the next look. So its stamp is
taken before it is read; a stamp that is younger than the clock of the file system can tell apart is not believed.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import machinery
from pathlib import Path
from typing import Any, NamedTuple

SETTLED_SECONDS = 0.1  # for which files are left alone before code from them is used: a save may not be complete
YOUNG_SECONDS = 2.0  # within which two changes of a file may have one stamp
CHEAP_SECONDS = 0.001  # of a look that is made for every batch;
GAP_SECONDS = 0.2  # between two that cost more
MOST_FILES = 1000  # of one folder that are read ahead

_INSTALLED = ("site-packages", "dist-packages")
_NOT_CODE = ("__pycache__", "node_modules", *_INSTALLED)


class _Known(NamedTuple):
    stamp: tuple[int, ...]
    digest: bytes
    is_young: bool  # a later change may have the same stamp


class Sources:
    """What this process was loaded from."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._ahead: dict[str, bytes] = {}  # read, and not yet imported
        self._look_at = 0.0

    def install(self) -> None:
        """Have modules of authors loaded through here from now on."""
        kinds = [
            (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
            (partial(_Loader, self), machinery.SOURCE_SUFFIXES),
            (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
        ]
        find = machinery.FileFinder.path_hook(*kinds)  # type: ignore[arg-type]  # what makes a loader, is one

        def find_local(path: str) -> Any:
            if not is_local(path):
                raise ImportError(f"{path} is not of an author")
            return find(path)

        sys.path_hooks.insert(0, find_local)
        sys.path_importer_cache.clear()

    def read(self, path: str) -> bytes:
        """Return what is in a file, and remember it."""
        data = self._ahead.pop(path, None)
        return self._read(path) if data is None else data

    def read_folder(self, folder: Path) -> None:
        """Read the Python files of a job's folder ahead, once."""
        if str(folder) in self._known:
            return
        directories, files = tree_of(folder)
        for path in (*directories, *files) if len(files) <= MOST_FILES else ():
            if path not in self._known:
                data = self._read(path)
                self._ahead |= {path: data} if path in files else {}

    def note(self, path: Path) -> None:
        """Remember a file that is no code, but decides which code runs; also that it is not there."""
        if str(path) not in self._known:
            try:
                self._read(str(path))
            except OSError:
                self._known[str(path)] = _Known((), b"", False)

    def settle(self) -> str:
        """Wait until nobody writes to what was read any more; return the first file that has changed since, if any."""
        while (rest := SETTLED_SECONDS - self._youngest()) > 0:
            time.sleep(rest)
        self._look_at = 0.0
        return self.changed()

    def changed(self) -> str:
        """Return the first file that is no longer what was read, if any. With very many files, it looks only now and
        then."""
        if time.monotonic() < self._look_at:
            return ""
        began = time.thread_time()
        found = next(self._differing(), "")
        if time.thread_time() - began > CHEAP_SECONDS:
            self._look_at = time.monotonic() + GAP_SECONDS
        return found

    def _read(self, path: str) -> bytes:
        """What was read first counts: if it is something else the second time, the file has changed."""
        stamp, is_young = _stamp(path)
        data = _content(path)
        self._known.setdefault(path, _Known(stamp, _digest(data), is_young))
        return data

    def _youngest(self) -> float:
        """Return how many seconds ago the youngest file was changed. One from the future says nothing."""
        now = time.time()
        ages = (now - known.stamp[1] / 1e9 for known in list(self._known.values()) if known.is_young)
        return min((age for age in ages if age >= 0), default=SETTLED_SECONDS)

    def _differing(self) -> Iterator[str]:
        for path, known in list(self._known.items()):
            if self._differs(path, known):
                yield path

    def _differs(self, path: str, known: _Known) -> bool:
        try:
            stamp, is_young = _stamp(path)
            if stamp == known.stamp and not known.is_young:
                return False
            digest = _digest(_content(path))
        except OSError:
            return bool(known.stamp)  # it is gone, if it was there
        if digest == known.digest:
            self._known[path] = _Known(stamp, digest, is_young)
        return digest != known.digest


class _Loader(machinery.SourceFileLoader):
    def __init__(self, sources: Sources, name: str, path: str) -> None:
        super().__init__(name, path)
        self._sources = sources

    def path_stats(self, path: str) -> Any:
        """Without them, no .pyc is read or written."""
        raise OSError("code of authors is not cached")

    def get_data(self, path: Any) -> bytes:
        data = self._sources.read(os.fspath(path))
        if str(path).endswith(".py"):  # a traceback shows the lines that ran, not those that replaced them
            lines = data.decode("utf-8", "replace").splitlines(keepends=True)
            linecache.cache[str(path)] = (len(data), None, lines, str(path))
        return data


def is_local(path: str) -> bool:
    """Return whether a directory is one of authors: neither Python's own, nor of installed packages, nor Horae's."""
    real = Path(os.path.realpath(path))
    return not any(part in _INSTALLED for part in real.parts) and not any(real.is_relative_to(one) for one in _FOREIGN)


def tree_of(folder: Path) -> tuple[list[str], list[str]]:
    """Return the directories and the Python files below a folder; at most one file more than are read ahead."""
    directories, files = [], list[str]()
    for parent, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if _may_hold_code(name))
        directories.append(parent)
        files += (os.path.join(parent, name) for name in sorted(names) if _is_code(name))
        if len(files) > MOST_FILES:
            break
    return directories, files[: MOST_FILES + 1]


def _may_hold_code(directory: str) -> bool:
    return directory not in _NOT_CODE and not directory.startswith(".")


def _is_code(file: str) -> bool:
    return file.endswith(".py") and not file.startswith(".")


def _content(path: str) -> bytes:
    """Return what is in a file; of a directory, what may be imported from it."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except IsADirectoryError:
        with os.scandir(path) as found:
            kept = [each for each in found if _is_code(each.name) or (each.is_dir() and _may_hold_code(each.name))]
        names = [each.name for each in kept]
        return "\0".join(sorted(names)).encode(errors="surrogateescape")


def version_of(folder: Path, files: Iterable[str]) -> str:
    """Return the version of code: the same wherever these files say the same, whatever lies above `folder`."""
    total = hashlib.sha256()
    for path in sorted(files):
        try:
            content = _digest(Path(path).read_bytes())
        except OSError:
            content = b""
        total.update(os.path.relpath(path, folder).encode() + b"\0" + content)
    return total.hexdigest()[:12]


def _stamp(path: str) -> tuple[tuple[int, ...], bool]:
    """Return that of a file as it is now, and whether a later change may leave it the same. Anybody can set the first
    moment in it, nobody the second."""
    stat = os.stat(path)
    stamp = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_dev)
    return stamp, abs(time.time_ns() - stat.st_ctime_ns) < YOUNG_SECONDS * 1e9


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


_FOREIGN = [
    *(os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).resolve().parents[2]),
]
