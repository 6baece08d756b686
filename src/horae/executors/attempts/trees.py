"""Removing whole directories, whatever a job has made of them.

It goes down and up by descriptors, one of them open at a time: neither the depth of a tree nor the length of its paths
is bounded by ours, and no link is followed, also none that takes the place of a directory meanwhile.

What must stay true: it never raises and always ends; what cannot be removed (a mount, somebody else's, an immutable
file) is told and left, and everything else is gone.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import structlog

log = structlog.get_logger()

PASSES_PER_DIRECTORY = 3  # looks at one directory: somebody may still put files into it
_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Identity = tuple[int, int]  # device and number of a directory


def remove_tree(path: Path) -> bool:
    """Remove a directory with everything in it; False when something is left, which the log tells."""
    removal = _Removal(path)
    try:
        removal.run()
    except Exception as error:  # of the machine: no descriptors, no memory, a disk that fails
        removal.leave(path.name, error)
    if not removal.left:
        return True
    log.warning("directory.left", path=str(path), entries=removal.left, error=removal.why)
    return False


@dataclass(slots=True)
class _Level:
    """A directory on the way down."""

    name: str  # in the one above
    identity: Identity
    directories: list[str] = field(default_factory=list)  # in it, to be removed
    passes: int = 0
    has_rest: bool = False  # something below it stays


class _Removal:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._here = -1  # the directory that we are in
        self._levels: list[_Level] = []  # from the one that holds the tree down to it
        self.left = 0  # entries that could not be removed
        self.why = ""  # of the first

    def leave(self, name: str, error: Exception) -> None:
        self.left += 1
        self.why = self.why or f"{name!r}: {getattr(error, 'strerror', None) or error}"
        for level in self._levels:
            level.has_rest = True

    def run(self) -> None:
        try:
            self._here = os.open(self._path.parent, _READ)
        except FileNotFoundError:
            return
        try:
            self._levels = [_Level("", _identity(os.fstat(self._here)), [self._path.name])]
            while True:
                if self._levels[-1].directories:
                    self._go_down(self._levels[-1].directories.pop())
                elif len(self._levels) == 1 or not self._go_up():
                    return
        finally:
            os.close(self._here)

    def _go_down(self, name: str) -> None:
        """Into a directory: remove its files, and note what is to be removed below it."""
        try:
            entered = self._enter(name)
        except FileNotFoundError:
            return
        except OSError as error:
            if not _unlink(name, self._here):  # it may be a link or a file by now
                self.leave(name, error)
            return
        os.close(self._here)
        self._here = entered
        self._levels.append(_Level(name, _identity(os.fstat(entered))))
        self._look()

    def _enter(self, name: str) -> int:
        """Return a directory that we may list and change, on the same file system: what is mounted below is not the
        job's."""
        found = os.open(name, _PATH, dir_fd=self._here)
        try:
            status = os.fstat(found)
            if len(self._levels) > 1 and status.st_dev != self._levels[1].identity[0]:
                raise OSError(0, "something is mounted there")
            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(f"/proc/self/fd/{found}", stat.S_IRWXU)  # by the descriptor: a name might be a link by now
            return os.open(".", _READ, dir_fd=found)
        finally:
            os.close(found)

    def _look(self) -> None:
        level = self._levels[-1]
        level.passes += 1
        with os.scandir(self._here) as scan:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
        level.directories = [name for name, is_directory in entries if is_directory]
        for name in [name for name, is_directory in entries if not is_directory]:
            try:
                os.unlink(name, dir_fd=self._here)
            except FileNotFoundError:
                continue
            except IsADirectoryError:
                level.directories.append(name)
            except OSError as error:
                self.leave(name, error)

    def _go_up(self) -> bool:
        """Out of a directory that was worked through, and remove it. False where the way up is another one now."""
        level = self._levels[-1]
        above = os.open("..", _READ, dir_fd=self._here)
        if _identity(os.fstat(above)) != self._levels[-2].identity:
            os.close(above)
            self.leave(level.name, OSError(0, "somebody moves these directories about"))
            return False
        try:
            os.rmdir(level.name, dir_fd=above)
        except FileNotFoundError:
            pass
        except OSError as error:
            if not level.has_rest and level.passes < PASSES_PER_DIRECTORY:  # something has appeared since we looked
                os.close(above)
                self._look()
                return True
            if not level.has_rest:
                self.leave(level.name, error)
        os.close(self._here)
        self._here = above
        self._levels.pop()
        return True


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _unlink(name: str, directory: int) -> bool:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
