"""Two schedulers and three agents of the segment contract, as programs of their own, killed at random while jobs pass.

HORAE_KILL_SECONDS and HORAE_KILL_JOBS make it longer. What must hold: every job ends, none is run twice at once, what
an agent outside has begun is never ended by Horae's own, and every port tells the same of it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from .server import Server, free_ports

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("HORAE_KILL_SECONDS", "12"))
JOBS = int(os.environ.get("HORAE_KILL_JOBS", "60"))
TIMEOUT = 10.0  # seconds after which a silent worker is given up
FLAGS = ("--scan-interval", "30s", "--worker-timeout", f"{TIMEOUT}s", "--heartbeat-interval", "500ms")
ROOT = Path(__file__).parents[2]
DAWN = "2024-12-31T10:00:00Z"


class Program:
    """One that is killed and started again."""

    def __init__(self, name: str, argv: list[str], log: Path) -> None:
        self.name, self._argv, self._log = name, argv, log
        self.killed_at: list[float] = []
        self.start()

    @property
    def is_agent(self) -> bool:
        return self.name.startswith("agent-")

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *self._argv], stdout=log, stderr=log)
        self.back_at: float | None = None

    def kill(self, away: float) -> None:
        self.process.kill()
        self.process.wait()
        self.killed_at.append(time.time())
        self.back_at = time.time() + away


class Span(NamedTuple):
    job: int
    worker: str
    start: float
    end: float


class Stage:
    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(range(8081, 8086), free_ports(5), strict=True))
        (directory / "horae.toml").write_text(f"compat_ports = {list(self.ports.values())}\n")
        self.server = Server(directory, *FLAGS).start()
        self.journal = directory / "journal"
        self.journal.touch()
        agent, scheduler = (ROOT / "examples" / f"segment_{name}.py" for name in ("agent", "scheduler"))
        agents = dict(zip(("agent-1", "agent-2", "agent-3"), free_ports(3), strict=True))
        services = ["--job-store", self.url(8081), "--coordinator", self.url(8082)]
        services += [word for port in agents.values() for word in ("--agent", f"http://127.0.0.1:{port}")]
        intervals = ["--scan-interval", "0.5", "--heartbeat-interval", "1"]
        pace = ["--seconds", "0.4", "--steps", "3", "--heartbeat", "0.5", "--capacity", "5"]
        self.programs = [
            Program(name, [str(agent), "--server", self.server.url, "--id", name, "--port", str(port), *pace,
                           "--journal", str(self.journal)], directory / f"{name}.log")
            for name, port in agents.items()
        ] + [
            Program(name, [str(scheduler), "--worker-id", name, "--segments", "50", *services, *intervals],
                    directory / f"{name}.log")
            for name in ("worker-1", "worker-2")
        ]  # fmt: skip

        self.server.wait_until(self._is_ready, "all programs to register")

    def url(self, port: int) -> str:
        """Return where a service of the contract is, by the port that the contract gives it."""
        return f"http://127.0.0.1:{self.ports[port]}"

    def _is_ready(self) -> bool:
        held = [one for one in self.server.get("/api/segments")["data"] if str(one["workerId"]).startswith("worker-")]
        agents = [one["workerId"] for one in self.server.get("/api/workers")["data"] if one["workerPort"]]
        return len(held) == 100 and {"agent-1", "agent-2", "agent-3"} <= {*agents}

    def close(self) -> None:
        for program in self.programs:
            program.process.kill()
            program.process.wait()
        self.server.stop()

    def submit(self, number: int) -> int:
        job = {"jobName": f"job {number}", "userId": 1, "frequency": "ONE_TIME", "executionTime": DAWN,
               "payload": f"payload {number}", "maxRetries": 3, "segment": number % 100}  # fmt: skip
        return int(self.server.post("/api/jobs", job)["data"]["id"])

    def spans(self) -> list[Span]:
        """Return who worked at what, and when: until its end, or until it was killed."""
        killed = {program.name: program.killed_at for program in self.programs}
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        spans, open_ = [], {}
        for line in sorted(lines, key=lambda each: each["at"]):
            key = line["job"], line["worker"]
            begun = open_.pop(key, None)
            if begun is not None:
                spans.append(Span(*key, begun, min([line["at"], *(at for at in killed[key[1]] if at > begun)])))
            if line["what"] == "begin":
                open_[key] = line["at"]
        last = [Span(*key, at, min((k for k in killed[key[1]] if k > at), default=at)) for key, at in open_.items()]
        return spans + last


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def play(stage: Stage, dice: random.Random) -> list[int]:
    """Submit jobs evenly while programs are killed; some stay away until they are given up."""
    began, submitted, next_kill = time.monotonic(), [], 1.0
    while (passed := time.monotonic() - began) < SECONDS or len(submitted) < JOBS:
        if len(submitted) < min(JOBS, JOBS * passed / (0.8 * SECONDS)):
            submitted.append(stage.submit(len(submitted)))
        for program in stage.programs:
            if program.back_at is not None and time.time() >= program.back_at:
                program.start()
        if passed >= next_kill:
            next_kill = passed + dice.uniform(1.0, 3.0)
            alive = [program for program in stage.programs if program.back_at is None]
            if len(alive) > 3:
                victim = dice.choice(alive)
                victim.kill(dice.choice([0.1, 1.0, 1.3 * TIMEOUT] if victim.is_agent else [0.1]))
        time.sleep(0.02)
    for program in stage.programs:
        if program.back_at is not None:
            program.start()
    return submitted


def test_jobs_end_once_whoever_is_killed(stage: Stage) -> None:
    seed = random.randrange(1 << 30)
    jobs = play(stage, random.Random(seed))
    began = time.monotonic()

    def waiting() -> list[Any]:
        runs = stage.server.every("/v1/runs")
        over = {run["job_id"] for run in runs if run["state"] in ("succeeded", "failed")}
        return [job_id for job_id in jobs if job_id not in over]

    stage.server.wait_until(lambda: not waiting(), f"all jobs to end (seed {seed})", 300.0)
    took = time.monotonic() - began

    runs = {run["job_id"]: run for run in stage.server.every("/v1/runs")}
    spans = stage.spans()
    outside = {span.job for span in spans}
    kills = Counter(program.name for program in stage.programs for _ in program.killed_at)
    states = Counter(run["state"] for run in runs.values())
    lost = len(stage.server.get("/api/execution-coordinator/reassignments", limit=1000)["data"])
    print(f"\nseed {seed}: {len(jobs)} jobs, {dict(states)}, {len(outside)} by agents outside, {lost} attempts lost, "
          f"killed {dict(kills)}, all ended {took:.1f} s after the last kill")  # fmt: skip

    assert outside
    assert [run["id"] for run in runs.values() if run["job_id"] in outside and "@agent" not in str(run["node"])] == []
    assert overlapping(spans) == [], f"seed {seed}"
    words = {"succeeded": "COMPLETED", "failed": "FAILED"}
    with httpx.Client(timeout=30, verify=False) as http:
        for port in (stage.server.port, stage.ports[8081], stage.ports[8085]):
            at = f"http://127.0.0.1:{port}"
            listed = {
                job["id"]: word for word in ("COMPLETED", "FAILED", "PENDING", "SCHEDULED", "RUNNING")
                for job in http.get(f"{at}/api/jobs", params={"status": word}).json()["data"]
            }  # fmt: skip
            assert listed == {job_id: words[runs[job_id]["state"]] for job_id in jobs}
            assert http.get(f"{at}/api/execution-coordinator/assignments").json()["data"] == []
        for job_id in jobs[:: max(1, len(jobs) // 20)]:
            latest, *_ = stage.server.get("/api/executions", jobId=job_id)["data"]
            assert (latest["jobId"], latest["status"]) == (job_id, words[runs[job_id]["state"]])


def overlapping(spans: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of one job that were at work at once."""
    ordered = sorted(spans, key=lambda span: (span.job, span.start))
    return [(one, two) for one, two in pairwise(ordered) if one.job == two.job and two.start < one.end]
