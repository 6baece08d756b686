"""docs/reference/attacks.md: one row for each attack, with a verdict, and the tests that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/attacks.md").read_text()
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if re.match(r"\| [FS]\d\d \|", line)
]
VERDICTS = ("held", "in part", "not yet", "no ground")


LOGINS = [f"F{number:02}" for number in range(1, 62, 2)]  # the cases of logins have odd numbers


def test_there_is_one_row_for_each_of_the_sixty_eight_and_of_the_cases_of_logins():
    assert [row[0] for row in ROWS] == [f"S{number:02}" for number in range(1, 69)] + LOGINS


NUMBER = re.compile(r"(?:^|_)([FS]\d\d)(?=_)")


def numbers_in(names: Iterable[str]) -> set[str]:
    return {number for name in names for number in NUMBER.findall(name)}


def test_every_case_of_logins_has_a_test_of_its_number():
    """In its name, or in the name of one of its cases."""
    files = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    found = (name for text in files for pair in re.findall(r'def (test_\w+)|"([FS]\d\d_\w+)"', text) for name in pair)
    assert numbers_in(found) >= {*LOGINS}


@pytest.mark.parametrize("row", [row for row in ROWS if row[0] not in LOGINS and row[2]], ids=lambda row: row[0])
def test_whoever_looks_for_the_number_of_an_attack_finds_its_test(row: list[str]):
    assert row[0] in numbers_in(re.findall(r"::(\w+)`", row[2]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_has_a_verdict_and_what_is_held_has_a_test(row: list[str]):
    assert len(row) == 4
    assert row[1]
    assert row[3].startswith(VERDICTS)
    assert row[2] or row[3].startswith(("not yet: ", "no ground: "))
    assert row[3].startswith("held") or len(row[3]) > 20  # it says what is missing


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 60
    gone = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert gone == []
