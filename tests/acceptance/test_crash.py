"""kill -9, again and again: every due moment has one record, ended, and no two copies ever ran at once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from .server import Server
from .witness import check_ledger, check_witness, witness


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seconds", "kills"), [(8, 10, 2), pytest.param(50, 60, 10, marks=pytest.mark.long)])
def test_jobs_of_every_second_survive_crash_after_crash(tmp_path: Path, count: int, seconds: int, kills: int):
    server = Server(tmp_path, "--heartbeat-interval", "1", "--slots", "64")
    server.start()
    jobs = server.submit(*(witness(number, tmp_path) for number in range(count)))
    chance = random.Random(7)
    started = time.monotonic()
    for kill in range(1, kills + 1):
        at = started + kill * seconds / (kills + 1) + chance.uniform(-1, 1)
        time.sleep(max(0, at - time.monotonic()))
        server.kill()
        server.start()
    time.sleep(max(0, started + seconds - time.monotonic()))

    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.every("/v1/runs", state="queued,running,blocked"), "all runs to end")

    for number, job in enumerate(jobs):
        check_ledger(server, job)
        check_witness(tmp_path / f"{number}.txt", server.every("/v1/runs", job_id=job["id"]))
    assert server.stop() == 0
