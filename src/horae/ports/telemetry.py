"""What is told to systems that watch Horae from outside.

SpanSink   takes spans of traces                                            (telemetry/otlp)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from horae.core.model import Moment

Attribute = str | int | float | bool


class SpanKind(IntEnum):
    """As OpenTelemetry counts them."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3
    CONSUMER = 4


class SpanRef(NamedTuple):
    """A span anywhere: hexadecimal, as in a traceparent."""

    trace_id: str
    span_id: str


class Span(NamedTuple):
    """A piece of work in a trace, once it is over."""

    at: SpanRef
    parent: str | None  # the span of the same trace to which it belongs
    name: str
    begun_at: Moment
    ended_at: Moment
    attributes: Mapping[str, Attribute]
    kind: SpanKind = SpanKind.INTERNAL
    failure: str | None = None  # why, of one that failed
    links: Sequence[SpanRef] = ()  # spans of other traces that it has to do with


class SpanSink(Protocol):
    """Takes spans and hands them on, at leisure. What it cannot keep is dropped and counted."""

    def put(self, spans: Sequence[Span]) -> None:
        """Never raises, never blocks."""
