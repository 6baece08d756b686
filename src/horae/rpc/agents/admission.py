"""Remote agents, as the server admits them: one session per stream, one living agent per name.

What must stay true: a stream that breaks takes nothing back, because its agent may go on until its lease is over
and come again through any server; one name belongs to one living agent.

An agent has one line that counts, whatever frames of earlier ones still wait somewhere: each new one takes the next
session of the node's row, and the database itself refuses what an earlier one asks, which ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import structlog

from horae import wire
from horae.core.members import is_org_label, org_label
from horae.core.model import DEFAULT_ORG, JOIN, Node, Token
from horae.core.signs import NewLine, Terms
from horae.core.work.catalogues import HandlerList
from horae.errors import Denied, Error, Invalid, NotFound, Unavailable
from horae.ports.clock import Clock
from horae.ports.outputs import OutputWriter
from horae.ports.transport import Queue, Topic
from horae.rpc.agents.answers import ServerParts
from horae.rpc.agents.checks import read_hello
from horae.rpc.agents.frames import Over, Refused, invalid, read_frame
from horae.rpc.agents.hints import WorkHints
from horae.rpc.agents.intake import DEFAULT_LIMITS, Limits
from horae.rpc.agents.naming import Naming
from horae.rpc.agents.session import HELLO_SECONDS, LEAVE_SECONDS, Session
from horae.rpc.callers import sender_of
from horae.service.access.agents import AgentAccess
from horae.service.access.bounds import refuse_beyond
from horae.service.batching import Coalescer
from horae.service.execution import Execution, ExecutionStore
from horae.web.proxies import NOBODY, Proxies
from horae.wire.generated import agents_pb2 as pb
from horae.wire.outbox import Urgency

log = structlog.get_logger()

TOPICS: tuple[Topic, ...] = ("runs", "cancel")  # of which an agent is told
PROVE_SECONDS = 3.0  # between two looks whether the tokens of all lines are still good
MAY_NOT = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
TELL_SECONDS = 1.5  # that an agent gets to tell of its handlers: less than whoever asked waits

Admit = Callable[[str | None, str], Awaitable[Token | None]]  # token, peer → what it is good for, if that is bounded
StillGood = Callable[[Collection[int]], Awaitable[set[int]]]  # ids of tokens → those that are


class Agents:
    """The agents that come in through this server."""

    def __init__(
        self,
        execution: Execution,
        store: ExecutionStore,
        queue: Queue,
        files: OutputWriter,
        clock: Clock,
        *,
        node: str,
        version: str,
        terms: Terms,
        admit: Admit | None = None,
        needs_no_token: Callable[[Any], bool] = lambda _: False,
        still_good: StillGood | None = None,
        limits: Limits = DEFAULT_LIMITS,
        credentials: AgentAccess | None = None,
        proxies: Proxies = NOBODY,
    ) -> None:
        """`admit` judges tokens; None where everybody who gets here may come in. `needs_no_token` judges the context of
        a stream of gRPC that came without one, `still_good` the tokens of open lines, again and again. `limits` bound
        what is stored of one attempt. `credentials` are those of agents that join by themselves. What `proxies` tell of
        who calls is believed."""
        self._hints = WorkHints(store, queue, clock)
        self._server = ServerParts(
            execution, store, queue, files, clock, self._hints, node, terms, limits, Naming(files), credentials,
            proxies,
        )  # fmt: skip
        self._clock, self._node, self._version, self.terms = clock, node, version, terms
        self._admit, self._needs_no_token = admit, needs_no_token
        self._sessions: dict[str, Session] = {}
        self._lines = Coalescer(store.open_lines)  # of a crowd that comes at once, when another server has stopped
        self._still_good = still_good
        self._credentials, self._proxies = credentials, proxies
        self._background: list[asyncio.Task[None]] = []  # while there are sessions
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def connect(self, _: Any, context: Any) -> None:
        """One stream of gRPC."""
        has_token = "authorization" in dict(context.invocation_metadata() or ())
        is_known = not has_token and self._needs_no_token(context)
        await self.receive(context, None if is_known else self._admit)

    async def receive(self, context: Any, admit: Admit | None, topics: Sequence[Topic] = TOPICS) -> None:
        """One stream, from hello to its end; `admit` judges its token, unless none is needed on this way in. Of
        `topics` it is told."""
        try:
            token = await _admitted(context, admit, self._proxies)
            session = await self._open(context, topics, token)
        except Over:
            return
        except Refused as refused:
            log.warning("agent.refused", peer=context.peer(), status=refused.status.name, error=refused.message)
            await self._note_refusal(context, refused)
            await context.abort(refused.status, refused.message)
            return
        refused_later = await self._serve(session)
        if refused_later is not None:
            log.warning("agent.dropped", node=session.node.name, error=refused_later.message)
            await context.abort(refused_later.status, refused_later.message)

    async def _note_refusal(self, context: Any, refused: Refused) -> None:
        code = refused.message.partition(":")[0]
        if self._credentials is not None and refused.status in MAY_NOT and code.startswith("E_"):
            await self._credentials.refuse(refused.node, sender_of(context, self._proxies), code)

    async def _serve(self, session: Session) -> Refused | None:
        name = session.node.name
        log.info("agent.connected", node=name, session=session.id)
        try:
            return await session.serve()
        finally:
            log.info("agent.disconnected", node=name, session=session.id)
            self._hints.forget(session.link)
            if self._sessions.get(name) is session:
                del self._sessions[name]
            if not self._sessions:
                self._is_empty.set()
                for task in self._background:
                    task.cancel()
                self._background = []

    async def _prove_again(self) -> None:
        """End the lines whose token was revoked or has expired, for ever; one question for all of them. While the
        store is away nobody is sent off: nobody gets anything either."""
        while self._still_good is not None:
            await self._clock.sleep(PROVE_SECONDS)
            held = {session.token.id for session in self._sessions.values() if session.token is not None}
            try:
                good = await self._still_good(held) if held else set()
            except Unavailable as error:
                log.warning("store.unavailable", role="tokens", error=error.message, retry_seconds=PROVE_SECONDS)
                continue
            for session in self._sessions.values():
                if session.token is not None and session.token.id in held - good:
                    session.refuse(_token_ended())

    async def _open(self, context: Any, topics: Sequence[Topic], token: Token | None) -> Session:
        frame = await read_frame(context, HELLO_SECONDS)
        if frame.WhichOneof("body") != "hello":
            raise invalid("the first frame must be hello")
        hello = frame.hello
        protocol = _common_protocol(hello)
        try:
            node = _owned(read_hello(hello, via=self._node, now=self._clock.now()), token)
            if token is not None and token.bounds is not None:
                refuse_beyond(token.bounds, node)
            token, joined = await self._redeemed(token, hello, sender_of(context, self._proxies))
        except Invalid as error:
            raise invalid(error.message) from error
        except Denied as error:
            text = f"{error.code}: {error.message}"
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, text, hello.node[:128]) from error
        except Unavailable as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, error.message) from error
        session = Session(
            self._server, context, node, hello.session, topics, token, dict(hello.capacity),
            tells_handlers=hello.handlers,
        )  # fmt: skip
        session.link.resume(node, await self._make_room(session))
        welcome = pb.Welcome(
            protocol=protocol, node=self._node, version=self._version, lease_seconds=self.terms.lease_seconds,
            heartbeat_seconds=self.terms.heartbeat_seconds, window=wire.WINDOW, files=True,
            shared=self._server.files.is_shared, ailments=True, installation=self.terms.installation,
            trace_ratio=self.terms.trace_ratio, credential_id=joined,
            renewal_seconds=await self._credentials.renewal_in(token) if self._credentials is not None else None,
        )  # fmt: skip
        session.send(pb.ServerFrame(id=frame.id, welcome=welcome), Urgency.BEAT)
        return session

    async def _redeemed(self, token: Token | None, hello: pb.Hello, peer: str) -> tuple[Token | None, int]:
        """Return the token that a line has from now on, and, of one that has joined by it, its id."""
        if token is None or token.scope != JOIN:
            return token, 0
        if self._credentials is None or not hello.credential:
            raise Denied("a join token makes a credential: this agent is too old for it", code="E_JOIN_TOKEN")
        credential = await self._credentials.redeem(token, hello.node, hello.identity, hello.credential, peer)
        log.info("agent.joined", node=hello.node, token=token.id, credential=credential.id)
        return credential, credential.id

    async def _make_room(self, session: Session) -> int:
        """One name, one living agent: the same process may come again, a stranger may not. A process that was
        restarted waits until the line of its earlier life has fallen silent. Return the number of the new line."""
        node = session.node
        there = self._sessions.get(node.name)
        if there is not None and there.node.identity != node.identity:
            raise _taken(node.name)
        if there is not None and there.id != session.id and there.is_heard:
            text = f"an earlier life of {node.name} was heard a moment ago; it may join when that has ended"
            raise Refused(grpc.StatusCode.UNAVAILABLE, text)
        try:
            number = await self._lines.add(NewLine(node.name, node.identity, self._node, session.link.line))
            if number is None:
                raise _taken(node.name)
            if number < 0:
                raise _evicted(node.name)
        except Unavailable as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, error.message) from error
        if there is not None:
            there.end()
        self._sessions[node.name] = session
        self._is_empty.clear()
        self._background = self._background or [asyncio.create_task(each) for each in self._duties()]
        return number

    async def list_handlers(self, name: str) -> HandlerList | None:
        """Return what an agent has that comes in here; None if it is older than the question."""
        session = self._sessions.get(name)
        if session is None:
            raise NotFound(f"the agent {name} is not connected to {self._node}")
        return await session.list_handlers(TELL_SECONDS)

    def _duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._hints.run(), *([self._prove_again()] if self._still_good is not None else ())]

    async def leave(self) -> None:
        """Tell every agent to go on elsewhere, and give them a moment to end what is in flight."""
        for session in self._sessions.values():
            session.send(pb.ServerFrame(leaving=pb.Leaving()), Urgency.BEAT)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._is_empty.wait()
        for session in self._sessions.values():
            session.end()


def _owned(node: Node, token: Token | None) -> Node:
    """Return the agent, with the label of the organisation that lets it in; the first one's are the installation's."""
    if any(map(is_org_label, node.labels)):
        raise Invalid("labels must leave the organisation to the server: it is that of the token", path="labels")
    if token is None or token.org == DEFAULT_ORG:
        return node
    return replace(node, labels=(*node.labels, org_label(token.org)))


async def _admitted(context: Any, admit: Admit | None, proxies: Proxies) -> Token | None:
    if admit is None:
        return None
    given = dict(context.invocation_metadata() or ()).get("authorization", "")
    token = given.removeprefix("Bearer ").strip() if given.startswith("Bearer ") else None
    try:
        return await admit(token, sender_of(context, proxies))
    except Unavailable as error:
        raise Refused(grpc.StatusCode.UNAVAILABLE, error.message) from error
    except Error as error:
        raise Refused(grpc.StatusCode.UNAUTHENTICATED, f"{error.code}: {error.message}") from error


def _token_ended() -> Refused:
    return Refused(grpc.StatusCode.UNAUTHENTICATED, "E_JOIN_TOKEN: the token of this agent was revoked or has expired")


def _evicted(name: str) -> Refused:
    return Refused(grpc.StatusCode.PERMISSION_DENIED, f"E_EVICTED: the node {name} was evicted by an operator")


def _taken(name: str) -> Refused:
    return Refused(
        grpc.StatusCode.ALREADY_EXISTS,
        f"another living agent is called {name}: give this one another --node, or stop the other; if it is dead, "
        "its name is free once its lease is over",
    )


def _common_protocol(hello: pb.Hello) -> int:
    protocol = min(hello.highest_protocol, wire.PROTOCOL)
    if protocol < max(hello.lowest_protocol, wire.OLDEST_PROTOCOL):
        raise Refused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"this server supports protocol {wire.OLDEST_PROTOCOL} to {wire.PROTOCOL}, the agent speaks "
            f"{hello.lowest_protocol} to {hello.highest_protocol}: upgrade the older of the two",
        )
    return protocol
