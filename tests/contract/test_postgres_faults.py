"""PostgreSQL at its worst, on servers of our own: crashed, locked, starved, cut off, replaced by its standby.

What fails for a while is refused as Unavailable or made good, and the ledger stays whole.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from horae.core.definitions import Idempotency, Submission
from horae.core.model import SECOND, State
from horae.errors import ConfigError, Unavailable
from horae.queues import shared as hints
from horae.queues.shared import SharedQueue
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.stores import migrate, turns
from horae.stores.postgres import PostgresStore, lanes
from horae.stores.postgres.notices import Notices
from horae.testing import START, FakeClock, make_job

from ..acceptance.server import Server
from ..acceptance.test_crash import check_ledger
from ..claiming import claim
from ..unit.service.parts import Told, fire_due, ledger, node, scheduler, submitted
from .postgres_server import Line, Postgres, rows

DEADLINE = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server that may be crashed."""
    server = Postgres.make()
    server.start()
    yield server
    server.remove()


def up(directory: Path, url: str, *flags: str) -> Server:
    directory.mkdir(exist_ok=True)
    return Server(directory, "--database", url, "--heartbeat-interval", "1", *flags).start()


class Crowd:
    """Clients that ask without pause, and count what they are told."""

    def __init__(self, server: Server, size: int, path: str = "/v1/jobs") -> None:
        self.statuses: Counter[int] = Counter()
        self.odd: list[str] = []
        self._url, self._path = server.url, path
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(size)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE, verify=False) as client:
            while not self._over.is_set():
                answer = client.get(self._path)
                self.statuses[answer.status_code] += 1
                if answer.status_code == 503 and "retry-after" not in answer.headers:
                    self.odd.append(answer.text)
                self._over.wait(0.02)

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


# ── crash, locks, starvation ──


def test_a_server_that_crashes_under_load_costs_no_moment(database: Postgres, tmp_path: Path):
    server = up(tmp_path / "a", database.url)
    jobs = server.submit(*[
        {"name": f"job {i}", "schedule": "1s", "handler": "horae.handlers:noop"} for i in range(20)
    ])  # fmt: skip
    with Crowd(server, 4) as crowd:
        for _ in range(2):
            time.sleep(2)
            database.stop("immediate")
            time.sleep(1)
            database.start()
        server.wait_until(lambda: server.http.get("/readyz").status_code == 200, "the node to be ready again")
        time.sleep(2)

    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.get("/v1/runs", state="queued,running,blocked")["items"], "every run to end")
    assert set(crowd.statuses) == {200, 503}
    assert not crowd.odd
    for job in jobs:
        check_ledger(server, job)
    assert server.stop() == 0


async def test_a_table_that_is_locked_for_long_holds_up_claims_but_no_heartbeat(
    postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lanes, "LOCKED", 0.2)
    store = PostgresStore(postgres_url, clock=clock, lease=3)
    jobs = Jobs(store, Told())
    job = await submitted(jobs)
    await jobs.run_now(job.id)
    await store.register_node(node("n1"))
    locker = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(DEADLINE):
        async with locker.transaction():
            await locker.execute("LOCK TABLE live IN ACCESS EXCLUSIVE MODE")
            for _ in range(2):
                with pytest.raises(Unavailable, match="held up"):
                    await claim(store, "n1", "python", [], 1)
                assert await store.beat("n1", 0) is not None
        assert len(await claim(store, "n1", "python", [], 1)) == 1
    await locker.close()
    await store.close()


@pytest.mark.long
def test_a_node_that_is_short_of_connections_stays_alive_under_a_crowd(tmp_path: Path):
    """A stranger takes what is left of the connections; whoever finds none is refused in time, and beats go on."""
    database = Postgres.make(max_connections="12", superuser_reserved_connections="0").start()
    try:
        server = up(tmp_path / "a", database.url, "--node", "a")
        with asyncio.Runner() as stranger:
            held = stranger.run(_take_all(database.url))
            with Crowd(server, 100) as crowd:
                before = stranger.run(_beat(held))
                server.wait_until(lambda: stranger.run(_beat(held)) > before + 3, "heartbeats")
            stranger.run(_give_back(held))
        assert set(crowd.statuses) <= {200, 503}
        assert not crowd.odd
        server.wait_until(lambda: server.http.get("/readyz").status_code == 200, "the node to be ready")
        server.submit({"name": "after", "handler": "horae.handlers:noop", "run_once": True})
        assert server.stop() == 0
    finally:
        database.remove()


async def _take_all(url: str) -> list[Any]:
    held = []
    while True:
        try:
            held.append(await asyncpg.connect(url))
        except asyncpg.TooManyConnectionsError:
            return held


async def _give_back(held: list[Any]) -> None:
    for connection in held:
        await connection.close()


async def _beat(held: list[Any]) -> int:
    return int(await held[0].fetchval("SELECT beat FROM nodes WHERE name = 'a' AND state = 'live'"))


async def test_a_crowd_of_readers_is_refused_before_it_waits_for_long(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.05)
    store = PostgresStore(postgres_url, readers=1)
    async with asyncio.timeout(DEADLINE):
        slow = asyncio.create_task(store.read("SELECT pg_sleep(2)"))
        await asyncio.sleep(0)
        answers = await asyncio.gather(*(store.get_run(1) for _ in range(20)), return_exceptions=True)
        assert await store.beat("nobody", 0) is None  # lanes do not wait with them
        await slow
    assert {getattr(answer, "code", None) for answer in answers} == {"E_OVERLOADED"}
    await store.close()


# ── a connection that breaks in the middle ──


@pytest.fixture
async def line(database: Postgres) -> AsyncIterator[Line]:
    await migrate.migrate_postgres(database.url)
    line = await Line(database.port).open()
    yield line
    await line.close()


@pytest.mark.parametrize("key", [None, Idempotency("s", "k", "d")])
async def test_a_submit_whose_answer_was_lost_is_found_to_have_happened(
    database: Postgres, line: Line, key: Idempotency | None
):
    """The line dies after the commit has reached the server: nobody hears of it, and nothing is made twice."""
    store = PostgresStore(f"postgresql://postgres@127.0.0.1:{line.port}/postgres")
    await store.submit([Submission([make_job(1)], key and replace(key, key="first"))])  # now statements are prepared
    line.mute_at = b"COMMIT" if key else b""
    async with asyncio.timeout(DEADLINE):
        submitting = asyncio.create_task(store.submit([Submission([make_job(2), make_job(3)], key)]))
        while not await rows(database.url, "SELECT 1 FROM jobs WHERE id = 2"):
            assert not submitting.done()
        line.cut()

        (receipt,) = await submitting
    assert receipt.ids == [2, 3]
    assert len(await rows(database.url, "SELECT 1 FROM jobs")) == 3
    await store.close()


async def test_a_submit_that_was_cut_off_before_it_happened_is_made_good(database: Postgres, line: Line):
    store = PostgresStore(f"postgresql://postgres@127.0.0.1:{line.port}/postgres")
    await store.submit([Submission([make_job(1)])])
    locker = await asyncpg.connect(database.url)
    async with asyncio.timeout(DEADLINE):
        async with locker.transaction():
            await locker.execute("LOCK TABLE jobs")
            submitting = asyncio.create_task(store.submit([Submission([make_job(2)])]))
            while not await rows(database.url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert not submitting.done()
            line.cut()
            while not await rows(database.url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert not submitting.done()

        assert [receipt.ids for receipt in await submitting] == [[2]]
    assert len(await rows(database.url, "SELECT 1 FROM jobs")) == 2
    await locker.close()
    await store.close()


# ── hints ──


async def test_hints_come_back_after_a_restart_and_over_a_line_that_was_dead_at_one_end(
    database: Postgres, line: Line, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hints, "COUNT_GAP", 0.1)
    teller, hearer = (
        SharedQueue(lambda port=port: Notices.open(_at(port), timeout=2.0)) for port in (database.port, line.port)
    )
    watch = hearer.watch("runs")
    await teller.open()
    await hearer.open()
    async with asyncio.timeout(DEADLINE):
        await _tell_until_heard(teller, watch)
        line.mute_at = b""
        while hearer.is_listening.is_set():
            await asyncio.sleep(0.05)
        line.cut()
        await _tell_until_heard(teller, watch)
        await asyncio.to_thread(database.stop, "immediate")
        await asyncio.to_thread(database.start)
        await watch.wait(DEADLINE)  # woken when it listens again
        await _tell_until_heard(teller, watch)
    await teller.close()
    await hearer.close()


def _at(port: int) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


async def _tell_until_heard(teller: SharedQueue, watch: Any) -> None:
    await watch.wait(0)
    teller.announce("runs")
    while not await watch.wait(0.1):
        teller.announce("runs")


# ── failover ──


def test_several_hosts_are_several_addresses_that_take_writes():
    assert lanes.addresses("postgresql://u:p@a:1,b/x?sslmode=require") == [
        "postgresql://u:p@a:1/x?sslmode=require&target_session_attrs=read-write",
        "postgresql://u:p@b/x?sslmode=require&target_session_attrs=read-write",
    ]
    assert lanes.addresses("postgresql://a,b/x?target_session_attrs=any") == [
        "postgresql://a/x?target_session_attrs=any",
        "postgresql://b/x?target_session_attrs=any",
    ]
    assert lanes.addresses("postgresql://u@/x?host=/run") == ["postgresql://u@/x?host=/run"]


def test_a_failover_to_the_standby_is_followed(tmp_path: Path, database: Postgres):
    standby = database.standby()
    server = None
    try:
        url = f"postgresql://postgres@127.0.0.1:{database.port},127.0.0.1:{standby.port}/postgres"
        server = up(tmp_path / "a", url, "--lease", "4")
        (job,) = server.submit({"name": "job", "schedule": "1s", "handler": "horae.handlers:noop"})
        server.wait_until(lambda: server.get("/v1/runs", state="succeeded")["items"], "a run")
        _wait_for_copy(database, standby)
        with pytest.raises(ConfigError, match="standby"):
            asyncio.run(migrate.migrate_postgres(standby.url))
        database.stop("immediate")
        standby.promote()

        server.wait_until(lambda: _newest_fence(server, job) > 2**20, "a run after the failover")
        server.post(f"/v1/jobs/{job['id']}/pause")
        server.wait_until(lambda: not server.get("/v1/runs", state="queued,running,blocked")["items"], "runs to end")
        check_ledger(server, job)
        assert "horae_database_failovers_total 1.0" in server.http.get("/metrics").text
    finally:
        if server is not None:
            server.stop()
        standby.remove()


def _newest_fence(server: Server, job: Any) -> int:
    """Of a run that succeeded; none while the server refuses."""
    answer = server.http.get("/v1/runs", params={"job_id": job["id"], "state": "succeeded", "limit": 1})
    assert answer.status_code in (200, 503)
    return int(answer.json()["items"][0]["fence"]) if answer.status_code == 200 else 0


def _wait_for_copy(primary: Postgres, standby: Postgres) -> None:
    async def wait() -> None:
        (row,) = await rows(primary.url, "SELECT pg_current_wal_flush_lsn()::text")
        async with asyncio.timeout(DEADLINE):
            while not (await rows(standby.url, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", row[0]))[0][0]:
                await asyncio.sleep(0.05)

    asyncio.run(wait())


async def test_commits_that_a_failover_lost_are_noticed_and_their_claims_fenced_off(database: Postgres):
    """The standby lags: a claim and some beats are lost with the primary."""
    await migrate.migrate_postgres(database.url)
    standby = await asyncio.to_thread(database.standby)
    url = f"postgresql://postgres@127.0.0.1:{database.port},127.0.0.1:{standby.port}/postgres"
    store = PostgresStore(url, lease=1)
    try:
        jobs = Jobs(store, Told())
        job = await submitted(jobs)
        run = await jobs.run_now(job.id)
        await store.register_node(node("n1"))
        await asyncio.to_thread(_wait_for_copy, database, standby)
        await _stop_following(standby)
        (lost,) = await claim(store, "n1", "python", [], 1)
        beats = [await store.beat("n1", 1) for _ in range(3)]
        assert not any(beat.in_doubt for beat in beats)
        await asyncio.to_thread(database.stop, "immediate")
        await asyncio.to_thread(standby.promote)

        beat = await _patiently(lambda: store.beat("n1", 1))
        assert beat.in_doubt
        assert (store.failovers, store.commits_lost) == (1, 1)
        assert (await store.get_run(run.id)).state is State.QUEUED  # the claim is lost
        (again,) = await _patiently(lambda: claim(store, "n1", "python", [], 1))
        assert again.run_id == lost.run_id
        assert again.fence > lost.fence + 2**19
    finally:
        await store.close()
        await asyncio.to_thread(standby.remove)


async def test_a_failover_that_two_lanes_meet_at_once_is_counted_once(database: Postgres):
    await migrate.migrate_postgres(database.url)
    store = PostgresStore(database.url)
    await store.open()
    try:
        store.queries = {**store.queries, "timeline": "SELECT 2"}
        connections = await asyncio.gather(store._connect_claim(), store._connect_beat())
        assert store.failovers == 1
        for connection in connections:
            await connection.close()
    finally:
        await store.close()


async def test_a_process_that_starts_just_after_a_failover_waits_with_the_others(database: Postgres):
    """It has met no other timeline; but somebody claimed on one, and may have lost that claim."""
    await migrate.migrate_postgres(database.url)
    standby = await asyncio.to_thread(database.standby)
    before = PostgresStore(database.url, lease=600)
    stores = [before]
    try:
        jobs = Jobs(before, Told())
        await jobs.run_now((await submitted(jobs)).id)
        session = await before.register_node(node("n1"))
        await asyncio.to_thread(_wait_for_copy, database, standby)
        assert not (await before.beat("n1", 0)).in_doubt
        await asyncio.to_thread(database.stop, "immediate")
        await asyncio.to_thread(standby.promote)

        fresh, later = PostgresStore(standby.url, lease=600), PostgresStore(standby.url, lease=1)
        stores += [fresh, later]
        assert await _patiently(lambda: fresh.beat("n1", 0, session=session))
        assert await claim(fresh, "n1", "python", [], 1, session=session) == []
        assert (await fresh.beat("n1", 0)).in_doubt
        assert len(await _patiently(lambda: claim(later, "n1", "python", [], 1, session=session))) == 1
    finally:
        for store in stores:
            await store.close()
        await asyncio.to_thread(standby.remove)


async def _stop_following(standby: Postgres) -> None:
    await rows(standby.url, "ALTER SYSTEM SET primary_conninfo = ''")
    await rows(standby.url, "SELECT pg_reload_conf()")
    async with asyncio.timeout(DEADLINE):
        while await rows(standby.url, "SELECT 1 FROM pg_stat_wal_receiver"):
            await asyncio.sleep(0.05)


async def _patiently(call: Any) -> Any:
    """Return the first answer that is neither a refusal nor empty."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                if found := await call():
                    return found
            except Unavailable:
                pass
            await asyncio.sleep(0.05)


# ── time ──


async def test_a_database_whose_clock_jumps_refires_nothing_and_expires_nothing(postgres_url: str):
    """An hour ahead, then back: the store's clock is its own, the nodes' clocks go on."""
    theirs, ours = FakeClock(), FakeClock()
    store = PostgresStore(postgres_url, clock=theirs)
    jobs, firing = Jobs(store, Told()), scheduler(store, ours)
    execution = Execution(store, Told(), ours, Metrics())
    leader, rival = (
        Cluster(store, Told(), ours, execution, node=name, lease_seconds=15, dead_after=25, is_exclusive=False)
        for name in ("a", "b")
    )
    for name in ("a", "b"):
        await store.register_node(node(name, roles=("coordinator",)))
    assert await leader.campaign()
    assert not await rival.campaign()
    job = await submitted(jobs, schedule="1m", overlap="allow")

    for jump in (3600, -3600, 3600):
        theirs.advance(jump)
        ours.advance(1)
        await firing.set_clock()
        await fire_due(firing)
        assert not await rival.campaign()
        assert await leader.campaign()
        await leader.lead()

    records = await ledger(store, job.id)
    assert [run.due_at for run in records] == [START + 60 * SECOND * i for i in range(1, 61)]
    assert {found.state for found in await store.list_nodes()} == {"live"}
    await store.close()
