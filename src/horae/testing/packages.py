"""Packages of handlers, in tests: a handler is imported by the test's own Python, so what its job has in an environment
of its own has to be installed there too. Whoever meets the lack is told which file names it, and what to type.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from horae.executors.handlers.requirements import LIST, Requirements, advice, lacking


def install_advice(error: BaseException, name: str, jobs_directory: Path | None) -> str:
    """Return what to install for a test in which a handler cannot be imported; nothing if no package is missing."""
    found = lacking(error, name, jobs_directory)
    if found is None or found.asked is None or not found.asked.text.strip():
        return advice(error, name, jobs_directory)
    install = f"tests use their own Python: `{_command(found.asked)}`"
    if re.search(rf"(?im)^\s*{re.escape(found.package)}(?![\w-])", found.asked.text):
        return f"{found.where} names `{found.package}`; {install}"
    return f"{install}; if that does not bring it, {advice(error, name, jobs_directory)}"


def _command(asked: Requirements) -> str:
    """Return what installs into the Python of this process what a handler says it needs."""
    installer = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:  # as in an environment made by uv
        installer = ["uv", "pip", "install", "--python", sys.executable]
    file = Path(asked.file)
    if file.name != LIST:
        return shlex.join([*installer, *asked.text.split("\n")[:-1]])
    return shlex.join([*installer, "-r", str(_as_typed(file))])


def _as_typed(file: Path) -> Path:
    here = Path(os.getcwd())
    return file.relative_to(here) if file.is_relative_to(here) else file
