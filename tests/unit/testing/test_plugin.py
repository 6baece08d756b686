"""The pytest plugin, in a pytest of its own as users have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"

PLAIN = """
from datetime import datetime, UTC
import pytest
from horae import handler

@handler
async def report(context):
    return context.scheduled_for

def test_plain(horae):
    horae.submit({"name": "report", "handler": report, "schedule": "0 2 * * *"})
    horae.pass_time(days=30)
    assert len(horae.runs("report", state="succeeded")) == 30

@pytest.mark.horae(start="2027-03-27T12:00:00Z")
def test_marked(horae):
    assert horae.now == datetime(2027, 3, 27, 12, tzinfo=UTC)
"""

AWAITED = """
from horae import handler

@handler
async def report(context):
    return 7

async def test_awaited(horae):
    await horae.submit({"name": "report", "handler": report, "schedule": "0 2 * * *"})
    await horae.pass_time(days=2)
    assert [run.result for run in await horae.runs()] == [7, 7]
"""

SERVED = """
import pathlib
import urllib.request

def test_served(horae_server):
    with urllib.request.urlopen(horae_server.url + "/healthz") as answer:
        assert answer.status == 200
    pathlib.Path("pid").write_text(str(horae_server._process.pid))
"""


def run_pytest(directory: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_users.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    # Whether this environment knows the plugin by its entry point or not, it is loaded once.
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:horae", "-p", "horae.testing.plugin", "--strict-markers"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [*argv, "-p", "no:cacheprovider", "-p", "no:randomly", *flags], cwd=directory, env=environment,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_plain_test_has_a_world_without_any_plugin_for_coroutines(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, PLAIN, "-p", "no:asyncio", "-p", "no:anyio")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_test_that_is_a_coroutine_awaits_its_world(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, AWAITED, "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_server_is_up_for_a_test_and_gone_after_it(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, SERVED, "-p", "no:asyncio", "-p", "no:anyio")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_plugin_loads_nothing_that_a_test_did_not_ask_for() -> None:
    code = (
        "import sys, pytest, horae; before = set(sys.modules); import horae.testing.plugin;"
        "print(sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "['horae.testing', 'horae.testing.plugin']"
