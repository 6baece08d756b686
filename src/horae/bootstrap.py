"""The one place that knows concrete classes: builds a running Horae from a Config.

TLS, listen ─► store (lock, migrate, open) ─► services ─► login ─► agent joins ─► coordinator leads ─► roles run
─► HTTP ─► gRPC

gRPC comes last and is loaded only then, because nobody at a terminal should wait for it. A remote agent
(`serve_agent`) is made of the same parts, with a link to a server in the place of a store.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib.util
import logging
import secrets
import shutil
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import structlog
import uvicorn

from horae.config import Config
from horae.core import datawork
from horae.core.model import SECOND, Moment, Node
from horae.declaring import read_declarations
from horae.errors import ConfigError, Unavailable
from horae.executors.caches import Caches
from horae.executors.git_java import JavaProjects
from horae.executors.git_python import PythonProjects
from horae.executors.process import KeeperProcess
from horae.executors.python import PythonExecutor
from horae.executors.sections import Plan, SectionExecutor
from horae.executors.shell import shell_executor
from horae.files import open_files
from horae.keys import FileKeys
from horae.links.peers import GrpcPeers
from horae.ports import Executor, Keeper, Sandbox, Sandboxes, Store, Terms
from horae.queues.database import LocalQueue
from horae.queues.postgres import PostgresQueue
from horae.roles import AgentRole, CoordinatorRole, RetentionRole, SchedulerRole, persist
from horae.sandboxes.bubblewrap import BubblewrapSandbox, Bwrap, find_bwrap
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.plain import PATH, PlainSandbox
from horae.service import Services
from horae.service.access import Access
from horae.service.agent import Agent
from horae.service.cluster import Cluster
from horae.service.declarations import Declarations
from horae.service.execution import Execution, LocalLink
from horae.service.firing import Firing
from horae.service.insight import Insight
from horae.service.jobs import Jobs
from horae.service.lending import Lending
from horae.service.metrics import Metrics
from horae.service.nodes import Nodes
from horae.service.outside import Outside
from horae.service.retention import Retention
from horae.service.secrets import Secrets
from horae.service.sources import Sources
from horae.service.station import Station
from horae.stores import migrate as migrations
from horae.stores.notices import Notices
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.tls import server_context
from horae.web.app import Gate, Protocol, create_app
from horae.web.facades.rpc.calls import Calls
from horae.web.probe import Probe

if TYPE_CHECKING:
    from horae.rpc.server import RpcServer

log = structlog.get_logger()
T = TypeVar("T")

LONGEST_GRACE = 10.0  # seconds beyond its lease before a silent node is declared gone, for its keeper to kill
DRAIN = 20.0  # seconds that running work gets to finish when the process is told to stop
HINTS = 5.0  # seconds after which the connection for hints counts as lost
QUIET = 120 * SECOND  # a scheduler that has not come round for so long is stuck


class SystemClock:
    def now(self) -> Moment:
        return time.time_ns() // 1000

    def elapsed(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)  # counts suspend, which CLOCK_MONOTONIC does not

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


# ── store ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MigrationReport:
    current: int
    latest: int
    applied: list[str] = field(default_factory=list)
    database: str = ""


async def migrate(config: Config, *, check: bool) -> MigrationReport:
    """Bring the schema up to date, or only say where it stands."""
    path = config.sqlite_path
    if path is not None:
        report = await asyncio.to_thread(migrations.migrate_sqlite, path, check=check)
    else:
        report = await patiently(config, lambda: migrations.migrate_postgres(config.database, check=check))
    return MigrationReport(report.current, report.latest, report.applied, config.database)


async def patiently(config: Config, step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step of the start while the database is away, up to `startup_timeout`."""
    deadline, pause = time.monotonic() + config.startup_timeout, 0.2
    while True:
        try:
            return await step()
        except Unavailable as error:
            if time.monotonic() + pause > deadline:
                raise
            log.warning("database.unreachable", error=error.message, retry_seconds=pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


async def open_store(config: Config, clock: SystemClock, holder: str = "") -> Store:
    """`holder` is what others are told of this process while it holds a database of one; the node, unless said."""
    path = config.sqlite_path
    if path is None:
        await migrate(config, check=False)
        server = PostgresStore(config.database, lease=config.lease)
        await patiently(config, server.open)
        return server
    sqlite = SqliteStore(path, clock=clock.now, holder=holder or f"node {config.node} at {config.address}")
    sqlite.hold()
    await migrate(config, check=False)
    await sqlite.open()
    return sqlite


def open_queue(config: Config) -> LocalQueue:
    """Hints between the parts of this process; on PostgreSQL, also to and from other nodes."""
    if config.sqlite_path is not None:
        return LocalQueue()
    return PostgresQueue(lambda: Notices.open(config.database, timeout=HINTS))


# ── the parts of a process ─────────────────────────────────────────────────────────────────────────


def make_sandboxes(config: Config, keeper: Keeper) -> Sandboxes:
    """Those that work on this machine. The setting `bubblewrap` is a policy too: nothing runs outside of it."""
    groups, named = Groups(config.data), dict[str, Sandbox]()
    bwrap = find_bwrap()
    if isinstance(bwrap, Bwrap):
        named["bubblewrap"] = BubblewrapSandbox(bwrap, keeper, groups, hidden=config.data, roots=config.script_roots)
    elif config.sandbox == "bubblewrap":
        hint = "install bubblewrap and let it make user namespaces, or set sandbox to plain"
        raise ConfigError(f"the sandbox bubblewrap cannot be used: {bwrap}", path="sandbox", hint=hint)
    else:
        log.info("sandbox.unavailable", sandbox="bubblewrap", why=bwrap)
    if config.sandbox != "bubblewrap":
        named["plain"] = PlainSandbox(keeper, groups)
    if (docker := make_docker(config, keeper)) is not None:
        named["docker"] = docker
    default = next(iter(named)) if config.sandbox == "auto" else config.sandbox
    log.info("sandbox.default", sandbox=default, offered=",".join(named))
    return Sandboxes(named, default)


def make_docker(config: Config, keeper: Keeper) -> Sandbox | None:
    """Containers, where a daemon answers; loaded only then, because few agents have one."""
    if not has_daemon(config.docker_url):
        return None
    if importlib.util.find_spec("aiodocker") is None:
        log.warning("sandbox.unavailable", sandbox="docker", why="aiodocker is missing: pip install 'horae[docker]'")
        return None
    from horae.sandboxes.docker import DockerSandbox

    program = shutil.which("docker", path=PATH)
    if program is None:
        log.warning("sandbox.unavailable", sandbox="docker", why="the docker command is not there")
        return None
    agent = hashlib.sha256(str(config.data.resolve()).encode()).hexdigest()[:16]
    return DockerSandbox(program, config.docker_url, keeper, agent)


def has_daemon(url: str) -> bool:
    """Whether somebody listens at the address of a Docker daemon."""
    parts = urlsplit(url)
    family, place = (socket.AF_UNIX, parts.path) if parts.scheme == "unix" else (socket.AF_INET, parts.hostname or "")
    try:
        with socket.socket(family) as probe:
            probe.settimeout(1.0)
            probe.connect(place if family == socket.AF_UNIX else (place, parts.port or 2375))
    except (OSError, ValueError):
        return False
    return True


def make_executors(config: Config, keeper: Keeper, sandboxes: Sandboxes, clock: SystemClock) -> dict[str, Executor]:
    shell = shell_executor(
        sandboxes, config.data / "agent" / "workspaces", slots=config.slots, clock=clock,
        script_roots=config.script_roots, known_hosts=config.data / "agent" / "known_hosts",
        caches=Caches(config.data / "agent" / "caches", config.cache_limit), artifact_limit=config.artifact_limit,
    )  # fmt: skip
    python = PythonExecutor(
        keeper, clock, slots=config.handler_slots, processes=config.workers, jobs_directory=config.jobs_directory
    )
    return {"shell": shell, "python": python, **make_project_executors(config, sandboxes, clock)}


def make_project_executors(config: Config, sandboxes: Sandboxes, clock: SystemClock) -> dict[str, Executor]:
    """Those whose programs are on this machine; what a build needs besides is known when a job wants it."""
    agent, known_hosts = config.data / "agent", config.data / "agent" / "known_hosts"
    java, python = JavaProjects(PATH, known_hosts, config.maven_settings), shutil.which("python3", path=PATH)
    plans: dict[str, Plan] = {}
    if shutil.which("git", path=PATH) and shutil.which("java", path=PATH):
        plans["git_java"] = java.sections
    if shutil.which("git", path=PATH) and python:
        projects = PythonProjects(python, PATH, agent / "environments", known_hosts)
        projects.tidy()
        plans["git_python"] = projects.sections
    return {
        kind: SectionExecutor(kind, plan, sandboxes, agent / "workspaces", config.slots, clock)
        for kind, plan in plans.items()
    }


def all_labels(config: Config, sandboxes: Sandboxes) -> tuple[str, ...]:
    """What the operator says this agent has, and the sandboxes that work here."""
    return tuple(dict.fromkeys((*config.labels, *(f"sandbox:{name}" for name in sandboxes.named))))


class App:
    """Everything a process is made of, wired but not yet running."""

    def __init__(self, config: Config, store: Store, clock: SystemClock, secret: str = "") -> None:
        """`secret` is what the servers of the cluster have in common."""
        self.config = config
        self._secret = secret
        self.store = store
        self.clock = clock
        self.queue = open_queue(config)
        self.metrics = Metrics()
        self.files = open_files(config.files)
        self.keeper = KeeperProcess(config.data / "agent")
        # Left to workers outside Horae: nobody here takes them, and that nobody can is no failure.
        foreign_kinds = datawork.KINDS if config.lake_workers == "external" else ()
        kept = Secrets(store, FileKeys(config.secret_key_file))
        self.execution = Execution(store, self.queue, clock, self.metrics, foreign_kinds=foreign_kinds, secrets=kept)
        self.firing = Firing(store, self.queue, clock, self.metrics, offer_seconds=config.scan_interval)
        self.link = LocalLink(self.execution, store, self.queue, place=config.node)
        self.cluster = Cluster(
            store, self.queue, clock, self.execution, node=config.node, lease_seconds=config.lease,
            dead_after=config.lease + min(LONGEST_GRACE, max(2.0, config.lease)),
            is_exclusive=config.sqlite_path is not None, is_shared=config.scheduler_mode == "shared",
            outside_after=config.worker_timeout,
            foreign_kinds=foreign_kinds,
        )  # fmt: skip
        self.retention = Retention(store, self.files, history_days=config.history_days)
        is_agent = "agent" in config.roles
        self.sandboxes = make_sandboxes(config, self.keeper) if is_agent else Sandboxes({}, "")
        self.executors = make_executors(config, self.keeper, self.sandboxes, clock) if is_agent else {}
        self.agent = Agent(
            self._node(), self.link, self.executors, self.files, self.keeper, clock, lease_seconds=config.lease,
            output_limit=config.output_limit, sandboxes=tuple(self.sandboxes.named.values()),
        )  # fmt: skip
        self.peers = GrpcPeers(secret, _authority(config))
        insight = Insight(
            store, self.files, clock, self.metrics, node=config.node, checks=self._checks(), peers=self.peers,
            offer_seconds=config.scan_interval,
        )  # fmt: skip
        jobs = Jobs(store, self.queue)
        self.services = Services(
            jobs, insight, Access(store, clock), Nodes(store, self.queue),
            lending=Lending(store, jobs, self.execution),
            outside=Outside(store, self.queue, node=config.node, version=version("horae")),
            sources=Sources(store, jobs),
            secrets=kept,
            station=self._station(),
            lake_lease=config.lake_lease,
        )  # fmt: skip
        self.metrics.busy = lambda: self.agent.busy
        self.metrics.rebalances = lambda: self.cluster.rebalances
        self.metrics.leads = lambda: self.cluster.is_leader
        if isinstance(store, PostgresStore):
            self.metrics.failovers = lambda: (store.failovers, store.commits_lost)
        self.metrics.slots = sum(executor.slots for executor in self.executors.values())

    def _node(self) -> Node:
        config, now = self.config, self.clock.now()
        return Node(
            name=config.node, roles=config.roles, kinds=tuple(self.executors),
            labels=all_labels(config, self.sandboxes), slots=config.slots, version=version("horae"),
            address=f"{config.host}:{config.port}", started_at=now, heartbeat_at=now, beat=0,
            grpc=_reachable(config) if config.serves_rpc else "",
        )  # fmt: skip

    def _station(self) -> Station:
        return Station(
            self.config.node, self.config.roles, sum(executor.slots for executor in self.executors.values()),
            self.config.scan_interval, self.config.scheduler_mode == "shared", self.queue, self.metrics,
            scanned_at=lambda: self.firing.fired_at, busy=lambda: self.agent.busy,
            is_leader=lambda: self.cluster.is_leader, led_since=lambda: self.cluster.led_since,
        )  # fmt: skip

    def _checks(self) -> dict[str, Callable[[], str]]:
        checks: dict[str, Callable[[], str]] = {}
        if "agent" in self.config.roles:
            checks["agent"] = lambda: "ok" if self.keeper.is_alive else "the keeper of this agent is gone"
        if "scheduler" in self.config.roles:
            checks["scheduler"] = self._scheduler_check
        return checks

    def _scheduler_check(self) -> str:
        came_round = self.firing.fired_at
        if came_round is None:
            return "the scheduler has not started yet"
        quiet = self.clock.now() - came_round
        return "ok" if quiet < QUIET else f"the scheduler has not come round for {quiet // SECOND} s"

    # ── life ──
    async def start(self) -> None:
        """Join and lead once, so that the first moment can fire as soon as the roles run."""
        _calm_collector()
        await self.queue.open()
        if self.executors:
            await self.agent.prepare()
            await patiently(self.config, self.agent.greet)
        else:
            await patiently(self.config, lambda: self.link.hello(self._node()))
        with suppress(Unavailable):  # then the role does it, when the store is back
            if "coordinator" in self.config.roles and await self.cluster.campaign():
                await self.cluster.lead()

    def run_roles(self, group: asyncio.TaskGroup) -> dict[str, asyncio.Task[None]]:
        config, interval = self.config, self.config.heartbeat_interval
        tasks: dict[str, asyncio.Task[None]] = {}
        retention = RetentionRole(self.cluster, self.retention, self.clock)
        tasks["retention"] = group.create_task(retention.run())
        if "coordinator" in config.roles:
            # Alone on its store, it has nobody to watch.
            look = interval if config.sqlite_path else min(1.0, config.lease / 15)
            coordinator = CoordinatorRole(self.cluster, self.queue, self.clock, interval=interval, look=look)
            tasks["coordinator"] = group.create_task(coordinator.run())
        if "scheduler" in config.roles:
            scheduler = SchedulerRole(
                self.firing, self.cluster, self.queue, self.clock, scan_interval=config.scan_interval
            )
            tasks["scheduler"] = group.create_task(scheduler.run())
        if self.executors:
            agent = AgentRole(self.agent, self.link, self.clock, interval=interval)
            tasks["agent"] = group.create_task(agent.run())
        else:
            tasks["agent"] = group.create_task(persist("node", self._beat, self.clock))
        return tasks

    async def serve_rpc(self) -> RpcServer:
        """Let agents and other servers in: every node that keeps output must give it to those who show it."""
        await asyncio.to_thread(import_module, "horae.rpc.server")  # slow to load
        from horae.rpc.administration import Administration
        from horae.rpc.agents import Agents
        from horae.rpc.callers import Callers
        from horae.rpc.outputs import Outputs
        from horae.rpc.scheduling import Scheduling
        from horae.rpc.server import Certificate, RpcServer

        config = self.config
        agents = Agents(
            self.execution, self.store, self.queue, self.files, self.clock, node=config.node,
            version=version("horae"), terms=Terms(config.lease, config.heartbeat_interval),
            admit=None if config.is_loopback else self._admit,
        )  # fmt: skip
        is_api = "api" in config.roles
        callers = Callers(self.services.access, needs_login=not config.is_loopback)
        contracts = (Scheduling(Calls(self.services), callers.identify), Administration(self.services, callers))
        server = RpcServer(agents if is_api else None, Outputs(self.files, self._secret), contracts if is_api else ())
        certificate = None
        if config.tls_cert is not None and config.tls_key is not None:
            certificate = Certificate(config.tls_cert.read_bytes(), config.tls_key.read_bytes())
        await server.start(config.grpc_address, certificate)
        log.info("rpc.up", node=config.node, address=config.grpc_address)
        return server

    async def _admit(self, token: str | None, peer: str) -> None:
        await self.services.access.check(token, "agent", peer)

    async def _beat(self) -> None:
        if await self.link.beat(0) is None:
            await self.link.hello(self._node())
        await self.clock.sleep(self.config.heartbeat_interval)

    async def stop(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        """In this order: hand the segments over, fire nothing more, drain the agent while the node still beats,
        give up the lead."""
        if "scheduler" in self.config.roles:
            with suppress(Unavailable):  # then they are taken from us when our lease is over
                await self.cluster.hand_over()
        await _end(tasks.get("scheduler"))
        if self.executors:
            await self.agent.drain(DRAIN)
        await _end(tasks.get("agent"))
        await _end(tasks.get("retention"))
        await _end(tasks.get("coordinator"))
        await self.cluster.resign()
        await (self.agent.leave() if self.executors else self.link.goodbye())
        await self.queue.close()


async def _end(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ── serve ──────────────────────────────────────────────────────────────────────────────────────────


async def serve(config: Config, on_ready: Callable[[str], None] | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    set_up_logging(config.log_format)
    secure = _secure(config)
    declared = read_declarations(config.declarations)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        ports = {config.port: "--port", **dict.fromkeys(config.further_ports, "--compat-ports")}
        listeners = [stack.enter_context(listen(config.host, port, flag)) for port, flag in ports.items()]
        place = stack.enter_context(listen(config.host, config.grpc_port, "--grpc-port"))  # kept free for gRPC
        stop = _on_signals()
        store = await open_store(config, clock)
        stack.push_async_callback(store.close)
        fresh = secrets.token_urlsafe(32)
        secret = await patiently(config, lambda: store.keep_setting("cluster_secret", fresh))
        app = App(config, store, clock, secret)
        stack.push_async_callback(app.peers.close)
        stack.push_async_callback(app.queue.close)
        await patiently(config, lambda: _require_login(config, app.services.access))
        await patiently(config, app.services.secrets.check)
        await patiently(config, lambda: Declarations(store, app.services.jobs).apply(declared))
        await app.start()
        gate = create_app(
            app.services, version=version("horae"), allowed_hosts=config.allowed_hosts, loopback_only=config.is_loopback
        )
        server = _http_server(gate, secure)
        async with asyncio.TaskGroup() as group:
            tasks = app.run_roles(group)
            http = group.create_task(server.serve(sockets=listeners))
            await server.up.wait()
            log.info("node.up", node=config.node, address=config.address, roles=",".join(config.roles))
            if on_ready is not None:
                on_ready(config.address)
            place.close()
            rpc = await app.serve_rpc() if config.serves_rpc else None
            await stop.wait()
            log.info("node.stopping", node=config.node)
            if rpc is not None:
                await rpc.stop()
            await app.stop(tasks)
            gate.streams.close()
            server.should_exit = True
            await http
    log.info("node.stopped", node=config.node)


def _secure(config: Config) -> ssl.SSLContext | None:
    """What TLS needs, if it is configured."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    context, warnings = server_context(config.tls_cert, config.tls_key, datetime.now(UTC))
    for warning in warnings:
        log.warning("tls.warning", text=warning)
    return context


def _authority(config: Config) -> bytes | None:
    """Whom this node trusts to be a server of its cluster: the certificate they all have, or whom the system trusts."""
    if config.tls_cert is None:
        return None
    system = ssl.get_default_verify_paths().cafile
    return config.tls_cert.read_bytes() + b"\n" + (Path(system).read_bytes() if system else b"")


def _reachable(config: Config) -> str:
    """Where other nodes find the gRPC port; one that listens everywhere is known by the name of its machine."""
    if config.host in ("0.0.0.0", "::"):  # noqa: S104  # not listened on, compared with
        return f"{socket.gethostname()}:{config.grpc_port}"
    return config.grpc_address


async def _require_login(config: Config, access: Access) -> None:
    """Beyond loopback nothing listens until somebody could log in: else it would serve nobody, or everybody."""
    if not config.is_loopback and not await access.has_login():
        raise ConfigError(
            f"listening on {config.host} needs a login, and there is no user token that is good",
            code="E_LOGIN_REQUIRED",
            path="host",
            hint="make the first one with `horae token create NAME` and the same --data or --database",
        )


@asynccontextmanager
async def local_access(config: Config) -> AsyncIterator[Access]:
    """The tokens of a database without a server: the first one is made before anything listens."""
    set_up_logging(config.log_format)
    clock = SystemClock()
    store = await open_store(config, clock, holder="a `horae token` command")
    try:
        yield Access(store, clock)
    finally:
        await store.close()


# ── a remote agent ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Way:
    """How a remote agent gets to its servers."""

    servers: tuple[str, ...]  # host:port
    token: str | None = None
    is_secure: bool = False
    authority: bytes | None = None  # PEM; None: whom the system trusts


async def serve_agent(
    config: Config, way: Way, on_change: Callable[[str, str], None], probe_port: int | None = None
) -> None:
    """Run an agent of a server elsewhere until SIGTERM or SIGINT; on a port, answer those who watch over it."""
    set_up_logging(config.log_format)
    listener = listen("127.0.0.1", probe_port) if probe_port is not None else None
    from horae.links.grpc import GrpcLink, Ticket
    from horae.links.spool import AgentSpool

    clock, stop, directory = SystemClock(), _on_signals(), config.data / "agent"
    spool = AgentSpool(open_files(directory / "spool" / "outputs"), directory / "spool")
    ticket = Ticket(identity_of(directory), secrets.token_hex(16), way.token, way.is_secure, way.authority)
    link = GrpcLink(way.servers, spool, ticket, on_change=on_change)
    keeper = KeeperProcess(directory)
    sandboxes = make_sandboxes(config, keeper)
    executors = make_executors(config, keeper, sandboxes, clock)
    now = clock.now()
    node = Node(
        name=config.node, roles=("agent",), kinds=tuple(executors), labels=all_labels(config, sandboxes),
        slots=config.slots, version=version("horae"), address="", started_at=now, heartbeat_at=now, beat=0,
    )  # fmt: skip
    agent = Agent(
        node, link, executors, spool, keeper, clock, lease_seconds=config.lease, output_limit=config.output_limit,
        spool=spool, sandboxes=tuple(sandboxes.named.values()),
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        stack.push_async_callback(keeper.close)
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Any]] = [group.create_task(link.run()), group.create_task(spool.tidy())]
            if listener is not None:
                tasks.append(group.create_task(_probe(agent, keeper, config.slots).serve(sockets=[listener])))
            await _until_joined(agent, stop)
            role = AgentRole(agent, link, clock, interval=config.heartbeat_interval)
            tasks.append(group.create_task(role.run()))
            await stop.wait()
            log.info("node.stopping", node=config.node)
            await agent.drain(DRAIN)
            on_change("drained", "")
            await _end(tasks.pop())
            with suppress(Unavailable):  # then its lease runs out
                await agent.leave()
            for task in tasks:
                await _end(task)
    log.info("node.stopped", node=config.node)


async def _until_joined(agent: Agent, stop: asyncio.Event) -> None:
    """Join as soon as a server can be reached, or be told to stop before."""
    joining = asyncio.create_task(_join(agent))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (joining, stopping):
        if not task.done():
            await _end(task)
    if not joining.cancelled():
        joining.result()


async def _join(agent: Agent) -> None:
    await agent.prepare()
    while True:
        try:
            return await agent.greet()
        except Unavailable as error:
            log.warning("server.unreachable", error=error.message)
            await asyncio.sleep(0.2)


def _probe(agent: Agent, keeper: KeeperProcess, slots: int) -> _Server:
    metrics = Metrics()
    metrics.busy, metrics.slots = lambda: agent.busy, slots
    return _http_server(
        Probe(lambda: "ok" if keeper.is_alive else "the keeper of this agent is gone", metrics.text), None
    )


def identity_of(directory: Path) -> str:
    """Of this data directory: made once, so that a server knows the agent again after a crash."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "identity"
    if not file.exists():
        part = directory / "identity.part"
        part.write_text(secrets.token_hex(16))
        part.rename(file)
    return file.read_text().strip()


def _calm_collector() -> None:
    """Look for cycles once per few batches of runs, not ten times in each, and never again at what is loaded now.

    Runs are freed by reference count; the usual seven hundred new objects are a fraction of one claim.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """Take the address before anything else is touched."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = f"stop what listens there, or change {flag} or --host"
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", code="E_LISTEN", hint=hint) from error
    listener.set_inheritable(False)
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the order of stopping is ours."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _http_server(gate: Gate | Probe, secure: ssl.SSLContext | None) -> _Server:
    settings = uvicorn.Config(
        gate, lifespan="off", log_config=None, access_log=False, server_header=False, date_header=False,
        timeout_graceful_shutdown=5, http=Protocol, ws="none", backlog=1024, proxy_headers=False,
        ssl_context_factory=(lambda *_: secure) if secure else None,
    )  # fmt: skip
    return _Server(settings)


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def set_up_logging(form: str) -> None:
    """Events and fields to standard error, as text for people or JSON for machines."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
