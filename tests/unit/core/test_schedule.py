"""Trigger documents: what is refused, how they are normalised, and when their moments fall."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.core.model import Json
from horae.core.time import schedule, wallclock
from horae.core.time.moments import DAY, HOUR, MINUTE, format_local, format_moment, parse_moment, zone
from horae.core.time.schedule import Schedule, canonical, compile_schedule
from horae.errors import CODES, Error, Invalid, Malformed
from tests.unit.core import oracle

CREATED = "2027-01-15T12:00:00Z"


def compiled(doc: Json, created: str = CREATED, seed: int = 1) -> Schedule:
    return compile_schedule(doc, seed=seed, created_at=parse_moment(created))


def texts(doc: Json, count: int, created: str = CREATED, seed: int = 1) -> list[str]:
    """Return the first moments, as UTC text."""
    subject = compiled(doc, created, seed)
    moment, found = subject.first(), []
    while moment is not None and len(found) < count:
        found.append(format_moment(moment))
        moment = subject.next_after(moment)
    return found


def local(doc: Json, count: int, created: str = CREATED) -> list[str]:
    """Return the first moments, as the clocks of the zone show them."""
    info = zone(doc.get("timezone", "UTC"))
    return [format_local(parse_moment(text), info) for text in texts(doc, count, created)]


def problems(doc: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        canonical(doc)
    return [(problem.path, problem.code) for problem in caught.value.listed()]


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("doc", "path", "code"),
    [
        pytest.param({}, "", "E_REQUIRED", id="empty"),
        pytest.param({"cron": "* * * * *", "every": "5m"}, "every", "E_FIELD_CONFLICT", id="two kinds"),
        pytest.param({"cron": ""}, "cron", "E_CRON_EMPTY", id="B01"),
        pytest.param({"cron": "0 0 2 *"}, "cron", "E_CRON_FIELDS", id="B03"),
        pytest.param({"cron": "0 0 31 4 *"}, "cron", "E_CRON_NEVER", id="B25"),
        pytest.param({"cron": "@reboot"}, "cron", "E_CRON_UNSUPPORTED", id="B29"),
        pytest.param({"cron": "@every -1m"}, "every", "E_INTERVAL_SYNTAX", id="B31"),
        pytest.param({"cron": "@every 400000h"}, "every", "E_INTERVAL_RANGE", id="B33"),
        pytest.param({"cron": 5}, "cron", "E_TYPE", id="cron number"),
        pytest.param({"cron": "* * * * *", "dialect": "unix"}, "dialect", "E_ENUM", id="dialect"),
        pytest.param({"cron": "* * * * *", "timezone": "Mars/Phobos"}, "timezone", "E_TZ_UNKNOWN", id="B47"),
        pytest.param({"cron": "* * * * *", "timezone": "../../etc/passwd"}, "timezone", "E_TZ_UNKNOWN", id="B49"),
        pytest.param({"cron": "* * * * *", "timezone": 2}, "timezone", "E_TYPE", id="B51"),
        pytest.param({"cron": "* * * * *", "timezone": "IST"}, "timezone", "E_TZ_AMBIGUOUS", id="B53"),
        pytest.param({"at": 9007199254740993}, "at", "E_TYPE", id="B57"),
        pytest.param({"at": "2024-02-30T00:00:00Z"}, "at", "E_TIME_SYNTAX", id="B59"),
        pytest.param({"at": "2024-12-31T10:00:00"}, "at", "E_TIME_NO_OFFSET", id="B61"),
        pytest.param({"at": "2024-12-31T10:00:00+25:00"}, "at", "E_TIME_SYNTAX", id="B63"),
        pytest.param({"every": "1h", "start_at": "2028-01-01T00:00:00Z", "end_at": "2027-01-01T00:00:00Z"},
                     "end_at", "E_FIELD_CONFLICT", id="B65"),
        pytest.param({"at": "2027-03-28T02:30", "timezone": "Europe/Berlin"}, "at", "E_TIME_GAP", id="B67"),
        pytest.param({"every": "1h", "jitter": "1h"}, "jitter", "E_RANGE", id="B69 too long"),
        pytest.param({"every": "1h", "jitter": "-1s"}, "jitter", "E_RANGE", id="B69 negative"),
        pytest.param({"every": "1h", "jitter": -1}, "jitter", "E_RANGE", id="B69 negative number"),
        pytest.param({"period": {"unit": "day"}, "jitter": "24h"}, "jitter", "E_RANGE", id="jitter of a day"),
        pytest.param({"every": True}, "every", "E_TYPE", id="boolean interval"),
        pytest.param({"every": "1h", "mode": "sometimes"}, "mode", "E_ENUM", id="mode"),
        pytest.param({"every": "1h", "mode": "delay", "jitter": "1m"}, "jitter", "E_FIELD_CONFLICT", id="delay jitter"),
        pytest.param({"every": "1h", "dst": {"gap": "skip"}}, "dst", "E_FIELD_CONFLICT", id="dst of an interval"),
        pytest.param({"at": CREATED, "end_at": CREATED}, "end_at", "E_FIELD_CONFLICT", id="end of once"),
        pytest.param({"cron": "* * * * *", "dst": {"gap": "jump"}}, "dst.gap", "E_ENUM", id="gap"),
        pytest.param({"cron": "* * * * *", "dst": {"foldd": "both"}}, "dst.foldd", "E_UNKNOWN_FIELD", id="foldd"),
        pytest.param({"cron": "* * * * *", "dst": "skip"}, "dst", "E_TYPE", id="dst text"),
        pytest.param({"crom": "* * * * *"}, "crom", "E_UNKNOWN_FIELD", id="unknown field"),
        pytest.param({"period": {}}, "period.unit", "E_REQUIRED", id="no unit"),
        pytest.param({"period": {"unit": "fortnight"}}, "period.unit", "E_ENUM", id="unit"),
        pytest.param({"period": {"unit": "week", "days": []}}, "period.days", "E_EMPTY", id="no days"),
        pytest.param({"period": {"unit": "week", "days": ["MOO"]}}, "period.days", "E_ENUM", id="MOO"),
        pytest.param({"period": {"unit": "week", "days": [1]}}, "period.days", "E_TYPE", id="numbered weekday"),
        pytest.param({"period": {"unit": "month", "month_days": [0]}}, "period.month_days", "E_RANGE", id="day 0"),
        pytest.param({"period": {"unit": "month", "month_days": [32]}}, "period.month_days", "E_RANGE", id="day 32"),
        pytest.param({"period": {"unit": "day", "every": 0}}, "period.every", "E_RANGE", id="every 0"),
        pytest.param({"period": {"unit": "day", "every": 1.5}}, "period.every", "E_TYPE", id="every 1.5"),
        pytest.param({"period": {"unit": "day", "at": "24:00"}}, "period.at", "E_RANGE", id="24:00"),
        pytest.param({"period": {"unit": "day", "at": "2:30"}}, "period.at", "E_PATTERN", id="2:30"),
        pytest.param({"period": {"unit": "hour", "at": "02:30"}}, "period.at", "E_FIELD_CONFLICT", id="hour at"),
        pytest.param({"period": {"unit": "day", "days": ["monday"]}}, "period.days", "E_FIELD_CONFLICT", id="day days"),
        pytest.param({"period": {"unit": "year", "months": [2], "month_days": [30], "overflow": "skip"}},
                     "period.month_days", "E_CRON_NEVER", id="30 February"),
        pytest.param({"rrule": "FREQ=NEVER"}, "rrule", "E_RRULE_SYNTAX", id="rrule"),
        pytest.param({"rrule": "FREQ=DAILY;BYHOUR=25"}, "rrule", "E_RANGE", id="rrule hour"),
    ],
)  # fmt: skip
def test_a_bad_document_is_refused_with_path_and_code(doc: Json, path: str, code: str) -> None:
    assert (path, code) in problems(doc)


def test_all_problems_come_at_once() -> None:
    doc = {"cron": "60 * * * *", "timezone": "PST", "start_at": "soon", "dst": {"fold": 3}, "jiter": 1}
    assert sorted(problems(doc)) == [
        ("cron", "E_CRON_RANGE"),
        ("dst.fold", "E_TYPE"),
        ("jiter", "E_UNKNOWN_FIELD"),
        ("start_at", "E_TIME_SYNTAX"),
        ("timezone", "E_TZ_AMBIGUOUS"),
    ]


def test_an_unknown_field_gets_the_nearest_name() -> None:
    with pytest.raises(Invalid) as caught:
        canonical({"crom": "* * * * *"})
    assert any("did you mean cron?" in problem.hint for problem in caught.value.listed())


@pytest.mark.parametrize("doc", [None, [], "daily", 5, {"every": {1, 2}}])
def test_what_is_not_a_json_object_is_refused(doc: Any) -> None:
    assert problems(doc)[0][1] == "E_TYPE"


def test_text_that_is_not_json_is_malformed() -> None:
    with pytest.raises(Malformed):
        schedule.compile_text("{", 1, 0)


KEYS = ["cron", "every", "at", "period", "rrule", "timezone", "start_at", "end_at", "jitter", "dst", "mode", "dialect"]
TEXTS = ["* * * * *", "day", "week", "1h", "2027-01-01T00:00:00Z", "Europe/Berlin", "FREQ=DAILY", "monday", "12:00"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from([*TEXTS, 1, 31, -1])
)
NESTED = st.dictionaries(st.sampled_from(["unit", "every", "at", "days", "month_days", "gap", "fold", "x"]), LEAVES)
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | NESTED


def refusal(doc: Json) -> set[str]:
    """Return the codes a document is refused with; none when it is accepted."""
    try:
        canonical(doc)
    except Error as error:
        return {problem.code for problem in error.listed()}
    return set()


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from([*KEYS, "anchor", "x"]), VALUES, max_size=4))
def test_any_object_is_either_accepted_or_refused_with_known_codes(doc: Json) -> None:
    codes = refusal(doc)
    assert codes <= CODES.keys()
    if not codes:
        assert canonical(canonical(doc)) == canonical(doc)


# ----------------------------------------------------------------------------------- normal form

EXAMPLES: list[tuple[Json, Json]] = [
    ({"cron": "  0   0 * * * ", "timezone": "UTC", "dialect": "unix5"}, {"cron": "0 0 * * *"}),
    ({"dialect": "ci4", "cron": "0 0 2 *"}, {"cron": "0 0 2 *", "dialect": "ci4"}),
    ({"cron": "@every 90s"}, {"every": "1m30s"}),
    ({"every": 5400, "mode": "rate", "jitter": 0}, {"every": "1h30m"}),
    ({"every": "PT1H30M", "start_at": None}, {"every": "1h30m"}),
    ({"at": "2027-01-01T02:00:00.500+02:00"}, {"at": "2027-01-01T00:00:00.500Z"}),
    ({"at": "2027-07-01T12:00", "timezone": "Europe/Berlin"},
     {"at": "2027-07-01T10:00:00Z", "timezone": "Europe/Berlin"}),
    ({"period": {"days": ["FRI", "Monday", "fri"], "at": "09:00:00", "unit": "week", "every": 1}},
     {"period": {"unit": "week", "at": "09:00", "days": ["monday", "friday"]}}),
    ({"period": {"unit": "month", "month_days": [-1, 31, 1], "overflow": "clamp"}},
     {"period": {"unit": "month", "month_days": [1, 31, -1]}}),
    ({"rrule": "rrule:freq=daily;"}, {"rrule": "FREQ=DAILY"}),
    ({"cron": "0 0 * * *", "dst": {"gap": "run_after", "fold": "both"}},
     {"cron": "0 0 * * *", "dst": {"fold": "both"}}),
]  # fmt: skip


@pytest.mark.parametrize(("doc", "normal"), EXAMPLES)
def test_a_document_has_one_normal_form(doc: Json, normal: Json) -> None:
    got = canonical(doc)
    assert got == normal
    assert canonical(got) == got
    assert json.dumps(got) == json.dumps(canonical(dict(reversed(doc.items()))))


@pytest.mark.parametrize("doc", [doc for doc, _ in EXAMPLES])
def test_a_document_and_its_normal_form_mean_the_same_moments(doc: Json) -> None:
    stored = schedule.canonical_text(doc)
    again = schedule.compile_text(stored, 1, parse_moment(CREATED))
    start = parse_moment(CREATED) - 1
    assert again.moments(start, start + 40 * DAY, 20) == compiled(doc).moments(start, start + 40 * DAY, 20)


def test_the_normal_form_is_a_copy() -> None:
    first = canonical({"period": {"unit": "week", "days": ["monday"]}})
    first["period"]["days"].append("x")
    assert canonical({"period": {"unit": "week", "days": ["monday"]}})["period"]["days"] == ["monday"]


@pytest.mark.parametrize(
    ("text", "doc"),
    [
        ("*/5 * * * *", {"cron": "*/5 * * * *"}),
        ("0 0 12 ? * MON 2030", {"cron": "0 0 12 ? * MON 2030"}),
        ("@daily", {"cron": "@daily"}),
        ("@every 5m", {"every": "5m"}),
        ("1h30m", {"every": "1h30m"}),
        ("PT90S", {"every": "1m30s"}),
        ("2027-01-01T00:00:00+01:00", {"at": "2026-12-31T23:00:00Z"}),
        ("FREQ=DAILY", {"rrule": "FREQ=DAILY"}),
    ],
)
def test_a_plain_string_says_what_it_is(text: str, doc: Json) -> None:
    assert schedule.from_text(text) == doc


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "E_CRON_EMPTY"), ("@reboot", "E_CRON_UNSUPPORTED"), ("@every -1m", "E_INTERVAL_SYNTAX"),
     ("@every", "E_INTERVAL_SYNTAX"), ("2027-01-01", "E_TIME_SYNTAX"), ("hello", "E_CRON_FIELDS"),
     ("5x", "E_INTERVAL_SYNTAX"), ("０ 0 * * *", "E_CRON_SYNTAX")],
)  # fmt: skip
def test_a_plain_string_that_is_nothing_is_refused(text: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        schedule.from_text(text)
    assert caught.value.code == code


def test_the_dialect_of_a_document_can_be_asked() -> None:
    assert schedule.dialect_of({"cron": "0 0 12 ? * MON"}) == "quartz6"
    assert schedule.dialect_of({"cron": "0 0 2 *", "dialect": "ci4"}) == "ci4"
    assert schedule.dialect_of({"every": "5m"}) == "every"


# --------------------------------------------------------------------------------- when they fall


def test_an_interval_begins_one_step_after_creation() -> None:
    assert texts({"every": "1h30m"}, 2) == ["2027-01-15T13:30:00Z", "2027-01-15T15:00:00Z"]


def test_an_interval_with_a_future_start_begins_on_it() -> None:
    doc = {"every": "1h", "start_at": "2027-01-16T00:00:00Z"}
    assert texts(doc, 2) == ["2027-01-16T00:00:00Z", "2027-01-16T01:00:00Z"]


def test_a_start_in_the_past_gives_one_moment_now_then_keeps_its_own_grid() -> None:
    doc = {"every": "1h", "start_at": "2027-01-01T00:10:00Z"}
    assert texts(doc, 3) == ["2027-01-15T12:00:00Z", "2027-01-15T12:10:00Z", "2027-01-15T13:10:00Z"]


def test_a_period_with_a_start_in_the_past_is_due_now_too() -> None:
    doc = {"period": {"unit": "month"}, "start_at": "2026-01-31T08:00:00Z"}
    assert texts(doc, 3) == ["2027-01-15T12:00:00Z", "2027-01-31T08:00:00Z", "2027-02-28T08:00:00Z"]


def test_once_in_the_past_is_due_now_and_never_again() -> None:
    assert texts({"at": "2020-01-01T00:00:00Z"}, 3) == [CREATED]
    assert texts({"at": "2020-01-01T00:00:00Z", "jitter": "1h"}, 3) == [CREATED]
    assert texts({"at": "2028-01-01T00:00:00Z"}, 3) == ["2028-01-01T00:00:00Z"]


def test_cron_and_rrule_with_a_start_in_the_past_take_their_next_match() -> None:
    assert texts({"cron": "0 0 * * *", "start_at": "2026-01-01T00:00:00Z"}, 1) == ["2027-01-16T00:00:00Z"]
    doc = {"rrule": "FREQ=DAILY;INTERVAL=2", "start_at": "2027-01-01T09:00:00Z"}
    assert texts(doc, 2) == ["2027-01-17T09:00:00Z", "2027-01-19T09:00:00Z"]


def test_cron_matches_the_moment_of_creation_itself() -> None:
    assert texts({"cron": "0 12 * * *"}, 1) == [CREATED]


def test_the_end_is_inclusive_and_final() -> None:
    doc = {"cron": "0 * * * *", "end_at": "2027-01-15T14:00:00Z"}
    assert texts(doc, 9) == [CREATED, "2027-01-15T13:00:00Z", "2027-01-15T14:00:00Z"]
    assert texts(doc, 9, "2027-01-16T00:00:00Z") == []
    past = {"every": "1h", "start_at": "2020-01-01T00:00:00Z", "end_at": "2021-01-01T00:00:00Z"}
    assert texts(past, 1) == []


def test_a_schedule_asked_about_the_time_before_its_creation_answers_with_its_first() -> None:
    subject = compiled({"cron": "0 0 * * *"})
    assert subject.next_after(0) == subject.first()


def test_an_anchor_sets_the_grid_but_makes_nothing_due() -> None:
    doc = {"every": "1h", "anchor": "2027-01-01T00:10:00Z"}
    assert texts(doc, 2) == ["2027-01-15T12:10:00Z", "2027-01-15T13:10:00Z"]
    assert texts({"every": "1h", "anchor": "2028-01-01T00:00:00Z"}, 1) == ["2028-01-01T01:00:00Z"]


def test_delay_counts_from_the_finish() -> None:
    subject = compiled({"every": "10m", "mode": "delay"})
    assert subject.delay == 10 * MINUTE
    finished = parse_moment("2027-01-15T12:34:56Z")
    assert subject.next_after(finished) == finished + 10 * MINUTE
    assert texts({"every": "10m", "mode": "delay"}, 1) == ["2027-01-15T12:10:00Z"]
    later = {"every": "10m", "mode": "delay", "start_at": "2027-01-16T00:00:00Z"}
    assert texts(later, 1) == ["2027-01-16T00:00:00Z"]
    assert compiled({"every": "10m"}).delay is None


def test_jitter_is_one_constant_per_trigger() -> None:
    doc = {"cron": "0 * * * *", "jitter": "10m"}
    plain = compiled({"cron": "0 * * * *"}).moments(parse_moment(CREATED), parse_moment(CREATED) + DAY, 20)
    offsets = set()
    for seed in range(40):
        found = compiled(doc, seed=seed).moments(parse_moment(CREATED), parse_moment(CREATED) + DAY, 20)
        shift = {moment % HOUR for moment in found}
        assert len(shift) == 1
        assert 0 <= min(shift) < 10 * MINUTE
        assert {moment - moment % HOUR for moment in found} <= {*plain, parse_moment(CREATED)}
        offsets |= shift
    assert len(offsets) == 40


def test_jitter_does_not_pass_the_end() -> None:
    doc = {"cron": "0 * * * *", "jitter": "10m", "end_at": "2027-01-15T14:00:00Z"}
    assert all(moment <= "2027-01-15T14:00:00Z" for moment in texts(doc, 9))


def test_moments_lie_after_one_bound_and_up_to_the_other() -> None:
    subject = compiled({"cron": "0 * * * *"})
    noon = parse_moment(CREATED)
    assert subject.moments(noon, noon + 2 * HOUR, 10) == [noon + HOUR, noon + 2 * HOUR]
    assert subject.moments(noon, noon + 9 * HOUR, 2) == [noon + HOUR, noon + 2 * HOUR]


def random_document(rng: random.Random) -> Json:
    doc: Json = rng.choice([
        {"cron": oracle.random_expression(rng, "unix5")},
        {"cron": oracle.random_expression(rng, "quartz7"), "dialect": "quartz7"},
        {"cron": "H H(0-5) * * *"},
        {"every": rng.choice(["1s", "7m", "36h"])},
        {"at": "2027-03-01T00:00:00Z"},
        {"period": {"unit": "week", "every": 2, "at": "02:30", "days": ["sunday", "monday"]}},
        {"period": {"unit": "month", "month_days": [1, 31]}},
        {"period": {"unit": "hour", "every": 5}},
        {"rrule": "FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1"},
        {"rrule": "FREQ=HOURLY;INTERVAL=5;COUNT=30"},
    ])  # fmt: skip
    kind = next(iter(doc))
    if rng.random() < 0.5:
        doc["timezone"] = rng.choice([name for name, _ in oracle.CHANGES])
    if rng.random() < 0.3 and kind != "at":
        doc["start_at"] = rng.choice(["2020-02-29T01:30:00Z", "2027-02-01T00:00:00.250Z"])
    if rng.random() < 0.2 and kind != "at":
        doc["end_at"] = "2027-06-01T00:00:00Z"
    if rng.random() < 0.2 and doc.get("every") != "1s":
        doc["jitter"] = "5m"
    if rng.random() < 0.3 and kind in ("cron", "rrule"):
        doc["dst"] = {"gap": rng.choice(["skip", "run_after"]), "fold": rng.choice(["first", "second", "both"])}
    return doc


def test_moments_only_grow_and_stay_within_their_bounds() -> None:
    rng = random.Random("documents")
    for _ in range(400):
        doc, seed = random_document(rng), rng.randint(1, 9)
        created = parse_moment(CREATED) + rng.randint(0, 300) * DAY
        if refusal(doc):
            assert refusal(doc) == {"E_CRON_NEVER"}, doc
            continue
        subject = compile_schedule(doc, seed=seed, created_at=created)
        first = subject.first()
        found = subject.moments(created - 1, created + 3650 * DAY, 40)
        assert found[:1] == ([first] if first is not None and first <= created + 3650 * DAY else []), doc
        assert all(a < b for a, b in pairwise(found)), doc
        assert all(moment >= created for moment in found), doc
        if "end_at" in doc:
            assert all(format_moment(moment) <= doc["end_at"] for moment in found), doc
        # Asking from any point between two moments gives the later of them.
        for a, b in pairwise(found):
            assert subject.next_after(rng.randint(a, b - 1)) == b, doc


# ------------------------------------------------------------------------------------- calendars


def test_monthly_on_the_31st_never_loses_its_day() -> None:
    doc = {"period": {"unit": "month"}, "start_at": "2027-01-31T10:00:00Z"}
    assert [text[:10] for text in texts(doc, 4)] == ["2027-01-31", "2027-02-28", "2027-03-31", "2027-04-30"]


def test_days_that_clamp_to_one_date_give_one_moment() -> None:
    doc = {"period": {"unit": "month", "month_days": [29, 30, 31, -1], "at": "00:00"}}
    got = [text[:10] for text in texts(doc, 6)]
    assert got == ["2027-01-29", "2027-01-30", "2027-01-31", "2027-02-28", "2027-03-29", "2027-03-30"]


def test_overflow_skip_leaves_short_months_out() -> None:
    doc = {"period": {"unit": "month", "month_days": [31], "at": "00:00", "overflow": "skip"}}
    assert [text[:10] for text in texts(doc, 3)] == ["2027-01-31", "2027-03-31", "2027-05-31"]


def test_yearly_on_a_leap_day_clamps_and_comes_back() -> None:
    doc = {"period": {"unit": "year"}, "start_at": "2028-02-29T06:00:00Z"}
    got = [text[:10] for text in texts(doc, 5)]
    assert got == ["2028-02-29", "2029-02-28", "2030-02-28", "2031-02-28", "2032-02-29"]


def test_leap_days_skip_the_year_2100() -> None:
    assert texts({"cron": "0 0 29 2 *"}, 2, "2095-01-01T00:00:00Z") == ["2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"]


HANOI = "Asia/Ho_Chi_Minh"  # the server zone of the lake


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        pytest.param({"at": "2027-01-20T05:00:00Z"}, ["2027-01-20T05:00:00Z"], id="schedule_once"),
        # minutely and hourly: first run one period after start_time
        pytest.param({"every": "5m", "anchor": "2027-01-15T11:59:58Z"},
                     ["2027-01-15T12:04:58Z", "2027-01-15T12:09:58Z"], id="schedule_minutely"),
        pytest.param({"period": {"unit": "hour", "every": 2}, "anchor": "2027-01-15T11:59:58Z"},
                     ["2027-01-15T13:59:58Z", "2027-01-15T15:59:58Z"], id="schedule_hourly"),
        # daily V2: the local time of day of start_time, milliseconds and all; V1: at_time
        pytest.param({"period": {"unit": "day", "every": 3}, "anchor": "2027-01-14T03:04:05.678Z", "timezone": HANOI},
                     ["2027-01-17T03:04:05.678Z", "2027-01-20T03:04:05.678Z"], id="schedule_daily V2"),
        pytest.param({"period": {"unit": "day", "every": 1, "at": "08:15"}, "anchor": CREATED, "timezone": HANOI},
                     ["2027-01-16T01:15:00Z", "2027-01-17T01:15:00Z"], id="schedule_daily V1"),
        # weekly: aligned to the ISO week (11 to 17 January) of start_time
        pytest.param({"period": {"unit": "week", "every": 2, "at": "09:30:15", "days": ["monday", "saturday"]},
                      "anchor": CREATED, "timezone": HANOI},
                     ["2027-01-16T02:30:15Z", "2027-01-25T02:30:15Z", "2027-01-30T02:30:15Z"], id="schedule_weekly"),
        # monthly: stepping from the month of start_time
        pytest.param({"period": {"unit": "month", "every": 3, "at": "00:00", "month_days": [1, 31]},
                      "anchor": CREATED},
                     ["2027-01-31T00:00:00Z", "2027-04-01T00:00:00Z", "2027-04-30T00:00:00Z"], id="schedule_monthly"),
        # seed 4, from executionTime
        pytest.param({"period": {"unit": "day"}, "start_at": "2027-01-31T10:00:00Z"},
                     ["2027-01-31T10:00:00Z", "2027-02-01T10:00:00Z"], id="DAILY"),
        pytest.param({"period": {"unit": "week"}, "start_at": "2027-01-31T10:00:00Z"},
                     ["2027-01-31T10:00:00Z", "2027-02-07T10:00:00Z"], id="WEEKLY"),
        pytest.param({"period": {"unit": "month"}, "start_at": "2027-01-31T10:00:00Z"},
                     ["2027-01-31T10:00:00Z", "2027-02-28T10:00:00Z", "2027-03-31T10:00:00Z"], id="MONTHLY"),
    ],
)  # fmt: skip
def test_every_schedule_of_the_source_documents_can_be_written(doc: Json, expected: list[str]) -> None:
    assert texts(doc, len(expected)) == expected


# --------------------------------------------------------------------------- daylight saving time

SPRING = "2027-03-27T12:00:00Z"  # the day before 28 March 2027 in Berlin, 02:00 → 03:00
AUTUMN = "2027-10-30T12:00:00Z"  # the day before 31 October 2027, 03:00 → 02:00


def berlin(cron: str, **dst: str) -> Json:
    return {"cron": cron, "timezone": "Europe/Berlin"} | ({"dst": dst} if dst else {})


def test_a_time_in_the_gap_runs_once_right_after_it() -> None:
    assert local(berlin("30 2 * * *"), 2, SPRING) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert local(berlin("*/10 2 * * *"), 2, SPRING) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:00:00+02:00"]
    assert local(berlin("30 2,3 * * *"), 2, SPRING) == ["2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"]
    assert local(berlin("0,30 2,3 * * *"), 2, SPRING) == ["2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"]


def test_a_time_in_the_gap_can_be_skipped() -> None:
    assert local(berlin("30 2 * * *", gap="skip"), 1, SPRING) == ["2027-03-29T02:30:00+02:00"]


def test_a_time_that_shows_twice_runs_first_second_or_both() -> None:
    early, late, day = "2027-10-31T02:30:00+02:00", "2027-10-31T02:30:00+01:00", "2027-11-01T02:30:00+01:00"
    assert local(berlin("30 2 * * *"), 2, AUTUMN) == [early, day]
    assert local(berlin("30 2 * * *", fold="second"), 2, AUTUMN) == [late, day]
    assert local(berlin("30 2 * * *", fold="both"), 3, AUTUMN) == [early, late, day]


def test_what_names_every_hour_runs_through() -> None:
    spring = local(berlin("*/30 * * * *"), 6, "2027-03-28T00:00:01Z")
    assert [text[11:16] for text in spring] == ["01:30", "03:00", "03:30", "04:00", "04:30", "05:00"]
    autumn = local(berlin("*/30 * * * *"), 6, "2027-10-30T23:30:01Z")
    assert [text[11:] for text in autumn] == [
        "02:00:00+02:00", "02:30:00+02:00", "02:00:00+01:00", "02:30:00+01:00", "03:00:00+01:00", "03:30:00+01:00",
    ]  # fmt: skip


def test_an_interval_does_not_see_the_clocks() -> None:
    found = compiled({"every": "1h", "timezone": "Europe/Berlin"}, AUTUMN).moments(parse_moment(AUTUMN), 2**60, 30)
    assert {b - a for a, b in pairwise(found)} == {HOUR}


def test_a_daily_period_keeps_its_local_time() -> None:
    doc = {"period": {"unit": "day", "at": "02:30"}, "timezone": "Europe/Berlin"}
    assert local(doc, 2, SPRING) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert local(doc, 2, AUTUMN) == ["2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"]
    assert local(doc | {"dst": {"gap": "skip"}}, 1, SPRING) == ["2027-03-29T02:30:00+02:00"]


def test_a_rule_keeps_its_local_time() -> None:
    doc = {"rrule": "FREQ=DAILY", "start_at": "2027-03-26T01:30:00Z", "timezone": "Europe/Berlin"}
    assert local(doc, 3, "2027-03-26T00:00:00Z") == [
        "2027-03-26T02:30:00+01:00", "2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00",
    ]  # fmt: skip


def test_a_day_that_never_was_is_one_gap() -> None:
    doc = {"cron": "30 2 * * *", "timezone": "Pacific/Apia"}
    assert local(doc, 3, "2011-12-29T15:00:00Z") == [
        "2011-12-31T00:00:00+14:00", "2011-12-31T02:30:00+14:00", "2012-01-01T02:30:00+14:00",
    ]  # fmt: skip


def test_midnight_may_be_missing() -> None:
    doc = {"cron": "0 0 * * *", "timezone": "America/Santiago"}
    assert local(doc, 2, "2026-09-05T12:00:00Z") == ["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"]


def test_a_preview_says_what_the_clocks_did() -> None:
    def notes(doc: Json, start: str) -> list[tuple[str, str]]:
        begin = parse_moment(start)
        shown = schedule.preview(doc, seed=1, created_at=begin, start=begin, count=2)
        return [(item.local, item.note) for item in shown]

    assert notes(berlin("30 2 * * *"), SPRING) == [
        ("2027-03-28T03:00:00+02:00", "gap: 02:30 does not exist, runs at 03:00"),
        ("2027-03-29T02:30:00+02:00", ""),
    ]
    assert notes(berlin("30 2 * * *", fold="both"), AUTUMN) == [
        ("2027-10-31T02:30:00+02:00", "fold: first of two"),
        ("2027-10-31T02:30:00+01:00", "fold: second of two"),
    ]
    assert notes(berlin("0 3 * * *"), SPRING)[0] == ("2027-03-28T03:00:00+02:00", "")
    assert notes({"at": "2020-01-01T00:00:00Z"}, CREATED) == [
        ("2027-01-15T12:00:00+00:00", "due now: the start lies in the past")
    ]


# ------------------------------------------------------------------------------------ in English


@pytest.mark.parametrize(
    ("doc", "words"),
    [
        (berlin("30 2 * * MON-FRI"), "at 02:30 on weekdays, Europe/Berlin time"),
        ({"cron": "*/15 * * * *"}, "every 15 minutes, UTC"),
        ({"every": "1h30m"}, "every 1h30m"),
        ({"every": "5m", "mode": "delay"}, "5m after each run ends"),
        ({"at": "2027-01-01T00:00:00Z"}, "once at 2027-01-01T00:00:00Z"),
        ({"period": {"unit": "week", "every": 2, "days": ["monday", "friday"], "at": "09:00"}},
         "every 2 weeks on Monday and Friday at 09:00, UTC"),
        ({"period": {"unit": "month", "month_days": [1, -1], "at": "00:00"}},
         "every month on day 1 and the last day at 00:00, UTC"),
        ({"rrule": "FREQ=DAILY"}, "by the rule FREQ=DAILY, UTC"),
        ({"cron": "0 3 * * *", "end_at": "2028-01-01T00:00:00Z", "jitter": "5m", "dst": {"gap": "skip"}},
         "at 03:00 every day, UTC, until 2028-01-01T00:00:00Z, spread over 5m,"
         " times that the clock skips are left out"),
    ],
)  # fmt: skip
def test_a_document_is_said_in_english(doc: Json, words: str) -> None:
    assert schedule.describe(doc) == words


# ---------------------------------------------------------------------------------------- sharing


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every search that is really made."""
    schedule._on_clock.cache_clear()
    made: list[int] = []
    real = wallclock.Zoned._search
    monkeypatch.setattr(wallclock.Zoned, "_search", lambda self, moment: made.append(moment) or real(self, moment))
    return made


def test_a_herd_costs_one_search(searches: list[int]) -> None:
    text = schedule.canonical_text(berlin("*/5 * * * *"))
    noon = parse_moment(CREATED)
    herd = [schedule.compile_text(text, seed, noon - seed) for seed in range(2000)]
    assert {subject.next_after(noon) for subject in herd} == {noon + 5 * MINUTE}
    assert len(searches) == 1
    assert len({subject.share_key for subject in herd}) == 1


def test_a_herd_with_jitter_costs_one_search_per_due_moment(searches: list[int]) -> None:
    noon = parse_moment(CREATED)
    herd = [compiled({"cron": "0 * * * *", "jitter": "5m"}, seed=seed) for seed in range(200)]
    due = [subject.first() or 0 for subject in herd]
    searches.clear()
    following = {subject.next_after(moment) for subject, moment in zip(herd, due, strict=True)}
    assert len(following) == 200
    assert searches in ([noon], [])


def test_what_is_remembered_is_bounded() -> None:
    subject = compiled({"cron": "* * * * * *"})
    subject.moments(parse_moment(CREATED), 2**60, 1000)
    assert len(subject._series._memo) <= wallclock._REMEMBERED  # type: ignore[attr-defined]


def test_equal_share_keys_mean_equal_answers() -> None:
    rng = random.Random("keys")
    by_key: dict[Any, Schedule] = {}
    shared = 0
    docs = [doc for doc in (random_document(rng) for _ in range(12)) if not refusal(doc)]
    for _ in range(600):
        created = parse_moment(CREATED) + rng.randint(0, 3) * 7 * MINUTE
        subject = compile_schedule(rng.choice(docs), seed=rng.randint(1, 3), created_at=created)
        other = by_key.setdefault(subject.share_key, subject)
        shared += other is not subject
        moment = parse_moment(CREATED) + 1 * HOUR + rng.randint(0, 100 * DAY)
        assert subject.next_after(moment) == other.next_after(moment)
    assert shared > 100


def test_h_gives_each_trigger_its_own_moment_and_key() -> None:
    herd = [compiled({"cron": "H H * * *"}, seed=seed) for seed in range(100)]
    assert len({subject.first() for subject in herd}) > 80
    assert len({subject.share_key for subject in herd}) == 100


# ------------------------------------------------------------------------- folds far from the next match


@pytest.mark.parametrize(
    ("doc", "created", "expected"),
    [
        (
            {"cron": "30 2 27 10 *", "timezone": "Europe/Berlin", "dst": {"fold": "both"}},
            "2024-10-25T23:00:00Z",
            ["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z", "2025-10-27T01:30:00Z"],
        ),
        (
            {"cron": "0,30 * 29 10 *", "timezone": "Africa/Cairo"},
            "2026-10-29T19:15:00Z",
            ["2026-10-29T19:30:00Z", "2026-10-29T20:00:00Z", "2026-10-29T20:30:00Z", "2026-10-29T21:00:00Z",
             "2026-10-29T21:30:00Z", "2027-10-28T22:00:00Z"],
        ),
        (
            {"cron": "30 2 27 10 *", "timezone": "Europe/Berlin", "dst": {"fold": "second"}},
            "2024-10-25T23:00:00Z",
            ["2024-10-27T01:30:00Z", "2025-10-27T01:30:00Z"],
        ),
    ],
    ids=["both", "through", "second"],
)  # fmt: skip
def test_the_second_showing_is_found_however_far_the_next_match_is(
    doc: Json, created: str, expected: list[str]
) -> None:
    assert texts(doc, len(expected), created) == expected


def folds(name: str, years: range) -> list[tuple[int, int, int]]:
    """(second, offset before, offset after) of every change in these years at which the clocks of a zone go back."""
    info = ZoneInfo(name)

    def offset(second: int) -> int:
        return int((datetime.fromtimestamp(second, info).utcoffset() or timedelta()).total_seconds())

    found = []
    days = range(*(int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (years[0], years[-1] + 1)), 3 * 86400)
    for low, high in pairwise(days):
        if offset(high) < (before := offset(low)):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            found.append((high, before, offset(high)))
    return found


def check_fold(name: str, second: int, before: int, after: int, rng: random.Random) -> int:
    """Return a yearly pattern within a repeated stretch, under each policy, against the two moments that show its
    time."""
    wall = second + rng.randrange(after, before) // 60 * 60
    shown = datetime.fromtimestamp(wall, UTC)
    first, again = wall - before, wall - after
    start = first - rng.choice([60, 3600, 86400, 20 * 86400])
    expected = {"first": [first], "second": [again], "both": [first, again]}
    for fold, moments in expected.items():
        doc = {
            "cron": f"{shown.minute} {shown.hour} {shown.day} {shown.month} *",
            "timezone": name,
            "dst": {"fold": fold},
        }
        got = compiled(doc, "1970-01-01T00:00:00Z").moments(start * 10**6, (again + 86400) * 10**6, 5)
        assert got == [moment * 10**6 for moment in moments if shown.second == 0], (name, shown, fold)
    doc = {"cron": f"{shown.minute} * {shown.day} {shown.month} *", "timezone": name}
    through = compiled(doc, "1970-01-01T00:00:00Z").moments((first - 1) * 10**6, again * 10**6, 100)
    assert {first * 10**6, again * 10**6} <= set(through), (name, shown, "through")
    return len(expected) + 1


def test_yearly_patterns_meet_every_fold_of_every_zone() -> None:
    rng = random.Random("folds")
    checked = 0
    for name in sorted(available_timezones()):
        years = range(2024, 2026) if rng.random() < 0.8 else range(rng.randrange(1971, 2030), 2036)[:6]
        for second, before, after in folds(name, years):
            if (second + after) % 60 == 0 and before - after >= 60 and (before - after) % 60 == 0:
                checked += check_fold(name, second, before, after, rng)
    assert checked > 1000


# ----------------------------------------------------------------------------------------------- COUNT


@pytest.mark.parametrize("start", ["2024-10-26T22:00:00Z", "2024-03-30T23:00:00Z", "2024-07-01T00:00:00Z"])
def test_count_counts_occurrences_also_where_the_clocks_change(start: str) -> None:
    doc = {"rrule": "FREQ=HOURLY;COUNT=6", "timezone": "Europe/Berlin", "start_at": start}

    begin = parse_moment(start)
    assert texts(doc, 20, start) == [format_moment(begin + n * HOUR) for n in range(6)]


@settings(deadline=None, max_examples=150)
@given(
    change=st.sampled_from(oracle.CHANGES),
    before=st.integers(0, 40),
    freq=st.sampled_from(["HOURLY", "MINUTELY;INTERVAL=20", "DAILY", "DAILY;BYHOUR=1,2,3;BYMINUTE=0,30", "WEEKLY"]),
    count=st.integers(1, 130),
    dst=st.sampled_from([{}, {"fold": "both"}, {"fold": "second"}, {"gap": "skip"}]),
)
def test_a_counted_series_is_the_beginning_of_the_endless_one(
    change: tuple[str, str], before: int, freq: str, count: int, dst: Json
) -> None:
    start = format_moment(parse_moment(change[1] + "Z") - before * HOUR)
    doc = {"rrule": f"FREQ={freq}", "timezone": change[0], "start_at": start, "dst": dst}
    endless = texts(doc, count, start)

    counted = {**doc, "rrule": f"FREQ={freq};COUNT={count}"}

    assert texts(counted, count + 5, start) == endless
    late = compiled(counted, start)  # asked from the middle, and backwards
    for place in (len(endless) // 2, 0, len(endless) - 1):
        following = late.next_after(parse_moment(endless[place]))
        assert (None if following is None else format_moment(following)) == (
            endless[place + 1] if place + 1 < len(endless) else None
        )


def test_ten_thousand_are_counted_only_as_far_as_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    search = wallclock.Zoned._search

    def count(self: wallclock.Zoned, moment: int) -> int | None:
        nonlocal asked
        asked += 1
        return search(self, moment)

    monkeypatch.setattr(wallclock.Zoned, "_search", count)
    subject = compiled({"rrule": "FREQ=MINUTELY;COUNT=10000", "timezone": "Europe/Berlin", "start_at": CREATED})
    begin = parse_moment(CREATED)

    assert subject.first() == begin
    assert asked < 5
    assert subject.next_after(begin + 9_998 * MINUTE) == begin + 9_999 * MINUTE
    assert subject.next_after(begin + 9_999 * MINUTE) is None
    asked = 0
    assert subject.next_after(begin + 7_000 * MINUTE) == begin + 7_001 * MINUTE
    assert asked < 100
