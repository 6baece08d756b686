"""Rows into a table of ClickHouse: inserted into a stage beside it, which then takes its place in one step.

ClickHouse has no transactions. So what stays of the table is copied to the stage too, by the server itself, and the
two are exchanged: readers see the old table or the new one. Each attempt has a stage of its own, for a statement of
one that was killed may still be under way; what earlier attempts left is dropped.

What must stay true: the table is touched by the exchange alone. Names reach SQL only quoted.
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
from horae.executors.sync.batch import Batch, Loaded, Refused
from horae.executors.sync.sources import CONNECT_SECONDS

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


class ClickHouseTable:
    def __init__(self, place: Json, default_url: str, attempt: str) -> None:
        self._database, self._table = place.get("database", "default"), place["table"]
        self._client = connect(place, default_url)
        self._stages = f"{STAGE}{self._table}_"
        self._live = f"{quoted(self._database)}.{quoted(self._table)}"
        self._stage_name = f"{self._stages}{attempt}"
        self._stage = f"{quoted(self._database)}.{quoted(self._stage_name)}"

    def load(self, batch: Batch, tell: Callable[[int], None]) -> Loaded:
        loaded = Loaded(f"{self._database}.{self._table}", bytes=batch.bytes)
        wanted = {name: type_of(kind) for name, kind in zip(batch.schema.names, batch.schema.types, strict=True)}
        self._make_database()
        self._drop_stages()
        before = self._columns()
        if not wanted and not before:
            return loaded
        if before:
            self._do(f"CREATE TABLE {self._stage} AS {self._live}")
            loaded.changes = self._change(before, wanted, batch)
        else:
            self._create(wanted, batch.primary_key)
        loaded.rows = self._insert(batch, tell)
        if before and not batch.is_whole:
            self._keep(before, batch)
        self._do(
            f"EXCHANGE TABLES {self._stage} AND {self._live}"
            if before
            else f"RENAME TABLE {self._stage} TO {self._live}"
        )
        self._do(f"DROP TABLE IF EXISTS {self._stage}")
        return loaded

    def _do(self, statement: str, **values: Any) -> None:
        self._client.command(statement, parameters=values or None)

    def _make_database(self) -> None:
        """Only who may make databases may say IF NOT EXISTS."""
        asked = {"database": self._database}
        if not self._client.query("SELECT 1 FROM system.databases WHERE name = %(database)s", asked).result_rows:
            self._do(f"CREATE DATABASE IF NOT EXISTS {quoted(self._database)}")

    def _drop_stages(self) -> None:
        asked = {"database": self._database, "begin": self._stages}
        found = self._client.query(
            "SELECT name FROM system.tables WHERE database = %(database)s AND startsWith(name, %(begin)s)", asked
        )
        for (name,) in found.result_rows:
            if re.fullmatch("[0-9]+-[0-9]+", name.removeprefix(self._stages)):
                self._do(f"DROP TABLE IF EXISTS {quoted(self._database)}.{quoted(name)}")

    def _columns(self) -> dict[str, str]:
        asked = {"database": self._database, "table": self._table}
        found = self._client.query(
            "SELECT name, type FROM system.columns WHERE database = %(database)s AND table = %(table)s", asked
        )
        return {name: _inner(kind) for name, kind in found.result_rows}

    def _create(self, wanted: dict[str, str], primary_key: tuple[str, ...]) -> None:
        columns = ", ".join(
            f"{quoted(name)} {kind if name in primary_key else f'Nullable({kind})'}" for name, kind in wanted.items()
        )
        order = ", ".join(map(quoted, primary_key))
        self._do(f"CREATE TABLE {self._stage} ({columns}) ENGINE = MergeTree ORDER BY ({order})")

    def _change(self, before: dict[str, str], wanted: dict[str, str], batch: Batch) -> list[str]:
        """Give the stage, still empty, the columns that the rows need."""
        changes = []
        for name, kind in wanted.items():
            if name not in before:
                self._do(f"ALTER TABLE {self._stage} ADD COLUMN {quoted(name)} Nullable({kind})")
                changes.append(f"column {name} added, {kind}")
            elif not _holds(old := before[name], kind):
                if not batch.is_whole and kind not in _WIDER.get(old, ()):
                    message = f"the column {name!r} of {self._database}.{self._table} is {old}, and what is read is "
                    raise Refused(f"{message}{kind}: change the column, or do a full sync")
                self._do(f"ALTER TABLE {self._stage} MODIFY COLUMN {quoted(name)} Nullable({kind})")
                changes.append(f"column {name} was {old}, is {kind}")
        if wanted:
            changes += [f"column {name} is gone from the source" for name in before if name not in wanted]
        return changes

    def _insert(self, batch: Batch, tell: Callable[[int], None]) -> int:
        rows = 0
        for table in batch.tables():
            self._client.insert_arrow(quoted(self._stage_name), _simple(table), database=quoted(self._database))
            rows += len(table)
            tell(rows)
        return rows

    def _keep(self, before: dict[str, str], batch: Batch) -> None:
        """Copy what the new rows do not replace."""
        names = ", ".join(map(quoted, before))
        values: Json = {}
        if batch.primary_key:
            key = ", ".join(map(quoted, batch.primary_key))
            replaced = f"({key}) IN (SELECT {key} FROM {self._stage})"  # noqa: S608
        else:
            literal, values = _literal(batch.since)
            replaced = f"ifNull({quoted(batch.cursor or '')} >= {literal}, 0)"
        kept = f"INSERT INTO {self._stage} ({names}) SELECT {names} FROM {self._live} WHERE NOT ({replaced})"  # noqa: S608
        self._do(kept, **values)


def destination(place: Json, order: Json) -> ClickHouseTable:
    return ClickHouseTable(place, order["clickhouse_url"], order["attempt"])


def connect(place: Json, default_url: str) -> Any:
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


def quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _inner(kind: str) -> str:
    """The type without what says how it is kept, or that it may be null."""
    while found := re.fullmatch(r"(?:Nullable|LowCardinality)\((.*)\)", kind):
        kind = found[1]
    return kind


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


def type_of(kind: Any) -> str:
    if name := _TYPES.get(str(kind)):
        return name
    if pa.types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    raise Refused(f"ClickHouse has no type for {kind}")


_TYPES = {
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
    "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float": "Float32", "double": "Float64", "bool": "Bool", "string": "String", "binary": "String",
    "date32[day]": "Date32", "time64[us]": "String",
    "timestamp[us]": "DateTime64(6)", "timestamp[us, tz=UTC]": "DateTime64(6, 'UTC')",
}  # fmt: skip


def _simple(table: Any) -> Any:
    """Times of day are text to ClickHouse."""
    fields = [field.with_type(pa.string()) if pa.types.is_time(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))
