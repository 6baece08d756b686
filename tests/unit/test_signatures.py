"""What handlers' parameters ask for, and what they are given of the data."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from horae.context import Context
from horae.context.signatures import bind, signature_of
from horae.core.shapes import find_problems
from horae.errors import Invalid, Problem


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Row:
    name: str
    price: int = 0


@dataclass
class Report:
    rows: list[Row]
    colour: Colour = Colour.RED
    at: datetime | None = None
    into: Path | None = None
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Placed:
    n: int
    into: Path = Path("here")


class Loose(TypedDict, total=False):
    limit: Annotated[int, msgspec.Meta(ge=0, le=9)]


class Choosy(msgspec.Struct):
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")


class Silent:
    def write(self, data: bytes) -> None: ...

    def note_progress(self, progress: Any) -> None: ...

    def is_stopped(self) -> bool:
        return False


def given(data: Any) -> Context:
    return Context(Silent(), 1, 1, 1, 1, "job", 0, data, {})


def call(function: Any, **data: Any) -> Any:
    signature = signature_of(function)
    assert signature is not None
    made = bind(function, signature)(given(data))
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def refused(function: Any, data: Any) -> list[Problem]:
    """Return what is wrong with data: what a run says, which must be all that a submit says."""
    signature = signature_of(function)
    assert signature is not None
    with pytest.raises(Invalid) as caught:
        signature.arguments(given(data))
    assert caught.value.code == "E_DATA"
    before = list(find_problems(signature.schema, data, "data"))
    assert before in ([], caught.value.listed())
    return caught.value.listed()


def said(problems: list[Problem]) -> list[str]:
    return [f"{each.path}: {each.message}" for each in problems]


def report(context: Context, data: Report) -> Any:
    return data


async def add(a: int, b: int = 2) -> int:
    return a + b


def with_context(ctx, amount: Decimal) -> Any:  # type: ignore[no-untyped-def]
    return ctx.run_id, amount


def limited(data: Loose) -> Any:
    return data


def placed(data: Placed) -> Any:
    return data


def rest(a: int, **more: Any) -> Any:
    return a, more


def test_a_handler_of_its_context_alone_is_called_as_it_is() -> None:
    def plain(anything):  # type: ignore[no-untyped-def]
        return anything

    def annotated(it: Context) -> None: ...

    def passing(*args: Any, **named: Any) -> None: ...

    assert [signature_of(each) for each in (plain, annotated, passing)] == [None, None, None]


def test_data_is_converted_to_the_type_of_its_parameter() -> None:
    made = call(
        report, rows=[{"name": "a"}, {"name": "b", "price": 3}], colour="blue", at="2026-01-31T08:00:00Z", into="/x"
    )
    assert made == Report(
        [Row("a"), Row("b", 3)], Colour.BLUE, datetime(2026, 1, 31, 8, tzinfo=UTC), Path("/x")
    )  # fmt: skip


def test_parameters_are_fields_of_the_data() -> None:
    assert call(add, a=1) == 3
    assert call(add, a=1, b=5) == 6
    assert call(with_context, amount="1.50") == (1, Decimal("1.50"))
    assert call(rest, a=1, x="y") == (1, {"x": "y"})
    assert call(limited, limit=3) == {"limit": 3}
    assert call(placed, n=1) == Placed(1)


def test_what_a_decorator_wraps_is_asked_for() -> None:
    @wraps(add)
    def wrapped(*args: Any, **named: Any) -> Any:
        return add(*args, **named)

    assert call(wrapped, a=1) == 3


@pytest.mark.parametrize(
    ("function", "data", "message"),
    [
        (report, {"rows": [{"name": "a"}, {"name": "b", "price": "x"}]}, 'data.rows[1].price: expected int, got "x"'),
        (report, {"rows": [{"name": 5}]}, "data.rows[0].name: expected str, got 5"),
        (report, {}, "data.rows: is missing: expected list"),
        (report, {"rows": {}}, "data.rows: expected list, got {}"),
        (report, {"rows": [], "colour": "green"}, 'data.colour: expected one of "blue", "red", got "green"'),
        (report, {"rows": [], "at": "soon"}, 'data.at: expected a date-time or null, got "soon"'),
        (report, {"rows": [], "tags": {"a": "b"}}, 'data.tags.a: expected int, got "b"'),
        (report, {"rows": [], "into": 7}, "data.into: expected str or null, got 7"),
        (placed, {"n": "x"}, 'data.n: expected int, got "x"'),
        (placed, {"n": 1, "into": 7}, "data.into: expected str, got 7"),
        (report, {"rows": [], "row": 1}, "data.row: is not known here"),
        (add, {"a": True}, "data.a: expected int, got true"),
        (add, {"a": 1, "c": 1}, "data.c: is not known here"),
        (limited, {"limit": 10}, "data.limit: expected at most 9, got 10"),
        (with_context, {"amount": "much"}, 'data.amount: Invalid decimal string, got "much"'),
    ],
)
def test_data_that_does_not_fit_is_refused_with_its_path(function: Any, data: Any, message: str) -> None:
    assert said(refused(function, data)) == [message]


def test_every_problem_is_named_and_the_nearest_name_suggested() -> None:
    problems = refused(report, {"rows": [{"nam": "a"}], "colour": 1})
    assert said(problems) == [
        "data.rows[0].name: is missing: expected str",
        "data.rows[0].nam: is not known here",
        'data.colour: expected one of "blue", "red", got 1',
    ]
    assert problems[1].hint == "did you mean 'name'?"


def test_what_a_type_itself_refuses_is_told() -> None:
    def choose(data: Choosy) -> None: ...

    assert said(refused(choose, {"low": 2, "high": 1})) == [
        'data: low must not be above high, got {"low": 2, "high": 1}'
    ]


def test_annotations_may_name_what_only_a_type_checker_knows_where_no_data_is_taken() -> None:
    def odd(context: Nowhere, a: int) -> Elsewhere:  # type: ignore[name-defined] # noqa: F821
        return a

    assert call(odd, a=1) == 1


@pytest.mark.parametrize("data", [[], "text", None])
def test_data_that_is_no_mapping_is_refused(data: Any) -> None:
    assert said(refused(report, data))[0].startswith("data: expected mapping, got")


def test_what_data_cannot_become_is_refused_when_it_is_needed() -> None:
    class Strange: ...

    def takes_strange(a: Strange) -> None: ...

    takes_strange.__annotations__["a"] = Strange
    signature = signature_of(takes_strange)
    assert signature is not None
    with pytest.raises(Invalid, match=r"data cannot become .*Strange") as caught:
        signature.arguments(given({"a": 1}))
    assert caught.value.code == "E_HANDLER"


def test_the_whole_and_its_fields_are_not_asked_for_together() -> None:
    def both(data: Report, a: int) -> None: ...

    with pytest.raises(Invalid, match="`data` is all of the data"):
        signature_of(both)


def test_pydantic_models_are_validated_by_themselves() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        name: str
        price: Annotated[int, pydantic.Field(gt=0)]

    class Order(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        items: list[Item]

        @pydantic.field_validator("items")
        @classmethod
        def few(cls, items: list[Item]) -> list[Item]:
            if len(items) > 2:
                raise ValueError("at most two")
            return items

    def ship(data: Order) -> Any:
        return data

    ship.__annotations__["data"] = Order
    assert call(ship, items=[{"name": "a", "price": 1}], extra=1) == Order(items=[Item(name="a", price=1)])
    assert said(refused(ship, {"items": [{"name": "a", "price": "x"}]})) == [
        'data.items[0].price: expected int, got "x"'
    ]
    assert said(refused(ship, {"items": [{"name": "a", "price": 0}]})) == [
        "data.items[0].price: expected more than 0, got 0"
    ]
    many = [{"name": "a", "price": 1}] * 3
    assert said(refused(ship, {"items": many}))[0].startswith("data.items: at most two, got [")
