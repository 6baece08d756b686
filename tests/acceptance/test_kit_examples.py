"""The examples of the test kit and of programs with a Horae within, run as their pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import horae

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(Path(horae.__file__).parents[1])}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("page", "example"), [("test-your-jobs", "test_jobs"), ("embed", "embedded")])
def test_a_page_shows_its_example_word_for_word(page: str, example: str) -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/howto/{page}.md").read_text(), re.DOTALL)
    assert (ROOT / f"examples/{example}.py").read_text() in shown


def test_the_tests_of_the_example_pass() -> None:
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:horae",
        "-p",
        "horae.testing.plugin",
    ]
    done = subprocess.run(
        [*argv, "-c", os.devnull, "--rootdir", str(ROOT / "examples"), str(ROOT / "examples/test_jobs.py")],
        env={**os.environ, **ENVIRONMENT}, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_program_with_a_horae_within_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/embedded.py")], env={**os.environ, **ENVIRONMENT}, cwd=tmp_path,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout == "run 1 succeeded: greeted Ada; next at 02:00 UTC\n", done.stderr
