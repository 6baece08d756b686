"""Databases at their worst: what fails for a while is `Unavailable`, whatever it says, and what meets in one
row loses nothing."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.model import State
from horae.core.runs.orders import Result
from horae.core.signs import Beat
from horae.errors import Unavailable
from horae.service.jobs import Jobs
from horae.stores.postgres import PostgresStore, lanes
from horae.stores.sqlite import SqliteStore
from horae.testing import START, make_job

from ...claiming import claim
from .parts import Told, draft, node, submitted

DEADLINE = 180


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


@pytest.fixture
async def connections(postgres_url: str) -> AsyncIterator[tuple[Any, Any]]:
    """Two more connections to the store's database. One watches: within a transaction the other sees the
    sessions as they were when it first looked."""
    pair = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    yield pair
    for connection in pair:
        await connection.close()


async def sessions(watcher: Any, condition: str) -> list[int]:
    """Sessions of the store in this database."""
    rows = await watcher.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'horae' AND "
        + condition
    )
    return [row[0] for row in rows]


async def waiting_for_a_lock(watcher: Any) -> int:
    async with asyncio.timeout(DEADLINE):
        while not (found := await sessions(watcher, "wait_event_type = 'Lock'")):
            await asyncio.sleep(0.01)
    return found[0]


async def test_a_statement_that_was_cancelled_is_unavailable(
    connections: tuple[Any, Any], postgres_store: PostgresStore
):
    """As a statement timeout, a lock timeout or an impatient administrator would."""
    other, watcher = connections
    await postgres_store.register_node(node("n1"))
    async with other.transaction():
        await other.execute("LOCK TABLE nodes")
        beating = asyncio.create_task(postgres_store.beat("n1", 0))
        await watcher.execute("SELECT pg_cancel_backend($1)", await waiting_for_a_lock(watcher))
        with pytest.raises(Unavailable):
            await beating

    assert await postgres_store.beat("n1", 0) == Beat([])


async def test_connections_that_were_cut_are_made_anew(connections: tuple[Any, Any], postgres_store: PostgresStore):
    _, watcher = connections
    jobs = Jobs(postgres_store, Told())
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    await claim(postgres_store, "n1", "python", [], 0)
    async with asyncio.timeout(DEADLINE):
        while found := await sessions(watcher, "true"):
            for pid in found:
                await watcher.execute("SELECT pg_terminate_backend($1)", pid)

    async def again(call: Any) -> Any:
        """Return the first answer that is not a refusal; no more than one refusal."""
        try:
            return await call()
        except Unavailable:
            return await call()

    assert (await jobs.get_run(run.id)).state is State.QUEUED
    assert await postgres_store.beat("n1", 0) is None
    assert len(await again(lambda: claim(postgres_store, "n1", "python", [], 1))) == 1
    assert (await again(lambda: jobs.submit([draft(schedule="1h")]))).jobs[0].created_at == START


@pytest.fixture
async def lingering_url(postgres_url: str, tmp_path: Path) -> AsyncIterator[str]:
    """The same database through a proxy that passes a server's goodbye on, but never closes the line."""
    host = parse_qs(urlsplit(postgres_url).query)["host"][0]
    lines: list[StreamWriter] = []

    async def pump(source: StreamReader, sink: StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.5432")
        lines.extend((writer, to_server))
        await asyncio.gather(pump(reader, to_server), pump(from_server, writer), return_exceptions=True)

    proxy = await asyncio.start_unix_server(serve, tmp_path / ".s.PGSQL.5432")
    yield postgres_url.replace(quote(host, safe=""), str(tmp_path)).replace(host, str(tmp_path))
    proxy.close()
    for line in lines:
        line.close()


async def test_a_server_that_says_goodbye_and_does_not_close_costs_no_reader_an_error(
    connections: tuple[Any, Any], lingering_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lanes, "FAREWELL", 0.01)
    _, watcher = connections
    store = PostgresStore(lingering_url)
    assert await store.get_run(1) is None
    [pid] = await sessions(watcher, "true")
    await watcher.execute("SELECT pg_terminate_backend($1)", pid)
    async with asyncio.timeout(DEADLINE):
        while await sessions(watcher, "true"):
            await asyncio.sleep(0.01)

    assert await store.get_run(1) is None
    await store.close()


async def test_a_deadlock_is_tried_again(connections: tuple[Any, Any], postgres_store: PostgresStore):
    """Two that lock the same rows in opposite order: one is chosen to give way, and nobody hears of it."""
    other, watcher = connections
    jobs = Jobs(postgres_store, Told())
    many = (await jobs.submit([draft(f"job {i}") for i in range(2)])).jobs
    runs = [(await jobs.run_now(job.id)).id for job in many]
    claimed = {a.run_id: a for a in await claim(postgres_store, "n1", "python", [], 2)}
    await other.execute("SET deadlock_timeout = '1min'")  # the store's session is the one to notice, and gives way
    async with asyncio.timeout(DEADLINE), other.transaction():
        await other.execute("SELECT 1 FROM live WHERE id = $1 FOR UPDATE", runs[1])
        finishing = asyncio.create_task(_finish(postgres_store, [claimed[run] for run in runs]))
        await waiting_for_a_lock(watcher)
        await other.execute("SELECT 1 FROM live WHERE id = $1 FOR UPDATE", runs[0])

    assert await finishing == set(runs)


async def test_a_run_that_is_claimed_while_its_job_is_deleted_is_asked_to_stop(
    connections: tuple[Any, Any], postgres_store: PostgresStore
):
    other, watcher = connections
    jobs = Jobs(postgres_store, Told())
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    async with asyncio.timeout(DEADLINE):
        async with other.transaction():  # a claim that has not committed yet
            await other.execute("UPDATE live SET state = 1, fence = 1, attempt = 1, node = 'n1' WHERE id = $1", run.id)
            deleting = asyncio.create_task(jobs.delete(job.id))
            await waiting_for_a_lock(watcher)
        await deleting

    found = await jobs.get_run(run.id)
    assert (found.state, found.cancel_requested) == (State.RUNNING, True)


async def _finish(store: PostgresStore, assignments: list[Any]) -> set[int]:
    results = [Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=START) for a in assignments]
    return (await store.finish(results)).accepted
