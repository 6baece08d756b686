"""What a pooler changes: limits go with each transaction, hints are looked for, a connection outlives its server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from horae.errors import Unavailable
from horae.queues.shared import SharedQueue
from horae.service.jobs import Jobs
from horae.stores import migrate
from horae.stores.postgres import PostgresStore, lanes, partitions
from horae.stores.postgres.database import BY_INDEX
from horae.stores.postgres.notices import Notices, PolledNotices
from tests.acceptance.server import Server
from tests.acceptance.witness import check_ledger
from tests.claiming import claim
from tests.contract.postgres_server import Postgres, rows
from tests.contract.test_postgres_faults import _patiently, _stop_following, _wait_for_copy
from tests.contract.test_queue import heard
from tests.engines.pgbouncer_server import PgBouncer, running_pgbouncer
from tests.unit.service.parts import Told, node, submitted

DEADLINE = 180.0
SETTINGS = ("statement_timeout", "lock_timeout", "enable_seqscan", "jit")


async def shown(connection: Any) -> dict[str, str]:
    row = await connection.fetchrow("SELECT " + ", ".join(f"current_setting('{name}')" for name in SETTINGS))
    return dict(zip(SETTINGS, row, strict=True))


# ── what a session would keep ──


async def test_limits_and_plan_settings_hold_in_every_transaction_and_reach_nobody_else(
    postgres_url: str, pooled_url: str
):
    direct = await lanes.connect(postgres_url, timeout=7, settings=BY_INDEX)
    pooled = await lanes.connect(pooled_url, timeout=7, settings=BY_INDEX)
    stranger = await asyncpg.connect(pooled_url, statement_cache_size=0)
    before = await shown(stranger)
    expected = await shown(direct)
    assert lanes.is_pooled(pooled)
    assert not lanes.is_pooled(direct)

    assert await shown(pooled) == expected
    async with pooled.transaction():
        assert await shown(pooled) == expected
    assert [await shown(stranger) for _ in range(10)] == [before] * 10
    for connection in (direct, pooled, stranger):
        await connection.close()


async def test_a_pooler_that_drops_settings_silently_is_found_out(postgres_behind: Postgres, postgres_url: str):
    names = "jit,statement_timeout,lock_timeout,idle_in_transaction_session_timeout,tcp_keepalives_idle"
    names += ",tcp_keepalives_interval,tcp_keepalives_count,extra_float_digits"
    with running_pgbouncer(postgres_behind.port, ignore_startup_parameters=names) as pooler:
        connection = await lanes.connect(pooler.url(urlsplit(postgres_url).path[1:]), timeout=7)
        assert lanes.is_pooled(connection)
        assert (await shown(connection))["statement_timeout"] == "7s"
        await connection.close()


async def test_an_address_with_settings_of_its_own_keeps_them(pooled_url: str):
    connection = await lanes.connect(f"{pooled_url}?search_path=theirs&options=-c%20work_mem%3D5MB")
    assert await connection.fetchval("SHOW search_path") == "theirs"
    assert await connection.fetchval("SHOW work_mem") == "5MB"
    await connection.close()


async def test_a_statement_that_fails_leaves_the_connection_as_good_as_before(pooled_url: str):
    connection = await lanes.connect(pooled_url, timeout=0.5)
    for statement, error in (
        ("SELECT 1 / 0", asyncpg.DivisionByZeroError),
        ("SELECT pg_sleep(60)", asyncpg.QueryCanceledError),
        ("nonsense", asyncpg.PostgresSyntaxError),
    ):
        with pytest.raises(error):
            await connection.fetch(statement)
        assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_a_schema_is_made_through_a_pooler_by_two_at_once(postgres_server: str, pooler: PgBouncer):
    await rows(postgres_server, "CREATE DATABASE empty")
    reports = await asyncio.gather(*(migrate.migrate_postgres(pooler.url("empty")) for _ in range(2)))

    assert sorted(bool(report.applied) for report in reports) == [False, True]
    assert (await migrate.migrate_postgres(pooler.url("empty"), check=True)).current == reports[0].latest


async def test_two_that_tend_history_at_once_are_told_apart(store: PostgresStore, pooled_url: str):
    """By a transaction beside the work: it must not hold back the index that is made meanwhile."""
    connection = await lanes.connect(pooled_url)

    def alone() -> Any:
        return partitions._alone(connection, lambda: lanes.connect(pooled_url))

    async with alone() as is_first, alone() as is_second:
        assert (is_first, is_second) == (True, False)
    async with alone() as is_third:
        assert is_third
    assert await store.tend_history() is False
    await connection.close()


async def test_a_full_pooler_says_so(postgres_behind: Postgres):
    with running_pgbouncer(postgres_behind.port, max_client_conn="1") as pooler:
        first = await lanes.connect(pooler.url())
        with pytest.raises(Unavailable) as refused:
            await lanes.reached(lambda: lanes.connect(pooler.url()))
        assert refused.value.code == "E_DB_CONNECTIONS"
        await first.close()


# ── hints ──


@pytest.fixture
async def queues(postgres_url: str, pooled_url: str) -> AsyncIterator[tuple[SharedQueue, SharedQueue, SharedQueue]]:
    """Two nodes behind the pooler, and one that reaches the server directly."""
    made = [
        SharedQueue(lambda url=url: Notices.open(url, timeout=5.0)) for url in (pooled_url, pooled_url, postgres_url)
    ]
    for queue in made:
        await queue.open()
        async with asyncio.timeout(DEADLINE):
            await queue.is_listening.wait()
    yield made[0], made[1], made[2]
    for queue in made:
        await queue.close()


async def test_nodes_behind_a_pooler_and_beside_it_hear_each_other(
    queues: tuple[SharedQueue, SharedQueue, SharedQueue],
):
    for teller in queues:
        for hearer in queues:
            if hearer is not teller:
                await heard(hearer.watch("runs"), lambda teller=teller: teller.announce("runs"))


async def test_notices_are_closed_while_they_look_and_when_their_connection_is_gone(pooled_url: str):
    for is_gone in (False, True):
        hearer, teller = [await Notices.open(pooled_url, timeout=5.0) for _ in range(2)]
        await hearer.listen(lambda _: None, lambda: None)
        await teller.listen(lambda _: None, lambda: None)
        for each in (hearer, teller, hearer):
            await each.count_others()
        while not hearer._turn.locked():  # until it looks
            await asyncio.sleep(0)
        if is_gone:
            hearer._connection.terminate()
        await hearer.close()
        await teller.close()


async def test_what_others_announce_is_heard_once(pooled_url: str):
    said: list[str] = []
    hearer, teller = [await Notices.open(pooled_url, timeout=5.0) for _ in range(2)]
    assert isinstance(hearer, PolledNotices)
    await hearer.listen(said.append, lambda: None)
    await teller.listen(lambda _: None, lambda: None)
    await hearer.count_others()
    assert await teller.count_others() == 1
    assert await hearer.count_others() == 1
    await teller.publish("0123456789ab due,runs")
    async with asyncio.timeout(DEADLINE):
        while not said:
            await asyncio.sleep(0.01)
    await asyncio.sleep(1)  # several looks
    await hearer.close()
    await teller.close()

    assert [text.split(" ")[1] for text in said] == ["due,runs"]


# ── a failover behind it ──


async def refused_or_none(store: PostgresStore) -> bool:
    try:
        return not await claim(store, "n1", "python", [], 1)
    except Unavailable:
        return True


async def test_claims_are_fenced_when_the_server_behind_a_pooler_becomes_another_one():
    """The connection to the pooler lives on, so the timeline that was met with it must be compared in each claim."""
    primary = Postgres.make().start()
    await migrate.migrate_postgres(primary.url)
    standby = await asyncio.to_thread(primary.standby)
    with running_pgbouncer(primary.port) as pooler:
        store = PostgresStore(pooler.url(), lease=2)
        try:
            jobs = Jobs(store, Told())
            await jobs.run_now((await submitted(jobs)).id)
            await store.register_node(node("n1"))
            await asyncio.to_thread(_wait_for_copy, primary, standby)
            await _stop_following(standby)
            (lost,) = await claim(store, "n1", "python", [], 1)
            connection = store._claim._connection
            await rows(standby.url, "SELECT pg_promote()")
            pooler.behind(standby.port)
            pooler.reload()
            await asyncio.to_thread(primary.stop, "immediate")

            assert connection is not None
            while not connection.is_closed():  # PgBouncer changes over in its own time
                assert await refused_or_none(store)
            beat = await _patiently(lambda: store.beat("n1", 1))
            assert beat.in_doubt
            assert store.failovers == 1
            (again,) = await _patiently(lambda: claim(store, "n1", "python", [], 1))
            assert again.run_id == lost.run_id
            assert again.fence > lost.fence + 2**19
        finally:
            await store.close()
            await asyncio.to_thread(standby.remove)
            await asyncio.to_thread(primary.remove)


# ── whole nodes ──

TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "6s")


@pytest.fixture
def cluster(pooled_url: str, tmp_path: Path) -> Iterator[list[Server]]:
    nodes = []
    for name in ("n0", "n1"):
        (tmp_path / name).mkdir()
        nodes.append(Server(tmp_path / name, "--database", pooled_url, "--node", name, *TIMERS))
    for server in nodes:
        server.start()
    yield nodes
    for server in nodes:
        server.stop()


def test_a_cluster_behind_a_pooler_makes_good_the_death_of_a_node(cluster: list[Server]):
    first, second = cluster
    jobs = second.submit(
        *({"name": f"job {n}", "schedule": "1s", "handler": "horae.handlers:noop", "segment": 5 * n} for n in range(20))
    )
    (long,) = second.submit({"name": "long", "steps": [{"run": "sleep 5"}]})
    run = first.post(f"/v1/jobs/{long['id']}/run", status=201)["id"]
    second.wait_until(lambda: second.get(f"/v1/runs/{run}")["state"] == "running", "the run to begin")
    is_first = second.get(f"/v1/runs/{run}")["node"] == "n0"
    victim, other = (first, second) if is_first else (second, first)

    victim.kill()
    ended = other.ended(run)
    assert (ended["state"], ended["attempt"], ended["node"]) == ("succeeded", 2, "n1" if is_first else "n0")

    victim.start()
    for job in jobs:
        other.post(f"/v1/jobs/{job['id']}/pause")
    other.wait_until(lambda: not other.every("/v1/runs", state="queued,running,blocked"), "every run to end")
    for job in jobs:
        check_ledger(other, job)
