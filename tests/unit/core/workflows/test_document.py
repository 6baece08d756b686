"""The document of a workflow: what is read of it, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from horae.core.secrets.sealing import Seal
from horae.core.work import kinds
from horae.core.work.isolation import put_in_place
from horae.core.work.specs import parse_job
from horae.core.written import written
from horae.errors import Invalid

SHELL = {"steps": [{"run": "true"}]}


def a_workflow(returns: Any = None, **tasks: Any) -> dict[str, Any]:
    return {"name": "w", "tasks": tasks} | ({} if returns is None else {"returns": returns})


def refusal(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    with pytest.raises(Invalid) as refused:
        parse_job(document)
    return [(problem.path, problem.code, f"{problem.message} {problem.hint}") for problem in refused.value.listed()]


def test_tasks_mark_a_workflow_and_become_canonical():
    draft = parse_job(
        a_workflow(
            "${c.result}",
            c={"needs": [{"task": "b", "on": "end"}, {"task": "a", "on": "success"}], "job": "own", "if": "a.result"},
            b={"needs": ["a"], "for_each": "${a.result}", "handler": "m:f", "data": {"x": "${item}"}, "retry": 3},
            a={**SHELL, "timeout": "10m", "sandbox": "bubblewrap", "may_fail": False},
        )
    )

    assert draft.kind == "workflow"
    assert list(draft.spec["tasks"]) == ["a", "b", "c"]
    assert draft.spec == {
        "tasks": {
            "a": {
                "kind": "shell",
                "spec": {"steps": [{"name": "step 1", "run": "true"}], "sandbox": "bubblewrap"},
                "policy": {"timeout_seconds": 600.0, "labels": ["sandbox:bubblewrap"]},
            },
            "b": {
                "needs": ["a"], "for_each": "${a.result}", "data": {"x": "${item}"}, "kind": "python",
                "spec": {"handler": "m:f"}, "policy": {"retry": {"attempts": 3}},
            },
            "c": {"needs": [{"task": "b", "on": "end"}, "a"], "if": "a.result", "job": "own"},
        },
        "returns": "${c.result}",
    }  # fmt: skip
    assert parse_job({"name": "w", "kind": "workflow", "spec": draft.spec}).spec == draft.spec


@pytest.mark.parametrize(
    ("tasks", "path", "code", "words"),
    [
        ({}, "tasks", "E_LIMIT", "1 to 1,000 tasks"),
        ({"a": []}, "tasks.a", "E_TYPE", "a task must be a mapping"),
        ({"a b": SHELL}, "tasks['a b']", "E_PATTERN", "letters, digits"),
        ({"data": SHELL}, "tasks.data", "E_PATTERN", "means something else"),
        ({"in": SHELL}, "tasks.in", "E_PATTERN", "means something else"),
        (
            {"a": SHELL, "b": {**SHELL, "needs": ["aa"]}},
            "tasks.b.needs",
            "E_NOT_FOUND",
            "no task 'aa' did you mean 'a'?",
        ),
        ({"a": {**SHELL, "needs": ["a"]}}, "tasks.a.needs", "E_CYCLE", "a -> a"),
        (
            {
                "x": SHELL,
                "a": {**SHELL, "needs": ["x", "c"]},
                "b": {**SHELL, "needs": ["a"]},
                "c": {**SHELL, "needs": ["b"]},
            },
            "tasks.a.needs",
            "E_CYCLE",
            "a -> c -> b -> a",
        ),
        ({"a": {**SHELL, "needs": "b"}}, "tasks.a.needs", "E_TYPE", "must be a list"),
        (
            {"a": {**SHELL, "needs": [{"task": "b", "on": "succes"}]}, "b": SHELL},
            "tasks.a.needs[0].on",
            "E_ENUM",
            "success",
        ),
        ({"a": {**SHELL, "needs": ["b", "b"]}, "b": SHELL}, "tasks.a.needs[1]", "E_DUP_NAME", "twice"),
        ({"a": {**SHELL, "if": "b.result == 1"}, "b": SHELL}, "tasks.a.if", "E_EXPRESSION", "write needs: [b]"),
        (
            {"a": {**SHELL, "if": "bb.result"}, "b": SHELL},
            "tasks.a.if",
            "E_EXPRESSION",
            "there is no task 'bb' did you mean 'b'",
        ),
        ({"a": {**SHELL, "if": "1 +"}}, "tasks.a.if", "E_EXPRESSION", "'+'"),
        ({"a": {**SHELL, "if": "item"}}, "tasks.a.if", "E_EXPRESSION", "only in the data of a task with for_each"),
        ({"a": {**SHELL, "data": {"x": "${index}"}}}, "tasks.a.data", "E_EXPRESSION", "only in the data"),
        ({"a": {**SHELL, "data": {"x": "${b"}}}, "tasks.a.data", "E_EXPRESSION", "has no }"),
        (
            {"a": SHELL, "b": {**SHELL, "needs": ["a"], "if": "a.results"}},
            "tasks.b.if",
            "E_EXPRESSION",
            "write a.result",
        ),
        (
            {"a": SHELL, "b": {**SHELL, "needs": ["a"], "if": "a"}},
            "tasks.b.if",
            "E_EXPRESSION",
            "a task has result and state",
        ),
        ({"a": {**SHELL, "for_each": "x"}}, "tasks.a.for_each", "E_PATTERN", "must be a list"),
        ({"a": {**SHELL, "for_each": 7}}, "tasks.a.for_each", "E_TYPE", "must be a list"),
        ({"a": {**SHELL, "for_each": list(range(10_001))}}, "tasks.a.for_each", "E_LIMIT", "at most 10000"),
        ({"a": {**SHELL, "at_once": 3}}, "tasks.a.at_once", "E_FIELD_CONFLICT", "only a fan-out"),
        ({"a": {**SHELL, "schedule": "10m"}}, "tasks.a.schedule", "E_FIELD_CONFLICT", "not at a moment"),
        ({"a": {**SHELL, "triggers": []}}, "tasks.a.triggers", "E_FIELD_CONFLICT", "not at a moment"),
        ({"a": {**SHELL, "overlap": "allow"}}, "tasks.a.overlap", "E_FIELD_CONFLICT", "once in each run"),
        (
            {"a": {**SHELL, "policy": {"overlap": "allow"}}},
            "tasks.a.policy.overlap",
            "E_FIELD_CONFLICT",
            "once in each run",
        ),
        ({"a": {**SHELL, "key": "k"}}, "tasks.a.key", "E_FIELD_CONFLICT", "found by its name"),
        ({"a": {**SHELL, "name": "k"}}, "tasks.a.name", "E_FIELD_CONFLICT", "as it stands under tasks"),
        ({"a": {**SHELL, "need": ["b"]}}, "tasks.a.need", "E_UNKNOWN_FIELD", "did you mean 'needs'"),
        ({"a": {**SHELL, "job": "k"}}, "tasks.a.steps", "E_FIELD_CONFLICT", "beside job"),
        ({"a": {"job": 0}}, "tasks.a.job", "E_RANGE", "from 1"),
        ({"a": {"job": None}}, "tasks.a.job", "E_TYPE", "must be the text of a key"),
        ({"a": {}}, "tasks.a.steps", "E_REQUIRED", "a job needs steps"),
        ({"a": {"steps": [{}]}}, "tasks.a.steps[0].run", "E_REQUIRED", "a command"),
        ({"a": {"tasks": {"b": {"steps": [{}]}}}}, "tasks.a.tasks.b.steps[0].run", "E_REQUIRED", "a command"),
        ({f"t{i}": SHELL for i in range(1001)}, "tasks", "E_LIMIT", "got 1,001"),
    ],
)
def test_a_workflow_that_makes_no_sense_says_why_and_where(tasks: Any, path: str, code: str, words: str):
    [problem] = refusal({"name": "w", "tasks": tasks})

    assert problem[:2] == (path, code)
    assert words in problem[2]


def test_what_a_workflow_returns_may_name_any_task_and_no_other():
    assert parse_job(a_workflow({"x": ["${a.result.deep}"]}, a=SHELL)).spec["returns"] == {"x": ["${a.result.deep}"]}
    [problem] = refusal(a_workflow("${b.result}", a=SHELL))
    assert problem[:2] == ("returns", "E_EXPRESSION")


def test_workflows_nest_five_deep_and_no_deeper():
    inner: dict[str, Any] = SHELL
    for _ in range(5):
        inner = {"tasks": {"t": inner}}
    assert parse_job({"name": "w", **inner}).kind == "workflow"
    [problem] = refusal({"name": "w", "tasks": {"t": inner}})
    assert problem[1] == "E_DEPTH"


def test_tasks_inside_tasks_count_too():
    half = {"tasks": {f"t{number}": SHELL for number in range(500)}}
    [problem] = refusal(a_workflow(a=half, b=half))

    assert (problem[0], problem[1]) == ("tasks", "E_LIMIT")
    assert "got 1,002" in problem[2]


def test_what_is_exported_is_short_and_reads_the_same():
    document = a_workflow(
        "${b.result}", a={**SHELL, "timeout": "10m"}, b={"needs": ["a"], "handler": "m:f", "retry": 3}
    )
    draft = parse_job(document)
    shown = {
        "id": 1, "name": "w", "key": None, "kind": "workflow", "spec": draft.spec, "policy": {}, "triggers": [],
        "segment": 0, "paused": False, "annotations": {},
    }  # fmt: skip

    short = written(shown)
    del short["segment"]

    assert short == document


# ── secrets ──

GIT = {"kind": "git_python", "source": {"url": "https://u:pw@e.org/a.git", "password": "hush"}, "main_file": "a.py"}
SEAL = Seal(lambda text: f"v1.k.{text.encode().hex()}", lambda text: bytes.fromhex(text.split(".")[2]).decode())


def test_secrets_of_tasks_are_shown_sealed_opened_and_kept_as_those_of_jobs():
    spec = parse_job(a_workflow(a={"tasks": {"b": GIT}}, c=SHELL)).spec

    shown = kinds.shown_spec("workflow", spec)
    assert "hush" not in json.dumps(shown)
    assert "pw@" not in json.dumps(shown)
    assert kinds.has_secrets("workflow", spec)
    assert set(kinds.texts_in("workflow", spec)) == {"hush", "pw"}

    sealed = kinds.sealed_spec("workflow", spec, {}, SEAL)
    assert "hush" not in json.dumps(sealed)
    assert kinds.shown_spec("workflow", sealed) == shown
    assert kinds.opened_spec("workflow", sealed, SEAL) == spec
    assert (
        kinds.kept_spec("workflow", parse_job({"name": "w", "kind": "workflow", "spec": shown}).spec, sealed) == sealed
    )
    assert kinds.sealed_spec("workflow", spec, sealed, SEAL) == sealed


def test_a_hidden_secret_of_a_new_task_is_refused_at_its_path():
    spec = parse_job(a_workflow(a={**GIT, "source": {"url": "https://e.org/a.git", "password": "******"}})).spec

    with pytest.raises(Invalid) as refused:
        kinds.refuse_hidden_spec("workflow", spec)

    assert refused.value.path == "tasks.a.spec.source.password"


def test_a_secret_of_a_task_is_not_kept_for_another_host():
    old = parse_job(a_workflow(a={"tasks": {"b": GIT}})).spec
    source = {"url": "https://u:******@evil.org/a.git", "password": "******"}
    new = parse_job(a_workflow(a={"tasks": {"b": {**GIT, "source": source}}})).spec

    with pytest.raises(Invalid) as refused:
        kinds.kept_spec("workflow", new, old)

    assert (refused.value.code, refused.value.path) == (
        "E_SECRET_AGAIN", "tasks.a.spec.tasks.b.spec.source.url",
    )  # fmt: skip


def test_tasks_that_are_submitted_from_a_directory_run_there():
    spec = parse_job(a_workflow(a={"tasks": {"b": SHELL}}, c={"job": "k"})).spec

    placed = put_in_place(spec, "/home/me")

    assert placed["tasks"]["a"]["spec"]["tasks"]["b"]["spec"]["working_directory"] == "/home/me"
