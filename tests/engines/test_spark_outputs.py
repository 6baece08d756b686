"""The outputs of Spark queries without Spark: what an attempt that is killed anywhere leaves, and what the next makes
of it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from horae.executors.destinations import Refused
from horae.executors.spark import faults
from tests.engines.clickhouse_server import ClickHouse
from tests.engines.conftest import need_packages
from tests.engines.s3_server import S3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("data"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

MOST_STATEMENTS = 20


class Killed(Exception):
    pass


def rows(*numbers: int) -> Any:
    import pyarrow

    numbers_of = pyarrow.array(numbers, pyarrow.int64())
    return pyarrow.table({"id": numbers_of, "name": [f"row {number}" for number in numbers]})


def attempt(url: str, table: str, mode: str, run: int, batches: list[Any], die_before: int = -1) -> None:
    """One attempt that dies before its n-th statement, counted from nought, if it has so many."""
    from horae.executors.destinations.clickhouse import QueryTable

    output = QueryTable({"database": "default", "table": table, "mode": mode}, run, url)
    count = 0

    def mortal(function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal count
            if count == die_before:
                raise Killed
            count += 1
            return function(*args, **named)

        return call

    output._do = mortal(output._do)  # type: ignore[method-assign]
    output.open(["id", "name"])
    output._client.raw_insert = mortal(output._client.raw_insert)
    for batch in batches:
        output.write(batch)
    output.publish()
    if count <= die_before:
        raise IndexError("it has no such statement")


@pytest.fixture
def table(clickhouse: ClickHouse) -> str:
    name = f"t_{uuid.uuid4().hex[:8]}"
    clickhouse.query(
        f"CREATE TABLE default.{name} (id Int64, name String) ENGINE = MergeTree PARTITION BY id % 3 ORDER BY id"
    )
    clickhouse.query(f"INSERT INTO default.{name} SELECT -1, 'old'")
    return name


def ids(clickhouse: ClickHouse, table: str) -> list[int]:
    return [int(row[0]) for row in clickhouse.rows(f"SELECT id FROM default.{table} ORDER BY id")]


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_an_output_to_a_table_happens_once_wherever_an_attempt_is_killed(
    clickhouse: ClickHouse, table: str, mode: str
) -> None:
    batches, expected = [rows(1, 2, 3), rows(4)], [-1] if mode == "append" else []
    for run in range(1, MOST_STATEMENTS):
        try:
            attempt(clickhouse.url, table, mode, run, batches, die_before=run - 1)
        except Killed:
            found = ids(clickhouse, table)
            assert set(found) >= set(expected), "rows were lost"
            attempt(clickhouse.url, table, mode, run, batches)
        except IndexError:
            assert run > 3
            break
        expected = sorted([*expected, 1, 2, 3, 4]) if mode == "append" else [1, 2, 3, 4]
        assert ids(clickhouse, table) == expected, f"killed before statement {run - 1}"
        attempt(clickhouse.url, table, mode, run, batches)  # its finish was lost: once more
        assert ids(clickhouse, table) == expected
    else:
        raise AssertionError("the loop never reached the last statement")
    left = clickhouse.rows(f"SELECT name, total_rows FROM system.tables WHERE startsWith(name, '{table}__horae_')")
    assert all("_done_" in name and total == "0" for name, total in left), left


def test_a_failed_replace_leaves_the_table_as_it_was(clickhouse: ClickHouse, table: str) -> None:
    with pytest.raises(Killed):
        attempt(clickhouse.url, table, "replace", 7, [rows(1)], die_before=3)
    assert ids(clickhouse, table) == [-1]


def test_a_table_with_other_fields_is_refused_and_stays(clickhouse: ClickHouse) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    clickhouse.query(f"CREATE TABLE default.{name} (id Int64) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(Refused, match=r"gives a column 'name', and the table .* has none such"):
        attempt(clickhouse.url, name, "append", 1, [rows(1)])
    assert ids(clickhouse, name) == []


def test_a_wrong_password_is_told_without_it(clickhouse: ClickHouse, table: str) -> None:
    url = f"http://horae:wr0ng-one@127.0.0.1:{clickhouse.port}"
    with pytest.raises(Exception, match="516") as caught:
        attempt(url, table, "append", 1, [rows(1)])
    message, final = faults.explain(caught.value)
    assert (message, final) == ("ClickHouse refuses the user name or the password of clickhouse_url", True)


def test_a_table_of_the_memory_engine_can_be_appended_to(clickhouse: ClickHouse) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    clickhouse.query(f"CREATE TABLE default.{name} (id Int64, name String) ENGINE = Memory")
    attempt(clickhouse.url, name, "append", 1, [rows(1, 2)])
    assert ids(clickhouse, name) == [1, 2]


def test_a_query_without_rows_empties_what_it_replaces_and_adds_nothing(clickhouse: ClickHouse, table: str) -> None:
    attempt(clickhouse.url, table, "append", 1, [])
    assert ids(clickhouse, table) == [-1]
    attempt(clickhouse.url, table, "replace", 2, [])
    assert ids(clickhouse, table) == []


# ── files ──


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    need_packages("pyarrow")
    if request.param == "local":
        return f"file://{tmp_path}/out"
    s3: S3 = request.getfixturevalue("s3")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    s3.store("outputs")
    return f"s3://outputs/{uuid.uuid4().hex}"


def files(place: str) -> dict[str, str]:
    import obstore

    from horae.executors.destinations.run_files import object_store

    store, prefix = object_store(place)
    names = [one["path"] for page in obstore.list(store, prefix or None) for one in page]
    return {name.removeprefix(prefix): bytes(obstore.get(store, name).bytes()).decode() for name in sorted(names)}


def write(place: str, run: int, mode: str, lines: list[str], *, publishes: bool = True) -> None:
    import pyarrow

    from horae.executors.destinations.run_files import LINE, ObjectFiles

    output = ObjectFiles({"place": place, "mode": mode}, run)
    output.open(["id"])
    output.write(pyarrow.table({LINE: pyarrow.array(lines, pyarrow.string())}))
    if publishes:
        output.publish()


def test_files_are_seen_when_they_are_published_and_once(place: str) -> None:
    write(place, 1, "append", ["1", "2"])
    write(place, 2, "replace", ["x" * (20 << 20)], publishes=False)
    assert files(place) == {"run-1-00000.csv": "id\n1\n2\n"}
    write(place, 2, "append", ["3"])
    write(place, 2, "append", ["3"])  # its finish was lost
    assert files(place) == {"run-1-00000.csv": "id\n1\n2\n", "run-2-00000.csv": "id\n3\n"}
    write(place, 3, "replace", [])
    assert files(place) == {"run-3-00000.csv": "id\n"}
