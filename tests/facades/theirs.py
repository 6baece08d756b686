"""An organisation that has something of every kind, all of it marked: whoever sees the mark has seen what is not
theirs."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from horae.core.alerts.states import Alert, AlertState, key_of
from horae.core.hooks import hash_of
from horae.core.members import org_label
from horae.core.model import State
from tests.facades.lake.bodies import java, source, sync
from tests.facades.world import World

MARK = "canary"
# Tables that change by themselves, or are for all.
NOT_THEIRS = ("nodes", "leases", "settings", "segments", "ids", "shares", "event_readers", "endings", "migrations")


@dataclass(frozen=True, slots=True)
class Theirs:
    """Ids of what there is."""

    job: int  # a shell job with a schedule, of which one run is queued
    queued: int
    ended: int  # a run with a log and a file
    trigger: int
    hook: int  # a trigger
    watched: int  # a job
    approval: int  # a run that waits for one
    lake: int  # jobs of the contracts, and what they have
    lake_run: int
    sync: int
    source: int
    segment: int
    user: int  # made for a user by the RPC contract
    user_run: int
    alert: int
    token: int
    grant: int


async def furnish(world: World) -> Theirs:
    """All of organisation 1, by its member ann."""
    token, text = await world.services.access.create(MARK, "user", "ann", None)
    headers = {"authorization": f"Bearer {text}"}

    async def ask(method: str, path: str, body: Any = None) -> Any:
        answer = await world.http.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json() if answer.content else None

    await world.join()
    await ask("PUT", f"/v1/queues/{MARK}-queue", {"org": 1, "concurrency": 1})
    await ask("POST", f"/v1/queues/{MARK}-queue/pause")
    await world.store.register_node(replace(world.agent(), name=f"{MARK}-agent", labels=(org_label(1),)))
    shell = {"name": f"{MARK} job", "key": "k", "steps": [{"run": f"echo {MARK}"}], "schedule": "@every 1m"}
    job = (await ask("POST", "/v1/jobs", shell))["jobs"][0]
    work = await world.start_run(job["id"])
    await work.write(f"{MARK} log\n".encode())
    await work.keep(0, MARK.encode())
    kept = json.dumps({"artifacts": [{"path": f"{MARK}.txt", "size": len(MARK)}]})
    await work.end(State.FAILED, result=kept, message=MARK)
    queued = await world.queue_run(job["id"])
    hooked = {"name": f"{MARK} hook", "steps": shell["steps"], "triggers": [{"webhook": {}}]}
    hook = (await ask("POST", "/v1/jobs", hooked))["jobs"][0]
    await _set_hook(world, hook["id"])
    watched = (await ask("POST", "/v1/jobs", {"name": f"{MARK} watched", "watched": {"grace": "5m"}}))["jobs"][0]
    asked = {"name": f"{MARK} asks", "wait": {"approval": {"by": ["ann"], "message": MARK}}}
    approval = await world.queue_run((await ask("POST", "/v1/jobs", asked))["jobs"][0]["id"])
    lake = (await ask("POST", "/lake/job/create", java(display_name=f"{MARK} lake")))["job"]["job_id"]
    kept_source = await ask("POST", "/source/create", source(display_name=f"{MARK} source", password=MARK))
    synced = await ask("POST", "/job/create", sync(display_name=f"{MARK} sync", source_id=kept_source["id"]))
    segment = {
        "jobName": f"{MARK} segment", "userId": 7, "frequency": "DAILY", "executionTime": "2001-01-01T00:00:00Z",
        "payload": MARK,
    }  # fmt: skip
    stored = (await ask("POST", "/api/jobs", segment))["data"]["id"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "submit_job", "params": {"user_id": MARK, "code_location": NOOP}}
    user = (await ask("POST", "/rpc", call))["result"]
    await world.fire()
    runs = {each["job_id"]: each["id"] for each in (await ask("GET", "/v1/runs?limit=100"))["items"]}
    await ask("PUT", "/v1/secrets/A", {"value": MARK})
    grant = await ask("POST", "/v1/grants", {"who": MARK, "role": "editor", "tag": "t"})
    return Theirs(
        job["id"], queued.id, work.run_id, job["triggers"][0]["id"], (await world.jobs.get(hook["id"])).triggers[0].id,
        watched["id"], approval.id, lake, runs[lake], synced["job"]["job_id"], kept_source["id"], stored, user,
        runs[user], await _alert(world), token.id, grant["id"],
    )  # fmt: skip


NOOP = "horae.handlers:noop"


async def _set_hook(world: World, job_id: int) -> None:
    job = await world.jobs.get(job_id)
    known = replace(job.triggers[0], hook=hash_of("known"))
    await world.store.save_job(replace(job, triggers=(known,), version=job.version + 1), job.version)


async def _alert(world: World) -> int:
    for name in ("ops", MARK):
        await world.services.alerts.put_channel(1, name, {"kind": "email", "to": [f"{MARK}@example.org"]})
    for name in ("nights", MARK):
        await world.services.alerts.put_rule(1, name, {"when": "failure", "channels": ["ops"]})
    alert = Alert(0, 1, "nights", "job:1", f"{MARK} job", AlertState.OPEN, 1, 1, 0, 0, text=MARK)
    assert await world.store.save_alerts({key_of(alert): alert})
    [found] = await world.store.list_alerts(1, 0, 10)
    return found.id


def rows_of(directory: Path) -> Counter[tuple[Any, ...]]:
    """Return every row that the store in this directory has: what somebody else did may add some, but not touch
    these."""
    (file,) = directory.glob("*.db")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        tables = [name for (name,) in database.execute(named) if name not in NOT_THEIRS]
        return Counter((name, *row) for name in tables for row in database.execute(f'SELECT * FROM "{name}"'))
