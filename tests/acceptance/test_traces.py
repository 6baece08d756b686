"""Traces as a collector receives them: of a workflow, whose runs were fired by a server, carried out by an agent on
another machine as far as it can tell, and whose jobs tell of themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector import Collector, Received

from .agent import AgentProcess
from .server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("traces")]  # they share a server

OWN_SPAN = """
import os
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

provider = TracerProvider(resource=Resource({"service.name": "report"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=os.environ["COLLECTOR"] + "/v1/traces")))
asked = TraceContextTextMapPropagator().extract({"traceparent": os.environ["TRACEPARENT"]})
with provider.get_tracer("report").start_as_current_span("write the report", context=asked):
    print("written")
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One without an agent of its own."""
    directory = tmp_path_factory.mktemp("traced")
    flags = ("--roles", "api,coordinator,scheduler", "--otlp-endpoint", collector.url)
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
    server: Server, agent: AgentProcess, collector: Collector, tmp_path: Path
) -> None:
    script = tmp_path / "report.py"
    script.write_text(OWN_SPAN)
    env = {"COLLECTOR": collector.url, "PYTHONPATH": ":".join(p for p in sys.path if "site-packages" in p)}
    report = {"env": env, "steps": [{"name": "write", "run": f"{sys.executable} {script}"}]}
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
