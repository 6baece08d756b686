"""Tests that need programs of the machine: a loud skip on a laptop, a failure where servers are required."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.engines.dockerd import Daemon


@pytest.fixture
def need() -> Callable[..., None]:
    """Ask for programs by name."""

    def ask(*programs: str) -> None:
        missing = [program for program in programs if shutil.which(program) is None]
        if not missing:
            return
        words = f"not on this machine: {', '.join(missing)}; `make test-engines` as root on Debian installs them"
        (pytest.fail if os.environ.get("HORAE_REQUIRE_SERVERS") else pytest.skip)(words)

    return ask


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """One daemon for each process of tests; who uses it asks for its programs first."""
    made = Daemon()
    yield made
    made.stop()
