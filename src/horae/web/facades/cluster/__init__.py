"""Horae as the five services of the segment-based scheduler (source document 4), all of them on every port.

jobs         job store: jobs, due moments, executions          submitting  a submitted job as a draft
scheduling   scheduler coordinator and scheduler worker        moves       what a status asked for comes to
agents       worker agent and execution coordinator            words       states and objects in its words
envelope     the form of every answer                          reading     what its clients send
"""

from __future__ import annotations

from dataclasses import replace

from horae.service import Services
from horae.web import http
from horae.web.facades.cluster.agents import Agents
from horae.web.facades.cluster.envelope import Envelope, Rows
from horae.web.facades.cluster.jobs import JobStore
from horae.web.facades.cluster.moves import Moves
from horae.web.facades.cluster.scheduling import Coordination


class Segments:
    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._services = services
        envelope, moves = Envelope(lambda: services.insight.now()), Moves(services)
        self._rows = Rows(envelope)
        self._parts = (
            JobStore(services, envelope, moves),
            Coordination(services, envelope),
            Agents(services, envelope, moves),
        )

    def operations(self) -> list[http.Operation]:
        row = self._rows.row("GET", "/actuator/health", self.health, "Whether the service is up", errors=())
        health = replace(row, also={503: "application/json"}, is_open=True)
        return [*(row for part in self._parts for row in part.operations(self._rows)), health]

    async def health(self, request: http.Request) -> http.Answer:
        """Without an envelope, as the contract has it."""
        insight = self._services.insight
        is_ready = (await insight.readiness()).ready if request.who else await insight.is_ready()
        return http.reply(200 if is_ready else 503, {"status": "UP" if is_ready else "DOWN"})
