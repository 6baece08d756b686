"""Builds the parts of a running Horae from a Config: the store, the queue, the services, and their order.

store (lock, migrate, open) ─► services ─► agent joins ─► coordinator leads ─► roles run

With `workshop` (what an agent executes with) and `serving` (what listens) the only place that knows concrete classes.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import secrets
import shutil
import socket
import ssl
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from horae.config import DISK_SHARE, HISTORY_DAYS, Config
from horae.core import datawork
from horae.core.model import SECOND, Moment, Node, Token
from horae.errors import ConfigError, Superseded, Unavailable
from horae.executors.process import KeeperProcess
from horae.files import open_files
from horae.keys import FileKeys
from horae.links.peers import GrpcPeers
from horae.ports import Executor, Sandboxes, Store, Terms
from horae.queues.courier import NatsCourier
from horae.queues.database import LocalQueue
from horae.queues.nats import DEBOUNCE as NATS_DEBOUNCE
from horae.queues.nats import NatsWire
from horae.queues.shared import SharedQueue
from horae.roles import AgentRole, CoordinatorRole, RetentionRole, SchedulerRole, persist
from horae.service import Services
from horae.service.access import Access
from horae.service.agent import Agent
from horae.service.cluster import Cluster
from horae.service.events import Ended, Events
from horae.service.execution import Execution, LocalLink
from horae.service.firing import Firing
from horae.service.handover import Handover
from horae.service.insight import Insight
from horae.service.jobs import Jobs
from horae.service.lending import Lending
from horae.service.metrics import Metrics
from horae.service.naming import find_session, join
from horae.service.nodes import Nodes
from horae.service.outside import Outside
from horae.service.retention import Retention
from horae.service.rotation import Rotation
from horae.service.sealing import Sealing
from horae.service.secrets import Secrets
from horae.service.sources import Sources
from horae.service.station import Station
from horae.stores import migrate as migrations
from horae.stores.notices import Notices
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.web.facades.rpc.calls import Calls
from horae.wire.nats import Connector
from horae.wire.proofs import Proof
from horae.workshop import all_labels, make_executors, make_probe, make_reach, make_sandboxes

if TYPE_CHECKING:
    from horae.rpc.server import RpcServer

PRIVATE = 0o077  # rights that nobody else has to what we write

log = structlog.get_logger()
T = TypeVar("T")

LONGEST_GRACE = 10.0  # seconds beyond its lease before a silent node is declared gone, for its keeper to kill
LONGEST_GATHERING = 0.25  # seconds for which beats wait for each other
DRAIN = 20.0  # seconds that running work gets to finish when the process is told to stop
HINTS = 5.0  # seconds after which the connection for hints counts as lost
SETTLE = 5.0  # seconds for output that a store out of reach has not taken yet
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


async def settle_retention(config: Config, store: Store) -> Config:
    """What is kept for how long, where the settings leave it open: new installations keep the latest, those that ran
    before this was so keep all (the migration has left a mark in their store)."""
    mark = await store.keep_setting("retention", "bounded")
    days, limit = (HISTORY_DAYS, _share_of_disk(config.files)) if mark == "bounded" else (0, 0)
    settled = replace(
        config,
        history_days=days if config.history_days is None else config.history_days,
        files_limit=limit if config.files_limit is None else config.files_limit,
    )
    log.info("retention", history_days=settled.history_days, files_limit=settled.files_limit)
    return settled


def _share_of_disk(files: str) -> int:
    """Of the disk that output lies on, in whole GiB or MiB; 0 where it lies in a bucket, which has no size."""
    if "://" in files:
        return 0
    Path(files).mkdir(parents=True, exist_ok=True)
    share = shutil.disk_usage(files).total // DISK_SHARE
    unit = 2**30 if share >= 2**30 else 2**20
    return share // unit * unit


def open_queue(config: Config) -> LocalQueue:
    """Hints between the parts of this process; on PostgreSQL or over NATS, also to and from other nodes."""
    if config.broker is not None:
        connector = _connector(config, "hints")
        return SharedQueue(lambda: NatsWire.open(connector), debounce=NATS_DEBOUNCE)
    if config.sqlite_path is not None:
        return LocalQueue()
    return SharedQueue(lambda: Notices.open(config.database, timeout=HINTS))


def keep_private(directory: Path) -> int:
    """From now on, what this process writes is its user's alone, and so is its data directory, which is mended where
    others may look into it. Answers the umask that work has: that of the user."""
    umask = os.umask(PRIVATE)
    directory.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & PRIVATE:
        try:
            directory.chmod(mode & ~PRIVATE)
        except PermissionError:
            hint = f"run as its owner, or give another directory: --data; or its owner runs chmod 700 {directory}"
            raise ConfigError(
                f"others can look into {directory}, and it is not ours to mend", path="data", hint=hint
            ) from None
        log.warning("data.was_open", path=str(directory), mode=f"{mode:o}", now=f"{mode & ~PRIVATE:o}")
    return umask


class OwnDirectory:
    """A data directory, held by a lock for as long as this process lives. Others may use it too; but whoever holds it
    knows that no process which held it before is alive."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "node.lock"
        self._lock: int | None = None

    def hold(self) -> bool:
        if self._lock is None:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return False
            self._lock = lock
        return True


def keeps_work(config: Config) -> bool:
    """Whether running work outlives this process. Not where everything ends with it: as the first of a container."""
    return config.on_restart == "keep" and os.getpid() != 1


def identity_of(directory: Path) -> str:
    """Of this data directory: made once, so that others know the node again after a crash."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "identity"
    if not file.exists():
        part = directory / "identity.part"
        part.write_text(secrets.token_hex(16))
        part.rename(file)
    return file.read_text().strip()


def _here() -> str:
    return f" on {socket.gethostname()}"


class App:
    """Everything a process is made of, wired but not yet running."""

    def __init__(
        self, config: Config, store: Store, clock: SystemClock, secret: str = "", *, has_one_user: bool = False,
        work_umask: int = -1,
    ) -> None:  # fmt: skip
        """`secret` is what the servers of the cluster have in common; with one user, this machine is theirs."""
        self.config = config
        self._identity = identity_of(config.data / "agent")
        self._directory = OwnDirectory(config.data / "agent")
        self._directory.hold()
        self._secret = secret
        self.store = store
        roles = store.for_roles()  # for whatever must not wait for users
        self.clock = clock
        self.queue = open_queue(config)
        self.courier = NatsCourier(_connector(config, "courier")) if config.broker is not None else None
        self.events = Events(self.courier, clock, source=config.node) if self.courier is not None else None
        self.metrics = Metrics()
        self.files = open_files(config.files, endpoint=config.files_endpoint, spool=config.data / "spool" / "outputs")
        self.keeper = KeeperProcess(config.data / "agent", keeps=keeps_work(config), umask=work_umask)
        # Left to workers outside Horae: nobody here takes them, and that nobody can is no failure.
        foreign_kinds = datawork.KINDS if config.lake_workers == "external" else ()
        keys = FileKeys(config.secret_key_file)
        kept = Secrets(roles, keys)
        self.sealing = sealing = Sealing(store, keys)
        self.execution = Execution(
            roles, self.queue, clock, self.metrics, foreign_kinds=foreign_kinds, secrets=kept, sealing=sealing,
            events=self.events, beat_gap=min(LONGEST_GATHERING, config.heartbeat_interval / 20),
        )  # fmt: skip
        self.firing = Firing(roles, self.queue, clock, self.metrics, offer_seconds=config.scan_interval)
        self.link = LocalLink(self.execution, roles, self.queue, place="" if self.files.is_shared else config.node)
        self.cluster = Cluster(
            roles, self.queue, clock, self.execution, node=config.node, lease_seconds=config.lease,
            dead_after=config.lease + min(LONGEST_GRACE, max(2.0, config.lease)),
            is_exclusive=config.sqlite_path is not None, is_shared=config.scheduler_mode == "shared",
            outside_after=config.worker_timeout,
            foreign_kinds=foreign_kinds,
        )  # fmt: skip
        self.ended: Ended | None = None
        if self.courier is not None:
            self.ended = Ended(roles, self.courier, clock, source=config.node, is_leader=lambda: self.cluster.is_leader)
        self.retention = Retention(
            roles, self.files, history_days=config.history_days or 0, files_limit=config.files_limit or 0
        )
        is_agent = "agent" in config.roles
        reach = make_reach(config, has_one_user=has_one_user)
        self.sandboxes = make_sandboxes(config, self.keeper, reach) if is_agent else Sandboxes({}, "")
        self.executors: dict[str, Executor] = {}
        if is_agent:
            self.executors = make_executors(config, self.keeper, self.sandboxes, clock, reach)
        self.agent = Agent(
            self._node(), self.link, self.executors, self.files, self.keeper, clock, lease_seconds=config.lease,
            output_limit=config.output_limit, sandboxes=tuple(self.sandboxes.named.values()),
            examine=make_probe(config, self.keeper, None if "://" in config.files else Path(config.files)).examine,
        )  # fmt: skip
        self.peers = GrpcPeers(secret, _authority(config))
        insight = Insight(
            store, self.files, clock, self.metrics, node=config.node, checks=self._checks(), peers=self.peers,
            offer_seconds=config.scan_interval, warnings=[self.sandboxes.warning] if self.sandboxes.warning else [],
        )  # fmt: skip
        jobs = Jobs(store, self.queue, self.events, sealing)
        self.services = Services(
            jobs, insight, Access(store, clock), Nodes(store, self.queue),
            lending=Lending(roles, jobs, self.execution),
            outside=Outside(roles, self.queue, node=config.node, version=version("horae")),
            sources=Sources(store, jobs, sealing),
            secrets=kept,
            rotation=Rotation(roles, keys, kept, sealing, node=config.node),
            station=self._station(),
            lends_lake_work=config.lake_workers == "external",
            runs_in_place=self.sandboxes.trust is not None,
            lake_lease=config.lake_lease,
        )  # fmt: skip
        self._connect_metrics()

    def _connect_metrics(self) -> None:
        """What is read when somebody asks, not counted as it happens."""
        self.metrics.busy = lambda: self.agent.busy
        self.metrics.rebalances = lambda: self.cluster.rebalances
        self.metrics.leads = lambda: self.cluster.is_leader
        if isinstance(store := self.store, PostgresStore):
            self.metrics.failovers = lambda: (store.failovers, store.commits_lost)
        self.metrics.slots = sum(executor.slots for executor in self.executors.values())

    def _node(self) -> Node:
        config, now = self.config, self.clock.now()
        return Node(
            name=config.node, roles=config.roles, kinds=tuple(self.executors),
            labels=all_labels(config, self.sandboxes), slots=config.slots, version=version("horae"),
            address=f"{config.host}:{config.port}", started_at=now, heartbeat_at=now, beat=0,
            grpc=_reachable(config) if config.serves_rpc else "", identity=self._identity,
            holder=f"pid {os.getpid()}{_here()}",
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
            warning, walls = self.sandboxes.warning, self.sandboxes.walls
            checks["walls"] = lambda: f"ok, with a warning: {warning}" if warning else f"ok: {walls}"
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
        await self._look()
        await self.files.take_up()
        await self.queue.open()
        if self.courier is not None:
            await self.courier.open()
        if self.executors:
            await self.agent.prepare()
        greet = self.agent.greet if self.executors else lambda: self.link.hello(self._node())
        await join(self._look, lambda: patiently(self.config, greet))
        if "coordinator" in self.config.roles:
            await patiently(self.config, lambda: self.store.watch_ended(self.courier is not None))
        with suppress(Unavailable):  # then the role does it, when the store is back
            if "coordinator" in self.config.roles and await self.cluster.campaign():
                await self.cluster.lead()

    async def _look(self) -> None:
        """Under which session our name is ours to take."""
        self.link.session = await patiently(self.config, self._find_session)

    async def _find_session(self) -> int:
        return await find_session(
            self.store, self.clock, self.config.node, lease_seconds=self.config.lease, is_dead=self._is_dead
        )

    def _is_dead(self, known: Node) -> bool:
        """Whether whoever has our name certainly is: nobody else can have this store open, or it had this very data
        directory, which is ours now, on this very machine."""
        if self.config.sqlite_path is not None:
            return not known.via
        is_ours = known.identity == self._identity and known.holder.endswith(_here())
        return is_ours and self._directory.hold()

    def run_roles(self, group: asyncio.TaskGroup) -> dict[str, asyncio.Task[None]]:
        config, interval = self.config, self.config.heartbeat_interval
        tasks: dict[str, asyncio.Task[None]] = {}
        if self.courier is not None and isinstance(self.queue, SharedQueue):
            handover = Handover(self.store.for_roles(), self.queue, self.queue.own, self.courier, self.clock)
            assert self.events is not None
            assert self.ended is not None
            for name, step in (
                ("handover", handover.step), ("attendance", handover.attend), ("events", self.events.step),
                ("ended", self.ended.step),
            ):  # fmt: skip
                tasks[name] = group.create_task(persist(name, step, self.clock))
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
        from horae.rpc.callers import Callers, FreePass
        from horae.rpc.intake import Limits
        from horae.rpc.nats import NatsDoor
        from horae.rpc.outputs import Outputs
        from horae.rpc.scheduling import Scheduling
        from horae.rpc.server import Certificate, RpcServer

        config = self.config
        free_pass = FreePass(config.free_pass, config.host, config.grpc_port)
        agents = Agents(
            self.execution, self.store.for_roles(), self.queue, self.files, self.clock, node=config.node,
            version=version("horae"), terms=Terms(config.lease, config.heartbeat_interval),
            admit=self._admit, needs_no_token=free_pass.covers, still_good=self.services.access.still_good,
            limits=Limits(config.output_limit, config.artifact_limit),
        )  # fmt: skip
        is_api = "api" in config.roles
        callers = Callers(self.services.access, free_pass.covers)
        contracts = (Scheduling(Calls(self.services), callers.identify), Administration(self.services, callers))
        door = None
        if is_api and config.broker is not None:
            # Whoever reaches the broker could be anybody, wherever it stands: a token is always needed.
            door = NatsDoor(agents, _connector(config, "agents"), self._admit, self._prove)
        outputs = Outputs(self.files, self._secret)
        server = RpcServer(agents if is_api else None, outputs, contracts if is_api else (), door, callers.identify)
        certificate = None
        if config.tls_cert is not None and config.tls_key is not None:
            certificate = Certificate(config.tls_cert.read_bytes(), config.tls_key.read_bytes())
        await server.start(config.grpc_address, certificate)
        log.info("rpc.up", node=config.node, address=config.grpc_address)
        return server

    async def _admit(self, token: str | None, peer: str) -> Token:
        return await self.services.access.check(token, "agent", peer)

    async def _prove(self, proof: Proof, peer: str) -> Token:
        return await self.services.access.check_proof(proof, "agent", peer)

    async def _beat(self) -> None:
        if await self.link.beat(0) is None:
            await self.link.hello(self._node())
        await self.clock.sleep(self.config.heartbeat_interval)

    async def stop(self, tasks: dict[str, asyncio.Task[None]], *, keep: bool = False) -> Unavailable | None:
        """In this order: hand the segments over, fire nothing more, drain the agent while the node still beats,
        give up the lead. Answers why others could not be told, if so: they learn it when our lease is over.
        With `keep`, work is left to the next process where it can be."""
        untold: list[Unavailable] = []

        async def tell(step: Awaitable[None]) -> None:
            try:
                await step
            except Superseded:
                log.warning("node.superseded", node=self.config.node)  # whatever we held is another's by now
            except Unavailable as error:
                untold.append(error)

        if "scheduler" in self.config.roles:
            await tell(self.cluster.hand_over(self.link.session))
        await end_task(tasks.get("scheduler"))
        if self.executors:
            await (self.agent.hand_on if keep else self.agent.drain)(DRAIN)
        await end_task(tasks.get("agent"))
        await end_task(tasks.get("retention"))
        await end_task(tasks.get("coordinator"))
        for name in ("handover", "attendance", "events", "ended"):
            await end_task(tasks.get(name))
        await self.files.settle(SETTLE)
        if self.ended is not None:
            await tell(self.ended.drain())
        await tell(self.cluster.resign())
        await tell(self.agent.leave() if self.executors else self.link.goodbye())
        if self.courier is not None and self.events is not None:
            await tell(self.events.drain())
            await self.courier.close()
        await self.queue.close()
        return untold[0] if untold else None


async def end_task(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _connector(config: Config, purpose: str) -> Connector:
    assert config.broker is not None
    return Connector(config.broker, f"horae {config.node} {purpose}", _authority(config))


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


def _calm_collector() -> None:
    """Look for cycles once per few batches of runs, not ten times in each, and never again at what is loaded now.

    Runs are freed by reference count; the usual seven hundred new objects are a fraction of one claim.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)
