"""What crosses NATS: subjects, addresses, and connections that end instead of pretending.

    horae.hints              something has changed, to every node
    horae.work.<kind>.<p>    a run of this kind waits: one message per run and attempt, for one agent (JetStream)
    horae.wanting            runs wait that only some agents may take, to every agent
    horae.agents.…           the frames of agents that are linked by NATS (links.nats, rpc.agents.nats)
    horae.events.…           what happened, for others (JetStream)

A connection is never mended by the client library: it ends, and its owner makes another, so that everybody knows
what may have been lost. nats-py is loaded only where it is needed, because most installations have none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from horae.errors import ConfigError, Unavailable

HINTS = "horae.hints"
WORK = "horae.work"
WORK_STREAM = "HORAE_WORK"
WANTING = "horae.wanting"
TAKEN = "horae.agents.work"  # to here an agent's messages of work come
# Each followed by the name of the agent, so that a broker can give every agent its own; agents of the release before
# are named nowhere in theirs.
HELLO = "horae.agents.hello"
UP, DOWN = "horae.agents.up", "horae.agents.down"
EVENTS = "horae.events"
EVENT_STREAM = "HORAE_EVENTS"
SERVERS = "horae-servers"  # the queue group that answers hello

NODE = "<node>"  # in a subject: the name of the agent whose own it is


class Reach(NamedTuple):
    """What a login of an agent may do with a subject. Servers may do everything with all of them, others nothing."""

    says: bool = False
    hears: bool = False


# Every subject there is, and what agents may do with it: what a broker is to be told (docs/howto/nats.md).
SUBJECTS = {
    HINTS: Reach(),
    f"{WORK}.*.*": Reach(),
    f"{EVENTS}.>": Reach(),
    WANTING: Reach(hears=True),
    f"{HELLO}.{NODE}": Reach(says=True),
    f"{UP}.{NODE}.*": Reach(says=True),
    f"{DOWN}.{NODE}.*": Reach(hears=True),
    f"{TAKEN}.{NODE}.>": Reach(hears=True),
    f"$JS.API.CONSUMER.MSG.NEXT.{WORK_STREAM}.*": Reach(says=True),
    f"$JS.ACK.{WORK_STREAM}.>": Reach(says=True),
    HELLO: Reach(),  # this and the next two are those of agents of the release before
    f"{UP}.*": Reach(),
    f"{DOWN}.*": Reach(),
}

REPLICAS = 3
CONNECT_SECONDS = 5.0
PING_SECONDS = 4  # between two looks whether the broker is there; two without an answer end the connection
CLOSE_SECONDS = 1.0


def own_subject(begin: str, node: str, *more: str) -> str:
    """Return a subject of one agent. A dot would part its name."""
    return ".".join((begin, node.replace(".", "="), *more))


def node_of(part: str) -> str:
    """Return the name in a subject."""
    return part.replace("=", ".")


def servers_of(address: str) -> list[str]:
    """One address per server, of nats://user:password@one:4222,two:4222."""
    scheme, _, rest = address.partition("://")
    login, at, hosts = rest.rpartition("@")
    return [f"{scheme}://{login}{at}{host.strip()}" for host in hosts.split(",")]


def consumer_of(kind: str) -> str:
    """Return the durable consumer from which agents take work of a kind."""
    return f"kind-{kind}"


def hosts_of(address: str) -> list[str]:
    return [urlsplit(server).hostname or "" for server in servers_of(address)]


def load() -> Any:
    """nats-py, or how to get it."""
    try:
        return import_module("nats.aio.client")
    except ImportError:
        raise ConfigError(
            "NATS needs the library nats-py, which is not installed", hint="pip install 'horae[nats]'", path="queue"
        ) from None


class Connector:
    """Makes connections to any of the servers, each time the next one first."""

    def __init__(self, address: str, name: str, authority: bytes | None = None) -> None:
        """`authority` (PEM) is trusted beside those whom the system trusts."""
        self._client = load().Client
        self._servers = servers_of(address)
        self._name = name
        self._tls = _context(authority) if address.startswith("tls:") else None
        self._turn = 0

    @property
    def replicas(self) -> int:
        """On how many servers a stream is kept, so that it outlives one of them: two could not tell who is right."""
        return REPLICAS if len(self._servers) >= REPLICAS else 1

    async def connect(self, closed: Callable[[], None], seconds: float = CONNECT_SECONDS) -> Any:
        """Return a client of nats-py; `closed` is called when its connection has ended. Unavailable when no server
        answers, each within `seconds`."""
        failures = []
        for _ in self._servers:
            server = self._servers[self._turn % len(self._servers)]
            self._turn += 1
            try:
                return await self._try(server, closed, seconds)
            except Unavailable as error:
                failures.append(f"{server.rpartition('@')[2].rpartition('/')[2]}: {error.message}")
        raise Unavailable(f"no server of NATS can be reached: {'; '.join(failures)}")

    async def _try(self, server: str, closed: Callable[[], None], seconds: float) -> Any:
        client, reasons = self._client(), list[str]()

        async def note(error: Exception) -> None:
            reasons.append(str(error) or type(error).__name__)

        async def end() -> None:
            closed()

        try:
            async with asyncio.timeout(seconds):
                await client.connect(
                    [server], name=self._name, tls=self._tls, allow_reconnect=False, max_reconnect_attempts=1,
                    reconnect_time_wait=0.05, connect_timeout=seconds, ping_interval=PING_SECONDS,
                    max_outstanding_pings=1, error_cb=note, closed_cb=end,
                )  # fmt: skip
        except BaseException as error:
            abort_client(client)
            if not isinstance(error, Exception):
                raise
            said = reasons[-1] if reasons else str(error) or type(error).__name__
            raise Unavailable(said if said != "TimeoutError" else f"no answer in {seconds:g} s") from None
        return client


def abort_client(client: Any) -> None:
    """End a connection now, whatever is still to be said: the library's own goodbye waits for a stuck broker."""
    transport = getattr(client._transport, "_io_writer", None)
    if transport is not None:
        transport.transport.abort()
    tasks = [client._reading_task, client._ping_interval_task, client._flusher_task]
    for task in (*tasks, *(subscription._wait_for_msgs_task for subscription in client._subs.values())):
        if task is not None:
            task.cancel()


async def close_client(client: Any) -> None:
    """Say what is still to be said, if the broker hears it soon, and end the connection."""
    try:
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()  # which says it
    finally:
        abort_client(client)
        await asyncio.sleep(0)  # for the transport to be gone


def _context(authority: bytes | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority is not None:
        context.load_verify_locations(cadata=authority.decode())
    return context
