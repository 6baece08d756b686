"""Lake workers that are killed at random and started again, while jobs pass: every job ends, no attempt is worked at by
two, one attempt's result counts, and every interface tells the same of it.

HORAE_KILL_SECONDS and HORAE_KILL_JOBS make it longer and larger.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from .server import DEADLINE, Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]

WORKER = Path(__file__).parents[2] / "examples" / "lake_worker.py"
SECONDS = float(os.environ.get("HORAE_KILL_SECONDS", "12"))
JOBS = int(os.environ.get("HORAE_KILL_JOBS", "60"))
WORKERS = 4
LEASE = 3.0  # seconds: what a killed worker held is given to another after this
LOST_LIMIT = 5  # losses that a run survives
WORDS = {"succeeded": "Finished", "failed": "Error", "cancelled": "Killed"}


class Workers:
    """Worker processes, each replaced when it is killed."""

    def __init__(self, server: Server, diary: Path) -> None:
        self._argv = [sys.executable, str(WORKER), "--server", server.url, "--poll", "0.1", "--seconds", "0.2"]
        self._argv += ["--diary", str(diary)]
        self._running = [self._start() for _ in range(WORKERS)]
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_one(self) -> None:
        """SIGKILL, whatever it is at, and another in its place."""
        index = random.randrange(len(self._running))
        self._running[index].kill()
        self._running[index].wait()
        self._running[index] = self._start()
        self.killed += 1

    def stop(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


def make(server: Server, number: int) -> int:
    job = {
        "class_name": "java_job", "display_name": f"job {number}", "git_url": "abcd", "build_tool": "maven",
        "build_cmd": "mvn", "schedule_time": {"class_name": "schedule_once", "start_time": 0},
    }  # fmt: skip
    return int(server.post("/lake/job/create", {"job": job})["job"]["job_id"])


def rows(server: Server, path: str, **more: Any) -> list[Any]:
    """Return a whole list of the contract, page by page."""
    found: list[Any] = []
    while True:
        page = server.post(path, {"from": len(found), "size": 500, **more})
        found += page["data"]
        if not page["data"] or len(found) >= page["total"]:
            return found


def has_ended(server: Server, jobs: list[int]) -> bool:
    ended = server.every("/v1/runs", state="succeeded,failed,cancelled,timed_out")
    return {run["job_id"] for run in ended} >= set(jobs)


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    running = Server(tmp_path, "--heartbeat-interval", "0.5", "--lake-workers", "external", "--lake-lease", f"{LEASE}s")
    yield running.start()
    running.stop()


def test_workers_that_are_killed_lose_no_run_and_hold_none_twice(lake: Server, tmp_path: Path) -> None:
    diary, began = tmp_path / "diary", time.monotonic()
    workers, jobs = Workers(lake, diary), list[int]()
    try:
        while time.monotonic() - began < SECONDS:
            due = round(JOBS * min(1.0, (time.monotonic() - began) / SECONDS))
            jobs += [make(lake, len(jobs) + n) for n in range(due - len(jobs))]
            workers.kill_one()
            time.sleep(random.uniform(0.1, 0.6))
        jobs += [make(lake, len(jobs) + n) for n in range(JOBS - len(jobs))]
        lake.wait_until(lambda: has_ended(lake, jobs), "every run to end", max(DEADLINE, 3 * SECONDS))
    finally:
        workers.stop()
    judge(lake, jobs, [json.loads(line) for line in diary.read_text().splitlines()])
    print(f"\n{JOBS} jobs, {workers.killed} workers killed in {SECONDS:.0f} s, {time.monotonic() - began:.0f} s in all")


def judge(server: Server, jobs: list[int], diary: list[Any]) -> None:
    runs = {run["job_id"]: run for run in server.every("/v1/runs")}
    history = defaultdict(list)
    for row in rows(server, "/lake/history/list", sorts=[{"field": "run_id", "order": "ASC"}]):
        history[row["job_id"]].append(row)
    shown = {row["job"]["job_id"]: row["job"] for row in rows(server, "/lake/job/list")}
    begun: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for line in diary:
        begun[line["run"], line["attempt"]].append(line)
    assert sorted(shown) == sorted(jobs)
    for job_id in jobs:
        judge_one(runs[job_id], history[job_id], shown[job_id])
    # No attempt was given to two, and one attempt of a run at most says that it finished it.
    assert [key for key, lines in begun.items() if sum(line["what"] == "begin" for line in lines) > 1] == []
    finished = [line["run"] for line in diary if line["what"] == "Finished"]
    assert sorted(finished) == sorted(set(finished))
    assert set(finished) <= {run["id"] for run in runs.values() if run["state"] == "succeeded"}
    judge_turns(begun)
    lost = sum(len(history[job_id]) - 1 for job_id in jobs)
    print(
        f"\n{len(begun)} attempts begun, {lost} lost, {sum(r['state'] == 'succeeded' for r in runs.values())} succeeded"
    )


def judge_one(run: Any, history: list[Any], job: Any) -> None:
    """The contract's history and job, and /v1, agree on a run."""
    ids = sorted(row["run_id"] for row in history)
    assert ids == [run["id"] * 1000 + number for number in range(1, len(ids) + 1)], history
    last = next(row for row in history if row["run_id"] == ids[-1])
    assert run["attempt"] == ids[-1] % 1000
    assert (last["job_status"], job["current_sync_status"]) == (WORDS[run["state"]], WORDS[run["state"]])
    assert all(row["job_status"] == "Error" for row in history if row is not last)
    assert run["state"] == "succeeded" or len(ids) > LOST_LIMIT, run  # none of them fails but by being lost


def judge_turns(begun: dict[tuple[int, int], list[Any]]) -> None:
    """A later attempt began after the earlier one had said its last word: none was held twice at once."""
    for (run, attempt), lines in begun.items():
        for later in (number for of, number in begun if of == run and number > attempt):
            assert begun[run, later][0]["at"] >= max(line["at"] for line in lines if line["what"] != "superseded")
