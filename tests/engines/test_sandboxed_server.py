"""Sandboxes through a whole `horae up`: the default, the labels, and a crash in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server


@pytest.fixture
def server(tmp_path: Path, need: Callable[..., None]) -> Iterator[Server]:
    need("bwrap")
    server = Server(tmp_path, "--sandbox", "auto")
    server.start()
    yield server
    server.stop()


def submit(server: Server, **job: Any) -> int:
    (made,) = server.submit({"name": "j", **job})
    return int(server.cli_json("run", str(made["id"]))["id"])


def log_of(server: Server, run_id: int) -> str:
    return server.http.get(f"/v1/runs/{run_id}/log").text


def test_a_job_that_says_nothing_runs_behind_walls(server: Server) -> None:
    run_id = submit(server, steps=[{"run": f"ls {server.directory}/data; id -u"}])
    assert server.ended(run_id)["state"] == "succeeded", log_of(server, run_id)
    assert "horae.db" not in log_of(server, run_id)


def test_a_job_for_a_sandbox_that_no_agent_has_waits_and_says_why(server: Server) -> None:
    run_id = submit(server, sandbox="docker", steps=[{"run": "true"}])
    run = server.wait_until(lambda: _with_reason(server, run_id), "the run to say why it waits")
    assert (run["state"], run["reason"]) == ("queued", "no_label")


def _with_reason(server: Server, run_id: int) -> Any:
    run = server.get(f"/v1/runs/{run_id}")
    return run if run["reason"] else None


def test_after_a_crash_of_the_agent_the_next_attempt_starts_clean(server: Server) -> None:
    script = "test ! -e left; touch left; echo attempt $HORAE_ATTEMPT; test $HORAE_ATTEMPT -gt 1 || sleep 600"
    run_id = submit(server, steps=[{"run": script}], limits={"pids": 50, "memory": "64MiB"})
    server.wait_until(lambda: "attempt 1" in log_of(server, run_id), "the first attempt to be at work")
    server.kill()
    server.start()
    run = server.ended(run_id)
    assert (run["state"], run["attempt"]) == ("succeeded", 2), log_of(server, run_id)
