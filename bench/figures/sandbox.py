"""What a sandbox costs: the shortest job there is, as often as possible, against the bare sandbox.

Bare is the same sandbox, with its walls and its control groups, around the same program in a session of its own, its
output read and its end waited for; but started by the least there is (a thread and vfork) in place of our keeper, and
without an attempt around it: no workspace, no log, no result, nobody who would kill what it leaves behind.
"""

from __future__ import annotations

import asyncio
import itertools
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.engines.dockerd import IMAGE, Daemon

from bench.figure import Aim, Bench, Line, Void, figure, measure
from horae.app.machine import SystemClock
from horae.core.model import State
from horae.core.runs.orders import Assignment, Result
from horae.executors.processes.process import KeeperProcess
from horae.executors.shell import shell_executor
from horae.ports.work import Boundary, Command, Executor, Exit, Keeper, Process, Sandbox, Sandboxes, Work
from horae.sandboxes.bubblewrap import BubblewrapSandbox, Bwrap, find_bwrap
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.docker import DockerSandbox
from horae.sandboxes.plain import PlainSandbox

NAMES = ("plain", "bubblewrap", "docker")
ABREAST = 4
AIM = Aim("at least", 0.87, "quotient")  # 15 % more time
SPEC: dict[str, Any] = {"steps": [{"name": "true", "run": "true"}]}


class NoOutput:
    """Takes everything and keeps nothing: what is measured is the process."""

    is_full = False
    has_gaps = False
    ref = None

    def write(self, data: bytes) -> None: ...

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    async def close(self) -> None: ...


class BareKeeper:
    """Starts programs, and guarantees nothing."""

    is_alive = True
    keeps = False

    async def open(self) -> None: ...

    def renew(self, seconds: float) -> None: ...

    async def spawn(self, command: Command) -> Process:
        argv = command.argv
        if command.groups:
            joins = "".join(f"echo 0 > {shlex.quote(group)}; " for group in command.groups)
            argv = ("/bin/sh", "-c", f'{joins}exec "$@"', "sh", *argv)
        started = await asyncio.to_thread(start_bare, command, argv)  # whose descriptors are the caller's until then
        return Bare(asyncio.create_task(asyncio.to_thread(wait_for_bare, started)))

    async def close(self) -> None: ...


@dataclass
class Bare:
    task: asyncio.Task[Exit]
    pid = 0

    async def wait(self) -> Exit:
        return await asyncio.shield(self.task)

    async def kill(self, grace: float = 5.0) -> Exit:
        raise NotImplementedError("nobody kills what is measured")


def start_bare(command: Command, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=command.env, cwd=command.cwd, start_new_session=True, pass_fds=command.keep,
        stdin=subprocess.DEVNULL if command.stdin is None else command.stdin,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def wait_for_bare(started: subprocess.Popen[bytes]) -> Exit:
    started.communicate()
    return Exit(started.returncode)


@contextmanager
def docker_daemon(name: str) -> Iterator[str]:
    """The address of a daemon of our own that has the image; empty where none is wanted."""
    if name != "docker":
        yield ""
        return
    if not all(map(shutil.which, ("dockerd", "docker", "busybox"))):
        raise Void("dockerd, docker and busybox are needed")
    daemon = Daemon()
    try:
        yield daemon.url
    finally:
        daemon.stop()


def make_sandbox(name: str, keeper: Keeper, data: Path, url: str) -> Sandbox:
    if name == "plain":
        return PlainSandbox(keeper, Groups(data))
    if name == "docker":
        return DockerSandbox("docker", url, keeper, "bench")
    bwrap = find_bwrap()
    if not isinstance(bwrap, Bwrap):
        raise Void(bwrap)
    return BubblewrapSandbox(bwrap, keeper, Groups(data), hidden=data)


@figure(
    "sandbox",
    "shell jobs of one step `true` a second, in each sandbox; bare: the sandbox without an agent around it",
    stores=("sqlite",), size=[1000], quick={"size": [100]},
)  # fmt: skip
async def sandbox(bench: Bench) -> AsyncIterator[Line]:
    for name in NAMES:
        for full in bench["size"]:
            size = full // 20 if name == "docker" else full
            line = Line(f"sandbox.{name}", bench.store, "per s", aim=AIM, detail={"size": size, "abreast": ABREAST})
            try:
                with docker_daemon(name) as url:
                    ours, bare = partial(our_rate, name, size, url), partial(bare_rate, name, size, url)
                    yield await measure(line, bench["trials"], ours, bare)
            except Void as why:
                line.void = str(why)
                yield line


async def our_rate(name: str, size: int, url: str) -> tuple[float, dict[str, Any]]:
    spec = SPEC | ({"image": IMAGE} if name == "docker" else {})
    async with placed(name, KeeperProcess, url) as (data, sandbox):
        one = shell_executor(Sandboxes({name: sandbox}, name), data / "workspaces", ABREAST, SystemClock())
        await one.open()
        try:
            return await rate(size, lambda number: carry_out(one, spec, number)), {}
        finally:
            await one.close()


async def bare_rate(name: str, size: int, url: str) -> float:
    async with placed(name, lambda _: BareKeeper(), url) as (data, sandbox):
        command = Command(("/bin/sh", "-e", "-c", "--", "true"), {}, str(data))

        async def start(number: int) -> None:
            process = await sandbox.spawn(command, Boundary(str(data), f"{number}-1", image=IMAGE))
            if (await process.wait()).code:
                raise Void("a bare program failed")

        return await rate(size, start)


@asynccontextmanager
async def placed(name: str, make_keeper: Callable[[Path], Keeper], url: str) -> AsyncIterator[tuple[Path, Sandbox]]:
    """A sandbox in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        keeper = make_keeper(data / "agent")
        sandbox = make_sandbox(name, keeper, data, url)
        await keeper.open()
        await sandbox.open()
        try:
            yield data, sandbox
        finally:
            await keeper.close()
            await sandbox.close()


async def carry_out(one: Executor, spec: dict[str, Any], number: int) -> None:
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    assignment = Assignment(number, 1, 1, 1, None, 0, "shell", "true", "{}", "{}", None)
    one.start([Work(assignment, spec, NoOutput(), None, 0)], done.set_result)
    result = await done
    if result.state is not State.SUCCEEDED:
        raise Void(result.message)


async def rate(size: int, start: Callable[[int], Awaitable[None]]) -> float:
    """Return how many a second, a few at a time."""
    numbers = itertools.count(1)

    async def lane() -> None:
        while (number := next(numbers)) <= size:
            await start(number)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(ABREAST)))
    return size / (time.perf_counter() - began)
