"""Runs pytest, and tells flaky from broken: `python -m tests.verdict` with the arguments of pytest.

What fails is run again, at most twice, each test alone and without workers; so is one that hung until its time was up,
or that took its worker with it. What passes then is printed as FLAKY with its first output; what fails three times is
broken. Broken ones are red, and so are more than three flaky ones. When a file could not be collected or pytest itself
ended badly, nothing is run again: that is red.

`FLAKY_LIST` may name a file that gathers the flaky ones of several runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.leash import end_with_make

MOST_FLAKY = 3
RERUNS = 2  # of one test: a machine that was slow for the first may be so for the second
MOST_RERUN = 20  # when more fail than that, it is no accident
RECORD = "VERDICT_RECORD"  # the file in which pytest writes down what failed


# ── inside pytest ──


class Recorder:
    """Writes down what failed, in the process that hears of all tests."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _write(self, kind: str, name: str, text: str) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps([kind, name, text]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            output = [f"--- {title} ---\n{text}" for title, text in report.sections]
            self._write("failed", report.nodeid, "\n".join([report.longreprtext, *output]))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("uncollected", report.nodeid, report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    if RECORD in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(os.environ[RECORD]))


# ── around pytest ──


def run(arguments: list[str], **more: str) -> tuple[int, dict[str, str], list[str]]:
    """Return what pytest exits with; the tests that failed, with their output; the files that could not be read."""
    with tempfile.TemporaryDirectory() as directory:
        record = Path(directory) / "record"
        record.touch()
        argv = [sys.executable, "-m", "pytest", "-p", "tests.verdict", *arguments]
        code = subprocess.run(argv, env={**os.environ, **more, RECORD: str(record)}, check=False).returncode
        lines: list[Any] = [json.loads(line) for line in record.read_text().splitlines()]
    failed: dict[str, str] = {}
    for kind, name, text in lines:
        if kind == "failed":
            failed[plain(name)] = failed.get(plain(name), "") + text
    return code, failed, [name for kind, name, _ in lines if kind == "uncollected"]


def plain(name: str) -> str:
    """Without the group that xdist appends."""
    return re.sub(r"@[^\]@/:]+$", "", name)


def alone(arguments: list[str]) -> list[str]:
    """Return the options without the places to look in and without workers. A path that belongs to an option is written
    behind `=`."""
    return [*(word for word in arguments if not Path(word).exists()), "-n", "0"]


def say(text: str) -> None:
    print(text, flush=True)


def judge(arguments: list[str]) -> int:
    code, failed, uncollected = run(arguments)
    if code != pytest.ExitCode.TESTS_FAILED or uncollected or not failed or len(failed) > MOST_RERUN:
        if code:
            files = ", ".join(uncollected) or "none"
            say(f"RED: pytest ended with {code}, {len(failed)} tests failed, files that could not be read: {files}")
        return code
    flaky = [name for name in failed if is_flaky(name, arguments)]
    broken = [name for name in failed if name not in flaky]
    for name in flaky:
        say(f"\nFLAKY {name}: it failed, and passed when it was run alone. What it said first:\n{failed[name]}")
    for name in broken:
        say(f"\nBROKEN {name}")
    count = remember(flaky)
    say(f"flaky: {count}, broken: {len(broken)}")
    return 1 if broken or count > MOST_FLAKY else 0


def is_flaky(name: str, arguments: list[str]) -> bool:
    return any(passes_alone(name, arguments) for _ in range(RERUNS))


def passes_alone(name: str, arguments: list[str]) -> bool:
    say(f"\nonce more, alone: {name}")
    return run([*alone(arguments), name], TESTS_UNTIL="inf")[0] == 0  # whether its time is over or not


def remember(flaky: list[str]) -> int:
    """Return how many there are, with those of runs before."""
    if "FLAKY_LIST" not in os.environ:
        return len(flaky)
    path = Path(os.environ["FLAKY_LIST"])
    with path.open("a") as file:
        file.writelines(f"{name}\n" for name in flaky)
    return len(path.read_text().splitlines())


if __name__ == "__main__":
    end_with_make()
    sys.exit(judge(sys.argv[1:]))
