"""The administration contract on real nodes: declared at start, one active, run where it was called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from horae.contracts.admin.guids import Kind, number_of
from horae.wire.generated import administration_pb2 as pb

from .server import Server

pytestmark = pytest.mark.slow

SERVICE = "/CIS.InternalServices.TaskSchedulingService.v1.TaskSchedulingService"
HANDLER = """
class MyJobHandler:
    def __init__(self, context: "Context"):
        self.context = context

    async def execute(self, job_data, cancellation):
        return {"told": job_data, "trace": self.context.trace_id}

from horae import Context
"""
DECLARED = """
jobs:
  - ScheduleJobId: 2a3f6b0e-6d2c-4b9a-9a53-5c1f6e0d7b11
    JobName: MyJob
    JobType: CIS.InternalServices.TaskSchedulingService.Api.Jobs.MyJob.MyJobHandler
  - key: env
    name: env
    steps: [{run: 'echo "$TRACEPARENT"'}]
"""


@pytest.fixture
def nodes(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """An active node and a passive one, both with the same files."""
    started = []
    for name in ("n0", "n1"):
        place = tmp_path / name
        (place / "jobs" / "MyJob").mkdir(parents=True)
        (place / "jobs" / "MyJob" / "job.py").write_text(HANDLER)
        (place / "declarations").mkdir()
        (place / "declarations" / "0001_first.yaml").write_text(DECLARED)
        flags = ("--database", postgres_url, "--node", name, "--scheduler-mode", "active-passive")
        started.append(Server(place, *flags, "--heartbeat-interval", "1").start())
    yield started[0], started[1]
    for node in started:
        node.stop()


def run_on(node: Server, name: str, data: str | None = None) -> tuple[str, dict[str, str]]:
    """Return the id of a run made by calling a node, and its status when it has ended."""
    [job] = [each for each in node.get("/api/v1/jobs")["Jobs"] if each["JobName"] == name]
    made = node.post("/api/v1/job", {"JobId": job["JobId"], "JobData": data})["ScheduleJobStatusId"]

    def ended() -> dict[str, str] | None:
        [found] = node.post("/api/v1/job-statuses", {"PageSize": 1, "Page": 1, "ScheduleJobStatusId": made})["Items"]
        return found if found["Status"] != "InProgress" else None

    return made, node.wait_until(ended, f"{name} to end")


def test_a_passive_instance_runs_what_it_is_asked_to_run(nodes: tuple[Server, Server]) -> None:
    active, passive = nodes
    assert active.get("/api/v1/instance-status") == {"IsActiveInstance": True, "ActiveInstanceName": "n0"}
    assert passive.get("/api/v1/instance-status") == {"IsActiveInstance": False, "ActiveInstanceName": "n0"}

    made, status = run_on(passive, "MyJob", '["CB_A"]')

    run = passive.get(f"/v1/runs/{number_of(Kind.RUN, made)}")
    assert (status["Status"], run["node"]) == ("Finished", "n1")
    assert run["result"] == {"told": '["CB_A"]', "trace": status["TraceId"]}
    assert len(active.get("/api/v1/jobs")["Jobs"]) == 2  # declared by both, made once

    made, status = run_on(passive, "env")
    log = passive.http.get(f"/v1/runs/{number_of(Kind.RUN, made)}/log").text
    assert f"00-{status['TraceId']}-" in log

    with grpc.insecure_channel(f"127.0.0.1:{passive.grpc_port}") as channel:
        ask = channel.unary_unary(
            f"{SERVICE}/GetJobStatuses",
            pb.GetJobStatusesRequest.SerializeToString,
            pb.GetJobStatusesResponse.FromString,
        )
        grpc.channel_ready_future(channel).result(timeout=60)
        answer = ask(pb.GetJobStatusesRequest(PageSize=10, Page=1), timeout=30)
    assert [item.Status for item in answer.Items] == ["Finished", "Finished"]


def test_a_declaration_that_was_changed_refuses_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "declarations").mkdir()
    file = tmp_path / "declarations" / "0001_first.yaml"
    file.write_text(DECLARED)
    server = Server(tmp_path).start()
    server.stop()
    file.write_text(json.dumps({"delete": ["env"]}))
    again = Server(tmp_path)
    with pytest.raises(AssertionError, match="applied to this database with another text"):
        again.start()
    assert again.process is not None
    assert again.process.returncode == 2
