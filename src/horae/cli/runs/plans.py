"""What a run would be: for `--dry-run` of the commands that ask for runs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from horae.cli.planning import say_would
from horae.cli.runs.batches import SHOWN, open_data, read_lines
from horae.cli.screen import Json, clean, name_of_job
from horae.cli.session import Session
from horae.cli.several import live_runs
from horae.errors import Conflict, Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient


def plan_run(session: Session, client: SyncClient, job: Json, data: Json | None) -> int:
    """Say what `run` would do; what it would refuse is refused."""
    _refuse_paused(job)
    _refuse_unfit(client, job, data)
    held = _held_by(client, job)
    shown = {"job_id": job["id"], "job_name": job["name"], "data": data, "held_by": held["id"] if held else None}
    with_data = f" with {json.dumps(data, ensure_ascii=False)}" if data is not None else ""
    say_would(session, clean(f"run job {job['id']} {job['name']}{with_data}{_overlap(job, held)}"), shown)
    return 0


def _refuse_paused(job: Json) -> None:
    if job["paused"]:
        raise Conflict(f"job {job['id']} is paused; resume it first", code="E_PAUSED")


def _refuse_unfit(client: SyncClient, job: Json, data: Json | None) -> None:
    """Refuse data that the handler does not take, as far as the server can see the handler."""
    known = client.json.data_schema(job["id"])
    if known["schema"] is None:
        return
    from horae.core.shapes import find_problems  # few need it

    if found := list(find_problems(known["schema"], known["data"] if data is None else data, "data")):
        raise Invalid.of(found)


def _held_by(client: SyncClient, job: Json) -> Json | None:
    """Return the run that is live, where the job may have one at a time."""
    if job["policy"].get("overlap", "forbid") == "allow":
        return None
    return next(iter(live_runs(client, job["id"])), None)


def _overlap(job: Json, held: Json | None) -> str:
    if held is None:
        return ""
    what = {"queue": "it would wait for", "replace": "it would replace"}.get(
        job["policy"].get("overlap", "forbid"), "it would be skipped, because of"
    )
    return f"; {what} run {held['id']}, {held['state']}"


def plan_file(session: Session, client: SyncClient, job: Json, name: str) -> int:
    """Say how many runs `run --data-file` would ask for, and which lines are none."""
    _refuse_paused(job)
    told: Counter[bool] = Counter()
    wrong: list[Json] = []
    with open_data(name) as file:
        for line in read_lines(file):
            told[line.data is not None] += 1
            if line.data is None:
                wrong.append({"line": line.number, "error": line.error})
    shown = {"job_id": job["id"], "job_name": job["name"], "runs": told[True], "refused": wrong}
    say_would(session, clean(f"run job {job['id']} {job['name']} {told[True]} times"), shown)
    for one in wrong[:SHOWN]:
        session.screen.note(f"line {one['line']}: {one['error']}")
    return 1 if wrong else 0


def plan_retry(session: Session, run: Json) -> int:
    """Say what `runs retry` would take over, and what it would do again."""
    name = name_of_job(run)
    tasks = run.get("tasks")
    if tasks is None:
        hint = f"`horae runs rerun {run['id']}` runs it again"
        raise Conflict(f"run {run['id']} of {name} is no workflow", code="E_NO_TASKS", hint=hint)
    if run["state"] in ("queued", "blocked", "running"):
        raise Conflict(f"run {run['id']} has not ended: {run['state']}", code="E_NOT_ENDED", hint="cancel it first")
    if run["state"] == "succeeded":
        raise Conflict(f"run {run['id']} has succeeded: nothing of it is left to do", code="E_TERMINAL")
    kept = [task["name"] for task in tasks if task["runs"].keys() == {"succeeded"}]
    again = [task["name"] for task in tasks if task["name"] not in kept]
    taken_over, done_again = ", ".join(kept) or "nothing", ", ".join(again)
    words = f"go on with run {run['id']} of {name}: {taken_over} is taken over, {done_again} done again"
    say_would(session, clean(words), {**run, "taken_over": kept, "again": again})
    return 0
