"""What Horae itself writes into the document of a job: ids, versions, owner, moments.

Whoever reads a job and sends it back sends these too. They are taken out of the document before the rest is read, and
compared with the job they came from: what is as Horae made it is ignored, what was changed is refused at its path.

What must stay true: a job that only went on (it fired, its sync moved its cursor) between the reading and the sending
is not taken for a changed document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horae.core.fields import Fields, Problems, join, shown
from horae.core.model import LARGEST_ID, Cursor, Job, Json, Moment, Trigger, record
from horae.core.policy.breaker import paused_because
from horae.core.time import moments, schedule
from horae.errors import Invalid, Stale

_JOB = frozenset(
    {"id", "owner", "org", "version", "created_at", "updated_at", "deleted_at", "cursor", "paused_because", "followers"}
)
_BESIDE_WORK = _JOB - {"cursor"}  # of a sync, `cursor` is a column where its fields stand at the top
_TRIGGER = frozenset({"id", "job_id", "description", "next_at", "last_at", "version", "created_at", "hook"})
_HINT = "leave it out, or send it as it was read"


@record
class Made:
    """What a document says of what Horae makes, as it stands there."""

    path: str
    values: Json

    @property
    def id(self) -> Any:
        return self.values["id"]

    @property
    def is_possible(self) -> bool:
        """Whether it has an id that a job can have."""
        return type(self.id) is int and 0 < self.id <= LARGEST_ID


def take_from_job(fields: Fields) -> tuple[Fields, Made | None]:
    """Return the fields that are for users to write, and the others. Only with `id` and `created_at` it is a document
    that Horae has made: a field or two of its kind alone are a mistake."""
    return _take(fields, _JOB if "spec" in fields.values else _BESIDE_WORK)


def take_from_trigger(fields: Fields) -> tuple[Fields, Made | None]:
    return _take(fields, _TRIGGER)


def _take(fields: Fields, names: frozenset[str]) -> tuple[Fields, Made | None]:
    values = fields.values
    if "id" not in values or "created_at" not in values:
        return fields, None
    rest = {name: value for name, value in values.items() if name not in names}
    if rest.get("key", "") is None:
        del rest["key"]
    made = {name: value for name, value in values.items() if name in names}
    return Fields(rest, fields.path, fields.problems), Made(fields.path, made)


# ── compared with what there is ────────────────────────────────────────────────────────────────────


def is_of(made: Made, job: Job) -> bool:
    """Return whether a document came from this job, and not from one of another installation with the same id."""
    return type(made.id) is int and made.id == job.id and _moment(made.values["created_at"]) == job.created_at


def is_older(made: Made, job: Job) -> bool:
    """Return whether a document is of an earlier version of its job, of which no more is known."""
    version = made.values.get("version")
    return type(version) is int and 0 < version < job.version


def refuse_stale(made: Made, job: Job) -> None:
    if is_of(made, job) and is_older(made, job):
        message = f"job {job.id} is at version {job.version}, the document is its version {made.values['version']}"
        raise Stale(message, hint="read the job again, or leave the version out")


def check_job(made: Made, triggers: Sequence[Made | None], job: Job, cursor: Cursor | None, problems: Problems) -> None:
    """Note every field that is not as Horae made it; of an earlier version, as far as that can be told."""
    values = {"id": job.id, "owner": job.owner, "org": job.org}
    times: dict[str, Moment | None] = {"created_at": job.created_at}
    if not is_older(made, job):
        values |= {"version": job.version, "paused_because": paused_because(job)}
        times |= {"updated_at": job.updated_at, "deleted_at": job.deleted_at}
        for each in triggers:
            if each is not None:
                _check_listed(each, job, problems)
    _check(made, values, times, problems)
    _check_cursor(made, cursor, problems)


def check_trigger(made: Made, trigger: Trigger, problems: Problems) -> None:
    """As check_job, of one trigger."""
    values = {
        "id": trigger.id, "job_id": trigger.job_id, "version": trigger.version,
        "description": schedule.in_words(trigger.schedule),
    }  # fmt: skip
    _check(made, values, {"created_at": trigger.created_at}, problems)
    for name, now, is_past in (
        ("next_at", trigger.next_at, _has_gone_on),
        ("last_at", trigger.last_at, _has_fired_since),
    ):
        if name in made.values and _moment(made.values[name]) != now and not is_past(trigger, made.values[name]):
            _refuse(made, name, moments.format_moment(now) if now is not None else None, problems)


def _check_listed(made: Made, job: Job, problems: Problems) -> None:
    found = next((t for t in job.triggers if type(made.id) is int and t.id == made.id), None)
    if found is not None:
        check_trigger(made, found, problems)
    else:
        hint = "leave the ids out of a trigger that is new"
        problems.add(join(made.path, "id"), "E_READ_ONLY", f"job {job.id} has no trigger {_text(made.id)}", hint)


def _check(made: Made, values: Json, times: dict[str, Moment | None], problems: Problems) -> None:
    for name, value in values.items():
        given = made.values.get(name, value)
        if given != value or type(given) is not type(value):
            _refuse(made, name, value, problems)
    for name, moment in times.items():
        if name in made.values and _moment(made.values[name]) != moment:
            _refuse(made, name, moments.format_moment(moment) if moment is not None else None, problems)


def _check_cursor(made: Made, now: Cursor | None, problems: Problems) -> None:
    """It moves with every sync: an earlier one is no change."""
    given = made.values.get("cursor")
    if given is None or now is None:
        return
    moved_at = _moment(given.get("moved_at")) if isinstance(given, dict) else None
    if type(moved_at) is int and moved_at < now.moved_at:
        return
    shown_now = {"value": now.value, "run_id": now.run_id, "moved_at": moments.format_moment(now.moved_at)}
    if given != shown_now:
        _refuse(made, "cursor", shown_now, problems, "DELETE …/cursor lets a sync begin anew")


def _has_gone_on(trigger: Trigger, given: Any) -> bool:
    """Return whether a moment that was the next one has fired since. What counts from the end of a run has none
    meanwhile, and looks again and again."""
    moment = _moment(given)
    if "mode" in trigger.schedule:
        return moment is None or type(moment) is int
    return type(moment) is int and trigger.last_at is not None and moment <= trigger.last_at


def _has_fired_since(trigger: Trigger, given: Any) -> bool:
    moment = _moment(given)
    return trigger.last_at is not None and (moment is None or (type(moment) is int and moment < trigger.last_at))


def _moment(value: Any) -> Moment | str | None:
    """Return the moment that a text names; what names none is no moment."""
    if value is None:
        return None
    try:
        return moments.parse_moment(value)
    except Invalid:
        return ""


def _refuse(made: Made, name: str, value: Any, problems: Problems, hint: str = _HINT) -> None:
    message = f"is set by Horae, and is {_text(value)} here; got {_text(made.values[name])}"
    problems.add(join(made.path, name), "E_READ_ONLY", message, hint)


def _text(value: Any) -> str:
    return "null" if value is None else shown(value) if isinstance(value, str) else shown(str(value))[1:-1]
