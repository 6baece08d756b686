"""Recurrence rules against dateutil, calendar periods against counting days."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from itertools import pairwise

import pytest
from dateutil.rrule import rrulestr

from horae.core.time.periods import PeriodSpec
from horae.core.time.recurrence import parse_rule
from horae.core.time.schedule import Series, compile_schedule
from horae.errors import Invalid

EPOCH = datetime(1970, 1, 1)
SECOND = 1_000_000
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def wall(stamp: datetime) -> int:
    return (stamp - EPOCH) // timedelta(microseconds=1)


def pattern_of(text: str, start: datetime) -> Series:
    """In UTC moments are walls."""
    return compile_schedule({"rrule": text, "start_at": f"{start.isoformat()}Z"}, seed=1, created_at=0)._series


def stamps(text: str, start: datetime, count: int) -> list[datetime]:
    pattern = pattern_of(text, start)
    found: list[datetime] = []
    at: int | None = wall(start) - 1
    while at is not None and len(found) < count:
        at = pattern.after(at)
        if at is not None:
            found.append(EPOCH + timedelta(microseconds=at))
    return found


def some(rng: random.Random, low: int, high: int, *, negative: bool = False) -> str:
    values = {rng.randint(low, high) for _ in range(rng.choice([1, 1, 2, 4]))}
    return ",".join(str(-value if negative and rng.random() < 0.3 else value) for value in values)


def random_rule(rng: random.Random) -> str:
    freq = rng.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"])
    parts = [f"FREQ={freq}"]
    if rng.random() < 0.6:
        parts.append(f"INTERVAL={rng.choice([1, 2, 3, 5, 7, 24, 90])}")
    if rng.random() < 0.3:
        parts.append(f"BYMONTH={some(rng, 1, 12)}")
    if rng.random() < 0.3 and freq != "WEEKLY":
        parts.append(f"BYMONTHDAY={some(rng, 1, 31, negative=True)}")
    elif rng.random() < 0.15 and freq == "YEARLY":
        parts.append(f"BYYEARDAY={some(rng, 1, 366, negative=True)}")
    elif rng.random() < 0.2 and freq == "YEARLY":
        parts.append(f"BYWEEKNO={some(rng, 1, 53, negative=True)}")
    if rng.random() < 0.4:
        counted = freq in ("YEARLY", "MONTHLY") and "BYWEEKNO" not in parts[-1] and rng.random() < 0.5
        nth = rng.choice(["1", "2", "-1", "5"]) if counted else ""
        parts.append("BYDAY=" + ",".join(f"{nth}{day}" for day in rng.sample(DAYS, rng.choice([1, 2]))))
    for key, high in (("BYHOUR", 23), ("BYMINUTE", 59), ("BYSECOND", 59)):
        if rng.random() < 0.2:
            parts.append(f"{key}={some(rng, 0, high)}")
    if freq in ("YEARLY", "MONTHLY", "WEEKLY"):
        if rng.random() < 0.2 and len(parts) > 2 and any(part.startswith("BY") for part in parts):
            parts.append(f"BYSETPOS={some(rng, 1, 3, negative=True)}")
        if rng.random() < 0.3:
            parts.append(f"WKST={rng.choice(DAYS)}")
    if rng.random() < 0.15:
        parts.append(f"COUNT={rng.randint(1, 12)}")
    elif rng.random() < 0.1:
        parts.append(f"UNTIL={rng.choice(['20281231', '20270401T120000'])}")
    return ";".join(parts)


# How far dateutil may be made to look, which for it is minutes of work beyond.
REACH = {"SECONDLY": 1, "MINUTELY": 30, "HOURLY": 400}


def affordable(text: str, ours: list[datetime], start: datetime) -> bool:
    if len(ours) < 12 and "COUNT" not in text and "UNTIL" not in text:
        return False
    return bool(ours) and ours[-1] - start < timedelta(days=REACH.get(text[5:].split(";")[0], 40_000))


def random_start(rng: random.Random, text: str) -> datetime:
    start = datetime(2027, 1, 1) + timedelta(seconds=rng.randint(0, 370 * 86400))
    if "WEEKLY" in text and "BYSETPOS" in text:
        # dateutil counts positions of a first, partial week from the start; RFC 5545 and we from its first day
        first = next((code for code in DAYS if f"WKST={code}" in text), "MO")
        start -= timedelta(days=(start.weekday() - DAYS.index(first)) % 7)
    return start


def refusal(text: str) -> str:
    try:
        parse_rule(text)
    except Invalid as error:
        return "by chance" if "by chance" in error.message else error.code
    return ""


def test_rules_agree_with_dateutil() -> None:
    rng = random.Random("rules")
    compared = 0
    for _ in range(1000):
        text = random_rule(rng)
        start = random_start(rng, text)
        if refusal(text) in ("E_CRON_NEVER", "by chance"):
            continue
        ours = stamps(text, start, 12)
        if not affordable(text, ours, start):
            continue
        until = text.replace("UNTIL=20281231", "UNTIL=20281231T235959")  # dateutil takes midnight, we the day
        theirs = [stamp for stamp, _ in zip(iter(rrulestr(until, dtstart=start)), ours, strict=False)]
        assert ours == theirs, (text, start)
        pattern = pattern_of(text, start)
        for a, b in pairwise(ours):  # from anywhere between two, the later one is next
            assert pattern.after(rng.randint(wall(a), wall(b) - 1)) == wall(b), (text, start, a)
        compared += len(ours)
    assert compared > 4000


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;BYMONTH=4;BYMONTHDAY=31",
        "FREQ=YEARLY;BYYEARDAY=60;BYMONTH=7",
    ],
)
def test_a_rule_that_cannot_match_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_rule(text)
    assert caught.value.code == "E_CRON_NEVER"


@pytest.mark.parametrize(
    "text",
    ["FREQ=DAILY;INTERVAL=7;BYDAY=MO", "FREQ=HOURLY;INTERVAL=24;BYHOUR=5", "FREQ=SECONDLY;INTERVAL=86400;BYSECOND=7",
     "FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=30"],
)  # fmt: skip
def test_a_rule_out_of_step_with_its_start_ends_its_search(text: str) -> None:
    """Begun on Tuesday 2 February 2027 at 03:00:00."""
    assert stamps(text, datetime(2027, 2, 2, 3), 1) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "E_RRULE_SYNTAX"), ("FREQ=FORTNIGHTLY", "E_RRULE_SYNTAX"), ("INTERVAL=2", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;FREQ=DAILY", "E_RRULE_SYNTAX"), ("FREQ=DAILY;COUNT=1;UNTIL=20300101", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;INTERVAL=0", "E_RANGE"), ("FREQ=DAILY;COUNT=10001", "E_RANGE"), ("FREQ=DAILY;BYHOUR=24", "E_RANGE"),
     ("FREQ=DAILY;BYMONTHDAY=0", "E_RANGE"), ("FREQ=DAILY;BYDAY=2MO", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;BYDAY=XX", "E_RRULE_SYNTAX"), ("FREQ=WEEKLY;BYMONTHDAY=1", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;BYEASTER=1", "E_RRULE_SYNTAX"), ("FREQ=DAILY;INTERVAL=１", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;UNTIL=20270230", "E_TIME_SYNTAX"), ("FREQ=DAILY\nEXDATE=1", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;" + "BYHOUR=1," * 200, "E_LEN"), ("FREQ=DAILY;BYSETPOS=1", "E_RRULE_SYNTAX"),
     ("FREQ=SECONDLY;INTERVAL=86399;BYHOUR=0", "E_RRULE_SYNTAX"), ("FREQ=HOURLY;INTERVAL=7;BYHOUR=9", "E_RRULE_SYNTAX"),
     ("FREQ=DAILY;BYMINUTE={0};BYSECOND={0}".format(",".join(map(str, range(60)))), "E_LIMIT")],
)  # fmt: skip
def test_a_bad_rule_is_refused_with_its_code(text: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_rule(text)
    assert caught.value.code == code


# ---------------------------------------------------------------------------------------- periods


def in_period(spec: PeriodSpec, anchor: date, day: date) -> bool:
    """Return whether a day belongs to a period, by counting."""
    if spec.unit == "day":
        return day >= anchor and (day - anchor).days % spec.every == 0
    if spec.unit == "week":
        weeks = (monday(day) - monday(anchor)).days // 7
        return weeks >= 0 and weeks % spec.every == 0 and day.weekday() in (spec.days or (anchor.weekday(),))
    months = (day.year - anchor.year) * 12 + day.month - anchor.month
    if spec.unit == "month" and (months < 0 or months % spec.every):
        return False
    if spec.unit == "year" and not in_year(spec, anchor, day):
        return False
    is_last = (day + timedelta(days=1)).month != day.month
    wanted = spec.month_days or (anchor.day,)
    return day.day in wanted or (is_last and (-1 in wanted or (spec.clamp and max(wanted) > day.day)))


def in_year(spec: PeriodSpec, anchor: date, day: date) -> bool:
    years = day.year - anchor.year
    return years >= 0 and years % spec.every == 0 and day.month in (spec.months or (anchor.month,))


def monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def random_spec(rng: random.Random) -> PeriodSpec:
    unit = rng.choice(["day", "week", "month", "year"])
    days = tuple(sorted(rng.sample(range(7), rng.randint(1, 4))))
    month_days = tuple(sorted(rng.sample([*range(1, 32), -1, 29, 30, 31], rng.randint(1, 3))))
    return PeriodSpec(
        unit=unit,
        every=rng.choice([1, 1, 2, 3, 5]),
        time=rng.choice([None, 0, 9 * 3600 * SECOND]),
        days=days if unit == "week" and rng.random() < 0.8 else None,
        month_days=month_days if unit in ("month", "year") and rng.random() < 0.7 else None,
        months=tuple(sorted(rng.sample(range(1, 13), 2))) if unit == "year" and rng.random() < 0.5 else None,
        clamp=rng.random() < 0.6,
    )


def test_periods_agree_with_counting_days() -> None:
    rng = random.Random("periods")
    compared = 0
    for _ in range(150):
        spec = random_spec(rng)
        anchor = date(2027, 1, 1) + timedelta(days=rng.randint(0, 800))
        time = 3 * 3600 * SECOND
        expected = [
            wall(datetime(day.year, day.month, day.day)) + (time if spec.time is None else spec.time)
            for day in (date(2027, 1, 1) + timedelta(days=offset) for offset in range(1600))
            if in_period(spec, anchor, day)
        ]
        pattern = spec.anchored(wall(datetime(anchor.year, anchor.month, anchor.day)) + time)
        got, at = [], wall(datetime(2027, 1, 1)) - 1
        while (at := pattern.after(at) or 10**30) < wall(datetime(2027, 1, 1)) + 1600 * 86400 * SECOND:
            got.append(at)
        assert got == expected, (spec, anchor)
        compared += len(got)
    assert compared > 1500


def test_a_period_with_no_day_in_any_month_ends() -> None:
    february = wall(datetime(2027, 2, 1))
    spec = PeriodSpec("month", every=12, month_days=(31,), clamp=False)
    assert spec.anchored(february).after(february) is None


def test_periods_end_with_the_calendar() -> None:
    for unit in ("day", "week", "month", "year"):
        assert (
            PeriodSpec(unit, every=10_000).anchored(wall(datetime(2200, 1, 1))).after(wall(datetime(2201, 6, 1)))
            is None
        )
