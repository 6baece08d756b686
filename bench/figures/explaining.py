"""How long an explanation takes, and how many statements, with very many triggers and runs behind it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from statistics import median
from typing import Any

from bench.figure import Aim, Bench, Line, figure, percentile
from bench.past import DAYS, FAILING, SKIPPING, fill
from horae.core.model import Node, RunFilter, State
from horae.core.time.moments import format_moment
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.insight.explaining import Explaining
from horae.service.policy.queues import Queues

LIMIT = 50.0  # milliseconds
TIMES = 30  # each is asked for so often, after a first time that warms up
NODES = 50

Ask = Callable[[], Awaitable[Any]]


@figure(
    "explain",
    "the slowest explanation of a run, a job or a trigger, p99, and the statements of each",
    registered=[100_000], size=[10_000_000], trials=TIMES, quick={"registered": [2_000], "size": [20_000]},
)  # fmt: skip
async def explain(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:
        for size in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                took = await fill(place, registered, size)
                store = await place.open()
                try:
                    round_trip = await _round_trip(store)
                    times = await _time(store, registered, size, bench["trials"])
                finally:
                    await store.close()
            slowest = max(times, key=lambda name: times[name][1])
            detail = {"registered": registered, "runs": size, "fill_s": round(took), "slowest": slowest}
            detail |= {"round_trip_ms": round_trip, "p50_p99_ms_statements": times}
            yield Line("explain", bench.store, "ms", times[slowest][1], aim=Aim("at most", LIMIT), detail=detail)


async def _round_trip(store: Store) -> float:
    """Median of a statement that does nothing, in milliseconds: what is asked cannot be faster than its statements."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await store.load_owner(-1)
        took.append((time.perf_counter() - began) * 1000)
    return round(median(took), 2)


async def _time(store: Any, jobs: int, runs: int, times: int) -> dict[str, tuple[float, float, int]]:
    """Name → median and p99 in milliseconds, and statements."""
    now = time.time_ns() // 1000
    for number in range(NODES):
        await store.register_node(
            Node(f"node {number}", ("agent",), ("python",), (), 20, "1", "", now, now, 0)
        )  # fmt: skip
    counted = _Counter(store)
    found = {}
    for name, ask in (await _asks(store, jobs, runs)).items():
        await ask()
        took, before = [], counted.statements
        for _ in range(times):
            began = time.perf_counter()
            await ask()
            took.append((time.perf_counter() - began) * 1000)
        statements = round((counted.statements - before) / times)
        found[name] = (round(median(took), 2), round(percentile(sorted(took), 0.99), 2), statements)
    return found


class _Counter:
    """Counts what is read of a store."""

    def __init__(self, store: Any) -> None:
        self.statements = 0
        name = "_once_more" if hasattr(store, "_once_more") else "read"  # where all reads of PostgreSQL, of SQLite meet
        read = getattr(store, name)

        async def counting(*args: Any) -> Any:
            self.statements += 1
            return await read(*args)

        setattr(store, name, counting)


async def _asks(store: Store, jobs: int, runs: int) -> dict[str, Ask]:
    why = Explaining(store, Queues(store, LocalQueue()))
    now = time.time_ns() // 1000
    newest: dict[State, int] = {}
    for state in State:
        found = (await store.list_runs(RunFilter(states=(state,)), None, 1)).items
        newest |= {state: found[0].id} if found else {}
    asks: dict[str, Ask] = {
        f"run: {state.word}": lambda run_id=run_id: why.run(run_id) for state, run_id in newest.items()
    }
    old = (await store.get_run(runs // 2)) or (await store.get_run(1))
    assert old is not None
    moments = {
        "job that always fails, at no moment": (FAILING, now - DAYS // 2),
        "job always skipped, at no moment": (SKIPPING, now - DAYS // 2),
        "job at the moment of a record": (old.job_id, old.due_at),
        "job at a moment to come": (jobs // 2, now + DAYS),
    }
    for name, (job_id, at) in moments.items():
        asks[f"at: {name}"] = lambda job_id=job_id, at=at: why.job(job_id, format_moment(at))
    for name, job_id in {"any": jobs // 2, "that always fails": FAILING, "always skipped": SKIPPING}.items():
        asks[f"job: {name}"] = lambda job_id=job_id: why.job(job_id)
    asks["trigger"] = lambda: why.trigger(jobs // 2)
    asks["trigger at a moment to come"] = lambda: why.trigger(jobs // 2, format_moment(now + DAYS))
    return asks
