"""Python projects inside bubblewrap: what is kept is seen, and cannot be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..acceptance.server import Server
from ..repositories import commit, make_repository
from .test_java_projects import run, steps, workspaces

MAIN = """
import os, sys
try:
    open(os.path.join(sys.prefix, "mark"), "w")
except OSError as error:
    print("kept:", error.strerror)
print("in", sys.prefix, "as", sys.argv[1:])
sys.exit(3)
"""


@pytest.fixture
def server(tmp_path: Path, need: Callable[..., None]) -> Iterator[Server]:
    need("git", "bwrap")
    running = Server(tmp_path, "--heartbeat-interval", "0.5", "--sandbox", "bubblewrap")
    yield running.start()
    running.stop()


def test_an_environment_is_made_once_and_programs_only_read_it(server: Server, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "a.git", {"main.py": MAIN, "requirements.txt": "# none\n"})
    job = {
        "name": "project", "kind": "git_python", "run_once": True, "source": {"url": f"file://{repository}"},
        "main_file": "main.py", "requirements": "requirements.txt", "args": "'a b'",
    }  # fmt: skip

    first, first_log = run(server, **job)
    commit(repository, {"more.py": ""})
    second, second_log = run(server, **job)

    assert (first["exit_code"], second["exit_code"]) == (3, 3), first_log + second_log
    assert steps(first) == ["checkout", "environment", "run"]
    (place,) = (server.directory / "data" / "agent" / "environments").iterdir()
    assert f"in {place / 'venv'} as ['a b']" in first_log
    assert "kept: Read-only file system" in first_log
    assert "the environment is there already" in second_log
    assert workspaces(server) == []
