"""Clients of the CI contract that are killed at random, and a server that is killed once: no build is lost or doubled.

HORAE_KILL_SECONDS (12) and HORAE_KILL_JOBS (60) say for how long, and how many builds pass meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .server import DEADLINE, Server

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parents[2] / "examples" / "ci_client.py"
SECONDS = float(os.environ.get("HORAE_KILL_SECONDS", "12"))
JOBS = int(os.environ.get("HORAE_KILL_JOBS", "60"))
CLIENTS = 4
STEADY = ("--heartbeat-interval", "1", "--lease", "15")
WORDS = {"succeeded": "SUCCEEDED", "failed": "FAILED"}


class Client:
    """One client, which has its share of the builds done, again and again from its state file."""

    def __init__(self, server: Server, number: int, files: list[Path]) -> None:
        place = server.directory
        self.state = place / f"client-{number}.json"
        self.files = files
        self._argv = [sys.executable, str(CLIENT), *map(str, files), "--server", server.url, "--poll", "0.1"]
        self._argv += ["--state", str(self.state)]
        self._log = place / f"client-{number}.log"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._argv, stdout=log, stderr=log)
        return self.process

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def write_build(place: Path, number: int, sleep: float) -> Path:
    """Return a build that notes its begin and its end, and whether another of it goes on; every tenth fails."""
    notes = place / "notes" / str(number)
    run = f"""exec 9> {notes}.lock
flock -n 9 || echo twice >> {notes}
echo begin >> {notes}; sleep {sleep:.2f}; echo end >> {notes}
exit {int(number % 10 == 9)}"""
    file = place / f"build-{number}.yaml"
    job = {"name": f"build {number}", "run_once": True, "steps": [{"name": "work", "run": run}]}
    file.write_text(json.dumps({"jobs": [job]}))
    return file


def torment(server: Server, clients: list[Client], chance: random.Random) -> Counter[str]:
    """Kill clients at random, and the server once, until the time is over; then wait for the clients to end."""
    done: Counter[str] = Counter()
    begun = time.monotonic()
    while time.monotonic() < begun + SECONDS and not all(client.is_over for client in clients):
        time.sleep(chance.uniform(0.1, 1.0))
        alive = [client for client in clients if not client.is_over]
        if alive:
            victim = chance.choice(alive)
            victim.kill()
            victim.start()
            done["clients killed"] += 1
        if time.monotonic() > begun + SECONDS / 2 and not done["servers killed"]:
            server.kill()
            server.start()
            done["servers killed"] += 1
    server.wait_until(lambda: all(client.is_over for client in clients), "the clients to end", DEADLINE + JOBS)
    done["seconds"] = round(time.monotonic() - begun)
    return done


def ran(server: Server, job_id: int) -> Any:
    [run] = server.get("/v1/runs", job_id=job_id)["items"]
    return run


def test_every_build_ends_once_and_every_port_says_so(tmp_path: Path) -> None:
    server = Server(tmp_path, *STEADY).start()
    (tmp_path / "notes").mkdir()
    files = [write_build(tmp_path, number, SECONDS * CLIENTS / JOBS / 2) for number in range(JOBS)]
    clients = [Client(server, number, files[number::CLIENTS]) for number in range(CLIENTS)]
    try:
        done = torment(server, clients, random.Random(15))
        for client in clients:
            assert client.process.returncode in (0, 1), client.said()
        known = {file: told for client in clients for file, told in json.loads(client.state.read_text()).items()}
        repeated = 0
        for number, file in enumerate(files):
            [(job_id, said)] = known[str(file)]["results"].items()
            run, shown = ran(server, int(job_id)), server.get(f"/api/v1/job_status/{job_id}")
            assert said == shown["status"] == WORDS[run["state"]] == ("FAILED" if number % 10 == 9 else "SUCCEEDED")
            [row] = server.get(f"/api/v1/retrieve_history_execution/{job_id}")
            assert (row["execution_id"], row["status"]) == (run["id"], said)
            notes = (tmp_path / "notes" / str(number)).read_text().split()
            assert "twice" not in notes, notes
            assert notes[-2:] == ["begin", "end"], notes
            repeated += notes.count("begin") - 1
        jobs = server.get("/api/v1/user_jobs", limit=1000)
        assert len(jobs) == JOBS  # no file was taken twice
        print(f"{JOBS} builds, {dict(done)}, {repeated} begun again after the server was killed")
    finally:
        for client in clients:
            client.kill()
        server.stop()
