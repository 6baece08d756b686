"""Remote agents as real processes: they join, work, get lost, come back; nothing runs twice at once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .agent import AgentProcess, Proxy
from .server import DEADLINE, Server, horae

pytestmark = pytest.mark.slow
NO_AGENT = ("--roles", "api,coordinator,scheduler")
QUICK = ("--heartbeat-interval", "0.3", "--lease", "1")
PATIENT = ("--heartbeat-interval", "0.3", "--lease", "15")

Begin = Callable[..., AgentProcess]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Agents that are stopped when the test is over."""
    started: list[AgentProcess] = []

    def start(server: str, name: str, *flags: str) -> AgentProcess:
        agent = AgentProcess(tmp_path, server, name, *flags)
        started.append(agent.start())
        return agent

    yield start
    for agent in started:
        agent.stop()


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server without an agent of its own; its lease is that of the test's mark."""
    flags = getattr(request, "param", PATIENT)
    server = Server(tmp_path, *NO_AGENT, *flags).start()
    yield server
    server.stop()


def at(server: Server) -> str:
    return f"127.0.0.1:{server.grpc_port}"


def shell(server: Server, run: str, **fields: Any) -> int:
    """A run of a shell job, just made."""
    (job,) = server.submit({"name": "job", "steps": [{"run": run}], "triggers": [], **fields})
    return int(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])


def log_of(server: Server, run_id: int) -> str:
    return server.http.get(f"/v1/runs/{run_id}/log").text


def running(server: Server, run_id: int) -> Any:
    return server.wait_until(
        lambda: (run := server.get(f"/v1/runs/{run_id}"))["state"] == "running" and run, f"run {run_id} to start"
    )


def node(server: Server, name: str) -> Any:
    return next((one for one in server.get("/v1/nodes")["items"] if one["name"] == name), None)


def ticks(file: Path) -> list[tuple[str, float]]:
    """(fence, when) of every line that a job wrote."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(fence, float(when)) for fence, when in lines]


TICK = 'for i in $(seq {count}); do echo "$HORAE_FENCE $(date +%s.%N)" >> {file}; sleep 0.1; done'


def test_an_agent_joins_and_runs_what_needs_its_label(place: Server, begin: Begin):
    begin(at(place), "plain").joined()
    begin(at(place), "gpu", "--label", "gpu").joined()

    run_id = shell(place, "echo from $HORAE_RUN_ID; seq 3", labels=["gpu"])
    run = place.ended(run_id)

    assert (run["state"], run["node"]) == ("succeeded", "gpu")
    assert f"from {run_id}\n1\n2\n3\n" in log_of(place, run_id)
    shown = node(place, "gpu")
    assert (shown["via"], shown["labels"], shown["slots"]) == (node(place, "gpu")["via"], ["gpu"], 4)
    assert shown["via"] != ""
    assert "via " in place.cli("nodes").stdout


def test_the_log_of_a_remote_run_is_followed_while_it_runs_and_a_cancel_reaches_it(
    place: Server, begin: Begin, tmp_path: Path
):
    begin(at(place), "a1").joined()
    run_id = shell(place, f"echo begun; while [ ! -e {tmp_path}/never ]; do sleep 0.1; done")
    place.wait_until(lambda: "begun" in log_of(place, run_id), "its output")
    assert place.get(f"/v1/runs/{run_id}")["state"] == "running"

    place.post(f"/v1/runs/{run_id}/cancel", status=202)

    assert place.ended(run_id)["state"] == "cancelled"


def test_a_cordoned_agent_takes_nothing_until_it_is_uncordoned(place: Server, begin: Begin):
    begin(at(place), "a1").joined()
    place.cli("nodes", "cordon", "a1")
    place.wait_until(lambda: node(place, "a1")["wanted"] == "cordoned", "the cordon")
    time.sleep(1)  # a beat tells it
    run_id = shell(place, "true")
    time.sleep(1)
    assert place.get(f"/v1/runs/{run_id}")["state"] == "queued"

    place.cli("nodes", "uncordon", "a1")

    assert place.ended(run_id)["state"] == "succeeded"


def test_a_job_survives_the_crash_and_restart_of_its_server(place: Server, begin: Begin, tmp_path: Path):
    agent = begin(at(place), "a1").joined()
    run_id = shell(place, f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo two")
    place.wait_until(lambda: "one" in log_of(place, run_id), "its output")

    place.kill()
    (tmp_path / "go").touch()  # it ends while there is no server
    time.sleep(1)
    place.start()
    agent.wait_for("joined", times=2)
    run = place.ended(run_id)

    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert "one\ntwo\n" in log_of(place, run_id)


def test_a_result_outlives_the_agent_that_could_not_report_it(place: Server, begin: Begin, tmp_path: Path):
    agent = begin(at(place), "a1").joined()
    run_id = shell(
        place, f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo done once >> {tmp_path}/witness; seq 3"
    )
    running(place, run_id)

    place.kill()
    (tmp_path / "go").touch()
    results = agent.directory / "data" / "agent" / "spool" / "results"
    place.wait_until(lambda: list(results.glob("*.json")), "the result to be on disk")
    agent.kill()
    place.start()
    agent.start()
    run = place.ended(run_id)

    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert "1\n2\n3\n" in log_of(place, run_id)
    assert (tmp_path / "witness").read_text() == "done once\n"
    place.wait_until(lambda: not list(results.glob("*.json")), "the spool to be empty")


@pytest.mark.parametrize("place", [QUICK], indirect=True)
def test_what_a_killed_agent_ran_dies_and_runs_elsewhere(place: Server, begin: Begin, tmp_path: Path):
    first = begin(at(place), "a1").joined()
    run_id = shell(place, TICK.format(count=30, file=tmp_path / "ticks"))
    place.wait_until(lambda: ticks(tmp_path / "ticks"), "the first tick")

    first.kill()
    begin(at(place), "a2").joined()
    run = place.ended(run_id)

    assert (run["state"], run["node"], run["attempt"]) == ("succeeded", "a2", 2)
    seen = ticks(tmp_path / "ticks")
    assert max(when for fence, when in seen if fence == "1") < min(when for fence, when in seen if fence == "2")


@pytest.mark.parametrize("place", [QUICK], indirect=True)
def test_a_stopped_agent_loses_its_job_before_a_second_copy_starts(place: Server, begin: Begin, tmp_path: Path):
    first = begin(at(place), "a1").joined()
    run_id = shell(place, TICK.format(count=40, file=tmp_path / "ticks"))
    place.wait_until(lambda: ticks(tmp_path / "ticks"), "the first tick")
    begin(at(place), "a2").joined()

    first.signal(signal.SIGSTOP)
    run = place.ended(run_id)
    first.signal(signal.SIGCONT)

    assert (run["state"], run["node"], run["attempt"]) == ("succeeded", "a2", 2)
    seen = ticks(tmp_path / "ticks")
    assert max(when for fence, when in seen if fence == "1") < min(when for fence, when in seen if fence == "2")
    place.wait_until(lambda: "result.fenced" in place.log(), "its late result to be refused")
    place.wait_until(lambda: node(place, "a1")["state"] == "live", "it to come back")
    again = shell(place, "true", labels=[])
    assert place.ended(again)["state"] == "succeeded"


def test_a_short_partition_costs_nothing(place: Server, begin: Begin, tmp_path: Path):
    proxy = Proxy(place.grpc_port)
    try:
        agent = begin(f"127.0.0.1:{proxy.port}", "a1").joined()
        run_id = shell(place, f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; seq 20000; echo two")
        running(place, run_id)
        for _ in range(3):
            proxy.cut()
            agent.wait_for("joined", times=agent.log().count("joined") + 1)
        proxy.stall()
        (tmp_path / "go").touch()
        time.sleep(2)
        proxy.resume()
        run = place.ended(run_id)
    finally:
        proxy.close()

    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert log_of(place, run_id).endswith("".join(f"{i}\n" for i in range(1, 20001)) + "two\n")


@pytest.mark.parametrize("place", [QUICK], indirect=True)
def test_a_partition_longer_than_the_lease_kills_before_another_may_start(place: Server, begin: Begin, tmp_path: Path):
    proxy = Proxy(place.grpc_port)
    try:
        agent = begin(f"127.0.0.1:{proxy.port}", "a1").joined()
        run_id = shell(place, TICK.format(count=30, file=tmp_path / "ticks"))
        place.wait_until(lambda: ticks(tmp_path / "ticks"), "the first tick")
        begin(at(place), "a2").joined()
        proxy.stall()
        run = place.ended(run_id)
        proxy.resume()
        agent.wait_for("joined", times=2)
        place.wait_until(lambda: node(place, "a1")["state"] == "live", "it to come back")
    finally:
        proxy.close()

    assert (run["state"], run["node"]) == ("succeeded", "a2")
    seen = ticks(tmp_path / "ticks")
    fences = sorted({fence for fence, _ in seen}, key=int)
    assert fences == ["1", "2"]
    assert max(when for fence, when in seen if fence == "1") < min(when for fence, when in seen if fence == "2")


def test_a_second_agent_of_the_same_name_is_refused(place: Server, begin: Begin, tmp_path: Path):
    begin(at(place), "twin").joined()
    argv = [horae(), "agent", "--server", at(place), "--node", "twin", "--data", str(tmp_path / "other")]

    second = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)

    assert second.returncode == 5
    assert "another living agent is called twin" in second.stderr
    assert place.ended(shell(place, "true"))["node"] == "twin"


def test_an_agent_that_is_told_to_stop_finishes_its_work_first(place: Server, begin: Begin, tmp_path: Path):
    agent = begin(at(place), "a1").joined()
    run_id = shell(place, f"echo begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo ended")
    running(place, run_id)

    agent.signal(signal.SIGTERM)
    agent.wait_for("node.stopping")
    (tmp_path / "go").touch()

    assert agent.stop() == 0
    run = place.get(f"/v1/runs/{run_id}")
    assert run["state"] == "succeeded"
    assert node(place, "a1")["state"] == "gone"
