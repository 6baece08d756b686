"""Disks that can be full: a small file system in memory for each directory, in the campaign's own mount namespace."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

BLOCK = 65536
MIB = 1024 * 1024


class Disk:
    """What must stay true: `fill` leaves no room for a byte, and `clear` gives all of it back."""

    def __init__(self, path: Path, mib: int) -> None:
        self.path = path
        self._mib = mib
        self._ballast = path / "ballast"

    def begin(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._mib}m,mode=0755", "campaign", self.path], check=True
        )

    def fill(self) -> bool:
        """Write until the system says that there is no more room; whether it did."""
        with self._ballast.open("ab", buffering=0) as ballast:
            size = BLOCK
            while size:
                try:
                    ballast.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        return self.free() == 0

    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=False, capture_output=True)
