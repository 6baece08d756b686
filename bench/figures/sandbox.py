"""What a sandbox costs: the shortest job there is, as often as possible, against the same program started bare."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure, measure
from horae.bootstrap import SystemClock
from horae.core.model import State
from horae.executors.process import KeeperProcess
from horae.executors.shell import shell_executor
from horae.ports import Assignment, Command, Executor, Keeper, Process, Result, Room, Sandbox, Sandboxes, Work
from horae.sandboxes.bubblewrap import BubblewrapSandbox, Bwrap, find_bwrap
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.plain import PlainSandbox

ABREAST = 4
SPEC = {"steps": [{"name": "true", "run": "true"}]}


class NoOutput:
    """Takes everything and keeps nothing: what is measured is the process."""

    is_full = False
    ref = None

    def write(self, data: bytes) -> None: ...

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    async def close(self) -> None: ...


class Recorder:
    """A keeper that starts nothing: it keeps the command that a sandbox makes."""

    is_alive = True
    command: Command

    async def open(self) -> None: ...

    def renew(self, seconds: float) -> None: ...

    async def spawn(self, command: Command) -> Process:
        self.command = command
        raise InterruptedError

    async def close(self) -> None: ...


def make_sandbox(name: str, keeper: Keeper, data: Path) -> Sandbox:
    if name == "plain":
        return PlainSandbox(keeper, Groups(data))
    bwrap = find_bwrap()
    if not isinstance(bwrap, Bwrap):
        raise Void(bwrap)
    return BubblewrapSandbox(bwrap, keeper, Groups(data), hidden=data)


@figure(
    "sandbox",
    "shell jobs of one step `true` a second, in each sandbox; bare: the same program started without Horae",
    stores=("sqlite",), size=[1000], quick={"size": [100]},
)  # fmt: skip
async def sandbox(bench: Bench) -> AsyncIterator[Line]:
    for name in ("plain", "bubblewrap"):
        for size in bench["size"]:

            async def ours(name: str = name, size: int = size) -> tuple[float, dict[str, Any]]:
                async with executor(name) as one:
                    return await rate(size, lambda number: carry_out(one, number)), {}

            async def bare(name: str = name, size: int = size) -> float:
                return await bare_rate(name, size)

            aim = Aim("at least", 0.87, "quotient")  # 15 % more time
            line = Line(f"sandbox.{name}", bench.store, "per s", aim=aim, detail={"size": size, "abreast": ABREAST})
            yield await measure(line, bench["trials"], ours, bare)


@asynccontextmanager
async def executor(name: str) -> AsyncIterator[Executor]:
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        keeper = KeeperProcess(data / "agent")
        sandbox = make_sandbox(name, keeper, data)
        one = shell_executor(Sandboxes({name: sandbox}, name), data / "workspaces", ABREAST, SystemClock())
        for part in (keeper, sandbox, one):
            await part.open()
        try:
            yield one
        finally:
            for part in (one, keeper, sandbox):
                await part.close()


async def bare_rate(name: str, size: int) -> float:
    """The very command that the sandbox makes, started and waited for, with nothing around it."""
    with tempfile.TemporaryDirectory() as directory:
        keeper = Recorder()
        sandbox = make_sandbox(name, keeper, Path(directory))
        with suppress(InterruptedError):
            await sandbox.spawn(Command(("/bin/sh", "-e", "-c", "--", "true"), {}, directory), Room(directory, "1-1"))
        command = keeper.command

        async def start(_: int) -> None:
            await asyncio.to_thread(
                subprocess.run, command.argv, env=command.env, cwd=command.cwd, check=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

        return await rate(size, start)


async def carry_out(one: Executor, number: int) -> None:
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    assignment = Assignment(number, 1, 1, 1, None, 0, "shell", "true", "{}", "{}", None)
    one.start([Work(assignment, SPEC, NoOutput(), None, 0)], done.set_result)
    result = await done
    if result.state is not State.SUCCEEDED:
        raise Void(result.message)


async def rate(size: int, start: Callable[[int], Awaitable[None]]) -> float:
    """How many a second, a few at a time."""
    numbers = itertools.count(1)

    async def lane() -> None:
        while (number := next(numbers)) <= size:
            await start(number)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(ABREAST)))
    return size / (time.perf_counter() - began)
