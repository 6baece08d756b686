"""Reading requests: bodies, pages, and lake jobs in both dialects.

The older dialect is that of the source document (`display_name`, `git_url`, `query_info`), the newer one that of the
server it became (`name`, `git_clone_info`, `query`). Unknown keys are ignored, null and "" are as good as absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from horae.contracts.lake import schedules, vocabulary
from horae.contracts.lake.naming import renamed
from horae.core import model
from horae.core.definitions import Sort
from horae.core.fields import Fields, Problems, fields_of, kind_of, shown
from horae.core.model import Found, Job, Json
from horae.core.work import specs
from horae.errors import Denied, Invalid
from horae.web import documents, http

MAX_ITEMS = 1000  # items of a page
FARTHEST = 10**9  # first item of a page
LONGEST_KEYWORD = 1000


async def body_of(request: http.Request) -> tuple[bytes, Fields]:
    """Return the body, as it came and as an object; none is an empty one."""
    body = await request.read()
    value = documents.read_json(body) if body.strip() else {}
    return body, as_fields(value, "", Problems())


def as_fields(value: Any, path: str, problems: Problems) -> Fields:
    """Return an object without what is null. What is none ends the reading."""
    found = fields_of(value, path, problems, "an object expected")
    if found is None:
        problems.raise_any()
        raise AssertionError("a problem was noted")
    return Fields({name: member for name, member in found.values.items() if member is not None}, path, problems)


def inner(fields: Fields, name: str) -> Fields:
    """Return the object under a key, which must be there."""
    if name not in fields.values:
        fields.fault(name, "E_REQUIRED", "an object is needed here")
        fields.problems.raise_any()
    return as_fields(fields.values[name], fields.at(name), fields.problems)


def word(fields: Fields, name: str, known: Sequence[str] | Mapping[str, Any] | frozenset[str], default: str) -> str:
    """One of the known words."""
    value = fields.values.get(name, default)
    if isinstance(value, str) and value in known:
        return value
    got = shown(value) if isinstance(value, str) else kind_of(value)
    fields.fault(name, "E_ENUM", f"one of {', '.join(sorted(known))} expected, got {got}")
    return default


def class_name(fields: Fields, known: Mapping[str, Any]) -> str:
    """Return the discriminator; nothing else of an object can be read without it."""
    value = fields.values.get("class_name")
    if isinstance(value, str) and value in known:
        return value
    got = shown(value) if isinstance(value, str) else "none"
    fields.fault("class_name", "E_DISCRIMINATOR", f"one of {', '.join(known)} expected, got {got}")
    fields.problems.raise_any()
    raise AssertionError("a problem was noted")


def ids(fields: Fields, name: str = "ids") -> list[int]:
    found = fields.items(name, MAX_ITEMS, "ids", least=1)
    for item in found:
        if type(item) is not int or not 0 < item <= model.LARGEST_ID:
            fields.fault(name, "E_TYPE", "a list of ids expected: whole numbers from 1 up")
            break
    if name not in fields.values:
        fields.fault(name, "E_REQUIRED", "a list of ids is needed")
    fields.problems.raise_any()
    return found


def statuses(fields: Fields) -> frozenset[str]:
    """`current_statuses`, by which a list may be narrowed."""
    found = fields.items("current_statuses", len(vocabulary.STATUSES), "statuses")
    if any(not isinstance(each, str) or each not in vocabulary.STATUSES for each in found):
        fields.fault("current_statuses", "E_ENUM", f"each must be one of {', '.join(sorted(vocabulary.STATUSES))}")
    return frozenset(each for each in found if isinstance(each, str))


# ── pages ──────────────────────────────────────────────────────────────────────────────────────────


class Stretch(NamedTuple):
    """Which part of a list is asked for."""

    offset: int
    limit: int
    sorts: list[Sort]
    keyword: str | None


def read_stretch(fields: Fields, known: Mapping[str, str], *, needed: bool = False) -> Stretch:
    for name in ("from", "size") if needed else ():
        if name not in fields.values:
            fields.fault(name, "E_REQUIRED", "a number is needed")
    offset = fields.number("from", 0, 0, FARTHEST, whole=True)
    limit = fields.number("size", 20, 0, MAX_ITEMS, whole=True)
    keyword = fields.values.get("keyword", "")
    if not isinstance(keyword, str) or len(keyword) > LONGEST_KEYWORD:
        fields.fault("keyword", "E_TYPE", f"text of at most {LONGEST_KEYWORD} characters expected")
    sorts = [
        _sort(as_fields(item, f"sorts[{index}]", fields.problems), known)
        for index, item in enumerate(fields.items("sorts", 10, "sorts"))
    ]
    fields.problems.raise_any()
    return Stretch(offset, limit, sorts, keyword or None)


def reach(found: Found) -> http.RawHeaders:
    """Tells when there is more than a list by number looks at: its total counts only that."""
    return [(b"horae-list", b"cut")] if found.is_cut else ()


def _sort(fields: Fields, known: Mapping[str, str]) -> Sort:
    field = word(fields, "field", known, "")
    order = fields.values.get("order", "ASC")
    if not isinstance(order, str) or order.upper() not in ("ASC", "DESC"):
        fields.fault("order", "E_ENUM", "ASC or DESC expected")
    return Sort(known.get(field, "id"), str(order).upper() == "DESC")


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job as a client describes it."""

    draft: specs.Draft
    timetable: schedules.Timetable

    def over(self, job: Job, seen: Json) -> specs.Draft:
        """Return what becomes of a job that is replaced by this one: what this contract has no words for stays, and so
        do the triggers, if the schedule is the one that was `seen`."""
        triggers = self.draft.triggers
        if self.timetable.shown == seen:
            triggers = tuple(specs.TriggerDraft(t.schedule, t.data, t.enabled, t.id) for t in job.triggers)
        policy = replace(job.policy, synced_at=self.draft.policy.synced_at)
        return replace(
            self.draft, key=job.key, policy=policy, segment=job.segment, paused=job.paused, triggers=triggers,
            annotations={**job.annotations, **self.draft.annotations},
        )  # fmt: skip


def wanted(fields: Fields, kind: str, spec: Json, timetable: schedules.Timetable, sent: Json) -> Wanted:
    """`sent` is what only this contract knows."""
    name = first(fields.values, "display_name", "name")
    fields.problems.raise_any()
    try:
        draft = specs.parse_job({"name": name, "kind": kind, "spec": spec} if name else {"kind": kind, "spec": spec})
    except (Invalid, Denied) as error:
        raise renamed(error, fields) from None
    annotations = {vocabulary.NAME: {**sent, "schedule_time": timetable.shown}}
    return Wanted(replace(draft, triggers=timetable.drafts(), annotations=annotations), timetable)


def refuse_other_id(fields: Fields, job_id: int) -> None:
    """The path names the job; a body that names another is a mistake."""
    if (named := fields.values.get("job_id", 0)) not in (0, job_id):
        got = named if isinstance(named, int) else kind_of(named)
        raise Invalid(f"job_id: {job_id} expected, as in the address, got {got}", code="E_FIELD_CONFLICT")


def read_lake_job(fields: Fields) -> Wanted:
    kind = vocabulary.KINDS[class_name(fields, vocabulary.KINDS)]
    sent = {
        "last_run_time": fields.number("last_run_time", 0, 0, schedules.NO_MOMENT, whole=True),
        "last_status": _status(fields, "last_sync_status", "last_run_status"),
        "current_status": _status(fields, "current_sync_status", "current_job_status"),
    }
    if yarn := fields.values.get("yarn_app_id"):
        sent["yarn_app_id"] = yarn if isinstance(yarn, str) else ""
    return wanted(fields, kind, _SPECS[kind](fields), schedules.read(fields), sent)


def _status(fields: Fields, *names: str) -> str:
    name = next((name for name in names if name in fields.values), names[0])
    return word(fields, name, vocabulary.STATUSES, vocabulary.INITIALIZED)


def first(values: Json, *names: str) -> Any:
    """Return the first of these that says something."""
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def given(**members: Any) -> Json:
    return {name: value for name, value in members.items() if value not in (None, "")}


def _read_java(fields: Fields) -> Json:
    values = fields.values
    tool = values.get("build_tool")
    name = tool.lower() if isinstance(tool, str) else tool
    return given(
        source=_source(fields),
        build_tool=name,
        maven_settings=True if name == "maven" else None,  # of which the contract has no word
        build_cmd=values.get("build_cmd"),
        main_class=values.get("main_class"),
        args=values.get("args"),
    )


def _read_python(fields: Fields) -> Json:
    own = {name: fields.values.get(name) for name in ("main_file", "module", "requirements", "build_cmd", "args")}
    return given(source=_source(fields), **own)


def _source(fields: Fields) -> Json:
    info = inner(fields, "git_clone_info").values if "git_clone_info" in fields.values else {}
    own = {name: info.get(name) for name in ("username", "password", "private_key")}
    url = first(fields.values, "git_url") or info.get("url")
    return given(url=url, branch=fields.values.get("branch"), **own)


def _read_sql(fields: Fields) -> Json:
    where = inner(fields, "query_info") if "query_info" in fields.values else fields
    items = where.items("outputs", 100, "outputs")
    path = where.at("outputs")
    outputs = [_output(as_fields(item, f"{path}[{index}]", fields.problems)) for index, item in enumerate(items)]
    return given(query=where.values.get("query"), outputs=outputs)


_OUTPUTS = {
    "hadoop_config": "files",
    "hadoop_result_output": "files",
    "clickhouse_config": "clickhouse",
    "clickhouse_result_output": "clickhouse",
}
_OUTPUT_TYPES = {"text_file": "files", "datainsider": "clickhouse"}


def _output(fields: Fields) -> Json:
    config = inner(fields, "config") if "config" in fields.values else fields
    to, values = _output_kind(fields, config), config.values
    mode = values.get("write_mode")
    named = {"uri": values.get("hdfs_uri"), "path": values.get("result_path")}
    if to == "clickhouse":
        named = {"database": first(values, "database", "database_name"), "table": values.get("table_name")}
    return given(to=to, mode=mode.lower() if isinstance(mode, str) else mode, **named)


def _output_kind(fields: Fields, config: Fields) -> str:
    """Return the type of an output decides; its class, where one is sent, must be of that type. The newer dialect has
    only the class."""
    if "type" not in fields.values:
        return _OUTPUTS[class_name(config, _OUTPUTS)]
    to = _OUTPUT_TYPES.get(word(fields, "type", _OUTPUT_TYPES, ""), "")
    classes = [name for name, kind in _OUTPUTS.items() if kind == to]
    named = config.values.get("class_name")
    if to and named is not None and named not in classes:
        got = shown(named) if isinstance(named, str) else kind_of(named)
        message = f"an output of type {fields.values['type']} has the class {' or '.join(classes)}, got {got}"
        config.fault("class_name", "E_FIELD_CONFLICT", message)
    fields.problems.raise_any()
    return to


_SPECS = {"git_java": _read_java, "git_python": _read_python, "spark_sql": _read_sql}
