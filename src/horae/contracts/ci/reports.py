"""The log of an execution as a report: JSON, or JUnit XML with its tests, or its steps where it had none.

The log of a shell job has a headed section for each of its steps (executors/shell). A section begins only where the
next one is due, so that what a step prints cannot pass for the beginning of an earlier or a later one; and whether a
step went well is told by the result that the agent gave, not by anything in the log.

What must stay true: whatever failed is a failure of the report. A step that failed stands beside the tests, and an
execution that failed otherwise is a case of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from horae.contracts.ci.rendering import WORDS, when
from horae.core.model import Job, Json, Run, State

_HEAD = re.compile(r"── (?:(?P<checkout>checkout) \S+(?: \S+)?|(?P<script>script) .+|step (?P<step>\d+)/\d+ .*) ──")
# What XML 1.0 cannot hold at all.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    log: str
    status: str  # SKIPPED: it was not reached
    seconds: float | None


def split_log(text: str) -> list[str]:
    """Return the sections of a log, without their heads; what stands before the first head is a section of its own."""
    sections: list[list[str]] = [[]]
    expected: tuple[str, ...] = ("checkout", "script", "1")
    for line in text.splitlines(keepends=True):
        found = _HEAD.fullmatch(line.rstrip("\n"))
        mark = found and (found["checkout"] or found["script"] or found["step"])
        if mark in expected:
            sections.append([])
            expected = _after(str(mark))
        else:
            sections[-1].append(line)
    joined = ["".join(lines) for lines in sections]
    return joined[1:] if len(joined) > 1 and not joined[0] else joined


def _after(mark: str) -> tuple[str, ...]:
    if mark == "checkout":
        return ("script", "1")
    return () if mark == "script" else (str(int(mark) + 1),)


def steps_of(job: Job, run: Run, text: str) -> list[Step]:
    """Every step of an execution, those too that were not reached."""
    logs = split_log(text)
    names = _names(job)
    ended: list[Json] = _ended(run.result)
    steps = []
    for index in range(max(len(names), len(logs))):
        name = ended[index]["name"] if index < len(ended) else names[index] if index < len(names) else job.name
        seconds = ended[index].get("seconds") if index < len(ended) else None
        log = logs[index] if index < len(logs) else ""
        steps.append(Step(str(name), log, _status(run, ended, index, len(logs)), seconds))
    return steps


def _names(job: Job) -> list[str]:
    first = ["checkout"] if "checkout" in job.spec else []
    if job.kind != "shell":
        return [job.name]
    return [*first, job.spec["script"]] if "script" in job.spec else [*first, *(s["name"] for s in job.spec["steps"])]


def _ended(result: Any) -> list[Json]:
    """Return the steps of a shell job's result. Other kinds give whatever they like."""
    steps = result.get("steps") if isinstance(result, dict) else None
    listed = steps if isinstance(steps, list) else []
    return listed if all(isinstance(step, dict) and "name" in step and "exit_code" in step for step in listed) else []


def _status(run: Run, ended: list[Json], index: int, reached: int) -> str:
    """The state of the run belongs to the step it got to: those before it went well, those after were not reached."""
    if index < len(ended):
        return WORDS[State.SUCCEEDED if ended[index]["exit_code"] == 0 else run.state]
    went_well = all(step["exit_code"] == 0 for step in ended)
    current = len(ended) if ended else reached - 1
    if index < current:
        return WORDS[State.SUCCEEDED]
    if index == current and went_well:
        return WORDS[run.state]
    return WORDS[State.SKIPPED if run.state.is_terminal else State.QUEUED]


def as_json(job: Job, run: Run, text: str) -> Json:
    steps = [
        {"name": step.name, "status": step.status, "seconds": step.seconds, "log": step.log}
        for step in steps_of(job, run, text)
    ]
    found = run.result if isinstance(run.result, dict) else {}
    facts = {name: found[name] for name in ("commit", "tests") if name in found}
    return {"job_id": job.id, "execution_id": run.id, "status": WORDS[run.state], **facts, "steps": steps}


# ── JUnit ──────────────────────────────────────────────────────────────────────────────────────────


_NOT_FAILED = {WORDS[state] for state in (State.SUCCEEDED, State.SKIPPED, State.RUNNING, State.QUEUED, State.COALESCED)}


def as_junit(job: Job, run: Run, text: str) -> str:
    steps = steps_of(job, run, text)
    failed = [step for step in steps if step.status not in _NOT_FAILED]
    if not failed and WORDS[run.state] not in _NOT_FAILED:
        failed = [Step(job.name, "", WORDS[run.state], None)]
        steps = [*steps, *failed]
    tests = tests_of(run)
    suites = [_tests_suite(job, run, tests)] if tests else []
    shown = failed if tests else steps
    if shown:
        suites.append(_steps_suite(job, run, shown))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_tag("testsuites", {}, "".join(suites))}\n'


def _steps_suite(job: Job, run: Run, steps: list[Step]) -> str:
    failures = sum(step.status not in _NOT_FAILED for step in steps)
    skipped = sum(step.status == WORDS[State.SKIPPED] for step in steps)
    seconds = sum(step.seconds or 0 for step in steps)
    cases = "".join(_case(job, run, step) for step in steps)
    return _suite(job.name, run, (len(steps), failures, skipped), seconds, cases)


def _suite(name: str, run: Run, counts: tuple[int, int, int], seconds: float, cases: str) -> str:
    """`counts` are all, those that failed, and those that were skipped."""
    tests, failures, skipped = counts
    about = {
        "name": name, "tests": tests, "failures": failures, "errors": 0, "skipped": skipped,
        "time": f"{seconds:.3f}", "timestamp": when(run.started_at or run.due_at),
    }  # fmt: skip
    return _tag("testsuite", about, cases)


def _case(job: Job, run: Run, step: Step) -> str:
    verdict = ""
    if step.status == WORDS[State.SKIPPED]:
        verdict = _tag("skipped", {}, "")
    elif step.status not in _NOT_FAILED:
        verdict = _tag("failure", {"message": run.message or step.status, "type": step.status}, "")
    shown = _tag("system-out", {}, escape(_clean(step.log))) if step.log else ""
    return _tag(
        "testcase", {"name": step.name, "classname": job.name, "time": f"{step.seconds or 0:.3f}"}, verdict + shown
    )


# ── tests ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of an execution, as far as its result names them."""

    counts: dict[str, int]  # passed, failed, skipped
    seconds: float
    cases: list[tuple[str, str, float, str]]  # name, outcome, seconds, message; those that failed first


def tests_of(run: Run) -> Tests | None:
    """None where there were none. A result is what the work gave, and may be anything."""
    told = run.result.get("tests") if isinstance(run.result, dict) else None
    if not isinstance(told, dict):
        return None
    counts = {word: max(_number(told.get(word)), 0) for word in ("passed", "failed", "skipped")}
    failed = [(_name(one), "failed", 0.0, str(one.get("message", ""))) for one in _listed(told, "failures")]
    others = [
        (_name(one), str(one.get("outcome")), float(_number(one.get("seconds"))), "") for one in _listed(told, "cases")
    ]
    tests = Tests(counts, float(_number(told.get("seconds"))), failed + others)
    return tests if sum(counts.values()) else None


def _number(value: Any) -> Any:
    return value if type(value) in (int, float) else 0


def _listed(told: Json, name: str) -> list[Json]:
    found = told.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _name(one: Json) -> str:
    return str(one.get("name", ""))


def _tests_suite(job: Job, run: Run, tests: Tests) -> str:
    """Return those that the result does not name are one case for each way they ended: none that failed is left out."""
    cases = [_test(*case) for case in tests.cases]
    for outcome, count in tests.counts.items():
        if left := count - sum(case[1] == outcome for case in tests.cases):
            cases.append(_test(f"{left} more that are not named here", outcome, 0.0, f"{left} more {outcome}"))
    counts = tests.counts
    return _suite(
        f"{job.name} tests", run, (int(sum(counts.values())), int(counts["failed"]), int(counts["skipped"])),
        tests.seconds, "".join(cases),
    )  # fmt: skip


def _test(name: str, outcome: str, seconds: float, message: str) -> str:
    classname, _, plain = name.rpartition(".")
    verdict = _tag("failure", {"message": message}, "") if outcome == "failed" else ""
    verdict = _tag("skipped", {}, "") if outcome == "skipped" else verdict
    return _tag("testcase", {"name": plain or name, "classname": classname, "time": f"{seconds:.3f}"}, verdict)


# ── XML ────────────────────────────────────────────────────────────────────────────────────────────


def _tag(name: str, attributes: Json, inside: str) -> str:
    given = "".join(f" {key}={quoteattr(_clean(str(value)))}" for key, value in attributes.items())
    return f"<{name}{given}>{inside}</{name}>"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
