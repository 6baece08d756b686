"""A rate over several agents, while agents and the server are killed: never exceeded in any window, and never stuck.

Judged by what the store writes when it gives a run away, which the test has the database keep.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from .agent import AgentProcess
from .server import Server

SECOND = 1_000_000
RECOVERY = 6 * SECOND  # for which a server that was killed is excused once it is back: its agents come again
NOTE = """
CREATE TABLE noted (run INTEGER, at INTEGER);
CREATE TRIGGER note_start AFTER UPDATE OF state ON live WHEN new.state = 1 AND old.state <> 1
BEGIN INSERT INTO noted VALUES (new.id, new.started_at); END;
"""


class Pace(NamedTuple):
    rate: int  # starts a minute
    burst: int
    agents: int
    step: int  # starts between two kills
    kills: int  # every other one of the server

    @property
    def period(self) -> int:
        return -(-60 * SECOND // self.rate)


@pytest.mark.slow
def test_a_rate_holds_while_agents_and_the_server_are_killed(tmp_path: Path) -> None:
    """Of two kills; tests/engines/test_rates.py has twenty."""
    keep_rate(tmp_path, Pace(rate=600, burst=10, agents=2, step=40, kills=2))


def keep_rate(directory: Path, pace: Pace) -> None:
    with running(directory, pace) as (server, agents):
        order(server, pace)
        excused = kill_again_and_again(server, agents, pace)
        found = starts(server)
    assert_within_rate(found, pace)
    assert_never_stuck(found, excused, pace)


@contextmanager
def running(directory: Path, pace: Pace) -> Iterator[tuple[Server, list[AgentProcess]]]:
    with ExitStack() as stack:
        server = Server(directory, "--heartbeat-interval", "1", "--roles", "api,coordinator,scheduler").start()
        stack.callback(server.stop)
        agents = []
        for number in range(pace.agents):
            agents.append(AgentProcess(directory, f"127.0.0.1:{server.grpc_port}", f"a{number}").start())
            stack.callback(agents[-1].stop)
        yield server, [agent.joined() for agent in agents]


def order(server: Server, pace: Pace) -> None:
    """More runs than will be started."""
    with closing(database(server)) as connection:
        connection.executescript(NOTE)
    limit = {"rate": f"{pace.rate}/min", "burst": pace.burst}
    job = {"name": "paced", "handler": "horae.handlers:noop", "overlap": "allow", "rate_limits": [limit]}
    [made] = server.submit(job)
    server.post("/v1/runs", [{"job": made["id"]}] * (pace.step * (pace.kills + 2)))


def kill_again_and_again(server: Server, agents: list[AgentProcess], pace: Pace) -> list[tuple[int, int]]:
    """Return the times in which nobody could start anything."""
    wait_for_starts(server, 1)
    excused = [(0, starts(server)[0])]
    for number in range(pace.kills):
        wait_for_starts(server, pace.step)
        if number % 2:
            began = time.time_ns() // 1000
            server.kill()
            server.start()
            excused.append((began, time.time_ns() // 1000 + RECOVERY))
        else:
            agent = agents[number // 2 % len(agents)]
            agent.kill()
            agent.start()
    wait_for_starts(server, pace.step)
    return excused


def wait_for_starts(server: Server, count: int) -> None:
    def seen() -> int:
        with closing(database(server)) as connection:
            return int(connection.execute("SELECT count(*) FROM noted").fetchone()[0])

    before = seen()
    server.wait_until(lambda: seen() >= before + count, f"{count} starts")


def database(server: Server) -> sqlite3.Connection:
    return sqlite3.connect(server.directory / "data" / "horae.db", timeout=30)


def starts(server: Server) -> list[int]:
    """The moments, in order."""
    with closing(database(server)) as connection:
        return [row[0] for row in connection.execute("SELECT at FROM noted ORDER BY at")]


def assert_within_rate(found: list[int], pace: Pace) -> None:
    """In every window: no more than the burst, and one for each period in it."""
    ready = 0
    for at in found:
        early = ready - (pace.burst - 1) * pace.period - at
        assert early <= 0, f"a start {early / SECOND:.3f} s before the rate allowed it"
        ready = max(ready, at) + pace.period


def assert_never_stuck(found: list[int], excused: list[tuple[int, int]], pace: Pace) -> None:
    """While something waits: 95 per cent of the rate, between the times that are excused."""
    ends = [began for began, _ in excused[1:]] + [found[-1]]
    for since, until in zip((back for _, back in excused), ends, strict=True):
        seen, due = sum(since <= at <= until for at in found), (until - since) / pace.period
        assert seen >= 0.95 * due - 2, f"{seen} starts in {(until - since) / SECOND:.1f} s, {due:.0f} expected"
