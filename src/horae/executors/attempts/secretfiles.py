"""Secret files of attempts: those of the job, written before the first section of its own and gone with the attempt;
and those of a checkout, gone with it.

They lie in memory where the machine has a file system there (/dev/shm), so that no disk ever has them; elsewhere in the
workspace, in a directory of a name that nobody could put anything at: a checkout may hold links.

What must stay true:
- A directory is its owner's alone from the moment it is there, and bears a name that nobody could foresee.
- What a crash left is removed when the executor is opened next, before any work.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from horae.executors.attempts.trees import remove_tree

MEMORY = Path("/dev/shm")  # noqa: S108  # directories in it are made by mkdtemp
IN_WORKSPACE = ".horae-secrets-"
_IN_MEMORY = ("tmpfs", "ramfs")


class SecretFiles:
    """Those of one kind of work, told from others by the directory of its workspaces."""

    def __init__(self, kind: str, workspaces: Path, memory: Path = MEMORY) -> None:
        digest = hashlib.sha256(os.fsencode(workspaces)).hexdigest()[:12]
        self._prefix = f"horae-{digest}-{kind}-"
        self._memory = memory if _is_memory(memory) else None

    def open(self, kept: Collection[Path] = ()) -> None:
        """Remove what an earlier life left, but for what goes on."""
        if self._memory is not None:
            for left in set(self._memory.glob(f"{self._prefix}*")) - set(kept):
                with suppress(FileNotFoundError):
                    if left.lstat().st_uid == os.geteuid():
                        remove_tree(left)

    def make(self, workspace: Path) -> Path:
        """Return a directory for some."""
        prefix, place = (IN_WORKSPACE, workspace) if self._memory is None else (self._prefix, self._memory)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=place))

    def write(self, files: Mapping[str, str], workspace: Path) -> Path | None:
        """Return the directory of the files, each below its name; None when there are none."""
        if not files:
            return None
        directory = self.make(workspace)
        try:
            for name, value in files.items():
                _write(directory / name, value)
        except BaseException:
            self.remove(directory)
            raise
        return directory

    def remove(self, directory: Path) -> None:
        remove_tree(directory)


def _is_memory(place: Path) -> bool:
    """Return whether a file system in memory is mounted there, which we may write to."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    kinds = [kind for mount, kind in mounts if mount == str(place)]
    return bool(kinds) and kinds[-1] in _IN_MEMORY and os.access(place, os.W_OK | os.X_OK)


def _write(path: Path, value: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(opened, "wb") as file:
        file.write(value.encode())
