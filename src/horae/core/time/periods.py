"""Calendar periods counted from an anchor: every n days, weeks, months or years.

What must stay true: the anchor is never lost: monthly from 31 January is 28 February, then 31 March.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from horae.core.time.moments import DAY
from horae.core.time.wallclock import JANUARY_FIRST, YEARS, civil, day_number, month_index, month_length, weekday

_LAST_DAY = JANUARY_FIRST[-1] - 1


@dataclass(frozen=True, slots=True)
class PeriodSpec:
    """Every n days, weeks, months or years, as written. None: taken from the anchor."""

    unit: str
    every: int = 1
    time: int | None = None  # µs of the day
    days: tuple[int, ...] | None = None  # weekdays, 0 = Monday
    month_days: tuple[int, ...] | None = None  # -1 is the last
    months: tuple[int, ...] | None = None
    clamp: bool = True

    def anchored(self, wall: int) -> Period:
        day, time = divmod(wall, DAY)
        start = civil(day)
        filled = replace(
            self,
            time=time if self.time is None else self.time,
            days=self.days or (weekday(day),),
            month_days=self.month_days or (start.day,),
            months=self.months or (start.month,),
        )
        return Period(filled, day)


class Period:
    """The walls of a period counted from the day of its anchor."""

    __slots__ = ("_days_in", "_every", "_index", "_spec", "_time", "_zero")

    through = False

    def __init__(self, spec: PeriodSpec, anchor_day: int) -> None:
        self._spec = spec
        self._every = spec.every
        self._time = spec.time or 0
        units: dict[str, tuple[Callable[[int], int], Callable[[int], list[int]]]] = {
            "day": (lambda day: day, lambda index: [index]),
            "week": (lambda day: (day + 3) // 7, self._week_days),
            "month": (month_index, self._month_days),
            "year": (lambda day: civil(day).year, self._year_days),
        }
        self._index, self._days_in = units[spec.unit]
        self._zero = self._index(anchor_day)

    def after(self, wall: int) -> int | None:
        index = max(self._index(wall // DAY), self._zero)
        index -= (index - self._zero) % self._every
        while not self._beyond(index):
            for day in self._days_in(index):
                if day * DAY + self._time > wall:
                    return day * DAY + self._time
            index += self._every
        return None

    def _beyond(self, index: int) -> bool:
        """Return whether this period has left the calendar (days and weeks count from 1970, the rest from 0)."""
        last = {"day": _LAST_DAY, "week": _LAST_DAY // 7, "month": 12 * YEARS[-1], "year": YEARS[-1]}
        return index > last[self._spec.unit]

    def _week_days(self, index: int) -> list[int]:
        return [index * 7 - 3 + day for day in self._spec.days or ()]

    def _month_days(self, index: int) -> list[int]:
        year, month = divmod(index, 12)
        length = month_length(year, month + 1)
        days = set()
        for day in self._spec.month_days or ():
            if 1 <= day <= length:
                days.add(day)
            elif day < 0 or self._spec.clamp:
                days.add(length)
        first = day_number(year, month + 1, 1)
        return [first + day - 1 for day in sorted(days)]

    def _year_days(self, index: int) -> list[int]:
        return [day for month in self._spec.months or () for day in self._month_days(index * 12 + month - 1)]
