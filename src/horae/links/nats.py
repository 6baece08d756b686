"""The lines of a remote agent over NATS: it reaches nothing but the broker.

    agent ── hello ──► horae.agents.hello.<node>, answered by one server ──► horae.agents.down.<node>.<line>
    agent ◄──────────  sealed frames both ways, with that server  ──────────► horae.agents.up.<node>.<line>

Work is announced by messages, one per run, of which an agent takes as many as it has free slots: first it claims by
the database, then it acknowledges them, also those whose run is gone or was taken by somebody else.

A line has a connection of its own and a name that nobody can guess, and is never mended: when the server dies, the
broker says so at the next frame, and the next hello finds another.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from horae.core.runs.orders import Assignment
from horae.links.session import Credentials, RemoteLink
from horae.links.spool import AgentSpool
from horae.links.stream import Line, LineEnded, Stream
from horae.wire.generated import agents_pb2
from horae.wire.nats import broker, proofs, sealed
from horae.wire.nats.pipe import Ended, Pipe

PULL_SECONDS = 5.0  # that the broker holds a request for messages
FULL_PAUSE = 0.02  # seconds between looks for a free slot
MISSING_PAUSE = 0.2  # and between questions for a kind that the servers have not prepared
MOST_PULLED = 100  # messages asked for at once
EXPIRED = "408"


class NatsLink(RemoteLink):
    """Its one server is the address of the broker."""

    def __init__(
        self,
        servers: Sequence[str],
        spool: AgentSpool,
        credentials: Credentials,
        *,
        on_change: Callable[[str, str], None],
    ) -> None:
        super().__init__(servers, spool, credentials, on_change=on_change)
        self._connectors: dict[str, broker.Connector] = {}
        self._taken: dict[str, list[Any]] = {}  # messages of work, by kind, until the database was asked
        self.room: Callable[[str], int] = lambda _: 1  # how many more runs of a kind the agent could start

    def _shown(self, server: str) -> str:
        """Without the login."""
        scheme, _, rest = server.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def _line(self, server: str) -> Line:
        if server not in self._connectors:
            self._connectors[server] = broker.Connector(server, "horae agent", self._credentials.authority)
        assert self._node is not None
        return _NatsLine(self._connectors[server], self._credentials, self._node.name)

    # ── messages of work ──
    async def _serve_stream(self, stream: Stream, line: Line) -> None:
        assert isinstance(line, _NatsLine)
        assert self._node is not None
        self._taken = {kind: [] for kind in self._node.kinds}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_output(stream))
            await line.client.subscribe(broker.WANTING, cb=self._look_for_runs)
            for kind in self._node.kinds:
                group.create_task(_Pull(self, line, kind).run())

    async def _look_for_runs(self, _: Any) -> None:
        self._hints["runs"].set()

    def take(self, kind: str, message: Any) -> None:
        self._taken[kind].append(message)
        self._hints["runs"].set()

    async def claim(self, room: Mapping[str, int], free: Mapping[str, int] | None = None) -> list[Assignment]:
        messages = [message for kind in room for message in self._taken.pop(kind, ())]
        self._taken |= {kind: [] for kind in room}
        claimed = await super().claim(room, free)  # should it break off, the messages come again
        for message in messages:
            with suppress(Exception):  # a message that is not acknowledged comes again, and does no harm
                await message.ack()
        return claimed


class _Pull:
    """Asks for messages of one kind of work, while there is room for some."""

    def __init__(self, link: NatsLink, line: _NatsLine, kind: str) -> None:
        self._link, self._line, self._kind = link, line, kind
        self._wanted = 0  # messages asked for and not come
        self._stir = asyncio.Event()

    async def run(self) -> None:
        client = self._line.client
        here = broker.own_subject(broker.TAKEN, self._line.node, self._line.name, self._kind)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{broker.WORK_STREAM}.{broker.consumer_of(self._kind)}"
        await client.subscribe(here, cb=self._take)
        while not client.is_closed:
            room = self._link.room(self._kind)
            if room <= 0:
                await asyncio.sleep(FULL_PAUSE)
                continue
            self._wanted = min(room, MOST_PULLED)
            asked = {"batch": self._wanted, "expires": round(PULL_SECONDS * 1e9)}
            with suppress(Exception):  # the line's reader learns of a connection that is lost
                await client.publish(subject, json.dumps(asked).encode(), reply=here)
            await self._wait()

    async def _wait(self) -> None:
        """Until all have come, or the broker says that no more will."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PULL_SECONDS + 1):
                while self._wanted > 0:
                    self._stir.clear()
                    await self._stir.wait()

    async def _take(self, message: Any) -> None:
        status = (message.headers or {}).get("Status")
        self._wanted -= 1
        if status is None and self._link.room(self._kind) > 0:
            self._link.take(self._kind, message)
        elif status is None:
            await message.nak()  # somebody else may have a slot
        elif not status.startswith("1"):  # not a sign of life
            if status != EXPIRED:
                await asyncio.sleep(MISSING_PAUSE)  # nobody has prepared this kind yet, or the stream is gone
            self._wanted = 0
        self._stir.set()


class _NatsLine:
    def __init__(self, connector: broker.Connector, credentials: Credentials, node: str) -> None:
        self._connector = connector
        self._token, self._own = credentials.login, proofs.own_token(credentials.login)
        self.node = node
        self.client: Any = None
        self.name = secrets.token_hex(16)  # that nobody can guess
        self._pipe: Pipe | None = None
        self._hello, self._up, self._here = (
            broker.own_subject(begin, node, *more)
            for begin, more in ((broker.HELLO, ()), (broker.UP, (self.name,)), (broker.DOWN, (self.name,)))
        )
        self._keys = sealed.Keys()
        self._box: sealed.Box | None = None  # when the server has answered

    async def open(self, seconds: float) -> None:
        self.client = await self._connector.connect(self._lose, seconds)
        self._pipe = Pipe(self.client, self._hello, self._here)
        await self.client.subscribe(self._here, cb=self._take)

    async def _take(self, message: Any) -> None:
        assert self._pipe is not None
        key = (message.headers or {}).get(sealed.KEY)
        if self._box is None and key is not None:
            known = self._own.kept if self._own else ""
            try:
                self._box = self._keys.box(key, known, self._here, is_agent=True)
            except sealed.Unsealed as error:
                self._pipe.end("UNAVAILABLE", str(error))
        self._pipe.take(message)

    def _lose(self) -> None:
        if self._pipe is not None:
            self._pipe.end("UNAVAILABLE", "the broker closed the connection")

    async def read(self) -> bytes | None:
        assert self._pipe is not None
        try:
            return self._opened(await self._pipe.read())
        except sealed.Unsealed as error:
            raise LineEnded("UNAVAILABLE", str(error)) from None
        except Ended as ended:
            if not ended.status:
                return None
            raise LineEnded(ended.status, ended.text) from None

    def _opened(self, frame: bytes) -> bytes:
        if self._box is None:
            raise sealed.Unsealed("the server sent no key")
        return self._box.open(frame)

    async def write(self, frame: bytes) -> None:
        """The first one is hello, to whoever listens; the others are for the one who answered."""
        pipe = self._pipe
        assert pipe is not None
        try:
            if pipe.to == self._hello:
                hello = self._veiled(frame)
                await pipe.write(hello, self._headers(hello))
            else:
                assert self._box is not None  # nobody says more before there is a welcome
                await pipe.write(self._box.seal(frame))
        except Ended as ended:
            raise LineEnded(ended.status, ended.text) from None
        pipe.to = self._up

    def _veiled(self, hello: bytes) -> bytes:
        """It is not sealed: of the credential that an agent makes when it joins, nobody else may learn what is kept."""
        frame = agents_pb2.AgentFrame.FromString(hello)
        if self._own is None or not frame.hello.credential:
            return hello
        made, key = frame.hello.credential, self._keys.text
        frame.hello.credential = proofs.veiled(made, self._own.kept, self._here, key)
        return frame.SerializeToString()

    def _headers(self, hello: bytes) -> dict[str, str]:
        headers = {sealed.KEY: self._keys.text}
        if self._own is not None:
            message = proofs.to_prove(self._here, self._keys.text, hello)
            headers[proofs.PROOF] = proofs.proof_header(self._own, message)
        elif self._token and not self._token.startswith("horae_"):  # what is none of ours the server refuses by name
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    async def close(self) -> None:
        if self.client is None:
            return
        if self._pipe is not None and self._pipe.to == self._up and not self.client.is_closed:
            with suppress(Ended):
                await self._pipe.finish()
        await broker.close_client(self.client)
