"""Remote agents, as the server sees them: a session per stream.

    hello ─► welcome ─► requests, each answered by its id, and chunks of output, stored in order

What must stay true: a stream that breaks takes nothing back, because its agent may go on until its lease is over
and come again through any server; one name belongs to one living agent; a beat is answered while everything else
waits; what an agent sends is bounded, and output is stored only for an attempt it holds, under that attempt's number
and fence, up to its limit (rpc.intake).

An agent has one line that counts, whatever frames of earlier ones still wait somewhere: each new one takes the next
session of the node's row, and the database itself refuses what an earlier one asks, which ends it. Only results are
taken from any line: what an agent says of an attempt that it held stays true, and the fence decides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from horae import wire
from horae.core.holdings import Fenced, Holding
from horae.core.model import Node, Phase, Token
from horae.errors import Denied, Error, Invalid, Superseded, Unavailable
from horae.ports import Assignment, Clock, Files, NewLine, Queue, Result, Store, Terms
from horae.rpc.callers import address_of
from horae.rpc.checks import read_ailment, read_hello, read_progress, read_result
from horae.rpc.hints import WorkHints
from horae.rpc.intake import DEFAULT_LIMITS, Intake, Limits
from horae.service.access import refuse_beyond
from horae.service.batching import Coalescer
from horae.service.execution import ANY_FENCE, Execution, LocalLink
from horae.service.results import make_sound
from horae.wire.generated import agents_pb2 as pb
from horae.wire.outbox import Outbox, Urgency

log = structlog.get_logger()

HELLO_SECONDS = 10.0  # a stream that says nothing for so long is ended
REQUEST_SECONDS = 15.0  # longest work on one request: an agent waits a little longer for its answer
HINT_GAP = 0.02  # seconds between two hints to beat
STORE_PAUSE = 0.5  # seconds between tries when output cannot be stored
LEAVE_SECONDS = 3.0  # that agents get to end what is in flight when the server stops
MAX_CLAIM = 1000
TOPICS = ("runs", "cancel")
MAX_LIST = 100_000  # ids in one request

PROVE_SECONDS = 3.0  # between two looks whether the tokens of all lines are still good

Admit = Callable[[str | None, str], Awaitable[Token | None]]  # token, peer → what it is good for, if that is bounded
StillGood = Callable[[Collection[int]], Awaitable[set[int]]]  # ids of tokens → those that are


class Refused(Exception):
    """The stream ends with this status."""

    def __init__(self, status: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class _Over(Exception):
    """The agent has closed its side, or shall."""


def invalid(message: str) -> Refused:
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, message)


class Agents:
    """The agents that come in through this server."""

    def __init__(
        self,
        execution: Execution,
        store: Store,
        queue: Queue,
        files: Files,
        clock: Clock,
        *,
        node: str,
        version: str,
        terms: Terms,
        admit: Admit | None = None,
        needs_no_token: Callable[[Any], bool] = lambda _: False,
        still_good: StillGood | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """`admit` judges tokens; None where everybody who gets here may come in. `needs_no_token` judges the context of
        a stream of gRPC that came without one, `still_good` the tokens of open lines, again and again. `limits` bound
        what is stored of one attempt."""
        self.execution, self.store, self.queue, self.files, self.clock = execution, store, queue, files, clock
        self.node, self.version, self.terms = node, version, terms
        self._admit, self._needs_no_token = admit, needs_no_token
        self.limits = limits
        self._sessions: dict[str, Session] = {}
        self._lines = Coalescer(store.open_lines)  # of a crowd that comes at once, when another server has stopped
        self.hints = WorkHints(store, queue, clock)
        self._still_good = still_good
        self._background: list[asyncio.Task[None]] = []  # while there are sessions
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def connect(self, _: Any, context: Any) -> None:
        """One stream of gRPC."""
        has_token = "authorization" in dict(context.invocation_metadata() or ())
        is_known = not has_token and self._needs_no_token(context)
        await self.receive(context, None if is_known else self._admit)

    async def receive(self, context: Any, admit: Admit | None, topics: Sequence[str] = TOPICS) -> None:
        """One stream, from hello to its end; `admit` judges its token, unless none is needed on this way in. Of
        `topics` it is told."""
        try:
            token = await _admitted(context, admit)
            session = await self._open(context, topics, token)
        except _Over:
            return
        except Refused as refused:
            log.warning("agent.refused", peer=context.peer(), status=refused.status.name, error=refused.message)
            await context.abort(refused.status, refused.message)
            return
        refused_later = await self._serve(session)
        if refused_later is not None:
            log.warning("agent.dropped", node=session.node.name, error=refused_later.message)
            await context.abort(refused_later.status, refused_later.message)

    async def _serve(self, session: Session) -> Refused | None:
        name = session.node.name
        log.info("agent.connected", node=name, session=session.id)
        try:
            return await session.serve()
        finally:
            log.info("agent.disconnected", node=name, session=session.id)
            self.hints.forget(session)
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
            await self.clock.sleep(PROVE_SECONDS)
            held = {session.token.id for session in self._sessions.values() if session.token is not None}
            try:
                good = await self._still_good(held) if held else set()
            except Unavailable as error:
                log.warning("store.unavailable", role="tokens", error=error.message, retry_seconds=PROVE_SECONDS)
                continue
            for session in self._sessions.values():
                if session.token is not None and session.token.id in held - good:
                    session.refuse(_token_ended())

    async def _open(self, context: Any, topics: Sequence[str], token: Token | None) -> Session:
        frame = await _read(context, HELLO_SECONDS)
        if frame.WhichOneof("body") != "hello":
            raise invalid("the first frame must be hello")
        hello = frame.hello
        protocol = _common_protocol(hello)
        try:
            node = read_hello(hello, via=self.node, now=self.clock.now())
            if token is not None and token.bounds is not None:
                refuse_beyond(token.bounds, node)
        except Invalid as error:
            raise invalid(error.message) from error
        except Denied as error:
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, f"{error.code}: {error.message}") from error
        session = Session(self, context, node, hello.session, topics, token)
        session.capacity = dict(hello.capacity)
        session.link.resume(node, await self._make_room(session))
        welcome = pb.Welcome(
            protocol=protocol, node=self.node, version=self.version, lease_seconds=self.terms.lease_seconds,
            heartbeat_seconds=self.terms.heartbeat_seconds, window=wire.WINDOW, files=True, shared=self.files.is_shared,
            ailments=True,
        )  # fmt: skip
        session.send(pb.ServerFrame(id=frame.id, welcome=welcome), Urgency.BEAT)
        return session

    async def _make_room(self, session: Session) -> int:
        """One name, one living agent: the same process may come again, a stranger may not. A process that was
        restarted waits until the line of its earlier life has fallen silent. Answers the number of the new line."""
        node = session.node
        there = self._sessions.get(node.name)
        if there is not None and there.node.identity != node.identity:
            raise _taken(node.name)
        if there is not None and there.id != session.id and there.is_heard:
            text = f"an earlier life of {node.name} was heard a moment ago; it may join when that has ended"
            raise Refused(grpc.StatusCode.UNAVAILABLE, text)
        try:
            number = await self._lines.add(NewLine(node.name, node.identity, self.node, session.link.line))
            if number is None:
                raise _taken(node.name)
        except Unavailable as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, error.message) from error
        if there is not None:
            there.end()
        self._sessions[node.name] = session
        self._is_empty.clear()
        self._background = self._background or [asyncio.create_task(each) for each in self._duties()]
        return number

    def _duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self.hints.run(), *([self._prove_again()] if self._still_good is not None else ())]

    async def leave(self) -> None:
        """Tell every agent to go on elsewhere, and give them a moment to end what is in flight."""
        for session in self._sessions.values():
            session.send(pb.ServerFrame(leaving=pb.Leaving()), Urgency.BEAT)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._is_empty.wait()
        for session in self._sessions.values():
            session.end()


async def _admitted(context: Any, admit: Admit | None) -> Token | None:
    if admit is None:
        return None
    given = dict(context.invocation_metadata() or ()).get("authorization", "")
    token = given.removeprefix("Bearer ").strip() if given.startswith("Bearer ") else None
    try:
        return await admit(token, address_of(context.peer()))
    except Unavailable as error:
        raise Refused(grpc.StatusCode.UNAVAILABLE, error.message) from error
    except Error as error:
        raise Refused(grpc.StatusCode.UNAUTHENTICATED, f"{error.code}: {error.message}") from error


def _token_ended() -> Refused:
    return Refused(grpc.StatusCode.UNAUTHENTICATED, "E_JOIN_TOKEN: the token of this agent was revoked or has expired")


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


async def _read(context: Any, seconds: float) -> pb.AgentFrame:
    try:
        async with asyncio.timeout(seconds):
            raw = await context.read()
    except TimeoutError:
        raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"the agent was silent for {seconds:g} s") from None
    if raw is grpc.aio.EOF:
        raise _Over
    try:
        return pb.AgentFrame.FromString(raw)
    except DecodeError as error:
        raise invalid("a frame that cannot be read as horae.v1.AgentFrame") from error


class Session:
    """One agent's stream."""

    def __init__(
        self, agents: Agents, context: Any, node: Node, session_id: str, topics: Sequence[str], token: Token | None
    ) -> None:
        """`token` is what it came in with, if one was needed."""
        self.node, self.token = node, token
        self._kinds = frozenset(node.kinds)
        self._topics = topics
        self.id = session_id
        self._agents = agents
        self._context = context
        place = "" if agents.files.is_shared else agents.node
        self.link = LocalLink(agents.execution, agents.store, agents.queue, place=place)
        self._outbox = Outbox()
        self._ended = asyncio.Event()
        self._refusal: Refused | None = None  # with which it is ended
        self._requests: set[asyncio.Task[None]] = set()
        self._claims: set[asyncio.Task[None]] = set()
        self._chunks: asyncio.Queue[pb.Chunks] = asyncio.Queue()
        self._under_way = 0  # bytes of chunks taken and not yet stored
        self._held: dict[int, int] = {}  # run → fence, as of
        self._held_at = float("-inf")
        self.capacity: dict[str, int] = {}  # kind → how many runs of it at once; else the node's slots
        self._given: dict[int, str] = {}  # run → kind, of those that this line gave
        self._numbers: dict[tuple[int, int], int] = {}  # (run, fence) → number of the attempt, as far as it was needed
        self._jobs: dict[int, int] = {}  # run → its job, the same way
        self._intake = Intake(agents.files, agents.limits)
        self._claiming: Counter[str] = Counter()  # kind → runs that claims under way may give
        self._is_held_back = False  # it asked for more than it could take before its results were here
        self._heard_at = agents.clock.elapsed()

    def send(self, frame: pb.ServerFrame, urgency: Urgency = Urgency.REQUEST) -> None:
        self._outbox.put(frame.SerializeToString(), urgency)

    def end(self) -> None:
        self._ended.set()

    def refuse(self, refusal: Refused) -> None:
        self._refusal = refusal
        self.end()

    @property
    def is_heard(self) -> bool:
        """Whether it has beaten of late; else what is there may be the end of a line that nobody holds any more."""
        return self._agents.clock.elapsed() - self._heard_at < 2 * self._agents.terms.heartbeat_seconds

    async def serve(self) -> Refused | None:
        """Until either side ends it; answers with what it is ended, if it is refused.

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
                group.create_task(self._store_chunks())
                group.create_task(self._wait_for_end())
                if "cancel" in self._topics:
                    group.create_task(self._hint_cancels())
                await self._read_all(group)
        except* _Over:
            pass
        except* Refused as refusals:
            refused = _first(refusals)
        return refused

    async def _read_all(self, group: asyncio.TaskGroup) -> None:
        patience = 2 * self._agents.terms.lease_seconds + HELLO_SECONDS
        while True:
            frame = await _read(self._context, patience)
            self._heard_at = self._agents.clock.elapsed()
            body = frame.WhichOneof("body")
            if body == "chunks":
                self._take(frame.chunks)
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

    async def _write(self) -> None:
        while frame := await self._outbox.get():
            await self._context.write(frame)

    async def _wait_for_end(self) -> None:
        await self._ended.wait()
        raise self._refusal or _Over

    async def _hint_cancels(self) -> None:
        while True:
            if await self.link.wait("cancel", 3600.0):
                self._tell("cancel")
                await asyncio.sleep(HINT_GAP)

    def _tell(self, topic: str) -> None:
        self.send(pb.ServerFrame(hint=pb.Hint(topic=topic)))

    # ── requests ──
    async def _answer(self, body: str, frame: pb.AgentFrame) -> None:
        urgency = Urgency.BEAT if body == "beat" else Urgency.REQUEST
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answers = await getattr(self, f"_on_{body}")(getattr(frame, body))
        except Superseded as error:
            raise Refused(grpc.StatusCode.ABORTED, f"{error.code}: {error.message}") from error
        except Error as error:
            answers = [_failure(error)]
        except TimeoutError:
            answers = [_failure(Unavailable(f"{body} took longer than {REQUEST_SECONDS:g} s"))]
        for number, answer in enumerate(answers, 1):
            answer.id, answer.more = frame.id, number < len(answers)
            self.send(answer, urgency)

    async def _on_hello(self, _: pb.Hello) -> list[pb.ServerFrame]:
        raise invalid("hello is the first frame only")

    async def _on_join(self, join: pb.Join) -> list[pb.ServerFrame]:
        self._forget_held()
        await self.link.hello(self.node, _attempts(join.held, join.fences))
        self._agents.queue.announce("nodes")
        return [_done()]

    async def _on_beat(self, beat: pb.Beat) -> list[pb.ServerFrame]:
        held = Holding(beat.held.count, beat.held.digest) if beat.HasField("held") else None
        answer = await self.link.beat(min(beat.busy, MAX_LIST), held)
        if answer is None:
            self._forget_held()
            return [pb.ServerFrame(beat=pb.BeatAnswer(retired=True))]
        cancel = [pb.Held(run_id=run_id, fence=fence) for run_id, fence in answer.cancel]
        return [pb.ServerFrame(beat=pb.BeatAnswer(cancel=cancel, wanted=answer.wanted, in_doubt=answer.in_doubt))]

    async def _on_claim(self, claim: pb.Claim) -> list[pb.ServerFrame]:
        asked = dict(claim.room) or {claim.kind: claim.limit}  # of protocol 1: one kind
        if not self._kinds.issuperset(asked) or not all(1 <= limit <= MAX_CLAIM for limit in asked.values()):
            raise invalid(f"a claim needs kinds that hello named and a limit from 1 to {MAX_CLAIM} for each")
        room = await self._bounded(asked)
        self._is_held_back = room != asked
        hints = self._agents.hints
        announcements = hints.announcements
        claimed = [] if not room or hints.none_wait(room) else await self._claim(room)
        if "runs" in self._topics and room:
            missing = Counter(room)
            missing.subtract(one.kind for one in claimed)
            hints.note_claim(self, self.node, missing, announcements, partial(self._tell, "runs"))
        return [pb.ServerFrame(assignments=pb.Assignments(items=items)) for items in _frames(map(_assignment, claimed))]

    async def _bounded(self, asked: dict[str, int]) -> dict[str, int]:
        """No more than the agent can take, by what it said; it asks for no more, unless our books are old, or its
        results are on the way: those are not looked for again and again."""
        now = self._agents.clock.elapsed()
        is_old = now - self._held_at > self._agents.terms.heartbeat_seconds
        if is_old and any(self._room(kind) < limit for kind, limit in asked.items()):
            self._held, self._held_at = await self._load_held(), now
        rooms = {kind: min(limit, self._room(kind)) for kind, limit in asked.items()}
        return {kind: limit for kind, limit in rooms.items() if limit > 0}

    def _room(self, kind: str) -> int:
        """How many more runs of a kind this agent can take, by what this line has given it. Besides those in its slots
        as many may have ended: it asks for more before their results are here."""
        slots = self.capacity.get(kind, self.node.slots)
        held = sum(of == kind and run_id in self._held for run_id, of in self._given.items())
        return min(slots, 2 * slots - held - self._claiming[kind])

    async def _claim(self, room: dict[str, int]) -> list[Assignment]:
        self._claiming.update(room)
        try:
            claimed = await self.link.claim(room)
        finally:
            self._claiming.subtract(room)
        for one in claimed:
            self._held[one.run_id] = one.fence
            self._given[one.run_id] = one.kind
            self._numbers[one.run_id, one.fence] = one.attempt
            self._jobs[one.run_id] = one.job_id
            self._intake.begin(one.run_id, one.fence)
        return claimed

    async def _on_finish(self, finish: pb.Finish) -> list[pb.ServerFrame]:
        results = self._read_results(finish)
        await self._look(((one.run_id, one.fence) for one in results), fresh=False)
        held = self._held  # a join that comes meanwhile forgets it
        mine = [one for one in results if held.get(one.run_id) == one.fence]
        await self._check_outputs(held, mine)
        accepted = await self.link.finish(mine) if mine else set()
        for result in mine:
            self._held.pop(result.run_id, None)
            self._given.pop(result.run_id, None)
            self._forget_output(result.run_id, result.fence)
        if mine and self._is_held_back:  # it believes that nothing waits
            self._is_held_back = False
            self._tell("runs")
        self._agents.execution.note_fenced(len(results) - len(mine))
        self._log_refused(results, accepted)
        return [pb.ServerFrame(accepted=pb.Accepted(run_ids=sorted(accepted)))]

    async def _check_outputs(self, held: dict[int, int], results: Sequence[Result]) -> None:
        """An attempt ends with its own log, or with none."""
        with_output = [one for one in results if one.output is not None]
        await self._learn_numbers(held, (one.run_id for one in with_output))
        files = self._agents.files
        for one in with_output:
            number = self._numbers.get((one.run_id, one.fence), 0)
            if one.output != files.ref(one.run_id, number, one.fence):
                one.output = None
                make_sound(one, ["its output is not that of this attempt"])

    def _read_results(self, finish: pb.Finish) -> list[Result]:
        """One for each attempt: of several, the first."""
        found: dict[tuple[int, int], Result] = {}
        for one in finish.results:
            if (result := read_result(one, self._agents.files)) is not None:
                found.setdefault((result.run_id, result.fence), result)
        return list(found.values())

    def _log_refused(self, results: Sequence[Result], accepted: set[int]) -> None:
        for result in results:
            if result.run_id not in accepted:
                log.warning("result.fenced", node=self.node.name, run=result.run_id, fence=result.fence)

    async def _on_note_phases(self, noted: pb.NotePhases) -> list[pb.ServerFrame]:
        if len(noted.items) > MAX_LIST or any(one.phase not in (Phase.PREPARING, Phase.RUNNING) for one in noted.items):
            raise invalid(f"phases are 0 (preparing) or 1 (running), at most {MAX_LIST} at once")
        attempts = [(one.run_id, one.fence) for one in noted.items]
        await self._look(attempts, fresh=False)
        await self.link.note_phases([
            (one.run_id, one.fence, Phase(one.phase)) for one in noted.items if self._held.get(one.run_id) == one.fence
        ])  # fmt: skip
        return [_done()]

    async def _on_note_progress(self, noted: pb.NoteProgress) -> list[pb.ServerFrame]:
        if len(noted.items) > MAX_LIST:
            raise invalid(f"at most {MAX_LIST} words on progress at once")
        await self._look(((one.run_id, one.fence) for one in noted.items), fresh=False)
        mine = (one for one in noted.items if self._held.get(one.run_id) == one.fence)
        await self.link.note_progress([(one.run_id, one.fence, read_progress(one)) for one in mine])
        return [_done()]

    async def _on_note_ailment(self, noted: pb.NoteAilment) -> list[pb.ServerFrame]:
        await self.link.note_ailment(read_ailment(noted))
        return [_done()]

    async def _on_load_previous(self, asked: pb.LoadPrevious) -> list[pb.ServerFrame]:
        """Of jobs of which it holds a run; what others did is not its business."""
        _check_ids(asked.job_ids)
        held = self._held
        if not self._jobs_of(held).issuperset(asked.job_ids):
            held = self._held = await self._load_held()
            self._held_at = self._agents.clock.elapsed()
            await self._learn_numbers(held, held)
        mine = [job_id for job_id in asked.job_ids if job_id in self._jobs_of(held)]
        found = await self.link.load_previous(mine) if mine else {}
        return [pb.ServerFrame(previous_results=pb.PreviousResults(results=found))]

    def _jobs_of(self, held: dict[int, int]) -> set[int]:
        return {job_id for run_id, job_id in self._jobs.items() if run_id in held}

    async def _on_disown(self, disown: pb.Disown) -> list[pb.ServerFrame]:
        """After the claims that are still under way: one of them may be what the agent asks about."""
        held = _attempts(disown.held, disown.fences)
        if self._claims:
            await asyncio.wait(tuple(self._claims))
        strangers = sorted(await self.link.disown(held))
        told = pb.Strangers(run_ids=[run_id for run_id, _ in strangers], fences=[fence for _, fence in strangers])
        return [pb.ServerFrame(strangers=told)]

    async def _on_goodbye(self, _: pb.Goodbye) -> list[pb.ServerFrame]:
        await self.link.goodbye()
        self._agents.queue.announce("nodes")
        log.info("agent.left", node=self.node.name)
        return [_done()]

    # ── output ──
    def _take(self, chunks: pb.Chunks) -> None:
        for chunk in chunks.items:
            if not 0 < len(chunk.data) <= wire.MAX_CHUNK or min(chunk.run_id, chunk.attempt, chunk.fence) < 1:
                raise invalid(f"a chunk holds 1 to {wire.MAX_CHUNK} bytes of an attempt under a fence")
            if chunk.file > wire.MAX_FILES:
                raise invalid(f"an attempt has at most {wire.MAX_FILES} files")
            self._under_way += len(chunk.data)
        if self._under_way > wire.WINDOW + wire.MAX_CHUNK:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {wire.WINDOW} bytes of output under way")
        self._chunks.put_nowait(chunks)

    async def _store_chunks(self) -> None:
        while True:
            chunks = await self._chunks.get()
            while True:
                try:
                    stored = await self._store(chunks)
                    break
                except Unavailable as error:  # the agent keeps it on its disk as long as it takes
                    log.warning("output.unavailable", node=self.node.name, error=error.message)
                    await asyncio.sleep(STORE_PAUSE)
            self._under_way -= sum(len(chunk.data) for chunk in chunks.items)
            self.send(pb.ServerFrame(stored=stored))

    async def _store(self, chunks: pb.Chunks) -> pb.Stored:
        await self._look(((chunk.run_id, chunk.fence) for chunk in chunks.items), fresh=True)
        held = self._held  # a join that comes meanwhile forgets it, and to refuse a chunk is to refuse the whole log
        await self._learn_numbers(held, (chunk.run_id for chunk in chunks.items))
        stored = pb.Stored()
        for chunk in chunks.items:
            name = pb.ChunkName(run_id=chunk.run_id, fence=chunk.fence, number=chunk.number, file=chunk.file)
            is_mine = held.get(chunk.run_id) == chunk.fence
            is_right = is_mine and self._numbers.get((chunk.run_id, chunk.fence)) == chunk.attempt
            (stored.items if is_right and await self._intake.store(chunk) else stored.refused).append(name)
        return stored

    async def _learn_numbers(self, held: dict[int, int], run_ids: Iterable[int]) -> None:
        """Which numbers these attempts have, where this line did not give them; one question for all."""
        unknown = sorted({one for one in run_ids if one in held and (one, held[one]) not in self._numbers})
        for one in await self._agents.store.load_held(unknown) if unknown else ():
            if (fence := held.get(one.run_id)) is not None:
                self._numbers[one.run_id, fence] = one.attempt
                self._jobs[one.run_id] = one.job_id

    def _forget_output(self, run_id: int, fence: int) -> None:
        self._numbers.pop((run_id, fence), None)
        self._jobs.pop(run_id, None)
        self._intake.forget(run_id, fence)

    async def _look(self, attempts: Iterable[tuple[int, int]], *, fresh: bool) -> None:
        """Make sure that `held` knows about these attempts: one question for all of them, and only if need be."""
        now = self._agents.clock.elapsed()
        is_old = fresh and now - self._held_at > self._agents.terms.heartbeat_seconds
        if is_old or any(self._held.get(run_id) != fence for run_id, fence in attempts):
            self._held, self._held_at = await self._load_held(), now

    async def _load_held(self) -> dict[int, int]:
        held = dict(await self._agents.store.load_running(self.node.name))
        for run_id, fence in [one for one in self._numbers if held.get(one[0]) != one[1]]:
            self._forget_output(run_id, fence)
        return held

    def _forget_held(self) -> None:
        self._held, self._held_at = {}, float("-inf")


def _first(group: BaseExceptionGroup[Any]) -> Refused:
    one: Any = group
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    assert isinstance(one, Refused)
    return one


def _check_ids(ids: Sequence[int]) -> None:
    if len(ids) > MAX_LIST or any(one < 1 for one in ids):
        raise invalid(f"ids are positive, at most {MAX_LIST} at once")


def _attempts(run_ids: Sequence[int], fences: Sequence[int]) -> list[Fenced]:
    """Runs with their fences; agents of protocol 1 say none."""
    _check_ids(run_ids)
    if not fences:
        return [(run_id, ANY_FENCE) for run_id in run_ids]
    if len(fences) != len(run_ids) or any(fence < 1 for fence in fences):
        raise invalid("every run that is held needs its fence")
    return list(zip(run_ids, fences, strict=True))


def _done() -> pb.ServerFrame:
    return pb.ServerFrame(done=pb.Done())


def _failure(error: Error) -> pb.ServerFrame:
    return pb.ServerFrame(failure=pb.Failure(code=error.code, message=error.message, hint=error.hint))


def _assignment(it: Assignment) -> pb.Assignment:
    return pb.Assignment(
        run_id=it.run_id, fence=it.fence, attempt=it.attempt, job_id=it.job_id, trigger_id=it.trigger_id,
        due_at=it.due_at, kind=it.kind, name=it.name, spec=it.spec, policy=it.policy, data=it.data,
        secrets=it.secrets, source=it.source, cursor=it.cursor, owner=it.owner,
    )  # fmt: skip


def _frames(items: Iterable[pb.Assignment]) -> list[list[pb.Assignment]]:
    """As few lists as fit into frames; one at least, for nothing is an answer too."""
    lists: list[list[pb.Assignment]] = [[]]
    size = 0
    for item in items:
        if lists[-1] and size + item.ByteSize() > wire.FRAME:
            lists.append([])
            size = 0
        lists[-1].append(item)
        size += item.ByteSize()
    return lists
