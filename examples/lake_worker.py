"""A worker of the lake contract, in the standard library alone: it pulls runs, does them, and reports.

    python examples/lake_worker.py --server http://127.0.0.1:8080          until it is interrupted
    python examples/lake_worker.py --server http://127.0.0.1:8080 --once   one run, then it ends

What it "does" is to say what it would run. Put the real work in the place of `work`, and keep reporting while it
goes on: a run that is not reported on for `lake_lease` is given to somebody else.

It may be killed at any moment, and started again: it keeps nothing. What it held is given to another worker when its
loan has run out, as another attempt with an id of its own; whatever it would still say of the old one is refused. A
report that got no answer is sent again, and so is the last one, which may have been taken already: then it is refused,
and the history has the truth.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

log = logging.getLogger("lake_worker")
KINDS = {"java_job": "java_job_progress", "sql_job": "sql_job_progress", "python_job": "python_job_progress"}
TRIES = 5  # of a request that gets no answer, or a 5xx
PAUSE = 0.2  # seconds before the second try; twice that before the third, and so on
OUT_OF_TOUCH = (urllib.error.URLError, http.client.HTTPException, OSError)


class Cancelled(Exception):
    """Somebody wants the run to stop."""


class Superseded(Exception):
    """The run is no longer ours: it has ended, or another worker has it."""


class Scheduler:
    def __init__(self, address: str, token: str) -> None:
        self._address = address.rstrip("/")
        self._headers = {"content-type": "application/json", "access-token": token}

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, content, self._headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)

    def pull(self) -> Any:
        """Never repeated: an answer that was lost has taken a run, which comes back when its loan has run out."""
        return self._ask("GET", "/lake/schedule/job/next").get("data")

    def report(self, taken: Any, status: str, message: str = "") -> None:
        now = int(time.time() * 1000)
        answer = self._insist("POST", "/lake/schedule/job/report", {
            "class_name": KINDS.get(taken["job"]["class_name"], "job_progress_impl"),
            "org_id": taken["job"]["org_id"],
            "run_id": taken["run_id"],
            "job_id": taken["job"]["job_id"],
            "start_time": now,
            "updated_time": now,
            "job_status": status,
            "message": message,
        })  # fmt: skip
        if not answer["success"]:
            raise Superseded
        if answer.get("cancel"):
            raise Cancelled

    def _insist(self, method: str, path: str, body: Any) -> Any:
        """As _ask, again and again for a while: a report may be repeated."""
        for attempt in range(TRIES):
            try:
                return self._ask(method, path, body)
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == TRIES - 1:
                    raise
            except OUT_OF_TOUCH:
                if attempt == TRIES - 1:
                    raise
            time.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last try returns or raises")


class Diary:
    """What this process did, a line each, for whoever wants to know; a line is there whole or not at all."""

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, what: str, taken: Any) -> None:
        if self._file is not None:
            run_id, attempt = divmod(taken["run_id"], 1000)
            line = {"what": what, "at": time.time(), "pid": os.getpid(), "run": run_id, "attempt": attempt}
            os.write(self._file, json.dumps({**line, "job": taken["job"]["job_id"]}).encode() + b"\n")


def work(job: Any, seconds: float) -> Iterator[str]:
    """Do a job in small steps; whatever is given out in between is reported."""
    if job["class_name"] == "sql_job":
        what = job["query_info"]["query"]
    else:
        what = f"{job['git_url']}: {job.get('build_cmd') or job.get('main_file')}"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield what
        time.sleep(0.05)


def run(scheduler: Scheduler, taken: Any, seconds: float) -> str:
    """One run, from its first report to its last; answers how it ended."""
    try:
        return _run(scheduler, taken, seconds)
    except Superseded:
        return "superseded"
    except OUT_OF_TOUCH as error:
        return f"out of touch: {error}"  # the run is given to another worker


def _run(scheduler: Scheduler, taken: Any, seconds: float) -> str:
    try:
        scheduler.report(taken, "Compiling")
        for step in work(taken["job"], seconds):
            scheduler.report(taken, "Running", step)
        scheduler.report(taken, "Finished")
    except Cancelled:
        scheduler.report(taken, "Killed", "stopped as asked")
        return "Killed"
    except (Superseded, *OUT_OF_TOUCH):
        raise
    except Exception as error:
        scheduler.report(taken, "Error", repr(error))
        return "Error"
    return "Finished"


def main() -> None:
    options = argparse.ArgumentParser(description="A worker of the lake contract.")
    options.add_argument("--server", default="http://127.0.0.1:8080")
    options.add_argument("--token", default="", help="a Horae token, where one is needed")
    options.add_argument("--seconds", type=float, default=1.0, help="how long a run takes")
    options.add_argument("--poll", type=float, default=10.0, help="seconds between two looks when there is nothing")
    options.add_argument("--once", action="store_true", help="end after one run")
    options.add_argument("--diary", help="a file to which begin and end of every run are added")
    given = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # asked to end: as by Ctrl-C
    scheduler, diary = Scheduler(given.server, given.token), Diary(given.diary)
    while True:
        try:
            taken = scheduler.pull()
        except OUT_OF_TOUCH as error:
            log.warning("no answer: %s", error)
            taken = None
        if taken is None:
            time.sleep(given.poll)
            continue
        diary.note("begin", taken)
        ended = run(scheduler, taken, given.seconds)
        diary.note(ended.partition(":")[0], taken)
        log.info("run %s of %s: %s", taken["run_id"], taken["job"]["display_name"], ended)
        if given.once:
            return


if __name__ == "__main__":
    main()
