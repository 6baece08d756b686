"""Agents that come in over NATS: each line looks to `Agents` like a stream of gRPC.

What must stay true: a hello is answered by one server; whoever may publish to the broker is not yet an agent, so tokens
are asked for; who says hello on the subject of an agent is that agent, or nobody; its frames are sealed for it
(wire.nats.sealed); when the broker is lost, so are all lines, and agents come again by themselves.

Agents of the release before share their subjects and seal nothing. They are let in until no login is left that may
publish there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from horae.core.model import Token
from horae.core.runs.results import clean
from horae.errors import Unavailable
from horae.ports.transport import Topic
from horae.rpc.agents.admission import Admit, Agents
from horae.rpc.agents.frames import Refused
from horae.wire.generated import agents_pb2
from horae.wire.nats import broker, proofs, sealed
from horae.wire.nats.pipe import HEAD, Ended, Pipe
from horae.wire.reconnect import FIRST_PAUSE, LONGEST_PAUSE, SOONER, Reconnect, end_task

log = structlog.get_logger()

HASTE = 1 / 30  # of the lease is the longest pause while agents that lost their line may still hold one,
HASTE_LONGEST = 0.5  # or so many seconds; and a tenth of the lease, one second at least, is time to connect
LOG_GAP = 5.0  # seconds between two lines of the log on the same trouble
MAX_LINES = 10_000
TOPICS: tuple[Topic, ...] = ("cancel",)  # of queued runs these agents learn by messages of work (service.announcer)
LINE = re.compile(re.escape(broker.DOWN) + r"(?:\.([A-Za-z0-9][A-Za-z0-9_=-]{0,127}))?\.([0-9a-f]{32})")

Prove = Callable[[proofs.Proof, str], Awaitable[Token]]  # proof, peer → the token


class NatsListener:
    def __init__(
        self, agents: Agents, connector: broker.Connector, admit: Admit | None = None, prove: Prove | None = None
    ) -> None:
        """`admit` judges tokens, `prove` those that are not sent; None where everybody who reaches the broker may come
        in."""
        self._agents = agents
        self._prove = prove
        self._connector = connector
        self._admit = admit
        self._hellos: list[Any] = []
        self._lines: set[_Line] = set()
        self._task: asyncio.Task[None] | None = None
        self._lost_at = self._logged_at = float("-inf")  # on the clock of the loop
        self.is_open = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def shut(self) -> None:
        """Let nobody in any more; those who are in stay."""
        for hellos in self._hellos:
            with suppress(Exception):  # a broker that is away lets nobody in either
                await hellos.unsubscribe()

    async def stop(self) -> None:
        task, self._task = self._task, None
        await end_task(task)

    async def _run(self) -> None:
        """What becomes of the lines of a lost connection does not hold up the next."""
        async with asyncio.TaskGroup() as group:
            self._note_loss()
            reconnect = Reconnect(
                lambda: self._try_connection(group, reconnect), spread=SOONER, longest=self._longest_pause, at_once=True
            )
            await reconnect.run()

    def _note_loss(self) -> None:
        self._lost_at, self._logged_at = asyncio.get_running_loop().time(), float("-inf")

    @property
    def _is_urgent(self) -> bool:
        """Whether agents that lost their line may still hold a lease."""
        return asyncio.get_running_loop().time() - self._lost_at < self._agents.terms.lease_seconds

    def _longest_pause(self) -> float:
        in_haste = min(HASTE_LONGEST, max(self._agents.terms.lease_seconds * HASTE, FIRST_PAUSE))
        return in_haste if self._is_urgent else LONGEST_PAUSE

    async def _try_connection(self, group: asyncio.TaskGroup, reconnect: Reconnect) -> bool:
        in_haste = min(max(self._agents.terms.lease_seconds / 10, 1.0), broker.CONNECT_SECONDS)
        try:
            await self._hold_connection(group, in_haste if self._is_urgent else broker.CONNECT_SECONDS)
        except Unavailable as error:
            now = asyncio.get_running_loop().time()
            if now - self._logged_at > LOG_GAP:
                log.warning("broker.lost", error=error.message, retry_seconds=reconnect.pause)
                self._logged_at = now
            return False
        self._note_loss()
        return True

    async def _hold_connection(self, group: asyncio.TaskGroup, seconds: float) -> None:
        """One connection to the broker, until it is lost; no step of it takes longer than `seconds`."""
        lost = asyncio.Event()
        client = await self._connector.connect(lost.set, seconds)

        async def open_line(hello: Any) -> None:
            await self._open_line(group, client, hello)

        try:
            try:
                for subject in (broker.HELLO, f"{broker.HELLO}.*"):
                    self._hellos.append(await client.subscribe(subject, queue=broker.SERVERS, cb=open_line))
                await client.flush(seconds)
            except Exception as error:  # the library has many words for a broker that went away just now
                raise Unavailable(f"the broker does not answer: {error or type(error).__name__}") from error
            self.is_open.set()
            await lost.wait()
            log.warning("broker.lost", error="the connection has ended")
        finally:
            self._hellos = []
            self.is_open.clear()
            for line in self._lines:
                line.pipe.end("", "")
            await broker.close_client(client)

    async def _open_line(self, group: asyncio.TaskGroup, client: Any, hello: Any) -> None:
        found = LINE.fullmatch(hello.reply)
        named = hello.subject.removeprefix(broker.HELLO).removeprefix(".")
        if found is None or (found[1] or "") != named or len(self._lines) >= MAX_LINES:
            return  # no way to answer, none of its own, or no room
        up = hello.reply.replace(broker.DOWN, broker.UP, 1)
        line = _Line(client, found[0], up, hello, broker.node_of(named))
        await line.open(hello)
        group.create_task(self._serve(line))

    async def _serve(self, line: _Line) -> None:
        self._lines.add(line)
        try:
            await self._agents.receive(line, partial(self._let_in, line), TOPICS)
        finally:
            self._lines.discard(line)
            await line.close()

    async def _let_in(self, line: _Line, text: str | None, _: str) -> Token | None:
        """Return the token of a line, from here on sealed, where its agent knows how."""
        line.check_name()
        token: Token | None
        if line.proof is not None and self._prove is not None:
            token = await self._prove(line.proof, line.peer())
        else:
            token = await self._admit(text, line.peer()) if self._admit is not None else None
        line.begin_sealing(token.hash if line.proof is not None and token is not None else "")
        return token


class _Line:
    """What gRPC would call the context of a stream."""

    def __init__(self, client: Any, to: str, here: str, hello: Any, node: str) -> None:
        """`node` is who may say hello here; empty on the subject that agents of before share."""
        self.pipe = Pipe(client, to, here)
        self._client, self._to, self._here = client, to, here
        self._node = node
        self._hello = hello.data[HEAD.size :]
        headers = hello.headers or {}
        self._authorization = headers.get("Authorization")
        self._their_key = headers.get(sealed.KEY)
        self.proof = proofs.read_proof(
            headers.get(proofs.PROOF), proofs.to_prove(to, self._their_key or "", self._hello)
        )
        self._box: sealed.Box | None = None
        self._own_key: dict[str, str] | None = None  # header of the next message
        self._is_first = True  # hello is not sealed
        self._known = ""  # what is kept of the token that was proved
        self._subscription: Any = None

    def check_name(self) -> None:
        """Whoever may publish on the subject of an agent is that one, and no other."""
        try:
            said = agents_pb2.AgentFrame.FromString(self._hello).hello.node
        except DecodeError:
            return  # whoever reads it says so
        if self._node and said != self._node:
            text = f"on the subject of {self._node} nobody else says hello; got {clean(said, 128)}"
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, f"E_TOKEN_BOUNDS: {text}")

    def begin_sealing(self, known: str) -> None:
        if self._their_key is None:
            return  # an agent of before
        keys = sealed.Keys()
        try:
            self._box = keys.box(self._their_key, known, self._to, is_agent=False)
        except sealed.Unsealed as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        self._own_key, self._known = {sealed.KEY: keys.text}, known

    async def open(self, hello: Any) -> None:
        async def take(message: Any) -> None:
            self.pipe.take(message)

        self._subscription = await self._client.subscribe(self._here, cb=take)
        self.pipe.take(hello)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", self._authorization),) if self._authorization else ()

    def peer(self) -> str:
        """Of whom failures are counted: by the broker nobody has an address."""
        return f"nats {self._node or self._token_id}"

    @property
    def _token_id(self) -> str:
        """Which token an agent of before says to have."""
        return "_".join((self._authorization or "").split("_")[:3])[:64]

    async def read(self) -> Any:
        try:
            frame = await self.pipe.read()
            if self._is_first or self._box is None:
                self._is_first = False
                return self._unveiled(frame)
            return self._box.open(frame)
        except (Ended, sealed.Unsealed):
            return grpc.aio.EOF

    def _unveiled(self, raw: bytes) -> bytes:
        """Return the hello as its agent meant it."""
        try:
            frame = agents_pb2.AgentFrame.FromString(raw)
            made = frame.hello.credential
            if not made or not self._known or self._their_key is None:
                return raw
            frame.hello.credential = proofs.veiled(made, self._known, self._to, self._their_key)
        except (DecodeError, ValueError):
            return raw  # whoever reads it says so
        return frame.SerializeToString()

    async def write(self, frame: bytes) -> None:
        headers, self._own_key = self._own_key, None
        with suppress(Ended):  # reading learns it too
            await self.pipe.write(frame if self._box is None else self._box.seal(frame), headers)

    async def abort(self, status: grpc.StatusCode, message: str) -> None:
        with suppress(Ended):
            await self.pipe.finish(status.name, message)

    async def close(self) -> None:
        with suppress(Exception):  # the broker may be gone
            await self.pipe.finish()
            await self._subscription.unsubscribe()
