"""The hot statements reach their rows by index, also while the statistics say that the tables are empty."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import JobFilter
from horae.core.runs.orders import NewRun, Order, Want
from horae.stores.postgres import PostgresStore, database, lanes
from horae.testing import START, make_job

COUNT = 600


@pytest.fixture
async def full_tables_believed_empty(postgres_url: str, postgres_store: PostgresStore):
    """Tables analysed while empty and filled since: as after a night of quiet, when the herd comes."""
    connection = await lanes.connect(postgres_url)
    await connection.execute("ANALYZE jobs, due, live, history")
    jobs = [make_job(i, trigger_id=i, next_at=START) for i in range(1, COUNT + 1)]
    await postgres_store.submit([Submission(jobs)])
    await postgres_store.enqueue([Order(NewRun(job.id, "python", 5, 1)) for job in jobs])
    await connection.close()


async def plan_of(url: str, store: PostgresStore, name: str, settings: dict[str, str] = database.BY_INDEX) -> str:
    """As the store has it planned, once for whatever comes."""
    connection = await lanes.connect(url, settings=settings)
    prepared = await connection.prepare(store.queries[name])
    nothing = ", ".join(["NULL"] * len(prepared.get_parameters()))
    rows = await connection.fetch(f"EXPLAIN EXECUTE {prepared.get_name()} ({nothing})")
    await connection.close()
    return "\n".join(row[0] for row in rows)


@pytest.mark.usefixtures("full_tables_believed_empty")
@pytest.mark.parametrize("name", ["fire", "finish", "wait", "load_definitions"])
async def test_a_hot_statement_scans_no_table_and_loops_over_none(
    postgres_url: str, postgres_store: PostgresStore, name: str
):
    plan = await plan_of(postgres_url, postgres_store, name)

    assert "Seq Scan" not in plan
    assert "Nested Loop" not in plan


@pytest.mark.usefixtures("full_tables_believed_empty")
@pytest.mark.parametrize("name", ["finish", "wait", "set_phases", "load_held", "begin_flows"])
async def test_what_names_its_runs_does_not_go_by_all_that_run(
    postgres_url: str, postgres_store: PostgresStore, name: str
):
    """Although few ran when the tables were looked at: the index of those seems to be the shortest way then."""
    connection = await lanes.connect(postgres_url)
    await connection.execute("ANALYZE live")
    await connection.close()

    plan = await plan_of(postgres_url, postgres_store, name)

    assert "Index Scan using live_pkey" in plan
    assert "live_node" not in plan


@pytest.mark.usefixtures("full_tables_believed_empty")
@pytest.mark.parametrize("name", ["enqueue", "enqueue_alike", "enqueue_together", "submit"])
async def test_what_people_ask_for_scans_no_table(postgres_url: str, postgres_store: PostgresStore, name: str):
    assert "Seq Scan" not in await plan_of(postgres_url, postgres_store, name, database.BY_KEY)
    async with postgres_store._submit.use() as connection:
        assert await connection.fetchval("SHOW enable_seqscan") == "off"


@pytest.mark.parametrize(("name", "nodes"), [("claim_lean", ["n1"]), ("claim", ["n1", "n2"])])
async def test_a_hot_statement_is_planned_once(postgres_store: PostgresStore, name: str, nodes: list[str]):
    """However often it is asked: to plan a claim takes longer than to claim."""
    for _ in range(9):
        await postgres_store.claim([Want(node, "python", 1) for node in nodes])
    async with postgres_store._claim.use() as connection:
        counts = await connection.fetch(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = $1",
            postgres_store.queries[name],
        )
    assert [tuple(row) for row in counts] == [(9, 0)]


async def test_words_are_looked_for_in_an_index_alone(postgres_url: str, postgres_store: PostgresStore):
    """The table of jobs is wide."""
    await postgres_store.submit([Submission([make_job(i, trigger_id=i, next_at=START) for i in range(1, COUNT + 1)])])
    connection = await lanes.connect(postgres_url)
    await connection.execute("VACUUM ANALYZE jobs")
    asked: list[tuple[str, ...]] = []
    read = postgres_store.read

    async def note(statement: str, *args: Any) -> Any:
        asked.append((statement, *args))
        return await read(statement, *args)

    postgres_store.read = note  # type: ignore[method-assign]
    await postgres_store.list_jobs(JobFilter(words="nobody"), None, 9)
    statement, *args = next(one for one in asked if "LIKE" in one[0])
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *args))
    await connection.close()

    assert "Index Only Scan Backward using jobs_searched" in plan
    assert not [statement for statement, *_ in asked if "id IN (" in statement], "planned anew for each list of jobs"


async def test_a_forecast_of_very_many_triggers_does_not_look_up_each_duration(
    postgres_url: str, postgres_store: PostgresStore
):
    """Also once the database has planned it for whatever moment comes."""
    await postgres_store.submit([Submission([make_job(i, trigger_id=i, next_at=START) for i in range(1, COUNT + 1)])])
    connection = await lanes.connect(postgres_url, settings={"plan_cache_mode": "force_generic_plan"})
    await connection.execute(
        "INSERT INTO durations (job_id, learned_at, share, baseline) SELECT id, 0, 1, '[]' FROM jobs"
    )
    await connection.execute("ANALYZE jobs, due, durations")
    asked: list[str] = []
    read = postgres_store.read

    async def note(statement: str, *args: Any) -> Any:
        asked.append(statement)
        return await read(statement, *args)

    postgres_store.read = note  # type: ignore[method-assign]
    assert len((await postgres_store.load_planned(START + 1, COUNT * 10)).job_id) == COUNT
    for statement in asked:
        prepared = await connection.prepare(statement)
        nothing = ", ".join(["NULL"] * len(prepared.get_parameters()))
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE {prepared.get_name()} ({nothing})"))
        assert "Nested Loop" not in plan
    assert len(asked) == 2
    await connection.close()
