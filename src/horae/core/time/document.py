"""Reading a trigger document: what may stand in it, its one normal form, and every problem at once.

What must stay true: `canonical` is idempotent, and a document and its normal form mean the same moments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

from horae.core.model import SECOND, Json, Moment
from horae.core.spelling import suggest
from horae.core.time import cron, outside
from horae.core.time.moments import (
    DAY,
    HOUR,
    LONGEST,
    MINUTE,
    format_duration,
    format_moment,
    parse_duration,
    parse_moment,
    quoted,
    read_clock,
    read_duration,
    wrong_type,
    zone,
)
from horae.core.time.periods import PeriodSpec
from horae.core.time.recurrence import Rule, parse_rule
from horae.core.time.wallclock import Zone, clock_text, offsets_of
from horae.errors import Error, Invalid, Malformed, Problem

KINDS = ("cron", "every", "at", "period", "rrule")
_BESIDE: dict[str, tuple[str, ...]] = {  # what may stand beside each kind
    "cron": ("dialect", "timezone", "start_at", "end_at", "jitter", "dst"),
    "every": ("mode", "timezone", "start_at", "end_at", "anchor", "jitter"),
    "at": ("timezone", "jitter"),
    "period": ("timezone", "start_at", "end_at", "anchor", "jitter", "dst"),
    "rrule": ("timezone", "start_at", "end_at", "anchor", "jitter", "dst"),
}
_KEYS = (*KINDS, "dialect", "mode", "timezone", "start_at", "end_at", "anchor", "jitter", "dst")
GAPS = ("run_after", "skip")
FOLDS = ("first", "second", "both")
MODES = ("rate", "delay")
UNITS = ("minute", "hour", "day", "week", "month", "year")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_PERIOD_KEYS: dict[str, tuple[str, ...]] = {
    "minute": (),
    "hour": (),
    "day": ("at",),
    "week": ("at", "days"),
    "month": ("at", "month_days", "overflow"),
    "year": ("at", "months", "month_days", "overflow"),
}
_ELAPSED = {"minute": MINUTE, "hour": HOUR}
MAX_EVERY = 10_000  # days, weeks, months or years
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?")

# Made once: json.dumps makes one for every call, and takes twice as long.
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """A document, read: everything about it that no seed and no creation changes."""

    kind: str
    document: Json
    zone: Zone
    text: str = ""
    start: Moment | None = None
    end: Moment | None = None
    anchor: Moment | None = None
    jitter: int = 0
    gap: str = "run_after"
    fold: str = "first"
    expression: str = ""
    dialect: str | None = None
    spread: bool = False  # the cron holds an H
    step: int = 0  # of every and of periods in elapsed time
    delay: bool = False
    at: Moment = 0
    period: PeriodSpec | None = None
    rule: Rule | None = None


def read(doc: Json) -> Plan:
    """Return the plan of a document; raises Invalid with every problem."""
    if isinstance(doc, dict):
        try:
            return _read_flat((*doc, *doc.values(), *map(type, doc.values())))
        except TypeError:  # a value is a list or a mapping, which cannot be looked up
            pass
    return read_text(_text(doc))


@lru_cache(maxsize=8192)
def _read_flat(parts: tuple[Any, ...]) -> Plan:
    """As read, of a document without nesting: its keys, its values and their types, because 1 equals True."""
    count = len(parts) // 3
    return read_text(_text(dict(zip(parts[:count], parts[count : 2 * count], strict=True))))


def _text(doc: Json) -> str:
    if not isinstance(doc, dict):
        raise wrong_type("a schedule object", doc)
    try:
        return _ENCODER.encode(doc)
    except (TypeError, ValueError, RecursionError):
        raise Invalid("a schedule is a JSON object", code="E_TYPE") from None


@lru_cache(maxsize=8192)
def read_text(text: str) -> Plan:
    """As read, from JSON text; a text seen before costs a look-up."""
    try:
        doc = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("the schedule is not JSON", code="E_JSON_SYNTAX") from None
    if not isinstance(doc, dict):
        raise wrong_type("a schedule object", doc)
    if outside.is_outside(doc):
        order = outside.checked(doc)
        return Plan(next(iter(order)), order, offsets_of(zone("UTC")), _text(order))
    return _Reading(doc).plan()


class _Reading:
    """Reads one document and collects every problem it meets."""

    def __init__(self, doc: Json) -> None:
        self.doc = {key: value for key, value in doc.items() if value is not None}
        self.problems: list[Problem] = []
        self.out: Json = {}

    def plan(self) -> Plan:
        kind = self._kind()
        where = self._read("timezone", zone) if "timezone" in self.doc else None
        at = offsets_of(where or zone("UTC"))
        values = self._of_kind(kind, at)
        values |= self._common(values, at)
        if self.problems or not kind:
            raise Invalid.of(self.problems)
        order = {key: self.out[key] for key in _KEYS if key in self.out}
        text = json.dumps(order, ensure_ascii=False, separators=(",", ":"))
        return Plan(kind=kind, document=order, text=text, zone=at, **values)

    def _of_kind(self, kind: str, where: Zone) -> dict[str, Any]:
        readers: dict[str, Callable[[], dict[str, Any]]] = {
            "cron": self._cron,
            "every": self._every,
            "at": lambda: self._at(where),
            "period": self._period,
            "rrule": self._rrule,
        }
        return readers[kind]() if kind else {}

    def add(self, path: str, code: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(path, code, message, hint))

    def _read(self, path: str, reader: Callable[[Any], T]) -> T | None:
        """Return the value read, or None and a problem at its path."""
        try:
            return reader(self.doc[path])
        except Error as error:
            self.add(path, error.code, error.message, error.hint)
            return None

    def _kind(self) -> str:
        for key in self.doc:
            if key not in _KEYS:
                self.unknown(key, "", _KEYS)
        kinds = [kind for kind in KINDS if kind in self.doc]
        if len(kinds) != 1:
            code = "E_FIELD_CONFLICT" if kinds else "E_REQUIRED"
            got = f", got {' and '.join(kinds)}" if kinds else ""
            self.add(kinds[1] if kinds else "", code, f"exactly one of {', '.join(KINDS)} expected{got}")
            return ""
        if kinds == ["cron"]:
            self._every_in_cron()
            kinds = [kind for kind in KINDS if kind in self.doc]
        for key in self.doc:
            if key in _KEYS and key != kinds[0] and key not in _BESIDE[kinds[0]]:
                self.add(key, "E_FIELD_CONFLICT", f"{key} means nothing beside {kinds[0]}")
        return kinds[0]

    def _every_in_cron(self) -> None:
        """`@every 5m` is an interval that some write where a cron expression stands."""
        text = self.doc["cron"]
        if isinstance(text, str) and text.strip().lower().startswith("@every"):
            self.doc["every"] = text.strip()[6:].strip()
            del self.doc["cron"]

    def unknown(self, key: str, prefix: str, known: tuple[str, ...]) -> None:
        hint = suggest(key, known) or f"known are {', '.join(known)}"
        self.add(f"{prefix}{key}"[:80], "E_UNKNOWN_FIELD", f"{quoted(key)} is not known here", hint)

    def choice(self, path: str, value: Any, allowed: tuple[str, ...]) -> str:
        if value in allowed and isinstance(value, str):
            return str(value)
        if not isinstance(value, str):
            self.add(path, "E_TYPE", wrong_type(f"one of {', '.join(allowed)}", value).message)
        else:
            message = f"{quoted(value)} is not one of {', '.join(allowed)}"
            self.add(path, "E_ENUM", message, suggest(value, allowed))
        return allowed[0]

    # what every kind may have

    def _common(self, values: dict[str, Any], where: Zone) -> dict[str, Any]:
        moments = {key: self._moment(key, where) for key in ("start_at", "end_at", "anchor")}
        start, end = moments["start_at"], moments["end_at"]
        if start is not None and end is not None and start >= end:
            self.add("end_at", "E_FIELD_CONFLICT", "end_at must lie after start_at")
        if moments["anchor"] is not None and values.get("delay"):
            self.add("anchor", "E_FIELD_CONFLICT", "anchor means nothing beside mode delay")
        if start is not None and moments["anchor"] is not None:
            self.add("anchor", "E_FIELD_CONFLICT", "start_at is the anchor already: give one of the two")
        if "timezone" in self.doc and self.doc["timezone"] != "UTC":
            self.out["timezone"] = self.doc["timezone"]
        jitter = self._jitter(values) if "jitter" in self.doc else 0
        gap, fold = self._dst() if "dst" in self.doc else (GAPS[0], FOLDS[0])
        return {"start": start, "end": _earlier(end, values.pop("until", None)), "anchor": moments["anchor"],
                "jitter": jitter, "gap": gap, "fold": fold}  # fmt: skip

    def _moment(self, key: str, where: Zone) -> Moment | None:
        """Beside a time zone that was named, it may be as the clocks there show it."""
        if key not in self.doc:
            return None
        moment = self._read(key, partial(_local_moment, where=where) if "timezone" in self.doc else parse_moment)
        if moment is not None:
            self.out[key] = format_moment(moment)
        return moment

    def _jitter(self, values: dict[str, Any]) -> int:
        jitter = self._read("jitter", _read_jitter)
        if not jitter:
            return 0
        self.out["jitter"] = format_duration(jitter)
        limit = _shortest_gap(values)
        if values.get("delay"):
            self.add("jitter", "E_FIELD_CONFLICT", "jitter means nothing beside mode delay")
        elif jitter >= limit:
            self.add("jitter", "E_RANGE", f"jitter must be shorter than the interval {format_duration(limit)}")
        return jitter

    def _dst(self) -> tuple[str, str]:
        value = self.doc["dst"]
        if not isinstance(value, dict):
            self.add("dst", "E_TYPE", wrong_type("an object such as {gap: skip, fold: both}", value).message)
            return GAPS[0], FOLDS[0]
        for key in value:
            if key not in ("gap", "fold"):
                self.unknown(key, "dst.", ("gap", "fold"))
        gap = self.choice("dst.gap", value.get("gap", GAPS[0]), GAPS)
        fold = self.choice("dst.fold", value.get("fold", FOLDS[0]), FOLDS)
        chosen = {"gap": gap} if gap != GAPS[0] else {}
        chosen |= {"fold": fold} if fold != FOLDS[0] else {}
        if chosen:
            self.out["dst"] = chosen
        return gap, fold

    # the kinds

    def _cron(self) -> dict[str, Any]:
        text, dialect = self.doc["cron"], self.doc.get("dialect")
        if dialect is not None:
            dialect = self.choice("dialect", dialect, cron.DIALECTS)
        if not isinstance(text, str):
            self.add("cron", "E_TYPE", wrong_type("a cron expression", text).message)
            return {}
        parsed = self._read("cron", lambda text: cron.parse(text, dialect))
        if parsed is None:
            return {}
        self.out["cron"] = " ".join(text.split())
        if dialect is not None and not _detected(text, dialect):
            self.out["dialect"] = dialect
        return {"expression": self.out["cron"], "dialect": dialect, "spread": parsed.spread}

    def _every(self) -> dict[str, Any]:
        step = self._read("every", parse_duration)
        mode = self.choice("mode", self.doc.get("mode", MODES[0]), MODES)
        if mode != MODES[0]:
            self.out["mode"] = mode
        if step is not None:
            self.out["every"] = format_duration(step)
        return {"step": step or 0, "delay": mode == "delay"}

    def _at(self, where: Zone) -> dict[str, Any]:
        at = self._moment("at", where)
        return {} if at is None else {"at": at}

    def _rrule(self) -> dict[str, Any]:
        text = self.doc["rrule"]
        if not isinstance(text, str):
            self.add("rrule", "E_TYPE", wrong_type("a rule such as FREQ=WEEKLY;BYDAY=MO", text).message)
            return {}
        rule = self._read("rrule", parse_rule)
        if rule is None:
            return {}
        self.out["rrule"] = rule.text
        return {"rule": rule, "until": rule.until}

    def _period(self) -> dict[str, Any]:
        value = self.doc["period"]
        if not isinstance(value, dict):
            self.add("period", "E_TYPE", wrong_type("an object such as {unit: day, at: 02:30}", value).message)
            return {}
        return _PeriodReading(self, {key: item for key, item in value.items() if item is not None}).read()


def _shortest_gap(values: dict[str, Any]) -> int:
    """Return what jitter must stay below, where the document alone tells."""
    period = values.get("period")
    if isinstance(period, PeriodSpec) and period.unit == "day":
        return period.every * DAY
    return values.get("step") or LONGEST


def _earlier(one: Moment | None, other: Moment | None) -> Moment | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)


def _detected(text: str, dialect: str) -> bool:
    """Return whether the dialect goes without saying."""
    try:
        return cron.dialect_of(text) == dialect
    except Invalid:
        return False


def _read_jitter(value: Any) -> int:
    if isinstance(value, str) and value.startswith("-"):
        raise Invalid("jitter must not be negative", code="E_RANGE")
    jitter = read_duration(value)
    if not 0 <= jitter < LONGEST:
        raise Invalid("jitter must lie between 0 and 366 d", code="E_RANGE")
    return jitter


def _local_moment(text: Any, where: Zone) -> Moment:
    """Return a moment written with its offset, or as the clocks of a zone that was named show it."""
    wall, offset = read_clock(text)
    if offset is not None:
        return parse_moment(text)
    moment, exists = where.moment_of(wall)
    if not exists:
        shown = clock_text(moment + where.offset_at(moment))
        raise Invalid(f"{quoted(text)} does not exist in {where.name}; next valid {shown}", code="E_TIME_GAP")
    return parse_moment(format_moment(moment))  # for its bounds


class _PeriodReading:
    """Reads the object under `period`."""

    def __init__(self, outer: _Reading, value: Json) -> None:
        self.outer, self.value = outer, value
        self.out: Json = {}

    def read(self) -> dict[str, Any]:
        unit = self._unit()
        if not unit:
            return {}
        every = self._every(unit)
        spec = PeriodSpec(
            unit=unit,
            every=every,
            time=self._each("at", self._time),
            days=self._each("days", self._days),
            months=self._each("months", self._months),
            month_days=self._each("month_days", self._month_days),
            clamp=self._each("overflow", self._overflow) is not False,
        )
        self._check_days(spec)
        self.outer.out["period"] = self.out
        return {"step": every * _ELAPSED[unit]} if unit in _ELAPSED else {"period": spec}

    def _add(self, key: str, code: str, message: str, hint: str = "") -> None:
        self.outer.add(f"period.{key}", code, message, hint)

    def _unit(self) -> str:
        known = ("unit", "every", "at", "days", "months", "month_days", "overflow")
        for key in self.value:
            if key not in known:
                self.outer.unknown(key, "period.", known)
        if "unit" not in self.value:
            self._add("unit", "E_REQUIRED", f"unit must be one of {', '.join(UNITS)}")
            return ""
        unit = self.outer.choice("period.unit", self.value["unit"], UNITS)
        for key in self.value:
            if key in known[2:] and key not in _PERIOD_KEYS[unit]:
                self._add(key, "E_FIELD_CONFLICT", f"{key} means nothing beside unit {unit}")
        self.out["unit"] = unit
        return unit

    def _every(self, unit: str) -> int:
        every = self.value.get("every", 1)
        most = LONGEST // _ELAPSED[unit] if unit in _ELAPSED else MAX_EVERY
        if isinstance(every, bool) or not isinstance(every, int):
            self._add("every", "E_TYPE", wrong_type("a whole number", every).message)
            return 1
        if not 1 <= every <= most:
            self._add("every", "E_RANGE", f"every must be 1 to {most}")
            return 1
        if every != 1:
            self.out["every"] = every
        return every

    def _each(self, key: str, reader: Callable[[Any], T | None]) -> T | None:
        return reader(self.value[key]) if key in self.value else None

    def _time(self, value: Any) -> int | None:
        match = _TIME.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            code = "E_PATTERN" if isinstance(value, str) else "E_TYPE"
            self._add("at", code, "a time of day HH:MM or HH:MM:SS expected")
            return None
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        if hour > 23 or minute > 59 or second > 59:
            self._add("at", "E_RANGE", f"{value} is not a time of day")
            return None
        time = hour * HOUR + minute * MINUTE + second * SECOND + int((match[4] or "").ljust(6, "0"))
        self.out["at"] = _time_text(time)
        return time

    def _list(self, key: str, value: Any, most: int) -> list[Any]:
        if not isinstance(value, list):
            self._add(key, "E_TYPE", wrong_type("a list", value).message)
            return []
        if not value:
            self._add(key, "E_EMPTY", f"{key} must name at least one")
        if len(value) > most:
            self._add(key, "E_LIMIT", f"{key} has at most {most} items")
            return []
        return value

    def _days(self, value: Any) -> tuple[int, ...] | None:
        days = set()
        for item in self._list("days", value, 31):
            name = item.lower() if isinstance(item, str) else item
            full = next((day for day in WEEKDAYS if name in (day, day[:3])), name)
            chosen = self.outer.choice("period.days", full, WEEKDAYS)
            days.add(WEEKDAYS.index(chosen))
        self.out["days"] = [WEEKDAYS[day] for day in sorted(days)]
        return tuple(sorted(days)) or None

    def _months(self, value: Any) -> tuple[int, ...] | None:
        months = set()
        for item in self._list("months", value, 31):
            months.add(self._whole("months", item, 1, 12))
        self.out["months"] = sorted(months)
        return tuple(sorted(months)) or None

    def _month_days(self, value: Any) -> tuple[int, ...] | None:
        days = set()
        for item in self._list("month_days", value, 62):
            days.add(item if item == -1 else self._whole("month_days", item, 1, 31, " or -1 for the last"))
        ordered = tuple(sorted(days, key=lambda day: (day < 0, day)))
        self.out["month_days"] = list(ordered)
        return ordered or None

    def _whole(self, key: str, item: Any, low: int, high: int, also: str = "") -> int:
        if isinstance(item, bool) or not isinstance(item, int):
            self._add(key, "E_TYPE", wrong_type("a whole number", item).message)
            return low
        if not low <= item <= high:
            self._add(key, "E_RANGE", f"{quoted(str(item))} is not {low} to {high}{also}")
            return low
        return item

    def _overflow(self, value: Any) -> bool:
        chosen = self.outer.choice("period.overflow", value, ("clamp", "skip"))
        if chosen == "skip":
            self.out["overflow"] = "skip"
        return chosen == "clamp"

    def _check_days(self, spec: PeriodSpec) -> None:
        """Refuse days that none of the months named ever has."""
        if spec.clamp or not spec.months or not spec.month_days or -1 in spec.month_days:
            return
        longest = max(29 if month == 2 else 30 + (month in (1, 3, 5, 7, 8, 10, 12)) for month in spec.months)
        if min(spec.month_days) > longest:
            self._add("month_days", "E_CRON_NEVER", "none of these months has such a day")


def _time_text(time: int) -> str:
    """µs of the day → HH:MM, HH:MM:SS or with a fraction."""
    fraction = f"{time % SECOND:06}".rstrip("0")
    text = clock_text(time)
    if fraction and len(text) == 5:
        text += ":00"
    return f"{text}.{fraction}" if fraction else text
