"""The lines of a remote agent over NATS: it reaches nothing but the broker.

    agent ── hello ──► horae.agents.hello, answered by one server ──► horae.agents.down.<line>
    agent ◄──────────  frames both ways, between this agent and that server  ──────────► horae.agents.up.<line>

A line has a connection of its own and a name that nobody can guess, and is never mended: when the server dies, the
broker says so at the next frame, and the next hello finds another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from horae.links.session import Line, LineEnded, RemoteLink, Ticket
from horae.links.spool import AgentSpool
from horae.wire import nats as broker
from horae.wire.pipe import Ended, Pipe


class NatsLink(RemoteLink):
    """Its one server is the address of the broker."""

    def __init__(
        self, servers: Sequence[str], spool: AgentSpool, ticket: Ticket, *, on_change: Callable[[str, str], None]
    ) -> None:
        super().__init__(servers, spool, ticket, on_change=on_change)
        self._connectors: dict[str, broker.Connector] = {}

    def _shown(self, server: str) -> str:
        """Without the login."""
        scheme, _, rest = server.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def _line(self, server: str) -> Line:
        if server not in self._connectors:
            self._connectors[server] = broker.Connector(server, "horae agent", self._ticket.authority)
        return _NatsLine(self._connectors[server], self._ticket)


class _NatsLine:
    def __init__(self, connector: broker.Connector, ticket: Ticket) -> None:
        self._connector = connector
        self._headers = {"Authorization": f"Bearer {ticket.token}"} if ticket.token else {}
        self._client: Any = None
        self._pipe: Pipe | None = None
        self._up = ""

    async def open(self) -> None:
        name = secrets.token_hex(16)
        self._client = await self._connector.connect(self._lose)
        self._up, here = f"{broker.UP}.{name}", f"{broker.DOWN}.{name}"
        pipe = self._pipe = Pipe(self._client, broker.HELLO, here)

        async def take(message: Any) -> None:
            pipe.take(message)

        await self._client.subscribe(here, cb=take)

    def _lose(self) -> None:
        if self._pipe is not None:
            self._pipe.end("UNAVAILABLE", "the broker closed the connection")

    async def read(self) -> bytes | None:
        assert self._pipe is not None
        try:
            return await self._pipe.read()
        except Ended as ended:
            if not ended.status:
                return None
            raise LineEnded(ended.status, ended.text) from None

    async def write(self, frame: bytes) -> None:
        """The first one is hello, to whoever listens; the others are for the one who answered."""
        pipe = self._pipe
        assert pipe is not None
        try:
            await pipe.write(frame, self._headers if pipe.to == broker.HELLO else None)
        except Ended as ended:
            raise LineEnded(ended.status, ended.text) from None
        pipe.to = self._up

    async def close(self) -> None:
        if self._client is None:
            return
        if self._pipe is not None and self._pipe.to == self._up and not self._client.is_closed:
            with suppress(Ended):
                await self._pipe.finish()
        await broker.farewell(self._client)
