"""A worker of the RPC contract, in the standard library alone. It is sent executions or takes batches of what is due,
executes them, and reports.

    python examples/rpc_worker.py --server http://127.0.0.1:8080 --name w1 --port 9001 --journal w1.json

It writes down what it holds before it begins, and how an execution ended before it reports that. So a worker that was
killed and is started again with the same name and journal knows what it held: what had ended it reports, what had
not it gives back. A batch whose answer was lost stands in no journal; heartbeats say what is held, so the scheduler
takes that back by itself.

On its own port it answers `dispatch`, `health` and `cancel`, as JSON-RPC 2.0 on POST /rpc.

What it "does" is to wait for --seconds. Put the real work in the place of `work`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

log = logging.getLogger("rpc_worker")


class Refused(Exception):
    """The scheduler answers with an error."""


class Scheduler:
    def __init__(self, address: str, token: str) -> None:
        self._address = address.rstrip("/") + "/rpc"
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})

    def call(self, method: str, **params: Any) -> Any:
        """Until there is an answer: every call can be repeated."""
        pause = 0.1
        while True:
            try:
                return self.try_once(method, **params)
            except (OSError, ValueError) as error:
                log.warning("%s: no answer: %s", method, error)
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def try_once(self, method: str, **params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self._address, body, self._headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            said = json.load(answer)
        if "error" in said:
            raise Refused(said["error"]["message"])
        return said["result"]


class Journal:
    """What this worker holds, on disk: execution → what is known of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.held: dict[int, Any] = {}
        if path.exists():
            self.held = {int(key): value for key, value in json.loads(path.read_text()).items()}

    def note(self, execution: Any) -> None:
        with self._lock:
            self.held[execution["execution_id"]] = execution
            self._write()

    def drop(self, execution_id: int) -> None:
        with self._lock:
            self.held.pop(execution_id, None)
            self._write()

    def _write(self) -> None:
        """Whole or not at all, whenever this process dies."""
        beside = self._path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump(self.held, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


class Worker:
    def __init__(self, scheduler: Scheduler, journal: Journal, name: str, slots: int) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._name = name
        self.address = ""  # where it listens
        self._slots = slots
        self._lock = threading.Lock()
        self._stop: dict[int, tuple[int, threading.Event]] = {}  # execution → attempt under way, and how to stop it

    # ── after a restart ──
    def recover(self) -> None:
        """Report what had ended; give back what had not."""
        for execution in list(self._journal.held.values()):
            ended = execution.get("ended")
            said = self._say(execution, **(ended or {"status": "scheduled"}))
            log.info("execution %s of an earlier life: %s", execution["execution_id"], said or "no longer ours")
            self._journal.drop(execution["execution_id"])

    # ── executions ──
    @property
    def room(self) -> int:
        return self._slots - len(self._stop)

    def begin(self, execution: Any, seconds: float, trace: Path | None) -> bool:
        """False when there is no room, or an earlier attempt has not stopped yet."""
        identity, attempt, stop = execution["execution_id"], execution["attempt"], threading.Event()
        with self._lock:
            if identity in self._stop:
                return self._stop[identity][0] == attempt
            if self.room <= 0:
                return False
            self._journal.note(execution)
            self._stop[identity] = attempt, stop
        threading.Thread(target=self._run, args=(execution, seconds, stop, trace), daemon=True).start()
        return True

    def cancel(self, execution_id: int) -> None:
        if execution_id in self._stop:
            self._stop[execution_id][1].set()

    def give_back(self, execution: Any) -> None:
        self._say(execution, status="scheduled")

    def _run(self, execution: Any, seconds: float, stop: threading.Event, trace: Path | None) -> None:
        identity = execution["execution_id"]
        if self._say(execution, status="running"):
            ended = work(execution, seconds, stop, trace)
            self._write(execution, f"{execution['code_location']}: {ended['status']}\n")
            execution["ended"] = ended
            self._journal.note(execution)
            self._say(execution, **ended)
        self._journal.drop(identity)
        with self._lock:
            del self._stop[identity]

    def _say(self, execution: Any, **report: Any) -> str:
        """What was said; nothing when the scheduler does not want to hear it: the execution is another's by now."""
        try:
            self._scheduler.call(
                "status_update", execution_id=execution["execution_id"], attempt=execution["attempt"],
                worker_id=self._name, **report,
            )  # fmt: skip
        except Refused as error:
            log.warning("execution %s: %s", execution["execution_id"], error)
            return ""
        return str(report["status"])

    def _write(self, execution: Any, text: str) -> None:
        try:
            self._scheduler.call(
                "write_log", execution_id=execution["execution_id"], worker_id=self._name, offset=0, text=text,
                attempt=execution["attempt"],
            )  # fmt: skip
        except Refused as error:
            log.warning("output of execution %s: %s", execution["execution_id"], error)

    # ── signs of life ──
    def beat(self) -> None:
        said = self._scheduler.try_once(
            "heartbeat", worker_id=self._name, load=len(self._stop), capacity=self._slots, address=self.address,
            held=sorted(self._stop),
        )  # fmt: skip
        for execution_id in (*said["cancel"], *said["lost"]):
            self.cancel(execution_id)

    def health(self) -> Any:
        return {"status": "ok", "load": len(self._stop), "capacity": self._slots, "held": sorted(self._stop)}

    def take(self) -> list[Any]:
        """A batch of what is due, as far as there is room."""
        if self.room <= 0:
            return []
        return list(self._scheduler.try_once("take_due_jobs", worker_id=self._name, limit=self.room))


def work(execution: Any, seconds: float, stop: threading.Event, trace: Path | None) -> Any:
    """Do it; answers how it ended. `trace` is for those who want to see when."""
    _note(trace, "begin", execution)
    was_stopped = stop.wait(seconds)
    _note(trace, "end", execution)
    if was_stopped:
        return {"status": "cancelled", "message": "stopped as asked"}
    return {"status": "completed", "message": "waited", "exit_code": 0}


def _note(trace: Path | None, what: str, execution: Any) -> None:
    if trace is not None:
        with trace.open("a") as file:
            file.write(f"{what} {execution['execution_id']} {execution['attempt']} {os.getpid()} {time.time()}\n")


def listen(worker: Worker, port: int, seconds: float, trace: Path | None) -> ThreadingHTTPServer:
    """What the scheduler may ask of a worker."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **self.answer(asked)}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def answer(self, asked: Any) -> Any:
            params = asked.get("params", {})
            if asked["method"] == "health":
                return {"result": worker.health()}
            if asked["method"] == "cancel":
                worker.cancel(params["execution_id"])
                return {"result": True}
            if asked["method"] == "dispatch":
                taken = worker.begin(params, seconds, trace)
                return {"result": True} if taken else {"error": {"code": -32029, "message": "no free slot"}}
            return {"error": {"code": -32601, "message": "no such method"}}

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the scheduler asks all the time."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    options = argparse.ArgumentParser(description="A worker of the RPC contract.")
    options.add_argument("--server", default="http://127.0.0.1:8080")
    options.add_argument("--token", default="", help="a Horae token, where one is needed")
    options.add_argument("--name", default="worker-1")
    options.add_argument("--port", type=int, default=0, help="to listen on; any free one unless given")
    options.add_argument("--journal", type=Path, default=Path("rpc_worker.json"), help="where it writes what it holds")
    options.add_argument("--slots", type=int, default=4, help="executions at once")
    options.add_argument("--seconds", type=float, default=1.0, help="how long an execution takes")
    options.add_argument("--poll", type=float, default=2.0, help="seconds between two looks for what is due")
    options.add_argument("--beat", type=float, default=10.0, help="seconds between two heartbeats")
    options.add_argument("--trace", type=Path, help="a file that tells when each execution began and ended")
    given = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    scheduler = Scheduler(given.server, given.token)
    journal = Journal(given.journal)
    worker = Worker(scheduler, journal, given.name, given.slots)
    worker.recover()
    server = listen(worker, given.port, given.seconds, given.trace)
    worker.address = f"127.0.0.1:{server.server_address[1]}"
    beaten = float("-inf")
    while True:
        try:
            if time.monotonic() - beaten >= given.beat:
                worker.beat()
                beaten = time.monotonic()
            for execution in worker.take():
                if not worker.begin(execution, given.seconds, given.trace):
                    worker.give_back(execution)
        except (OSError, ValueError, Refused) as error:
            log.warning("no answer: %s", error)
        time.sleep(given.poll)


if __name__ == "__main__":
    main()
