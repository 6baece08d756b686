"""kill -9, again and again: every due moment has one record, ended, and no two copies ever ran at once."""

from __future__ import annotations

import datetime
import random
import time
from pathlib import Path
from typing import Any

import pytest

from .server import Server

JOBS, SECONDS, KILLS = 50, 60, 10

# The job is its own witness. The lock is held by the whole process tree and goes with its last member, so a
# second copy that starts while any process of the first is alive finds it taken and says so.
WITNESS = """
exec 9>>{lock}
flock -n 9 || echo "OVERLAP $HORAE_RUN_ID $HORAE_FENCE" >> {file}
echo "start $HORAE_RUN_ID $HORAE_ATTEMPT $HORAE_FENCE" >> {file}
sleep 0.{pause}
echo "end $HORAE_RUN_ID $HORAE_ATTEMPT $HORAE_FENCE" >> {file}
"""


def witness(number: int, directory: Path) -> dict[str, Any]:
    run = WITNESS.format(lock=directory / f"{number}.lock", file=directory / f"{number}.txt", pause=1 + number % 3)
    return {"name": f"witness {number}", "schedule": "1s", "steps": [{"run": run}]}


def moment(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1_000_000)


def check_ledger(server: Server, job: Any) -> None:
    """Every moment from the first to the last fired one has exactly one record, and it has ended."""
    trigger = server.get(f"/v1/jobs/{job['id']}")["triggers"][0]
    runs = server.every("/v1/runs", job_id=job["id"])
    due = sorted(moment(run["due_at"]) for run in runs)
    first, last = moment(job["triggers"][0]["next_at"]), moment(trigger["last_at"])

    assert due == list(range(first, last + 1, 1_000_000))
    assert {run["state"] for run in runs} <= {"succeeded", "skipped", "coalesced"}
    by_id = {run["id"]: run for run in runs}
    for run in runs:
        if run["state"] == "coalesced":
            assert by_id[run["into_run_id"]]["state"] != "coalesced"


def check_witness(file: Path, runs: list[Any]) -> None:
    """No two copies at once; fences only grow; what the record calls a success did end."""
    lines = [line.split() for line in file.read_text().splitlines()]
    assert not [line for line in lines if line[0] == "OVERLAP"]
    fences: dict[str, int] = {}
    for word, run_id, _, fence in lines:
        if word == "start":
            assert int(fence) > fences.get(run_id, 0)
            fences[run_id] = int(fence)
    ended = {(line[1], line[3]) for line in lines if line[0] == "end"}
    for run in runs:
        if run["state"] == "succeeded":
            assert (str(run["id"]), str(run["fence"])) in ended


@pytest.mark.slow
def test_fifty_jobs_a_second_survive_ten_crashes(tmp_path: Path):
    server = Server(tmp_path, "--heartbeat-interval", "1", "--slots", "64")
    server.start()
    jobs = server.submit(*(witness(number, tmp_path) for number in range(JOBS)))
    chance = random.Random(7)
    started = time.monotonic()
    for kill in range(1, KILLS + 1):
        at = started + kill * SECONDS / (KILLS + 1) + chance.uniform(-1, 1)
        time.sleep(max(0, at - time.monotonic()))
        server.kill()
        server.start()
    time.sleep(max(0, started + SECONDS - time.monotonic()))

    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.every("/v1/runs", state="queued,running,blocked"), "all runs to end")

    for number, job in enumerate(jobs):
        check_ledger(server, job)
        check_witness(tmp_path / f"{number}.txt", server.every("/v1/runs", job_id=job["id"]))
    assert server.stop() == 0
