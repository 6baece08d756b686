"""What the program of a Spark query is ordered to do, and how its failures are told; no Spark is needed."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Json
from horae.core.runs.orders import Assignment
from horae.errors import Invalid, Unavailable
from horae.executors.attempts.sections import Section
from horae.executors.destinations import check_reachable
from horae.executors.spark import SparkQueries, faults, session_id
from horae.ports.work import Work

CLICKHOUSE = "http://u:s3cret@h:8123"


def work_of(spec: Json, **more: Any) -> Work:
    fields: Json = {
        "run_id": 7, "job_id": 3, "attempt": 1, "fence": 1, "name": "q", "kind": "spark_sql", "spec": json.dumps(spec),
        "policy": "{}", "due_at": 1_000_000, "trigger_id": None, "data": None, **more,
    }  # fmt: skip
    return Work(Assignment(**fields), spec, None, None, 0)  # type: ignore[arg-type]


def section_of(tmp_path: Path, *outputs: Json, lake_root: str = "", **settings: Any) -> Section:
    queries = SparkQueries(
        "sc://h:1", settings.get("clickhouse_url"), lake_root or str(tmp_path), {"AWS_SECRET": "k"},
        str(tmp_path / "warehouse"), "etl", settings.get("buckets", ()),
    )  # fmt: skip
    [section] = queries.sections(work_of({"query": "SELECT 1", "outputs": list(outputs)}), tmp_path)
    return section


def places(tmp_path: Path, *outputs: Json, **settings: Any) -> list[str]:
    order = json.loads(section_of(tmp_path, *outputs, **settings).given)
    return [output["place"] for output in order["outputs"]]


def test_an_output_goes_to_its_address_or_below_lake_root(tmp_path: Path) -> None:
    outputs = ({"to": "files", "path": "/a/b"}, {"to": "files", "uri": "hdfs://h:9000/", "path": "/a"})
    assert places(tmp_path, {"to": "files", "uri": "localhost:9000", "path": "/a"}) == ["hdfs://localhost:9000/a"]
    assert places(tmp_path, *outputs) == [f"file://{tmp_path}/a/b", "hdfs://h:9000/a"]
    assert places(tmp_path, outputs[0], lake_root="s3://bucket/lake") == ["s3://bucket/lake/a/b"]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"to": "files", "path": "/a/../../b"}, "without .."),
        ({"to": "files", "uri": "file:///etc", "path": "x"}, "is not below lake_root"),
        ({"to": "files", "uri": "ftp://u:p4ss@h", "path": "x"}, "hdfs, s3, file"),
        ({"to": "clickhouse", "database": "d", "table": "t"}, "set clickhouse_url"),
    ],
)
def test_an_output_that_cannot_be_is_refused_with_the_reason(tmp_path: Path, output: Json, words: str) -> None:
    with pytest.raises(Invalid, match=words.replace(".", r"\.")) as refused:
        section_of(tmp_path, output)
    assert "p4ss" not in refused.value.message


def test_a_link_does_not_lead_out_of_lake_root(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "out").symlink_to("/etc")
    with pytest.raises(Invalid, match="is not below lake_root"):
        section_of(tmp_path, {"to": "files", "path": "out/x"}, lake_root=str(tmp_path / "lake"))


def test_a_query_that_runs_code_is_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    work = work_of({"query": "ADD JAR 'x.jar'"})
    with pytest.raises(Invalid, match=r"runs code that is no SQL \(add jar\).*spark_code"):
        next(SparkQueries("local[*]", None, str(tmp_path), {}, str(tmp_path), "etl").sections(work, tmp_path))
    allowing = SparkQueries("local[*]", None, str(tmp_path), {}, str(tmp_path), "etl", allows_code=True)
    assert next(allowing.sections(work, tmp_path))


@pytest.mark.parametrize(("spark_url", "kept"), [("local[*]", True), ("spark://h:1", True), ("sc://h:1", False)])
def test_the_warehouse_of_a_spark_of_our_own_is_kept_and_hdfs_knows_the_user(
    tmp_path: Path, spark_url: str, kept: bool
) -> None:
    warehouse = tmp_path / "warehouse"
    queries = SparkQueries(spark_url, None, str(tmp_path), {"HADOOP_USER_NAME": "other"}, str(warehouse), "etl")
    [section] = queries.sections(work_of({"query": "SELECT 1"}, fence=4), tmp_path)
    assert (section.keeps == (warehouse,), warehouse.is_dir()) == (kept, kept)
    assert section.env["HADOOP_USER_NAME"] == "etl"
    order = json.loads(section.given)
    assert order["warehouse"] == str(warehouse)
    assert re.fullmatch("run-7-[0-9a-f]{8}-4", order["attempt"])


def test_keys_are_given_for_allowed_buckets_only(tmp_path: Path) -> None:
    output = {"to": "files", "uri": "s3://other", "path": "x"}
    with pytest.raises(Invalid, match="the agent may use bucket: add it to lake_buckets"):
        section_of(tmp_path, output, lake_root="s3://bucket/lake")
    allowed = section_of(tmp_path, output, buckets=("other",))
    assert json.loads(allowed.given)["keys"] == {"AWS_SECRET": "k"}
    assert json.loads(section_of(tmp_path, {"to": "files", "path": "x"}).given)["keys"] == {}


def test_passwords_and_keys_stand_on_standard_input_only(tmp_path: Path) -> None:
    outputs = {"to": "clickhouse", "database": "d", "table": "t"}, {"to": "files", "path": "x"}
    section = section_of(tmp_path, *outputs, clickhouse_url=CLICKHOUSE, lake_root="s3://bucket/lake")
    order = json.loads(section.given)
    assert (order["clickhouse_url"], order["keys"]) == (CLICKHOUSE, {"AWS_SECRET": "k"})
    assert "s3cret" not in f"{section.argv} {section.env} {section.title}"
    assert "AWS_SECRET" not in section.env


def test_attempts_of_a_run_share_a_session_and_runs_do_not() -> None:
    first = session_id(work_of({}).assignment)
    assert session_id(work_of({}, attempt=2, fence=9).assignment) == first
    assert session_id(work_of({}, run_id=8).assignment) != first
    assert session_id(work_of({}, due_at=2_000_000).assignment) != first


def test_a_server_that_does_not_listen_is_told_at_once_and_may_come_back() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(Unavailable, match=f"^Spark at {address} cannot be reached: Connection refused$") as caught:
            check_reachable("Spark", f"sc://{address}/?token=hush")
    assert faults.explain(caught.value)[1] is False
    check_reachable("HDFS", "hdfs://group-of-servers/path")


def foreign(module: str, name: str, text: str) -> BaseException:
    """Return an error as a library that need not be there would raise it."""
    made: type[BaseException] = type(name, (Exception,), {"__module__": module})
    return made(text)


@pytest.mark.parametrize(
    ("error", "words", "final"),
    [
        (
            foreign("pyspark.errors", "AnalysisException", "[TABLE_OR_VIEW_NOT_FOUND] The table `a`.`b` is not there. "
                    "Verify it.; line 2 pos 14;\n'Project [*]\n+- 'UnresolvedRelation"),
            "Spark: [TABLE_OR_VIEW_NOT_FOUND] The table `a`.`b` is not there. (line 2, position 14)", True,
        ),
        (
            foreign("pyspark.errors", "ParseException", "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELECT': "
                    "extra input 'SELECT'. (line 1, pos 10)\n\n== SQL ==\nSELECT 1; SELECT 2\n----------^^^\n"),
            "the query holds more than one statement: write one, and a job for each further one", True,
        ),
        (
            foreign("pyspark.errors", "SparkConnectGrpcException", "<_MultiThreadedRendezvous: StatusCode.UNAVAILABLE"),
            "Spark cannot be reached: <_MultiThreadedRendezvous: StatusCode.UNAVAILABLE", False,
        ),
        (
            foreign("clickhouse_connect.driver", "DatabaseError", "Received ClickHouse exception, code: 60, server "
                    "response: Code: 60. DB::Exception: Table a.b does not exist. (for url http://h:1)"),
            "ClickHouse: Table a.b does not exist.", True,
        ),
        (
            foreign("clickhouse_connect.driver", "OperationalError", "http://u:s3cret@h:1 refused"),
            "ClickHouse: http://u:******@h:1 refused", False,
        ),
        (Unavailable("it is not there"), "it is not there", False),
    ],
)  # fmt: skip
def test_failures_are_told_in_a_sentence_without_secrets(error: BaseException, words: str, final: bool) -> None:
    assert faults.explain(error) == (words, final)
