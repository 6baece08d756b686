"""The administration document against real servers: every request of it, over REST and gRPC, and what its users expect.

One server on SQLite for what one node does; two nodes on a PostgreSQL of their own for who is active.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from horae.wire.generated import administration_service_pb2
from tests.acceptance.server import Server, horae
from tests.contract.postgres_server import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("admin_blackbox")]

SERVICE = administration_service_pb2.DESCRIPTOR.services_by_name["TaskSchedulingService"]
OWN_JOB, OWN_TRIGGER = "2a3f6b0e-6d2c-4b9a-9a53-5c1f6e0d7b11", "7F0C6C3A-9D0B-4C63-8F5C-2B7B1B9C0D21"
NAMESPACE = "CIS.InternalServices.TaskSchedulingService.Api.Jobs"
HANDLER = """
import asyncio
from pathlib import Path

from horae import Context


class MyJobHandler:
    def __init__(self, context: Context) -> None:
        self.context = context

    async def execute(self, job_data, cancellation):
        if job_data == "fail":
            Path("/srv/private/of-the-server/codebooks.csv").read_text()
        while job_data and Path(job_data).is_absolute() and not Path(job_data).exists():
            await asyncio.sleep(0.02)
        return {"told": job_data, "trace": self.context.trace_id}
"""
DECLARED = f"""
jobs:
  - ScheduleJobId: {OWN_JOB}
    JobName: MyJob
    JobType: {NAMESPACE}.MyJob.MyJobHandler
    Description: Takes over codebooks
    Triggers:
      - ScheduleTriggerId: {OWN_TRIGGER}
        TriggerName: nightly
        Cron: "0 3 * * *"
        JobData: '["CB_A","CB_B"]'
      - TriggerName: never
        Cron: "*/15 * * * *"
        IsDisabled: true
  - ScheduleJobId: 11111111-2222-4333-8444-555555555555
    JobName: Paused
    JobType: {NAMESPACE}.MyJob.MyJobHandler
    IsDisabled: true
"""


def prepared(place: Path, declared: str = DECLARED) -> Path:
    """Return a directory as the original's repository has it: Jobs/MyJob/MyJobHandler, and the jobs declared."""
    (place / "Jobs" / "MyJob").mkdir(parents=True)
    (place / "Jobs" / "MyJob" / "MyJobHandler.py").write_text(HANDLER)
    (place / "Jobs" / "MyJob" / "LoggerExtensions.py").write_text("def log_started(logger): ...\n")
    (place / "declarations").mkdir()
    (place / "declarations" / "0001_first.yaml").write_text(declared)
    return place


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(prepared(tmp_path_factory.mktemp("admin"))).start()
    yield running
    running.stop()


def call(node: Server, name: str, **fields: Any) -> dict[str, Any]:
    """Return a call over gRPC, as a dictionary of what it answers."""
    method = SERVICE.methods_by_name[name]
    asked, given = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    wrapped = {key: {"value": fields[key]} for key in ("TraceId", "ScheduleJobStatusId", "JobData") if key in fields}
    with grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=120)
        ask = channel.unary_unary(
            f"/{SERVICE.full_name}/{name}", lambda message: message.SerializeToString(), given.FromString
        )
        return MessageToDict(ask(asked(**{**fields, **wrapped}), timeout=60), preserving_proto_field_name=True)


def refusal(node: Server, method: str, path: str, status: int, body: Any = None) -> tuple[int, str]:
    """Code and message of a request that is refused, which has the contract's shape."""
    answer = node.http.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert (sorted(document), document["details"]) == (["code", "details", "message"], [])
    return document["code"], document["message"]


def run_now(node: Server, job_id: str = OWN_JOB, data: str | None = None) -> str:
    body = {"JobId": job_id} if data is None else {"JobId": job_id, "JobData": data}
    return str(node.post("/api/v1/job", body)["ScheduleJobStatusId"])


def status_of(node: Server, status_id: str) -> dict[str, Any]:
    body = {"PageSize": 1, "Page": 1, "ScheduleJobStatusId": status_id}
    [found] = node.post("/api/v1/job-statuses", body)["Items"]
    return dict(found)


def ended(node: Server, status_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = status_of(node, status_id)
        return found if found["Status"] != "InProgress" else None

    return dict(node.wait_until(look, f"{status_id} to end"))


def native_run(node: Server, status: dict[str, Any]) -> dict[str, Any]:
    return dict(node.get(f"/v1/runs/{int(status['TraceId'][16:], 16)}"))


# ── what there is ──


@pytest.mark.row("admin-jobs", "admin-guid-job", "admin-handler-layout")
def test_jobs_have_the_guids_and_words_that_were_declared(server: Server):
    my_job, off = server.get("/api/v1/jobs")["Jobs"]
    assert my_job == {
        "JobId": OWN_JOB, "JobName": "MyJob", "JobType": f"{NAMESPACE}.MyJob.MyJobHandler",
        "Description": "Takes over codebooks", "IsDisabled": False,
    }  # fmt: skip
    assert (off["JobName"], off["IsDisabled"], "Description" in off) == ("Paused", True, False)
    over_grpc = [{"IsDisabled": False, **job} for job in call(server, "GetJobs")["Jobs"]]
    assert over_grpc == [my_job, off]


@pytest.mark.row("admin-triggers", "admin-guid-trigger")
def test_triggers_have_the_guids_and_names_that_were_declared(server: Server):
    nightly, never = server.get("/api/v1/triggers")["Triggers"]
    assert nightly == {
        "TriggerId": OWN_TRIGGER.lower(), "JobId": OWN_JOB, "JobName": "MyJob", "TriggerName": "nightly",
        "JobType": f"{NAMESPACE}.MyJob.MyJobHandler", "CronExpression": "0 3 * * *",
        "CronExpressionText": nightly["CronExpressionText"], "IsDisabled": False,
    }  # fmt: skip
    assert "03:00" in nightly["CronExpressionText"]
    assert (never["TriggerName"], never["IsDisabled"]) == ("never", True)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", never["TriggerId"])
    over_grpc = [{"IsDisabled": False, **each} for each in call(server, "GetTriggers")["Triggers"]]
    assert over_grpc == [nightly, never]


# ── what can be done ──


@pytest.mark.row("admin-execute", "admin-guid-any-form")
@pytest.mark.parametrize("form", [OWN_JOB, OWN_JOB.upper(), f"{{{OWN_JOB}}}", OWN_JOB.replace("-", "")])
def test_a_job_is_run_by_its_own_guid_however_it_is_written(server: Server, form: str):
    status = ended(server, run_now(server, form, '["CB_A"]'))
    assert (status["Status"], status["JobId"]) == ("Finished", OWN_JOB)
    assert native_run(server, status)["result"]["told"] == '["CB_A"]'


@pytest.mark.row("admin-execute-grpc", "admin-statuses-filters", "admin-trace-run")
def test_over_grpc_a_run_is_made_and_found_by_its_id_and_its_trace(server: Server):
    made = call(server, "ExecuteJob", JobId=OWN_JOB, JobData="free text")["ScheduleJobStatusId"]
    status = ended(server, made)
    by_trace = call(server, "GetJobStatuses", PageSize=5, Page=1, TraceId=status["TraceId"])["Items"]
    by_both = call(server, "GetJobStatuses", PageSize=5, Page=1, TraceId=status["TraceId"], ScheduleJobStatusId=made)
    assert [item["ScheduleJobStatusId"] for item in by_trace] == [made]
    assert [item["Status"] for item in by_both["Items"]] == ["Finished"]
    assert native_run(server, status)["result"] == {"told": "free text", "trace": status["TraceId"]}
    assert "TriggerId" not in status


@pytest.mark.row("admin-statuses", "admin-statuses-order")
def test_history_is_paged_newest_first(server: Server):
    made = [run_now(server) for _ in range(3)]
    for one in made:
        ended(server, one)
    pages = [server.post("/api/v1/job-statuses", {"PageSize": 2, "Page": page})["Items"] for page in (1, 2)]
    found = [item["ScheduleJobStatusId"] for page in pages for item in page]
    assert found[:3] == made[::-1]
    assert {item["Status"] for page in pages for item in page} <= {"Finished", "Failed", "FailedBecauseOfLock"}


@pytest.mark.row("admin-reload")
def test_triggers_are_read_again(server: Server):
    assert server.http.put("/api/v1/scheduler").json() == {}
    assert call(server, "UpdateScheduler") == {}


@pytest.mark.row("admin-instance-status")
def test_an_instance_says_whether_it_is_the_active_one(server: Server):
    status = server.get("/api/v1/instance-status")
    assert status["IsActiveInstance"] is True
    assert call(server, "GetInstanceStatus") == status


@pytest.mark.row("admin-lock", "admin-started-at")
def test_a_job_never_runs_twice_at_once_and_its_start_never_moves(server: Server, tmp_path: Path):
    gate = tmp_path / "go"
    first = run_now(server, data=str(gate))
    seen = [status_of(server, first)["StartedAt"]]
    server.wait_until(lambda: native_run(server, status_of(server, first))["state"] == "running", "it to run")
    seen.append(status_of(server, first)["StartedAt"])
    second = ended(server, run_now(server))
    assert second["Status"] == "FailedBecauseOfLock"
    gate.touch()
    done = ended(server, first)
    assert done["Status"] == "Finished"
    assert [*seen, done["StartedAt"]] == [seen[0]] * 3
    assert "StatusChangedAt" in done


@pytest.mark.row("admin-failed-message")
def test_a_failure_says_why_and_not_where_things_lie_on_the_server(server: Server):
    status = ended(server, run_now(server, data="fail"))
    assert status["Status"] == "Failed"
    assert "codebooks.csv" in status["FailedMessage"]
    assert "/srv" not in status["FailedMessage"]
    (server.directory / "Jobs" / "Broken").mkdir()
    (server.directory / "Jobs" / "Broken" / "BrokenHandler.py").write_text("x = open('/etc/not/there.ini')\n")
    server.submit(
        {"name": "broken", "key": "99999999-2222-4333-8444-555555555555", "handler": "jobs/Broken"},
        {"name": "absent", "key": "88888888-2222-4333-8444-555555555555", "handler": "jobs/Absent"},
    )
    for guid in ("99999999-2222-4333-8444-555555555555", "88888888-2222-4333-8444-555555555555"):
        status = ended(server, run_now(server, guid))
        assert status["Status"] == "Failed"
        assert not re.search(r"(?<![\w…])/\w+/", status["FailedMessage"]), status["FailedMessage"]
        assert str(server.directory) not in status["FailedMessage"]


# ── what is refused ──


@pytest.mark.row("admin-refusals")
def test_what_makes_no_sense_is_refused_in_the_contracts_own_shape(server: Server):
    assert refusal(server, "POST", "/api/v1/job", 400, {"JobId": "7"})[0] == 3
    assert refusal(server, "POST", "/api/v1/job", 404, {"JobId": OWN_TRIGGER})[0] == 5
    assert refusal(server, "POST", "/api/v1/job", 400, {"JobId": "11111111-2222-4333-8444-555555555555"})[0] == 9
    for body in ({"PageSize": 0, "Page": 1}, {"PageSize": 1, "Page": -1}, {"PageSize": "x", "Page": 1}):
        assert refusal(server, "POST", "/api/v1/job-statuses", 400, body)[0] == 3
    with pytest.raises(grpc.RpcError) as refused:
        call(server, "ExecuteJob", JobId="no guid")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.row("admin-check")
def test_check_finds_a_job_type_without_a_handler(tmp_path: Path):
    place = prepared(tmp_path)
    argv = [horae(), "check", "--data", str(place / "data")]

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=180)

    assert (sound := check()).returncode == 0, sound.stderr
    more = DECLARED.replace(OWN_JOB, "33333333-2222-4333-8444-555555555555").replace("MyJob", "Forgotten")
    (place / "declarations" / "0002_more.yaml").write_text(more)
    found = check()
    assert found.returncode == 2
    assert f"{NAMESPACE}.Forgotten.ForgottenHandler" in found.stderr
    (place / "declarations" / "0003_back.yaml").write_text(
        json.dumps({"delete": ["33333333-2222-4333-8444-555555555555", "11111111-2222-4333-8444-555555555555"]})
    )
    assert check().returncode == 0


# ── what changes ──

EVERY_SECOND = f"""
jobs:
  - ScheduleJobId: {OWN_JOB}
    JobName: MyJob
    JobType: {NAMESPACE}.MyJob.MyJobHandler
    Triggers:
      - {{ScheduleTriggerId: {OWN_TRIGGER}, TriggerName: often, Cron: "* * * * * *"}}
      - {{TriggerName: by name, Cron: "0 5 * * *"}}
"""


@pytest.mark.row("admin-cron-change", "admin-trace-unique")
def test_a_changed_cron_keeps_its_trigger_and_its_history(server: Server, tmp_path: Path):
    place = prepared(tmp_path, EVERY_SECOND)
    node = Server(place).start()

    def fired() -> list[dict[str, Any]]:
        items = node.post("/api/v1/job-statuses", {"PageSize": 100, "Page": 1})["Items"]
        return [item for item in items if item["Status"] == "Finished"]

    before = node.wait_until(fired, "the trigger to fire")[-1]
    triggers = node.get("/api/v1/triggers")["Triggers"]
    node.stop()
    changed = EVERY_SECOND.replace("* * * * * *", "0 4 * * *").replace("0 5 * * *", "0 6 * * *")
    (place / "declarations" / "0002_later.yaml").write_text(changed)
    node = Server(place).start()
    try:
        now = node.get("/api/v1/triggers")["Triggers"]
        assert [each["CronExpression"] for each in now] == ["0 4 * * *", "0 6 * * *"]
        assert [each["TriggerId"] for each in now] == [each["TriggerId"] for each in triggers]
        [same] = [item for item in fired() if item["ScheduleJobStatusId"] == before["ScheduleJobStatusId"]]
        assert same == before
        assert (same["TriggerId"], same["TriggerName"], same["JobId"]) == (OWN_TRIGGER.lower(), "often", OWN_JOB)
        other = status_of(server, run_now(server))
        assert other["TraceId"][:16] != same["TraceId"][:16]  # of another installation
        assert server.post("/api/v1/job-statuses", {"PageSize": 1, "Page": 1, "TraceId": same["TraceId"]}) == {
            "Items": []
        }
    finally:
        node.stop()


# ── two nodes ──

TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "4s")
# More than one slot can do, so that a second node would take some of it, if it might.
SCHEDULED = """
jobs:
  - {key: a, name: a, handler: "horae.handlers:echo", schedule: 1s}
  - {key: b, name: b, steps: [{run: sleep 0.4}], schedule: 1s}
  - {key: c, name: c, steps: [{run: sleep 0.4}], schedule: 1s}
  - {key: d, name: d, steps: [{run: sleep 0.4}], schedule: 1s}
"""


class Cluster:
    """Two nodes in active-passive mode, on a database that can stand still."""

    def __init__(self, place: Path, database: Postgres) -> None:
        self.place, self.database = place, database
        self.active, self.passive = (self.node(name) for name in ("n0", "n1"))

    def node(self, name: str, *flags: str, directory: str = "") -> Server:
        place = self.place / (directory or name)
        place.mkdir()
        return Server(
            prepared(place, DECLARED + SCHEDULED.replace("jobs:\n", "").strip("\n") + "\n"), "--database",
            self.database.url, "--node", name, "--scheduler-mode", "active-passive", "--slots", "1",
            *(flags or TIMERS),
        )  # fmt: skip

    def scheduled(self, after: int = 0) -> list[dict[str, Any]]:
        runs = self.passive.get("/v1/runs", limit=200)["items"]
        return [run for run in runs if run["trigger_id"] and run["started_at"] and run["id"] > after]


@contextmanager
def running_cluster(place: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        database = Postgres.make()
        stack.callback(database.remove)
        made = Cluster(place, database.start())
        for node in (made.active, made.passive):
            node.start()
            stack.callback(node.stop)
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def breakable(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster for a test that breaks it."""
    with running_cluster(tmp_path) as made:
        yield made


@pytest.mark.row("admin-active-runs", "admin-active-log", "admin-instance-status-passive")
def test_only_the_active_node_runs_what_is_scheduled(cluster: Cluster):
    active, passive = cluster.active, cluster.passive
    assert active.get("/api/v1/instance-status") == {"IsActiveInstance": True, "ActiveInstanceName": "n0"}
    assert passive.get("/api/v1/instance-status") == {"IsActiveInstance": False, "ActiveInstanceName": "n0"}
    both_up = max((run["id"] for run in cluster.scheduled()), default=0)
    runs = passive.wait_until(lambda: len(found := cluster.scheduled(both_up)) >= 12 and found, "runs")
    assert {run["node"] for run in runs} == {"n0"}
    passive.wait_until(lambda: "node.passive" in passive.log(), "the standby to say so")
    active.wait_until(lambda: "node.active" in active.log(), "the active one to say so")


@pytest.mark.row("admin-execute-here")
def test_a_standby_runs_what_it_is_asked_to_run(cluster: Cluster):
    status = ended(cluster.passive, run_now(cluster.passive))
    assert (status["Status"], native_run(cluster.passive, status)["node"]) == ("Finished", "n1")


@pytest.mark.row("admin-duplicate-node")
def test_a_second_process_of_a_name_is_refused_and_told_who_has_it(cluster: Cluster):
    second = cluster.node("n0", directory="twin")
    with pytest.raises(AssertionError, match="the server ended with 5"):
        second.start()
    second.http.close()
    said = second.log()
    process = cluster.active.process
    assert process is not None
    host = os.uname().nodename
    assert re.search(
        rf"pid {process.pid} on {re.escape(host)}.*, at 127\.0\.0\.1:{cluster.active.port}, since 20", said
    )
    newest = max((run["id"] for run in cluster.scheduled()), default=0)
    found = cluster.active.wait_until(lambda: cluster.scheduled(newest), "runs to go on")
    assert {run["node"] for run in found} == {"n0"}


@pytest.mark.row("admin-timers")
def test_a_node_with_other_timers_takes_those_of_the_cluster_and_says_so(cluster: Cluster):
    other = cluster.node("n2", "--roles", "api", "--heartbeat-interval", "30s", "--lease", "90s").start()
    try:
        assert "timers.differ" in other.log()
        assert "heartbeat_interval 0.5 instead of 30.0" in other.log()
        assert "lease 4.0 instead of 90.0" in other.log()
    finally:
        other.stop()


@pytest.mark.row("admin-instance-status-frozen")
@pytest.mark.long
def test_instance_status_is_answered_while_the_database_stands_still(breakable: Cluster):
    active = breakable.active
    active.get("/api/v1/instance-status")
    answers, seconds = [], []

    def ask(question: Callable[[], dict[str, Any]]) -> None:
        asked = time.monotonic()
        status = question()
        seconds.append(time.monotonic() - asked)
        answers.append((status.get("IsActiveInstance", False), status["ActiveInstanceName"]))

    call(active, "GetInstanceStatus")
    breakable.database.freeze()
    try:
        until = time.monotonic() + 9  # beyond the lease
        while time.monotonic() < until:
            ask(lambda: active.get("/api/v1/instance-status"))
            time.sleep(0.02)  # others work meanwhile
        ask(lambda: call(active, "GetInstanceStatus"))
        assert answers[-2:] == [(False, "FAILED_TO_GET_LOCK")] * 2
        assert set(answers) <= {(True, "n0"), (False, "FAILED_TO_GET_LOCK")}
        assert sorted(seconds)[len(seconds) // 2] < 5
        assert max(seconds) < 20  # on a machine that hardly moves; it was 41 on one that did
    finally:
        breakable.database.thaw()
    active.wait_until(lambda: active.get("/api/v1/instance-status")["ActiveInstanceName"] in ("n0", "n1"), "an answer")


@pytest.mark.row("admin-failover")
def test_when_the_active_node_dies_the_standby_takes_over_and_says_so(breakable: Cluster):
    passive = breakable.passive
    active = {"n0": breakable.active, "n1": passive}[passive.get("/api/v1/instance-status")["ActiveInstanceName"]]
    other = breakable.active if active is passive else passive
    active.kill()
    name = "n1" if other is passive else "n0"
    other.wait_until(lambda: other.get("/api/v1/instance-status")["IsActiveInstance"], "the standby to be active")
    newest = max(run["id"] for run in other.get("/v1/runs", limit=1)["items"])

    def taken() -> list[dict[str, Any]]:
        runs = other.get("/v1/runs", limit=200)["items"]
        return [run for run in runs if run["id"] > newest and run["trigger_id"] and run["state"] == "succeeded"]

    runs = other.wait_until(taken, "scheduled runs")
    assert {run["node"] for run in runs} == {name}
    assert "node.active" in other.log()
