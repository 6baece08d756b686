"""The form in which a job is changed: what of its document stands in which field.

A form has what most jobs are changed in. What it has no room for stays as it is, and is written as YAML. What must stay
true: a form that is sent as it was shown changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from horae import schemas
from horae.core.model import Json, Misfire, Overlap
from horae.core.written import written
from horae.web import render

MOST_STEPS = 20  # that a form has room for
OVERLAPS = tuple(each.name.lower() for each in Overlap)
MISFIRES = tuple(each.name.lower() for each in Misfire)
_SHORT = ("schedule", "timezone", "run_at")  # in place of triggers


class When(NamedTuple):
    """A trigger."""

    id: int
    text: str | None  # of its schedule; None: there is no room for it
    zone: str
    start_at: str  # as a clock of that zone shows it
    end_at: str
    description: str


class Form(NamedTuple):
    document: Json  # of the job, as people write it
    kind: str
    whens: list[When]
    has_work: bool  # fields of its work, and of its policy, stand at the top of the document
    has_policy: bool
    env: str | None  # a line for each; None: some are secrets


def form_of(job: schemas.Job) -> Form:
    shown = render.plain(job)
    document = {name: value for name, value in written(shown).items() if name not in _SHORT}
    document["triggers"] = [_trigger(one) for one in shown["triggers"]]
    if isinstance(document.get("retry"), int):
        document["retry"] = {"attempts": document["retry"]}
    return Form(
        document, job.kind, [_when(it) for it in job.triggers], "spec" not in document,
        "spec" not in document and "policy" not in document, _lines(document.get("env", {})),
    )  # fmt: skip


def _trigger(one: Json) -> Json:
    """Return a trigger with its schedule beside the rest; its id lets it keep its past."""
    kept = {name: one[name] for name in ("id", "key", "name", "data") if one.get(name) is not None}
    return {**kept, **one["schedule"], **({} if one["enabled"] else {"enabled": False})}


def _when(it: schemas.Trigger) -> When:
    zone = str(it.schedule.get("timezone", "UTC"))
    start, end = (_local(it.schedule.get(name), zone) for name in ("start_at", "end_at"))
    return When(it.id, _text(it.schedule), zone, start, end, it.description)


def _text(schedule: dict[str, Any]) -> str | None:
    if "every" in schedule:
        return f"every {schedule['every']}" if schedule.get("mode", "rate") == "rate" else None
    return next((str(schedule[kind]) for kind in ("cron", "at", "rrule") if kind in schedule), None)


def _local(moment: str | None, zone: str) -> str:
    if moment is None:
        return ""
    there = datetime.fromisoformat(moment).astimezone(ZoneInfo(zone))
    return there.strftime("%Y-%m-%dT%H:%M:%S").removesuffix(":00")  # as browsers write it


def _lines(env: dict[str, Any]) -> str | None:
    if not all(isinstance(value, str) and "\n" not in value for value in env.values()):
        return None
    return "\n".join(f"{name}={value}" for name, value in env.items())
