"""A client of the CI contract, in the standard library alone: it has files of jobs built, and ends as the builds do.

    python examples/ci_client.py build.yaml                          0: all went well, 1: something failed
    python examples/ci_client.py a.yaml b.yaml --state builds.json   one after the other; what it knows, it writes down

With --state it may be killed at any moment and started again: it goes on where it was. Before a file is sent, the key
under which it is sent is written down, so a file that was sent before is recognised and not built a second time.
A server that does not answer is asked again until it does.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

OVER = {"SUCCEEDED", "FAILED", "TIMEOUT", "CANCELLED", "DELETED", "IDLE"}
LONGEST_PAUSE = 5.0  # seconds between two tries
PASSING = (429, 502, 503, 504)  # answers after which it is worth to ask again


class Refused(Exception):
    """The server will not do it, however often it is asked."""


class Server:
    """The routes of the contract. Every call returns an answer, however long that takes."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    def submit(self, content: bytes, key: str) -> list[int]:
        made = json.loads(self._ask("POST", "/api/v1/submit_job", content, {"idempotency-key": key}))
        return list(made["job_ids"])

    def status(self, job_id: int) -> Any:
        return json.loads(self._ask("GET", f"/api/v1/job_status/{job_id}"))

    def log(self, job_id: int) -> str:
        return self._ask("GET", f"/api/v1/last_execution_logs/{job_id}?format=text").decode(errors="replace")

    def _ask(self, method: str, path: str, body: bytes | None = None, more: dict[str, str] | None = None) -> bytes:
        pause = 0.1
        while True:
            headers = {**self._headers, **(more or {})}
            request = urllib.request.Request(self._address + path, body, headers, method=method)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                if error.code not in PASSING:
                    raise Refused(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from None
            except (OSError, http.client.HTTPException):  # it is away, or went away in the middle of its answer
                pass
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


class State:
    """What is known of each file: its key, the ids of its jobs, how they ended."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        text = place.read_text() if place is not None and place.exists() else "{}"
        self._files: dict[str, dict[str, Any]] = json.loads(text)

    def of(self, file: Path) -> dict[str, Any]:
        return self._files.setdefault(str(file), {"key": uuid.uuid4().hex, "job_ids": [], "results": {}})

    def save(self) -> None:
        """All of it or nothing, and it survives us."""
        if self._place is None:
            return
        part = self._place.with_suffix(".part")
        with part.open("w") as opened:
            json.dump(self._files, opened)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(self._place)


def build(server: Server, state: State, file: Path, poll: float) -> bool:
    """Have the jobs of a file built once; answers whether all went well."""
    known = state.of(file)
    if not known["job_ids"]:
        state.save()  # the key, before anybody hears of it
        known["job_ids"] = server.submit(file.read_bytes(), known["key"])
        state.save()
    for job_id in known["job_ids"]:
        if str(job_id) not in known["results"]:
            known["results"][str(job_id)] = watch(server, job_id, poll)
            state.save()
    return set(known["results"].values()) == {"SUCCEEDED"}


def watch(server: Server, job_id: int, poll: float) -> str:
    """Wait for the end of a job's execution and print its log; answers how it ended."""
    while True:
        found = server.status(job_id)
        if found["last_execution"] is not None and found["status"] in OVER:
            break
        time.sleep(poll)
    if found["last_execution"]["logs_path"]:
        sys.stdout.write(server.log(job_id))
    sys.stdout.write(f"job {job_id} {found['name']}: {found['status']}\n")
    sys.stdout.flush()
    return str(found["status"])


def main() -> int:
    asked = argparse.ArgumentParser(description="Have files of CI jobs built, print their logs, end as they do.")
    asked.add_argument("files", type=Path, nargs="+", metavar="FILE")
    asked.add_argument("--server", default="http://127.0.0.1:8080")
    asked.add_argument("--state", type=Path, help="a file of its own, to go on after a crash")
    asked.add_argument("--poll", type=float, default=1.0, help="seconds between two questions (1)")
    given = asked.parse_args()
    server, state = Server(given.server, os.environ.get("HORAE_TOKEN", "")), State(given.state)
    try:
        went_well = [build(server, state, file, given.poll) for file in given.files]
    except Refused as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0 if all(went_well) else 1


if __name__ == "__main__":
    sys.exit(main())
