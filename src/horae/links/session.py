"""The Link of a remote agent, over whatever carries frames: one line to one server, opened again whenever it breaks.

What must stay true: a request whose answer did not come raises Unavailable, and may or may not have happened; a
beat overtakes everything, and one that is not answered in time ends the connection, so that a dead one is found
well within the lease; a result is sent only to the server that has its output; at most a window of output is
under way.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import structlog
from google.protobuf.message import DecodeError

from horae import wire
from horae.core.holdings import Fenced, Holding
from horae.core.model import Node, Phase
from horae.errors import ConfigError, Conflict, Denied, Error, Unavailable
from horae.links.spool import AgentSpool
from horae.ports import Assignment, Beat, Result, Terms
from horae.wire.generated import agents_pb2 as pb
from horae.wire.outbox import Outbox, Urgency

log = structlog.get_logger()

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries to connect
CONNECT_SECONDS = 5.0
# While the lease of a line that was lost may still hold, every second counts: shares of it, and bounds in seconds.
HASTE_PAUSE, HASTE_CONNECT, HASTE_HELLO = (
    (1 / 30, 0.1, 0.5),
    (1 / 10, 1.0, CONNECT_SECONDS),
    (1 / 6, 1.0, CONNECT_SECONDS),
)
TELL_GAP = 5.0  # seconds between two words on the same trouble
ASK_SECONDS = 20.0
GOODBYE_SECONDS = 3.0
LINGER_SECONDS = 2.0  # for answers under way when the server asks us to leave

REFUSALS: dict[str, type[Error]] = {
    "UNAUTHENTICATED": Denied,
    "PERMISSION_DENIED": Denied,
    "ALREADY_EXISTS": Conflict,
    "FAILED_PRECONDITION": ConfigError,
    "INVALID_ARGUMENT": ConfigError,
    "UNIMPLEMENTED": ConfigError,
}


@dataclass(frozen=True, slots=True)
class Ticket:
    """How an agent shows who it is."""

    identity: str  # of its data directory
    session: str  # of its process
    token: str | None = None
    is_secure: bool = False
    authority: bytes | None = None  # PEM of who signed the server's certificate; None: those the system trusts


class LineEnded(Exception):
    """A line has ended with a status, named as gRPC names them."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text or status


class NoAnswer(Unavailable):
    """Nothing came back in time."""


class Line(Protocol):
    """One connection to one server: frames there and back, in order, none lost before its end."""

    async def open(self, seconds: float) -> None:
        """Reach the other side, or raise Unavailable; no try takes longer than `seconds`."""

    async def read(self) -> bytes | None:
        """The next frame; None when the server ended it well. LineEnded says how else it ended."""

    async def write(self, frame: bytes) -> None: ...

    async def close(self) -> None:
        """At once, whatever is still under way."""


class RemoteLink(ABC):
    def __init__(
        self, servers: Sequence[str], spool: AgentSpool, ticket: Ticket, *, on_change: Callable[[str, str], None]
    ) -> None:
        """`on_change` hears ("joined", server) and ("lost", why)."""
        self._servers = list(servers)
        self._spool = spool
        self._ticket = ticket
        self._on_change = on_change
        self._node: Node | None = None
        self.life = ""  # of the keeper, where it keeps work: all agents that it has had count as one process
        self._named = asyncio.Event()  # who we are is known
        self._stream: Stream | None = None
        self._news = asyncio.Event()  # a stream is there, or we were refused
        self._refusal: Error | None = None
        self._terms = Terms(0.0, 0.0)
        self._protocol = wire.PROTOCOL  # that the server speaks
        self._is_joined = False
        self.capacity: dict[str, int] = {}  # kind → how many runs of it at once, where that is not the node's slots
        self._lost_at = float("-inf")  # when a line that was welcome ended, on the clock of the loop
        self._told = ("", float("-inf"))  # the last trouble that was told, and when
        self._hints = {"runs": asyncio.Event(), "cancel": asyncio.Event()}

    # ── the connection ──
    async def run(self) -> None:
        """Keep a stream open, to any of the servers, for ever."""
        await self._named.wait()
        pause, number = FIRST_PAUSE, 0
        while True:
            server = self._servers[number % len(self._servers)]
            number += 1
            if await self._visit(server):
                pause, self._lost_at = FIRST_PAUSE, asyncio.get_running_loop().time()
            if number % len(self._servers) == 0:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # so that not all come at once
                pause = min(pause * 2, self._in_haste(HASTE_PAUSE, LONGEST_PAUSE))

    def _in_haste(self, share: tuple[float, float, float], else_: float) -> float:
        """Seconds: a share of the lease while that of the last line may hold, within bounds; `else_` afterwards."""
        lease = self._terms.lease_seconds
        if asyncio.get_running_loop().time() - self._lost_at > lease:
            return else_
        return min(max(lease * share[0], share[1]), share[2])

    async def _visit(self, server: str) -> bool:
        """One stream, from connect to its end; True when it was welcome."""
        line = self._line(server)
        server = self._shown(server)
        stream = Stream(line, self._hear)
        try:
            await line.open(self._in_haste(HASTE_CONNECT, CONNECT_SECONDS))
            await stream.run(lambda: self._greet(server, stream, line))
        except LineEnded as ended:
            self._note_loss(server, stream, ended)
        except Unavailable as error:
            self._tell_loss(server, error.message)
        finally:
            self._part_from(stream, f"the connection to {server} broke")
            await line.close()
        return stream.is_welcome

    def _part_from(self, stream: Stream, why: str) -> None:
        """Who asks next waits for another: one that has failed would refuse at once, again and again."""
        self._hide(stream)
        stream.fail(why)

    def _hide(self, stream: Stream) -> None:
        if self._stream is stream:
            self._stream = None
            self._news.clear()

    def _shown(self, server: str) -> str:
        """As people may see it."""
        return server

    @abstractmethod
    def _line(self, server: str) -> Line:
        """A new line to a server, not yet open."""

    def _note_loss(self, server: str, stream: Stream, ended: LineEnded) -> None:
        self._tell_loss(server, ended.text, status=ended.status)
        if not stream.is_welcome and ended.status in REFUSALS:
            self._refusal = _refusal(ended.status, ended.text)
            self._news.set()

    def _tell_loss(self, server: str, text: str, **more: str) -> None:
        """Not the same at every try: there are several in a second."""
        now, told = asyncio.get_running_loop().time(), f"{server}: {text}"
        if told == self._told[0] and now - self._told[1] < TELL_GAP:
            return
        self._told = (told, now)
        log.warning("server.lost", server=server, error=text, **more)
        self._on_change("lost", told)

    async def _greet(self, server: str, stream: Stream, line: Line) -> None:
        """Say who we are; once welcome, the stream is for everybody."""
        seconds = self._in_haste(HASTE_HELLO, CONNECT_SECONDS)
        (frame,) = await stream.ask(seconds, Urgency.BEAT, hello=self._hello())
        welcome = frame.welcome
        if self._spool.is_shared and not welcome.shared:
            raise ConfigError(
                f"the server {welcome.node} keeps output in a directory of its own, not in a shared store",
                path="files", hint="start the agent without files: it sends its output to the server",
            )  # fmt: skip
        stream.is_welcome, stream.server, stream.room = True, welcome.node, welcome.window or wire.WINDOW
        self._terms = Terms(welcome.lease_seconds, welcome.heartbeat_seconds)
        self._protocol = welcome.protocol
        stream.takes_ailments = welcome.ailments
        self._spool.begin(welcome.node, takes_files=welcome.files)
        self._refusal = None
        self._told = ("", float("-inf"))
        self._stream = stream
        self._news.set()
        for hint in self._hints.values():
            hint.set()  # what was announced meanwhile was not heard
        log.info("server.joined", server=server, node=welcome.node, version=welcome.version)
        self._on_change("joined", server)
        await self._attend(stream, line)

    async def _attend(self, stream: Stream, line: Line) -> None:
        """What goes on beside requests, as long as the stream lasts."""
        await self._ship(stream)

    def _hello(self) -> pb.Hello:
        node = self._node
        assert node is not None
        return pb.Hello(
            lowest_protocol=wire.OLDEST_PROTOCOL, highest_protocol=wire.PROTOCOL, node=node.name,
            identity=self._ticket.identity, session=self.life or self._ticket.session, kinds=node.kinds,
            labels=node.labels, slots=node.slots, version=node.version, started_at=node.started_at,
            capacity=self.capacity,
        )  # fmt: skip

    def _hear(self, stream: Stream, frame: pb.ServerFrame) -> None:
        """What the server tells unasked."""
        body = frame.WhichOneof("body")
        if body == "hint" and frame.hint.topic in self._hints:
            self._hints[frame.hint.topic].set()
        elif body == "stored":
            stream.settle(frame.stored)
            for name in frame.stored.items:
                self._spool.note_stored(name.run_id, name.fence, name.number, name.file)
            for name in frame.stored.refused:
                self._spool.note_refused(name.run_id, name.fence)
        elif body == "leaving":
            self._hide(stream)
            stream.leave()

    async def _ship(self, stream: Stream) -> None:
        """Send output as it is written, a window of it at most."""
        while True:
            await stream.has_room.wait()
            await self._spool.work.wait()
            self._spool.work.clear()
            while stream.has_room.is_set() and (pieces := await self._spool.take(stream.room)):
                stream.send_chunks([pb.Chunk(**piece._asdict()) for piece in pieces])
                self._spool.work.set()

    async def _ready(self) -> Stream:
        while self._stream is None:
            if self._refusal is not None and not self._is_joined:
                raise self._refusal
            self._news.clear()
            await self._news.wait()
        return self._stream

    async def _ask(self, seconds: float, urgency: Urgency = Urgency.REQUEST, **body: Any) -> list[pb.ServerFrame]:
        """Ask the server, waiting for a connection if there is none; never longer than `seconds` in all."""
        try:
            async with asyncio.timeout(seconds):
                stream = await self._ready()
                return await stream.ask(seconds, urgency, **body)
        except TimeoutError:
            raise NoAnswer(f"no server answered within {seconds:g} s") from None

    # ── the Link ──
    async def take_up(self, node: Node) -> None:
        self._node = node
        self._named.set()

    async def hello(self, node: Node, held: Collection[Fenced] = ()) -> Terms:
        """A server that welcomes and then does not answer is left: nothing else would find it out before we beat."""
        await self.take_up(node)
        try:
            await self._ask(ASK_SECONDS, join=pb.Join(**_held(held)))
        except NoAnswer:
            if self._stream is not None:
                self._part_from(self._stream, f"joining was not answered within {ASK_SECONDS:g} s")
            raise
        self._is_joined = True
        return self._terms

    async def claim(self, room: Mapping[str, int]) -> list[Assignment]:
        asked = [pb.Claim(room=room)]
        if self._protocol == 1:  # a claim of one kind
            asked = [pb.Claim(kind=kind, limit=limit) for kind, limit in room.items()]
        frames = [frame for claim in asked for frame in await self._ask(ASK_SECONDS, claim=claim)]
        return [_assignment(item) for frame in frames for item in frame.assignments.items]

    async def finish(self, results: Sequence[Result]) -> set[int]:
        accepted: set[int] = set()
        for batch in _batches(results):
            accepted |= await self._finish(batch)
        return accepted

    async def _finish(self, batch: list[pb.Result]) -> set[int]:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                stream = await self._ready()
        except TimeoutError:
            raise Unavailable("no server can be reached") from None
        if any((one.run_id, one.fence) in self._spool.unsettled for one in batch):
            raise Unavailable("this server does not have the output of these runs yet")
        frames = await stream.ask(ASK_SECONDS, finish=pb.Finish(results=batch))
        return {run_id for frame in frames for run_id in frame.accepted.run_ids}

    async def note_phases(self, phases: Sequence[tuple[int, int, Phase]]) -> None:
        items = [pb.PhaseOf(run_id=run_id, fence=fence, phase=phase) for run_id, fence, phase in phases]
        await self._ask(ASK_SECONDS, note_phases=pb.NotePhases(items=items))

    async def note_progress(self, notes: Sequence[tuple[int, int, str]]) -> None:
        items = [pb.ProgressOf(run_id=run_id, fence=fence, progress=text) for run_id, fence, text in notes]
        await self._ask(ASK_SECONDS, note_progress=pb.NoteProgress(items=items))

    async def beat(self, busy: int, held: Holding | None = None) -> Beat | None:
        seconds = max(0.5, self._terms.lease_seconds / 3)
        stream = self._stream
        said = None if held is None else pb.Holding(count=held.size, digest=held.digest)
        try:
            (frame,) = await self._ask(seconds, Urgency.BEAT, beat=pb.Beat(busy=busy, held=said))
        except Unavailable:
            if stream is not None and stream is self._stream:
                self._part_from(stream, f"a beat was not answered within {seconds:g} s")
            raise
        answer = frame.beat
        if answer.retired:
            return None
        cancel = [(held.run_id, held.fence) for held in answer.cancel]
        return Beat(cancel, answer.wanted or "live", answer.in_doubt)

    async def note_ailment(self, ailment: str) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                stream = await self._ready()
        except TimeoutError:
            raise Unavailable("no server can be reached") from None
        if stream.takes_ailments:  # else it is older than this word
            await stream.ask(ASK_SECONDS, note_ailment=pb.NoteAilment(ailment=ailment))

    async def wait(self, topic: str, seconds: float) -> bool:
        hint = self._hints[topic]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await hint.wait()
                hint.clear()
                return True
        return False

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        (frame,) = await self._ask(ASK_SECONDS, load_previous=pb.LoadPrevious(job_ids=job_ids))
        return dict(frame.previous_results.results)

    async def disown(self, held: Collection[Fenced]) -> set[Fenced]:
        (frame,) = await self._ask(ASK_SECONDS, disown=pb.Disown(**_held(held)))
        strangers = frame.strangers
        if strangers.run_ids and not strangers.fences:  # a server of protocol 1 goes by the run alone
            return {one for one in held if one[0] in set(strangers.run_ids)}
        return set(zip(strangers.run_ids, strangers.fences, strict=True))

    async def goodbye(self) -> None:
        await self._ask(GOODBYE_SECONDS, goodbye=pb.Goodbye())


class Stream:
    """Requests out, answers in, by their ids."""

    def __init__(self, line: Line, hear: Callable[[Stream, pb.ServerFrame], None]) -> None:
        self._line = line
        self._hear = hear
        self._outbox = Outbox()
        self._ids = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[None], list[pb.ServerFrame]]] = {}
        self._under_way: dict[tuple[int, int, int, int], int] = {}  # chunk → bytes
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving: asyncio.TimerHandle | None = None
        self.is_welcome = False
        self.takes_ailments = False
        self.server = ""
        self.room = 0  # bytes of output that may be sent
        self.has_room = asyncio.Event()
        self.has_room.set()

    async def run(self, greet: Callable[[], Any]) -> None:
        """Until the stream ends: LineEnded, or Unavailable."""
        tasks = [asyncio.create_task(step) for step in (self._read(), self._write(), greet(), self._watch())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:  # reading first: the status of the stream says more than a write that failed
                if task.done():
                    task.result()
        finally:
            if self._leaving is not None:
                self._leaving.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while (raw := await self._line.read()) is not None:
            try:
                frame = pb.ServerFrame.FromString(raw)
            except DecodeError:
                raise Unavailable("the server sent a frame that cannot be read") from None
            if frame.id in self._waiting:
                self._answer(*self._waiting[frame.id], frame)
            elif frame.id == 0:
                self._hear(self, frame)
        raise Unavailable("the server ended the stream")

    def _answer(self, future: asyncio.Future[None], frames: list[pb.ServerFrame], frame: pb.ServerFrame) -> None:
        frames.append(frame)
        if not frame.more and not future.done():
            future.set_result(None)

    async def _write(self) -> None:
        while frame := await self._outbox.get():
            await self._line.write(frame)

    async def _watch(self) -> None:
        await asyncio.shield(self._failed)

    def fail(self, message: str) -> None:
        """The stream is of no use any more: whoever waits for an answer learns it now."""
        error = Unavailable(message)
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # it may be that nobody asks
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def leave(self) -> None:
        """End as soon as nothing is under way, or in a moment."""
        loop = asyncio.get_running_loop()
        if not self._waiting or self._leaving is not None:
            self.fail("the server is stopping")
        else:
            self._leaving = loop.call_later(LINGER_SECONDS, self.fail, "the server is stopping")

    async def ask(self, seconds: float, urgency: Urgency = Urgency.REQUEST, **body: Any) -> list[pb.ServerFrame]:
        if self._failed.done():
            raise Unavailable("the connection to the server broke")
        number = next(self._ids)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        frames: list[pb.ServerFrame] = []
        self._waiting[number] = future, frames
        self._outbox.put(pb.AgentFrame(id=number, **body).SerializeToString(), urgency)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise NoAnswer(f"the server did not answer within {seconds:g} s") from None
        finally:
            del self._waiting[number]
            if self._leaving is not None and not self._waiting:
                self.leave()
        if frames[-1].WhichOneof("body") == "failure":
            raise Unavailable(frames[-1].failure.message, hint=frames[-1].failure.hint)
        return frames

    # ── output ──
    def send_chunks(self, chunks: list[pb.Chunk]) -> None:
        for chunk in chunks:
            self._under_way[chunk.run_id, chunk.fence, chunk.file, chunk.number] = len(chunk.data)
            self.room -= len(chunk.data)
        self._outbox.put(pb.AgentFrame(chunks=pb.Chunks(items=chunks)).SerializeToString(), Urgency.OUTPUT)
        if self.room <= 0:
            self.has_room.clear()

    def settle(self, stored: pb.Stored) -> None:
        for name in (*stored.items, *stored.refused):
            self.room += self._under_way.pop((name.run_id, name.fence, name.file, name.number), 0)
        if self.room > 0:
            self.has_room.set()


def _held(attempts: Collection[Fenced]) -> dict[str, list[int]]:
    return {"held": [run_id for run_id, _ in attempts], "fences": [fence for _, fence in attempts]}


def _refusal(status: str, text: str) -> Error:
    code, found, rest = text.partition(": ")
    if found and code.startswith("E_"):
        return REFUSALS[status](rest, code=code)
    return REFUSALS[status](text)


def _assignment(it: pb.Assignment) -> Assignment:
    return Assignment(
        run_id=it.run_id, fence=it.fence, attempt=it.attempt, job_id=it.job_id,
        trigger_id=it.trigger_id if it.HasField("trigger_id") else None, due_at=it.due_at, kind=it.kind, name=it.name,
        spec=it.spec, policy=it.policy, data=it.data if it.HasField("data") else None,
        secrets=it.secrets if it.HasField("secrets") else None,
        source=it.source if it.HasField("source") else None, cursor=it.cursor if it.HasField("cursor") else None,
        owner=it.owner,
    )  # fmt: skip


def _result(it: Result) -> pb.Result:
    return pb.Result(
        run_id=it.run_id, fence=it.fence, state=it.state, reason=it.reason, started_at=it.started_at,
        finished_at=it.finished_at, exit_code=it.exit_code, message=it.message, result=it.result, output=it.output,
        retry_after=it.retry_after, final=it.final, cursor=it.cursor,
    )  # fmt: skip


def _batches(results: Sequence[Result]) -> list[list[pb.Result]]:
    """As few lists as fit into frames."""
    lists: list[list[pb.Result]] = []
    size = wire.FRAME
    for result in map(_result, results):
        if size + result.ByteSize() > wire.FRAME:
            lists.append([])
            size = 0
        lists[-1].append(result)
        size += result.ByteSize()
    return lists
