"""Tests that need programs of the machine: a loud skip on a laptop, a failure where servers are required."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.clickhouse_server import ClickHouse, running_clickhouse
from tests.engines.dockerd import Daemon
from tests.engines.hdfs_server import Hdfs, lacking, running_hdfs
from tests.engines.s3_server import S3, running_s3
from tests.engines.spark_server import Spark, running_spark


@pytest.fixture(scope="session")
def need() -> Callable[..., None]:
    """Ask for programs by name."""

    def ask(*programs: str) -> None:
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            miss(f"not on this machine: {', '.join(missing)}; `make test-engines` as root on Debian installs them")

    return ask


def miss(words: str) -> None:
    (pytest.fail if os.environ.get("HORAE_REQUIRE_SERVERS") else pytest.skip)(words)


def need_packages(*names: str) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        miss(f"not installed: {', '.join(missing)}; `make .venv/.stamps/engines` installs them")


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


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """One daemon for each process of tests; who uses it asks for its programs first."""
    made = Daemon()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[Spark]:
    need_packages("pyspark", "grpc_status")
    if shutil.which("java") is None:
        miss("Spark needs java; `make test-engines` as root on Debian installs it")
    with running_spark() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    if words := lacking():
        miss(f"HDFS needs {words}; `make test-engines` as root on Debian installs it")
    with running_hdfs() as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All here is of engines. What needs a daemon of Docker goes to one worker: two get in each other's way."""
    for item in (item for item in items if Path(__file__).parent in item.path.parents):
        item.add_marker(pytest.mark.engine)
        if "docker" in item.nodeid or item.path.name == "test_matrix.py" or "container" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("docker"))
