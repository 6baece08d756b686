"""Jobs that mean harm, in each sandbox that runs processes: contained, ended with the right reason, nothing left.

`plain` promises the end of the whole tree, limits and an end to floods; `bubblewrap` promises walls as well.
What is left is looked for from outside: processes by a mark in their environment, groups in the kernel's own
directories, mounts in ours.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from horae.bootstrap import SystemClock
from horae.core.model import Json, Reason, State
from horae.executors.process import KeeperProcess
from horae.executors.shell import shell_executor
from horae.ports import Result, Sandbox, Sandboxes
from horae.sandboxes.bubblewrap import BubblewrapSandbox, Bwrap, find_bwrap
from horae.sandboxes.cgroups import CONTROLLERS, Groups, find_controllers
from horae.sandboxes.plain import PlainSandbox
from tests.contract.test_executors import MemoryOutput, Rig, steps

PATIENCE = 60.0
DEAD_WITHIN = 5.0
NAMES = ("plain", "bubblewrap")
FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 600"
HOG = "python3 -c 'x = bytearray(600_000_000); print(len(x))'"
LIMITS = {"memory": 200 * 2**20, "pids": 100}
ESCAPE = (
    "import os, time\n"
    "for _ in range(2):\n"
    "    if os.fork(): os._exit(0)\n"
    "    os.setsid()\n"
    "open('escaped', 'w').close()\n"
    "time.sleep(600)"
)


class Place(Rig):
    """An agent's executor with its data directory, in one sandbox."""

    def __init__(self, data: Path, name: str, sandboxes: Sandboxes, keeper: KeeperProcess) -> None:
        executor = shell_executor(sandboxes, data / "agent" / "workspaces", 4, SystemClock(), grace=1.0)
        super().__init__(executor, SystemClock())  # type: ignore[arg-type]
        self.data = data
        self.name = name
        self.keeper = keeper
        self.sandboxes = sandboxes

    async def do(self, *runs: str, **more: Any) -> tuple[Result, str]:
        return await self.run(self.spec(*runs, **more))

    def spec(self, *runs: str, **more: Any) -> Json:
        return steps(*runs, sandbox=self.name, env={"HORAE_TEST_MARK": str(self.data)}, **more)

    def processes(self) -> list[int]:
        """Everything anywhere on the machine that carries our mark."""
        mark = f"HORAE_TEST_MARK={self.data}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _environment(pid)]

    def groups(self) -> list[Path]:
        name = Groups(self.data)._name
        parents = [top / name for top, _ in find_controllers().values()]
        return [entry for parent in parents if parent.is_dir() for entry in parent.iterdir() if entry.is_dir()]

    async def assert_nothing_is_left(self) -> None:
        assert self.processes() == []
        assert self.groups() == []
        assert str(self.data) not in Path("/proc/self/mountinfo").read_text()
        assert list((self.data / "agent" / "workspaces").iterdir()) == []
        result, text = await self.do("echo healthy")
        assert (result.state, "healthy" in text) == (State.SUCCEEDED, True), result.message


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def _open(data: Path, name: str) -> Place:
    keeper = KeeperProcess(data / "agent")
    groups = Groups(data)
    bwrap = find_bwrap()
    assert isinstance(bwrap, Bwrap), bwrap
    named: dict[str, Sandbox] = {
        "plain": PlainSandbox(keeper, groups),
        "bubblewrap": BubblewrapSandbox(bwrap, keeper, groups, hidden=data),
    }
    place = Place(data, name, Sandboxes(named, name), keeper)
    await keeper.open()
    for sandbox in named.values():
        await sandbox.open()
    await place.executor.open()
    return place


@pytest.fixture(params=NAMES)
async def place(request: pytest.FixtureRequest, tmp_path: Path, need: Callable[..., None]) -> AsyncIterator[Place]:
    need("bwrap")
    async for place in _places(tmp_path, request.param):
        yield place


@pytest.fixture
async def walled(tmp_path: Path, need: Callable[..., None]) -> AsyncIterator[Place]:
    need("bwrap")
    async for place in _places(tmp_path, "bubblewrap"):
        yield place


async def _places(tmp_path: Path, name: str) -> AsyncIterator[Place]:
    place = await _open(tmp_path / "data", name)
    yield place
    await place.executor.close()
    await place.keeper.close()
    for sandbox in place.sandboxes.named.values():
        await sandbox.close()


@pytest.fixture
def limited() -> None:
    """The kernel lets us make groups; else what is tested is not there."""
    if set(find_controllers()) < set(CONTROLLERS.values()) or os.getuid() != 0:
        words = "control groups cannot be made here: run as root, or in a delegated group"
        (pytest.fail if os.environ.get("HORAE_REQUIRE_SERVERS") else pytest.skip)(words)


async def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


# ── what every sandbox promises ────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("limited")
async def test_a_fork_bomb_ends_with_its_reason(place: Place) -> None:
    result, _ = await place.do(FORK_BOMB, limits=LIMITS)
    assert (result.state, result.reason) == (State.FAILED, Reason.PROCESSES)
    assert result.message == "step 1 's1': it made more processes than its limit of 100"
    await place.assert_nothing_is_left()


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("script", [HOG, f"{HOG} || true; sleep 600"], ids=["fails", "goes on"])
async def test_a_memory_hog_ends_with_its_reason(place: Place, script: str) -> None:
    result, text = await place.do(script, limits=LIMITS)
    assert (result.state, result.reason) == (State.FAILED, Reason.OOM), text
    assert result.message == "step 1 's1': it needed more memory than its limit of 200 MiB"
    await place.assert_nothing_is_left()


@pytest.mark.usefixtures("limited")
async def test_a_share_of_a_processor_is_kept(place: Place) -> None:
    busy = "python3 -c 'import time; end = time.monotonic() + 2\nwhile time.monotonic() < end: pass\n"
    result, text = await place.do(busy + "print(time.process_time())'", limits={"cpus": 0.2})
    assert result.state is State.SUCCEEDED, text
    assert float(text.split()[-1]) < 1.0


async def test_a_gigabyte_of_output_ends_with_its_reason(place: Place) -> None:
    output = MemoryOutput(limit=20 << 20)
    result, _ = await place.run(place.spec("head -c 1000000000 /dev/zero"), output=output)
    assert (result.state, result.reason) == (State.FAILED, Reason.OUTPUT_LIMIT)
    await place.assert_nothing_is_left()


async def test_what_forks_twice_into_new_sessions_dies_with_its_job(place: Place) -> None:
    script = f'python3 -c "{ESCAPE}" & while [ ! -e escaped ]; do sleep 0.02; done'
    result, text = await place.do(script)
    assert result.state is State.SUCCEEDED, text
    await place.assert_nothing_is_left()


@pytest.mark.parametrize("end", ["cancel", "timeout"])
async def test_what_ignores_every_request_is_dead_within_seconds(place: Place, end: str) -> None:
    stubborn = "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM; sleep 600\" & echo on; while :; do sleep 1; done"
    timeout = 2.0 if end == "timeout" else None
    output = place.start(place.spec(stubborn), timeout=timeout)
    await output.until("on\n")
    began = time.monotonic()
    if end == "cancel":
        place.executor.stop(1, Reason.REQUESTED)
    await until(lambda: not place.processes())
    assert time.monotonic() - began < DEAD_WITHIN + (timeout or 0)
    result = await place.ended()
    assert result.state is (State.CANCELLED if end == "cancel" else State.TIMED_OUT)
    await place.assert_nothing_is_left()


async def test_a_job_that_is_cancelled_gets_time_to_clean_up(place: Place) -> None:
    output = place.start(place.spec("trap 'echo cleaned; exit 3' TERM; echo on; while :; do sleep 0.05; done"))
    await output.until("on\n")
    place.executor.stop(1, Reason.REQUESTED)
    result = await place.ended()
    assert "cleaned" in output.text
    assert (result.state, result.exit_code) == (State.CANCELLED, 3)
    await place.assert_nothing_is_left()


async def test_killing_every_process_it_can_reach_harms_only_the_job_itself(walled: Place) -> None:
    result, _ = await walled.do("kill -9 $PPID; kill -9 -1; exit 0")
    assert result.state in (State.SUCCEEDED, State.FAILED)
    assert walled.keeper.is_alive
    await walled.assert_nothing_is_left()


async def test_killing_the_parent_leaves_nothing_of_the_job(walled: Place) -> None:
    script = "setsid sleep 600 & echo on; sleep 600"
    output = walled.start(walled.spec(script))
    await output.until("on\n")
    os.kill(walled.keeper.pid, signal.SIGKILL)
    assert (await walled.ended()).reason == Reason.LOST
    await until(lambda: not walled.processes())


@pytest.mark.usefixtures("limited")
async def test_groups_of_an_earlier_life_are_gone_after_the_next_start(tmp_path: Path, walled: Place) -> None:
    output = walled.start(walled.spec("echo on; sleep 600", limits=LIMITS))
    await output.until("on\n")
    assert walled.groups()
    os.kill(walled.keeper.pid, signal.SIGKILL)
    await until(lambda: not walled.processes())
    fresh = Groups(walled.data)
    fresh.open()
    assert walled.groups() == []
    await walled.ended()


# ── walls ──────────────────────────────────────────────────────────────────────────────────────────


async def test_files_of_others_and_of_the_agent_are_not_there(walled: Place, tmp_path: Path) -> None:
    other = walled.data / "agent" / "workspaces" / "77-1"
    other.mkdir(parents=True)
    secrets = [other / "secret", walled.data / "horae.db", tmp_path / "secret", Path.home() / ".horae-test-secret"]
    for path in secrets:
        path.write_text("hidden-treasure")
    try:
        tries = " ".join(f"cat {path};" for path in (*secrets, "/etc/shadow", "/proc/1/environ"))
        result, text = await walled.do(f"set +e; {tries} ls -A /home /root /var; ls {walled.data} {other.parent}; true")
    finally:
        for path in secrets:
            path.unlink()
        other.rmdir()
    assert result.state is State.SUCCEEDED, text
    assert "hidden-treasure" not in text
    assert "root:" not in text
    assert "77-1" not in text.replace(str(other), "")
    assert "horae.db" not in text.replace(str(walled.data / "horae.db"), "")


async def test_neither_the_api_nor_the_database_can_be_reached(walled: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {port}), 5); print("in")\''
        off, text = await walled.do(connect)
        assert (off.state, "in\n" in text) == (State.FAILED, False)
        assert "refused" in text
        on, text = await walled.do(connect, network="on")
        assert (on.state, "in\n" in text) == (State.SUCCEEDED, True), text


@pytest.mark.parametrize(
    "attempt",
    [
        "touch /usr/bin/planted",
        "touch /etc/planted",
        "touch /planted",
        "cat /proc/sys/kernel/panic > /proc/sys/kernel/panic",
        "chmod 666 /dev/null",
        "chmod 666 /dev/stdin",
        "cat /proc/self/oom_score_adj > /proc/self/oom_score_adj",
        "echo b > /proc/sysrq-trigger",
        "mount -t tmpfs none /usr",
        "mount -o remount,rw,bind /usr",
        "umount /usr",
        "unshare -U true",
        "mknod disk b 8 0",
        "chroot /usr true",
        "ls /sys/fs/cgroup/memory",
        "cat /dev/mem",
    ],
)
async def test_the_system_cannot_be_changed(walled: Place, attempt: str) -> None:
    result, text = await walled.do(attempt)
    assert (result.state, result.reason) == (State.FAILED, Reason.EXIT), text
    await walled.assert_nothing_is_left()


async def test_a_job_owns_its_workspace_and_a_tmp_that_nobody_else_sees(walled: Place) -> None:
    name = f"horae-{os.getpid()}"
    script = f"touch here /tmp/{name} && ls /tmp/{name} && pwd && echo home $HOME && test -O here && id -u"
    result, text = await walled.do(script)
    workspace = f"{walled.data}/agent/workspaces/1-3"
    assert result.state is State.SUCCEEDED, text
    assert f"/{name}\n{workspace}\nhome {workspace}\n" in text
    assert text.split()[-1] != "0"
    assert not Path(f"/tmp/{name}").exists()


async def test_a_working_directory_outside_the_walls_is_refused_with_words(walled: Place, tmp_path: Path) -> None:
    result, _ = await walled.do("true", working_directory=str(tmp_path))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "cannot be seen in the sandbox bubblewrap" in result.message


async def test_a_checkout_of_another_jobs_workspace_is_refused(walled: Place) -> None:
    other = walled.data / "agent" / "workspaces" / "other"
    result, _ = await walled.do("true", checkout={"url": f"file://{other}"})
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "lies among the workspaces" in result.message


async def test_work_for_a_sandbox_that_is_not_here_is_refused(walled: Place) -> None:
    result, _ = await walled.run(steps("echo never", sandbox="docker"))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message == "the work asks for the sandbox 'docker', and this agent has plain, bubblewrap"
