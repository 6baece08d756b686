"""The job document: from plain data, as read from JSON or YAML, to drafts the service can store.

    name: nightly report            kind + spec, or the fields of one kind right here
    schedule: "0 2 * * *"           or run_at, run_once, or a list of triggers
    steps: [{run: make report}]
    timeout: 10m                    the policy (core.work.policies): timeout, retry, overlap, misfire, priority, …

What must stay true:
- One pass collects every problem, each with its path (`jobs[0].steps[1].run`), what was expected, what
  was got and what to do. Nothing is coerced: `yes` is a boolean and not a name.
- Equal jobs have equal text: specs and policies are canonical, and what has its default is left out.
  Only step names are always written, since they head the sections of a log.
- The kinds of work are those of core.work.kinds.
- No clock: a job to run at once has the moment `AT_ONCE`, 1970, because the past is due now.

Submits come by the thousand per second, so the readers are plain functions over plain data, and words
for people are made only when something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from horae.core import jobdata
from horae.core.fields import Fields, Problems, encoded, fields_of, json_problems, refuse_twins
from horae.core.jobdata import MAX_DATA
from horae.core.model import LARGEST_ID, SEGMENTS, Json, Moment, Policy, record
from horae.core.time import moments, schedule
from horae.core.time.outside import is_event, is_webhook
from horae.core.work import events, webhooks
from horae.core.work.kinds import READ_ONLY, read_all
from horae.core.work.made import Made, take_from_job, take_from_trigger
from horae.errors import MAX_PROBLEMS, Error, Invalid

MAX_JOBS = 10_000  # in one request
MAX_TRIGGERS = 100
MAX_TRIGGER_NAME = 250  # characters
MAX_ANNOTATIONS = 64 * 1024  # bytes
MAX_SCHEDULE = 4096  # characters of a schedule as text or JSON

AT_ONCE = "1970-01-01T00:00:00Z"


@record
class TriggerDraft:
    schedule: Json  # canonical
    data: Json | None = None
    enabled: bool = True
    id: int | None = None  # the trigger this one replaces
    once: bool = False  # only the first moment counts: see schedule_from
    key: str | None = None  # by which a later document finds it, whatever its schedule is then
    name: str | None = None  # for people
    made: Made | None = None  # what the document says of what Horae makes

    def schedule_from(self, now: Moment, seed: int) -> Json:
        """Return the schedule to store at a moment: of `once`, its first moment from now on and no other."""
        if not self.once:
            return self.schedule
        first = schedule.compile_schedule(self.schedule, seed=seed, created_at=now).first()
        return self.schedule if first is None else {"at": moments.format_moment(first)}


@record
class Draft:
    """A job as asked for: everything but what the service adds."""

    name: str
    key: str | None
    kind: str
    spec: Json
    policy: Policy
    triggers: tuple[TriggerDraft, ...]
    segment: int | None
    paused: bool
    annotations: Json
    made: Made | None = None  # what the document says of what Horae makes


def parse_jobs(document: Any, limit: int = MAX_JOBS) -> list[Draft]:
    """{"jobs": [...]}, or one job."""
    if not isinstance(document, dict) or "jobs" not in document:
        return [parse_job(document)]
    problems = Problems()
    fields = Fields(document, "", problems)
    fields.refuse_others(frozenset({"jobs"}))
    items = fields.items("jobs", limit, "jobs per request", least=1)
    drafts = [_read_job(item, f"jobs[{index}]", problems) for index, item in enumerate(items)]
    refuse_twins([draft.key for draft in drafts], "jobs[{}].key", "key", problems)
    problems.raise_any()
    return drafts


class JobReader:
    """Reads a long list of jobs, one by one."""

    def __init__(self) -> None:
        self._problems = Problems()
        self._drafts: list[Draft] = []

    def read(self, document: Any, path: str) -> None:
        """An Error stands for a document that could not be read."""
        if isinstance(document, Error):
            for problem in document.listed():
                self._problems.add(f"{path}.{problem.path}".rstrip("."), problem.code, problem.message, problem.hint)
        else:
            self._drafts.append(_read_job(document, path, self._problems))

    def drafts(self) -> list[Draft]:
        """Return them all, or raise all that is wrong with any."""
        refuse_twins([draft.key for draft in self._drafts], "jobs[{}].key", "key", self._problems)
        self._problems.raise_any()
        return self._drafts


def parse_job(document: Any) -> Draft:
    problems = Problems()
    draft = _read_job(document, "", problems)
    problems.raise_any()
    return draft


def parse_trigger(document: Any) -> TriggerDraft:
    problems = Problems()
    draft = _read_trigger(document, "", problems, is_made=True)
    problems.raise_any()
    return draft


def parse_data(text: str, name: str) -> Json:
    """Return the data that stands for a text, see core.jobdata; what is wrong is told of the field `name`."""
    value = jobdata.object_in(text)
    if value is None or encoded(value) is None or next(json_problems(value, ""), None) is not None:
        value = {jobdata.WHOLE: text}
    problems = Problems()
    data = Fields({name: value}, "", problems).json(name, MAX_DATA)
    problems.raise_any()
    return data


# ---------------------------------------------------------------------------------------- jobs


def _read_job(document: Any, path: str, problems: Problems) -> Draft:
    what = "a job" if path else "top level"
    fields = fields_of(document, path, problems, f"{what} must be a mapping")
    if fields is None:
        return _NO_JOB
    fields, made = take_from_job(fields)
    if "name" not in fields.values:
        fields.fault("name", "E_REQUIRED", "a job needs a name")
    fields.text("owner")  # the service knows who asks; a document may say it, but does not decide it
    name, key = fields.handle("name"), fields.handle("key")
    kind, spec, policy = read_all(fields)
    return Draft(
        name=name or "",
        key=key,
        kind=kind,
        spec=spec,
        policy=policy,
        triggers=_read_triggers(fields, is_made=made is not None),
        segment=_read_segment(fields),
        paused=fields.flag("paused") or False,
        annotations=fields.json("annotations", MAX_ANNOTATIONS),
        made=made,
    )


_NO_JOB = Draft("", None, "", {}, Policy(), (), None, False, {})


def _read_segment(fields: Fields) -> int | None:
    value = fields.values.get("segment")
    if type(value) is int and 0 <= value < SEGMENTS:
        return value
    if "segment" in fields.values:
        fields.fault("segment", "E_SEGMENT", f"must be a whole number from 0 to {SEGMENTS - 1}")
    return None


# ------------------------------------------------------------------------------------ triggers

_TRIGGER_FIELDS = frozenset({"schedule", "timezone", "data", "enabled", "id", "key", "name"})
_OWN_FIELDS = frozenset({"data", "enabled", "id", "key", "name"})
_SHORTHANDS = ("schedule", "run_at", "run_once")


def _read_triggers(fields: Fields, *, is_made: bool) -> tuple[TriggerDraft, ...]:
    """Return the triggers listed, or the one that the shorthand fields stand for. With `is_made`, Horae wrote the
    document."""
    once = fields.flag("run_once")
    if "triggers" not in fields.values:
        return _read_shorthand(fields, once)
    for name in _SHORTHANDS:
        if name in fields.values and fields.values[name] is not False:
            message = f"{name} is short for one trigger, but triggers are listed too"
            fields.fault(name, "E_FIELD_CONFLICT", message, "move it into triggers")
    path = fields.at("triggers")
    items = fields.items("triggers", MAX_TRIGGERS, "triggers", least=1 if once is False else 0)
    drafts = tuple(
        _read_trigger(item, f"{path}[{index}]", fields.problems, is_made=is_made) for index, item in enumerate(items)
    )
    refuse_twins([draft.key for draft in drafts], path + "[{}].key", "key", fields.problems)
    return drafts


def _read_shorthand(fields: Fields, once: bool | None) -> tuple[TriggerDraft, ...]:
    values = fields.values
    if "run_at" in values and ("schedule" in values or once is False):
        other = "schedule" if "schedule" in values else "run_once: false"
        fields.fault("run_at", "E_FIELD_CONFLICT", f"one moment contradicts {other}", "keep one of them")
    elif "run_at" in values:
        return _drafted(_read_run_at(fields), once=False)
    elif "schedule" in values:
        return _drafted(_read_schedule(fields), once=once is True)
    elif once:
        return _drafted({"at": AT_ONCE}, once=False)
    elif once is False:
        message = "a job that does not run just once needs a schedule"
        fields.fault("schedule", "E_REQUIRED", message, 'write schedule: "0 2 * * *"')
    elif "timezone" in values:
        fields.fault("timezone", "E_FIELD_CONFLICT", "a time zone means nothing without a schedule")
    return ()


def _drafted(document: Json | None, *, once: bool) -> tuple[TriggerDraft, ...]:
    return () if document is None else (TriggerDraft(document, once=once),)


def _read_run_at(fields: Fields) -> Json | None:
    if type(fields.values["run_at"]) is not str:
        fields.wrong_type("run_at", "must be text such as 2027-03-28T02:30:00Z")
        return None
    document = {"at": fields.values["run_at"]}
    if timezone := fields.text("timezone"):
        document["timezone"] = timezone
    return _canonical(fields, "run_at", lambda: schedule.canonical(document))


def _read_schedule(fields: Fields) -> Json | None:
    """Return the field `schedule`: text, beside which a time zone may stand, or a schedule document."""
    value = fields.values["schedule"]
    timezone = fields.text("timezone")
    if isinstance(value, dict):
        if "timezone" in fields.values:
            fields.fault("timezone", "E_FIELD_CONFLICT", "belongs inside schedule")
        return _read_document(value, fields.at("schedule"), fields.problems)
    if type(value) is not str:
        fields.wrong_type("schedule", "must be text such as 0 2 * * * or 1h30m")
        return None
    if len(value) > MAX_SCHEDULE:
        fields.fault("schedule", "E_LEN", f"at most {MAX_SCHEDULE} characters, got {len(value)}")
        return None
    return _canonical(fields, "schedule", lambda: dict(_from_text(value, timezone)))


@lru_cache(maxsize=4096)
def _from_text(text: str, timezone: str | None) -> Json:
    if timezone is None:
        return schedule.from_text(text)
    try:
        document = schedule.from_text(text)
    except Invalid as error:
        if error.code != "E_TIME_NO_OFFSET":
            raise
        document = {"at": text}  # a moment on the clocks of the zone
    return schedule.canonical({**document, "timezone": timezone})


def _canonical(fields: Fields, name: str, read: Callable[[], Json]) -> Json | None:
    """Return what `read` returns; problems are those of the field `name`, or of `timezone`."""
    try:
        return read()
    except Invalid as error:
        for problem in error.listed():
            where = "timezone" if problem.path == "timezone" else name
            fields.fault(where, problem.code, problem.message, problem.hint)
        return None


def _read_document(document: Json, path: str, problems: Problems) -> Json | None:
    text = encoded(document)
    if text is None:
        problems.listed += islice(json_problems(document, path), MAX_PROBLEMS)
    elif len(text) > MAX_SCHEDULE:
        problems.add(path, "E_LEN", f"a schedule has at most {MAX_SCHEDULE} characters")
    else:
        try:
            if is_event(document):
                return events.canonical(document)
            return webhooks.canonical(document) if is_webhook(document) else schedule.canonical(document)
        except Invalid as error:
            problems.adopt(path, error)
    return None


def _read_trigger(item: Any, path: str, problems: Problems, *, is_made: bool) -> TriggerDraft:
    if problems.is_full:  # schedules are dear to read, and nobody would see what is wrong with this one
        problems.count()
        return _NO_TRIGGER
    fields = fields_of(item, path, problems, "a trigger must be a mapping such as {every: 10m}")
    if fields is None:
        return _NO_TRIGGER
    trigger_id = fields.number("id", None, 1, LARGEST_ID, whole=True)
    fields, made = take_from_trigger(fields) if is_made else (fields, None)
    if "schedule" in fields.values:
        fields.refuse_others(_TRIGGER_FIELDS, READ_ONLY)
        document = _read_schedule(fields)
    else:
        rest = {name: value for name, value in fields.values.items() if name not in _OWN_FIELDS}
        document = _read_document(rest, path, problems)
    return TriggerDraft(
        schedule=document or {},
        data=None if fields.values.get("data") is None else fields.json("data", MAX_DATA),
        enabled=fields.flag("enabled") is not False,
        id=trigger_id,
        key=fields.handle("key"),
        name=fields.text("name", MAX_TRIGGER_NAME),
        made=made,
    )


_NO_TRIGGER = TriggerDraft({})
