"""What the clocks of a zone show, and which moments a wall-clock pattern falls on.

A *wall* is a clock reading as µs since 1970-01-01T00:00 on that clock, so wall = moment + offset.
Between two changes of the offset (a `Piece`) that is one addition; all of daylight saving time is in how
pieces meet:

- **gap** (the offset grows): walls in [end + offset, end + after) never show. A pattern of fixed times with
  at least one of them there gets one moment at the end of the gap (`run_after`), or none (`skip`).
- **fold** (the offset shrinks): walls in [end + after, end + offset) show twice. A pattern of fixed times
  gets the `first`, the `second` or `both`.
- A pattern that runs **through** (it names every hour of the day) follows the clock: in a fold it matches
  in both hours, in a gap nothing is added.

What must stay true: `Zoned.after` grows strictly, and one search costs a handful of steps whatever the
distance: no loop here or in a pattern visits time minute by minute.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from horae.core.model import SECOND, Moment
from horae.core.time.moments import DAY, FIRST_YEAR, HORIZON, LAST_YEAR

DAY_SECONDS = 86_400
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

# One year of margin on both sides: walls run ahead of and behind UTC.
YEARS = range(FIRST_YEAR - 1, LAST_YEAR + 2)
JANUARY_FIRST = tuple(date(year, 1, 1).toordinal() - _EPOCH_ORDINAL for year in (*YEARS, YEARS[-1] + 1))


def day_number(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01."""
    return date(year, month, day).toordinal() - _EPOCH_ORDINAL


def civil(day: int) -> date:
    return date.fromordinal(day + _EPOCH_ORDINAL)


def weekday(day: int) -> int:
    """0 = Monday … 6 = Sunday."""
    return (day + 3) % 7


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    return 28 + is_leap(year) if month == 2 else 30 + (month in (1, 3, 5, 7, 8, 10, 12))


# There are only 14 kinds of year: (leap or not) × (weekday of 1 January), as one small number.
YEAR_KINDS = tuple(7 * is_leap(year) + weekday(JANUARY_FIRST[i]) for i, year in enumerate(YEARS))


def month_index(day: int) -> int:
    """Months from the year 0."""
    at = civil(day)
    return at.year * 12 + at.month - 1


def first_day(day: int, days_of_year: Callable[[int], int]) -> int | None:
    """Return the first day at or after `day` among those named by `days_of_year` (index in YEARS → bit mask)."""
    day = max(day, JANUARY_FIRST[0])
    index = bisect_right(JANUARY_FIRST, day) - 1
    skip = day - JANUARY_FIRST[index]
    while index < len(YEARS):
        mask = days_of_year(index) >> skip
        if mask:
            return JANUARY_FIRST[index] + skip + (mask & -mask).bit_length() - 1
        index, skip = index + 1, 0
    return None


class TimesOfDay:
    """The times of day hours × (minute and second within the hour), in whole seconds."""

    __slots__ = ("_next_hour", "first", "hours", "within")

    def __init__(self, hours: Iterable[int], within: Iterable[int]) -> None:
        self.hours = tuple(sorted(hours))
        self.within = tuple(sorted(within))
        self.first = self.hours[0] * 3600 + self.within[0]
        # _next_hour[h]: the first hour of the pattern at or after h, -1 for none
        self._next_hour = tuple(next((h for h in self.hours if h >= hour), -1) for hour in range(25))

    def at_or_after(self, second: int) -> int:
        """Return the first time of day not before `second`; -1 when the day has no more."""
        hour, rest = divmod(second, 3600)
        found = self._next_hour[hour]
        if found == hour:
            if rest <= self.within[-1]:
                return hour * 3600 + self.within[bisect_left(self.within, rest)]
            found = self._next_hour[hour + 1]
        return -1 if found < 0 else found * 3600 + self.within[0]

    def __iter__(self) -> Iterator[int]:
        return (hour * 3600 + rest for hour in self.hours for rest in self.within)

    def __len__(self) -> int:
        return len(self.hours) * len(self.within)


class Pattern(Protocol):
    """A set of walls."""

    @property
    def through(self) -> bool:
        """Whether it runs through changes of the clock instead of keeping to fixed times."""

    def after(self, wall: int) -> int | None:
        """Return the first wall of the set strictly after this one."""


# ------------------------------------------------------------------------------------------ zones


class Piece(NamedTuple):
    """A stretch [start, end) of moments with one offset, and the offsets on either side of it."""

    start: Moment
    end: Moment
    offset: int
    before: int
    after: int


_FOREVER = 4 * HORIZON
_CHUNK = 128 * DAY
# Pieces reach this far over the border of their chunk, so that a fold or gap is never cut in two.
_MARGIN = 4 * DAY
# Changes of offset since 1970 are at least 6.9 days apart (Gaza, Recife): no probe can step over two.
_PROBE = 3 * DAY


class Zone:
    """The offsets of one zone, found by asking zoneinfo, kept in chunks of some months."""

    __slots__ = ("_chunks", "_fixed", "info", "name")

    def __init__(self, info: ZoneInfo) -> None:
        self.info = info
        self.name = info.key
        self._chunks: dict[int, tuple[Piece, ...]] = {}
        self._fixed = Piece(-_FOREVER, _FOREVER, 0, 0, 0) if info.key in ("UTC", "Etc/UTC") else None

    def piece_at(self, moment: Moment) -> Piece:
        if self._fixed is not None:
            return self._fixed
        chunk = moment // _CHUNK
        pieces = self._chunks.get(chunk) or self._learn(chunk)
        for piece in pieces:
            if moment < piece.end:
                return piece
        raise AssertionError("a chunk reaches past its own end")

    def offset_at(self, moment: Moment) -> int:
        return self.piece_at(moment).offset

    def moment_of(self, wall: int) -> tuple[Moment, bool]:
        """Return the first moment at which the clocks show `wall`, or the end of the gap it lies in (and False)."""
        piece = self.piece_at(wall - DAY - DAY)
        while wall >= piece.end + piece.offset:
            if wall < piece.end + piece.after:
                return piece.end, False
            piece = self.piece_at(piece.end)
        return wall - piece.offset, True

    def _learn(self, chunk: int) -> tuple[Piece, ...]:
        start, end = chunk * _CHUNK - _MARGIN, (chunk + 1) * _CHUNK + _MARGIN
        changes = self._changes(start, end)
        edges = [start, *changes, end]
        offsets = [self._ask(edge) for edge in edges[:-1]]
        around = [offsets[0], *offsets, offsets[-1]]
        pieces = tuple(Piece(edges[i], edges[i + 1], offsets[i], around[i], around[i + 2]) for i in range(len(offsets)))
        self._chunks[chunk] = pieces
        return pieces

    def _changes(self, start: Moment, end: Moment) -> list[Moment]:
        changes = []
        offset = self._ask(start)
        for probe in range(start, end, _PROBE):
            upto = min(probe + _PROBE, end - SECOND)
            if (later := self._ask(upto)) != offset:
                changes.append(self._boundary(probe, upto))
                offset = later
        return changes

    def _boundary(self, low: Moment, high: Moment) -> Moment:
        """Return the second in (low, high] from which the offset is the later one."""
        old = self._ask(low)
        while high - low > SECOND:
            middle = (low + high) // (2 * SECOND) * SECOND
            if self._ask(middle) == old:
                low = middle
            else:
                high = middle
        return high

    def _ask(self, moment: Moment) -> int:
        offset = datetime.fromtimestamp(moment // SECOND, self.info).utcoffset()
        assert offset is not None, "a zone of the IANA list always has an offset"
        return (offset.days * DAY_SECONDS + offset.seconds) * SECOND


@lru_cache(maxsize=700)  # there are about 600 names
def offsets_of(info: ZoneInfo) -> Zone:
    return Zone(info)


# ----------------------------------------------------------------------------------------- search

_FAR = 3 * DAY  # more than two offsets can differ by
_UNKNOWN: Moment = -1
_REMEMBERED = 64  # answers per pattern; a herd needs one, a look-ahead a few


class Zoned:
    """The moments of a pattern in a zone. Remembers its last answers: a herd costs one search."""

    __slots__ = ("_first", "_memo", "_run_after", "_second", "pattern", "zone")

    def __init__(self, pattern: Pattern, zone: Zone, *, gap: str = "run_after", fold: str = "first") -> None:
        self.pattern = pattern
        self.zone = zone
        self._run_after = gap == "run_after" and not pattern.through
        self._first = fold == "first" and not pattern.through
        self._second = fold == "second" and not pattern.through
        self._memo: dict[Moment, Moment | None] = {}

    def after(self, moment: Moment) -> Moment | None:
        """Return the first moment strictly after this one; None when there is none before the horizon."""
        memo = self._memo
        found = memo.get(moment, _UNKNOWN)  # one look-up, so that threads may share a pattern
        if found != _UNKNOWN:
            return found
        found = self._search(moment)
        assert found is None or found > moment, "a schedule moves forward"
        if len(memo) >= _REMEMBERED:
            memo.clear()
        memo[moment] = found
        return found

    def _search(self, moment: Moment) -> Moment | None:
        here, piece = moment, self.zone.piece_at(moment)
        wall = moment + piece.offset
        while here <= HORIZON:
            start, end, offset, before, after = piece
            if self._first and before > offset and wall < start + before:
                wall = start + before - 1  # these walls have had their first showing
            match = self.pattern.after(wall)
            if match is None:
                if after >= offset or self._first:
                    return None
                match = end + offset  # over on this clock, but a fold may show its last walls again
            shown = end + (after if self._second and after < offset else offset)
            if match < shown:
                return match - offset if match - offset <= HORIZON else None
            if self._run_after and end + offset <= match < end + after:
                return end
            here = self._resume(piece, match)
            piece = self.zone.piece_at(here)
            wall = here + piece.offset - 1
        return None

    def _resume(self, piece: Piece, match: int) -> Moment:
        """Return where to look next: where this piece ends, or much later when nothing can match before that.

        A fold at its end shows walls again that lie before the match, however far off that is.
        """
        if piece.after < piece.offset:
            return piece.end
        target = match - piece.offset - _FAR
        return target if target >= self.zone.piece_at(piece.end).end else piece.end

    def note(self, moment: Moment) -> str:
        """Return what daylight saving time did to a moment of this pattern; '' for nothing."""
        piece = self.zone.piece_at(moment)
        before = self.zone.piece_at(moment - 1)
        if before.end == moment and before.after > before.offset:
            return self._gap_note(before)
        wall = moment + piece.offset
        if piece.before > piece.offset and wall < piece.start + piece.before:
            return "fold: second of two"
        if piece.after < piece.offset and wall >= piece.end + piece.after:
            return "fold: first of two"
        return ""

    def _gap_note(self, piece: Piece) -> str:
        first_missing = self.pattern.after(piece.end + piece.offset - 1)
        if not self._run_after or first_missing is None or first_missing >= piece.end + piece.after:
            return ""
        missing, shown = clock_text(first_missing), clock_text(piece.end + piece.after)
        return f"gap: {missing} does not exist, runs at {shown}"


def clock_text(wall: int) -> str:
    """HH:MM, with seconds where there are any."""
    minutes, second = divmod(wall // SECOND % DAY_SECONDS, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
