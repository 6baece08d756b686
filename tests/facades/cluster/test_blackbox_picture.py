"""The fifth document at a real Horae, on its five ports: every request of it, and one picture of the cluster."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.acceptance.agent import AgentProcess
from tests.acceptance.server import Server, free_ports
from tests.facades.cluster.commands import JOB, calls, data_of, endpoints, missing_fields, refusal_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster-blackbox_picture")]  # one server for all

SCAN = 4  # seconds, where an offer shall end
PATIENT = ("--scan-interval", "10m", "--worker-timeout", "10m")  # however slow the machine is
BRIEF = ("--worker-timeout", "3s", "--heartbeat-interval", "1s", "--lease", "5s")
EXAMPLE = Path(__file__).parents[3] / "examples" / "segment_scheduler.py"
STORE, COORDINATOR, SCHEDULER, AGENT, EXECUTION = range(8081, 8086)
WORKERS, AGENTS = "/api/scheduler-workers", "/api/execution-coordinator/workers"


class Ports(NamedTuple):
    """A Horae with five ports more; the document's are others here, where those may be taken."""

    server: Server
    ports: dict[int, int]

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def send(self, method: str, port: int, path: str, **sent: Any) -> httpx.Response:
        return self.server.http.request(method, self.url(port) + path, **sent)

    def get(self, port: int, path: str, **query: Any) -> Any:
        return data_of(self.send("GET", port, path, params=query))

    def post(self, port: int, path: str, body: Any = None, **query: Any) -> Any:
        return data_of(self.send("POST", port, path, params=query, **({} if body is None else {"json": body})))

    def submit(self, **changes: Any) -> int:
        return int(self.post(STORE, "/api/jobs", {**JOB, **changes})["id"])

    def status(self, job_id: int) -> str:
        return str(self.get(STORE, f"/api/jobs/{job_id}")["status"])

    def wait_for(self, job_id: int, word: str) -> None:
        self.server.wait_until(lambda: self.status(job_id) == word, f"job {job_id} to be {word}")

    def held(self) -> dict[str | None, list[int]]:
        """Return who holds what, as the coordinator says."""
        found: dict[str | None, list[int]] = {}
        for each in self.get(COORDINATOR, "/api/segments"):
            found.setdefault(each["workerId"], []).append(each["segment"])
        return found

    def join(self, name: str, segments: int) -> Any:
        self.post(COORDINATOR, f"{WORKERS}/register", workerId=name)
        return self.post(COORDINATOR, "/api/segments/assign", workerId=name, desiredSegments=segments)

    def agree(self) -> None:
        """Every port says the same of this node: segments, capacity and load. Each is asked on its own, so they are
        asked again when something changed in between."""
        self.server.wait_until(lambda: len({*self._segments(), *self._loads()}) == 2, "all ports to agree")

    def _segments(self) -> Iterator[str]:
        own = self.get(SCHEDULER, "/api/scheduler-worker/segments")
        name = own["workerId"]
        listed = {each["workerId"]: each["assignedSegments"] for each in self.get(COORDINATOR, WORKERS)}
        yield str(own["segments"])
        yield str(self.held().get(name, []))
        yield str(self.get(COORDINATOR, "/api/segments", workerId=name)["segments"])
        yield str(listed[name])
        assert self.get(SCHEDULER, "/api/scheduler-worker/status")["assignedSegmentCount"] == len(own["segments"])

    def _loads(self) -> Iterator[str]:
        status = self.get(AGENT, "/api/worker-agent/status")
        for port, path in ((STORE, "/api/workers"), (EXECUTION, AGENTS)):
            [listed] = [each for each in self.get(port, path) if each["workerId"] == status["workerId"]]
            yield str({field: listed[field] for field in ("capacity", "currentLoad", "status")})
        yield str({field: status[field] for field in ("capacity", "currentLoad", "status")})


def open_ports(directory: Path, *flags: str) -> Ports:
    directory.mkdir(exist_ok=True)
    ports = dict(zip(range(8081, 8086), free_ports(5), strict=True))
    (directory / "horae.toml").write_text(f"compat_ports = {list(ports.values())}\n")
    return Ports(Server(directory, *flags).start(), ports)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """The process has the name of the document's first worker."""
    found = open_ports(tmp_path_factory.mktemp("picture"), "--node", "worker-1", "--slots", "1", *PATIENT)
    yield found
    assert found.server.stop() == 0


@pytest.fixture
def horae(running: Ports) -> Ports:
    """One for all tests here, each of which finds its process holding everything."""
    for name in running.held():
        if name is not None:
            running.send("DELETE", COORDINATOR, "/api/segments/release", params={"workerId": name})
    assert len(running.join("worker-1", 100)) == 100
    return running


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """One that soon gives up who is silent."""
    found = open_ports(tmp_path_factory.mktemp("brief"), *BRIEF)
    yield found
    assert found.server.stop() == 0


# ── the document, request by request; the process has the name of its first worker ──


@pytest.mark.row("segments-scenario-1", "segments-submit", "segments-register-worker", "segments-assign")
def test_scenario_1_ends_as_the_document_says_and_further(horae: Ports) -> None:
    submit, register, assign, check = calls("scenario-1-basic-workflow.sh")
    answers = []
    for call in (submit, register, assign):
        sent = {"content": call.body} if call.body else {}
        answers.append(data_of(horae.send(call.method, call.port, call.path, **sent)))
    job, worker, segments = answers
    assert (job["status"], job["segment"], job["retryCount"]) == ("PENDING", 5, 0)
    assert (worker["workerId"], worker["status"]) == ("worker-1", "ONLINE")
    assert segments == list(range(10))
    horae.agree()
    horae.wait_for(job["id"], "COMPLETED")
    assert horae.get(STORE, re.sub(r"\d+$", str(job["id"]), check.path))["status"] == "COMPLETED"
    [execution] = horae.get(STORE, "/api/executions", jobId=job["id"])
    assert [step["status"] for step in execution["history"]] == ["SCHEDULED", "RUNNING", "COMPLETED"]
    moments = [step["at"] for step in execution["history"]]
    assert moments == sorted(moments)
    assert moments[1:] == [execution["startTime"], execution["endTime"]]


@pytest.mark.row("segments-scenario-2", "segments-one-member")
def test_scenario_2_holds_exactly_with_a_process_and_a_registration(horae: Ports) -> None:
    _, first, _, second = [
        data_of(horae.send(call.method, call.port, call.path)) for call in calls("scenario-2-multiple-workers.sh")
    ]
    assert (first, second) == (list(range(50)), list(range(50, 100)))
    assert horae.held() == {"worker-1": first, "worker-2": second}
    horae.agree()


@pytest.mark.row("segments-scenario-3", "segments-recurring")
def test_scenario_3_a_daily_job_is_pending_again(horae: Ports) -> None:
    [call] = calls("scenario-3-recurring-job.sh")
    job_id = data_of(horae.send(call.method, call.port, call.path, content=call.body))["id"]

    def ran() -> Any:
        found = horae.get(STORE, "/api/executions", jobId=job_id)
        return found and found[0]["status"] == "COMPLETED"

    horae.server.wait_until(ran, "the daily job to run once")
    job = horae.get(STORE, f"/api/jobs/{job_id}")
    assert (job["status"], job["nextRunTime"][-10:], job["frequency"]) == ("PENDING", "T09:00:00Z", "DAILY")
    assert job["lastRunTime"] is not None
    horae.send("DELETE", STORE, f"/api/jobs/{job_id}")


@pytest.mark.row("segments-troubleshooting", "segments-leader", "segments-worker-status", "segments-agent-status")
def test_every_command_of_the_troubleshooting_section_answers(horae: Ports) -> None:
    job_id = horae.submit()
    answers = [
        data_of(horae.send(call.method, call.port, call.path.replace("{id}", str(job_id))))
        for call in calls("troubleshooting.sh")
    ]
    status, segments, job, agent, distribution, leader, worker, held = answers
    assert (status["workerId"], status["status"]) == ("worker-1", "ONLINE")
    assert status["assignedSegmentCount"] == len(segments["segments"])
    assert status["lastScanTime"].endswith("Z")
    assert status["jobsDispatchedCount"] >= 0
    assert (job["id"], agent["status"], len(distribution)) == (job_id, "ONLINE", 100)
    assert (leader["nodeId"], leader["leader"], leader["isLeader"]) == ("worker-1", True, True)
    assert (worker["workerId"], held) == ("worker-1", list(range(10)))


@pytest.mark.row("segments-endpoints", "segments-due", "segments-scheduled", "segments-envelope")
def test_every_request_of_the_text_gives_the_fields_it_shows(horae: Ports) -> None:
    """The scanning flow, of a worker that is no process of Horae: its job waits for it."""
    for told in ({"segments": []}, list(range(10))):  # both forms
        assert horae.post(SCHEDULER, "/api/scheduler-worker/segments", told) == "Segments updated"
    assert horae.join("scanner", 90) == list(range(10, 100))
    job_id = horae.submit(segment=42)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    filled: dict[str, Any] = {"{id}": job_id, "{now}": now, "{assigned}": "42,43"}
    of_port = {"scheduler-worker": SCHEDULER, "worker-agent": AGENT, "job-schedules": STORE, "jobs": STORE}
    for each in endpoints():
        method, path = each["request"].split(" ")
        for mark, value in filled.items():
            path = path.replace(mark, str(value))
        body = each.get("body") and {name: filled.get(str(value), value) for name, value in each["body"].items()}
        answer = horae.send(method, of_port[path.split("/")[2]], path, json=body)
        assert answer.status_code == 200, (each["request"], answer.text)
        assert missing_fields(each["shows"], answer.json()) == [], each["request"]
    horae.wait_for(job_id, "COMPLETED")


# ── segments ──


@pytest.mark.row("segments-push", "segments-push-none", "segments-never-unfired", "segments-no-overlap")
def test_a_push_changes_what_the_worker_holds_and_nothing_is_left_unfired(horae: Ports) -> None:
    for told in ({"segments": [7, 8]}, [7], {"segments": []}):
        wanted = told["segments"] if isinstance(told, dict) else told
        assert horae.post(SCHEDULER, "/api/scheduler-worker/segments", told) == "Segments updated"
        assert horae.get(SCHEDULER, "/api/scheduler-worker/segments")["segments"] == wanted
        horae.agree()
        every = horae.get(COORDINATOR, "/api/segments")
        assert {each["status"] for each in every if each["segment"] not in wanted} == {"AVAILABLE"}
        unheld = horae.submit(segment=50)
        horae.wait_for(unheld, "COMPLETED")
    for wrong in ({"segments": [100]}, {"segments": "x"}, {}, {"segments": None}):
        refusal_of(horae.send("POST", SCHEDULER, "/api/scheduler-worker/segments", json=wrong), 400, "VALIDATION_ERROR")
    assert horae.get(SCHEDULER, "/api/scheduler-worker/segments")["segments"] == []


@pytest.mark.row("segments-precedence", "segments-release", "segments-distribution", "segments-own-members")
def test_registered_workers_come_first_and_horae_holds_the_rest(tmp_path: Path) -> None:
    """On a fresh server, whose node has no name of the document's."""
    horae = open_ports(tmp_path / "fresh", "--node", "here", *PATIENT)
    try:
        assert horae.held() == {"here": list(range(100))}
        assert [each["workerId"] for each in horae.get(COORDINATOR, WORKERS)] == ["here"]
        assert horae.join("worker-1", 50) == list(range(50))
        assert horae.held() == {"worker-1": list(range(50)), "here": list(range(50, 100))}
        horae.agree()
        assert horae.join("worker-2", 50) == list(range(50, 100))
        assert horae.held() == {"worker-1": list(range(50)), "worker-2": list(range(50, 100))}
        horae.agree()
        data_of(horae.send("DELETE", COORDINATOR, "/api/segments/release?workerId=worker-1"))
        assert horae.held() == {"here": list(range(50)), "worker-2": list(range(50, 100))}
        metrics = horae.server.http.get("/metrics").text
        assert float(_metric(metrics, "horae_rebalances_total")) >= 4  # its own, two given, one released
    finally:
        horae.server.stop()


def _metric(text: str, name: str) -> str:
    return next((line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")), "0")


@pytest.mark.row("segments-offer-stands", "segments-load-per-segment", "segments-moments-once")
def test_a_job_of_a_held_segment_stays_offered_and_is_counted_once(tmp_path: Path) -> None:
    horae = open_ports(tmp_path / "offers", "--scan-interval", f"{SCAN}s", "--worker-timeout", "10m")
    try:
        assert len(horae.join("holder", 100)) == 100
        job_id = horae.submit(segment=33)
        horae.wait_for(job_id, "COMPLETED")
        job, text = horae.get(STORE, f"/api/jobs/{job_id}"), horae.server.http.get("/metrics").text
        [execution] = horae.get(STORE, "/api/executions", jobId=job_id)
        waited = datetime.fromisoformat(execution["createdAt"]) - datetime.fromisoformat(job["createdAt"])
        assert waited.total_seconds() >= SCAN
        assert _metric(text, "horae_moments_scanned_total") == "1.0"
        assert _metric(text, 'horae_segment_load_total{segment="33"}') == "1.0"
    finally:
        horae.server.stop()


@pytest.mark.row("segments-scheduled-seen", "segments-capacity", "segments-load", "segments-running", "segments-health")
def test_a_fired_job_is_scheduled_until_it_starts_and_load_is_the_same_everywhere(horae: Ports) -> None:
    """One slot for processes: the second waits for the first."""
    first = horae.submit(payload={"steps": [{"run": "while [ ! -e go ]; do sleep 0.1; done"}]})
    horae.wait_for(first, "RUNNING")
    second = horae.submit(payload={"steps": [{"run": "true"}]})
    horae.wait_for(second, "SCHEDULED")
    agent = horae.get(EXECUTION, f"{AGENTS}/worker-1")
    health = horae.get(EXECUTION, "/api/execution-coordinator/health")
    assert (agent["currentLoad"], health["usedCapacity"]) == (1, 1)
    assert agent["capacity"] == health["totalCapacity"]
    horae.agree()
    assert horae.status(second) == "SCHEDULED"
    assert [each["jobId"] for each in horae.get(AGENT, "/api/worker-agent/jobs/running")] == [first]
    [mine] = horae.get(EXECUTION, "/api/execution-coordinator/assignments", workerId="worker-1")
    assert mine["jobId"] == first
    horae.send("DELETE", STORE, f"/api/jobs/{first}")
    horae.wait_for(second, "COMPLETED")


# ── members ──


@pytest.mark.row("segments-silent", "segments-left", "segments-heartbeat", "segments-agent-register")
def test_a_silent_member_is_unhealthy_and_one_that_left_is_offline(brief: Ports) -> None:
    assert brief.join("quiet", 5) == [0, 1, 2, 3, 4]
    brief.post(EXECUTION, f"{AGENTS}/quiet", {"host": "127.0.0.1", "port": 9, "capacity": 4})
    brief.post(EXECUTION, f"{AGENTS}/gone", {"capacity": 4})
    assert brief.post(EXECUTION, f"{AGENTS}/gone/heartbeat", {"currentLoad": 2}) == "Heartbeat recorded"
    assert brief.get(EXECUTION, f"{AGENTS}/gone")["currentLoad"] == 2
    names = [
        [each["workerId"] for each in brief.get(*where)] for where in ((STORE, "/api/workers"), (EXECUTION, AGENTS))
    ]
    assert names[0] == names[1]
    assert {"gone", "quiet"} < {*names[0]}
    data_of(brief.send("DELETE", EXECUTION, f"{AGENTS}/gone"))
    brief.server.wait_until(lambda: brief.get(EXECUTION, f"{AGENTS}/quiet")["status"] == "UNHEALTHY", "its silence")
    brief.server.wait_until(lambda: "quiet" not in brief.held(), "its segments to go to others")
    shown = {each["workerId"]: each["status"] for each in brief.get(STORE, "/api/workers")}
    assert (shown["quiet"], shown["gone"]) == ("UNHEALTHY", "OFFLINE")
    assert "quiet" not in [each["workerId"] for each in brief.get(COORDINATOR, WORKERS)]
    assert brief.get(EXECUTION, "/api/execution-coordinator/health")["unhealthyWorkers"] == 1
    assert brief.post(COORDINATOR, f"{WORKERS}/heartbeat", workerId="quiet")["status"] == "ONLINE"
    refusal_of(brief.send("POST", COORDINATOR, f"{WORKERS}/heartbeat?workerId=nobody"), 404, "WORKER_NOT_FOUND")
    data_of(brief.send("DELETE", EXECUTION, f"{AGENTS}/quiet"))


@pytest.mark.row("segments-own-agent-offline")
def test_an_agent_of_horae_that_is_told_to_stop_is_offline_and_one_that_is_killed_unhealthy(
    brief: Ports, tmp_path: Path
) -> None:
    def agent(name: str) -> AgentProcess:
        return AgentProcess(tmp_path, f"127.0.0.1:{brief.server.grpc_port}", name).start().joined()

    def shows(name: str, word: str) -> bool:
        return bool(brief.get(EXECUTION, f"{AGENTS}/{name}")["status"] == word)

    stopped, killed = agent("stopped"), agent("killed")
    try:
        brief.server.wait_until(lambda: shows("stopped", "ONLINE"), "it to be seen")
        stopped.signal(signal.SIGTERM)
        killed.signal(signal.SIGKILL)
        brief.server.wait_until(lambda: shows("stopped", "OFFLINE"), "the one that was told to stop")
        brief.server.wait_until(lambda: shows("killed", "UNHEALTHY"), "the one that was killed")
    finally:
        for each in (stopped, killed):
            assert each.process is not None
            each.process.kill()
            each.process.wait()


@pytest.mark.row("segments-no-leader")
def test_when_the_last_coordinator_has_died_nobody_leads(postgres_url: str, tmp_path: Path) -> None:
    def start(name: str, *flags: str) -> Server:
        (tmp_path / name).mkdir()
        timers = ("--heartbeat-interval", "1s", "--lease", "4s")
        return Server(tmp_path / name, "--database", postgres_url, "--node", name, *timers, *flags).start()

    first = start("c1")
    second = start("api1", "--roles", "api")
    try:
        leader = "/api/coordinator/leader"
        second.wait_until(lambda: second.http.get(leader).json()["data"], "somebody to lead")
        assert second.get(leader)["data"]["nodeId"] == "c1"
        first.kill()
        second.wait_until(lambda: second.http.get(leader).status_code == 503, "nobody to lead")
        refusal_of(second.http.get(leader), 503, "NO_LEADER")
        second.wait_until(lambda: second.get("/api/scheduler-workers")["data"] == [], "its scheduler to be silent")
        second.wait_until(lambda: second.get("/api/workers")["data"][0]["status"] == "UNHEALTHY", "its agent too")
    finally:
        first.stop()
        second.stop()


# ── what is sent, and by whom ──


@pytest.mark.row("segments-payload-limit", "segments-validation")
def test_the_limit_of_a_payload_is_in_the_message(horae: Ports) -> None:
    fits = "x" * (256 * 1024 - 20)
    job_id = horae.submit(payload=fits)
    horae.wait_for(job_id, "COMPLETED")
    answer = horae.send("POST", STORE, "/api/jobs", json={**JOB, "payload": fits + "x" * 100})
    said = refusal_of(answer, 400, "VALIDATION_ERROR")
    assert "payload" in said
    assert "256 KiB" in said
    for changes, words in (({"jobName": " "}, "Job name is required"), ({"payload": None}, "Payload is required")):
        answer = horae.send("POST", STORE, "/api/jobs", json={**JOB, **changes})
        assert words in refusal_of(answer, 400, "VALIDATION_ERROR")


@pytest.mark.row("segments-example-scheduler")
def test_a_scheduler_worker_by_the_book_passes_a_job_and_releases_its_segments(horae: Ports, tmp_path: Path) -> None:
    argv = [sys.executable, str(EXAMPLE), "--worker-id", "by-the-book", "--job-store", horae.url(STORE)]
    argv += ["--coordinator", horae.url(COORDINATOR), "--agent", horae.url(AGENT)]
    argv += ["--scan-interval", "0.2", "--heartbeat-interval", "0.5"]
    horae.post(SCHEDULER, "/api/scheduler-worker/segments", [])
    with (tmp_path / "scheduler.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        horae.server.wait_until(lambda: len(horae.held().get("by-the-book", [])) == 100, "it to hold all segments")
        job_id = horae.submit(segment=77)
        horae.wait_for(job_id, "COMPLETED")
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = (tmp_path / "scheduler.log").read_text()
    assert f"job {job_id} dispatched" in said, said
    assert "by-the-book" not in horae.held()
