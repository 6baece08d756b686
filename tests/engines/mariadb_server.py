"""A MariaDB on this machine, from Debian's mariadb-server, with one account."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from tests.engines.spark_server import wait_for_port
from tests.ports import free_ports

DEADLINE = 180.0  # seconds
USER, PASSWORD = "reader", "reader-secret"


@dataclass(frozen=True, slots=True)
class MariaDb:
    """A running server. `jdbc_url` is as the lake contract writes it, and names no database."""

    port: int
    socket: Path

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:mysql://127.0.0.1:{self.port}/?useSSL=false&serverTimezone=UTC"

    def do(self, *statements: str) -> list[tuple[Any, ...]]:
        """Each by itself; the rows of the last."""
        connection = pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()


@contextmanager
def running_mariadb() -> Iterator[MariaDb]:
    directory = Path(tempfile.mkdtemp(prefix="horae-mariadb-"))
    (port,), user = free_ports(1), getpass.getuser()
    data, server = directory / "data", MariaDb(port, directory / "socket")
    made = ["mariadb-install-db", "--no-defaults", f"--user={user}", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal"]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True, timeout=DEADLINE)
    program = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--no-defaults", f"--user={user}", f"--datadir={data}", f"--socket={server.socket}",
             f"--port={port}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_for_port(port, process, directory / "log")
        server.do(f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        server.do(f"GRANT SELECT ON *.* TO '{USER}'@'127.0.0.1'")
        yield server
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
