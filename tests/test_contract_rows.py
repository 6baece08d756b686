"""The table of docs/reference/contracts.md is true: a row with a mark has a test that names it, and no other has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "contracts.md"
ROW = re.compile(r"^\| (?P<name>[a-z]+-[a-z0-9-]+) \| (?P<text>.+?) \| (?P<mark>✓|–|– .+) \|$", re.M)


def rows() -> list[re.Match[str]]:
    return list(ROW.finditer(PAGE.read_text()))


def named_rows(source: str) -> Iterator[str]:
    """The rows that tests of a file name, by `@pytest.mark.row("…")`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "row":
            yield from (
                word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)
            )


def names_tested() -> set[str]:
    files = [*(ROOT / "tests" / "facades").rglob("test_*.py"), *(ROOT / "tests" / "engines").rglob("test_*.py")]
    return {name for file in files if "mark.row" in (text := file.read_text()) for name in named_rows(text)}


def test_every_line_of_the_tables_is_a_row():
    body = PAGE.read_text().partition("## Row by row")[2]
    lines = [line for line in body.splitlines() if line.startswith("|") and not line.startswith(("| row |", "| --- |"))]
    assert [line for line in lines if not ROW.fullmatch(line)] == []


def test_a_row_is_named_once():
    names = [row["name"] for row in rows()]
    assert sorted(names) == sorted(set(names))


def test_a_row_with_a_mark_has_a_test_and_a_row_without_says_why():
    assert {row["name"] for row in rows() if row["mark"] == "✓"} == names_tested()
    assert [row["name"] for row in rows() if row["mark"] == "–"] == []


def test_rows_are_read_from_decorators():
    source = '@pytest.mark.row("lake-1", "lake-2")\n@pytest.mark.slow\ndef test_it():\n    assert "lake-3"\n'
    assert list(named_rows(source)) == ["lake-1", "lake-2"]
