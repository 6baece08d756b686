"""The keeper with real processes: what it starts, what it kills, and what nobody may survive."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import uvloop

from horae.errors import Unavailable
from horae.executors.processes import keeper as program
from horae.executors.processes.process import DIED, KeeperProcess, Spawned
from horae.ports.work import Command, Exit

PATIENCE = 60  # seconds; reached only when something is broken
ENV = {"PATH": "/usr/bin:/bin"}
PYTHON = [sys.executable, "-I", "-S", "-c"]

# A daemon as daemons are made: new session, parent gone. Prints its pid, then lives on.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
"""
# Processes that are never there when the signal comes: each forks and leaves, for a minute at most.
HOPPERS = """
import os, time
until = time.monotonic() + 60
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)
        os._exit(0)
for _ in range(100):
    if os.fork() == 0:
        while time.monotonic() < until:
            if os.fork() == 0:
                time.sleep(0.2)
                os._exit(0)
            os.wait()
        os._exit(0)
print("running", flush=True)
time.sleep(60)
"""
# An agent: opens a keeper, starts a stubborn job that has a daemon, says who is who, and waits.
AGENT = f"""
import asyncio, os, sys
from pathlib import Path
from horae.executors.processes.process import KeeperProcess
from horae.ports.work import Command

async def main():
    keeper = KeeperProcess(Path(sys.argv[1]))
    await keeper.open()
    if sys.argv[2] == "lease":
        keeper.renew(1.0)
    script = {DAEMON!r} + "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    if sys.argv[2] == "gentle":
        script = "import signal; signal.signal(15, lambda *_: (print('asked', flush=True), os._exit(0)))"
        script += {DAEMON!r} + "time.sleep(600)"
    job = await keeper.spawn(Command({PYTHON!r} + [script], {{}}, "/", stdout=1, gentle=sys.argv[2] == "gentle"))
    print("job", job.pid, flush=True)
    print("keeper", keeper.pid, flush=True)
    if sys.argv[2] == "forked" and os.fork() == 0:  # a copy that never execs keeps the socket open
        print("copy", os.getpid(), flush=True)
        os.read(0, 1)
        os._exit(0)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[KeeperProcess]:
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    yield keeper
    await keeper.close()
    assert (tmp_path / "keeper" / "keeper.log").read_text() == ""


class Watch:
    """Tells whether one process is gone, whoever gets its number next."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd = os.pidfd_open(pid)

    @property
    def is_gone(self) -> bool:
        return bool(select.select([self.fd], [], [], 0)[0])

    async def until_gone(self) -> None:
        assert await asyncio.to_thread(select.select, [self.fd], [], [], PATIENCE) != ([], [], [])


@contextmanager
def watching(*pids: int) -> Iterator[list[Watch]]:
    watches = [Watch(pid) for pid in pids]
    try:
        yield watches
    finally:
        for watch in watches:
            os.close(watch.fd)


@asynccontextmanager
async def open_pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """What children write to the descriptor can be read from the stream."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb")
    )
    try:
        yield reader, write_end
    finally:
        os.close(write_end)
        transport.close()


async def read_line(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(PATIENCE):
        return (await reader.readline()).decode().strip()


async def read_pid(reader: asyncio.StreamReader) -> int:
    return int((await read_line(reader)).removeprefix("daemon"))


async def ended(process: Spawned) -> Exit:
    async with asyncio.timeout(PATIENCE):
        return await process.wait()


async def run(keeper: KeeperProcess, *argv: str, env: dict[str, str] = ENV, cwd: str = "/") -> Exit:
    return await ended(await keeper.spawn(Command(argv, env, cwd)))


async def output_of(keeper: KeeperProcess, path: Path, *argv: str, **more: object) -> str:
    """Return what a command wrote to stdout and stderr."""
    with path.open("wb") as file:
        command = Command(argv, ENV, "/", stdout=file.fileno(), stderr=file.fileno(), **more)  # type: ignore[arg-type]
        process = await keeper.spawn(command)
    await ended(process)
    return path.read_text()


# ── starting ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 3", 3), ("kill -SEGV $$", -11), ("exit 127", 127)])
async def test_an_exit_code_or_the_signal_is_reported(keeper: KeeperProcess, script: str, code: int) -> None:
    assert await run(keeper, "/bin/sh", "-c", script) == Exit(code)


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "words"),
    [
        (["/no/such/program"], "/", 127, "'/no/such/program' could not be started: No such file"),
        (["no-such-program"], "/", 127, "No such file"),
        (["/etc/passwd"], "/", 126, "Permission denied"),
        (["/bin/true"], "/no/such/place", 126, "directory '/no/such/place'"),
        (["/bin/echo", "x" * 500_000], "/", 126, "Argument list too long"),
        (["/bin/echo", "a\0b"], "/", 126, "null byte"),
        ([], "/", 126, "could not be started"),
    ],
)
async def test_what_cannot_be_started_ends_with_a_code_and_a_message(
    keeper: KeeperProcess, argv: list[str], cwd: str, code: int, words: str
) -> None:
    exit_ = await run(keeper, *argv, cwd=cwd)
    assert exit_.code == code
    assert words in exit_.message
    assert await run(keeper, "/bin/true") == Exit(0)


async def test_a_child_gets_exactly_the_environment_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "agent-secret")
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    try:
        assert await output_of(keeper, tmp_path / "out", "/usr/bin/env") == "PATH=/usr/bin:/bin\n"
        assert b"agent-secret" not in Path(f"/proc/{keeper.pid}/environ").read_bytes()
    finally:
        await keeper.close()


async def test_a_child_inherits_its_standard_descriptors_and_no_other(keeper: KeeperProcess, tmp_path: Path) -> None:
    script = "import os; print([f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)])"
    assert await output_of(keeper, tmp_path / "out", *PYTHON, script) == "['0', '1', '2']\n"


async def test_kept_descriptors_have_the_same_numbers_in_the_child(keeper: KeeperProcess, tmp_path: Path) -> None:
    """Numbers among which the keeper's own copies lie: no move may close one that is still needed."""
    paths = [tmp_path / f"kept-{n}" for n in range(20)]
    numbers = []
    for path in paths:
        with path.open("w") as file:
            numbers.append(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 40))
    script = f"import os\nfor n in {numbers}: os.write(n, str(n).encode())"
    assert await output_of(keeper, tmp_path / "out", *PYTHON, script, keep=numbers) == ""
    for path, number in zip(paths, numbers, strict=True):
        os.close(number)
        assert path.read_text() == str(number)


async def test_a_child_starts_with_no_signal_ignored_or_blocked(keeper: KeeperProcess, tmp_path: Path) -> None:
    said = await output_of(keeper, tmp_path / "out", "/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
    blocked, ignored = (int(mask, 16) for mask in said.split()[1::2])
    # What a parent of ours ignores of the two signals that the C library keeps to itself, nobody can undo.
    ours = sum(1 << (number - 1) for number in signal.valid_signals())
    assert (blocked & ours, ignored & ours) == (0, 0)


async def test_a_child_leads_its_session_and_dumps_no_core(keeper: KeeperProcess, tmp_path: Path) -> None:
    script = "import os, resource as r; print(os.getsid(0) == os.getpid(), r.getrlimit(r.RLIMIT_CORE))"
    assert await output_of(keeper, tmp_path / "out", *PYTHON, script) == "True (0, 0)\n"


async def test_a_child_has_the_limit_of_open_files_of_the_agent(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
    keeper = KeeperProcess(tmp_path / "keeper")
    try:
        await keeper.open()
        said = await output_of(keeper, tmp_path / "out", "/bin/sh", "-c", "ulimit -n")
        assert said == f"{before[1] - 1}\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        await keeper.close()


async def test_an_order_larger_than_a_packet_arrives_whole(keeper: KeeperProcess, tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "echo $#", "sh", *["x" * 1000] * 500]
    assert await output_of(keeper, tmp_path / "out", *argv) == "500\n"


@pytest.mark.parametrize("word", ["grün \u2713 \U0001f680", "no UTF-8: \udcff"])
async def test_a_word_arrives_byte_by_byte(keeper: KeeperProcess, tmp_path: Path, word: str) -> None:
    process = await keeper.spawn(
        Command(("/bin/sh", "-c", 'printf %s "$1$WORD" > found', "sh", word), ENV | {"WORD": word}, str(tmp_path))
    )

    assert await ended(process) == Exit(0)
    assert (tmp_path / "found").read_bytes() == os.fsencode(word) * 2


async def test_a_descriptor_closed_too_early_fails_its_own_spawn_only(keeper: KeeperProcess) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    os.close(write_end)
    exit_ = await ended(await keeper.spawn(Command(["/bin/true"], ENV, "/", stdout=write_end)))
    assert (exit_.code, exit_.message) == (126, "the order could not be sent: Bad file descriptor")
    assert await run(keeper, "/bin/true") == Exit(0)


async def test_a_cancelled_spawn_leaves_no_process(keeper: KeeperProcess) -> None:
    read_end, write_end = os.pipe()
    task = asyncio.create_task(keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/", stdout=write_end)))
    await asyncio.sleep(0)  # the order is on its way
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(write_end)
    assert await run(keeper, "/bin/true") == Exit(0)
    ready, _, _ = await asyncio.to_thread(select.select, [read_end], [], [], PATIENCE)
    assert ready, "the pipe ends when nobody holds it any longer"
    os.close(read_end)


async def test_two_hundred_processes_live_at_once_and_die_when_told(keeper: KeeperProcess) -> None:
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        spawning = [group.create_task(keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/"))) for _ in range(200)]
    processes = [task.result() for task in spawning]
    with watching(*(process.pid for process in processes)) as watches:
        assert not any(watch.is_gone for watch in watches)
        async with asyncio.timeout(PATIENCE):
            exits = await asyncio.gather(*(process.kill(PATIENCE) for process in processes))
        assert all(watch.is_gone for watch in watches)
    assert {exit_.code for exit_ in exits} == {-15}


async def test_one_process_host_starts_one_program_after_the_other(keeper: KeeperProcess, tmp_path: Path) -> None:
    script = ("/bin/sh", "-c", "echo $PPID")
    hosts = {await output_of(keeper, tmp_path / "out", *script) for _ in range(5)}
    limited = await output_of(keeper, tmp_path / "out", *script, rlimits={resource.RLIMIT_NOFILE: 50})
    assert hosts == {limited}
    assert [int(limited)] == program.list_children([keeper.pid])


async def test_idle_process_hosts_are_few(keeper: KeeperProcess) -> None:
    async with asyncio.timeout(PATIENCE):
        held = [await keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/")) for _ in range(program.IDLE_HOSTS + 3)]
        await asyncio.gather(*(process.kill(PATIENCE) for process in held))
        while len(program.list_children([keeper.pid])) > program.IDLE_HOSTS:
            await run(keeper, "/bin/true")


async def test_a_program_with_limits_has_them_and_its_failure_to_start_is_told(
    keeper: KeeperProcess, tmp_path: Path
) -> None:
    limits = {resource.RLIMIT_NOFILE: 50}
    assert await output_of(keeper, tmp_path / "out", "/bin/sh", "-c", "ulimit -n", rlimits=limits) == "50\n"
    exit_ = await ended(await keeper.spawn(Command(["/no/such/program"], ENV, "/", rlimits=limits)))
    assert (exit_.code, exit_.message) == (127, "'/no/such/program' could not be started: No such file or directory")
    exit_ = await ended(await keeper.spawn(Command(["/bin/true"], ENV, "/", groups=("/no/group",))))
    assert (exit_.code, exit_.message) == (127, "'/no/group' could not be started: No such file or directory")
    assert await ended(await keeper.spawn(Command(["/bin/sh", "-c", "exit 127"], ENV, "/", rlimits=limits))) == Exit(
        127
    )


# ── killing ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_process_that_ignores_term_is_killed_after_the_grace(keeper: KeeperProcess) -> None:
    async with open_pipe() as (reader, write_end):
        script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
        process = await keeper.spawn(Command(["/bin/sh", "-c", script], ENV, "/", stdout=write_end))
        assert await read_line(reader) == "ready"
        assert (await process.kill(0.2)).code == -9


async def test_a_program_is_asked_to_end_also_before_anybody_was_told_that_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = tmp_path / "keeper.py"
    patient.write_text(
        Path(program.__file__).read_text().replace(f"MOMENT_SECONDS = {program.MOMENT_SECONDS}", "MOMENT_SECONDS = 600")
    )
    monkeypatch.setattr(program, "__file__", str(patient))
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    async with open_pipe() as (reader, write_end):
        script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
        spawning = asyncio.create_task(keeper.spawn(Command(["/bin/sh", "-c", script], ENV, "/", stdout=write_end)))
        assert await read_line(reader) == "ready"
        assert not spawning.done()
        keeper.order_kill(1, PATIENCE)
        assert (await ended(await spawning)).code == 3
        assert await read_line(reader) == "asked"
    await keeper.close()


async def test_every_member_of_a_tree_has_the_grace_to_clean_up(keeper: KeeperProcess) -> None:
    """The shell dies of TERM at once; its child must not be killed for that."""
    inner = "trap 'sleep 0.3; echo cleaned; exit' TERM; echo ready; while :; do sleep 0.05; done"
    async with open_pipe() as (reader, write_end):
        command = Command(["/bin/sh", "-c", f'/bin/sh -c "{inner}"; true'], ENV, "/", stdout=write_end)
        process = await keeper.spawn(command)
        assert await read_line(reader) == "ready"
        assert (await process.kill(PATIENCE)).code == -15
        assert await read_line(reader) == "cleaned"


@asynccontextmanager
async def stubborn_job(keeper: KeeperProcess) -> AsyncIterator[Spawned]:
    """A job in its grace: the shell has died of TERM, its child ignores it."""
    inner = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    async with open_pipe() as (reader, write_end):
        command = Command(["/bin/sh", "-c", f'/bin/sh -c "{inner}"; true'], ENV, "/", stdout=write_end)
        process = await keeper.spawn(command)
        assert await read_line(reader) == "ready"
        with watching(process.pid) as [root]:
            killing = asyncio.create_task(process.kill(PATIENCE * 10))
            await root.until_gone()
        assert not killing.done()
        yield process
        await killing


async def test_the_grace_of_one_job_does_not_delay_the_end_of_another(keeper: KeeperProcess) -> None:
    async with stubborn_job(keeper) as process:
        assert await run(keeper, "/bin/true") == Exit(0)
        assert await process.kill(0) == Exit(-15)


async def test_a_stopped_process_can_be_killed(keeper: KeeperProcess) -> None:
    async with open_pipe() as (reader, write_end):
        command = Command(["/bin/sh", "-c", "echo ready; kill -STOP $$"], ENV, "/", stdout=write_end)
        process = await keeper.spawn(command)
        assert await read_line(reader) == "ready"
        assert (await process.kill(PATIENCE)).code in (-15, 0)


async def test_a_daemon_dies_when_its_job_ends(keeper: KeeperProcess) -> None:
    script = DAEMON + "sys.stdin.read(1)"
    read_end, go = os.pipe()
    async with open_pipe() as (reader, write_end):
        process = await keeper.spawn(Command([*PYTHON, script], {}, "/", stdin=read_end, stdout=write_end))
        with watching(await read_pid(reader)) as [daemon]:
            assert await run(keeper, "/bin/true") == Exit(0)
            assert not daemon.is_gone, "the end of another job must not touch it"
            os.close(go)
            assert await ended(process) == Exit(0)
            assert daemon.is_gone
    os.close(read_end)


async def test_a_daemon_dies_when_its_job_is_killed(keeper: KeeperProcess) -> None:
    async with open_pipe() as (reader, write_end):
        script = DAEMON + "time.sleep(600)"
        process = await keeper.spawn(Command([*PYTHON, script], {}, "/", stdout=write_end))
        with watching(await read_pid(reader), process.pid) as [daemon, root]:
            async with asyncio.timeout(PATIENCE):
                await process.kill(0)
            assert root.is_gone
            assert daemon.is_gone


async def test_a_job_that_kills_its_parent_ends_itself_and_nobody_else(keeper: KeeperProcess) -> None:
    other = await keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/"))
    async with open_pipe() as (reader, write_end):
        script = "sleep 600 & echo $!; read go || true; kill -KILL $PPID; sleep 600"
        read_end, go = os.pipe()
        process = await keeper.spawn(Command(["/bin/sh", "-c", script], ENV, "/", stdin=read_end, stdout=write_end))
        with watching(process.pid, other.pid) as [root, another]:
            child = await read_pid(reader)
            for end in (go, read_end):
                os.close(end)
            assert await ended(process) == Exit(-9)
            assert root.is_gone
            assert program.look_at(child)[0] == 0
            assert not another.is_gone
    await other.kill(0)


async def test_a_fork_bomb_loses(keeper: KeeperProcess) -> None:
    async with open_pipe() as (reader, write_end):
        process = await keeper.spawn(Command([*PYTHON, HOPPERS], {}, "/", stdout=write_end))
        assert await read_line(reader) == "running"
        async with asyncio.timeout(PATIENCE):
            assert await process.kill(0) == Exit(-9)
    assert program.list_children([keeper.pid]) == []


async def test_closing_kills_everything_and_every_wait_ends(tmp_path: Path) -> None:
    keeper = KeeperProcess(tmp_path)
    await keeper.open()
    async with open_pipe() as (reader, write_end):
        process = await keeper.spawn(Command([*PYTHON, DAEMON + "time.sleep(600)"], {}, "/", stdout=write_end))
        with watching(await read_pid(reader), process.pid, keeper.pid) as watches:
            await keeper.close()
            assert all(watch.is_gone for watch in watches)
    assert await ended(process) == Exit(-9)
    assert not keeper.is_alive
    await keeper.close()


# ── the lease ──────────────────────────────────────────────────────────────────────────────────────


async def test_everything_dies_when_the_lease_runs_out_and_nothing_starts_before_a_renewal(
    keeper: KeeperProcess,
) -> None:
    process = await keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/"))
    with watching(process.pid) as [root]:
        keeper.renew(0.1)
        assert await ended(process) == Exit(-9, "lease ran out")
        assert root.is_gone
    assert await run(keeper, "/bin/true") == Exit(126, "lease ran out")
    assert keeper.is_alive
    keeper.renew(PATIENCE)
    assert await run(keeper, "/bin/true") == Exit(0)


async def test_a_renewed_lease_kills_nobody(keeper: KeeperProcess) -> None:
    keeper.renew(PATIENCE)
    assert await run(keeper, "/bin/sleep", "0.1") == Exit(0)


async def test_the_lease_cuts_a_grace_short(keeper: KeeperProcess) -> None:
    async with stubborn_job(keeper) as process:
        keeper.renew(0.1)
        assert await ended(process) == Exit(-15)


# ── the agent dies ─────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def agent(directory: Path, mode: str) -> AsyncIterator[tuple[subprocess.Popen[bytes], dict[str, int]]]:
    """An agent in a process of its own; the pids of its daemon, its job, its keeper and its copy."""
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(directory), mode], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        count = 4 if mode == "forked" else 3
        lines = [(await asyncio.to_thread(process.stdout.readline)).split() for _ in range(count)]
        yield process, {name.decode(): int(pid) for name, pid in lines}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


async def test_when_the_agent_is_killed_all_its_work_dies_before_the_next_keeper_opens(tmp_path: Path) -> None:
    async with agent(tmp_path, "plain") as (process, pids):
        with watching(*pids.values()) as watches:
            keeper = KeeperProcess(tmp_path)
            os.kill(pids["keeper"], signal.SIGSTOP)  # the old keeper is slow
            try:
                process.kill()
                opening = asyncio.create_task(keeper.open())
                await asyncio.wait([opening], timeout=0.5)
                opened_early = opening.done()
            finally:
                os.kill(pids["keeper"], signal.SIGCONT)
            async with asyncio.timeout(PATIENCE):
                await opening
            assert not opened_early, "opened while the old keeper and its work were there"
            assert all(watch.is_gone for watch in watches)
            assert await run(keeper, "/bin/true") == Exit(0)
            await keeper.close()


async def test_gentle_work_is_asked_to_end_when_the_agent_is_killed(tmp_path: Path) -> None:
    async with agent(tmp_path, "gentle") as (process, pids):
        assert process.stdout is not None
        with watching(*pids.values()) as watches:
            process.kill()
            assert await asyncio.to_thread(process.stdout.readline) == b"asked\n"
            for watch in watches:
                await watch.until_gone()


async def test_when_the_agent_stands_still_its_work_dies_with_the_lease(tmp_path: Path) -> None:
    async with agent(tmp_path, "lease") as (process, pids):
        process.send_signal(signal.SIGSTOP)
        with watching(pids["job"], pids["daemon"]) as watches:
            for watch in watches:
                await watch.until_gone()


async def test_a_forked_copy_of_the_agent_does_not_keep_its_work_alive(tmp_path: Path) -> None:
    async with agent(tmp_path, "forked") as (process, pids):
        with watching(pids["copy"]) as [copy], watching(pids["job"], pids["daemon"], pids["keeper"]) as watches:
            process.kill()
            for watch in watches:
                await watch.until_gone()
            assert not copy.is_gone


async def test_the_directory_may_be_given_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keeper = KeeperProcess(Path("here"))
    await keeper.open()
    await keeper.close()
    assert (tmp_path / "here" / "keeper.lock").exists()


async def test_opening_can_be_given_up_while_an_older_keeper_lives(keeper: KeeperProcess, tmp_path: Path) -> None:
    second = KeeperProcess(tmp_path / "keeper")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await second.open()
    assert second.closed.is_set()
    assert await run(keeper, "/bin/true") == Exit(0)


# ── the keeper dies ────────────────────────────────────────────────────────────────────────────────


async def test_when_the_keeper_is_killed_every_wait_ends_and_all_work_is_gone_before_the_next(tmp_path: Path) -> None:
    keeper = KeeperProcess(tmp_path)
    await keeper.open()
    other = await keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/"))
    [host] = program.list_children([keeper.pid])
    async with open_pipe() as (reader, write_end):
        command = Command([*PYTHON, DAEMON + "time.sleep(600)"], {}, "/", stdout=write_end)
        process = await keeper.spawn(command)
        daemon = await read_pid(reader)
    await other.kill(PATIENCE)  # its host is idle now
    with watching(daemon, process.pid, host) as watches:
        os.kill(keeper.pid, signal.SIGKILL)
        assert await ended(process) == DIED
        async with asyncio.timeout(PATIENCE):
            await keeper.closed.wait()
        second = KeeperProcess(tmp_path)
        await second.open()
        assert all(watch.is_gone for watch in watches)
        await second.close()
    assert not keeper.is_alive
    with pytest.raises(Unavailable):
        await keeper.spawn(Command(["/bin/true"], ENV, "/"))
    await keeper.close()


async def test_signals_meant_for_the_agent_do_not_end_the_keeper(keeper: KeeperProcess) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(keeper.pid, number)
    assert await run(keeper, "/bin/true") == Exit(0)


async def test_a_keeper_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "keeper.lock").mkdir()
    with pytest.raises(Unavailable, match=r"keeper\.log"):
        await KeeperProcess(tmp_path).open()
    assert "keeper.lock" in (tmp_path / "keeper.log").read_text()


# ── the program ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["keeper.log", "/dev/full"])
def test_nonsense_does_not_end_the_program_even_where_no_room_is_left_to_say_so(tmp_path: Path, place: str) -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(PATIENCE)
    with mine, theirs, (tmp_path / place).open("wb") as log:
        argv = [sys.executable, "-I", "-S", program.__file__, str(theirs.fileno()), str(tmp_path)]
        with subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=log) as process:
            theirs.close()
            assert json.loads(mine.recv(65536)) == [["ready", program.PROTOCOL, "", 0]]
            for packet in (b"x", b"{}", b"[]", b"null", b"[" * 50_000, b"\xff", b'{"op":"spawn"}', b'{"op":"kill"}',
                           b'{"op":"renew","until":[]}', b"@", b'{"op":"spawn","id":"x"}'):  # fmt: skip
                mine.send(packet)
            mine.send(b'{"op":"spawn","id":1}')
            mine.send(b'{"op":"spawn","id":2,"argv":[],"env":[],"cwd":"/","fds":[[1,7]]}')
            mine.send(b'{"op":"spawn","id":3,"argv":["/bin/true"],"env":{},"cwd":"/","fds":[]}')
            exits = {}
            while len(exits) < 3:
                reports = json.loads(mine.recv(65536))
                exits.update({report[1]: report[2] for report in reports if report[0] == "exit"})
            assert exits == {1: 126, 2: 126, 3: 0}
            mine.close()
            assert process.wait(PATIENCE) == 0


async def test_both_ways_to_list_children_agree(keeper: KeeperProcess) -> None:
    async with open_pipe() as (reader, write_end):
        command = Command(["/bin/sh", "-c", "sleep 600 & sleep 600 & echo ready; wait"], ENV, "/", stdout=write_end)
        process = await keeper.spawn(command)
        assert await read_line(reader) == "ready"
        listed = program.read_children([process.pid, keeper.pid])
        assert len(listed) == 3
        assert sorted(program.scan_children([process.pid, keeper.pid])) == sorted(listed)


def test_the_agents_side_works_on_uvloop(tmp_path: Path) -> None:
    async def main() -> Exit:
        keeper = KeeperProcess(tmp_path)
        await keeper.open()
        keeper.renew(PATIENCE)
        exits = await asyncio.gather(*(run(keeper, "/bin/sh", "-c", f"exit {n}") for n in range(20)))
        assert [exit_.code for exit_ in exits] == list(range(20))
        process = await keeper.spawn(Command(["/bin/sleep", "600"], ENV, "/"))
        await keeper.close()
        return await ended(process)

    assert uvloop.run(main()) == Exit(-9)
