"""Sandboxes through a whole `horae up`: the default, the labels, and a crash in the middle."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import DEADLINE, Server, horae
from tests.repositories import make_repository


@pytest.fixture
def server(tmp_path: Path, need: Callable[..., None]) -> Iterator[Server]:
    need("bwrap")
    server = Server(tmp_path, "--sandbox", "auto", "--on-restart", "end")
    server.start()
    yield server
    server.stop()


def submit(server: Server, **job: Any) -> int:
    (made,) = server.submit({"name": "j", **job})
    return int(server.cli_json("run", str(made["id"]))["id"])


def walls_of(server: Server) -> str:
    """As `/readyz` names them, whether all else is ready by now or not."""
    return str(server.http.get("/readyz").json()["checks"]["walls"])


def log_of(server: Server, run_id: int) -> str:
    return server.http.get(f"/v1/runs/{run_id}/log").text


def test_a_job_that_asks_for_walls_gets_them_where_its_user_is_trusted(server: Server) -> None:
    run_id = submit(server, walled=True, steps=[{"run": f"ls {server.directory}/data; id -u"}])
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
    run_id = submit(server, walled=True, steps=[{"run": script}], limits={"pids": 50, "memory": "64MiB"})
    server.wait_until(lambda: "attempt 1" in log_of(server, run_id), "the first attempt to be at work")
    server.kill()
    server.start()
    run = server.ended(run_id)
    assert (run["state"], run["attempt"]) == ("succeeded", 2), log_of(server, run_id)


def test_where_there_are_logins_no_author_of_a_job_can_do_without_walls(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need("bwrap")
    argv = (horae(), "token", "create", "ann", "--data", "data", "--file", "token.txt")
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE)
    server = Server(tmp_path, "--sandbox", "auto").start()
    try:
        run_id = submit(server, sandbox="plain", steps=[{"run": f"ls {tmp_path}/data"}])
        run = server.wait_until(lambda: _with_reason_or_end(server, run_id), "the run to wait or to end")
        assert (run["state"], run["reason"]) == ("queued", "no_label"), log_of(server, run_id)
        assert walls_of(server) == "ok: bubblewrap"
        make_repository(tmp_path / "private", {"diary": "dear diary"})
        checkout = {"url": f"file://{tmp_path}/private"}
        run = server.ended(submit(server, checkout=checkout, steps=[{"run": "cat diary"}]))
        assert run["state"] == "failed"
        assert "repository_roots (E_POLICY); set repository_roots" in run["message"]
    finally:
        server.stop()


def _with_reason_or_end(server: Server, run_id: int) -> Any:
    run = server.get(f"/v1/runs/{run_id}")
    return run if run["reason"] or run["state"] in ("succeeded", "failed") else None


def test_the_one_user_of_a_loopback_server_may_do_without_walls(server: Server) -> None:
    run_id = submit(server, sandbox="plain", steps=[{"run": f"ls {server.directory}/data"}])
    assert server.ended(run_id)["state"] == "succeeded"
    walls = "your own steps run as you, on this machine; all else: bubblewrap; on offer: plain"
    assert walls_of(server) == f"ok: {walls}"
    assert "WARNING" not in server.log()


def test_where_jobs_run_without_walls_greeting_readiness_and_page_warn_of_it(tmp_path: Path) -> None:
    server = Server(tmp_path, "--sandbox", "plain").start()
    warning = "jobs run without walls, with all rights of the user that runs Horae: the setting sandbox is plain"
    try:
        assert walls_of(server) == f"ok: plain; on offer: bubblewrap; warning: {warning}"
        assert warning in server.http.get("/").text
        server.wait_until(lambda: "WARNING" in server.log(), "the greeting")
        assert warning in server.log().partition("WARNING")[2]
    finally:
        server.stop()
