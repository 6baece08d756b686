"""A real `horae up` for a test: a process of its own, on free ports, with its data in the test's directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from horae.errors import Unavailable

if TYPE_CHECKING:
    from horae.client import Client

TRIES = 3  # somebody else may take a port between our finding it free and the server's taking it
START_SECONDS = 120.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.05
SHOWN = 4000  # characters of the log in an error


class Server:
    """A server that a test has to itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def client(self) -> Client:
        """Return a client of this server, to be used with `async with`."""
        from horae.client import Client

        return Client(self.url)

    def log(self) -> str:
        """Return what the server has said."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES):
            process = self._process = self._launch()
            if self._comes_up(process):
                return
        raise Unavailable(f"the server did not start:\n{self.log()[-SHOWN:]}")

    def _launch(self) -> subprocess.Popen[bytes]:
        port, grpc_port = _free_ports()
        self.url = f"http://127.0.0.1:{port}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}
        argv = [sys.executable, "-m", "horae", "up", "--port", str(port), "--grpc-port", str(grpc_port)]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*argv, "--data", str(self.directory / "data")], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment,
            )  # fmt: skip

    def _comes_up(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether it answers; False when it has ended instead."""
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None:
            if self._is_ready():
                return True
            if time.monotonic() > deadline:
                self.stop()
                raise Unavailable(f"the server is not ready after {START_SECONDS:g} s:\n{self.log()[-SHOWN:]}")
            time.sleep(LOOK_SECONDS)
        return False

    def _is_ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """As somebody at a terminal would: work ends with the server."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
