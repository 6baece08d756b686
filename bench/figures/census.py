"""What one scheduled run costs: commits, statements, log bytes on the server; CPU in the Horae process.

Counts hardly depend on how busy the machine is, so these are the figures to compare between changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from bench.costs import COUNTERS
from bench.figure import Aim, Bench, Line, Void, figure
from bench.figures.rates import lead
from bench.load import at, drafts, register, sleep_until
from bench.node import Node, node, now
from bench.places import Place
from horae.core.model import SECOND, Json

PERIOD = 10  # seconds between two moments of a trigger

BUDGET = {"commits": 0.02, "statements": 0.02, "wal_bytes": 1500.0, "python_us": 45.0}


@dataclass(frozen=True, slots=True)
class Count:
    stat: dict[str, Any]
    wal_bytes: int
    commits: int


@figure(
    "census",
    "commits, statements, WAL bytes and CPU per scheduled run, in a steady state of recurring triggers",
    stores=("postgres",), rate=[5000], seconds=[10], lead=None, quick={"rate": [2000], "seconds": [5]},
)  # fmt: skip
async def census(bench: Bench) -> AsyncIterator[Line]:
    for rate in bench["rate"]:
        for seconds in bench["seconds"]:
            detail = {"rate": rate, "registered": rate * PERIOD, "seconds": seconds}
            try:
                costs, seen = await _costs_of(bench, rate, seconds)
            except Void as why:
                yield Line("census", bench.store, "per run", detail=detail, void=str(why))
                continue
            for name, budget in BUDGET.items():
                aim = Aim("at most", budget)
                yield Line(f"census.{name}", bench.store, "per run", costs[name], aim=aim, detail={**detail, **seen})


async def fill(place: Place, size: int, schedule: Json) -> None:
    """With jobs of one owner, that limit nothing."""
    await register(place, drafts(size, schedule=schedule))


async def _costs_of(bench: Bench, rate: int, seconds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return what a run costs in a steady state, and what was seen."""
    async with bench.places.fresh(bench.store) as place:
        size = rate * PERIOD
        began = now() + lead(bench, size) * SECOND
        schedule = {"every": f"{PERIOD}s", "start_at": at(began), "jitter": f"{PERIOD * 1000 - 1}ms"}
        await fill(place, size, schedule)
        async with node(place) as one:
            await one.go()
            await sleep_until(began + PERIOD * SECOND)  # the first round has filled every cache
            before = await count(place, one)
            await asyncio.sleep(seconds)
            after = await count(place, one)
            await judge(place, before, after)
            return per_run(before, after)


async def count(place: Place, one: Node) -> Count:
    """Return what was done so far."""
    wal, commits = (await place.rows(COUNTERS))[0]
    return Count(await one.stat(), int(wal), commits)


def per_run(before: Count, after: Count) -> tuple[dict[str, float], dict[str, Any]]:
    """Return what a run has cost between two counts, and what was seen."""
    a, b = before.stat, after.stat
    runs, seconds = b["finished"] - a["finished"], (b["at"] - a["at"]) / SECOND
    costs = {
        "commits": (after.commits - before.commits) / runs,
        "statements": (b["statements"] - a["statements"]) / runs,
        "wal_bytes": (after.wal_bytes - before.wal_bytes) / runs,
        "python_us": (b["cpu"] - a["cpu"]) / runs * 1e6,
    }
    batches, queries = (more(a[name], b[name]) for name in ("batches", "queries"))
    return costs, {"runs": runs, "runs_per_s": round(runs / seconds), "batches": batches, "queries": queries}


def more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Return by how much each count has grown, the most first."""
    grown = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: grown[name] for name in sorted(grown, key=lambda name: -grown[name]) if grown[name]}


async def judge(place: Place, before: Count, after: Count) -> None:
    """Void unless all runs succeeded, and none was left behind."""
    late = after.stat["fired"] - after.stat["finished"]
    behind = before.stat["fired"] - before.stat["finished"]
    bad = (await place.rows("SELECT count(*) FROM history WHERE state <> 10"))[0][0]
    if bad or late > behind + 2000:
        raise Void(f"not a steady state: {bad} runs did not succeed, {late} in flight after {behind}")
