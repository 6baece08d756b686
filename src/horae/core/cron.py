"""Cron expressions: reading, matching, and saying in English.

| dialect   | fields                                      | weekdays     | day and weekday both given |
| --------- | ------------------------------------------- | ------------ | -------------------------- |
| unix5     | minute hour day month weekday               | 0 or 7 = SUN | either may match           |
| seconds6  | second minute hour day month weekday        | 0 or 7 = SUN | either may match           |
| quartz6   | second minute hour day month weekday        | 1 = SUN      | one of the two must be `?` |
| quartz7   | second minute hour day month weekday year   | 1 = SUN      | one of the two must be `?` |
| ci4       | second minute hour day                      | –            | –                          |
| macro     | @hourly @daily @midnight @weekly @monthly @yearly @annually                           |

Without a dialect: `@` is macro, 5 fields are unix5, 7 are quartz7; 6 are quartz6 when they hold `?`, `L`,
`W` or `#`, else seconds6. Four fields are read only when ci4 is asked for.

Either may match, but as in Vixie cron a day or weekday field that begins with `*` takes no part in that:
then both must match, so `0 0 */2 * MON` means Mondays on odd days. `L`, `W` and `#` work in every dialect.
Ranges may wrap (`FRI-MON`, `22-2`). `H`, `H(0-29)`, `H/15` stand for a value chosen by a stable hash of the
seed and the field, so that a thousand triggers written alike do not start at once; in a day field `H` stays
within 1 to 28, where every month has it.

What must stay true: an expression is compiled to sets once; a search skips years, days and hours by these
sets and never walks through time; an expression that can never match is found out by looking at the 14
kinds of year there are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from horae.core.model import SECOND
from horae.core.moments import FIRST_YEAR, LAST_YEAR, MONTH_NAMES, nearest, quoted
from horae.core.wallclock import DAY_SECONDS, YEAR_KINDS, YEARS, TimesOfDay, first_day
from horae.core.wording import describe_cron, describe_spread
from horae.errors import Invalid

DIALECTS = ("unix5", "seconds6", "quartz6", "quartz7", "ci4", "macro")
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_LENGTH = 512

_MONTHS = {name[:3].upper(): number for number, name in enumerate(MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}


@dataclass(frozen=True, slots=True)
class _Kind:
    """What may stand in a field."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    spread_high: int | None = None  # how far H may reach, where that is less than high

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_SECOND = _Kind("second", 0, 59)
_MINUTE = _Kind("minute", 0, 59)
_HOUR = _Kind("hour", 0, 23)
_DAY = _Kind("day", 1, 31, spread_high=28)
_MONTH = _Kind("month", 1, 12, _MONTHS)
_WEEKDAY = _Kind("weekday", 0, 7, _WEEKDAYS, spread_high=6)
_QUARTZ_WEEKDAY = _Kind("weekday", 1, 7, {name: number + 1 for name, number in _WEEKDAYS.items()})
_YEAR = _Kind("year", FIRST_YEAR, LAST_YEAR)

_UNIX = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
_QUARTZ = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _QUARTZ_WEEKDAY)
_LAYOUTS: dict[str, tuple[_Kind, ...]] = {
    "unix5": _UNIX,
    "seconds6": (_SECOND, *_UNIX),
    "quartz6": _QUARTZ,
    "quartz7": (*_QUARTZ, _YEAR),
    "ci4": (_SECOND, _MINUTE, _HOUR, _DAY),
}


@dataclass(slots=True)
class _Field:
    """What a field says, as sets. Weekdays are 0 = Sunday here, whatever the dialect."""

    text: str
    star: bool = False  # begins with * or ?
    question: bool = False
    spread: bool = False  # holds an H
    values: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)  # L-n: n days before the last of the month
    near: set[int] = field(default_factory=set)  # nW: the working day nearest to day n
    near_last: set[int] = field(default_factory=set)  # LW, L-nW
    nth: set[tuple[int, int]] = field(default_factory=set)  # weekday#n
    last_weekdays: set[int] = field(default_factory=set)  # 5L
    spread_over: set[int] = field(default_factory=set)  # all values some seed could choose

    @property
    def special(self) -> bool:
        return bool(self.last or self.near or self.near_last or self.nth or self.last_weekdays)


# ---------------------------------------------------------------------------------------- reading


def dialect_of(expression: str, dialect: str | None = None) -> str:
    """The dialect an expression is read as."""
    return _split(expression, dialect)[0]


def uses_spread(expression: str) -> bool:
    """Whether the expression holds an H, so that its moments depend on the seed."""
    return re.search(r"(?<![A-Z])H(?![A-Z])", expression.upper()) is not None


def parse(expression: str, dialect: str | None = None, *, seed: int = 0) -> Cron:
    """Compile an expression; raises Invalid with a code E_CRON_… that says what is wrong and where."""
    if not isinstance(expression, str):
        raise Invalid("a cron expression is text", code="E_TYPE")
    return _parse(expression, dialect, seed if uses_spread(expression) else 0)


def describe(expression: str, dialect: str | None = None, *, seed: int | None = None) -> str:
    """The expression in English. Where it holds an H, the seed is needed to say at what times."""
    cron = parse(expression, dialect, seed=seed or 0)
    return describe_spread(cron) if cron.spread and seed is None else describe_cron(cron)


@lru_cache(maxsize=4096)
def _parse(expression: str, dialect: str | None, seed: int) -> Cron:
    known, tokens = _split(expression, dialect)
    layout = _LAYOUTS["unix5" if known == "macro" else known]
    fields = {
        kind.name: _Reader(kind, text, column, seed).read() for kind, (column, text) in zip(layout, tokens, strict=True)
    }
    if known.startswith("quartz"):
        _check_question(fields, tokens)
    cron = Cron(expression.strip(), known, fields)
    cron.check_possible()
    return cron


def _split(expression: str, dialect: str | None) -> tuple[str, list[tuple[int, str]]]:
    """The dialect, and the fields with the column each begins at."""
    _check_characters(expression)
    if dialect is not None and dialect not in DIALECTS:
        hint = f"use one of {', '.join(DIALECTS)}"
        raise Invalid(f"there is no cron dialect {quoted(dialect)}", code="E_ENUM", hint=hint)
    upper = expression.rstrip().upper()
    tokens = [(match.start() + 1, match[0]) for match in re.finditer(r"[^ \t]+", upper)]
    if not tokens:
        raise Invalid("the cron expression is empty", code="E_CRON_EMPTY", hint="write minute hour day month weekday")
    if tokens[0][1].startswith("@"):
        return "macro", _macro(expression.strip(), dialect)
    known = dialect or _detect(tokens)
    if known == "macro" or known is None or len(tokens) != len(_LAYOUTS[known]):
        raise _wrong_count(len(tokens), dialect)
    return known, tokens


def _check_characters(expression: str) -> None:
    if len(expression) > MAX_LENGTH:
        raise Invalid(f"a cron expression has at most {MAX_LENGTH} characters", code="E_LEN")
    for column, char in enumerate(expression.rstrip(), 1):
        if char in "\r\n":
            raise _syntax(column, "a line break; write one expression on one line")
        if not char.isascii():
            raise _syntax(column, f"{char!r}: " + ("ASCII digits only" if char.isdigit() else "not ASCII"))
        if not char.isprintable() and char != "\t":
            raise _syntax(column, f"the control character {char!r}")


def _macro(text: str, dialect: str | None) -> list[tuple[int, str]]:
    name = text.lower()
    if dialect not in (None, "macro"):
        raise Invalid(f"{quoted(text)} is a macro, not {dialect}", code="E_CRON_SYNTAX")
    if name == "@reboot":
        raise Invalid(
            "@reboot is not offered: a cluster has no one moment of starting",
            code="E_CRON_UNSUPPORTED",
            hint="give a time, or run the job by hand",
        )
    if name not in MACROS:
        close = nearest(name, tuple(MACROS))
        hint = f"did you mean {close}?" if close else f"known are {', '.join(MACROS)}, @every"
        raise _syntax(1, f"unknown macro {quoted(text)}", hint)
    return [(1, token) for token in MACROS[name].split()]


def _detect(tokens: list[tuple[int, str]]) -> str | None:
    if len(tokens) == 6:
        text = " ".join(token for _, token in tokens)
        bare = re.sub("|".join((*_MONTHS, *_WEEKDAYS)), "", text)
        return "quartz6" if set(bare) & set("?LW#") else "seconds6"
    return {5: "unix5", 7: "quartz7"}.get(len(tokens))


def _wrong_count(got: int, dialect: str | None) -> Invalid:
    layout = _LAYOUTS.get(dialect or "")
    if layout:
        wanted = f"{len(layout)} fields ({' '.join(kind.name for kind in layout)})"
    else:
        wanted = "5 fields (minute hour day month weekday) or 6 (seconds first)"
    return Invalid(f"{wanted} expected, got {got}", code="E_CRON_FIELDS")


def _check_question(fields: dict[str, _Field], tokens: list[tuple[int, str]]) -> None:
    if fields["day"].question == fields["weekday"].question:
        raise _syntax(
            tokens[3][0],
            "Quartz needs ? in exactly one of day and weekday",
            "put ? in the one that does not matter, or give dialect seconds6",
        )


def _syntax(column: int, message: str, hint: str = "") -> Invalid:
    return Invalid(f"column {column}: {message}", code="E_CRON_SYNTAX", hint=hint)


_STEP = re.compile(r"([^/]*)/(.*)")
_SPREAD = re.compile(r"H(?:\(([^()-]*)-([^()-]*)\))?")
_LAST_DAY = re.compile(r"L(?:-([0-9]{1,2}))?(W)?")
_NEAR_DAY = re.compile(r"([0-9]{1,2})W")
_NTH_WEEKDAY = re.compile(r"([^#]*)#(.*)")
_LAST_WEEKDAY = re.compile(r"([0-9]|[A-Z]{3})L")


class _Reader:
    """Reads one field."""

    def __init__(self, kind: _Kind, text: str, column: int, seed: int) -> None:
        self.kind, self.text, self.column, self.seed = kind, text, column, seed
        self.field = _Field(text, star=text[0] in "*?")

    def read(self) -> _Field:
        for item in self.text.split(","):
            self._item(item)
            self.column += len(item) + 1
        if self.kind.name == "weekday":
            shift = self.kind.low  # Quartz counts from 1
            self.field.values = {(value - shift) % 7 for value in self.field.values}
        return self.field

    def _item(self, item: str) -> None:
        if not item:
            raise _syntax(self.column, f"an empty item in the {self.kind.name} field")
        if item == "?":
            return self._question()
        if self.kind.name == "day" and self._day_special(item):
            return None
        if self.kind.name == "weekday" and self._weekday_special(item):
            return None
        stepped = _STEP.fullmatch(item)
        base = stepped[1] if stepped else item
        step = self._step(stepped[2]) if stepped else None
        if spread := _SPREAD.fullmatch(base):
            return self._hashed(spread[1], spread[2], step)
        return self._plain(base, step)

    def _question(self) -> None:
        if self.kind.name not in ("day", "weekday") or self.text != "?":
            raise _syntax(self.column, f"? does not belong in the {self.kind.name} field", "write * for any")
        self.field.question = True
        self.field.values |= set(range(self.kind.low, self.kind.high + 1))

    def _plain(self, base: str, step: int | None) -> None:
        low, high = self.kind.low, self.kind.high
        if base == "*":
            first, last = low, high - (self.kind is _WEEKDAY)  # 0 and 7 are one day
        elif "-" in base:
            left, _, right = base.partition("-")
            first, last = self._value(left), self._value(right)
        else:
            first = self._value(base)
            last = first if step is None else max(first, high - (self.kind is _WEEKDAY))
        self.field.values |= set(self._run(first, last, step or 1))

    def _run(self, first: int, last: int, step: int) -> Iterable[int]:
        if first <= last:
            return range(first, last + 1, step)
        if self.kind is _YEAR:
            raise Invalid(f"year range {first}-{last} runs backwards", code="E_CRON_RANGE")
        size = 7 if self.kind is _WEEKDAY else self.kind.size
        span = (last - first) % size
        return ((first - self.kind.low + i) % size + self.kind.low for i in range(0, span + 1, step))

    def _value(self, text: str) -> int:
        if text in self.kind.names:
            return self.kind.names[text]
        if not re.fullmatch("[0-9]+", text):
            raise self._unknown(text)
        value = int(text)
        if not self.kind.low <= value <= self.kind.high:
            shown = text if len(text) < 9 else "…"
            raise Invalid(
                f"{self.kind.name} {shown} not in {self.kind.low}-{self.kind.high}",
                code="E_CRON_RANGE",
                hint=f"at column {self.column}",
            )
        return value

    def _unknown(self, text: str) -> Invalid:
        name = self.kind.name
        if not text:
            return _syntax(self.column, f"a value is missing in the {name} field")
        if self.kind.names and text.isalpha():
            close = nearest(text, tuple(self.kind.names))
            return _syntax(self.column, f"unknown {name} {quoted(text)}", f"did you mean {close}?" if close else "")
        return _syntax(self.column, f"{quoted(text)} is not a {name}")

    def _step(self, text: str) -> int:
        if not re.fullmatch("[0-9]+", text):
            raise _syntax(self.column, f"{quoted(text)} is not a step")
        step = int(text)
        size = 7 if self.kind is _WEEKDAY else self.kind.size
        if step < 1:
            raise Invalid("step must be ≥ 1", code="E_CRON_STEP", hint=f"at column {self.column}")
        if step > size:
            shown = text if len(text) < 9 else "…"
            raise Invalid(f"step {shown} is larger than the {self.kind.name} field ({size})", code="E_CRON_STEP")
        return step

    def _hashed(self, low: str | None, high: str | None, step: int | None) -> None:
        if self.kind is _YEAR:
            raise _syntax(self.column, "H does not belong in the year field")
        top = self.kind.spread_high or self.kind.high
        first = self.kind.low if low is None else self._value(low)
        last = top if high is None else self._value(high)
        if last > top or first > last:
            raise Invalid(f"H({first}-{last}) does not lie within {self.kind.low}-{top}", code="E_CRON_RANGE")
        choices = last - first + 1 if step is None else min(step, last - first + 1)
        start = first + _hash(self.seed, self.kind.name) % choices
        self.field.spread = True
        self.field.spread_over |= set(range(first, last + 1))
        self.field.values |= {start} if step is None else set(range(start, last + 1, step))

    def _day_special(self, item: str) -> bool:
        if match := _LAST_DAY.fullmatch(item):
            back = int(match[1] or 0)
            if back > 30:
                raise Invalid(f"L-{back} reaches before the month; at most L-30", code="E_CRON_RANGE")
            (self.field.near_last if match[2] else self.field.last).add(back)
            return True
        if match := _NEAR_DAY.fullmatch(item):
            self.field.near.add(self._value(match[1]))
            return True
        return False

    def _weekday_special(self, item: str) -> bool:
        shift = self.kind.low
        if match := _NTH_WEEKDAY.fullmatch(item):
            if not re.fullmatch("[1-5]", match[2]):
                raise Invalid(f"# counts from 1 to 5, got {quoted(match[2])}", code="E_CRON_RANGE")
            self.field.nth.add(((self._value(match[1]) - shift) % 7, int(match[2])))
            return True
        if match := _LAST_WEEKDAY.fullmatch(item):
            self.field.last_weekdays.add((self._value(match[1]) - shift) % 7)
            return True
        if item == "L":
            if shift == 0:
                raise _syntax(self.column, "L needs a weekday before it", "write 5L for the last Friday")
            self.field.values.add(7)  # Quartz: the last day of the week is Saturday
            return True
        return False


def _hash(seed: int, name: str) -> int:
    """The same number for the same trigger and field, in every process and release."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest(), "big")


# --------------------------------------------------------------------------------------- matching

_EVERY_SEVENTH = sum(1 << (7 * week) for week in range(5))
_ALL_YEARS = (1 << len(YEARS)) - 1


def _plain_field(text: str, values: Iterable[int], *, star: bool = False) -> _Field:
    return _Field(text, star=star, values=set(values))


class Cron:
    """A compiled expression: a set of walls. Immutable to its users; it learns year masks as it goes."""

    __slots__ = ("_masks", "_years", "dialect", "expression", "fields", "times")

    def __init__(self, expression: str, dialect: str, fields: dict[str, _Field]) -> None:
        self.expression = expression
        self.dialect = dialect
        self.fields = {
            "second": _plain_field("0", [0]),
            "month": _plain_field("*", range(1, 13), star=True),
            "weekday": _plain_field("*", range(7), star=True),
            "year": _plain_field("*", range(FIRST_YEAR, LAST_YEAR + 1), star=True),
            **fields,
        }
        within = [60 * minute + second for minute in self["minute"].values for second in self["second"].values]
        self.times = TimesOfDay(self["hour"].values, within)
        self._years = _ALL_YEARS
        if not self["year"].star:
            self._years = sum(1 << (year - YEARS[0]) for year in self["year"].values)
        self._masks: list[int | None] = [None] * 14

    def __getitem__(self, name: str) -> _Field:
        return self.fields[name]

    @property
    def through(self) -> bool:
        """Whether it names every hour of the day: then it follows the clock through a change."""
        return len(self.times.hours) == 24

    @property
    def spread(self) -> bool:
        return any(field.spread for field in self.fields.values())

    def after(self, wall: int) -> int | None:
        """The first wall strictly after this one."""
        day, second = divmod(wall // SECOND + 1, DAY_SECONDS)
        found = first_day(day, self._days_of_year)
        if found == day:
            time = self.times.at_or_after(second)
            if time >= 0:
                return (day * DAY_SECONDS + time) * SECOND
            found = first_day(day + 1, self._days_of_year)
        return None if found is None else (found * DAY_SECONDS + self.times.first) * SECOND

    def _days_of_year(self, index: int) -> int:
        """The matching days of a year of YEARS, bit 0 = 1 January."""
        if not self._years >> index & 1:
            return 0
        kind = YEAR_KINDS[index]
        mask = self._masks[kind]
        if mask is None:
            mask = self._masks[kind] = self._year_mask(kind, self["month"].values)
        return mask

    def _year_mask(self, kind: int, months: set[int]) -> int:
        leap, first = divmod(kind, 7)
        mask = shift = 0
        for month in range(1, 13):
            length = 28 + leap if month == 2 else 30 + (month in (1, 3, 5, 7, 8, 10, 12))
            if month in months:
                mask |= self._month_mask(length, (first + shift) % 7) << shift
            shift += length
        return mask

    def _month_mask(self, length: int, first: int) -> int:
        """The matching days of a month of this length whose 1st is weekday `first` (0 = Monday)."""
        days, weekdays = self["day"], self["weekday"]
        by_day = _days_by_number(days, length, first)
        by_weekday = _days_by_weekday(weekdays, length, first)
        return by_day & by_weekday if days.star or weekdays.star else by_day | by_weekday

    def check_possible(self) -> None:
        """Refuse what can never match. With H for the month, every month it may choose must work."""
        kinds = {kind for index, kind in enumerate(YEAR_KINDS) if self._years >> index & 1}
        month = self["month"]
        options = [{number} for number in month.spread_over] if month.spread else [month.values]
        for months in options:
            if not any(self._year_mask(kind, months) for kind in kinds):
                raise Invalid(
                    f"{quoted(self.expression)} can never match: no such day exists",
                    code="E_CRON_NEVER",
                    hint="check day, month and year against the calendar",
                )


def _days_by_number(days: _Field, length: int, first: int) -> int:
    mask = sum(1 << (day - 1) for day in days.values if day <= length)
    for back in days.last:
        if back < length:
            mask |= 1 << (length - 1 - back)
    for day in days.near:
        if day <= length:
            mask |= 1 << _working_day(day - 1, length, first)
    for back in days.near_last:
        if back < length:
            mask |= 1 << _working_day(length - 1 - back, length, first)
    return mask


def _working_day(day: int, length: int, first: int) -> int:
    """The Monday to Friday nearest to day (0-based) within the month."""
    weekday = (first + day) % 7
    if weekday == 5:
        return day - 1 if day > 0 else day + 2
    if weekday == 6:
        return day + 1 if day < length - 1 else day - 2
    return day


def _days_by_weekday(weekdays: _Field, length: int, first: int) -> int:
    mask = 0
    for weekday in weekdays.values:
        mask |= _EVERY_SEVENTH << _first_of(weekday, first)
    for weekday, nth in weekdays.nth:
        mask |= 1 << (_first_of(weekday, first) + 7 * (nth - 1))
    for weekday in weekdays.last_weekdays:
        start = _first_of(weekday, first)
        mask |= 1 << (start + (length - 1 - start) // 7 * 7)
    return mask & ((1 << length) - 1)


def _first_of(weekday: int, first: int) -> int:
    """The first day (0-based) of a month that is this weekday (0 = Sunday)."""
    return (weekday - 1 - first) % 7
