"""What one attempt of a sync has read: Parquet files of its workspace, and how a destination shall take them.

What must stay true: rows are streamed, a batch at a time, so that memory does not grow with the data.
"""

from __future__ import annotations

import datetime as dt
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from horae.executors.destinations import Refused

PIECE_ROWS = 50_000  # that are in memory at once


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows read. With `since`, only those whose `cursor` is at least that; they take the place of the same rows,
    told by `primary_key`, or, without one, of all rows from `since` on. Without `since` they are the whole table."""

    parts: list[Path]
    schema: Any  # pyarrow.Schema; no columns when nothing is known of them
    cursor: str | None = None
    since: Any = None
    primary_key: tuple[str, ...] = ()
    json_columns: frozenset[str] = frozenset()
    repeated: tuple[int, ...] = ()  # the numbers of rows, in order, of which a later one has the same primary key

    @property
    def is_whole(self) -> bool:
        return self.since is None

    @property
    def bytes(self) -> int:
        return sum(part.stat().st_size for part in self.parts)

    def tables(self) -> Iterator[Any]:
        """All rows, in pieces of one schema; of a row that was read twice, the later reading."""
        begin = 0
        for table in _pieces(self.parts, self.schema):
            end = begin + len(table)
            repeated = self.repeated[bisect_left(self.repeated, begin) : bisect_left(self.repeated, end)]
            yield _without(table, [number - begin for number in repeated]) if repeated else table
            begin = end


@dataclass(slots=True)
class Loaded:
    """What became of a destination."""

    name: str
    rows: int = 0
    bytes: int = 0
    changes: list[str] = field(default_factory=list)


class Destination(Protocol):
    """Takes a batch: all of it or, as far as anybody else sees, nothing. Repeating it changes nothing."""

    def load(self, batch: Batch, note_rows: Callable[[int], None]) -> Loaded:
        """`note_rows` is called with how many rows have been written so far."""


def batch_of(parts: list[Path], known: Any, cursor: str | None, since: Any, **more: Any) -> Batch:
    """`known` are the columns that the source says it has: one that is empty in all rows stands in no file."""
    schemas = [pq.read_schema(part).remove_metadata() for part in parts]
    found = pa.unify_schemas(schemas, promote_options="permissive") if schemas else pa.schema([])
    schema = plain([*found, *(field for field in known if field.name not in found.names)])
    return Batch(parts, schema, cursor=cursor, since=_typed(since, cursor, schema), **more)


def repeated_in(parts: list[Path], schema: Any, key: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers of the rows of which a later one has the same key. All keys are in memory while they are
    compared."""
    keys = pa.concat_tables(_pieces(parts, pa.schema([schema.field(name) for name in key])))
    keys = pa.Table.from_arrays(keys.columns, names=[f"key_{index}" for index in range(len(key))])
    latest = keys.append_column("row", pa.array(range(len(keys)), pa.int64())).group_by(keys.column_names)
    rows = latest.aggregate([("row", "max")])["row_max"]
    if len(rows) == len(keys):
        return ()
    kept = set(rows.to_pylist())
    return tuple(number for number in range(len(keys)) if number not in kept)


def _pieces(parts: list[Path], schema: Any) -> Iterator[Any]:
    """The rows of files, with these columns only, a batch at a time."""
    for part in parts:
        file = pq.ParquetFile(part)
        names = [name for name in file.schema_arrow.names if name in schema.names]
        for piece in file.iter_batches(PIECE_ROWS, columns=names):
            yield fitted(pa.Table.from_batches([piece]), schema)


def _without(table: Any, rows: list[int]) -> Any:
    kept = [True] * len(table)
    for row in rows:
        kept[row] = False
    return table.filter(pa.array(kept))


def _typed(since: Any, cursor: str | None, schema: Any) -> Any:
    return typed(since, schema.field(cursor).type) if cursor in schema.names else since


def typed(since: Any, kind: Any) -> Any:
    """Return a value that somebody wrote as text, as what a column of Arrow holds."""
    if not isinstance(since, str):
        return since
    try:
        if pa.types.is_timestamp(kind):
            return moment(since, kind.tz is not None)
        return pa.scalar(since).cast(kind).as_py()
    except ValueError:
        raise Refused(f"the cursor begins at {since!r}, which is no value of a column of {kind}") from None


def moment(text: str, has_zone: bool) -> dt.datetime:
    """Return a moment, for a column with or without a time zone. One that names no zone is meant in UTC."""
    found = dt.datetime.fromisoformat(text)
    zoned = found if found.tzinfo else found.replace(tzinfo=dt.UTC)
    return zoned if has_zone else zoned.astimezone(dt.UTC).replace(tzinfo=None)


def plain(schema: Any) -> Any:
    """Return the schema without what only differs in how it is laid out in memory, and without dlt's own columns."""
    return pa.schema([(field.name, _plain(field.type)) for field in schema if not field.name.startswith("_dlt_")])


def _plain(kind: Any) -> Any:
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind):
        return pa.string()  # as JSON
    return kind


def fitted(table: Any, schema: Any) -> Any:
    """Return the table with exactly these columns; those it has not are empty."""
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = table[name] if name in table.column_names else pa.nulls(len(table), kind)
        columns.append(_as_json(column) if pa.types.is_nested(column.type) else column.cast(kind))
    return pa.Table.from_arrays(columns, schema=schema)


def _as_json(column: Any) -> Any:
    texts = (None if value is None else json.dumps(value, default=str) for value in column.to_pylist())
    return pa.array(texts, pa.string())
