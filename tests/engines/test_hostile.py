"""Jobs that mean harm, in each sandbox: contained, ended with the right reason, nothing left, the agent healthy after.

`plain` promises the end of the whole tree, limits and an end to floods; `bubblewrap` and `docker` promise walls too.
The attacks use busybox only, so that they are the same in an image that has nothing else.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horae.core.model import Reason, State
from horae.sandboxes.cgroups import CONTROLLERS, Groups, find_controllers
from horae.sandboxes.seccomp import ARCHITECTURES
from tests.contract.test_executors import MemoryOutput, steps
from tests.engines.hostile import Place, open_place, until

DEAD_WITHIN = 5.0
FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 600"
HOG = "busybox tail /dev/zero"
LIMITS = {"memory": 200 * 2**20, "pids": 100}
ESCAPE = "( (setsid sh -c 'touch escaped; sleep 600' &) & )"  # forks twice, into a session of its own
TEN_GIGABYTES = 10_000_000_000


@pytest.fixture(params=["plain", "bubblewrap", "docker"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "data", request.param, request) as place:
        yield place


@pytest.fixture(params=["bubblewrap", "docker"])
async def walled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "data", request.param, request) as place:
        yield place


@pytest.fixture
async def wrapped(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "data", "bubblewrap", request) as place:
        yield place


@pytest.fixture
def limited() -> None:
    """The kernel lets us make groups; else what is tested is not there."""
    if set(find_controllers()) < set(CONTROLLERS.values()) or os.getuid() != 0:
        words = "control groups cannot be made here: run as root, or in a delegated group"
        (pytest.fail if os.environ.get("HORAE_REQUIRE_SERVERS") else pytest.skip)(words)


# ── what every sandbox promises ────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("limited")
async def test_a_fork_bomb_ends_with_its_reason(place: Place) -> None:
    result, text = await place.do(FORK_BOMB, limits=LIMITS)
    assert (result.state, result.reason) == (State.FAILED, Reason.PROCESSES), text
    assert result.message.startswith(
        "step 1 's1': it made more processes than its limit of 100; its processes and threads are limited"
    )
    assert "`limits: {pids: 200}`" in text
    await place.assert_nothing_is_left()


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("script", [HOG, f"{HOG} || true; sleep 600"], ids=["fails", "goes on"])
async def test_S27_a_memory_hog_ends_with_its_reason(place: Place, script: str) -> None:
    result, text = await place.do(script, limits=LIMITS)
    assert (result.state, result.reason) == (State.FAILED, Reason.OOM), text
    assert result.message.startswith(
        "step 1 's1': it needed more memory than its limit of 200 MiB; its memory is limited to 200MiB"
    )
    assert "`limits: {memory: 400MiB}`" in text
    await place.assert_nothing_is_left()


@pytest.mark.usefixtures("limited")
async def test_a_work_is_held_to_the_memory_that_it_took_of_its_agent(place: Place) -> None:
    taken = '{"resources": {"memory": 209715200}}'
    result, text = await place.run(place.spec(HOG), policy=taken)
    assert (result.state, result.reason) == (State.FAILED, Reason.OOM), text
    assert "more memory than its limit of 200 MiB" in result.message
    result, text = await place.run(place.spec("echo fine", limits={"memory": 2**30}), policy=taken)
    assert result.state is State.SUCCEEDED, text
    await place.assert_nothing_is_left()


@pytest.mark.usefixtures("limited")
async def test_a_share_of_a_processor_is_kept(place: Place) -> None:
    result, text = await place.do("busybox timeout 2 sh -c 'while :; do :; done' || times", limits={"cpus": 0.2})
    assert result.state is State.SUCCEEDED, text
    user, system = (float(word.removeprefix("0m").removesuffix("s")) for word in text.split()[-2:])
    assert 0 < user + system < 1.0


class CountingOutput(MemoryOutput):
    """Counts what was read, kept or not."""

    read = 0

    def write(self, data: bytes) -> None:
        self.read += len(data)
        super().write(data)


async def test_ten_gigabytes_of_output_are_stopped_long_before(place: Place) -> None:
    output = CountingOutput(limit=1 << 20)
    result, _ = await place.run(place.spec(f"busybox head -c {TEN_GIGABYTES} /dev/zero"), output=output)
    assert (result.state, result.reason) == (State.FAILED, Reason.OUTPUT_LIMIT)
    assert len(output.data) == 1 << 20
    assert output.read < TEN_GIGABYTES / 10
    await place.assert_nothing_is_left()


async def test_S28_what_forks_twice_into_new_sessions_dies_with_its_job(place: Place) -> None:
    result, text = await place.do(f"{ESCAPE}; while [ ! -e escaped ]; do sleep 0.1; done")
    assert result.state is State.SUCCEEDED, text
    await place.assert_nothing_is_left()


@pytest.mark.parametrize("end", ["cancel", "timeout"])
async def test_what_ignores_every_request_is_dead_within_seconds(place: Place, end: str) -> None:
    stubborn = "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM; sleep 600\" & echo on; while :; do sleep 1; done"
    timeout = 4.0 if end == "timeout" else None
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


# ── tricks in artifacts: nothing from outside the workspace is stored, and nothing waits for ever ──

SWAP = "while :; do ln -sf /etc/passwd a.txt; rm a.txt; echo fine > b.txt; mv b.txt a.txt; done"
TRICKS = {
    "a link to a file outside": "ln -s /etc/passwd a.txt",
    "a link to a directory outside": "ln -s /etc out",
    "a link that climbs": "mkdir -p d; ln -s ../../../../../../../../../etc/passwd d/a.txt",
    "a link to itself": "ln -s a.txt a.txt",
    "a pipe": "mkfifo a.txt",
    "a directory in the place of a file": "mkdir a.txt; ln -s /etc/passwd a.txt/b.txt",
    "a huge sparse file": "busybox dd if=/dev/null of=a.txt bs=1 seek=10000000000",
    "a link that is swapped meanwhile": f"setsid sh -c '{SWAP}' >/dev/null 2>&1 & while [ ! -e a.txt ]; do :; done",
    "an archive with names that climb": "busybox tar -cf a.txt -C / etc/hosts; echo ../../x | cat >> a.txt",
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_S22_no_trick_brings_bytes_from_outside_into_the_artifacts(place: Place, trick: str) -> None:
    output = MemoryOutput()
    spec = place.spec(TRICKS[trick], artifacts=["**", "*.txt", "out/*", "d/*"])
    result, text = await place.run(spec, output=output)
    assert result.state is State.SUCCEEDED, text
    assert not [data for data in output.files if b"root:" in data]
    assert sum(map(len, output.files)) < 100_000
    await place.assert_nothing_is_left()


async def test_a_device_in_the_workspace_is_not_read(place: Place) -> None:
    """A root agent's `plain` work can make one; walled work cannot."""
    output = MemoryOutput()
    spec = place.spec("busybox mknod a.txt c 1 5 || true; echo fine > b.txt", artifacts=["*.txt"])
    result, text = await place.run(spec, output=output)
    assert (result.state, output.files) == (State.SUCCEEDED, [b"fine\n"]), text
    await place.assert_nothing_is_left()


# ── walls ──────────────────────────────────────────────────────────────────────────────────────────


async def test_killing_every_process_it_can_reach_harms_only_the_job_itself(walled: Place) -> None:
    result, text = await walled.do("kill -9 $PPID; kill -9 -1; kill -9 1; sleep 1; exit 0")
    assert result.state in (State.SUCCEEDED, State.FAILED), text
    await walled.assert_nothing_is_left()


async def test_killing_the_keeper_leaves_nothing_of_the_job(walled: Place) -> None:
    output = walled.start(walled.spec("setsid sleep 600 & echo on; sleep 600"))
    await output.until("on\n")
    os.kill(walled.keeper.pid, signal.SIGKILL)
    assert (await walled.ended()).reason == Reason.LOST
    await until(lambda: not walled.processes())


@pytest.mark.parametrize("attack", ["kill -9 -1", "kill -STOP -1", "kill -STOP 2"])
async def test_work_that_puts_its_watchers_away_does_not_outlive_the_keeper(walled: Place, attack: str) -> None:
    output = walled.start(walled.spec(f"echo on; {attack}; sleep 600"))
    await output.until("on\n")
    os.kill(walled.keeper.pid, signal.SIGKILL)
    await walled.ended()
    await until(lambda: not walled.processes())


async def test_S25_files_of_others_and_of_the_agent_are_not_there(walled: Place, tmp_path: Path) -> None:
    other = walled.data / "agent" / "workspaces" / "77-1"
    other.mkdir(parents=True)
    secrets = [other / "secret", walled.data / "horae.db", tmp_path / "secret", Path.home() / ".horae-test-secret"]
    for path in secrets:
        path.write_text("hidden-treasure")
    try:
        tries = " ".join(f"cat {path};" for path in (*secrets, "/etc/shadow", "/proc/1/environ"))
        tries += f" find / -name '*.horae-test-secret' -o -name horae.db; cat /proc/[0-9]*/root{secrets[0]};"
        result, text = await walled.do(f"set +e; {tries} ls -A /home /root /var; ls {walled.data} {other.parent}; true")
    finally:
        for path in secrets:
            path.unlink()
        other.rmdir()
    assert result.state is State.SUCCEEDED, text
    assert "hidden-treasure" not in text
    assert not any(f"root:{mark}" in text for mark in "*!x")
    assert "77-1" not in text.replace(str(other), "")
    assert "horae.db" not in text.replace(str(walled.data / "horae.db"), "")


async def test_variables_of_the_job_do_not_reach_what_runs_outside_its_walls(walled: Place, tmp_path: Path) -> None:
    """The loader of every program obeys these, also that of the program which makes the walls."""
    env = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "escaped"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    result, text = await walled.do("echo $PATH", env=env)
    assert list(tmp_path.glob("escaped*")) == []
    assert (result.state, text.splitlines()[-1]) == (State.SUCCEEDED, env["PATH"])


async def test_S33_variables_of_the_job_are_in_no_list_of_processes(wrapped: Place) -> None:
    output = wrapped.start(wrapped.spec("echo begun; sleep 600", env={"KEY": "hidden-treasure"}), run_id=2)
    await output.until("begun")
    commands = b"".join(_command(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))))
    wrapped.executor.stop(2, Reason.REQUESTED)
    await wrapped.ended()
    assert b"hidden-treasure" not in commands
    await wrapped.assert_nothing_is_left()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_secret_files_are_in_memory_to_be_read_only_and_gone_with_the_job(walled: Place) -> None:
    look = "cat $HORAE_SECRETS_DIR/a/key; echo; busybox stat -f -c %T $HORAE_SECRETS_DIR; echo $HORAE_SECRETS_DIR"
    more = "touch $HORAE_SECRETS_DIR/a/key $HORAE_SECRETS_DIR/planted || echo refused"
    result, text = await walled.do(f"{more}; {look}", files={"a/key": "hidden-treasure"})
    assert result.state is State.SUCCEEDED, text
    assert "refused\nhidden-treasure\ntmpfs\n" in text
    assert not Path(text.split()[-1]).exists()
    await walled.assert_nothing_is_left()


async def test_secrets_of_another_job_that_runs_meanwhile_are_not_there(walled: Place) -> None:
    output = walled.start(
        walled.spec("echo at $HORAE_SECRETS_DIR; sleep 600", files={"key": "hidden-treasure"}), run_id=2
    )
    await output.until("at /")
    await until(lambda: output.text.endswith("\n"))
    directory = output.text.split()[-1]
    look = f"ls -R {directory} {Path(directory).parent}; cat {directory}/key; cat /proc/[0-9]*/environ; true"
    _, text = await walled.do(f"set +e; {look}")
    assert "hidden-treasure" not in text
    assert "\nkey" not in text
    walled.executor.stop(2, Reason.REQUESTED)
    await walled.ended(2)
    await walled.assert_nothing_is_left()


SYSTEM = [
    "touch /usr/bin/planted",
    "touch /etc/planted",
    "touch /planted",
    "cat /proc/sys/kernel/panic > /proc/sys/kernel/panic",
    "echo b > /proc/sysrq-trigger",
    "mount -t tmpfs none /usr",
    "mount -o remount,rw /",
    "umount /proc",
    "mknod disk b 8 0",
    "chroot / true",
    "cat /dev/mem",
    "insmod /nothing.ko",
    "hostname taken",
    "ip link set lo down",
    "renice -n -5 1",
]


@pytest.mark.parametrize("attempt", SYSTEM)
async def test_the_system_cannot_be_changed(walled: Place, attempt: str) -> None:
    busybox = "" if attempt.startswith(("touch", "echo", "cat")) else "busybox "
    result, text = await walled.do(busybox + attempt)
    assert (result.state, result.reason) == (State.FAILED, Reason.EXIT), text
    await walled.assert_nothing_is_left()


@pytest.mark.parametrize(
    "attempt",
    [
        "chmod 666 /dev/null",
        "chmod 666 /dev/stdin",
        "cat /proc/self/oom_score_adj > /proc/self/oom_score_adj",
        "mount -o remount,rw,bind /usr",
        "unshare -U true",
        "ls /sys/fs/cgroup/memory",
    ],
)
async def test_what_counts_as_root_outside_changes_nothing_there(wrapped: Place, attempt: str) -> None:
    result, text = await wrapped.do(attempt)
    assert (result.state, result.reason) == (State.FAILED, Reason.EXIT), text
    await wrapped.assert_nothing_is_left()


CALLS = ("add_key", "bpf", "io_uring_setup", "keyctl", "open_by_handle_at", "perf_event_open", "setns", "userfaultfd")


async def test_S24_the_kernel_is_asked_nothing_that_containers_may_not_ask(wrapped: Place) -> None:
    """Each with nonsense: whoever gets so far is told that (or has made a descriptor), who does not is refused."""
    known = ARCHITECTURES[os.uname().machine]
    numbers = {name: known.denied[name] for name in CALLS}
    script = f"""python3 -c '
import ctypes
kernel = ctypes.CDLL(None, use_errno=True)
for name, number in {json.dumps(numbers)}.items():
    print(name, kernel.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())
print("clone3", kernel.syscall({known.clone3}, 0, 0), ctypes.get_errno())'"""
    result, text = await wrapped.do(script)
    assert result.state is State.SUCCEEDED, text
    lines = text.splitlines()[1:]
    assert lines == [*(f"{name} -1 {errno.EPERM}" for name in CALLS), f"clone3 -1 {errno.ENOSYS}"]


async def test_programs_that_make_threads_and_processes_work_behind_the_filter(wrapped: Place) -> None:
    script = "import threading, subprocess; t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); "
    script += 'print(subprocess.run(["echo", "2"], capture_output=True).stdout)'
    result, text = await wrapped.do(f"python3 -c '{script}'")
    assert (result.state, text.splitlines()[1:]) == (State.SUCCEEDED, ["1", "b'2\\n'"]), text


@pytest.mark.usefixtures("limited")
async def test_groups_of_an_earlier_life_are_gone_after_the_next_start(wrapped: Place) -> None:
    output = wrapped.start(wrapped.spec("echo on; sleep 600", limits=LIMITS))
    await output.until("on\n")
    assert wrapped.groups()
    os.kill(wrapped.keeper.pid, signal.SIGKILL)
    await until(lambda: not wrapped.processes())
    fresh = Groups(wrapped.data)
    fresh.open()
    assert wrapped.groups() == []
    await wrapped.ended()


async def test_S29_a_job_owns_its_workspace_and_a_tmp_that_nobody_else_sees(wrapped: Place) -> None:
    name = f"horae-{os.getpid()}"
    script = f"touch here /tmp/{name} && ls /tmp/{name} && pwd && echo home $HOME && test -O here && id -u"
    result, text = await wrapped.do(script)
    workspace = f"{wrapped.data}/agent/workspaces/1-3"
    assert result.state is State.SUCCEEDED, text
    assert f"/{name}\n{workspace}\nhome {workspace}\n" in text
    assert text.split()[-1] != "0"
    assert not Path(f"/tmp/{name}").exists()


async def test_S23_work_is_never_root_and_still_has_its_workspace_and_secrets(walled: Place) -> None:
    script = "id -u; mkdir deep; touch deep/own; cat $HORAE_SECRETS_DIR/a/key; ls $HORAE_SECRETS_DIR"
    result, text = await walled.do(script, "echo on > deep/own; cat deep/own", files={"a/key": "hidden-treasure"})
    assert result.state is State.SUCCEEDED, text
    assert text.splitlines()[1] == str(os.getuid() or 65534)
    assert "hidden-treasurea\n" in text
    await walled.assert_nothing_is_left()


async def test_a_working_directory_outside_the_walls_is_refused_with_words(wrapped: Place, tmp_path: Path) -> None:
    result, _ = await wrapped.do("true", working_directory=str(tmp_path))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "cannot be seen in the sandbox bubblewrap" in result.message


HINTS = {
    "a script of one's own": ("./backup.sh", "it begins with an empty directory", "`sandbox: plain`"),
    "a name": (
        "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'",
        "the sandbox bubblewrap",
        "`network: on`",
    ),
    "an address": ("busybox nc -w 5 192.0.2.1 80", "the sandbox bubblewrap", "`network: on`"),
}


@pytest.mark.parametrize("case", HINTS)
async def test_a_step_that_meets_a_wall_is_told_which_and_how_to_open_it(wrapped: Place, case: str) -> None:
    script, wall, line = HINTS[case]
    result, text = await wrapped.do(script)
    assert (result.state, result.reason) == (State.FAILED, Reason.EXIT), text
    assert wall in result.message
    assert line in result.message
    assert line in text.splitlines()[-1]


async def test_a_step_that_fails_by_itself_is_told_nothing_of_walls(place: Place) -> None:
    result, text = await place.do("echo ready; exit 3")
    assert result.message == "step 1 's1' ended with exit code 3"
    assert "sandbox" not in text


async def test_a_checkout_of_another_jobs_workspace_is_refused(wrapped: Place) -> None:
    other = wrapped.data / "agent" / "workspaces" / "other"
    result, _ = await wrapped.do("true", checkout={"url": f"file://{other}"})
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "lies among the workspaces" in result.message


async def test_work_for_a_sandbox_that_is_not_here_is_refused(wrapped: Place) -> None:
    result, _ = await wrapped.run(steps("echo never", sandbox="docker"))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message == "the work asks for the sandbox 'docker', and this agent has plain, bubblewrap"
