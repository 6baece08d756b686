"""Every code that an explanation can have has its row, its section and its place on the server; and none has one in
vain."""

from __future__ import annotations

import re
from pathlib import Path

import horae.core.insight.why as room
from horae.core.insight.why import ended, waiting
from horae.core.insight.why.codes import CODES, PAGE
from horae.core.model import Reason, State

ROOM = Path(room.__file__).parent
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "explain.md"
FAMILIES = sorted({code.partition(".")[0] for code in CODES})
LITERAL = re.compile(rf'"((?:{"|".join(FAMILIES)})\.[a-z_.]+)"')


def named() -> set[str]:
    """Codes that stand in the sources from which sentences come."""
    texts = [path.read_text() for path in ROOM.glob("*.py") if path.name != "codes.py"]
    return {found for text in texts for found in LITERAL.findall(text)}


def test_what_is_answered_has_a_row_and_every_row_is_answered() -> None:
    assert named() == set(CODES)


def test_every_code_has_its_section_in_the_reference_and_no_other_has() -> None:
    sections = re.findall(r"^## <a id='([^']+)'></a>(.+)$", REFERENCE.read_text(), re.M)
    assert [anchor for anchor, _ in sections] == list(CODES)
    assert all(anchor == title for anchor, title in sections)


def test_a_row_says_what_it_means_why_and_what_to_do() -> None:
    for one in CODES.values():
        assert all(text.endswith((".", "`")) for text in one[1:]), one
        assert one.page == f"{PAGE}#{one.code}"


def test_every_code_is_named_by_a_test() -> None:
    tests = Path(__file__).parents[2]
    text = "\n".join(path.read_text() for path in tests.rglob("test_*.py"))
    assert [code for code in CODES if f'"{code}"' not in text] == []


def test_every_reason_and_every_state_has_a_sentence_of_its_own() -> None:
    told = {*waiting._BY_REASON, *ended._SKIPS, *ended._FAILURES, *ended._CANCELS}
    assert {*Reason} - told == {Reason.NO_LABEL}  # of a queued run, which is explained by the agents that there are
    assert {*ended._BY_STATE} == {state for state in State if state.is_terminal}
