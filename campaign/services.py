"""What the cluster may use beside its database: a NATS broker and an S3 store, real processes from their wheels.

What must stay true: both keep their ports and addresses over every end and begin, and neither outlives `close`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START = 60.0  # seconds to come up
REGION = "us-east-1"
KEY, SECRET = "campaign", "campaign-secret"
BUCKET = "outputs"


class Service:
    """A process that listens on a port, and can be ended, begun again, stopped for a while and wiped."""

    name: str
    port: int

    def __init__(self, directory: Path, name: str, argv: list[str], port: int, kept: Path) -> None:
        self.name, self.port = name, port
        self._argv, self._log, self._kept = argv, directory / f"{name}.log", kept
        self._process: subprocess.Popen[bytes] | None = None

    async def begin(self) -> None:
        self._kept.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} does not come up: see {self._log}")
            await asyncio.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    async def end(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def wipe(self) -> None:
        """Everything it kept is gone. It must have ended."""
        shutil.rmtree(self._kept, ignore_errors=True)

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGCONT)


def broker(directory: Path) -> Service:
    [port] = free_ports(1)
    kept = directory / "nats"
    program = str(Path(sys.executable).parent / "nats-server")
    return Service(
        directory, "nats", [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(kept)], port, kept
    )


def bucket(directory: Path) -> Service:
    ports = free_ports(8)
    kept, accounts = directory / "s3", directory / "s3.json"
    rights = ["Admin", "Read", "Write", "List", "Tagging"]
    account = {"name": "campaign", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": rights}
    accounts.write_text(json.dumps({"identities": [account]}))
    argv = [str(Path(sys.executable).parent / "weed"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={kept}"]
    for number, part in enumerate(("master", "volume", "filer", "s3")):
        argv += [f"-{part}.port={ports[number]}", f"-{part}.port.grpc={ports[number + 4]}"]
    argv += ["-s3", f"-s3.config={accounts}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=50"]
    return Service(directory, "s3", [*argv, "-master.volumeSizeLimitMB=64"], ports[3], kept)


def credentials() -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
