"""What is told of requests to those who watch: a line in the access log, and a span in the trace of who asked.

What must stay true:
- Nothing that lets somebody in is ever told: no token, no header but the trace, no query, and of a path its template.
- A log that cannot be written, and a collector that is away, hold up no request and fail none.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter, time
from typing import NamedTuple

import msgspec

from horae.core.runs.traces import Caller, read_traceparent
from horae.core.time.moments import format_moment
from horae.ports.telemetry import Attribute, Span, SpanKind, SpanRef, SpanSink
from horae.service.events.tracing import Asking, asking
from horae.web.http import ROUTE, Request

GAP = 0.1  # seconds for which lines are gathered, so that many are one write
MOST_WAITING = 1 << 20  # bytes of lines, beyond which they are written at once
MICROSECONDS = 1_000_000
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_encode = msgspec.json.Encoder().encode


class Answered(NamedTuple):
    """A request that is over."""

    request: Request
    begun_at: int  # µs
    seconds: float
    caller: Caller | None  # of whose trace it is part

    @property
    def route(self) -> str | None:
        """The template of its path; None: nothing is there."""
        route: str | None = self.request.scope.get(ROUTE)
        return route


class Observer:
    """Watches requests. At least one of both wants to know."""

    def __init__(self, log: AccessLog | None = None, spans: RequestSpans | None = None) -> None:
        self._log = log
        self._spans = spans

    async def watch(self, request: Request, respond: Callable[[Request], Awaitable[None]]) -> None:
        """Have a request answered, and tell of it."""
        begun_at, began = int(time() * MICROSECONDS), perf_counter()
        sent = request.by_name.get(b"traceparent")
        caller = None if sent is None else read_traceparent(sent.decode("latin-1"))
        part = None if self._spans is None or caller is None else self._spans.begin(caller)
        within = asking.set(part)
        try:
            await respond(request)
        finally:
            asking.reset(within)
            answered = Answered(request, begun_at, perf_counter() - began, caller)
            if self._log is not None:
                self._log.note(answered)
            if self._spans is not None and part is not None:
                self._spans.end(answered, part)


# ── spans ──────────────────────────────────────────────────────────────────────────────────────────


class RequestSpans:
    """Goes on with traces that come in; whether they are sampled was decided by who began them."""

    def __init__(self, sink: SpanSink) -> None:
        self._sink = sink

    def begin(self, caller: Caller) -> Asking | None:
        return Asking(SpanRef(caller.trace_id, secrets.token_hex(8))) if caller.is_sampled else None

    def end(self, answered: Answered, part: Asking) -> None:
        request, caller = answered.request, answered.caller
        assert caller is not None
        method = request.scope["method"]
        about: dict[str, Attribute] = {
            "http.request.method": method, "http.route": answered.route or "", "horae.request.id": request.id,
            "http.response.status_code": request.status,
        }  # fmt: skip
        if request.who is not None:
            about["enduser.id"] = request.who.name
        span = Span(
            part.at, caller.span_id, f"{method} {answered.route or ''}".strip(), answered.begun_at,
            answered.begun_at + int(answered.seconds * MICROSECONDS), about, SpanKind.SERVER,
            f"status {request.status}" if request.status >= 500 else None, part.made,
        )  # fmt: skip
        self._sink.put([span])


# ── the access log ─────────────────────────────────────────────────────────────────────────────────


class AccessLog:
    """A line of JSON for each request that is over, to standard error or a file. A file that was moved away or removed
    is begun anew. What a full disk does not take is lost, and nothing else."""

    def __init__(self, place: Path | None) -> None:
        """None: to standard error. OSError where the file cannot be written."""
        self._place = place
        self._file = None if place is None else os.open(place, LOG_FLAGS, 0o640)
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, answered: Answered) -> None:
        line = _encode(_described(answered))
        self._lines.append(line)
        self._size += len(line)
        if self._size > MOST_WAITING:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GAP, self._flush)

    def close(self) -> None:
        self._flush()
        if self._file is not None:
            os.close(self._file)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = b"".join(line + b"\n" for line in self._lines)
        self._lines, self._size = [], 0
        if not text:
            return
        with suppress(OSError):
            self._write(text)

    def _write(self, text: bytes) -> None:
        if self._place is None or self._file is None:
            sys.stderr.write(text.decode())
            sys.stderr.flush()
            return
        if not self._is_there():
            new = os.open(self._place, LOG_FLAGS, 0o640)
            os.close(self._file)
            self._file = new
        while text:
            text = text[os.write(self._file, text) :]

    def _is_there(self) -> bool:
        assert self._place is not None
        assert self._file is not None
        try:
            return os.path.samestat(os.stat(self._place), os.fstat(self._file))
        except OSError:
            return False


def _described(answered: Answered) -> dict[str, object]:
    request, caller = answered.request, answered.caller
    client = request.scope.get("client")
    return {
        "time": format_moment(answered.begun_at),
        "method": request.scope["method"],
        "route": answered.route,
        "status": request.status or None,  # none: whoever asked left before
        "seconds": round(answered.seconds, 6),
        "bytes": request.sent,
        "who": None if request.who is None else request.who.name,
        "from": client[0] if client else None,
        "request_id": request.id,
        "trace_id": None if caller is None else caller.trace_id,
    }
