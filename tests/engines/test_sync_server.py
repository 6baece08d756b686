"""Syncs by a real server: killed with its agent in the middle, cancelled, with secrets, one destination at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..acceptance.server import Server
from ..contract.postgres_server import Postgres
from .test_sync import ORDERS, Database

pytestmark = pytest.mark.xdist_group("sync-server")
PATIENCE = 120.0  # seconds: a first sync takes ten on a busy machine
STOPPED = 5.0  # seconds within which the databases are rid of a sync that is over
PLAIN = "SELECT * FROM orders"
SLOW = "SELECT *, pg_sleep(0.02) IS NULL AS slow FROM orders"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    running = Postgres.make().start()
    yield running
    running.stop()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    found = Database(postgres.url)
    found.do("DROP SCHEMA public CASCADE")
    found.do("DROP SCHEMA IF EXISTS lake CASCADE")
    found.do("CREATE SCHEMA public")
    found.do("CREATE SCHEMA lake")
    found.do(ORDERS)
    yield found
    found.close()


@pytest.fixture
def server(tmp_path: Path, need: Callable[..., None]) -> Iterator[Server]:
    need("bwrap")
    running = Server(tmp_path, "--heartbeat-interval", "0.5", "--sandbox", "bubblewrap").start()
    yield running
    running.stop()


def job(database: Database, **changes: Any) -> dict[str, Any]:
    return {
        "name": "orders", "kind": "sync", "source": database.source(), "read": {"table": "orders"},
        "destinations": database.table("lake.orders"), **changes,
    }  # fmt: skip


def begin(server: Server, job_id: int) -> int:
    return int(server.post(f"/v1/jobs/{job_id}/run", status=201)["id"])


def ended(server: Server, run_id: int) -> Any:
    def look() -> Any:
        run = server.get(f"/v1/runs/{run_id}")
        return run if run["state"] in ("succeeded", "failed", "cancelled", "timed_out") else None

    return server.wait_until(look, f"run {run_id} to end", PATIENCE)


def sessions(database: Database, pattern: str) -> int:
    others = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state <> 'idle' AND query ~ "
    return int(database.do(f"{others} '{pattern}'")[0][0])


def wait(condition: Callable[[], Any], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_sync_runs_in_the_sandbox_with_secrets_and_goes_on_where_it_ended(server: Server, database: Database):
    server.cli("secret", "set", "SHOP", input="t0p-secret")
    source = {**database.source(), "password": {"secret": "SHOP"}}
    (made,) = server.submit(job(database, source=source, mode="incremental", cursor="updated_at", primary_key="id"))
    assert made["spec"]["source"]["password"] == {"secret": "SHOP"}
    run = ended(server, begin(server, made["id"]))
    assert (run["state"], run["result"]["rows"]) == ("succeeded", 1000), run
    database.do("INSERT INTO orders SELECT 1001, 'new', 1, now()")
    run = ended(server, begin(server, made["id"]))
    assert (run["result"]["rows"], run["result"]["cursor"]["column"]) == (2, "updated_at")
    assert database.do("SELECT count(*) FROM lake.orders") == [(1001,)]
    assert "t0p-secret" not in server.http.get(f"/v1/runs/{run['id']}/log").text


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_a_sync_killed_with_its_agent_leaves_the_old_table_and_the_next_attempt_is_right(
    server: Server, database: Database, moment: str, mode: str
):
    changes = {"mode": mode, **({"cursor": "id"} if mode == "incremental" else {})}
    (made,) = server.submit(job(database, read={"query": SLOW if moment == "reading" else PLAIN}, **changes))
    if moment == "writing":
        database.do("CREATE TABLE lake.orders AS SELECT * FROM orders WHERE id <= 5")
        hold = Database(database.url)
        hold.do("BEGIN")
        hold.do("LOCK TABLE lake.orders IN ACCESS SHARE MODE")
    begin(server, made["id"])
    pattern = "pg_sleep" if moment == "reading" else "(DROP|ALTER) TABLE"
    wait(lambda: sessions(database, pattern), PATIENCE, "the sync to be in the middle")
    server.kill()
    wait(lambda: not sessions(database, pattern), 2 * STOPPED, "the databases to be rid of the sync")
    if moment == "writing":
        assert database.do("SELECT count(*) FROM lake.orders") == [(5,)]
        hold.close()
    (run,) = server.start().every("/v1/runs")
    run = ended(server, run["id"])
    assert (run["state"], run["result"]["rows"]) == ("succeeded", 1000), run
    assert database.do("SELECT count(*), count(DISTINCT id) FROM lake.orders") == [(1000, 1000)]


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_a_cancelled_sync_is_gone_within_five_seconds(server: Server, database: Database, moment: str):
    (made,) = server.submit(job(database, read={"query": SLOW if moment == "reading" else PLAIN}))
    hold = Database(database.url)
    database.do("CREATE TABLE lake.orders AS SELECT * FROM orders WHERE id <= 5")
    hold.do("BEGIN")
    hold.do("LOCK TABLE lake.orders IN ACCESS SHARE MODE")
    run_id = begin(server, made["id"])
    pattern = "pg_sleep" if moment == "reading" else "(DROP|ALTER) TABLE"
    wait(lambda: sessions(database, pattern), PATIENCE, "the sync to be in the middle")
    server.post(f"/v1/runs/{run_id}/cancel", status=202)
    wait(lambda: not sessions(database, pattern), STOPPED, "the databases to be rid of the sync")
    assert ended(server, run_id)["state"] == "cancelled"
    assert database.do("SELECT count(*) FROM lake.orders") == [(5,)]
    hold.close()


def test_a_wrong_password_ends_the_run_in_one_sentence(server: Server, database: Database):
    place = {**database.table("lake.orders")[0], "username": "nobody", "password": "hunter22"}
    (made,) = server.submit(job(database, destinations=[place], retry={"attempts": 3}))
    run = ended(server, begin(server, made["id"]))
    assert (run["state"], run["attempt"]) == ("failed", 1)
    assert 'role "nobody" does not exist' in run["message"]
    assert "hunter22" not in run["message"] + server.http.get(f"/v1/runs/{run['id']}/log").text
