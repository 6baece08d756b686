"""Work that outlives its agent: a real keeper, real processes, and agents that come and go."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from horae.core.model import Json, Reason, State
from horae.core.runs.orders import Assignment, Result
from horae.executors.attempts.stash import Stash
from horae.executors.processes import keeper as program
from horae.executors.processes.process import KeeperProcess
from horae.executors.shell import shell_executor
from horae.files import open_files
from horae.ports.work import Command, Exit, Hold, Memo, Work
from horae.testing import START, FakeClock

from .test_executors import PATIENCE, MemoryOutput, plain, steps

ENV = {"PATH": "/usr/bin:/bin"}
LEASE = 600.0  # seconds; nothing here waits for it


def command(run: str, stash: Stash, pipe: tuple[int, int], name: str = "1-1", memo: str = "memo") -> Command:
    hold = Hold(name, memo, pipe[0], stash.file)
    return Command(["/bin/sh", "-c", run], ENV, "/", stdout=pipe[1], hold=hold)


async def begin(directory: Path, *, keeps: bool = True, lease: float | None = LEASE) -> KeeperProcess:
    keeper = KeeperProcess(directory, keeps=keeps)
    async with asyncio.timeout(PATIENCE):
        await keeper.open()
    if lease is not None:
        keeper.renew(lease)
    return keeper


async def gone(pid: int) -> None:
    """Until a process has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert await asyncio.to_thread(select.select, [pidfd], [], [], PATIENCE) != ([], [], [])
    finally:
        os.close(pidfd)


def is_alive(pid: int) -> bool:
    return program.look_at(pid)[1] not in ("", program.ZOMBIE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "agent"


async def spawn(keeper: KeeperProcess, run: str, name: str = "1-1") -> tuple[Any, Stash, int]:
    """Return a held process, and its pipe, which only the keeper has open besides."""
    stash, pipe = Stash(), os.pipe()
    os.set_blocking(pipe[0], False)
    process = await keeper.spawn(command(run, stash, pipe, name))
    os.close(pipe[1])
    return process, stash, pipe[0]


# ── the keeper ──


async def test_held_work_outlives_its_agent_and_is_the_next_ones(place: Path) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "sleep 600")
    await first.leave()
    second = await begin(place)
    (kept,) = second.kept

    assert (second.pid, second.life) == (first.pid, first.life)
    assert (kept.name, kept.memo, kept.process.pid, kept.is_ending) == ("1-1", "memo", process.pid, False)
    assert is_alive(process.pid)
    assert (await kept.process.kill(0)).code == -signal.SIGKILL
    assert not is_alive(process.pid)
    await second.close()


async def test_what_is_not_held_is_gone_before_the_next_agent_is_let_in(place: Path) -> None:
    first = await begin(place)
    held, _, _ = await spawn(first, "sleep 600")
    other = await first.spawn(Command(["/bin/sh", "-c", "setsid sleep 600 & trap '' TERM; wait"], ENV, "/"))
    await first.leave()
    second = await begin(place)

    assert not is_alive(other.pid)
    assert [one.process.pid for one in second.kept] == [held.pid]
    await second.close()
    assert not is_alive(held.pid)


async def test_an_end_between_two_agents_is_told_to_the_next_and_to_the_one_after_it(place: Path) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "echo said; exit 5")
    await first.leave()
    await gone(process.pid)
    second = await begin(place, lease=None)
    told = await second.kept[0].process.wait()
    await second.leave()  # it never said that it knows
    third = await begin(place)

    assert told == await third.kept[0].process.wait() == Exit(5)
    assert told.seconds is not None
    third.release("1-1")
    await third.leave()
    await gone(first.pid)


async def test_that_work_was_told_to_end_is_known_after_its_end_too(place: Path) -> None:
    first = await begin(place)
    await spawn(first, "sleep 600")
    first.order_kill(1, 0.0)
    await first.leave()
    second = await begin(place)
    told = await second.kept[0].process.wait()
    await second.leave()
    third = await begin(place)
    (kept,) = third.kept

    assert kept.is_ending
    assert told == await kept.process.wait() == Exit(-signal.SIGKILL)
    await third.close()


async def test_output_between_two_agents_is_collected_once_and_in_order(place: Path) -> None:
    first = await begin(place)
    process, stash, source = await spawn(first, "seq 1 50000")
    taken = stash.take(source) or b""  # the first agent has read a part of it
    await first.leave()
    await gone(process.pid)
    second = await begin(place)
    (kept,) = second.kept
    found = Stash(kept.file)
    while rest := found.take(kept.source):
        assert rest

    text = b"".join(found.read(0, found.size))
    assert text.startswith(taken)
    assert text == b"".join(b"%d\n" % number for number in range(1, 50001))
    await second.close()


async def test_held_work_does_not_outlive_the_lease(place: Path) -> None:
    first = await begin(place, lease=LEASE)
    process, _, _ = await spawn(first, "trap '' TERM; sleep 600")
    first.renew(0.3)
    await first.leave()
    await gone(first.pid)
    assert not is_alive(process.pid)
    second = await begin(place)

    assert (second.kept, second.pid != first.pid) == ([], True)
    await second.close()


async def test_a_lease_that_runs_out_while_the_next_agent_is_there_ends_the_work(place: Path) -> None:
    """Being let in renews nothing."""
    first = await begin(place)
    await spawn(first, "sleep 600")
    first.renew(2.0)
    await first.leave()
    second = await begin(place, lease=None)
    exits = [await one.process.wait() for one in second.kept]

    assert all(one.message == program.LEASE_RAN_OUT for one in exits)  # none, if this machine stood still before
    await second.close()


async def test_an_agent_of_the_old_way_ends_what_was_kept(place: Path) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "sleep 600")
    await first.leave()
    second = await begin(place, keeps=False)

    assert not is_alive(process.pid)
    assert (second.kept, second.pid != first.pid) == ([], True)
    await second.close()


async def test_an_agent_of_the_old_way_leaves_nothing_behind(place: Path) -> None:
    first = await begin(place, keeps=False)
    process, _, _ = await spawn(first, "sleep 600")
    await first.leave()
    await gone(first.pid)

    assert not is_alive(process.pid)


async def test_a_keeper_that_speaks_another_language_is_told_to_end(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "sleep 600")
    await first.leave()
    monkeypatch.setattr(program, "PROTOCOL", program.PROTOCOL + 1)
    second = await begin(place)

    assert not is_alive(process.pid)
    assert (second.kept, second.pid != first.pid) == ([], True)
    await second.close()


async def test_of_two_that_come_one_is_let_in(place: Path) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "sleep 600")
    await first.leave()
    second = await begin(place)
    third = asyncio.create_task(begin(place))
    async with asyncio.timeout(PATIENCE):  # a turn of everybody: the third has knocked
        probe = await second.spawn(Command(["/bin/true"], ENV, "/"))
        await probe.wait()
    assert not third.done()
    await second.leave()
    last = await third

    assert [one.process.pid for one in last.kept] == [process.pid]
    await last.close()


async def test_a_killed_keeper_takes_what_it_held_with_it(place: Path) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "sleep 600")
    await first.leave()
    os.kill(first.pid, signal.SIGKILL)
    second = await begin(place)

    assert not is_alive(process.pid)
    assert second.kept == []
    await second.close()


async def test_released_work_dies_with_its_agent(place: Path) -> None:
    first = await begin(place)
    process, _, _ = await spawn(first, "sleep 600")
    first.release("1-1")
    await first.leave()
    await gone(first.pid)

    assert not is_alive(process.pid)


async def test_the_door_is_for_its_user_alone(place: Path) -> None:
    keeper = await begin(place)

    assert (place / program.SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    await keeper.close()
    assert not (place / program.SOCKET_NAME).exists()


# ── the executor ──


class Life:
    """An agent as its executor sees it: what it starts, leaves, and takes up."""

    def __init__(self, directory: Path, clock: FakeClock) -> None:
        self.directory = directory
        self.clock = clock
        self.results: asyncio.Queue[Result] = asyncio.Queue()

    async def open(self) -> Life:
        self.keeper = await begin(self.directory / "agent")
        work = self.directory / "work"
        self.executor = shell_executor(plain(self.keeper, work), work, 4, self.clock, grace=0.5, keeper=self.keeper)
        self.executor.expect(self.keeper.kept)
        await self.executor.open()
        return self

    def start(self, spec: Json, timeout: float | None = None) -> MemoryOutput:
        output = MemoryOutput()
        a = Assignment(1, 3, 2, 5, None, START, "shell", "nightly", json.dumps(spec), "{}", None)
        self.executor.start([Work(a, spec, output, timeout, START, origin=a)], self.results.put_nowait)
        return output

    def take_up(self, timeout: float | None = None) -> MemoryOutput:
        (kept,) = self.keeper.kept
        memo = msgspec.json.decode(kept.memo, type=Memo)
        output, a = MemoryOutput(), memo.assignment
        work = Work(a, json.loads(a.spec), output, timeout, START, origin=a)
        self.executor.take_up(work, kept, memo, self.results.put_nowait)
        return output

    async def leave(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.executor.lasting() != {1}:  # its output may be here before the word that it was started
                await asyncio.sleep(0)
        await self.executor.leave()
        await self.keeper.leave()
        assert self.results.empty()

    async def result(self) -> Result:
        async with asyncio.timeout(PATIENCE):
            return await self.results.get()

    async def close(self) -> None:
        await self.executor.close()
        await self.keeper.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_an_attempt_goes_on_with_its_log_its_steps_and_its_workspace(tmp_path: Path, clock: FakeClock) -> None:
    first = await Life(tmp_path, clock).open()
    spec = steps("echo one > file; echo first", f"echo second; read x < {tmp_path}/go; echo $x", "cat file; exit 3")
    os.mkfifo(tmp_path / "go")
    output = first.start(spec)
    await output.until("second\n")
    await first.leave()
    second = await Life(tmp_path, clock).open()
    output = second.take_up()
    await asyncio.to_thread((tmp_path / "go").write_text, "told\n")
    result = await second.result()

    assert (result.state, result.exit_code, result.fence) == (State.FAILED, 3, 3)
    said = output.text.rpartition("── step 3 's3' ended")[0]
    assert said == "── step 1/3 s1 ──\nfirst\n── step 2/3 s2 ──\nsecond\ntold\n── step 3/3 s3 ──\none\n"
    assert [one["name"] for one in json.loads(result.result or "")["steps"]] == ["s1", "s2", "s3"]
    assert list((tmp_path / "work").iterdir()) == []
    await second.close()


async def test_the_log_of_an_attempt_that_says_nothing_after_it_was_taken_up_is_whole(
    tmp_path: Path, clock: FakeClock
) -> None:
    first = await Life(tmp_path, clock).open()
    os.mkfifo(tmp_path / "go")
    output = first.start(steps(f"echo one; read x < {tmp_path}/go", "echo two"))
    await output.until("one\n")
    await first.leave()
    second = await Life(tmp_path, clock).open()
    output = second.take_up()
    await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
    await second.result()

    assert output.text == "── step 1/2 s1 ──\none\n── step 2/2 s2 ──\ntwo\n"
    await second.close()


async def test_a_timeout_that_passed_between_two_agents_ends_the_work(tmp_path: Path, clock: FakeClock) -> None:
    first = await Life(tmp_path, clock).open()
    output = first.start(steps("echo begun; sleep 600"), timeout=30.0)
    await output.until("begun\n")
    await first.leave()
    clock.advance(31)
    second = await Life(tmp_path, clock).open()
    second.take_up(timeout=30.0)
    result = await second.result()

    assert (result.state, result.reason) == (State.TIMED_OUT, Reason.TIMEOUT)
    await second.close()


async def test_work_that_ended_in_time_between_two_agents_is_not_timed_out(tmp_path: Path, clock: FakeClock) -> None:
    first = await Life(tmp_path, clock).open()
    os.mkfifo(tmp_path / "go")
    output = first.start(steps(f"echo begun; read x < {tmp_path}/go; echo done"), timeout=30.0)
    await output.until("begun\n")
    await first.leave()
    await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
    clock.advance(31)
    second = await Life(tmp_path, clock).open()
    await second.keeper.kept[0].process.wait()
    output = second.take_up(timeout=30.0)
    result = await second.result()

    assert (result.state, output.text) == (State.SUCCEEDED, "── step 1/1 s1 ──\nbegun\ndone\n")
    await second.close()


async def test_a_taken_up_attempt_can_be_stopped(tmp_path: Path, clock: FakeClock) -> None:
    first = await Life(tmp_path, clock).open()
    output = first.start(steps("echo begun; sleep 600"))
    await output.until("begun\n")
    await first.leave()
    second = await Life(tmp_path, clock).open()
    second.take_up()
    second.executor.stop(1, Reason.REQUESTED)
    result = await second.result()

    assert result.state is State.CANCELLED
    await second.close()


async def test_work_that_was_told_to_end_before_its_agent_died_is_lost(tmp_path: Path, clock: FakeClock) -> None:
    """Why, nobody knows any more but the service."""
    first = await Life(tmp_path, clock).open()
    output = first.start(steps("trap '' TERM; echo begun; while :; do sleep 0.05; done"))
    await output.until("begun\n")
    attempt = first.executor._attempts[1]
    first.keeper.order_kill(1, LEASE)  # the grace is not over when the agent dies
    attempt.abandon()
    await first.keeper.leave()
    second = await Life(tmp_path, clock).open()
    assert second.keeper.kept[0].is_ending
    second.take_up()
    result = await second.result()

    assert (result.state, result.reason) == (State.FAILED, Reason.LOST)
    await second.close()


async def test_a_result_that_nobody_heard_of_is_told_by_the_next_agent(tmp_path: Path, clock: FakeClock) -> None:
    """The first one died after the clean-up, and before its result was anywhere."""
    first = await Life(tmp_path, clock).open()
    output = first.start(steps("echo one; exit 4"))
    told, before = await first.result(), output.text
    await first.keeper.leave()
    second = await Life(tmp_path, clock).open()
    output = second.take_up()
    result = await second.result()

    assert (replace(result, output=None), output.text) == (replace(told, output=None), before)
    await second.close()


# ── the log ──


async def test_an_output_that_is_written_again_is_stored_once(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    first = files.open(1, 1, 1, 1 << 20)
    first.write(b"one two ")
    await first.close()
    second = await files.reopen(1, 1, 1, 1 << 20)
    for piece in (b"one", b" two th", b"ree"):
        second.write(piece)
    await second.close()

    assert await files.read(files.ref(1, 1, 1), 0, 100) == b"one two three"


async def test_an_output_that_is_written_again_is_cut_at_the_same_byte(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    first = files.open(1, 1, 1, 10)
    first.write(b"12345678")
    await first.close()
    second = await files.reopen(1, 1, 1, 10)
    second.write(b"1234567890abc")
    await second.close()
    text = await files.read(files.ref(1, 1, 1), 0, 100)

    assert text == b"1234567890\n[output truncated: the limit is 10 bytes]\n"
