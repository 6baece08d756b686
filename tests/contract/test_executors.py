"""What every executor that starts processes must do, and what shell steps must do, with real processes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import select
import signal
import subprocess
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from horae.core.model import Json, Phase, Reason, State
from horae.core.runs.orders import Assignment, Result
from horae.core.runs.traces import EXECUTE, span_id, step_part, with_span
from horae.executors.attempts.executor import SectionExecutor
from horae.executors.attempts.secretfiles import SecretFiles
from horae.executors.attempts.sections import Section
from horae.executors.processes.process import KeeperProcess
from horae.executors.shell import Rules, shell_executor
from horae.ports.clock import Clock
from horae.ports.work import Executor, Keeper, Sandboxes, Step, Work
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.plain import PlainSandbox
from horae.testing import START, FakeClock
from tests.disks import clear, fill, needs_root, small_disk

PATIENCE = 180  # seconds; reached only when something is broken
GRACE = 0.5


class Heard:
    """Hands what work tells of itself on to whoever asked for it."""

    def __init__(
        self,
        note_phase: Callable[[Phase], None] = lambda _: None,
        note_progress: Callable[[Json], None] = lambda _: None,
    ) -> None:
        self._note_phase, self._note_progress = note_phase, note_progress
        self.steps: list[Step] = []

    def note_phase(self, _: Assignment, phase: Phase) -> None:
        self._note_phase(phase)

    def note_progress(self, _: Assignment, progress: Json) -> None:
        self._note_progress(progress)

    def note_step(self, _: Assignment, step: Step) -> None:
        self.steps.append(step)


class MemoryOutput:
    """An output in memory, with an event for every growth."""

    has_gaps = False

    def __init__(self, limit: int = 1 << 20) -> None:
        self.data = bytearray()
        self.files: list[bytes] = []
        self.is_closed = False
        self._limit = limit
        self._grown = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.data += data[: max(0, self._limit - len(self.data))]
        self._grown.set()

    @property
    def is_full(self) -> bool:
        return len(self.data) >= self._limit

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    @property
    def ref(self) -> str | None:
        return "memory" if self.data else None

    async def attach(self, number: int, file: BinaryIO, size: int, path: str) -> int:
        assert number == len(self.files)
        self.files.append(file.read(size))
        return len(self.files[-1])

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True

    @property
    def text(self) -> str:
        return self.data.decode()

    async def until(self, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while wanted not in self.text:
                await self._grown.wait()
                self._grown.clear()


@dataclass(frozen=True)
class Kind:
    """How to make one executor, and specs that every kind can be asked for."""

    make: Callable[[Keeper, Path, Clock], Executor]
    succeeds: Json
    fails: Json
    hangs: Json  # prints "hanging" and the pid of a daemon, then ignores TERM


HANG = "trap '' TERM; setsid sleep 600 & echo daemon $!; echo hanging; while :; do sleep 0.05; done"


def steps(*runs: str, **more: Any) -> Json:
    return {"steps": [{"name": f"s{n}", "run": run} for n, run in enumerate(runs, 1)], **more}


def plain(keeper: Keeper, path: Path) -> Sandboxes:
    return Sandboxes({"plain": PlainSandbox(keeper, Groups(path))}, "plain")


KINDS = {
    "shell": Kind(
        make=lambda keeper, path, clock: shell_executor(plain(keeper, path), path, 4, clock, grace=GRACE),
        succeeds=steps("echo fine"),
        fails=steps("exit 7"),
        hangs=steps(HANG),
    ),
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[KeeperProcess]:
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    yield keeper
    await keeper.close()


class Rig:
    """An open executor, and the results it gave. It counts timeouts, as an agent does."""

    def __init__(self, executor: Executor, clock: FakeClock) -> None:
        self.executor = executor
        self.clock = clock
        self.results: list[Result] = []
        self.closed_before_done: list[bool] = []
        self._ended = asyncio.Event()
        self._timers: dict[int, asyncio.Task[None]] = {}

    def start(
        self,
        spec: Json,
        run_id: int = 1,
        timeout: float | None = None,
        data: str | None = None,
        output: MemoryOutput | None = None,
        note_phase: Callable[[Phase], None] = lambda _: None,
        owner: str = "ann",
        policy: str = "{}",
        listener: Heard | None = None,
        **more: Any,
    ) -> MemoryOutput:
        output = output or MemoryOutput()
        kind = self.executor.kind
        assignment = Assignment(run_id, 3, 2, 5, None, START, kind, "nightly", json.dumps(spec), policy, data, owner)
        work = Work(assignment, spec, output, timeout, START, listener=listener or Heard(note_phase), **more)
        self.executor.start([work], lambda r: self._done(r, output))
        if timeout is not None:
            self._timers[run_id] = asyncio.create_task(self._time_out(run_id, timeout))
        return output

    async def _time_out(self, run_id: int, seconds: float) -> None:
        await self.clock.sleep(seconds)
        self.executor.stop(run_id, Reason.TIMEOUT)

    def is_started(self, run_id: int) -> bool:
        assert isinstance(self.executor, SectionExecutor)
        return self.executor._attempts[run_id]._process is not None

    def _done(self, result: Result, output: MemoryOutput) -> None:
        self.results.append(result)
        if result.run_id in self._timers:
            self._timers.pop(result.run_id).cancel()
        self.closed_before_done.append(output.is_closed)
        self._ended.set()

    async def ended(self, count: int = 1) -> Result:
        async with asyncio.timeout(PATIENCE):
            while len(self.results) < count:
                await self._ended.wait()
                self._ended.clear()
        return self.results[-1]

    async def run(self, spec: Json, **more: Any) -> tuple[Result, str]:
        count = len(self.results) + 1
        output = self.start(spec, **more)
        return await self.ended(count), output.text


@pytest.fixture
async def open_rig(keeper: KeeperProcess, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Callable[[Kind], Any]]:
    opened: list[Executor] = []

    async def open_rig(kind: Kind) -> Rig:
        executor = kind.make(keeper, tmp_path / "work", clock)
        await executor.open()
        opened.append(executor)
        return Rig(executor, clock)

    yield open_rig
    for executor in opened:
        await executor.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
async def rig(kind: Kind, open_rig: Callable[[Kind], Any]) -> Rig:
    return await open_rig(kind)


@pytest.fixture
async def shell(open_rig: Callable[[Kind], Any]) -> Rig:
    return await open_rig(KINDS["shell"])


def watch_daemon(output: MemoryOutput) -> int:
    """Return a descriptor that becomes readable when the daemon named in the output is gone."""
    return os.pidfd_open(int(output.text.split("daemon ")[1].split()[0]))


def is_gone(pidfd: int) -> bool:
    gone = bool(select.select([pidfd], [], [], 0)[0])
    os.close(pidfd)
    return gone


# ── every kind ─────────────────────────────────────────────────────────────────────────────────────


async def test_work_that_ends_well_succeeds(rig: Rig, kind: Kind) -> None:
    result, _ = await rig.run(kind.succeeds)
    assert (result.run_id, result.fence, result.state, result.exit_code) == (1, 3, State.SUCCEEDED, 0)
    assert (result.started_at, result.finished_at) == (START, START)
    assert rig.closed_before_done == [True]


async def test_work_that_fails_says_so(rig: Rig, kind: Kind) -> None:
    result, _ = await rig.run(kind.fails)
    assert (result.state, result.reason) == (State.FAILED, Reason.EXIT)
    assert result.message
    assert rig.closed_before_done == [True]


async def test_work_that_runs_too_long_is_timed_out_with_its_whole_tree(rig: Rig, kind: Kind) -> None:
    output = rig.start(kind.hangs, timeout=30.0)
    await output.until("hanging")
    daemon = watch_daemon(output)
    rig.clock.advance(31)
    result = await rig.ended()
    assert (result.state, result.reason) == (State.TIMED_OUT, Reason.TIMEOUT)
    assert is_gone(daemon)


async def test_work_that_ended_in_time_while_its_agent_stood_still_is_not_timed_out(
    shell: Rig, keeper: KeeperProcess, tmp_path: Path
) -> None:
    """The agent stands still from before the end of the work until after its timeout, of which it then learns first."""
    go, link = tmp_path / "go", keeper._link
    output = shell.start(steps(f"echo begun; while [ ! -e {go} ]; do sleep 0.01; done"), timeout=30.0)
    await output.until("begun")
    assert link is not None
    while not shell.is_started(1):  # its output may come before the word that it was started
        await asyncio.sleep(0)
    go.touch()
    stand_still_until(lambda: bool(select.select([link], [], [], 0)[0]))  # the keeper has told of the end
    shell.clock.advance(31)
    shell.executor.stop(1, Reason.TIMEOUT)
    result = await shell.ended()
    assert (result.state, result.exit_code) == (State.SUCCEEDED, 0)


async def test_work_that_ended_too_late_while_its_agent_stood_still_is_timed_out(
    shell: Rig, keeper: KeeperProcess, tmp_path: Path
) -> None:
    go, link = tmp_path / "go", keeper._link
    output = shell.start(steps(f"echo begun; while [ ! -e {go} ]; do sleep 0.01; done; sleep 0.2"), timeout=0.1)
    await output.until("begun")
    assert link is not None
    while not shell.is_started(1):  # its output may come before the word that it was started
        await asyncio.sleep(0)
    go.touch()
    stand_still_until(lambda: bool(select.select([link], [], [], 0)[0]))
    shell.executor.stop(1, Reason.TIMEOUT)
    assert (await shell.ended()).state is State.TIMED_OUT


def stand_still_until(condition: Callable[[], bool]) -> None:
    """Without giving the event loop a turn."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("reason", [Reason.REQUESTED, Reason.REPLACED, Reason.DELETED])
async def test_stopped_work_is_cancelled_with_its_whole_tree(rig: Rig, kind: Kind, reason: str) -> None:
    output = rig.start(kind.hangs)
    await output.until("hanging")
    daemon = watch_daemon(output)
    rig.executor.stop(1, reason)
    rig.executor.stop(1, Reason.TIMEOUT)
    result = await rig.ended()
    assert (result.state, result.reason) == (State.CANCELLED, reason)
    assert is_gone(daemon)


async def test_work_stopped_before_it_has_begun_is_cancelled(rig: Rig, kind: Kind) -> None:
    rig.start(kind.hangs)
    rig.executor.stop(1, Reason.REQUESTED)
    result = await rig.ended()
    assert result.state is State.CANCELLED


async def test_stopping_what_is_unknown_does_nothing(rig: Rig, kind: Kind) -> None:
    rig.executor.stop(99, Reason.REQUESTED)
    assert (await rig.run(kind.succeeds))[0].state is State.SUCCEEDED


@needs_root
async def test_work_whose_workspace_finds_no_room_is_lost_and_says_what_ails_the_machine(
    keeper: KeeperProcess, clock: FakeClock, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small") as disk:
        executor = KINDS["shell"].make(keeper, disk / "work", clock)
        await executor.open()
        rig = Rig(executor, clock)
        fill(disk)
        result, _ = await rig.run(steps("echo fine"))
        assert (result.state, result.reason) == (State.FAILED, Reason.LOST)
        assert "No space left on device" in result.ailment
        clear(disk)
        assert (await rig.run(steps("echo fine")))[0].state is State.SUCCEEDED
        await executor.close()


async def test_work_for_which_there_are_no_descriptors_is_lost(shell: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr("horae.executors.attempts.sections.os.pipe", too_many)
        result, _ = await shell.run(steps("echo fine"))
    assert (result.state, result.reason, result.ailment) == (State.FAILED, Reason.LOST, "Too many open files")


async def test_work_that_the_keeper_cannot_start_for_want_of_descriptors_is_lost(
    shell: Rig, keeper: KeeperProcess
) -> None:
    assert (await shell.run(steps("echo fine")))[0].state is State.SUCCEEDED
    before = resource.prlimit(keeper.pid, resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir(f"/proc/{keeper.pid}/fd")))
    lowest = next(number for number in range(len(used) + 1) if number not in used)
    resource.prlimit(keeper.pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    result, _ = await shell.run(steps("echo fine"))
    resource.prlimit(keeper.pid, resource.RLIMIT_NOFILE, before)
    assert (result.state, result.reason) == (State.FAILED, Reason.LOST)
    assert "Too many open files" in result.ailment
    assert (await shell.run(steps("echo fine")))[0].state is State.SUCCEEDED


async def test_a_program_that_is_not_there_fails_by_its_own_fault(shell: Rig) -> None:
    result, _ = await shell.run(steps("/nowhere/program"))
    assert (result.reason, result.ailment) == (Reason.EXIT, "")


NEST = """awk 'BEGIN { for (i = 0; i < 60; i++) p = p "d/"; for (i = 0; i < 25; i++) print p }' | while read p
do mkdir -p $p && cd $p; done; cd "$HOME"
"""


async def test_a_deep_workspace_does_not_keep_a_run_from_ending(shell: Rig, tmp_path: Path) -> None:
    result, text = await shell.run(steps(NEST))
    assert (result.state, text.count("rror")) == (State.SUCCEEDED, 0), (result, text)
    assert list((tmp_path / "work").iterdir()) == []


async def test_a_deep_workspace_does_not_keep_a_timeout_or_a_cancel_from_ending_a_run(shell: Rig) -> None:
    for count, reason in enumerate((Reason.TIMEOUT, Reason.REQUESTED), 1):
        output = shell.start(steps(NEST + HANG), run_id=count, timeout=30.0)
        await output.until("hanging")
        shell.clock.advance(31) if reason is Reason.TIMEOUT else shell.executor.stop(count, reason)
        assert (await shell.ended(count)).reason == reason


async def test_what_an_earlier_life_left_keeps_nobody_from_starting(open_rig: Any, tmp_path: Path) -> None:
    left = tmp_path / "work" / "7-1"
    left.mkdir(parents=True)
    subprocess.run(["/bin/sh", "-c", NEST], check=True, cwd=left, env={"HOME": str(left), "PATH": os.environ["PATH"]})
    rig = await open_rig(KINDS["shell"])
    assert not left.exists()
    assert (await rig.run(steps("echo fine")))[0].state is State.SUCCEEDED


async def test_a_workspace_that_cannot_be_removed_is_left_and_the_run_ends_as_it_did(
    shell: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise RecursionError("too deep")

    monkeypatch.setattr("horae.executors.attempts.workspaces.remove_tree", refuse)
    result, _ = await shell.run(steps("touch file; exit 7"))
    assert (result.state, result.reason, result.exit_code) == (State.FAILED, Reason.EXIT, 7)


async def test_closing_kills_what_is_left_and_hands_back_what_comes_later(rig: Rig, kind: Kind) -> None:
    output = rig.start(kind.hangs)
    await output.until("hanging")
    daemon = watch_daemon(output)
    await rig.executor.close()
    assert is_gone(daemon)
    assert [(r.state, r.reason) for r in rig.results] == [(State.FAILED, Reason.LOST)]
    late, _ = await rig.run(kind.succeeds, run_id=2)
    assert late.state is State.QUEUED


async def test_a_dead_keeper_loses_the_work_and_nothing_hangs(rig: Rig, kind: Kind, keeper: KeeperProcess) -> None:
    output = rig.start(kind.hangs)
    await output.until("hanging")
    daemon = watch_daemon(output)
    try:
        os.kill(keeper.pid, signal.SIGKILL)
        assert ((await rig.ended()).state, rig.results[0].reason) == (State.FAILED, Reason.LOST)
        later, _ = await rig.run(kind.succeeds)
        assert (later.state, later.reason) == (State.FAILED, Reason.LOST)
    finally:
        with suppress(ProcessLookupError):  # a daemon may survive its keeper: see executors/processes/process.py
            signal.pidfd_send_signal(daemon, signal.SIGKILL)
        os.close(daemon)


# ── shell ──────────────────────────────────────────────────────────────────────────────────────────


async def test_steps_run_in_order_in_one_workspace_that_is_removed(shell: Rig, tmp_path: Path) -> None:
    result, text = await shell.run(steps("echo made > file; mkdir deep; touch deep/x", "cat file; pwd"))
    assert result.state is State.SUCCEEDED
    assert text == f"── step 1/2 s1 ──\n── step 2/2 s2 ──\nmade\n{tmp_path}/work/1-3\n"
    assert list((tmp_path / "work").iterdir()) == []
    assert json.loads(result.result or "") == {
        "steps": [{"name": "s1", "seconds": 0.0, "exit_code": 0}, {"name": "s2", "seconds": 0.0, "exit_code": 0}],
        "walls": "plain",
    }
    assert result.output == "memory"


async def test_the_first_failing_step_ends_the_attempt(shell: Rig, tmp_path: Path) -> None:
    result, text = await shell.run(steps("true", "printf half; exit 3", "echo never"))
    assert (result.state, result.reason, result.exit_code) == (State.FAILED, Reason.EXIT, 3)
    assert result.message == "step 2 's2' ended with exit code 3"
    assert text.endswith("half\n── step 2 's2' ended with exit code 3 after 0.00 s ──\n")
    assert "never" not in text
    assert len(json.loads(result.result or "")["steps"]) == 2
    assert list((tmp_path / "work").iterdir()) == []


async def test_a_script_stops_at_its_first_failing_command(shell: Rig) -> None:
    result, text = await shell.run(steps("false\necho never"))
    assert result.exit_code == 1
    assert "never" not in text


@pytest.mark.parametrize(
    ("script", "code", "words", "cause"),
    [
        ("kill -SEGV $$", -11, "step 1 's1' was killed by SIGSEGV", ""),
        ("sh -c 'kill -KILL $$'; exit $?", 137, "step 1 's1' ended with exit code 137 (SIGKILL)", "killed"),
        ("no-such-command", 127, "step 1 's1' ended with exit code 127", "command_missing"),
        ("-x", 127, "step 1 's1' ended with exit code 127", "command_missing"),
    ],
)
async def test_the_message_names_the_exit_code_or_the_signal_and_the_cause(
    shell: Rig, script: str, code: int, words: str, cause: str
) -> None:
    result, text = await shell.run(steps(script))
    told = json.loads(result.result or "").get("cause", {"code": "", "message": ""})
    assert (result.reason, result.exit_code, told["code"]) == (Reason.EXIT, code, cause)
    assert result.message == f"{words}; {told['message']}".removesuffix("; ")
    assert told["message"] in text.splitlines()[-1]


async def test_stdout_and_stderr_keep_their_order(shell: Rig) -> None:
    script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    _, text = await shell.run(steps(script))
    assert text.splitlines()[1:] == [f"{stream} {n}" for n in range(200) for stream in ("out", "err")]


async def test_the_environment_is_clean_and_tells_the_attempt_who_it_is(
    shell: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "agent-secret")
    spec = steps("env", env={"A": "spec", "B": "spec", "HORAE_FENCE": "forged"})
    spec["steps"][0]["env"] = {"B": "step"}
    _, text = await shell.run(spec, data='{"k": "v w"}')
    shown = dict(line.split("=", 1) for line in text.splitlines()[1:])
    assert "agent-secret" not in text
    assert shown.pop("PATH")
    assert shown.pop("USER")
    assert shown == {
        "A": "spec",
        "B": "step",
        "HOME": f"{tmp_path}/work/1-3",
        "PWD": f"{tmp_path}/work/1-3",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HORAE_RUN_ID": "1",
        "HORAE_JOB_ID": "5",
        "HORAE_JOB_NAME": "nightly",
        "HORAE_ATTEMPT": "2",
        "HORAE_FENCE": "3",
        "HORAE_SCHEDULED_FOR": "2027-01-15T08:00:00Z",
        "HORAE_STEP": "s1",
        "HORAE_RUN_DATA": '{"k": "v w"}',
        "TRACEPARENT": f"00-686f7261650000000000000000000001-{span_id(1, 3)}-01",
    }


async def test_each_step_is_a_span_of_its_own_where_its_agent_tells_of_them(shell: Rig) -> None:
    heard = Heard()
    trace = f"00-{'a' * 32}-{span_id(1, 3, EXECUTE)}-01"
    result, text = await shell.run(
        steps("echo $TRACEPARENT", "echo $TRACEPARENT; exit 7"), listener=heard, trace=trace, has_spans=True
    )
    parents = [line for line in text.splitlines() if line.startswith("00-")]
    assert parents == [with_span(trace, span_id(1, 3, step_part(number))) for number in (0, 1)]
    assert [(step.number, step.name, step.exit_code) for step in heard.steps] == [(0, "s1", 0), (1, "s2", 7)]
    assert all(step.begun_at <= step.ended_at for step in heard.steps)
    assert result.state is State.FAILED


async def test_steps_are_part_of_their_attempt_where_nobody_tells_of_them(shell: Rig) -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    _, text = await shell.run(steps("echo $TRACEPARENT"), trace=trace)
    assert trace in text.splitlines()


async def test_a_daemon_of_a_step_is_gone_before_the_next_step(shell: Rig) -> None:
    """It also holds the output pipe open: that must not keep the attempt waiting."""
    result, text = await shell.run(steps("setsid sleep 600 & echo $! > pid", "kill -0 $(cat pid) || echo gone"))
    assert result.state is State.SUCCEEDED
    assert text.endswith("gone\n")


async def test_a_pipe_held_open_by_a_stranger_cannot_hold_the_attempt(shell: Rig, tmp_path: Path) -> None:
    output = shell.start(steps("echo pid $$; while [ ! -e go ]; do sleep 0.02; done; echo end"))
    await output.until("pid ")
    await output.until("\n")
    pid = int(output.text.split("pid ")[1].split()[0])
    held = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
    try:
        (tmp_path / "work" / "1-3" / "go").touch()
        assert (await shell.ended()).state is State.SUCCEEDED
        assert output.text.endswith("end\n")
    finally:
        os.close(held)


async def test_a_relative_working_directory_lies_in_the_workspace(shell: Rig, tmp_path: Path) -> None:
    spec = steps("pwd", "pwd", working_directory="app")
    spec["steps"][1]["working_directory"] = "app/deep"
    _, text = await shell.run(spec)
    work = f"{tmp_path}/work/1-3"
    assert [line for line in text.splitlines() if line.startswith("/")] == [f"{work}/app", f"{work}/app/deep"]


async def test_an_absolute_working_directory_is_used_and_kept(shell: Rig, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    result, _ = await shell.run(steps("touch here", working_directory=str(tmp_path / "mine")))
    assert result.state is State.SUCCEEDED
    assert (tmp_path / "mine" / "here").exists()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("../..", "leads out of the workspace"),
        ("link/x", "leads out of the workspace"),
        ("/no/such/place", "is not an existing directory"),
        ("a\0b", "could not be made"),
    ],
)
async def test_a_working_directory_elsewhere_fails_the_attempt(
    shell: Rig, tmp_path: Path, wanted: str, words: str
) -> None:
    spec = steps("ln -s / link", "touch never")
    spec["steps"][1]["working_directory"] = wanted
    result, _ = await shell.run(spec)
    assert (result.state, result.reason, result.exit_code) == (State.FAILED, Reason.ERROR, None)
    assert words in result.message
    assert list((tmp_path / "work").iterdir()) == []


async def test_output_beyond_what_is_kept_is_bounded_in_memory(shell: Rig) -> None:
    tracemalloc.start()
    try:
        result, text = await shell.run(steps("head -c 10000000 /dev/zero | tr '\\0' x; echo end >&2"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.state is State.SUCCEEDED
    assert len(text.encode()) == 1 << 20
    assert peak < 8_000_000


async def test_a_flood_of_output_ends_the_attempt(shell: Rig) -> None:
    result, text = await shell.run(steps("yes"))
    assert (result.state, result.reason) == (State.FAILED, Reason.OUTPUT_LIMIT)
    assert result.message.startswith("stopped in step 1 's1': it wrote more than 10 times the output that is kept; ")
    assert json.loads(result.result or "")["cause"]["code"] == "output_limit"
    assert len(text.encode()) == 1 << 20


async def test_data_too_large_for_an_environment_is_an_error_of_the_attempt(shell: Rig) -> None:
    result, _ = await shell.run(steps("true"), data=json.dumps("x" * 200_000))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "Argument list too long" in result.message


async def test_a_spec_that_makes_no_sense_fails_its_own_attempt_only(shell: Rig) -> None:
    broken, _ = await shell.run({"steps": [{"run": 5}]})
    assert (broken.state, broken.reason) == (State.FAILED, Reason.ERROR)
    assert (await shell.run(steps("true")))[0].state is State.SUCCEEDED


async def test_attempts_run_side_by_side(shell: Rig) -> None:
    outputs = [shell.start(steps(f"echo run $HORAE_RUN_ID; exit {n}"), run_id=n) for n in range(1, 31)]
    await shell.ended(30)
    assert sorted((r.run_id, r.exit_code) for r in shell.results) == [(n, n) for n in range(1, 31)]
    assert all(f"run {n}\n" in output.text for n, output in enumerate(outputs, 1))


async def test_opening_removes_workspaces_of_an_earlier_life_and_nothing_else(
    keeper: KeeperProcess, tmp_path: Path, clock: FakeClock
) -> None:
    (tmp_path / "work" / "7-1" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "7-1" / "deep" / "file").touch()
    (tmp_path / "work" / "notes").mkdir()
    executor = KINDS["shell"].make(keeper, tmp_path / "work", clock)
    await executor.open()
    assert [entry.name for entry in (tmp_path / "work").iterdir()] == ["notes"]
    await executor.close()


async def test_output_that_cannot_be_stored_is_said_and_does_not_hang(shell: Rig) -> None:
    class Broken(MemoryOutput):
        async def close(self) -> None:
            raise OSError("disk full")

    result, _ = await shell.run(steps("true"), output=Broken())
    assert (result.state, result.message) == (State.SUCCEEDED, "its output could not be stored: disk full")


# ── checkouts, scripts, images ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """A git repository with an executable file on main, and a branch `other` where it says something else."""
    place = tmp_path / "repository"
    (place / "ci").mkdir(parents=True)

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True)

    git("init", "-b", "main")
    for branch in ("main", "other"):
        (place / "ci" / "run.sh").write_text(f"#!/bin/sh\necho on {branch}: $# $1\n")
        (place / "ci" / "run.sh").chmod(0o755)
        (place / "out").unlink(missing_ok=True)
        (place / "out").symlink_to("/bin/true")
        git("checkout", "-B", branch)
        git("add", ".")
        git("commit", "-m", branch)
    return f"file://{place}"


async def test_a_checkout_is_the_first_section_and_fills_the_workspace(shell: Rig, repository: str) -> None:
    result, text = await shell.run(steps("cat ci/run.sh; pwd", checkout={"url": repository, "ref": "main"}))
    assert result.state is State.SUCCEEDED, result.message
    assert text.startswith(f"── checkout {repository} main ──\n")
    assert "echo on main" in text
    assert [step["name"] for step in json.loads(result.result or "")["steps"]] == ["checkout", "s1"]


async def test_the_variables_of_a_job_choose_no_other_git(shell: Rig, repository: str, tmp_path: Path) -> None:
    evil, fake = tmp_path / "evil", tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\ntouch {evil}\n")
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:/usr/bin:/bin", "GIT_SSH_COMMAND": f"touch {evil}", "GIT_TRACE": str(evil)}
    result, text = await shell.run(steps("echo $PATH", checkout={"url": repository, "ref": "main"}, env=env))
    assert result.state is State.SUCCEEDED, text
    assert text.endswith(f"{env['PATH']}\n")  # its own steps have them
    assert not evil.exists()


async def test_what_the_files_of_the_agent_lie_in_is_no_repository(shell: Rig, tmp_path: Path) -> None:
    for above in ("file:////", "file:///", f"file://{tmp_path}", f"file://{tmp_path}/x/.."):
        result, _ = await shell.run(steps("true", checkout={"url": above}))
        assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
        assert "the files of this agent lie in it" in result.message or "is not the address" in result.message


async def test_secret_files_are_there_after_the_checkout_for_their_owner_only(shell: Rig, repository: str) -> None:
    look = 'cd "$HORAE_SECRETS_DIR"; stat -c "%a %n" . a a/key; cat a/key; stat -f -c %T .; echo at $PWD'
    spec = steps(look, checkout={"url": repository, "ref": "main"}, files={"a/key": "line\n"})
    result, text = await shell.run(spec)
    assert result.state is State.SUCCEEDED, text
    assert "700 .\n700 a\n400 a/key\nline\ntmpfs\nat " in text
    assert not os.path.exists(text.split()[-1])


def test_without_a_file_system_in_memory_secret_files_lie_in_the_workspace(tmp_path: Path) -> None:
    directory = SecretFiles("shell", tmp_path, memory=tmp_path).write({"a/key": "x"}, tmp_path)
    assert directory is not None
    assert directory.parent == tmp_path
    assert directory.name.startswith(".horae-secrets-")  # which artifacts leave out
    assert SecretFiles("shell", tmp_path).write({}, tmp_path) is None


def test_secret_files_that_a_crash_left_are_removed_at_the_next_start_and_nobody_elses(tmp_path: Path) -> None:
    ours, other = SecretFiles("shell", tmp_path), SecretFiles("git_java", tmp_path)
    left, kept = ours.write({"key": "x"}, tmp_path), other.write({"key": "x"}, tmp_path)
    assert left is not None
    assert kept is not None
    SecretFiles("shell", tmp_path).open()
    assert (left.exists(), (kept / "key").read_text()) == (False, "x")
    other.remove(kept)


async def test_secret_files_are_gone_before_files_of_the_workspace_are_kept(
    keeper: KeeperProcess, tmp_path: Path, clock: FakeClock
) -> None:
    left: list[str] = []

    def look(work: Work, workspace: Path, succeeded: bool) -> None:
        left.extend(path.name for path in workspace.rglob("*"))

    sandboxes, work = plain(keeper, tmp_path), tmp_path / "work"
    executor = SectionExecutor("shell", Rules().sections, sandboxes, work, 4, clock, grace=GRACE, closing=look)
    await executor.open()
    spec = steps("test -s $HORAE_SECRETS_DIR/a/key && touch made", files={"a/key": "correct horse"})
    result, _ = await Rig(executor, clock).run(spec)
    await executor.close()
    assert result.state is State.SUCCEEDED
    assert left == ["made"]


async def test_a_section_of_ours_reads_what_it_is_given_and_tells_what_it_knows(
    keeper: KeeperProcess, tmp_path: Path, clock: FakeClock
) -> None:
    told: list[Json] = []

    def plan(work: Work, workspace: Path) -> Iterator[Section]:
        script = (
            'read -r word; echo "{\\"word\\": \\"$word\\"}" >&$HORAE_NOTES; echo nonsense >&$HORAE_NOTES; echo shown'
        )
        yield Section("it", "it", "it", ("bash", "-c", script), workspace, given=b"hush\n", note=told.append)

    executor = SectionExecutor("shell", plan, plain(keeper, tmp_path), tmp_path / "work", 4, clock, grace=GRACE)
    await executor.open()
    result, text = await Rig(executor, clock).run({})
    await executor.close()
    assert (result.state, told, text) == (State.SUCCEEDED, [{"word": "hush"}], "── it ──\nshown\n")


async def test_without_secret_files_there_is_no_directory_for_them(shell: Rig) -> None:
    _, text = await shell.run(steps('echo "<$HORAE_SECRETS_DIR>"; ls -A'))
    assert text.endswith("<>\n")


async def test_a_checkout_that_fails_ends_the_attempt_with_the_words_of_git(shell: Rig, repository: str) -> None:
    result, text = await shell.run(steps("echo never", checkout={"url": repository, "ref": "no-such-branch"}))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message.startswith(f"the checkout of {repository} ended with exit code")
    assert "no-such-branch" in text
    assert "never" not in text


async def test_no_password_of_an_address_is_shown(shell: Rig) -> None:
    spec = steps("true", checkout={"url": "http://ann:secret@127.0.0.1:1/repo.git"})
    result, text = await shell.run(spec)
    assert result.state is State.FAILED
    assert text.startswith("── checkout http://127.0.0.1:1/repo.git ──")
    assert "secret" not in text + result.message


async def test_a_relative_script_of_the_checkout_is_executed_with_its_args(shell: Rig, repository: str) -> None:
    spec = {"script": "ci/run.sh", "args": ["a b; $(id)", "2"], "checkout": {"url": repository, "ref": "other"}}
    result, text = await shell.run(spec)
    assert result.state is State.SUCCEEDED, result.message
    assert text.endswith("── script ci/run.sh ──\non other: 2 a b; $(id)\n")


async def test_a_script_that_leads_out_of_the_checkout_is_refused(shell: Rig, repository: str) -> None:
    result, _ = await shell.run({"script": "out", "checkout": {"url": repository}})
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message == "the script 'out' does not lie below the checkout"


@pytest.fixture
async def rooted(keeper: KeeperProcess, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Rig]:
    """An agent whose jobs may execute what lies below `roots`."""
    (tmp_path / "roots" / "deep").mkdir(parents=True)
    for name in ("roots/deep/good", "outside", "roots/plain"):
        (tmp_path / name).write_text("#!/bin/sh\necho it ran\n")
        (tmp_path / name).chmod(0o644 if name == "roots/plain" else 0o755)
    (tmp_path / "roots" / "link").symlink_to(tmp_path / "outside")
    executor = shell_executor(
        plain(keeper, tmp_path), tmp_path / "work", 4, clock, grace=GRACE, script_roots=[tmp_path / "roots"]
    )
    await executor.open()
    yield Rig(executor, clock)
    await executor.close()


async def test_an_absolute_script_below_a_root_is_executed(rooted: Rig, tmp_path: Path) -> None:
    result, text = await rooted.run({"script": f"{tmp_path}/roots/deep/good"})
    assert result.state is State.SUCCEEDED, result.message
    assert text.endswith("it ran\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("outside", "does not lie below any of this agent's script_roots"),
        ("roots/link", "does not lie below any of this agent's script_roots"),
        ("roots/deep/../../outside", "does not lie below any of this agent's script_roots"),
        ("roots/none", "is not there"),
        ("roots/deep", "is not there"),
        ("roots/plain", "is not executable: chmod +x it"),
    ],
)
async def test_an_absolute_script_elsewhere_is_refused(rooted: Rig, tmp_path: Path, name: str, words: str) -> None:
    result, text = await rooted.run({"script": f"{tmp_path}/{name}"})
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message == f"the script '{tmp_path}/{name}' {words}"
    assert "it ran" not in text


async def test_without_roots_no_file_of_the_machine_is_executed(shell: Rig) -> None:
    result, _ = await shell.run({"script": "/bin/true"})
    assert result.state is State.FAILED
    assert "set script_roots" in result.message


async def test_work_that_asks_for_an_image_never_runs_outside_of_it(shell: Rig) -> None:
    result, text = await shell.run(steps("echo never", image="golang"))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "runs no containers" in result.message
    assert "never" not in text
