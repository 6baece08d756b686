"""A worker agent of the segment contract, in the standard library alone: it registers, beats, takes jobs and reports.

    python examples/segment_agent.py --server http://127.0.0.1:8080 --id agent-1

It listens on a port of its own and tells it when it registers, so that jobs are sent to it: at most `--capacity` at
once, more are refused with 503. What a job "does" is to take `--seconds` in `--steps`; after each, the agent says how
far it is. Put the real work in the place of `work`. Killed and started again, it registers again, asks what it held,
and goes on from the last checkpoint. With `--journal` it writes a line when it begins with a job and when it ends.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

log = logging.getLogger("segment_agent")
TRIES = 30  # of a call, while nobody answers


class Refused(Exception):
    """The job is no longer ours: it was cancelled, has ended, or another agent has it."""


class Cluster:
    """The job store and the execution coordinator."""

    def __init__(self, address: str, worker: str, token: str) -> None:
        self._address = address.rstrip("/")
        self._worker = worker
        self._headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The data of the answer. A server that is away is asked again: all that is asked here may be asked twice."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, content, self._headers, method=method)  # noqa: S310
        for tried in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                    return json.load(answer)["data"]
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise Refused(error.read().decode(errors="replace")) from None
                log.warning("%s %s: %s", method, path, error)
            except OSError as error:
                log.warning("%s %s: %s", method, path, error)
            time.sleep(min(0.1 * 2**tried, 2.0))
        raise Refused("nobody answers")

    def register(self, host: str, port: int, capacity: int) -> None:
        self.ask("POST", self._me, {"host": host, "port": port, "capacity": capacity})

    def beat(self, load: int, capacity: int) -> None:
        self.ask("POST", f"{self._me}/heartbeat", {"currentLoad": load, "capacity": capacity})

    def held(self) -> list[Any]:
        """What we ran when we were killed."""
        return list(self.ask("GET", f"/api/execution-coordinator/assignments?workerId={self._worker}"))

    def report(self, job_id: int, status: str, **more: Any) -> Any:
        sent = {"jobId": job_id, "workerId": self._worker, "status": status, **more}
        return self.ask("POST", "/api/job-store/executions", sent)

    @property
    def _me(self) -> str:
        return f"/api/execution-coordinator/workers/{self._worker}"


class Pace(NamedTuple):
    """How long the work of a job takes."""

    seconds: float
    steps: int


class Agent:
    def __init__(self, cluster: Cluster, worker: str, capacity: int, pace: Pace, journal: Path | None) -> None:
        self._cluster = cluster
        self._worker = worker
        self.capacity = capacity
        self._pace = pace
        self._journal = journal
        self._lock = threading.Lock()
        self._running: set[int] = set()

    @property
    def load(self) -> int:
        return len(self._running)

    def take(self, job: Any) -> bool:
        """Begin with a job, unless we are full. One that we run already is not begun twice."""
        with self._lock:
            if job["jobId"] in self._running:
                return True
            if self.load >= self.capacity:
                return False
            self._running.add(job["jobId"])
        threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return True

    def _run(self, job: Any) -> None:
        job_id, known = job["jobId"], {} if job.get("attempt") is None else {"attempt": job["attempt"]}
        try:
            begun = self._cluster.report(job_id, "RUNNING", **known)
            self._write("begin", job_id, begun)
            for checkpoint in work(job, self._pace):
                self._cluster.report(job_id, "RUNNING", checkpointData=checkpoint, **known)
            self._write("end", job_id, begun)
            self._cluster.report(job_id, "COMPLETED", **known)
        except Refused as error:
            self._write("stop", job_id, {})
            log.warning("job %s is not ours any more: %s", job_id, error)
        except Exception as error:
            log.exception("job %s", job_id)
            self._cluster.report(job_id, "FAILED", errorMessage=str(error), **known)
        finally:
            with self._lock:
                self._running.discard(job_id)

    def _write(self, word: str, job_id: int, begun: Any) -> None:
        if self._journal is not None:
            line = {
                "what": word,
                "job": job_id,
                "execution": begun.get("id"),
                "worker": self._worker,
                "at": time.time(),
            }
            with self._journal.open("a") as file:  # one write of one line: several processes may do this
                file.write(json.dumps(line) + "\n")

    def resume(self) -> None:
        """Go on with what we held when we were killed."""
        for assigned in self._cluster.held():
            self.take({"jobId": assigned["jobId"], "checkpointData": assigned["checkpointData"]})

    def beat(self, interval: float) -> None:
        while True:
            try:
                self._cluster.beat(self.load, self.capacity)
            except Refused as error:
                log.warning("no heartbeat: %s", error)
            time.sleep(interval)


def work(job: Any, pace: Pace) -> Iterator[Any]:
    """Do the job, from its last checkpoint on; give a new one after each step."""
    done = (job.get("checkpointData") or {}).get("step", 0)
    for step in range(done, pace.steps):
        time.sleep(pace.seconds / pace.steps)
        yield {"step": step + 1}


def listen(agent: Agent, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            job = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
            if self.path != "/api/worker-agent/dispatch":
                self._answer(404, None, "NOT_FOUND")
            elif agent.take(job):
                self._answer(200, "Job execution triggered", None)
            else:
                self._answer(503, None, "WORKER_AT_CAPACITY")

        def _answer(self, status: int, data: Any, code: str | None) -> None:
            said = {"success": status == 200, "data": data, "message": code, "errorCode": code}
            body = json.dumps({**said, "timestamp": datetime.now(UTC).isoformat()}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--id", default="agent-1")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="any free one unless said")
    parser.add_argument("--capacity", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0, help="that a job takes")
    parser.add_argument("--steps", type=int, default=10, help="in which it does so")
    parser.add_argument("--heartbeat", type=float, default=30.0, help="seconds between two signs of life")
    parser.add_argument("--token", default="")
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cluster = Cluster(options.server, options.id, options.token)
    agent = Agent(cluster, options.id, options.capacity, Pace(options.seconds, options.steps), options.journal)
    server = listen(agent, options.host, options.port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster.register(options.host, server.server_port, options.capacity)
    log.info("%s listens on port %s", options.id, server.server_port)
    agent.resume()
    agent.beat(options.heartbeat)


if __name__ == "__main__":
    main()
