"""What is seen of real processes from outside: the access log, and traces as a collector receives them, of runs that a
server fired, an agent carried out, and whose jobs tell of themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector import Collector, Received

from .agent import AgentProcess
from .server import Server, free_port

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("traces")]  # they share a server

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_spans.py"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One without an agent of its own."""
    directory = tmp_path_factory.mktemp("traced")
    flags = ("--roles", "api,coordinator,scheduler", "--otlp-endpoint", collector.url, "--access-log", "requests.log")
    made = Server(directory, *flags)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def agent(server: Server, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    flags = ("--otlp-endpoint", collector.url)
    made = AgentProcess(tmp_path_factory.mktemp("agents"), f"127.0.0.1:{server.grpc_port}", "far", *flags).start()
    try:
        yield made.joined()
    finally:
        made.stop()


def trace_of(server: Server, run_id: int) -> str:
    """Return the trace id of a run, as its events tell it."""
    events = server.get("/v1/events", run=run_id)["items"]
    (trace,) = {event["data"]["trace_id"] for event in events}
    return str(trace)


def chain(spans: dict[str, Received], span: Received) -> list[str]:
    """Return the names from a span up to the one without a parent."""
    names = [span.name]
    while span.parent:
        span = spans[span.parent]
        names.append(span.name)
    return names


def the(spans: dict[str, Received], name: str, **attributes: Any) -> Received:
    wanted = {key.replace("_", "."): value for key, value in attributes.items()}
    (found,) = [s for s in spans.values() if s.name == name and wanted.items() <= s.attributes.items()]
    return found


def test_a_workflow_is_one_trace_across_server_agent_and_the_jobs_own_spans(
    server: Server, agent: AgentProcess, collector: Collector
) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "report"}
    report = {"env": env, "steps": [{"name": "write", "run": f"{sys.executable} {EXAMPLE}"}]}
    publish = {"needs": ["report"], "tasks": {"send": {"steps": [{"run": "echo sent"}]}}}
    (job,) = server.submit({"name": "nightly", "tasks": {"report": report, "publish": publish}})
    run = server.post(f"/v1/jobs/{job['id']}/run", status=201)
    assert server.ended(run["id"])["state"] == "succeeded", server.get(f"/v1/runs/{run['id']}")

    trace = trace_of(server, run["id"])
    expected = {"run nightly", "run report", "run publish", "run send", "write the report", "write", "submit"}
    server.wait_until(lambda: expected <= {s.name for s in collector.of(trace).values()}, "all spans of the trace")
    spans = collector.of(trace)

    own = the(spans, "write the report")
    up = ["write", "execute shell", "attempt 1", "run report", "run nightly"]
    assert chain(spans, own) == ["write the report", *up]
    assert own.resource["service.name"] == "report"
    top = the(spans, "run nightly")
    assert (top.parent, top.attributes["horae.job.name"], top.attributes["horae.run.id"]) == ("", "nightly", run["id"])
    assert chain(spans, the(spans, "run send")) == ["run send", "run publish", "run nightly"]
    assert the(spans, "submit").parent == top.span_id
    for name, node in (("write", "far"), ("run report", None)):
        about = the(spans, name).resource
        assert about["service.name"] == "horae"
        assert (about["service.instance.id"] == "far") == (node == "far")
    tasks = [item["id"] for item in server.every("/v1/runs", parent=run["id"])]
    assert {trace_of(server, task) for task in tasks} == {trace}


def test_a_request_that_is_part_of_a_trace_goes_on_with_it_and_is_linked_with_its_run(
    server: Server, agent: AgentProcess, collector: Collector
) -> None:
    trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    silent = "4bf92f3577b34da6a3ce929d0e0e4737"
    (job,) = server.submit({"name": "asked", "steps": [{"run": "true"}]})
    path = f"/v1/jobs/{job['id']}"
    server.http.get(path, headers={"traceparent": f"00-{silent}-{caller}-00"})
    server.http.get(path, headers={"traceparent": "nonsense"})
    run = server.http.post(f"{path}/run", json={}, headers={"traceparent": f"00-{trace}-{caller}-01"}).json()

    server.wait_until(lambda: collector.of(trace), "the span of the request")
    (request,) = collector.of(trace).values()
    assert (request.name, request.parent) == ("POST /v1/jobs/{job_id}/run", caller)
    assert request.attributes["http.response.status_code"] == 201
    own = trace_of(server, run["id"])
    server.wait_until(lambda: "run asked" in {s.name for s in collector.of(own).values()}, "the run to be told")
    spans = collector.of(own)
    assert request.links == ((own, the(spans, "run asked").span_id),)
    assert the(spans, "submit").links == ((trace, request.span_id),)
    assert collector.of(silent) == {}


def test_a_run_of_a_trigger_is_told_with_its_fire(server: Server, agent: AgentProcess, collector: Collector) -> None:
    (job,) = server.submit({"name": "due", "run_once": True, "steps": [{"run": "exit 3"}]})
    run = server.wait_until(lambda: server.get("/v1/runs", job_id=job["id"])["items"], "the run")[0]
    server.ended(run["id"])
    own = trace_of(server, run["id"])
    server.wait_until(lambda: len(collector.of(own)) == 6, "all spans of the run")
    spans = collector.of(own)
    assert {s.name for s in spans.values()} == {"run due", "fire", "claim", "attempt 1", "execute shell", "step 1"}
    assert {s.name for s in spans.values() if s.failed} == {"run due", "attempt 1", "execute shell", "step 1"}
    fire, claim, attempt = (the(spans, name) for name in ("fire", "claim", "attempt 1"))
    assert fire.begun <= fire.ended <= claim.ended <= attempt.begun <= attempt.ended


def test_each_request_is_a_line_of_json_that_lets_nobody_in(server: Server) -> None:
    token = "horae_user_not-a-token-but-secret"
    refused = server.http.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"})
    found = server.http.get("/v1/jobs?limit=1", headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"})
    nowhere = server.http.get(f"/no/such/{token}")
    log = server.directory / "requests.log"
    wanted = {answer.headers["x-request-id"]: answer for answer in (refused, found, nowhere)}

    def lines() -> dict[str, Any]:
        every = map(json.loads, log.read_text().splitlines())
        return {line["request_id"]: line for line in every if line["request_id"] in wanted}

    server.wait_until(lambda: len(lines()) == 3, "the lines of the requests")
    told = lines()
    for request_id, answer in wanted.items():
        line = told[request_id]
        assert (line["status"], line["bytes"]) == (answer.status_code, len(answer.content))
        assert (line["method"], line["from"]) == ("GET", "127.0.0.1")
        assert 0 < line["seconds"] < 60
        assert line["time"].endswith("Z")
    first, second, third = (told[request_id] for request_id in wanted)
    assert (first["route"], second["route"], third["route"]) == ("/v1/jobs", "/v1/jobs", None)
    assert (first["who"], second["who"]) == (None, "local")
    assert (first["trace_id"], second["trace_id"]) == (None, "a" * 32)
    assert token not in log.read_text()
    assert "limit" not in log.read_text()


def test_an_access_log_that_was_moved_away_is_begun_anew(server: Server) -> None:
    log = server.directory / "requests.log"
    server.http.get("/healthz")
    server.wait_until(log.exists, "the log")
    log.rename(server.directory / "requests.1")
    answer = server.http.get("/healthz").headers["x-request-id"]
    server.wait_until(lambda: log.exists() and answer in log.read_text(), "the new log")


def test_runs_go_on_where_no_collector_is_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    server = Server(tmp_path, "--otlp-endpoint", f"http://127.0.0.1:{free_port()}").start()
    try:
        (job,) = server.submit({"name": "alone", "steps": [{"run": "echo $TRACEPARENT"}]})
        run = server.post(f"/v1/jobs/{job['id']}/run", status=201)
        assert server.ended(run["id"])["state"] == "succeeded"

        def dropped() -> bool:
            (line,) = [x for x in server.http.get("/metrics").text.splitlines() if x.startswith("horae_spans_dropped_")]
            return float(line.split()[1]) > 0

        server.wait_until(dropped, "spans to be given up")
    finally:
        server.stop()
