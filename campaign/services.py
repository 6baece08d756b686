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
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from campaign import spaces
from campaign.disks import Disk

START = 60.0  # seconds to come up
BUCKET_DISK = 512  # MiB
PROBE = 1_000_000  # bytes
ONCE: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=3)}
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
        self.disk: Disk | None = None  # its own
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        if self.disk is not None:
            self.disk.begin()
        await self.begin()

    async def begin(self) -> None:
        self._kept.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START
        while not self.answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} does not come up: see {self._log}")
            await asyncio.sleep(0.05)

    def answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def stands_still(self) -> bool:
        """Whether the kernel says that it is stopped."""
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    async def restart(self) -> None:
        """What it keeps its names in, in eight parts, stays broken after a full disk until it is begun anew."""
        await self.end()
        await self._mend()
        await self.begin()
        deadline = time.monotonic() + START
        while not await self.takes_a_file() and time.monotonic() < deadline:
            await asyncio.sleep(0.5)

    async def _mend(self) -> None:
        """SeaweedFS leaves half an entry in an index that has no room, and then does not open the volume: its operator
        has the index made anew."""
        with self._log.open("ab") as log:
            argv = [self._argv[0], "fix", "-ignoreError", str(self._kept)]
            fixing = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
            await fixing.wait()

    async def takes_a_file(self) -> bool:
        """Return whether an object store takes a file of some size, as its clients see it."""
        store = S3Store(
            BUCKET, endpoint=f"http://127.0.0.1:{self.port}", access_key_id=KEY, secret_access_key=SECRET,
            region=REGION, client_options={"allow_http": True, "timeout": "3s"}, retry_config=ONCE,
        )  # fmt: skip
        try:
            await obstore.put_async(store, "campaign-probe", os.urandom(PROBE))
        except (obstore.exceptions.BaseError, OSError):
            return False
        return True

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
    service = Service(directory, "s3", [*argv, "-master.volumeSizeLimitMB=64"], ports[3], kept)
    service.disk = Disk(kept, BUCKET_DISK) if spaces.is_within() else None
    return service


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
