"""The docker sandbox on a real daemon: what a container may do, and that none outlives its attempt."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from horae.core.model import Reason
from horae.errors import Invalid
from horae.executors.processes.process import KeeperProcess
from horae.ports.work import Boundary, Command, Exit, Limits, Process
from horae.sandboxes.docker import FIRST, DockerSandbox
from tests.acceptance.server import Server
from tests.engines.dockerd import IMAGE, Daemon

pytestmark = pytest.mark.xdist_group("docker")  # one daemon
DEADLINE = 180.0
AGENT = "agent-of-this-test"


@pytest.fixture
def needed(need: Callable[..., None]) -> None:
    need("dockerd", "docker", "busybox")


@pytest.fixture
async def keeper(needed: None, tmp_path: Path) -> AsyncIterator[KeeperProcess]:
    made = KeeperProcess(tmp_path / "agent")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def sandbox(keeper: KeeperProcess, request: pytest.FixtureRequest) -> AsyncIterator[DockerSandbox]:
    daemon: Daemon = request.getfixturevalue("daemon")
    made = DockerSandbox("docker", daemon.url, keeper, AGENT)
    await made.open()
    yield made
    await made.close()


class Bench:
    """A workspace in which scripts are run, and what they wrote."""

    def __init__(self, sandbox: DockerSandbox, workspace: Path) -> None:
        self._sandbox = sandbox
        self.workspace = workspace
        self._read_end = -1

    async def spawn(self, script: str, limits: Limits = Limits(), network: str = "off", image: str = IMAGE) -> Process:  # noqa: B008
        self._read_end, write_end = os.pipe()
        argv = ("/bin/sh", "-c", script)
        command = Command(argv, {"MARK": "it's $HOME"}, str(self.workspace), stdout=write_end, stderr=write_end)
        boundary = Boundary(str(self.workspace), "7-1", network, limits, image=image)
        try:
            return await self._sandbox.spawn(command, boundary)
        finally:
            os.close(write_end)

    async def run(self, script: str, limits: Limits = Limits(), network: str = "off") -> tuple[Exit, str]:  # noqa: B008
        process = await self.spawn(script, limits, network)
        async with asyncio.timeout(DEADLINE):
            exit_ = await process.wait()
        return exit_, self.output()

    def output(self) -> str:
        with open(self._read_end, "rb") as file:
            return file.read().decode()


@pytest.fixture
def bench(sandbox: DockerSandbox, tmp_path: Path) -> Bench:
    workspace = tmp_path / "7-1"
    workspace.mkdir()
    return Bench(sandbox, workspace)


async def test_output_comes_in_order_and_the_exit_code_through(bench: Bench, daemon: Daemon) -> None:
    exit_, output = await bench.run('echo one; echo two >&2; echo three; echo "$MARK"; exit 7')
    assert (exit_, output) == (Exit(7), "one\ntwo\nthree\nit's $HOME\n")
    assert daemon.containers() == []


async def test_the_workspace_is_there_and_the_rest_is_read_only(bench: Bench) -> None:
    exit_, output = await bench.run("touch made; touch /tmp/x; touch /bin/x 2>&1; ls /; pwd")
    assert exit_.code == 0
    assert (bench.workspace / "made").exists()
    assert "Read-only file system" in output
    assert str(bench.workspace) in output


async def test_S30_a_container_has_no_capability_no_way_to_new_ones_and_no_network(bench: Bench) -> None:
    _, output = await bench.run("grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; cat /proc/net/dev")
    assert "CapEff:\t0000000000000000" in output
    assert "CapBnd:\t0000000000000000" in output
    assert "NoNewPrivs:\t1" in output
    assert "lo:" in output
    assert "eth0" not in output


async def test_memory_beyond_the_limit_ends_it_with_that_reason(bench: Bench) -> None:
    exit_, _ = await bench.run("tail /dev/zero", Limits(memory=32 * 1024 * 1024))
    assert exit_.reason == Reason.OOM
    assert exit_.code == 137


async def test_a_fork_bomb_meets_its_limit_and_the_container_ends(bench: Bench, daemon: Daemon) -> None:
    process = await bench.spawn("f() { f | f & }; f; sleep 100", Limits(pids=50))
    async with asyncio.timeout(DEADLINE):
        await process.kill(1.0)
    assert daemon.containers() == []


async def test_a_killed_container_is_gone_with_everything_that_hid_in_it(bench: Bench, daemon: Daemon) -> None:
    process = await bench.spawn("trap '' TERM; setsid sleep 1000 & echo up; sleep 1000; sleep 1000")
    await started(bench, daemon)
    async with asyncio.timeout(DEADLINE):
        await process.kill(0.5)
    assert daemon.containers() == []


async def test_work_that_heeds_term_ends_by_itself(bench: Bench, daemon: Daemon) -> None:
    process = await bench.spawn("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done")
    await started(bench, daemon)
    async with asyncio.timeout(DEADLINE):
        exit_ = await process.kill(30.0)
    assert exit_.code == 3
    assert bench.output().endswith("bye\n")


@pytest.fixture
def busy() -> Iterator[None]:
    """More to do than there are cores, so that signals and ends come in any order."""
    spinning = [subprocess.Popen(("sh", "-c", "while :; do :; done")) for _ in range(3)]
    yield
    for process in spinning:
        process.kill()
        process.wait()


@pytest.mark.parametrize("shell", [("busybox", "sh"), ("dash",), ("bash",)])
def test_the_code_of_work_that_heeds_term_is_told_every_time(
    need: Callable[..., None], busy: None, shell: tuple[str, ...]
) -> None:
    """TERM cuts the wait for the work short, and how far the work is by then differs."""
    need("bwrap", shell[0])
    work = (*shell, "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done")
    first = (
        *["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--as-pid-1"],
        *shell,
        "-c",
        FIRST,
        "sh",
    )
    for _ in range(30):
        with subprocess.Popen((*first, *work), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            [inside] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(inside), signal.SIGTERM)
            assert process.wait(DEADLINE) == 3


@pytest.mark.parametrize("shell", [("busybox", "sh"), ("dash",), ("bash",)])
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 127", 127),
        ("sleep 0.01 & sleep 0.02 & (exit 4); no-such-program", 127),
        ("kill -KILL $$", 137),
        ("kill -KILL -1; sleep 600", 137),
        ("kill -KILL 2; sleep 600", 137),
    ],
)
def test_every_end_of_the_work_ends_the_container_with_its_code(
    need: Callable[..., None], shell: tuple[str, ...], script: str, code: int
) -> None:
    """Also an end that the work makes for those who watch it."""
    need("bwrap", shell[0])
    walls = ("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--as-pid-1")
    for _ in range(5):
        argv = (*walls, *shell, "-c", FIRST, "sh", *shell, "-c", script)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            assert process.wait(DEADLINE) == code


async def started(bench: Bench, daemon: Daemon) -> None:
    """Until the container runs and its script has begun."""
    async with asyncio.timeout(DEADLINE):
        while not daemon.containers("status=running"):
            await asyncio.sleep(0.05)
        await asyncio.to_thread(_first_line, bench._read_end)


def _first_line(descriptor: int) -> bytes:
    return os.read(descriptor, 3)


async def test_a_container_dies_when_nobody_attends_to_it_any_more(bench: Bench, daemon: Daemon) -> None:
    process = await bench.spawn("trap '' TERM; echo up; sleep 1000; sleep 1000")
    await started(bench, daemon)
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        while daemon.containers("status=running"):
            await asyncio.sleep(0.05)
        await process.wait()
    assert daemon.containers() == []


async def test_when_the_keeper_ends_its_containers_do(bench: Bench, daemon: Daemon, keeper: KeeperProcess) -> None:
    await bench.spawn("trap '' TERM; echo up; sleep 1000; sleep 1000")
    await started(bench, daemon)
    await keeper.close()
    async with asyncio.timeout(DEADLINE):
        while daemon.containers("status=running"):
            await asyncio.sleep(0.05)


async def test_what_an_earlier_life_left_is_removed_at_open(sandbox: DockerSandbox, daemon: Daemon) -> None:
    daemon.docker("create", "--label", f"horae.agent={AGENT}", IMAGE, "/bin/true")
    daemon.docker("create", "--label", "horae.agent=somebody-else", "--name", "other", IMAGE, "/bin/true")
    await sandbox.close()
    await sandbox.open()
    assert len(daemon.containers()) == 1
    daemon.docker("rm", "other")


async def test_an_image_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(Invalid, match="localhost:1/nothing"):
        await bench.spawn("true", image="localhost:1/nothing")


async def test_a_job_with_an_image_runs_in_it_and_its_steps_share_the_workspace(
    needed: None, tmp_path: Path, daemon: Daemon
) -> None:
    repository = tmp_path / "repository"
    script = "git init -q . && echo hello > file && git add file && git -c user.name=x -c user.email=x commit -qm x"
    repository.mkdir()
    subprocess.run(["/bin/sh", "-ec", script], cwd=repository, check=True)
    server = Server(tmp_path, "--docker-url", daemon.url).start()
    try:
        steps = [{"run": "cat file > copy; ls /bin/busybox"}, {"run": "cat copy; exit 3"}]
        checkout = {"url": f"file://{repository}"}
        server.submit({"name": "a", "image": IMAGE, "checkout": checkout, "steps": steps})
        run = server.ended(server.post("/v1/jobs/1/run", status=201)["id"])
        log = server.http.get("/v1/runs/1/log").text
        assert (run["state"], run["reason"], run["exit_code"]) == ("failed", "exit", 3), log
        assert "/bin/busybox\n" in log
        assert log.count("hello\n") == 1
        assert "sandbox:docker" in server.get("/v1/nodes")["items"][0]["labels"]
        assert daemon.containers() == []
    finally:
        assert server.stop() == 0
