"""Horae as the RPC interface as JSON-RPC 2.0 (source document 2)."""

from __future__ import annotations

from horae.service import Services
from horae.web import http


class Rpc:
    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._services = services
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        return []
