"""Whether data fits a schema."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.shapes import find_problems, value_at

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


class Leaf(msgspec.Struct):
    a: int
    b: float | str | None = None


class Tree(msgspec.Struct):
    a: list[Tree] = []
    b: Leaf | None = None
    c: dict[str, bool] | tuple[int, str] = {}


(SCHEMA,), PARTS = msgspec.json.schema_components((Tree,))


@given(data=JSON)
def test_data_that_can_be_converted_is_never_refused(data: Any) -> None:
    try:
        msgspec.convert(data, Tree)
    except msgspec.ValidationError:
        return
    assert list(find_problems({**SCHEMA, "$defs": PARTS}, data, "data")) == []


@given(schema=JSON, data=JSON)
def test_no_schema_and_no_data_raises(schema: Any, data: Any) -> None:
    words = {"anyOf": schema, "properties": {"a": schema}, "items": schema, "type": "object", "required": ["a"]}
    list(find_problems({"type": ["object", "array"], "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": words}},
                       data, "data"))  # fmt: skip


def test_a_schema_that_refers_to_itself_alone_lets_everything_through() -> None:
    assert list(find_problems({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, 5, "data")) == []


@pytest.mark.parametrize(
    ("path", "value"), [("data", {"a": [{"b": 1}]}), ("data.a[0].b", 1), ("data.a[7]", None), ("data.x.y", None)]
)
def test_a_path_leads_to_its_value(path: str, value: Any) -> None:
    assert value_at({"a": [{"b": 1}]}, path) == value
