"""`schedule_time`, in both its generations, and the trigger documents of Horae.

    none_schedule       no trigger
    schedule_once       at
    schedule_minutely   period of minutes   )
    schedule_hourly     period of hours     ) counted from `start_time`, which is the anchor: the first moment lies
    schedule_daily      period of days      ) strictly after it; without it, from creation
    schedule_weekly     period of weeks     )
    schedule_monthly    period of months    )

The older generation has `at_time` where the newer one has `at_hour`, `at_minute` and `at_second`: of that moment
only the time of day counts. Everything is UTC. What is sent is kept beside the job and shown again, as long as the
job's triggers are still those that it stands for; else it is made from the trigger.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from horae.core.fields import Fields, Problems, fields_of, shown
from horae.core.model import SECOND, Job, Json, Moment, Trigger
from horae.core.time import document, moments, schedule
from horae.core.time.periods import PeriodSpec
from horae.core.work.specs import TriggerDraft
from horae.errors import Invalid

NO_MOMENT = 9223372036854775807  # of a job that never runs by itself
SPENT = 99999999999999  # of one that ran once and will not again

LATEST = moments.HORIZON // moments.MILLISECOND
NONE: Json = {"class_name": "none_schedule"}
_UNITS = {
    "schedule_minutely": "minute",
    "schedule_hourly": "hour",
    "schedule_daily": "day",
    "schedule_weekly": "week",
    "schedule_monthly": "month",
}
_CLASSES = {unit: name for name, unit in _UNITS.items()}
_MOST = {"minute": 366 * 24 * 60, "hour": 366 * 24, "day": 10_000, "week": 10_000, "month": 10_000}
_CLOCK = (("at_hour", 23), ("at_minute", 59), ("at_second", 59))
_KNOWN = (
    "start_time", "recur_every", "at_time", "at_hour", "at_minute", "at_second", "include_days", "recur_on_days",
    "recur_every_month", "description",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timetable:
    """A `schedule_time` that was read: as it is shown again, and the trigger document it stands for."""

    shown: Json
    document: Json | None

    def drafts(self) -> tuple[TriggerDraft, ...]:
        return () if self.document is None else (TriggerDraft(self.document),)


def milliseconds(moment: Moment) -> int:
    return moment // moments.MILLISECOND


def moment_text(at: int) -> str:
    """Epoch milliseconds as trigger documents write a moment."""
    return moments.format_moment(at * moments.MILLISECOND)


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


def read(outer: Fields) -> Timetable:
    """Return the field `schedule_time` of a job; none_schedule without one."""
    if "schedule_time" not in outer.values:
        return Timetable(NONE, None)
    found = fields_of(outer.values["schedule_time"], outer.at("schedule_time"), outer.problems, "must be an object")
    if found is None:
        return Timetable(NONE, None)
    fields = Fields({k: v for k, v in found.values.items() if v is not None}, found.path, found.problems)
    before = len(fields.problems.listed)
    doc = _document(fields)
    if doc is not None and len(fields.problems.listed) == before:
        try:
            doc = schedule.canonical(doc)
        except Invalid as error:
            fields.problems.adopt(fields.path, error)
    own = {name: fields.values[name] for name in _KNOWN if name in fields.values}
    return Timetable({"class_name": fields.values.get("class_name"), **own}, doc)


def _document(fields: Fields) -> Json | None:
    name = fields.values.get("class_name")
    if name == "none_schedule":
        return None
    if name == "schedule_once":
        at = _moment(fields, "start_time", needed=True)
        return {"at": at} if at else None
    if isinstance(name, str) and name in _UNITS:
        return _period(fields, _UNITS[name])
    known = ", ".join(["none_schedule", "schedule_once", *_UNITS])
    got = shown(name) if isinstance(name, str) else "none"
    fields.fault("class_name", "E_DISCRIMINATOR", f"one of {known} expected, got {got}")
    return None


def _period(fields: Fields, unit: str) -> Json:
    field = "recur_every_month" if unit == "month" else "recur_every"
    if field not in fields.values:
        fields.fault(field, "E_REQUIRED", f"every how many {unit}s is needed")
    period: Json = {"unit": unit, "every": fields.number(field, 1, 1, _MOST[unit], whole=True)}
    if unit in ("day", "week", "month"):
        period["at"] = _time_of_day(fields, unit)
    if unit == "week":
        period["days"] = _days(fields)
    if unit == "month":
        period["month_days"] = _items(fields, "recur_on_days")
    return {"period": period, "anchor": _moment(fields, "start_time")}


def _moment(fields: Fields, name: str, *, needed: bool = False) -> str | None:
    if needed and name not in fields.values:
        fields.fault(name, "E_REQUIRED", "a moment in epoch milliseconds is needed")
    at = fields.number(name, None, 0, LATEST, whole=True)
    return None if at is None else moment_text(at)


def _time_of_day(fields: Fields, unit: str) -> str | None:
    """HH:MM:SS; None where it is that of `start_time`."""
    if (at := _moment(fields, "at_time")) is not None:
        return at[11:-1]
    if unit == "day":
        return None
    return ":".join(f"{fields.number(name, 0, 0, most, whole=True):02}" for name, most in _CLOCK)


def _items(fields: Fields, name: str) -> list[Any]:
    if name not in fields.values:
        fields.fault(name, "E_EMPTY", "must have at least one item")
    return fields.items(name, 31, "days", least=1)


def _days(fields: Fields) -> list[Any]:
    days = _items(fields, "include_days")
    for day in days:
        if not isinstance(day, str) or day.lower() not in document.WEEKDAYS:
            fields.fault("include_days", "E_ENUM", "each must be one of MONDAY to SUNDAY")
            return []
    return days


# ── showing ────────────────────────────────────────────────────────────────────────────────────────


def shown_for(job: Job, sent: Any) -> Json:
    """Return the `schedule_time` of a job: what was `sent`, if its triggers are still those; else what they come to."""
    if isinstance(sent, dict) and _is_still(job, sent):
        return sent
    if not job.triggers:
        return NONE
    return _derived(min(job.triggers, key=lambda t: (t.next_at is None, t.next_at or 0, t.id)))


def _is_still(job: Job, sent: Json) -> bool:
    """Return whether the job's triggers are the one that was sent, and perhaps single moments for which somebody
    asked."""
    problems = Problems()
    own = read(Fields({"schedule_time": sent}, "", problems)).document
    if problems.listed:  # not ours: annotations can be written by anybody
        return False
    others = [t.schedule for t in job.triggers if t.schedule != own]
    is_there = own is None or len(others) < len(job.triggers)
    return is_there and all("at" in each for each in others)


def _derived(trigger: Trigger) -> Json:
    """Return the class that a trigger of another interface comes to; none_schedule, in words, where there is none."""
    plan = document.read(trigger.schedule)
    start = plan.start if plan.start is not None else plan.anchor
    since = trigger.created_at if start is None else start
    if plan.kind == "at":
        return {"class_name": "schedule_once", "start_time": milliseconds(plan.at)}
    if plan.step and not plan.delay and plan.step % moments.MINUTE == 0:
        unit, length = ("hour", moments.HOUR) if plan.step % moments.HOUR == 0 else ("minute", moments.MINUTE)
        return {
            "class_name": _CLASSES[unit], "recur_every": plan.step // length, "start_time": milliseconds(since)
        }  # fmt: skip
    if plan.period is not None and plan.zone.name == "UTC" and _is_plain(plan.period):
        return _derived_period(plan.period, since)
    return {**NONE, "description": schedule.describe(trigger.schedule)}


def _is_plain(period: PeriodSpec) -> bool:
    return period.unit in _CLASSES and period.clamp and -1 not in (period.month_days or ())


def _derived_period(period: PeriodSpec, since: Moment) -> Json:
    start = datetime.fromtimestamp(since / SECOND, UTC)
    every = {"recur_every_month" if period.unit == "month" else "recur_every": period.every}
    found: Json = {"class_name": _CLASSES[period.unit], **every, "start_time": milliseconds(since)}
    if period.unit == "day":
        return found if period.time is None else {**found, "at_time": milliseconds(period.time)}
    if period.unit == "week":
        found["include_days"] = [document.WEEKDAYS[day].upper() for day in period.days or (start.weekday(),)]
    else:
        found["recur_on_days"] = list(period.month_days or (start.day,))
    second = (since % moments.DAY if period.time is None else period.time) // SECOND
    return {**found, "at_hour": second // 3600, "at_minute": second // 60 % 60, "at_second": second % 60}


def next_run_time(job: Job) -> int:
    """When the job runs next, in epoch milliseconds, or the number that says why it does not."""
    waiting = [t.next_at for t in job.triggers if t.next_at is not None]
    if waiting:
        return milliseconds(min(waiting))
    spent = any("at" in t.schedule and t.last_at is not None for t in job.triggers)
    return SPENT if spent else NO_MOMENT
