"""Recurrence rules of RFC 5545, whose series begin at an anchor.

What must stay true: a search ends, whatever the rule. It runs over bit masks of whole years up to the horizon, never
over the seconds a rule counts in; a rule that cannot match is told from its numbers.

The rules are read and searched here rather than by dateutil, whose search for a rule that never matches
goes on to the year 9999 and whose every answer begins again at the start; the tests hold both against each
other. Not read, with an error that says so: BYEASTER, and BYSETPOS with FREQ=DAILY or shorter.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from math import gcd

from horae.core.model import SECOND, Moment
from horae.core.spelling import suggest
from horae.core.time.moments import parse_moment, quoted
from horae.core.time.wallclock import (
    DAY_SECONDS,
    JANUARY_FIRST,
    YEARS,
    TimesOfDay,
    civil,
    day_number,
    first_day,
    is_leap,
    month_index,
    month_length,
    weekday,
)
from horae.errors import Invalid

# ------------------------------------------------------------------------------ rules: reading

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
_UNIT_SECONDS = {"DAILY": DAY_SECONDS, "HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
MAX_LENGTH = 1_000
MAX_COUNT = 10_000
MAX_TIMES = 1_440  # times of day one rule may name
_CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_RANGES = {
    "BYMONTH": (1, 12),
    "BYWEEKNO": (-53, 53),
    "BYYEARDAY": (-366, 366),
    "BYMONTHDAY": (-31, 31),
    "BYHOUR": (0, 23),
    "BYMINUTE": (0, 59),
    "BYSECOND": (0, 59),
    "BYSETPOS": (-366, 366),
}
_KEYS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_RANGES)


@dataclass(frozen=True, slots=True)
class Rule:
    """A recurrence rule as written; an empty tuple means the part is absent."""

    text: str
    freq: str
    interval: int = 1
    count: int | None = None
    until_wall: int | None = None  # UNTIL without Z: on the clock of the zone
    until: Moment | None = None  # UNTIL with Z
    week_start: int = 0
    months: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    weekdays: tuple[tuple[int, int], ...] = ()  # (n, weekday); n = 0: every one
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()


def _bad(message: str, hint: str = "") -> Invalid:
    return Invalid(message, code="E_RRULE_SYNTAX", hint=hint)


@lru_cache(maxsize=1024)
def parse_rule(text: str) -> Rule:
    """Read 'FREQ=WEEKLY;BYDAY=MO,FR'; raises Invalid."""
    if len(text) > MAX_LENGTH:
        raise Invalid(f"a rule has at most {MAX_LENGTH} characters", code="E_LEN")
    bare = text.strip().upper().removeprefix("RRULE:").rstrip(";")
    parts = _parts(bare)
    if parts.get("FREQ") not in FREQUENCIES:
        raise _bad(f"FREQ must be one of {', '.join(FREQUENCIES)}", "begin with FREQ=DAILY")
    if "COUNT" in parts and "UNTIL" in parts:
        raise _bad("COUNT and UNTIL exclude each other")
    until_wall, until = _until(parts.get("UNTIL"))
    lists = {key: _numbers(key, parts[key]) for key in _RANGES if key in parts}
    rule = Rule(
        text=bare,
        freq=parts["FREQ"],
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), 1, 1_000_000),
        count=_number("COUNT", parts["COUNT"], 1, MAX_COUNT) if "COUNT" in parts else None,
        until_wall=until_wall,
        until=until,
        week_start=_weekday_code(parts.get("WKST", "MO")),
        weekdays=_weekdays(parts.get("BYDAY")),
        months=lists.get("BYMONTH", ()),
        weeks=lists.get("BYWEEKNO", ()),
        year_days=lists.get("BYYEARDAY", ()),
        month_days=lists.get("BYMONTHDAY", ()),
        hours=lists.get("BYHOUR", ()),
        minutes=lists.get("BYMINUTE", ()),
        seconds=lists.get("BYSECOND", ()),
        positions=lists.get("BYSETPOS", ()),
    )
    _check_rule(rule)
    return rule


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.split(";"):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise _bad(f"{quoted(part)} is not NAME=VALUE", "write FREQ=WEEKLY;BYDAY=MO,FR")
        if key not in _KEYS:
            raise _bad(f"{quoted(key)} is not read in a rule", suggest(key, _KEYS))
        if key in parts:
            raise _bad(f"{key} stands twice")
        parts[key] = value
    return parts


def _number(key: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch("-?[0-9]{1,9}", text):
        raise _bad(f"{key}: {quoted(text)} is not a whole number")
    number = int(text)
    if not low <= number <= high or (number == 0 and low < 0):
        raise Invalid(f"{key} {number} not in {low} to {high}", code="E_RANGE")
    return number


def _numbers(key: str, text: str) -> tuple[int, ...]:
    low, high = _RANGES[key]
    return tuple(sorted({_number(key, item, low, high) for item in text.split(",")}))


def _weekday_code(text: str) -> int:
    if text not in _CODES:
        raise _bad(f"{quoted(text)} is not a weekday", f"use {', '.join(_CODES)}")
    return _CODES.index(text)


def _weekdays(text: str | None) -> tuple[tuple[int, int], ...]:
    found = set()
    for item in text.split(",") if text else ():
        match = re.fullmatch(r"([+-]?[0-9]{1,2})?([A-Z]{2})", item)
        if match is None:
            raise _bad(f"BYDAY: {quoted(item)} is not a weekday such as MO or -1FR")
        nth = int(match[1] or 0)
        if match[1] and not 1 <= abs(nth) <= 53:
            raise Invalid(f"BYDAY: {nth} not in -53 to 53", code="E_RANGE")
        found.add((nth, _weekday_code(match[2])))
    return tuple(sorted(found))


def _until(text: str | None) -> tuple[int | None, Moment | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z)?)?", text)
    if match is None:
        raise _bad(f"UNTIL: {quoted(text)} is not a date", "write 20271231 or 20271231T235959Z")
    year, month, day = match[1], match[2], match[3]
    clock = f"{match[4]}:{match[5]}:{match[6]}" if match[4] else "23:59:59"
    moment = parse_moment(f"{year}-{month}-{day}T{clock}Z")
    return (None, moment) if match[7] else (moment, None)


def _check_rule(rule: Rule) -> None:
    short = FREQUENCIES.index(rule.freq) >= FREQUENCIES.index("DAILY")
    if any(nth for nth, _ in rule.weekdays) and (rule.freq not in ("MONTHLY", "YEARLY") or rule.weeks):
        raise _bad("a counted weekday such as 2MO needs FREQ=MONTHLY or YEARLY, without BYWEEKNO")
    if rule.weeks and rule.freq != "YEARLY":
        raise _bad("BYWEEKNO needs FREQ=YEARLY")
    if rule.year_days and rule.freq in ("MONTHLY", "WEEKLY", "DAILY"):
        raise _bad(f"BYYEARDAY does not go with FREQ={rule.freq}")
    if rule.month_days and rule.freq == "WEEKLY":
        raise _bad("BYMONTHDAY does not go with FREQ=WEEKLY")
    if rule.positions and short:
        raise _bad("BYSETPOS is read for FREQ=YEARLY, MONTHLY and WEEKLY only")
    _check_interval(rule)
    if len(rule.hours or "1") * len(rule.minutes or "1") * len(rule.seconds or "1") > MAX_TIMES:
        raise Invalid(f"the rule names more than {MAX_TIMES} times of day", code="E_LIMIT")
    if not any(_year_mask(rule, index) for index in _SAMPLE) and (rule.weekdays or _has_days(rule)):
        raise never(rule)


def _check_interval(rule: Rule) -> None:
    """Refuse steps that meet their BY parts only by chance, days or centuries apart: no search is bounded then."""
    unit = _UNIT_SECONDS.get(rule.freq, DAY_SECONDS)
    limits = ((rule.seconds, 1), (rule.minutes, 60), (rule.hours, 3600))
    longest = next((span for given, span in limits if given and unit <= span), DAY_SECONDS)
    step = rule.interval * unit
    if unit < DAY_SECONDS and longest < DAY_SECONDS and step > longest and DAY_SECONDS % step:
        raise _bad(
            f"INTERVAL={rule.interval} meets the BYHOUR, BYMINUTE or BYSECOND given only by chance",
            "take an interval that divides the day, or leave them out",
        )


def never(rule: Rule) -> Invalid:
    return Invalid(f"{quoted(rule.text)} can never match", code="E_CRON_NEVER")


def _has_days(rule: Rule) -> bool:
    return bool(rule.weeks or rule.year_days or rule.month_days or rule.weekdays)


# ----------------------------------------------------------------------------- rules: matching

_SAMPLE = range(2000 - YEARS[0], 2028 - YEARS[0])  # 28 years have all 14 kinds of year


def _year_mask(rule: Rule, index: int) -> int:
    """Return the days of a year of YEARS that pass every BY part, bit 0 = 1 January."""
    year, first = YEARS[index], JANUARY_FIRST[index]
    mask = (1 << (JANUARY_FIRST[index + 1] - first)) - 1
    if rule.months:
        mask &= _bits(day - first for month in rule.months for day in _month_span(year, month))
    if rule.year_days:
        length = 365 + is_leap(year)
        mask &= _bits(day - 1 if day > 0 else length + day for day in rule.year_days if abs(day) <= length)
    if rule.month_days:
        mask &= _bits(day - first for day in _by_month_day(rule, year))
    if rule.weeks:
        mask &= _bits(day - first for day in _by_week(rule, year))
    if rule.weekdays:
        mask &= _bits(day - first for day in _by_weekday(rule, year))
    return mask


def _bits(days: Iterable[int]) -> int:
    mask = 0
    for day in days:
        mask |= 1 << day
    return mask


def _month_span(year: int, month: int) -> range:
    first = day_number(year, month, 1)
    return range(first, first + month_length(year, month))


def _by_month_day(rule: Rule, year: int) -> Iterator[int]:
    for month in range(1, 13):
        span = _month_span(year, month)
        for day in rule.month_days:
            if abs(day) <= len(span):
                yield span[day - 1] if day > 0 else span[day]


def _by_week(rule: Rule, year: int) -> Iterator[int]:
    """The days in weeks of these numbers; the first and last days of a year may be in a neighbour's week."""
    for week_year in (year - 1, year, year + 1):
        first, following = _week_one(week_year, rule.week_start), _week_one(week_year + 1, rule.week_start)
        weeks = range(first, following, 7)
        for number in rule.weeks:
            if abs(number) <= len(weeks):
                start = weeks[number - 1] if number > 0 else weeks[number]
                yield from (day for day in range(start, start + 7) if civil(day).year == year)


def _week_one(year: int, week_start: int) -> int:
    """Return the first day of the week that has 4 January, the first with most of its days in the year."""
    fourth = day_number(year, 1, 4)
    return fourth - (weekday(fourth) - week_start) % 7


def _by_weekday(rule: Rule, year: int) -> Iterator[int]:
    index = year - YEARS[0]
    whole = range(JANUARY_FIRST[index], JANUARY_FIRST[index + 1])
    in_months = rule.freq == "MONTHLY" or (rule.freq == "YEARLY" and rule.months)
    spans = [_month_span(year, month) for month in range(1, 13)] if in_months else [whole]
    for nth, wanted in rule.weekdays:
        for span in spans if nth else [whole]:
            days = range(span[0] + (wanted - weekday(span[0])) % 7, span[-1] + 1, 7)
            if nth == 0:
                yield from days
            elif abs(nth) <= len(days):
                yield days[nth - 1] if nth > 0 else days[nth]


class Recurrence:
    """The walls of a rule whose series begins at an anchor (a wall in whole seconds).

    COUNT is not judged here: it counts occurrences, and where the clocks change, walls are more or fewer than those.
    """

    __slots__ = ("_anchor", "_last", "_masks", "_rule", "_times", "through")

    def __init__(self, rule: Rule, anchor: int) -> None:
        self._anchor = anchor // SECOND
        start, time = civil(self._anchor // DAY_SECONDS), self._anchor % DAY_SECONDS
        self._rule = _with_defaults(rule, start)
        self._times = _times(rule, time)
        self._masks: dict[int, int] = {}
        self.through = rule.freq in ("HOURLY", "MINUTELY", "SECONDLY") and len(self._times.hours) == 24
        self._last = None if rule.until_wall is None else rule.until_wall // SECOND
        if self._is_short() and not self._aligns():
            self._last = self._anchor - 1  # by its numbers alone, nothing matches

    def after(self, wall: int) -> int | None:
        second = max(wall // SECOND + 1, self._anchor)
        if self._last is not None and second > self._last:
            return None
        found = self._short(second) if self._is_short() else self._long(second)
        if found is None or (self._last is not None and found > self._last):
            return None
        return found * SECOND

    def _is_short(self) -> bool:
        return self._rule.freq in _UNIT_SECONDS

    def _mask(self, index: int) -> int:
        mask = self._masks.get(index)
        if mask is None:
            mask = self._masks[index] = _year_mask(self._rule, index)
        return mask

    # DAILY and shorter: days by mask, times by set, and every n-th unit from the anchor. The two sides
    # leapfrog: each proposes its next second not before the other's.

    def _short(self, second: int) -> int | None:
        unit, interval = _UNIT_SECONDS[self._rule.freq], self._rule.interval
        zero = self._anchor // unit
        while (allowed := self._allowed(second)) is not None:
            late = (allowed // unit - zero) % interval
            if late == 0:
                return allowed
            second = (allowed // unit + interval - late) * unit
        return None

    def _allowed(self, second: int) -> int | None:
        day, rest = divmod(second, DAY_SECONDS)
        found = first_day(day, self._mask)
        if found == day:
            time = self._times.at_or_after(rest)
            if time >= 0:
                return day * DAY_SECONDS + time
            found = first_day(day + 1, self._mask)
        return None if found is None else found * DAY_SECONDS + self._times.first

    def _aligns(self) -> bool:
        """Return whether some time of day can ever lie on the n-th unit from the anchor."""
        unit = _UNIT_SECONDS[self._rule.freq]
        if unit == DAY_SECONDS:
            return True
        cycle = gcd(self._rule.interval, DAY_SECONDS // unit)
        zero = self._anchor // unit
        return any((time // unit - zero) % cycle == 0 for time in self._times)

    # WEEKLY and longer: the days of one period at a time.

    def _long(self, second: int) -> int | None:
        rule = self._rule
        zero = self._index(self._anchor // DAY_SECONDS)
        index = self._index(second // DAY_SECONDS)
        index -= (index - zero) % rule.interval
        while (span := self._span(index)) is not None:
            found = self._in_period(span, second)
            if found is not None:
                return found
            index += rule.interval
        return None

    def _index(self, day: int) -> int:
        if self._rule.freq == "WEEKLY":
            return (day + 3 - self._rule.week_start) // 7
        return month_index(day) if self._rule.freq == "MONTHLY" else civil(day).year

    def _span(self, index: int) -> range | None:
        """Return the days of a period; None beyond the calendar."""
        if self._rule.freq == "WEEKLY":
            first = index * 7 - 3 + self._rule.week_start
            return range(first, first + 7) if first + 7 < JANUARY_FIRST[-1] else None
        if self._rule.freq == "MONTHLY":
            year, month = divmod(index, 12)
            return _month_span(year, month + 1) if year <= YEARS[-1] else None
        place = index - YEARS[0]
        return range(JANUARY_FIRST[place], JANUARY_FIRST[place + 1]) if index <= YEARS[-1] else None

    def _in_period(self, span: range, second: int) -> int | None:
        if span[-1] < second // DAY_SECONDS:
            return None
        if self._rule.positions:
            chosen = self._chosen(self._matching(span[0], span))
            place = bisect_left(chosen, second)
            return chosen[place] if place < len(chosen) else None
        found = self._allowed(max(second, span[0] * DAY_SECONDS))
        return found if found is not None and found // DAY_SECONDS in span else None

    def _matching(self, day: int, span: range) -> list[int]:
        days = []
        while (found := first_day(day, self._mask)) is not None and found in span:
            days.append(found)
            day = found + 1
        return days

    def _chosen(self, days: list[int]) -> list[int]:
        """Return the n-th of all days × times of a period, by arithmetic rather than by listing them."""
        times = list(self._times)
        total = len(days) * len(times)
        places = {place - 1 if place > 0 else total + place for place in self._rule.positions}
        return sorted(
            days[place // len(times)] * DAY_SECONDS + times[place % len(times)]
            for place in places
            if 0 <= place < total
        )


def _with_defaults(rule: Rule, start: date) -> Rule:
    """What a rule leaves open comes from its start."""
    if _has_days(rule):
        return rule
    if rule.freq == "YEARLY":
        return replace(rule, months=rule.months or (start.month,), month_days=(start.day,))
    if rule.freq == "MONTHLY":
        return replace(rule, month_days=(start.day,))
    if rule.freq == "WEEKLY":
        return replace(rule, weekdays=((0, start.weekday()),))
    return rule


def _times(rule: Rule, time: int) -> TimesOfDay:
    """Return the times of day of a rule. A unit shorter than the frequency comes from the start, if not given."""
    rank = FREQUENCIES.index(rule.freq)
    hours = rule.hours or (range(24) if rank >= 4 else (time // 3600,))
    minutes = rule.minutes or (range(60) if rank >= 5 else (time // 60 % 60,))
    seconds = rule.seconds or (range(60) if rank >= 6 else (time % 60,))
    return TimesOfDay(hours, [60 * minute + second for minute in minutes for second in seconds])
