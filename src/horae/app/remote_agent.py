"""A remote agent: the parts of a server's agent, with a link to a server in the place of a store.

gRPC and NATS are loaded when an agent starts, because nobody at a terminal should wait for them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from horae.app.machine import SystemClock, end_task, identity_of, keep_private
from horae.app.parts import all_labels, list_handlers, make_reach, make_work, offered
from horae.app.process import HttpServer, listen, make_http_server, on_signals, set_up_logging
from horae.app.roles import REMOTE_POLL, AgentRole
from horae.app.server import DRAIN, OUTPUT_SECONDS
from horae.app.telemetry import close_spans, connect_spans, open_spans
from horae.config import Config
from horae.core.model import Node
from horae.errors import Unavailable
from horae.executors.processes.process import KeeperProcess
from horae.files import open_files
from horae.service.agent.agent import Agent
from horae.service.metrics import Metrics
from horae.web.probe import Probe

if TYPE_CHECKING:
    from horae.links.session import RemoteLink
    from horae.telemetry.otlp import OtlpSink

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the servers of a remote agent are, and how it gets in."""

    servers: tuple[str, ...]  # host:port each, or one address of NATS
    token: str | None = None
    join: str | None = None  # a token by which it gets a credential of its own
    is_secure: bool = False
    authority: bytes | None = None  # PEM; None: whom the system trusts
    certificate: bytes | None = None  # PEM of our own with its key, for servers that ask for one


async def serve_agent(
    config: Config, address: ServerAddress, on_change: Callable[[str, str], None], probe_port: int | None = None
) -> None:
    """Run an agent of a server elsewhere until SIGTERM or SIGINT; on a port, answer those who watch over it."""
    set_up_logging(config.log_format)
    listener = listen("127.0.0.1", probe_port) if probe_port is not None else None
    umask = keep_private(config.data)
    from horae.links.credential import OwnCredential
    from horae.links.grpc import GrpcLink
    from horae.links.nats import NatsLink
    from horae.links.session import Credentials
    from horae.links.spool import AgentSpool

    clock, stop, directory = SystemClock(), on_signals(), config.data / "agent"
    place = config.files if "://" in config.files else directory / "spool" / "outputs"
    files = open_files(place, endpoint=config.files_endpoint, spool=directory / "spool" / "away")
    spool = AgentSpool(files, directory / "spool")
    file = directory / "credential"
    own = OwnCredential(file, address.join) if address.join or (not address.token and file.exists()) else None
    credentials = Credentials(
        identity_of(directory),
        secrets.token_hex(16),
        address.token,
        address.is_secure,
        address.authority,
        own,
        address.certificate,
    )
    kind = NatsLink if "://" in address.servers[0] else GrpcLink
    link = kind(address.servers, spool, credentials, on_change=on_change)
    work = make_work(config, clock, make_reach(config, servers=address.servers), umask=umask)
    keeper, executors = work.keeper, work.executors
    now = clock.now()
    node = Node(
        name=config.node, roles=("agent",), kinds=tuple(executors), labels=all_labels(config, work.sandboxes),
        slots=config.slots, version=version("horae"), address="", started_at=now, heartbeat_at=now, beat=0,
        resources=offered(config), capacity={kind: executor.slots for kind, executor in executors.items()},
    )  # fmt: skip
    spans = open_spans(config)
    agent = work.make_agent(config, node, link, spool, clock, directory / "spool", spool, spans=spans)
    link.handlers = partial(list_handlers, executors)
    if isinstance(link, NatsLink):
        link.room = agent.capacity
    async with AsyncExitStack() as stack:
        if spans is not None:
            stack.push_async_callback(close_spans, spans)
        stack.push_async_callback(keeper.close)
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Any]] = [group.create_task(link.run()), group.create_task(spool.tidy())]
            if listener is not None:
                tasks.append(group.create_task(_make_probe(agent, keeper, node.slots, spans).serve(sockets=[listener])))
            await files.take_up()
            await _until_joined(agent, link, keeper, stop)
            role = AgentRole(agent, link, clock, interval=config.heartbeat_interval, poll=REMOTE_POLL)
            tasks.append(group.create_task(role.run()))
            await stop.wait()
            log.info("node.stopping", node=config.node)
            await (agent.hand_on if stop.may_come_back else agent.drain)(DRAIN)
            on_change("drained", "")
            await end_task(tasks.pop())
            with suppress(Unavailable):  # then its lease runs out
                await agent.leave()
            await files.settle(OUTPUT_SECONDS)
            for task in tasks:
                await end_task(task)
    log.info("node.stopped", node=config.node)


async def _until_joined(agent: Agent, link: RemoteLink, keeper: KeeperProcess, stop: asyncio.Event) -> None:
    """Join as soon as a server can be reached, or be told to stop before."""
    joining = asyncio.create_task(_join(agent, link, keeper))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (joining, stopping):
        if not task.done():
            await end_task(task)
    if not joining.cancelled():
        joining.result()


async def _join(agent: Agent, link: RemoteLink, keeper: KeeperProcess) -> None:
    await agent.prepare()
    link.life = keeper.life
    while True:
        try:
            return await agent.leash.greet()
        except Unavailable as error:
            log.warning("server.unreachable", error=error.message)
            await asyncio.sleep(0.2)


def _make_probe(agent: Agent, keeper: KeeperProcess, slots: int, spans: OtlpSink | None) -> HttpServer:
    metrics = Metrics()
    connect_spans(metrics, spans)
    metrics.busy, metrics.slots = lambda: agent.busy, slots
    return make_http_server(
        Probe(lambda: "ok" if keeper.is_alive else "the keeper of this agent is gone", metrics.text), None
    )
