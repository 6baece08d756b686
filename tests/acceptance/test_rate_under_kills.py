"""A rate over several agents, while agents and the server are killed: never exceeded in any window, and never stuck.

Judged by what the store writes when it gives a run away, which the test has the database keep.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from .agent import AgentProcess
from .server import Server

pytestmark = pytest.mark.slow
SECOND = 1_000_000
RATE, BURST = 600, 10  # starts a minute, and at once
PERIOD = 60 * SECOND // RATE
RUNS, STEP = 320, 90  # of all runs, and starts between two kills
RECOVERY = 6 * SECOND  # for which a server that was killed is excused once it is back: its agents come again
NOTE = """
CREATE TABLE noted (run INTEGER, at INTEGER);
CREATE TRIGGER note_start AFTER UPDATE OF state ON live WHEN new.state = 1 AND old.state <> 1
BEGIN INSERT INTO noted VALUES (new.id, new.started_at); END;
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, "--heartbeat-interval", "1", "--roles", "api,coordinator,scheduler").start()
    yield server
    server.stop()


@pytest.fixture
def agents(tmp_path: Path, server: Server) -> Iterator[list[AgentProcess]]:
    agents = [AgentProcess(tmp_path, f"127.0.0.1:{server.grpc_port}", f"a{number}").start() for number in range(3)]
    yield [agent.joined() for agent in agents]
    for agent in agents:
        agent.stop()


def starts(server: Server) -> list[int]:
    """The moments, in order."""
    with closing(sqlite3.connect(server.directory / "data" / "horae.db", timeout=30)) as database:
        return [row[0] for row in database.execute("SELECT at FROM noted ORDER BY at")]


def test_a_rate_holds_while_agents_and_the_server_are_killed(server: Server, agents: list[AgentProcess]) -> None:
    with closing(sqlite3.connect(server.directory / "data" / "horae.db", timeout=30)) as database:
        database.executescript(NOTE)
    limit = {"rate": f"{RATE}/min", "burst": BURST}
    [job] = server.submit(
        {"name": "paced", "handler": "horae.handlers:noop", "overlap": "allow", "rate_limits": [limit]}
    )
    for _ in range(RUNS):
        server.post(f"/v1/jobs/{job['id']}/run", {}, status=201)

    def until(count: int) -> None:
        server.wait_until(lambda: len(starts(server)) >= count, f"{count} starts", 60)

    until(STEP)
    agents[0].kill()
    agents[0].start()
    until(2 * STEP)
    killed_at = time.time_ns() // 1000
    server.kill()
    server.start()
    back_at = time.time_ns() // 1000
    until(3 * STEP)

    found = starts(server)
    assert_within_rate(found)
    assert_not_stuck([at for at in found if at < killed_at])
    assert_not_stuck([at for at in found if at > back_at + RECOVERY])


def assert_within_rate(found: list[int]) -> None:
    """In every window: n starts need the burst, and a period for each further one."""
    ready = 0
    for at in found:
        assert at >= ready - (BURST - 1) * PERIOD, f"a start {(ready - (BURST - 1) * PERIOD - at) / SECOND:.3f} s early"
        ready = max(ready, at) + PERIOD


def assert_not_stuck(found: list[int]) -> None:
    """While something waits: 95 per cent of the rate."""
    assert len(found) > STEP // 2
    took = found[-1] - found[0]
    assert len(found) >= 0.95 * took / PERIOD, f"{len(found)} starts in {took / SECOND:.1f} s"
