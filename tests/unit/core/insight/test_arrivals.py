"""Moments of schedules as stretches: as many, and the same, as the schedules themselves say one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from horae.core.insight.arrivals import Series, Window, clock_of, pace_of, series_of
from horae.core.model import SECOND, Json, Moment
from horae.core.time.document import read_text
from horae.core.time.moments import parse_moment
from horae.core.time.schedule import canonical_text, compile_text

START = parse_moment("2027-01-15T08:00:00Z")
DAY = 86_400 * SECOND
SCHEDULES: list[Json] = [
    {"cron": "0 0 * * *"}, {"cron": "*/5 * * * *"}, {"cron": "0,7,31 * * * *"},
    {"cron": "30 2 * * MON-FRI", "timezone": "Europe/Berlin"}, {"cron": "H H * * *"}, {"cron": "H * * * *"},
    {"cron": "H/15 * * * *"}, {"cron": "*/10 9-17 * * *", "timezone": "America/New_York"},
    {"cron": "0 12 1 * *"}, {"cron": "15 * * * *", "jitter": "90s"}, {"cron": "H/20 8-18 * * *"},
    {"cron": "0,7,31 6-9 * * SAT", "timezone": "Asia/Kathmandu"}, {"cron": "*/15 8-18 15 * *"},
    {"every": "45s"}, {"every": "2500ms"},
    {"every": "7m", "start_at": "2027-01-15T08:03:00Z"}, {"every": "1h", "end_at": "2027-01-15T20:00:00Z"},
    {"every": "26h"}, {"at": "2027-01-15T19:00:00Z"}, {"period": {"unit": "day", "at": "02:30"}},
    {"rrule": "FREQ=HOURLY;INTERVAL=3;COUNT=5"}, {"cron": "0 3 * * *", "end_at": "2027-01-16T00:00:00Z"},
]  # fmt: skip


def moments(series: Series) -> list[Moment]:
    return sorted(
        stretch.first + number * stretch.step for stretch in series.stretches for number in range(stretch.times)
    )


def compared(document: Json, window: Window, created_at: Moment, seed: int = 7) -> None:
    text = canonical_text(document)
    own = compile_text(text, seed, created_at)
    next_at = own.first()
    if next_at is None:
        return
    found = series_of(text, next_at, window, seed=seed, created_at=created_at)
    truth = [at for at in [next_at, *own.moments(next_at, window.end - 1, 200_000)] if window.start <= at < window.end]
    assert moments(found) == truth
    assert found.moments == len(truth)


@pytest.mark.parametrize("document", SCHEDULES, ids=str)
@pytest.mark.parametrize("hours", [1, 24, 50])
def test_stretches_have_the_moments_of_the_schedule(document: Json, hours: int) -> None:
    compared(document, Window(START, START + hours * 3600 * SECOND), START + 1_234_567)


def test_what_is_due_every_second_is_counted() -> None:
    document: Json = {"cron": "* * * * * *"}
    compared(document, Window(START, START + 2 * 3600 * SECOND), START + 1_234_567)
    week = Window(START, START + 7 * DAY)
    found = series_of(canonical_text(document), START, week, seed=1, created_at=START)
    assert (found.moments, len(found.stretches)) == (7 * 86_400, 1)


@pytest.mark.parametrize("document", SCHEDULES, ids=str)
def test_a_window_may_begin_later(document: Json) -> None:
    compared(document, Window(START + DAY, START + DAY + DAY // 2), START + 1_234_567)


@pytest.mark.parametrize("day", ["2027-03-27T12:00:00Z", "2027-10-30T12:00:00Z"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 * * * *", "*/20 * * * *", "H 2 * * *"])
def test_clocks_that_are_changed_within_the_window_are_followed(day: str, expression: str) -> None:
    start = parse_moment(day)
    compared({"cron": expression, "timezone": "Europe/Berlin"}, Window(start, start + DAY), start)


@given(
    step=some.integers(1, 200_000), offset=some.integers(0, DAY), hours=some.integers(1, 100), late=some.integers(0, 50)
)
def test_intervals_are_counted_as_they_come(step: int, offset: int, hours: int, late: int) -> None:
    window = Window(START + late * 3600 * SECOND, START + (late + hours) * 3600 * SECOND)
    text, first = canonical_text({"every": f"{step}s"}), START + offset
    found = series_of(text, first, window, seed=1, created_at=START)
    truth = range(first, window.end, step * SECOND)
    assert found.moments == sum(1 for at in truth if at >= window.start)


def test_triggers_with_the_same_interval_share_their_moments() -> None:
    one, other = canonical_text({"every": "1h"}), canonical_text({"every": "60m", "start_at": "2027-01-15T08:00:00Z"})
    assert clock_of(one) == clock_of(other)
    assert clock_of(one) != clock_of(canonical_text({"every": "2h"}))


@pytest.mark.parametrize(
    ("document", "step"),
    [
        ({"every": "90m"}, 5400 * SECOND),
        ({"cron": "5 3 * * *"}, DAY),
        ({"cron": "59 23 * * *", "timezone": "America/Argentina/Buenos_Aires"}, DAY),
        ({"cron": "H H * * *"}, DAY),
        ({"cron": "H * * * *"}, 3600 * SECOND),
        ({"cron": "5 3 * * *", "jitter": "10m"}, DAY),
        ({"cron": "5 3 * * *", "end_at": "2027-02-01T00:00:00Z"}, 0),
        ({"cron": "5 3 * * THU"}, 0),
        ({"cron": "5 3,4 * * *"}, 0),
        ({"every": "90m", "mode": "delay"}, 0),
        ({"at": "2027-02-01T00:00:00Z"}, 0),
    ],
)
def test_how_a_schedule_goes_on_is_told_where_that_is_always_the_same(document: Json, step: int) -> None:
    assert pace_of(canonical_text(document)).step == step


def test_a_schedule_that_comes_once_a_day_is_not_read() -> None:
    text = '{"cron":"17 4 * * *","timezone":"Europe/Berlin"}'
    before = read_text.cache_info().misses
    assert series_of(text, START, Window(START, START + DAY), seed=1, created_at=START).moments == 1
    assert read_text.cache_info().misses == before


def test_a_zone_that_is_not_known_here_is_no_pace() -> None:
    text = '{"cron":"17 4 * * *","timezone":"Mars/Olympus"}'
    assert series_of(text, START, Window(START, START + DAY), seed=1, created_at=START).moments == 0


def test_an_interval_that_counts_from_the_end_of_a_run_says_so() -> None:
    text = canonical_text({"every": "5m", "mode": "delay"})
    found = series_of(text, START + SECOND, Window(START, START + DAY), seed=1, created_at=START)
    assert (found.delay, found.moments) == (300 * SECOND, 1)


def test_what_cannot_be_read_here_has_no_moments() -> None:
    window = Window(START, START + DAY)
    assert series_of('{"lunar":"full"}', START, window, seed=1, created_at=START).moments == 0
    hook = '{"webhook":{"format":"plain"}}'
    assert series_of(hook, START, window, seed=1, created_at=START).moments == 0


def test_what_is_due_every_second_of_some_hours_is_a_stretch_a_day() -> None:
    document: Json = {"cron": "* * 8-18 * * *"}
    compared(document, Window(START + 7 * DAY // 24, START + 9 * DAY // 8), START + 1_234_567)
    month = Window(START, START + 31 * DAY)
    found = series_of(canonical_text(document), START, month, seed=1, created_at=START)
    assert found.moments == 31 * 11 * 3600
    assert len(found.stretches) < 70


def test_a_rule_with_very_many_moments_is_estimated_and_says_so() -> None:
    text = canonical_text({"rrule": "FREQ=SECONDLY"})
    found = series_of(text, START, Window(START, START + DAY), seed=1, created_at=START)
    assert found.is_estimated
    assert found.moments == pytest.approx(86_400, rel=0.001)


def test_clocks_that_are_changed_and_changed_back_within_the_window_are_followed() -> None:
    start = parse_moment("2027-02-05T12:00:00Z")  # of a month in which Morocco puts its clocks back, and forward again
    compared({"cron": "30 2 * * *", "timezone": "Africa/Casablanca"}, Window(start, start + 40 * DAY), start)
