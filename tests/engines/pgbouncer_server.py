"""PgBouncer before a PostgreSQL of ours, in transaction mode: a server is lent for one transaction at a time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.server import free_port
from tests.conftest import missing

DEADLINE = 180.0  # seconds
USER = "nobody"  # it does not run as root


class PgBouncer:
    """`port` is that of the PostgreSQL behind it; any of its databases can be asked for."""

    def __init__(self, port: int, **settings: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="horae-pgbouncer-"))
        self.port = free_port()
        self._settings = {
            "pool_mode": "transaction", "listen_addr": "127.0.0.1", "listen_port": str(self.port), "auth_type": "any",
            "unix_socket_dir": "", "max_client_conn": "500", "default_pool_size": "20", "server_login_retry": "1",
            "admin_users": "postgres", **settings,
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.behind(port)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def behind(self, port: int) -> None:
        """Which server it lends; one that runs is told by `reload`."""
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={port} user=postgres",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in self._settings.items()),
        ]
        (self.directory / "pgbouncer.ini").write_text("\n".join(lines) + "\n")

    def start(self) -> PgBouncer:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            missing("PgBouncer (Debian's package pgbouncer)")
        if os.geteuid() == 0:
            shutil.chown(self.directory, USER)
        argv = [str(program), *(["-u", USER] if os.geteuid() == 0 else []), str(self.directory / "pgbouncer.ini")]
        with (self.directory / "pgbouncer.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)
        return self

    @property
    def log(self) -> str:
        return (self.directory / "pgbouncer.log").read_text()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def reload(self) -> None:
        """It gives up its servers and takes those of the file, without a word to its clients."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def running_pgbouncer(port: int, **settings: str) -> Iterator[PgBouncer]:
    made = PgBouncer(port, **settings)
    try:
        yield made.start()
    finally:
        made.remove()
