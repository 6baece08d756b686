"""Kind spark_sql on real engines: Spark Connect, HDFS, S3, ClickHouse's engine, local files."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

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
        flags += ["--lake-buckets", "lake"]
        running = Server(directory, "--heartbeat-interval", "0.5", "--lease", "30", *flags)
        running.start()
        yield running
        running.stop()


def ended(server: Server, run_id: int) -> Any:
    """Return a run, once it has ended: a Spark of its own takes half a minute to start on a busy machine."""
    path = f"/v1/runs/{run_id}"
    server.wait_until(lambda: server.get(path)["state"] not in ("queued", "running", "blocked"), f"{path} to end", 240)
    return server.get(path)


def run(server: Server, query: str, *outputs: Any, **fields: Any) -> Any:
    """Return the run of a new job, once it has ended."""
    return ended(server, begin(server, query, *outputs, **fields))


def begin(server: Server, query: str, *outputs: Any, **fields: Any) -> int:
    job = {"name": "query", "kind": "spark_sql", "query": query, "outputs": list(outputs), **fields}
    [made] = server.submit(job)
    return int(server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"])


def succeeded(server: Server, query: str, *outputs: Any) -> Any:
    done = run(server, query, *outputs)
    assert done["state"] == "succeeded", (done["message"], server.log())
    return done["result"]


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


class Asked(BaseHTTPRequestHandler):
    """Answers everything, and remembers that it was asked."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"asks")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_a_query_asks_nothing_of_what_listens_on_this_machine(server: Server) -> None:
    Asked.paths.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        done = run(server, f"SELECT * FROM text.`http://127.0.0.1:{api.server_address[1]}/v1/jobs`")
        api.shutdown()
        thread.join()
    assert Asked.paths == []
    assert (done["state"], "a place by http" in done["message"]) == ("failed", True), done["message"]


def test_files_on_s3_are_appended_and_replaced(server: Server, s3: S3) -> None:
    s3.store("lake")
    output = {"to": "files", "uri": "s3://lake", "path": "/out/three"}
    succeeded(server, THREE, output)
    succeeded(server, THREE, output)
    assert list(s3.files("lake", "out/three").values()) == [LINES.encode()] * 2
    succeeded(server, THREE, {**output, "mode": "replace"})
    assert list(s3.files("lake", "out/three").values()) == [LINES.encode()]


def test_a_query_runs_no_code_and_a_foreign_bucket_gets_no_keys(server: Server, s3: S3) -> None:
    s3.store("foreign")
    called = run(server, "SELECT reflect('java.lang.System', 'getenv', 'AWS_SECRET_ACCESS_KEY')")
    assert (called["state"], called["reason"]) == ("failed", "error")
    assert "runs code that is no SQL (reflect)" in called["message"]
    stolen = run(server, THREE, {"to": "files", "uri": "s3://foreign", "path": "/x"})
    assert (stolen["state"], "add it to lake_buckets" in stolen["message"]) == ("failed", True)
    assert s3.files("foreign", "") == {}


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


# ── a Spark of one's own ──


def test_without_a_server_a_query_has_a_spark_of_its_own_also_in_a_sandbox(tmp_path: Path, need: Any) -> None:
    need("bwrap", "java")
    server = Server(tmp_path, "--sandbox", "bubblewrap")
    server.start()
    try:
        text = (Path(__file__).parents[2] / "examples" / "spark-sql.yaml").read_text()
        (tmp_path / "job.yaml").write_text(text)
        server.cli("submit", "job.yaml")
        [run_] = server.wait_until(lambda: server.every("/v1/runs"), "the run")
        done = ended(server, run_["id"])
        assert done["state"] == "succeeded", (done["message"], log_of(server, run_["id"]))
        [path] = (tmp_path / "data" / "lake" / "examples" / "squares").iterdir()
        assert path.read_text().startswith("number,square\n1,1\n2,4\n")
    finally:
        server.stop()


# ── ends ──


def jobs_of(spark: Spark, run_id: int) -> list[Any]:
    """Jobs that run on the cluster under the tag of a run."""
    return [job for job in spark.jobs() if any(f"horae-run-{run_id}" in tag for tag in job["jobTags"])]


def log_of(server: Server, run_id: int) -> str:
    return str(server.http.get(f"/v1/runs/{run_id}/log").text)


@contextmanager
def endless(server: Server, spark: Spark, *outputs: Any, **fields: Any) -> Iterator[int]:
    """A query that runs on the cluster until it is cancelled, which it is in any case: others need its slots."""
    run_id = begin(server, ENDLESS, *outputs, **fields)
    try:
        server.wait_until(lambda: jobs_of(spark, run_id), "the query to run on the cluster")
        yield run_id
    finally:
        server.post(f"/v1/runs/{run_id}/cancel", status=202)
    begun = time.monotonic()
    server.wait_until(lambda: not jobs_of(spark, run_id), "the query to be gone from the cluster")
    print(f"gone from the cluster {time.monotonic() - begun:.1f} s after the request")
    assert ended(server, run_id)["state"] == "cancelled"


def test_a_cancelled_query_is_interrupted_on_the_cluster(server: Server, spark: Spark) -> None:
    with endless(server, spark, {"to": "files", "path": "/cancelled"}):
        pass
    assert list((server.directory / "lake" / "cancelled").iterdir()) == []


def test_an_attempt_interrupts_what_a_killed_one_left(server: Server, spark: Spark) -> None:
    with endless(server, spark, retry={"attempts": 2, "backoff": "1ms"}) as run_id:
        left = {job["jobId"] for job in jobs_of(spark, run_id)}
        os.kill(program_of(run_id), signal.SIGKILL)
        server.wait_until(
            lambda: [job for job in jobs_of(spark, run_id) if job["jobId"] not in left], "the second attempt"
        )
        server.wait_until(lambda: not left & {job["jobId"] for job in jobs_of(spark, run_id)}, "the first to be gone")
        server.wait_until(lambda: "left by an earlier attempt" in log_of(server, run_id), "the log to say so")


def program_of(run_id: int) -> int:
    """Return the process that does a run."""
    for entry in Path("/proc").iterdir():
        try:
            if b"horae.executors.spark.program" in (entry / "cmdline").read_bytes().split(
                b"\0"
            ) and f"HORAE_RUN_ID={run_id}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process does run {run_id}")


def test_the_query_of_a_killed_agent_is_interrupted_and_its_run_is_done_by_the_next_life(
    spark: Spark, tmp_path: Path
) -> None:
    server = Server(tmp_path, "--spark-url", spark.url)
    server.start()
    try:
        with endless(server, spark, {"to": "files", "path": "/killed"}) as run_id:
            server.kill()
            try:
                server.wait_until(lambda: not jobs_of(spark, run_id), "the query to be gone from the cluster")
            finally:
                server.start()
            server.wait_until(lambda: jobs_of(spark, run_id), "the next attempt")
            assert server.get(f"/v1/runs/{run_id}")["attempt"] == 2
    finally:
        server.stop()


# ── bad input ──

LAKE = {"to": "files", "path": "/bad"}
BAD = {
    "a syntax error": ("SELEC 1", LAKE, "Spark: [PARSE_SYNTAX_ERROR]", True),
    "two statements": ("SELECT 1; SELECT 2", LAKE, "the query holds more than one statement", True),
    "a missing table": ("SELECT * FROM nowhere", LAKE, "Spark: [TABLE_OR_VIEW_NOT_FOUND]", True),
    "a division by zero": ("SELECT 1 / (id - id) AS x FROM range(3)", LAKE, "Spark: [DIVIDE_BY_ZERO]", True),
    "two columns of one name": ("SELECT 1 AS a, 2 AS a", LAKE, "two columns of the query are called 'a'", True),
    "no rows for an output": ("CREATE TEMPORARY VIEW v AS SELECT 1", LAKE, "the statement gives no rows", True),
    "a missing database": (
        THREE, {"to": "clickhouse", "database": "no_such", "table": "t"}, "there is no database 'no_such'", True,
    ),
    "a file system that is not there": (
        THREE, {"to": "files", "uri": "hdfs://127.0.0.1:1", "path": "/x"}, "HDFS at 127.0.0.1:1 cannot be", False,
    ),
    "a path out of the lake": (
        THREE, {"to": "files", "uri": "file:///etc", "path": "/x"}, "is not below lake_root", False,
    ),
}  # fmt: skip


def test_bad_input_fails_with_its_cause_in_one_sentence(server: Server) -> None:
    retry = {"attempts": 2, "backoff": "1ms"}
    runs = {what: begin(server, query, output, retry=retry) for what, (query, output, _, _) in BAD.items()}
    told, expected = {}, {}
    for what, run_id in runs.items():
        _, _, words, is_final = BAD[what]
        done = ended(server, run_id)
        told[what] = (done["state"], words in done["message"] or done["message"], done["attempt"])
        expected[what] = ("failed", True, 2 if is_final is False else 1)
        assert "\n" not in done["message"]
        assert "t0p-secret" not in done["message"] + log_of(server, run_id)
    assert told == expected


# ── the lake contract ──


@pytest.mark.parametrize("dialect", ["seed", "code"])
def test_a_sql_job_of_the_lake_contract_runs_on_spark(server: Server, hdfs: Hdfs, dialect: str) -> None:
    path = f"/lake/{dialect}"
    if dialect == "seed":
        uri = hdfs.url.removeprefix("hdfs://")  # as the contract's own sample has it
        config = {"class_name": "hadoop_config", "hdfs_uri": uri, "result_path": path}
        work: Any = {"query_info": {"query": THREE, "outputs": [{"type": "text_file", "config": config}]}}
    else:
        clickhouse = {"class_name": "clickhouse_result_output", "database_name": "default", "table_name": "by_lake"}
        work = {"query": THREE, "outputs": [{**clickhouse, "write_mode": "Replace"}]}
    job = {
        "class_name": "sql_job", "display_name": dialect, "last_run_time": 0, "last_sync_status": "Initialized",
        "current_sync_status": "Initialized", "schedule_time": {"class_name": "none_schedule"}, **work,
    }  # fmt: skip
    job_id = server.post("/lake/job/create", {"job": job})["job"]["job_id"]
    assert server.http.put(f"/lake/schedule/job/{job_id}/now", json={}).json() == {"success": True}

    def finished() -> Any:
        found = server.get(f"/lake/job/{job_id}")["job"]["current_sync_status"]
        assert found != "Error", server.log()
        return found == "Finished"

    server.wait_until(finished, "the job to finish")
    [history] = [one for one in server.post("/lake/history/list", {})["data"] if one["job_id"] == job_id]
    assert history["job_status"] == "Finished"
    if dialect == "seed":
        assert [hdfs.read(f"{path}/{name}") for name in hdfs.names(path)] == [LINES]
