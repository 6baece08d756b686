"""Syncs: from where, what, how, and whereto data is copied; the canonical spec of kind `sync`.

    {"source": {"type", …} or "source_id", "read": {"table" | "query" | "path" | "sheet", …},
     "mode": "full" | "incremental", "cursor"?, "begin"?, "primary_key"?, "destinations": [{"type", …}, …], "options"?}

`cursor` is the column by which an incremental sync knows what is new, `begin` the value at which the very first one
starts. `options` belong to sources that only workers outside Horae know; nothing here looks into them.

What must stay true: a reader collects problems and never raises; equal work has equal specs; two syncs that could
write one table have a name of `locks_of` in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from horae.core.fields import Fields, fields_of, join, shown
from horae.core.model import Json
from horae.core.secrets.references import text_or_reference
from horae.core.work import services

SYNC = "sync"  # the kind
MODES = ("full", "incremental")
FORMATS = ("parquet", "csv")
MAX_ADDRESS = 2048
MAX_NAME = 256
MAX_QUERY = 64 * 1024
MAX_KEY = 16  # columns of a primary key
MAX_DESTINATIONS = 10
MAX_OPTIONS = 64 * 1024  # bytes of JSON
LARGEST_ID = 2**63 - 1
FAR = ("s3://",)  # begin the address of files that are not below the root of the lake
SERVICE = "service"  # a source that is described (core.work.services), or that only workers outside Horae know


class Place(NamedTuple):
    """A type of source or destination: its fields, and which of them must be there."""

    fields: tuple[str, ...]
    needed: tuple[str, ...] = ()


SECRET_FIELDS = frozenset({"password", "token", "access_token", "secret_access_key"})
_STORAGE = ("endpoint", "path_style", "access_key_id", "secret_access_key", "region")
SOURCES: Mapping[str, Place] = {
    "database": Place(("url", "username", "password"), ("url",)),
    "rest": Place(("url", "username", "password", "token"), ("url",)),
    "s3": Place(_STORAGE),
    "files": Place(()),
    "sheets": Place(("url", "access_token")),
    SERVICE: Place(("name",), ("name",)),
}
READS: Mapping[str, Place] = {
    "database": Place(("database", "table", "query")),
    "rest": Place(("path", "items", "params"), ("path",)),
    "s3": Place(("path", "format", "header", "delimiter", "skip_rows"), ("path",)),
    "files": Place(("path", "format", "header", "delimiter", "skip_rows"), ("path",)),
    "sheets": Place(("sheet", "range", "header"), ("sheet", "range")),
    SERVICE: Place(()),
}
DESTINATIONS: Mapping[str, Place] = {
    "postgresql": Place(("url", "username", "password", "table"), ("url", "table")),
    "clickhouse": Place(("url", "username", "password", "database", "table"), ("table",)),
    "files": Place(("path", "database", "table", "format", *_STORAGE)),
}
FIELDS = frozenset({"source", "source_id", "read", "mode", "cursor", "begin", "primary_key", "destinations", "options"})
_ANY_READ = Place(tuple(dict.fromkeys(name for place in READS.values() for name in place.fields)))


def read_sync(fields: Fields) -> Json:
    source = _source(fields)
    mode = fields.values.get("mode", MODES[0])
    if mode not in MODES:
        fields.fault("mode", "E_ENUM", f"one of {', '.join(MODES)} expected")
    cursor = fields.text("cursor", MAX_NAME)
    spec: Json = {
        **source,
        "read": _read(fields, source.get("source", {}).get("type")),
        "mode": mode,
        "destinations": _destinations(fields),
    }
    if mode == "incremental" and cursor is None and source.get("source", {}).get("type") not in (None, SERVICE):
        hint = "name the column that only grows, such as cursor: updated_at"
        fields.fault("cursor", "E_REQUIRED", "an incremental sync needs the column that tells what is new", hint)
    more = {
        "cursor": cursor,
        "begin": _begin(fields),
        "primary_key": _primary_key(fields),
        "options": fields.json("options", MAX_OPTIONS),
    }
    return {**spec, **{name: value for name, value in more.items() if value not in (None, [], {})}}


def _source(fields: Fields) -> Json:
    source_id = fields.number("source_id", 0, 0, LARGEST_ID, whole=True)
    if "source" in fields.values and source_id:
        fields.fault("source", "E_FIELD_CONFLICT", "source and source_id are two ways to say the same", "keep one")
    if "source" in fields.values:
        return {"source": _place(fields, fields.values["source"], fields.at("source"), SOURCES, "a source")}
    if not source_id:
        hint = "write source: {type: database, url: …}"
        fields.fault("source", "E_REQUIRED", "a sync needs a source, or the source_id of a kept one", hint)
    return {"source_id": source_id}


def _place(outer: Fields, value: Any, path: str, known: Mapping[str, Place], what: str) -> Json:
    """One of several types of mapping, each with its fields."""
    fields = fields_of(value, path, outer.problems, f"{what} must be a mapping with a type")
    if fields is None:
        return {}
    kind = fields.values.get("type")
    if not isinstance(kind, str) or kind not in known:
        got = shown(kind) if isinstance(kind, str) else "none"
        fields.fault("type", "E_ENUM", f"one of {', '.join(known)} expected, got {got}")
        return {}
    found = _members(fields, known[kind], f"{what} of type {kind}", {"type"})
    return {"type": kind, **found}


def _members(fields: Fields, place: Place, what: str, besides: set[str]) -> Json:
    fields.refuse_others(frozenset(place.fields) | besides)
    for name in place.needed:
        if name not in fields.values:
            fields.fault(name, "E_REQUIRED", f"{what} needs it")
    found = {name: _member(fields, name) for name in place.fields if name in fields.values}
    return {name: value for name, value in found.items() if value is not None}


def _member(fields: Fields, name: str) -> Any:
    if name in SECRET_FIELDS:
        return text_or_reference(fields, name, lambda: fields.text(name, MAX_ADDRESS))
    if name in _READERS:
        return _READERS[name](fields, name)
    return fields.text(name, MAX_ADDRESS)


def _format(fields: Fields, name: str) -> str | None:
    value = fields.values[name]
    if value not in FORMATS:
        fields.fault(name, "E_ENUM", f"one of {', '.join(FORMATS)} expected")
        return None
    return str(value)


def _inside(fields: Fields, name: str) -> str | None:
    """Return a name that can be a directory."""
    value = fields.text(name, MAX_NAME)
    if value is not None and ("/" in value or value.startswith((".", "_"))):
        fields.fault(name, "E_PATTERN", "a name without / that begins with neither a dot nor _ expected")
        return None
    return value


def _query(fields: Fields, name: str) -> str | None:
    value = fields.values[name]
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_QUERY or "\0" in value:
        fields.fault(name, "E_TYPE", f"a query of up to {MAX_QUERY} characters expected")
        return None
    return value


_READERS: Mapping[str, Any] = {
    "format": _format,
    "query": _query,
    "header": Fields.flag,
    "path_style": Fields.flag,
    "params": lambda fields, name: fields.json(name, MAX_OPTIONS),
    "skip_rows": lambda fields, name: fields.number(name, 0, 0, 1_000_000, whole=True),
}


def _read(fields: Fields, kind: str | None) -> Json:
    """Return what is read: fields of the source's type, or, where a kept source is named, of any."""
    if "read" not in fields.values:
        if kind not in (None, SERVICE):
            fields.fault("read", "E_REQUIRED", "a sync must say what it reads", "write read: {table: NAME}")
        return {}
    inner = fields_of(fields.values["read"], fields.at("read"), fields.problems, "must be a mapping")
    if inner is None:
        return {}
    found = _members(inner, READS[kind] if kind else _ANY_READ, f"what is read from {kind}", set())
    if "table" in inner.values and "query" in inner.values:
        inner.fault("query", "E_FIELD_CONFLICT", "a table or a query is read, not both", "keep one")
    elif kind == "database" and "database" in inner.values:
        inner.fault("database", "E_FIELD_CONFLICT", "the url of the source names the database", "leave it out here")
    elif kind == "database" and not {"table", "query"} & inner.values.keys():
        inner.fault("table", "E_REQUIRED", "what is read from a database is a table or a query")
    elif kind == "files":
        _check_path(inner, "path", is_far=False)
    return found


def _check_path(fields: Fields, name: str, *, is_far: bool) -> None:
    """A path below the root of the lake; elsewhere, if may be, only by an address."""
    path = fields.values.get(name)
    if not isinstance(path, str) or (is_far and path.startswith(FAR)):
        return
    if path.startswith(("/", "~", ".")) or ".." in path.split("/") or ":" in path:
        far = ", or an address such as s3://bucket/path" if is_far else ""
        fields.fault(name, "E_PATTERN", f"a path below the root of the lake, without .., expected{far}")


def _begin(fields: Fields) -> str | int | float | None:
    value = fields.values.get("begin")
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    fields.wrong_type("begin", "must be text or a number")
    return None


def _primary_key(fields: Fields) -> list[str]:
    value = fields.values.get("primary_key", [])
    names = [value] if isinstance(value, str) else fields.items("primary_key", MAX_KEY, "columns")
    if any(not isinstance(name, str) or not name or len(name) > MAX_NAME for name in names):
        fields.fault("primary_key", "E_TYPE", "the name of a column, or a list of them, expected")
        return []
    return list(names)


def _destinations(fields: Fields) -> list[Json]:
    if "destinations" not in fields.values:
        hint = "write destinations: [{type: files, path: NAME}]"
        fields.fault("destinations", "E_REQUIRED", "a sync needs at least one table or directory to fill", hint)
    path, found = fields.at("destinations"), []
    for index, item in enumerate(fields.items("destinations", MAX_DESTINATIONS, "destinations", least=1)):
        found.append(_place(fields, item, f"{path}[{index}]", DESTINATIONS, "a destination"))
        if found[-1].get("type") == "files":
            _check_files(Fields(item, f"{path}[{index}]", fields.problems))
    names = [name for one in found for name in _lock_of(one)]
    if len(set(names)) < len(names):
        fields.fault("destinations", "E_FIELD_CONFLICT", "two of them are the same table", "keep one")
    return found


def _check_files(fields: Fields) -> None:
    _check_path(fields, "path", is_far=True)
    names = [name for name in ("database", "table") if name in fields.values]
    for name in names:
        _inside(fields, name)
    if ("path" in fields.values) == bool(names) or len(names) == 1:
        fields.fault("path", "E_REQUIRED", "files lie at a path, or at that of a database and table")


# ── what is written ────────────────────────────────────────────────────────────────────────────────


def locks_of(spec: Json) -> tuple[str, ...]:
    """Return the names of what a sync writes, one each, alike for everybody who writes the same."""
    return tuple(sorted({name for one in spec.get("destinations", ()) for name in _lock_of(one)}))


def _lock_of(destination: Json) -> list[str]:
    kind = destination.get("type")
    if kind == "postgresql" and isinstance(destination.get("url"), str) and isinstance(destination.get("table"), str):
        schema, _, table = destination["table"].rpartition(".")
        return [f"postgresql {server_of(destination['url'], 5432)} {schema or 'public'}.{table}"]
    if kind == "clickhouse":
        server = f"{server_of(destination['url'], 8123)} " if destination.get("url") else ""
        return [f"clickhouse {server}{destination.get('database', 'default')}.{destination.get('table')}"]
    if kind == "files":
        path = nameless(files_path(destination))
        return [f"files {path if '://' in path else f'/{path}'}"]
    return []


def nameless(address: str) -> str:
    """Return an address without who asks, which may hold a secret: another asks for the same place."""
    return re.sub(r"://[^/@\s]*@", "://", address)


def server_of(url: str, port: int) -> str:
    """host:port/database of an address, without who logs in and how."""
    try:
        parts = urlsplit(url.removeprefix("jdbc:"))
        host, given = (parts.hostname or "").lower(), parts.port or port
    except ValueError:
        return re.sub(r"^.*@", "", url)
    return f"{'127.0.0.1' if host == 'localhost' else host}:{given}{parts.path.rstrip('/')}"


def files_path(destination: Json) -> str:
    """Return where the files of a destination lie: a path below the root of the lake, or an address."""
    path = destination.get("path") or f"{destination.get('database')}/{destination.get('table')}"
    begun, mark, rest = path.rpartition("://")
    return f"{begun}{mark}{'/'.join(part for part in rest.split('/') if part not in ('', '.'))}"


def unknown_source(source: Json) -> str:
    """Why a sync from this source is not done here; empty when it is."""
    kind = source.get("type")
    if kind == SERVICE and services.name_of(source) not in services.SERVICES:
        name = shown(services.name_of(source) or "this source")
        return f"agents cannot read from {name}: only workers that pull their work over HTTP may know it"
    return "" if kind in SOURCES else f"{join('source', 'type')}: one of {', '.join(SOURCES)} expected"


# ── cursors ────────────────────────────────────────────────────────────────────────────────────────


def first_cursor(spec: Json) -> Json | None:
    """Return where a sync begins that has not come any way yet; None: at the beginning."""
    return {"value": spec["begin"]} if "begin" in spec else made_cursor(spec.get("options", {}))


_CURSOR_WORDS = {"last_synced_value": "value", "incremental_time": "incremental_time"}


def made_cursor(said: Json) -> Json | None:
    """Return the cursor that the words of a class of sync come to; "0" says that nothing was synced yet."""
    return {
        name: said[word] for word, name in _CURSOR_WORDS.items() if said.get(word) not in (None, "", 0, "0")
    } or None


def cursor_words(cursor: Any) -> Json:
    """Return a cursor in these words; what it does not say is left out."""
    said = cursor if isinstance(cursor, Mapping) else {}
    return {word: said[name] for word, name in _CURSOR_WORDS.items() if name in said}
