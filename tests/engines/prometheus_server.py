"""A Prometheus on this machine, from Debian's prometheus: its own data directory and port, never the service."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

DEADLINE = 180.0  # seconds


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    http: httpx.Client

    def ask(self, path: str, **params: Any) -> Any:
        answer = self.http.get(f"/api/v1/{path}", params=params)
        assert answer.status_code == 200, f"{params}: {answer.text}"
        return answer.json()["data"]

    def query(self, expression: str) -> list[Any]:
        """Return the series of an instant query."""
        found = self.ask("query", query=expression)["result"]
        return list(found)

    def names(self) -> set[str]:
        """Return the metrics that were scraped."""
        return set(self.ask("label/__name__/values"))


@contextmanager
def running_prometheus(config: Path, directory: Path) -> Iterator[Prometheus]:
    port = free_port()
    argv = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    log = directory / "prometheus.log"
    with log.open("wb") as written:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=written, stderr=written, cwd=directory)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=False)
    try:
        began = time.monotonic()
        while not _is_ready(client):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < began + DEADLINE, log.read_text()
            time.sleep(0.1)
        yield Prometheus(client)
    finally:
        client.close()
        process.terminate()
        process.wait(DEADLINE)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False
