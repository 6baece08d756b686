"""The trigger document and the moments it stands for.

A document is a JSON object with exactly one of

    cron    "30 2 * * MON-FRI"              with `dialect`, if not the one core.cron would detect
    every   "1h30m", "PT1H30M", 5400        with `mode`: rate (default), or delay: counted from each finish
    at      "2027-03-28T02:30:00Z"          once; without an offset only together with `timezone`
    period  {"unit": "week", …}             n minutes, hours, days, weeks, months or years from the anchor
    rrule   "FREQ=MONTHLY;BYDAY=-1FR"       RFC 5545, its DTSTART being the anchor

    webhook {"format": "github", …}         no moment at all: somebody outside fires it (core.time.outside)

and, but beside a webhook, any of `timezone` (UTC), `start_at`, `end_at` (inclusive), `anchor`, `jitter`,
`dst: {gap, fold}`.

When moments fall:
- The anchor of every, period and rrule is `start_at`, else `anchor`, else the moment of creation. With
  `start_at` the series may begin on it; without, every and period begin strictly after their anchor.
- Nothing lies before creation. A `start_at` (or `at`) in the past gives one moment at creation, then the
  series goes on from its own anchor; cron and rrule just take their first match. `anchor` never makes
  anything due: it only says where counting begins.
- `jitter` adds one constant below it, chosen by hash of the seed; no moment passes `end_at` by it.
- every, and periods of minutes and hours, are elapsed time. What keeps to the clock meets daylight saving
  time as core.wallclock says.

What must stay true: `next_after` grows strictly; equal `share_key` means equal answers from creation on;
compiling a document seen before costs a dictionary look-up.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from horae.core.model import SECOND, Json, Moment
from horae.core.time import cron, outside, wording
from horae.core.time.document import Plan, read, read_text
from horae.core.time.moments import HORIZON, format_local, wrong_type
from horae.core.time.recurrence import Recurrence
from horae.core.time.wallclock import Pattern, Zoned
from horae.errors import Invalid


def canonical(doc: Json) -> Json:
    """Return the document validated and in its one normal form; raises Invalid with every problem."""
    return deepcopy(read(doc).document)


def canonical_text(doc: Json) -> str:
    """Return the normal form as JSON text, the form to store: compile_text takes it."""
    return read(doc).text


def from_text(text: str) -> Json:
    """Return the canonical document of a plain string: cron, macro, @every, duration, moment or FREQ=…"""
    if not isinstance(text, str):
        raise wrong_type("a schedule", text)
    bare = text.strip()
    if bare.lower().startswith("@every"):
        return canonical({"every": bare[6:].strip()})
    if re.match(r"[0-9]{4}-[0-9]{2}", bare):
        return canonical({"at": bare})
    if re.match(r"(RRULE:|FREQ=)", bare, re.IGNORECASE):
        return canonical({"rrule": bare})
    if re.match(r"[Pp][0-9T]|[0-9.]+[a-zµ]", bare) and not re.search(r"\s", bare):
        return canonical({"every": bare})
    return canonical({"cron": text})


def describe(doc: Json) -> str:
    """Return the document in English."""
    plan = read(doc)
    if outside.is_outside(plan.document):
        return outside.describe(plan.document)
    in_words = wording.describe_expression(plan.expression, plan.dialect) if plan.kind == "cron" else ""
    return wording.describe_plan(plan, in_words)


def in_words(doc: Json) -> str:
    """As describe; what cannot be read here, because a newer node wrote it or knows more time zones, is said to be
    that."""
    try:
        return describe(doc)
    except Invalid as error:
        return f"cannot be read, and is not fired, by this node: {error.message}"


def dialect_of(doc: Json) -> str:
    """Return the cron dialect a document is read in; for other documents, their kind."""
    plan = read(doc)
    return cron.dialect_of(plan.expression, plan.dialect) if plan.kind == "cron" else plan.kind


# --------------------------------------------------------------------------------------- compiled


class Series(Protocol):
    """The moments of a schedule before jitter, start and end."""

    def after(self, moment: Moment) -> Moment | None:
        """Return the first one strictly after this moment."""


class _Never:
    def after(self, moment: Moment) -> Moment | None:
        return None


@dataclass(frozen=True, slots=True)
class _Once:
    at: Moment

    def after(self, moment: Moment) -> Moment | None:
        return self.at if moment < self.at else None


@dataclass(frozen=True, slots=True)
class _Interval:
    phase: int
    step: int

    def after(self, moment: Moment) -> Moment | None:
        return moment + self.step - (moment - self.phase) % self.step


@dataclass(frozen=True, slots=True)
class _Delay:
    start: Moment
    step: int

    def after(self, moment: Moment) -> Moment | None:
        return moment + self.step if moment >= self.start else self.start


class _Counted:
    """The first moments of a series, so many of them.

    They are counted as far as somebody asks, not when a schedule is compiled: most of ten thousand lie in the future.
    """

    __slots__ = ("_count", "_last", "_marks", "_series")

    def __init__(self, series: Zoned, begin: Moment, count: int) -> None:
        self._series = series
        self._count = count
        self._marks = [(begin - 1, 0)]  # moments with their number, some steps apart
        self._last = self._marks[0]  # the last one that was asked for: the next is one step further, as a rule

    def after(self, moment: Moment) -> Moment | None:
        found = self._series.after(moment)
        return found if found is not None and self._number_of(found) <= self._count else None

    def _number_of(self, moment: Moment) -> int:
        """Return which one of the series a moment of it is; one too many for all that come too late."""
        marks = self._marks
        at, number = marks[bisect_left(marks, (moment, 0)) - 1]
        last = self._last  # one look-up, as threads may share a series
        if at < last[0] <= moment:
            at, number = last
        while at < moment and number <= self._count:
            following = self._series.after(at)
            assert following is not None, "a moment of the series lies ahead"
            at, number = following, number + 1
            if number % _STEPS == 0 and number > marks[-1][1]:
                marks.append((at, number))
        self._last = (at, number)
        return number

    def note(self, moment: Moment) -> str:
        return self._series.note(moment)


_STEPS = 64  # counted at most for a moment in the past of a series


@lru_cache(maxsize=4096)
def _on_clock(text: str, seed: int, anchor: Moment) -> Zoned | _Counted:
    """Return the series of a document that keeps to the clock: shared by all triggers that may share it."""
    plan = read_text(text)
    series = Zoned(_pattern(plan, seed, anchor), plan.zone, gap=plan.gap, fold=plan.fold)
    count = None if plan.rule is None else plan.rule.count
    return series if count is None else _Counted(series, anchor, count)


def _pattern(plan: Plan, seed: int, anchor: Moment) -> Pattern:
    if plan.kind == "cron":
        return cron.parse(plan.expression, plan.dialect, seed=seed)
    if plan.period is not None:
        return plan.period.anchored(anchor + plan.zone.offset_at(anchor))
    assert plan.rule is not None
    whole = -(-anchor // SECOND) * SECOND  # rules count whole seconds, and none lies before the anchor
    return Recurrence(plan.rule, whole + plan.zone.offset_at(whole))


def _bind(plan: Plan, seed: int, anchor: Moment) -> tuple[Series, tuple[int, ...]]:
    """Return the series, and what it depends on beside the document."""
    if plan.delay:
        return _Delay(plan.start or 0, plan.step), ()
    if plan.step:
        return _Interval(anchor % plan.step, plan.step), (anchor % plan.step,)
    if plan.kind == "at":
        return _Once(plan.at), ()
    if plan.kind in outside.KINDS:
        return _Never(), ()
    own = (seed if plan.spread else 0, 0) if plan.kind == "cron" else (0, anchor)
    return _on_clock(plan.text, *own), own


class Schedule:
    """The moments of one trigger.

    `share_key`: schedules with equal keys give equal `next_after` for equal moments, provided the moment is
    not before the creation of either; every moment a schedule has given is that.
    `delay`: µs from a finish to the next moment, for mode delay; None otherwise.
    """

    __slots__ = ("_end", "_least", "_offset", "_series", "_start", "created_at", "delay", "plan", "share_key")

    def __init__(self, plan: Plan, seed: int, created_at: Moment) -> None:
        self.plan = plan
        self.created_at = created_at
        self.delay: int | None = plan.step if plan.delay else None
        self._offset = _stable(seed) % plan.jitter if plan.jitter else 0
        self._end = HORIZON if plan.end is None else plan.end
        # The start that makes one moment due at creation when it is past. Cron and rrule have none.
        self._start = plan.at if plan.kind == "at" else plan.start if plan.kind in ("every", "period") else None
        self._least = -1 if plan.start is None else plan.start - 1
        given = plan.anchor if plan.start is None else plan.start
        anchor = created_at if given is None else given
        if plan.kind in ("every", "period") and plan.start is None:
            self._least = anchor
        self._series, own = _bind(plan, seed, anchor)
        self.share_key = (plan.text, own, self._offset)

    def first(self) -> Moment | None:
        """Return the first moment at or after creation."""
        if self._start is not None and self._start + self._offset < self.created_at:
            return self.created_at if self.created_at <= self._end else None
        return self._later(self.created_at - 1)

    def next_after(self, moment: Moment) -> Moment | None:
        """Return the first moment strictly after this one; None when the schedule is over."""
        return self._later(moment) if moment >= self.created_at else self.first()

    def _later(self, moment: Moment) -> Moment | None:
        base = moment - self._offset
        found = self._series.after(base if base > self._least else self._least)
        if found is None:
            return None
        found += self._offset
        assert found > moment, "a schedule moves forward"
        return found if found <= self._end else None

    def moments(self, after: Moment, until: Moment, limit: int) -> list[Moment]:
        """Return those with after < moment ≤ until, at most `limit` of them."""
        found: list[Moment] = []
        moment = self.next_after(after)
        while moment is not None and moment <= until and len(found) < limit:
            found.append(moment)
            moment = self.next_after(moment)
        return found

    def note(self, moment: Moment) -> str:
        """Return what is special about one of its moments."""
        if self._start is not None and self._start + self._offset < self.created_at == moment:
            return "due now: the start lies in the past"
        return self._series.note(moment - self._offset) if isinstance(self._series, (Zoned, _Counted)) else ""


def _stable(seed: int) -> int:
    """Return the same number for the same trigger, in every process and release."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:jitter".encode(), digest_size=8).digest(), "big")


def compile_schedule(doc: Json, *, seed: int, created_at: Moment) -> Schedule:
    """Return the schedule of a document. The seed (the trigger id) matters to H and jitter only."""
    return Schedule(read(doc), seed, created_at)


def compile_text(text: str, seed: int, created_at: Moment) -> Schedule:
    """As compile_schedule, from canonical JSON text as stored: no decoding when it was seen before."""
    return Schedule(read_text(text), seed, created_at)


class Previewed(NamedTuple):
    moment: Moment
    local: str  # RFC 3339 as the zone's clocks show it
    note: str  # what daylight saving time touched, or ""


def preview(doc: Json, *, seed: int, created_at: Moment, start: Moment, count: int) -> list[Previewed]:
    """Return the first `count` moments at or after `start`."""
    schedule = compile_schedule(doc, seed=seed, created_at=created_at)
    info = schedule.plan.zone.info
    return [
        Previewed(moment, format_local(moment, info), schedule.note(moment))
        for moment in schedule.moments(start - 1, HORIZON, count)
    ]
