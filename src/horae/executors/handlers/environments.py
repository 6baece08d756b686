"""Environments of handlers: made once for each folder, list of requirements and owner, kept, and shared by all runs
that need the same.

They lie beside those of Python projects and are made by the same program (executors.git.environment): with uv where the
agent has it, else with pip.

What must stay true: an environment is used only when it was made to its end; a build that is given up leaves no
process.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from pathlib import Path

from horae.executors.git import environment as program
from horae.executors.handlers.requirements import Requirements
from horae.ports.work import Command, Exit, Keeper

BUILD_SECONDS = 1800.0  # after which an environment that is not made is given up
KILL_GRACE = 2.0  # seconds from TERM to KILL
LAST_LINES = 4  # of what a failed build said, for the message
READ_BYTES = 64 * 1024

_INHERITED = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
_SETTINGS = ("UV_", "PIP_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")  # how their names begin

Say = Callable[[bytes], None]


class Environments:
    """Makes environments below `directory`."""

    def __init__(self, keeper: Keeper, directory: Path) -> None:
        self._keeper = keeper
        self._directory = directory
        beside = Path(sys.executable).with_name("uv")
        self._uv = str(beside) if beside.exists() else shutil.which("uv") or ""

    def place(self, wanted: Requirements, owner: str) -> Path:
        """Return where the environment is, or will be."""
        parts = (os.path.realpath(sys.executable), sys.version, owner, wanted.digest)
        return self._directory.absolute() / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def is_made(self, place: Path) -> bool:
        """Return whether it can be used; if so, it is in use from now on, and not tidied away."""
        if not (place / program.MADE).exists():
            return False
        os.utime(place)
        return True

    async def make(self, place: Path, wanted: Requirements, say: Say) -> tuple[Exit, str]:
        """Return how the build ended, and the last that it said; `say` is given everything as it comes."""
        listed = _write(place, wanted)
        argv = [sys.executable, "-I", program.__file__, str(place), listed, *([self._uv] if self._uv else ())]
        ours, theirs = os.pipe()
        command = Command(argv, _environment(), wanted.directory, stdout=theirs, stderr=theirs)
        last: deque[bytes] = deque(maxlen=LAST_LINES)
        try:
            process = await self._keeper.spawn(command)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        reader = asyncio.ensure_future(_pump(ours, say, last))
        try:
            async with asyncio.timeout(BUILD_SECONDS):
                gone = await process.wait()
            await reader
        except TimeoutError:
            gone = await process.kill(KILL_GRACE)
            last.append(f"it took longer than {BUILD_SECONDS:g} s".encode())
        except asyncio.CancelledError:
            await process.kill(KILL_GRACE)
            raise
        finally:
            reader.cancel()
        return gone, b"; ".join(last).decode(errors="replace")


def _write(place: Path, wanted: Requirements) -> str:
    """Return a file with what is wanted: the author's may change while it is read."""
    place.mkdir(parents=True, exist_ok=True)
    listed = place / "requirements.txt"
    listed.write_text(wanted.text)
    return str(listed)


def worker_program(place: Path | None) -> list[str]:
    """Return how a worker is started in an environment, or in the agent's own; {} stands for its end of the socket."""
    if place is None:
        return [sys.executable, "-P", "-m", "horae.executors.handlers.worker", "{}"]
    own = [str(Path(__file__).resolve().parents[3]), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    start = str(Path(__file__).with_name("bootstrap.py"))
    return [str(place / program.VENV / "bin" / "python"), "-P", start, "{}", *dict.fromkeys(own)]


def _environment() -> dict[str, str]:
    """Return what a build gets of ours: where packages come from, and how to get there."""
    return {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.upper().startswith(_SETTINGS)
    }


async def _pump(source: int, say: Say, last: deque[bytes]) -> None:
    """Hand on what is written to a pipe, to its end, and keep the last lines."""
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(source, "rb"))
    rest = b""
    try:
        while data := await stream.read(READ_BYTES):
            say(data)
            *lines, rest = (rest + data).split(b"\n")
            last.extend(line.strip() for line in lines if line.strip())
        last.extend([rest.strip()] if rest.strip() else [])
    finally:
        transport.close()
