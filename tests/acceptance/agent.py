"""A real `horae agent` in a process of its own, and a wire to it that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .server import DEADLINE, horae, rest


class AgentProcess:
    def __init__(self, directory: Path, server: str, name: str, *flags: str, inside: Sequence[str] = ()) -> None:
        """`inside` is a command that is given the agent's."""
        self.name = name
        self.directory = directory / name
        self.directory.mkdir(exist_ok=True)
        self._argv = [
            *inside,
            horae(),
            "agent",
            "--server",
            server,
            "--node",
            name,
            "--data",
            str(self.directory / "data"),
        ]
        self._argv += ["--slots", "4", "--sandbox", "plain", *flags]
        self._log = self.directory / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> AgentProcess:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HORAE_")}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._argv, stdout=log, stderr=log, cwd=self.directory, env=environment)
        return self

    def joined(self) -> AgentProcess:
        self.wait_for(f"agent {self.name} joined")
        return self

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str, times: int = 1) -> None:
        began = time.monotonic()
        while self.log().count(text) < times:
            assert time.monotonic() < began + DEADLINE, f"waited for {text!r}:\n{self.log()[-4000:]}"
            rest(began)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


class Proxy:
    """A TCP wire to a port of this machine, in a thread of its own: it can stall, and it can be cut."""

    def __init__(self, target: int, path: str | None = None) -> None:
        """`path` makes its own end a Unix socket."""
        self._target = target
        self._path = path
        self._open = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._flows: set[asyncio.Task[Any]] = set()
        self._gate: asyncio.Event | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._open.wait(DEADLINE)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._gate, self._ending = asyncio.Event(), asyncio.Event()
        self._gate.set()
        if self._path is None:
            server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
        else:
            server = await asyncio.start_unix_server(self._connect, self._path)
        self._open.set()
        await self._ending.wait()
        server.close()
        await self._drop()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._flow(source, sink))
            self._flows.add(task)
            task.add_done_callback(self._flows.discard)

    async def _flow(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        assert self._gate is not None
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    await self._gate.wait()
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.transport.abort()

    async def _drop(self) -> None:
        for task in list(self._flows):
            task.cancel()
        await asyncio.gather(*self._flows, return_exceptions=True)

    def stall(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        assert self._gate is not None
        self._loop.call_soon_threadsafe(self._gate.clear)

    def resume(self) -> None:
        assert self._gate is not None
        self._loop.call_soon_threadsafe(self._gate.set)

    def cut(self) -> None:
        """Break what is connected."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(DEADLINE)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(DEADLINE)
        self._loop.close()
