"""What machines ask of a process: whether it is alive, whether it can work, how much it does."""

from __future__ import annotations

from horae import schemas
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_ALIVE = http.encode(schemas.Health("ok"))


class Process:
    def __init__(self, services: Services, version: str) -> None:
        self._insight = services.insight
        self._health = http.encode(schemas.Health("ok", version, services.insight.node))

    def operations(self) -> list[http.Operation]:
        op = http.Operation
        return [
            op("GET", "/healthz", self.healthz, "process", "Whether the process is alive", "Health", is_open=True),
            op("GET", "/readyz", self.readyz, "process", "Whether it can do its work", "Readiness",
               also={503: "Readiness"}, is_open=True),
            op("GET", "/metrics", self.metrics, "process", "Measurements for Prometheus", "text/plain",
               needs=Permission.READ),
        ]  # fmt: skip

    async def healthz(self, request: http.Request) -> http.Answer:
        """Answers without looking at anything else. Strangers learn `status` only."""
        return http.Reply(200, self._health if request.who else _ALIVE)

    async def readyz(self, request: http.Request) -> http.Answer:
        """503 names the check that failed. Strangers learn `ready` only, and not of the last two seconds."""
        if request.who is None:
            is_ready = await self._insight.is_ready()
            return http.reply(200 if is_ready else 503, schemas.Readiness(is_ready, {}))
        found = await self._insight.readiness()
        return http.reply(200 if found.ready else 503, schemas.Readiness(found.ready, found.checks))

    async def metrics(self, request: http.Request) -> http.Answer:
        return http.Reply(200, await self._insight.metrics(), METRICS_TYPE)
