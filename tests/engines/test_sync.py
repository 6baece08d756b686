"""Syncs between real engines: what is read arrives, whole or only what is new, and never twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..contract.postgres_server import Postgres
from .clickhouse_server import ClickHouse, running_clickhouse
from .s3_server import ACCESS_KEY, S3, SECRET_KEY, running_s3
from .sync_parts import Service, Syncer, running_service

pytestmark = [pytest.mark.xdist_group("sync"), pytest.mark.filterwarnings("ignore")]

ORDERS = """
CREATE TABLE orders AS SELECT i::bigint AS id, 'customer ' || i AS name, (i * 1.25)::numeric(12,2) AS amount,
timestamptz '2026-01-01' + i * interval '1 minute' AS updated_at FROM generate_series(1, 1000) i
"""


# Sessions that a failed test left, with their locks.
LEFT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename > '' AND pid <> pg_backend_pid()"
NEW = """INSERT INTO orders (id, name, amount, updated_at)
SELECT id + 2000, 'new', amount + 2000, updated_at + interval '1 day' FROM orders WHERE id <= 20"""
TYPES = """SELECT column_name, data_type FROM information_schema.columns
WHERE table_name = 'kinds' AND table_schema = '{}'"""


class Database:
    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg2.connect(url)
        self._connection.autocommit = True

    def do(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def source(self, **changes: Any) -> dict[str, Any]:
        return {"type": "database", "url": self.url, **changes}

    def table(self, name: str, **changes: Any) -> list[dict[str, Any]]:
        return [{"type": "postgresql", "url": self.url, "table": name, **changes}]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    server = Postgres.make(wal_level="minimal", max_wal_senders="0").start()
    yield server
    server.stop()


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    found = Database(server.url)
    found.do(LEFT)
    for (name,) in found.do("SELECT nspname FROM pg_namespace WHERE nspname IN ('public', 'lake')"):
        found.do(f"DROP SCHEMA {name} CASCADE")
    found.do("CREATE SCHEMA public")
    found.do(ORDERS)
    yield found
    found.close()


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[ClickHouse]:
    with running_clickhouse() as running:
        yield running


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as running:
        yield running


@pytest.fixture
def service() -> Iterator[Service]:
    with running_service() as running:
        yield running


@pytest.fixture
def sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Syncer:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "CRITICAL")
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    return Syncer(tmp_path)


def rows_in(directory: Path) -> Any:
    return pa.concat_tables([pq.read_table(path) for path in sorted(directory.iterdir())], promote_options="permissive")


# ── PostgreSQL → PostgreSQL ──


def test_a_whole_table_is_copied_with_its_types(database: Database, sync: Syncer):
    database.do("""CREATE TABLE kinds AS SELECT id, id::int AS whole, amount::numeric AS exact, id / 3.0::float8 AS f,
        name, updated_at, updated_at::timestamp AS naive, updated_at::date AS day, '10:00'::time AS at, id % 2 = 0 AS b,
        jsonb_build_object('a', id) AS doc, ''::text AS empty, E'a,"b\\n\\\\' AS odd, '\\x00ff'::bytea AS raw,
        NULL::bigint AS nothing FROM orders""")
    facts = sync(source=database.source(), read={"table": "kinds"}, destinations=database.table("lake.kinds"))
    assert (facts["rows"], facts["tables"][0]["name"], facts["tables"][0]["rows"]) == (1000, "lake.kinds", 1000)
    assert facts["bytes"] > 0
    assert database.do("SELECT * FROM kinds EXCEPT SELECT * FROM lake.kinds") == []
    assert dict(database.do(TYPES.format("lake"))) == dict(database.do(TYPES.format("public")))


def test_a_full_sync_takes_the_place_of_the_table_with_its_indexes_and_views(database: Database, sync: Syncer):
    database.do("CREATE SCHEMA lake")
    database.do("CREATE TABLE lake.orders (LIKE orders)")
    database.do("CREATE INDEX by_name ON lake.orders (name)")
    wish = {"source": database.source(), "read": {"table": "orders"}, "destinations": database.table("lake.orders")}
    sync(**wish)
    database.do("DELETE FROM orders WHERE id > 10")
    sync(**wish)
    assert database.do("SELECT count(*), max(id) FROM lake.orders") == [(10, 10)]
    assert len(database.do("SELECT indexname FROM pg_indexes WHERE schemaname = 'lake' AND tablename = 'orders'")) == 1
    database.do("CREATE VIEW lake.few AS SELECT id FROM lake.orders")
    database.do("DELETE FROM orders WHERE id > 5")
    sync(**wish)
    assert database.do("SELECT count(*) FROM lake.few") == [(5,)]
    assert [
        name for (name,) in database.do("SELECT relname FROM pg_class WHERE relname ~ 'stage' AND relkind = 'r'")
    ] == []


def test_a_table_that_became_empty_is_emptied(database: Database, sync: Syncer):
    wish = {"source": database.source(), "read": {"table": "orders"}, "destinations": database.table("lake.orders")}
    sync(**wish)
    database.do("TRUNCATE orders")
    assert sync(**wish)["rows"] == 0
    assert database.do("SELECT count(*) FROM lake.orders") == [(0,)]


@pytest.mark.parametrize("key", [[], ["id"]])
@pytest.mark.parametrize("cursor", ["id", "updated_at", "amount"])
def test_an_incremental_sync_brings_what_is_new_and_ties_at_the_border_once(
    database: Database, sync: Syncer, cursor: str, key: list[str]
):
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "mode": "incremental", "cursor": cursor,
        "primary_key": key, "destinations": database.table("lake.orders"),
    }  # fmt: skip
    assert sync(**wish)["rows"] == 1000
    database.do("INSERT INTO orders SELECT 2000, 'tie', amount, updated_at FROM orders WHERE id = 1000")
    database.do(NEW)
    sync.attempt(**wish)  # killed between load and finish: the cursor stayed
    facts = sync(**wish)
    assert facts["rows"] == 22
    assert sync(**wish)["rows"] >= 1
    missing = database.do("SELECT id, name, amount, updated_at FROM orders EXCEPT ALL SELECT * FROM lake.orders")
    assert (missing, database.do("SELECT count(*) FROM lake.orders")) == ([], [(1021,)])


def test_a_query_is_read_and_its_cursor_kept(database: Database, sync: Syncer):
    query = "SELECT id, name, updated_at FROM orders WHERE name LIKE 'customer 1%' AND updated_at::text <> ':x';"
    wish = {
        "source": database.source(), "read": {"query": query}, "mode": "incremental", "cursor": "updated_at",
        "destinations": database.table("lake.some"),
    }  # fmt: skip
    assert sync(**wish)["rows"] == 112
    assert sync(**wish)["rows"] == 1
    assert sync.cursor["type"] == "timestamp"
    assert database.do("SELECT count(*) FROM lake.some") == [(112,)]


@pytest.mark.parametrize("begin", ["2026-01-01 16:31:00+00", "2026-01-01T16:31:00", "2026-01-01 17:31+01:00"])
@pytest.mark.parametrize("column", ["updated_at", "naive"])
def test_where_to_begin_can_be_set_by_people_as_text(database: Database, sync: Syncer, begin: str, column: str):
    database.do("ALTER TABLE orders ADD COLUMN naive timestamp")
    database.do("UPDATE orders SET naive = updated_at AT TIME ZONE 'UTC'")
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "mode": "incremental", "cursor": column,
        "destinations": database.table("lake.orders"),
    }  # fmt: skip
    sync.cursor = {"value": begin}
    assert sync(**wish)["rows"] == 10
    assert database.do("SELECT min(id), count(*) FROM lake.orders") == [(991, 10)]


def test_changes_of_columns_are_made_and_told(database: Database, sync: Syncer):
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "mode": "incremental", "cursor": "updated_at",
        "primary_key": ["id"], "destinations": database.table("lake.orders"),
    }  # fmt: skip
    database.do("ALTER TABLE orders ADD COLUMN old int, ADD COLUMN small int DEFAULT 1")
    sync(**wish)
    database.do("ALTER TABLE orders ADD COLUMN more text DEFAULT 'x', DROP COLUMN old, ALTER COLUMN small TYPE bigint")
    database.do("UPDATE orders SET updated_at = updated_at + interval '1 year', small = 1::bigint << 40 WHERE id = 7")
    changes = sync(**wish)["tables"][0]["changes"]
    assert changes == [
        "column small was integer, is bigint",
        "column more added, text",
        "column old is gone from the source",
    ]
    assert database.do("SELECT more, small FROM lake.orders WHERE id = 7") == [("x", 1 << 40)]
    assert database.do("SELECT count(*) FROM lake.orders") == [(1000,)]
    database.do("ALTER TABLE orders ALTER COLUMN small DROP DEFAULT, ALTER COLUMN small TYPE boolean USING true")
    message, is_final = sync.fails(**wish)
    assert "the column 'small' of lake.orders is bigint, and what is read is boolean" in message
    assert is_final
    wish |= {"mode": "full"}
    assert sync(**wish)["tables"][0]["changes"] == [
        "column small was bigint, is boolean",
        "column old is gone from the source",
    ]


# ── PostgreSQL → ClickHouse ──


@pytest.mark.parametrize("key", [[], ["id"]])
def test_a_table_goes_to_clickhouse_whole_and_then_what_is_new(
    database: Database, clickhouse: ClickHouse, sync: Syncer, key: list[str]
):
    table = f"orders{len(key)}"
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "mode": "incremental", "cursor": "updated_at",
        "primary_key": key,
        "destinations": [{"type": "clickhouse", "url": clickhouse.url, "database": "lake", "table": table}],
    }  # fmt: skip
    assert sync(**wish)["rows"] == 1000
    database.do("ALTER TABLE orders ADD COLUMN more int")
    database.do(NEW)
    database.do("UPDATE orders SET more = 5 WHERE id > 2000")
    sync.attempt(**wish)
    facts = sync(**wish)
    assert (facts["rows"], facts["tables"][0]["changes"]) == (21, [])
    sums = "SELECT count(), sum(id), sum(amount), sum(more) FROM lake." + table
    want = database.do("SELECT count(*), sum(id), sum(amount), sum(more) FROM orders")
    assert [list(map(float, row)) for row in clickhouse.rows(sums)] == [list(map(float, row)) for row in want]
    sync(**{**wish, "mode": "full"})
    assert clickhouse.rows(f"SELECT count() FROM lake.{table}") == [["1020"]]
    assert not [row for row in clickhouse.rows("SHOW TABLES FROM lake") if "stage" in row[0]]


# ── keys ──


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_of_rows_with_one_key_the_one_that_is_read_last_counts_everywhere(
    database: Database, clickhouse: ClickHouse, service: Service, sync: Syncer, mode: str
):
    """As of a service whose pages shift while they are read. The table has a unique key, and null is a key too."""
    database.do("CREATE SCHEMA lake")
    database.do("CREATE TABLE lake.once (id bigint UNIQUE, name text)")
    wish = {
        "source": {"type": "rest", "url": service.url}, "read": {"path": "rows", "items": "data"}, "mode": mode,
        "primary_key": ["id"], "cursor": "id",
        "destinations": [
            *database.table("lake.once"),
            {"type": "files", "path": "once"},
            {"type": "clickhouse", "url": clickhouse.url, "database": "lake", "table": f"once_{mode}"},
        ],
    }  # fmt: skip
    service.rows = [{"id": number % 12, "name": f"old{number}"} for number in range(25)]
    sync(**wish)
    service.rows = [{"id": 11 + number % 12, "name": f"new{number}"} for number in range(25)]
    facts = sync(**wish)
    assert [table["rows"] for table in facts["tables"]] == [12, 12, 12]
    old = [(0, "old24"), *((number, f"old{number + 12}") for number in range(1, 11))] if mode == "incremental" else []
    want = [*old, (11, "new24"), *((number + 11, f"new{number + 12}") for number in range(1, 12))]
    assert database.do("SELECT * FROM lake.once ORDER BY id") == want
    files = rows_in(sync.lake / "once").sort_by("id")
    assert list(zip(files["id"].to_pylist(), files["name"].to_pylist(), strict=True)) == want
    far = clickhouse.rows(f"SELECT id, name FROM lake.once_{mode} ORDER BY id")
    assert [(int(number), name) for number, name in far] == want


def test_keys_that_the_source_keeps_apart_are_not_held_in_memory(
    database: Database, sync: Syncer, monkeypatch: pytest.MonkeyPatch
):
    from horae.executors.sync import program

    compared = []
    monkeypatch.setattr(program, "repeated_in", lambda *_: compared.append(1) or ())
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "primary_key": ["id", "name"],
        "destinations": database.table("lake.orders"),
    }  # fmt: skip
    sync(**wish)
    assert compared == [1]
    database.do("ALTER TABLE orders ADD PRIMARY KEY (id)")
    sync(**wish)
    assert compared == [1]


def test_rows_without_a_key_take_the_place_of_such_rows(database: Database, sync: Syncer):
    database.do("CREATE TABLE part AS SELECT id, CASE WHEN id > 998 THEN NULL ELSE id END AS key, name FROM orders")
    wish = {
        "source": database.source(), "read": {"table": "part"}, "mode": "incremental", "cursor": "id",
        "primary_key": ["key"], "destinations": database.table("lake.part"),
    }  # fmt: skip
    sync(**wish)
    database.do("INSERT INTO part VALUES (1001, NULL, 'new'), (1002, 7, 'seven')")
    sync(**wish)
    assert database.do("SELECT id, name FROM lake.part WHERE key IS NULL") == [(1001, "new")]
    assert database.do("SELECT count(*), count(DISTINCT key) FROM lake.part") == [(999, 998)]
    assert database.do("SELECT name FROM lake.part WHERE key = 7") == [("seven",)]


def test_many_changed_rows_are_looked_up_and_not_compared_with_each_other(database: Database, sync: Syncer):
    """Each with each would be billions of comparisons."""
    database.do("CREATE TABLE many AS SELECT i::bigint AS id, 1::bigint AS version FROM generate_series(1, 50000) i")
    wish = {
        "source": database.source(), "read": {"table": "many"}, "mode": "incremental", "cursor": "version",
        "primary_key": ["id"], "destinations": database.table("lake.many"),
    }  # fmt: skip
    sync(**wish)
    database.do("UPDATE many SET version = 2")
    database.do("ALTER DATABASE postgres SET statement_timeout = '60s'")
    try:
        sync(**wish)
    finally:
        database.do("ALTER DATABASE postgres RESET statement_timeout")
    assert database.do("SELECT count(*), min(version) FROM lake.many") == [(50000, 2)]


# ── files and services ──


def test_pages_of_a_service_become_files_whole_and_then_what_is_new(service: Service, sync: Syncer):
    service.rows = [{"id": number, "name": f"n{number}", "tags": {"a": number}} for number in range(1, 31)]
    wish = {
        "source": {"type": "rest", "url": service.url}, "mode": "incremental", "cursor": "id",
        "read": {"path": "rows", "items": "data", "params": {"since": "{cursor}"}},
        "destinations": [{"type": "files", "path": "raw/rows"}],
    }  # fmt: skip
    assert sync(**wish)["rows"] == 30
    service.rows[-1]["name"] = "changed"
    service.rows += [{"id": 31, "name": "n31", "tags": None, "more": 1.5}]
    sync.attempt(**wish)
    facts = sync(**wish)
    assert (facts["rows"], facts["tables"][0]["changes"]) == (2, [])
    assert any("since=30" in path for path in service.asked)
    found = rows_in(sync.lake / "raw" / "rows")
    assert sorted(found["id"].to_pylist()) == list(range(1, 32))
    assert "changed" in found["name"].to_pylist()
    assert json.loads(found["tags"][0].as_py() or "{}") is not None
    assert [path.name for path in (sync.lake / "raw").iterdir()] == ["rows"]
    sync(**{**wish, "primary_key": ["id"]})
    assert sorted(rows_in(sync.lake / "raw" / "rows")["id"].to_pylist()) == list(range(1, 32))


def test_files_can_be_csv_and_be_read_again(service: Service, database: Database, sync: Syncer):
    service.rows = [{"id": number, "name": f'a "b", {number}'} for number in range(1, 4)]
    first = {"source": {"type": "rest", "url": service.url}, "read": {"path": "rows", "items": "data"}}
    sync(**first, destinations=[{"type": "files", "path": "out", "format": "csv"}])
    sync(source={"type": "files"}, read={"path": "out/*.csv"}, destinations=database.table("lake.again"))
    assert database.do("SELECT * FROM lake.again ORDER BY 1") == [(n, f'a "b", {n}') for n in (1, 2, 3)]
    sync.cursor = {"value": 1}
    wish = {**first, "mode": "incremental", "cursor": "id"}
    message, is_final = sync.fails(**wish, destinations=[{"type": "files", "path": "out", "format": "csv"}])
    assert ("format parquet" in message, is_final) == (True, True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_s3_come_into_a_table(s3: S3, database: Database, sync: Syncer, kind: str):
    store = s3.store("inbox")
    table = pa.table({"id": [1, 2, 3], "name": ["a", None, "c;"], "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC"))})
    if kind == "csv":
        obstore.put(store, f"{kind}/a.csv", b"id;name;at\n1;a;1970-01-01 00:00:00Z\n2;;1970-01-01 00:00:00.000001Z\n")
        obstore.put(store, f"{kind}/b.csv", b'id;name;at\n3;"c;";1970-01-01 00:00:00.000002Z\n')
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        obstore.put(store, f"{kind}/a.parquet", sink.getvalue().to_pybytes())
    source = {"type": "s3", "endpoint": s3.endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    read = {"path": f"inbox/{kind}", "format": kind, **({"delimiter": ";"} if kind == "csv" else {})}
    assert sync(source=source, read=read, destinations=database.table("lake.inbox"))["rows"] == 3
    assert database.do("SELECT id, name FROM lake.inbox ORDER BY id") == [(1, "a"), (2, None), (3, "c;")]


def test_a_table_becomes_files_on_s3_whole_and_then_what_is_new(s3: S3, database: Database, sync: Syncer):
    s3.store("lake")
    place = {
        "type": "files", "path": "s3://lake/orders", "endpoint": s3.endpoint, "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }  # fmt: skip
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "mode": "incremental", "cursor": "id",
        "destinations": [place],
    }  # fmt: skip
    sync(**wish)
    database.do("INSERT INTO orders SELECT 1001, 'new', 1, now()")
    sync.attempt(**wish)
    sync(**wish)
    files = s3.files("lake", "orders").values()
    assert sorted(pa.concat_tables(pq.read_table(pa.BufferReader(file)) for file in files)["id"].to_pylist()) == list(
        range(1, 1002)
    )


@pytest.mark.parametrize("moment", ["writing", "deleting"])
def test_what_an_attempt_that_died_left_on_s3_is_made_good_by_the_next(
    s3: S3, database: Database, sync: Syncer, moment: str, monkeypatch: pytest.MonkeyPatch
):
    """It has written anew the rows of a file that stay, and dies before that file is deleted."""
    from horae.executors.destinations.files import _FarTarget

    s3.store("lake")
    place = {
        "type": "files", "path": f"s3://lake/died/{moment}", "endpoint": s3.endpoint, "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }  # fmt: skip
    wish = {
        "source": database.source(), "read": {"table": "orders"}, "mode": "incremental", "cursor": "updated_at",
        "primary_key": ["id"], "destinations": [place],
    }  # fmt: skip
    sync(**wish)
    database.do("UPDATE orders SET name = 'changed', updated_at = updated_at + interval '1 day' WHERE id = 7")
    with monkeypatch.context() as dying:
        dying.setattr(_FarTarget, "replace" if moment == "writing" else "_complete", die)
        dying.setattr(_FarTarget, "close", lambda _: None)
        with pytest.raises(Died):
            sync.attempt(**wish)
    left = len(s3.files("lake", f"died/{moment}"))
    assert left == 4  # the old file, its other rows anew, the new row, and the journal
    sync(**wish)
    files = s3.files("lake", f"died/{moment}")
    assert all(name.endswith(".parquet") for name in files)
    found = pa.concat_tables(pq.read_table(pa.BufferReader(file)) for file in files.values())
    assert sorted(found["id"].to_pylist()) == list(range(1, 1001))
    assert found["name"].to_pylist().count("changed") == 1


class Died(BaseException):
    """As if killed."""


def die(*_: object) -> None:
    raise Died


def test_an_attempt_that_fails_leaves_nothing_on_s3(s3: S3, database: Database, sync: Syncer):
    s3.store("lake")
    place = {
        "type": "files", "path": "s3://lake/failed", "endpoint": s3.endpoint, "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }  # fmt: skip
    wish = {"source": database.source(), "read": {"table": "orders"}, "destinations": [place]}
    sync(**wish)
    (before,) = s3.files("lake", "failed")

    def fail(rows: int) -> None:
        raise RuntimeError(f"lost after {rows} rows")

    from horae.executors.sync import program

    with pytest.MonkeyPatch.context() as failing:
        failing.setattr(program, "_note_writing", lambda *_: fail(0))
        assert "lost after" in sync.fails(**wish)[0]
    assert list(s3.files("lake", "failed")) == [before]


def test_cells_of_a_sheet_come_into_a_table(service: Service, database: Database, sync: Syncer):
    service.cells = [["id", "name", "amount"], [1, "a", 1.5], [2, "", 2], [3]]
    wish = {
        "source": {"type": "sheets", "url": service.url, "access_token": "t"},
        "read": {"sheet": "book", "range": "A:C"},
    }
    sync(**wish, destinations=database.table("lake.sheet"))
    assert database.do("SELECT * FROM lake.sheet ORDER BY id") == [(1, "a", 1.5), (2, None, 2.0), (3, None, None)]
    service.cells.append([4, "d", "many"])
    changes = sync(**wish, destinations=database.table("lake.sheet"))["tables"][0]["changes"]
    assert changes == ["column amount was double precision, is text"]


def test_several_destinations_are_filled_from_one_reading(database: Database, sync: Syncer):
    facts = sync(
        source=database.source(), read={"table": "orders"},
        destinations=[*database.table("lake.orders"), {"type": "files", "database": "lake", "table": "orders"}],
    )  # fmt: skip
    assert [(table["name"], table["rows"]) for table in facts["tables"]] == [
        ("lake.orders", 1000),
        ("lake/orders", 1000),
    ]
    assert len(rows_in(sync.lake / "lake" / "orders")) == 1000


# ── what goes wrong ──


@pytest.mark.parametrize(
    ("changes", "words", "is_final"),
    [
        ({"read": {"table": "nowhere"}}, "there is no table 'nowhere' in the source", True),
        ({"read": {"query": "SELEC 1"}}, 'syntax error at or near', True),
        ({"source": {"url": "postgresql://someone:hunter22@127.0.0.1:1/x"}}, "Connection refused", False),
        ({"source": {"username": "nobody", "password": "hunter22"}}, 'role "nobody" does not exist', True),
        ({"source": {"url": "oracle://h/x"}}, "there is no driver for oracle", True),
        ({"source": {"type": "service", "name": "ads"}}, "agents cannot read from 'ads'", True),
        ({"destinations": {"url": "postgresql://u:hunter22@127.0.0.1:1/x"}}, "Connection refused", False),
        ({"destinations": {"username": "reader"}}, "permission denied", True),
        ({"destinations": {"type": "clickhouse", "url": ""}}, "no ClickHouse is known here", True),
        ({"mode": "incremental"}, "needs a cursor", True),
        ({"mode": "incremental", "cursor": "nothing"}, "there is no column 'nothing'", True),
        ({"primary_key": ["nothing"]}, "there is no column 'nothing'", True),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_sentence_without_secrets(
    database: Database, sync: Syncer, changes: Any, words: str, is_final: bool
):
    database.do("DROP ROLE IF EXISTS reader")
    database.do("CREATE ROLE reader LOGIN")
    wish = {"source": database.source(), "read": {"table": "orders"}, "destinations": database.table("lake.orders")}
    inner = {name: changes[name] for name in ("source", "destinations") if name in changes}
    wish |= {name: value for name, value in changes.items() if name not in inner}
    wish |= {"source": {**wish["source"], **inner.get("source", {})}} if "source" in inner else {}
    wish |= {"destinations": [{**wish["destinations"][0], **inner["destinations"]}]} if "destinations" in inner else {}
    message, final = sync.fails(**wish)
    assert words in message
    assert (final, "\n" in message, "hunter22" in message) == (is_final, False, False)
    assert database.do("SELECT relname FROM pg_class WHERE relname ~ 'horae'") == []


def test_a_service_that_refuses_is_named(service: Service, clickhouse: ClickHouse, sync: Syncer):
    wish = {"source": {"type": "rest", "url": service.url}, "destinations": [{"type": "files", "path": "x"}]}
    message, is_final = sync.fails(**wish, read={"path": "nowhere"})
    assert "404" in message
    assert is_final
    service.rows = [{"id": 1}]
    wrong = {"type": "clickhouse", "url": clickhouse.url, "password": "hunter22", "table": "t"}
    message, is_final = sync.fails(**{**wish, "destinations": [wrong]}, read={"path": "rows", "items": "data"})
    assert ("Authentication failed" in message, is_final, "hunter22" in message) == (True, True, False)
