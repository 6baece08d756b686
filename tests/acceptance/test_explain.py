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


def test_what_holds_a_run_back_is_named_with_who_and_what(server: Server):
    server.cli("queues", "set", "reports")
    server.submit(
        {"name": "held", "key": "held", "queue": "reports", "steps": [{"run": "true"}]},
        {"name": "ready", "key": "ready", "steps": [{"run": "true"}]},
        {"name": "again", "key": "again", "retry": {"attempts": 3, "backoff": "10m"}, "steps": [{"run": "exit 3"}]},
        {"name": "one", "key": "one", "overlap": "allow", "concurrency_limits": [{"limit": 1}],
         "steps": [{"run": "sleep 600"}]},
    )  # fmt: skip
    server.cli("queues", "pause", "reports")
    paused = why(server, f"{run_now(server, 'held')}")["sentences"][0]
    assert (paused["code"], paused["data"]["by"]) == ("wait.queue_paused", "local")

    failing = run_now(server, "again")
    server.wait_until(lambda: server.get(f"/v1/runs/{failing}")["state"] == "blocked", "its first attempt to fail")
    retry = why(server, f"{failing}")
    assert codes(retry)[:2] == ["wait.retry", "attempt.failed"]
    assert (retry["sentences"][0]["data"]["attempts"], retry["sentences"][1]["data"]["exit_code"]) == (3, 3)

    first, second = run_now(server, "one"), run_now(server, "one")
    begun(server, first)
    server.wait_until(lambda: server.get(f"/v1/runs/{second}")["reason"] == "limit", "the second to meet its limit")
    limit = why(server, f"{second}")["sentences"][0]
    assert (limit["code"], limit["data"]["runs"]) == ("wait.limit.concurrency", [first])
    assert f"runs {first} of one" in limit["text"]

    [node] = [one["name"] for one in server.get("/v1/nodes")["items"]]
    server.cli("nodes", "cordon", node)
    cordoned = why(server, f"{run_now(server, 'ready')}")["sentences"][0]
    assert (cordoned["code"], cordoned["data"]["nodes"], cordoned["data"]["by"]) == ("wait.cordoned", [node], "local")


def test_a_predecessor_that_failed_and_a_decision_against_it_are_named(server: Server):
    at = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    extract, load = server.submit(
        {"name": "extract", "key": "extract", "triggers": [{"at": at}], "steps": [{"run": "exit 1"}]},
        {"name": "load", "key": "load", "after": ["extract"], "triggers": [{"at": at}], "steps": [{"run": "true"}]},
    )  # fmt: skip
    server.submit({"name": "asks", "key": "asks", "wait": {"approval": {"by": ["local"]}}})
    asks = run_now(server, "asks")
    server.wait_until(lambda: server.get(f"/v1/runs/{asks}")["state"] == "blocked", "it to wait for a decision")
    assert codes(why(server, f"{asks}"))[0] == "wait.approval"
    server.cli("reject", f"{asks}", "--comment", "not today")
    server.ended(asks)
    rejected = why(server, f"{asks}")["sentences"][0]
    assert (rejected["code"], "rejected by local: not today" in rejected["text"]) == ("run.failed.rejected", True)

    [failed] = server.wait_until(lambda: server.get("/v1/runs", job_id=extract["id"])["items"], "the predecessor")
    [skipped] = server.wait_until(lambda: server.get("/v1/runs", job_id=load["id"])["items"], "what comes after it")
    server.ended(skipped["id"])
    first = why(server, f"{skipped['id']}")["sentences"][0]
    assert (first["code"], [one["id"] for one in first["data"]["runs"]]) == ("run.skipped.dependency", [failed["id"]])
    assert "run.no_retry" in codes(why(server, f"{failed['id']}"))


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
