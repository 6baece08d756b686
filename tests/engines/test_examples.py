"""The files in examples/ that need engines, as their pages say: `horae submit examples/<file>.yaml`, and it works.

What a page makes under /tmp is made in a directory of the test instead.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ..acceptance.server import Server
from .conftest import need_packages

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0  # seconds


@pytest.fixture
def server(tmp_path: Path, need: Callable[..., None]) -> Iterator[Server]:
    need("git", "bwrap", "java", "mvn")
    settings = tmp_path / "settings.xml"
    mirror = "<mirror><id>debian</id><mirrorOf>*</mirrorOf><url>file:///usr/share/maven-repo</url></mirror>"
    settings.write_text(f"<settings><mirrors>{mirror}</mirrors></settings>")
    running = Server(tmp_path, "--sandbox", "auto", "--maven-settings", str(settings))
    yield running.start()
    running.stop()


def submitted(server: Server, name: str, place: Path) -> tuple[str, str]:
    """Return the state in which the run of an example ends, and its log."""
    text = (ROOT / "examples" / name).read_text().replace("/tmp/horae-", f"{place}/horae-")
    (place / name).write_text(text)
    server.cli("submit", str(place / name))
    (run,) = server.wait_until(lambda: server.every("/v1/runs"), "the run")
    found = server.wait_until(lambda: ended(server, run["id"]), "the run to end", PATIENCE)
    return found, server.http.get(f"/v1/runs/{run['id']}/log").text


def ended(server: Server, run_id: int) -> str:
    state = server.get(f"/v1/runs/{run_id}")["state"]
    return "" if state in ("queued", "running", "blocked") else state


@pytest.mark.parametrize("language", ["java", "python"])
def test_the_project_that_a_page_makes_runs(server: Server, tmp_path: Path, language: str) -> None:
    page = (ROOT / "docs" / "howto" / f"{language}-projects.md").read_text()
    (commands,) = re.findall(r"```sh\n(mkdir .*?)```", page, re.DOTALL)
    commands = commands.replace("/tmp/horae-", f"{tmp_path}/horae-")
    subprocess.run(["/bin/sh", "-e", "-c", commands], check=True, cwd=tmp_path)

    state, log = submitted(server, f"{language}-project.yaml", tmp_path)

    assert state == "succeeded", log
    assert "hello Ann of Green Gables" in log


def test_the_job_behind_walls_finds_them(server: Server, tmp_path: Path) -> None:
    state, log = submitted(server, "sandboxed.yaml", tmp_path)
    assert state == "succeeded", log
    assert "the system is read-only\nmy own directory is not\n" in log


def test_the_secret_is_given_and_hidden(server: Server, tmp_path: Path) -> None:
    server.cli("secret", "set", "GREETING", input="correct horse")
    state, log = submitted(server, "secrets.yaml", tmp_path)
    assert state == "succeeded", log
    assert "correct horse" not in log
    assert "\n13\n" in log


def test_the_sync_fills_a_file_of_the_lake(server: Server, tmp_path: Path) -> None:
    """The service of the example is at another port here."""
    need_packages("dlt")
    handler = partial(SimpleHTTPRequestHandler, directory=str(ROOT / "examples" / "data"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        text = (ROOT / "examples" / "sync.yaml").read_text().replace(":8099", f":{service.server_port}")
        (tmp_path / "sync.yaml").write_text(text)
        commands = [line.split("horae ", 1)[1] for line in text.splitlines() if line.startswith("#   horae ")]
        said = [server.cli(*shlex.split(command.replace("examples/", ""))).stdout for command in commands]
        service.shutdown()
    assert "succeeded" in said[-1], said
    assert "examples/stations" in said[-1]
    (made,) = (tmp_path / "data" / "lake" / "examples" / "stations").iterdir()
    assert made.suffix == ".parquet"
