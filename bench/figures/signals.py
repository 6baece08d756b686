"""Runs that wait for a signal: what very many of them cost while they wait, and how soon one goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure, measure, percentile
from bench.loadgen import Wire
from bench.node import Server, now, ready, server
from bench.places import Place
from horae.core.definitions import Submission
from horae.core.model import Policy
from horae.core.runs.orders import NewRun, Order
from horae.testing import make_job

JOB = 1
MADE_TOGETHER = 5_000
WOKEN = 200  # runs that are told something, one after the other
WAITING = "UPDATE live SET state = 2, reason = 'signal', awaits = 'go', attempt = 1, fence = 1, note = 'waits'"
LOOKED_AT = """SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
  (SELECT seq_tup_read + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'live')"""


@figure(
    "signals",
    "from a signal until the handler has it, in ms, p99, with many other runs that wait; and CPU while they do",
    size=[100_000], seconds=[60], trials=1, quick={"size": [2_000], "seconds": [5]},
)  # fmt: skip
async def signals(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        detail = {"waiting": size, "seconds": bench["seconds"][0]}

        async def ours(size: int = size) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                await _load(place, size)
                async with server(place) as up:
                    await ready(up)
                    resting = await _rest(place, up, bench["seconds"][0])
                    times = await _wake(up, min(WOKEN, size))
                    return percentile(times, 0.99), {**resting, "p50_ms": round(percentile(times, 0.5), 1)}

        async def empty(detail: dict[str, Any] = detail) -> float:
            async with bench.places.fresh(bench.store) as place:
                await _load(place, 0)
                async with server(place) as up:
                    await ready(up)
                    detail["without"] = await _rest(place, up, bench["seconds"][0])
                    return 0.0

        line = Line("signals", bench.store, "ms", aim=Aim("at most", 100), detail=detail)
        yield await measure(line, bench["trials"], ours, empty)


async def _load(place: Place, size: int) -> None:
    """Runs as handlers leave them that have asked for a signal."""
    store = await place.open()
    try:
        job = make_job(JOB, kind="python", policy=Policy(), spec={"handler": "noops:told"})
        await store.submit([Submission([job])])
        for first in range(0, size, MADE_TOGETHER):
            orders = [Order(NewRun(JOB, "python", 5, 1)) for _ in range(first, min(first + MADE_TOGETHER, size))]
            await store.enqueue(orders)
    finally:
        await store.close()
    await place.rows(WAITING)
    await place.settle()


async def _rest(place: Place, up: Server, seconds: int) -> dict[str, Any]:
    """What is done in a minute while nothing happens."""
    await asyncio.sleep(12)  # until the counts of its start are told, too
    before, spent = await _counts(place), up.cpu_seconds()
    await asyncio.sleep(seconds)
    found = {"cpu_percent": round((up.cpu_seconds() - spent) / seconds * 100, 2)}
    after = await _counts(place)
    per_minute = [round((b - a) * 60 / seconds) for a, b in zip(before, after, strict=True)]
    return found | dict(zip(("commits_per_minute", "live_rows_read_per_minute"), per_minute, strict=False))


async def _counts(place: Place) -> list[int]:
    """Commits, and rows of live runs that were read; SQLite counts neither."""
    return [] if place.store == "sqlite" else [int(one) for one in (await place.rows(LOOKED_AT))[0]]


async def _wake(up: Server, count: int) -> list[float]:
    """Tell runs one after the other when they were told; return how many ms later each of them knew, sorted."""
    wire = await Wire.connect(up.port)
    times = []
    page = await wire.json("GET", f"/v1/runs?state=blocked&limit={count}")
    for run in page["items"]:
        await wire.json("POST", f"/v1/runs/{run['id']}/signals/go", now())
        times.append(await _known(wire, run["id"]))
        await asyncio.sleep(0.01)
    wire.close()
    return sorted(times[1:])  # the first starts the worker


async def _known(wire: Wire, run_id: int) -> float:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        run = await wire.json("GET", f"/v1/runs/{run_id}")
        if run["state"] == "succeeded":
            return float(run["result"]) / 1000
        await asyncio.sleep(0.005)
    raise Void(f"run {run_id} did not go on within 20 s")
