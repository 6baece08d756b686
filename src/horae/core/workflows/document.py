"""Kind `workflow`: the fields `tasks` and `returns`, as they become the canonical spec that is stored.

    tasks:
      list:    {handler: files:list}
      convert: {needs: [list], for_each: "${list.result}", handler: files:convert, data: {file: "${item}"}}
      report:  {needs: [{task: convert, on: end}], if: "data.loud", job: send-report, data: {all: "${convert.results}"}}
    returns: ${report.result}

A task is a job of one's own, by key or id, or has the fields of a job of any kind right here; how these are read is
given, since a workflow is a kind itself.

What must stay true: a reader collects problems and never raises; what it returns reads the same again; every path of a
spec that was read names something that is there when the path is followed, but for what is inside results and data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from horae.core.fields import Fields, Note, encoded, fields_of, join, json_problems, shown
from horae.core.jobdata import MAX_DATA
from horae.core.model import LARGEST_ID, Json
from horae.core.spelling import suggest
from horae.core.workflows import expressions, graph
from horae.core.workflows.expressions import Path
from horae.core.workflows.progress import MAX_ITEMS
from horae.errors import MAX_PROBLEMS, Invalid

MAX_TASKS = 1000  # written in one document, with those of workflows inside it
MAX_NESTING = 5  # workflows, one inside the other
MAX_NAME = 63  # characters
FIELDS = frozenset({"tasks", "returns"})
OWN_FIELDS = frozenset({"needs", "if", "for_each", "at_once", "may_fail", "data", "job"})  # of a task
_ROOTS = frozenset({"data", "item", "index"})  # of paths, beside the tasks
_VIEWS = {True: ("results", "state"), False: ("result", "state")}  # of a task, by whether it is a fan-out
_NO_MOMENT = ("E_FIELD_CONFLICT", "a task begins when what it needs has ended, not at a moment", "give it to the job")
_NO_OVERLAP = ("E_FIELD_CONFLICT", "a task runs once in each run of its workflow", "give it to the job")
_NO_OTHER = ("E_FIELD_CONFLICT", "belongs to the job, not to one of its tasks", "leave it out")
NOT_HERE: dict[str, Note] = {
    "name": ("E_FIELD_CONFLICT", "a task is called as it stands under tasks", "leave it out"),
    "key": ("E_FIELD_CONFLICT", "a task is found by its name", "leave it out"),
    **dict.fromkeys(("schedule", "timezone", "run_at", "run_once", "triggers", "misfire", "misfire_limit"), _NO_MOMENT),
    **dict.fromkeys(("overlap", "overlap_limit", "concurrency"), _NO_OVERLAP),
    **dict.fromkeys(("owner", "segment", "paused", "annotations", "pause_after_failures", "tags"), _NO_OTHER),
    **dict.fromkeys(("offered", "synced_at"), _NO_OTHER),
}


class Reader(NamedTuple):
    """How the fields of a job are read."""

    read: Callable[[Fields], tuple[str, Json, Json]]  # fields → kind, spec and policy, without what has its default
    known: frozenset[str]  # all that a job of any kind may have


def read_workflow(fields: Fields, reader: Reader) -> Json:
    tasks = _read_tasks(fields, reader)
    spec: Json = {"tasks": tasks}
    if "returns" in fields.values:
        spec["returns"] = _read_value(fields, "returns")
        _check_paths(fields, "returns", _paths(fields, "returns", spec["returns"]), tasks, frozenset(tasks))
    _refuse_many(fields, spec)
    return spec


def _read_tasks(fields: Fields, reader: Reader) -> Json:
    if "tasks" not in fields.values:
        fields.fault("tasks", "E_REQUIRED", "a workflow needs tasks", "write tasks: {first: {steps: [{run: date}]}}")
        return {}
    inner = fields_of(fields.values["tasks"], fields.at("tasks"), fields.problems, "must be a mapping of tasks by name")
    if inner is None:
        return {}
    if not 1 <= len(inner.values) <= MAX_TASKS:
        fields.fault("tasks", "E_LIMIT", f"1 to {MAX_TASKS:,} tasks expected, got {len(inner.values):,}")
        return {}
    tasks = {name: _read_task(inner, name, reader) for name in inner.values if _is_name(inner, name)}
    return _ordered(inner, tasks)


_NAME = re.compile(expressions.NAME_PATTERN)


def _is_name(tasks: Fields, name: Any) -> bool:
    if type(name) is not str or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        message = (
            f"a task is called by up to {MAX_NAME} letters, digits, _ and -, a letter first; got {shown(str(name))}"
        )
        tasks.fault(str(name), "E_PATTERN", message)
    elif name in expressions.RESERVED or name in _ROOTS:
        tasks.fault(name, "E_PATTERN", f"{name} means something else in conditions", "call the task otherwise")
    else:
        return True
    return False


def _ordered(fields: Fields, tasks: Json) -> Json:
    """Return the tasks, each behind what it needs, once their needs and paths are found to be good."""
    names = graph.names_needed(tasks)
    for name, task in tasks.items():
        _check_needs(fields, name, task, tasks)
    if cycle := graph.cycle_in(names):
        message = f"tasks wait for each other: {' -> '.join(cycle)}"
        fields.problems.add(f"{join(fields.path, cycle[0])}.needs", "E_CYCLE", message, "take out one of these needs")
        return tasks
    before = graph.before(names)
    for name, task in tasks.items():
        _check_task_paths(Fields(task, join(fields.path, name), fields.problems), tasks, before[name])
    return {name: tasks[name] for name in graph.in_order(names)}


# ── one task ───────────────────────────────────────────────────────────────────────────────────────


def _read_task(tasks: Fields, name: str, reader: Reader) -> Json:
    what = "a task must be a mapping such as {needs: [first], job: KEY}"
    fields = fields_of(tasks.values[name], join(tasks.path, name), tasks.problems, what)
    if fields is None:
        return {}
    task: Json = {}
    if needs := _read_needs(fields):
        task["needs"] = needs
    if condition := _read_condition(fields):
        task["if"] = condition
    if "for_each" in fields.values:
        task["for_each"] = _read_items(fields)
    if (at_once := fields.number("at_once", None, 1, MAX_ITEMS, whole=True)) is not None:
        task["at_once"] = at_once
    if "at_once" in fields.values and "for_each" not in fields.values:
        fields.fault("at_once", "E_FIELD_CONFLICT", "only a fan-out has items", "write for_each, or leave it out")
    if fields.flag("may_fail"):
        task["may_fail"] = True
    if "data" in fields.values:
        task["data"] = fields.json("data", MAX_DATA)
    return task | (_read_job(fields) if "job" in fields.values else _read_work(fields, reader))


_NEED_FIELDS = frozenset({"task", "on"})


def _read_needs(fields: Fields) -> list[str | Json]:
    """Each once; a plain name is its success."""
    found: dict[str, str | Json] = {}
    for index, value in enumerate(fields.items("needs", MAX_TASKS, "needs")):
        path = f"{fields.at('needs')}[{index}]"
        need = graph.Need(value) if type(value) is str else _read_need(value, path, fields)
        if need is None:
            continue
        if need.task in found:
            fields.problems.add(path, "E_DUP_NAME", f"{shown(need.task)} is needed twice", "keep one of them")
        found[need.task] = need.task if need.on == graph.SUCCESS else {"task": need.task, "on": need.on}
    return list(found.values())


def _read_need(value: Any, path: str, fields: Fields) -> graph.Need | None:
    what = "must be the name of a task, or a mapping such as {task: NAME, on: failure}"
    inner = fields_of(value, path, fields.problems, what)
    if inner is None:
        return None
    inner.refuse_others(_NEED_FIELDS)
    inner.require("task", "whose end it needs")
    task, on = inner.text("task"), inner.word("on", graph.ENDINGS, graph.SUCCESS)
    return graph.Need(task, on or graph.SUCCESS) if task is not None else None


def _read_condition(fields: Fields) -> str | None:
    text = fields.text("if", expressions.MAX_CONDITION)
    if text is None:
        return None
    try:
        expressions.parse_condition(text)
    except Invalid as error:
        fields.fault("if", error.code, error.message, error.hint)
        return None
    return text


def _read_items(fields: Fields) -> Any:
    """A list, or a text that is one reference to a list."""
    value = fields.values["for_each"]
    if isinstance(value, list):
        return _read_value(fields, "for_each") if fields.items("for_each", MAX_ITEMS, "items") or not value else []
    example = "must be a list, or a reference to one such as ${list.result}"
    if type(value) is not str:
        fields.wrong_type("for_each", example)
    elif not _is_reference(value):
        fields.fault("for_each", "E_PATTERN", f"{example}, got {shown(value)}")
    else:
        return value
    return []


def _is_reference(text: str) -> bool:
    try:
        return expressions.parse_text(text).is_whole
    except Invalid:
        return True  # what is wrong with it is told where its paths are looked at


def _read_job(fields: Fields) -> Json:
    """A job of one's own: its key, or its id."""
    job = fields.values["job"]
    for name in fields.values.keys() - OWN_FIELDS:
        if isinstance(name, str) and name not in NOT_HERE:
            message = "stands beside job, which is a job with fields of its own"
            fields.fault(name, "E_FIELD_CONFLICT", message, "keep one of them")
    _refuse_here(fields)
    if type(job) is int:
        return {"job": fields.number("job", 0, 1, LARGEST_ID, whole=True)}
    if type(job) is not str:
        fields.wrong_type("job", "must be the text of a key, or the number of a job")
    return {"job": fields.handle("job") if type(job) is str else ""}


def _read_work(fields: Fields, reader: Reader) -> Json:
    known = reader.known | OWN_FIELDS
    rest = {name: value for name, value in fields.values.items() if name not in OWN_FIELDS}
    _refuse_here(fields)
    for name in [name for name in rest if name not in known and isinstance(name, str)]:
        hint = suggest(name, known - NOT_HERE.keys(), repr)
        fields.fault(name, "E_UNKNOWN_FIELD", f"a task has no field {shown(name)}", hint)
        del rest[name]
    inner = Fields({name: value for name, value in rest.items() if name not in NOT_HERE}, fields.path, fields.problems)
    kind, spec, policy = reader.read(inner)
    for name in policy.keys() & NOT_HERE.keys():
        fields.problems.add(f"{fields.at('policy')}.{name}", *NOT_HERE[name])
    return {"kind": kind, "spec": spec} | ({"policy": policy} if policy else {})


def _refuse_here(fields: Fields) -> None:
    for name in fields.values:
        if name in NOT_HERE:
            fields.fault(name, *NOT_HERE[name])


def _read_value(fields: Fields, name: str) -> Any:
    """Any JSON of limited size."""
    value = fields.values[name]
    text = encoded(value)
    found = list(islice(json_problems(value, fields.at(name)), MAX_PROBLEMS))
    fields.problems.listed += found
    if found or text is None:
        return None
    if len(text.encode()) > MAX_DATA:
        fields.fault(name, "E_LEN", f"at most {MAX_DATA // 1024} KiB as JSON", "keep large data elsewhere")
        return None
    return value


# ── what names what ────────────────────────────────────────────────────────────────────────────────


def _check_needs(fields: Fields, name: str, task: Json, tasks: Json) -> None:
    for need in graph.needs_of(task):
        if need.task not in tasks and need.task not in fields.values:
            message = f"there is no task {shown(need.task)}"
            path = f"{join(fields.path, name)}.needs"
            fields.problems.add(path, "E_NOT_FOUND", message, suggest(need.task, tasks, repr))


def _check_task_paths(fields: Fields, tasks: Json, before: frozenset[str]) -> None:
    task = fields.values
    if "if" in task:
        found = expressions.condition_paths(expressions.parse_condition(task["if"]))
        _check_paths(fields, "if", found, tasks, before)
    for name in ("for_each", "data"):
        if name in task:
            roots = before | {"item", "index"} if name == "data" and "for_each" in task else before
            _check_paths(fields, name, _paths(fields, name, task[name]), tasks, roots)


def _paths(fields: Fields, name: str, value: Any) -> list[Path]:
    try:
        return list(expressions.paths_in(value))
    except Invalid as error:
        fields.fault(name, error.code, error.message, error.hint)
        return []


def _check_paths(fields: Fields, name: str, paths: Iterable[Path], tasks: Json, roots: frozenset[str]) -> None:
    for path in dict.fromkeys(paths):
        if fault := _fault(path, tasks, roots):
            fields.fault(name, "E_EXPRESSION", f"{expressions.spelled(path)}: {fault[0]}", fault[1])


def _fault(path: Path, tasks: Json, roots: frozenset[str]) -> tuple[str, str] | None:
    """Return what is wrong with a path, and what to do."""
    root = str(path[0])
    if root == "data":
        return None
    if root in ("item", "index"):
        return None if root in roots else ("there are items only in the data of a task with for_each", "")
    if root not in tasks:
        known = [*tasks, "data", "item", "index"]
        return f"there is no task {shown(root)}", suggest(root, known, repr)
    if root not in roots:
        return f"{root} need not have ended by then", f"write needs: [{root}]"
    views = _VIEWS["for_each" in tasks[root]]
    if len(path) < 2 or path[1] not in views:
        what = "a fan-out has" if "for_each" in tasks[root] else "a task has"
        return f"{what} {' and '.join(views)}", f"write {root}.{views[0]}"
    if path[1] == "state" and len(path) > 2:
        return "a state is one word", f"write {root}.state"
    return None


# ── how much ───────────────────────────────────────────────────────────────────────────────────────


def _refuse_many(fields: Fields, spec: Json) -> None:
    """Each is said once, by the innermost workflow of which it is true."""
    if (count := tasks_in(spec)) > MAX_TASKS >= max(map(tasks_in, _inside(spec)), default=0):
        fields.fault("tasks", "E_LIMIT", f"at most {MAX_TASKS:,} tasks in all, got {count:,}", "use for_each")
    if depth_of(spec) == MAX_NESTING + 1:
        message = f"workflows nest at most {MAX_NESTING} deep"
        fields.fault("tasks", "E_DEPTH", message, "make a job of the inner one, and name it as job")


def _inside(spec: Json) -> list[Json]:
    """Return the workflows that are tasks of this one."""
    specs = (task.get("spec") for task in spec.get("tasks", {}).values())
    return [inner for inner in specs if isinstance(inner, dict) and "tasks" in inner]


def tasks_in(spec: Json) -> int:
    return len(spec["tasks"]) + sum(map(tasks_in, _inside(spec)))


def depth_of(spec: Json) -> int:
    return 1 + max(map(depth_of, _inside(spec)), default=0)
