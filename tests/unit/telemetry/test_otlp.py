"""Spans on their way to a collector: as they were made, never in the way, and counted where they are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from horae.ports.telemetry import Span, SpanKind, SpanRef
from horae.telemetry.otlp import OtlpSink, traces_url

from ...collector import Collector

DEADLINE = 180.0
ABOUT = {"service.name": "horae", "service.version": "1.2.3", "service.instance.id": "n1"}


def wait_until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + DEADLINE
        time.sleep(0.01)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def span(number: int = 1, **fields: object) -> Span:
    at = SpanRef("ab" * 16, f"{number:016x}")
    made = Span(at, "cd" * 8, f"span {number}", 1_000_000, 3_000_000, {"horae.run.id": number, "ok": True, "x": 0.5})
    return made._replace(**fields)


def test_a_span_arrives_as_it_was_made(collector: Collector):
    sink = OtlpSink(collector.url, ABOUT)
    link = SpanRef("12" * 16, "34" * 8)
    sink.put([span(kind=SpanKind.SERVER, failure="it broke", links=[link]), span(2, parent=None)])
    sink.close(DEADLINE)
    first, second = collector.spans
    assert (first.trace_id, first.span_id, first.parent, first.name) == ("ab" * 16, f"{1:016x}", "cd" * 8, "span 1")
    assert (first.begun, first.ended, first.failed, first.links) == (10**9, 3 * 10**9, True, (tuple(link),))
    assert first.attributes == {"horae.run.id": 1, "ok": True, "x": 0.5}
    assert first.resource.items() >= ABOUT.items()
    assert (second.parent, second.failed) == ("", False)
    assert (sink.sent, sink.dropped) == (2, 0)


def test_who_names_the_service_or_sends_headers_by_variables_is_heard(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "scheduler")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=ops")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    sink = OtlpSink(collector.url, ABOUT)
    sink.put([span()])
    sink.close(DEADLINE)
    (received,) = collector.spans
    assert received.resource["service.name"] == "scheduler"
    assert received.resource["deployment.environment.name"] == "test"
    assert collector.headers[0]["x-team"] == "ops"


def test_a_collector_that_refuses_costs_spans_and_nothing_else(collector: Collector):
    sink = OtlpSink(collector.url, ABOUT)
    collector.status = 400
    sink.put([span(n) for n in range(3)])
    wait_until(lambda: sink.dropped == 3)
    collector.status = 200
    sink.put([span(9)])
    wait_until(lambda: sink.sent == 1)
    sink.close(DEADLINE)
    assert [one.name for one in collector.spans] == ["span 9"]


def test_of_a_collector_that_is_too_slow_so_many_spans_wait_and_the_rest_is_dropped_at_once(collector: Collector):
    sink = OtlpSink(collector.url, ABOUT, most_waiting=10)
    collector.held.clear()
    began = time.monotonic()
    for number in range(1000):
        sink.put([span(number)])
    assert time.monotonic() - began < DEADLINE / 10  # nobody waits for it
    assert sink.dropped >= 1000 - 10 - 512
    collector.held.set()
    sink.close(DEADLINE)
    assert sink.sent + sink.dropped == 1000


def test_an_end_does_not_wait_for_a_collector_that_never_answers(collector: Collector):
    sink = OtlpSink(collector.url, ABOUT)
    collector.held.clear()
    sink.put([span(n) for n in range(600)])
    began = time.monotonic()
    sink.close(0.2)
    assert time.monotonic() - began < DEADLINE / 10


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://c.example/", "https://c.example/v1/traces"),
        ("https://c.example/otlp/v1/traces", "https://c.example/otlp/v1/traces"),
    ],
)
def test_an_address_with_a_path_is_taken_as_it_is(endpoint: str, url: str):
    assert traces_url(endpoint) == url
