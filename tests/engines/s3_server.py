"""An S3 service on this machine: SeaweedFS, from its wheel, with one account and any buckets a test asks for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import obstore
from obstore.store import S3Store

from tests.engines.spark_server import free_ports

ACCESS_KEY, SECRET_KEY = "horae-tests", "horae-tests-secret"
REGION = "us-east-1"
DEADLINE = 180.0  # seconds
_SERVICES = ("master", "volume", "filer", "s3")


@dataclass(frozen=True, slots=True)
class S3:
    """A running service."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """What clients of S3 read of their environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def store(self, bucket: str, prefix: str | None = None) -> Any:
        """Return the bucket, made if it is missing (as SeaweedFS does on the first write), or what lies below a
        prefix."""
        made = S3Store(
            bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region=REGION,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        obstore.put(made, ".made", b"")
        obstore.delete(made, ".made")
        return made

    def files(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        """Return what lies below a prefix, by name."""
        store = self.store(bucket)
        names = [one["path"] for page in obstore.list(store, prefix or None) for one in page]
        return {name: bytes(obstore.get(store, name).bytes()) for name in sorted(names)}


@contextmanager
def running_s3() -> Iterator[S3]:
    directory = Path(tempfile.mkdtemp(prefix="horae-s3-"))
    ports = free_ports(2 * len(_SERVICES))
    account = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [account]}))
    process = _start(directory, ports)
    try:
        endpoint = f"http://127.0.0.1:{ports[3]}"
        _wait(process, endpoint, directory)
        yield S3(endpoint)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, ports: list[int]) -> subprocess.Popen[bytes]:
    (directory / "data").mkdir()
    weed = str(Path(sys.executable).parent / "weed")
    argv = [weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={directory / 'data'}", "-s3"]
    for number, service in enumerate(_SERVICES):
        argv += [f"-{service}.port={ports[number]}", f"-{service}.port.grpc={ports[number + len(_SERVICES)]}"]
    argv += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={directory / 's3.json'}"]
    argv += ["-volume.max=50", "-master.volumeSizeLimitMB=64"]
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait(process: subprocess.Popen[bytes], endpoint: str, directory: Path) -> None:
    """Until an object can be written: the volumes come up after the port."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(endpoint, timeout=5)
            S3(endpoint).store("probe")
            return
        except (httpx.HTTPError, obstore.exceptions.BaseError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"SeaweedFS did not come up: {(directory / 'log').read_text()[-2000:]}")
