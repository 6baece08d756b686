"""Horae processes as the bench sees them: one under control (child.py), or the real `horae up`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.figure import Void
from bench.places import Place

JOBS = Path(__file__).parent / "jobs"
START = 60.0  # seconds a process has to come up
LOOK = 0.02  # seconds between two looks at the counts
GONE = "the Horae process ended early; its standard error says why"


def now() -> int:
    return time.time_ns() // 1000


class Node:
    """A process that runs bench/child.py."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word.encode() + b"\n")
            await self._process.stdin.drain()
        except (RuntimeError, OSError):
            raise Void(GONE) from None

    async def hear(self, seconds: float = START) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
        if not line:
            raise Void(GONE)
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def go(self) -> None:
        await self._tell("go")

    async def feel(self) -> None:
        """Have it note for how long its event loop does not come round."""
        await self._tell("feel")

    async def serve(self) -> None:
        """Let remote agents in."""
        await self._tell("rpc")
        await self.hear()

    async def stat(self) -> dict[str, Any]:
        await self._tell("stat")
        return await self.hear()

    async def stop(self) -> None:
        await self._tell("stop")
        await self.hear()
        await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


@asynccontextmanager
async def node(place: Place, **flags: str) -> AsyncIterator[Node]:
    """A Horae process on a place, up but not yet at work."""
    name = flags.get("node", "bench")
    data = place.directory / name
    data.mkdir(exist_ok=True)
    here = {"data": str(data), "node": name, "jobs_directory": str(JOBS), "sandbox": "plain"}
    settings = {**place.flags, **here, **flags}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.child", json.dumps(settings), stdin=PIPE, stdout=PIPE, env=_environment()
    )
    handle = Node(process)
    try:
        await handle.hear()
        yield handle
        await handle.stop()
    finally:
        handle.kill()
        await process.wait()


async def until(nodes: list[Node], count: str, target: int, seconds: float) -> list[dict[str, Any]]:
    """Wait until the nodes together have counted so much; their last words."""
    deadline = time.monotonic() + seconds
    while True:
        stats = [await each.stat() for each in nodes]
        reached = sum(stat[count] for stat in stats)
        if reached >= target:
            return stats
        if time.monotonic() > deadline:
            raise Void(f"{reached} of {target} {count} after {seconds:.0f} s")
        await asyncio.sleep(LOOK)


# ── the real command ──


class Server:
    """A process that runs `horae up`."""

    def __init__(self, process: Process, port: int) -> None:
        self.port = port
        self.pid = process.pid

    def cpu_seconds(self) -> float:
        """Of the process and its children, the keeper and the workers."""
        return sum(cpu_of(pid) for pid in [self.pid, *_children(self.pid)])

    def precise_cpu_seconds(self) -> float:
        """Of the process alone, as its scheduler counts: to the nanosecond, while it waits for something."""
        told = [(task / "schedstat").read_text() for task in Path(f"/proc/{self.pid}/task").iterdir()]
        return sum(int(text.split()[0]) for text in told) / 1e9

    def memory_mib(self) -> float:
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def is_ready(self) -> bool:
        """Return whether it says so itself."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        try:
            return b" 200 " in await reader.readline()
        finally:
            writer.close()


@asynccontextmanager
async def server(place: Place, program: str = "horae", **flags: str) -> AsyncIterator[Server]:
    """`horae up` on a place; yields as soon as it is started, before it is ready. `program`: what to run instead."""
    port = _free_port()
    settings = {**place.flags, "port": str(port), "jobs_directory": str(JOBS), "sandbox": "plain", **flags}
    argv = [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", value)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", program, "up", *argv, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=_environment()
    )
    try:
        yield Server(process, port)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(40):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def time_command(up: Server, *words: str) -> float:
    """Return the seconds that a command of a shell takes, from the start of its process to its end."""
    argv = [sys.executable, "-m", "horae", "--server", f"http://127.0.0.1:{up.port}", *words]
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=_environment()
    )  # fmt: skip
    _, errors = await process.communicate()
    if process.returncode:
        raise Void(f"horae {' '.join(words)}: {errors.decode()[-200:]}")
    return round(time.perf_counter() - began, 2)


async def ready(up: Server) -> None:
    deadline = time.monotonic() + START
    while not await up.is_ready():
        if time.monotonic() > deadline:
            raise Void(f"horae up was not ready after {START:.0f} s")
        await asyncio.sleep(0.005)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that a process has had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        direct = [int(text) for text in (task / "children").read_text().split()]
        found += direct + [pid for child in direct for pid in _children(child)]
    return found
