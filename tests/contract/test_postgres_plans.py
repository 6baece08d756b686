"""The hot statements reach their rows by index, also while the statistics say that the tables are empty."""

from __future__ import annotations

import pytest

from horae.core.definitions import Submission
from horae.core.model import State
from horae.core.runs.orders import Fire, NewRun, Order, Result, Waiting
from horae.stores.lines import Lines
from horae.stores.postgres import PostgresStore, arrays, database, lanes
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


async def plan_of(url: str, store: PostgresStore, name: str, *args: object) -> str:
    connection = await lanes.connect(url, settings=database.BY_INDEX)
    rows = await connection.fetch("EXPLAIN " + store.queries[name], *args)
    await connection.close()
    return "\n".join(row[0] for row in rows)


@pytest.mark.usefixtures("full_tables_believed_empty")
@pytest.mark.parametrize("name", ["fire", "finish", "wait", "load_definitions"])
async def test_a_hot_statement_scans_no_table_and_loops_over_none(
    postgres_url: str, postgres_store: PostgresStore, name: str
):
    ids = list(range(1, COUNT + 1))
    results = [Result(i, 1, State.SUCCEEDED, finished_at=START) for i in ids]
    new = NewRun(1, "python", 5, 1)
    args = {
        "fire": [
            START,
            *arrays.fire_arrays([Fire(i, 0, 1, START, START + 1, START, new, START) for i in ids], Lines()),
            [0],
            [1],
        ],
        "finish": [*arrays.result_arrays(results), START],
        "wait": [*arrays.waiting_arrays([Waiting(result, START) for result in results]), START],
        "load_definitions": [ids],
    }

    plan = await plan_of(postgres_url, postgres_store, name, *args[name])

    assert "Seq Scan" not in plan
    assert "Nested Loop" not in plan
