"""The kinds of work, one row each: what marks a kind in a document, its fields, how they become the canonical spec that
is stored, and all that others need to know of it. Nothing else lists kinds by name, but for the executors themselves
(app) and the words of contracts.

A job names its kind, or the field that marks it (`steps`, `script`, `handler`, …) tells; the fields stand in the job
document itself, or under `spec`.

What must stay true: a reader collects problems and never raises; equal work has equal specs; runs that write one
destination name it alike, whatever their kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from horae.core import watched
from horae.core.fields import ABSENT, Fields, Note, fields_of, kind_of, shown
from horae.core.model import Json, Overlap, Phase, Policy
from horae.core.secrets import fields as secret_fields
from horae.core.secrets import sealing
from horae.core.secrets.references import shown_references
from horae.core.spelling import suggest
from horae.core.work import commands, projects, queries, requests, schemas, syncs, waiting
from horae.core.work.isolation import labels_of
from horae.core.work.policies import DEFAULT_SHOWN, POLICY_FIELDS, changed_only, read_policy, render_policy
from horae.core.workflows import document

JOB_FIELDS = frozenset({
    "name", "key", "owner", "segment", "paused", "annotations", "kind", "spec",
    "schedule", "timezone", "run_once", "run_at", "triggers", *POLICY_FIELDS,
})  # fmt: skip
_MADE = ("id", "org", "job_id", "version", "created_at", "updated_at", "deleted_at", "next_at", "last_at", "cursor",
         "paused_because")  # fmt: skip
READ_ONLY: dict[str, Note] = dict.fromkeys(_MADE, ("E_READ_ONLY", "this field is set by Horae", "leave it out"))


@dataclass(frozen=True, slots=True)
class Kind:
    marks: tuple[str, ...]  # the fields that tell this kind where `kind` is not written; none: it must be
    fields: frozenset[str]
    read: Callable[[Fields], Json]  # fields → canonical spec
    secrets: frozenset[str] | None = frozenset()  # fields of a spec that may hold secrets as they were sent; None: any
    first_phase: Phase = Phase.RUNNING  # PREPARING: its attempts fetch and build before they run
    may_prepare: bool = False  # some of its attempts do, which begin as running
    writes: Callable[[Json], tuple[str, ...]] | None = None  # spec → names of destinations, each for one run at a time
    has_failures: bool = False  # they have classes, which retry.on and retry.never may name
    is_lendable: bool = False  # workers outside Horae may do it
    programs: tuple[str, ...] = ()  # that an agent must have on its PATH
    packages: tuple[str, ...] = ()  # of Python, that an agent must have
    remedy: str = ""  # what to do where no agent has them
    by_servers: bool = False  # no agent does it: servers do, and it takes no slot while it waits


WORKFLOW = "workflow"
KINDS: dict[str, Kind] = {
    "python": Kind(("handler",), commands.PYTHON_FIELDS, commands.read_python, may_prepare=True, has_failures=True),
    "shell": Kind(("steps", "script"), commands.SHELL_FIELDS, commands.read_shell, secrets=frozenset({"checkout"})),
    "http": Kind(("http",), requests.FIELDS, requests.read_http, has_failures=True),
    "git_java": Kind(
        (),
        projects.JAVA_FIELDS,
        projects.read_git_java,
        secrets=None,
        first_phase=Phase.PREPARING,
        is_lendable=True,
        programs=("git", "java"),
        remedy="an agent needs git and java on its PATH; on Debian, apt-get install git default-jdk-headless maven",
    ),
    "git_python": Kind(
        (),
        projects.PYTHON_FIELDS,
        projects.read_git_python,
        secrets=None,
        first_phase=Phase.PREPARING,
        is_lendable=True,
        programs=("git", "python3"),
        remedy="an agent needs git and python3 on its PATH; on Debian, apt-get install git python3-venv",
    ),
    "spark_sql": Kind(
        ("query",),
        queries.FIELDS,
        queries.read_spark_sql,
        secrets=None,
        writes=queries.locks_of,
        is_lendable=True,
        programs=("java",),
        packages=("pyspark", "hdfs_native", "clickhouse_connect"),
        remedy="an agent needs Spark and java: pip install 'horae[spark]'; on Debian, apt-get install "
        "default-jre-headless",
    ),
    syncs.SYNC: Kind(
        ("source_id",),
        syncs.FIELDS,
        syncs.read_sync,
        secrets=None,
        writes=syncs.locks_of,
        is_lendable=True,
        packages=("dlt", "pyarrow", "clickhouse_connect"),
        remedy="an agent needs the libraries of syncs: pip install 'horae[sync]'",
    ),
    watched.WATCHED: Kind(("watched",), watched.FIELDS, watched.read_watched, by_servers=True),
    waiting.WAIT: Kind(("wait",), waiting.FIELDS, waiting.read_wait, by_servers=True),
    WORKFLOW: Kind(("tasks",), document.FIELDS, lambda fields: _read_workflow(fields), by_servers=True),
}
WRITERS = frozenset(kind for kind, about in KINDS.items() if about.writes)
LENDABLE = tuple(kind for kind, about in KINDS.items() if about.is_lendable)
EVERY = "every"  # what runs of jobs with `every: agent` are, whatever the kind of the job
BY_SERVERS = frozenset(kind for kind, about in KINDS.items() if about.by_servers) | {EVERY}
WITH_SECRETS = frozenset(kind for kind, about in KINDS.items() if about.secrets != frozenset())
REMEDIES = {kind: about.remedy for kind, about in KINDS.items() if about.remedy}
SCHEMA = schemas.FIELDS  # field → JSON Schema, of all kinds: a job document has their fields side by side
MARKS = tuple(name for name in SCHEMA if any(name in about.marks for about in KINDS.values()))


def locks_of(kind: str, spec: Json) -> tuple[str, ...]:
    """Return the names of what a run of this spec writes; one name, one destination, whatever the kind."""
    writes = KINDS[kind].writes if kind in KINDS else None
    return writes(spec) if writes else ()


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


_WORK_FIELDS = {name: kind for kind, about in KINDS.items() for name in about.fields}
_ANY_FIELDS = JOB_FIELDS | _WORK_FIELDS.keys()
_FIELDS_BESIDE = {kind: JOB_FIELDS | about.fields for kind, about in KINDS.items()}
_FOREIGN: dict[str, dict[str, Note]] = {
    kind: READ_ONLY
    | {
        name: ("E_FIELD_CONFLICT", f"belongs to jobs of kind {other}, this one is {kind}", "")
        for name, other in _WORK_FIELDS.items()
    }
    for kind in KINDS
}
_INSIDE_SPEC = READ_ONLY | dict.fromkeys(_WORK_FIELDS, ("E_FIELD_CONFLICT", "belongs inside spec", ""))


def read_all(fields: Fields) -> tuple[str, Json, Policy]:
    """Return what to do and how: kind, spec and policy."""
    kind, spec = read_work(fields)
    policy = read_policy(fields, labels_of(spec))
    if kind and not KINDS[kind].has_failures and (policy.retry.on or policy.retry.never):
        where = f"{fields.at('retry')}.{'on' if policy.retry.on else 'never'}"
        message = "only failures of Python handlers and of http have classes"
        fields.problems.add(where, "E_FIELD_CONFLICT", message, "leave it out")
    if kind == watched.WATCHED:
        policy = _each_moment(fields, policy)
    if policy.every is not None and kind in BY_SERVERS:
        fields.fault("every", "E_FIELD_CONFLICT", f"no agent does a {kind}", "give it to the tasks")
    return kind, spec, policy


def _each_moment(fields: Fields, policy: Policy) -> Policy:
    """Others run it whether we like it or not: each of its moments has its own fate."""
    if "overlap" in fields.values and policy.overlap is not Overlap.ALLOW:
        message = "others run it: what comes while a run waits is allowed"
        fields.fault("overlap", "E_FIELD_CONFLICT", message, "leave it out")
    return replace(policy, overlap=Overlap.ALLOW)


def _read_task(fields: Fields) -> tuple[str, Json, Json]:
    kind, spec, policy = read_all(fields)
    return kind, spec, changed_only(render_policy(policy), DEFAULT_SHOWN)


def _read_workflow(fields: Fields) -> Json:
    return document.read_workflow(fields, document.Reader(_read_task, _ANY_FIELDS))


def read_work(fields: Fields) -> tuple[str, Json]:
    kind = _read_kind(fields)
    if kind is None:
        fields.refuse_others(_ANY_FIELDS, READ_ONLY)
        return "", {}
    if "spec" not in fields.values:
        fields.refuse_others(_FIELDS_BESIDE[kind], _FOREIGN[kind])
        return kind, KINDS[kind].read(fields)
    fields.refuse_others(JOB_FIELDS, _INSIDE_SPEC)
    inner = fields_of(fields.values["spec"], fields.at("spec"), fields.problems, "must be a mapping")
    if inner is None:
        return kind, {}
    inner.refuse_others(KINDS[kind].fields)
    return kind, KINDS[kind].read(inner)


_NO_WORK = (
    "a job needs steps or a script (shell), a handler (a Python function), http (a request), tasks (a workflow), or "
    "watched (others run it)"
)


def _read_kind(fields: Fields) -> str | None:
    """Return the kind written, or told by the fields that are there."""
    kind = fields.values.get("kind", ABSENT)
    if kind is not ABSENT:
        if type(kind) is str and kind in KINDS:
            return kind
        got = shown(kind) if isinstance(kind, str) else kind_of(kind)
        message = f"must be one of {', '.join(KINDS)}, got {got}"
        fields.fault("kind", "E_DISCRIMINATOR", message, suggest(got, KINDS, repr))
        return None
    marked = {mark: kind for kind, about in KINDS.items() for mark in about.marks if mark in fields.values}
    if "spec" in fields.values:
        fields.fault("kind", "E_DISCRIMINATOR", f"spec needs a kind: one of {', '.join(KINDS)}")
    elif not marked:
        fields.fault("steps", "E_REQUIRED", _NO_WORK)
    elif len(set(marked.values())) > 1:
        message = f"{' and '.join(marked)} are different kinds of work"
        fields.fault(list(marked)[1], "E_FIELD_CONFLICT", message, "make two jobs")
    else:
        return next(iter(marked.values()))
    return None


# ── secrets of specs ───────────────────────────────────────────────────────────────────────────────

_REFERRING = ("source", "destinations", "checkout")  # parts of specs that may name secrets


def _part(kind: str, spec: Json) -> Json:
    """Return the part of a spec that may hold secrets."""
    names = KINDS[kind].secrets if kind in KINDS else frozenset()
    return spec if names is None else {name: spec[name] for name in names if name in spec}


def _by_task(spec: Json, change: Callable[[str, str, Json], Json]) -> Json:
    """Return a workflow with the specs of its tasks changed; `change` is given name, kind and spec of each."""
    tasks = {
        name: {**task, "spec": change(name, task["kind"], task["spec"])} if "spec" in task else task
        for name, task in spec["tasks"].items()
    }
    return {**spec, "tasks": tasks}


def _task_before(name: str, kind: str, old: Json) -> Json:
    """Return what a task was in an earlier spec of its workflow; of another kind, nothing."""
    task = old.get("tasks", {}).get(name, {})
    spec: Json = task["spec"] if task.get("kind") == kind else {}
    return spec


def _works_in(kind: str, spec: Json) -> Iterator[tuple[str, str, Json]]:
    """Where work stands in a spec, its kind and its own spec: of a workflow those of its tasks, else itself."""
    if kind != WORKFLOW:
        yield "", kind, spec
        return
    for name, task in spec["tasks"].items():
        for path, inner, work in _works_in(task["kind"], task["spec"]) if "spec" in task else ():
            yield f"tasks.{name}.spec.{path}".rstrip("."), inner, work


def shown_spec(kind: str, spec: Json) -> Json:
    """Return the spec of a job as people may see it."""
    if kind == WORKFLOW:
        return _by_task(spec, lambda _, inner, work: shown_spec(inner, work))
    part = _part(kind, spec)
    return {**spec, **shown_references(dict(secret_fields.masked(part)), part, *_REFERRING)} if part else spec


def has_secrets(kind: str, spec: Json) -> bool:
    return shown_spec(kind, spec) != spec


def texts_in(kind: str, spec: Json) -> Iterator[str]:
    """The secrets of a spec that is open."""
    for _, inner, work in _works_in(kind, spec):
        yield from secret_fields.secret_texts(_part(inner, work))


def refuse_hidden_spec(kind: str, spec: Json) -> None:
    for path, inner, work in _works_in(kind, spec):
        secret_fields.refuse_hidden(_part(inner, work), path=path)


def kept_spec(kind: str, new: Json, old: Json, path: str = "") -> Json:
    """Return the spec of a changed job, which may come from somebody who saw only `shown_spec` of it. `path` is where
    it stands in another."""
    if kind == WORKFLOW:
        dot = "." if path else ""
        return _by_task(
            new,
            lambda name, inner, work: kept_spec(
                inner, work, _task_before(name, inner, old), f"{path}{dot}tasks.{name}.spec"
            ),
        )
    part = _part(kind, new)
    return {**new, **secret_fields.kept(part, _part(kind, old), path)} if part else new


def sealed_spec(kind: str, new: Json, old: Json, seal: sealing.Seal) -> Json:
    """As the store has it; `old` is what it had."""
    if kind == WORKFLOW:
        return _by_task(new, lambda name, inner, work: sealed_spec(inner, work, _task_before(name, inner, old), seal))
    part = _part(kind, new)
    return {**new, **sealing.sealed(part, _part(kind, old), seal)} if part else new


def opened_spec(kind: str, spec: Json, seal: sealing.Seal) -> Json:
    """As the work needs it. ConfigError where something does not open."""
    if kind == WORKFLOW:
        return _by_task(spec, lambda _, inner, work: opened_spec(inner, work, seal))
    part = _part(kind, spec)
    return {**spec, **sealing.opened(part, seal)} if part else spec
