"""Gates on PostgreSQL: of a job that forbids it, no two runs are live, whoever makes them at the same moment."""

from __future__ import annotations

import asyncio

import asyncpg

from horae.core.definitions import Submission
from horae.core.model import Overlap
from horae.core.runs.orders import Fire, NewRun
from horae.stores.postgres import PostgresStore
from horae.testing import START, make_job

TAKE = """INSERT INTO live (id, job_id, due_at, created_at, gate, state, priority, overlap, kind)
VALUES (nextval('run_id'), 1, 0, 0, 1, 0, 5, 0, 'python')"""
MOMENT = START + 60_000_000


def fire(trigger_id: int, job_id: int) -> Fire:
    run = NewRun(job_id, "python", 5, Overlap.FORBID)
    return Fire(trigger_id, 1, 1, START, MOMENT, START, run, START)


async def submit(store: PostgresStore, *jobs: int) -> None:
    await store.submit([Submission([make_job(job, trigger_id=10 * job, next_at=START, segment=1) for job in jobs])])


async def live(url: str) -> list[int]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT job_id FROM live ORDER BY job_id")
    await connection.close()
    return [row[0] for row in rows]


async def test_a_moment_whose_gate_somebody_takes_while_it_fires_is_skipped(
    postgres_store: PostgresStore, postgres_url: str
):
    await submit(postgres_store, 1, 2)
    other = await asyncpg.connect(postgres_url)
    await other.execute("BEGIN")
    await other.execute(TAKE)

    firing = asyncio.create_task(postgres_store.fire([fire(10, 1), fire(20, 2)]))
    while not await _somebody_waits(postgres_url):
        await asyncio.sleep(0)
    await other.execute("COMMIT")
    await other.close()
    fired = await firing

    assert (fired.advanced, fired.queued, fired.skipped) == ({10, 20}, 1, 1)
    assert await live(postgres_url) == [1, 2]


async def test_a_moment_whose_gate_is_free_again_makes_its_run(postgres_store: PostgresStore, postgres_url: str):
    await submit(postgres_store, 1)
    other = await asyncpg.connect(postgres_url)
    await other.execute("BEGIN")
    await other.execute(TAKE)

    firing = asyncio.create_task(postgres_store.fire([fire(10, 1)]))
    while not await _somebody_waits(postgres_url):
        await asyncio.sleep(0)
    await other.execute("ROLLBACK")
    await other.close()
    fired = await firing

    assert (fired.queued, fired.skipped) == (1, 0)


async def _somebody_waits(url: str) -> bool:
    connection = await asyncpg.connect(url)
    found = await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
    await connection.close()
    return bool(found)
