"""Rows into a table of PostgreSQL: copied into a stage beside it, and put in its place, all in one transaction.

A whole table is exchanged for the stage; new rows take the place of the same ones. The stage has the indexes,
defaults and constraints of the table. Changes of the columns are made in the same transaction, and told.

What must stay true: whoever dies whenever, the server undoes all of it. Names reach SQL only quoted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg2
import pyarrow as pa
from psycopg2 import errors, sql
from pyarrow import csv

from horae.core.model import Json
from horae.executors.destinations import CONNECT_SECONDS, Refused
from horae.executors.destinations.places import address_of
from horae.executors.destinations.rows import Batch, Loaded

STAGE = "horae_stage_"  # begins the name of a stage
LOCK_SECONDS = 60  # that the exchange waits for readers of the table
_TEXTS = frozenset({"text", "character varying", "character", "uuid", "json", "jsonb", "USER-DEFINED", "name"})
# A type → the other types of a column that can hold all its values.
_HOLDS: dict[str, frozenset[str]] = {
    "smallint": frozenset({"integer", "bigint", "numeric", "double precision", "real", *_TEXTS}),
    "integer": frozenset({"bigint", "numeric", "double precision", *_TEXTS}),
    "bigint": frozenset({"numeric", *_TEXTS}),
    "real": frozenset({"double precision", "numeric", *_TEXTS}),
    "double precision": frozenset({"numeric", *_TEXTS}),
    "numeric": _TEXTS,
    "boolean": _TEXTS,
    "date": frozenset({"timestamp without time zone", "timestamp with time zone", *_TEXTS}),
    "timestamp without time zone": frozenset({"timestamp with time zone", *_TEXTS}),
    "timestamp with time zone": _TEXTS,
    "time without time zone": _TEXTS,
    "text": frozenset({"inet", "interval", *_TEXTS}),
    "jsonb": frozenset({"json", *_TEXTS}),
    "bytea": frozenset(),
}


class PostgresTable:
    def __init__(self, place: Json) -> None:
        self._place = place
        self._schema, _, self._table = place["table"].rpartition(".")
        self._schema = self._schema or "public"

    def load(self, batch: Batch, note_rows: Callable[[int], None]) -> Loaded:
        connection = connect(self._place)
        try:
            with connection, connection.cursor() as cursor:
                return self._load(cursor, batch, note_rows)
        finally:
            connection.close()

    @property
    def _live(self) -> sql.Identifier:
        return sql.Identifier(self._schema, self._table)

    @property
    def _stage(self) -> sql.Identifier:
        return sql.Identifier(self._schema, f"{STAGE}{self._table}")

    def _load(self, cursor: Any, batch: Batch, note_rows: Callable[[int], None]) -> Loaded:
        loaded = Loaded(self._place["table"], bytes=batch.bytes)
        wanted = {name: _type_of(kind, name in batch.json_columns) for name, kind in _named(batch.schema)}
        before = self._columns(cursor)
        if not wanted and not before:
            return loaded
        if not before:
            self._create(cursor, wanted)
        self._run(cursor, "CREATE TABLE {stage} (LIKE {live} INCLUDING ALL)")
        change = partial(self._change, cursor, before or self._columns(cursor), wanted, batch)
        loaded.changes = change(self._stage)
        loaded.rows = self._copy(cursor, batch, note_rows)
        # The table itself, which others read, is locked only from here on.
        if batch.is_whole:
            self._exchange(cursor, change)
        else:
            change(self._live)
            self._merge(cursor, batch)
        return loaded

    def _run(self, cursor: Any, statement: str, values: tuple[Any, ...] = (), **names: sql.Composable) -> None:
        cursor.execute(sql.SQL(statement).format(live=self._live, stage=self._stage, **names), values)

    def _columns(self, cursor: Any) -> dict[str, tuple[str, bool]]:
        """Column → (type, may be null); none of a table that is not there."""
        cursor.execute(
            "SELECT column_name, data_type, is_nullable = 'YES' OR column_default IS NOT NULL OR is_identity = 'YES'"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (self._schema, self._table),
        )
        return {name: (kind, may_be_null) for name, kind, may_be_null in cursor.fetchall()}

    def _create(self, cursor: Any, wanted: dict[str, str]) -> None:
        cursor.execute("SELECT FROM pg_namespace WHERE nspname = %s", (self._schema,))
        if cursor.fetchone() is None:  # only who may make schemas may say IF NOT EXISTS
            cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in wanted.items()]
        self._run(cursor, "CREATE TABLE {live} ({columns})", columns=sql.SQL(", ").join(columns))

    def _change(
        self,
        cursor: Any,
        before: dict[str, tuple[str, bool]],
        wanted: dict[str, str],
        batch: Batch,
        table: sql.Identifier,
    ) -> list[str]:
        """Give a table, the stage or the live one, the columns that the rows need; what was changed."""
        changes: list[str] = []
        for name, kind in wanted.items():
            if name not in before:
                self._run(
                    cursor, f"ALTER TABLE {{table}} ADD COLUMN {{name}} {kind}", table=table, name=sql.Identifier(name)
                )
                changes.append(f"column {name} added, {kind}")
            elif (old := before[name][0]) != kind and old not in _HOLDS[kind]:
                self._widen(cursor, table, name, old, kind, batch)
                changes.append(f"column {name} was {old}, is {kind}")
        for name in sorted(before.keys() - wanted.keys()) if wanted else ():
            if not before[name][1]:
                raise Refused(
                    f"the column {name!r} of {self._place['table']} must not be null, and the source has it no more"
                )
            changes.append(f"column {name} is gone from the source")
        return changes

    def _widen(self, cursor: Any, table: sql.Identifier, name: str, old: str, kind: str, batch: Batch) -> None:
        if kind not in _HOLDS.get(old, frozenset()) and not batch.is_whole:
            raise Refused(
                f"the column {name!r} of {self._place['table']} is {old}, and what is read is {kind}: "
                f"change the column, or do a full sync"
            )
        using = "" if kind in _HOLDS.get(old, frozenset()) else " USING NULL"  # of a table that is to be replaced
        statement = f"ALTER TABLE {{table}} ALTER COLUMN {{name}} TYPE {kind}{using}"
        self._run(cursor, statement, table=table, name=sql.Identifier(name))

    def _copy(self, cursor: Any, batch: Batch, note_rows: Callable[[int], None]) -> int:
        rows = 0
        names = sql.SQL(", ").join(map(sql.Identifier, batch.schema.names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(self._stage, names).as_string(cursor)
        for table in batch.tables():
            cursor.copy_expert(statement, _csv(table), size=1 << 20)
            rows += len(table)
            note_rows(rows)
        return rows

    def _exchange(self, cursor: Any, change: Callable[[sql.Identifier], object]) -> None:
        """Readers see the old table until we commit. One that others depend on, such as a view, keeps its identity."""
        cursor.execute("SAVEPOINT exchange")
        try:
            self._run(cursor, "DROP TABLE {live}")
        except errors.DependentObjectsStillExist:
            cursor.execute("ROLLBACK TO SAVEPOINT exchange")
            self._run(cursor, "TRUNCATE {live}")
            change(self._live)
            self._run(cursor, "INSERT INTO {live} SELECT * FROM {stage}")
            self._run(cursor, "DROP TABLE {stage}")
        else:
            self._run(cursor, "ALTER TABLE {stage} RENAME TO {name}", name=sql.Identifier(self._table))

    def _merge(self, cursor: Any, batch: Batch) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, batch.schema.names))
        if batch.primary_key:
            keys = [sql.Identifier(name) for name in batch.primary_key]
            # Only = lets the server look keys up. The few that are null are compared with every row.
            self._delete_same(cursor, keys, "a.{0} = b.{0}", "TRUE")
            self._delete_same(cursor, keys, "a.{0} IS NOT DISTINCT FROM b.{0}", "num_nulls({keys}) > 0")
        else:
            column = sql.Identifier(batch.cursor or "")
            self._run(cursor, "DELETE FROM {live} WHERE {column} >= %s", (batch.since,), column=column)
        self._run(cursor, "INSERT INTO {live} ({names}) SELECT {names} FROM {stage}", names=names)
        self._run(cursor, "DROP TABLE {stage}")

    def _delete_same(self, cursor: Any, keys: list[sql.Identifier], same: str, which: str) -> None:
        """Delete the rows of the table that have the key of a new row."""
        equal = sql.SQL(" AND ").join(sql.SQL(same).format(key) for key in keys)
        new = sql.SQL(which).format(keys=sql.SQL(", ").join(sql.SQL("b.{}").format(key) for key in keys))
        self._run(cursor, "DELETE FROM {live} a USING {stage} b WHERE {equal} AND {new}", equal=equal, new=new)


def destination(place: Json, _: Json) -> PostgresTable:
    return PostgresTable(place)


def connect(place: Json) -> Any:
    """Return a connection whose statements end soon after we do, whatever they are about."""
    url = address_of(place)
    if not url.drivername.startswith("postgresql"):
        raise Refused(f"a destination of type postgresql needs a postgresql:// url, not {url.drivername}://")
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg2.connect(address, connect_timeout=CONNECT_SECONDS, application_name="horae sync")
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
        if connection.server_version >= 140000:
            cursor.execute("SET client_connection_check_interval = '1s'")
    connection.commit()
    return connection


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    return zip(schema.names, schema.types, strict=True)


def _type_of(kind: Any, is_json: bool) -> str:
    if is_json:
        return "jsonb"
    for matches, name in _TYPES:
        if matches(kind):
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    raise Refused(f"PostgreSQL has no type for {kind}")


_TYPES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_uint32, "bigint"),
    (pa.types.is_uint64, "numeric"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time without time zone"),
)


def _csv(table: Any) -> io.BytesIO:
    """Rows as COPY reads them: null is nothing, an empty text is quoted."""
    for index, kind in enumerate(table.schema.types):
        if pa.types.is_binary(kind):
            hexed = (None if value is None else f"\\x{value.hex()}" for value in table.column(index).to_pylist())
            table = table.set_column(index, table.schema.names[index], pa.array(hexed, pa.string()))
    written = io.BytesIO()
    csv.write_csv(table, written, csv.WriteOptions(include_header=False))
    written.seek(0)
    return written
