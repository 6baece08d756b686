"""What a task of a workflow costs: the same counts as of a scheduled run, beside those of ordinary runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.costs import COUNTERS
from bench.figure import Bench, Line, Void, figure
from bench.load import INLINE, sleep_until
from bench.node import Node, node, now, until
from bench.places import Place
from horae.core.model import SECOND, Json
from horae.core.runs.orders import NewRun, Order
from horae.core.work import specs
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs

LEAD = 20  # seconds until the order that is measured comes due: by then the process is up, and has done another one
WARM = 10  # tasks of that other one
TOLD = 1.5  # seconds after which the server has counted all commits
PATIENCE = 120.0  # seconds


@figure(
    "workflow",
    "commits, statements and CPU per task of a workflow that fans out; bare: per ordinary run of as many",
    size=[1_000], trials=1, quick={"size": [100]},
)  # fmt: skip
async def workflow(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        try:
            tasks = await _costs(bench, size, is_flow=True)
            runs = await _costs(bench, size, is_flow=False)
        except Void as why:
            yield Line("workflow", bench.store, "per task", detail={"size": size}, void=str(why))
            continue
        for name, cost in tasks.items():
            yield Line(f"workflow.{name}", bench.store, "per task", cost, runs[name], detail={"size": size})


async def _costs(bench: Bench, size: int, *, is_flow: bool) -> dict[str, float]:
    async with bench.places.fresh(bench.store) as place:
        due = now() + LEAD * SECOND
        await _order(place, WARM, None, is_flow)
        await _order(place, size, due, is_flow)
        async with node(place) as one:
            await one.go()
            await sleep_until(due - 2 * SECOND)
            before = await _count(place, one, WARM)
            await _done(place, one, size + WARM)
            after = await _count(place, one, size + WARM)
    names = ("python_us", "statements", "commits") if place.store == "postgres" else ("python_us",)
    return {name: (b - a) / size for name, a, b in zip(names, before, after, strict=False)}


async def _order(place: Place, count: int, run_at: int | None, is_flow: bool) -> None:
    """One workflow of so many tasks, or so many runs of one job."""
    store = await place.open()
    document: Json = {"name": f"bench of {count}", "handler": INLINE, "overlap": "allow"}
    if is_flow:
        each = {"handler": INLINE, "for_each": list(range(count)), "data": {"number": "${item}"}}
        document = {"name": f"bench of {count}", "tasks": {"each": each}}
    [job] = (await Jobs(store, LocalQueue()).submit([specs.parse_job(document)])).jobs
    policy = job.policy
    data = None if is_flow else '{"number":1}'
    orders = [
        Order(NewRun(job.id, job.kind, policy.priority, policy.overlap, data=data), run_at=run_at)
        for _ in range(1 if is_flow else count)
    ]
    await store.enqueue(orders)
    await store.close()
    await place.settle()


async def _done(place: Place, one: Node, count: int) -> None:
    """Wait until so many tasks or runs have ended, and their workflows. Its own looks are counted as commits, too."""
    await until([one], "finished", count, PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while (await place.rows("SELECT count(*) FROM live"))[0][0]:
        if time.monotonic() > deadline:
            raise Void(f"the workflow has not ended {PATIENCE:.0f} s after its last task")
        await asyncio.sleep(0.5)


async def _ended(place: Place) -> int:
    return int((await place.rows("SELECT count(*) FROM history WHERE state = 10 AND kind = 'python'"))[0][0])


async def _count(place: Place, one: Node, expected: int) -> list[float]:
    """Return what was used so far: CPU in µs, statements, commits."""
    if (ended := await _ended(place)) != expected:
        raise Void(f"{ended} have succeeded, {expected} expected")
    await asyncio.sleep(TOLD)
    stat: dict[str, Any] = await one.stat()
    counted: list[float] = [stat["cpu"] * 1e6, stat["statements"]]
    return counted if place.store == "sqlite" else [*counted, (await place.rows(COUNTERS))[0][1]]
