"""Declarations: jobs and triggers as files that are applied once, in order, as databases are migrated.

    jobs:                                   delete: [old-report]
      - key: nightly-report
        name: nightly report
        handler: jobs/report
        schedule: "0 2 * * *"

A job is a job document with a `key`. The attributes of the administration contract are read too, under the names they
have there: ScheduleJobId, JobName, JobType, Description, IsDisabled, and Triggers with ScheduleTriggerId, TriggerName,
Cron, JobData, IsDisabled. The ids are keys: a later file finds the job, and the trigger whatever its cron is, by them.
What the core has no place for (words for people) becomes an annotation of that contract.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from horae.contracts.admin import guids
from horae.core.fields import Fields, Problems, open_document, refuse_twins, shown
from horae.core.model import Json
from horae.core.work import specs
from horae.core.work.specs import Draft
from horae.errors import Invalid
from horae.service.jobs.declarations import Declaration

MAX_JOBS = 1000  # in one file
MAX_TEXT = 4096  # characters of a description
ANNOTATIONS = "admin"

# Name in the contract → name in a job document.
_JOB_NAMES = {
    "ScheduleJobId": "key", "JobName": "name", "JobType": "handler", "IsDisabled": "paused", "Triggers": "triggers",
}  # fmt: skip
_TRIGGER_NAMES = {
    "ScheduleTriggerId": "key", "TriggerName": "name", "Cron": "cron", "JobData": "data", "IsDisabled": "enabled",
}  # fmt: skip
_HANDLER_CLASS = re.compile(r"(?:\w+\.)+(\w+)Handler")  # Some.Namespace.Jobs.MyJob.MyJobHandler


def read_declaration(document: Any) -> Declaration:
    expected = "a declaration must be a mapping with jobs, delete or both"
    fields = open_document(document, expected, frozenset({"jobs", "delete"}))
    problems = fields.problems
    items = fields.items("jobs", MAX_JOBS, "jobs per file")
    read = [_read_job(item, f"jobs[{index}]", problems) for index, item in enumerate(items)]
    deleted = _read_deleted(fields)
    problems.raise_any()
    drafts = specs.parse_jobs({"jobs": [native for native, _ in read]}, MAX_JOBS) if read else []
    named = tuple(_annotated(draft, words) for draft, (_, words) in zip(drafts, read, strict=True))
    _refuse_keys([draft.key for draft in named], deleted)
    return Declaration(named, deleted)


def _read_deleted(fields: Fields) -> tuple[str, ...]:
    items = fields.items("delete", MAX_JOBS, "keys per file")
    keys = [Fields({"key": key}, f"delete[{n}]", fields.problems).handle("key") for n, key in enumerate(items)]
    refuse_twins(keys, "delete[{}]", "key", fields.problems)
    return tuple(key for key in keys if key is not None)


def _refuse_keys(declared: list[str | None], deleted: tuple[str, ...]) -> None:
    problems = Problems()
    for index, key in enumerate(declared):
        if key is None:
            message = "a declared job needs a key, by which later files find it"
            problems.add(f"jobs[{index}].key", "E_REQUIRED", message, "write key: nightly-report")
        elif key in deleted:
            problems.add(f"jobs[{index}].key", "E_FIELD_CONFLICT", f"{shown(key)} is deleted by the same file")
    problems.raise_any()


# ── from the contract's names to ours ──────────────────────────────────────────────────────────────


def _read_job(item: Any, path: str, problems: Problems) -> tuple[Any, Json]:
    """Return the job document, and the words for people that belong beside it. What is no mapping is refused later."""
    if not isinstance(item, dict):
        return item, {}
    fields = Fields(item, path, problems)
    native = _renamed(fields, _JOB_NAMES, frozenset({"Description"}))
    words: Json = {}
    if item.get("Description") is not None and (description := fields.text("Description", MAX_TEXT)):
        words["description"] = description
    if isinstance(job_type := item.get("JobType"), str):
        words["job_type"] = job_type
        native["handler"] = handler_of(job_type)
    if isinstance(triggers := native.get("triggers"), list):
        native["triggers"] = [_read_trigger(each, f"{path}.triggers[{n}]", problems) for n, each in enumerate(triggers)]
    return native, words


def _read_trigger(item: Any, path: str, problems: Problems) -> Any:
    if not isinstance(item, dict):
        return item
    fields = Fields(item, path, problems)
    native = _renamed(fields, _TRIGGER_NAMES, frozenset())
    if isinstance(given := item.get("ScheduleTriggerId"), str):
        native["key"] = guids.canonical(given)
        if native["key"] is None:
            fields.fault("ScheduleTriggerId", "E_PATTERN", "must be a GUID", "or leave it out, and Horae gives one")
    if "IsDisabled" in item:
        native["enabled"] = not fields.flag("IsDisabled")
    if "JobData" in item:
        native["data"] = _read_data(fields)
    return native


def _read_data(fields: Fields) -> Json | None:
    value = fields.values["JobData"]
    if value is None:
        return None
    if not isinstance(value, str):
        fields.wrong_type("JobData", "must be text, as '{\"MaxBatchSize\": 10}'")
        return None
    try:
        return specs.parse_data(value, "JobData")
    except Invalid as error:
        fields.fault("JobData", error.code, error.message, error.hint)
        return None


def _renamed(fields: Fields, names: Mapping[str, str], without: frozenset[str]) -> Json:
    """Return the mapping with our names; nothing may stand under both."""
    for name in names.keys() & fields.values.keys():
        if names[name] in fields.values:
            fields.fault(name, "E_FIELD_CONFLICT", f"another name for {names[name]}, which is also there")
    return {names.get(name, name): value for name, value in fields.values.items() if name not in without}


def handler_of(job_type: str) -> str:
    """Return the handler of a JobType: a class with its namespace stands for the folder that is named as it is."""
    match = _HANDLER_CLASS.fullmatch(job_type)
    return f"jobs/{match[1]}" if match else job_type


def _annotated(draft: Draft, words: Json) -> Draft:
    if not words:
        return draft
    given = draft.annotations.get(ANNOTATIONS)
    merged = {**(given if isinstance(given, dict) else {}), **words}
    return replace(draft, annotations={**draft.annotations, ANNOTATIONS: merged})
