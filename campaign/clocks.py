"""Wall clocks that are wrong, one for each process: `clock.c`, loaded before everything else, adds what a file says.

libfaketime would do the same; it also stands before sleeping, and fails there when only the wall clock is to lie.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "clock.c"
NUMBERS = struct.Struct("=qqq")  # nanoseconds to add, how often a wrong time was told, the last one told


def missing() -> str:
    """Why clocks cannot be made to lie here; empty when they can."""
    return "" if shutil.which("cc") else "there is no C compiler"


def build(directory: Path) -> Path:
    library = directory / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    return library


class Clock:
    def __init__(self, library: Path, path: Path) -> None:
        self._library, self._path = library, path
        path.write_bytes(NUMBERS.pack(0, 0, 0))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CAMPAIGN_CLOCK": str(self._path)}

    def set(self, seconds: float) -> None:
        """Be wrong by so much from now on, and count anew how often that is told."""
        with self._path.open("r+b") as file:
            file.write(NUMBERS.pack(round(seconds * 1e9), 0, 0))

    def told(self) -> tuple[int, float]:
        """Return how often the process asked and was told a wrong time, and the last time it was told."""
        _, number, last = NUMBERS.unpack(self._path.read_bytes())
        return number, last / 1e9
