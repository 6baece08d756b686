"""Moments, durations and zone names: text at the border, whole microseconds inside.

What must stay true:
- A moment that is parsed and formatted again names the same microsecond, and so does a duration.
- Digits are ASCII digits. `int()` also reads '１', '1_0' and '+1'; a schedule must not.
- A zone name is looked up in the list of known names before anything is opened, so a name can never
  lead to a file outside the time zone data.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from horae.core.model import SECOND, Moment
from horae.errors import Invalid

MILLISECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

FIRST_YEAR, LAST_YEAR = 1970, 2200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HORIZON: Moment = (datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) - 1

SHORTEST, LONGEST = MILLISECOND, 366 * DAY  # of an interval

MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(Z|z|[+-][0-9]{2}:[0-9]{2})?"
)
_UNITS = {
    "w": WEEK, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": 1, "µs": 1,
}  # fmt: skip
_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|us|µs|w|d|h|m|s)")
_LONGEST_TEXT = 100  # no duration needs more; searching a megabyte of digits would take a second
_ISO = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:[.,][0-9]{1,9})?)S)?)?"
)

# Abbreviations that people write for a zone. Each stands for several, or (EST, MST, HST) names a
# fixed offset in the zone data where the writer nearly always means a place with summer time.
_AMBIGUOUS = {
    "ACST": ("Australia/Adelaide", "Australia/Darwin"),
    "ADT": ("America/Halifax",),
    "AEDT": ("Australia/Sydney",),
    "AEST": ("Australia/Sydney", "Australia/Brisbane"),
    "AST": ("America/Halifax", "Asia/Riyadh"),
    "BST": ("Europe/London", "Asia/Dhaka"),
    "CDT": ("America/Chicago", "America/Havana"),
    "CST": ("America/Chicago", "Asia/Shanghai", "America/Havana"),
    "ECT": ("America/Guayaquil", "Europe/Paris"),
    "EDT": ("America/New_York",),
    "EST": ("America/New_York", "America/Panama"),
    "GST": ("Asia/Dubai", "Atlantic/South_Georgia"),
    "HST": ("Pacific/Honolulu",),
    "IST": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "JST": ("Asia/Tokyo",),
    "KST": ("Asia/Seoul",),
    "MDT": ("America/Denver",),
    "MSK": ("Europe/Moscow",),
    "MST": ("America/Denver", "America/Phoenix"),
    "NST": ("America/St_Johns",),
    "PDT": ("America/Los_Angeles",),
    "PST": ("America/Los_Angeles", "Asia/Manila"),
    "SST": ("Pacific/Pago_Pago", "Asia/Singapore"),
    "WST": ("Australia/Perth", "Pacific/Apia"),
}


def wrong_type(expected: str, value: object) -> Invalid:
    return Invalid(f"{expected} expected, got {_kind(value)}", code="E_TYPE")


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list",
             dict: "an object", type(None): "null"}  # fmt: skip
    return names.get(type(value), type(value).__name__)


def quoted(text: str) -> str:
    """User text inside a message: one line, bounded."""
    return repr(text if len(text) <= 60 else text[:57] + "…")


# ---------------------------------------------------------------------------------------- moments


def parse_moment(text: Any) -> Moment:
    """RFC 3339 with its offset → moment."""
    wall, offset = read_clock(text)
    if offset is None:
        raise Invalid(
            f"{quoted(text)} has no offset", code="E_TIME_NO_OFFSET", hint="add Z or an offset such as +02:00"
        )
    moment = wall - offset
    if not 0 <= moment <= HORIZON:
        raise _out_of_range(text)
    return moment


def read_clock(text: Any) -> tuple[int, int | None]:
    """Return the clock reading of an RFC 3339 text as if it were UTC, and its offset, if it has one (µs)."""
    if not isinstance(text, str):
        raise wrong_type("a moment such as 2027-03-28T02:30:00Z", text)
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise Invalid(f"{quoted(text)} is not a moment", code="E_TIME_SYNTAX", hint="write 2027-03-28T02:30:00Z")
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    if not FIRST_YEAR - 1 <= year <= LAST_YEAR + 1:
        raise _out_of_range(text)
    fraction = int((match[7] or "").ljust(6, "0")[:6])
    try:
        wall = datetime(year, month, day, hour, minute, int(match[6] or 0), fraction, tzinfo=UTC)
    except ValueError:
        raise Invalid(_impossible(text, year, month, day), code="E_TIME_SYNTAX") from None
    return (wall - EPOCH) // timedelta(microseconds=1), _offset(text, match[8])


def _offset(text: str, written: str | None) -> int | None:
    if written is None:
        return None
    if written in "Zz":
        return 0
    hours, minutes = int(written[1:3]), int(written[4:6])
    if hours > 23 or minutes > 59:
        raise Invalid(f"{quoted(text)}: there is no offset {written}", code="E_TIME_SYNTAX")
    return (hours * HOUR + minutes * MINUTE) * (-1 if written[0] == "-" else 1)


def _impossible(text: str, year: int, month: int, day: int) -> str:
    if 1 <= month <= 12 and 1 <= day <= 31:
        try:
            datetime(year, month, day, tzinfo=UTC)
        except ValueError:
            return f"{quoted(text)}: there is no {day} {MONTH_NAMES[month - 1]} in {year}"
    return f"{quoted(text)}: no such date or time of day"


def _out_of_range(text: str) -> Invalid:
    return Invalid(f"{quoted(text)} lies outside {FIRST_YEAR} to {LAST_YEAR}", code="E_TIME_RANGE")


def wall_clock(moment: Moment) -> datetime:
    """In UTC; of a moment outside the years that are read, the nearest within: what is shown can be read again."""
    return EPOCH + timedelta(microseconds=min(max(moment, 0), HORIZON))


def format_moment(moment: Moment) -> str:
    """RFC 3339 in UTC; a fraction only where there is one, in ms or µs."""
    return _iso(wall_clock(moment)).replace("+00:00", "Z")


def format_local(moment: Moment, where: ZoneInfo) -> str:
    """RFC 3339 as the clocks of a zone show it, with their offset."""
    return _iso(wall_clock(moment).astimezone(where))


def _iso(stamp: datetime) -> str:
    if not stamp.microsecond:
        return stamp.isoformat(timespec="seconds")
    return stamp.isoformat(timespec="microseconds" if stamp.microsecond % 1000 else "milliseconds")


# -------------------------------------------------------------------------------------- durations


def parse_duration(value: Any) -> int:
    """'1h30m', '500ms', 'PT1H30M' or a number of seconds → µs, from 1 ms to 366 days."""
    return checked_duration(read_duration(value), value)


def checked_duration(duration: int, written: Any) -> int:
    if not SHORTEST <= duration <= LONGEST:
        raise Invalid(
            f"{quoted(str(written))} is outside the range of an interval, 1 ms to 366 d",
            code="E_INTERVAL_RANGE",
        )
    return duration


def read_duration(value: Any) -> int:
    """As parse_duration, with no bounds but zero."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_type("a duration such as 1h30m, or a number of seconds,", value)
    if isinstance(value, str):
        return _duration_text(value)
    if not -1e9 < value < 1e9:  # also catches NaN and the infinities
        raise Invalid("an interval is 1 ms to 366 d long", code="E_INTERVAL_RANGE")
    return round(value * SECOND)


def _duration_text(text: str) -> int:
    total = _iso_duration(text) if text[:1] in ("P", "p") else _go_duration(text)
    if total is None:
        hint = f"write {text}s for seconds" if re.fullmatch("[0-9]{1,9}", text) else "write 1h30m, 90s or PT1H30M"
        raise Invalid(f"{quoted(text)} is not an interval", code="E_INTERVAL_SYNTAX", hint=hint)
    return int(total)


def _go_duration(text: str) -> Fraction | None:
    if len(text) > _LONGEST_TEXT:
        return None
    total, last, end = Fraction(0), LONGEST, 0
    for part in _PART.finditer(text):
        unit = _UNITS[part[2]]
        if part.start() != end or unit >= last:  # a gap between the parts, or units not descending
            return None
        total, last, end = total + Fraction(part[1]) * unit, unit, part.end()
    return total if end == len(text) and end else None


def _iso_duration(text: str) -> Fraction | None:
    match = _ISO.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        return None
    counts = (Fraction((part or "0").replace(",", ".")) for part in match.groups())
    return sum((n * unit for n, unit in zip(counts, (WEEK, DAY, HOUR, MINUTE, SECOND), strict=True)), Fraction(0))


def format_duration(duration: int) -> str:
    """µs → '1h30m', in the largest units that need no fraction."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, duration = divmod(duration, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


# ------------------------------------------------------------------------------------------ zones


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every IANA name. `localtime` and its like say something about this machine, not about a place."""
    return frozenset(zoneinfo.available_timezones()) - {"localtime", "posixrules", "Factory"}


def zone(name: Any) -> ZoneInfo:
    """Return the zone of an IANA name."""
    if not isinstance(name, str):
        raise wrong_type("a time zone name such as Europe/Berlin", name)
    return _zone(name)


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    if name.upper() in _AMBIGUOUS:
        places = ", ".join(_AMBIGUOUS[name.upper()])
        raise Invalid(
            f"{name} is not one time zone: abbreviations are shared or leave summer time open",
            code="E_TZ_AMBIGUOUS",
            hint=f"write a place: {places}",
        )
    if name not in zone_names():
        close = _close_zones(name)
        hint = f"did you mean {', '.join(close)}?" if close else "write a name such as Europe/Berlin or UTC"
        raise Invalid(f"there is no time zone {quoted(name)}", code="E_TZ_UNKNOWN", hint=hint)
    return ZoneInfo(name)


def _close_zones(name: str) -> list[str]:
    if len(name) > 64:
        return []
    lowered = {known.lower(): known for known in zone_names()}
    wanted = name.lower().replace(" ", "_")
    cities = [full for low, full in lowered.items() if low.rsplit("/", 1)[-1] == wanted]
    close = [lowered[low] for low in difflib.get_close_matches(wanted, lowered, 3, 0.4)]
    return list(dict.fromkeys(sorted(cities) + close))[:3]
