"""A Spark Connect server, from the wheel of pyspark, and what can be seen of it from outside."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_ports

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
DEADLINE = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class Spark:
    """A running server. `url` is as settings want it."""

    port: int
    ui_port: int

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def jobs(self, status: str = "running") -> list[Any]:
        """Jobs of the cluster in a state, as its own page of them says."""
        base = f"http://127.0.0.1:{self.ui_port}/api/v1/applications"
        application = _read(base)[0]["id"]
        return list(_read(f"{base}/{application}/jobs?status={status}"))


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


@contextmanager
def running_spark() -> Iterator[Spark]:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home, directory = Path(found.origin).parent, Path(tempfile.mkdtemp(prefix="horae-spark-"))
    port, ui_port = free_ports(2)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            _command(home, directory, port, ui_port),
            cwd=directory,
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0", "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for_port(port, process, directory / "log")
        yield Spark(port, ui_port)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _command(home: Path, directory: Path, port: int, ui_port: int) -> list[str]:
    settings = {
        "spark.ui.port": str(ui_port),
        "spark.ui.showConsoleProgress": "false",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "scratch"),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.hadoop.dfs.replication": "1",
    }
    asked = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    program = str(home / "bin" / "spark-submit")
    return [program, "--class", CLASS, "--master", "local[2]", "--driver-memory", "800m", *asked]


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server did not come up: {log.read_text(errors='replace')[-3000:]}")
