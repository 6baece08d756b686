"""Processes that are replaced within their lease: what runs goes on, and nobody runs it a second time."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..nats_server import Nats
from .agent import AgentProcess
from .server import DEADLINE, Server
from .test_remote_agents import NO_AGENT, at, check_one_after_the_other, has_written, lines_of, log_of, shell

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("restart")]
LEASE = ("--heartbeat-interval", "1", "--lease", "60")  # long enough for a busy machine to start a process
BRIEF = ("--heartbeat-interval", "0.5", "--lease", "3")

# Counts aloud until it is told to end, and says who it is.
COUNTER = """
echo "pid $$ attempt $HORAE_ATTEMPT fence $HORAE_FENCE"
i=0
while [ ! -e {file} ]; do i=$((i+1)); echo "line $i"; sleep 0.05; done
echo "last $i"
exit 7
"""

Begin = Callable[..., AgentProcess]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    started: list[AgentProcess] = []

    def start(server: Server, name: str, *flags: str) -> AgentProcess:
        agent = AgentProcess(tmp_path, at(server), name, *flags)
        started.append(agent.start())
        return agent.joined()

    yield start
    for agent in started:
        agent.signal(signal.SIGINT)  # for good
        agent.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path, *NO_AGENT, *LEASE).start()
    yield running
    running.stop()


def pid_of(server: Server, run_id: int) -> int:
    found = re.search(r"pid (\d+)\s", log_of(server, run_id))
    assert found, log_of(server, run_id)
    return int(found[1])


def check_went_on(server: Server, run_id: int) -> None:
    """One process wrote all of it, in order, with nothing missing and nothing twice."""
    run = server.ended(run_id)
    _, first, *lines, last, verdict = log_of(server, run_id).splitlines()
    assert re.fullmatch(r"pid \d+ attempt 1 fence 1", first)
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert last == f"last {len(lines)}"
    assert "ended with exit code 7" in verdict
    assert (run["state"], run["exit_code"], run["attempt"], run["fence"]) == ("failed", 7, 1, 1)
    assert run["attempts"] == []


def lines_after(server: Server, run_id: int) -> None:
    """It has written something since now."""
    last = re.findall(r"line (\d+)", log_of(server, run_id))[-1]
    has_written(server, run_id, f"line {int(last) + 3}\n")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_agent_that_was_killed_takes_its_work_up_again(server: Server, begin: Begin, tmp_path: Path) -> None:
    agent = begin(server, "phoenix")
    run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
    has_written(server, run_id, "line 5\n")
    pid = pid_of(server, run_id)

    agent.kill()
    assert is_alive(pid)
    agent.start()
    agent.wait_for("agent phoenix joined", 2)
    lines_after(server, run_id)
    assert pid_of(server, run_id) == pid
    assert is_alive(pid)
    (tmp_path / "end").touch()

    check_went_on(server, run_id)


@pytest.mark.long
def test_an_agent_that_is_stopped_and_started_takes_its_work_up_again(
    server: Server, begin: Begin, tmp_path: Path
) -> None:
    agent = begin(server, "phoenix")
    run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
    has_written(server, run_id, "line 5\n")
    pid = pid_of(server, run_id)

    assert agent.stop() == 0
    assert "work.left" in agent.log()
    assert is_alive(pid)
    agent.start()
    agent.wait_for("agent phoenix joined", 2)
    lines_after(server, run_id)
    (tmp_path / "end").touch()

    check_went_on(server, run_id)


@pytest.mark.long
def test_work_that_ended_between_two_lives_of_its_agent_has_its_result(
    server: Server, begin: Begin, tmp_path: Path
) -> None:
    agent = begin(server, "phoenix")
    run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
    has_written(server, run_id, "line 5\n")
    pid = pid_of(server, run_id)

    agent.kill()
    (tmp_path / "end").touch()
    server.wait_until(lambda: not is_alive(pid), "the work to end without an agent")
    agent.start()

    check_went_on(server, run_id)


def test_a_server_that_was_killed_takes_the_work_of_its_own_agent_up_again(tmp_path: Path) -> None:
    server = Server(tmp_path, *LEASE).start()
    run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
    has_written(server, run_id, "line 5\n")
    pid = pid_of(server, run_id)
    try:
        server.kill()
        server.start()
        lines_after(server, run_id)
        assert is_alive(pid)
        (tmp_path / "end").touch()

        check_went_on(server, run_id)
    finally:
        server.stop()


@pytest.mark.long
def test_a_server_that_is_stopped_and_started_takes_the_work_of_its_own_agent_up_again(tmp_path: Path) -> None:
    server = Server(tmp_path, *LEASE).start()
    run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
    has_written(server, run_id, "line 5\n")
    pid = pid_of(server, run_id)
    try:
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE) == 0
        assert is_alive(pid)
        server.start()
        lines_after(server, run_id)
        (tmp_path / "end").touch()

        check_went_on(server, run_id)
    finally:
        server.stop()


@pytest.mark.long
def test_an_agent_over_nats_that_was_killed_takes_its_work_up_again(tmp_path: Path) -> None:
    nats = Nats(tmp_path / "nats").start()
    server = Server(tmp_path, *NO_AGENT, *LEASE, "--queue", nats.url)
    agent: AgentProcess | None = None
    try:
        server.start().cli("token", "create", "far", "--agent", "*", "--label", "*", "--file", "far.token")
        agent = AgentProcess(tmp_path, nats.url, "phoenix", "--token-file", str(tmp_path / "far.token")).start()
        agent.joined()
        run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
        has_written(server, run_id, "line 5\n")
        agent.kill()
        agent.start()
        agent.wait_for("agent phoenix joined", 2)
        lines_after(server, run_id)
        (tmp_path / "end").touch()

        check_went_on(server, run_id)
    finally:
        if agent is not None:
            agent.stop()
        server.stop()
        nats.kill()


@pytest.mark.long
def test_a_taken_up_run_can_be_cancelled(server: Server, begin: Begin, tmp_path: Path) -> None:
    agent = begin(server, "phoenix")
    run_id = shell(server, COUNTER.format(file=tmp_path / "end"))
    has_written(server, run_id, "line 5\n")
    pid = pid_of(server, run_id)

    agent.kill()
    agent.start()
    agent.wait_for("agent phoenix joined", 2)
    server.post(f"/v1/runs/{run_id}/cancel", status=202)

    run = server.ended(run_id)
    assert (run["state"], run["attempt"], run["fence"]) == ("cancelled", 1, 1)
    assert not is_alive(pid)


@pytest.mark.long
def test_later_steps_of_a_taken_up_run_are_done_by_the_next_agent(server: Server, begin: Begin, tmp_path: Path) -> None:
    agent = begin(server, "phoenix")
    steps = [
        {"run": "echo one; echo $$ > first"},
        {"run": f"echo two; while [ ! -e {tmp_path / 'end'} ]; do sleep 0.05; done"},
        {"run": "echo three; cat first"},
    ]
    (job,) = server.submit({"name": "job", "steps": steps, "triggers": []})
    run_id = int(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
    has_written(server, run_id, "two\n")

    agent.kill()
    agent.start()
    agent.wait_for("agent phoenix joined", 2)
    (tmp_path / "end").touch()

    run = server.ended(run_id)
    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert [step["name"] for step in run["result"]["steps"]] == ["step 1", "step 2", "step 3"]
    text = re.sub(r"\d{2,}", "PID", log_of(server, run_id))
    assert text == "── step 1/3 step 1 ──\none\n── step 2/3 step 2 ──\ntwo\n── step 3/3 step 3 ──\nthree\nPID\n"


# Attempt 1 goes on until it is killed; any other ends soon. Every line says who wrote it, and when.
WITNESS = """
echo "pid $$"
n=5; [ "$HORAE_ATTEMPT" = 1 ] && n=100000
for i in $(seq $n); do echo "$HORAE_FENCE $(date +%s.%N)" >> {file}; sleep 0.1; done
"""


def test_work_whose_agent_does_not_come_back_ends_before_it_runs_elsewhere(tmp_path: Path, begin: Begin) -> None:
    server = Server(tmp_path, *NO_AGENT, *BRIEF).start()
    try:
        lost = begin(server, "lost")
        run_id = shell(server, WITNESS.format(file=tmp_path / "seen"))
        server.wait_until(lambda: len(lines_of(tmp_path / "seen")) > 3, "the work to run")
        begin(server, "heir")
        lost.kill()

        run = server.ended(run_id)
        assert (run["state"], run["attempt"], run["node"]) == ("succeeded", 2, "heir")
        check_one_after_the_other(tmp_path / "seen")
        assert [one["reason"] for one in run["attempts"]] == ["lost"]
    finally:
        server.stop()


@pytest.mark.long
def test_an_agent_that_comes_back_after_its_lease_finds_nothing_to_take_up(tmp_path: Path, begin: Begin) -> None:
    server = Server(tmp_path, *NO_AGENT, *BRIEF).start()
    try:
        agent = begin(server, "late")
        run_id = shell(server, WITNESS.format(file=tmp_path / "seen"))
        has_written(server, run_id, "pid ")
        pid = pid_of(server, run_id)
        agent.kill()
        server.wait_until(lambda: not is_alive(pid), "the keeper to end the work")
        agent.start()

        run = server.ended(run_id)
        assert (run["state"], run["attempt"], [one["reason"] for one in run["attempts"]]) == ("succeeded", 2, ["lost"])
        check_one_after_the_other(tmp_path / "seen")
        assert "work.taken_up" not in agent.log()
    finally:
        server.stop()


def test_a_setting_keeps_the_old_way(server: Server, begin: Begin, tmp_path: Path) -> None:
    agent = begin(server, "strict", "--on-restart", "end")
    run_id = shell(server, WITNESS.format(file=tmp_path / "seen"))
    has_written(server, run_id, "pid ")
    pid = pid_of(server, run_id)

    agent.kill()
    server.wait_until(lambda: not is_alive(pid), "the work to end with its agent")
    agent.start()

    run = server.ended(run_id)
    assert (run["state"], run["attempt"]) == ("succeeded", 2)
    check_one_after_the_other(tmp_path / "seen")
