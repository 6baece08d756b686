"""What is told flaky, broken or red, on small trees of tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.verdict import alone, plain

ROOT = Path(__file__).parents[1]
DEADLINE = 300.0
FLAKY = """
from pathlib import Path

def test_flaky_{0}():
    seen = Path(__file__).with_suffix(".{0}")
    print("the first try says so")
    tries = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (tries + 1))
    assert tries >= {1}
"""
GOOD = "def test_good():\n    pass\n"
BROKEN = "def test_broken():\n    assert 1 == 2\n"
HANGS_ONCE = """
import time
from pathlib import Path

def test_hangs_once():
    seen = Path(__file__).with_suffix(".seen")
    first, _ = not seen.exists(), seen.touch()
    while first: time.sleep(0.1)
"""
GROUPED = """
import pytest

@pytest.mark.xdist_group("g")
@pytest.mark.parametrize("word", ["a b", "c@d", "x/y::z"])
def test_grouped(word, tmp_path_factory):
    from pathlib import Path
    seen = Path(__file__).with_suffix(f".{ord(word[0])}")
    first, _ = not seen.exists(), seen.touch()
    assert not first
"""


def judge(tmp_path: Path, *texts: str, **environ: str) -> tuple[int, str]:
    """Return the exit code and what was said."""
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tree").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "tree" / f"test_{number}.py").write_text(text)
    ours = ("PYTEST", "FLAKY_LIST", "VERDICT")  # of the run that this test is part of
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **environ}
    argv = [sys.executable, "-m", "tests.verdict", "-p", "xdist", "-n", "2", "--dist", "loadgroup", "tree"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_passes_alone_is_flaky_and_green(tmp_path: Path) -> None:
    code, said = judge(tmp_path, FLAKY.format("one", 1), GOOD)
    assert code == 0, said
    assert re.search(r"^=* ?1 failed, 1 passed in ", said, re.M), said  # the closing line of pytest
    assert re.search(r"^FLAKY \S*test_0.py::test_flaky_one: ", said, re.M), said
    shown = said[said.index("\nFLAKY ") :]
    assert "assert 0 >= 1" in shown
    assert "the first try says so" in shown
    assert said.rstrip().endswith("flaky: 1, broken: 0")


def test_a_test_that_passes_at_the_third_try_is_flaky_and_one_that_never_does_is_broken(tmp_path: Path) -> None:
    code, said = judge(tmp_path, FLAKY.format("two", 2), FLAKY.format("three", 3))
    assert code == 1
    assert re.search(r"^FLAKY \S*test_0.py::test_flaky_two: ", said, re.M), said
    assert re.search(r"^BROKEN \S*test_1.py::test_flaky_three$", said, re.M), said


def test_a_test_that_fails_always_is_broken_and_red(tmp_path: Path) -> None:
    code, said = judge(tmp_path, FLAKY.format("one", 1), BROKEN, GOOD)
    assert code == 1
    assert re.search(r"^BROKEN \S*test_1.py::test_broken$", said, re.M), said
    assert said.rstrip().endswith("flaky: 1, broken: 1")


def test_more_than_three_flaky_ones_are_red_with_those_of_runs_before(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("a\nb\nc\n")
    code, said = judge(tmp_path, FLAKY.format("one", 1), FLAKY_LIST=str(listed))
    assert (code, said.rstrip().endswith("flaky: 4, broken: 0")) == (1, True), said
    assert len(listed.read_text().splitlines()) == 4


def test_tests_of_a_group_with_odd_names_are_found_again(tmp_path: Path) -> None:
    code, said = judge(tmp_path, GROUPED)
    assert code == 0, said
    assert said.rstrip().endswith("flaky: 3, broken: 0")


def test_a_file_that_cannot_be_read_is_red_and_nothing_is_run_again(tmp_path: Path) -> None:
    code, said = judge(tmp_path, "import nowhere_to_be_found\n", GOOD)
    assert code != 0
    assert "nowhere_to_be_found" in said
    assert "RED: " in said
    assert "once more" not in said


def test_a_test_that_takes_its_worker_with_it_is_run_again(tmp_path: Path) -> None:
    code, said = judge(tmp_path, "import os\ndef test_crash():\n    os._exit(3)\n", GOOD)
    assert code == 1
    assert re.search(r"^BROKEN \S*test_0.py::test_crash$", said, re.M), said


def test_a_test_that_hangs_is_ended_and_run_again(tmp_path: Path) -> None:
    limit = "-p pytest_timeout --timeout=3 --timeout-method=thread -o faulthandler_timeout=1"
    code, said = judge(tmp_path, HANGS_ONCE, GOOD, PYTEST_ADDOPTS=limit)
    assert code == 0, said
    assert "in test_hangs_once" in said  # where it was
    assert "\nflaky: 1, broken: 0\n" in said


def test_all_that_pass_are_green_without_a_word(tmp_path: Path) -> None:
    code, said = judge(tmp_path, GOOD)
    assert code == 0, said
    assert not re.search("FLAKY|BROKEN|RED|flaky", said)


def test_the_places_to_look_in_are_left_out_of_the_second_try(tmp_path: Path) -> None:
    given = ["-n", "2", "--ignore=tests/engines", "-m", "not slow", str(tmp_path)]
    assert alone(given) == ["-n", "2", "--ignore=tests/engines", "-m", "not slow", "-n", "0"]


def test_the_group_is_no_part_of_a_name() -> None:
    assert plain("tests/a.py::test_b[x@y]@data") == "tests/a.py::test_b[x@y]"
    assert plain("tests/a.py::test_b[x@y]") == "tests/a.py::test_b[x@y]"
    assert plain("tests/a.py::test_b@openapi") == "tests/a.py::test_b"
