"""A database that fails for a while is `Unavailable`, whatever it says: the roles wait and go on."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from horae.core.model import State
from horae.errors import Unavailable
from horae.ports import Result, Submission
from horae.service.jobs import Jobs
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.testing import START, make_job

from .parts import Told, draft, node, submitted

DEADLINE = 60


async def test_a_full_disk_is_unavailable_and_passes(sqlite_store: SqliteStore):
    job = await submitted(Jobs(sqlite_store, Told()))
    (size,) = (await sqlite_store.write("PRAGMA page_count"))[0]
    await sqlite_store.write(f"PRAGMA max_page_count = {size + 2}")
    wide = [make_job(i, spec={"handler": "m:f", "data": "x" * 10_000}) for i in range(100, 110)]

    with pytest.raises(Unavailable, match="full"):
        await sqlite_store.submit([Submission(wide)])
    answers = await asyncio.gather(
        sqlite_store.submit([Submission(wide)]), sqlite_store.register_node(node("n1")), return_exceptions=True
    )
    assert isinstance(answers[0], Unavailable)
    await sqlite_store.write("PRAGMA max_page_count = 1000000")

    assert await sqlite_store.get_job(100) is None  # nothing of it, not even a part
    await sqlite_store.submit([Submission(wide)])
    assert await sqlite_store.get_job(109) is not None
    assert await sqlite_store.get_job(job.id) is not None


async def test_a_closed_store_is_unavailable(sqlite_store: SqliteStore):
    await sqlite_store.close()

    with pytest.raises(Unavailable):
        await sqlite_store.register_node(node("n1"))


async def backends(connection: Any, condition: str) -> list[int]:
    """Sessions of the store in this database."""
    rows = await connection.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "
        + condition
    )
    return [row[0] for row in rows]


async def test_a_statement_that_was_cancelled_is_unavailable(postgres_url: str, postgres_store: PostgresStore):
    """As a statement timeout, a lock timeout or an impatient administrator would."""
    other = await asyncpg.connect(postgres_url)
    await postgres_store.register_node(node("n1"))
    try:
        async with other.transaction():
            await other.execute("LOCK TABLE nodes")
            beating = asyncio.create_task(postgres_store.beat("n1", 0))
            async with asyncio.timeout(DEADLINE):
                while not (waiting := await backends(other, "wait_event_type = 'Lock'")):
                    await asyncio.sleep(0.01)
            await other.execute("SELECT pg_cancel_backend($1)", waiting[0])
            with pytest.raises(Unavailable):
                await beating
    finally:
        await other.close()

    assert await postgres_store.beat("n1", 0) == []


async def test_connections_that_were_cut_are_made_anew(postgres_url: str, postgres_store: PostgresStore):
    jobs = Jobs(postgres_store, Told())
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    await postgres_store.claim("n1", "python", [], 0)
    other = await asyncpg.connect(postgres_url)
    for pid in await backends(other, "true"):
        await other.execute("SELECT pg_terminate_backend($1)", pid)
    async with asyncio.timeout(DEADLINE):
        while await backends(other, "true"):
            await asyncio.sleep(0.01)
    await other.close()

    async def again(call: Any) -> Any:
        """The first answer that is not a refusal; no more than one refusal each."""
        try:
            return await call()
        except Unavailable:
            return await call()

    assert (await again(lambda: jobs.get_run(run.id))).state is State.QUEUED
    assert len(await again(lambda: postgres_store.claim("n1", "python", [], 1))) == 1
    assert (await again(lambda: jobs.submit([draft(schedule="1h")]))).jobs[0].created_at == START


async def test_a_deadlock_is_tried_again(postgres_url: str, postgres_store: PostgresStore):
    """Two statements that lock the same rows in opposite order: one is chosen, and nobody hears of it."""
    jobs = Jobs(postgres_store, Told())
    many = (await jobs.submit([draft(f"job {i}") for i in range(2)])).jobs
    runs = [(await jobs.run_now(job.id)).id for job in many]
    claimed = {a.run_id: a for a in await postgres_store.claim("n1", "python", [], 2)}
    other = await asyncpg.connect(postgres_url)
    try:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT 1 FROM live WHERE id = $1 FOR UPDATE", runs[1])
        finishing = asyncio.create_task(_finish(postgres_store, [claimed[run] for run in runs]))
        async with asyncio.timeout(DEADLINE):
            while not await backends(other, "wait_event_type = 'Lock'"):
                await asyncio.sleep(0.01)
            try:
                await other.execute("SELECT 1 FROM live WHERE id = $1 FOR UPDATE", runs[0])
                await transaction.commit()
            except asyncpg.DeadlockDetectedError:
                await transaction.rollback()
            assert await finishing == set(runs)
    finally:
        await other.close()


async def _finish(store: PostgresStore, assignments: list[Any]) -> set[int]:
    results = [Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=START) for a in assignments]
    return (await store.finish(results)).accepted
