"""One field of a cron expression: what may stand in it, and what it says, as sets.

`H` is hashed here: the same seed and field give the same value in every process and release.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from horae.core.spelling import suggest
from horae.core.time.moments import FIRST_YEAR, LAST_YEAR, MONTH_NAMES, quoted
from horae.errors import Invalid

MONTHS = {name[:3].upper(): number for number, name in enumerate(MONTH_NAMES, 1)}
WEEKDAYS = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What may stand in a field."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    spread_high: int | None = None  # how far H may reach, where that is less than high

    @property
    def size(self) -> int:
        return self.high - self.low + 1


SECOND = FieldKind("second", 0, 59)
MINUTE = FieldKind("minute", 0, 59)
HOUR = FieldKind("hour", 0, 23)
DAY = FieldKind("day", 1, 31, spread_high=28)
MONTH = FieldKind("month", 1, 12, MONTHS)
WEEKDAY = FieldKind("weekday", 0, 7, WEEKDAYS, spread_high=6)
QUARTZ_WEEKDAY = FieldKind("weekday", 1, 7, {name: number + 1 for name, number in WEEKDAYS.items()})
YEAR = FieldKind("year", FIRST_YEAR, LAST_YEAR)

_UNIX = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_QUARTZ = (SECOND, MINUTE, HOUR, DAY, MONTH, QUARTZ_WEEKDAY)
LAYOUTS: dict[str, tuple[FieldKind, ...]] = {  # dialect → its fields
    "unix5": _UNIX,
    "seconds6": (SECOND, *_UNIX),
    "quartz6": _QUARTZ,
    "quartz7": (*_QUARTZ, YEAR),
    "ci4": (SECOND, MINUTE, HOUR, DAY),
}


@dataclass(slots=True)
class Field:
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
    def is_any(self) -> bool:
        """Return whether it says nothing."""
        return self.text in ("*", "?")

    @property
    def special(self) -> bool:
        return bool(self.last or self.near or self.near_last or self.nth or self.last_weekdays)


def syntax_error(column: int, message: str, hint: str = "") -> Invalid:
    return Invalid(f"column {column}: {message}", code="E_CRON_SYNTAX", hint=hint)


_STEP = re.compile(r"([^/]*)/(.*)")
_SPREAD = re.compile(r"H(?:\(([^()-]*)-([^()-]*)\))?")
_LAST_DAY = re.compile(r"L(?:-([0-9]{1,2}))?(W)?")
_NEAR_DAY = re.compile(r"([0-9]{1,2})W")
_NTH_WEEKDAY = re.compile(r"([^#]*)#(.*)")
_LAST_WEEKDAY = re.compile(r"([0-9]|[A-Z]{3})L")


class FieldReader:
    """Reads one field."""

    def __init__(self, kind: FieldKind, text: str, column: int, seed: int) -> None:
        self.kind, self.text, self.column, self.seed = kind, text, column, seed
        self.field = Field(text, star=text[0] in "*?")

    def read(self) -> Field:
        for item in self.text.split(","):
            self._item(item)
            self.column += len(item) + 1
        if self.kind.name == "weekday":
            shift = self.kind.low  # Quartz counts from 1
            self.field.values = {(value - shift) % 7 for value in self.field.values}
        return self.field

    def _item(self, item: str) -> None:
        if not item:
            raise syntax_error(self.column, f"an empty item in the {self.kind.name} field")
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
            raise syntax_error(self.column, f"? does not belong in the {self.kind.name} field", "write * for any")
        self.field.question = True
        self.field.values |= set(range(self.kind.low, self.kind.high + 1))

    def _plain(self, base: str, step: int | None) -> None:
        low, high = self.kind.low, self.kind.high
        if base == "*":
            first, last = low, high - (self.kind is WEEKDAY)  # 0 and 7 are one day
        elif "-" in base:
            left, _, right = base.partition("-")
            first, last = self._value(left), self._value(right)
        else:
            first = self._value(base)
            last = first if step is None else max(first, high - (self.kind is WEEKDAY))
        self.field.values |= set(self._run(first, last, step or 1))

    def _run(self, first: int, last: int, step: int) -> Iterable[int]:
        if first <= last:
            return range(first, last + 1, step)
        if self.kind is YEAR:
            raise Invalid(f"year range {first}-{last} runs backwards", code="E_CRON_RANGE")
        size = 7 if self.kind is WEEKDAY else self.kind.size
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
            return syntax_error(self.column, f"a value is missing in the {name} field")
        if self.kind.names and text.isalpha():
            return syntax_error(self.column, f"unknown {name} {quoted(text)}", suggest(text, self.kind.names))
        return syntax_error(self.column, f"{quoted(text)} is not a {name}")

    def _step(self, text: str) -> int:
        if not re.fullmatch("[0-9]+", text):
            raise syntax_error(self.column, f"{quoted(text)} is not a step")
        step = int(text)
        size = 7 if self.kind is WEEKDAY else self.kind.size
        if step < 1:
            raise Invalid("step must be ≥ 1", code="E_CRON_STEP", hint=f"at column {self.column}")
        if step > size:
            shown = text if len(text) < 9 else "…"
            raise Invalid(f"step {shown} is larger than the {self.kind.name} field ({size})", code="E_CRON_STEP")
        return step

    def _hashed(self, low: str | None, high: str | None, step: int | None) -> None:
        if self.kind is YEAR:
            raise syntax_error(self.column, "H does not belong in the year field")
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
                raise syntax_error(self.column, "L needs a weekday before it", "write 5L for the last Friday")
            self.field.values.add(7)  # Quartz: the last day of the week is Saturday
            return True
        return False


def _hash(seed: int, name: str) -> int:
    """Return the same number for the same trigger and field, in every process and release."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest(), "big")
