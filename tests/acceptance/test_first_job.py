"""A new user's first job: a script of their own, where it lies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .server import Server

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "server").mkdir()
    running = Server(tmp_path / "server", "--sandbox", "auto").start()
    yield running
    running.stop()


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def run_of(server: Server, name: str) -> tuple[dict[str, Any], str]:
    """Return the run of a job, by hand, and its log."""
    server.cli("run", name, "--wait", check=False)
    run = server.get("/v1/runs", limit=1)["items"][0]
    return run, server.http.get(f"/v1/runs/{run['id']}/log").text


def test_the_job_of_the_readme_runs_a_script_that_lies_beside_its_file(server: Server, tmp_path: Path):
    (job,) = re.findall(r"```yaml\n(name: nightly backup.*?)```", README.read_text(), re.DOTALL)
    mine = tmp_path / "mine"
    mine.mkdir()
    write(mine / "backup.yaml", job)
    write(mine / "backup.sh", '#!/bin/sh\necho "backing up $PWD for $HOME"\necho done > saved\n', 0o755)
    server.cli("submit", str(mine / "backup.yaml"))
    server.cli("submit", str(mine / "backup.yaml"))

    run, log = run_of(server, "nightly-backup")

    assert (run["state"], run["result"]["walls"]) == ("succeeded", "plain"), log
    assert f"backing up {mine} for {Path.home()}" in log
    assert sorted(path.name for path in mine.iterdir()) == ["backup.sh", "backup.yaml", "saved"]
    assert len(server.get("/v1/jobs")["items"]) == 1


def test_work_that_names_no_directory_begins_where_the_server_was_started(server: Server):
    server.submit({"name": "here", "steps": [{"run": "pwd"}]})
    _, log = run_of(server, "here")
    assert f"\n{server.directory}\n" in log


def test_a_directory_that_is_not_there_is_not_made(server: Server, tmp_path: Path):
    server.submit({"name": "lost", "working_directory": str(tmp_path / "gone"), "steps": [{"run": "pwd"}]})
    run, _ = run_of(server, "lost")
    assert "is not an existing directory" in run["message"]
    assert not (tmp_path / "gone").exists()


def test_a_server_says_at_once_which_walls_are_up(server: Server):
    assert "your own steps run as you, on this machine" in server.log()
    assert "your own steps run as you" in server.http.get("/readyz").json()["checks"]["walls"]
