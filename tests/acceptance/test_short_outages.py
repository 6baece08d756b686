"""The lease is a promise: an outage of most of it, again and again, ends no work. Real processes, a real broker."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..nats_server import Nats, running
from .agent import AgentProcess, Proxy
from .server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("waits")]  # so that others work meanwhile
LEASE, OUTAGE = 20.0, 12.0  # seconds: what is left is for a machine that is busy with other tests
TERMS = ("--heartbeat-interval", "5", "--lease", str(int(LEASE)))
TIMES = {"killed": 2, "cut": 2}  # one after the other; of those that only stand still, one must do


class Work:
    """A job that goes on until it is told to end, on an agent elsewhere."""

    def __init__(self, server: Server, agent: AgentProcess, directory: Path) -> None:
        self._server, self._agent, self._end = server, agent, directory / "end"
        step = f"echo begun; while [ ! -e {self._end} ]; do sleep 0.2; done; echo ended"
        (job,) = server.submit({"name": "long", "steps": [{"run": step}]})
        self._run = int(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
        server.wait_until(lambda: self._state() == "running", "the run to begin")

    def _state(self) -> str:
        return str(self._server.get(f"/v1/runs/{self._run}")["state"])

    def _beaten_at(self) -> str:
        (node,) = [one for one in self._server.get("/v1/nodes")["items"] if one["name"] == self._agent.name]
        return str(node["heartbeat_at"])

    def outlives(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """An outage of so long, right before the next beat as well as right after one."""
        before = self._beaten_at()
        self._server.wait_until(lambda: self._beaten_at() > before, "a beat before the outage")
        begin()
        time.sleep(OUTAGE)
        end()
        last, back_at = self._beaten_at(), time.monotonic()
        self._server.wait_until(lambda: self._beaten_at() > last, "a beat after the outage")
        print(f"beaten {time.monotonic() - back_at:.2f} s after the outage")

    def ends_well(self) -> None:
        self._end.touch()
        ended = self._server.ended(self._run)
        said = (ended["state"], ended["attempt"], ended["fence"], ended["message"])
        assert said == ("succeeded", 1, 1, ""), self._agent.log()[-4000:]
        assert "lease ran out" not in self._agent.log()


def begun(server: Server, agent: AgentProcess, directory: Path) -> Work:
    server.start().cli("token", "create", "far", "--agent", "*", "--label", "*", "--file", "far.token")
    agent.start().joined()
    return Work(server, agent, directory)


def ended(server: Server, agent: AgentProcess) -> None:
    for one in (agent, server):
        if one.process is not None:
            one.stop()


@pytest.mark.parametrize("how", ["frozen", pytest.param("killed", marks=pytest.mark.long)])
def test_a_broker_that_is_away_for_most_of_the_lease_ends_no_work(tmp_path: Path, how: str):
    def thaw() -> None:
        nats.signal(signal.SIGCONT)

    with running(tmp_path / "nats") as nats:
        server = Server(tmp_path, "--queue", nats.url, "--roles", "api,coordinator,scheduler", *TERMS)
        agent = AgentProcess(tmp_path, nats.url, "far", "--token-file", str(tmp_path / "far.token"))
        try:
            work = begun(server, agent, tmp_path)
            for _ in range(TIMES.get(how, 1)):
                if how == "frozen":
                    work.outlives(lambda: nats.signal(signal.SIGSTOP), thaw)
                else:
                    work.outlives(nats.kill, lambda: _again(nats))
            work.ends_well()
        finally:
            ended(server, agent)


def _again(nats: Nats) -> None:
    nats.start()


@pytest.mark.parametrize("how", ["stalled", pytest.param("cut", marks=pytest.mark.long)])
def test_a_line_of_grpc_that_is_dead_for_most_of_the_lease_ends_no_work(tmp_path: Path, how: str):
    server = Server(tmp_path, "--roles", "api,coordinator,scheduler", *TERMS)
    wire = Proxy(server.grpc_port)
    agent = AgentProcess(tmp_path, f"127.0.0.1:{wire.port}", "far", "--token-file", str(tmp_path / "far.token"))

    def begin() -> None:
        wire.stall()
        if how == "cut":
            wire.cut()

    try:
        work = begun(server, agent, tmp_path)
        for _ in range(TIMES.get(how, 1)):
            work.outlives(begin, wire.resume)
        work.ends_well()
    finally:
        ended(server, agent)
        wire.close()


def test_a_server_that_stands_still_for_most_of_the_lease_ends_no_work(tmp_path: Path):
    server = Server(tmp_path, "--roles", "api,coordinator,scheduler", *TERMS)
    agent = AgentProcess(tmp_path, f"127.0.0.1:{server.grpc_port}", "far", "--token-file", str(tmp_path / "far.token"))

    def tell(number: int) -> None:
        assert server.process is not None
        server.process.send_signal(number)

    try:
        work = begun(server, agent, tmp_path)
        work.outlives(lambda: tell(signal.SIGSTOP), lambda: tell(signal.SIGCONT))
        work.ends_well()
    finally:
        ended(server, agent)
