"""Jobs that are their own witnesses, and what their files and the records must say afterwards."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from horae.core.model import LOST_LIMIT

from .server import Server

# The job is its own witness. The lock is held by the whole process tree and goes with its last member, so a
# second copy that starts while any process of the first is alive finds it taken and says so.
WITNESS = """
exec 9>>{lock}
flock -n 9 || echo "OVERLAP $HORAE_RUN_ID $HORAE_FENCE" >> {file}
echo "start $HORAE_RUN_ID $HORAE_ATTEMPT $HORAE_FENCE" >> {file}
sleep 0.{pause}
echo "end $HORAE_RUN_ID $HORAE_ATTEMPT $HORAE_FENCE" >> {file}
"""


def witness(number: int, directory: Path) -> dict[str, Any]:
    run = WITNESS.format(lock=directory / f"{number}.lock", file=directory / f"{number}.txt", pause=1 + number % 3)
    return {"name": f"witness {number}", "schedule": "1s", "steps": [{"run": run}]}


def moment(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1_000_000)


def check_ledger(server: Server, job: Any) -> None:
    """Every moment from the first to the last fired one has exactly one record, and it has ended."""
    trigger = server.get(f"/v1/jobs/{job['id']}")["triggers"][0]
    runs = server.every("/v1/runs", job_id=job["id"])
    due = sorted(moment(run["due_at"]) for run in runs)
    first, last = moment(job["triggers"][0]["next_at"]), moment(trigger["last_at"])

    assert due == list(range(first, last + 1, 1_000_000))
    lost = [run for run in runs if run["reason"] == "lost" and run["lost"] >= LOST_LIMIT]  # as often as is promised
    odd = [run for run in runs if run["state"] not in ("succeeded", "skipped", "coalesced") and run not in lost]
    assert odd == []
    by_id = {run["id"]: run for run in runs}
    for run in runs:
        if run["state"] == "coalesced":
            assert by_id[run["into_run_id"]]["state"] != "coalesced"


def check_witness(file: Path, runs: list[Any]) -> None:
    """No two copies at once; fences only grow; what the record calls a success did end."""
    lines = [line.split() for line in file.read_text().splitlines()]
    assert not [line for line in lines if line[0] == "OVERLAP"]
    fences: dict[str, int] = {}
    for word, run_id, _, fence in lines:
        if word == "start":
            assert int(fence) > fences.get(run_id, 0)
            fences[run_id] = int(fence)
    ended = {(line[1], line[3]) for line in lines if line[0] == "end"}
    for run in runs:
        if run["state"] == "succeeded":
            assert (str(run["id"]), str(run["fence"])) in ended
