"""Why, asked of a real server by the command line, the API and the Python client: what only real processes show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae.client import SyncClient

from .server import Server

SLOW = {"name": "slow", "key": "slow", "steps": [{"run": "sleep 600"}]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path, "--slots", "1").start()
    yield running
    running.stop()


def why(server: Server, *args: str) -> Any:
    return server.cli_json("explain", *args)


def codes(answer: Any) -> list[str]:
    return [one["code"] for one in answer["sentences"]]


def run_now(server: Server, key: str) -> int:
    run_id: int = server.cli_json("run", key)["id"]
    return run_id


def begun(server: Server, run_id: int) -> None:
    server.wait_until(lambda: server.get(f"/v1/runs/{run_id}")["state"] == "running", f"run {run_id} to begin")


def test_a_run_waits_is_skipped_is_cancelled_and_fails_and_each_time_the_true_cause_is_named(server: Server):
    server.submit(
        SLOW, {"name": "fails", "key": "fails", "steps": [{"run": "exit 7"}]},
        {"name": "late", "key": "late", "timeout": "1s", "steps": [{"run": "sleep 600"}]},
        {"name": "gpu", "key": "gpu", "labels": ["gpu"], "steps": [{"run": "true"}]},
    )  # fmt: skip
    held = run_now(server, "slow")
    begun(server, held)

    skipped, waiting, choosy = (run_now(server, key) for key in ("slow", "fails", "gpu"))
    overlap, slots = why(server, f"{skipped}")["sentences"][0], why(server, f"run:{waiting}")["sentences"][0]
    assert (overlap["code"], overlap["data"]["holder"]) == ("run.skipped.overlap", held)
    assert (slots["code"], slots["data"]["runs"]) == ("wait.slots", [held])
    assert codes(why(server, f"{choosy}"))[0] == "wait.label"

    server.cli("cancel", f"{held}")
    server.ended(held)
    assert why(server, f"{held}")["sentences"][0]["data"]["by"] == "local"
    server.ended(waiting)
    failed = why(server, f"{waiting}")
    assert (failed["sentences"][0]["code"], failed["sentences"][0]["data"]["exit_code"]) == ("run.failed.exit", 7)
    slow = run_now(server, "late")
    server.ended(slow)
    assert codes(why(server, f"{slow}"))[0] == "run.timed_out"


def test_a_moment_that_came_while_the_server_was_down_is_explained_by_that(tmp_path: Path):
    server = Server(tmp_path).start()
    at = datetime.now(UTC) + timedelta(seconds=20)
    once = {"name": "once", "triggers": [{"at": at.isoformat()}], "steps": [{"run": "true"}]}
    [job] = server.submit(once)
    server.kill()
    time.sleep(max(0.0, (at - datetime.now(UTC)).total_seconds() + 2))
    server.start()
    try:
        runs = server.wait_until(lambda: server.get("/v1/runs", job_id=job["id"])["items"], "its run")
        late = next(one for one in why(server, f"{runs[0]['id']}")["sentences"] if one["code"] == "late.down")
        assert late["data"]["seconds"] >= 2
        assert server.http.get(f"/runs/{runs[0]['id']}").text.count('id="why"') == 1
    finally:
        server.stop()


def test_a_moment_is_asked_for_by_command_api_and_client_alike(server: Server):
    [job] = server.submit({"name": "nightly", "key": "nightly", "schedule": "30 2 * * *", "steps": [{"run": "true"}]})
    at = "2099-01-01T02:31:00Z"
    by_command = why(server, "nightly", "--at", at)
    by_api = server.get(f"/v1/explain/jobs/{job['id']}", at=at)
    with SyncClient(server.url) as client:
        by_client = client.explain_job(job["id"], at=at)
        assert client.explain_trigger(job["triggers"][0]["id"]).sentences[0].code == "trigger.next"
    assert codes(by_command) == codes(by_api) == [one.code for one in by_client.sentences] == ["moment.none"]
    assert by_api["sentences"][0]["data"]["before"] == "2099-01-01T02:30:00Z"
    assert server.http.get("/v1/explain/jobs/999").status_code == 404
    assert server.http.get(f"/v1/explain/jobs/{job['id']}", params={"at": "soon"}).status_code == 422
    assert server.http.get("/docs/explain").text.count('id="moment.none"') == 1
