"""Syncs as documents write them."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.secrets import fields, references
from horae.core.work import kinds, syncs
from horae.core.work.specs import parse_job
from horae.errors import Invalid

DATABASE = {"type": "database", "url": "postgresql://reader@db/shop", "password": {"secret": "SHOP"}}
TABLE = {"type": "postgresql", "url": "postgresql://dw/main", "password": {"secret": "DW"}, "table": "lake.orders"}
SYNC: dict[str, Any] = {"source": DATABASE, "read": {"table": "orders"}, "mode": "full", "destinations": [TABLE]}


def spec_of(**changes: Any) -> Any:
    work = {name: value for name, value in {**SYNC, **changes}.items() if value is not ...}
    return parse_job({"name": "n", "kind": "sync", **work}).spec


def problem(**changes: Any) -> tuple[str, str]:
    with pytest.raises(Invalid) as caught:
        spec_of(**changes)
    first = caught.value.listed()[0]
    return first.path, first.code


def test_a_sync_is_kept_as_written() -> None:
    assert spec_of() == SYNC
    whole = {**SYNC, "mode": "incremental", "cursor": "id", "begin": 7, "primary_key": ["id"], "options": {"a": 1}}
    assert spec_of(**whole) == whole
    assert spec_of(primary_key="id")["primary_key"] == ["id"]


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {"type": "rest", "url": "http://h", "token": "t"}, "read": {"path": "a", "items": "data"}},
        {"source": {"type": "s3", "endpoint": "http://h"}, "read": {"path": "b/*.csv", "header": False}},
        {"source": {"type": "sheets"}, "read": {"sheet": "x", "range": "A:B"}},
        {"source": {"type": "files"}, "read": {"path": "a/b.parquet"}},
        {"source": {"type": "service", "name": "ads"}, "read": ..., "mode": "incremental"},
        {"source": ..., "source_id": 4, "mode": "incremental"},
        {"destinations": [{"type": "clickhouse", "table": "t"}, {"type": "files", "path": "s3://b/x"}]},
    ],
)
def test_every_type_of_source_and_destination_can_be_written(changes: dict[str, Any]) -> None:
    spec = spec_of(**changes)
    assert {name: spec[name] for name, value in changes.items() if value is not ...} == {
        name: value for name, value in changes.items() if value is not ...
    }


@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({"source": ...}, "source", "E_REQUIRED"),
        ({"source_id": 3}, "source", "E_FIELD_CONFLICT"),
        ({"source": {"type": "fax"}}, "source.type", "E_ENUM"),
        ({"source": {"type": "database"}}, "source.url", "E_REQUIRED"),
        ({"source": {**DATABASE, "token": "x"}}, "source.token", "E_UNKNOWN_FIELD"),
        ({"source": {**DATABASE, "password": 7}}, "source.password", "E_TYPE"),
        ({"read": ...}, "read", "E_REQUIRED"),
        ({"read": {}}, "read.table", "E_REQUIRED"),
        ({"read": {"table": "a", "query": "select 1"}}, "read.query", "E_FIELD_CONFLICT"),
        ({"read": {"path": "a"}}, "read.path", "E_UNKNOWN_FIELD"),
        ({"source": {"type": "files"}, "read": {"path": "../a"}}, "read.path", "E_PATTERN"),
        ({"source": {"type": "files"}, "read": {"path": "/etc/passwd"}}, "read.path", "E_PATTERN"),
        ({"mode": "sometimes"}, "mode", "E_ENUM"),
        ({"mode": "incremental"}, "cursor", "E_REQUIRED"),
        ({"begin": [1]}, "begin", "E_TYPE"),
        ({"primary_key": [7]}, "primary_key", "E_TYPE"),
        ({"destinations": []}, "destinations", "E_EMPTY"),
        ({"destinations": ["mars"]}, "destinations[0]", "E_TYPE"),
        ({"destinations": [{"type": "files"}]}, "destinations[0].path", "E_REQUIRED"),
        ({"destinations": [{"type": "files", "path": "file:///etc"}]}, "destinations[0].path", "E_PATTERN"),
        ({"destinations": [{"type": "files", "database": "/", "table": "t"}]}, "destinations[0].database", "E_PATTERN"),
        ({"destinations": [{"type": "files", "path": "a", "format": "xls"}]}, "destinations[0].format", "E_ENUM"),
        ({"destinations": [TABLE, TABLE]}, "destinations", "E_FIELD_CONFLICT"),
        ({"options": []}, "options", "E_TYPE"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_its_place(changes: dict[str, Any], path: str, code: str) -> None:
    assert problem(**changes) == (path, code)


def test_passwords_are_named_hidden_and_filled_wherever_they_stand() -> None:
    spec = spec_of(destinations=[TABLE, {"type": "clickhouse", "table": "t", "password": "hunter2"}])
    assert references.names_in(spec) == {"SHOP", "DW"}
    shown = kinds.shown_spec("sync", spec)
    assert shown["source"]["password"] == {"secret": "SHOP"}
    assert [one["password"] for one in shown["destinations"]] == [{"secret": "DW"}, fields.MASK]
    assert kinds.kept_spec("sync", shown, spec) == spec
    filled = references.filled(spec, {"SHOP": "one", "DW": "two"})
    assert (filled["source"]["password"], filled["destinations"][0]["password"]) == ("one", "two")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TABLE, {**TABLE, "url": "postgresql://admin:x@DW:5432/main"}),
        ({**TABLE, "table": "orders"}, {**TABLE, "table": "public.orders"}),
        ({"type": "files", "path": "a//b/"}, {"type": "files", "database": "a", "table": "b"}),
        ({"type": "clickhouse", "table": "t"}, {"type": "clickhouse", "database": "default", "table": "t"}),
    ],
)
def test_who_writes_one_table_has_one_lock(one: Any, other: Any) -> None:
    first, second = (syncs.locks_of({"destinations": [place]}) for place in (one, other))
    assert first == second
    assert first != syncs.locks_of(
        {"destinations": [{**one, "path": "x"} if one["type"] == "files" else {**one, "table": "x"}]}
    )


def test_a_lock_tells_no_secret() -> None:
    place = {**TABLE, "url": "postgresql://admin:hunter2@dw/main"}
    assert "hunter2" not in str(syncs.locks_of({"destinations": [place]}))


def test_a_source_that_agents_do_not_know_is_named():
    assert "'mongo_db'" in syncs.unknown_source({"type": "service", "service": "mongo_db"})
    assert "''" not in syncs.unknown_source({"type": "service"})
