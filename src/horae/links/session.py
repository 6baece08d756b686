"""The Link of a remote agent, over whatever carries frames: one line to one server, opened again whenever it breaks.

What must stay true: a request whose answer did not come raises Unavailable, and may or may not have happened; a
beat overtakes everything, and one that is not answered in time ends the connection, so that a dead one is found
well within the lease; a result is sent only to the server that has its output; at most a window of output is
under way.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from horae import wire
from horae.core.model import Node, OperatorWish, Phase
from horae.core.runs.holdings import Fenced, Holding
from horae.core.runs.orders import Assignment, Result
from horae.core.signs import Beat, Terms
from horae.core.work.catalogues import HandlerFact
from horae.errors import ConfigError, Error, Evicted, Unavailable, evicted
from horae.links.credential import OwnCredential
from horae.links.frames import REFUSALS, batches, held_fields, read_assignment, refusal, write_hello
from horae.links.spool import AgentSpool
from horae.links.stream import Line, LineEnded, NoAnswer, Stream
from horae.ports.transport import Topic
from horae.wire.generated import agents_pb2 as pb
from horae.wire.handlers import write_handlers
from horae.wire.outbox import Urgency
from horae.wire.reconnect import LONGEST_PAUSE, SOONER, Reconnect, end_task

log = structlog.get_logger()

CONNECT_SECONDS = 5.0
# While the lease of a line that was lost may still hold, every second counts: shares of it, and bounds in seconds.
HASTE_PAUSE, HASTE_CONNECT, HASTE_HELLO = (
    (1 / 30, 0.1, 0.5),
    (1 / 10, 1.0, CONNECT_SECONDS),
    (1 / 6, 1.0, CONNECT_SECONDS),
)
LOG_GAP = 5.0  # seconds between two lines of the log on the same trouble
ASK_SECONDS = 20.0
GOODBYE_SECONDS = 3.0
RENEW_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """How an agent shows who it is."""

    identity: str  # of its data directory
    session: str  # of its process
    token: str | None = None  # that it was given
    is_secure: bool = False
    authority: bytes | None = None  # PEM of who signed the server's certificate; None: those the system trusts
    own: OwnCredential | None = None  # what it has of its own, in the place of `token`
    certificate: bytes | None = None  # PEM, with its key: where servers ask for one

    @property
    def login(self) -> str | None:
        """What the next line comes in with."""
        return self.token if self.own is None else self.own.token


class RemoteLink(ABC):
    def __init__(
        self,
        servers: Sequence[str],
        spool: AgentSpool,
        credentials: Credentials,
        *,
        on_change: Callable[[str, str], None],
    ) -> None:
        """`on_change` is called with ("joined", server) and ("lost", why)."""
        self._servers = list(servers)
        self._spool = spool
        self._credentials = credentials
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
        self.handlers: Callable[[], Awaitable[list[HandlerFact]]] = _no_handlers  # Python handlers that the agent has
        self._telling: asyncio.Task[None] | None = None  # while a server is told of them
        self._lost_at = float("-inf")  # when a line that was welcome ended, on the clock of the loop
        self._logged = ("", float("-inf"))  # the last trouble, and when
        self._hints: dict[str, asyncio.Event] = {"runs": asyncio.Event(), "cancel": asyncio.Event()}  # by topic

    # ── the connection ──
    async def run(self) -> None:
        """Keep a stream open, to any of the servers, for ever."""
        await self._named.wait()
        longest = partial(self._in_haste, HASTE_PAUSE, LONGEST_PAUSE)
        await Reconnect(self._try_servers, spread=SOONER, longest=longest).run()

    async def _try_servers(self) -> bool:
        """One after the other; return whether any welcomed us."""
        was_welcome, number = False, 0
        while number < len(self._servers):
            if await self._hold_stream(self._servers[number]):
                was_welcome, self._lost_at = True, asyncio.get_running_loop().time()
            number += 1
        return was_welcome

    def _in_haste(self, share: tuple[float, float, float], else_: float) -> float:
        """Seconds: a share of the lease while that of the last line may hold, within bounds; `else_` afterwards."""
        lease = self._terms.lease_seconds
        if asyncio.get_running_loop().time() - self._lost_at > lease:
            return else_
        return min(max(lease * share[0], share[1]), share[2])

    async def _hold_stream(self, server: str) -> bool:
        """One stream, from connect to its end; return whether it was welcome."""
        line = self._line(server)
        server = self._shown(server)
        stream = Stream(line, self._read_notice)
        try:
            await line.open(self._in_haste(HASTE_CONNECT, CONNECT_SECONDS))
            await stream.run(lambda: self._greet(server, stream, line))
        except LineEnded as ended:
            self._log_loss(server, ended.text, status=ended.status)
            if ended.status in REFUSALS:
                self._note_refusal(stream, refusal(ended.status, ended.text))
        except Unavailable as error:
            self._log_loss(server, error.message)
        finally:
            self._drop(stream, f"the connection to {server} broke")
            await line.close()
        return stream.is_welcome

    def _note_refusal(self, stream: Stream, error: Error) -> None:
        """One that was evicted stops, whatever it holds: nothing else would ever let it in again."""
        if error.code == Evicted.code and self._node is not None:
            raise evicted(self._node.name)
        if not stream.is_welcome:
            self._refusal = error
            self._news.set()

    def _drop(self, stream: Stream, why: str) -> None:
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
        """Return a new line to a server, not yet open."""

    def _log_loss(self, server: str, text: str, **more: str) -> None:
        """Not the same at every try: there are several in a second."""
        now, said = asyncio.get_running_loop().time(), f"{server}: {text}"
        if said == self._logged[0] and now - self._logged[1] < LOG_GAP:
            return
        self._logged = (said, now)
        log.warning("server.lost", server=server, error=text, **more)
        self._on_change("lost", said)

    async def _greet(self, server: str, stream: Stream, line: Line) -> None:
        """Say who we are; once welcome, the stream is for everybody."""
        assert self._node is not None
        own = self._credentials.own
        hello = write_hello(self._node, self._credentials.identity, self.life or self._credentials.session)
        hello.credential = "" if own is None else own.hash
        (frame,) = await stream.ask(self._in_haste(HASTE_HELLO, CONNECT_SECONDS), Urgency.BEAT, hello=hello)
        welcome = frame.welcome
        if self._spool.is_shared and not welcome.shared:
            raise ConfigError(
                f"the server {welcome.node} keeps output in a directory of its own, not in a shared store",
                path="files", hint="start the agent without files: it sends its output to the server",
            )  # fmt: skip
        if own is not None and welcome.credential_id:
            own.take(welcome.credential_id)
            log.info("credential.made", server=server)
        stream.is_welcome, stream.server, stream.room = True, welcome.node, welcome.window or wire.WINDOW
        self._terms = Terms(
            welcome.lease_seconds,
            welcome.heartbeat_seconds,
            welcome.installation,
            welcome.trace_ratio if welcome.HasField("trace_ratio") else None,
        )
        self._protocol = welcome.protocol
        stream.takes_ailments = welcome.ailments
        self._spool.begin(welcome.node, takes_files=welcome.files)
        self._refusal = None
        self._logged = ("", float("-inf"))
        self._stream = stream
        self._news.set()
        for hint in self._hints.values():
            hint.set()  # what was announced meanwhile did not come
        log.info("server.joined", server=server, node=welcome.node, version=welcome.version)
        self._on_change("joined", server)
        renewal = welcome.renewal_seconds if welcome.HasField("renewal_seconds") else None
        renewing = None
        if own is not None and renewal is not None:
            renewing = asyncio.create_task(self._renew(own, stream, renewal))
        try:
            await self._serve_stream(stream, line)
        finally:
            await end_task(renewing)

    async def _renew(self, own: OwnCredential, stream: Stream, seconds: float) -> None:
        """When it is time, make a new secret, and go on over a new line that comes in with it."""
        await asyncio.sleep(seconds)
        while True:
            try:
                await stream.ask(ASK_SECONDS, renew=pb.Renew(hash=own.make_next()))
                own.take_next()
                break
            except Error as error:  # of the server, or of our disk: the secret that we have is good
                log.warning("credential.unrenewed", error=error.message, retry_seconds=RENEW_PAUSE)
                await asyncio.sleep(RENEW_PAUSE)
        log.info("credential.renewed", server=stream.server)
        self._hide(stream)
        stream.leave("the agent goes on with its new secret")

    async def _serve_stream(self, stream: Stream, line: Line) -> None:
        """What goes on beside requests, as long as the stream lasts."""
        await self._send_output(stream)

    def _read_notice(self, stream: Stream, frame: pb.ServerFrame) -> None:
        """What the server sends unasked."""
        body = frame.WhichOneof("body")
        if body == "hint" and frame.hint.topic in self._hints:
            self._hints[frame.hint.topic].set()
        elif body == "stored":
            stream.note_stored(frame.stored)
            for name in frame.stored.items:
                self._spool.note_stored(name.run_id, name.fence, name.number, name.file)
            for name in frame.stored.refused:
                self._spool.note_refused(name.run_id, name.fence)
        elif body == "list_handlers" and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell_handlers(stream))
        elif body == "leaving":
            self._hide(stream)
            stream.leave()

    async def _tell_handlers(self, stream: Stream) -> None:
        try:
            stream.tell(handlers=write_handlers(await self.handlers()))
        except OSError as error:  # of a disk: the server says that we did not answer
            log.warning("handlers.unread", error=str(error))

    async def _send_output(self, stream: Stream) -> None:
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
            await self._ask(ASK_SECONDS, join=pb.Join(**held_fields(held)))
        except NoAnswer:
            if self._stream is not None:
                self._drop(self._stream, f"joining was not answered within {ASK_SECONDS:g} s")
            raise
        self._is_joined = True
        return self._terms

    async def claim(self, room: Mapping[str, int], free: Mapping[str, int] | None = None) -> list[Assignment]:
        asked = [pb.Claim(room=room, free=free)]
        if self._protocol == 1:  # a claim of one kind
            asked = [pb.Claim(kind=kind, limit=limit) for kind, limit in room.items()]
        frames = [frame for claim in asked for frame in await self._ask(ASK_SECONDS, claim=claim)]
        return [read_assignment(item) for frame in frames for item in frame.assignments.items]

    async def finish(self, results: Sequence[Result]) -> set[int]:
        accepted: set[int] = set()
        for batch in batches(results):
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

    async def beat(self, busy: int, held: Holding | None = None, free: Mapping[str, int] | None = None) -> Beat | None:
        seconds = max(0.5, self._terms.lease_seconds / 3)
        stream = self._stream
        said = None if held is None else pb.Holding(count=held.size, digest=held.digest)
        try:
            (frame,) = await self._ask(seconds, Urgency.BEAT, beat=pb.Beat(busy=busy, held=said, free=free))
        except Unavailable:
            if stream is not None and stream is self._stream:
                self._drop(stream, f"a beat was not answered within {seconds:g} s")
            raise
        answer = frame.beat
        if answer.retired:
            return None
        cancel = [(held.run_id, held.fence) for held in answer.cancel]
        return Beat(cancel, _wish(answer.wanted), answer.in_doubt)

    async def note_ailment(self, ailment: str) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                stream = await self._ready()
        except TimeoutError:
            raise Unavailable("no server can be reached") from None
        if stream.takes_ailments:  # else it is older than this word
            await stream.ask(ASK_SECONDS, note_ailment=pb.NoteAilment(ailment=ailment))

    async def wait(self, topic: Topic, seconds: float) -> bool:
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
        (frame,) = await self._ask(ASK_SECONDS, disown=pb.Disown(**held_fields(held)))
        strangers = frame.strangers
        if strangers.run_ids and not strangers.fences:  # a server of protocol 1 goes by the run alone
            return {one for one in held if one[0] in set(strangers.run_ids)}
        return set(zip(strangers.run_ids, strangers.fences, strict=True))

    async def goodbye(self) -> None:
        await self._ask(GOODBYE_SECONDS, goodbye=pb.Goodbye())


async def _no_handlers() -> list[HandlerFact]:
    return []


def _wish(word: str) -> OperatorWish:
    """Return what an operator wants of this node; a word of a newer server means no new work, as all but one do."""
    try:
        return OperatorWish(word or OperatorWish.LIVE)
    except ValueError:
        return OperatorWish.CORDONED
