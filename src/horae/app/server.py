"""Builds the parts of a running Horae from a Config: the store, the queue, the services, and their order.

store (lock, migrate, open) ─► services ─► agent joins ─► coordinator leads ─► roles run

With the modules beside it (`store`, `broker`, `parts`: what an agent executes with, `process`: what listens) the only
place that knows concrete classes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from horae.app.alerts import make_tellers, used_disk
from horae.app.broker import authority_of, connector_for, make_broker, open_queue
from horae.app.foretelling import ForecastProcess
from horae.app.login import make_provider
from horae.app.machine import OwnDirectory, SystemClock, end_task, here, identity_of
from horae.app.parts import FindHere, Work, all_labels, list_handlers, make_reach, make_work, nowhere, offered
from horae.app.roles import (
    AgentRole,
    AlertRole,
    AuditRole,
    CoordinatorRole,
    InboxRole,
    LearningRole,
    OutsideRole,
    PushRole,
    RetentionRole,
    SchedulerRole,
    WorkflowRole,
    persist,
)
from horae.app.store import decide_retention, open_agreed, patiently, timers_of
from horae.app.telemetry import close_spans, connect_spans, open_spans
from horae.config import Config
from horae.contracts import DIALECTS
from horae.contracts.rpc.calls import Calls
from horae.contracts.rpc.workers import RpcDialect
from horae.core.model import SECOND, Node
from horae.core.signs import Terms
from horae.core.watched import WATCHED
from horae.core.work import kinds
from horae.core.work.waiting import WAIT
from horae.errors import ConfigError, Superseded, Unavailable
from horae.files import open_files
from horae.keys import FileKeys
from horae.links.outside import HttpWorkers
from horae.links.peers import GrpcPeers
from horae.ports.store import Store
from horae.service import Services, ShownSetting
from horae.service.access import Access
from horae.service.access.agents import AgentAccess
from horae.service.access.devices import Devices
from horae.service.access.grants import Grants
from horae.service.access.logins import Logins, RoleRule
from horae.service.access.sessions import Limits as SessionLimits
from horae.service.access.users import Users
from horae.service.alerts.definitions import AlertDefinitions
from horae.service.alerts.disks import AlertDisks
from horae.service.alerts.telling import AlertTelling
from horae.service.alerts.watching import AlertWatching
from horae.service.at_once import AtOnce
from horae.service.audit import Audit
from horae.service.audit.sealing import Sealer
from horae.service.cluster.activity import Activity
from horae.service.cluster.catalogues import Catalogues
from horae.service.cluster.coordination import Cluster
from horae.service.cluster.names import find_session, join
from horae.service.cluster.operators import Nodes
from horae.service.cluster.timers import confirm
from horae.service.events.documents import Documents
from horae.service.events.feed import EventFeed
from horae.service.events.pulse import Pulse
from horae.service.events.run_watch import RunWatch
from horae.service.events.tracing import Tracing
from horae.service.execution import Execution, LocalLink
from horae.service.external.dispatching import Dispatching
from horae.service.external.loans import Lending
from horae.service.external.logs import OutsideLogs
from horae.service.external.members import ExternalMembers
from horae.service.external.pushing import Pushing
from horae.service.external.watching import Watches, Watching
from horae.service.firing import Firing
from horae.service.insight.explaining import Explaining
from horae.service.insight.forecasting import Forecasting
from horae.service.insight.learning import Learning
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs
from horae.service.jobs.breaker import Breaker
from horae.service.jobs.callbacks import RunKeys
from horae.service.jobs.hooks import Hooks
from horae.service.jobs.inbox import Inbox
from horae.service.local_node import LocalNode
from horae.service.metrics import Metrics
from horae.service.policy.barring import Barring
from horae.service.policy.placing import Placing
from horae.service.retention import Retention
from horae.service.secrets.named import Secrets
from horae.service.secrets.rotation import Rotation
from horae.service.secrets.sealing import CALLBACKS, Sealing
from horae.service.sources import Sources
from horae.service.workflows.calls import Callers
from horae.service.workflows.dependencies import Dependencies
from horae.service.workflows.driver import Begin, Driver
from horae.service.workflows.flows import Workflows
from horae.service.workflows.outbox import Outbox
from horae.service.workflows.parts import Parts
from horae.service.workflows.waits import PlainWaits
from horae.settings import BY_NAME
from horae.stores.postgres import PostgresStore
from horae.web.proxies import Proxies

if TYPE_CHECKING:
    from horae.rpc.server import RpcServer

log = structlog.get_logger()

LONGEST_GRACE = 10.0  # seconds beyond its lease before a silent node is declared gone, for its keeper to kill
LONGEST_GATHERING = 0.25  # seconds for which beats wait for each other
DRAIN = 20.0  # seconds that running work gets to finish when the process is told to stop
OUTPUT_SECONDS = 5.0  # for output that a store out of reach has not taken yet
QUIET = 120 * SECOND  # a scheduler that has not come round for so long is stuck


class App:
    """Everything a process is made of, wired but not yet running."""

    def __init__(
        self, config: Config, store: Store, clock: SystemClock, secret: str = "", *, has_one_user: bool = False,
        work_umask: int = -1, installation: str = "", is_served: bool = True, find_here: FindHere = nowhere,
    ) -> None:  # fmt: skip
        """`secret` is what the servers of the cluster have in common; with one user, this machine is theirs.
        `installation` is its part of trace ids. Where it is not served, it is part of a program, and nobody else
        reaches it; `find_here` returns handlers of that program."""
        self.config, self.store, self.clock = config, store, clock
        self._is_served, self._is_reached = is_served, False  # by gRPC
        self._secret, self._installation = secret, installation
        self._identity = identity_of(config.data / "agent")
        self._directory = OwnDirectory(config.data / "agent")
        self._directory.hold()
        roles = store.for_roles()  # for whatever must not wait for users
        self.queue = open_queue(config)
        self.broker = make_broker(config, roles, self.queue, clock, lambda: self.cluster.is_leader, installation)
        self.metrics = Metrics()
        self.audit = Audit(store, clock, self.metrics)
        self.spans = open_spans(config)
        self.files = open_files(config.files, endpoint=config.files_endpoint, spool=config.data / "spool" / "outputs")
        self._place_of_output = "" if self.files.is_shared else config.node
        # Left to workers outside Horae: nobody here takes them, and that nobody can is no failure.
        self._foreign_kinds = kinds.LENDABLE if config.lake_workers == "external" else ()
        self._keys = FileKeys(config.secret_key_file)
        self._kept, self.sealing = Secrets(roles, self._keys, self.audit), Sealing(store, self._keys)
        self._make_roles(roles)
        reach = make_reach(config, has_one_user=has_one_user)
        self._make_agent(make_work(config, clock, reach, umask=work_umask, find_here=find_here))
        self.tellers = make_tellers(config, clock, has_one_user=has_one_user)
        self._make_services(roles)
        self.tracing = self._make_tracing(roles)
        self._connect_metrics()

    def _make_roles(self, store: Store) -> None:
        """What fires, hands out, leads and tidies up."""
        config = self.config
        breaker = Breaker(store, self.queue, self.sealing, foreign_kinds=self._foreign_kinds)
        self.execution = Execution(
            store, self.queue, self.clock, self.metrics, foreign_kinds=self._foreign_kinds, secrets=self._kept,
            sealing=self.sealing,
            beat_gap=min(LONGEST_GATHERING, config.heartbeat_interval / 20), installation=self._installation,
            after_failures=breaker.look,
            run_keys=self._run_keys(),
        )  # fmt: skip
        self.firing = Firing(
            store, self.queue, self.clock, self.metrics, offer_seconds=config.scan_interval,
            foreign_kinds=self._foreign_kinds,
        )  # fmt: skip
        self.link = LocalLink(
            self.execution, store, self.queue, place=self._place_of_output,
            may_stand_by=config.scheduler_mode == "active-passive" and "scheduler" in config.roles,
        )  # fmt: skip
        placing = Placing(store, self.queue, self._foreign_kinds)
        workflows = Workflows(store, self.queue, placing, Parts(store, self.sealing), after_failures=breaker.look)
        callers = Callers(store, self.queue, placing)
        self.execution.serve_calls(callers)
        begins: dict[str, Begin] = dict.fromkeys((kinds.WORKFLOW, kinds.EVERY), workflows.begin)
        begins |= {WAIT: PlainWaits(store).begin, WATCHED: Watches(store).begin}
        dependencies = Dependencies(store, self.queue, placing)
        outbox = Outbox(store, workflows, calls=callers.act, dependencies=dependencies.act)
        self.driver = Driver(self.link, outbox, begins, self.link.beside)
        self.cluster = Cluster(
            store, self.queue, self.clock, self.execution, node=config.node, lease_seconds=config.lease,
            dead_after=_dead_after(config), is_exclusive=config.sqlite_path is not None,
            is_shared=config.scheduler_mode == "shared", external_after=config.worker_timeout,
            foreign_kinds=self._foreign_kinds,
        )  # fmt: skip
        self.retention = Retention(
            store, self.files, history_days=config.history_days or 0, files_limit=config.files_limit or 0,
            events_days=config.events_days, metrics=self.metrics,
        )  # fmt: skip

    def _make_agent(self, work: Work) -> None:
        """Whoever executes here, and what it executes with."""
        config = self.config
        self.keeper, self.sandboxes, self.executors = work.keeper, work.sandboxes, work.executors
        self.describer = work.describer
        place = None if "://" in config.files else Path(config.files)
        self.agent = work.make_agent(
            config, self._node(), self.link, self.files, self.clock, place, installation=self._installation,
            spans=self.spans,
        )  # fmt: skip

    def _make_services(self, store: Store) -> None:
        """What doors ask: of users by their own store, of workers and programs by that of the roles."""
        config = self.config
        self.peers = GrpcPeers(self._secret, authority_of(config), _own_certificate(config))
        self.outside_workers = HttpWorkers({config.port, config.grpc_port, *config.compat_ports})
        jobs = Jobs(
            self.store, self.queue, self.sealing, self.describer,
            most_waiting=config.most_waiting_per_owner or None, foreign_kinds=self._foreign_kinds,
        )  # fmt: skip
        jobs.orders.start_at_once = AtOnce(self.link, self.agent, self.clock).start if self.executors else None
        lending, members = Lending(store, jobs, self.execution), self._members(store)
        self.dispatching = Dispatching(
            store, self.clock, jobs, lending, members, self.outside_workers, DIALECTS,
            offer_seconds=config.scan_interval,
        )  # fmt: skip
        self.pushing = Pushing(store, self.clock, jobs, lending, members, self.dispatching, RpcDialect())
        local_node = self._local_node()
        limits = SessionLimits(config.session_idle, config.session_limit)
        access = Access(self.store, self.clock, limits, request_rate=config.request_rate)
        insight = self._insight()
        self.services = Services(
            jobs, insight, access, Grants(self.store, self.clock), self._operators(access),
            *self._ways_in(access),
            public_url=config.public_url or (config.address if config.is_loopback else ""), lending=lending,
            external_members=members, dispatching=self.dispatching, pushing=self.pushing,
            outside_logs=OutsideLogs(self.files, place=self._place_of_output, limit=config.output_limit),
            outside_workers=self.outside_workers, sources=Sources(self.store, jobs, self.sealing, self._kept),
            secrets=self._kept,
            rotation=Rotation(store, self._keys, self._kept, self.sealing, node=config.node), local_node=local_node,
            catalogues=Catalogues(self.store, local_node, self.peers),
            hooks=Hooks(self.store, jobs.orders, self.sealing, self._kept), forecasting=self._forecasting(),
            watching=Watching(jobs, self.store, self.files, place=self._place_of_output),
            events=EventFeed(self.store, self.queue, self.clock, Documents(self.store, self._installation)),
            pulse=Pulse(self.store, self.queue, self.clock), run_watch=RunWatch(self.store, insight, self.clock),
            explaining=Explaining(self.store, jobs.queues),
            alerts=AlertDefinitions(
                self.store, self.queue, self.clock, self._kept, self.tellers, self._installation
            ),
            audit=self.audit, activity=Activity(self.store, self.clock, node=config.node, lease_seconds=config.lease),
            lends_lake_work=config.lake_workers == "external", runs_in_place=self.sandboxes.trust is not None,
            lake_lease=config.lake_lease, settings=settings_in_force(config),
        )  # fmt: skip

    def _operators(self, access: Access) -> Nodes:
        config = self.config
        return Nodes(self.store, self.queue, self.execution, access, node=config.node, dead_after=_dead_after(config))

    def _ways_in(self, access: Access) -> tuple[Users, Logins, Devices]:
        """Who there is, and how they come in."""
        users = Users(self.store, access)
        self.provider = make_provider(self.config, self.clock)
        logins = Logins(
            self.store, self.clock, access, users, self.audit, keys=self._keys, provider=self.provider,
            rules=[RoleRule(*rule) for rule in self.config.oidc_roles],
        )  # fmt: skip
        return users, logins, Devices(self.store, self.clock, access)

    def _make_tracing(self, store: Store) -> Tracing | None:
        """Whoever tells of runs, where somebody is told."""
        if self.spans is None:
            return None
        tracing = Tracing(
            store, self.spans, self.queue, self.clock, installation=self._installation, ratio=self.config.trace_ratio,
            is_leader=lambda: self.cluster.is_leader,
        )  # fmt: skip
        self.services.jobs.orders.note_made = tracing.note_orders
        return tracing

    def _connect_metrics(self) -> None:
        """What is read when somebody asks, not counted as it happens."""
        connect_spans(self.metrics, self.spans)
        self.metrics.busy = lambda: self.agent.busy
        self.metrics.requests_refused = lambda: self.services.access.rates.refused
        self.metrics.rebalances = lambda: self.cluster.rebalances + self.services.external_members.moves
        self.metrics.leads = lambda: self.cluster.is_leader
        if isinstance(store := self.store, PostgresStore):
            self.metrics.failovers = lambda: (store.failovers, store.commits_lost)
        self.metrics.slots = self._slots

    @property
    def _slots(self) -> int:
        """Work that this node's agent does at once, of all kinds: every kind has slots of its own."""
        return sum(executor.slots for executor in self.executors.values())

    def _insight(self) -> Insight:
        config = self.config
        return Insight(
            self.store, self.files, self.clock, self.metrics, node=config.node, checks=self._checks(),
            peers=self.peers, offer_seconds=config.scan_interval, lease_seconds=config.lease,
            warnings=[self.sandboxes.warning] if self.sandboxes.warning else [],
        )  # fmt: skip

    def _forecasting(self) -> Forecasting:
        """With SQLite, which is for one process, forecasts are made in this one."""
        is_alone = self.config.sqlite_path is not None
        return Forecasting(self.store, None if is_alone else ForecastProcess(self.config.database).make)

    def _run_keys(self) -> RunKeys | None:
        """Where nobody says how systems outside reach this server, no key is made: all servers would need it."""
        load, address = partial(self.sealing.make_key, CALLBACKS), self.config.public_url
        return RunKeys(load, address) if self._is_served and address else None

    def _members(self, store: Store) -> ExternalMembers:
        config = self.config
        return ExternalMembers(
            store, self.queue, node=config.node, version=version("horae"), dead_after=_dead_after(config),
            external_after=config.worker_timeout,
        )  # fmt: skip

    def _node(self) -> Node:
        config, now = self.config, self.clock.now()
        return Node(
            name=config.node, roles=config.roles, kinds=tuple(self.executors),
            labels=all_labels(config, self.sandboxes), slots=config.slots if self.executors else 0,
            version=version("horae"),
            address=f"{config.host}:{config.port}" if self._is_served else "", started_at=now, heartbeat_at=now, beat=0,
            grpc=_reachable(config) if self._is_served and config.serves_rpc else "", identity=self._identity,
            holder=f"pid {os.getpid()}{here()}", resources=offered(config) if self.executors else {},
            capacity={kind: executor.slots for kind, executor in self.executors.items()},
        )  # fmt: skip

    def _local_node(self) -> LocalNode:
        return LocalNode(
            self.config.node, self.config.roles, self._slots,
            self.config.scan_interval, self.config.scheduler_mode == "shared", self.queue, self.metrics,
            scanned_at=lambda: self.firing.fired_at, busy=lambda: self.agent.busy,
            is_leader=lambda: self.cluster.is_leader, led_since=lambda: self.cluster.led_since,
            installation=self._installation,
            handlers=partial(list_handlers, self.executors),
        )  # fmt: skip

    def _checks(self) -> dict[str, Callable[[], str]]:
        checks: dict[str, Callable[[], str]] = {}
        if "agent" in self.config.roles:
            warning = f"; warning: {self.sandboxes.warning}" if self.sandboxes.warning else ""
            walls = f"ok: {self.sandboxes.walls}{warning}"
            checks["walls"] = lambda: walls
            checks["agent"] = lambda: "ok" if self.keeper.is_alive else "the keeper of this agent is gone"
        if "scheduler" in self.config.roles:
            checks["scheduler"] = self._scheduler_check
        if self._is_served and self.config.serves_rpc:
            checks["grpc"] = lambda: "ok" if self._is_reached else f"nobody reaches {self.config.grpc_address} yet"
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
        if self._is_served:  # a program has its own mind about its memory
            _calm_collector()
        await self._look()
        await self.files.take_up()
        await self.queue.open()
        await self.broker.open()
        if self.executors:
            await self.agent.prepare()
        greet = self.agent.leash.greet if self.executors else lambda: self.link.hello(self._node())
        await join(self._look, lambda: patiently(self.config, greet))
        if self.config.sqlite_path is None:
            await self._confirm_timers()
        with suppress(Unavailable):  # then the role does it, when the store is back
            if "coordinator" in self.config.roles and await self.cluster.campaign():
                await self.cluster.lead()

    async def _confirm_timers(self) -> None:
        try:
            await patiently(self.config, lambda: confirm(self.store, timers_of(self.config)))
        except ConfigError:
            await self.link.goodbye()  # so that nobody waits for us
            raise

    async def _look(self) -> None:
        """Under which session our name is ours to take."""
        self.link.session = await patiently(self.config, self._find_session)

    async def _find_session(self) -> int:
        return await find_session(
            self.store, self.clock, self.config.node, lease_seconds=self.config.lease, is_dead=self._is_dead
        )

    def _is_dead(self, known: Node) -> bool:
        """Return whether whoever has our name certainly is: nobody else can have this store open, or it had this very
        data directory, which is ours now, on this very machine."""
        if self.config.sqlite_path is not None:
            return not known.via
        is_ours = known.identity == self._identity and known.holder.endswith(here())
        return is_ours and self._directory.hold()

    def run_roles(self, group: asyncio.TaskGroup) -> dict[str, asyncio.Task[None]]:
        config, interval = self.config, self.config.heartbeat_interval
        tasks: dict[str, asyncio.Task[None]] = {}
        for name, step in self.broker.steps().items():
            tasks[name] = group.create_task(persist(name, step, self.clock))
        retention = RetentionRole(self.cluster, self.retention, self.clock)
        tasks["retention"] = group.create_task(retention.run())
        learning = LearningRole(self.cluster, Learning(self.store.for_roles()), self.clock)
        tasks["learning"] = group.create_task(learning.run())
        sealer = Sealer(self.store.for_roles(), self.metrics, days=config.audit_days)
        tasks["audit"] = group.create_task(AuditRole(self.cluster, self.audit, sealer, self.clock).run())
        tasks["events"] = group.create_task(persist("events", self.services.events.step, self.clock))
        tasks["pulse"] = group.create_task(persist("pulse", self.services.pulse.step, self.clock))
        tasks["alerts"] = group.create_task(self._alert_role().run())
        if self.tracing is not None:
            tasks["traces"] = group.create_task(persist("traces", self.tracing.step, self.clock))
        if "coordinator" in config.roles:
            # Alone on its store, it has nobody to watch.
            look = interval if config.sqlite_path else min(1.0, config.lease / 15)
            coordinator = CoordinatorRole(
                self.cluster, self.queue, self.clock, interval=interval, look=look, overdue=self.services.jobs.overdue,
                barring=Barring(self.store.for_roles(), self.queue, self.clock),
            )  # fmt: skip
            tasks["coordinator"] = group.create_task(coordinator.run())
            outside = OutsideRole(self.cluster, self.dispatching, self.clock, look=look)
            tasks["outside"] = group.create_task(outside.run())
            pushing = PushRole(self.cluster, self.pushing, self.queue, self.clock)
            tasks["push"] = group.create_task(pushing.run())
            if isinstance(store := self.store.for_roles(), PostgresStore):
                inbox = Inbox(store, self.queue, self.clock, self.metrics, foreign_kinds=self._foreign_kinds)
                tasks["inbox"] = group.create_task(InboxRole(self.cluster, inbox, self.queue, self.clock).run())
        if "scheduler" in config.roles:
            scheduler = SchedulerRole(
                self.firing, self.cluster, self.queue, self.clock, scan_interval=config.scan_interval
            )
            tasks["scheduler"] = group.create_task(scheduler.run())
            tasks["workflows"] = group.create_task(WorkflowRole(self.driver, self.queue, self.clock).run())
        if self.executors:
            agent = AgentRole(self.agent, self.link, self.clock, interval=interval)
            tasks["agent"] = group.create_task(agent.run())
        else:
            tasks["agent"] = group.create_task(persist("node", self._beat, self.clock))
        return tasks

    def _alert_role(self) -> AlertRole:
        store, clock = self.store.for_roles(), self.clock
        watching = AlertWatching(store, self.queue, clock, is_leader=lambda: self.cluster.is_leader)
        telling = AlertTelling(
            store, clock, self._kept, self.tellers, self._installation,
            is_needed=lambda: self.cluster.is_leader and watching.has_rules,
        )  # fmt: skip
        watching.on_told = telling.wake
        disks = AlertDisks(store, clock, node=self.config.node, measure=partial(used_disk, self.config.data))
        return AlertRole(watching, telling, disks, clock)

    async def serve_rpc(self) -> RpcServer:
        """Let agents and other servers in: every node that keeps output must give it to those who show it."""
        await asyncio.to_thread(import_module, "horae.rpc.server")  # slow to load
        from horae.contracts.admin.grpc import Administration
        from horae.contracts.rpc.grpc import Scheduling
        from horae.rpc.agents.admission import Agents
        from horae.rpc.agents.intake import Limits
        from horae.rpc.agents.nats import NatsListener
        from horae.rpc.callers import Callers, FreePass
        from horae.rpc.handlers import Handlers
        from horae.rpc.outputs import Outputs
        from horae.rpc.server import Certificate, RpcServer

        config = self.config
        free_pass = FreePass(config.free_pass, config.host, config.grpc_port)
        proxies = Proxies(config.trusted_proxies)
        credentials = AgentAccess(self.services.access, self.store, self.audit, renewed_after=config.credential_renewal)
        agents = Agents(
            self.execution, self.store.for_roles(), self.queue, self.files, self.clock, node=config.node,
            version=version("horae"), terms=self._terms(),
            admit=credentials.admit, needs_no_token=free_pass.covers, still_good=credentials.still_good,
            limits=Limits(config.output_limit, config.artifact_limit), credentials=credentials, proxies=proxies,
        )  # fmt: skip
        self.services.catalogues.ask_agent = agents.list_handlers
        is_api = "api" in config.roles
        callers = Callers(self.services.access, self.audit, free_pass.covers, proxies)
        contracts = (Scheduling(Calls(self.services), callers), Administration(self.services, callers))
        door = None
        if is_api and config.broker is not None:
            # Whoever reaches the broker could be anybody, wherever it stands: a token is always needed.
            door = NatsListener(agents, connector_for(config, "agents"), credentials.admit, credentials.prove)
        outputs, handlers = Outputs(self.files, self._secret), Handlers(self.services.catalogues, self._secret)
        server = RpcServer(
            agents if is_api else None, outputs, contracts if is_api else (), door, callers.identify, handlers
        )
        certificate = None
        if config.tls_cert is not None and config.tls_key is not None:
            client_ca = None if config.tls_client_ca is None else config.tls_client_ca.read_bytes()
            certificate = Certificate(config.tls_cert.read_bytes(), config.tls_key.read_bytes(), client_ca)
        await server.start(config.grpc_address, certificate)
        self._is_reached = True
        log.info("rpc.up", node=config.node, address=config.grpc_address)
        return server

    def _terms(self) -> Terms:
        config = self.config
        ratio = None if self.spans is None else config.trace_ratio
        return Terms(config.lease, config.heartbeat_interval, self._installation, ratio)

    async def _beat(self) -> None:
        if await self.driver.beat() is None:
            await self.link.hello(self._node())
        await self.clock.sleep(self.config.heartbeat_interval)

    async def stop(self, tasks: dict[str, asyncio.Task[None]], *, keep: bool = False) -> Unavailable | None:
        """In this order: hand the segments over, fire nothing more, drain the agent while the node still beats,
        give up the lead. Return why others could not be told, if so: they learn it when our lease is over.
        With `keep`, work is left to the next process where it can be."""
        untold: list[Unavailable] = []

        async def attempt(step: Awaitable[None]) -> None:
            try:
                await step
            except Superseded:
                log.warning("node.superseded", node=self.config.node)  # whatever we held is another's by now
            except Unavailable as error:
                untold.append(error)

        if "scheduler" in self.config.roles:
            await attempt(self.cluster.hand_over(self.link.session))
        await end_task(tasks.get("scheduler"))
        await end_task(tasks.get("workflows"))
        if self.executors:
            await (self.agent.hand_on if keep else self.agent.drain)(DRAIN)
        if self.describer is not None:
            await self.describer.close()
        await end_task(tasks.get("agent"))
        await end_task(tasks.get("retention"))
        await end_task(tasks.get("learning"))
        await end_task(tasks.get("audit"))
        await attempt(self.audit.tell_refused(at_once=True))
        await end_task(tasks.get("alerts"))
        await end_task(tasks.get("inbox"))
        await end_task(tasks.get("push"))
        await end_task(tasks.get("outside"))
        await end_task(tasks.get("coordinator"))
        for task in tasks.values():  # whatever is left
            await end_task(task)
        await self.files.settle(OUTPUT_SECONDS)
        await attempt(self.broker.drain_events())
        await attempt(self.cluster.resign())
        await attempt(self.agent.leave() if self.executors else self.link.goodbye())
        await self.broker.close()
        await self.queue.close()
        return untold[0] if untold else None

    def let_go(self) -> None:
        """Let another App of this process have the data directory."""
        self._directory.release()


@asynccontextmanager
async def assembled(
    config: Config, clock: SystemClock, *, umask: int = -1, is_served: bool = True, find_here: FindHere = nowhere
) -> AsyncIterator[App]:
    """The parts of a process on their store, ready to start; what they hold is let go at the end."""
    async with AsyncExitStack() as stack:
        holder = "" if is_served else f"node {config.node} within a program"
        config, store = await open_agreed(config, clock, holder)
        stack.push_async_callback(store.close)
        config = await patiently(config, partial(decide_retention, config, store))
        fresh = secrets.token_urlsafe(32)
        secret = await patiently(config, lambda: store.keep_setting("cluster_secret", fresh))
        installation = await patiently(config, lambda: store.keep_setting("installation", secrets.token_hex(8)))
        app = App(
            config, store, clock, secret, has_one_user=await _has_one_user(config, store, clock), work_umask=umask,
            installation=installation, is_served=is_served, find_here=find_here,
        )  # fmt: skip
        stack.callback(app.let_go)
        if app.spans is not None:
            stack.push_async_callback(close_spans, app.spans)
        stack.push_async_callback(app.peers.close)
        stack.push_async_callback(app.outside_workers.close)
        stack.push_async_callback(app.tellers.close)
        if app.provider is not None:
            stack.push_async_callback(app.provider.close)
        stack.push_async_callback(app.queue.close)
        yield app


async def _has_one_user(config: Config, store: Store, clock: SystemClock) -> bool:
    """Return whether whoever comes in is the user that runs this process: only this machine reaches it, nobody logs in,
    and no other server writes to its database."""
    if not config.is_loopback or config.sqlite_path is None or config.oidc_issuer:
        return False
    return not await Access(store, clock).has_login()


def settings_in_force(config: Config) -> list[ShownSetting]:
    return [ShownSetting(*shown, BY_NAME[shown[0]].help) for shown in config.shown()]


def _dead_after(config: Config) -> float:
    return config.lease + min(LONGEST_GRACE, max(2.0, config.lease))


def _reachable(config: Config) -> str:
    """Return where other nodes find the gRPC port; one that listens everywhere is known by the name of its machine."""
    if config.host in ("0.0.0.0", "::"):  # noqa: S104  # not listened on, compared with
        return f"{socket.gethostname()}:{config.grpc_port}"
    return config.grpc_address


def _own_certificate(config: Config) -> tuple[bytes, bytes] | None:
    """Return key and certificate that this node shows to the others, where they ask for some."""
    if config.tls_client_ca is None or config.tls_cert is None or config.tls_key is None:
        return None
    return config.tls_key.read_bytes(), config.tls_cert.read_bytes()


def _calm_collector() -> None:
    """Look for cycles once per few batches of runs, not ten times in each, and never again at what is loaded now.

    Runs are freed by reference count; the usual seven hundred new objects are a fraction of one claim.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)
