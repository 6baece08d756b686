"""An agent's executor in one sandbox, for tests of what is contained in it; what is left is looked for from outside:
processes by a mark in their environment, groups in the kernel's own directories, mounts in ours, containers by asking.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from horae.app.machine import SystemClock
from horae.core.model import Json, State
from horae.core.runs.orders import Result
from horae.executors.processes.process import KeeperProcess
from horae.executors.shell import shell_executor
from horae.ports.work import Sandbox, Sandboxes
from horae.sandboxes.bubblewrap import BubblewrapSandbox, Bwrap, find_bwrap
from horae.sandboxes.cgroups import Groups, find_controllers
from horae.sandboxes.docker import DockerSandbox
from horae.sandboxes.endpoints import Reach, find_joiner
from horae.sandboxes.plain import PlainSandbox
from tests.contract.test_executors import Rig, steps
from tests.engines.dockerd import IMAGE, Daemon

PATIENCE = 60.0
PROGRAMS = {"plain": (), "bubblewrap": ("bwrap",), "docker": ("dockerd", "docker")}


class Place(Rig):
    """An agent's executor with its data directory, in one sandbox."""

    def __init__(
        self, data: Path, name: str, sandboxes: Sandboxes, keeper: KeeperProcess, daemon: Daemon | None
    ) -> None:
        workspaces = data / "agent" / "workspaces"
        executor = shell_executor(sandboxes, workspaces, 4, SystemClock(), grace=1.0, artifact_limit=1 << 20)
        super().__init__(executor, SystemClock())  # type: ignore[arg-type]
        self.data = data
        self.name = name
        self.keeper = keeper
        self.sandboxes = sandboxes
        self.daemon = daemon

    async def do(self, *runs: str, **more: Any) -> tuple[Result, str]:
        return await self.run(self.spec(*runs, **more))

    def spec(self, *runs: str, env: Mapping[str, str] = MappingProxyType({}), **more: Any) -> Json:
        where: Json = {"sandbox": self.name} if self.daemon is None else {"image": IMAGE}
        return steps(*runs, **where, env={"HORAE_TEST_MARK": str(self.data), **env}, **more)

    def processes(self) -> list[int]:
        """Everything anywhere on the machine that carries our mark."""
        mark = f"HORAE_TEST_MARK={self.data}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _environment(pid)]

    def relays(self) -> list[int]:
        """Relays below the process hosts of our keeper."""
        below = [pid for host in children_of(self.keeper.pid) for pid in children_of(host)]
        return [pid for pid in below if b"relay.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def groups(self) -> list[Path]:
        if self.daemon is not None:
            return self.daemon.groups()
        name = Groups(self.data)._name
        parents = [top / name for top, _ in find_controllers().values()]
        return [entry for parent in parents if parent.is_dir() for entry in parent.iterdir() if entry.is_dir()]

    async def assert_nothing_is_left(self) -> None:
        """And the agent is as good as before."""
        assert self.processes() == []
        assert self.relays() == []
        assert self.groups() == []
        assert str(self.data) not in Path("/proc/self/mountinfo").read_text()
        assert list((self.data / "agent" / "workspaces").iterdir()) == []
        if self.daemon is not None:
            assert self.daemon.containers() == []
            assert self.daemon.mounts() == []
        assert self.keeper.is_alive
        result, text = await self.do("echo healthy")
        assert (result.state, "healthy" in text) == (State.SUCCEEDED, True), result.message


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@asynccontextmanager
async def open_place(
    data: Path, name: str, request: pytest.FixtureRequest, reach: Reach | None = None
) -> AsyncIterator[Place]:
    request.getfixturevalue("need")("busybox", *PROGRAMS[name])
    daemon: Daemon | None = request.getfixturevalue("daemon") if name == "docker" else None
    keeper = KeeperProcess(data / "agent")
    place = Place(data, name, _sandboxes(data, name, keeper, daemon, reach or Reach(find_joiner())), keeper, daemon)
    await keeper.open()
    for sandbox in place.sandboxes.named.values():
        await sandbox.open()
    await place.executor.open()
    yield place
    await place.executor.close()
    await keeper.close()
    for sandbox in place.sandboxes.named.values():
        await sandbox.close()


def _sandboxes(data: Path, name: str, keeper: KeeperProcess, daemon: Daemon | None, reach: Reach) -> Sandboxes:
    groups = Groups(data)
    named: dict[str, Sandbox] = {"plain": PlainSandbox(keeper, groups)}
    if daemon is not None:
        named["docker"] = DockerSandbox("docker", daemon.url, keeper, f"agent-{data}", reach)
    if name == "bubblewrap":
        bwrap = find_bwrap()
        assert isinstance(bwrap, Bwrap), bwrap
        named["bubblewrap"] = BubblewrapSandbox(bwrap, keeper, groups, hidden=data, reach=reach)
    return Sandboxes(named, name)


async def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
