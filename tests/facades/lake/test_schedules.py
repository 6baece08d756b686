"""The seven kinds of `schedule_time`, held against a computation of their own, one step at a time."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from horae.contracts.lake import schedules
from horae.core.fields import Fields, Problems
from horae.core.model import Job, Policy, Trigger
from horae.core.time.schedule import compile_schedule

NOW = datetime(2026, 11, 15, 12, 30, 0, tzinfo=UTC)
DAYS = ["MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"]


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def us(moment: datetime) -> int:
    return ms(moment) * 1000


def read(value: Any) -> schedules.Timetable:
    problems = Problems()
    found = schedules.read(Fields({"schedule_time": value}, "job", problems))
    problems.raise_any()
    return found


def moments_of(value: dict[str, Any], count: int) -> list[datetime]:
    """Return the first moments of a job made NOW."""
    doc = read(value).document
    assert doc is not None
    schedule = compile_schedule(doc, seed=1, created_at=us(NOW))
    found, at = [], schedule.first()
    while at is not None and len(found) < count:
        found.append(datetime.fromtimestamp(at / 1_000_000, UTC))
        at = schedule.next_after(at)
    return found


def from_now(series: list[datetime], start: datetime, count: int) -> list[datetime]:
    """Return what a series comes to: strictly after its start, and not before the job was made."""
    return sorted(each for each in series if each > start and each >= NOW)[:count]


starts = some.integers(-1_000 * 1440, 60 * 1440).map(lambda minutes: NOW + timedelta(minutes=minutes))


def test_none_has_no_trigger() -> None:
    assert read({"class_name": "none_schedule"}).document is None
    assert read({"class_name": "none_schedule"}).drafts() == ()


@settings(deadline=None)
@given(starts)
def test_once_is_at_its_start_or_now(start: datetime) -> None:
    assert moments_of({"class_name": "schedule_once", "start_time": ms(start)}, 3) == [max(start, NOW)]


@settings(deadline=None)
@given(some.sampled_from([("minutely", 60), ("hourly", 3600)]), some.integers(1, 5000), starts)
def test_minutes_and_hours_begin_one_period_after_their_start(
    kind: tuple[str, int], every: int, start: datetime
) -> None:
    name, seconds = kind
    step = timedelta(seconds=every * seconds)
    skipped = max(0, (NOW - start) // step)
    series = [start + step * n for n in range(max(1, skipped - 2), skipped + 10)]
    value = {"class_name": f"schedule_{name}", "recur_every": every, "start_time": ms(start)}
    assert moments_of(value, 4) == from_now(series, start, 4)


@settings(deadline=None)
@given(some.integers(1, 400), starts)
def test_days_are_counted_from_the_start(every: int, start: datetime) -> None:
    skipped = max(0, (NOW - start).days // every)
    series = [start + timedelta(days=every * n) for n in range(skipped + 10)]
    value = {"class_name": "schedule_daily", "recur_every": every, "start_time": ms(start)}
    assert moments_of(value, 4) == from_now(series, start, 4)


clocks = some.tuples(some.integers(0, 23), some.integers(0, 59), some.integers(0, 59))


@settings(deadline=None)
@given(some.integers(1, 60), some.sets(some.integers(0, 6), min_size=1), clocks, starts)
def test_weeks_are_those_from_monday_to_sunday_around_the_start(
    every: int, days: set[int], clock: tuple[int, int, int], start: datetime
) -> None:
    monday = (start - timedelta(days=start.weekday())).replace(hour=0, minute=0, second=0)
    weeks = [monday + timedelta(weeks=every * n) for n in range(max(0, (NOW - start).days // 7 // every - 1), 2000)][
        :50
    ]
    time = timedelta(hours=clock[0], minutes=clock[1], seconds=clock[2])
    series = [week + timedelta(days=day) + time for week in weeks for day in days]
    value = {
        "class_name": "schedule_weekly", "recur_every": every, "include_days": [DAYS[day] for day in days],
        "at_hour": clock[0], "at_minute": clock[1], "at_second": clock[2], "start_time": ms(start),
    }  # fmt: skip
    assert moments_of(value, 5) == from_now(series, start, 5)


@settings(deadline=None)
@given(some.integers(1, 12), some.sets(some.integers(1, 31), min_size=1, max_size=5), clocks, starts)
def test_a_day_that_a_month_does_not_have_is_its_last(
    every: int, days: set[int], clock: tuple[int, int, int], start: datetime
) -> None:
    first = start.year * 12 + start.month - 1
    series = set()
    for index in range(first, first + 100 * every, every):
        year, month = divmod(index, 12)
        last = calendar.monthrange(year, month + 1)[1]
        series |= {datetime(year, month + 1, min(day, last), *clock, tzinfo=UTC) for day in days}
    value = {
        "class_name": "schedule_monthly", "recur_every_month": every, "recur_on_days": sorted(days),
        "at_hour": clock[0], "at_minute": clock[1], "at_second": clock[2], "start_time": ms(start),
    }  # fmt: skip
    assert moments_of(value, 5) == from_now(list(series), start, 5)


AT = ms(datetime(2020, 1, 1, 23, 15, 30, tzinfo=UTC))  # of which only the time of day counts


@pytest.mark.parametrize(
    ("value", "first"),
    [
        ({"class_name": "schedule_minutely", "recur_every": 5}, "2026-11-15T12:35:00"),
        ({"class_name": "schedule_hourly", "recur_every": 2}, "2026-11-15T14:30:00"),
        ({"class_name": "schedule_daily", "recur_every": 1, "at_time": AT}, "2026-11-15T23:15:30"),
        ({"class_name": "schedule_daily", "recur_every": 2, "at_time": ms(NOW)}, "2026-11-17T12:30:00"),
        (
            {"class_name": "schedule_weekly", "recur_every": 1, "at_time": AT, "include_days": ["SATURDAY"]},
            "2026-11-21T23:15:30",
        ),
        (
            {"class_name": "schedule_monthly", "recur_every_month": 1, "at_time": AT, "recur_on_days": [31]},
            "2026-11-30T23:15:30",
        ),
    ],
)
def test_the_older_generation_takes_the_time_of_day_from_a_moment(value: dict[str, Any], first: str) -> None:
    assert moments_of(value, 1)[0].strftime("%Y-%m-%dT%H:%M:%S") == first


def a_job(*triggers: Trigger) -> Job:
    return Job(1, 1, "o", "n", None, "shell", {}, Policy(), 0, False, {}, 1, us(NOW), us(NOW), triggers=tuple(triggers))


def a_trigger(schedule: dict[str, Any], **more: Any) -> Trigger:
    return Trigger(**{
        "id": 1, "job_id": 1, "schedule": schedule, "data": None, "enabled": True, "version": 1, "next_at": None,
        "last_at": None, "created_at": us(NOW), **more,
    })  # fmt: skip


def test_what_was_sent_is_shown_as_long_as_the_triggers_are_those() -> None:
    sent = {"class_name": "schedule_minutely", "recur_every": 60}
    own = a_trigger(read(sent).document or {})
    asked = a_trigger({"at": "2027-01-01T00:00:00Z"}, id=2)
    other = a_trigger({"cron": "* * * * *"}, id=3)
    assert schedules.shown_for(a_job(own), sent) == sent
    assert schedules.shown_for(a_job(own, asked), sent) == sent
    assert schedules.shown_for(a_job(asked), {"class_name": "none_schedule"}) == {"class_name": "none_schedule"}
    assert schedules.shown_for(a_job(own, other), sent)["class_name"] == "schedule_hourly"
    assert schedules.shown_for(a_job(other), sent)["description"] == "every minute, UTC"
    for odd in (None, 7, [], {}, {"class_name": "schedule_daily"}, {"class_name": {}}):
        assert schedules.shown_for(a_job(own), odd)["class_name"] == "schedule_hourly"
    assert schedules.shown_for(a_job(), sent) == {"class_name": "none_schedule"}


@pytest.mark.parametrize(
    "document",
    [
        {"at": "2027-01-01T00:00:00Z"},
        {"every": "90m"},
        {"every": "2h"},
        {"period": {"unit": "day", "every": 3}},
        {"period": {"unit": "day", "at": "02:30"}, "anchor": "2026-01-01T00:00:00Z"},
        {"period": {"unit": "week", "every": 2, "days": ["monday", "friday"], "at": "23:59:59"}},
        {"period": {"unit": "week"}},
        {"period": {"unit": "month", "month_days": [1, 31]}},
        {"period": {"unit": "month", "every": 5}},
    ],
)
def test_a_trigger_of_another_interface_is_shown_as_what_makes_the_same_moments(document: dict[str, Any]) -> None:
    shown = schedules.shown_for(a_job(a_trigger(document)), None)
    schedule = compile_schedule(document, seed=1, created_at=us(NOW))
    expected, at = [], schedule.first()
    while at is not None and len(expected) < 5:
        expected.append(datetime.fromtimestamp(at / 1_000_000, UTC))
        at = schedule.next_after(at)
    assert moments_of(shown, 5) == expected


@pytest.mark.parametrize(
    "document",
    [
        {"cron": "30 2 * * MON-FRI"},
        {"every": "90s"},
        {"every": "2h", "mode": "delay"},
        {"period": {"unit": "month", "month_days": [-1]}},
        {"period": {"unit": "year"}},
        {"period": {"unit": "day"}, "timezone": "Europe/Berlin"},
        {"rrule": "FREQ=DAILY"},
    ],
)
def test_a_trigger_that_the_contract_has_no_class_for_is_told_in_words(document: dict[str, Any]) -> None:
    shown = schedules.shown_for(a_job(a_trigger(document)), None)
    assert shown["class_name"] == "none_schedule"
    assert shown["description"]


def test_next_run_time_is_the_soonest_moment_or_says_why_there_is_none() -> None:
    waiting = a_trigger({"every": "1h"}, next_at=us(NOW) + 1_999)
    later = a_trigger({"every": "2h"}, next_at=us(NOW) + 5_000_000)
    spent = a_trigger({"at": "2026-01-01T00:00:00Z"}, last_at=us(NOW))
    assert schedules.next_run_time(a_job(later, waiting, spent)) == ms(NOW) + 1
    assert schedules.next_run_time(a_job(spent)) == 99999999999999
    assert schedules.next_run_time(a_job()) == 9223372036854775807
