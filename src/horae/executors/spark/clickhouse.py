"""A table of ClickHouse as the output of a query.

Rows go to a stage table beside the table, <table>__horae_<run>. When all are there:

    replace   EXCHANGE TABLES, and the old one is dropped
    append    the stage is renamed to …_ready, its partitions are moved into the table one by one, and it is renamed to
              …_done_<moment>, empty

What must stay true:
- Until it is published the table is as it was; a failed attempt leaves at most a stage, which the next one drops.
- An append happens once for a run, wherever an attempt is killed: an attempt that finds …_ready goes on with what is
  left in it (a moved partition is not there any more), and one that finds …_done has nothing to do.
- A missing table is made from the fields of the query; one that exists keeps its form, and must have these fields.
"""

from __future__ import annotations

from typing import Any

import clickhouse_connect
import pyarrow
from pyarrow import types

from horae.core.model import Json
from horae.executors.spark import faults

BATCH = 32 << 20  # bytes sent at once: each makes a part of the table
KEPT = 24 * 3600  # seconds for which the mark of an append is kept: no run is tried again later than that
MARK, DONE = "__horae_", "_done_"
_MOVABLE = ("MergeTree", "ReplacingMergeTree", "SummingMergeTree", "AggregatingMergeTree", "CollapsingMergeTree",
            "VersionedCollapsingMergeTree", "GraphiteMergeTree")  # fmt: skip


class Table:
    wants_lines, by_spark = False, False

    def __init__(self, output: Json, run: int, url: str) -> None:
        self.name = f"{output['database']}.{output['table']}"
        self.rows = self.bytes = 0
        self._database = output["database"]
        self._table = output["table"]
        self._replaces = output["mode"] == "replace"
        self._url = url
        self._stage = f"{self._table}{MARK}{run}"
        self._ready = f"{self._stage}_ready"
        self._client: Any = None
        self._fields: list[str] = []
        self._is_made = False  # the stage
        self._is_settled = False  # an earlier attempt has all rows in place, or on their way
        self._waiting: list[Any] = []
        self._waiting_bytes = 0

    def open(self, fields: list[str]) -> None:
        self._client = clickhouse_connect.get_client(dsn=self._url, database="default", query_limit=0)
        self._fields = fields
        if not self._count("system.databases", name=self._database):
            raise faults.Fault(f"there is no database {self._database!r} in ClickHouse: make it, or name another")
        self._tidy()
        self._is_settled = not self._replaces and (self._exists(self._ready) or self._is_marked())
        self._do(f"DROP TABLE IF EXISTS {self._at(self._stage)} SYNC")
        if self._exists(self._table):
            self._check_fields()

    def _tidy(self) -> None:
        """Drop the marks of appends that nobody will ask for again."""
        oldest = self._now() - KEPT
        for name in self._names(f"{self._table}{MARK}"):
            moment = name.rpartition(DONE)[2]
            if DONE in name and moment.isdigit() and int(moment) < oldest:
                self._do(f"DROP TABLE IF EXISTS {self._at(name)} SYNC")

    def _is_marked(self) -> bool:
        """Whether an earlier attempt has appended all."""
        return bool(self._names(f"{self._stage}{DONE}"))

    def _check_fields(self) -> None:
        there = [name for name, *_ in self._client.query(f"DESCRIBE TABLE {self._at(self._table)}").result_rows]
        if lacking := [name for name in self._fields if name not in there]:
            raise faults.Fault(
                f"the query gives a column {lacking[0]!r}, and the table {self.name} has none such "
                f"({', '.join(there)}): change the query or the table"
            )

    # ── rows ──

    def write(self, batch: Any) -> None:
        self.rows += batch.num_rows
        if self._is_settled:
            return
        rows = batch.select(self._fields)
        if not self._is_made:
            self._make(rows.schema)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self.bytes += rows.nbytes
        if self._waiting_bytes >= BATCH:
            self._flush()

    def store(self, frame: Any) -> None:
        raise NotImplementedError

    def _make(self, schema: Any) -> None:
        if self._exists(self._table):
            form = f"AS {self._at(self._table)}" + ("" if self._is_movable() else f" {_PLAIN}")
        else:
            columns = ", ".join(f"{_quoted(field.name)} {column_type(field)}" for field in schema)
            form = f"({columns}) {_PLAIN}"
        self._do(f"CREATE TABLE {self._at(self._stage)} {form}")
        self._is_made = True

    def _flush(self) -> None:
        if not self._waiting:
            return
        table, sink = pyarrow.concat_tables(self._waiting), pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        names = [_quoted(name) for name in self._fields]
        block = sink.getvalue().to_pybytes()
        self._client.raw_insert(self._at(self._stage), names, block, fmt="ArrowStream")
        self._waiting, self._waiting_bytes = [], 0

    # ── publishing ──

    def publish(self) -> None:
        self._flush()
        if not self._is_settled:
            if not self._is_made:  # no rows
                if not self._replaces or not self._exists(self._table):
                    return
                self._do(f"CREATE TABLE {self._at(self._stage)} AS {self._at(self._table)}")
            self._do(f"CREATE TABLE IF NOT EXISTS {self._at(self._table)} AS {self._at(self._stage)}")
        if self._replaces:
            self._do(f"EXCHANGE TABLES {self._at(self._stage)} AND {self._at(self._table)}")
            self._do(f"DROP TABLE {self._at(self._stage)} SYNC")
        else:
            self._append()

    def _append(self) -> None:
        if not self._is_settled:
            self._do(f"RENAME TABLE {self._at(self._stage)} TO {self._at(self._ready)}")
        if not self._exists(self._ready):
            return
        if self._is_movable():
            self._move()
        else:  # in one statement, which ClickHouse does once if the table remembers what it was given
            rows = f"SELECT * FROM {self._at(self._ready)}"  # noqa: S608  # quoted
            self._do(f"INSERT INTO {self._at(self._table)} {rows}", {"insert_deduplication_token": self._ready})
        done = self._at(f"{self._stage}{DONE}{self._now()}")
        self._do(f"RENAME TABLE {self._at(self._ready)} TO {done}")
        self._do(f"TRUNCATE TABLE {done}")

    def _move(self) -> None:
        found = self._client.query(
            "SELECT DISTINCT partition_id FROM system.parts WHERE active AND database = {database:String} "
            "AND table = {table:String}",
            parameters={"database": self._database, "table": self._ready},
        )
        for (partition,) in found.result_rows:
            self._do(
                f"ALTER TABLE {self._at(self._ready)} MOVE PARTITION ID '{partition}' TO TABLE {self._at(self._table)}"
            )

    # ── asking ──

    def _exists(self, table: str) -> bool:
        return self._count("system.tables", database=self._database, name=table)

    def _names(self, begin: str) -> list[str]:
        found = self._client.query(
            "SELECT name FROM system.tables WHERE database = {database:String} AND startsWith(name, {begin:String})",
            parameters={"database": self._database, "begin": begin},
        )
        return [name for (name,) in found.result_rows]

    def _now(self) -> int:
        """Seconds by ClickHouse's clock, which all agents share."""
        return int(self._client.query("SELECT toUnixTimestamp(now())").result_rows[0][0])

    def _is_movable(self) -> bool:
        """Whether parts can be moved into the table from one of the same form."""
        found = self._client.query(
            "SELECT engine FROM system.tables WHERE database = {database:String} AND name = {name:String}",
            parameters={"database": self._database, "name": self._table},
        )
        return bool(found.result_rows) and found.result_rows[0][0] in _MOVABLE

    def _count(self, table: str, **equal: str) -> bool:
        where = " AND ".join(f"{name} = {{{name}:String}}" for name in equal)
        found = self._client.query(f"SELECT count() FROM {table} WHERE {where}", parameters=equal)  # noqa: S608
        return bool(found.result_rows[0][0])

    def _do(self, statement: str, settings: Json | None = None) -> None:
        self._client.command(statement, settings=settings)

    def _at(self, table: str) -> str:
        return f"{_quoted(self._database)}.{_quoted(table)}"


_PLAIN = "ENGINE = MergeTree ORDER BY tuple()"
_SIMPLE = {
    "bool": "Bool", "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64", "float": "Float32",
    "double": "Float64", "string": "String", "large_string": "String", "binary": "String", "large_binary": "String",
    "date32[day]": "Date32",
}  # fmt: skip


def column_type(field: Any) -> str:
    """The type of a column that holds this field of Arrow."""
    kind = field.type
    if types.is_list(kind):
        return f"Array({column_type(kind.value_field)})"
    if types.is_timestamp(kind):
        name = "DateTime64(6, 'UTC')"
    elif types.is_decimal(kind):
        name = f"Decimal({kind.precision}, {kind.scale})"
    elif str(kind) in _SIMPLE:
        name = _SIMPLE[str(kind)]
    else:
        raise faults.Fault(f"the column {field.name!r} is of a type ({kind}) that a table cannot be made with: CAST it")
    return f"Nullable({name})" if field.nullable else name


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"
