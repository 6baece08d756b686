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

import re
from collections.abc import Iterable
from functools import lru_cache

from horae.core.model import SECOND
from horae.core.spelling import suggest
from horae.core.time.cron_fields import LAYOUTS, MONTHS, WEEKDAYS, Field, FieldReader, syntax_error
from horae.core.time.moments import FIRST_YEAR, LAST_YEAR, quoted
from horae.core.time.wallclock import DAY_SECONDS, YEAR_KINDS, YEARS, TimesOfDay, first_day
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

# ---------------------------------------------------------------------------------------- reading


def dialect_of(expression: str, dialect: str | None = None) -> str:
    """Return the dialect an expression is read as."""
    return _split(expression, dialect)[0]


def uses_spread(expression: str) -> bool:
    """Return whether the expression holds an H, so that its moments depend on the seed."""
    return re.search(r"(?<![A-Z])H(?![A-Z])", expression.upper()) is not None


def parse(expression: str, dialect: str | None = None, *, seed: int = 0) -> Cron:
    """Compile an expression; raises Invalid with a code E_CRON_… that says what is wrong and where."""
    if not isinstance(expression, str):
        raise Invalid("a cron expression is text", code="E_TYPE")
    return _parse(expression, dialect, seed if uses_spread(expression) else 0)


@lru_cache(maxsize=4096)
def _parse(expression: str, dialect: str | None, seed: int) -> Cron:
    known, tokens = _split(expression, dialect)
    layout = LAYOUTS["unix5" if known == "macro" else known]
    fields = {
        kind.name: FieldReader(kind, text, column, seed).read()
        for kind, (column, text) in zip(layout, tokens, strict=True)
    }
    if known.startswith("quartz"):
        _check_question(fields, tokens)
    cron = Cron(expression.strip(), known, fields)
    cron.check_possible()
    return cron


def _split(expression: str, dialect: str | None) -> tuple[str, list[tuple[int, str]]]:
    """Return the dialect, and the fields with the column each begins at."""
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
    if known == "macro" or known is None or len(tokens) != len(LAYOUTS[known]):
        raise _wrong_count(len(tokens), dialect)
    return known, tokens


def _check_characters(expression: str) -> None:
    if len(expression) > MAX_LENGTH:
        raise Invalid(f"a cron expression has at most {MAX_LENGTH} characters", code="E_LEN")
    for column, char in enumerate(expression.rstrip(), 1):
        if char in "\r\n":
            raise syntax_error(column, "a line break; write one expression on one line")
        if not char.isascii():
            raise syntax_error(column, f"{char!r}: " + ("ASCII digits only" if char.isdigit() else "not ASCII"))
        if not char.isprintable() and char != "\t":
            raise syntax_error(column, f"the control character {char!r}")


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
        hint = suggest(name, MACROS) or f"known are {', '.join(MACROS)}, @every"
        raise syntax_error(1, f"unknown macro {quoted(text)}", hint)
    return [(1, token) for token in MACROS[name].split()]


def _detect(tokens: list[tuple[int, str]]) -> str | None:
    if len(tokens) == 6:
        text = " ".join(token for _, token in tokens)
        bare = re.sub("|".join((*MONTHS, *WEEKDAYS)), "", text)
        return "quartz6" if set(bare) & set("?LW#") else "seconds6"
    return {5: "unix5", 7: "quartz7"}.get(len(tokens))


def _wrong_count(got: int, dialect: str | None) -> Invalid:
    layout = LAYOUTS.get(dialect or "")
    if layout:
        wanted = f"{len(layout)} fields ({' '.join(kind.name for kind in layout)})"
    else:
        wanted = "5 fields (minute hour day month weekday) or 6 (seconds first)"
    return Invalid(f"{wanted} expected, got {got}", code="E_CRON_FIELDS")


def _check_question(fields: dict[str, Field], tokens: list[tuple[int, str]]) -> None:
    if fields["day"].question == fields["weekday"].question:
        raise syntax_error(
            tokens[3][0],
            "Quartz needs ? in exactly one of day and weekday",
            "put ? in the one that does not matter, or give dialect seconds6",
        )


# --------------------------------------------------------------------------------------- matching

_EVERY_SEVENTH = sum(1 << (7 * week) for week in range(5))
_ALL_YEARS = (1 << len(YEARS)) - 1


def _plain_field(text: str, values: Iterable[int], *, star: bool = False) -> Field:
    return Field(text, star=star, values=set(values))


class Cron:
    """A compiled expression: a set of walls. Immutable to its users; it learns year masks as it goes."""

    __slots__ = ("_masks", "_years", "dialect", "expression", "fields", "times")

    def __init__(self, expression: str, dialect: str, fields: dict[str, Field]) -> None:
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

    def __getitem__(self, name: str) -> Field:
        return self.fields[name]

    @property
    def through(self) -> bool:
        """Whether it names every hour of the day: then it follows the clock through a change."""
        return len(self.times.hours) == 24

    @property
    def spread(self) -> bool:
        return any(field.spread for field in self.fields.values())

    def after(self, wall: int) -> int | None:
        """Return the first wall strictly after this one."""
        day, second = divmod(wall // SECOND + 1, DAY_SECONDS)
        found = first_day(day, self._days_of_year)
        if found == day:
            time = self.times.at_or_after(second)
            if time >= 0:
                return (day * DAY_SECONDS + time) * SECOND
            found = first_day(day + 1, self._days_of_year)
        return None if found is None else (found * DAY_SECONDS + self.times.first) * SECOND

    def _days_of_year(self, index: int) -> int:
        """Return the matching days of a year of YEARS, bit 0 = 1 January."""
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
        """Return the matching days of a month of this length whose 1st is weekday `first` (0 = Monday)."""
        days, weekdays = self["day"], self["weekday"]
        by_day = _days_by_number(days, length, first)
        by_weekday = _days_by_weekday(weekdays, length, first)
        return by_day & by_weekday if days.star or weekdays.star else by_day | by_weekday

    def check_possible(self) -> None:
        """Refuse what can never match. With H for the month, every month it may choose must work."""
        if self._years and all(self[name].is_any for name in ("day", "weekday")):
            return  # the most common by far: it needs no calendar
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


def _days_by_number(days: Field, length: int, first: int) -> int:
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
    """Return the Monday to Friday nearest to day (0-based) within the month."""
    weekday = (first + day) % 7
    if weekday == 5:
        return day - 1 if day > 0 else day + 2
    if weekday == 6:
        return day + 1 if day < length - 1 else day - 2
    return day


def _days_by_weekday(weekdays: Field, length: int, first: int) -> int:
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
    """Return the first day (0-based) of a month that is this weekday (0 = Sunday)."""
    return (weekday - 1 - first) % 7
