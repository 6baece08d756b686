"""Syncs by a real server: killed with its agent in the middle, cancelled, with secrets, and what people read when one
cannot be done. Syncs of one test run at the same time, for most of the time of each is its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..acceptance.server import Server
from ..contract.postgres_server import Postgres
from .clickhouse_server import PASSWORD, USER, ClickHouse
from .sync_parts import Gate
from .test_sync import NEW, ORDERS, Database

pytestmark = pytest.mark.xdist_group("sync-server")
PATIENCE = 180.0  # seconds: a first sync takes ten on a busy machine
STOPPED = 5.0  # seconds within which the databases are rid of a sync that is over
STOPPED_AFTER_KILL = 15.0  # the agent's keeper must first see that the agent is gone
ENDED = ("succeeded", "failed", "cancelled", "timed_out")
SLOW = "SELECT orders.*, pg_sleep((SELECT seconds FROM pace)) IS NULL AS slow FROM orders"
READING = "state = 'active' AND query ~ 'pg_sleep'"
WRITING = "application_name = 'horae sync' AND wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    running = Postgres.make().start()
    yield running
    running.remove()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    found = Database(postgres.url)
    found.do("DROP SCHEMA IF EXISTS public, lake CASCADE")
    found.do("CREATE SCHEMA public")
    found.do("CREATE SCHEMA lake")
    found.do(ORDERS)
    found.do("CREATE TABLE pace AS SELECT 0::float AS seconds")
    yield found
    found.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--heartbeat-interval", "0.5", "--sandbox", "bubblewrap")
    running = Server(tmp_path_factory.mktemp("server"), *flags).start()
    yield running
    running.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest, need: Callable[..., None]) -> Iterator[Server]:
    """One for all tests of this file; what a failed one left is ended."""
    need("bwrap")
    running: Server = request.getfixturevalue("up")
    yield running
    if running.process is None or running.process.poll() is not None:
        running.start()
    for run in running.every("/v1/runs"):
        if run["state"] not in ENDED:
            running.http.post(f"/v1/runs/{run['id']}/cancel", json={})
            ended(running, run["id"])


@pytest.fixture
def gate(clickhouse: ClickHouse) -> Iterator[Gate]:
    made = Gate(clickhouse.port, b"EXCHANGE TABLES")
    yield made
    made.close()


@pytest.fixture
def hold(database: Database) -> Iterator[Database]:
    """A session to hold locks with."""
    made = Database(database.url)
    made.do("BEGIN")
    yield made
    made.close()


def job(name: str, database: Database, **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "kind": "sync", "source": database.source(), "read": {"table": "orders"},
        "destinations": database.table(f"lake.{name}"), **changes,
    }  # fmt: skip


def make(server: Server, *jobs: dict[str, Any]) -> list[int]:
    return [made["id"] for made in server.submit(*jobs)]


def begin(server: Server, *job_ids: int) -> list[int]:
    return [int(server.post(f"/v1/jobs/{job_id}/run", status=201)["id"]) for job_id in job_ids]


def ended(server: Server, run_id: int) -> Any:
    def look() -> Any:
        run = server.get(f"/v1/runs/{run_id}")
        return run if run["state"] in ENDED else None

    return server.wait_until(look, f"run {run_id} to end", PATIENCE)


def succeeded(server: Server, *run_ids: int) -> list[Any]:
    """Return the results of runs, once all have ended."""
    runs = [ended(server, run_id) for run_id in run_ids]
    assert [run["state"] for run in runs] == ["succeeded"] * len(runs), [run["message"] for run in runs]
    return [run["result"] for run in runs]


def sessions(database: Database, which: str) -> int:
    others = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
    return int(database.do(f"{others} {which}")[0][0])


def wait(condition: Callable[[], Any], seconds: float, what: str) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, what
        time.sleep(0.05)
    return time.monotonic() - began


def same(database: Database, table: str) -> bool:
    """Return whether a table of the lake has the rows of the source, each once."""
    columns = "id, name, amount, updated_at"
    one, other = f"SELECT {columns} FROM orders", f"SELECT {columns} FROM lake.{table}"
    return not database.do(f"({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one})")


def incremental(name: str, database: Database, **changes: Any) -> dict[str, Any]:
    return job(name, database, **{"mode": "incremental", "cursor": "updated_at", "primary_key": "id", **changes})


def test_a_sync_runs_in_the_sandbox_with_secrets_and_goes_on_where_it_ended(server: Server, database: Database):
    server.cli("secret", "set", "SHOP", input="t0p-secret")
    source = {**database.source(), "password": {"secret": "SHOP"}}
    (made,) = server.submit(incremental("secretly", database, source=source))
    assert made["spec"]["source"]["password"] == {"secret": "SHOP"}
    (result,) = succeeded(server, *begin(server, made["id"]))
    assert result["rows"] == 1000
    database.do("INSERT INTO orders SELECT 1001, 'new', 1, now()")
    (run_id,) = begin(server, made["id"])
    (result,) = succeeded(server, run_id)
    assert (result["rows"], result["cursor"]["column"]) == (2, "updated_at")
    assert same(database, "secretly")
    assert "t0p-secret" not in server.http.get(f"/v1/runs/{run_id}/log").text


def test_syncs_killed_with_their_agent_while_they_read_are_right_the_next_time(server: Server, database: Database):
    full, new = make(
        server,
        job("full_read", database, read={"query": SLOW}),
        incremental("new_read", database, read={"query": SLOW}),
    )
    succeeded(server, *begin(server, full, new))
    database.do(NEW)
    database.do("UPDATE pace SET seconds = 5")
    runs = begin(server, full, new)
    wait(lambda: sessions(database, READING) == 2, PATIENCE, "both syncs to read")
    server.kill()
    wait(lambda: not sessions(database, READING), STOPPED_AFTER_KILL, "the source to be rid of them")
    counts = "SELECT (SELECT count(*) FROM lake.full_read), (SELECT count(*) FROM lake.new_read)"
    assert database.do(counts) == [(1000, 1000)]
    database.do("UPDATE pace SET seconds = 0")
    results = succeeded(server.start(), *runs)
    assert [result["rows"] for result in results] == [1020, 21]
    assert same(database, "full_read")
    assert same(database, "new_read")


def test_syncs_killed_with_their_agent_while_they_write_leave_the_old_and_are_right_the_next_time(
    server: Server, database: Database, clickhouse: ClickHouse, gate: Gate, hold: Database
):
    """The incremental one has filled one of its tables when it is killed, and its cursor has not moved."""
    far = {"type": "clickhouse", "url": f"http://127.0.0.1:{gate.port}", "username": USER, "password": PASSWORD}
    jobs = make(
        server,
        job("full_write", database),
        incremental("new_write", database, destinations=[*database.table("lake.first"), *database.table("lake.then")]),
        job("far_write", database, destinations=[{**far, "database": "lake", "table": "killed"}]),
    )
    succeeded(server, *begin(server, *jobs))
    database.do(NEW)
    database.do("UPDATE orders SET name = 'other', updated_at = updated_at + interval '2 days' WHERE id = 3")
    hold.do("LOCK TABLE lake.full_write, lake.then IN EXCLUSIVE MODE")
    runs = begin(server, *jobs)
    wait(lambda: sessions(database, WRITING) == 2 and gate.is_reached.is_set(), PATIENCE, "all three to write")
    server.kill()
    wait(lambda: not sessions(database, WRITING), STOPPED_AFTER_KILL, "the destination to be rid of them")
    assert same(database, "first")
    assert database.do("SELECT count(*) FROM lake.full_write UNION ALL SELECT count(*) FROM lake.then") == [(1000,)] * 2
    assert clickhouse.rows("SELECT count() FROM lake.killed") == [["1000"]]
    assert [row for row in clickhouse.rows("SHOW TABLES FROM lake") if "stage" in row[0]]
    hold.do("ROLLBACK")
    gate.is_open = True
    results = succeeded(server.start(), *runs)
    assert [result["rows"] for result in results] == [1020, 22, 1020]
    assert all(same(database, table) for table in ("full_write", "first", "then"))
    sums = "SELECT count(), uniqExact(id), sum(id) FROM lake.killed"
    assert [list(map(int, row)) for row in clickhouse.rows(sums)] == [
        [int(value) for value in database.do("SELECT count(*), count(DISTINCT id), sum(id) FROM orders")[0]]
    ]
    assert clickhouse.rows("SHOW TABLES FROM lake LIKE '%stage%'") == []


def test_cancelled_syncs_are_gone_within_five_seconds(server: Server, database: Database, hold: Database):
    database.do("CREATE TABLE lake.writes AS SELECT * FROM orders WHERE id <= 5")
    database.do("UPDATE pace SET seconds = 60")
    hold.do("LOCK TABLE lake.writes IN EXCLUSIVE MODE")
    runs = begin(server, *make(server, job("reads", database, read={"query": SLOW}), job("writes", database)))
    for which, run_id in zip((READING, WRITING), runs, strict=True):
        wait(lambda which=which: sessions(database, which), PATIENCE, "the sync to be in the middle")  # type: ignore[misc]
        server.post(f"/v1/runs/{run_id}/cancel", status=202)
        wait(lambda which=which: not sessions(database, which), STOPPED, "the database to be rid of it")  # type: ignore[misc]
    assert [ended(server, run_id)["state"] for run_id in runs] == ["cancelled", "cancelled"]
    assert database.do("SELECT count(*) FROM lake.writes") == [(5,)]


def test_a_run_that_fails_says_why_in_one_sentence_and_is_tried_again_only_where_that_can_help(
    server: Server, database: Database
):
    database.do("CREATE TABLE lake.other AS SELECT true AS id, name, amount, updated_at FROM orders")
    database.do("CREATE TABLE lake.strict AS SELECT *, 1 AS more FROM orders")
    database.do("ALTER TABLE lake.strict ALTER COLUMN more SET NOT NULL")
    database.do("DROP ROLE IF EXISTS reader")
    database.do("CREATE ROLE reader LOGIN PASSWORD 'hunter22'")
    wrong = {"username": "nobody", "password": "hunter22"}
    refused = database.table("lake.refused", username="reader", password="hunter22")
    new = {"mode": "incremental", "cursor": "updated_at", "begin": "2026-01-01"}
    away = {"type": "database", "url": "postgresql://u:hunter22@127.0.0.1:1/x"}
    wishes = {
        'role "nobody" does not exist': {"source": database.source(**wrong)},
        "there is no table 'nowhere' in the source": {"read": {"table": "nowhere"}},
        "permission denied for schema lake": {"destinations": refused},
        "the column 'id' of lake.other is boolean, and what is read is bigint": {
            **new, "destinations": database.table("lake.other"),
        },
        "the column 'more' of lake.strict must not be null": {"destinations": database.table("lake.strict")},
        "Connection refused": {"source": away},
    }  # fmt: skip
    jobs = [
        job(f"refused{number}", database, **changes, retry={"attempts": 2, "backoff": "1s"})
        for number, changes in enumerate(wishes.values())
    ]
    for words, run_id in zip(wishes, begin(server, *make(server, *jobs)), strict=True):
        run = ended(server, run_id)
        can_help = words == "Connection refused"
        assert (run["state"], run["attempt"]) == ("failed", 2 if can_help else 1), run["message"]
        assert words in run["message"]
        assert run["message"].endswith("a retry may help" if can_help else "a retry would not help")
        assert "\n" not in run["message"]
        assert "hunter22" not in run["message"] + server.http.get(f"/v1/runs/{run_id}/log").text
