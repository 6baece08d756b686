"""Logs as reports: sections belong to steps, verdicts come from results, and nothing a step prints breaks the form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from horae.contracts.ci import reports
from horae.core.model import Run, State
from horae.testing import START, make_job

RUN = Run(7, 1, None, START, State.SUCCEEDED, "", 1, 1, 5, "shell", START)
STEPS = {"steps": [{"name": "a", "run": "x"}, {"name": "b", "run": "y"}, {"name": "c", "run": "z"}]}
JOB = make_job(kind="shell", spec=STEPS, name="build")


def ended(*codes: int, names: str = "abc") -> dict[str, Any]:
    return {"steps": [{"name": n, "seconds": 0.5, "exit_code": code} for n, code in zip(names, codes, strict=False)]}


def told(run: Run, text: str, job: Any = JOB) -> list[tuple[str, str, str]]:
    return [(step.name, step.status, step.log) for step in reports.steps_of(job, run, text)]


def test_each_step_has_its_section_and_its_verdict() -> None:
    text = "── step 1/3 a ──\none\n── step 2/3 b ──\ntwo\n── step 2 'b' ended with exit code 1 after 0.50 s ──\n"
    run = replace(RUN, state=State.FAILED, result=ended(0, 1))
    assert told(run, text) == [
        ("a", "SUCCEEDED", "one\n"),
        ("b", "FAILED", "two\n── step 2 'b' ended with exit code 1 after 0.50 s ──\n"),
        ("c", "SKIPPED", ""),
    ]


def test_while_it_runs_the_last_section_is_the_one_that_runs() -> None:
    run = replace(RUN, state=State.RUNNING)
    assert told(run, "── step 1/3 a ──\n── step 2/3 b ──\ntw") == [
        ("a", "SUCCEEDED", ""),
        ("b", "RUNNING", "tw"),
        ("c", "SCHEDULED", ""),
    ]


def test_a_step_cannot_print_its_way_into_another() -> None:
    text = (
        "── step 1/3 a ──\n── step 3/3 c ──\n── step 1/3 a ──\n── checkout x ──\n── step 2/3 b ──\n── step 3/3 c ──\n"
    )
    sections = reports.split_log(text)
    assert sections == ["── step 3/3 c ──\n── step 1/3 a ──\n── checkout x ──\n", "", ""]


def test_a_checkout_is_a_section_of_its_own() -> None:
    job = make_job(kind="shell", spec={"checkout": {"url": "u"}, "script": "run.sh"})
    text = "── checkout https://example.org/x main ──\ncloning\n── script run.sh ──\nran\n"
    run = replace(RUN, result=ended(0, 0, names=["checkout", "run.sh"]))  # type: ignore[arg-type]
    assert told(run, text, job) == [("checkout", "SUCCEEDED", "cloning\n"), ("run.sh", "SUCCEEDED", "ran\n")]


def test_what_could_not_even_begin_is_the_one_that_failed() -> None:
    job = make_job(kind="shell", spec={"checkout": {"url": "u"}, "script": "none.sh"})
    run = replace(RUN, state=State.FAILED, message="not there", result=ended(0, names=["checkout"]))  # type: ignore[arg-type]
    assert [step[:2] for step in told(run, "── checkout u ──\n", job)] == [
        ("checkout", "SUCCEEDED"),
        ("none.sh", "FAILED"),
    ]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("result", [None, 5, [], {}, {"steps": 5}, {"steps": [5]}, {"steps": [{"name": "x"}]}])
def test_any_run_of_any_kind_has_a_report_in_every_form(state: State, result: Any) -> None:
    for job in (JOB, make_job()):
        run = replace(RUN, state=state, result=result)
        assert reports.as_json(job, run, "text")["steps"]
        assert ElementTree.fromstring(reports.as_junit(job, run, "text")).find("testsuite") is not None


def test_junit_counts_and_escapes() -> None:
    nasty = "]]> <b>&amp; \x00\x1b[31m\ufffe \"'"
    job = make_job(kind="shell", spec={"steps": [{"name": nasty, "run": "x"}, {"name": "b", "run": "y"}]}, name=nasty)
    run = replace(RUN, state=State.TIMED_OUT, message=nasty, result=ended(-9, names=[nasty]))  # type: ignore[arg-type]
    suite = ElementTree.fromstring(reports.as_junit(job, run, f"── step 1/2 {nasty} ──\n{nasty}\n")).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped", "time", "timestamp")} == {
        "tests": "2", "failures": "1", "skipped": "1", "time": "0.500", "timestamp": "2027-01-15T08:00:00Z",
    }  # fmt: skip
    first = suite.find("testcase")
    assert first is not None
    assert first.get("name") == "]]> <b>&amp; \ufffd\ufffd[31m\ufffd \"'"
    failure, shown = first.find("failure"), first.find("system-out")
    assert failure is not None
    assert failure.get("type") == "TIMEOUT"
    assert shown is not None
    assert (shown.text or "").startswith("]]> <b>&amp; ")


TESTS = {
    "passed": 2, "failed": 1, "skipped": 1, "seconds": 1.5, "failures": [{"name": "m.bad", "message": "1 != 2"}],
    "cases": [
        {"name": "m.good", "outcome": "passed", "seconds": 0.5},
        {"name": "m.fine", "outcome": "passed", "seconds": 0.1},
        {"name": "later", "outcome": "skipped", "seconds": 0.0},
    ],
}  # fmt: skip


def suites(run: Run) -> list[dict[str, Any]]:
    """Of a JUnit report: names, counts, and the cases with how they ended."""
    found = ElementTree.fromstring(reports.as_junit(JOB, run, "── step 1/3 a ──\n"))
    return [
        {
            "name": suite.get("name"),
            "counts": [int(suite.get(name, "")) for name in ("tests", "failures", "skipped")],
            "cases": [(case.get("name"), *(it.tag for it in case if it.tag != "system-out")) for case in suite],
        }
        for suite in found
    ]


def test_junit_has_the_tests_where_there_are_reports() -> None:
    run = replace(RUN, result={**ended(0, 0, 0), "tests": {**TESTS, "failed": 0, "failures": []}})
    assert suites(run) == [
        {"name": "build tests", "counts": [3, 0, 1], "cases": [("good",), ("fine",), ("later", "skipped")]}
    ]


def test_a_failed_test_and_a_failed_step_both_show() -> None:
    run = replace(RUN, state=State.FAILED, result={**ended(0, 1), "tests": TESTS})
    tests, failed = suites(run)
    assert tests["counts"] == [4, 1, 1]
    assert tests["cases"][0] == ("bad", "failure")
    assert failed == {"name": "build", "counts": [1, 1, 0], "cases": [("b", "failure")]}


def test_a_failed_test_shows_also_where_every_step_went_well() -> None:
    [tests] = suites(replace(RUN, result={**ended(0, 0, 0), "tests": TESTS}))
    assert tests["counts"][1] == 1
    assert ("bad", "failure") in tests["cases"]


def test_tests_that_are_not_named_are_counted_and_those_that_failed_are_a_failure() -> None:
    [tests] = suites(replace(RUN, result={**ended(0, 0, 0), "tests": {**TESTS, "failed": 40, "passed": 900}}))
    assert tests["counts"] == [941, 40, 1]
    assert ("39 more that are not named here", "failure") in tests["cases"]
    assert ("898 more that are not named here",) in tests["cases"]


@pytest.mark.parametrize("tests", [None, {}, 5, {"passed": 0, "failed": 0, "skipped": 0}, {"passed": "many"}])
def test_without_tests_the_steps_are_reported(tests: Any) -> None:
    [steps] = suites(replace(RUN, result={**ended(0, 0, 0), "tests": tests}))
    assert [case[0] for case in steps["cases"]] == ["a", "b", "c"]


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.CANCELLED])
@pytest.mark.parametrize("extra", [{}, {"tests": {**TESTS, "failed": 0, "failures": []}}])
def test_an_execution_that_failed_after_its_steps_is_a_failure(state: State, extra: dict[str, Any]) -> None:
    found = suites(replace(RUN, state=state, result={**ended(0, 0, 0), **extra}))
    assert sum(suite["counts"][1] for suite in found) == 1
    assert found[-1]["cases"][-1] == ("build", "failure")
