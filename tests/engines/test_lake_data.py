"""The data work of the lake contract by a real server: tables of Spark that last, HDFS as a user, complete syncs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from ..acceptance.server import Server
from ..contract.postgres_server import Postgres
from .clickhouse_server import ClickHouse
from .conftest import need_packages
from .hdfs_server import Hdfs
from .s3_server import ACCESS_KEY, S3, SECRET_KEY
from .services_server import KEY, ROWS, moment, running_services

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("data")]
PATIENCE = 420.0  # seconds: a Spark of its own takes a minute to start on a busy machine
ENDED = ("Finished", "Error", "Killed", "Synced", "Terminated")


def sql_job(query: str, *outputs: Any) -> dict[str, Any]:
    """As the document has it."""
    return {
        "class_name": "sql_job", "creator_id": "", "org_id": 1, "job_id": 13, "display_name": "test",
        "job_type": "Sql", "last_run_time": 100, "last_sync_status": "Initialized",
        "current_sync_status": "Initialized", "schedule_time": {"class_name": "schedule_once", "start_time": 0},
        "query_info": {"query": query, "outputs": list(outputs)},
    }  # fmt: skip


def hadoop(hdfs: Hdfs, path: str) -> dict[str, Any]:
    config = {"class_name": "hadoop_config", "hdfs_uri": f"127.0.0.1:{hdfs.port}", "result_path": path}
    return {"type": "text_file", "config": config}


def lake_run(server: Server, query: str, *outputs: Any) -> tuple[str, str]:
    """(status, message) of a lake job that is made now and runs once."""
    return ended(server, "/lake", lake_job(server, query, *outputs))


def ended(server: Server, prefix: str, job_id: int, count: int = 1) -> tuple[str, str]:
    status = "job_status" if prefix else "sync_status"

    def look() -> Any:
        rows = server.post(f"{prefix}/history/list", {"from": 0, "size": 1000})["data"]
        done = [row for row in rows if row["job_id"] == job_id and row[status] in ENDED]
        return done if len(done) >= count else None

    newest = max(
        server.wait_until(look, f"job {job_id} to end", PATIENCE), key=lambda row: row.get("run_id", row.get("sync_id"))
    )
    return newest[status], newest["message"]


# ── Spark and HDFS ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sparks(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory, need: Callable[..., None]) -> Iterator[Server]:
    """Each query starts a Spark of its own, in a sandbox, where it is the user nobody."""
    need("bwrap", "java")
    need_packages("pyspark", "grpc_status")
    flags = ("--spark-url", "local[2]", "--sandbox", "bubblewrap", "--hdfs-user", "etl", "--lease", "30")
    server = Server(tmp_path_factory.mktemp("sparks"), *flags).start()
    yield server
    server.stop()


def lake_job(server: Server, query: str, *outputs: Any) -> int:
    return int(server.post("/lake/job/create", {"job": sql_job(query, *outputs)})["job"]["job_id"])


@pytest.mark.row("lake-data-tables", "lake-data-tables-restart", "lake-data-tables-writers", "lake-data-hdfs-user")
def test_a_table_that_one_job_makes_is_read_by_the_next_and_goes_to_hdfs_as_the_user_named(
    sparks: Server, hdfs: Hdfs
) -> None:
    hdfs.make_directory("/data", "etl")
    made = "create table abc as select id, concat('row ', id) as name from range(1, 4)"
    assert lake_run(sparks, made) == ("Finished", "")
    sparks.kill()
    sparks.start()
    assert lake_run(sparks, "select * from abc order by id", hadoop(hdfs, "/data/abc")) == ("Finished", "")
    files = [name for name in hdfs.names("/data/abc") if not name.startswith("_")]
    lines = "".join(hdfs.read(f"/data/abc/{name}") for name in files)
    assert lines == "id,name\n1,row 1\n2,row 2\n3,row 3\n"
    assert (hdfs.owner("/data/abc"), hdfs.owner(f"/data/abc/{files[0]}")) == ("etl", "etl")
    writers = [lake_job(sparks, f"insert into abc select {number}, 'more'") for number in (4, 5)]
    assert [ended(sparks, "/lake", job_id)[0] for job_id in writers] == ["Finished", "Finished"]
    counted = {"to": "files", "path": "counted"}
    [job] = sparks.submit(
        {"name": "c", "kind": "spark_sql", "query": "select count(*) as n from abc", "outputs": [counted]}
    )
    run = sparks.post(f"/v1/jobs/{job['id']}/run", status=201)
    sparks.wait_until(lambda: sparks.get(f"/v1/runs/{run['id']}")["state"] == "succeeded", "the count", PATIENCE)
    [file] = (sparks.directory / "data" / "lake" / "counted").iterdir()
    assert file.read_text() == "n\n5\n"


@pytest.mark.row("lake-data-tables-hdfs")
def test_tables_may_lie_on_hdfs(hdfs: Hdfs, tmp_path: Path, need: Callable[..., None]) -> None:
    need("java")
    need_packages("pyspark", "grpc_status")
    hdfs.make_directory("/warehouse", "etl")
    flags = ("--spark-url", "local[1]", "--spark-warehouse", f"{hdfs.url}/warehouse", "--hdfs-user", "etl")
    flags = (*flags, "--lease", "30")
    server = Server(tmp_path, *flags).start()
    try:
        assert lake_run(server, "create table orders as select 1 as id") == ("Finished", "")
        assert lake_run(server, "select * from orders", hadoop(hdfs, "/warehouse/out")) == ("Finished", "")
        assert lake_run(server, "drop table orders") == ("Finished", "")
    finally:
        server.stop()
    [file] = [name for name in hdfs.names("/warehouse/out") if not name.startswith("_")]
    assert hdfs.read(f"/warehouse/out/{file}") == "id\n1\n"
    assert hdfs.names("/warehouse/_catalog/default") == ["orders.2.json"]
    assert "ddl" not in hdfs.read("/warehouse/_catalog/default/orders.2.json")


@pytest.mark.row("lake-data-hadoop")
def test_the_hadoop_of_a_sync_may_be_hdfs(hdfs: Hdfs, tmp_path: Path, mariadb: Any) -> None:
    import hdfs_native
    import pyarrow as pa
    import pyarrow.parquet as pq

    from .mariadb_server import PASSWORD, USER

    hdfs.make_directory("/lake", "etl")
    mariadb.do(
        "CREATE DATABASE IF NOT EXISTS hadoop",
        "CREATE TABLE hadoop.t (id INT PRIMARY KEY, moved INT)",
        "INSERT INTO hadoop.t VALUES (1, 1), (2, 2)",
    )
    server = Server(tmp_path, "--lake-root", f"{hdfs.url}/lake", "--hdfs-user", "etl", "--lease", "30").start()
    try:
        login = {"jdbc_url": mariadb.jdbc_url, "username": USER, "password": PASSWORD}
        source_id = kept_source(server, "jdbc_source", database_type="MySql", **login)
        new = {"sync_mode": "IncrementalSync", "incremental_column": "moved"}
        job_id = made(server, sync_job("jdbc_job", source_id, "t", database_name="hadoop", table_name="t", **new))
        synced(server, job_id)
        mariadb.do("UPDATE hadoop.t SET moved = 3 WHERE id = 1")
        synced(server, job_id, count=2)
    finally:
        server.stop()
    client = hdfs_native.Client(hdfs.url)
    names = [name for name in hdfs.names("/lake/lake/t") if name.endswith(".parquet")]
    found = [pq.read_table(pa.BufferReader(client.read(f"/lake/lake/t/{name}").read())) for name in names]
    rows = [(row["id"], row["moved"]) for table in found for row in table.to_pylist()]
    assert (sorted(rows), hdfs.owner("/lake/lake/t")) == ([(1, 3), (2, 2)], "etl")


# ── syncs ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def syncs(clickhouse: ClickHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_packages("dlt", "pymysql")
    flags = ("--clickhouse-url", clickhouse.url, "--lease", "30")
    server = Server(tmp_path_factory.mktemp("syncs"), *flags).start()
    yield server
    server.stop()


def kept_source(server: Server, class_name: str, **own: Any) -> int:
    body = {"data_source": {"class_name": class_name, "display_name": class_name, **own}}
    return int(server.post("/source/create", body)["id"])


def sync_job(class_name: str, source_id: int, table: str, **own: Any) -> dict[str, Any]:
    return {
        "class_name": class_name, "display_name": table, "sync_mode": "FullSync", "source_id": source_id,
        "last_successful_sync": 0, "sync_interval_in_mn": 0, "last_sync_status": "Initialized",
        "current_sync_status": "Initialized", "schedule_time": {"class_name": "none_schedule"},
        "dest_database_name": "lake", "dest_table_name": table, "destinations": ["Hadoop"], **own,
    }  # fmt: skip


def made(server: Server, job: dict[str, Any]) -> int:
    return int(server.post("/job/create", {"job": job})["job"]["job_id"])


def synced(server: Server, *job_ids: int, count: int = 1) -> None:
    """Run them now, at the same time, for the so-manieth time."""
    for job_id in job_ids:
        answer = server.http.put(f"/schedule/job/{job_id}/now", json={})
        assert answer.json() == {"success": True}, answer.text
    for job_id in job_ids:
        assert ended(server, "", job_id, count)[0] == "Synced", ended(server, "", job_id, count)


def files(server: Server, table: str) -> list[dict[str, Any]]:
    """Return the rows of the files below lake_root."""
    import pyarrow.parquet as pq

    directory = server.directory / "data" / "lake" / "lake" / table
    return [row for path in sorted(directory.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def mariadb(need: Callable[..., None]) -> Iterator[Any]:
    need_packages("pymysql")
    need("mariadb-install-db")
    from .mariadb_server import running_mariadb

    with running_mariadb() as server:
        yield server


@pytest.mark.row("lake-data-mysql", "lake-data-merge", "lake-data-primary-key")
def test_a_changed_row_of_mysql_takes_the_place_of_the_old_one_everywhere(
    syncs: Server, mariadb: Any, clickhouse: ClickHouse
) -> None:
    from .mariadb_server import PASSWORD, USER

    mariadb.do(
        "CREATE DATABASE shop",
        "USE shop",  # for the table of numbers
        "CREATE TABLE shop.orders (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(50), amount DECIMAL(12,2),"
        " paid TINYINT(1), updated_at DATETIME)",
        "INSERT INTO shop.orders SELECT seq, concat('customer ', seq), seq * 1.25, 1,"
        " '2026-01-01' + interval seq minute FROM seq_1_to_100",
    )
    source_id = kept_source(
        syncs, "jdbc_source", database_type="MySql", jdbc_url=mariadb.jdbc_url, username=USER, password=PASSWORD
    )
    new = {"sync_mode": "IncrementalSync", "incremental_column": "updated_at", "last_synced_value": "0"}
    table = {"database_name": "shop", "table_name": "orders", "max_fetch_size": 1000}
    asked = {"query_statement": "select id, name, updated_at from orders", "primary_key": ["id"]}
    jobs = [
        made(syncs, sync_job("jdbc_job", source_id, "merged", destinations=["Hadoop", "Clickhouse"], **new, **table)),
        made(syncs, sync_job("jdbc_job", source_id, "queried", **new, **table, **asked)),
    ]
    synced(syncs, *jobs)
    assert (len(files(syncs, "merged")), len(files(syncs, "queried"))) == (100, 100)
    mariadb.do(
        "UPDATE shop.orders SET name = 'changed', updated_at = '2026-02-01' WHERE id = 7",
        "INSERT INTO shop.orders VALUES (101, 'new', 1, 0, '2026-02-02')",
    )
    synced(syncs, *jobs, count=2)
    for name in ("merged", "queried"):
        rows = files(syncs, name)
        assert (len(rows), len({row["id"] for row in rows})) == (101, 101)
        assert [row["name"] for row in rows if row["id"] == 7] == ["changed"]
    counted = clickhouse.rows("SELECT count(), uniqExact(id), countIf(name = 'changed') FROM lake.merged")
    assert counted == [["101", "101", "1"]]


@pytest.mark.row("lake-data-s3-endpoint", "lake-data-database", "lake-data-schema")
def test_a_bucket_of_another_service_and_a_database_beside_the_one_in_the_address_are_read(
    syncs: Server, s3: S3
) -> None:
    obstore.put(s3.store("inbox"), "in/one.csv", b"id,name\n1,a\n2,b\n")
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region": "us-east-1"}
    bucket = kept_source(syncs, "amazon_s3", **keys, endpoint=s3.endpoint, path_style=True)
    config = {"class_name": "csv_config", "include_header": True, "delimiter": ","}
    import psycopg2

    server = Postgres.make().start()
    try:
        for url, statements in (
            (server.url, ("CREATE DATABASE shop", "CREATE SCHEMA sales", "CREATE TABLE sales.orders AS SELECT 1 AS n")),
            (
                server.url.rpartition("/")[0] + "/shop",
                ("CREATE SCHEMA sales", "CREATE TABLE sales.orders AS SELECT 2 AS n"),
            ),
        ):
            connection = psycopg2.connect(url)
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            connection.close()
        source_id = kept_source(syncs, "jdbc_source", database_type="Postgres", jdbc_url=f"jdbc:{server.url}")
        synced(
            syncs,
            made(
                syncs,
                sync_job("amazon_s3_job", bucket, "objects", bucket_name="inbox", folder_path="in", file_config=config),
            ),
            made(syncs, sync_job("jdbc_job", source_id, "elsewhere", database_name="shop", table_name="sales.orders")),
            made(syncs, sync_job("jdbc_job", source_id, "here", database_name="sales", table_name="orders")),
        )
    finally:
        server.remove()
    assert files(syncs, "objects") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert (files(syncs, "elsewhere"), files(syncs, "here")) == ([{"n": 2}], [{"n": 1}])


@pytest.mark.row("lake-data-services", "lake-data-services-new")
def test_services_are_read_page_by_page_with_their_key_and_a_shop_only_for_what_is_new(syncs: Server) -> None:
    with running_services() as services:
        there = {"api_url": services.url}
        shop = kept_source(syncs, "shopify_source", **there, access_token=KEY)
        new = {"sync_mode": "IncrementalSync", "last_synced_value": "0"}
        orders = made(syncs, sync_job("shopify_job", shop, "shop_orders", table_name="orders", **new))
        sources = {
            "hubspot": kept_source(syncs, "hubspot_source", **there, api_key=KEY),
            "coin_market_cap": kept_source(syncs, "coin_market_cap_source", **there, api_key=KEY),
            "facebook_ads": kept_source(syncs, "facebook_ads_source", **there, access_token=KEY),
            "tik_tok_ads": kept_source(syncs, "tik_tok_ads_source", **there, access_token=KEY),
        }
        own: dict[str, dict[str, Any]] = {
            "hubspot": {"sub_type": "contact"},
            "facebook_ads": {"table_name": "campaigns", "account_id": "7"},
            "tik_tok_ads": {"advertiser_id": "9", "tik_tok_end_point": "campaign/get"},
        }
        jobs = [
            made(syncs, sync_job(f"{name}_job", source_id, name, **own.get(name, {})))
            for name, source_id in sources.items()
        ]
        synced(syncs, orders, *jobs)
        assert {name: len(files(syncs, name)) for name in sources} == {
            **dict.fromkeys(sources, ROWS),
            "coin_market_cap": 1500,
        }
        assert len(files(syncs, "shop_orders")) == ROWS
        services.orders[6] |= {"name": "changed", "updated_at": moment(ROWS + 1)}
        services.asked.clear()
        synced(syncs, orders, count=2)
    assert [path for path in services.asked if "updated_at_min" not in path and "from=" not in path] == []
    rows = files(syncs, "shop_orders")
    assert (len(rows), len({row["id"] for row in rows})) == (ROWS, ROWS)
    assert [row["name"] for row in rows if row["id"] == 7] == ["changed"]


@pytest.mark.row("lake-data-refused-service", "lake-data-refused-mongo", "lake-data-incremental-column")
@pytest.mark.parametrize(
    ("class_name", "own", "words"),
    [
        (
            "mongo_db_job",
            {"database_name": "d", "table_name": "t"},
            "Horae's agents do not read from MongoDB",
        ),
        ("ga4_job", {"property_id": "1"}, "class_name: agents of Horae cannot read from ga4"),
        ("lazada_job", {}, "class_name: agents of Horae cannot read from lazada"),
        (
            "jdbc_job",
            {"database_name": "d", "table_name": "t", "sync_mode": "IncrementalSync"},
            "an IncrementalSync needs the column that tells what is new",
        ),
        (
            "hubspot_job",
            {"sub_type": "deal", "sync_mode": "IncrementalSync"},
            "sync_mode: hubspot is only copied whole",
        ),
    ],
)
def test_what_agents_cannot_read_is_refused_when_it_is_made(
    syncs: Server, class_name: str, own: dict[str, Any], words: str
) -> None:
    answer = syncs.http.post("/job/create", json={"job": sync_job(class_name, 0, "refused", **own)})
    assert (answer.status_code, answer.json()["reason"]) == (400, "invalid_param"), answer.text
    assert words in answer.json()["message"]
    found = syncs.post("/job/list", {"from": 0, "size": 1000})["data"]
    assert [row for row in found if row["job"]["dest_table_name"] == "refused"] == []


@pytest.mark.row("lake-data-merge-postgres")
def test_a_changed_row_takes_the_place_of_the_old_one_in_a_table_of_postgresql(syncs: Server) -> None:
    import psycopg2

    server = Postgres.make().start()
    connection = psycopg2.connect(server.url)
    connection.autocommit = True
    try:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE orders (id int PRIMARY KEY, name text, moved int)")
        cursor.execute("INSERT INTO orders SELECT n, 'old', n FROM generate_series(1, 10) n")
        there = {"url": server.url}
        [job] = syncs.submit({
            "name": "merge", "kind": "sync", "source": {"type": "database", **there}, "read": {"table": "orders"},
            "mode": "incremental", "cursor": "moved",
            "destinations": [{"type": "postgresql", **there, "table": "lake.orders"}],
        })  # fmt: skip
        for statement in ("SELECT 1", "UPDATE orders SET name = 'changed', moved = 11 WHERE id = 3"):
            cursor.execute(statement)
            run = syncs.ended(syncs.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
            assert run["state"] == "succeeded", run["message"]
        cursor.execute("SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE name = 'changed') FROM lake.orders")
        assert cursor.fetchall() == [(10, 10, 1)]
    finally:
        connection.close()
        server.remove()


@pytest.mark.parametrize(
    ("url", "drivers"),
    [
        ("jdbc:mysql://h:3306/shop?useSSL=false&serverTimezone=UTC", "mysql+pymysql://h:3306/shop"),
        ("jdbc:mysql://h/shop?user=u&useSSL=true", "mysql+pymysql://u@h/shop?ssl_check_hostname=false"),
        ("jdbc:mariadb://h/shop", "mysql+pymysql://h/shop"),
        ("jdbc:postgresql://h/shop?currentSchema=a&ssl=true", "postgresql+psycopg2://h/shop?sslmode=require"),
        ("jdbc:postgresql://h/shop?sslmode=verify-full", "postgresql+psycopg2://h/shop?sslmode=verify-full"),
        ("postgresql://h/shop?connect_timeout=3", "postgresql+psycopg2://h/shop?connect_timeout=3"),
    ],
)
def test_an_address_of_jdbc_is_said_in_the_words_of_our_drivers(url: str, drivers: str) -> None:
    need_packages("sqlalchemy")
    from horae.executors.destinations.places import address_of

    assert str(address_of({"url": url})) == drivers


def test_a_certificate_that_cannot_be_verified_as_asked_is_no_reason_to_leave_it() -> None:
    need_packages("sqlalchemy")
    from horae.executors.destinations import Refused
    from horae.executors.destinations.places import address_of

    with pytest.raises(Refused, match="asks to verify a certificate"):
        address_of({"url": "jdbc:mysql://h/shop?sslMode=VERIFY_CA"})
