"""Lists that are cut into their items while they arrive."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.errors import Error
from horae.web.documents import MAX_BYTES
from horae.web.native.cutting import Array, Cutter, Lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from(['"', "\\", "[{,", "]}", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def pieces_of(text: bytes, size: int) -> Iterable[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


def cut(cutter: Cutter, text: bytes, size: int) -> list[bytes]:
    found = [item for piece in pieces_of(text, size) for item in cutter.cut(piece)]
    return [*found, *cutter.rest()]


@given(st.lists(VALUES, min_size=1, max_size=8), st.integers(1, 40), st.sampled_from([None, 2]), st.booleans())
def test_an_array_is_cut_into_its_values_wherever_it_is_torn(
    values: list[Any], size: int, indent: int | None, is_named: bool
) -> None:
    whole = json.dumps({"jobs": values} if is_named else values, indent=indent, ensure_ascii=indent is None).encode()
    assert [json.loads(item) for item in cut(Array("jobs"), whole, size)] == values


@given(st.lists(VALUES, max_size=8), st.integers(1, 40))
def test_lines_are_items_wherever_they_are_torn(values: list[Any], size: int) -> None:
    whole = b"\r\n\n".join(json.dumps(value).encode() for value in values)
    assert [json.loads(item) for item in cut(Lines("jobs"), whole, size)] == values


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("text", [b"[]", b' {"jobs" : [ ] } \n'])
def test_an_empty_array_has_no_items(text: bytes, size: int) -> None:
    assert cut(Array("jobs"), text, size) == []


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "text",
    [b"", b"[", b"[1", b"[1,]", b"[,1]", b"[1,,2]", b"[1}", b"[1]]", b"[1] 2", b'{"jobs": [1]', b'{"jobs": [1]]',
     b'{"jobs": [1], "more": 2}', b'{"runs": [1]}', b'{"jobs": 1}', b'["a]', b"7", b"[1]}"],
)  # fmt: skip
def test_what_is_no_array_is_refused(text: bytes, size: int) -> None:
    with pytest.raises(Error) as found:
        cut(Array("jobs"), text, size)
    assert found.value.code == "E_JSON_SYNTAX"


@pytest.mark.parametrize(
    ("cutter", "text"),
    [(Lines("jobs"), b'{"name": "'), (Array("jobs"), b'[{"name": "'), (Array("jobs"), b"[" * 100)],
    ids=["lines", "array", "deep"],
)
def test_no_more_is_kept_than_one_item_may_have(cutter: Cutter, text: bytes) -> None:
    list(cutter.cut(text))
    with pytest.raises(Error) as found:
        cut(cutter, b"x" * (8 * MAX_BYTES), MAX_BYTES // 8)
    assert found.value.code == "E_TOO_LARGE"
    assert all(len(value) <= 2 * MAX_BYTES for value in vars(cutter).values() if isinstance(value, bytes))
