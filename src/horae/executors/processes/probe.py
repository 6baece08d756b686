"""Whether this machine can do what every attempt needs: files where they are written, and one more process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from horae.errors import Unavailable
from horae.ports.work import Command, Keeper

PROBE_BYTES = 256 << 10  # bytes that must find room: with less, the next attempt would fail again
PROBE_SECONDS = 30.0  # for a process to start and end
PROBE_NAME = ".horae-probe"


class MachineProbe:
    def __init__(self, keeper: Keeper, directories: Sequence[Path]) -> None:
        self._keeper = keeper
        self._directories = directories

    async def examine(self) -> str:
        """Return what the machine is short of; empty when it is well."""
        for directory in self._directories:
            if why := await asyncio.to_thread(_try_to_write, directory):
                return why
        return await self._try_to_start()

    async def _try_to_start(self) -> str:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                process = await self._keeper.spawn(Command(("/bin/sh", "-c", ":"), {}, "/"))
                exit_ = await process.wait()
        except Unavailable as error:
            return error.message
        except TimeoutError:
            return f"a process did not start and end within {PROBE_SECONDS:g} s"
        return exit_.message


def _try_to_write(directory: Path) -> str:
    place = directory / f"{PROBE_NAME}-{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)
        with (place / "file").open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"{directory}: {error.strerror}"
    finally:
        _remove(place)
    return ""


def _remove(place: Path) -> None:
    try:
        (place / "file").unlink(missing_ok=True)
        place.rmdir()
    except OSError:
        return  # it was not made, or the next probe uses it again
