"""A form made from the parameters of a handler, and what is written into it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from horae.context import Context
from horae.context.signatures import signature_of
from horae.core.shapes import find_problems
from horae.errors import Invalid
from horae.web.pages.run_form import Field, fields_of, filled, problems_by_field, read

BERLIN = "Europe/Berlin"


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Item:
    price: int


def report(
    context: Context, name: str, count: Annotated[int, msgspec.Meta(ge=1, le=9)], share: float = 0.5,
    is_full: bool = False, size: Size = Size.SMALL, mode: Literal["a", "b"] = "a", day: date | None = None,
    at: datetime | None = None, tags: list[str] | None = None, items: tuple[Item, ...] = (),
) -> None: ...  # fmt: skip


def schema_of(function: Any) -> dict[str, Any]:
    found = signature_of(function)
    assert found is not None
    return found.schema


def form_of(function: Any, data: dict[str, Any] | None = None, zone: str = "UTC") -> list[Field]:
    return fields_of(schema_of(function), data or {}, zone)


def test_every_parameter_has_a_field_of_its_kind() -> None:
    kinds = {field.path: field.kind for field in form_of(report)}
    assert kinds == {
        "data.name": "text", "data.count": "number", "data.share": "number", "data.is_full": "choice",
        "data.size": "choice", "data.mode": "choice", "data.day": "date", "data.at": "moment", "data.tags": "json",
        "data.items": "json",
    }  # fmt: skip
    count, name = form_of(report)[:2]
    assert name.is_needed
    assert (count.least, count.most, count.step, count.is_needed) == (1, 9, "1", True)


def test_what_is_written_becomes_data_that_the_handler_takes() -> None:
    sent = {
        "data.name": "x", "data.count": "3", "data.share": "0.25", "data.is_full": "true", "data.size": '"large"',
        "data.day": "2026-11-18", "data.at": "2026-11-18T10:30", "data.tags": '["a",\r\n "b"]',
        "data.items": '[{"price": 2}]', "data.mode": "",
    }  # fmt: skip
    data = read(form_of(report), sent, BERLIN)
    assert data == {
        "name": "x", "count": 3, "share": 0.25, "is_full": True, "size": "large", "day": "2026-11-18",
        "at": "2026-11-18T10:30:00+01:00", "tags": ["a", "b"], "items": [{"price": 2}],
    }  # fmt: skip
    assert list(find_problems(schema_of(report), data, "data")) == []


@pytest.mark.parametrize("zone", ["UTC", BERLIN])
def test_a_form_that_is_sent_as_it_was_shown_gives_the_data_that_the_job_has(zone: str) -> None:
    own = {
        "name": "two\nlines", "count": 10**20, "share": 1.0, "is_full": False, "size": "large",
        "day": "2026-11-18", "at": "2026-10-25T01:30:00.123456Z", "tags": [], "items": [{"price": 1}],
    }  # fmt: skip
    fields = form_of(report, own, zone)
    shown = {field.path: field.text.replace("\n", "\r\n") for field in fields}  # as browsers send it
    assert read(fields, shown, zone) == own


def test_an_empty_field_is_left_out_or_null_where_it_must_be_given() -> None:
    def handle(day: date | None, name: str, note: str = "") -> None: ...

    assert read(form_of(handle), {"data.name": " ", "data.day": "", "data.note": ""}, "UTC") == {"day": None}


def test_what_cannot_be_read_is_named_by_its_field() -> None:
    sent = {"data.name": "x", "data.count": "many", "data.tags": "[1", "data.items": "{"}
    with pytest.raises(Invalid) as caught:
        read(form_of(report), sent, "UTC")
    assert {one.path: one.code for one in caught.value.listed()} == {
        "data.tags": "E_JSON_SYNTAX", "data.items": "E_JSON_SYNTAX",
    }  # fmt: skip
    data = read(form_of(report), {"data.name": "x", "data.count": "many"}, "UTC")
    assert data is not None
    assert data["count"] == "many"  # whoever checks the data says what is wrong with it


def test_problems_stand_beside_the_field_that_they_lie_in() -> None:
    schema, data = schema_of(report), {"name": "x", "count": 12, "items": [{"price": "cheap"}], "nam": 1}
    error = Invalid.of(list(find_problems(schema, data, "data")))
    found = problems_by_field(form_of(report), error)
    assert {path: [one.path for one in them] for path, them in found.items()} == {
        "data.count": ["data.count"], "data.items": ["data.items[0].price"], "": ["data.nam"],
    }  # fmt: skip


def test_where_nothing_is_known_all_of_the_data_is_one_field() -> None:
    [field] = fields_of(None, {"a": 1}, "UTC")
    assert (field.path, field.kind, field.text) == ("data", "json", '{\n  "a": 1\n}')
    assert read([field], {"data": ""}, "UTC") is None
    assert read([field], {"data": '{"b": 2}'}, "UTC") == {"b": 2}
    with pytest.raises(Invalid, match="an object expected"):
        read([field], {"data": "[1]"}, "UTC")


def test_what_a_handler_takes_beside_its_parameters_has_a_field_too() -> None:
    def handle(name: str, **others: Any) -> None: ...

    fields = form_of(handle, {"name": "x", "other": 1})
    assert [field.path for field in fields] == ["data.name", "data"]
    assert read(fields, {"data.name": "y", "data": '{"more": 2}'}, "UTC") == {"name": "y", "more": 2}
    assert read(fields, {"data.name": "y", "data": ""}, "UTC") == {"name": "y"}


def test_what_somebody_wrote_stays_in_the_fields() -> None:
    assert [field.text for field in filled(form_of(report), {"data.name": "mine"})][:2] == ["", "mine"]
