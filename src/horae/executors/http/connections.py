"""The connections of an agent's requests: kept open between runs, and shared by all of them.

A name is looked up once for each connection, all its addresses are judged (executors.reach), and one of those very
addresses is connected to: so nobody who answers for a name can lead a request elsewhere between two looks.

What must stay true: a connection is lent to one request at a time, and comes back only after a whole answer; what is
cancelled while it connects leaves no socket behind.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from horae.errors import Invalid
from horae.executors.http import faults
from horae.executors.http.faults import Fault
from horae.executors.reach import Reach

CONNECT_SECONDS = 10.0  # for each address of a name
KEEP_SECONDS = 4.0  # a connection that nobody uses: less than servers keep theirs
MOST_TO_ONE = 100  # connections to one server at a time: who comes later waits for one
LOOKING_UP = 16  # threads
PIECE_BYTES = 1 << 16
Enter = Callable[[str], None]  # is told what is being waited for


class Origin(NamedTuple):
    """Where a request goes. What holds for one origin (its credentials) does not hold for another."""

    scheme: str
    host: str
    port: int

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def authority(self) -> str:
        """As in addresses and in the header Host."""
        usual = 443 if self.scheme == "https" else 80
        return self.address.removesuffix(f":{usual}") if self.port == usual else self.address


class Connection:
    __slots__ = ("_reader", "_writer", "is_kept", "kept_since", "origin")

    def __init__(self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self.is_kept = False  # an earlier request used it: its server may have closed it meanwhile
        self.kept_since = 0.0
        self._reader = reader
        self._writer = writer

    @property
    def is_usable(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def send(self, data: bytes) -> None:
        """Never raises for a connection that broke: the server may have answered before."""
        self._writer.write(data)
        if len(data) > PIECE_BYTES:
            with suppress(OSError):
                await self._writer.drain()

    async def read(self) -> bytes:
        """Return the next bytes; none at the end, however it ended."""
        try:
            return await self._reader.read(PIECE_BYTES)
        except OSError:
            return b""

    def end(self) -> None:
        self._writer.transport.abort()


class Lane:
    """What is open to one origin."""

    __slots__ = ("idle", "turns", "users")

    def __init__(self) -> None:
        self.idle: deque[Connection] = deque()
        self.turns = asyncio.Semaphore(MOST_TO_ONE)
        self.users = 0  # who have a connection, or wait for one


class Connections:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._lanes: dict[Origin, Lane] = {}
        self._tls: ssl.SSLContext | None = None
        self._resolvers: ThreadPoolExecutor | None = None
        self._looking: dict[tuple[str, int], asyncio.Future[list[str]]] = {}
        self._tidying: asyncio.TimerHandle | None = None
        self.made = 0  # connections, since the beginning

    async def take(self, origin: Origin, enter: Enter) -> Connection:
        """Return a connection that nobody else uses. Fault where there is none to be had."""
        lane = self._lanes.get(origin) or self._lanes.setdefault(origin, Lane())
        lane.users += 1
        try:
            if lane.turns.locked():
                enter(f"waiting for one of the {MOST_TO_ONE} connections to {origin.address}")
            await lane.turns.acquire()
        except BaseException:
            self._leave(origin, lane)
            raise
        try:
            return _kept(lane) or await self._dial(origin, enter)
        except BaseException:
            lane.turns.release()
            self._leave(origin, lane)
            raise

    def give_back(self, connection: Connection, *, may_stay: bool) -> None:
        """`may_stay`: its answer was read to the end, and the server keeps it open."""
        lane = self._lanes[connection.origin]
        if may_stay and connection.is_usable:
            loop = asyncio.get_running_loop()
            connection.is_kept, connection.kept_since = True, loop.time()
            lane.idle.append(connection)
            if self._tidying is None:
                self._tidying = loop.call_later(KEEP_SECONDS, self._tidy)
        else:
            connection.end()
        lane.turns.release()
        self._leave(connection.origin, lane)

    def _leave(self, origin: Origin, lane: Lane) -> None:
        lane.users -= 1
        if not lane.users and not lane.idle:
            self._lanes.pop(origin, None)

    def _tidy(self) -> None:
        """Close what nobody has used for a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() - KEEP_SECONDS
        for origin, lane in list(self._lanes.items()):
            while lane.idle and lane.idle[0].kept_since <= until:
                lane.idle.popleft().end()
            if not lane.idle and not lane.users:
                del self._lanes[origin]
        is_needed = any(lane.idle for lane in self._lanes.values())
        self._tidying = loop.call_later(KEEP_SECONDS / 4, self._tidy) if is_needed else None

    async def close(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
        for lane in self._lanes.values():
            while lane.idle:
                lane.idle.pop().end()
        if self._resolvers is not None:
            self._resolvers.shutdown(wait=False, cancel_futures=True)

    # ── making one ──

    async def _dial(self, origin: Origin, enter: Enter) -> Connection:
        """Connect to the first address that answers."""
        enter(f"looking up {origin.host}")
        failure: Fault | OSError = faults.unresolved(origin.host)
        tls = await self._tls_for(origin)
        for address in await self._addresses(origin):
            enter(f"connecting to {origin.address}")
            try:
                made = await self._connect(origin, address, tls, enter)
            except OSError as error:
                failure = faults.unconnected(origin.address, error)
                continue
            self.made += 1
            return made
        raise failure

    async def _connect(self, origin: Origin, address: str, tls: ssl.SSLContext | None, enter: Enter) -> Connection:
        family = socket.AF_INET6 if ipaddress.ip_address(address.partition("%")[0]).version == 6 else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, (address, origin.port))
            if tls is None:
                return Connection(origin, *await asyncio.open_connection(sock=made))
            enter(f"agreeing on TLS with {origin.address}")
            return Connection(origin, *await _agree(made, tls, origin.host))
        except BaseException:
            made.close()
            raise

    async def _tls_for(self, origin: Origin) -> ssl.SSLContext | None:
        if origin.scheme != "https":
            return None
        if self._tls is None:  # it reads the certificates of the system
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls

    async def _addresses(self, origin: Origin) -> list[str]:
        """Return those of a name, judged. Who asks for a name that is being looked up waits for the same answer."""
        key = (origin.host, origin.port)
        looking = self._looking.get(key)
        if looking is None:
            if self._resolvers is None:  # of their own: a slow name must not hold up what else threads do
                self._resolvers = ThreadPoolExecutor(LOOKING_UP, "resolver")
            loop = asyncio.get_running_loop()
            looking = self._looking[key] = loop.run_in_executor(self._resolvers, self._reach.addresses, *key)
            looking.add_done_callback(lambda done: self._found(key, done))
        try:
            return await asyncio.shield(looking)
        except Invalid as error:
            raise Fault(f"{error.message} ({error.code}); {error.hint}", "AddressError", final=True) from None

    def _found(self, key: tuple[str, int], done: asyncio.Future[list[str]]) -> None:
        self._looking.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waits has it too; perhaps nobody does any more


async def _agree(
    made: socket.socket, tls: ssl.SSLContext, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection(sock=made, ssl=tls, server_hostname=name)
    except TimeoutError:
        raise ssl.SSLError(f"TLS was not agreed on in {CONNECT_SECONDS:g} s") from None


def _kept(lane: Lane) -> Connection | None:
    """Return the one that was used last: its server has had the least time to close it."""
    while lane.idle:
        connection = lane.idle.pop()
        if connection.is_usable:
            return connection
        connection.end()
    return None
