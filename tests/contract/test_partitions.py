"""History on PostgreSQL moves into partitions while it is used, and is dropped by them; no end of a run is lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.events import EventFilter
from horae.core.model import SECOND, RunFilter, State
from horae.core.runs.orders import NewRun, Order, Result
from horae.stores import migrate
from horae.stores.postgres import PostgresStore, partitions
from horae.testing import START, FakeClock, make_job

from ..claiming import claim


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "FROM_RUNS", 1)
    monkeypatch.setattr(partitions, "FEWEST_IDS", 1000)
    monkeypatch.setattr(partitions, "MOST_IDS", 1000)
    monkeypatch.setattr(partitions, "PAUSE", 0.05)


@pytest.fixture
async def store(postgres_store: PostgresStore) -> PostgresStore:
    await postgres_store.submit([Submission([make_job(1)])])
    return postgres_store


async def run(store: PostgresStore, count: int = 1, finished_at: int = START) -> list[int]:
    """Runs that have ended."""
    orders = [Order(NewRun(1, "python", 5, 1)) for _ in range(count)]
    made = {receipt.ids[0] for receipt in await store.enqueue(orders)}
    given = [a for a in await claim(store, "n1", "python", (), 1000) if a.run_id in made]
    await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=finished_at) for a in given])
    return sorted(made)


async def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def skip_ids(url: str, to: int) -> None:
    await ask(url, f"SELECT setval('run_id', {to})")


async def parts(url: str) -> list[partitions.Part]:
    connection = await asyncpg.connect(url)
    try:
        return await partitions._parts(connection)
    finally:
        await connection.close()


async def test_a_history_moves_while_runs_end_and_none_is_lost(store: PostgresStore, postgres_url: str) -> None:
    before = await run(store, 300)
    other = PostgresStore(postgres_url, clock=lambda: START)  # a node that knows nothing of it
    ended: list[int] = []
    moved = asyncio.Event()

    async def work(who: PostgresStore) -> None:
        while not moved.is_set() or len(ended) < 50:
            ended.extend(await run(who, 5))

    async with asyncio.TaskGroup() as group:
        group.create_task(work(other))
        while len(ended) < 20:
            await asyncio.sleep(0)
        assert await store.tend_history()
        moved.set()
    ended.extend(await run(other, 5))
    await other.close()

    assert len(await parts(postgres_url)) == 2
    rows = await ask(postgres_url, "SELECT id FROM history ORDER BY id")
    assert [row[0] for row in rows] == sorted(before + ended)
    page = await store.list_runs(RunFilter(job_id=1), None, 1000)
    assert [found.id for found in page.items] == sorted(before + ended, reverse=True)


async def test_views_and_events_follow_the_history(store: PostgresStore, postgres_url: str) -> None:
    await run(store)
    place = await store.last_event()
    assert await store.tend_history()
    await skip_ids(postgres_url, 5_000_000)

    [late] = await run(store)

    ended, _ = await store.read_events(place, 9, EventFilter(("run.finished",)))
    assert [event.run_id for event in ended] == [late]
    assert await ask(postgres_url, "SELECT count(*) FROM JobHistory") == [(2,)]


async def test_the_schema_is_still_the_one_that_the_migrations_make(store: PostgresStore, postgres_url: str) -> None:
    await run(store)
    assert await store.tend_history()
    report = await migrate.migrate_postgres(postgres_url)
    assert report.applied == []


async def test_ids_that_nobody_made_room_for_have_a_place_and_room_is_made_above_them(
    store: PostgresStore, postgres_url: str
) -> None:
    await run(store)
    assert await store.tend_history()
    await skip_ids(postgres_url, 50_000)
    far = await run(store, 3)

    assert await store.tend_history()

    found = await parts(postgres_url)
    assert [part.end is None for part in found] == [False, False, True]
    assert (found[-1].first or 0) > 50_003
    bounds = [(part.first, part.end) for part in found]
    assert all(below[1] == above[0] for below, above in pairwise(bounds))
    assert [row[0] for row in await ask(postgres_url, f"SELECT id FROM {found[1].name} ORDER BY id")] == far
    before = await parts(postgres_url)
    assert await store.tend_history()
    assert await parts(postgres_url) == before


async def test_a_part_goes_when_all_of_it_is_outdated_and_none_of_its_runs_is_live(
    store: PostgresStore, postgres_url: str, clock: FakeClock
) -> None:
    old = await run(store, 3)
    [waiting] = (await store.enqueue([Order(NewRun(1, "python", 5, 1, pin="another"))]))[0].ids
    assert await store.tend_history()
    await skip_ids(postgres_url, 50_000)
    recent = await run(store, 1, START + 99 * SECOND)
    assert await store.tend_history()

    assert await store.load_outdated_parts(START) == []
    assert await store.load_outdated_parts(START + SECOND) == []  # one may still end there
    await store.cancel([waiting], "user")
    clock.advance(5)
    [part] = await store.load_outdated_parts(START + SECOND)
    assert part.first == 0
    await store.drop_part(part)

    rows = await ask(postgres_url, "SELECT id FROM history ORDER BY id")
    assert [row[0] for row in rows] == recent
    assert [await store.get_run(run_id) for run_id in old] == [None] * 3
    assert await run(store)


async def test_a_move_that_cannot_have_the_table_gives_up_and_leaves_no_bound(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(store)
    exclusively = partitions._exclusively

    async def refuse(connection: partitions.Connection, steps: list[str]) -> None:
        if any("'move'" in step for step in steps):
            raise asyncpg.LockNotAvailableError("somebody has it")
        await exclusively(connection, steps)

    monkeypatch.setattr(partitions, "_exclusively", refuse)
    with pytest.raises(Exception, match="somebody has it"):
        await store.tend_history()

    await skip_ids(postgres_url, 50_000_000)
    assert await run(store)


async def test_a_small_history_is_left_as_it_is(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "FROM_RUNS", 1000)
    await run(store)
    assert not await store.tend_history()
    assert await parts(postgres_url) == []


async def index_state(url: str, name: str = "history_parent") -> list[tuple[object, ...]]:
    return await ask(url, f"SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('{name}')")


async def test_a_history_in_parts_gets_an_index_that_is_missing_while_runs_end(
    store: PostgresStore, postgres_url: str
) -> None:
    """As of a history that was long before there were workflows: the migration leaves the index out."""
    await run(store)
    assert await store.tend_history()
    await skip_ids(postgres_url, 50_000)
    await run(store, 3)
    assert await store.tend_history()
    assert len(await parts(postgres_url)) == 3
    await ask(postgres_url, "DROP INDEX history_parent")

    connection = await asyncpg.connect(postgres_url)
    try:  # one was left half done, by who died
        await connection.execute("CREATE INDEX history_parent ON ONLY history (parent_id) WHERE parent_id IS NOT NULL")
        assert await index_state(postgres_url) == [(False,)]
        assert await store.tend_history()
    finally:
        await connection.close()

    assert await index_state(postgres_url) == [(True,)]
    assert await store.tend_history()
    await skip_ids(postgres_url, 100_000)
    await run(store)
    assert await store.tend_history()
    assert await index_state(postgres_url) == [(True,)]
    assert len(await parts(postgres_url)) == 4


async def test_a_long_history_gets_the_index_of_tasks_after_the_migration(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "FROM_RUNS", 1_000_000)
    await ask(postgres_url, "DROP INDEX history_parent")
    await run(store)
    assert not await store.tend_history()
    assert await index_state(postgres_url) == [(True,)]
