"""Output in a bucket: followed live from any node, there when its node is gone, and kept when the store was away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.s3_server import S3, running_s3

from .agent import AgentProcess, Proxy
from .server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("s3")]
TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "4s")
COUNT = "for n in 1 2 3 4 5 6 7 8 9; do echo line $n; sleep 0.3; done"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as service:
        service.store("outputs")
        yield service


@pytest.fixture
def flags(s3: S3, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    for name, value in s3.environment.items():
        if name.endswith(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")):
            monkeypatch.setenv(name, value)
    return ("--files", f"s3://outputs/{time.time_ns()}", "--files-endpoint", s3.endpoint, *TIMERS)


def job(script: str, **more: object) -> dict[str, object]:
    return {"name": "talker", "steps": [{"name": "talk", "run": script}], **more}


def test_any_node_follows_the_log_live_and_has_it_when_the_other_is_gone(
    postgres_url: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    nodes = []
    for name, roles in (("worker", "agent,scheduler,coordinator"), ("desk", "api,coordinator,scheduler")):
        (tmp_path / name).mkdir()
        mine = ("--database", postgres_url, "--node", name, "--roles", roles, *flags)
        nodes.append(Server(tmp_path / name, *mine).start())
    worker, desk = nodes
    try:
        go = tmp_path / "go"
        [made] = desk.submit(job(f"{COUNT}; while [ ! -e {go} ]; do sleep 0.1; done"))
        run = desk.post(f"/v1/jobs/{made['id']}/run", status=201)["id"]
        desk.wait_until(lambda: "line 1" in log_of(desk, run), "the first line")
        assert desk.get(f"/v1/runs/{run}")["state"] == "running"
        go.touch()
        desk.wait_until(lambda: desk.get(f"/v1/runs/{run}")["state"] == "succeeded", "the end")
        worker.kill()
        assert [line for line in log_of(desk, run).splitlines() if line.startswith("line")] == [
            f"line {n}" for n in range(1, 10)
        ]
    finally:
        for node in nodes:
            node.stop()


def test_a_remote_agent_stores_its_output_itself(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server", *flags).start()
    agent = AgentProcess(tmp_path, f"127.0.0.1:{server.grpc_port}", "far", "--label", "far", *flags[:4])
    try:
        agent.start().joined()
        [made] = server.submit(job(COUNT, labels=["far"]))
        run = server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"]
        server.wait_until(lambda: "line 1" in log_of(server, run), "the first line")
        server.wait_until(lambda: server.get(f"/v1/runs/{run}")["state"] == "succeeded", "the end")
        assert "line 9" in log_of(server, run)
    finally:
        agent.stop()
        server.stop()


def test_output_of_the_time_without_the_store_arrives_when_it_is_back(
    tmp_path: Path, s3: S3, flags: tuple[str, ...]
) -> None:
    line = Proxy(int(s3.endpoint.rpartition(":")[2]))
    near = (*flags[:3], f"http://127.0.0.1:{line.port}", *flags[4:])
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server", *near).start()
    try:
        [made] = server.submit(job(COUNT))
        run = server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"]
        server.wait_until(lambda: "line 1" in log_of(server, run), "the first line")
        line.stall()
        line.cut()
        server.wait_until(lambda: server.get(f"/v1/runs/{run}")["state"] == "succeeded", "the end")
        line.resume()
        server.wait_until(lambda: "line 9" in log_of(server, run), "the last line")
        lines = [each for each in log_of(server, run).splitlines() if each.startswith("line")]
        assert lines == [f"line {n}" for n in range(1, 10)]
    finally:
        server.stop()
        line.close()


def log_of(server: Server, run: int) -> str:
    answer = server.http.get(f"/v1/runs/{run}/log")
    return answer.text if answer.status_code == 200 else ""
