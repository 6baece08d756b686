"""Horae as the five services of the segment-based scheduler (source document 4), all of them on every port.

jobs         job store: jobs, due moments, executions          submitting  a submitted job as a draft
scheduling   scheduler coordinator and scheduler worker        vocabulary  states and objects in its words
agents       worker agent and execution coordinator            calling     how registered agents are called
envelope     the form of every answer                          reading     what its clients send
"""

from __future__ import annotations

from dataclasses import replace

from horae.contracts.cluster.agents import Agents
from horae.contracts.cluster.envelope import Envelope, Rows
from horae.contracts.cluster.jobs import JobStore
from horae.contracts.cluster.scheduling import Coordination
from horae.service import Services
from horae.service.external.transitions import Transitions
from horae.web import http
from horae.web.streams import Streams


class Segments:
    def __init__(self, services: Services, streams: Streams) -> None:
        self._services = services
        envelope = Envelope(lambda: services.insight.now())
        transitions = Transitions(
            services.jobs, services.lending, services.external_members, services.dispatching, services.local_node
        )
        self._rows = Rows(envelope)
        self._parts = (
            JobStore(services, envelope, transitions),
            Coordination(services, envelope),
            Agents(services, envelope, transitions),
        )

    def operations(self) -> list[http.Operation]:
        row = self._rows.row("GET", "/actuator/health", self.health, "Whether the service is up", errors=())
        health = replace(row, also={503: "application/json"}, is_open=True)
        return [*(row for part in self._parts for row in part.operations(self._rows)), health]

    def areas(self) -> list[http.Area]:
        return [http.Area("/api", self._rows.unknown)]

    async def health(self, request: http.Request) -> http.Answer:
        """Without an envelope, as the contract has it."""
        insight = self._services.insight
        is_ready = (await insight.readiness()).ready if request.who else await insight.is_ready()
        return http.reply(200 if is_ready else 503, {"status": "UP" if is_ready else "DOWN"})
