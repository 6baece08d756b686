"""Stores under load and faults: what is urgent waits for nobody, what is too much is done in parts, a sick disk is
survived; on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.model import Overlap, State
from horae.core.runs.orders import NewRun, Order, Result
from horae.errors import Error, Unavailable
from horae.ports.store import Store
from horae.stores import limits, migrate, turns
from horae.stores.postgres import PostgresStore, lanes
from horae.stores.sqlite import SqliteStore, connections
from horae.testing import START, FakeClock, make_job

from ..claiming import claim
from ..unit.service.parts import node
from .test_store import due_job, fire_of, order

DEADLINE = 60.0
# Reads until it is told to stop, one way or the other.
ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(3600)",
}


def run_to_be(job_id: int = 1, **fields: Any) -> NewRun:
    return NewRun(job_id=job_id, kind="python", priority=5, overlap=Overlap.ALLOW, **fields)


async def use_what_is_urgent(store: Store) -> None:
    """One of each that a node cannot do without: signs of life, the lead, firing, claims, results."""
    lease = await store.get_lease("leader")
    assert lease is not None
    assert await store.renew_lease(lease) is not None
    assert await store.beat("n1", 0) is not None
    assert [one.name for one in await store.list_nodes()] == ["n1"]
    assert await store.assign_segments({0: "n1"}, lease)
    assert await store.load_segments() == {0: ("n1", 1)}
    assert await store.now()
    (due,) = await store.load_due(range(100), (0, 0), START + 1, 10)
    assert len(await store.load_definitions([due.trigger_id])) == 1
    (job,) = await store.load_jobs([1])
    assert (await store.fire([fire_of(job, job.triggers[0])])).queued == 1
    await store.sweep()
    (claimed,) = await claim(store, "n1", "python", [], 1)
    assert await store.load_running("n1") == [(claimed.run_id, claimed.fence)]
    ended = Result(claimed.run_id, claimed.fence, State.SUCCEEDED, finished_at=START)
    assert (await store.finish([ended])).accepted == {claimed.run_id}


async def with_a_due_job(store: Store) -> None:
    await due_job(store)
    await store.register_node(node("n1"))
    await store.take_lease("leader", "n1", None)


# ── urgency ──


async def test_a_purge_that_is_held_up_holds_up_nothing_that_is_urgent(
    postgres_store: PostgresStore, postgres_url: str
):
    roles = postgres_store.for_roles()
    await with_a_due_job(postgres_store)
    locker = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(DEADLINE):
        async with locker.transaction():
            await locker.execute("LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
            purging = asyncio.create_task(roles.purge([1]))
            while not await locker.fetch("SELECT 1 FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)

            await use_what_is_urgent(roles)

            assert not purging.done()
        await purging
    await locker.close()


@pytest.mark.parametrize("whose", ["users", "upkeep"])
async def test_reads_that_never_end_hold_up_nothing_that_is_urgent(store: Any, whose: str):
    """As many as the store has threads or connections for."""
    await with_a_due_job(store)
    asking = store if whose == "users" else store.for_roles()
    slow = [asyncio.create_task(asking.read(ENDLESS[store.dialect])) for _ in range(4)]
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        await use_what_is_urgent(store.for_roles())
    assert not any(task.done() for task in slow)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_what_a_user_reads_is_given_up_after_a_while_and_says_what_to_do(
    store: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "READ_TIME", 0.2)
    for _ in range(5):  # more than there are threads or connections: none is left behind
        with pytest.raises(Error) as refused:
            async with asyncio.timeout(DEADLINE):
                await store.read(ENDLESS[store.dialect])
        assert (refused.value.code, refused.value.status) == ("E_READ_TIME", 503)
        assert "narrow the filter" in refused.value.hint
    assert await store.get_run(1) is None


async def test_a_reader_that_goes_away_frees_its_place(sqlite_store: SqliteStore):
    async with asyncio.timeout(DEADLINE):
        for _ in range(5):
            reading = asyncio.create_task(sqlite_store.read(ENDLESS["sqlite"]))
            await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert await sqlite_store.get_run(1) is None


async def test_a_crowd_of_readers_on_sqlite_is_refused_before_it_waits_for_long(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.05)
    slow = [asyncio.create_task(sqlite_store.read(ENDLESS["sqlite"])) for _ in range(connections.READERS)]
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        answers = await asyncio.gather(*(sqlite_store.get_run(1) for _ in range(20)), return_exceptions=True)
    assert {getattr(answer, "code", None) for answer in answers} == {"E_OVERLOADED"}
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_connections_that_nobody_wants_are_given_back(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "IDLE", 0.05)
    store = PostgresStore(postgres_url)
    await store.open()
    watcher = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(store.get_run(1), store.get_run(2), store.for_roles().census())
        while await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'horae' AND datname = current_database()"
        ):
            await asyncio.sleep(0.01)
        assert await store.get_run(1) is None  # and opened again
    await watcher.close()
    await store.close()


# ── very many at once ──


@pytest.fixture(params=[5_000, pytest.param(100_000, marks=pytest.mark.long)])
def many(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def crowded(store: Any, many: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store whose statements may not take long, with very many runs that wait; their start deadline has passed."""
    await store.submit([Submission([make_job(1, trigger_id=10, next_at=START)])])
    if store.dialect == "postgres":
        await store.close()
        monkeypatch.setattr(lanes, "ANSWER", 5.0)
        connection = await asyncpg.connect(store._url)
        await connection.execute(
            "INSERT INTO live (id, job_id, due_at, created_at, start_by, state, priority, overlap, kind, needs) "
            "SELECT i, 1, 0, 0, 1, 0, 5, 1, 'ada', ARRAY['gpu'] FROM generate_series(1, $1) AS i",
            many,
        )
        await connection.close()
    else:
        connection = sqlite3.connect(store._path)
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO live (id, job_id, due_at, created_at, start_by, state, priority, overlap, kind, needs) "
            "SELECT i, 1, 0, 0, 1, 0, 5, 1, 'ada', '[\"gpu\"]' FROM n",
            (many,),
        )
        connection.commit()
        connection.close()
    return store


async def expire_some(store: Any) -> int:
    return int((await store.sweep()).expired)


async def fail_some(store: Any) -> int:
    return int(await store.fail_unrunnable(["python"], "nobody can", {}))


async def mark_some(store: Any) -> int:
    return int(await store.mark_unlabelled([["cpu"]]))


@pytest.mark.parametrize("step", [expire_some, fail_some, mark_some])
async def test_what_is_very_much_is_done_in_parts(crowded: Any, many: int, step: Callable[[Any], Any]):
    """Each a transaction of its own: what would take longer than a statement may would be rolled back for ever."""
    done = rounds = 0
    async with asyncio.timeout(5 * DEADLINE):
        while found := await step(crowded.for_roles()):
            assert found <= limits.ROWS_AT_ONCE
            done, rounds = done + found, rounds + 1
    assert done == many
    assert rounds == many // limits.ROWS_AT_ONCE


async def test_a_sweep_with_more_to_do_says_so(crowded: Any, clock: FakeClock):
    assert (await crowded.sweep()).next_at == clock.now()


async def test_a_job_with_very_many_waiting_runs_is_deleted(crowded: Any, many: int):
    async with asyncio.timeout(5 * DEADLINE):
        cancelled = await crowded.delete_job(1, await crowded.get_job(1))
    assert cancelled is not None
    assert len(cancelled.ended) == many
    job = await crowded.get_job(1)
    assert job.deleted_at is not None
    assert (await crowded.census()).live == {}


async def test_an_unmoved_job_only_is_deleted(store: Store):
    job = await due_job(store)
    assert await store.fire([fire_of(job, job.triggers[0])])

    assert await store.delete_job(1, job) is None  # its trigger has fired meanwhile

    seen = await store.get_job(1)
    assert seen is not None
    assert seen.deleted_at is None
    assert await store.delete_job(1, seen) is not None


async def test_very_many_retries_are_released_in_parts_and_what_waits_for_a_writer_is_not(
    store: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "ROWS_AT_ONCE", 2)
    await due_job(store)
    runs = await order(store, *(run_to_be() for _ in range(6)))
    writer, *others = runs
    waits = f"state = 2, reason = 'destination_busy', waits_for = {writer}, eligible_at = {START}"
    await store.write(f"UPDATE live SET state = 1 WHERE id = {writer}")
    for run_id in others:
        await store.write(f"UPDATE live SET {waits} WHERE id = {run_id}")

    assert (await store.sweep()).queued == 0  # two put off, three not reached: none let go

    await store.write(f"UPDATE live SET state = 0 WHERE id = {writer}")
    await store.write(f"UPDATE live SET eligible_at = {START} WHERE state = 2")
    released = [(await store.sweep()).queued for _ in range(3)]
    assert released == [2, 2, 1]


# ── a writer on a sick disk ──


class Sick(sqlite3.Connection):
    """A connection of which some statements meet a disk error."""

    failing: tuple[str, ...] = ()

    def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
        if statement in self.failing:
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *args)


@pytest.fixture
def sick(monkeypatch: pytest.MonkeyPatch) -> type[Sick]:
    real = sqlite3.connect

    class Mine(Sick):
        pass

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **fields: real(*args, factory=Mine, **fields))
    return Mine


@pytest.mark.parametrize("failing", [("COMMIT", "ROLLBACK"), ("BEGIN IMMEDIATE",), ("ROLLBACK",)])
async def test_a_writer_outlives_a_disk_on_which_not_even_a_rollback_works(
    tmp_path: Path, clock: FakeClock, sick: type[Sick], failing: tuple[str, ...]
):
    path = tmp_path / "horae.db"
    migrate.migrate_sqlite(path)
    store = SqliteStore(path, clock=clock)
    await store.open()

    async def write(key: str) -> None:
        await store.keep_setting(key, "x")

    async def spoil(_: Any = None) -> None:
        await store.write("INSERT INTO settings (name) VALUES (NULL)")  # fails, and is rolled back

    async with asyncio.timeout(DEADLINE):
        await write("before")
        sick.failing = failing
        for _ in range(3):
            answers = await asyncio.gather(write("a"), spoil(), write("b"), return_exceptions=True)
            assert {type(answer) for answer in answers} <= {Unavailable, type(None), sqlite3.IntegrityError}
            with pytest.raises((Unavailable, sqlite3.IntegrityError)):
                await spoil()
        sick.failing = ()
        await write("after")
        assert await store.get_setting("before") == await store.get_setting("after") == "x"
        await store.close()
        with pytest.raises(Unavailable, match="closed"):
            await write("late")
    assert not [one for one in threading.enumerate() if one.name == "horae-sqlite-writer"]


async def test_a_handle_for_roles_of_a_closed_store_refuses_at_once(tmp_path: Path, clock: FakeClock):
    path = tmp_path / "horae.db"
    migrate.migrate_sqlite(path)
    store = SqliteStore(path, clock=clock)
    await store.open()
    roles = store.for_roles()
    await store.close()

    async with asyncio.timeout(DEADLINE):
        with pytest.raises(Unavailable, match="closed"):
            await roles.enqueue([Order(run_to_be())])
