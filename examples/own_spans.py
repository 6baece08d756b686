"""A program that a step starts and that tells of itself: its span belongs to that step, in the trace of the run.

    steps: [{name: write, run: python examples/own_spans.py}]

Needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http. Where the spans go is said by
OTEL_EXPORTER_OTLP_ENDPOINT, and of which trace they are by TRACEPARENT, which Horae sets.
"""

from __future__ import annotations

import os
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    step = TraceContextTextMapPropagator().extract({"traceparent": os.environ.get("TRACEPARENT", "")})
    with provider.get_tracer("report").start_as_current_span("write the report", context=step):
        sys.stdout.write("written\n")


if __name__ == "__main__":
    main()
