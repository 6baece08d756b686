"""The sources of syncs, as resources of dlt: databases, REST services, files on S3 or in the lake, and sheets.

Each gives tables of Arrow (only REST gives dictionaries, whose types dlt finds out), a batch at a time.

What must stay true: with `since`, no row whose cursor is at least that is left out.
"""

from __future__ import annotations

import datetime as dt
import decimal
import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import dlt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
from dlt.sources.filesystem import filesystem
from dlt.sources.helpers import requests
from dlt.sources.rest_api import rest_api_resources
from dlt.sources.sql_database import sql_table
from pyarrow import csv

from horae.core.model import Json
from horae.core.work.services import SERVICES, Indescribable, name_of, request_of
from horae.core.work.syncs import SERVICE, unknown_source
from horae.executors.destinations import CONNECT_SECONDS, Refused, places
from horae.executors.destinations.places import address_of
from horae.executors.destinations.rows import PIECE_ROWS, moment, typed
from horae.executors.reach import guarded
from horae.executors.sync.cursors import ordered

NAME = "rows"  # of the one table that dlt sees
SHEETS = "https://sheets.googleapis.com"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What shall be read."""

    source: Json
    read: Json
    cursor: Any  # the name of a column, or None
    since: Any
    lake_root: str
    options: Json  # what the job has of its own, for services

    def newer(self, table: Any) -> Any:
        """Return the rows of a table that are new; also those that are exactly as old as the newest seen before."""
        if self.since is None:
            return table
        if self.cursor not in table.column_names:
            raise Refused(f"there is no column {self.cursor!r} for the cursor: {', '.join(table.column_names)}")
        column = table[self.cursor]
        return table.filter(pc.greater_equal(column, pa.scalar(typed(self.since, column.type)).cast(column.type)))


def resource_of(wanted: Wanted) -> Any:
    kind = wanted.source.get("type")
    if why := unknown_source(wanted.source):
        raise Refused(why)
    return _RESOURCES[str(kind)](wanted)


# ── databases ──────────────────────────────────────────────────────────────────────────────────────

# Types that connectorx, which is several times faster, brings over unchanged.
_FAST = (sa.Integer, sa.Boolean, sa.String, sa.Float, sa.Date, sa.DateTime)
_PLACES = 10  # digits after the point that it keeps of a number


def _is_pinned(url: sa.URL) -> bool:
    """Return whether no name is left in it."""
    try:
        return guarded() is None or bool(ipaddress.ip_address((url.host or "").partition("%")[0]))
    except ValueError:
        return False


def _database(wanted: Wanted) -> Any:
    engine, schema = _opened(address_of(wanted.source), wanted.read)
    metadata = sa.MetaData()
    query = wanted.read.get("query")
    table = _columns_of(query, engine, metadata) if query else _reflected(wanted.read, schema, engine, metadata)
    is_fast = (
        engine.dialect.name == "postgresql" and "%" not in (query or "") and _is_pinned(engine.url)
        and all(_is_fast(column.type) for column in table.columns)
    )  # fmt: skip
    resource = sql_table(
        engine, table.name, metadata=metadata, schema=table.schema, chunk_size=PIECE_ROWS,
        backend="connectorx" if is_fast else "pyarrow",
        backend_kwargs={"return_type": "arrow_stream"} if is_fast else {},
        reflection_level="full_with_precision",
        query_adapter_callback=lambda select, _: _selected(wanted, select, table, query),
    )  # fmt: skip
    return resource.add_map(_typed(table, is_fast))


def _opened(url: sa.URL, read: Json) -> tuple[sa.Engine, str | None]:
    """Return the database that is meant, and the schema of the table in it, if one is named. Of PostgreSQL, what is
    named as the database may also be a schema of the one in the address, where there is no database of that name."""
    database, schema = read.get("database"), _schema(read)
    if not database:
        return _engine(url), schema
    if not url.drivername.startswith("postgresql") or url.database in (None, "", database):
        return _engine(url.set(database=database)), schema
    engine = _engine(url)
    with engine.connect() as connection:
        asked = "SELECT count(*) FROM {} WHERE {} = :name"
        if connection.scalar(sa.text(asked.format("pg_database", "datname")), {"name": database}):
            return _engine(url.set(database=database)), schema
        if connection.scalar(sa.text(asked.format("pg_namespace", "nspname")), {"name": database}):
            return engine, schema or database
    raise Refused(f"there is no database {database!r} on the server, and no schema of that name in {url.database!r}")


def _schema(read: Json) -> str | None:
    return str(read.get("table", "")).rpartition(".")[0] or None


def _engine(url: sa.URL) -> sa.Engine:
    """A PostgreSQL that can is asked to end our queries when we end; one that cannot, or a pool before it, refuses
    to be asked."""
    plain_engine = _make_engine(url)
    if not url.drivername.startswith("postgresql") or "options" in url.query:
        return plain_engine
    watched = _make_engine(url.update_query_dict({"options": "-cclient_connection_check_interval=1000"}))
    try:
        watched.connect().close()
    except sa.exc.OperationalError:
        return plain_engine
    return watched


def _make_engine(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(url, connect_args={"connect_timeout": CONNECT_SECONDS}, poolclass=sa.NullPool)
    except ModuleNotFoundError as error:
        raise Refused(f"the driver of this database is missing: pip install {error.name}") from None


def _reflected(read: Json, schema: str | None, engine: sa.Engine, metadata: sa.MetaData) -> sa.Table:
    if "table" not in read:
        raise Refused("read: a table or a query of the database expected")
    metadata.schema = schema
    try:
        return sa.Table(read["table"].rpartition(".")[2], metadata, autoload_with=engine, resolve_fks=False)
    except sa.exc.NoSuchTableError:
        raise Refused(f"there is no table {read['table']!r} in the source") from None


def _columns_of(query: str, engine: sa.Engine, metadata: sa.MetaData) -> sa.Table:
    """Return a query as if it were a table, with the types that the database says it has."""
    with engine.connect() as connection:
        described = connection.execute(_text(f"SELECT * FROM (\n{_bare(query)}\n) AS q LIMIT 0"))  # noqa: S608
        found = described.cursor.description if described.cursor is not None else ()
        columns = [sa.Column(one[0], _described(one, engine.dialect.name)) for one in found]
    return sa.Table(NAME, metadata, *columns)


_OIDS: dict[int, Any] = {  # of PostgreSQL; others are brought over as they come
    16: sa.Boolean(), 20: sa.BigInteger(), 21: sa.SmallInteger(), 23: sa.Integer(), 25: sa.Text(), 1043: sa.String(),
    701: sa.Double(), 1082: sa.Date(), 1114: sa.DateTime(), 1184: sa.DateTime(timezone=True),
}  # fmt: skip


_MYSQL: dict[int, Any] = {  # the same of MySQL
    1: sa.SmallInteger(), 2: sa.SmallInteger(), 3: sa.BigInteger(), 9: sa.Integer(), 5: sa.Double(), 10: sa.Date(),
    7: sa.DateTime(), 12: sa.DateTime(),
}  # fmt: skip


def _described(one: Any, dialect: str) -> Any:
    if dialect != "postgresql":
        return _MYSQL.get(one[1], sa.types.NullType())
    if one[1] == 1700 and one[4] is not None and one[4] < 1000:
        return sa.Numeric(one[4], one[5])
    return _OIDS.get(one[1], sa.types.NullType())


def _is_fast(kind: Any) -> bool:
    if isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float):
        return kind.precision is not None and (kind.scale or 0) <= _PLACES and kind.precision <= 38 - _PLACES
    return isinstance(kind, _FAST) and not isinstance(kind, sa.Enum)


def _selected(wanted: Wanted, select: Any, table: sa.Table, query: str | None) -> Any:
    if wanted.cursor is not None and wanted.cursor not in table.columns:
        raise Refused(f"there is no column {wanted.cursor!r} for the cursor: {', '.join(table.columns.keys())}")
    if wanted.since is None:
        return select if query is None else _text(_bare(query))
    since = _converted(wanted.since, table.c[wanted.cursor].type)
    if query is None:
        return select.where(table.c[wanted.cursor] >= since)
    inner = sa.sql.expression.TextualSelect(_text(_bare(query)), list(table.columns)).subquery("q")
    return sa.select(inner).where(inner.c[wanted.cursor] >= since)


_FROM_TEXT: dict[type, Callable[[str], Any]] = {
    int: int, float: float, decimal.Decimal: decimal.Decimal, dt.date: dt.date.fromisoformat,
}  # fmt: skip


def _converted(since: Any, kind: Any) -> Any:
    """Return a value that somebody wrote as text, as what the column holds."""
    if not isinstance(since, str) or isinstance(kind, sa.types.NullType):
        return since
    try:
        if isinstance(kind, sa.DateTime):
            return moment(since, kind.timezone)
        return _FROM_TEXT.get(kind.python_type, str)(since)
    except (ValueError, ArithmeticError):
        raise Refused(f"the cursor begins at {since!r}, which is no value of a column of {kind}") from None


def _bare(query: str) -> str:
    return query.strip().rstrip(";")


def _text(query: str) -> Any:
    """SQL as its user wrote it: a colon begins no parameter."""
    return sa.text(re.sub(r":(?=\w)", r"\\:", query))


def _typed(table: sa.Table, is_fast: bool) -> Callable[[Any], Any]:
    """connectorx widens whole numbers and decimals, and the other way gives every moment a time zone: give them back
    what they are in the database."""
    types = {column.name: _arrow_type(column.type, is_fast) for column in table.columns}
    kinds = {name: kind for name, kind in types.items() if kind is not None}

    def cast(rows: Any) -> Any:
        fields = [field.with_type(kinds.get(field.name, field.type)) for field in rows.schema]
        return rows.cast(pa.schema(fields))

    return cast


def _arrow_type(kind: Any, is_fast: bool) -> Any:
    if isinstance(kind, sa.DateTime) and not kind.timezone:
        return pa.timestamp("us")
    if isinstance(kind, sa.Integer) and getattr(kind, "unsigned", False):  # of MySQL
        return pa.uint64() if isinstance(kind, sa.BigInteger) else pa.int64()
    if isinstance(kind, sa.SmallInteger):
        return pa.int16()
    if isinstance(kind, sa.Integer):
        return pa.int64() if isinstance(kind, sa.BigInteger) else pa.int32()
    if is_fast and isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float):
        return pa.decimal128(kind.precision, kind.scale or 0)
    return None


# ── services ───────────────────────────────────────────────────────────────────────────────────────


def _rest(wanted: Wanted) -> Any:
    endpoint: Json = {"path": wanted.read["path"]}
    if params := _params(wanted):
        endpoint["params"] = params
    if items := wanted.read.get("items"):
        endpoint["data_selector"] = items
    client: Any = {"base_url": wanted.source["url"].rstrip("/") + "/"}
    if auth := _auth(wanted.source):
        client["auth"] = auth
    wish: Any = {"client": client, "resources": [{"name": NAME, "endpoint": endpoint}]}
    (resource,) = rest_api_resources(wish)
    if wanted.since is None:
        return resource
    return resource.add_filter(lambda item: _is_new(item.get(wanted.cursor), wanted.since))


def _service(wanted: Wanted) -> Any:
    """Return a service as its description says (core.work.services)."""
    name = name_of(wanted.source)
    service = SERVICES[name]
    since = None if wanted.since is None else str(wanted.since)
    try:
        asked = request_of(name, {**wanted.options, **wanted.source}, since)
    except Indescribable as error:
        raise Refused(str(error)) from None
    way, called = service.sent_as
    auth = {"type": "bearer", "token": asked["key"]}
    if way != "bearer":
        auth = {"type": "api_key", "api_key": asked["key"], "name": called, "location": way}
    endpoint = {
        "path": asked["path"], "params": asked["params"], "data_selector": asked["items"], "paginator": service.paging,
    }  # fmt: skip
    client = {"base_url": f"{asked['url']}/", "auth": auth}
    wish: Any = {"client": client, "resources": [{"name": NAME, "endpoint": endpoint}]}
    (resource,) = rest_api_resources(wish)
    if wanted.since is None:
        return resource
    return resource.add_filter(lambda item: _is_new(item.get(wanted.cursor), wanted.since))


def _params(wanted: Wanted) -> Json:
    """`{cursor}` in a parameter becomes the value from which on rows are new; before there is one, it is left out."""
    params = wanted.read.get("params") or {}
    if wanted.since is None:
        return {name: value for name, value in params.items() if "{cursor}" not in str(value)}
    return {name: str(value).replace("{cursor}", str(wanted.since)) for name, value in params.items()}


def _auth(source: Json) -> Json | None:
    if source.get("token"):
        return {"type": "bearer", "token": source["token"]}
    if source.get("username"):
        return {"type": "http_basic", "username": source["username"], "password": source.get("password", "")}
    return None


def _is_new(value: Any, since: Any) -> bool:
    if value is None:
        return False
    if isinstance(value, str) and isinstance(since, str):
        return bool(ordered(value) >= ordered(since))
    return bool(value >= type(value)(since) if isinstance(since, str) else value >= since)


def _sheets(wanted: Wanted) -> Any:
    return dlt.resource(_sheet_rows(wanted), name=NAME)


def _sheet_rows(wanted: Wanted) -> Iterator[Any]:
    source, read = wanted.source, wanted.read
    sheet, cells = quote(read["sheet"], safe=""), quote(read["range"], safe="!:")
    headers = {"Authorization": f"Bearer {source['access_token']}"} if source.get("access_token") else {}
    url = f"{(source.get('url') or SHEETS).rstrip('/')}/v4/spreadsheets/{sheet}/values/{cells}"
    answer = requests.get(url, headers=headers, params={"valueRenderOption": "UNFORMATTED_VALUE"})
    rows = answer.json().get("values") or []
    if read.get("header", True):
        names, rows = [str(name) for name in rows[0]] if rows else [], rows[1:]
    else:
        names = [f"column_{number}" for number in range(1, max(map(len, rows), default=0) + 1)]
    if len(set(names)) < len(names) or "" in names:
        raise Refused(f"the first row of the sheet must name each column once, got {', '.join(names)}")
    if rows:
        yield wanted.newer(pa.table({name: _column(rows, index) for index, name in enumerate(names)}))


def _column(rows: list[list[Any]], index: int) -> Any:
    """Return the cells of a column, of one type: what is mixed becomes text."""
    cells = [row[index] if index < len(row) and row[index] != "" else None for row in rows]
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return pa.array(cells, None if kinds else pa.string())
    if kinds <= {int, float}:
        return pa.array([None if cell is None else float(cell) for cell in cells])
    return pa.array([None if cell is None else str(cell) for cell in cells])


# ── files ──────────────────────────────────────────────────────────────────────────────────────────

MOST_OF_A_BLOCK = 16 << 20  # bytes of CSV from which the types are told


def _s3(wanted: Wanted) -> Any:
    path = f"{places.S3}{wanted.read['path'].removeprefix(places.S3).lstrip('/')}"
    return _files(wanted, *places.find(path, wanted.source, ""))


def _lake(wanted: Wanted) -> Any:
    if wanted.lake_root.startswith(places.HDFS):
        raise Refused("files of a lake on HDFS are read by Spark, not by a sync: write a query")
    return _files(wanted, *places.find(wanted.read["path"], {}, wanted.lake_root))


def _files(wanted: Wanted, files: Any, path: str) -> Any:
    """Files by a pattern: from the first part of the path with a * on; without one, the file, or all of a directory."""
    parts = path.rstrip("/").split("/")
    fixed = next((number for number, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    if fixed == len(parts) and "." in parts[-1] and fixed > 1:
        fixed -= 1
    pattern = "/".join(parts[fixed:]) or "**/*"
    scheme = "file" if "file" in files.protocol else "s3"
    found = filesystem(f"{scheme}://{'/'.join(parts[:fixed])}", credentials=files, file_glob=pattern)
    return (found | _read_files(wanted)).with_name(NAME)


def _read_files(wanted: Wanted) -> Any:
    def rows(items: Any) -> Iterator[Any]:
        for item in items:
            name = item["file_name"].rpartition("/")[2]
            if name.startswith(("_", ".")):
                continue
            yield from map(wanted.newer, _rows_of(wanted.read, item))

    return dlt.transformer(rows, name=NAME)()


def _rows_of(read: Json, item: Any) -> Iterator[Any]:
    if (read.get("format") or ("parquet" if item["file_name"].endswith(".parquet") else "csv")) == "parquet":
        with item.open() as file:
            for piece in pq.ParquetFile(file).iter_batches(PIECE_ROWS):
                yield pa.Table.from_batches([piece])
        return
    with item.open(mode="rb", compression="auto") as file:
        try:
            for piece in _csv(read, file):
                yield pa.Table.from_batches([piece])
        except pa.ArrowInvalid as error:
            raise Refused(f"{item['file_name']} cannot be read as CSV: {str(error).splitlines()[0]}") from None


def _csv(read: Json, file: Any) -> Iterator[Any]:
    reading = csv.ReadOptions(
        block_size=MOST_OF_A_BLOCK, skip_rows=read.get("skip_rows", 0),
        autogenerate_column_names=not read.get("header", True),
    )  # fmt: skip
    converting = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parsing = csv.ParseOptions(delimiter=read.get("delimiter", ","), newlines_in_values=True)
    yield from csv.open_csv(file, read_options=reading, parse_options=parsing, convert_options=converting)


_RESOURCES: dict[str, Callable[[Wanted], Any]] = {
    "database": _database,
    "rest": _rest,
    "s3": _s3,
    "files": _lake,
    "sheets": _sheets,
    SERVICE: _service,
}
