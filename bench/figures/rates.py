"""How many per second: firing, draining a backlog, and the whole life of a scheduled run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from bench import bare
from bench.costs import by_run, spent
from bench.figure import Aim, Bench, Line, Void, figure, measure
from bench.load import HANDLERS, at, drafts, judge, queue_runs, register, sleep_until
from bench.node import Node, node, now, until
from horae.core.model import SECOND

PATIENCE = 120.0  # seconds after which a trial has failed


# ── drain ──


@figure(
    "drain",
    "queued runs claimed, executed by a no-op inline handler and finished, with one or two agent processes",
    size=[100_000], agents=[1, 2], handler=["inline"], quick={"size": [10_000], "agents": [1]},
)  # fmt: skip
async def drain(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        for agents in bench["agents"]:
            if agents > 1 and bench.store == "sqlite":
                continue  # one process is what SQLite is for
            for handler in bench["handler"]:
                line = Line("drain", bench.store, "runs/s", aim=_drain_aim(bench.store, agents))
                line.detail = {"size": size, "agents": agents, "handler": handler}
                yield await _drain(bench, line, size, agents, handler)


def _drain_aim(store: str, agents: int) -> Aim | None:
    return Aim("at least", 0.5 if agents > 1 else 0.4, "quotient") if store == "postgres" else None


async def _drain(bench: Bench, line: Line, size: int, agents: int, handler: str) -> Line:
    async def ours() -> tuple[float, dict[str, Any]]:
        async with bench.places.fresh(bench.store) as place, AsyncExitStack() as stack:
            await queue_runs(place, size, HANDLERS[handler])
            nodes = []
            for number in range(agents):
                roles = "agent" if number else "coordinator,agent"
                nodes.append(await stack.enter_async_context(node(place, node=f"bench-{number}", roles=roles)))
            cost = await spent(place)
            before = await _go(nodes)
            after = await until(nodes, "finished", size, PATIENCE)
            costs = by_run(cost, await spent(place), size)
            await judge(place, size)
            rate, detail = rate_of(size, before, after)
            return rate, {**detail, **costs}

    async def loop() -> float:
        async with bench.places.fresh(bench.store) as place:
            return await bare.claim_and_delete(place, size)

    return await measure(line, bench["trials"], ours, loop)


async def _go(nodes: list[Node]) -> list[dict[str, Any]]:
    before = [await each.stat() for each in nodes]
    for each in nodes:
        await each.go()
    return before


def rate_of(count: int, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    """Per second, and what it cost the Horae processes."""
    seconds = (max(stat["at"] for stat in after) - min(stat["at"] for stat in before)) / SECOND
    cpu = sum(b["cpu"] - a["cpu"] for a, b in zip(before, after, strict=True))
    batches = sum(sum(b["batches"].values()) - sum(a["batches"].values()) for a, b in zip(before, after, strict=True))
    return count / seconds, {
        "seconds": round(seconds, 3),
        "cpu_us_per_run": round(cpu / count * 1e6, 1),
        "cpu_share": round(cpu / seconds, 2),
        "runs_per_batch": round(count / batches, 1) if batches else None,
        "batches": after[0]["batches"],
    }


# ── lifecycle ──


@figure(
    "lifecycle",
    "triggers due within a short window, from the first due moment until the last run is in history",
    size=[100_000], window=[4], handler=["inline", "worker"], lead=None,
    quick={"size": [10_000], "window": [1], "handler": ["inline"]},
)  # fmt: skip
async def lifecycle(bench: Bench) -> AsyncIterator[Line]:
    aim = Aim("at least", 15_000 if bench.store == "postgres" else 20_000)
    for size in bench["size"]:
        for window in bench["window"]:
            for handler in bench["handler"]:
                detail = {"size": size, "window_s": window, "handler": handler}
                line = Line("lifecycle", bench.store, "runs/s", aim=aim, detail=detail)
                yield await _lifecycle(bench, line, size, window, handler)


async def _lifecycle(bench: Bench, line: Line, size: int, window: int, handler: str) -> Line:
    async def ours() -> tuple[float, dict[str, Any]]:
        async with bench.places.fresh(bench.store) as place:
            began = now() + lead(bench, size) * SECOND
            schedule = {"every": "1h", "start_at": at(began), "jitter": f"{window}s"}
            loaded = await register(place, drafts(size, HANDLERS[handler], schedule))
            async with node(place) as one:
                start = await one.stat()
                await one.go()
                await sleep_until(began)
                before = await one.stat()
                after = await until([one], "finished", size, PATIENCE)
                await judge(place, size)
                ahead = before["cpu"] - start["cpu"]
                rate, detail = rate_of(size, [{**before, "at": began}], after)
                ahead_us = round(ahead / size * 1e6, 1)
                return rate, {**detail, "ahead_cpu_us_per_run": ahead_us, "load_jobs_per_s": round(loaded)}

    async def loop() -> float:
        async with bench.places.fresh(bench.store) as place:
            return await bare.claim_and_delete(place, size)

    return await measure(line, bench["trials"], ours, loop)


def lead(bench: Bench, size: int) -> int:
    """Seconds from the first submit to the first due moment: time to load, start and look ahead."""
    given: int | None = bench["lead"]
    return given if given is not None else 6 + size // 8_000


# ── fire ──


@figure(
    "fire",
    "due triggers turned into queued runs by a scheduler alone",
    size=[100_000], lead=None, quick={"size": [10_000]},
)  # fmt: skip
async def fire(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        yield await _fire(bench, Line("fire", bench.store, "fires/s", detail={"size": size}), size)


async def _fire(bench: Bench, line: Line, size: int) -> Line:
    async def ours() -> tuple[float, dict[str, Any]]:
        async with bench.places.fresh(bench.store) as place:
            began = now() + lead(bench, size) * SECOND
            await register(place, drafts(size, schedule={"every": "1h", "start_at": at(began)}))
            async with node(place, roles="coordinator,scheduler") as one:
                await one.go()
                await sleep_until(began)
                before = await one.stat()
                after = await until([one], "fired", size, PATIENCE)
                await judge_fired(place.rows, size)
                return rate_of(size, [{**before, "at": began}], after)

    async def loop() -> float:
        async with bench.places.fresh(bench.store) as place:
            return await bare.advance_and_insert(place, size)

    return await measure(line, bench["trials"], ours, loop)


async def judge_fired(rows: Any, size: int) -> None:
    total, jobs = (await rows("SELECT count(*), count(DISTINCT trigger_id) FROM live WHERE state = 0"))[0]
    if (total, jobs) != (size, size):
        raise Void(f"{size} queued runs expected, one a trigger; got {total} of {jobs} triggers")
