"""A whole Horae without its loops: a real store, the real services and gate, a clock and agents moved by hand."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS, DIALECTS
from horae.contracts.rpc.workers import RpcDialect
from horae.core.alerts.channels import Channel
from horae.core.model import SECOND, Job, Node, Run, State
from horae.core.runs.orders import Assignment, Result
from horae.core.work.specs import parse_job
from horae.files import open_files
from horae.keys import FileKeys
from horae.links.outside import HttpWorkers
from horae.links.peers import GrpcPeers
from horae.ports.alerts import Undelivered
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service import Services
from horae.service.access import Access
from horae.service.access.devices import Devices
from horae.service.access.grants import Grants
from horae.service.access.logins import Logins
from horae.service.access.users import Users
from horae.service.alerts.definitions import AlertDefinitions
from horae.service.audit import Audit
from horae.service.cluster.activity import Activity
from horae.service.cluster.catalogues import Catalogues
from horae.service.cluster.operators import Nodes
from horae.service.events.documents import Documents
from horae.service.events.feed import EventFeed
from horae.service.events.pulse import Pulse
from horae.service.events.run_watch import RunWatch
from horae.service.execution import Execution
from horae.service.external.dispatching import Dispatching
from horae.service.external.loans import Lending
from horae.service.external.logs import OutsideLogs
from horae.service.external.members import ExternalMembers
from horae.service.external.pushing import Pushing
from horae.service.external.watching import Watching
from horae.service.firing import Firing
from horae.service.insight.explaining import Explaining
from horae.service.insight.forecasting import Forecasting
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs
from horae.service.jobs.breaker import Breaker
from horae.service.jobs.hooks import Hooks
from horae.service.local_node import LocalNode
from horae.service.metrics import Metrics
from horae.service.secrets.named import Secrets
from horae.service.secrets.rotation import Rotation
from horae.service.secrets.sealing import Sealing
from horae.service.sources import Sources
from horae.stores.sqlite import SqliteStore
from horae.testing import FakeClock
from horae.web import app as web

BOTH = pytest.mark.parametrize("world_store", ["sqlite", "postgres"], indirect=True)
OWN = frozenset({os.geteuid()})  # who needs no token
HERE = "http://127.0.0.1:8080"
NODE = "node-1"
SCAN = 60.0  # seconds
DEADLINE = 30.0  # seconds, for what needs no clock
NO_HEADERS: Mapping[str, str] = {}
DELAY = 10.0  # seconds between two attempts
TWICE = {"attempts": 2, "backoff": DELAY}


def from_here(gate: web.Gate, owner: int | None = None) -> httpx.ASGITransport:
    """Connections to a gate from this machine, of the user who runs it unless said."""

    async def connected(scope: Any, receive: Any, send: Any) -> None:
        await gate({**scope, web.OWNER: os.geteuid() if owner is None else owner}, receive, send)

    return httpx.ASGITransport(connected)


class Work:
    """An attempt in the hands of an agent, as a test moves it on."""

    def __init__(self, world: World, claimed: Assignment) -> None:
        self._world, self._claimed, self._chunks = world, claimed, 0
        self.run_id, self.fence = claimed.run_id, claimed.fence
        self.ref = world.files.ref(claimed.run_id, claimed.attempt, claimed.fence)

    async def write(self, data: bytes) -> None:
        """Let its log grow, and wake who follows it."""
        await self._world.files.store_chunk(self.ref, self._chunks, data)
        self._chunks += 1

    async def keep(self, number: int, data: bytes) -> None:
        """Store a file beside the log."""
        await self._world.files.store_chunk(self._world.files.file_ref(self.ref, number), 0, data)

    async def end(self, state: State, **fields: Any) -> None:
        now = self._world.clock.now()
        given = {"started_at": now, "finished_at": now, "output": self.ref if self._chunks else None, **fields}
        self._world.clock.advance(max(0, given["finished_at"] - now) / SECOND)  # it is told when it has ended
        await self._world.execution.finish([Result(self.run_id, self.fence, state, **given)])
        self._world.files.announce(self.ref)

    async def fail_once(self) -> Work:
        """End this attempt badly, and begin the next when its time has come."""
        await self.end(State.FAILED, exit_code=3)
        self._world.clock.advance(2 * DELAY)
        return await self._world.take(self.run_id)


class Told:
    """Channels that only remember; or that refuse, where a test says why."""

    def __init__(self) -> None:
        self.commands: dict[str, str] = {}
        self.sent: list[tuple[str, Any, str]] = []  # channel, message, key
        self.refusal = ""

    async def send(self, channel: Channel, secrets: Mapping[str, str], message: Any, key: str) -> None:
        if self.refusal:
            raise Undelivered(self.refusal)
        self.sent.append((channel.name, message, key))

    async def close(self) -> None: ...


class Handlers:
    """What handlers take that can be seen here."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}
        self.results: dict[str, Any] = {}

    async def load(self, names: Collection[str]) -> dict[str, Any]:
        return {name: self.schemas[name] for name in names if name in self.schemas}

    async def load_result(self, name: str) -> dict[str, Any] | None:
        return self.results.get(name)


class World:
    def __init__(self, store: Store, clock: FakeClock, directory: Path) -> None:
        self.store, self.clock = store, clock
        self.queue, self.metrics = LocalQueue(), Metrics()
        self.files = open_files(directory / "outputs")
        keys = FileKeys(directory / "secrets.key")
        self.audit = Audit(store, clock, self.metrics)
        secrets, sealing = Secrets(store, keys, self.audit), Sealing(store, keys)
        self.execution = Execution(
            store, self.queue, clock, self.metrics, secrets=secrets, sealing=sealing,
            after_failures=Breaker(store, self.queue, sealing).look,
        )  # fmt: skip
        self.firing = Firing(store, self.queue, clock, self.metrics)
        self.handlers = Handlers()
        self.jobs = Jobs(store, self.queue, sealing=sealing, schemas=self.handlers)
        self.outside_workers = HttpWorkers(())
        self.secrets, self.teller = secrets, Told()
        lending = Lending(store, self.jobs, self.execution)
        members = ExternalMembers(store, self.queue, node=NODE)
        self.dispatching = Dispatching(
            store, clock, self.jobs, lending, members, self.outside_workers, DIALECTS, offer_seconds=SCAN
        )
        insight = Insight(store, self.files, clock, self.metrics, node=NODE, checks={})
        self.pushing = Pushing(store, clock, self.jobs, lending, members, self.dispatching, RpcDialect())
        local_node = self._local_node()
        access = Access(store, clock)
        users = Users(store, access)
        self.logins = Logins(store, clock, access, users, self.audit, keys=keys)
        self.services = Services(
            self.jobs,
            insight,
            access,
            Grants(store, clock),
            Nodes(store, self.queue, self.execution, access, node=NODE, dead_after=17.0),
            users,
            self.logins,
            Devices(store, clock, access),
            lending=lending,
            external_members=members,
            dispatching=self.dispatching,
            pushing=self.pushing,
            outside_logs=OutsideLogs(self.files, place=NODE, limit=1 << 20),
            outside_workers=self.outside_workers,
            sources=Sources(store, self.jobs, sealing, secrets),
            secrets=secrets,
            rotation=Rotation(store, keys, secrets, sealing, node=NODE),
            local_node=local_node,
            catalogues=Catalogues(store, local_node, GrpcPeers("secret")),
            activity=Activity(store, clock, node=NODE, lease_seconds=15.0),
            hooks=Hooks(store, self.jobs.orders, sealing, secrets),
            watching=Watching(self.jobs, self.store, self.files, place=NODE),
            forecasting=Forecasting(store),
            events=EventFeed(store, self.queue, clock, Documents(store)),
            pulse=Pulse(store, self.queue, clock),
            run_watch=RunWatch(store, insight, clock),
            explaining=Explaining(store, self.jobs.queues),
            alerts=AlertDefinitions(store, self.queue, clock, secrets, self.teller, ""),
            audit=self.audit,
            lends_lake_work=True,
        )
        self.gate = web.create_app(self.services, CONTRACTS, version="1", free_pass=OWN)
        self.http = httpx.AsyncClient(transport=from_here(self.gate), base_url=HERE)

    async def hear(self, path: str, query: str = "", *, until: str, headers: Mapping[str, str] = NO_HEADERS) -> str:
        """Return what a stream has said when this was in it. All streams are closed then."""
        said = ""

        async def receive() -> Any:
            return await asyncio.Future()

        async def send(message: Any) -> None:
            nonlocal said
            said += message.get("body", b"").decode()
            if until in said:
                self.gate.streams.close()

        sent = [(b"host", b"127.0.0.1"), *((name.encode(), value.encode()) for name, value in headers.items())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": sent}
        async with asyncio.timeout(DEADLINE):
            await self.gate({**scope, web.OWNER: os.geteuid()}, receive, send)
        return said

    def _local_node(self) -> LocalNode:
        return LocalNode(
            NODE,
            ("api", "coordinator", "scheduler", "agent"),
            8,
            SCAN,
            True,
            self.queue,
            self.metrics,
            scanned_at=lambda: self.firing.fired_at,
            busy=lambda: 0,
            is_leader=lambda: True,
        )

    async def fire(self) -> None:
        """Fire whatever is due now, as the scheduler of all segments would."""
        given = {segment: term for segment, (_, term) in (await self.store.load_segments()).items()}
        self.firing.own({**dict.fromkeys(range(100), 0), **given})
        await self.firing.refill(sweep=True)
        await self.firing.tick()
        while self.firing.is_behind:
            await self.firing.catch_up()

    async def claim(self, kind: str, limit: int = 100) -> list[Any]:
        """Return what an agent of this kind would get."""
        return list(await self.execution.claim(self.agent(kind), {kind: limit}))

    def agent(self, kind: str = "shell") -> Node:
        now = self.clock.now()
        return Node(
            name=NODE, roles=("agent",), kinds=(kind,), labels=(), slots=8, version="1", address="", started_at=now,
            heartbeat_at=now, beat=0,
        )  # fmt: skip

    async def join(self, kind: str = "shell") -> None:
        """As an agent does when it starts."""
        await self.store.register_node(self.agent(kind))

    async def submit(self, **fields: Any) -> Job:
        """Return a shell job that no moment starts."""
        document = {"name": "job", "steps": [{"run": "true"}], **fields}
        return (await self.jobs.submit([parse_job(document)])).jobs[0]

    async def queue_run(self, job_id: int | None = None) -> Run:
        """Return a run that waits for an agent: of this job, or of one of its own."""
        return await self.jobs.run_now((await self.submit()).id if job_id is None else job_id)

    async def start_run(self, job_id: int | None = None) -> Work:
        """Return a run that an agent works at."""
        run = await self.queue_run(job_id)
        return await self.take(run.id)

    async def take(self, run_id: int) -> Work:
        """Claim a run that waits, be it for its next attempt."""
        await self.store.sweep()
        [one] = [one for one in await self.claim("shell") if one.run_id == run_id]
        return Work(self, one)

    async def end_run(self, state: State, **fields: Any) -> Run:
        """Return a run that has ended so."""
        work = await self.start_run()
        await work.end(state, **fields)
        return await self.jobs.get_run(work.run_id)

    @property
    def followers(self) -> int:
        """How many wait for a log to grow."""
        return sum(map(len, self.files._followers._by_log.values()))  # type: ignore[attr-defined]

    async def work(self, kind: str, state: State = State.SUCCEEDED, message: str = "", log: bytes = b"") -> list[Run]:
        """Claim everything queued of a kind, write `log` as its output, end it so; answers the runs."""
        claimed = await self.claim(kind)
        for one in claimed:
            output = self.files.open(one.run_id, one.attempt, one.fence, 1 << 20)
            if log:
                output.write(log)
            await output.close()
            now, code = self.clock.now(), 0 if state is State.SUCCEEDED else 1
            ended = Result(one.run_id, one.fence, state, "", now, now, code, message, output=output.ref)
            await self.execution.finish([ended])
        return [await self.jobs.get_run(one.run_id) for one in claimed]

    async def rows(self) -> tuple[int, int, int]:
        """Return how many jobs, triggers and live runs there are: what a refused request must leave as it was."""
        census = await self.store.census()
        return census.jobs, census.triggers, sum(census.live.values())

    async def close(self) -> None:
        await self.http.aclose()
        await self.outside_workers.close()


def api_document() -> dict[str, Any]:
    """Return the OpenAPI document of the real services, for tests that are made from it: nothing is asked of the
    store."""
    with tempfile.TemporaryDirectory() as directory:
        clock = FakeClock()
        store = SqliteStore(Path(directory) / "horae.db", clock=clock)
        return World(store, clock, Path(directory)).gate.api.document
