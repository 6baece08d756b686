"""Members as they are shown, and which segments each of them holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from horae.core.members import Life, Member, holders, life_of, merge
from horae.core.model import SECOND, Node

OWN = Node("w", ("scheduler",), (), (), 8, "1", "", 0, 0, 0, holder="pid 1")
OUTSIDE = replace(OWN, name="w@scheduler", roles=("outside-scheduler",), holder="")


@pytest.mark.parametrize(
    ("state", "wanted", "holder", "life"),
    [
        ("live", "live", "pid 1", Life.ONLINE),
        ("live", "cordoned", "pid 1", Life.RESERVED),
        ("live", "drained", "pid 1", Life.RESERVED),
        ("draining", "live", "pid 1", Life.RESERVED),
        ("gone", "live", "pid 1", Life.SILENT),  # declared gone by others: it may still hold its name
        ("gone", "live", "", Life.LEFT),
        ("gone", "drained", "pid 1", Life.LEFT),
    ],
)
def test_a_process_of_horae_that_said_goodbye_has_left(state: str, wanted: str, holder: str, life: Life) -> None:
    assert life_of(replace(OWN, state=state, wanted=wanted, holder=holder), 0, 25) is life


@pytest.mark.parametrize(
    ("state", "wanted", "life"),
    [
        ("live", "live", Life.ONLINE),
        ("live", "cordoned", Life.RESERVED),
        ("gone", "live", Life.SILENT),
        ("gone", "drained", Life.LEFT),
    ],
)
def test_one_that_registered_has_left_when_it_is_not_wanted(state: str, wanted: str, life: Life) -> None:
    assert life_of(replace(OUTSIDE, state=state, wanted=wanted), 0, 60) is life


def test_who_was_not_heard_for_too_long_is_silent() -> None:
    assert life_of(OWN, 25 * SECOND, 25) is Life.ONLINE
    assert life_of(OWN, 25 * SECOND + 1, 25) is Life.SILENT


def test_of_one_name_the_livelier_is_shown_and_of_equals_horaes_own() -> None:
    other = replace(OWN, name="v")
    seen = [Member(OUTSIDE, Life.ONLINE), Member(OWN, Life.ONLINE), Member(other, Life.LEFT)]
    assert [each.node for each in merge(seen)] == [other, OWN]
    assert [each.node for each in merge([Member(OWN, Life.LEFT), Member(OUTSIDE, Life.SILENT)])] == [OUTSIDE]


def test_what_nobody_was_given_is_with_who_fires_it() -> None:
    owners = {0: "n1", 1: "n1", 2: "n2"}
    assert holders(owners, {}, [], ["n1", "n2"]) == owners
    assert holders(owners, {0: "w"}, ["w"], ["n1", "n2", "w"]) == {0: "w", 1: "n1", 2: "n2"}


def test_who_was_told_holds_that_and_nothing_else() -> None:
    owners = dict.fromkeys(range(3), "n1")
    assert holders(owners, {2: "n1"}, ["n1"], ["n1"]) == {2: "n1"}
    assert holders(owners, {}, ["n1"], ["n1"]) == {}


def test_the_silent_hold_nothing() -> None:
    assert holders({0: "n1", 1: "n2"}, {0: "w"}, ["w"], ["n1"]) == {0: "n1"}
