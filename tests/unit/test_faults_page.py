"""docs/reference/faults.md: one row for each fault, and whatever it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaign.nemesis import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/faults.md").read_text()
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if re.match(r"\| F\d\d \|", line)]
OTHERS = {"python -m bench", "forbid", "lost", "oom", "dead_after", "replace", "/readyz", "synchronous=FULL"}


def test_there_is_one_row_for_each_of_the_sixty_eight():
    assert [row[0].strip() for row in ROWS] == [f"F{number:02}" for number in range(1, 69)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_a_row_says_how_it_is_made_what_is_promised_and_what_was_seen(row: list[str]):
    assert len(row) == 5
    assert all(cell.strip() for cell in row)


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert named
    gone = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert gone == []


def test_every_fault_of_the_campaign_that_is_named_exists_and_every_one_that_exists_is_named():
    how = " ".join(row[2] for row in ROWS)
    marked = set(re.findall(r"`([^`]+)`", how))
    named = {word for word in marked if not word.startswith("tests/") and "=" not in word} - OTHERS
    assert sorted(named - set(KINDS)) == []
    assert sorted(set(KINDS) - named) == []
