"""Tables of ClickHouse as destinations: rows go to a stage beside the table, which then takes its place in one step.

ClickHouse has no transactions. A sync (SyncTable) copies what stays of the table to its stage too, by the server
itself, and exchanges the two: readers see the old table or the new one. Each attempt has a stage of its own, for a
statement of one that was killed may still be under way; what earlier attempts left is dropped.

A query (QueryTable) has one stage for all attempts of its run, <table>__horae_<run>. When all rows are there:

    replace   EXCHANGE TABLES, and the old one is dropped
    append    the stage is renamed to …_ready, its partitions are moved into the table one by one, and it is renamed to
              …_done_<moment>, empty

What must stay true:
- Until rows are published the table is as it was; a failed attempt leaves at most a stage, which the next one drops.
- An append happens once for a run, wherever an attempt is killed: an attempt that finds …_ready goes on with what is
  left in it (a moved partition is not there any more), and one that finds …_done has nothing to do.
- A missing table is made from the fields of the rows. One that exists keeps its form for a query, and must have its
  fields; a sync changes its columns, in the stage, and tells so.
- Names reach SQL only quoted.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
import pyarrow as pa

from horae.core.model import Json
from horae.executors.destinations import CONNECT_SECONDS, Refused
from horae.executors.destinations.rows import Batch, Loaded


class _Tables:
    """The tables of one database: looked up, staged, exchanged and dropped."""

    _client: Any
    _database: str

    def _do(self, statement: str, values: Json | None = None, settings: Json | None = None) -> None:
        self._client.command(statement, parameters=values, settings=settings)

    def _at(self, table: str) -> str:
        return f"{quoted(self._database)}.{quoted(table)}"

    def _exchange(self, stage: str, table: str) -> None:
        self._do(f"EXCHANGE TABLES {self._at(stage)} AND {self._at(table)}")

    def _has_database(self) -> bool:
        return bool(self._ask("SELECT 1 FROM system.databases WHERE name = {database:String}"))

    def _exists(self, table: str) -> bool:
        return bool(self._engine(table))

    def _engine(self, table: str) -> str:
        """Return the engine of a table; empty where there is no such table."""
        found = self._ask(
            "SELECT engine FROM system.tables WHERE database = {database:String} AND name = {name:String}", name=table
        )
        return str(found[0][0]) if found else ""

    def _names(self, begin: str) -> list[str]:
        """Return the tables whose names begin so."""
        found = self._ask(
            "SELECT name FROM system.tables WHERE database = {database:String} AND startsWith(name, {begin:String})",
            begin=begin,
        )
        return [name for (name,) in found]

    def _columns(self, table: str) -> dict[str, str]:
        """Column → its type, without what says how it is kept; none of a table that is not there."""
        found = self._ask(
            "SELECT name, type FROM system.columns WHERE database = {database:String} AND table = {table:String}",
            table=table,
        )
        return {name: _inner(kind) for name, kind in found}

    def _ask(self, query: str, **values: str) -> Any:
        return self._client.query(query, parameters={"database": self._database, **values}).result_rows


def quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _inner(kind: str) -> str:
    """Return the type without what says how it is kept, or that it may be null."""
    while found := re.fullmatch(r"(?:Nullable|LowCardinality)\((.*)\)", kind):
        kind = found[1]
    return kind


# ── of syncs ───────────────────────────────────────────────────────────────────────────────────────

STAGE = "__horae_stage_"  # begins the name of a stage
_WIDER: dict[str, tuple[str, ...]] = {  # a type → those that can hold all its values
    "Int8": ("Int16", "Int32", "Int64"),
    "Int16": ("Int32", "Int64"),
    "Int32": ("Int64",),
    "UInt8": ("UInt16", "UInt32", "UInt64", "Int16", "Int32", "Int64"),
    "UInt16": ("UInt32", "UInt64", "Int32", "Int64"),
    "UInt32": ("UInt64", "Int64"),
    "Float32": ("Float64",),
    "Date32": ("DateTime64(6)", "DateTime64(6, 'UTC')"),
}


class SyncTable(_Tables):
    def __init__(self, place: Json, default_url: str, attempt: str) -> None:
        self._database, self._table = place.get("database", "default"), place["table"]
        self._client = _connect(place, default_url)
        self._stages = f"{STAGE}{self._table}_"
        self._stage = f"{self._stages}{attempt}"

    def load(self, batch: Batch, note_rows: Callable[[int], None]) -> Loaded:
        loaded = Loaded(f"{self._database}.{self._table}", bytes=batch.bytes)
        wanted = {name: _type_of(kind) for name, kind in zip(batch.schema.names, batch.schema.types, strict=True)}
        if not self._has_database():  # only who may make databases may say IF NOT EXISTS
            self._do(f"CREATE DATABASE IF NOT EXISTS {quoted(self._database)}")
        self._drop_stages()
        before = self._columns(self._table)
        if not wanted and not before:
            return loaded
        if before:
            self._do(f"CREATE TABLE {self._at(self._stage)} AS {self._at(self._table)}")
            loaded.changes = self._change(before, wanted, batch)
        else:
            self._create(wanted, batch.primary_key)
        loaded.rows = self._insert(batch, note_rows)
        if before and not batch.is_whole:
            self._keep(before, batch)
        if before:
            self._exchange(self._stage, self._table)
        else:
            self._do(f"RENAME TABLE {self._at(self._stage)} TO {self._at(self._table)}")
        self._do(f"DROP TABLE IF EXISTS {self._at(self._stage)}")
        return loaded

    def _drop_stages(self) -> None:
        for name in self._names(self._stages):
            if re.fullmatch("[0-9]+-[0-9]+", name.removeprefix(self._stages)):
                self._do(f"DROP TABLE IF EXISTS {self._at(name)}")

    def _create(self, wanted: dict[str, str], primary_key: tuple[str, ...]) -> None:
        columns = ", ".join(
            f"{quoted(name)} {kind if name in primary_key else f'Nullable({kind})'}" for name, kind in wanted.items()
        )
        order = ", ".join(map(quoted, primary_key))
        self._do(f"CREATE TABLE {self._at(self._stage)} ({columns}) ENGINE = MergeTree ORDER BY ({order})")

    def _change(self, before: dict[str, str], wanted: dict[str, str], batch: Batch) -> list[str]:
        """Give the stage, still empty, the columns that the rows need."""
        changes = []
        for name, kind in wanted.items():
            if name not in before:
                self._do(f"ALTER TABLE {self._at(self._stage)} ADD COLUMN {quoted(name)} Nullable({kind})")
                changes.append(f"column {name} added, {kind}")
            elif not _holds(old := before[name], kind):
                if not batch.is_whole and kind not in _WIDER.get(old, ()):
                    message = f"the column {name!r} of {self._database}.{self._table} is {old}, and what is read is "
                    raise Refused(f"{message}{kind}: change the column, or do a full sync")
                self._do(f"ALTER TABLE {self._at(self._stage)} MODIFY COLUMN {quoted(name)} Nullable({kind})")
                changes.append(f"column {name} was {old}, is {kind}")
        if wanted:
            changes += [f"column {name} is gone from the source" for name in before if name not in wanted]
        return changes

    def _insert(self, batch: Batch, note_rows: Callable[[int], None]) -> int:
        rows = 0
        for table in batch.tables():
            self._client.insert_arrow(quoted(self._stage), _simple(table), database=quoted(self._database))
            rows += len(table)
            note_rows(rows)
        return rows

    def _keep(self, before: dict[str, str], batch: Batch) -> None:
        """Copy what the new rows do not replace."""
        names = ", ".join(map(quoted, before))
        values: Json = {}
        if batch.primary_key:
            key = ", ".join(map(quoted, batch.primary_key))
            replaced = f"({key}) IN (SELECT {key} FROM {self._at(self._stage)})"  # noqa: S608
        else:
            literal, values = _literal(batch.since)
            replaced = f"ifNull({quoted(batch.cursor or '')} >= {literal}, 0)"
        kept = f"SELECT {names} FROM {self._at(self._table)} WHERE NOT ({replaced})"  # noqa: S608
        self._do(f"INSERT INTO {self._at(self._stage)} ({names}) {kept}", values or None)


def destination(place: Json, order: Json) -> SyncTable:
    return SyncTable(place, order["clickhouse_url"], order["attempt"])


def _connect(place: Json, default_url: str) -> Any:
    url = place.get("url") or default_url
    if not url:
        raise Refused("no ClickHouse is known here: give the destination a url, or set clickhouse_url")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise Refused(f"the url of ClickHouse begins with http:// or https://, not {parts.scheme}://")
    return clickhouse_connect.get_client(
        host=parts.hostname,
        port=parts.port or (8443 if parts.scheme == "https" else 8123),
        username=place.get("username") or unquote(parts.username or "default"),
        password=place.get("password") or unquote(parts.password or ""),
        secure=parts.scheme == "https",
        connect_timeout=CONNECT_SECONDS,
        client_name="horae sync",
        autogenerate_session_id=False,
    )


def _holds(old: str, kind: str) -> bool:
    is_decimal = old.startswith("Decimal") and kind.startswith("Decimal")
    is_moment = old.startswith("DateTime") and kind.startswith("DateTime")
    return old == kind or old == "String" or old in _WIDER.get(kind, ()) or is_decimal or is_moment


def _literal(value: Any) -> tuple[str, Json]:
    if isinstance(value, dt.datetime):
        return "parseDateTime64BestEffort(%(since)s, 6, 'UTC')", {"since": value.isoformat()}
    if isinstance(value, dt.date):
        return "toDate32(%(since)s)", {"since": value.isoformat()}
    return "%(since)s", {"since": value}


def _type_of(kind: Any) -> str:
    if name := _TYPES.get(str(kind)):
        return name
    if pa.types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    raise Refused(f"ClickHouse has no type for {kind}")


_TYPES = {
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
    "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float": "Float32", "double": "Float64", "bool": "Bool", "string": "String", "binary": "String",
    "large_string": "String", "large_binary": "String",
    "date32[day]": "Date32", "time64[us]": "String",
    "timestamp[us]": "DateTime64(6)", "timestamp[us, tz=UTC]": "DateTime64(6, 'UTC')",
}  # fmt: skip


def _simple(table: Any) -> Any:
    """Times of day are text to ClickHouse."""
    fields = [field.with_type(pa.string()) if pa.types.is_time(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))


# ── of queries ─────────────────────────────────────────────────────────────────────────────────────

INSERT_BYTES = 32 << 20  # sent at once: each makes a part of the table
MARK_SECONDS = 24 * 3600  # for which the mark of an append is kept: no run is tried again later than that
MARK, DONE = "__horae_", "_done_"
_MOVABLE = ("MergeTree", "ReplacingMergeTree", "SummingMergeTree", "AggregatingMergeTree", "CollapsingMergeTree",
            "VersionedCollapsingMergeTree", "GraphiteMergeTree")  # fmt: skip
_PLAIN = "ENGINE = MergeTree ORDER BY tuple()"


class QueryTable(_Tables):
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
        self._is_complete = False  # an earlier attempt has all rows in place, or on their way
        self._waiting: list[Any] = []
        self._waiting_bytes = 0

    def open(self, fields: list[str]) -> None:
        self._client = clickhouse_connect.get_client(dsn=self._url, database="default", query_limit=0)
        self._fields = fields
        if not self._has_database():
            raise Refused(f"there is no database {self._database!r} in ClickHouse: make it, or name another")
        self._tidy()
        self._is_complete = not self._replaces and (self._exists(self._ready) or self._is_marked())
        self._do(f"DROP TABLE IF EXISTS {self._at(self._stage)} SYNC")
        if self._exists(self._table):
            self._check_fields()

    def _tidy(self) -> None:
        """Drop the marks of appends that nobody will ask for again."""
        oldest = self._now() - MARK_SECONDS
        for name in self._names(f"{self._table}{MARK}"):
            moment = name.rpartition(DONE)[2]
            if DONE in name and moment.isdigit() and int(moment) < oldest:
                self._do(f"DROP TABLE IF EXISTS {self._at(name)} SYNC")

    def _is_marked(self) -> bool:
        """Return whether an earlier attempt has appended all."""
        return bool(self._names(f"{self._stage}{DONE}"))

    def _check_fields(self) -> None:
        there = self._columns(self._table)
        if lacking := [name for name in self._fields if name not in there]:
            raise Refused(
                f"the query gives a column {lacking[0]!r}, and the table {self.name} has none such "
                f"({', '.join(there)}): change the query or the table"
            )

    # ── rows ──

    def write(self, batch: Any) -> None:
        self.rows += batch.num_rows
        if self._is_complete:
            return
        rows = batch.select(self._fields)
        if not self._is_made:
            self._make(rows.schema)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self.bytes += rows.nbytes
        if self._waiting_bytes >= INSERT_BYTES:
            self._flush()

    def store(self, frame: Any) -> None:
        raise NotImplementedError

    def _make(self, schema: Any) -> None:
        if self._exists(self._table):
            form = f"AS {self._at(self._table)}" + ("" if self._is_movable() else f" {_PLAIN}")
        else:
            columns = ", ".join(f"{quoted(field.name)} {_column_type(field)}" for field in schema)
            form = f"({columns}) {_PLAIN}"
        self._do(f"CREATE TABLE {self._at(self._stage)} {form}")
        self._is_made = True

    def _flush(self) -> None:
        if not self._waiting:
            return
        table, sink = pa.concat_tables(self._waiting), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        names = [quoted(name) for name in self._fields]
        block = sink.getvalue().to_pybytes()
        self._client.raw_insert(self._at(self._stage), names, block, fmt="ArrowStream")
        self._waiting, self._waiting_bytes = [], 0

    # ── publishing ──

    def publish(self) -> None:
        self._flush()
        if not self._is_complete:
            if not self._is_made:  # no rows
                if not self._replaces or not self._exists(self._table):
                    return
                self._do(f"CREATE TABLE {self._at(self._stage)} AS {self._at(self._table)}")
            self._do(f"CREATE TABLE IF NOT EXISTS {self._at(self._table)} AS {self._at(self._stage)}")
        if self._replaces:
            self._exchange(self._stage, self._table)
            self._do(f"DROP TABLE {self._at(self._stage)} SYNC")
        else:
            self._append()

    def _append(self) -> None:
        if not self._is_complete:
            self._do(f"RENAME TABLE {self._at(self._stage)} TO {self._at(self._ready)}")
        if not self._exists(self._ready):
            return
        if self._is_movable():
            self._move()
        else:  # in one statement, which ClickHouse does once if the table remembers what it was given
            rows = f"SELECT * FROM {self._at(self._ready)}"  # noqa: S608  # quoted
            self._do(
                f"INSERT INTO {self._at(self._table)} {rows}", settings={"insert_deduplication_token": self._ready}
            )
        done = self._at(f"{self._stage}{DONE}{self._now()}")
        self._do(f"RENAME TABLE {self._at(self._ready)} TO {done}")
        self._do(f"TRUNCATE TABLE {done}")

    def _move(self) -> None:
        found = self._ask(
            "SELECT DISTINCT partition_id FROM system.parts WHERE active AND database = {database:String} "
            "AND table = {table:String}",
            table=self._ready,
        )
        for (partition,) in found:
            self._do(
                f"ALTER TABLE {self._at(self._ready)} MOVE PARTITION ID '{partition}' TO TABLE {self._at(self._table)}"
            )

    def _now(self) -> int:
        """Seconds by ClickHouse's clock, which all agents share."""
        return int(self._ask("SELECT toUnixTimestamp(now())")[0][0])

    def _is_movable(self) -> bool:
        """Return whether parts can be moved into the table from one of the same form."""
        return self._engine(self._table) in _MOVABLE


def _column_type(field: Any) -> str:
    """Return the type of a column that holds this field of Arrow."""
    kind = field.type
    if pa.types.is_list(kind):
        return f"Array({_column_type(kind.value_field)})"
    if pa.types.is_timestamp(kind):
        name = "DateTime64(6, 'UTC')"
    elif pa.types.is_decimal(kind):
        name = f"Decimal({kind.precision}, {kind.scale})"
    elif str(kind) in _TYPES:
        name = _TYPES[str(kind)]
    else:
        raise Refused(f"the column {field.name!r} is of a type ({kind}) that a table cannot be made with: CAST it")
    return f"Nullable({name})" if field.nullable else name
