"""When a rule tells something, and in which words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.alerts.forms import mail_text, slack_form, subject_of, teams_form
from horae.core.alerts.messages import (
    GIVEN_UP,
    LONGEST,
    SHOWN,
    Group,
    compose,
    due_at,
    next_try,
    quiet_until,
)
from horae.core.alerts.rules import CONDITIONS, Quiet, Rule
from horae.core.alerts.states import Alert, AlertState
from horae.core.model import SECOND
from horae.core.time.moments import parse_moment

RULE = Rule("r", "failure", ("ops",), org=1)
MOMENTS = st.integers(parse_moment("2026-01-01T00:00:00Z"), parse_moment("2027-01-01T00:00:00Z"))
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham"])


def group(first: int, last: int, opened: int = 1, closed: int = 0, times: int = 1) -> Group:
    return Group(1, "r", opened, closed, times, first, last)


def alert(number: int = 1, **fields: object) -> Alert:
    made = Alert(number, 1, "r", f"job:{number}", f"job a ({number})", AlertState.OPEN, 1, 1, 0, 0, "exit", 7)
    return replace(made, **fields)  # type: ignore[arg-type]


@given(MOMENTS, st.integers(0, 10**9), st.one_of(st.none(), MOMENTS))
def test_it_is_told_after_the_wait_and_never_much_later(first: int, lasted: int, told_at: int | None) -> None:
    wait, every = round(RULE.wait * SECOND), round(RULE.every * SECOND)
    due = due_at(RULE, group(first, first + lasted), told_at)
    assert due >= first + wait
    assert due <= max(first + LONGEST * wait, 0 if told_at is None else told_at + every)
    assert told_at is None or due >= told_at + every


def test_ten_thousand_in_a_minute_are_waited_for() -> None:
    """The last one comes after a minute: it is among those that are told."""
    first = parse_moment("2026-11-18T04:00:00Z")
    for second in range(1, 60):
        assert due_at(RULE, group(first, first + second * SECOND), None) > first + second * SECOND
    assert due_at(RULE, group(first, first + 60 * SECOND), None) == first + 70 * SECOND


@given(st.integers(0, 1439), st.integers(0, 1439), ZONES, MOMENTS)
def test_what_is_told_after_quiet_hours_is_not_told_within(begin: int, end: int, zone: str, at: int) -> None:
    quiet = Quiet(begin, end if end != begin else (end + 1) % 1440, zone)
    found = quiet_until(quiet, at)
    assert at <= found <= at + 26 * 3600 * SECOND
    local = datetime.fromtimestamp(found / SECOND, ZoneInfo(zone))
    minute = local.hour * 60 + local.minute
    is_within = quiet.begin <= minute < quiet.end if quiet.begin < quiet.end else not quiet.end <= minute < quiet.begin
    if found == at:
        assert not is_within
    else:  # where clocks are changed at that very hour, it is off by so much
        assert (minute - quiet.end) % 1440 in (0, 30, 60, 1380, 1410)


@pytest.mark.parametrize(
    ("at", "until"),
    [
        ("2026-11-18T20:30:00Z", "2026-11-18T20:30:00Z"),  # 21:30 in Berlin
        ("2026-11-18T21:30:00Z", "2026-11-19T06:00:00Z"),
        ("2026-11-19T03:00:00Z", "2026-11-19T06:00:00Z"),
        ("2026-11-19T06:00:00Z", "2026-11-19T06:00:00Z"),
        ("2027-03-27T22:00:00Z", "2027-03-28T05:00:00Z"),  # the night that is an hour shorter
    ],
)
def test_quiet_hours_are_those_of_their_zone(at: str, until: str) -> None:
    quiet = Quiet(22 * 60, 7 * 60, "Europe/Berlin")
    assert quiet_until(quiet, parse_moment(at)) == parse_moment(until)


def test_tries_are_further_and_further_apart_and_end_after_a_day() -> None:
    now, tries, pauses = 0, 0, []
    while (again := next_try(tries := tries + 1, now, 0)) is not None:
        pauses.append((again - now) / SECOND)
        now = again
    assert pauses[:4] == [10, 20, 40, 80]
    assert pauses == sorted(pauses)
    assert max(pauses) == 3600
    assert GIVEN_UP - 3600 * SECOND <= now <= GIVEN_UP


@pytest.mark.parametrize("when", CONDITIONS)
def test_every_condition_has_its_words(when: str) -> None:
    rule = replace(RULE, when=when)
    one = compose(rule, group(0, 0), [alert()], 5)
    over = compose(rule, group(0, 0, 0, 1, 0), [alert(state=AlertState.CLOSED, told_at=1)], 5)
    many = compose(rule, group(0, 0, 3, 2, 9), [alert(n) for n in range(1, 4)], 5)
    assert len({one["title"], over["title"], many["title"]}) == 3
    assert many["title"].endswith("2 are well again")
    assert "{" not in one["title"] + over["title"] + many["title"]


def test_a_message_names_the_first_and_counts_the_rest() -> None:
    found = compose(RULE, group(0, 0, 10_000, 0, 12_345), [alert(n) for n in range(1, SHOWN + 1)], 5)
    assert found["title"] == "r: 10000 jobs failed, 12345 times in all"
    assert (found["more"], len(found["alerts"]), found["text"].splitlines()[-1]) == (9980, 20, "and 9980 more")


def test_what_is_told_again_says_so() -> None:
    found = compose(RULE, group(0, 0), [alert(count=5, told_count=2, told_at=3)], 5)
    assert found["title"] == "r: still: job a (1) failed 3 times"


def test_S53_what_users_write_stays_text() -> None:
    evil = "a\r\nBcc: all@example.org <http://x|y> [z](http://x) *b* <!channel>"
    message = compose(RULE, group(0, 0), [alert(name=evil)], 5)
    assert subject_of(message).isprintable()
    assert len(subject_of(message)) <= 200
    assert "<!channel>" not in slack_form(message)["text"]
    card = teams_form(message)["attachments"][0]["content"]["body"]
    assert "[z](" not in str([block["text"] for block in card])
    assert mail_text(message).startswith(message["title"])
