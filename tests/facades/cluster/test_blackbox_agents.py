"""Agents of the segment contract against a real Horae: they register, are called on ports of their own, and report."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.server import Server, free_port, free_ports

from .agent import FakeAgent
from .commands import JOB, data_of, refusal_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster-blackbox_agents")]  # one server for all

DISPATCH = "/api/worker-agent/dispatch"
COORDINATOR = "/api/execution-coordinator"
EXAMPLE = Path(__file__).parents[3] / "examples" / "segment_agent.py"
FLAGS = ("--scan-interval", "60s", "--worker-timeout", "8s", "--heartbeat-interval", "500ms")


class Pulse:
    """Beats until it is stopped."""

    def __init__(self, server: Server, path: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(server.url, path), daemon=True)
        self._thread.start()

    def _beat(self, url: str, path: str) -> None:
        with httpx.Client(base_url=url, timeout=30, verify=False) as http:
            while not self._stop.wait(1.0):
                http.post(path)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Agent(FakeAgent):
    """One that registers and beats, until it falls silent."""

    def __init__(self, server: Server, name: str, capacity: int = 10) -> None:
        super().__init__()
        self.name, self._horae = name, server
        data_of(server.http.post(f"{COORDINATOR}/workers/{name}", json=self.registration(capacity)))
        self.pulse = Pulse(server, f"{COORDINATOR}/workers/{name}/heartbeat")

    def report(self, job_id: int, word: str, **more: Any) -> httpx.Response:
        sent = {"jobId": job_id, "workerId": self.name, "status": word, **more}
        return self._horae.http.post("/api/job-store/executions", json=sent)


class Stage:
    """A server, whose scheduler leaves due jobs to a scheduler outside that holds all segments."""

    def __init__(self, server: Server, ports: list[int]) -> None:
        self.server, self.ports = server, ports
        self.http = server.http
        self._agents: list[Agent] = []
        self._jobs: list[int] = []
        data_of(self.http.post("/api/scheduler-workers/register?workerId=worker-1"))
        data_of(self.http.post("/api/segments/assign?workerId=worker-1&desiredSegments=100"))
        self._pulse = Pulse(server, "/api/scheduler-workers/heartbeat?workerId=worker-1")

    def agent(self, name: str, capacity: int = 10) -> Agent:
        self._agents.append(Agent(self.server, name, capacity))
        return self._agents[-1]

    def dismiss(self) -> None:
        """Agents and jobs of one test are not there in the next: what an agent leaves behind goes to others."""
        while self._jobs:
            assert self.http.delete(f"/v1/jobs/{self._jobs.pop()}").status_code == 204
        while self._agents:
            agent = self._agents.pop()
            agent.pulse.stop()
            self.http.delete(f"{COORDINATOR}/workers/{agent.name}")
            agent.stop()

    def close(self) -> None:
        self._pulse.stop()
        self.server.stop()

    def submit(self, **changes: Any) -> int:
        self._jobs.append(int(data_of(self.http.post("/api/jobs", json={**JOB, **changes}))["id"]))
        return self._jobs[-1]

    def scheduled(self, **changes: Any) -> int:
        job_id = self.submit(**changes)
        data_of(self.http.put(f"/api/jobs/{job_id}/status?status=SCHEDULED"))
        return job_id

    def dispatch(self, job_id: int, worker: str | None = None, **more: Any) -> httpx.Response:
        body = {"jobId": job_id, "jobName": "Example Job", "payload": "...", "executionTime": "2024-12-31T10:00:00Z"}
        return self.http.post(DISPATCH, json={**body, **({"workerId": worker} if worker else {}), **more})

    def status(self, job_id: int) -> Any:
        return data_of(self.http.get(f"/api/jobs/{job_id}"))["status"]

    def wait_for(self, job_id: int, word: str) -> None:
        self.server.wait_until(lambda: self.status(job_id) == word, f"job {job_id} to be {word}")

    def executions(self, job_id: int) -> list[tuple[str, str]]:
        shown = data_of(self.http.get("/api/executions", params={"jobId": job_id}))
        return [(each["workerId"], each["status"]) for each in shown]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory, ports = tmp_path_factory.mktemp("agents"), free_ports(5)
    (directory / "horae.toml").write_text(f"compat_ports = {ports}\n")
    made = Stage(Server(directory, *FLAGS).start(), ports)
    yield made
    made.close()


@pytest.fixture
def stage(whole: Stage) -> Iterator[Stage]:
    yield whole
    whole.dismiss()


@pytest.mark.row("segments-agents-register", "segments-agents-heartbeat", "segments-agents-leave")
def test_an_agent_registers_beats_and_leaves(stage: Stage) -> None:
    agent = stage.agent("agent-7", capacity=3)
    one = f"{COORDINATOR}/workers/agent-7"
    assert data_of(stage.http.post(f"{one}/heartbeat", json={"currentLoad": 2, "capacity": 4})) == "Heartbeat recorded"
    shown = data_of(stage.http.get(one))
    assert (shown["workerHost"], shown["workerPort"], shown["capacity"]) == ("127.0.0.1", agent.port, 4)
    assert shown["status"] == "ONLINE"
    assert "agent-7" in [each["workerId"] for each in data_of(stage.http.get(f"{COORDINATOR}/workers"))]
    refusal_of(stage.http.post(f"{COORDINATOR}/workers/nobody/heartbeat"), 404, "WORKER_NOT_FOUND")
    agent.pulse.stop()
    assert data_of(stage.http.delete(one)) == "Worker deregistered"
    stage.server.wait_until(lambda: data_of(stage.http.get(one))["status"] == "OFFLINE", "agent-7 to be OFFLINE")


@pytest.mark.row("segments-agents-dispatch", "segments-agents-assignments", "segments-agents-checkpoint")
def test_a_dispatch_goes_to_the_agent_that_was_asked(stage: Stage) -> None:
    agent, other = stage.agent("agent-1"), stage.agent("agent-2")
    job_id = stage.scheduled()
    assert data_of(stage.dispatch(job_id, "agent-1")) == "Job execution triggered"
    [got] = agent.got
    assert (got["path"], got["jobId"], got["payload"]) == (DISPATCH, job_id, "Test payload")
    assert (got["userId"], got["maxRetries"], got["retryCount"]) == (1, 3, 0)
    assert other.got == []
    data_of(agent.report(job_id, "RUNNING", checkpointData={"row": 5}))
    found = data_of(stage.http.get(f"{COORDINATOR}/assignments/{job_id}"))
    assert (found["workerId"], found["checkpointData"]) == ("agent-1", {"row": 5})
    assert job_id in [each["jobId"] for each in data_of(stage.http.get(f"{COORDINATOR}/assignments?workerId=agent-1"))]
    data_of(agent.report(job_id, "COMPLETED"))
    assert stage.status(job_id) == "COMPLETED"
    assert stage.executions(job_id) == [("agent-1", "COMPLETED")]


@pytest.mark.row("segments-agents-ways", "segments-agents-unknown", "segments-agents-no-address")
def test_an_agent_is_named_or_told_by_its_address(stage: Stage) -> None:
    agent = stage.agent("agent-1")
    for more in ({"agentId": "agent-1"}, {"host": "127.0.0.1", "port": agent.port}):
        data_of(stage.dispatch(stage.scheduled(), **more))
    by_query = stage.http.post(f"{DISPATCH}?workerId=agent-1", json={"jobId": stage.scheduled()})
    data_of(by_query)
    assert len(agent.got) == 3
    job_id = stage.scheduled()
    refusal_of(stage.dispatch(job_id, "nobody"), 404, "WORKER_NOT_FOUND")
    data_of(stage.http.post(f"{COORDINATOR}/workers/agent-9?capacity=2"))
    assert "host and port" in refusal_of(stage.dispatch(job_id, "agent-9"), 503, "SERVICE_UNAVAILABLE")
    assert stage.status(job_id) == "SCHEDULED"


@pytest.mark.row("segments-agents-own", "segments-agents-status", "segments-agents-running")
def test_our_own_ports_mean_our_own_agent(stage: Stage) -> None:
    first = stage.scheduled()
    data_of(stage.dispatch(first))
    stage.wait_for(first, "COMPLETED")
    own = {"host": "127.0.0.1", "port": stage.ports[3], "capacity": 10}
    data_of(stage.http.post(f"{COORDINATOR}/workers/agent-here", json=own))
    second = stage.scheduled()
    data_of(stage.dispatch(second, "agent-here"))
    stage.wait_for(second, "COMPLETED")
    node = data_of(stage.http.get("/api/worker-agent/status"))
    assert node["successfulJobs"] >= 2
    assert [worker for worker, _ in stage.executions(first) + stage.executions(second)] == [node["workerId"]] * 2
    assert data_of(stage.http.get("/api/worker-agent/jobs/running")) == []


@pytest.mark.row("segments-agents-capacity", "segments-agents-refused", "segments-agents-unreached")
def test_where_an_agent_does_not_take_it_nothing_changes(stage: Stage) -> None:
    small, busy, gone = stage.agent("agent-small", capacity=1), stage.agent("agent-2"), stage.agent("agent-3")
    busy.status = 503
    job_id = stage.scheduled()
    data_of(stage.dispatch(stage.scheduled(), "agent-small"))
    data_of(stage.http.post(f"{COORDINATOR}/workers/agent-3", json={"host": "127.0.0.1", "port": free_port()}))
    refusal_of(stage.dispatch(job_id, "agent-small"), 503, "WORKER_AT_CAPACITY")
    refusal_of(stage.dispatch(job_id, "agent-2"), 503, "WORKER_AT_CAPACITY")
    refusal_of(stage.dispatch(job_id, "agent-3"), 503, "SERVICE_UNAVAILABLE")
    assert (len(small.got), len(busy.got), len(gone.got)) == (1, 1, 0)
    assert stage.status(job_id) == "SCHEDULED"
    busy.status = 200
    data_of(stage.dispatch(job_id, "agent-2"))
    data_of(busy.report(job_id, "RUNNING"))


@pytest.mark.row("segments-agents-unanswered")
def test_an_agent_that_gave_no_answer_may_have_begun(stage: Stage) -> None:
    agent = stage.agent("agent-1")
    agent.status = None
    job_id = stage.scheduled()
    refusal_of(stage.dispatch(job_id, "agent-1"), 503, "SERVICE_UNAVAILABLE")
    for worker in ("agent-1", None):
        refusal_of(stage.dispatch(job_id, worker), 409, "INVALID_STATE")
    data_of(agent.report(job_id, "RUNNING"))
    data_of(agent.report(job_id, "COMPLETED"))
    assert stage.status(job_id) == "COMPLETED"


@pytest.mark.row("segments-agents-one-of-many")
@pytest.mark.parametrize("worker", ["agent-1", None])
@pytest.mark.parametrize("is_scheduled", [True, False])
def test_of_many_dispatches_of_one_job_one_succeeds(stage: Stage, worker: str | None, is_scheduled: bool) -> None:
    agent = stage.agent("agent-1")
    job_id = stage.scheduled() if is_scheduled else stage.submit()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: stage.dispatch(job_id, worker).status_code, range(40)))
    assert sorted(answers) == [200] + [409] * 39
    assert agent.jobs == ([job_id] if worker else [])


@pytest.mark.row("segments-agents-holder")
def test_only_the_agent_that_holds_a_job_reports_on_it(stage: Stage) -> None:
    agent, other = stage.agent("agent-1"), stage.agent("agent-2")
    job_id = stage.scheduled()
    stranger = {"jobId": job_id, "workerId": "stranger", "status": "RUNNING"}
    refusal_of(stage.http.post("/api/job-store/executions", json=stranger), 409, "INVALID_STATE")
    data_of(stage.dispatch(job_id, "agent-1"))
    for word in ("RUNNING", "COMPLETED", "FAILED"):
        refusal_of(other.report(job_id, word), 409, "INVALID_STATE")
    data_of(agent.report(job_id, "RUNNING"))
    data_of(agent.report(job_id, "COMPLETED"))


@pytest.mark.row("segments-agents-lost", "segments-agents-waits", "segments-agents-attempts", "segments-agents-health",
                 "segments-agents-reassignments")  # fmt: skip
def test_a_lost_job_waits_for_an_agent_and_goes_on_with_its_checkpoint(stage: Stage) -> None:
    agent = stage.agent("agent-1")
    job_id = stage.scheduled()
    data_of(stage.dispatch(job_id, "agent-1"))
    data_of(agent.report(job_id, "RUNNING", checkpointData={"row": 5}))
    agent.pulse.stop()

    def waits() -> Any:
        [run] = stage.server.get("/v1/runs", job_id=job_id)["items"]
        return (run["state"], run["reason"]) == ("queued", "no_agent")

    stage.server.wait_until(waits, "the job to wait for an agent")
    assert stage.status(job_id) == "PENDING"
    refusal_of(agent.report(job_id, "COMPLETED"), 409, "INVALID_STATE")

    other = stage.agent("agent-2")
    stage.server.wait_until(lambda: job_id in other.jobs, "the job to be reassigned")
    [got] = [each for each in other.got if each["jobId"] == job_id]
    assert (got["jobId"], got["checkpointData"], got["payload"]) == (job_id, {"row": 5}, "Test payload")
    assert (got["isReassignment"], got["previousWorkerId"]) == (True, "agent-1")
    data_of(other.report(job_id, "RUNNING", attempt=got["attempt"]))
    data_of(other.report(job_id, "COMPLETED", attempt=got["attempt"]))
    assert stage.executions(job_id) == [("agent-2", "COMPLETED"), ("agent-1", "FAILED")]
    events = data_of(stage.http.get(f"{COORDINATOR}/reassignments?limit=20"))
    [event] = [each for each in events if each["jobId"] == job_id]
    assert (event["fromWorkerId"], event["toWorkerId"], event["success"]) == ("agent-1", "agent-2", True)
    assert data_of(stage.http.get(f"{COORDINATOR}/health"))["reassignmentEvents"] >= 1


@pytest.mark.row("segments-agents-token")
def test_beyond_loopback_only_agents_with_a_token_are_called(stage: Stage) -> None:
    data_of(stage.http.post(f"{COORDINATOR}/workers/agent-far", json={"host": "192.0.2.1", "port": 8084}))
    job_id = stage.scheduled()
    assert "token" in refusal_of(stage.dispatch(job_id, "agent-far"), 503, "SERVICE_UNAVAILABLE")
    assert stage.status(job_id) == "SCHEDULED"


@pytest.mark.row("segments-agents-program")
def test_the_example_agent_runs_jobs_by_the_book(stage: Stage, tmp_path: Path) -> None:
    argv = [sys.executable, str(EXAMPLE), "--server", stage.server.url, "--id", "agent-book", "--seconds", "0.2"]
    with (tmp_path / "log").open("wb") as log:
        program = subprocess.Popen([*argv, "--steps", "2", "--heartbeat", "1"], stdout=log, stderr=log)
    try:
        one = f"{COORDINATOR}/workers/agent-book"
        stage.server.wait_until(lambda: stage.http.get(one).status_code == 200, "the agent to register")
        job_id = stage.scheduled()
        data_of(stage.dispatch(job_id, "agent-book"))
        stage.wait_for(job_id, "COMPLETED")
        assert stage.executions(job_id) == [("agent-book", "COMPLETED")]
    finally:
        program.kill()
        program.wait()
