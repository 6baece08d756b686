"""The processes of a cluster: servers and remote agents, wired as `horae.app` wires them, with simulated adapters for
whatever needs a machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from horae.app.machine import end_task
from horae.app.roles import REMOTE_POLL, AgentRole, CoordinatorRole, SchedulerRole, WorkflowRole, persist
from horae.app.server import DRAIN, LONGEST_GATHERING, LONGEST_GRACE
from horae.core.model import Node
from horae.core.signs import Terms
from horae.core.watched import WATCHED
from horae.core.work import kinds
from horae.core.work.waiting import WAIT
from horae.errors import Superseded, Unavailable
from horae.links.session import Credentials
from horae.links.spool import AgentSpool
from horae.rpc.agents.admission import Agents
from horae.service.agent.agent import Agent
from horae.service.at_once import AtOnce
from horae.service.cluster.coordination import Cluster
from horae.service.cluster.names import find_session, join
from horae.service.execution import Execution, LocalLink
from horae.service.external.watching import Watches
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.calls import Callers
from horae.service.workflows.dependencies import Dependencies
from horae.service.workflows.driver import Begin, Driver
from horae.service.workflows.flows import Workflows
from horae.service.workflows.outbox import Outbox
from horae.service.workflows.parts import Parts
from horae.service.workflows.waits import PlainWaits
from simulation.database import Database, Store
from simulation.loop import CURRENT
from simulation.machine import Machine, SimulatedKeeper, WitnessExecutor
from simulation.network import HintQueue, Network, SimulatedLink
from simulation.world import World

T = TypeVar("T")

RETRY = 0.5  # seconds between tries at the start


@dataclass(frozen=True, slots=True)
class Settings:
    """What all nodes of a cluster have in common."""

    lease: float
    heartbeat: float
    slots: int
    scan_interval: float = 60.0
    is_shared: bool = True  # schedulers share the segments
    version: str = "simulated"

    @property
    def dead_after(self) -> float:
        return self.lease + min(LONGEST_GRACE, max(2.0, self.lease))

    @property
    def look(self) -> float:
        return min(1.0, self.lease / 15)


class Program(Protocol):
    """What runs in a process."""

    async def run(self) -> None:
        """Until it is told to stop."""

    def stop(self) -> None: ...

    def die(self) -> None:
        """Its process is gone: what its kernel does then."""


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step of the start while the database is away."""
    while True:
        try:
            return await step()
        except Unavailable:
            await asyncio.sleep(RETRY)


class Server:
    """All roles; with an agent of its own, or without."""

    def __init__(
        self,
        world: World,
        machine: Machine,
        database: Database,
        network: Network,
        settings: Settings,
        *,
        is_agent: bool,
    ) -> None:
        self._world, self._machine, self._network, self._settings = world, machine, network, settings
        self._process = CURRENT.get()
        self._stopping = asyncio.Event()
        clock, name = machine.clock, machine.name
        self.store = store = Store(database)
        roles = store.for_roles()
        self.queue = HintQueue(network)
        self.metrics = Metrics()
        self.execution = Execution(
            roles, self.queue, clock, self.metrics, beat_gap=min(LONGEST_GATHERING, settings.heartbeat / 20)
        )
        self.firing = Firing(roles, self.queue, clock, self.metrics, offer_seconds=settings.scan_interval)
        self.link = LocalLink(self.execution, roles, self.queue, place=name)
        self.driver = self._make_driver()
        self.cluster = Cluster(
            roles, self.queue, clock, self.execution, node=name, lease_seconds=settings.lease,
            dead_after=settings.dead_after, is_exclusive=False, is_shared=settings.is_shared,
        )  # fmt: skip
        self.keeper = SimulatedKeeper(machine, self._process)
        self._executors = {"shell": WitnessExecutor(machine, self.keeper, settings.slots)} if is_agent else {}
        self.agent = Agent(
            self._node(), self.link, self._executors, machine.files, self.keeper, clock, lease_seconds=settings.lease,
            output_limit=1 << 20,
        )  # fmt: skip
        self.jobs = Jobs(store, self.queue)
        if is_agent:
            self.jobs.orders.start_at_once = AtOnce(self.link, self.agent, clock).start
        self.agents = Agents(
            self.execution, roles, self.queue, machine.files, clock, node=name, version=settings.version,
            terms=Terms(settings.lease, settings.heartbeat),
        )  # fmt: skip

    def _make_driver(self) -> Driver:
        """As horae.app.server."""
        store = self.store.for_roles()
        placing = Placing(store, self.queue)
        workflows = Workflows(store, self.queue, placing, Parts(store, Sealing(store)))
        callers = Callers(store, self.queue, placing)
        self.execution.serve_calls(callers)
        begins: dict[str, Begin] = {
            kinds.WORKFLOW: workflows.begin, WAIT: PlainWaits(store).begin, WATCHED: Watches(store).begin,
        }  # fmt: skip
        dependencies = Dependencies(store, self.queue, placing)
        outbox = Outbox(store, workflows, calls=callers.act, dependencies=dependencies.act)
        return Driver(self.link, outbox, begins, self.link.beside)

    def _node(self) -> Node:
        now = self._machine.clock.now()
        return Node(
            name=self._machine.name, roles=("api", "coordinator", "scheduler", "agent")[: 4 if self._executors else 3],
            kinds=tuple(self._executors), labels=(), slots=self._settings.slots, version=self._settings.version,
            address=self._machine.name, started_at=now, heartbeat_at=now, beat=0, identity=self._machine.identity,
            holder=self._process.name,
        )  # fmt: skip

    async def run(self) -> None:
        await self._start()
        async with asyncio.TaskGroup() as group:
            tasks = self._run_roles(group)
            self._network.listen(self._machine.name, self._process, self.agents)
            await self._stopping.wait()
            await self.agents.leave()
            await self._stop(tasks)

    async def _start(self) -> None:
        await self._look()
        if self._executors:
            await self.agent.prepare()
        greet = self.agent.leash.greet if self._executors else lambda: self.link.hello(self._node())
        await join(self._look, lambda: patiently(greet))
        with suppress(Unavailable):
            if await self.cluster.campaign():
                await self.cluster.lead()

    async def _look(self) -> None:
        self.link.session = await patiently(self._find_session)

    async def _find_session(self) -> int:
        """Whoever had our name on this machine is dead: it is not started twice."""
        return await find_session(
            self.store, self._machine.clock, self._machine.name, lease_seconds=self._settings.lease,
            is_dead=lambda known: known.identity == self._machine.identity,
        )  # fmt: skip

    def _run_roles(self, group: asyncio.TaskGroup) -> dict[str, asyncio.Task[None]]:
        settings, clock = self._settings, self._machine.clock
        coordinator = CoordinatorRole(self.cluster, self.queue, clock, interval=settings.heartbeat, look=settings.look)
        scheduler = SchedulerRole(self.firing, self.cluster, self.queue, clock, scan_interval=settings.scan_interval)
        tasks = {
            "coordinator": group.create_task(coordinator.run()),
            "scheduler": group.create_task(scheduler.run()),
            "workflows": group.create_task(WorkflowRole(self.driver, self.queue, clock).run()),
        }
        if self._executors:
            agent = AgentRole(self.agent, self.link, clock, interval=settings.heartbeat)
            tasks["agent"] = group.create_task(agent.run())
        else:
            tasks["agent"] = group.create_task(persist("node", self._beat, clock))
        return tasks

    async def _beat(self) -> None:
        if await self.driver.beat() is None:
            await self.link.hello(self._node())
        await self._machine.clock.sleep(self._settings.heartbeat)

    async def _stop(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        """As horae.app.server.App.stop."""
        await _tell(self.cluster.hand_over(self.link.session))
        await end_task(tasks["scheduler"])
        await end_task(tasks["workflows"])
        if self._executors:
            await self.agent.drain(DRAIN)
        await end_task(tasks["agent"])
        await end_task(tasks["coordinator"])
        await _tell(self.cluster.resign())
        await _tell(self.agent.leave() if self._executors else self.link.goodbye())

    def stop(self) -> None:
        self._stopping.set()

    def die(self) -> None:
        self._network.drop(self._process)
        self.keeper.end()


async def _tell(step: Awaitable[None]) -> None:
    with suppress(Superseded, Unavailable):
        await step


class RemoteAgent:
    """An agent that reaches the servers over the network."""

    def __init__(
        self, world: World, machine: Machine, network: Network, settings: Settings, servers: tuple[str, ...]
    ) -> None:
        self._machine, self._network, self._settings = machine, network, settings
        self._process = CURRENT.get()
        self._stopping = asyncio.Event()
        clock, name = machine.clock, machine.name
        self._spool = AgentSpool(machine.files, machine.disk)
        credentials = Credentials(machine.identity, f"{self._process.number:0>16}")
        self.link = SimulatedLink(servers, self._spool, credentials, on_change=lambda *_: None)
        self.link.network = network
        self.keeper = SimulatedKeeper(machine, self._process)
        executor = WitnessExecutor(machine, self.keeper, settings.slots)
        now = clock.now()
        node = Node(
            name=name, roles=("agent",), kinds=(executor.kind,), labels=(), slots=settings.slots,
            version=settings.version, address="", started_at=now, heartbeat_at=now, beat=0,
            capacity={executor.kind: executor.slots},
        )  # fmt: skip
        self.agent = Agent(
            node, self.link, {executor.kind: executor}, self._spool, self.keeper, clock,
            lease_seconds=settings.lease, output_limit=1 << 20, spool=self._spool,
        )  # fmt: skip

    async def run(self) -> None:
        """As horae.app.remote_agent.serve_agent."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.link.run()), group.create_task(self._spool.tidy())]
            await self.agent.prepare()
            joining = asyncio.create_task(patiently(self.agent.leash.greet))
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
            for task in (joining, stopping):
                await end_task(task if not task.done() else None)
            if not joining.cancelled():
                joining.result()
            role = AgentRole(
                self.agent, self.link, self._machine.clock, interval=self._settings.heartbeat, poll=REMOTE_POLL
            )
            working = group.create_task(role.run())
            await self._stopping.wait()
            await self.agent.drain(DRAIN)
            await end_task(working)
            with suppress(Unavailable):
                await self.agent.leave()
            for task in tasks:
                await end_task(task)

    def stop(self) -> None:
        self._stopping.set()

    def die(self) -> None:
        self._network.drop(self._process)
        self.keeper.end()
