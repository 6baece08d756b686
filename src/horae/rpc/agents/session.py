"""One agent's stream: what it sends is read, answered or stored; what it is told is written, the urgent first.

    hello ─► welcome ─► requests, each answered by its id, and chunks of output, stored in order

What must stay true: a beat is answered while everything else waits; what is being written is written to its end; a
stream that breaks takes nothing back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from horae import wire
from horae.core.model import Node, Token
from horae.core.work.catalogues import HandlerList
from horae.errors import Error, Evicted, Superseded, Unavailable
from horae.ports.transport import Topic
from horae.rpc.agents.answers import Answers, ServerParts
from horae.rpc.agents.attempts import HeldAttempts
from horae.rpc.agents.chunks import ChunkQueue
from horae.rpc.agents.frames import Over, Refused, failure, read_frame
from horae.rpc.agents.intake import Intake
from horae.rpc.callers import sender_of
from horae.service.execution import LocalLink
from horae.wire.generated import agents_pb2 as pb
from horae.wire.generated.handlers_pb2 import ListHandlers
from horae.wire.handlers import read_handlers
from horae.wire.outbox import Outbox, Urgency

HELLO_SECONDS = 10.0  # a stream that says nothing for so long is ended
REQUEST_SECONDS = 15.0  # longest work on one request: an agent waits a little longer for its answer
HINT_GAP = 0.02  # seconds between two hints to beat
LEAVE_SECONDS = 3.0  # that agents get to end what is in flight when the server stops


class Session:
    def __init__(
        self,
        server: ServerParts,
        context: Any,
        node: Node,
        session_id: str,
        topics: Sequence[Topic],
        token: Token | None,
        capacity: Mapping[str, int],
        *,
        tells_handlers: bool = False,
    ) -> None:
        """`token` is what it came in with, if one was needed. `capacity`: as of HeldAttempts. Agents of before tell
        nothing of their handlers."""
        self.node, self.token, self.id = node, token, session_id
        self._server = server
        self._context = context
        self._topics = topics
        self.link = LocalLink(
            server.execution, server.store, server.queue, place="" if server.files.is_shared else server.node
        )
        self._outbox = Outbox()
        self._ended = asyncio.Event()
        self._refusal: Refused | None = None  # with which it is ended
        self._requests: set[asyncio.Task[None]] = set()
        self._claims: set[asyncio.Task[None]] = set()
        intake, fresh = Intake(server.files, server.limits), server.terms.heartbeat_seconds
        attempts = HeldAttempts(server.store, server.clock, intake, node, capacity, fresh=fresh)
        self._chunks = ChunkQueue(intake, attempts, node.name)
        self._answers = Answers(
            server, self.link, node, attempts, self._send_hint, self._claims, hints_runs="runs" in topics,
            token=token, peer=sender_of(context, server.proxies),
        )  # fmt: skip
        self._heard_at = server.clock.elapsed()
        self._tells_handlers = tells_handlers
        self._told: asyncio.Future[HandlerList] | None = None  # while its handlers are asked for

    def send(self, frame: pb.ServerFrame, urgency: Urgency = Urgency.REQUEST) -> None:
        self._outbox.put(frame.SerializeToString(), urgency)

    def end(self) -> None:
        self._ended.set()

    def refuse(self, refusal: Refused) -> None:
        self._refusal = refusal
        self.end()

    async def list_handlers(self, seconds: float) -> HandlerList | None:
        """Return what the agent has; None if it is older than the question. All who ask at once share an answer, and
        one that comes too late serves the next."""
        if not self._tells_handlers:
            return None
        if self._told is None:
            self._told = asyncio.get_running_loop().create_future()
            self.send(pb.ServerFrame(list_handlers=ListHandlers()))
        waiting = self._told
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(waiting)
        except TimeoutError:
            if self._told is waiting:
                self._told = None  # the next who asks asks again
            raise Unavailable(f"nothing came over its line within {seconds:g} s") from None

    def _take_handlers(self, told: Any) -> None:
        waiting, self._told = self._told, None
        if waiting is not None:
            waiting.set_result(read_handlers(told))

    @property
    def is_heard(self) -> bool:
        """Whether it has beaten of late; else what is there may be the end of a line that nobody holds any more."""
        return self._server.clock.elapsed() - self._heard_at < 2 * self._server.terms.heartbeat_seconds

    async def serve(self) -> Refused | None:
        """Until either side ends it; return with what it is ended, if it is refused.

        What is being written is written to its end: gRPC cannot end a stream in the middle of a message.
        """
        writer = asyncio.create_task(self._write())
        writer.add_done_callback(self._note_written)
        try:
            return await self._converse()
        finally:
            self._outbox.close()
            await asyncio.wait([writer], timeout=LEAVE_SECONDS)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _note_written(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled():
            writer.exception()  # that of a line that broke; should the server stop just now, nobody else asks
        self.end()

    async def _converse(self) -> Refused | None:
        refused = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._chunks.run(self.send))
                group.create_task(self._wait_for_end())
                if "cancel" in self._topics:
                    group.create_task(self._hint_cancels())
                await self._read_all(group)
        except* Over:
            pass
        except* Refused as refusals:
            refused = _first(refusals)
        return refused

    async def _read_all(self, group: asyncio.TaskGroup) -> None:
        longest_silence = 2 * self._server.terms.lease_seconds + HELLO_SECONDS
        while True:
            frame = await read_frame(self._context, longest_silence)
            self._heard_at = self._server.clock.elapsed()
            body = frame.WhichOneof("body")
            if body == "chunks":
                self._chunks.add(frame.chunks)
            elif body == "handlers":
                self._take_handlers(frame.handlers)
            elif body is not None:  # a body of a newer protocol says nothing here
                self._accept(group, body, frame)

    def _accept(self, group: asyncio.TaskGroup, body: str, frame: pb.AgentFrame) -> None:
        if len(self._requests) >= wire.MAX_REQUESTS:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {wire.MAX_REQUESTS} requests at once")
        task = group.create_task(self._answer(body, frame))
        kinds = [self._requests, self._claims] if body == "claim" else [self._requests]
        for tasks in kinds:
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _answer(self, body: str, frame: pb.AgentFrame) -> None:
        urgency = Urgency.BEAT if body == "beat" else Urgency.REQUEST
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answers = await self._answers.answer(body, getattr(frame, body))
        except Superseded as error:
            raise Refused(grpc.StatusCode.ABORTED, f"{error.code}: {error.message}") from error
        except Evicted as error:
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, f"{error.code}: {error.message}") from error
        except Error as error:
            answers = [failure(error)]
        except TimeoutError:
            answers = [failure(Unavailable(f"{body} took longer than {REQUEST_SECONDS:g} s"))]
        for number, answer in enumerate(answers, 1):
            answer.id, answer.more = frame.id, number < len(answers)
            self.send(answer, urgency)

    async def _write(self) -> None:
        while frame := await self._outbox.get():
            await self._context.write(frame)

    async def _wait_for_end(self) -> None:
        await self._ended.wait()
        raise self._refusal or Over

    async def _hint_cancels(self) -> None:
        while True:
            if await self.link.wait("cancel", 3600.0):
                self._send_hint("cancel")
                await asyncio.sleep(HINT_GAP)

    def _send_hint(self, topic: Topic) -> None:
        self.send(pb.ServerFrame(hint=pb.Hint(topic=topic)))


def _first(group: BaseExceptionGroup[Any]) -> Refused:
    one: Any = group
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    assert isinstance(one, Refused)
    return one
