"""Tests that need programs of the machine: a loud skip on a laptop, a failure where servers are required."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.engines.clickhouse_server import ClickHouse, running_clickhouse
from tests.engines.s3_server import S3, running_s3


@pytest.fixture
def need() -> Callable[..., None]:
    """Ask for programs by name."""

    def ask(*programs: str) -> None:
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            _miss(f"not on this machine: {', '.join(missing)}; `make test-engines` as root on Debian installs them")

    return ask


def _miss(words: str) -> None:
    (pytest.fail if os.environ.get("HORAE_REQUIRE_SERVERS") else pytest.skip)(words)


def need_packages(*names: str) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        _miss(f"not installed: {', '.join(missing)}; `make .venv/.stamps/engines` installs them")


# Each is started once per test process: tests that use one belong to the xdist_group "data".


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouse]:
    need_packages("chdb")
    with running_clickhouse() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server
