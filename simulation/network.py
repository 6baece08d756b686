"""The network: lines between agents and servers that carry the real frames, and hints between servers.

A line keeps what `Line` promises (frames in order, none lost before its end), and no more: frames of a line that one
side has left may still arrive at the other, much later, because a split held them up or because who reads them was
paused. A hint may be lost, come late, come twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from horae.errors import Unavailable
from horae.links.session import RemoteLink
from horae.links.stream import Line, LineEnded
from horae.queues.local import LocalQueue, LocalWatch
from horae.rpc.agents.admission import Agents
from horae.wire.generated import agents_pb2 as pb
from simulation.loop import CURRENT, Process
from simulation.world import World

USUAL, LONGEST = 0.001, 0.1  # seconds that a frame takes
FORGOTTEN = 0.3  # share of lines of which the server does not learn at once that they were left: a machine without
# power says nothing, and a middlebox may swallow the last word
FOUND_OUT = (5.0, 90.0)  # seconds after which it does
DEBOUNCE = 0.02  # seconds for which hints are gathered

End = tuple[str, str] | None  # status and text with which a line has ended; None: well


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self._doors: dict[str, tuple[Process, Agents]] = {}  # server → who listens there now
        self.cut: set[tuple[str, str]] = set()  # (from, to): nothing gets through
        self.slow = 0.0  # most seconds that a frame takes more
        self.hints_lost = 0.0  # share of them
        self._held_up: list[_Pipe] = []
        self._connections: list[Connection] = []
        self._queues: dict[Process, HintQueue] = {}
        self.on_accept: dict[
            str, Callable[[Connection], None]
        ] = {}  # client → what happens once, when a server lets it in

    # ── doors ──
    def listen(self, server: str, process: Process, agents: Agents) -> None:
        self._doors[server] = (process, agents)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cut

    def mend(self) -> None:
        """No more splits: what they held up goes on."""
        self.cut.clear()
        self.slow = 0.0
        self.go_on()

    def go_on(self) -> None:
        held_up, self._held_up = self._held_up, []
        for pipe in held_up:
            self.world.later(self.world.between(0, 1.0), pipe.pump)

    def delay(self) -> float:
        return self.world.seldom_long(USUAL, LONGEST) + (self.world.between(0, self.slow) if self.slow else 0.0)

    def hold_up(self, pipe: _Pipe) -> None:
        self._held_up.append(pipe)

    async def connect(self, client: str, server: str) -> Connection:
        """Returns when the server has answered; whoever asks sets the limit."""
        opened: asyncio.Future[Connection] = self.world.loop.create_future()
        self.world.later(self.delay(), self._arrive, client, server, CURRENT.get(), opened)
        return await opened

    def _arrive(self, client: str, server: str, caller: Process, opened: asyncio.Future[Connection]) -> None:
        if self.is_cut(client, server) or self.is_cut(server, client):
            return
        process, agents = self._doors.get(server, (None, None))
        if process is None or agents is None or process.is_dead:
            if not opened.done():
                opened.set_exception(Unavailable(f"{server} refuses connections"))
            return
        connection = Connection(self, client, server, caller, process)

        def accept() -> None:
            self._connections.append(connection)
            connection.serve(agents)
            if client in self.on_accept:
                self.on_accept.pop(client)(connection)
            self.world.later(self.delay(), _give, opened, connection)

        self.world.loop.tell(process, accept)

    def drop(self, process: Process) -> None:
        """A process has died: its machine ends its connections."""
        left = [one for one in self._connections if process in (one.caller, one.server_process)]
        for connection in left:
            connection.reset_by(process)
        self._connections = [one for one in self._connections if one not in left]
        self._queues.pop(process, None)

    def reset_some(self, share: float) -> int:
        """Break connections, as a middlebox does that has forgotten them."""
        chosen = [one for one in self._connections if not one.is_over and self.world.rolls(share)]
        for connection in chosen:
            connection.reset()
        return len(chosen)

    # ── hints ──
    def add_queue(self, process: Process, queue: HintQueue) -> None:
        self._queues[process] = queue

    def spread(self, sender: Process, topics: Sequence[str]) -> None:
        for process, queue in list(self._queues.items()):
            if process is sender or process.is_dead:
                continue
            copies = 0 if self.world.rolls(self.hints_lost) else 2 if self.world.rolls(0.05) else 1
            for _ in range(copies):
                self.world.loop.tell(process, queue.hear, topics, after=self.delay())


def _give(opened: asyncio.Future[Connection], connection: Connection) -> None:
    if opened.done():
        connection.leave()  # whoever wanted it has given up
    else:
        opened.set_result(connection)


class _Pipe:
    """One direction of a connection: what goes in comes out, in order, at its time."""

    def __init__(
        self, network: Network, source: str, target: str, deliver: Callable[[bytes | None, End], None]
    ) -> None:
        self._network = network
        self._source, self._target = source, target
        self._deliver = deliver
        self._under_way: deque[tuple[float, bytes | None, End]] = deque()
        self._last = 0.0
        self.is_closed = False

    def send(self, frame: bytes | None, end: End = None) -> None:
        """A frame, or with None the end: nothing comes after it."""
        if self.is_closed:
            return
        self.is_closed = frame is None
        world = self._network.world
        self._last = max(self._last, world.elapsed + self._network.delay())
        self._under_way.append((self._last, frame, end))
        world.later(self._last - world.elapsed, self.pump)

    def pump(self) -> None:
        while self._under_way and self._under_way[0][0] <= self._network.world.elapsed + 1e-9:
            if self._network.is_cut(self._source, self._target):
                self._network.hold_up(self)
                return
            _, frame, end = self._under_way.popleft()
            self._deliver(frame, end)

    def lose_all(self) -> None:
        self._under_way.clear()


class Connection:
    """One line, with both of its ends."""

    def __init__(self, network: Network, client: str, server: str, caller: Process, server_process: Process) -> None:
        self.network = network
        self.client, self.server = client, server
        self.caller, self.server_process = caller, server_process
        self.to_server = _Pipe(network, client, server, self._reach_server)
        self.to_client = _Pipe(network, server, client, self._reach_client)
        self.at_server: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.at_client: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended_for_client: End = None
        self.is_over_for_server = False
        self._serving: asyncio.Task[None] | None = None
        self._cancels = network.world.rolls(0.5)  # gRPC cancels whoever serves a caller that left; NATS tells it
        self.is_forgotten = network.world.rolls(FORGOTTEN)  # its end is lost on the way, and found out much later
        self.is_left = False

    @property
    def is_over(self) -> bool:
        return self.is_left or self.to_server.is_closed or self.to_client.is_closed

    def serve(self, agents: Agents) -> None:
        self._serving = asyncio.create_task(self._serve(agents))

    async def _serve(self, agents: Agents) -> None:
        """As a server of gRPC does: what its handler raises ends the stream."""
        end: End = None
        try:
            await agents.connect(None, _Context(self))
        except asyncio.CancelledError:
            end = ("CANCELLED", "cancelled")
        except Exception as error:
            self.network.world.counts["handlers that raised"] += 1
            self.network.world.tell(f"a stream ended with {type(error).__name__}: {error}")
            end = ("UNKNOWN", str(error))
        finally:
            self.to_client.send(None, end)

    # ── what arrives ──
    def _reach_server(self, frame: bytes | None, _: End) -> None:
        world = self.network.world
        if frame is None:
            self.is_over_for_server = True
            if self._cancels and self._serving is not None:
                world.loop.tell(self.server_process, self._serving.cancel)
                return
        elif world.is_told:
            body = pb.AgentFrame.FromString(frame)
            world.tell(f"{self.client} → {self.server}: {_shown(body)}")
        self.at_server.put_nowait(frame)

    def _reach_client(self, frame: bytes | None, end: End) -> None:
        if frame is None:
            self.ended_for_client = end
        elif self.network.world.is_told:
            body = pb.ServerFrame.FromString(frame)
            self.network.world.tell(f"{self.server} → {self.client}: {_shown(body)}")
        self.at_client.put_nowait(frame)

    # ── ends ──
    def leave(self) -> None:
        """The client does not want it any more: what it has sent before still arrives."""
        self.is_left = True
        world = self.network.world
        world.later(world.between(*FOUND_OUT) if self.is_forgotten else 0.0, self.to_server.send, None)

    def reset_by(self, process: Process) -> None:
        if process is self.caller:
            self.leave()
        else:
            self.to_client.send(None, ("UNAVAILABLE", "connection reset"))

    def reset(self) -> None:
        for pipe in (self.to_server, self.to_client):
            if self.network.world.rolls(0.5):
                pipe.lose_all()
            pipe.send(None, ("UNAVAILABLE", "connection reset"))


def _shown(frame: pb.AgentFrame | pb.ServerFrame) -> str:
    body = frame.WhichOneof("body")
    inner = str(getattr(frame, body)) if body else ""
    words = " ".join(inner.split())
    return f"{body} {frame.id} {words[:160]}"


class _Context:
    """A stream of gRPC, as whoever serves it sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return f"simulated:{self._connection.client}"

    async def read(self) -> Any:
        frame = await self._connection.at_server.get()
        if frame is None:
            self._connection.at_server.put_nowait(None)
            return grpc.aio.EOF
        return frame

    async def write(self, frame: bytes) -> None:
        if self._connection.is_over_for_server:
            raise asyncio.InvalidStateError("the stream is over")
        self._connection.to_client.send(frame)

    async def abort(self, status: grpc.StatusCode, text: str) -> None:
        self._connection.to_client.send(None, (status.name, text))


class SimulatedLine:
    """A line as its agent sees it."""

    def __init__(self, network: Network, client: str, server: str) -> None:
        self._network = network
        self._client, self._server = client, server
        self._connection: Connection | None = None

    async def open(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                self._connection = await self._network.connect(self._client, self._server)
        except TimeoutError:
            raise Unavailable(f"no connection within {seconds:g} s") from None

    async def read(self) -> bytes | None:
        assert self._connection is not None
        frame = await self._connection.at_client.get()
        if frame is None:
            self._connection.at_client.put_nowait(None)
            self._raise_end()
        return frame

    async def write(self, frame: bytes) -> None:
        assert self._connection is not None
        if self._connection.is_left or self._connection.to_server.is_closed:
            raise Unavailable("the server ended the stream")
        self._connection.to_server.send(frame)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.leave()

    def _raise_end(self) -> None:
        assert self._connection is not None
        if self._connection.ended_for_client is not None:
            raise LineEnded(*self._connection.ended_for_client)


class SimulatedLink(RemoteLink):
    """Servers are names of the network."""

    network: Network

    def _line(self, server: str) -> Line:
        assert self._node is not None
        return SimulatedLine(self.network, self._node.name, server)


class Watch(LocalWatch):
    """Woken in the order in which they began to watch."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __hash__(self) -> int:
        return self._number


class HintQueue(LocalQueue):
    """Announcements to all servers, as the queue on PostgreSQL makes them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network
        self._process = CURRENT.get()
        self._outbox: set[str] = set()
        self._count = 0
        network.add_queue(self._process, self)

    def watch(self, topic: str) -> Watch:
        super().watch(topic)  # makes the set, and forgets the watch that nobody holds
        self._count += 1
        watch = Watch(self._count)
        self._watches[topic].add(watch)
        return watch

    def announce(self, topic: str) -> None:
        self._wake(topic)
        if not self._outbox:
            asyncio.get_running_loop().call_later(DEBOUNCE, self._send)
        self._outbox.add(topic)

    def _send(self) -> None:
        topics, self._outbox = sorted(self._outbox), set()
        self._network.spread(self._process, topics)

    def hear(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        """The oldest first: a set forgets watches when its garbage is collected, and its order depends on that."""
        for watch in sorted(self._watches.get(topic, ()), key=hash):
            watch.wake()
