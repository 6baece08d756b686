"""Horae as the lake and sync interface (source document 0)."""

from __future__ import annotations

from horae.service import Services
from horae.web import http


class Lake:
    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._services = services
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        return []
