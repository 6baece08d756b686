"""Conditions and references of workflows."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from horae.core.workflows import expressions
from horae.core.workflows.expressions import condition_paths, holds, parse_condition, parse_path, render, spelled
from horae.errors import Invalid

SCOPE = {
    "check": {
        "state": "succeeded",
        "result": {"errors": 0, "ok": True, "tags": ["a", "b"], "odd key": 7, "none": None},
    },
    "check-all": {"state": "failed", "result": None},
    "data": {"n": 3, "name": "x"},
}


@pytest.mark.parametrize(
    "text",
    [
        "check.result.errors == 0",
        "check.result.ok",
        "not check-all.result",
        "check-all.state == 'failed' and check.state != \"failed\"",
        "'a' in check.result.tags and 'z' not in check.result.tags",
        "check.state in['succeeded','skipped']",
        "0 < data.n <= 3",
        "check.result['odd key'] == 7 or check.result.missing",
        "(data.n > -1) and not (data.n == 4)",
        "'ucc' in check.state",
        "'errors' in check.result",
        "check.result.tags[1] == 'b'",
        "check.result.ok != 1",  # a boolean is no number
        "check.result.none == null",
        "data.n == 3.0",
    ],
)
def test_a_condition_holds(text: str):
    assert holds(parse_condition(text), SCOPE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("check.result.errors = 0", "'='"),
        ("check.result.ok && data.n", "'&'"),
        ("len(check.result.tags) > 1", "a call"),
        ("data.n > 1, 2", "a comma"),
        ("data .n", "'.'"),
        ("", "cannot be read"),
        ("data.n is 3", "cannot be read"),
        ("data.n - 1", "'-'"),
        ("lambda: 1", "':'"),
        ("f'{data}'", "cannot be read"),
        ("(" * 300 + "data.n" + ")" * 300, "cannot be read"),
        ("not " * 30 + "data.n", "nested at most 20"),
        ("data.n == 1 or " * 100 + "data.n", "at most 1000 characters"),
        ("data.n == 007", "'007'"),
        ("data.n < 1e999", "'1e999'"),
        ("data" + ".x" * 30, "at most 20 steps"),
    ],
)
def test_a_condition_that_cannot_be_read_says_why(text: str, words: str):
    with pytest.raises(Invalid) as refused:
        parse_condition(text)

    assert refused.value.code == "E_EXPRESSION"
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("check.result.missing", "there is no check.result.missing: check.result is a mapping without it"),
        ("check-all.result.errors == 0", "there is no check-all.result.errors: check-all.result is null"),
        ("check.result.tags[2]", "check.result.tags is a list of 2"),
        ("data.name < 3", "numbers are compared with numbers and texts with texts, not a string with number"),
        ("check.result.ok < 3", "not boolean with number"),
        ("3 in data.name", "not number in a string"),
        ("data.__class__", "there is no data.__class__"),
        ("check.result.tags.append", "there is no check.result.tags.append"),
    ],
)
def test_a_condition_that_cannot_be_decided_says_why(text: str, words: str):
    with pytest.raises(Invalid) as refused:
        holds(parse_condition(text), SCOPE)

    assert words in refused.value.message


def test_what_is_not_needed_is_not_looked_at():
    assert not holds(parse_condition("check-all.state == 'succeeded' and check-all.result.errors == 0"), SCOPE)
    assert holds(parse_condition("check.result.ok or check.nothing.at.all"), SCOPE)


def test_a_whole_reference_keeps_its_type_and_one_within_a_text_is_spelled_out():
    template = {
        "whole": "${check.result.tags}",
        "part": "n=${data.n} of ${check.result.tags}, ${data.name}",
        "plain": "$${data.n}",
        "deep": [{"ok": "${ check.result.ok }"}],
        "other": 5,
        "none": "${check.result.none}",
    }

    assert render(template, SCOPE) == {
        "whole": ["a", "b"],
        "part": 'n=3 of ["a","b"], x',
        "plain": "${data.n}",
        "deep": [{"ok": True}],
        "other": 5,
        "none": None,
    }


@pytest.mark.parametrize("text", ["${", "${data.n", "a ${} b", "${data..n}", "${1}", "${data.n + 1}", "${data[x]}"])
def test_a_reference_that_cannot_be_read_is_refused(text: str):
    with pytest.raises(Invalid) as refused:
        expressions.parse_text(text)

    assert refused.value.code == "E_EXPRESSION"


def test_a_path_reads_as_it_is_spelled():
    for text in ("a.b[0].c", "a-b.c['odd key'][3]", "a"):
        assert spelled(parse_path(text)) == text


class Trap(dict):  # type: ignore[type-arg]
    """A mapping of which nobody may ask for an attribute by a name from a condition."""

    def __getattribute__(self, name: str) -> object:
        if name in ("result", "state", "secret", "__dict__", "__globals__", "__init__", "__subclasses__"):
            raise AssertionError(name)
        return super().__getattribute__(name)


pieces = st.sampled_from(
    [
        "a",
        "b.result",
        "a.secret",
        "a.__class__",
        "a['__dict__']",
        "data.x",
        "and",
        "or",
        "not",
        "in",
        "==",
        "<",
        ">=",
        "!=",
        "(",
        ")",
        "[",
        "]",
        ",",
        "1",
        "-2.5",
        "'t'",
        '"u"',
        "true",
        "null",
        " ",
        ".",
        "__import__('os')",
        "a.__init__",
        "lambda",
        "x for x in a",
        "{",
        "}",
        "\\",
        "\n",
        "#",
        "\0",
        "é",
        "1e400",
        "0x1",
        "**",
        ":=",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["result", "x", "secret"]), inner),
    max_leaves=5,
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(pieces, max_size=12).map(" ".join) | st.lists(pieces, max_size=12).map("".join) | st.text(max_size=30),
    values,
)
@example("a.__class__.__mro__", {})
def test_whatever_a_condition_says_only_its_own_error_comes_of_it(text: str, value: object):
    scope = {"a": Trap(secret=1), "b": {"result": value}, "data": {"x": value}}
    try:
        condition = parse_condition(text)
        condition_paths(condition)
        holds(condition, scope)
    except Invalid:
        pass


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces | st.sampled_from(["${", "}", "$${"]), max_size=10).map("".join) | st.text(max_size=30), values)
def test_whatever_a_text_says_only_its_own_error_comes_of_it(text: str, value: object):
    try:
        list(expressions.paths_in([text]))
        render({"t": text}, {"a": Trap(secret=1), "b": {"result": value}, "data": {"x": value}})
    except Invalid:
        pass
