"""What handlers say that they return, and results as somebody wants them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional, TypedDict

import msgspec
import pydantic
import pytest

from horae import Cancellation, Context, handler
from horae.context.results import convert_result
from horae.errors import Invalid
from horae.testing import Handled, run_handler


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Row:
    price: int
    name: str = ""


@dataclass
class Total:
    rows: list[Row]
    at: datetime | None = None
    names: set[str] = field(default_factory=set)
    share: Decimal = Decimal("0.5")
    colour: Colour = Colour.RED
    path: Path | None = None


class Typed(TypedDict):
    count: int


class Packed(msgspec.Struct, rename="camel", tag="packed"):
    row_count: int


class Model(pydantic.BaseModel):
    row_count: int = pydantic.Field(alias="rowCount")
    note: str = "none"


@dataclass
class Cheaper(Total):
    saved: int = 0


def ended(value: Any, annotation: Any) -> Handled:
    def give(context: Context) -> Any:
        return value

    give.__annotations__["return"] = annotation
    return run_handler(handler(give))


FULL = Total([Row(1)], datetime(2027, 1, 15, tzinfo=UTC), {"a"}, path=Path("/tmp"))
FITS = [
    (FULL, Total), (FULL, "Total"), (Cheaper([]), Total), ([FULL], list[Total]), (None, Optional[Total]),  # noqa: UP045
    ({"rows": [{"price": 1}]}, Total), ({"count": 3, "more": "x"}, Typed), (Packed(3), Packed),
    (Model(rowCount=3), Model), ({"a": Typed(count=1)}, dict[str, Typed]), (Row(2), Row | Total),
]  # fmt: skip


@pytest.mark.parametrize(("value", "annotation"), FITS)
def test_a_result_that_fits_is_kept(value: Any, annotation: Any) -> None:
    found = ended(value, annotation)
    assert (found.state, found.message) == ("succeeded", "")


MISFITS = [
    (Total([Row(1), Row("x")]), Total, 'result.rows[1].price: expected int, got "x"'),  # type: ignore[arg-type]
    (Total([], names=3), Total, "result.names: expected list, got 3"),  # type: ignore[arg-type]
    ({"count": "3"}, Typed, 'result.count: expected int, got "3"'),
    ({}, Typed, "result.count: is missing: expected int"),
    ([{"count": 1}, {"count": None}], list[Typed], "result[1].count: expected int, got null"),
    (None, Total, "result: expected mapping, got null"),
    ({"note": "n"}, Model, "result.row_count: is missing: expected int"),
]


@pytest.mark.parametrize(("value", "annotation", "message"), MISFITS)
def test_a_result_that_does_not_fit_fails_with_its_path(value: Any, annotation: Any, message: str) -> None:
    found = ended(value, annotation)
    assert (found.state, found.result) == ("failed", None)
    assert found.message == f"E_RESULT: {message}"
    assert message in found.log


@pytest.mark.parametrize("annotation", [dict, dict[str, int], Any, None, "Unknown", int, list, object, "no such", 3])
def test_an_annotation_that_says_nothing_of_fields_changes_nothing(annotation: Any) -> None:
    assert ended({"a": "x"}, annotation).result == {"a": "x"}


def test_a_type_without_a_form_changes_nothing() -> None:
    @dataclass
    class Strange:
        what: complex

    assert ended({"what": "x"}, Strange).state == "succeeded"


def test_all_that_is_wrong_is_in_the_log() -> None:
    found = ended({"rows": [{"price": "x"}, {}]}, Total)
    assert found.message == 'E_RESULT: result.rows[0].price: expected int, got "x" (and 1 more)'
    assert "result.rows[1].price: is missing: expected int\n" in found.log


def test_what_a_class_returns_is_held_against_its_execute() -> None:
    @handler
    class Count:
        def execute(self, job_data: str | None, cancellation: Cancellation) -> Typed:
            return {"count": "x"}  # type: ignore[typeddict-item]

    assert run_handler(Count).message == 'E_RESULT: result.count: expected int, got "x"'


def test_an_async_handler_with_parameters_is_held_to_what_it_says() -> None:
    @handler
    async def count(price: int) -> Row:
        return Row(price if price else "none")  # type: ignore[arg-type]

    assert run_handler(count, {"price": 3}).result == {"price": 3, "name": ""}
    assert run_handler(count, {"price": 0}).message == 'E_RESULT: result.price: expected int, got "none"'


# ── results of others ──


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        ({"price": 3}, Row, Row(3)),
        ({"type": "packed", "rowCount": 3}, Packed, Packed(3)),
        ({"rowCount": 3}, Model, Model(rowCount=3)),
        ("2027-01-15T00:00:00Z", datetime, datetime(2027, 1, 15, tzinfo=UTC)),
        (3, int, 3),
    ],
)
def test_a_result_becomes_what_is_asked_for(value: Any, wanted: Any, expected: Any) -> None:
    assert convert_result(value, wanted) == expected


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        ({"rows": [{"price": "x"}]}, Total, 'result.rows[0].price: expected int, got "x"'),
        ({"rowCount": "x"}, Model, "result.rowCount: Input should be a valid integer"),
        ({}, type("Strange", (), {}), "a result cannot become"),
    ],
)
def test_a_result_that_cannot_become_it_is_named_with_its_path(value: Any, wanted: Any, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        convert_result(value, wanted)
    first = refused.value.listed()[0]
    assert first.code == "E_RESULT"
    assert message in f"{first.path}: {first.message}"


@handler
def caller(context: Context) -> int:
    return context.call("totals", returns=Row).price


def test_a_handler_has_what_it_called_as_a_type() -> None:
    assert run_handler(caller, calls=[{"price": 3}]).result == 3
    refused = run_handler(caller, calls=[{"price": "x"}])
    assert refused.state == "failed"
    assert 'expected int, got "x"' in refused.message
