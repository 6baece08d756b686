"""What becomes of alerts by signs: properties that hold whatever the signs are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.alerts.rules import About, Rule, parse_rule
from horae.core.alerts.states import (
    Alert,
    AlertState,
    Key,
    Sign,
    after_telling,
    find_silent,
    follow_all,
    follow_look,
    is_to_remind,
    judge,
)
from horae.core.model import SECOND

RULE = Rule("r", "failure", ("ops",), org=1)
KEY = (1, "r", "job:1")
SIGNS = st.lists(st.booleans(), max_size=40)


def sign(is_bad: bool, at: int = 0, subject: str = "job:1", when: str = "failure") -> Sign:
    return Sign(when, subject, subject, About(1, 1), is_bad, at, "exit", at)


def lived(rule: Rule, bad: list[bool], cut: int = 1000) -> Alert | None:
    """Return the alert after these signs, followed in batches."""
    alerts: dict[Key, Alert] = {}
    signs = [sign(each, at) for at, each in enumerate(bad)]
    for start in range(0, len(signs), cut):
        for key, alert in follow_all([rule], alerts, signs[start : start + cut], 7).items():
            if alert is None:
                alerts.pop(key, None)
            else:
                alerts[key] = alert
    return alerts.get(KEY)


@given(SIGNS, st.integers(1, 4), st.sampled_from(["both", "trouble", "recovery"]), st.integers(1, 7))
def test_it_does_not_matter_how_signs_are_cut_into_batches(bad: list[bool], count: int, tell: str, cut: int) -> None:
    rule = replace(RULE, count=count, tell=tell)
    assert lived(rule, bad) == lived(rule, bad, cut)


@given(SIGNS, st.integers(1, 4))
def test_it_is_open_exactly_while_the_last_ones_in_a_row_are_bad(bad: list[bool], count: int) -> None:
    found = lived(replace(RULE, count=count), bad)
    streak = next((n for n, each in enumerate(reversed(bad)) if not each), len(bad))
    assert (found is not None and found.state is AlertState.OPEN) == (streak >= count)


@given(SIGNS)
def test_what_was_opened_and_is_over_is_still_told(bad: list[bool]) -> None:
    found = lived(RULE, [*bad, True, False])
    assert found is not None
    assert found.state is AlertState.CLOSED
    assert found.changed_at == 7
    assert found.count == sum(bad) + 1


@given(SIGNS)
def test_where_recovery_is_not_told_nothing_is_left_of_what_was_told(bad: list[bool]) -> None:
    rule, told = (
        replace(RULE, tell="trouble"),
        Alert(5, 1, "r", "job:1", "job", AlertState.OPEN, 1, 1, 0, 0, told_at=1, told_count=1),
    )
    found = follow_all([rule], {KEY: told}, [sign(False, 9)], 9)
    assert found == {KEY: None}


def test_an_open_alert_counts_and_has_nothing_new_to_tell() -> None:
    told = Alert(5, 1, "r", "job:1", "job", AlertState.OPEN, 1, 1, 0, 0, told_at=1, told_count=1)
    [found] = follow_all([RULE], {KEY: told}, [sign(True, 9), sign(True, 10)], 11).values()
    assert found is not None
    assert (found.count, found.changed_at, found.since_at, found.last_at) == (3, None, 0, 10)


def test_what_was_told_is_over_and_a_streak_that_began_since_goes_on() -> None:
    closed = Alert(5, 1, "r", "job:1", "job", AlertState.CLOSED, 0, 3, 0, 9, changed_at=9, told_at=1)
    assert after_telling(closed, RULE, 20) is None
    again = after_telling(replace(closed, streak=2), RULE, 20)
    assert again is not None
    assert (again.state, again.streak, again.changed_at) == (AlertState.COUNTING, 2, None)


def test_it_is_told_again_when_it_goes_on_and_nobody_knows() -> None:
    told = after_telling(Alert(5, 1, "r", "s", "s", AlertState.OPEN, 1, 1, 0, 0, changed_at=0), RULE, 0)
    assert told is not None
    later = round(RULE.repeat * SECOND)
    assert not is_to_remind(told, later)  # it did not happen again
    assert is_to_remind(replace(told, count=2), later)
    assert is_to_remind(replace(told, stands=True), later)
    assert not is_to_remind(replace(told, stands=True), later - 1)
    assert not is_to_remind(replace(told, stands=True, acked_at=1), later)


def test_a_failure_before_the_rule_was_made_is_none_of_it() -> None:
    assert follow_all([replace(RULE, created_at=100)], {}, [sign(True, 99)], 200) == {}


@pytest.mark.parametrize(
    ("rule", "about", "is_of"),
    [
        ({}, About(1, 5, "k", "ann", "q"), True),
        ({}, About(2, 5), False),
        ({"job": 5}, About(1, 5), True),
        ({"job": 6}, About(1, 5), False),
        ({"job": "k"}, About(1, 5, "k"), True),
        ({"job": "5"}, About(1, 5), False),
        ({"owner": "ann"}, About(1, 5, None, "ann"), True),
        ({"owner": "ann"}, About(1, 5, None, "bob"), False),
        ({"queue": "q"}, About(1, 5, None, "ann", "q"), True),
        ({"queue": "q"}, About(1, 5), False),
    ],
)
def test_a_rule_is_of_what_it_names(rule: dict[str, int | str], about: About, is_of: bool) -> None:
    made = replace(parse_rule({"when": "failure", "channels": ["ops"], **rule}, "r"), org=1)
    assert made.covers(about) is is_of


def test_each_rule_judges_an_amount_by_its_own_limit() -> None:
    short, long = replace(RULE, when="late", after=5.0), replace(RULE, when="late", after=50.0)
    began = sign(False, when="late")._replace(amount=20.0)
    waits = sign(True, when="late")._replace(amount=20.0)
    assert [judge(rule, began).is_bad for rule in (short, long)] == [True, False]  # type: ignore[union-attr]
    assert judge(short, waits) is not None
    assert judge(long, waits) is None  # it may still be in time: that says nothing


def test_a_run_that_waits_is_counted_once_however_often_it_is_seen() -> None:
    rule = replace(RULE, when="late", after=5.0)
    seen = [sign(True, 3, when="late")._replace(amount=float(10 + n)) for n in range(5)]
    [found] = follow_all([rule], {}, seen, 9).values()
    assert found is not None
    assert found.count == 1


def test_what_is_not_seen_any_more_is_over() -> None:
    rule = replace(RULE, when="node_gone")
    gone = Sign("node_gone", "node:a", "node a", About(), True, 1)
    opened = follow_look([rule], "node_gone", {}, [gone], 1)
    key = (1, "r", "node:a")
    alert = opened[key]
    assert alert is not None
    assert follow_look([rule], "node_gone", {key: alert}, [gone], 2) == {}
    over = follow_look([rule], "node_gone", {key: alert}, [], 3)[key]
    assert over is not None
    assert over.state is AlertState.CLOSED


def test_silence_is_found_by_the_clock_and_ends_with_a_success() -> None:
    rule, key = replace(RULE, when="silent", after=60.0, created_at=0), (1, "r", "")
    alerts = dict(find_silent([rule], {}, 0))
    assert find_silent([rule], alerts, 60 * SECOND) == {}
    alerts |= find_silent([rule], alerts, 61 * SECOND)
    assert alerts[key].state is AlertState.OPEN
    assert find_silent([rule], alerts, 90 * SECOND) == {}
    heard = follow_all([rule], alerts, [sign(False, 100 * SECOND, when="silent")], 100 * SECOND)[key]
    assert heard is not None
    assert heard.state is AlertState.CLOSED
    kept = after_telling(heard, rule, 101 * SECOND)
    assert kept is not None  # it knows when something succeeded
    assert find_silent([rule], {key: kept}, 150 * SECOND) == {}
    assert find_silent([rule], {key: kept}, 161 * SECOND)[key].state is AlertState.OPEN
