"""Globs, fields and test counts of builds."""

from __future__ import annotations

import time
from typing import Any

import pytest

from horae.core.work.builds import MAX_FAILURES, Globs, GoTests, count_test, fill_key, no_tests
from horae.core.work.specs import parse_job
from horae.errors import Invalid


def spec(**fields: Any) -> Any:
    return parse_job({"name": "a", "steps": [{"run": "true"}], **fields}).spec


@pytest.mark.parametrize(
    ("glob", "path", "is_match"),
    [
        ("dist/*.whl", "dist/a.whl", True),
        ("dist/*.whl", "dist/sub/a.whl", False),
        ("dist/*.whl", "dist/a.whl.asc", False),
        ("**/*.log", "a.log", True),
        ("**/*.log", "x/y/a.log", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "x/a/b", False),
        ("**/x/**/y", "x/a/x/b/y", True),
        ("out", "out/deep/file", True),
        ("out", "output", False),
        ("**", "any/thing", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*a*b", "xaxbxb", True),
        ("*a*b", "xaxbx", False),
        ("[a]", "a", False),
        ("[a]", "[a]", True),
    ],
)
def test_globs_match_names_and_what_lies_below(glob: str, path: str, is_match: bool) -> None:
    assert Globs([glob]).match(path) is is_match


def test_a_hostile_glob_takes_no_longer_than_its_length_allows() -> None:
    begun = time.process_time()
    assert not Globs(["*a" * 500 + "b"]).match("a" * 255)
    assert not Globs(["/".join(["**", "a"] * 250 + ["b"])]).match("/".join(["a"] * 1000))
    assert time.process_time() - begun < 5  # with a regular expression: years


def test_the_fields_of_a_build_are_kept_in_canonical_form() -> None:
    kept = spec(
        artifacts=["./dist/", "a.txt"], reports=["r.xml"], cache=[{"key": "go-{hash:go.sum}", "paths": [".go"]}]
    )
    assert kept["artifacts"] == ["dist", "a.txt"]
    assert kept["reports"] == ["r.xml"]
    assert kept["cache"] == [{"key": "go-{hash:go.sum}", "paths": [".go"]}]
    assert "artifacts" not in spec(artifacts=[])


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"artifacts": ["/etc/passwd"]}, "artifacts[0]"),
        ({"artifacts": ["a", "../b"]}, "artifacts[1]"),
        ({"artifacts": ["a/../../b"]}, "artifacts[0]"),
        ({"artifacts": ["a//b"]}, "artifacts[0]"),
        ({"artifacts": ["a\0b"]}, "artifacts[0]"),
        ({"artifacts": [7]}, "artifacts[0]"),
        ({"artifacts": ["x"] * 101}, "artifacts"),
        ({"reports": "r.xml"}, "reports"),
        ({"cache": [{"key": "k", "paths": [".."]}]}, "cache[0].paths[0]"),
        ({"cache": [{"key": "k", "paths": []}]}, "cache[0].paths"),
        ({"cache": [{"paths": ["a"]}]}, "cache[0].key"),
        ({"cache": [{"key": "{hash:/etc/shadow}", "paths": ["a"]}]}, "cache[0].key"),
        ({"cache": [{"key": "{hash:../x}", "paths": ["a"]}]}, "cache[0].key"),
        ({"cache": ["k"]}, "cache[0]"),
    ],
)
def test_what_leads_out_of_the_workspace_is_refused_at_its_path(fields: Any, path: str) -> None:
    with pytest.raises(Invalid) as refused:
        spec(**fields)
    assert path in [problem.path for problem in refused.value.listed()]


def test_a_key_holds_the_hashes_of_its_files() -> None:
    assert fill_key("go-{hash:go.sum}-{hash:a/b}-{x}", lambda name: f"<{name}>") == "go-<go.sum>-<a/b>-{x}"


def test_go_test_results_are_counted_however_they_are_cut() -> None:
    said = (
        b"=== RUN   TestA\n--- PASS: TestA (0.25s)\n    --- PASS: TestA/sub (0.20s)\n=== RUN TestB\n"
        b"    b_test.go:9: no\n--- FAIL: TestB (0.50s)\n--- SKIP: TestC (0.00s)\nFAIL\n--- PASS: spoof\n"
    )
    for size in (1, 7, len(said)):
        tests = no_tests()
        go = GoTests(tests)
        for start in range(0, len(said), size):
            go.watch(said[start : start + size])
        assert tests == {
            "passed": 2, "failed": 1, "skipped": 1, "seconds": 0.75, "failures": [{"name": "TestB", "message": ""}],
            "cases": [
                {"name": "TestA", "outcome": "passed", "seconds": 0.25},
                {"name": "TestA/sub", "outcome": "passed", "seconds": 0.0},
                {"name": "TestC", "outcome": "skipped", "seconds": 0.0},
            ],
        }  # fmt: skip


def test_a_line_without_an_end_is_not_held() -> None:
    go = GoTests(no_tests())
    for _ in range(1000):
        go.watch(b"x" * 65536)
    assert len(go._rest) <= GoTests.MAX_LINE


def test_counts_are_bounded_whatever_a_report_claims() -> None:
    tests = no_tests()
    for seconds in (float("inf"), float("nan"), -5.0, 1e308, 1e308):
        count_test(tests, "failed", "n" * 10_000, seconds, "\ud800\0 a\nb" * 10_000)
    for number in range(100):
        count_test(tests, "failed", str(number))
    assert tests["failed"] == 105
    assert tests["seconds"] == 1e9
    assert len(tests["failures"]) == MAX_FAILURES
    assert max(len(one["message"]) for one in tests["failures"]) <= 500
    assert "\n" not in tests["failures"][0]["message"]
