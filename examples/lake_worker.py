"""A worker of the lake contract, in the standard library alone: it pulls runs, does them, and reports.

    python examples/lake_worker.py --server http://127.0.0.1:8080          until it is interrupted
    python examples/lake_worker.py --server http://127.0.0.1:8080 --once   one run, then it ends

What it "does" is to say what it would run. Put the real work in the place of `work`, and keep reporting while it
goes on: a run that is not reported on for `lake_lease` is given to somebody else.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

log = logging.getLogger("lake_worker")
KINDS = {"java_job": "java_job_progress", "sql_job": "sql_job_progress", "python_job": "python_job_progress"}


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
        return self._ask("GET", "/lake/schedule/job/next").get("data")

    def report(self, taken: Any, status: str, message: str = "") -> None:
        now = int(time.time() * 1000)
        answer = self._ask("POST", "/lake/schedule/job/report", {
            "class_name": KINDS[taken["job"]["class_name"]],
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
        scheduler.report(taken, "Compiling")
        for step in work(taken["job"], seconds):
            scheduler.report(taken, "Running", step)
        scheduler.report(taken, "Finished")
    except Cancelled:
        scheduler.report(taken, "Killed", "stopped as asked")
        return "Killed"
    except Superseded:
        return "superseded"
    except urllib.error.URLError as error:
        return f"out of touch: {error}"  # should it last, the run is given to another worker
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
    given = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    scheduler = Scheduler(given.server, given.token)
    while True:
        try:
            taken = scheduler.pull()
        except urllib.error.URLError as error:
            log.warning("no answer: %s", error)
            taken = None
        if taken is None:
            time.sleep(given.poll)
            continue
        ended = run(scheduler, taken, given.seconds)
        log.info("run %s of %s: %s", taken["run_id"], taken["job"]["display_name"], ended)
        if given.once:
            return


if __name__ == "__main__":
    main()
