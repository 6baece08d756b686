"""Horae as the services of the segment-based scheduler (source document 4)."""

from __future__ import annotations

from horae.service import Services
from horae.web import http


class Segments:
    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._services = services
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        return []
