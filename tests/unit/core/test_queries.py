"""Queries that run code are told from those that only read."""

from __future__ import annotations

import time

import pytest

from horae.core.work.queries import asks_servers, calls_code, locks_of, names_in, tables_written

CODE = {
    "SELECT reflect('java.lang.System', 'getenv', 'X')": "reflect",
    "SELECT `ReFlect` ('a', 'b')": "reflect",
    "SELECT java_method(\n'a', 'b')": "java_method",
    "SELECT /* ' */ try_reflect /* ( */ ('a', 'b')": "try_reflect",
    "SELECT IDENTIFIER('ref' || 'lect')('a', 'b')": "identifier",
    "ADD JAR 's3://evil/x.jar'": "add jar",
    "-- harmless\n  add ARCHIVES /etc": "add archives",
    "SELECT 1; ADD FILE '/etc/passwd'": "add file",
    "CREATE OR REPLACE TEMPORARY FUNCTION f AS 'a.B' USING JAR 'x'": "create function",
    "EXECUTE IMMEDIATE 'ADD JAR x'": "execute immediate",
    "SELECT TRANSFORM (a) USING 'sh -c id' AS (b) FROM t": "transform … using",
    "FROM t MAP a USING 'cat' AS b": "transform … using",
}
PLAIN = [
    "SELECT 'reflect(1)', \"java_method(2)\" FROM t -- ADD JAR x",
    "SELECT a.reflect, jar FROM add JOIN b USING (id)",
    "SELECT transform(array(1), x -> x + 1) FROM t JOIN u ON t.id = u.id",
    "SELECT map(1, 2), reduce(array(1), 0, (a, x) -> a + x)",
    "SELECT 'it''s \\' reflect('",
    "INSERT INTO t SELECT * FROM u",
]


@pytest.mark.parametrize("query", CODE)
def test_what_runs_code_is_named(query: str) -> None:
    assert calls_code(query) == CODE[query]


@pytest.mark.parametrize("query", PLAIN)
def test_what_only_reads_is_let_through(query: str) -> None:
    assert calls_code(query) is None


SERVERS = {
    "SELECT * FROM text.`http://127.0.0.1:8080/v1/jobs`": "http",
    "SELECT * FROM csv.` HTTPS://example.org/x`": "https",
    "CREATE TABLE t USING jdbc OPTIONS (dbtable 'tokens', url 'jdbc:postgresql://127.0.0.1/horae')": "jdbc",
    'CREATE TABLE t USING csv LOCATION /* here */ "ftp://h/x"': "ftp",
    r"CREATE TABLE t USING csv OPTIONS (path '\u0068ttp://x/')": "http",
    r"CREATE TABLE t USING csv LOCATION '\http://x/'": "http",
}
FILES = [
    "SELECT 'http://example.org', \"jdbc:x\" FROM a.`b` -- LOCATION 'http://x'",
    "SELECT * FROM parquet.`hdfs://h:9000/x` JOIN csv.`s3a://bucket/x`",
    "SELECT (1), 'http://x' FROM t",
    "CREATE TABLE t USING csv OPTIONS (path '/lake/x') COMMENT 'http://x'",
]


@pytest.mark.parametrize("query", SERVERS)
def test_places_that_are_servers_are_named(query: str) -> None:
    assert asks_servers(query) == SERVERS[query]


@pytest.mark.parametrize("query", FILES)
def test_places_of_a_lake_and_texts_are_let_through(query: str) -> None:
    assert asks_servers(query) is None


@pytest.mark.parametrize("unit", ["'", "`", "/*", "\\'", "reflect ", "a ", "--", "* /", '"\\'])
def test_reading_takes_linear_time(unit: str) -> None:
    def seconds(size: int) -> float:
        query = unit * (size // len(unit))
        return min(_timed(query) for _ in range(3))

    assert seconds(256_000) < 40 * seconds(32_000) + 0.05  # eight times as much


def _timed(query: str) -> float:
    began = time.thread_time()
    calls_code(query)
    asks_servers(query)
    return time.thread_time() - began


WRITTEN = {
    "create table abc as select 1": ["default.abc"],
    "CREATE TABLE IF NOT EXISTS Lake.`Abc` (a INT) USING parquet": ["lake.abc"],
    "create or replace view v as select * from abc": ["default.v"],
    "create external table e (a int) location '/x'": ["default.e"],
    "-- insert into other\nINSERT INTO spark_catalog.default.abc SELECT 'insert into b'": ["default.abc"],
    "insert overwrite table abc partition (p = 1) select 1": ["default.abc"],
    "with x as (select 1) insert into abc select * from x": ["default.abc"],
    "from a insert into b select * insert into c select *": ["default.b", "default.c"],
    "insert overwrite directory '/x' select 1": [],
    "alter table abc rename to other": ["default.abc", "default.other"],
    "drop table if exists abc": ["default.abc"],
    "truncate table abc": ["default.abc"],
    "create database if not exists lake": ["lake"],
    "merge into abc using b on a.id = b.id when matched then delete": ["default.abc"],
    "create temporary view t as select 1": [],
    "select * from abc": [],
}


@pytest.mark.parametrize("query", WRITTEN)
def test_a_statement_tells_the_tables_it_writes(query: str) -> None:
    assert tables_written(query) == WRITTEN[query]


def test_two_statements_that_write_one_table_have_a_lock_in_common() -> None:
    one, other = ({"query": query} for query in ("create table abc as select 1", "insert into DEFAULT.abc select 2"))
    assert locks_of(one) == locks_of(other) == ("spark default.abc",)
    assert locks_of({"query": "select * from abc"}) == ()


def test_the_names_in_a_statement_are_told() -> None:
    assert names_in("select a from `Lake`.abc -- b\n where c = 'd'") == [
        "select",
        "a",
        "from",
        "lake",
        "abc",
        "where",
        "c",
    ]
