"""A real server as a CI server and as an RPC server: a repository is built, its log followed, a script called."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.acceptance.server import Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "ci-build.yaml"
pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    place.mkdir()
    (place / "run.sh").write_text("#!/bin/sh\necho built by script\n")
    (place / "run.sh").chmod(0o755)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-b", "main"), ("add", "."), (*who, "commit", "-m", "first")):
        subprocess.run(["git", *words], cwd=place, check=True, capture_output=True)
    return place


@pytest.fixture
def server(tmp_path: Path, repository: Path) -> Iterator[Server]:
    server = Server(tmp_path, "--script-roots", str(repository)).start()
    yield server
    server.stop()


def call(server: Server, method: str, *params: Any) -> Any:
    answer = server.post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})
    assert "result" in answer, answer
    return answer["result"]


def test_a_repository_is_built_and_its_log_is_followed_to_its_end(server: Server, repository: Path) -> None:
    steps = [
        {"name": "Look", "run": "ls"},
        {"name": "Wait", "run": "sleep 1; echo late"},
        {"name": "Fail", "run": "exit 3"},
    ]
    job = {"name": "build", "run_once": True, "url": f"file://{repository}", "branch": "main", "steps": steps}
    made = server.http.post("/api/v1/submit_job", content=json.dumps({"jobs": [{**job, "format": "junit"}]}))
    assert made.status_code == 201, made.text
    job_id = made.json()["job_id"]
    server.wait_until(lambda: server.get(f"/api/v1/retrieve_history_execution/{job_id}"), "the execution")

    log = server.http.get(f"/api/v1/last_execution_logs/{job_id}", params={"follow": "true"}).text
    assert log.startswith(f"── checkout file://{repository} main ──\n")
    assert "── step 1/3 Look ──\nrun.sh\n── step 2/3 Wait ──\nlate\n── step 3/3 Fail ──\n" in log
    status = server.wait_until(
        lambda: (found := server.get(f"/api/v1/job_status/{job_id}"))["status"] != "RUNNING" and found, "the end"
    )
    assert status["status"] == "FAILED"
    report = server.http.get(f"/api/v1/last_execution_logs/{job_id}")
    cases = ElementTree.fromstring(report.text).findall("testsuite/testcase")
    assert [(case.get("name"), case.find("failure") is not None) for case in cases] == [
        ("checkout", False), ("Look", False), ("Wait", False), ("Fail", True),
    ]  # fmt: skip


def test_S52_the_example_build_leaves_artifacts_test_counts_and_a_cache(server: Server) -> None:
    server.cli("submit", str(EXAMPLE))
    for expected in (False, True):
        run_id = server.cli_json("run", "ci build", "--wait")["id"]
        run = server.get(f"/v1/runs/{run_id}")
        assert run["result"]["caches"] == [{"key": "tools-1", "hit": expected}]
    counts = {name: run["result"]["tests"][name] for name in ("passed", "failed", "skipped")}
    assert counts == {"passed": 1, "failed": 0, "skipped": 1}
    shown = server.cli("runs", "show", str(run_id)).stdout
    assert "tests      1 passed, 0 failed, 1 skipped; 4ms\n" in shown
    assert "\nSTEP    SECONDS  EXIT CODE\nset up " in shown
    assert server.cli("artifacts", str(run_id)).stdout.splitlines()[1:] == [
        " 195  report.xml",
        "  13  dist/greeting.txt",
    ]
    assert server.cli("artifacts", str(run_id), "dist/greeting.txt", "--output", "-").stdout == "hello, world\n"
    said = server.cli("artifacts", str(run_id), "dist/greeting.txt").stdout
    assert said == "greeting.txt: 13 bytes\n"
    assert (server.directory / "greeting.txt").read_text() == "hello, world\n"

    place = f"/v1/runs/{run_id}/artifacts"
    got = server.http.get(f"{place}/dist/greeting.txt")
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''greeting.txt"
    assert server.http.head(f"{place}/dist/greeting.txt").headers["content-length"] == "13"
    for wrong in ("dist", "nothing", "..%2f..%2f..%2fdata%2fhorae.db", "dist/greeting.txt/"):
        assert server.http.get(f"{place}/{wrong}").status_code == 404
    failed = server.cli("artifacts", str(run_id), "nothing", check=False)
    assert failed.returncode == 4
    assert not list(server.directory.glob("*.part"))


def test_code_of_every_place_is_called(server: Server, repository: Path) -> None:
    places = (f"file://{repository}@main", f"{repository}/run.sh", "horae.handlers:noop")
    ids = [call(server, "submit_job", "ann", None, place) for place in places]

    def ended() -> Any:
        jobs = {job["job_id"]: job["status"] for job in call(server, "retrieve_all_jobs", "ann")}
        return jobs if not {"pending", "scheduled", "running"} & set(jobs.values()) else None

    assert server.wait_until(ended, "the three to end") == dict.fromkeys(ids, "completed")
    for job_id in ids[:2]:
        assert server.http.get(f"/api/v1/last_execution_logs/{job_id}").text.endswith("built by script\n")
    assert call(server, "get_exec_history", ids[0])[0]["worker_id"] == call(server, "heartbeat")["worker_id"]
