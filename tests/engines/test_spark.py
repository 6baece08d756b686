"""Kind spark_sql on real engines: Spark Connect, HDFS, S3, ClickHouse's engine, local files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.clickhouse_server import ClickHouse
from tests.engines.hdfs_server import Hdfs
from tests.engines.s3_server import S3
from tests.engines.spark_server import Spark

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("data")]

THREE = "SELECT id, concat('row, ', id) AS name FROM range(1, 4, 1, 1)"
LINES = 'id,name\n1,"row, 1"\n2,"row, 2"\n3,"row, 3"\n'
ENDLESS = "SELECT count(*) AS n FROM range(0, 1000000000000, 1, 2) WHERE id % 7 = sqrt(id)"


@pytest.fixture(scope="module")
def server(spark: Spark, clickhouse: ClickHouse, s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**s3.environment, "HADOOP_USER_NAME": "root"}.items():
            patch.setenv(name, value)
        flags = ["--spark-url", spark.url, "--clickhouse-url", clickhouse.url, "--lake-root", str(directory / "lake")]
        running = Server(directory, "--heartbeat-interval", "0.5", *flags)
        running.start()
        yield running
        running.stop()


def run(server: Server, query: str, *outputs: Any, **fields: Any) -> Any:
    """The run of a new job, once it has ended."""
    return server.ended(begin(server, query, *outputs, **fields))


def begin(server: Server, query: str, *outputs: Any, **fields: Any) -> int:
    job = {"name": "query", "kind": "spark_sql", "query": query, "outputs": list(outputs), **fields}
    [made] = server.submit(job)
    return int(server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"])


def succeeded(server: Server, query: str, *outputs: Any) -> Any:
    ended = run(server, query, *outputs)
    assert ended["state"] == "succeeded", (ended["message"], server.log())
    return ended["result"]


# ── files ──


def test_files_go_below_lake_root_and_are_appended_or_replaced(server: Server) -> None:
    lake = server.directory / "lake" / "append"
    first = succeeded(server, THREE, {"to": "files", "path": "/append"})
    assert [path.read_text() for path in lake.iterdir()] == [LINES]
    assert (first["rows"], first["bytes"], first["query_id"] != "") == (3, len(LINES), True)
    assert first["tables"] == [{"name": str(lake), "rows": 3, "bytes": len(LINES)}]
    assert first["stages"]["done"] == first["stages"]["total"]
    succeeded(server, THREE, {"to": "files", "path": "/append"})
    assert [path.read_text() for path in lake.iterdir()] == [LINES, LINES]
    (lake / "notes.txt").write_text("mine")
    succeeded(server, "SELECT 1 AS one", {"to": "files", "path": "/append", "mode": "replace"})
    assert sorted(path.read_text() for path in lake.iterdir()) == ["mine", "one\n1\n"]


def test_files_on_s3_are_appended_and_replaced(server: Server, s3: S3) -> None:
    s3.store("lake")
    output = {"to": "files", "uri": "s3://lake", "path": "/out/three"}
    succeeded(server, THREE, output)
    succeeded(server, THREE, output)
    assert list(s3.files("lake", "out/three").values()) == [LINES.encode()] * 2
    succeeded(server, THREE, {**output, "mode": "replace"})
    assert list(s3.files("lake", "out/three").values()) == [LINES.encode()]


def test_files_on_hdfs_are_written_by_spark_appended_and_replaced(server: Server, hdfs: Hdfs) -> None:
    output = {"to": "files", "uri": hdfs.url, "path": "/out/three"}
    result = succeeded(server, THREE, output)
    assert [hdfs.read(f"/out/three/{name}") for name in hdfs.names("/out/three")] == [LINES]
    assert (result["rows"], result["bytes"]) == (3, len(LINES))
    succeeded(server, THREE, output)
    assert len(hdfs.names("/out/three")) == 2
    succeeded(server, THREE, {**output, "mode": "replace"})
    assert [hdfs.read(f"/out/three/{name}") for name in hdfs.names("/out/three")] == [LINES]


# ── tables ──


def test_a_table_is_made_appended_to_and_replaced(server: Server, clickhouse: ClickHouse) -> None:
    output = {"to": "clickhouse", "database": "default", "table": "three"}
    succeeded(server, THREE, output)
    succeeded(server, THREE, output)
    assert clickhouse.query("SELECT count(), sum(id), min(name) FROM default.three") == "6\t12\trow, 1"
    result = succeeded(server, THREE, {**output, "mode": "replace"})
    assert clickhouse.rows("SELECT * FROM default.three ORDER BY id")[2] == ["3", "row, 3"]
    assert clickhouse.query("SELECT count() FROM default.three") == "3"
    assert result["tables"][0]["name"] == "default.three"


def test_outputs_of_one_query_get_the_same_rows(server: Server, clickhouse: ClickHouse) -> None:
    succeeded(
        server,
        "SELECT uuid() AS id FROM range(100)",
        {"to": "clickhouse", "database": "default", "table": "ids"},
        {"to": "files", "path": "/ids"},
    )
    [path] = (server.directory / "lake" / "ids").iterdir()
    assert sorted(path.read_text().split()[1:]) == [row[0] for row in clickhouse.rows("SELECT id FROM ids ORDER BY id")]
