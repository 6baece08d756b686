"""A collector of OpenTelemetry as far as tests need one: it listens for OTLP over HTTP, reads what comes with
OpenTelemetry's own messages, and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Received:
    """A span, with the process that told of it."""

    trace_id: str
    span_id: str
    parent: str  # empty: none
    name: str
    begun: int  # ns
    ended: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[tuple[str, str], ...]


class Collector:
    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.held = threading.Event()  # while it is cleared, nobody is answered
        self.held.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.held.wait()
                if self.path == "/v1/traces" and collector.status == 200:
                    is_small = self.headers.get("Content-Encoding") == "gzip"
                    collector.take(gzip.decompress(body) if is_small else body, dict(self.headers))
                self.send_response(collector.status if self.path == "/v1/traces" else 404)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        self.headers.append(headers)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_received(span, about) for span in scope.spans]

    def of(self, trace_id: str) -> dict[str, Received]:
        """Return the spans of a trace by their ids."""
        return {span.span_id: span for span in list(self.spans) if span.trace_id == trace_id}

    def close(self) -> None:
        self.held.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _received(span: Any, about: dict[str, Any]) -> Received:
    return Received(
        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name, span.start_time_unix_nano,
        span.end_time_unix_nano, span.status.code == 2, _values(span.attributes), about,
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
