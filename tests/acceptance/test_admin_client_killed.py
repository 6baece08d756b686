"""Administration clients by the book (examples/admin_client.py), killed at random and started again while jobs pass.

HORAE_KILL_SECONDS and HORAE_KILL_JOBS make it longer. It says what it did: `pytest -s`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .server import Server
from .witness import check_witness

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("waits")]

SECONDS = float(os.environ.get("HORAE_KILL_SECONDS", "12"))
JOBS = int(os.environ.get("HORAE_KILL_JOBS", "60"))
CLIENTS = 4
LIFE = (0.6, 4.0)  # seconds that a client lives, more or less; it needs about half of one to begin
PROGRAM = Path(__file__).parents[2] / "examples" / "admin_client.py"
# The witness of tests/acceptance/witness.py, one per job.
COMMAND = (
    "exec 9>>{place}/{{name}}-{{number}}.lock; "
    'flock -n 9 || echo "OVERLAP $HORAE_RUN_ID $HORAE_FENCE" >> {place}/{{name}}-{{number}}.txt; '
    'echo "start $HORAE_RUN_ID $HORAE_ATTEMPT $HORAE_FENCE" >> {place}/{{name}}-{{number}}.txt; '
    "sleep 0.1; "
    'echo "end $HORAE_RUN_ID $HORAE_ATTEMPT $HORAE_FENCE" >> {place}/{{name}}-{{number}}.txt'
)
WORDS = {"succeeded": "Finished", "failed": "Failed", "timed_out": "Failed", "cancelled": "Failed"}


class Client:
    def __init__(self, server: Server, name: str, jobs: int, place: Path) -> None:
        self.name, self.jobs, self._place = name, jobs, place
        self.journal = place / f"{name}.journal"
        self._argv = [
            sys.executable, str(PROGRAM), "--server", f"127.0.0.1:{server.port}", "--grpc",
            f"127.0.0.1:{server.grpc_port}", "--name", name, "--jobs", str(jobs), "--journal", str(self.journal),
            "--command", COMMAND.format(place=place),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.dies_at = 0.0
        self.lives = 0

    def start(self, dies_at: float) -> None:
        self.dies_at, self.lives = dies_at, self.lives + 1
        with (self._place / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log)

    def code(self) -> int | None:
        return self._process.poll() if self._process else 0

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait()

    def log(self) -> str:
        return (self._place / f"{self.name}.log").read_text(errors="replace")[-2000:]


@pytest.fixture
def clients(server: Server, tmp_path: Path) -> Iterator[list[Client]]:
    place = tmp_path / "clients"
    place.mkdir()
    shares = [JOBS // CLIENTS + (number < JOBS % CLIENTS) for number in range(CLIENTS)]
    made = [Client(server, f"client-{number}", share, place) for number, share in enumerate(shares)]
    yield made
    for client in made:
        client.kill()


def kill_at_random(clients: list[Client], chance: random.Random) -> int:
    """Let clients live, each for a random while, until the time is over; how many were killed before they were done."""
    until, kills = time.monotonic() + SECONDS, 0
    for client in clients:
        client.start(time.monotonic() + chance.uniform(*LIFE))
    while time.monotonic() < until and any(client.code() is None for client in clients):
        time.sleep(0.01)
        for client in clients:
            assert client.code() in (None, 0), client.log()
            if client.code() is None and time.monotonic() >= client.dies_at:
                client.kill()
                kills += 1
                client.start(time.monotonic() + chance.uniform(*LIFE))
    return kills


def of_contract(server: Server) -> dict[int, str]:
    """Run id → word, of everything that the contract lists."""
    found: dict[int, str] = {}
    for page in range(1, 1 + (JOBS + 99) // 100):
        for item in server.post("/api/v1/job-statuses", {"PageSize": 100, "Page": page})["Items"]:
            found[int(item["TraceId"][16:], 16)] = item["Status"]
    return found


def test_clients_that_are_killed_at_random_do_nothing_twice(server: Server, clients: list[Client], tmp_path: Path):
    began = time.monotonic()
    kills = kill_at_random(clients, random.Random(15))
    for client in clients:
        if client.code() is None:  # whoever is left may finish in peace
            server.wait_until(lambda client=client: client.code() is not None, f"{client.name} to finish", 600)
        assert client.code() == 0, client.log()
    took = time.monotonic() - began

    runs = server.every("/v1/runs")
    by_job: dict[int, list[Any]] = {}
    for run in runs:
        by_job.setdefault(run["job_id"], []).append(run)
    made = Counter(len(each) for each in by_job.values())
    print(
        f"{JOBS} jobs, {sum(client.lives for client in clients)} lives of {CLIENTS} clients, {kills} killed, "
        f"{took:.1f} s, {len(runs)} runs, {dict(Counter(run['state'] for run in runs))}"
    )
    assert made == {1: JOBS}  # each job was made once and run once
    assert {run["state"] for run in runs} == {"succeeded"}
    for client in clients:
        for number in range(client.jobs):
            file = tmp_path / "clients" / f"{client.name}-{number}.txt"
            started = {line.split()[1] for line in file.read_text().splitlines() if line.startswith("start")}
            assert len(started) == 1
            check_witness(file, [run for run in runs if str(run["id"]) in started])
    assert of_contract(server) == {run["id"]: WORDS[run["state"]] for run in runs}
    assert server.every("/v1/jobs") == []  # all were deleted
    assert kills > 0
