"""Who is told of traces, if anybody is. OpenTelemetry is loaded here, and only where it is configured."""

from __future__ import annotations

import asyncio
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog

from horae.config import Config
from horae.errors import ConfigError
from horae.service.metrics import Metrics

if TYPE_CHECKING:
    from horae.telemetry.otlp import OtlpSink

log = structlog.get_logger()
FAREWELL_SECONDS = 5.0  # for the last spans when the process stops
INSTALL = "pip install 'horae[otel]'"


def open_spans(config: Config) -> OtlpSink | None:
    """Return what takes spans; None where nobody is told. Who names a collector wants to be told that it cannot be;
    where only the environment does, which may be meant for others, a line of the log is enough."""
    if not config.otlp_endpoint:
        return None
    try:
        from horae.telemetry.otlp import OtlpSink
    except ImportError as error:
        if config.sources.get("otlp_endpoint", "default") == "default":
            log.warning("traces.off", because=f"{error.name} is not installed", hint=INSTALL)
            return None
        raise ConfigError(
            f"otlp_endpoint needs OpenTelemetry, and {error.name} is not installed", path="otlp_endpoint", hint=INSTALL
        ) from None
    about = {
        "service.name": "horae", "service.version": version("horae"), "service.instance.id": config.node,
        "host.name": socket.gethostname(),
    }  # fmt: skip
    return OtlpSink(config.otlp_endpoint, about)


def connect_spans(metrics: Metrics, spans: OtlpSink | None) -> None:
    if spans is not None:
        metrics.spans = lambda: (spans.sent, spans.dropped)


async def close_spans(spans: OtlpSink) -> None:
    await asyncio.to_thread(spans.close, FAREWELL_SECONDS)
