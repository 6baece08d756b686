"""Cron: what is read, what is refused, and that every moment is the one the slow oracle finds."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.core.time import cron
from horae.core.time.moments import parse_moment, zone, zone_names
from horae.core.time.wallclock import Zoned, offsets_of
from horae.core.time.wording import describe_expression
from horae.errors import Invalid
from tests.unit.core import oracle

DIALECTS = ("unix5", "seconds6", "quartz6", "quartz7", "ci4")
SECOND = 1_000_000


def series(expression: str, dialect: str | None = None, where: str = "UTC", *, seed: int = 0, **dst: str) -> Zoned:
    return Zoned(cron.parse(expression, dialect, seed=seed), offsets_of(zone(where)), **dst)


def between(zoned: Zoned, start: int, end: int) -> list[int]:
    """Moments in seconds with start ≤ moment < end."""
    found = []
    moment = zoned.after(start * SECOND - 1)
    while moment is not None and moment < end * SECOND:
        assert moment % SECOND == 0
        found.append(moment // SECOND)
        moment = zoned.after(moment)
    return found


def parsed(text: str, dialect: str) -> bool:
    """Return whether it can ever match; nothing the generator writes is wrong in another way."""
    code = ""
    try:
        cron.parse(text, dialect)
    except Invalid as error:
        code = error.code
    assert code in ("", "E_CRON_NEVER"), (text, dialect)
    return not code


# ------------------------------------------------------------------------------------- the oracle


def agree(text: str, dialect: str, where: str, start: datetime, steps: int, step: int, gap: str, fold: str) -> int:
    """Hold engine and oracle against each other; the number of moments compared."""
    readings = oracle.clock(where, start, steps, step)
    expected = oracle.moments(oracle.Expression(text, dialect), readings, step, gap, fold)
    got = between(series(text, dialect, where, gap=gap, fold=fold), readings[0][0], readings[-1][0] + step)
    assert got == expected, f"{text!r} ({dialect}) in {where} around {start}, gap {gap}, fold {fold}"
    return len(expected)


FEW = [20, pytest.param(90, marks=pytest.mark.long)]  # expressions that are invented


@pytest.mark.parametrize("count", FEW)
@pytest.mark.parametrize(("where", "change"), oracle.CHANGES)
def test_every_minute_around_a_clock_change_agrees_with_the_oracle(where: str, change: str, count: int) -> None:
    rng = random.Random(f"minutes {where} {change}")
    start = datetime.fromisoformat(change).replace(tzinfo=UTC) - timedelta(hours=36)
    compared = 0
    for _ in range(count):
        text = oracle.random_expression(rng, "unix5")
        gap, fold = rng.choice(["run_after", "skip"]), rng.choice(["first", "second", "both"])
        if parsed(text, "unix5"):
            compared += agree(text, "unix5", where, start, 72 * 60, 60, gap, fold)
    assert compared > count


@pytest.mark.parametrize("count", [3, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_every_second_around_a_clock_change_agrees_with_the_oracle(dialect: str, count: int) -> None:
    rng = random.Random(f"seconds {dialect}")
    compared = 0
    for where, change in [*oracle.CHANGES[:8], ("Africa/Monrovia", "1972-01-07T00:44:30")]:
        start = datetime.fromisoformat(change).replace(tzinfo=UTC) - timedelta(seconds=5400)
        for _ in range(count):
            text = oracle.random_expression(rng, dialect, dates=0.1)
            fold = rng.choice(["first", "second", "both"])
            if parsed(text, dialect):
                compared += agree(text, dialect, where, start, 10800, 1, "run_after", fold)
    assert compared > 60 * count


@pytest.mark.parametrize("count", FEW)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_day_of_four_years_agrees_with_the_oracle(dialect: str, count: int) -> None:
    rng = random.Random(f"days {dialect}")
    first, days = date(2023, 1, 1), 1461
    start = (first - date(1970, 1, 1)).days * 86400
    compared = 0
    for _ in range(count):
        text = oracle.random_expression(rng, dialect, dates=0.9)
        clock = ["30", "2"] if dialect == "unix5" else ["0", "30", "2"]
        text = " ".join([*clock, *text.split()[len(clock) :]])
        if not parsed(text, dialect):
            assert not oracle.on_days(oracle.Expression(text, dialect), first, days), f"{text} is possible"
            continue
        expected = oracle.on_days(oracle.Expression(text, dialect), first, days)
        assert between(series(text, dialect), start, start + days * 86400) == expected, (text, dialect)
        compared += len(expected)
    assert compared > 15 * count


@settings(max_examples=50, deadline=None)
@given(
    where=st.sampled_from(sorted(zone_names())),
    hours=st.integers(0, 229 * 365 * 24),
    expression=st.integers(0, 10**9),
    fold=st.sampled_from(["first", "second", "both"]),
)
def test_any_zone_at_any_time_agrees_with_the_oracle(where: str, hours: int, expression: int, fold: str) -> None:
    text = oracle.random_expression(random.Random(expression), "unix5", dates=0.1)
    start = oracle.EPOCH + timedelta(days=2, hours=hours)
    readings = oracle.clock(where, start - timedelta(days=1), 72 * 60, 60)
    if not parsed(text, "unix5") or any(wall.second for _, wall in readings):
        return  # a few offsets of the seventies have seconds; a walk in minutes cannot see them
    expected = oracle.moments(oracle.Expression(text, "unix5"), readings, 60, fold=fold)
    low, high = readings[24 * 60][0], readings[48 * 60][0]  # a change at the border would need what lies beyond
    got = between(series(text, "unix5", where, fold=fold), low, high)
    assert got == [second for second in expected if low <= second < high], (text, where, fold)


# ---------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        pytest.param("", "E_CRON_EMPTY", "empty", id="B01"),
        pytest.param("   ", "E_CRON_EMPTY", "empty", id="blank"),
        pytest.param("0 0 2 *", "E_CRON_FIELDS",
                     "5 fields (minute hour day month weekday) or 6 (seconds first) expected, got 4", id="B03"),
        pytest.param("60 * * * *", "E_CRON_RANGE", "minute 60 not in 0-59", id="B05"),
        pytest.param("* 24 * * *", "E_CRON_RANGE", "hour 24 not in 0-23", id="B07"),
        pytest.param("* * 32 * *", "E_CRON_RANGE", "day 32 not in 1-31", id="B09"),
        pytest.param("* * 0 * *", "E_CRON_RANGE", "day 0 not in 1-31", id="day 0"),
        pytest.param("* * * 13 *", "E_CRON_RANGE", "month 13 not in 1-12", id="B11"),
        pytest.param("* * * * 8", "E_CRON_RANGE", "weekday 8 not in 0-7", id="weekday 8"),
        pytest.param("0 0 0 ? * 0", "E_CRON_RANGE", "weekday 0 not in 1-7", id="quartz weekday 0"),
        pytest.param("*/0 * * * *", "E_CRON_STEP", "step must be ≥ 1", id="B13"),
        pytest.param("*/61 * * * *", "E_CRON_STEP", "step 61 is larger than the minute field", id="B15"),
        pytest.param("1,,2 * * * *", "E_CRON_SYNTAX", "column 3", id="B17"),
        pytest.param("1- * * * *", "E_CRON_SYNTAX", "a value is missing in the minute field", id="B19"),
        pytest.param("a * * * *", "E_CRON_SYNTAX", "column 1", id="B21"),
        pytest.param("* * * * MOO", "E_CRON_SYNTAX", "unknown weekday 'MOO'", id="B23"),
        pytest.param("0 0 31 4 *", "E_CRON_NEVER", "never", id="B25"),
        pytest.param("0 0 31 2,4,6,9,11 *", "E_CRON_NEVER", "never", id="B27"),
        pytest.param("0 0 0 30 2 ?", "E_CRON_NEVER", "never", id="quartz 30 February"),
        pytest.param("0 0 0 29 2 ? 2023,2025-2027", "E_CRON_NEVER", "never", id="no leap year"),
        pytest.param("0 0 31 H *", "E_CRON_NEVER", "never", id="H may choose a short month"),
        pytest.param("@reboot", "E_CRON_UNSUPPORTED", "@reboot", id="B29"),
        pytest.param("0 0 * * *\n0 1 * * *", "E_CRON_SYNTAX", "line break", id="B37"),
        pytest.param("０ 0 * * *", "E_CRON_SYNTAX", "ASCII digits only", id="B39"),
        pytest.param("1_0 * * * *", "E_CRON_SYNTAX", "column 1", id="B41 underscore"),
        pytest.param("+1 * * * *", "E_CRON_SYNTAX", "column 1", id="B41 plus"),
        pytest.param("0x5 * * * *", "E_CRON_SYNTAX", "column 1", id="B41 hex"),
        pytest.param("* * * * * * * *", "E_CRON_FIELDS", "got 8", id="8 fields"),
        pytest.param("5/ * * * *", "E_CRON_SYNTAX", "step", id="empty step"),
        pytest.param("1-2-3 * * * *", "E_CRON_SYNTAX", "column 1", id="two dashes"),
        pytest.param("* * ? ? *", "E_CRON_SYNTAX", "? does not belong in the month field", id="? in month"),
        pytest.param("0 0 12 * * 2#6", "E_CRON_RANGE", "# counts from 1 to 5", id="#6"),
        pytest.param("0 0 12 L * *", "E_CRON_SYNTAX", "Quartz needs ?", id="quartz without ?"),
        pytest.param("0 0 12 ? * ?", "E_CRON_SYNTAX", "Quartz needs ?", id="quartz with two ?"),
        pytest.param("0 0 0 1 1 ? 2010-2005", "E_CRON_RANGE", "backwards", id="years do not wrap"),
        pytest.param("0 0 H(1-31) * *", "E_CRON_RANGE", "1-28", id="H past day 28"),
        pytest.param("@dayly", "E_CRON_SYNTAX", "unknown macro", id="macro"),
        pytest.param("0 0 * * L", "E_CRON_SYNTAX", "L needs a weekday", id="bare L in unix"),
        pytest.param("0 " * 400, "E_LEN", "512", id="long"),
        pytest.param("0 0 * *\x00*", "E_CRON_SYNTAX", "control character", id="NUL"),
    ],
)  # fmt: skip
def test_a_bad_expression_is_refused_with_its_code(text: str, code: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        cron.parse(text)
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_misspelt_name_gets_the_nearest_one() -> None:
    with pytest.raises(Invalid) as caught:
        cron.parse("* * * * MOO")
    assert "MON" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("0 0 * * *", "unix5"),
        ("0 0 * * 5L", "unix5"),
        ("*/30 * * * * *", "seconds6"),
        ("0 0 12 * JUL WED", "seconds6"),  # the L of JUL and the W of WED are no operators
        ("0 0 12 ? * MON", "quartz6"),
        ("0 0 12 LW * ?", "quartz6"),
        ("0 0 12 * * ? 2030", "quartz7"),
        ("@daily", "macro"),
    ],
)
def test_the_dialect_follows_from_fields_and_operators(text: str, dialect: str) -> None:
    assert cron.dialect_of(text) == dialect
    assert cron.parse(text).dialect == dialect


def test_four_fields_are_read_only_when_asked_for() -> None:
    assert describe_expression("30 0 2 *", "ci4") == "at 02:00:30 every day"
    with pytest.raises(Invalid, match="got 4"):
        cron.parse("30 0 2 *")


def first_days(text: str, count: int, start: str = "2027-01-01T00:00:00Z", dialect: str | None = None) -> list[str]:
    zoned, moment = series(text, dialect), parse_moment(start) - 1
    found = []
    for _ in range(count):
        moment = zoned.after(moment) or 0
        found.append(str(datetime.fromtimestamp(moment // SECOND, UTC).date()))
    return found


def test_weekday_one_is_sunday_in_quartz_and_monday_in_unix() -> None:
    assert first_days("0 0 0 ? * 1", 1) == ["2027-01-03"]
    assert first_days("0 0 * * 1", 1) == ["2027-01-04"]


def test_day_and_weekday_together_mean_either() -> None:
    assert first_days("0 0 13 * FRI", 4) == ["2027-01-01", "2027-01-08", "2027-01-13", "2027-01-15"]


def test_a_day_field_with_a_star_narrows_the_weekday_instead() -> None:
    assert first_days("0 0 */2 * MON", 3) == ["2027-01-11", "2027-01-25", "2027-02-01"]


def test_the_29th_of_february_jumps_from_2096_to_2104() -> None:
    assert first_days("0 0 29 2 *", 2, "2095-01-01T00:00:00Z") == ["2096-02-29", "2104-02-29"]


def test_the_nearest_working_day_stays_in_its_month() -> None:
    assert first_days("0 0 0 1W * ?", 5) == ["2027-01-01", "2027-02-01", "2027-03-01", "2027-04-01", "2027-05-03"]
    assert first_days("0 0 0 31W * ?", 3) == ["2027-01-29", "2027-03-31", "2027-05-31"]


@pytest.mark.parametrize("text", ["0 0 31 4 *", "0 0 0 29 2 ? 2023", "0 0 0 31 2,4,6 ? 1971-2199/2"])
def test_never_is_found_by_looking_at_kinds_of_year(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = cron.Cron._year_mask
    monkeypatch.setattr(cron.Cron, "_year_mask", lambda self, *args: looked.append(1) or real(self, *args))
    cron._parse.cache_clear()
    with pytest.raises(Invalid, match="never"):
        cron.parse(text)
    assert len(looked) <= 14


def test_years_gone_by_have_no_next_moment() -> None:
    zoned = series("0 0 0 1 1 ? 1999-2003")
    assert zoned.after(parse_moment("2003-01-01T00:00:00Z")) is None
    assert zoned.after(parse_moment("2002-06-01T00:00:00Z")) == parse_moment("2003-01-01T00:00:00Z")


def test_nothing_lies_beyond_the_year_2200() -> None:
    assert series("0 0 1 1 *").after(parse_moment("2200-01-01T00:00:00Z")) is None
    assert series("* * * * *", where="Asia/Tokyo").after(parse_moment("2200-12-31T23:59:00Z")) is None


def test_h_is_stable_differs_by_seed_and_field_and_covers_its_range() -> None:
    def minute(seed: int, text: str = "H * * * *") -> set[int]:
        return set(cron.parse(text, seed=seed)["minute"].values)

    assert minute(7) == minute(7)
    assert set.union(*(minute(seed) for seed in range(2000))) == set(range(60))
    assert set.union(*(minute(seed, "H(10-19) * * * *") for seed in range(200))) == set(range(10, 20))
    quarters = minute(3, "H/15 * * * *")
    assert len(quarters) == 4
    assert {b - a for a, b in zip(sorted(quarters), sorted(quarters)[1:], strict=False)} == {15}
    both = [(cron.parse("H H * * *", seed=s)["minute"].values, cron.parse("H H * * *", seed=s)["hour"].values)
            for s in range(50)]  # fmt: skip
    assert any(minutes != hours for minutes, hours in both)
    assert {max(cron.parse("0 0 H * *", seed=seed)["day"].values) for seed in range(500)} == set(range(1, 29))


def test_h_never_changes_between_releases() -> None:
    """These values are in people's calendars: a new hash would move every spread trigger."""
    chosen = [describe_expression("H H H * *", seed=seed) for seed in (1, 2)]
    assert chosen == ["at 01:14 on day 1 of the month", "at 13:47 on day 1 of the month"]


# -------------------------------------------------------------------------------------- in English


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30 2 * * 1-5", "at 02:30 on weekdays"),
        ("*/15 * * * *", "every 15 minutes"),
        ("* * * * *", "every minute"),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("0 3 * * *", "at 03:00 every day"),
        ("0 0 * * SAT,SUN", "at 00:00 on weekends"),
        ("*/10 9-17 * * MON-FRI", "every 10 minutes from 09:00 to 17:59 on weekdays"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 12 ? * 6L", "at 12:00 on the last Friday of the month"),
        ("0 0 12 ? * MON#2", "at 12:00 on the 2nd Monday of the month"),
        ("0 0 0 LW * ? 2030", "at 00:00 on the last working day of the month in 2030"),
        ("0 0 1 1 *", "at 00:00 on day 1 of the month in January"),
        ("@weekly", "at 00:00 on Sunday"),
    ],
)
def test_an_expression_is_said_in_english(text: str, words: str) -> None:
    assert describe_expression(text) == words


def test_an_expression_with_h_says_so_until_the_seed_is_known() -> None:
    assert "H" in describe_expression("H 2 * * *")
    assert describe_expression("H 2 * * *", seed=1).startswith("at 02:")


def test_different_expressions_never_have_the_same_description() -> None:
    rng = random.Random("words")
    seen: dict[str, tuple[object, ...]] = {}
    for _ in range(1200):
        dialect = rng.choice(DIALECTS)
        text = oracle.random_expression(rng, dialect, dates=0.5)
        if not parsed(text, dialect):
            continue
        compiled = cron.parse(text, dialect)
        years = [compiled._days_of_year(index) for index in range(200)]
        meaning = (compiled.times.hours, compiled.times.within, tuple(years))
        words = describe_expression(text, dialect)
        assert seen.setdefault(words, meaning) == meaning, (text, words)
    assert len(seen) > 700
