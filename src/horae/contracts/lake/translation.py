"""Sync jobs and sources of this contract in Horae's own words, and back.

What a class of sync has of its own stays in the `options` of the spec, as it was sent; what Horae's agents need of it
is said once more in core.syncs' words. Where the two differ, somebody changed the job by another interface, and it is
that which is shown.

What must stay true: what was sent comes back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from horae.core.model import Job, Json
from horae.core.work.syncs import SERVICE

NO_VALUE = ("", "0", 0, None)  # a last_synced_value that says: from the beginning
DESTINATIONS = {"Hadoop": "files", "Clickhouse": "clickhouse"}
_DESTINATIONS_SHOWN = {name: shown for shown, name in DESTINATIONS.items()}
_ALL_CELLS = "A:ZZZ"

# ── what is read ───────────────────────────────────────────────────────────────────────────────────


def _from_database(own: Json) -> Json:
    """Return a server has several databases; a schema is part of the name of a table."""
    query = own.get("query_statement")
    names = {"database": own.get("database_name"), "query": query, "table": None if query else own.get("table_name")}
    return {name: str(value) for name, value in names.items() if value}


def _from_s3(own: Json) -> Json:
    config = own.get("file_config") or {}
    named = {"header": config.get("include_header"), "delimiter": config.get("delimiter")}
    named["skip_rows"] = config.get("skip_rows")
    folder = str(own.get("folder_path") or "").strip("/")
    read = {"path": f"{own['bucket_name']}/{folder}".rstrip("/"), "format": "csv"}
    return {**read, **{name: value for name, value in named.items() if _fits(name, value)}}


def _fits(name: str, value: Any) -> bool:
    wanted = {"header": bool, "delimiter": str, "skip_rows": int}[name]
    return type(value) is wanted and value != ""


def _from_sheets(own: Json) -> Json:
    """Agents read the first sheet of a document; others are for workers that know their numbers."""
    if own.get("sheet_id") != 0:
        return {}
    return {"sheet": own["spread_sheet_id"], "range": _ALL_CELLS, "header": own.get("include_header") is True}


_READS: Mapping[str, Callable[[Json], Json]] = {
    "jdbc_job": _from_database,
    "generic_jdbc_job": _from_database,
    "amazon_s3_job": _from_s3,
    "google_sheets_job": _from_sheets,
    "google_sheets_job_v2": _from_sheets,
}


READABLE = frozenset(_READS)  # classes of jobs that agents know by themselves


def spec_of(class_name: str, source_id: int, mode: str, own: Json, destinations: list[Json]) -> Json:
    source: Json = {"source": {"type": SERVICE, "name": class_name.removesuffix("_job")}}
    spec = {"source_id": source_id} if source_id else source
    read = _read_of(class_name, own) if source_id else {}
    cursor, begin = own.get("incremental_column"), own.get("last_synced_value")
    more = {"cursor": cursor or None, "begin": None if begin in NO_VALUE else begin, "options": own or None}
    more["primary_key"] = own.get("primary_key") or None
    spec = {**spec, "mode": mode, "destinations": destinations, **({"read": read} if read else {})}
    return {**spec, **{name: value for name, value in more.items() if value is not None}}


def _read_of(class_name: str, own: Json) -> Json:
    return _READS[class_name](own) if class_name in _READS else {}


def destinations_of(names: list[str], database: Any, table: Any) -> list[Json]:
    return [{"type": DESTINATIONS[name], "database": database, "table": table} for name in names]


def shown_class(job: Job, sent: Json) -> str:
    """Return the class of a sync job: as sent, or, of a job made elsewhere, the one that is most like it."""
    spec, source = job.spec, job.spec.get("source") or {}
    if isinstance(name := sent.get("class_name"), str):
        return name
    if source.get("type") == SERVICE:
        return f"{source['name']}_job"
    read: Json = spec.get("read") or {}
    return "google_sheets_job_v2" if "sheet" in read else "amazon_s3_job" if "path" in read else "jdbc_job"


def shown_own(class_name: str, spec: Json) -> Json:
    """Return the fields that this class has of its own."""
    own, read = dict(spec.get("options") or {}), spec.get("read") or {}
    is_sent = bool(own) and read in ((_read_of(class_name, own), _as_before(own)) if spec.get("source_id") else ({},))
    if not is_sent and class_name in ("jdbc_job", "generic_jdbc_job"):
        named = {"database_name": read.get("database", ""), "table_name": read.get("table", "")}
        own |= {**named, "query_statement": read.get("query")}
    if spec.get("cursor") != (own.get("incremental_column") or None):
        own["incremental_column"] = spec.get("cursor")
    return own


def _as_before(own: Json) -> Json:
    """Return what jobs of earlier versions read: their database was taken for a schema."""
    if query := own.get("query_statement"):
        return {"query": query}
    return {"table": ".".join(str(own[name]) for name in ("database_name", "table_name") if own.get(name))}


def shown_destinations(spec: Json) -> Json:
    places = spec["destinations"]
    first: Json = places[0] if places else {}
    database, table = first.get("database"), first.get("table")
    if table is None:
        database, _, table = str(first.get("path", "")).rpartition("/")
    elif database is None:
        database, _, table = str(table).rpartition(".")
    shown = [_DESTINATIONS_SHOWN.get(place["type"], place["type"].capitalize()) for place in places]
    return {"dest_database_name": database, "dest_table_name": table, "destinations": shown}


# ── sources ────────────────────────────────────────────────────────────────────────────────────────

_TYPES = {"jdbc_source": "database", "amazon_s3": "s3", "google_sheet_source": "sheets"}
_NAMES: Mapping[str, Mapping[str, str]] = {  # class → its field → Horae's
    "jdbc_source": {"jdbc_url": "url"},
    "amazon_s3": {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"},
}


def config_of(class_name: str, own: Json) -> Json:
    names = _NAMES.get(class_name, {})
    kind: Json = {"type": _TYPES.get(class_name, SERVICE)}
    if kind["type"] == SERVICE:
        kind["service"] = class_name.removesuffix("_source")
    return {**{names.get(name, name): value for name, value in own.items()}, **kind}


def shown_config(class_name: str, config: Json) -> Json:
    names = {ours: theirs for theirs, ours in _NAMES.get(class_name, {}).items()}
    return {names.get(name, name): value for name, value in config.items() if name not in ("type", "service")}
