"""Processes that are replaced within their lease: what runs goes on, and nobody runs it a second time."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .agent import AgentProcess
from .server import Server
from .test_remote_agents import NO_AGENT, at, has_written, log_of, shell

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("restart")]
LEASE = ("--heartbeat-interval", "1", "--lease", "20")  # long enough for a busy machine to start a process
BRIEF = ("--heartbeat-interval", "0.5", "--lease", "3")

# Counts aloud until it is told to end, and says who it is.
COUNTER = """
echo "pid $$ attempt $HORAE_ATTEMPT fence $HORAE_FENCE"
i=0
while [ ! -e {file} ]; do i=$((i+1)); echo "line $i"; sleep 0.02; done
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
    found = re.search(r"pid (\d+) ", log_of(server, run_id))
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
    assert [one["state"] for one in server.get(f"/v1/runs/{run_id}/attempts")["items"]] == ["failed"]


def lines_after(server: Server, run_id: int) -> None:
    """It has written something since now."""
    last = re.findall(r"line (\d+)", log_of(server, run_id))[-1]
    has_written(server, run_id, f"line {int(last) + 3}\n")


def is_alive(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
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
