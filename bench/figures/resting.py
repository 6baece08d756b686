"""What it takes to be there: CPU while nothing is due, and the time to come up with many triggers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure, measure
from bench.load import drafts, register
from bench.loadgen import JOB, Wire
from bench.node import Server, ready, server

FAR = {"every": "300d", "jitter": "100d"}  # nothing of this is due while we look


@figure(
    "idle",
    "CPU of `horae up` and its children while triggers are registered and none is due",
    registered=[1_000], seconds=[20], trials=1, quick={"seconds": [4]},
)  # fmt: skip
async def idle(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:

        async def ours(registered: int = registered) -> tuple[float, dict[str, Any]]:
            seconds = bench["seconds"][0]
            async with bench.places.fresh(bench.store) as place:
                await register(place, drafts(registered, schedule=FAR))
                async with server(place) as up:
                    await ready(up)
                    await asyncio.sleep(2)
                    before = up.cpu_seconds()
                    await asyncio.sleep(seconds)
                    spent = up.cpu_seconds() - before
                    return spent / seconds * 100, {"rss_mib": round(up.memory_mib())}

        detail = {"registered": registered, "seconds": bench["seconds"][0]}
        line = Line("idle", bench.store, "% of a core", aim=Aim("at most", 1), detail=detail)
        yield await measure(line, bench["trials"], ours)


@figure(
    "startup",
    "from the start of `horae up` until it is ready, with many triggers registered; bare: with none",
    registered=[1_000_000], quick={"registered": [10_000]},
)  # fmt: skip
async def startup(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:
        line = Line("startup", bench.store, "s", aim=Aim("at most", 2), detail={"registered": registered})
        async with bench.places.fresh(bench.store) as full, bench.places.fresh(bench.store) as empty:
            loaded = await register(full, drafts(registered, schedule=FAR))
            line.detail["load_jobs_per_s"] = round(loaded)

            async def ours(place: Any = full) -> tuple[float, dict[str, Any]]:
                began = time.perf_counter()
                async with server(place) as up:
                    await ready(up)
                    seconds = time.perf_counter() - began
                    first = await _first_run(up)
                    return seconds, {"first_run_s": round(first - began, 3), "rss_mib": round(up.memory_mib())}

            async def loop(place: Any = empty) -> float:
                began = time.perf_counter()
                async with server(place) as up:
                    await ready(up)
                    return time.perf_counter() - began

            yield await measure(line, bench["trials"], ours, loop)


async def _first_run(up: Server) -> float:
    """Submit a job to run at once; when it has succeeded."""
    wire = await Wire.connect(up.port)
    job = {name: value for name, value in JOB.items() if name != "schedule"}
    job_id = (await wire.json("POST", "/v1/jobs", {**job, "run_once": True}))["jobs"][0]["id"]
    for _ in range(2_000):
        runs = (await wire.json("GET", f"/v1/runs?job_id={job_id}&state=succeeded"))["items"]
        if runs:
            wire.close()
            return time.perf_counter()
        await asyncio.sleep(0.005)
    raise Void("a job submitted after start did not run within 10 s")
