"""A real agent on a disk that is full: it ends nothing, loses nothing, says so, and goes on when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.disks import FILLER, clear, fill, needs_root, small_disk

from .agent import AgentProcess
from .server import DEADLINE, Server, free_port, horae

pytestmark = [pytest.mark.slow, needs_root]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, "--roles", "api,coordinator,scheduler", "--heartbeat-interval", "0.3", "--lease", "15")
    yield server.start()
    server.stop()


def shell(server: Server, run: str) -> int:
    (job,) = server.submit({"name": "job", "steps": [{"run": run}], "triggers": []})
    return int(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])


def ailment_of(server: Server, name: str) -> str:
    return next(str(node["ailment"]) for node in server.get("/v1/nodes")["items"] if node["name"] == name)


def test_an_agent_on_a_full_disk_fails_no_run_and_comes_back(server: Server, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small" / "data", inodes=400) as disk:
        agent = AgentProcess(tmp_path, f"127.0.0.1:{server.grpc_port}", "small")
        agent._argv[agent._argv.index("--data") + 1] = str(disk)
        agent.start().joined()
        try:
            first = shell(server, "echo fine")
            server.wait_until(lambda: server.get(f"/v1/runs/{first}")["state"] == "succeeded", "the first run")
            fill(disk)
            runs = [shell(server, "echo fine") for _ in range(20)]
            server.wait_until(lambda: "No space left" in ailment_of(server, "small"), "the agent to say what ails it")
            shown = subprocess.run([horae(), "nodes", "--server", server.url], capture_output=True, text=True)
            assert "small takes nothing new:" in shown.stdout
            assert "No space left on device" in shown.stdout
            assert {server.get(f"/v1/runs/{run}")["state"] for run in runs} <= {"queued", "running", "succeeded"}
            clear(disk)
            server.wait_until(
                lambda: {server.get(f"/v1/runs/{run}")["state"] for run in runs} == {"succeeded"}, "all runs"
            )
            server.wait_until(lambda: ailment_of(server, "small") == "", "the agent to be well")
            assert agent.process is not None
            assert agent.process.poll() is None
            assert "E_INTERNAL" not in agent.log()
        finally:
            agent.stop()


def test_a_server_whose_database_is_full_refuses_what_is_new_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", size="8m", inodes=2000) as disk:
        server = Server(tmp_path).start()
        try:
            (job,) = server.submit({"name": "job", "steps": [{"run": "echo fine"}], "schedule": "1s"})
            runs = f"/v1/runs?job={job['id']}&state=succeeded"
            server.wait_until(lambda: server.get(runs)["items"], "the first run")
            fill(disk)
            refused = server.wait_until(lambda: is_refused(server), "the database to be full")
            assert refused["code"] == "E_UNAVAILABLE"
            assert "full" in refused["detail"]
            before = [run["id"] for run in server.every(runs)]
            clear(disk)
            server.wait_until(lambda: len(server.every(runs)) > len(before) + 2, "more runs")
            due = sorted(run["due_at"] for run in server.every(f"/v1/runs?job={job['id']}"))
            moments = [datetime.fromisoformat(at) for at in due]
            assert {later - earlier for earlier, later in pairwise(moments)} == {timedelta(seconds=1)}
            assert "Traceback" not in server.log()
        finally:
            server.stop()


def test_a_server_whose_log_has_no_room_starts_works_and_ends(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        server = Server(tmp_path, "--log-format", "json")
        server._log = disk / "server.log"
        server._log.touch()
        fill(disk)
        server.start()
        try:
            run = shell(server, "exit 3")  # which is worth a line in the log
            server.wait_until(lambda: server.get(f"/v1/runs/{run}")["state"] == "failed", "the run")
        finally:
            server.stop()


def is_refused(server: Server) -> dict[str, str] | None:
    """Return a database has some room left within its file, so not the first is."""
    answer = server.http.post("/v1/jobs", json={"name": "new", "triggers": [], "steps": [{"run": "x" * 60_000}]})
    return answer.json() if answer.status_code == 503 else None


@pytest.mark.parametrize("names", [0, 100])
def test_a_start_on_a_full_disk_is_refused_with_what_is_wrong(tmp_path: Path, names: int) -> None:
    """One that takes no more names, and one that takes them, but no bytes."""
    with small_disk(tmp_path / "small") as disk:
        fill(disk)
        for number in range(names):
            (disk / FILLER / str(number)).unlink()
        argv = [horae(), "up", "--data", str(disk / "data"), "--port", str(free_port())]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 6
    assert done.stderr.startswith("error[E_MACHINE]: ")
    assert "No space left on device" in done.stderr
