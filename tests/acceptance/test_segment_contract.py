"""The source document of the segment contract, typed at a real Horae: its curl commands, in its order, on its ports."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.facades.cluster.commands import Call, calls

from .server import DEADLINE, Server, free_ports, horae

pytestmark = pytest.mark.slow

SCAN = 2  # seconds
TIMERS = ("--scan-interval", f"{SCAN}s", "--worker-timeout", "3s", "--heartbeat-interval", "500ms")


class Shell:
    """Types the document's commands; only its ports, which may be taken here, are others."""

    def __init__(self, server: Server, ports: dict[int, int]) -> None:
        self.server = server
        self._ports = ports

    def type(self, call: Call, job_id: int = 1) -> Any:
        """Return the data of the answer."""
        answer = self._curl(call, job_id) if shutil.which("curl") else self._send(call, job_id)
        assert answer["success"] is True, answer
        return answer["data"]

    def _curl(self, call: Call, job_id: int) -> Any:
        url = self._url(call, job_id)
        argv = [url if word.startswith("http://") else word for word in call.argv]
        done = subprocess.run([*argv, "-s", "-S"], capture_output=True, text=True, timeout=DEADLINE, check=True)
        return json.loads(done.stdout)

    def _send(self, call: Call, job_id: int) -> Any:
        return httpx.request(call.method, self._url(call, job_id), content=call.body).json()

    def _url(self, call: Call, job_id: int) -> str:
        return f"http://localhost:{self._ports[call.port]}{call.path}".replace("{id}", str(job_id))

    def wait_for(self, job_id: int, *words: str) -> Any:
        def look() -> Any:
            job = self.server.get(f"/api/jobs/{job_id}")["data"]
            return job if job["status"] in words else None

        return self.server.wait_until(look, f"job {job_id} to be {words}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    ports = dict(zip(range(8081, 8086), free_ports(5), strict=True))
    (tmp_path / "horae.toml").write_text(f"compat_ports = {list(ports.values())}\n")
    server = Server(tmp_path, *TIMERS).start()
    yield Shell(server, ports)
    assert server.stop() == 0


def test_the_commands_of_the_document_do_what_it_says(shell: Shell) -> None:
    submit, register, assign, check = calls("scenario-1-basic-workflow.sh")
    assert shell.type(submit)["status"] == "PENDING"
    assert shell.type(register)["status"] == "ONLINE"
    assert shell.type(assign) == list(range(10))
    shell.wait_for(1, "COMPLETED")  # SCHEDULED, RUNNING, and on
    assert shell.type(check)["payload"] == "Test payload"
    [run] = shell.server.get("/v1/runs", job_id=1)["items"]
    assert shell.server.http.get(f"/v1/runs/{run['id']}/log").text == "Test payload\n"

    *_, second = [shell.type(call) for call in calls("scenario-2-multiple-workers.sh")]
    assert second == list(range(50, 100))

    [daily] = calls("scenario-3-recurring-job.sh")
    made = shell.type(daily)
    job = shell.server.wait_until(lambda: _ran(shell, made["id"]), "the daily job to run once")
    assert (job["status"], job["nextRunTime"][-10:]) == ("PENDING", "T09:00:00Z")

    for call in calls("troubleshooting.sh"):
        assert shell.type(call)


def _ran(shell: Shell, job_id: int) -> Any:
    runs = shell.server.get("/api/executions", jobId=job_id)["data"]
    return shell.server.get(f"/api/jobs/{job_id}")["data"] if runs and runs[0]["status"] == "COMPLETED" else None


def submit(shell: Shell) -> int:
    [command] = [call for call in calls("scenario-1-basic-workflow.sh") if call.body]
    return int(shell.type(command)["id"])


def test_an_offered_job_waits_for_its_worker_and_not_for_ever(shell: Shell) -> None:
    http = shell.server.http
    http.post("/api/scheduler-workers/register?workerId=worker-1")
    http.post("/api/segments/assign?workerId=worker-1&desiredSegments=10")

    # A worker that scans gets it: due, scheduled, dispatched, run by Horae's agent.
    taken = submit(shell)
    due = shell.server.get("/api/job-schedules/due", asOf="2100-01-01T00:00:00Z", segments="5")["data"]
    assert [job["jobId"] for job in due] == [taken]
    assert http.put(f"/api/jobs/{taken}/status?status=SCHEDULED").status_code == 200
    assert http.post("/api/worker-agent/dispatch", json={"jobId": taken, "payload": "x"}).status_code == 200
    shell.wait_for(taken, "COMPLETED")

    # A worker that lives and does not scan costs a scan interval, no more.
    missed = submit(shell)

    def beaten() -> Any:
        http.post("/api/scheduler-workers/heartbeat?workerId=worker-1")
        job = shell.server.get(f"/api/jobs/{missed}")["data"]
        return job if job["status"] == "COMPLETED" else None

    shell.server.wait_until(beaten, "Horae to fire it itself")
    [execution] = shell.server.get("/api/executions", jobId=missed)["data"]
    assert execution["createdAt"] > shell.server.get(f"/api/jobs/{missed}")["data"]["createdAt"]

    # One that schedules and does not dispatch loses the run again.
    dropped = submit(shell)
    assert http.put(f"/api/jobs/{dropped}/status?status=SCHEDULED").status_code == 200
    shell.wait_for(dropped, "COMPLETED")
    [event] = shell.server.get("/api/execution-coordinator/reassignments")["data"]
    assert (event["jobId"], event["fromWorkerId"]) == (dropped, "worker-1")


def test_a_silent_worker_loses_its_segments(shell: Shell) -> None:
    http = shell.server.http
    http.post("/api/scheduler-workers/register?workerId=worker-1")
    http.post("/api/segments/assign?workerId=worker-1&desiredSegments=10")
    [here] = {each["owner"] for each in shell.server.get("/api/segments")["data"]}

    def freed() -> bool:
        return bool(shell.server.get("/api/segments")["data"][0]["workerId"] == here)

    shell.server.wait_until(freed, "the worker to be given up")
    assert "worker-1" not in [each["workerId"] for each in shell.server.get("/api/scheduler-workers")["data"]]


def test_a_port_that_is_taken_is_named(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    taken = shell.server.port
    (tmp_path / "other" / "horae.toml").write_text(f"compat_ports = [{taken}]\n")
    port, grpc_port = map(str, free_ports(2))
    argv = [horae(), "up", "--port", port, "--grpc-port", grpc_port, "--data", "d"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, cwd=tmp_path / "other")
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1:{taken}" in done.stderr


def test_a_scheduler_worker_of_its_own_takes_its_share(postgres_url: str, tmp_path: Path) -> None:
    """The document's second worker: `--roles scheduler --port 8183 --node worker-2` with its intervals."""
    nodes = []
    for name, flags in (("main", ()), ("worker-2", ("--roles", "scheduler"))):
        (tmp_path / name).mkdir()
        interval = ("--scan-interval", "60s", "--heartbeat-interval", "30s")
        nodes.append(Server(tmp_path / name, "--database", postgres_url, "--node", name, *flags, *interval).start())
    main, worker = nodes
    try:

        def shared() -> Any:
            status = worker.get("/api/scheduler-worker/status")["data"]
            return status if status["assignedSegmentCount"] == 50 else None

        status = worker.wait_until(shared, "half of the segments")
        assert (status["workerId"], status["status"]) == ("worker-2", "ONLINE")
        refused = worker.http.post("/api/worker-agent/dispatch", json={"jobId": 1})
        assert refused.json()["errorCode"] == "JOB_NOT_FOUND"
        assert worker.get("/api/worker-agent/status")["data"]["status"] == "OFFLINE"
        assert main.get("/api/coordinator/leader")["data"]["nodeId"] == "main"
    finally:
        for node in nodes:
            node.stop()


def test_what_a_silent_agent_ran_waits_for_another_agent_and_is_never_done_by_horae_itself(shell: Shell) -> None:
    http = shell.server.http
    http.post("/api/execution-coordinator/workers/agent-1?capacity=2")
    http.post("/api/scheduler-workers/register?workerId=worker-1")
    http.post("/api/segments/assign?workerId=worker-1&desiredSegments=10")
    job_id = submit(shell)
    assert http.put(f"/api/jobs/{job_id}/status?status=SCHEDULED").status_code == 200
    report = {"jobId": job_id, "workerId": "agent-1", "status": "RUNNING"}
    assert http.post("/api/job-store/executions", json=report).status_code == 200
    assert shell.server.get(f"/api/jobs/{job_id}")["data"]["status"] == "RUNNING"

    def waits() -> Any:
        (run,) = shell.server.get("/v1/runs", job_id=job_id)["items"]
        return (run["state"], run["reason"]) == ("queued", "no_agent")

    shell.server.wait_until(waits, "the job to wait")  # long before the 300 s that a word of it would be good for
    [event] = shell.server.get("/api/execution-coordinator/reassignments")["data"]
    assert (event["fromWorkerId"], event["success"]) == ("agent-1", False)
    assert event["errorMessage"] == "No healthy worker available"
    assert shell.server.get(f"/api/jobs/{job_id}")["data"]["retryCount"] == 0
    assert shell.server.get("/api/execution-coordinator/workers/agent-1")["data"]["status"] == "UNHEALTHY"
