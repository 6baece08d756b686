"""The example worker, as a process of its own, against a server that leaves lake jobs to such workers alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .server import DEADLINE, Server

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parents[2] / "examples" / "lake_worker.py"
JOB: dict[str, Any] = {
    "class_name": "java_job", "display_name": "build", "git_url": "abcd", "build_tool": "maven", "build_cmd": "mvn",
    "schedule_time": {"class_name": "schedule_once", "start_time": 0},
}  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Server]:
    running = Server(
        tmp_path, "--heartbeat-interval", "0.5", "--lake-workers", "external", "--lake-lease", "3s"
    ).start()
    yield running
    running.stop()


@contextmanager
def worker(server: Server, *options: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, str(WORKER), "--server", server.url, "--poll", "0.1", *options]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def make(server: Server) -> int:
    return int(server.post("/lake/job/create", {"job": JOB})["job"]["job_id"])


def await_status(server: Server, job_id: int, status: str) -> None:
    def look() -> bool:
        return bool(server.get(f"/lake/job/{job_id}")["job"]["current_sync_status"] == status)

    server.wait_until(look, f"job {job_id} to be {status}")


def test_it_pulls_reports_and_finishes(lake: Server) -> None:
    job_id = make(lake)
    await_status(lake, job_id, "Queued")
    with worker(lake, "--once", "--seconds", "0.2") as process:
        _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert "of build: Finished" in said
    [row] = lake.post("/lake/history/list")["data"]
    assert (row["job_id"], row["job_status"], row["run_id"] % 1000) == (job_id, "Finished", 1)


def test_it_stops_what_is_killed(lake: Server) -> None:
    job_id = make(lake)
    with worker(lake, "--once", "--seconds", "600") as process:
        await_status(lake, job_id, "Running")
        killed = lake.http.put(f"/lake/schedule/job/{job_id}/kill")
        assert killed.json() == {"success": True}
        _, said = process.communicate(timeout=DEADLINE)
    assert "of build: Killed" in said
    await_status(lake, job_id, "Killed")


def test_what_a_silent_worker_held_goes_to_another_and_it_cannot_speak_for_it_any_more(lake: Server) -> None:
    job_id = make(lake)
    with worker(lake, "--once", "--seconds", "600") as first:
        await_status(lake, job_id, "Running")
        os.kill(first.pid, signal.SIGSTOP)
        with worker(lake, "--once", "--seconds", "0.2") as second:
            _, said = second.communicate(timeout=DEADLINE)
        assert "of build: Finished" in said
        os.kill(first.pid, signal.SIGCONT)
        _, said = first.communicate(timeout=DEADLINE)
        assert "of build: superseded" in said
    rows = sorted(lake.post("/lake/history/list")["data"], key=lambda row: row["run_id"])
    assert [(row["job_status"], row["run_id"] % 1000) for row in rows] == [("Error", 1), ("Finished", 2)]


def test_without_such_workers_a_lake_job_says_that_nobody_can_run_it(server: Server) -> None:
    job_id = make(server)
    await_status(server, job_id, "Error")
    [row] = server.post("/lake/history/list")["data"]
    assert row["message"]
