"""A real `horae up` in a process of its own, for tests that start, stop and kill it."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port as free_port
from tests.ports import free_ports as free_ports

DEADLINE = 180.0  # seconds: generous, the machines are slow


def rest(since: float) -> None:
    """Between two looks: the longer it was waited, the fewer there are, since each is work for the server as well."""
    time.sleep(min(0.25, max(0.02, (time.monotonic() - since) / 20)))


def horae() -> str:
    return str(Path(sys.executable).parent / "horae")


class Server:
    def __init__(
        self, directory: Path, *flags: str, port: int | None = None, ca: Path | None = None, shown: Path | None = None
    ) -> None:
        """`ca` is the certificate to trust, for a server that is given one; `shown` is that of the client, with its
        key, for a server that asks for one."""
        self.directory = directory
        first, self.grpc_port = free_ports(2)
        self.port = port or first
        self.url = f"{'https' if ca else 'http'}://127.0.0.1:{self.port}"
        self._flags = flags
        self._log = directory / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        trust = ssl.create_default_context(cafile=ca) if ca else False  # it takes long to read whom else to trust
        if shown is not None and not isinstance(trust, bool):
            trust.load_cert_chain(shown)
        self.http = httpx.Client(base_url=self.url, timeout=30, verify=trust)

    def start(self, *program: str) -> Server:
        self.launch(*program)
        return self.wait_until_up()

    def launch(self, *program: str) -> None:
        """`program` is another than `horae`, which takes the same words after its own (doomed.py)."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HORAE_")}
        if program:
            environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        argv = [*(program or [horae()]), "up", "--port", str(self.port), "--grpc-port", str(self.grpc_port)]
        argv += ["--data", str(self.directory / "data"), *self._flags]
        if "--sandbox" not in self._flags:
            argv += ["--sandbox", "plain"]  # jobs of tests write down what they saw where the test can read it
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=self.directory, env=environment)

    def wait_until_up(self) -> Server:
        self.wait_until(self._answers, "the server to answer")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()}")
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]

    def wait_until(self, condition: Any, what: str, seconds: float = DEADLINE) -> Any:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if found := condition():
                return found
            rest(began)
        raise AssertionError(f"waited {seconds} s for {what}:\n{self.log()}")

    def __del__(self) -> None:
        self.http.close()  # of one that a test has killed and left

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, as an operator would."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE)
        self.http.close()
        return code

    # ── API ──
    def get(self, path: str, **params: Any) -> Any:
        response = self.http.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        response = self.http.post(path, json={} if body is None else body)
        assert response.status_code == status, response.text
        return response.json()

    def submit(self, *jobs: Any) -> list[Any]:
        return list(self.post("/v1/jobs", {"jobs": list(jobs)}, status=201)["jobs"])

    def every(self, path: str, **params: Any) -> list[Any]:
        """Return all items of a list, page by page."""
        items: list[Any] = []
        cursor = None
        while True:
            page = self.get(path, limit=1000, **params, **({"cursor": cursor} if cursor else {}))
            items += page["items"]
            cursor = page["cursor"]
            if not cursor:
                return items

    def ended(self, run_id: int) -> Any:
        """Return a run, once it has ended."""

        def look() -> Any:
            run = self.get(f"/v1/runs/{run_id}")
            return run if run["state"] not in ("queued", "running", "blocked") else None

        return self.wait_until(look, f"run {run_id} to end")

    def cli(self, *args: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [horae(), "--server", self.url, *args]
        done = subprocess.run(argv, input=input, capture_output=True, text=True, timeout=DEADLINE, cwd=self.directory)
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done

    def cli_json(self, *args: str) -> Any:
        return json.loads(self.cli("--json", *args).stdout)
