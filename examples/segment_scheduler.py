"""A scheduler worker of the segment contract, by its book and in the standard library alone.

    python examples/segment_scheduler.py --worker-id worker-1

It registers with the coordinator (8082), asks it for segments and sends heartbeats. Every scan interval it asks the
job store (8081) what is due in its segments; each such job it sets SCHEDULED, which one worker alone can do, and
dispatches to an agent (8084), with growing pauses while none takes it. A job that no agent takes is given back.
At SIGTERM it finishes the job in hand, releases its segments and ends.

The next run of a recurring job is set by the job store, in the same step as SCHEDULED.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import signal
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger("segment_scheduler")
FIRST_PAUSE, LONGEST_PAUSE, TRIES = 0.2, 5.0, 6  # seconds, seconds, dispatches of one job


class Refused(Exception):
    """The service said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Service:
    """One of the contract's services: every answer is {success, data, message, errorCode, timestamp}."""

    def __init__(self, address: str, token: str = "") -> None:
        self._address = address.rstrip("/")
        self._headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}

    def ask(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        where = f"{self._address}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(where, content, self._headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Refused(error.code, json.load(error).get("message") or error.reason) from None


class SchedulerWorker:
    def __init__(self, worker_id: str, store: Service, coordinator: Service, agents: list[Service]) -> None:
        self._me = worker_id
        self._store = store
        self._coordinator = coordinator
        self._agents = itertools.cycle(agents)
        self._agent_count = len(agents)
        self.stop = threading.Event()
        self.segments: list[int] = []

    # ── the coordinator ──

    def join(self, wanted: int) -> None:
        self._coordinator.ask("POST", "/api/scheduler-workers/register", workerId=self._me)
        asked = {"workerId": self._me, "desiredSegments": wanted}
        self.segments = self._coordinator.ask("POST", "/api/segments/assign", **asked)
        log.info("%s holds %d segments", self._me, len(self.segments))

    def beat(self, wanted: int) -> None:
        """A heartbeat; it answers which segments are ours by now. One that was given up registers anew."""
        try:
            shown = self._coordinator.ask("POST", "/api/scheduler-workers/heartbeat", workerId=self._me)
            self.segments = shown["assignedSegments"]
        except Refused as error:
            if error.status != 404:
                raise
        if not self.segments and wanted:
            self.join(wanted)

    def leave(self) -> None:
        self._coordinator.ask("DELETE", "/api/segments/release", workerId=self._me)
        log.info("%s has released its segments", self._me)

    # ── the scan ──

    def scan(self) -> None:
        if not self.segments:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        segments = ",".join(map(str, self.segments))
        for job in self._store.ask("GET", "/api/job-schedules/due", asOf=now, segments=segments):
            if self.stop.is_set():
                return
            if self._schedule(job):
                self._hand_out(job)

    def _schedule(self, job: Any) -> bool:
        """PENDING → SCHEDULED; False when somebody else was faster."""
        try:
            self._store.ask("PUT", f"/api/jobs/{job['jobId']}/status", status="SCHEDULED")
        except Refused as error:
            if error.status != 409:
                raise
            return False
        return True

    def _hand_out(self, job: Any) -> None:
        """Try one agent after the other, with a pause after each round; give the job back when none takes it."""
        pause = FIRST_PAUSE
        for attempt in range(1, TRIES + 1):
            if self._dispatch(job):
                return
            if attempt % self._agent_count == 0:
                self.stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        log.warning("no agent takes job %d: given back", job["jobId"])
        self._store.ask("PUT", f"/api/jobs/{job['jobId']}/status", status="PENDING")

    def _dispatch(self, job: Any) -> bool:
        """True when an agent has it: this one, or one that was asked before and whose answer was lost (409)."""
        event = {"jobId": job["jobId"], "jobName": job["jobName"], "payload": job["payload"]}
        try:
            next(self._agents).ask("POST", "/api/worker-agent/dispatch", {**event, "executionTime": job["nextRunTime"]})
        except Refused as error:
            log.info("job %d: %s", job["jobId"], error)
            return error.status == 409
        except OSError as error:
            log.warning("job %d: an agent cannot be reached: %s", job["jobId"], error)
            return False
        log.info("job %d dispatched", job["jobId"])
        return True

    # ── life ──

    def run(self, wanted: int, *, scan_every: float, beat_every: float) -> None:
        pause, joined, beat_at = FIRST_PAUSE, False, 0.0
        while not self.stop.is_set():
            try:
                if not joined or time.monotonic() >= beat_at:
                    self.beat(wanted) if joined else self.join(wanted)
                    joined, beat_at = True, time.monotonic() + beat_every
                self.scan()
                pause = FIRST_PAUSE
                self.stop.wait(min(scan_every, beat_every))
            except (OSError, Refused) as error:  # a service is away: it is asked again, less and less often
                log.warning("%s; again in %.1f s", error, pause)
                self.stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        if joined:
            self.leave()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scheduler worker of the segment contract.")
    parser.add_argument("--worker-id", default="worker-1")
    parser.add_argument("--job-store", default="http://127.0.0.1:8081")
    parser.add_argument("--coordinator", default="http://127.0.0.1:8082")
    parser.add_argument("--agent", action="append", help="where an agent listens; may be said more than once")
    parser.add_argument("--segments", type=int, default=100, help="how many to ask for")
    parser.add_argument("--scan-interval", type=float, default=60.0, help="seconds")
    parser.add_argument("--heartbeat-interval", type=float, default=30.0, help="seconds")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    token = os.environ.get("HORAE_TOKEN", "")
    agents = [Service(address, token) for address in given.agent or ["http://127.0.0.1:8084"]]
    worker = SchedulerWorker(
        given.worker_id, Service(given.job_store, token), Service(given.coordinator, token), agents
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop.set())
    worker.run(given.segments, scan_every=given.scan_interval, beat_every=given.heartbeat_interval)


if __name__ == "__main__":
    main()
