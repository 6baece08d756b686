"""From a YAML file of CI jobs to drafts: the contract's own words become those of a job document.

    jobs:                              or the list alone
      - name: BuildAndTest
        schedule: "0 0 * * *"          5 fields, 6 with seconds first, 4 as "second minute hour day", or 1h30m
        run_once: false
        url: https://host/repo.git     with `branch`; the checkout comes before the first step
        timezone: Europe/Berlin        whose clock the schedule means; UTC unless said
        network: on                    or off, the default, or a list of addresses: for the steps
        sandbox, limits, labels, queue, rate_limits, concurrency_limits, retry as in a job document
        steps: [{name, run}, …]        or task: [build, test], which stands for those of a Go package; never both

What must stay true: everything wrong with a file is told at once, at the path its writer knows; an unknown key is
wrong, because a job whose misspelt `schedule` is ignored would silently never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from horae.core.fields import Fields, Problems, fields_of, shown
from horae.core.model import Job, Json
from horae.core.spelling import suggest
from horae.core.time import schedule
from horae.core.work import specs
from horae.errors import Denied, Invalid, Problem
from horae.web import documents

FACADE = "ci"  # under which annotations our own fields are kept
FORMATS = ("text", "json", "junit")
SCHEDULE_FIELDS = 4  # of the dialect that only this contract has
_AS_THEY_ARE = (
    "name", "run_once", "steps", "image", "priority", "env", "timeout", "artifacts", "reports", "cache",
    "network", "sandbox", "limits", "labels", "queue", "resources", "rate_limits", "concurrency_limits", "retry",
)  # fmt: skip
FIELDS = frozenset({*_AS_THEY_ARE, "schedule", "timezone", "url", "branch", "task", "format"})

MAX_JOBS = 100  # in one file
_DOWNLOAD = {"name": "Set up Go", "run": "go mod download"}
_TASKS = {
    "build": {"name": "Build", "run": "go build -v ./..."},
    "test": {"name": "Test", "run": "go test -v ./..."},
}

_READINGS = {
    "unix5": "five fields: minute hour day month weekday",
    "seconds6": "six fields: second minute hour day month weekday",
    "quartz6": "six fields of Quartz: second minute hour day month weekday",
    "quartz7": "seven fields of Quartz: second minute hour day month weekday year",
    "ci4": "four fields: second minute hour day",
    "macro": "a macro of cron",
    "every": "a duration: from due moment to due moment",
    "at": "one moment",
    "rrule": "a recurrence rule",
    "period": "a calendar period",
}
NOW = "no schedule: once, now"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job of a file."""

    draft: specs.Draft
    schedule: str | None  # as it was written
    reading: str  # how that was taken


def read_jobs(body: bytes) -> list[Wanted]:
    document = documents.read_yaml(body)
    problems = Problems()
    items, prefix = _listed(document, problems)
    translated = [_translate(item, f"{prefix}[{index}]", problems) for index, item in enumerate(items)]
    drafts = _drafts(translated, prefix, problems)
    return [_wanted(draft, item) for draft, item in zip(drafts, items, strict=True)]


def _listed(document: Any, problems: Problems) -> tuple[list[Any], str]:
    """Return the jobs, and what their paths begin with."""
    prefix = "" if isinstance(document, list) else "jobs"
    root = document if prefix else {"jobs": document}
    fields = fields_of(root, "", problems, "a mapping with jobs, or a list of jobs, expected")
    items: list[Any] = []
    if fields is not None:
        fields.refuse_others(frozenset({"jobs"}))
        if "jobs" not in fields.values:
            fields.fault("jobs", "E_REQUIRED", "a file of jobs has the key jobs, with a list")
        items = fields.items("jobs", MAX_JOBS, "jobs per request", least=1)
    problems.raise_any()
    return items, prefix


def _translate(item: Any, path: str, problems: Problems) -> Json:
    """Return the job document that a job of this contract stands for."""
    fields = fields_of(item, path, problems, "a job must be a mapping")
    if fields is None:
        return {"name": "none", "steps": [_DOWNLOAD]}  # nothing more is wrong with it
    fields.refuse_others(FIELDS)
    document = {name: fields.values[name] for name in _AS_THEY_ARE if name in fields.values}
    document["walled"] = True  # a build is never done on the machine itself
    if "url" in fields.values or "branch" in fields.values:
        names = {"url": "url", "branch": "ref"}
        document["checkout"] = {names[name]: fields.values[name] for name in names if name in fields.values}
    _refuse_plain(fields)
    if "steps" not in fields.values:
        document["steps"] = _task_steps(fields)
    elif isinstance(fields.values["steps"], list):
        document["steps"] = [_whole_step(step) for step in fields.values["steps"]]
    if {"steps", "task"} <= fields.values.keys():
        message = "task stands for steps of a Go package, and steps are there too"
        fields.fault("task", "E_FIELD_CONFLICT", message, "keep one of them")
    document |= _when(fields)
    written = fields.values.get("schedule")
    said = {"schedule": written} if isinstance(written, str) else {}
    document["annotations"] = {FACADE: {"format": _format(fields), **said}}
    return document


def _refuse_plain(fields: Fields) -> None:
    if fields.values.get("sandbox") == "plain":
        message = "a build never runs on the machine itself: bubblewrap or docker expected, got plain"
        fields.fault("sandbox", "E_FIELD_CONFLICT", message, "leave it out for whatever the agent has")


def _whole_step(step: Any) -> Any:
    """The document's own example has `go mod` as a step, which only prints how it is used, and fails: it means
    the download."""
    if isinstance(step, dict) and isinstance(step.get("run"), str) and step["run"].split() == ["go", "mod"]:
        return {**step, "run": _DOWNLOAD["run"]}
    return step


def _task_steps(fields: Fields) -> list[Json]:
    """Return the steps that `task` stands for: a job of this contract is a Go package that is built and tested."""
    if "task" not in fields.values:
        fields.fault("steps", "E_REQUIRED", "a job needs steps, or a task of build and test")
        return [_DOWNLOAD]
    value = fields.values["task"]
    words = [value] if isinstance(value, str) else fields.items("task", len(_TASKS), "tasks", least=1)
    steps = [_DOWNLOAD] if "url" in fields.values else []
    for index, word in enumerate(words):
        if not isinstance(word, str) or word not in _TASKS:
            hint = suggest(word, _TASKS, repr) if isinstance(word, str) else ""
            fields.problems.add(f"{fields.at('task')}[{index}]", "E_ENUM", "must be build or test", hint)
        else:
            steps.append(_TASKS[word])
    return steps or [_DOWNLOAD]


def _format(fields: Fields) -> str:
    value = fields.values.get("format", FORMATS[0])
    if isinstance(value, str) and value in FORMATS:
        return value
    got = shown(value) if isinstance(value, str) else "something else"
    fields.fault("format", "E_ENUM", f"must be one of {', '.join(FORMATS)}, got {got}")
    return FORMATS[0]


def format_of(job: Job) -> str:
    """Return the form in which a job wants its reports."""
    wanted = _said(job, "format")
    return wanted if wanted in FORMATS else FORMATS[0]


def schedule_of(job: Job) -> str | None:
    """Return the schedule as it was written here; of a job that was made elsewhere, in its own words."""
    written = _said(job, "schedule")
    if isinstance(written, str) or not job.triggers:
        return written if isinstance(written, str) else None
    own = job.triggers[0].schedule
    if own.get("at") == specs.AT_ONCE:
        return None
    return next((str(own[name]) for name in ("cron", "every", "at", "rrule", "period") if name in own), None)


def _said(job: Job, name: str) -> Any:
    """Annotations are anybody's to write."""
    ours = job.annotations.get(FACADE)
    return ours.get(name) if isinstance(ours, dict) else None


def _when(fields: Fields) -> Json:
    """`schedule` as a job document has it; nobody can start a job by hand here, so one without is an error."""
    value = fields.values.get("schedule")
    zone = {"timezone": fields.values["timezone"]} if "timezone" in fields.values else {}
    if value is None and zone:
        fields.fault("timezone", "E_FIELD_CONFLICT", "a time zone means nothing without a schedule")
    if value is None:
        if fields.values.get("run_once", False) is not False:
            return {}
        hint = 'write schedule: "0 2 * * *", or run_once: true to run it now'
        fields.fault("schedule", "E_REQUIRED", "a job that does not run just once needs a schedule", hint)
        return {"run_once": True}
    if not isinstance(value, str):
        fields.wrong_type("schedule", "must be text such as 0 2 * * * or 1h30m")
        return {"schedule": "1h"}
    if len(value.split()) == SCHEDULE_FIELDS:
        return {"schedule": {"cron": value, "dialect": "ci4", **zone}}
    return {"schedule": value, **zone}


# ── problems at the paths of this contract ─────────────────────────────────────────────────────────

_PATHS = {
    ".checkout.url": ".url", ".checkout.ref": ".branch", ".walled": ".sandbox",
    ".schedule.cron": ".schedule", ".schedule.timezone": ".timezone",
}  # fmt: skip
_CRON_FIELDS = re.compile("^.* expected(?=, got)")
_SCHEDULES = (
    "4 fields (second minute hour day), 5 (minute hour day month weekday), 6 (seconds first) or a duration such as "
    "1h30m expected"
)


def _drafts(translated: list[Json], prefix: str, problems: Problems) -> list[specs.Draft]:
    try:
        drafts = specs.parse_jobs({"jobs": translated})
    except (Invalid, Denied) as error:
        known = {problem.path for problem in problems.listed}
        found = [problem for problem in map(_at_home(prefix), error.listed()) if problem.path not in known]
        raise type(error).of([*problems.denied, *problems.listed, *found]) from None
    problems.raise_any()
    return drafts


def _at_home(prefix: str) -> Callable[[Problem], Problem]:
    """Return a problem of the translation, at the place of the original."""

    def moved(problem: Problem) -> Problem:
        path = problem.path
        for theirs, ours in _PATHS.items():
            path = path.replace(theirs, ours)
        message = _CRON_FIELDS.sub(_SCHEDULES, problem.message) if problem.code == "E_CRON_FIELDS" else problem.message
        return replace(problem, path=prefix + path.removeprefix("jobs"), message=message)

    return moved


def _wanted(draft: specs.Draft, item: Json) -> Wanted:
    written = item.get("schedule")
    if written is None:
        return Wanted(draft, None, NOW)
    return Wanted(draft, written, _READINGS[schedule.dialect_of(draft.triggers[0].schedule)])
