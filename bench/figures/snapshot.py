"""What the forgotten transaction of another program does to claims: what has ended is kept for it, in the index too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from statistics import fmean
from typing import Any

import asyncpg

from bench.figure import Aim, Bench, Line, Void, figure
from bench.load import drafts, submit
from bench.places import Place
from horae.core.model import Overlap, State
from horae.core.runs.orders import NewRun, Order, Result, Want
from horae.ports.store import Store

MADE, CLAIMED = 1000, 100  # runs at a time
JOBS = 100
# What claims read of the live runs: entries of their index, and blocks of the table and of its indexes.
READ = """SELECT idx_tup_read, (SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
FROM pg_statio_user_tables WHERE relname = 'live') FROM pg_stat_user_indexes WHERE indexrelname = 'live_order'"""


@figure(
    "snapshot",
    "a claim after so many runs, ms, while another program holds a snapshot from before them; bare: without it",
    size=[200_000], trials=1, quick={"size": [20_000]}, stores=("postgres",),
)  # fmt: skip
async def snapshot(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        line = Line("snapshot", bench.store, "ms", aim=Aim("at most", 1.5, "quotient"), detail={"runs": size})
        try:
            for is_held in (False, True):
                async with bench.places.fresh(bench.store) as place:
                    spent, detail = await _work(place, size, is_held)
                line.detail["held" if is_held else "free"] = detail
                line.value, line.bare = (spent, line.bare) if is_held else (None, spent)
        except Void as why:
            line.void = str(why)
        yield line


async def _work(place: Place, size: int, is_held: bool) -> tuple[float, dict[str, Any]]:
    """Return the mean of the last tenth of the claims, and what they read."""
    store = await place.open()
    await submit(store, drafts(JOBS))
    ids = [row[0] for row in await place.rows("SELECT id FROM jobs")]
    orders = [Order(NewRun(ids[number % JOBS], "python", 0, Overlap.ALLOW)) for number in range(MADE)]
    async with AsyncExitStack() as stack:
        if is_held:
            other = await asyncpg.connect(place.flags["database"])
            stack.push_async_callback(other.close)
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await other.execute("SELECT count(*) FROM jobs")
        spent: list[float] = []
        await _pass(store, orders, spent, size * 9 // 10 // MADE)
        before, claims = await _read(place), len(spent)
        await _pass(store, orders, spent, size // 10 // MADE)
        after = await _read(place)
    await store.close()
    last = spent[claims:]
    detail = {
        "entries_per_claim": round((after[0] - before[0]) / len(last)),
        "blocks_per_claim": round((after[1] - before[1]) / len(last)),
        "longest_ms": round(max(last) * 1000, 1),
        "seconds": round(sum(spent), 1),
    }
    return fmean(last) * 1000, detail


async def _pass(store: Store, orders: list[Order], spent: list[float], times: int) -> None:
    """Make runs, claim them, finish them."""
    for _ in range(times):
        await store.enqueue(orders)
        results = []
        for _ in range(MADE // CLAIMED):
            began = time.perf_counter()
            (given,) = await store.claim([Want("bench", "python", CLAIMED)])
            spent.append(time.perf_counter() - began)
            if given is None or len(given) != CLAIMED:
                raise Void(f"{CLAIMED} runs were to be had, got {given and len(given)}")
            results += [Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=time.time_ns() // 1000) for a in given]
        await store.finish(results)


async def _read(place: Place) -> tuple[int, int]:
    """Once the server has counted all: those who worked tell it a second later, when they are idle."""
    seen, again = None, None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        await asyncio.sleep(1.5)
        seen, again = again, (await place.rows(READ))[0]
        if seen == again:
            return again[0], again[1]
    raise Void("the server did not come to rest")
