"""The tables of docs/reference/policy.md are true: a row with a mark has a test that names it, and no other has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from horae.core.work.policies import POLICY_FIELDS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "policy.md"
TESTS = ROOT / "tests" / "unit" / "service" / "test_policies.py"
ROW = re.compile(r"\| (?P<name>[a-z][a-z0-9-]+) \| (?P<policy>[^|]+) \|[^|]*\| [^|]+ \| (?P<mark>✓|– .+) \|")
ANOTHER_NAME = {"concurrency", "policy"}  # of overlap, and of all of them as they are shown


def rows() -> list[re.Match[str]]:
    return [row for line in PAGE.read_text().splitlines() if (row := ROW.fullmatch(line))]


def named(source: str) -> list[str]:
    """The rows that tests name, by `@pytest.mark.policy("…")`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    marks = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "policy"]
    return [word.value for mark in marks for word in mark.args if isinstance(word, ast.Constant)]


def test_every_line_of_the_tables_is_a_row():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert [line for line in lines if not line.startswith(("| row |", "| --- |")) and not ROW.fullmatch(line)] == []


def test_a_row_is_named_once_and_so_is_its_test():
    names = [row["name"] for row in rows()]
    assert sorted(names) == sorted(set(names))
    assert sorted(tests := named(TESTS.read_text())) == sorted(set(tests))


def test_a_row_with_a_mark_has_its_test_and_a_row_without_says_why():
    assert {row["name"] for row in rows() if row["mark"] == "✓"} == set(named(TESTS.read_text()))


def test_the_tests_of_rows_run_on_both_stores():
    assert "\npytestmark = BOTH\n" in TESTS.read_text()


@pytest.mark.parametrize("field", sorted(POLICY_FIELDS - ANOTHER_NAME))
def test_every_field_of_a_policy_has_a_row(field: str):
    assert any(f"`{field}" in row["policy"] for row in rows())
