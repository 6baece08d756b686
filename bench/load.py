"""Filling a place before a trial, and judging what is in it afterwards."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime

from bench.figure import Void
from bench.places import Place
from horae.core.model import SECOND, Json, State
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import Order
from horae.core.work import specs
from horae.core.work.specs import Draft
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs

CHUNK = 5000  # jobs submitted in one call
INLINE = "horae.handlers:noop"
WORKER = "noops:noop"
HANDLERS = {"inline": INLINE, "worker": WORKER}


def drafts(count: int, handler: str = INLINE, schedule: Json | None = None) -> list[Draft]:
    """Jobs that differ in their names; all have the same schedule, spread by its jitter if it has one."""
    document = {"name": "bench", "handler": handler, **({"triggers": [schedule]} if schedule else {})}
    one = specs.parse_job(document)
    return [replace(one, name=f"bench-{number}") for number in range(count)]


def at(moment: int) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat().replace("+00:00", "Z")


async def submit(store: Store, jobs: list[Draft], first: int = 0) -> float:
    """Submit through the service, in large calls; jobs per second."""
    service = Jobs(store, LocalQueue())
    began = time.perf_counter()
    for start in range(first, len(jobs), CHUNK):
        await service.submit(jobs[start : start + CHUNK])
    return (len(jobs) - first) / (time.perf_counter() - began)


async def register(place: Place, jobs: list[Draft]) -> float:
    """Submit and close the store, so that a node can open it; jobs per second."""
    store = await place.open()
    rate = await submit(store, jobs)
    await store.close()
    await place.settle()
    return rate


async def queue_runs(place: Place, count: int, handler: str = INLINE) -> None:
    """A backlog: one queued run of each of `count` jobs."""
    store = await place.open()
    await submit(store, drafts(count, handler))
    policy = drafts(1, handler)[0].policy
    moment = await store.now()
    job_ids = [row[0] for row in await place.rows("SELECT id FROM jobs")]
    orders = [Order(new_run(job_id, "python", policy, moment)) for job_id in job_ids]
    for start in range(0, count, CHUNK):
        await store.enqueue(orders[start : start + CHUNK])
    await store.close()
    await place.settle()


async def sleep_until(moment: int) -> None:
    seconds = moment / SECOND - time.time()
    if seconds <= 0:
        raise Void(f"loading took {-seconds:.1f} s longer than the plan allowed; give --lead")
    await asyncio.sleep(seconds)


async def judge(place: Place, runs: int) -> None:
    """Every run is in history, once, succeeded; nothing is left over."""
    total, jobs, good = (
        await place.rows(
            f"SELECT count(*), count(DISTINCT job_id), sum(CASE WHEN state = {int(State.SUCCEEDED)} THEN 1 ELSE 0 END)"
            " FROM history"
        )
    )[0]
    left = (await place.rows("SELECT count(*) FROM live"))[0][0]
    if (total, jobs, good or 0, left) != (runs, runs, runs, 0):
        raise Void(f"{runs} runs of as many jobs expected; got {total} of {jobs}, {good} succeeded, {left} left over")
