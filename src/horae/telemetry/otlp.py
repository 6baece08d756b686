"""Spans to an OpenTelemetry collector, over HTTP, by a thread of its own.

Whoever makes spans is never held up: they wait in a queue that holds so many and no more, and what a collector does not
take, because it is away or too slow, is dropped and counted. OpenTelemetry's libraries (the extra `otel`) are loaded by
whoever makes a sink, and by nobody else; they read the variables by which it is configured everywhere
(OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from horae.ports.telemetry import Span, SpanRef

log = structlog.get_logger()

MOST_WAITING = 20_000  # spans
TOGETHER = 512  # spans in one request
GAP = 0.5  # seconds for which spans are gathered
TRACES_PATH = "/v1/traces"
NANOSECONDS = 1000  # in a microsecond
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpSink:
    def __init__(self, endpoint: str, about: Mapping[str, str], *, most_waiting: int = MOST_WAITING) -> None:
        """`about` is what tells this process from others, by OpenTelemetry's names; variables win over it."""
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # we say ourselves what goes wrong, and once
        self.sent = 0
        self._refused = self._lost = 0  # spans that found no room, and that were not taken: each counted by one thread
        self._most_waiting = most_waiting
        self._resource = Resource(dict(about)).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("horae", about.get("service.version"))
        self._exporter = OTLPSpanExporter(endpoint=traces_url(endpoint))
        self._waiting: deque[Span] = deque()
        self._has_some = threading.Event()
        self._is_closing = threading.Event()
        self._is_over = False  # nothing more is sent
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._refused + self._lost

    def put(self, spans: Sequence[Span]) -> None:
        room = self._most_waiting - len(self._waiting)
        taken = spans if len(spans) <= room else spans[: max(0, room)]
        self._refused += len(spans) - len(taken)
        self._waiting.extend(taken)
        if taken:
            self._has_some.set()

    def close(self, seconds: float) -> None:
        """Send what is left, if it is taken within the time."""
        self._is_closing.set()
        self._has_some.set()
        self._thread.join(seconds)
        self._is_over = True
        self._exporter.shutdown()  # which ends a request that is under way
        self._refused += len(self._waiting)

    def _run(self) -> None:
        """Until the end is near and nothing is left: whoever closes sets both events, that of news last."""
        while not (self._is_over or (self._is_closing.is_set() and not self._waiting)):
            self._has_some.wait()
            self._has_some.clear()
            self._is_closing.wait(GAP)
            while self._waiting and not self._is_over:
                self._send([self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))])

    def _send(self, spans: Sequence[Span]) -> None:
        try:
            done = self._exporter.export([self._readable(span) for span in spans])
            why = "" if done is SpanExportResult.SUCCESS else "the collector did not take them"
        except Exception as error:  # whatever libraries do, runs go on
            why = str(error)
        if why:
            self._lost += len(spans)
        else:
            self.sent += len(spans)
        if bool(why) != self._is_failing:
            self._is_failing = bool(why)
            log.warning("traces.lost", error=why) if why else log.info("traces.told")

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name, _context(span.at),
            None if span.parent is None else _context(SpanRef(span.at.trace_id, span.parent)), self._resource,
            attributes=dict(span.attributes), links=[Link(_context(link)) for link in span.links],
            kind=SpanKind(int(span.kind)),
            status=Status() if span.failure is None else Status(StatusCode.ERROR, span.failure),
            start_time=span.begun_at * NANOSECONDS, end_time=max(span.begun_at, span.ended_at) * NANOSECONDS,
            instrumentation_scope=self._scope,
        )  # fmt: skip


def _context(ref: SpanRef) -> SpanContext:
    return SpanContext(int(ref.trace_id, 16), int(ref.span_id, 16), is_remote=True, trace_flags=SAMPLED)


def traces_url(endpoint: str) -> str:
    """Return where traces go: an address without a path is that of a collector."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + TRACES_PATH
