"""The log of an execution as a report: JSON, or JUnit XML with one test case per step.

The log of a shell job has a headed section for each of its steps (executors/shell). A section begins only where the
next one is due, so that what a step prints cannot pass for the beginning of an earlier or a later one; and whether a
step went well is told by the result that the agent gave, not by anything in the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from horae.core.model import Job, Json, Run, State
from horae.web.facades.ci.rendering import WORDS, when

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
    """The sections of a log, without their heads; what stands before the first head is a section of its own."""
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
    """The steps of a shell job's result. Other kinds give whatever they like."""
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
    failures = sum(step.status not in _NOT_FAILED for step in steps)
    skipped = sum(step.status == WORDS[State.SKIPPED] for step in steps)
    seconds = sum(step.seconds or 0 for step in steps)
    suite = _tag(
        "testsuite",
        {
            "name": job.name, "tests": len(steps), "failures": failures, "errors": 0,
            "skipped": skipped, "time": f"{seconds:.3f}", "timestamp": when(run.started_at or run.due_at),
        },
        "".join(_case(job, run, step) for step in steps),
    )  # fmt: skip
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_tag("testsuites", {}, suite)}\n'


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


def _tag(name: str, attributes: Json, inside: str) -> str:
    given = "".join(f" {key}={quoteattr(_clean(str(value)))}" for key, value in attributes.items())
    return f"<{name}{given}>{inside}</{name}>"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
