"""Agents that reach nothing but NATS: in network namespaces of their own, from which only the broker can be reached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..engines.s3_server import S3, running_s3
from ..nats_server import Nats
from .agent import AgentProcess, Proxy
from .server import Server, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nats agents")]  # they share servers
NOWHERE = Path(__file__).with_name("nowhere.py")


def may_unshare() -> bool:
    """Return whether a network namespace can be made here: as root, and where the system lets root."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


@dataclass
class Place:
    server: Server
    nats: Nats
    wire: Proxy
    agents: list[AgentProcess]

    def run(self, *steps: str, **fields: Any) -> int:
        """Return a job that runs now; answers its run."""
        (job,) = self.server.submit({"name": "far", "steps": [{"run": step} for step in steps], **fields})
        return int(self.server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])

    def log(self, run_id: int) -> str:
        return self.server.http.get(f"/v1/runs/{run_id}/log").text

    def until_said(self, run_id: int, text: str) -> None:
        self.server.wait_until(lambda: text in self.log(run_id), f"{text!r} in the log of run {run_id}")


@contextmanager
def far(directory: Path, s3: S3 | None, *flags: str) -> Iterator[Place]:
    """A server, and two agents from which only the broker, and the bucket if there is one, can be reached."""
    if not may_unshare():
        pytest.skip("network namespaces can be made by root only")
    way = tempfile.mkdtemp(prefix="horae-")  # the path of a Unix socket is short
    nats, (port, bucket_port) = Nats(directory / "nats").start(), free_ports(2)
    usual = ("--queue", nats.url, "--roles", "api,coordinator,scheduler", "--heartbeat-interval", "1", "--lease", "20")
    server = Server(directory, *usual, *flags, *(_bucket(s3.endpoint) if s3 else ()))
    wires, doors = [Proxy(nats.port, f"{way}/nats")], [f"{port}={way}/nats"]
    if s3:
        wires.append(Proxy(int(s3.endpoint.rpartition(":")[2]), f"{way}/s3"))
        doors.append(f"{bucket_port}={way}/s3")
    agents: list[AgentProcess] = []
    try:
        server.start().cli("token", "create", "far", "--agent", "*", "--label", "*", "--file", "far.token")
        inside = ("unshare", "--net", sys.executable, str(NOWHERE), ",".join(doors))
        own = ["--token-file", str(directory / "far.token")]
        own += _bucket(f"http://127.0.0.1:{bucket_port}") if s3 else ()
        agents += [
            AgentProcess(directory, f"nats://127.0.0.1:{port}", name, *own, inside=inside)
            for name in ("far-1", "far-2")
        ]
        yield Place(server, nats, wires[0], [agent.joined() for agent in [each.start() for each in agents]])
    finally:
        for agent in agents:
            if agent.process is not None:
                agent.stop()
        if server.process is not None:
            server.stop()
        for wire in wires:
            wire.close()
        nats.kill()
        shutil.rmtree(way)


def _bucket(endpoint: str) -> tuple[str, ...]:
    return ("--files", "s3://outputs/far", "--files-endpoint", endpoint)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with far(tmp_path_factory.mktemp("far"), None) as made:
        yield made


@pytest.mark.long
def test_with_postgresql_nats_and_a_bucket_agents_need_neither_database_nor_api(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_s3() as s3:
        for name, value in s3.environment.items():
            if name.endswith(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")):
                monkeypatch.setenv(name, value)
        s3.store("outputs")
        with far(tmp_path, s3, "--database", postgres_url) as place:
            test_jobs_run_where_neither_database_nor_api_can_be_reached(place)
            test_a_log_is_followed_while_the_job_runs_and_a_cancel_ends_it(place)
            assert list(s3.files("outputs", "far/runs"))


def test_jobs_run_where_neither_database_nor_api_can_be_reached(place: Place):
    reach = f"{sys.executable} -c 'import socket; socket.create_connection((\"127.0.0.1\", {place.server.port}), 2)'"
    go = place.server.directory / "go"
    step = f"{reach} 2>/dev/null || echo out of reach; while [ ! -e {go} ]; do sleep 0.1; done"
    runs = [place.run(step) for _ in range(8)]  # as many as both have slots
    place.server.wait_until(
        lambda: len(place.server.get("/v1/runs", state="running")["items"]) == len(runs), "all of them to run"
    )
    go.touch()
    ended = [place.server.ended(run) for run in runs]

    assert {run["state"] for run in ended} == {"succeeded"}
    assert {run["node"] for run in ended} == {"far-1", "far-2"}
    assert all("out of reach" in place.log(run) for run in runs)


def test_a_log_is_followed_while_the_job_runs_and_a_cancel_ends_it(place: Place):
    run_id = place.run("echo it begins; sleep 600; echo never")
    place.until_said(run_id, "it begins")
    assert place.server.get(f"/v1/runs/{run_id}")["state"] == "running"

    began = time.monotonic()
    place.server.post(f"/v1/runs/{run_id}/cancel", status=202)

    assert place.server.ended(run_id)["state"] == "cancelled"
    assert time.monotonic() - began < 300
    assert "never" not in place.log(run_id)


def test_a_broker_that_is_killed_and_wiped_costs_no_run_and_no_line(place: Place):
    run_id = place.run("echo before; sleep 4; echo after")
    place.until_said(run_id, "before")
    place.nats.kill()
    waiting = place.run("echo waited")
    time.sleep(2)
    place.nats.wipe()
    place.nats.start()

    for run in (run_id, waiting):
        ended = place.server.ended(run)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
    assert "before\nafter" in place.log(run_id)
    assert "waited" in place.log(waiting)


@pytest.mark.long
def test_a_partition_of_five_seconds_costs_no_run_and_no_line(place: Place):
    run_id = place.run("for i in 1 2 3 4 5 6 7; do echo line $i; sleep 1; done")
    place.until_said(run_id, "line 1")
    place.wire.stall()
    time.sleep(5)
    place.wire.resume()

    ended = place.server.ended(run_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
    assert "".join(f"line {i}\n" for i in range(1, 8)) in place.log(run_id)
