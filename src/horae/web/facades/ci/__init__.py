"""Horae as the CI interface (source document 1)."""

from __future__ import annotations

from horae.service import Services
from horae.web import http


class Ci:
    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._services = services
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        return []
