"""What a shell offers when Tab is pressed, asked by a real bash with the script that `horae completion` prints."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import JOB, NODE, Fake, page, serving

PATIENCE = 180.0
BASH = shutil.which("bash")
# As bash calls a function that completes: words, which one is meant, and the command.
ASK = """
source <(echo "$SCRIPT")
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_horae_completion horae
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        evil = "x$(touch owned)"
        jobs = [{**JOB, "key": "nightly"}, {**JOB, "id": 8, "name": "weekly report"}, {**JOB, "id": 9, "name": evil}]
        fake.get("/v1/jobs", page(*jobs, {**JOB, "id": 10, "name": "two\nlines"}))
        fake.get("/v1/nodes", page(NODE, {**NODE, "name": "n2"}))
        yield fake


@functools.cache
def script(shell: str) -> str:
    return CliRunner().invoke(app, ["completion", shell]).stdout


def offered(server: str, *words: str) -> list[str]:
    """Return what bash offers in the place of the last of these words."""
    assert BASH is not None
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [BASH, "--norc", "-c", ASK, "bash", "horae", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PATH": place, "HORAE_SERVER": server, "SCRIPT": script("bash")},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line]


pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


def test_commands_and_options_are_completed(api: Fake) -> None:
    assert offered(api.url, "ru") == ["runs", "run"]
    assert offered(api.url, "runs", "sh") == ["show"]
    assert offered(api.url, "runs", "--si") == ["--since"]
    assert offered(api.url, "completion", "") == ["bash", "zsh", "fish"]
    assert api.requests == []


def test_jobs_and_nodes_are_completed_as_the_server_knows_them(api: Fake) -> None:
    assert offered(api.url, "pause", "ni") == ["nightly"]
    assert offered(api.url, "logs", "back") == ["backup"]
    assert offered(api.url, "runs", "--node", "n") == ["n1", "n2"]
    assert offered("http://127.0.0.1:1", "--server", api.url, "cancel", "nig") == ["nightly"]


def test_runs_triggers_and_queues_are_completed_too(api: Fake) -> None:
    api.get("/v1/queues", page({"name": "nightly"}, {"name": "reports"}))
    assert offered(api.url, "runs", "show", "") == ["42"]
    assert offered(api.url, "approve", "4") == ["42"]
    assert offered(api.url, "triggers", "enable", "") == ["9"]
    assert offered(api.url, "queues", "pause", "r") == ["reports"]
    assert offered(api.url, "cancel", "4") == ["42"]


def test_names_are_those_of_the_organisation_that_is_meant(api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(api.url, "--org", "acme", "pause", "ni") == ["nightly"]
    monkeypatch.setenv("HORAE_ORG", "other")
    assert offered(api.url, "pause", "ni") == ["nightly"]
    said = [one.headers.get("horae-organisation") for one in api.requests]
    assert (said[0], said[-1]) == ("acme", "other")


def test_names_that_others_wrote_reach_no_command_line_unquoted(api: Fake) -> None:
    assert offered(api.url, "pause", "week") == ["'weekly report'"]
    assert offered(api.url, "pause", "x") == ["'x$(touch owned)'"]
    assert offered(api.url, "pause", "two") == []


def test_without_a_server_the_shell_is_offered_nothing_and_told_nothing() -> None:
    assert offered("http://127.0.0.1:1", "pause", "ni") == []
    assert offered("not a server", "pause", "ni") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    assert f"_HORAE_COMPLETE={shell}_complete" in script(shell)
    answer = json.loads(CliRunner().invoke(app, ["completion", shell, "--json"]).stdout)
    assert answer["script"].strip() == script(shell).strip()


def test_another_shell_is_refused_with_those_that_there_are() -> None:
    result = CliRunner().invoke(app, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "SHELL must be one of bash, zsh, fish; got 'tcsh'" in result.stderr
