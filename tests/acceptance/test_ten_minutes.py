"""What a new user of Python types: every command of the page, in its order, against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.acceptance.server import DEADLINE, Server, rest
from tests.contract.test_projects import wheel

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "python-in-ten-minutes.md"
MOST_COMMANDS = 15
TABULATE = """
def tabulate(rows, tablefmt):
    width = max(len(name) for name, _ in rows)
    return "\\n".join(f"{name:<{width}}  {price}" for name, price in rows)
"""

pytestmark = pytest.mark.slow


class Block(NamedTuple):
    language: str
    text: str


class Typed(NamedTuple):
    command: str
    shown: list[str]  # lines that follow it


def blocks() -> list[Block]:
    return [Block(*found) for found in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def typed(text: str) -> list[Typed]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [Typed(command, shown) for command, *shown in map(str.splitlines, parts)]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Not started; packages come from a directory, and nothing from elsewhere."""
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "tabulate-1.0-py3-none-any.whl").write_bytes(wheel("tabulate", TABULATE))
    for name, value in (("FIND_LINKS", str(tmp_path / "wheels")), ("NO_INDEX", "1")):
        monkeypatch.setenv(f"UV_{name}", value)
        monkeypatch.setenv(f"PIP_{name}", value)
    (tmp_path / "mine").mkdir()
    made = Server(tmp_path / "mine")
    yield made
    if made.process is not None:
        made.stop()


@pytest.fixture
def environment(tmp_path: Path, server: Server) -> dict[str, str]:
    """A terminal whose Python has what ours has, and takes what is installed for itself alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (packages / "ours.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"  # with what is installed there by .pth
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HORAE_", "PYTEST_", "COV_"))}
    path = os.pathsep.join([str(tmp_path / "venv" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "HORAE_SERVER": server.url}


def test_the_page_asks_for_no_more_than_fifteen_commands() -> None:
    of_setup = [line for block in blocks() if block.language == "sh" for line in block.text.splitlines()]
    of_work = [each.command for block in blocks() if block.language == "console" for each in typed(block.text)]
    assert 0 < len(of_setup + of_work) <= MOST_COMMANDS
    assert of_work


def test_what_the_page_says_to_type_does_what_it_shows(server: Server, environment: dict[str, str]) -> None:
    def type_in(command: str) -> str:
        if command == "horae up":
            server.start()
            return ""
        done = subprocess.run(
            ["bash", "-c", command], cwd=server.directory, env=environment, capture_output=True, text=True,
            timeout=DEADLINE, check=False,
        )  # fmt: skip
        if command.startswith("horae submit"):  # whoever reads on has given it the time to look at the handler
            server.wait_until(lambda: server.http.get("/v1/jobs/1/data-schema").json()["schema"], "the types")
        return done.stdout + done.stderr

    for block in blocks():
        place = re.match(r"# (\S+\.(?:py|txt|yaml))\n", block.text)
        if place is not None:
            (server.directory / place[1]).write_text(block.text)
        for command, shown in typed(block.text) if block.language == "console" else ():
            until_shown(lambda command=command: type_in(command), command, shown)  # type: ignore[misc]


def until_shown(look: Callable[[], str], command: str, shown: list[str]) -> None:
    """Type a command; one that only looks is typed again, as a reader does who was faster than the run."""
    began = time.monotonic()
    while True:
        said = look()
        missing = [line for line in shown if line not in said]
        if not missing:
            return
        if "runs show" not in command or time.monotonic() > began + DEADLINE:
            pytest.fail(f"$ {command}\n{said}\nlacks {missing}")
        rest(began)
