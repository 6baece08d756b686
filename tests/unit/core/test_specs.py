"""The job document → drafts: the catalogue of bad input, what is accepted, and the one canonical form."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.core.fields import encode
from horae.core.model import After, ConcurrencyLimit, Misfire, Overlap, Policy, RateLimit, Retry
from horae.core.time import moments
from horae.core.work import kinds, policies, schemas, specs
from horae.errors import CODES, Denied, Error, Invalid
from horae.web.documents import read_yaml

EXAMPLES = Path(__file__).parents[3] / "examples"
PRAGUE = "Europe/Prague"
JOB: dict[str, Any] = {"name": "a", "steps": [{"run": "true"}]}
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines may be busy


def job(**fields: Any) -> dict[str, Any]:
    return {**JOB, **fields}


def refusal(document: Any) -> Error:
    with pytest.raises(Error) as caught:
        specs.parse_jobs(document)
    return caught.value


def as_yaml(head: str) -> str:
    """Return a job whose other fields are fine, as the only one of a list."""
    lines = [line for line in head.splitlines() if line]
    fine = [line for line in ("name: a", "steps: [{run: a}]") if not head.startswith(line.split(":")[0] + ":")]
    return "jobs:\n- " + "\n  ".join([*lines, *fine])


# The catalogue of bad input, section 4.A, as far as it is about the document and not about its bytes.
# id, document, code, words of the message, path
CATALOGUE: list[tuple[str, str, str, str, str]] = [
    ("A03", "null", "E_TYPE", "top level must be a mapping, got null", ""),
    ("A05", "hello", "E_TYPE", "top level must be a mapping, got a string", ""),
    ("A21", "jobs: [" + "{}, " * 10_001 + "]", "E_LIMIT", "at most 10000 jobs per request", "jobs"),
    ("A27", "jobs: [{steps: [{run: a}]}]", "E_REQUIRED", "name", "jobs[0].name"),
    ("A29 129", as_yaml("name: " + "q" * 129), "E_LEN", "at most 128 characters, got 129", "jobs[0].name"),
    ("A29 10000", as_yaml("name: " + "q" * 10_000), "E_LEN", "got 10000", "jobs[0].name"),
    ("A31 -rf", as_yaml("name: -rf"), "E_PATTERN", "dash", "jobs[0].name"),
    ("A31 --help", as_yaml("name: --help"), "E_PATTERN", "dash", "jobs[0].name"),
    ("A33 yes", as_yaml("name: yes"), "E_TYPE", "got boolean; quote it", "jobs[0].name"),
    ("A33 no", as_yaml("name: no"), "E_TYPE", "got boolean; quote it", "jobs[0].name"),
    ("A33 on", as_yaml("name: on"), "E_TYPE", "got boolean; quote it", "jobs[0].name"),
    ("A35", "jobs: {}", "E_TYPE", "must be a list, got a mapping", "jobs"),
    ("A37", "jobs: [foo]", "E_TYPE", "got a string", "jobs[0]"),
    ("A39", as_yaml("run_once: false"), "E_REQUIRED", "needs a schedule", "jobs[0].schedule"),
    ("A41", as_yaml("schedule: [a, b]"), "E_TYPE", "got a list", "jobs[0].schedule"),
    ("A43", as_yaml("schedule: 2024-02-24"), "E_TYPE", "got date; quote it", "jobs[0].schedule"),
    ("A47", "jobs: [{name: a, schedule: 10s}]", "E_REQUIRED", "needs steps", "jobs[0].steps"),
    ("A47 kind", "jobs: [{name: a, kind: shell}]", "E_REQUIRED", "needs steps", "jobs[0].steps"),
    ("A49", as_yaml("steps: [" + "{run: a}, " * 201 + "]"), "E_LIMIT", "at most 200 steps, got 201", "jobs[0].steps"),
    ("A51", as_yaml('steps: [{run: ""}]'), "E_EMPTY", "must not be empty", "jobs[0].steps[0].run"),
    ("A51 blank", as_yaml('steps: [{run: a}, {run: " "}]'), "E_EMPTY", "empty", "jobs[0].steps[1].run"),
    ("A53", as_yaml(f"steps: [{{run: {'a' * 65537}}}]"), "E_LEN", "at most 64 KiB", "jobs[0].steps[0].run"),
    ("A53 bytes", as_yaml(f"steps: [{{run: {'é' * 32769}}}]"), "E_LEN", "at most 64 KiB", "jobs[0].steps[0].run"),
    ("A55", as_yaml("steps: [{name: b, run: a}, {name: b, run: a}]"), "E_DUP_NAME", "'b'", "jobs[0].steps[1].name"),
    ("A55 default", as_yaml("steps: [{name: step 2, run: a}, {run: a}]"), "E_DUP_NAME", "", "jobs[0].steps[1].name"),
    ("A57", as_yaml("env: {A: {b: c}}"), "E_TYPE", "must be text, got a mapping", "jobs[0].env.A"),
    ("A57 number", as_yaml("env: {A: 1}"), "E_TYPE", "got number; quote it", "jobs[0].env.A"),
    ("A57 boolean", as_yaml("env: {A: on}"), "E_TYPE", "got boolean; quote it", "jobs[0].env.A"),
    ("A57 list", as_yaml("env: [A]"), "E_TYPE", "must be a mapping, got a list", "jobs[0].env"),
    ("A59", as_yaml(f"env: {{A: {'a' * 65536}, B: {'b' * 65536}}}"), "E_LIMIT", "larger than 64 KiB", "jobs[0].env"),
    ("A61 nan", as_yaml("timeout: .nan"), "E_RANGE", "1s to 366d", "jobs[0].timeout"),
    ("A61 inf", as_yaml("timeout: .inf"), "E_RANGE", "1s to 366d", "jobs[0].timeout"),
    ("A61 1e309", as_yaml("timeout: 1e309"), "E_RANGE", "1s to 366d", "jobs[0].timeout"),
    ("A61 0", as_yaml("timeout: 0"), "E_RANGE", "1s to 366d, got 0", "jobs[0].timeout"),
    ("A61 367d", as_yaml("timeout: 367d"), "E_RANGE", "1s to 366d, got 367d", "jobs[0].timeout"),
    ("A61 words", as_yaml("timeout: soon"), "E_INTERVAL_SYNTAX", "'soon'", "jobs[0].timeout"),
    ("A63 11", as_yaml("priority: 11"), "E_ENUM", "0..9", "jobs[0].priority"),
    ("A63 high", as_yaml("priority: high"), "E_ENUM", "0..9", "jobs[0].priority"),
    ("A63 null", as_yaml("priority: null"), "E_ENUM", "0..9", "jobs[0].priority"),
    ("A63 true", as_yaml("priority: true"), "E_ENUM", "0..9", "jobs[0].priority"),
    ("A67 privileged", as_yaml("privileged: true"), "E_POLICY", "isolation", "jobs[0].privileged"),
    ("A67 cap_add", as_yaml("cap_add: [SYS_ADMIN]"), "E_POLICY", "isolation", "jobs[0].cap_add"),
    ("A69 network", as_yaml("network: host"), "E_POLICY", "isolation", "jobs[0].network"),
    ("A69 pid", as_yaml("pid: host"), "E_POLICY", "isolation", "jobs[0].pid"),
    ("A69 user", as_yaml("user: root"), "E_POLICY", "isolation", "jobs[0].user"),
    ("A69 step", as_yaml("steps: [{run: a, user: root}]"), "E_POLICY", "isolation", "jobs[0].steps[0].user"),
    ("A71", as_yaml("concurrency: sometimes"), "E_ENUM", "forbid, allow, queue, replace", "jobs[0].concurrency"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "words", "path"), [row[1:] for row in CATALOGUE], ids=[row[0] for row in CATALOGUE]
)
def test_the_catalogue_of_bad_jobs(text: str, code: str, words: str, path: str) -> None:
    error = refusal(read_yaml(text.encode()))
    assert (error.code, error.path) == (code, path)
    assert words in error.message
    assert len(error.problems) == 1
    assert error.status == (403 if code == "E_POLICY" else 422)
    assert "qqqqqqqq" not in error.message


# What the catalogue leaves out. Fields of one job, code, words of the message, path
MORE: list[tuple[dict[str, Any], str, str, str]] = [
    (job(name="a\nb"), "E_CHAR", "U+000A", "name"),
    (job(name="a\u202eb"), "E_CHAR", "U+202E", "name"),
    (job(name=" "), "E_EMPTY", "empty", "name"),
    (job(key="-k"), "E_PATTERN", "dash", "key"),
    (job(key=None), "E_TYPE", "got null", "key"),
    (job(segment=100), "E_SEGMENT", "0 to 99", "segment"),
    (job(segment="a"), "E_SEGMENT", "0 to 99", "segment"),
    (job(segment=True), "E_SEGMENT", "0 to 99", "segment"),
    (job(paused="yes"), "E_TYPE", "true or false, got a string", "paused"),
    (job(annotations=[]), "E_TYPE", "must be a mapping, got a list", "annotations"),
    (job(annotations={"a": "x" * 65536}), "E_LEN", "at most 64 KiB", "annotations"),
    (job(annotations={"a": [float("nan")]}), "E_RANGE", "finite", "annotations.a[0]"),
    (job(annotations={"a": "\x00"}), "E_CHAR", "U+0000", "annotations.a"),
    (job(annotations={"a": "\udc80"}), "E_CHAR", "U+DC80", "annotations.a"),
    (job(annotations={"a": 2**63}), "E_RANGE", "64 bits", "annotations.a"),
    (job(id=7), "E_READ_ONLY", "set by Horae", "id"),
    (job(kind="shellx"), "E_DISCRIMINATOR", "sync, watched, wait, workflow, got 'shellx'", "kind"),
    (job(kind=None), "E_DISCRIMINATOR", "got null", "kind"),
    (job(handler="a:b"), "E_FIELD_CONFLICT", "handler and steps", "steps"),
    (job(kind="shell", handler="a:b"), "E_FIELD_CONFLICT", "kind python", "handler"),
    ({"name": "a", "spec": {"steps": []}}, "E_DISCRIMINATOR", "needs a kind", "kind"),
    (job(kind="shell", spec={"steps": [{"run": "a"}]}), "E_FIELD_CONFLICT", "inside spec", "steps"),
    ({"name": "a", "kind": "shell", "spec": {"steps": [{"run": 1}]}}, "E_TYPE", "quote it", "spec.steps[0].run"),
    ({"name": "a", "kind": "shell", "spec": {"x": 1, "steps": [{"run": "a"}]}}, "E_UNKNOWN_FIELD", "'x'", "spec.x"),
    ({"name": "a", "kind": "shell", "spec": []}, "E_TYPE", "must be a mapping", "spec"),
    (job(steps=[]), "E_EMPTY", "at least one", "steps"),
    (job(steps="make"), "E_TYPE", "must be a list, got a string", "steps"),
    (job(steps=["make"]), "E_TYPE", "{run: make test}, got a string", "steps[0]"),
    (job(steps=[{"name": "x"}]), "E_REQUIRED", "command to run", "steps[0].run"),
    (job(steps=[{"run": "a\x1b"}]), "E_CHAR", "U+001B", "steps[0].run"),
    (job(steps=[{"run": "a", "name": "b\tc"}]), "E_CHAR", "U+0009", "steps[0].name"),
    (job(env={"A-B": "c"}), "E_PATTERN", "letters, digits and _", "env.A-B"),
    (job(env={"A=B": "c"}), "E_PATTERN", "letters, digits and _", "env['A=B']"),
    (job(env={"A": "\x00"}), "E_CHAR", "U+0000", "env.A"),
    (job(working_directory="/a\x00"), "E_CHAR", "U+0000", "working_directory"),
    ({"name": "a", "handler": "os.system;ls"}, "E_PATTERN", "module:function", "handler"),
    ({"name": "a", "handler": "jobs/../x"}, "E_PATTERN", "module:function", "handler"),
    ({"name": "a", "handler": "-x"}, "E_PATTERN", "module:function", "handler"),
    ({"name": "a", "kind": "python"}, "E_REQUIRED", "needs a handler", "handler"),
    ({"name": "a", "handler": "a:b", "data": "x"}, "E_TYPE", "must be a mapping", "data"),
    ({"name": "a", "handler": "a:b", "data": {"x": "y" * 262144}}, "E_LEN", "256 KiB", "data"),
    (job(schedule="60 * * * *"), "E_CRON_RANGE", "60", "schedule"),
    (job(schedule="* " * 3000), "E_LEN", "4096", "schedule"),
    (job(schedule="10s", timezone="Mars/Phobos"), "E_TZ_UNKNOWN", "Mars/Phobos", "timezone"),
    (job(schedule="10s", timezone=2), "E_TYPE", "got number; quote it", "timezone"),
    (job(timezone="UTC"), "E_FIELD_CONFLICT", "without a schedule", "timezone"),
    (job(schedule={"cron": "60 * * * *"}), "E_CRON_RANGE", "60", "schedule.cron"),
    (job(run_at="2027-01-01T00:00:00"), "E_TIME_NO_OFFSET", "offset", "run_at"),
    (job(run_at=5), "E_TYPE", "got number; quote it", "run_at"),
    (job(run_at="2027-01-01T00:00:00Z", schedule="10s"), "E_FIELD_CONFLICT", "schedule", "run_at"),
    (job(run_at="2027-01-01T00:00:00Z", run_once=False), "E_FIELD_CONFLICT", "run_once: false", "run_at"),
    (job(run_once="yes"), "E_TYPE", "true or false", "run_once"),
    (job(every="node"), "E_ENUM", "one of agent, got 'node'", "every"),
    (job(triggers=[{"every": "1m"}], schedule="10s"), "E_FIELD_CONFLICT", "triggers are listed", "schedule"),
    (job(triggers=[], run_once=False), "E_EMPTY", "at least one", "triggers"),
    (job(triggers=[{"every": "1m"}] * 101), "E_LIMIT", "at most 100 triggers", "triggers"),
    (job(triggers=["1m"]), "E_TYPE", "{every: 10m}, got a string", "triggers[0]"),
    (job(triggers=[{"everyx": "1m"}]), "E_UNKNOWN_FIELD", "everyx", "triggers[0].everyx"),
    (job(triggers=[{"every": "1m", "enabled": 1}]), "E_TYPE", "true or false", "triggers[0].enabled"),
    (job(triggers=[{"every": "1m", "data": [1]}]), "E_TYPE", "must be a mapping", "triggers[0].data"),
    (job(triggers=[{"every": "1m", "id": 0}]), "E_RANGE", "from 1", "triggers[0].id"),
    (job(triggers=[{"schedule": "1m", "next_at": "x"}]), "E_READ_ONLY", "set by Horae", "triggers[0].next_at"),
    (job(triggers=[{"schedule": "1x"}]), "E_INTERVAL_SYNTAX", "'1x'", "triggers[0].schedule"),
    (job(triggers=[{"schedule": {"every": "x"}}]), "E_INTERVAL_SYNTAX", "'x'", "triggers[0].schedule.every"),
    (job(triggers=[{"every": "1m", "start_at": {"x": {1}}}]), "E_TYPE", "got set", "triggers[0].start_at.x"),
    (job(retry=0), "E_RANGE", "from 1 to 100, got 0", "retry"),
    (job(retry="3"), "E_TYPE", "remove the quotes", "retry"),
    (job(retry={"attempts": 101}), "E_RANGE", "from 1 to 100", "retry.attempts"),
    (job(retry={"attempts": 2.0}), "E_TYPE", "whole number", "retry.attempts"),
    (job(retry={"backoff": -1}), "E_RANGE", "0s to 366d", "retry.backoff"),
    (job(retry={"factor": 0.5}), "E_RANGE", "from 1 to 100", "retry.factor"),
    (job(retry={"jitter": float("nan")}), "E_RANGE", "from 0 to 1", "retry.jitter"),
    (job(retry={"on": ["TimeoutError"]}), "E_REQUIRED", "nothing for one attempt", "retry.attempts"),
    (job(retry={"attempts": 2, "on": ["a", "b"], "never": ["b"]}), "E_FIELD_CONFLICT", "b stands in on", "retry.never"),
    (job(retry={"attempts": 2, "on": "TimeoutError"}), "E_TYPE", "list", "retry.on"),
    (job(retry={"attempts": 2, "on": [5]}), "E_TYPE", "must be text", "retry.on[0]"),
    (job(retry={"attempts": 2, "never": ["no class"]}), "E_PATTERN", "such as TimeoutError", "retry.never[0]"),
    (job(retry={"tries": 2}), "E_UNKNOWN_FIELD", "'tries'", "retry.tries"),
    (job(overlap="queued"), "E_ENUM", "got 'queued'", "overlap"),
    (job(overlap={"policy": "queue", "limit": 0}), "E_RANGE", "from 1 to 1000", "overlap.limit"),
    (job(overlap={"policy": "allow", "limit": 3}), "E_FIELD_CONFLICT", "only queue has a limit", "overlap.limit"),
    (job(overlap={"policy": ["queue"]}), "E_ENUM", "got a list", "overlap.policy"),
    (job(overlap="allow", concurrency="allow"), "E_FIELD_CONFLICT", "overlap", "concurrency"),
    (job(misfire="all"), "E_ENUM", "run_latest, run_all, skip", "misfire"),
    (job(misfire={"policy": "run_all", "limit": 1001}), "E_RANGE", "from 0 to 1000", "misfire.limit"),
    (job(start_deadline="0s"), "E_RANGE", "1s to 366d", "start_deadline"),
    (job(labels="gpu"), "E_TYPE", "must be a list", "labels"),
    (job(labels=["a b"]), "E_PATTERN", "letters, digits", "labels[0]"),
    (job(labels=[5]), "E_TYPE", "quote it", "labels[0]"),
    (job(labels=["a"] * 33), "E_LIMIT", "at most 32 labels", "labels"),
    (job(network="none"), "E_ENUM", "on or off", "network"),
    ({"jobs": []}, "E_EMPTY", "at least one", "jobs"),
    ({"jobs": [JOB], "job": 1}, "E_UNKNOWN_FIELD", "'job'", "job"),
    ({"jobs": [job(key="k"), job(key="k")]}, "E_DUP_NAME", "jobs[0].key", "jobs[1].key"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "code", "words", "path"), MORE, ids=[f"{row[3]} {row[2]}"[:60] for row in MORE])
def test_a_job_that_makes_no_sense_says_why_and_where(document: Any, code: str, words: str, path: str) -> None:
    error = refusal(document)
    assert (error.code, error.path) == (code, path)
    assert words in error.message
    assert code in CODES


def test_every_problem_is_told_at_once_with_its_path_and_what_to_do() -> None:
    error = refusal({
        "jobs": [
            {"namex": "x", "steps": [{"run": 5}, {"runx": "a"}], "schedulex": "10s", "timeout": "soon"},
            {"name": "b", "kind": "shall", "retry": {"attempts": 0}},
        ]
    })  # fmt: skip
    assert isinstance(error, Invalid)
    assert [(problem.path, problem.code) for problem in error.problems] == [
        ("jobs[0].name", "E_REQUIRED"),
        ("jobs[0].namex", "E_UNKNOWN_FIELD"),
        ("jobs[0].schedulex", "E_UNKNOWN_FIELD"),
        ("jobs[0].steps[0].run", "E_TYPE"),
        ("jobs[0].steps[1].runx", "E_UNKNOWN_FIELD"),
        ("jobs[0].steps[1].run", "E_REQUIRED"),
        ("jobs[0].timeout", "E_INTERVAL_SYNTAX"),
        ("jobs[1].kind", "E_DISCRIMINATOR"),
        ("jobs[1].retry.attempts", "E_RANGE"),
    ]
    hints = {problem.path: problem.hint for problem in error.problems}
    assert hints["jobs[0].namex"] == "did you mean 'name'?"
    assert hints["jobs[0].schedulex"] == "did you mean 'schedule'?"
    assert hints["jobs[1].kind"] == "did you mean 'shell'?"
    assert "and 8 more" in error.message


def test_what_a_policy_forbids_is_denied_even_among_other_problems() -> None:
    error = refusal(job(privileged=True, timeout="soon"))
    assert isinstance(error, Denied)
    assert [problem.code for problem in error.problems] == ["E_POLICY", "E_INTERVAL_SYNTAX"]


def test_a75_of_100000_problems_50_are_shown_and_the_rest_are_counted_soon() -> None:
    document = job(**{f"x{number}": 1 for number in range(100_000)})
    before = time.process_time()
    shown = refusal(document).listed()
    assert time.process_time() - before < 1
    assert len(shown) == 51
    assert shown[-1].message == "…and 99950 more"


def test_the_number_of_jobs_in_one_request_can_be_raised() -> None:
    assert len(specs.parse_jobs({"jobs": [JOB] * 101}, limit=1000)) == 101


def test_a76_the_two_jobs_of_the_first_users_are_accepted() -> None:
    drafts = specs.parse_jobs(
        read_yaml(b"""\
jobs:
  - name: BuildAndTest
    schedule: "0 0 * * *"
    run_once: false
    steps:
      - name: Set up Go
        run: go mod
      - name: Build
        run: go build -v ./...
  - name: NightlyCleanup
    schedule: "0 2 * * *"
    run_once: true
    steps:
      - name: Cleanup
        run: ./cleanup_script.sh
""")
    )
    assert [draft.name for draft in drafts] == ["BuildAndTest", "NightlyCleanup"]
    assert drafts[0].triggers == (specs.TriggerDraft({"cron": "0 0 * * *"}),)
    assert drafts[1].triggers == (specs.TriggerDraft({"cron": "0 2 * * *"}, once=True),)


def test_a77_names_may_have_any_letters() -> None:
    assert specs.parse_job(job(name="Noční úloha – tiếng Việt 👩‍🔬")).name == "Noční úloha – tiếng Việt 👩‍🔬"


def test_the_least_job_gets_every_default() -> None:
    assert specs.parse_job(JOB) == specs.Draft(
        name="a",
        key=None,
        kind="shell",
        spec={"steps": [{"name": "step 1", "run": "true"}]},
        policy=Policy(),
        triggers=(),
        segment=None,
        paused=False,
        annotations={},
    )


def test_a_full_job_is_read_whole() -> None:
    draft = specs.parse_job(
        read_yaml(b"""\
name: report
key: daily
owner: me
segment: 7
paused: true
annotations: {team: b}
handler: reports.daily:build
data: {b: [1, 2.5, null, true], a: x}
env: {B: "1", A: "0"}
schedule: 30 6 * * MON-FRI
timezone: Europe/Prague
timeout: 1h30m
retry: {attempts: 4, backoff: 10s, factor: 3, cap: 600, jitter: 0}
overlap: {policy: queue, limit: 5}
misfire: {policy: run_all, limit: 24}
start_deadline: 90
priority: 9
labels: [gpu, "zone=eu", gpu]
""")
    )
    assert (draft.name, draft.key, draft.segment, draft.paused) == ("report", "daily", 7, True)
    assert (draft.kind, draft.annotations) == ("python", {"team": "b"})
    assert encode(draft.spec) == (
        '{"data":{"a":"x","b":[1,2.5,null,true]},"env":{"A":"0","B":"1"},"handler":"reports.daily:build"}'
    )
    assert draft.triggers == (specs.TriggerDraft({"cron": "30 6 * * MON-FRI", "timezone": "Europe/Prague"}),)
    assert draft.policy == Policy(
        overlap=Overlap.QUEUE,
        overlap_limit=5,
        misfire=Misfire.RUN_ALL,
        misfire_limit=24,
        retry=Retry(attempts=4, backoff_seconds=10, factor=3, cap_seconds=600, jitter=0),
        timeout_seconds=5400,
        start_deadline_seconds=90,
        priority=9,
        labels=("gpu", "zone=eu"),
    )


def test_kind_and_spec_say_the_same_as_the_fields_alone() -> None:
    short = specs.parse_job(job(env={"A": "b"}, working_directory="/tmp"))
    long = specs.parse_job({
        "name": "a",
        "kind": "shell",
        "spec": {"working_directory": "/tmp", "env": {"A": "b"}, "steps": [{"name": "step 1", "run": "true"}]},
    })  # fmt: skip
    assert short == long
    assert specs.parse_job(job(kind="shell")) == specs.parse_job(JOB)


def test_equal_jobs_have_equal_text() -> None:
    one = specs.parse_job({
        "name": "a", "handler": "a:b", "data": {"x": {"b": 1, "a": 2}}, "env": {"B": "1", "A": "0"},
        "retry": 1, "timeout": "1m", "labels": ["c", "a", "b"],
    })  # fmt: skip
    two = specs.parse_job({
        "labels": ["b", "c", "a", "a"], "timeout": 60, "overlap": "forbid", "triggers": [], "annotations": {},
        "env": {"A": "0", "B": "1"}, "data": {"x": {"a": 2, "b": 1}}, "handler": "a:b", "name": "a",
    })  # fmt: skip
    assert one == two
    assert json.dumps(one.spec) == json.dumps(two.spec)
    assert json.dumps(one.spec) == '{"handler": "a:b", "data": {"x": {"a": 2, "b": 1}}, "env": {"A": "0", "B": "1"}}'
    assert policies.policy_text(one.policy) == '{"labels":["a","b","c"],"timeout_seconds":60.0}'


def test_a_draft_does_not_change_with_the_document_it_was_read_from() -> None:
    document = job(annotations={"a": [1]}, schedule="10s")
    draft = specs.parse_job(document)
    document["annotations"]["a"].append(2)
    draft.triggers[0].schedule["every"] = "1s"
    assert draft.annotations == {"a": [1]}
    assert specs.parse_job(document).triggers[0].schedule == {"every": "10s"}


@pytest.mark.parametrize("handler", ["a:b", "a.b_c:D.e", "jobs/hello", "jobs/a-b.c", "hello", "send-mail.v2"])
def test_handlers_are_functions_files_or_registered_names(handler: str) -> None:
    assert specs.parse_job({"name": "a", "handler": handler}).spec == {"handler": handler}


@pytest.mark.parametrize(
    ("fields", "schedule"),
    [
        ({"schedule": "1h30m"}, {"every": "1h30m"}),
        ({"schedule": "*/5 * * * *"}, {"cron": "*/5 * * * *"}),
        ({"schedule": {"every": 90}}, {"every": "1m30s"}),
        ({"schedule": "2027-03-28T10:00", "timezone": PRAGUE}, {"at": "2027-03-28T08:00:00Z", "timezone": PRAGUE}),
        ({"run_at": "2001-01-01T00:00:00Z"}, {"at": "2001-01-01T00:00:00Z"}),
        ({"run_at": "2001-01-01T02:00:00+02:00", "run_once": True}, {"at": "2001-01-01T00:00:00Z"}),
        ({"run_once": True}, {"at": specs.AT_ONCE}),
        ({"triggers": [{"schedule": "10s"}]}, {"every": "10s"}),
        ({"triggers": [{"every": "10s"}]}, {"every": "10s"}),
        ({"triggers": [{"schedule": "@daily", "timezone": PRAGUE}]}, {"cron": "@daily", "timezone": PRAGUE}),
    ],
)  # fmt: skip
def test_every_way_to_say_when(fields: dict[str, Any], schedule: dict[str, Any]) -> None:
    (trigger,) = specs.parse_job(job(**fields)).triggers
    assert trigger.schedule == schedule
    assert not trigger.once


def test_a_trigger_may_have_data_an_id_and_be_switched_off() -> None:
    trigger = specs.parse_trigger({"cron": "@daily", "data": {"b": 1, "a": 2}, "enabled": False, "id": 5})
    assert trigger == specs.TriggerDraft({"cron": "@daily"}, data={"a": 2, "b": 1}, enabled=False, id=5)
    assert specs.parse_trigger({"every": "1m", "data": None}) == specs.TriggerDraft({"every": "1m"})


def test_a_trigger_that_makes_no_sense_has_paths_without_a_job() -> None:
    with pytest.raises(Invalid) as caught:
        specs.parse_trigger({"cron": "60 * * * *", "timezone": "Mars/Phobos"})
    assert {problem.path for problem in caught.value.problems} == {"cron", "timezone"}


def test_runxing_once_by_a_schedule_means_its_next_moment_only() -> None:
    now = moments.parse_moment("2027-01-01T12:00:00Z")
    (trigger,) = specs.parse_job(job(schedule="0 2 * * *", run_once=True)).triggers
    assert trigger.schedule_from(now, seed=1) == {"at": "2027-01-02T02:00:00Z"}
    (again,) = specs.parse_job(job(schedule="0 2 * * *", run_once=False)).triggers
    assert again.schedule_from(now, seed=1) == {"cron": "0 2 * * *"}


def test_a_moment_on_a_yaml_page_needs_no_quotes() -> None:
    (trigger,) = specs.parse_job(read_yaml(as_yaml("run_at: 2027-01-01T00:00:00Z").encode())["jobs"][0]).triggers
    assert trigger.schedule == {"at": "2027-01-01T00:00:00Z"}


def test_an_environment_of_exactly_64_kib_is_accepted() -> None:
    fits = "x" * (64 * 1024 - len("A=\0"))
    assert specs.parse_job(job(env={"A": fits})).spec["env"] == {"A": fits}
    assert refusal(job(env={"A": fits + "x"})).code == "E_LIMIT"


any_policy = st.builds(
    Policy,
    overlap=st.sampled_from(Overlap),
    overlap_limit=st.integers(1, 1000),
    misfire=st.sampled_from(Misfire),
    misfire_limit=st.integers(0, 1000),
    retry=st.builds(
        Retry,
        attempts=st.integers(1, 100),
        backoff_seconds=st.floats(0, 1e6),
        jitter=st.floats(0, 1),
        on=st.sampled_from([(), ("A",)]),
        never=st.sampled_from([(), ("B", "a.C")]),
    ),
    timeout_seconds=st.none() | st.floats(1, 1e6),
    start_deadline_seconds=st.none() | st.floats(1, 1e6),
    priority=st.integers(0, 9),
    labels=st.lists(st.sampled_from(["a", "b", "gpu"]), unique=True).map(lambda names: tuple(sorted(names))),
    rate_limits=st.sampled_from([(), (RateLimit("100/min", 10, "owner"), RateLimit("5/s"))]),
    concurrency_limits=st.sampled_from([(), (ConcurrencyLimit(5, "data.tenant.id"),)]),
    after=st.sampled_from([(), (After("extract", id=3), After(7, "end", "latest", 7))]),
    resources=st.sampled_from([(), (("cpus", 1501), ("gpu", 2)), (("memory", 2**29 + 1), ("slots", 3))]),
)


@given(any_policy)
@patient
def test_a_policy_survives_its_text(policy: Policy) -> None:
    assert policies.policy_from_text(policies.policy_text(policy)) == policy


def test_the_default_policy_needs_no_text_and_shows_every_field() -> None:
    assert policies.policy_text(Policy()) == "{}"
    assert policies.policy_from_text("{}") == Policy()
    assert policies.render_policy(Policy(overlap=Overlap.REPLACE, labels=("a",))) == {
        "overlap": "replace",
        "overlap_limit": 1,
        "misfire": "run_latest",
        "misfire_limit": 100,
        "retry": {
            "attempts": 1,
            "backoff_seconds": 1.0,
            "factor": 2.0,
            "cap_seconds": 3600.0,
            "jitter": 0.1,
            "on": [],
            "never": [],
        },
        "timeout_seconds": None,
        "start_deadline_seconds": None,
        "priority": 5,
        "labels": ["a"],
        "resources": {},
        "offered": False,
        "synced_at": None,
        "queue": "default",
        "share": "owner",
        "pause_after_failures": None,
        "rate_limits": [],
        "concurrency_limits": [],
        "after": [],
        "debounce": None,
        "every": None,
        "tags": [],
    }


names = st.sampled_from(sorted(kinds.JOB_FIELDS | {"jobs", "steps", "env", "data", "handler", "run", "every"}))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(names, anything, max_size=8))
@patient
def test_whatever_is_in_a_document_it_is_read_or_refused_with_known_codes(document: dict[str, Any]) -> None:
    try:
        drafts = specs.parse_jobs(document)
    except (Invalid, Denied) as error:
        codes = {problem.code for problem in error.problems}
    else:
        codes = set()
        assert all(draft.name and draft.kind in kinds.KINDS for draft in drafts)
    assert codes <= CODES.keys()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_accepted(path: Path) -> None:
    assert specs.parse_jobs(read_yaml(path.read_bytes()))


def test_every_field_of_work_has_a_schema() -> None:
    fields = {field for kind in kinds.KINDS.values() for field in kind.fields}
    assert fields == schemas.FIELDS.keys()


# ── queue, share, pause_after_failures ──


def test_a_job_says_where_its_runs_wait_and_with_whom_they_share():
    policy = specs.parse_job({**JOB, "queue": "reports", "share": "data.tenant.id", "pause_after_failures": 5}).policy
    assert (policy.queue, policy.share, policy.pause_after_failures) == ("reports", "data.tenant.id", 5)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("queue", "a b", "E_PATTERN"), ("queue", "x" * 64, "E_PATTERN"), ("queue", 7, "E_TYPE"),
        ("queue", "", "E_EMPTY"), ("share", "tenant", "E_PATTERN"), ("share", "data.", "E_PATTERN"),
        ("share", "data", "E_PATTERN"), ("share", "data.a b", "E_PATTERN"), ("share", ["owner"], "E_TYPE"),
        ("pause_after_failures", 0, "E_RANGE"), ("pause_after_failures", 1001, "E_RANGE"),
        ("pause_after_failures", True, "E_TYPE"),
    ],
)  # fmt: skip
def test_a_queue_a_share_or_a_number_of_failures_that_makes_no_sense_is_told(field: str, value: object, code: str):
    with pytest.raises(Invalid) as caught:
        specs.parse_job({**JOB, field: value})
    assert [(p.path, p.code) for p in caught.value.listed()] == [(field, code)]


def test_of_these_too_what_has_its_default_is_left_out_of_the_text():
    policy = specs.parse_job({**JOB, "queue": "default", "share": "owner"}).policy
    assert policies.policy_text(policy) == "{}"
    other = specs.parse_job({**JOB, "queue": "x", "share": "data.a", "pause_after_failures": 2}).policy
    assert policies.policy_from_text(policies.policy_text(other)) == other


# ── limits ──
def test_limits_of_a_job_are_read():
    rates = [{"rate": "100/min", "burst": 10, "per": "owner"}, {"rate": "5/s"}]
    draft = specs.parse_job(job(rate_limits=rates, concurrency_limits=[{"limit": 5, "per": "data.tenant.id"}]))
    assert draft.policy.rate_limits == (RateLimit("100/min", 10, "owner"), RateLimit("5/s", 1, "job"))
    assert draft.policy.concurrency_limits == (ConcurrencyLimit(5, "data.tenant.id"),)


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"rate_limits": "5/s"}, "rate_limits", "E_TYPE"),
        ({"rate_limits": ["5/s"]}, "rate_limits[0]", "E_TYPE"),
        ({"rate_limits": [{}]}, "rate_limits[0].rate", "E_REQUIRED"),
        ({"rate_limits": [{"rate": 5}]}, "rate_limits[0].rate", "E_TYPE"),
        ({"rate_limits": [{"rate": "5 per s"}]}, "rate_limits[0].rate", "E_PATTERN"),
        ({"rate_limits": [{"rate": "1000001/s"}]}, "rate_limits[0].rate", "E_RANGE"),
        ({"rate_limits": [{"rate": "5/s", "burst": 0}]}, "rate_limits[0].burst", "E_RANGE"),
        ({"rate_limits": [{"rate": "5/s", "per": "tenant"}]}, "rate_limits[0].per", "E_PATTERN"),
        ({"rate_limits": [{"rate": "5/s"}, {"rate": "9/s"}]}, "rate_limits[1].rate", "E_FIELD_CONFLICT"),
        ({"rate_limits": [{"rate": "5/s", "limit": 3}]}, "rate_limits[0].limit", "E_UNKNOWN_FIELD"),
        ({"rate_limits": [{"rate": f"{n}/s"} for n in range(1, 10)]}, "rate_limits", "E_LIMIT"),
        ({"concurrency_limits": [{"per": "owner"}]}, "concurrency_limits[0].limit", "E_REQUIRED"),
        ({"concurrency_limits": [{"limit": 0}]}, "concurrency_limits[0].limit", "E_RANGE"),
        ({"concurrency_limits": [{"limit": 1.5}]}, "concurrency_limits[0].limit", "E_TYPE"),
        ({"concurrency_limits": [{"limit": 5, "per": "data."}]}, "concurrency_limits[0].per", "E_PATTERN"),
        ({"concurrency_limits": [{"limit": 5}, {"limit": 6}]}, "concurrency_limits[1].per", "E_FIELD_CONFLICT"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_is_refused(fields: dict[str, Any], path: str, code: str):
    problems = refusal(job(**fields)).problems
    assert [(problem.path, problem.code) for problem in problems] == [(path, code)]
