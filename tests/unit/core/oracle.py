"""What a cron expression means, decided the slow and obvious way, to hold the engine against.

Nothing of horae is imported here. Time is walked second by second or minute by minute in UTC and converted by
zoneinfo; a wall-clock reading is compared with the text of each field by counting; gap and fold are applied
by their definitions: a reading that never shows, a reading that shows twice.
"""

from __future__ import annotations

import calendar
import random
import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# (zone, a moment near a change of its clocks)
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00:00"),
    ("Europe/Berlin", "2026-10-25T01:00:00"),
    ("America/New_York", "2026-03-08T07:00:00"),
    ("America/New_York", "2026-11-01T06:00:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00"),  # half an hour
    ("Australia/Lord_Howe", "2026-10-03T15:30:00"),
    ("Africa/Casablanca", "2026-02-15T02:00:00"),  # clocks go back for Ramadan
    ("Africa/Casablanca", "2026-03-22T02:00:00"),
    ("Pacific/Apia", "2011-12-30T10:00:00"),  # 30 December did not happen
    ("America/Santiago", "2026-04-05T03:00:00"),  # the change is at midnight
    ("America/Santiago", "2026-09-06T04:00:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30:00"),  # a quarter of an hour, for good
    ("Europe/Dublin", "2026-03-29T01:00:00"),  # negative summer time
    ("Europe/Dublin", "2026-10-25T01:00:00"),
    ("Antarctica/Troll", "2026-03-29T01:00:00"),  # two hours
    ("Antarctica/Troll", "2026-10-25T01:00:00"),
    ("Antarctica/Vostok", "1994-11-01T00:00:00"),  # seven hours
    ("Pacific/Kwajalein", "1993-08-21T12:00:00"),  # a day
    ("America/St_Johns", "2006-10-29T02:31:00"),  # a minute past midnight, half-hour offset
    ("Asia/Gaza", "2026-10-31T00:00:00"),
    ("UTC", "2026-03-01T00:00:00"),
    # Changes on the seam of what the engine learns at a time (128 days): the fold must not be cut in two.
    ("Africa/Tunis", "2005-09-30T00:00:00"),
    ("Antarctica/Troll", "2020-10-25T01:00:00"),
]


# --------------------------------------------------------------------------------------- matching


def number(text: str, names: list[str], base: int) -> int:
    return names.index(text) + base if text in names else int(text)


def walk(text: str, low: int, high: int, names: list[str], base: int) -> set[int]:
    """Return the values of a field without specials, by walking from the first to the last with wrap-around."""
    found = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        if body in ("*", "?"):
            first, last = low, high
        elif "-" in body:
            left, right = body.split("-")
            first, last = number(left, names, base), number(right, names, base)
        else:
            first = number(body, names, base)
            last = high if step else first
        value, count = first, 0
        while True:
            if count % int(step or 1) == 0:
                found.add(value)
            if value == last:
                break
            value, count = (value + 1 if value < high else low), count + 1
    return found


def weekday_values(text: str, quartz: bool) -> set[int]:
    """0 = Sunday … 6 = Saturday."""
    if quartz:
        return {value - 1 for value in walk(text, 1, 7, DAYS, 1)}
    found = set()
    for item in text.split(","):  # 7 is Sunday too: try both readings of the right end
        body, slash, step = item.partition("/")
        if re.fullmatch("[0-6]-7", body):
            first = int(body[0])
            found |= {value % 7 for value in range(first, 8, int(step or 1))}
        elif body == "7" and not slash:
            found.add(0)
        else:
            body = re.sub(r"^7-", "0-", body)
            found |= walk(body + slash + step, 0, 6, DAYS, 0)
    return found


def day_matches(item: str, day: date) -> bool:
    """One item of a day-of-month field."""
    last = calendar.monthrange(day.year, day.month)[1]
    if match := re.fullmatch(r"(?:L(?:-(\d+))?|(\d+))(W?)", item):
        if match[2] and not match[3]:
            return day.day == int(match[2])
        target = int(match[2]) if match[2] else last - int(match[1] or 0)
        if not 1 <= target <= last:
            return False
        if not match[3]:
            return day.day == target
        return day == nearest_working_day(date(day.year, day.month, target))
    return day.day in walk(item, 1, 31, [], 0)


def nearest_working_day(day: date) -> date:
    """Try further and further away, staying in the month."""
    for distance in (0, -1, 1, -2, 2):
        other = day + timedelta(days=distance)
        if other.month == day.month and other.weekday() < 5:
            return other
    raise AssertionError("a month has working days")


def weekday_matches(item: str, day: date, quartz: bool) -> bool:
    own = (day.weekday() + 1) % 7
    shift = 1 if quartz else 0
    if "#" in item:
        name, nth = item.split("#")
        wanted = (number(name, DAYS, shift) - shift) % 7
        earlier = sum(1 for d in range(1, day.day + 1) if date(day.year, day.month, d).weekday() == day.weekday())
        return own == wanted and earlier == int(nth)
    if item == "L":
        return own == 6
    if item.endswith("L"):
        wanted = (number(item[:-1], DAYS, shift) - shift) % 7
        return own == wanted and (day + timedelta(days=7)).month != day.month
    return own in weekday_values(item, quartz)


class Expression:
    """The naive reading of an expression: matches(date), matches(hour, minute, second)."""

    def __init__(self, text: str, dialect: str) -> None:
        fields = text.split()
        self.quartz = dialect.startswith("quartz")
        if dialect == "unix5":
            fields = ["0", *fields]
        if dialect == "ci4":
            fields += ["*", "*"]
        if len(fields) == 6:
            fields.append("*")
        self.seconds, self.minutes = walk(fields[0], 0, 59, [], 0), walk(fields[1], 0, 59, [], 0)
        self.hours = walk(fields[2], 0, 23, [], 0)
        self.day, self.month, self.weekday = fields[3], walk(fields[4], 1, 12, MONTHS, 1), fields[5]
        self.years = None if fields[6] == "*" else walk(fields[6], 1970, 2200, [], 0)
        self.known: dict[date, bool] = {}

    def on(self, day: date) -> bool:
        if day not in self.known:
            self.known[day] = self._on(day)
        return self.known[day]

    def _on(self, day: date) -> bool:
        if day.month not in self.month or (self.years is not None and day.year not in self.years):
            return False
        by_day = any(day_matches(item, day) for item in self.day.split(","))
        by_weekday = any(weekday_matches(item, day, self.quartz) for item in self.weekday.split(","))
        if self.day[0] in "*?" or self.weekday[0] in "*?":
            return by_day and by_weekday
        return by_day or by_weekday

    def at(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and wall.microsecond == 0
            and self.on(wall.date())
        )


# ------------------------------------------------------------------------------------ through time


@lru_cache(maxsize=64)
def clock(zone: str, start: datetime, steps: int, step: int) -> list[tuple[int, datetime]]:
    """(second since 1970, the reading of the zone's clocks), step by step."""
    info = ZoneInfo(zone)
    first = int((start - EPOCH).total_seconds())
    return [
        (second, datetime.fromtimestamp(second, info).replace(tzinfo=None, fold=0))
        for second in range(first, first + steps * step, step)
    ]


def moments(
    expression: Expression, readings: list[tuple[int, datetime]], step: int, gap: str = "run_after", fold: str = "first"
) -> list[int]:
    """Every moment (seconds) of the expression within the readings, by definition."""
    hits = [(second, wall) for second, wall in readings if expression.at(wall)]
    if len(expression.hours) == 24:  # runs through
        return [second for second, _ in hits]
    showings: dict[datetime, list[int]] = {}
    for second, wall in hits:
        showings.setdefault(wall, []).append(second)
    chosen = {
        second
        for seconds in showings.values()
        for second in {"first": seconds[:1], "second": seconds[-1:], "both": seconds}[fold]
    }
    if gap == "run_after":
        chosen |= set(after_gaps(expression, readings, step))
    return sorted(chosen)


def after_gaps(expression: Expression, readings: list[tuple[int, datetime]], step: int) -> list[int]:
    """Return the ends of those gaps that swallow at least one reading of the expression."""
    ends = []
    tick = timedelta(seconds=step)
    for (_, before), (second, after) in pairwise(readings):
        missing = before + tick
        while missing < after:
            if expression.at(missing):
                ends.append(second)
                break
            missing += tick
    return ends


def on_days(expression: Expression, first: date, count: int) -> list[int]:
    """Every moment in UTC on `count` days, in seconds."""
    found = []
    times = [
        3600 * h + 60 * m + s for h in sorted(expression.hours) for m in sorted(expression.minutes)
        for s in sorted(expression.seconds)
    ]  # fmt: skip
    for offset in range(count):
        day = first + timedelta(days=offset)
        if expression.on(day):
            midnight = (day - date(1970, 1, 1)).days * 86400
            found += [midnight + time for time in times]
    return found


# -------------------------------------------------------------------------------------- generating


def random_field(rng: random.Random, low: int, high: int, names: list[str] | None = None) -> str:
    """Return a field without specials: values, ranges (some of which wrap), steps and lists."""

    def one() -> str:
        value = rng.randint(low, high)
        shape = rng.random()
        if shape < 0.45:
            return names[value - low] if names and rng.random() < 0.4 and value - low < len(names) else str(value)
        if shape < 0.8:
            other = rng.randint(low, high)
            text = f"{value}-{other}"
            return text + (f"/{rng.randint(1, high - low)}" if rng.random() < 0.3 else "")
        return f"{rng.choice(['*', str(value)])}/{rng.randint(1, high - low)}"

    return ",".join(one() for _ in range(rng.choice([1, 1, 1, 2, 3])))


def random_day(rng: random.Random) -> str:
    special = ["L", "LW", f"L-{rng.randint(1, 30)}", f"{rng.randint(1, 31)}W", f"L-{rng.randint(0, 5)}W"]
    return rng.choice([*special, random_field(rng, 1, 31), random_field(rng, 1, 31), f"L,{rng.randint(1, 28)}"])


def random_weekday(rng: random.Random, quartz: bool) -> str:
    low, high = (1, 7) if quartz else (0, 6)
    value = rng.randint(low, high)
    special = [f"{value}L", f"{value}#{rng.randint(1, 5)}", f"{rng.choice(DAYS)}#2", "FRI-MON"]
    if not quartz:
        special += ["7", "5-7", "7-2", "1,7"]
    return rng.choice([*special, random_field(rng, low, high, DAYS), random_field(rng, low, high)])


def random_expression(rng: random.Random, dialect: str, *, dates: float = 0.3) -> str:
    """`dates`: how often day, weekday and month are restricted."""
    quartz = dialect.startswith("quartz")
    minute = rng.choice(["0", "30", "*/15", "*", random_field(rng, 0, 59)])
    hour = rng.choice(["*", "0", "1", "2", "1-3", "*/2", "22-2", random_field(rng, 0, 23)])
    day = random_day(rng) if rng.random() < dates else "*"
    weekday = random_weekday(rng, quartz) if rng.random() < dates else "*"
    month = random_field(rng, 1, 12, MONTHS) if rng.random() < dates / 2 else "*"
    if quartz:
        day, weekday = rng.choice([("?", weekday), (day, "?")])
    if dialect == "ci4":
        return f"{random_second(rng)} {minute} {hour} {day}"
    fields = [minute, hour, day, month, weekday]
    if dialect != "unix5":
        fields.insert(0, random_second(rng))
    if dialect == "quartz7":
        fields.append(rng.choice(["*", "2026", "1985-2030", "2011,2026/2", "1970-2199/4"]))
    return " ".join(fields)


def random_second(rng: random.Random) -> str:
    return rng.choice(["0", "*/20", random_field(rng, 0, 59)])
