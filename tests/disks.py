"""Small file systems that are soon full, and a way to fill them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
FILLER = ".filler"


@contextmanager
def small_disk(place: Path, size: str = "2m", inodes: int = 200) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes},mode=0700", "none", place], check=True
    )
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> None:
    """Not a byte and not a name is left."""
    (place / FILLER).mkdir(exist_ok=True)
    with suppress(OSError), (place / FILLER / "bytes").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with suppress(OSError):
        for number in range(100_000):
            os.close(os.open(place / FILLER / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def clear(place: Path) -> None:
    for file in (place / FILLER).iterdir():
        file.unlink()
    (place / FILLER).rmdir()
