"""A server that is killed while many write: whatever it answered has its row of the audit log, once, and no job and no
run is there without one; the chain holds."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from .server import DEADLINE, Server

pytestmark = pytest.mark.slow
WRITERS = 4
BEFORE_EACH_KILL = 40  # answers, so that there is something to lose


class Writer:
    """Submits jobs, runs them and changes them, as fast as it is answered; notes what it was answered."""

    def __init__(self, url: str, number: int) -> None:
        self.answered: list[str] = []  # ids of requests that succeeded
        self.is_over = threading.Event()
        self._url, self._number = url, number
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with httpx.Client(base_url=self._url, verify=False, timeout=10) as client:
            for count in itertools.count():
                if self.is_over.is_set():
                    return
                try:
                    self._round(client, f"{self._number}-{count}")
                except httpx.HTTPError:
                    self.is_over.wait(0.05)  # it was killed

    def _round(self, client: httpx.Client, name: str) -> None:
        job = {"name": name, "steps": [{"run": "true"}], "overlap": "allow"}
        made = self._send(client, "POST", "/v1/jobs", json=job)
        if made is not None:
            address = f"/v1/jobs/{made.json()['jobs'][0]['id']}"
            self._send(client, "POST", f"{address}/run")
            self._send(client, "PUT", address, json={**job, "name": f"{name}b"})
            self._send(client, "POST", f"{address}/pause")

    def _send(self, client: httpx.Client, method: str, address: str, json: object = None) -> httpx.Response | None:
        answer = client.request(method, address, json=json)
        if not answer.is_success:
            return None
        self.answered.append(answer.headers["x-request-id"])
        return answer

    def end(self) -> None:
        self.is_over.set()
        self._thread.join(DEADLINE)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def test_what_was_answered_has_its_row_once_however_the_server_dies(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    flags = ("--database", request.getfixturevalue("postgres_url")) if store == "postgres" else ()
    server = Server(tmp_path, *flags, "--heartbeat-interval", "1", "--node", "n0")
    server.start()
    writers = [Writer(server.url, number) for number in range(WRITERS)]
    try:
        for _ in range(2):
            seen = _count(writers)
            server.wait_until(lambda: _count(writers) > seen + BEFORE_EACH_KILL, "writers to be answered")  # noqa: B023
            server.kill()
            server.start()
        seen = _count(writers)
        server.wait_until(lambda: _count(writers) > seen, "writers to go on")
    finally:
        for writer in writers:
            writer.end()
    try:
        _check(server, [request_id for writer in writers for request_id in writer.answered])
    finally:
        server.stop()


def _count(writers: list[Writer]) -> int:
    return sum(len(writer.answered) for writer in writers)


def _check(server: Server, answered: list[str]) -> None:
    rows = server.every("/v1/audit")
    told = Counter(row["request_id"] for row in rows)
    assert {request_id for request_id in answered if told[request_id] != 1} == set()
    made: Callable[[str], set[str]] = lambda action: {row["made"] for row in rows if row["action"] == action}  # noqa: E731
    assert {str(job["id"]) for job in server.every("/v1/jobs")} <= made("jobs.write")
    assert {str(run["id"]) for run in server.every("/v1/runs")} <= made("runs.start")
    server.wait_until(lambda: all(row["seq"] for row in server.every("/v1/audit")), "all rows to be sealed")
    found = server.cli_json("audit", "verify")
    assert (found["checked"], found["faults"]) == (len(rows), [])
