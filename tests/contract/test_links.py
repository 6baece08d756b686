"""The Link port: what an agent may rely on, in the same process, over gRPC and over NATS, on a real store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from horae import wire
from horae.app.machine import SystemClock, end_task
from horae.app.roles import persist
from horae.core.definitions import Submission
from horae.core.model import SECOND, ConcurrencyLimit, Job, Node, Overlap, Phase, Policy, Source, State, Token
from horae.core.runs.holdings import holding_of
from horae.core.runs.orders import Assignment, Result
from horae.core.signs import Terms
from horae.core.work import specs
from horae.core.work.catalogues import HandlerFact, HandlerList, Told
from horae.errors import Conflict, Denied, NotFound, Unauthenticated, Unavailable
from horae.files import ObjectFiles, open_files
from horae.keys import FileKeys
from horae.links import session as links
from horae.links.grpc import GrpcLink
from horae.links.nats import NatsLink
from horae.links.peers import GrpcPeers
from horae.links.session import Credentials, RemoteLink
from horae.links.spool import AgentSpool
from horae.ports.store import Store
from horae.ports.transport import Link
from horae.queues.local import LocalQueue
from horae.queues.publisher import NatsPublisher
from horae.rpc.agents import admission
from horae.rpc.agents.admission import Agents
from horae.rpc.agents.nats import NatsListener, Prove
from horae.rpc.agents.session import Session
from horae.rpc.handlers import Handlers
from horae.rpc.outputs import Outputs
from horae.rpc.server import Certificate, RpcServer
from horae.service.announcer import WorkAnnouncer
from horae.service.cluster.catalogues import Catalogues
from horae.service.execution import Execution, LocalLink
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs
from horae.service.local_node import LocalNode
from horae.service.metrics import Metrics
from horae.service.secrets.named import Secrets
from horae.testing import FakeClock, make_job
from horae.wire.generated import agents_pb2 as pb
from horae.wire.nats.broker import DOWN, HELLO, UP, Connector, close_client, own_subject
from horae.wire.nats.pipe import HEAD, WHOLE

from ..certificates import make_certificate
from ..claiming import claim
from ..nats_server import Nats
from ..unit.service.parts import draft

DEADLINE = 60.0
TERMS = Terms(lease_seconds=15.0, heartbeat_seconds=5.0)
IDENTITY = "0123456789abcdef"
SECRET = "the servers' own"


def a_node(name: str = "n1", **fields: Any) -> Node:
    given = {"labels": (), "slots": 4, "kinds": ("python", "shell"), **fields}
    return Node(name=name, roles=("agent",), version="1", address="", started_at=0, heartbeat_at=0, beat=0, **given)  # type: ignore[arg-type]


class Side:
    """The side of the service: a store, and what is needed to look at it."""

    def __init__(
        self, store: Store, clock: FakeClock, directory: Path, name: str = "s1", *, broker: str | None = None
    ) -> None:
        """With a `broker`, agents come in over NATS."""
        self.name, self.broker, self._directory = name, broker, directory
        self.store, self.clock, self.queue, self.metrics = store, clock, LocalQueue(), Metrics()
        self.secrets = Secrets(store, FileKeys(directory / "secrets.key"))
        self.execution = Execution(store, self.queue, clock, self.metrics, secrets=self.secrets)
        self.jobs = Jobs(store, self.queue)
        self.files: ObjectFiles = open_files(directory / name)
        self.port = 0
        self.doors: list[NatsListener] = []
        self.taken: list[Agents] = []  # who takes agents in, of each time that it was served

    def another(self, name: str) -> Side:
        """Return a second server of the same cluster."""
        return Side(self.store, self.clock, self._directory, name, broker=self.broker)

    @property
    def nowhere(self) -> str:
        return "nats://127.0.0.1:1" if self.broker else "127.0.0.1:1"

    async def order(self, count: int = 1, **fields: Any) -> list[int]:
        """Runs that wait."""
        (job,) = (await self.jobs.submit([replace(draft(**fields), policy=Policy(overlap=Overlap.ALLOW))])).jobs
        return [(await self.jobs.run_now(job.id)).id for _ in range(count)]

    async def state(self, run_id: int) -> State:
        return (await self.jobs.get_run(run_id)).state

    def agents(self, **fields: Any) -> Agents:
        return Agents(
            self.execution, self.store, self.queue, self.files, self.clock, node=self.name, version="1", terms=TERMS,
            **fields,
        )  # fmt: skip

    def catalogues(self, peers: GrpcPeers, *own: HandlerFact) -> Catalogues:
        """Return the handlers of the cluster as this server sees them, which has some of its own."""
        local = LocalNode(
            self.name, ("api", "agent"), 1, 60.0, True, self.queue, Metrics(), scanned_at=lambda: None, busy=lambda: 0,
            is_leader=lambda: False, handlers=partial(_these, *own),
        )  # fmt: skip
        return Catalogues(self.store, local, peers)

    @asynccontextmanager
    async def served(
        self,
        certificate: Certificate | None = None,
        prove: Prove | None = None,
        catalogues: Catalogues | None = None,
        **fields: Any,
    ) -> AsyncIterator[str]:
        agents, door = self.agents(**fields), None
        if self.broker is not None:
            door = NatsListener(agents, Connector(self.broker, self.name), fields.get("admit"), prove)
        self.taken.append(agents)
        handlers = None if catalogues is None else Handlers(catalogues, SECRET)
        if catalogues is not None:
            catalogues.ask_agent = agents.list_handlers
        server = RpcServer(agents, Outputs(self.files, SECRET), listener=door, handlers=handlers)
        port = await server.start(f"127.0.0.1:{self.port}", certificate)
        self.port = port
        if door is not None:
            self.doors.append(door)
            async with asyncio.timeout(DEADLINE):
                await door.is_open.wait()
        try:
            async with self.handing_over():
                yield self.broker or f"127.0.0.1:{port}"
        finally:
            await server.stop()

    @asynccontextmanager
    async def handing_over(self) -> AsyncIterator[None]:
        """Over NATS, agents hear of runs by messages."""
        if self.broker is None:
            yield
            return
        courier, clock = NatsPublisher(Connector(self.broker, self.name)), SystemClock()
        await courier.open()
        handover = WorkAnnouncer(self.store, self.queue, self.queue, courier, clock)
        tasks = [asyncio.create_task(persist("test", step, clock)) for step in (handover.step, handover.watch_agents)]
        try:
            yield
        finally:
            for task in tasks:
                await end_task(task)
            await courier.close()


class Remote(NamedTuple):
    link: RemoteLink
    spool: AgentSpool
    files: ObjectFiles
    events: list[tuple[str, str]]


@asynccontextmanager
async def connected(directory: Path, *servers: str, **ticket: Any) -> AsyncIterator[Remote]:
    """An agent's link, kept running."""
    files = open_files(directory / "spool" / "outputs")
    spool = AgentSpool(files, directory / "spool")
    await spool.load()
    events: list[tuple[str, str]] = []
    given = Credentials(**{"identity": IDENTITY, "session": "s" * 16, **ticket})
    kind = NatsLink if servers[0].startswith("nats:") else GrpcLink
    link = kind(servers, spool, given, on_change=lambda word, text: events.append((word, text)))
    tasks = [asyncio.create_task(link.run()), asyncio.create_task(spool.tidy())]
    try:
        yield Remote(link, spool, files, events)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def side(store: Store, clock: FakeClock, tmp_path: Path) -> Side:
    return Side(store, clock, tmp_path)


@pytest.fixture
def near(sqlite_store: Store, clock: FakeClock, tmp_path: Path) -> Side:
    """A service on SQLite, where the store does not matter."""
    return Side(sqlite_store, clock, tmp_path)


@pytest.fixture(params=["grpc", "nats"])
def far(request: pytest.FixtureRequest, sqlite_store: Store, clock: FakeClock, tmp_path: Path) -> Side:
    """The same, for agents that come in over a network."""
    broker = request.getfixturevalue("nats").url if request.param == "nats" else None
    return Side(sqlite_store, clock, tmp_path, broker=broker)


@pytest.fixture
def apart(sqlite_store: Store, clock: FakeClock, tmp_path: Path, nats: Nats) -> Side:
    """Over NATS only."""
    return Side(sqlite_store, clock, tmp_path, broker=nats.url)


@pytest.fixture(params=["local", "grpc", "nats"])
async def link(request: pytest.FixtureRequest, side: Side, tmp_path: Path) -> AsyncIterator[Link]:
    if request.param == "nats":
        side.broker = request.getfixturevalue("nats").url
    if request.param == "local":
        yield LocalLink(side.execution, side.store, side.queue, place=side.name)
        return
    async with side.served() as address, connected(tmp_path / "agent", address) as remote:
        yield remote.link


def done(run_id: int, fence: int = 1, **fields: Any) -> Result:
    return Result(run_id, fence, State.SUCCEEDED, started_at=1, finished_at=2, **fields)


# ── the port, on all implementations and both stores ──


async def test_a_run_is_claimed_once_and_finished_once(side: Side, link: Link):
    (run_id,) = await side.order(data={"full": True})
    await link.hello(a_node())

    (assignment,) = await link.claim({"python": 10})
    assert (assignment.run_id, assignment.fence, assignment.attempt, assignment.trigger_id) == (run_id, 1, 1, None)
    assert assignment.kind == "python"
    assert await link.claim({"python": 10}) == []

    assert await link.finish([done(run_id, exit_code=0, result='{"n":1}', message="fine")]) == {run_id}
    assert await link.finish([done(run_id)]) == set()
    run = await side.jobs.get_run(run_id)
    assert (run.state, run.exit_code, run.result, run.message, run.node) == (
        State.SUCCEEDED, 0, {"n": 1}, "fine", "n1",
    )  # fmt: skip
    assert side.metrics.fenced == 1


PROJECT = {
    "kind": "git_java",
    "source": {"url": "https://git.example/a.git"},
    "build_tool": "maven",
    "build_cmd": "mvn",
}


async def test_a_phase_is_noted_where_the_run_is_held(side: Side, link: Link):
    (job,) = (await side.jobs.submit([specs.parse_job({"name": "project", **PROJECT})])).jobs
    run_id = (await side.jobs.run_now(job.id)).id
    await link.hello(a_node(kinds=("git_java",)))
    (assignment,) = await link.claim({"git_java": 1})
    assert (await side.jobs.get_run(run_id)).phase is Phase.PREPARING

    await link.note_phases([(run_id, assignment.fence + 1, Phase.RUNNING), (run_id + 7, 1, Phase.RUNNING)])
    assert (await side.jobs.get_run(run_id)).phase is Phase.PREPARING
    await link.note_phases([(run_id, assignment.fence, Phase.RUNNING)])
    assert (await side.jobs.get_run(run_id)).phase is Phase.RUNNING


async def test_what_ails_an_agent_is_noted(side: Side, link: Link):
    await link.hello(a_node())
    for said in ("no room", ""):
        await link.note_ailment(said)
        assert [one.ailment for one in await side.store.list_nodes()] == [said]


async def test_what_an_agent_offers_and_has_free_is_noted(side: Side, link: Link):
    offers, slots = {"cpus": 4000, "memory": 2**45, "gpu": 2}, {"python": 2000, "shell": 4}
    await link.hello(a_node(resources=offers, capacity=slots))
    (one,) = await side.store.list_nodes()
    assert (one.resources, one.capacity, one.free) == (offers, slots, offers)

    assert await link.claim({"python": 1}, {**offers, "gpu": 0}) == []
    await link.beat(1, None, {**offers, "gpu": 0})

    (one,) = await side.store.list_nodes()
    assert (one.resources, one.free) == (offers, {**offers, "gpu": 0})


async def sync_run(side: Side, job_id: int = 1, source_id: int = 0) -> int:
    await side.store.submit([Submission([make_job(job_id, kind="sync", spec={"source_id": source_id})])])
    return (await side.jobs.run_now(job_id)).id


async def test_a_cursor_comes_back_with_the_next_claim_and_moves_with_a_success_only(side: Side, link: Link):
    await link.hello(a_node(kinds=("sync",)))
    seen = []
    for state, moved in ((State.SUCCEEDED, 1), (State.FAILED, 2), (State.SUCCEEDED, 3), (State.SUCCEEDED, None)):
        run_id = await sync_run(side) if not seen else (await side.jobs.run_now(1)).id
        (assignment,) = await link.claim({"sync": 1})
        seen.append(assignment.cursor)
        cursor = None if moved is None else json.dumps({"value": moved})
        await link.finish([replace(done(run_id, cursor=cursor), state=state)])

    assert seen == [None, '{"value":1}', '{"value":1}', '{"value":3}']


async def test_a_sync_is_given_the_source_it_names(side: Side, link: Link):
    config = {"jdbc_url": "jdbc:x", "password": "correct horse"}
    source = await side.store.add_source(Source(0, 1, "me", "shop", "jdbc_source", config, 1, 1))
    await sync_run(side, 1, source.id)
    await link.hello(a_node(kinds=("sync",)))

    (assignment,) = await link.claim({"sync": 1})

    given = {"id": source.id, "name": "shop", "kind": "jdbc_source", "config": config}
    assert json.loads(assignment.source or "") == given
    assert "horse" not in repr(assignment)
    assert "horse" not in assignment.spec


async def test_a_sync_whose_source_is_gone_fails_for_good(side: Side, link: Link):
    other = await side.store.add_source(Source(0, 2, "them", "theirs", "jdbc_source", {}, 1, 1))
    foreign, gone = await sync_run(side, 1, other.id), await sync_run(side, 2, 999)
    await link.hello(a_node(kinds=("sync",)))

    assert await link.claim({"sync": 10}) == []

    for run_id, source_id in ((foreign, other.id), (gone, 999)):
        run = await side.jobs.get_run(run_id)
        assert (run.state, run.reason) == (State.FAILED, "error")
        assert f"source {source_id} of this job does not exist" in run.message


def spark_job(job_id: int, table: str, **fields: Any) -> Job:
    spec = {"query": "SELECT 1", "outputs": [{"to": "clickhouse", "database": "lake", "table": table}]}
    return make_job(job_id, kind="spark_sql", spec=spec, **fields)


async def test_two_runs_that_write_one_destination_are_not_claimed_together(side: Side, link: Link):
    await side.store.submit([Submission([spark_job(1, "a"), spark_job(2, "a"), spark_job(3, "b")])])
    first, second, third = [(await side.jobs.run_now(job)).id for job in (1, 2, 3)]
    await link.hello(a_node(kinds=("spark_sql",)))

    claimed = await link.claim({"spark_sql": 10})

    assert [a.run_id for a in claimed] == [first, third]
    waiting = await side.jobs.get_run(second)
    assert (waiting.state, waiting.reason) == (State.BLOCKED, "destination_busy")
    assert waiting.message.startswith(f"run {first} writes to clickhouse lake.a")
    await link.finish([done(first)])
    side.clock.advance(4)
    await side.store.sweep()
    assert [a.run_id for a in await link.claim({"spark_sql": 10})] == [second]


async def test_progress_is_noted_where_the_run_is_held(side: Side, link: Link):
    (run_id,) = await side.order()
    await link.hello(a_node())
    (assignment,) = await link.claim({"python": 1})

    await link.note_progress([(run_id, assignment.fence + 1, '{"rows":9}'), (run_id + 7, 1, '{"rows":9}')])
    assert (await side.jobs.get_run(run_id)).progress is None
    await link.note_progress([(run_id, assignment.fence, '{"rows":7,"tables":{"done":1,"total":2}}')])
    assert (await side.jobs.get_run(run_id)).progress == {"rows": 7, "tables": {"done": 1, "total": 2}}


async def test_what_a_remote_agent_says_of_progress_is_believed_only_where_it_fits(side: Side, tmp_path: Path):
    (run_id,) = await side.order()
    async with side.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        await remote.link.claim({"python": 1})
        for said in ("{", '{"rows":-1,"step":5}', '{"step":"' + "x" * 5000 + '"}'):
            await remote.link.note_progress([(run_id, 1, said)])
            assert (await side.jobs.get_run(run_id)).progress == {}


async def test_hello_gives_back_what_is_not_held(side: Side, link: Link):
    kept, lost = await side.order(2)
    await link.hello(a_node())
    await link.claim({"python": 10})

    await link.hello(a_node(), [(kept, 1)])

    assert await side.state(kept) is State.RUNNING
    assert await side.state(lost) is State.QUEUED
    assert await link.finish([done(kept), done(lost)]) == {kept}


async def test_a_beat_names_what_shall_stop_and_what_is_wanted(side: Side, link: Link):
    (run_id,) = await side.order()
    await link.hello(a_node())
    await link.claim({"python": 1})
    await side.jobs.cancel(run_id)
    await side.store.want_node("n1", "cordoned")

    beat = await link.beat(1)

    assert beat is not None
    assert (beat.cancel, beat.wanted) == ([(run_id, 1)], "cordoned")
    (shown,) = await side.store.list_nodes()
    assert (shown.busy, shown.state) == (1, "live")


async def test_a_node_that_was_given_up_learns_it_from_its_beat(side: Side, link: Link):
    await link.hello(a_node())
    await side.store.retire_node("n1", "gone")

    assert await link.beat(0) is None
    await link.hello(a_node())
    assert await link.beat(0) is not None


async def test_a_node_that_was_given_up_gets_no_work_and_goes_on_when_it_has_joined_again(side: Side, link: Link):
    """What it asked for just before is answered after it was given up: that is no reason to end."""
    await link.hello(a_node())
    (run_id,) = await side.order()
    await side.store.retire_node("n1", "gone")

    assert await link.claim({"python": 1}) == []
    assert await link.beat(0) is None
    await link.hello(a_node())
    assert [a.run_id for a in await link.claim({"python": 1})] == [run_id]


async def test_an_announcement_ends_the_wait(side: Side, link: Link):
    await link.hello(a_node())
    assert await link.claim({"python": 1}) == []  # it has room: who has none is not told of runs
    for topic in ("runs", "cancel"):
        while await link.wait(topic, 0.01):
            pass  # what was announced before
        waiting = asyncio.create_task(link.wait(topic, DEADLINE))
        await asyncio.sleep(0)
        await side.order()
        side.queue.announce(topic)
        assert await waiting is True


async def claim_when_woken(link: Link) -> list[int]:
    """Return the runs of the first claim that brings any."""
    claimed: list[Assignment] = []
    async with asyncio.timeout(DEADLINE):
        while not claimed:
            await link.wait("runs", DEADLINE)
            claimed = await link.claim({"python": 2})
    await link.finish([done(one.run_id, one.fence) for one in claimed])
    return [one.run_id for one in claimed]


async def test_an_idle_agent_is_woken_for_a_run_that_waits_for_limits_and_when_one_that_held_them_has_ended(
    side: Side, link: Link
):
    await link.hello(a_node())
    assert await link.claim({"python": 2}) == []
    policy = Policy(overlap=Overlap.ALLOW, concurrency_limits=(ConcurrencyLimit(1),))
    [job] = (await side.jobs.submit([replace(draft(), policy=policy)])).jobs
    runs = [(await side.jobs.run_now(job.id)).id for _ in range(3)]

    assert [await claim_when_woken(link) for _ in runs] == [[run_id] for run_id in runs]


async def test_what_a_lost_claim_brought_is_given_back(side: Side, link: Link):
    known, unknown = await side.order(2)
    await link.hello(a_node())
    await link.claim({"python": 2})

    assert await link.disown([(known, 1)]) == set()

    assert await side.state(known) is State.RUNNING
    assert await side.state(unknown) is State.QUEUED


async def test_a_server_that_welcomes_and_then_does_not_answer_is_left(
    near: Side, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It stood still between the two, and nobody beats before it has joined."""
    answer = Session._answer

    async def hang(self: Session, body: str, frame: pb.AgentFrame) -> None:
        await (asyncio.Event().wait() if self._server.node == "s1" else answer(self, body, frame))

    monkeypatch.setattr(Session, "_answer", hang)
    monkeypatch.setattr(links, "ASK_SECONDS", 2.0)
    other = near.another("s2")
    async with near.served() as hanging, other.served() as good, connected(tmp_path / "a", hanging, good) as remote:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(Unavailable):
                await remote.link.hello(a_node())
            while not await near.store.list_nodes():
                with suppress(Unavailable):
                    await remote.link.hello(a_node())

    assert ("joined", good) in remote.events


async def test_what_is_held_under_an_earlier_fence_is_not_ours_and_the_newer_attempt_is_given_back(
    side: Side, link: Link
):
    (run_id,) = await side.order()
    await link.hello(a_node())
    (first,) = await link.claim({"python": 1})
    await side.execution.take_back("n1", {run_id: first.fence})
    (second,) = await link.claim({"python": 1})

    assert await link.disown([(run_id, first.fence)]) == {(run_id, first.fence)}

    assert second.fence > first.fence
    assert await side.state(run_id) is State.QUEUED


async def test_books_that_differ_beat_after_beat_are_doubted(side: Side, link: Link):
    await side.order()
    await link.hello(a_node())
    await claim(side.store, "n1", "python", [], 1)  # and nobody heard of it
    nothing = holding_of([])

    answers = [await link.beat(0, held) for held in (nothing, None, nothing, nothing)]

    assert [answer is not None and answer.in_doubt for answer in answers] == [False, False, True, False]


async def test_books_that_differed_once_are_not_doubted(side: Side, link: Link):
    await side.order()
    await link.hello(a_node())
    (claimed,) = await link.claim({"python": 1})
    nothing, all_of_it = holding_of([]), holding_of([(claimed.run_id, claimed.fence)])

    for held in (nothing, all_of_it, nothing, all_of_it):
        answer = await link.beat(1, held)
        assert answer is not None
        assert not answer.in_doubt


async def test_the_last_result_of_a_job_can_be_asked_for(side: Side, link: Link):
    run_id, _ = await side.order(2)
    job_id = (await side.jobs.get_run(run_id)).job_id
    await link.hello(a_node())
    await link.claim({"python": 1})
    await link.finish([done(run_id, result="[1]")])
    await link.claim({"python": 1})

    assert await link.load_previous([job_id, job_id + 1]) == {job_id: "[1]"}


async def test_secrets_come_with_the_claim_of_a_run_that_names_them(side: Side, link: Link):
    await side.secrets.set(1, "A", 'correct "horse"\n')
    await side.secrets.set(1, "UNUSED", "battery staple")
    env = {"X": {"secret": "A"}, "Y": {"secret": "MISSING"}}
    (with_secrets,) = await side.order(env=env)
    (without,) = await side.order(data={"looks_like": {"secret": "A"}})

    await link.hello(a_node())
    claimed = {a.run_id: a for a in await link.claim({"python": 10})}

    assert json.loads(claimed[with_secrets].secrets or "") == {"A": 'correct "horse"\n'}
    assert claimed[without].secrets is None
    assert "horse" not in repr(claimed)
    assert "horse" not in claimed[with_secrets].spec


async def test_a_node_that_says_goodbye_is_gone(side: Side, link: Link):
    await link.hello(a_node())
    await link.goodbye()

    (shown,) = await side.store.list_nodes()
    assert shown.state == "gone"


async def test_a_thousand_large_runs_are_claimed_and_finished(far: Side, tmp_path: Path):
    """More than fits into one message, both ways."""
    runs = await far.order(200, data={"text": "x" * 60_000})
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node(slots=1000))
        claimed = await remote.link.claim({"python": 1000})
        assert [one.run_id for one in claimed] == runs
        results = [done(one.run_id, one.fence, result='"' + "y" * 60_000 + '"') for one in claimed]
        assert await remote.link.finish(results) == set(runs)


# ── over the network only ──


async def test_an_agent_comes_in_through_a_server_and_learns_its_terms(far: Side, tmp_path: Path):
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        assert await remote.link.hello(a_node()) == TERMS
        (shown,) = await far.store.list_nodes()

    assert (shown.via, shown.identity, shown.grpc) == ("s1", IDENTITY, "")
    assert remote.events[0] == ("joined", address)


async def test_a_link_goes_on_after_its_server_was_away(far: Side, tmp_path: Path):
    (run_id,) = await far.order()
    async with connected(tmp_path / "agent", far.nowhere) as remote:
        async with far.served() as address:
            remote.link._servers = [address]
            await remote.link.hello(a_node())
            await remote.link.claim({"python": 1})
        async with far.served():
            assert await remote.link.beat(1) is not None
            assert await remote.link.finish([done(run_id)]) == {run_id}

    assert [word for word, _ in remote.events].count("joined") == 2


async def test_a_link_turns_to_the_next_server(near: Side, tmp_path: Path):
    other = near.another("s2")
    async with other.served() as second:
        async with near.served() as first, connected(tmp_path / "agent", first, second) as remote:
            await remote.link.hello(a_node())
        async with connected(tmp_path / "late", first, second, identity="f" * 16, session="t" * 16) as remote:
            await remote.link.hello(a_node("n2"))
            nodes = {one.name: one for one in await near.store.list_nodes()}

    assert (nodes["n1"].via, nodes["n2"].via) == ("s1", "s2")


async def test_a_server_that_stops_sends_its_agents_elsewhere(near: Side, tmp_path: Path):
    other = near.another("s2")
    (run_id,) = await near.order()
    async with other.served() as second, connected(tmp_path / "agent", "127.0.0.1:1", second) as remote:
        async with near.served() as first:
            remote.link._servers[0] = first
            await remote.link.hello(a_node())
            await remote.link.claim({"python": 1})
        assert await remote.link.beat(1) is not None
        assert await remote.link.finish([done(run_id)]) == {run_id}
        (shown,) = await near.store.list_nodes()

    assert (shown.via, shown.state) == ("s2", "live")


async def test_a_server_that_does_not_answer_a_beat_is_not_asked_again(
    far: Side, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Who asks next waits for another line: one that failed would refuse at once, again and again, without a pause."""
    answer, stuck = Session._answer, set[Session]()

    async def hang(self: Session, body: str, frame: pb.AgentFrame) -> None:
        await (asyncio.Event().wait() if self in stuck else answer(self, body, frame))
        stuck.add(self) if body == "join" and not stuck else None

    monkeypatch.setattr(Session, "_answer", hang)
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        remote.link._terms = Terms(1.5, 0.5)
        with pytest.raises(Unavailable, match="answer"):
            await remote.link.beat(0)
        assert await remote.link.beat(0) is not None


async def test_S43_a_stranger_with_the_name_of_a_living_agent_is_refused(far: Side, tmp_path: Path):
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        async with connected(tmp_path / "other", address, identity="f" * 16, session="t" * 16) as stranger:
            with pytest.raises(Conflict, match="another living agent is called n1"):
                await stranger.link.hello(a_node())
        assert await remote.link.beat(0) is not None


async def test_a_stranger_is_refused_by_another_server_too_until_the_first_is_gone(near: Side, tmp_path: Path):
    other = near.another("s2")
    async with near.served() as first, other.served() as second, connected(tmp_path / "agent", first) as remote:
        await remote.link.hello(a_node())
        async with connected(tmp_path / "other", second, identity="f" * 16, session="t" * 16) as stranger:
            with pytest.raises(Conflict, match="another living agent"):
                await stranger.link.hello(a_node())
        await near.store.retire_node("n1", "gone")
        async with connected(tmp_path / "other", second, identity="f" * 16, session="t" * 16) as stranger:
            await stranger.link.hello(a_node())


async def test_an_agent_that_was_restarted_takes_its_name_up_again(far: Side, tmp_path: Path):
    async with far.served() as address:
        async with connected(tmp_path / "agent", address) as remote:
            await remote.link.hello(a_node())
        async with connected(tmp_path / "agent", address, session="t" * 16) as remote:
            await remote.link.hello(a_node())


async def test_an_agent_that_was_restarted_waits_until_its_earlier_life_is_silent(far: Side, tmp_path: Path):
    async with far.served() as address, connected(tmp_path / "again", address, session="t" * 16) as again:
        async with connected(tmp_path / "agent", address) as remote:
            await remote.link.hello(a_node())
            joining = asyncio.create_task(again.link.hello(a_node()))
            async with asyncio.timeout(DEADLINE):
                while not any("an earlier life of n1" in text for _, text in again.events):
                    await asyncio.sleep(0.01)
            assert not joining.done()

        await joining
        assert await again.link.beat(0) is not None


async def test_a_token_is_asked_for_where_one_is_needed(far: Side, tmp_path: Path):
    async def admit(token: str | None, peer: str) -> Token | None:
        assert peer in ("127.0.0.1", "nats n1")
        if token != "good":
            raise Unauthenticated("an agent needs a join token", code="E_JOIN_TOKEN")
        return None

    async with far.served(admit=admit) as address:
        for token in (None, "bad"):
            async with connected(tmp_path / "agent", address, token=token) as remote:
                with pytest.raises(Denied, match="join token") as refused:
                    await remote.link.hello(a_node())
                assert refused.value.code == "E_JOIN_TOKEN"
        async with connected(tmp_path / "agent", address, token="good") as remote:
            await remote.link.hello(a_node())


async def test_with_a_certificate_the_wire_is_encrypted_and_a_server_that_nobody_vouches_for_is_not_believed(
    near: Side, tmp_path: Path
):
    path, key = make_certificate(tmp_path)
    certificate = Certificate(path.read_bytes(), key.read_bytes())
    other, _ = make_certificate(tmp_path, "other")
    async with near.served(certificate) as address:
        trusting = {"is_secure": True, "authority": path.read_bytes()}
        async with connected(tmp_path / "agent", address, **trusting) as remote:
            await remote.link.hello(a_node())
            assert await remote.link.beat(0) is not None
        for doubtful in ({"is_secure": True, "authority": other.read_bytes()}, {}):
            async with connected(tmp_path / "agent", address, **doubtful) as remote, asyncio.timeout(DEADLINE):
                joining = asyncio.create_task(remote.link.hello(a_node()))
                while not remote.events:
                    await asyncio.sleep(0.01)
                joining.cancel()
                await asyncio.gather(joining, return_exceptions=True)
                assert remote.events[0][0] == "lost"


# ── over NATS only ──


async def test_over_nats_a_server_that_stops_sends_its_agents_elsewhere(apart: Side, tmp_path: Path):
    (run_id,) = await apart.order()
    async with AsyncExitStack() as stack:
        async with apart.served() as address:
            remote = await stack.enter_async_context(connected(tmp_path / "agent", address))
            await remote.link.hello(a_node())
            await remote.link.claim({"python": 1})
            await stack.enter_async_context(apart.another("s2").served())
        assert await remote.link.beat(1) is not None
        assert await remote.link.finish([done(run_id)]) == {run_id}
        (shown,) = await apart.store.list_nodes()

    assert (shown.via, shown.state) == ("s2", "live")


async def test_over_nats_a_server_that_died_is_missed_at_the_next_word(apart: Side, nats: Nats, tmp_path: Path):
    """Its connection to the broker is gone, so the broker says that nobody hears; nobody waits for the lease."""
    other = apart.another("s2")
    door = NatsListener(other.agents(), Connector(str(apart.broker), "s2"))
    async with apart.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        remote.link._terms = Terms(10 * DEADLINE, DEADLINE)  # a beat that is lost on the way waits for longer
        await apart.doors[-1].stop()
        await nobody_hears(nats, own_subject(UP, "n1", remote.link._stream._line.name))
        door.start()
        async with asyncio.timeout(DEADLINE):
            while not await quietly(remote.link.beat(1)):
                pass
        (shown,) = await apart.store.list_nodes()
        await door.stop()

    assert shown.via == "s2"


async def nobody_hears(nats: Nats, subject: str) -> None:
    """Return when the broker knows it."""
    stranger = await Connector(nats.url, "stranger").connect(lambda: None)
    async with asyncio.timeout(DEADLINE):
        while await is_heard(stranger, subject):
            pass
    await close_client(stranger)


async def is_heard(client: Any, subject: str) -> bool:
    try:
        await client.request(subject, b"", timeout=0.1)
    except NoRespondersError:
        return False
    except NatsTimeoutError:
        pass
    return True


async def test_over_nats_a_broker_that_was_killed_and_wiped_costs_nothing(apart: Side, nats: Nats, tmp_path: Path):
    (run_id,) = await apart.order()
    async with apart.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        await remote.link.claim({"python": 1})
        nats.kill()
        ref = await write(remote, run_id, b"while it was away")
        with pytest.raises(Unavailable):
            await remote.link.beat(1)
        nats.wipe()
        nats.start()
        async with asyncio.timeout(DEADLINE):
            while not await quietly(remote.link.beat(1)):
                pass
        await settled(remote)
        assert await remote.link.finish([done(run_id, output=ref)]) == {run_id}

    assert await apart.files.read(ref, 0, 99) == b"while it was away"


async def quietly(beat: Awaitable[Any]) -> bool:
    try:
        return await beat is not None
    except Unavailable:
        return False


async def test_S45_over_nats_pieces_that_are_repeated_or_lost_end_the_line(apart: Side, nats: Nats, tmp_path: Path):
    async with apart.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        stranger = await Connector(nats.url, "stranger").connect(lambda: None)
        heard: list[str] = []

        async def hear(message: Any) -> None:
            heard.append(message.subject)

        await stranger.subscribe(f"{UP}.>", cb=hear)
        await stranger.flush()
        async with asyncio.timeout(DEADLINE):
            while not heard:  # a broker may be late to tell a new listener
                assert await remote.link.beat(0) is not None
        for number in (1, 99):
            await stranger.publish(heard[-1], HEAD.pack(WHOLE, number) + pb.AgentFrame(id=7).SerializeToString())
        await stranger.flush()
        async with asyncio.timeout(DEADLINE):
            while [word for word, _ in remote.events].count("joined") < 2:
                await asyncio.sleep(0.01)
        assert await remote.link.beat(0) is not None
        await stranger.close()


async def test_over_nats_bad_words_are_refused_and_nothing_breaks(apart: Side, nats: Nats, tmp_path: Path):
    async with apart.served() as address:
        stranger = await Connector(nats.url, "stranger").connect(lambda: None)
        said: list[bytes] = []

        async def hear(message: Any) -> None:
            said.append(message.data)

        for number, data in enumerate((b"", b"x", HEAD.pack(WHOLE, 1) + b"\xff\xff", HEAD.pack(7, 1), bytes(500_000))):
            line = f"{number:032x}"
            await stranger.subscribe(f"{DOWN}.{line}", cb=hear)
            for reply in ("", "elsewhere", f"{DOWN}.{line}"):
                await stranger.publish(HELLO, data, reply=reply)
        await stranger.flush()
        async with asyncio.timeout(DEADLINE):
            while not any(b"INVALID_ARGUMENT" in one for one in said):
                await asyncio.sleep(0.01)
        async with connected(tmp_path / "agent", address) as remote:
            await remote.link.hello(a_node())
        await stranger.close()


# ── bad words ──


def hello(**fields: Any) -> pb.Hello:
    given = {
        "lowest_protocol": 1, "highest_protocol": 1, "node": "raw", "identity": IDENTITY, "session": "s" * 16,
        "kinds": ["python"], "slots": 1, **fields,
    }  # fmt: skip
    return pb.Hello(**given)


async def said(address: str, *frames: bytes | pb.AgentFrame) -> grpc.aio.AioRpcError:
    """Return how a stream ends on which this was said."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(wire.CONNECT)()
        with pytest.raises(grpc.aio.AioRpcError) as ended:  # noqa: PT012
            for frame in frames:
                await call.write(frame if isinstance(frame, bytes) else frame.SerializeToString())
            async with asyncio.timeout(DEADLINE):
                while await call.read() is not grpc.aio.EOF:
                    pass
            raise AssertionError("it ended well")
        return ended.value


BAD = {
    "garbage": (b"\xff\xff\xff\xff", "cannot be read"),
    "no hello": (pb.AgentFrame(id=1, beat=pb.Beat()), "must be hello"),
    "empty": (pb.AgentFrame(), "must be hello"),
    "no name": (pb.AgentFrame(id=1, hello=hello(node="")), "node must be"),
    "a path for a name": (pb.AgentFrame(id=1, hello=hello(node="../x")), "node must be"),
    "no kinds": (pb.AgentFrame(id=1, hello=hello(kinds=[])), "kinds must be"),
    "no slots": (pb.AgentFrame(id=1, hello=hello(slots=0)), "slots must be"),
    "too many slots": (pb.AgentFrame(id=1, hello=hello(slots=10**9)), "slots must be"),
    "no identity": (pb.AgentFrame(id=1, hello=hello(identity="")), "identity must be"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_first_frame_is_the_callers_fault(near: Side, case: str):
    frame, text = BAD[case]
    async with near.served() as address:
        ended = await said(address, frame)

    assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in ended.details()
    assert await near.store.list_nodes() == []


@pytest.mark.parametrize(("lowest", "highest"), [(6, 6), (0, 0), (3, 9)])
async def test_a_protocol_that_the_server_does_not_speak_is_refused_by_name(near: Side, lowest: int, highest: int):
    async with near.served() as address:
        ended = await said(address, pb.AgentFrame(id=1, hello=hello(lowest_protocol=lowest, highest_protocol=highest)))

    assert ended.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert f"supports protocol {wire.OLDEST_PROTOCOL} to {wire.PROTOCOL}" in ended.details()


BAD_LATER = {
    "hello again": pb.AgentFrame(id=2, hello=hello()),
    "claim of nothing": pb.AgentFrame(id=2, claim=pb.Claim(kind="python", limit=0)),
    "claim of too much": pb.AgentFrame(id=2, claim=pb.Claim(kind="python", limit=100_000)),
    "claim of another kind": pb.AgentFrame(id=2, claim=pb.Claim(kind="shell", limit=1)),
    "an unknown phase": pb.AgentFrame(id=2, note_phases=pb.NotePhases(items=[pb.PhaseOf(run_id=1, fence=1, phase=7)])),
    "a negative id": pb.AgentFrame(id=2, disown=pb.Disown(held=[-1])),
    "an empty chunk": pb.AgentFrame(chunks=pb.Chunks(items=[pb.Chunk(run_id=1, attempt=1, fence=1)])),
    "a chunk of nobody": pb.AgentFrame(chunks=pb.Chunks(items=[pb.Chunk(data=b"x")])),
    "a chunk that is too large": pb.AgentFrame(
        chunks=pb.Chunks(items=[pb.Chunk(run_id=1, attempt=1, fence=1, data=bytes(wire.MAX_CHUNK + 1))])
    ),
}


@pytest.mark.parametrize("case", BAD_LATER)
async def test_a_bad_frame_ends_the_stream_and_nothing_else(near: Side, case: str):
    async with near.served() as address:
        ended = await said(address, pb.AgentFrame(id=1, hello=hello()), BAD_LATER[case])

    assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_beyond_the_limit_is_refused(near: Side):
    async with near.served() as address:
        ended = await said(address, pb.AgentFrame(id=1, hello=hello(node="x" * (wire.MAX_MESSAGE + 1))))

    assert ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_more_output_than_the_window_is_refused(near: Side):
    chunk = pb.Chunk(run_id=1, attempt=1, fence=1, data=bytes(wire.MAX_CHUNK))
    flood = pb.AgentFrame(chunks=pb.Chunks(items=[chunk] * (wire.WINDOW // wire.MAX_CHUNK + 2)))
    async with near.served() as address:
        ended = await said(address, pb.AgentFrame(id=1, hello=hello()), flood)

    assert ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_a_newer_protocol_adds_says_nothing(near: Side, tmp_path: Path):
    """A field and a body that this code does not know."""
    unknown = b"\xfa\x3f\x03abc"  # field 1023, text
    async with near.served() as address, grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(wire.CONNECT)()
        await call.write(pb.AgentFrame(id=1, hello=hello()).SerializeToString() + unknown)
        await call.write(b"\x08\x02" + unknown)
        await call.write(pb.AgentFrame(id=3, join=pb.Join()).SerializeToString())
        async with asyncio.timeout(DEADLINE):
            answers = [pb.ServerFrame.FromString(await call.read()) for _ in range(2)]
        call.cancel()

    assert [(one.id, one.WhichOneof("body")) for one in answers] == [(1, "welcome"), (3, "done")]


# ── output ──


async def write(remote: Remote, run_id: int, data: bytes, *, attempt: int = 1, fence: int = 1) -> str:
    output = remote.spool.open(run_id, attempt, fence, 10**9)
    output.write(data)
    await output.close()
    assert output.ref is not None
    return output.ref


async def settled(remote: Remote) -> None:
    async with asyncio.timeout(DEADLINE):
        while remote.spool.unsettled:
            await asyncio.sleep(0.01)


async def test_output_arrives_whole_before_the_result_and_is_read_there(far: Side, tmp_path: Path):
    (run_id,) = await far.order()
    text = b"".join(b"%d\n" % number for number in range(300_000))  # four windows
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        await remote.link.claim({"python": 1})
        ref = await write(remote, run_id, text)
        with pytest.raises(Unavailable, match="does not have the output"):
            await remote.link.finish([done(run_id, output=ref)])
        await settled(remote)
        await remote.link.finish([done(run_id, output=ref)])
        remote.spool.forget([done(run_id)])
        async with asyncio.timeout(DEADLINE):
            while await remote.files.size(ref):
                await asyncio.sleep(0.01)

    run = await far.jobs.get_run(run_id)
    assert run.output == f"s1:{ref}"
    assert await far.files.read(ref, 0, 10**9) == text


async def test_output_of_a_superseded_attempt_goes_nowhere(far: Side, tmp_path: Path):
    (run_id,) = await far.order()
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        await remote.link.claim({"python": 1})
        await far.execution.reap("n1")
        ref = await write(remote, run_id, b"late")
        await settled(remote)
        assert await remote.link.finish([done(run_id, output=ref)]) == set()

    assert await far.files.size(ref) == 0


async def test_another_server_gets_the_output_from_its_beginning(far: Side, tmp_path: Path):
    other = far.another("s2")
    (run_id,) = await far.order()
    async with connected(tmp_path / "agent", far.nowhere) as remote:
        async with far.served() as first:
            remote.link._servers = [first]
            await remote.link.hello(a_node())
            await remote.link.claim({"python": 1})
            output = remote.spool.open(run_id, 1, 1, 10**6)
            output.write(b"before ")
            async with asyncio.timeout(DEADLINE):
                while not await far.files.size(far.files.ref(run_id, 1, 1)):
                    await asyncio.sleep(0.01)
        async with other.served() as second:
            remote.link._servers = [second]
            output.write(b"after")
            await output.close()
            assert await remote.link.beat(1) is not None
            await settled(remote)
            await remote.link.finish([done(run_id, output=output.ref)])

    assert output.ref is not None
    assert await other.files.read(output.ref, 0, 99) == b"before after"
    assert (await far.jobs.get_run(run_id)).output == f"s2:{output.ref}"


async def test_a_beat_is_answered_while_output_floods_the_wire(far: Side, tmp_path: Path):
    (run_id,) = await far.order()
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        await remote.link.claim({"python": 1})
        gate = asyncio.Event()
        store_chunk = far.files.store_chunk

        async def held_up(ref: str, number: int, data: bytes) -> None:
            await gate.wait()
            await store_chunk(ref, number, data)

        far.files.store_chunk = held_up  # type: ignore[method-assign]
        ref = await write(remote, run_id, bytes(3_000_000))
        for _ in range(3):
            assert await remote.link.beat(1) is not None
        assert await remote.link.claim({"shell": 1}) == []
        assert remote.spool.unsettled
        gate.set()
        await settled(remote)

    assert await far.files.size(ref) == 3_000_000


async def test_results_and_their_output_survive_the_agent(far: Side, tmp_path: Path):
    (run_id,) = await far.order()
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        await remote.link.claim({"python": 1})
    async with connected(tmp_path / "agent", far.nowhere) as remote:  # nobody there
        ref = await write(remote, run_id, b"spooled")
        await remote.spool.keep([done(run_id, output=ref)])

    files = open_files(tmp_path / "agent" / "spool" / "outputs")
    spool = AgentSpool(files, tmp_path / "agent" / "spool")
    (kept,) = await spool.load()
    assert (kept.run_id, kept.output, kept.state) == (run_id, ref, State.SUCCEEDED)
    assert spool.unsettled == {(run_id, 1)}
    (piece,) = await spool.take(1000)
    assert piece.data == b"spooled"
    spool.forget([kept])
    assert await AgentSpool(files, tmp_path / "agent" / "spool").load() == []


async def test_an_agent_tells_of_its_handlers_when_it_is_asked(side: Side, tmp_path: Path):
    fact = HandlerFact("jobs/a", "/jobs/a/job.py", "async", "0123456789ab", 1_000_000, "SyntaxError: line 3")

    async def read() -> list[HandlerFact]:
        return [fact]

    async with side.served() as address, connected(tmp_path / "agent", address) as remote:
        remote.link.handlers = read
        await remote.link.hello(a_node())
        (agents,) = side.taken
        both = await asyncio.gather(agents.list_handlers("n1"), agents.list_handlers("n1"))
        assert both == [HandlerList([fact]), HandlerList([fact])]
        with pytest.raises(NotFound, match="n2 is not connected to s1"):
            await agents.list_handlers("n2")


async def test_an_agent_of_before_tells_nothing_of_its_handlers(
    near: Side, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hello = links.write_hello
    monkeypatch.setattr(links, "write_hello", lambda *of: _without_handlers(hello(*of)))
    async with near.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        assert await near.taken[0].list_handlers("n1") is None


async def test_an_agent_that_does_not_tell_of_its_handlers_is_not_waited_for(
    near: Side, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = asyncio.Event()

    async def never() -> list[HandlerFact]:
        asked.set()
        raise OSError("the disk is gone")

    monkeypatch.setattr(admission, "TELL_SECONDS", 0.2)
    async with near.served() as address, connected(tmp_path / "agent", address) as remote:
        remote.link.handlers = never
        await remote.link.hello(a_node())
        with pytest.raises(Unavailable, match=r"nothing came over its line within 0\.2 s"):
            await near.taken[0].list_handlers("n1")
        await asyncio.wait_for(asked.wait(), DEADLINE)
        await remote.link.beat(0)  # the line is as it was


async def test_a_server_tells_another_of_its_handlers_and_of_its_agents(near: Side, tmp_path: Path):
    own, theirs = (HandlerFact(name, "job.py", "plain", "0123456789ab") for name in ("jobs/own", "jobs/theirs"))
    peers, stranger = GrpcPeers(SECRET), GrpcPeers("a guess")
    here = near.catalogues(peers, own)
    async with near.served(catalogues=here) as address, connected(tmp_path / "agent", address) as remote:
        remote.link.handlers = partial(_these, theirs)
        await remote.link.hello(a_node())
        server = replace(a_node("s1"), grpc=address)
        assert await peers.list_handlers(server, "s1") == HandlerList([own])
        assert await peers.list_handlers(server, "n1") == HandlerList([theirs])
        with pytest.raises(Unavailable, match="n2 is not connected to s1"):
            await peers.list_handlers(server, "n2")
        with pytest.raises(Unavailable, match="only servers of this cluster ask for handlers here"):
            await stranger.list_handlers(server, "s1")
    async with near.served() as address:  # of before: it has no such call
        assert await peers.list_handlers(replace(a_node("s1"), grpc=address), "s1") is None
    with pytest.raises(Unavailable):
        await peers.list_handlers(replace(a_node("s1"), grpc=address), "s1")
    await peers.close()
    await stranger.close()


async def test_all_handlers_of_a_cluster_are_listed_by_any_of_its_servers(near: Side, tmp_path: Path):
    own, theirs, far = (HandlerFact(name, "job.py", "plain", "1") for name in ("jobs/own", "jobs/theirs", "jobs/far"))
    peers = GrpcPeers(SECRET)
    here, there = near.catalogues(peers, own), near.another("s2").catalogues(peers, far)
    async with near.served(catalogues=here) as address, connected(tmp_path / "agent", address) as remote:
        remote.link.handlers = partial(_these, theirs)
        await near.store.register_node(replace(a_node("s1"), grpc=address))
        await near.store.register_node(replace(a_node("s2"), grpc="127.0.0.1:1"))
        await remote.link.hello(a_node())
        found = {each.node: (each.told, list(each.handlers.items)) for each in await there.list()}
        assert found == {"n1": (Told.LISTED, [theirs]), "s1": (Told.LISTED, [own]), "s2": (Told.LISTED, [far])}
        seen = {each.node: each.told for each in await here.list()}
        assert seen == {"n1": Told.LISTED, "s1": Told.LISTED, "s2": Told.SILENT}
    await peers.close()


async def _these(*facts: HandlerFact) -> list[HandlerFact]:
    return list(facts)


def _without_handlers(hello: pb.Hello) -> pb.Hello:
    hello.ClearField("handlers")
    return hello


async def test_what_lies_with_another_server_is_fetched_from_it(near: Side, tmp_path: Path):
    other = near.another("s2")
    (run_id,) = await near.order()
    peers = GrpcPeers(SECRET)
    insight = Insight(near.store, other.files, near.clock, Metrics(), node="s2", checks={}, peers=peers)
    async with near.served() as address:
        await near.store.register_node(replace(a_node("s1"), grpc=address, roles=("api",)))
        async with connected(tmp_path / "agent", address) as remote:
            await remote.link.hello(a_node())
            await remote.link.claim({"python": 1})
            ref = await write(remote, run_id, b"far away")
            await settled(remote)
            running = await insight.read_log(run_id, attempt=None, offset=4, limit=100)
            await remote.link.finish([done(run_id, output=ref)])
            ended = await insight.read_log(run_id, attempt=None, offset=0, limit=3)
            number, [piece] = await insight.log_times(run_id, None, 4, 100)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(wire, "LIST_PIECES", "/horae.v1.Outputs/NotYet")
                assert await insight.log_times(run_id, None, 0, 100) == (1, []), "an older server does not know"
        stranger = GrpcPeers("a guess")
        with pytest.raises(Unavailable, match="only servers of this cluster"):
            await stranger.read_output(replace(a_node("s1"), grpc=address), ref, 0, 1)
        with pytest.raises(Unavailable, match="only servers of this cluster"):
            await stranger.list_pieces(replace(a_node("s1"), grpc=address), ref, 0, 1)
        await stranger.close()
    assert (running.data, ended.data) == (b"away", b"far")
    assert (number, piece.offset) == (1, 0)
    assert piece.at > 1_700_000_000 * SECOND, "by the clock of the disk"

    with pytest.raises(Unavailable, match="lies with the node s1, which does not answer"):
        await insight.read_log(run_id, attempt=None, offset=0, limit=3)
    await near.store.retire_node("s1", "gone")
    with pytest.raises(Unavailable, match="lies with the node s1, which is gone"):
        await insight.read_log(run_id, attempt=None, offset=0, limit=3)
    await peers.close()
