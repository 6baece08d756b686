"""The job document: from plain data, as read from JSON or YAML, to drafts the service can store.

    name: nightly report            kind + spec, or the fields of one kind right here
    schedule: "0 2 * * *"           or run_at, run_once, or a list of triggers
    steps: [{run: make report}]
    timeout: 10m                    the policy: timeout, retry, overlap, misfire, priority, …

What must stay true:
- One pass collects every problem, each with its path (`jobs[0].steps[1].run`), what was expected, what
  was got and what to do. Nothing is coerced: `yes` is a boolean and not a name.
- Equal jobs have equal text: specs and policies are canonical, and what has its default is left out.
  Only step names are always written, since they head the sections of a log.
- The kinds of work are those of core.kinds.
- No clock: a job to run at once has the moment `AT_ONCE`, 1970, because the past is due now.

Submits come by the thousand per second, so the readers are plain functions over plain data, and words
for people are made only when something is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from horae.core import jobdata, moments, schedule
from horae.core.fields import (
    ABSENT,
    Fields,
    Problems,
    encode,
    encoded,
    fields_of,
    json_problems,
    kind_of,
    nearest,
    shown,
    type_words,
)
from horae.core.isolation import labels_of
from horae.core.kinds import MAX_DATA, READ_ONLY, read_work, refuse_twins
from horae.core.model import SEGMENTS, Json, Misfire, Moment, Overlap, Policy, Retry, record
from horae.errors import MAX_PROBLEMS, Invalid

MAX_JOBS = 100
MAX_TRIGGERS = 100
MAX_LABELS = 32
MAX_ANNOTATIONS = 64 * 1024  # bytes
MAX_SCHEDULE = 4096  # characters of a schedule as text or JSON
MAX_WAITING = 1000  # runs of one job that may wait, and missed moments that may be made up for

AT_ONCE = "1970-01-01T00:00:00Z"


@record
class TriggerDraft:
    schedule: Json  # canonical
    data: Json | None = None
    enabled: bool = True
    id: int | None = None  # the trigger this one replaces
    once: bool = False  # only the first moment counts: see schedule_from

    def schedule_from(self, now: Moment, seed: int) -> Json:
        """The schedule to store at a moment: of `once`, its first moment from now on and no other."""
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
    problems.settle()
    return drafts


def parse_job(document: Any) -> Draft:
    problems = Problems()
    draft = _read_job(document, "", problems)
    problems.settle()
    return draft


def parse_trigger(document: Any) -> TriggerDraft:
    problems = Problems()
    draft = _read_trigger(document, "", problems)
    problems.settle()
    return draft


def parse_data(text: str, name: str) -> Json:
    """The data that stands for a text, see core.jobdata; what is wrong is told of the field `name`."""
    value = jobdata.object_in(text)
    if value is None or encoded(value) is None or next(json_problems(value, ""), None) is not None:
        value = {jobdata.WHOLE: text}
    problems = Problems()
    data = Fields({name: value}, "", problems).json(name, MAX_DATA)
    problems.settle()
    return data


# ---------------------------------------------------------------------------------------- jobs


def _read_job(document: Any, path: str, problems: Problems) -> Draft:
    what = "a job" if path else "top level"
    fields = fields_of(document, path, problems, f"{what} must be a mapping")
    if fields is None:
        return _NO_JOB
    if "name" not in fields.values:
        fields.fault("name", "E_REQUIRED", "a job needs a name")
    fields.text("owner")  # the service knows who asks; a document may say it, but does not decide it
    name, key = fields.handle("name"), fields.handle("key")
    kind, spec = read_work(fields)
    return Draft(
        name=name or "",
        key=key,
        kind=kind,
        spec=spec,
        policy=_read_policy(fields, labels_of(spec)),
        triggers=_read_triggers(fields),
        segment=_read_segment(fields),
        paused=fields.flag("paused") or False,
        annotations=fields.json("annotations", MAX_ANNOTATIONS),
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

_TRIGGER_FIELDS = frozenset({"schedule", "timezone", "data", "enabled", "id"})
_OWN_FIELDS = frozenset({"data", "enabled", "id"})
_SHORTHANDS = ("schedule", "run_at", "run_once")


def _read_triggers(fields: Fields) -> tuple[TriggerDraft, ...]:
    """The triggers listed, or the one that the shorthand fields stand for."""
    once = fields.flag("run_once")
    if "triggers" not in fields.values:
        return _read_shorthand(fields, once)
    for name in _SHORTHANDS:
        if name in fields.values and fields.values[name] is not False:
            message = f"{name} is short for one trigger, but triggers are listed too"
            fields.fault(name, "E_FIELD_CONFLICT", message, "move it into triggers")
    path = fields.at("triggers")
    items = fields.items("triggers", MAX_TRIGGERS, "triggers", least=1 if once is False else 0)
    return tuple(_read_trigger(item, f"{path}[{index}]", fields.problems) for index, item in enumerate(items))


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
    """The field `schedule`: text, beside which a time zone may stand, or a schedule document."""
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
    """What `read` answers; problems are those of the field `name`, or of `timezone`."""
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
            return schedule.canonical(document)
        except Invalid as error:
            problems.adopt(path, error)
    return None


def _read_trigger(item: Any, path: str, problems: Problems) -> TriggerDraft:
    if problems.is_full:  # schedules are dear to read, and nobody would see what is wrong with this one
        problems.count()
        return _NO_TRIGGER
    fields = fields_of(item, path, problems, "a trigger must be a mapping such as {every: 10m}")
    if fields is None:
        return _NO_TRIGGER
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
        id=fields.number("id", None, 1, 2**63 - 1, whole=True),
    )


_NO_TRIGGER = TriggerDraft({})


# -------------------------------------------------------------------------------------- policy

_DEFAULT = Policy()
_POLICY_FIELDS = frozenset(
    {"timeout", "retry", "overlap", "concurrency", "misfire", "start_deadline", "priority", "labels"}
)
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}")
_Choice = TypeVar("_Choice", bound=IntEnum)


def _read_policy(fields: Fields, implied: tuple[str, ...] = ()) -> Policy:
    """`implied` are labels that the work itself asks for."""
    if _POLICY_FIELDS.isdisjoint(fields.values) and not implied:
        return _DEFAULT
    if "concurrency" in fields.values and "overlap" in fields.values:
        message = "another name for overlap, which is also there"
        fields.fault("concurrency", "E_FIELD_CONFLICT", message, "keep overlap")
    written = "concurrency" if "concurrency" in fields.values else "overlap"
    overlap = _read_choice(fields, written, Overlap.FORBID, Overlap.QUEUE, 1, _DEFAULT.overlap_limit)
    misfire = _read_choice(fields, "misfire", Misfire.RUN_LATEST, Misfire.RUN_ALL, 0, _DEFAULT.misfire_limit)
    return Policy(
        *overlap,
        *misfire,
        retry=_read_retry(fields),
        timeout_seconds=fields.seconds("timeout", None, 1),
        start_deadline_seconds=fields.seconds("start_deadline", None, 1),
        priority=_read_priority(fields),
        labels=_read_labels(fields, implied),
    )


def _read_choice(
    fields: Fields, name: str, default: _Choice, limited: _Choice, low: int, limit: int
) -> tuple[_Choice, int]:
    """A word, or {policy: word, limit: n} where the word is the one that has a limit."""
    value = fields.values.get(name, ABSENT)
    if value is ABSENT:
        return default, limit
    choices = {choice.name.lower(): choice for choice in type(default)}
    where, word = name, value
    if isinstance(value, dict):
        inner = Fields(value, fields.at(name), fields.problems)
        inner.refuse_others(_CHOICE_FIELDS)
        where, word = f"{name}.policy", value.get("policy")
        limit = inner.number("limit", limit, low, MAX_WAITING, whole=True)
        if "limit" in value and word != limited.name.lower():
            inner.fault("limit", "E_FIELD_CONFLICT", f"only {limited.name.lower()} has a limit")
    if type(word) is str and word in choices:
        return choices[word], limit
    got = shown(word) if isinstance(word, str) else kind_of(word)
    message = f"must be one of {', '.join(choices)}, got {got}"
    fields.problems.add(fields.at(where), "E_ENUM", message, nearest(got, choices))
    return default, limit


_CHOICE_FIELDS = frozenset({"policy", "limit"})
_RETRY_FIELDS = frozenset({"attempts", "backoff", "factor", "cap", "jitter"})


def _read_retry(fields: Fields) -> Retry:
    value = fields.values.get("retry", ABSENT)
    default = _DEFAULT.retry
    if value is ABSENT:
        return default
    if not isinstance(value, dict):
        return Retry(fields.number("retry", 1, 1, 100, whole=True))
    inner = Fields(value, fields.at("retry"), fields.problems)
    inner.refuse_others(_RETRY_FIELDS)
    return Retry(
        attempts=inner.number("attempts", default.attempts, 1, 100, whole=True),
        backoff_seconds=inner.seconds("backoff", default.backoff_seconds, 0),
        factor=float(inner.number("factor", default.factor, 1, 100)),
        cap_seconds=inner.seconds("cap", default.cap_seconds, 0),
        jitter=float(inner.number("jitter", default.jitter, 0, 1)),
    )


def _read_priority(fields: Fields) -> int:
    value = fields.values.get("priority", _DEFAULT.priority)
    if type(value) is int and 0 <= value <= 9:
        return value
    fields.fault("priority", "E_ENUM", "must be a whole number, one of 0..9, where 9 goes first")
    return _DEFAULT.priority


def _read_labels(fields: Fields, implied: tuple[str, ...]) -> tuple[str, ...]:
    path = fields.at("labels")
    labels = set(implied)
    for index, label in enumerate(fields.items("labels", MAX_LABELS, "labels")):
        if type(label) is not str:
            fields.problems.add(f"{path}[{index}]", "E_TYPE", *type_words("must be text", label))
        elif not _LABEL.fullmatch(label):
            message = "1 to 63 letters, digits or any of _./:=- expected, beginning with a letter or digit"
            fields.problems.add(f"{path}[{index}]", "E_PATTERN", message)
        else:
            labels.add(label)
    return tuple(sorted(labels))


def render_policy(policy: Policy) -> Json:
    """Every field, as the API shows it."""
    retry = policy.retry
    return {
        "overlap": policy.overlap.name.lower(),
        "overlap_limit": policy.overlap_limit,
        "misfire": policy.misfire.name.lower(),
        "misfire_limit": policy.misfire_limit,
        "retry": {
            "attempts": retry.attempts,
            "backoff_seconds": retry.backoff_seconds,
            "factor": retry.factor,
            "cap_seconds": retry.cap_seconds,
            "jitter": retry.jitter,
        },
        "timeout_seconds": policy.timeout_seconds,
        "start_deadline_seconds": policy.start_deadline_seconds,
        "priority": policy.priority,
        "labels": list(policy.labels),
        "offered": policy.offered,
    }


@lru_cache(maxsize=4096)
def policy_text(policy: Policy) -> str:
    """The text to store: canonical JSON without what has its default."""
    return encode(_without(render_policy(policy), render_policy(_DEFAULT)))


def _without(values: Json, defaults: Json) -> Json:
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    if "retry" in changed:
        changed["retry"] = _without(values["retry"], defaults["retry"])
    return changed


@lru_cache(maxsize=4096)
def policy_from_text(text: str, *, exact: bool = False) -> Policy:
    """Read what policy_text wrote. What a newer version wrote and this one does not know is left out; with `exact`,
    because more depends on it than what is shown, it is refused."""
    values = json.loads(text)
    strange = _without_strange(values, Policy)
    retry = values.pop("retry", {})
    strange += _without_strange(retry, Retry)
    for name, choices in (("overlap", Overlap), ("misfire", Misfire)):
        word = str(values.pop(name, "")).upper()
        if word in choices.__members__:
            values[name] = choices[word]
        elif word:
            strange.append(f"{name}: {word.lower()}")
    if strange and exact:
        raise Invalid(f"this version of Horae does not know {', '.join(strange)} of a policy", code="E_UNKNOWN_FIELD")
    if "labels" in values:
        values["labels"] = tuple(values["labels"])
    return Policy(**values, retry=Retry(**retry))


def _without_strange(values: Json, known: type[Policy] | type[Retry]) -> list[str]:
    """Take out, and answer, the names that are no fields."""
    strange = [name for name in values if name not in known.__slots__]
    for name in strange:
        del values[name]
    return strange
