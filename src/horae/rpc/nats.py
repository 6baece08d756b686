"""Agents that come in over NATS: each line looks to `Agents` like a stream of gRPC.

What must stay true: a hello is answered by one server; whoever may publish to the broker is not yet an agent, so tokens
are asked for unless broker and server are both on this machine; when the broker is lost, so are all lines, and agents
come again by themselves.
"""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from typing import Any

import grpc
import structlog

from horae.errors import Unavailable
from horae.rpc.agents import Admit, Agents
from horae.wire import nats as broker
from horae.wire.pipe import Ended, Pipe

log = structlog.get_logger()

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between tries to reach the broker
HASTE = 1 / 30  # of the lease is the longest pause while agents that lost their line may still hold one,
HASTE_LONGEST = 0.5  # or so many seconds; and a tenth of the lease, one second at least, is time to connect
TELL_GAP = 5.0  # seconds between two words on the same trouble
MAX_LINES = 10_000
TOPICS = ("cancel",)  # of queued runs these agents hear by messages of work (service.handover)
LINE = re.compile(re.escape(broker.DOWN) + r"\.([0-9a-f]{32})")


class NatsDoor:
    def __init__(self, agents: Agents, connector: broker.Connector, admit: Admit | None = None) -> None:
        """`admit` judges tokens; None where everybody who reaches the broker may come in."""
        self._agents = agents
        self._connector = connector
        self._admit = admit
        self._hellos: Any = None
        self._lines: set[_Line] = set()
        self._task: asyncio.Task[None] | None = None
        self.is_open = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._stay())

    async def shut(self) -> None:
        """Let nobody in any more; those who are in stay."""
        if self._hellos is not None:
            with suppress(Exception):  # a broker that is away lets nobody in either
                await self._hellos.unsubscribe()

    async def stop(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()  # again and again: the library of NATS swallows one now and then
            await asyncio.wait([task], timeout=1.0)

    async def _stay(self) -> None:
        """What becomes of the lines of a lost connection does not hold up the next."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._come_back(group)

    async def _come_back(self, group: asyncio.TaskGroup) -> None:
        """Be connected, and when that has ended, try again until it succeeds."""
        loop, lease = asyncio.get_running_loop(), self._agents.terms.lease_seconds
        pause, lost_at, told_at = FIRST_PAUSE, loop.time(), float("-inf")
        while True:
            is_urgent = loop.time() - lost_at < lease
            seconds = min(max(lease / 10, 1.0), broker.CONNECT_SECONDS) if is_urgent else broker.CONNECT_SECONDS
            try:
                return await self._visit(group, seconds)
            except Unavailable as error:
                if loop.time() - told_at > TELL_GAP:
                    log.warning("broker.lost", error=error.message, retry_seconds=pause)
                    told_at = loop.time()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  all nodes lost it at once
            pause = min(pause * 2, min(HASTE_LONGEST, max(lease * HASTE, FIRST_PAUSE)) if is_urgent else LONGEST_PAUSE)

    async def _visit(self, group: asyncio.TaskGroup, seconds: float) -> None:
        """One connection to the broker, until it is lost; no step of it takes longer than `seconds`."""
        lost = asyncio.Event()
        client = await self._connector.connect(lost.set, seconds)

        async def hear(hello: Any) -> None:
            await self._hear(group, client, hello)

        try:
            try:
                self._hellos = await client.subscribe(broker.HELLO, queue=broker.SERVERS, cb=hear)
                await client.flush(seconds)
            except Exception as error:  # the library has many words for a broker that went away just now
                raise Unavailable(f"the broker does not answer: {error or type(error).__name__}") from error
            self.is_open.set()
            await lost.wait()
            log.warning("broker.lost", error="the connection has ended")
        finally:
            self._hellos = None
            self.is_open.clear()
            for line in self._lines:
                line.pipe.end("", "")
            await broker.farewell(client)

    async def _hear(self, group: asyncio.TaskGroup, client: Any, hello: Any) -> None:
        found = LINE.fullmatch(hello.reply)
        if found is None or len(self._lines) >= MAX_LINES:
            return  # no way to answer, or no room
        line = _Line(client, found[0], f"{broker.UP}.{found[1]}", (hello.headers or {}).get("Authorization"))
        await line.open(hello)
        group.create_task(self._serve(line))

    async def _serve(self, line: _Line) -> None:
        self._lines.add(line)
        try:
            await self._agents.receive(line, self._admit, TOPICS)
        finally:
            self._lines.discard(line)
            await line.close()


class _Line:
    """What gRPC would call the context of a stream."""

    def __init__(self, client: Any, to: str, here: str, authorization: str | None) -> None:
        self.pipe = Pipe(client, to, here)
        self._client, self._here = client, here
        self._authorization = authorization
        self._subscription: Any = None

    async def open(self, hello: Any) -> None:
        async def take(message: Any) -> None:
            self.pipe.take(message)

        self._subscription = await self._client.subscribe(self._here, cb=take)
        self.pipe.take(hello)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", self._authorization),) if self._authorization else ()

    def peer(self) -> str:
        return "nats"

    async def read(self) -> Any:
        try:
            return await self.pipe.read()
        except Ended:
            return grpc.aio.EOF

    async def write(self, frame: bytes) -> None:
        with suppress(Ended):  # reading learns it too
            await self.pipe.write(frame)

    async def abort(self, status: grpc.StatusCode, message: str) -> None:
        with suppress(Ended):
            await self.pipe.finish(status.name, message)

    async def close(self) -> None:
        with suppress(Exception):  # the broker may be gone
            await self.pipe.finish()
            await self._subscription.unsubscribe()
