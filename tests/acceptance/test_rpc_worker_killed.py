"""The example worker of the RPC contract, killed at random and started again while jobs pass.

HORAE_KILL_SECONDS (12) is how long they are killed, HORAE_KILL_JOBS (60) how many jobs pass meanwhile.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from horae.contracts.rpc.rendering import WORDS
from horae.core.model import State

from .server import Server, free_ports

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parents[2] / "examples" / "rpc_worker.py"
SECONDS = float(os.environ.get("HORAE_KILL_SECONDS", "12"))
JOBS = int(os.environ.get("HORAE_KILL_JOBS", "60"))
WORKERS = 3
PATIENCE = 300.0  # seconds for what is left when the killing has ended: a lost run is given out again after its lease
STATES = {state.word: WORDS[state] for state in State}


class Flock:
    """Workers that are killed and started again, under the same names."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ports = free_ports(WORKERS)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.died: dict[int, float] = {}  # pid → when
        self.trace = server.directory / "trace"
        for number in range(WORKERS):
            self.start(number)

    def start(self, number: int) -> None:
        directory = self._server.directory
        argv = [sys.executable, str(WORKER), "--server", self._server.url, "--name", f"w{number}", "--beat", "2"]
        argv += ["--port", str(self._ports[number]), "--journal", str(directory / f"w{number}.json")]
        argv += ["--trace", str(self.trace), "--seconds", "0.3", "--poll", "0.3", "--slots", "4"]
        with (directory / f"w{number}.log").open("ab") as log:
            self._running[number] = subprocess.Popen(argv, stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()
        self.died[process.pid] = time.time()

    def stop(self) -> None:
        for number in list(self._running):
            self.kill(number)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Server]:
    """A server that leaves all work to workers of their own."""
    running = Server(tmp_path, "--heartbeat-interval", "1", "--roles", "api,coordinator,scheduler").start()
    yield running
    running.stop()


@pytest.fixture
def flock(scheduler: Server) -> Iterator[Flock]:
    workers = Flock(scheduler)
    yield workers
    workers.stop()


def call(server: Server, method: str, **params: Any) -> Any:
    answer = server.post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert "result" in answer, answer
    return answer["result"]


class Span(NamedTuple):
    execution: int
    attempt: int
    pid: int
    begin: float
    end: float


def spans(flock: Flock) -> list[Span]:
    """When each attempt was worked at: until it ended, or its worker was killed."""
    begun: dict[tuple[int, int, int], float] = {}
    found = []
    for line in flock.trace.read_text().splitlines():
        what, execution, attempt, pid, at = line.split()
        key = int(execution), int(attempt), int(pid)
        if what == "begin":
            assert key not in begun, f"attempt {key} was begun twice"
            begun[key] = float(at)
        else:
            found.append(Span(*key, begun.pop(key), float(at)))
    return found + [Span(*key, at, flock.died.get(key[2], float("inf"))) for key, at in begun.items()]


def test_all_jobs_end_none_twice_at_once_and_everybody_says_the_same(scheduler: Server, flock: Flock) -> None:
    chance = random.Random(1)
    until, made = time.monotonic() + SECONDS, []
    while (left := until - time.monotonic()) > 0 or len(made) < JOBS:
        due = JOBS if left <= 0 else round(JOBS * (1 - left / SECONDS))
        while len(made) < due:
            made.append(call(scheduler, "submit_job", user_id="ann", code_location="horae.handlers:noop"))
        if left > 0:
            time.sleep(chance.uniform(0.3, 1.2))
            victim = chance.randrange(WORKERS)
            flock.kill(victim)
            flock.start(victim)

    def all_ended() -> bool:
        jobs = call(scheduler, "retrieve_all_jobs", user_id="ann")
        return len(jobs) == JOBS and not {job["status"] for job in jobs} & {"scheduled", "pending", "running"}

    scheduler.wait_until(all_ended, "all jobs to end", PATIENCE)
    flock.stop()

    histories = [row for job_id in made for row in call(scheduler, "get_exec_history", job_id=job_id)]
    runs = {run["id"]: run for run in scheduler.every("/v1/runs")}
    assert {row["execution_id"]: row["status"] for row in histories} == {
        run["id"]: STATES[run["state"]] for run in runs.values()
    }
    assert len(histories) == JOBS

    worked = sorted(spans(flock), key=lambda span: (span.execution, span.begin))
    twice = [(a, b) for a, b in itertools.pairwise(worked) if a.execution == b.execution and b.begin < a.end]
    assert twice == []
    completed = [row for row in histories if row["status"] == "completed"]
    print(  # the figures of a long run
        f"{JOBS} jobs, {len(flock.died) - WORKERS} kills, {len(worked)} attempts begun, {len(completed)} completed, "
        f"{sum(row['retry_count'] > 0 for row in histories)} tried more than once"
    )
    assert len(completed) >= JOBS * 0.9  # one that is lost five times has failed
    assert {row["worker_id"] for row in completed} <= {f"w{number}" for number in range(WORKERS)}
    assert call(scheduler, "get_log", execution_id=completed[0]["execution_id"])["text"] == (
        "horae.handlers:noop: completed\n"
    )
