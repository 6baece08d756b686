"""After an outage: how long the account of missed moments takes, and how late everything else is meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure, measure, percentile
from bench.figures.latency import timers
from bench.load import drafts, submit
from bench.node import Node, node, now
from bench.places import Place, PostgresPlace, SqlitePlace
from horae.core.model import SECOND, State
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore

MINUTE = 60 * SECOND
PUNCTUAL = 20  # jobs that are due every second meanwhile
WARM = SECOND  # after the start, before punctual jobs are looked at
LEAST = 10 * SECOND  # for which they are looked at, however fast it went
PATIENCE = 900.0  # seconds
MS = 1000  # µs


@figure(
    "catchup",
    "minutely triggers after an outage of so many hours, with twenty punctual jobs meanwhile: how late those are",
    size=[1_000], hours=[60], trials=1, quick={"size": [50], "hours": [5]},
)  # fmt: skip
async def catchup(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        for hours in bench["hours"]:
            detail = {"triggers": size, "hours": hours, "missed": size * hours * 60}
            line = Line("catchup", bench.store, "ms p99", aim=Aim("at most", 50), detail=detail)
            trial = partial(_trial, bench, size, hours)
            yield await measure(line, bench["trials"], trial, lambda: timers(PUNCTUAL))


async def _trial(bench: Bench, size: int, hours: int) -> tuple[float, dict[str, Any]]:
    async with bench.places.fresh(bench.store) as place:
        await _load(place, hours, drafts(size, schedule={"every": "1m"}))
        await _load(place, 0, drafts(PUNCTUAL, schedule={"every": "1s"}))
        await place.settle()
        async with node(place) as one:
            began = now()
            await one.go()
            await one.feel()
            took = await _until_current(place, one)
            await asyncio.sleep(max(0.0, (began + WARM + LEAST - now()) / SECOND))
            stat = await one.stat()
            waits = await _waits(place, size, began + WARM, now() - SECOND)
        await _judge(place)
    return percentile(waits, 0.99) / MS, {
        "p50_ms": round(percentile(waits, 0.5) / MS, 2), "max_ms": round(waits[-1] / MS, 2), "punctual": len(waits),
        "caught_up_s": round(took, 2), "longest_block_ms": round(stat["blocked"] * 1000, 1),
        "longest_block_cpu_ms": round(stat["blocked_cpu"] * 1000, 1), "cpu_s": round(stat["cpu"], 1),
    }  # fmt: skip


async def _load(place: Place, hours: int, jobs: list[Any]) -> None:
    """Submit as if it were so many hours ago."""
    store = await _open(place, lambda: now() - hours * 60 * MINUTE)
    await submit(store, jobs)
    await store.close()


async def _open(place: Place, clock: Any) -> Store:
    store: SqliteStore | PostgresStore
    if isinstance(place, SqlitePlace):
        store = SqliteStore(place.path, clock=clock)
    else:
        assert isinstance(place, PostgresPlace)
        store = PostgresStore(place.url, clock=clock)
    await store.open()
    return store


async def _until_current(place: Place, one: Node) -> float:
    """Seconds until no trigger is behind any more."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        await one.stat()  # it raises when the process is gone
        if not (await place.rows(f"SELECT count(*) FROM due WHERE next_at < {now() - 5 * SECOND}"))[0][0]:
            return time.monotonic() - began
        await asyncio.sleep(0.2)
    left = (await place.rows(f"SELECT count(*) FROM due WHERE next_at < {now() - 5 * SECOND}"))[0][0]
    raise Void(f"{left} triggers were still behind after {PATIENCE:.0f} s")


async def _waits(place: Place, size: int, start: int, end: int) -> list[float]:
    """Return how late punctual moments were, µs, sorted: until they started; where they did not, until their record."""
    rows = await place.rows(
        f"SELECT COALESCE(started_at, created_at) - due_at FROM history"
        f" WHERE job_id > {size} AND due_at > {start} AND due_at <= {end}"
    )
    if not rows:
        raise Void("no punctual moment has a record")
    return sorted(float(wait) for (wait,) in rows)


async def _judge(place: Place) -> None:
    """Every moment of every trigger has one record, and none points nowhere."""
    wrong = await place.rows(
        "SELECT r.trigger_id FROM (SELECT trigger_id, due_at FROM history UNION ALL"
        " SELECT trigger_id, due_at FROM live) AS r GROUP BY r.trigger_id"
        f" HAVING count(*) <> count(DISTINCT r.due_at) OR (max(r.due_at) - min(r.due_at)) /"
        f" (CASE WHEN (max(r.due_at) - min(r.due_at)) / (count(*) - 1) > {2 * SECOND} THEN {MINUTE} ELSE {SECOND} END)"
        " + 1 <> count(*)"
    )
    astray = await place.rows(
        f"SELECT count(*) FROM history h WHERE h.state = {int(State.COALESCED)}"
        " AND h.into_run_id NOT IN (SELECT id FROM live UNION ALL"
        f" SELECT id FROM history WHERE state <> {int(State.COALESCED)})"
    )
    if wrong or astray[0][0]:
        raise Void(f"{len(wrong)} triggers have lost or doubled moments, {astray[0][0]} point nowhere")
