"""How long each list takes with a million triggers and millions of runs behind it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from statistics import median
from typing import Any

from bench.figure import Aim, Bench, Line, figure, percentile
from bench.past import DAYS, FAILING, SKIPPING, fill
from horae.core.definitions import JOB_SORTS, RUN_SORTS, Sort
from horae.core.model import SEGMENTS, JobFilter, RunFilter, State
from horae.core.runs.orders import NEVER
from horae.ports.store import Store

LIMIT = 20.0  # milliseconds
TIMES = 30  # each list is asked for so often, after a first time that warms up
ENDED = tuple(state for state in State if state.is_terminal)
LIVE = tuple(state for state in State if not state.is_terminal)

Ask = Callable[[], Awaitable[Any]]


@figure(
    "lists",
    "the slowest list of jobs, triggers or runs, p99; `over` names those above 20 ms",
    registered=[1_000_000], size=[10_000_000], trials=TIMES, quick={"registered": [2_000], "size": [20_000]},
)  # fmt: skip
async def lists(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:
        for size in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                took = await fill(place, registered, size)
                store = await place.open()
                try:
                    times = await _time(store, registered, size, bench["trials"])
                finally:
                    await store.close()
            slowest = max(times, key=lambda name: times[name][1])
            over = {name: ms for name, ms in times.items() if ms[1] > LIMIT}
            detail = {"registered": registered, "runs": size, "fill_s": round(took), "slowest": slowest}
            detail |= {"over": over, "p50_p99_ms": times}
            yield Line("lists", bench.store, "ms", times[slowest][1], aim=Aim("at most", LIMIT), detail=detail)


async def _time(store: Store, jobs: int, runs: int, times: int) -> dict[str, tuple[float, float]]:
    """Name → median and p99 in milliseconds."""
    found = {}
    for name, ask in _lists(store, jobs, runs).items():
        await ask()
        took = []
        for _ in range(times):
            began = time.perf_counter()
            await ask()
            took.append((time.perf_counter() - began) * 1000)
            if took[-1] > 1000:
                break
        found[name] = (round(median(took), 2), round(percentile(sorted(took), 0.99), 2))
    return found


def _lists(store: Store, jobs: int, runs: int) -> dict[str, Ask]:
    return {**_jobs(store, jobs), **_runs(store, jobs), **_searches(store), **_rest(store, jobs)}


def _jobs(store: Store, jobs: int) -> dict[str, Ask]:
    filters = {
        "all": JobFilter(), "name of many": JobFilter(name="team"), "name of the oldest": JobFilter(name="team 7"),
        "name of none": JobFilter(name="nobody"), "exact name": JobFilter(named="Job of team 5"),
        "key": JobFilter(key="k"), "owner": JobFilter(owner="owner 7"), "rare kind": JobFilter(kind="shell"),
        "kind of none": JobFilter(kind="sync"), "paused": JobFilter(paused=True), "deleted": JobFilter(deleted=True),
    }  # fmt: skip
    asks: dict[str, Ask] = {
        f"jobs: {name}": lambda where=where: store.list_jobs(where, None, 100) for name, where in filters.items()
    }
    asks["triggers: all"] = lambda: store.list_triggers(None, None, 100)
    asks["triggers: of a job"] = lambda: store.list_triggers(jobs // 2, None, 100)
    return asks


def _runs(store: Store, jobs: int) -> dict[str, Ask]:
    now = time.time_ns() // 1000
    old, job = now - DAYS // 2, jobs // 2
    hour = 3_600_000_000
    filters = {
        "all": RunFilter(), "live": RunFilter(states=LIVE), "ended": RunFilter(states=ENDED), "job": RunFilter(job),
        "job that always fails": RunFilter(FAILING), "its successes": RunFilter(FAILING, states=(State.SUCCEEDED,)),
        "job always skipped": RunFilter(SKIPPING), "its live": RunFilter(SKIPPING, states=LIVE),
        "trigger": RunFilter(trigger_id=job), "trigger of none": RunFilter(trigger_id=jobs * 2),
        "trigger of another job": RunFilter(FAILING, trigger_id=5),
        "due lately": RunFilter(due_from=now - hour), "due long ago": RunFilter(due_from=old, due_until=old + hour),
        "due never": RunFilter(due_from=1, due_until=2),
        "job at a moment": RunFilter(FAILING, due_from=old, due_until=old + 1),
        **{each.word: RunFilter(states=(each,)) for each in State},
        "failed lately": RunFilter(states=(State.FAILED, State.TIMED_OUT), due_from=now - hour),
    }  # fmt: skip
    return {f"runs: {name}": lambda where=where: store.list_runs(where, None, 100) for name, where in filters.items()}


def _searches(store: Store) -> dict[str, Ask]:
    asks: dict[str, Ask] = {}
    for by in JOB_SORTS:
        for descending in (False, True):
            word = f"search jobs: by {by}{' descending' if descending else ''}"
            sort = Sort(by, descending)
            asks[word] = lambda sort=sort: store.search_jobs(JobFilter(), [sort], 0, 100)
    jobs = {
        "name": JobFilter(name="team 99"), "rare kinds": JobFilter(kinds=("sync",)), "source": JobFilter(source=7),
        "not kinds": JobFilter(not_kinds=("sync", "shell")), "made for": JobFilter(made_for="owner 7"),
    }  # fmt: skip
    for name, where in jobs.items():
        asks[f"search jobs: {name}"] = lambda where=where: store.search_jobs(where, (), 0, 100)
    for by in RUN_SORTS:
        for descending in (False, True):
            word = f"search runs: by {by}{' descending' if descending else ''}"
            sort = Sort(by, descending)
            asks[word] = lambda sort=sort: store.search_runs(RunFilter(org=1), [sort], 0, 100)
    runs = {
        "name": RunFilter(org=1, name="team 99", states=ENDED), "node": RunFilter(org=1, nodes=("node 7",)),
        "kinds": RunFilter(org=1, kinds=("sync",)), "waiting of a kind": RunFilter(org=1, states=LIVE, kinds=("sync",)),
        "job": RunFilter(FAILING, org=1, states=(State.FAILED,)), "running": RunFilter(org=1, states=(State.RUNNING,)),
    }  # fmt: skip
    for name, where in runs.items():
        asks[f"search runs: {name}"] = lambda where=where: store.search_runs(where, (), 0, 100)
    return asks


def _rest(store: Store, jobs: int) -> dict[str, Ask]:
    few = [FAILING, SKIPPING, *range(3, 101)]
    return {
        "standing of 100 jobs": lambda: store.load_standing(few),
        "last success of 100 jobs": lambda: store.load_previous(few),
        "last runs of 100 triggers": lambda: store.load_last_runs(few),
        "lost attempts": lambda: store.list_lost(100),
        "census": store.census,
        "held by a node": lambda: store.load_running("node 10"),
        "queued": lambda: store.load_queued(1000),
        "due next": lambda: store.load_due(range(SEGMENTS), (-1, 0), NEVER, 10),
        "outdated": lambda: store.load_outdated(1, 0, 1000),
        "nodes": store.list_nodes,
    }
