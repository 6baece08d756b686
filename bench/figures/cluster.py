"""Several nodes on one PostgreSQL: what another scheduler brings, what a death costs, and how shares are decided."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from bench import bare
from bench.figure import Aim, Bench, Line, Void, figure, measure
from bench.figures.rates import PATIENCE, judge_fired, lead, rate_of
from bench.load import at, drafts, register, sleep_until
from bench.loadgen import Wire
from bench.node import Server, node, now, ready, server, until
from bench.places import Place
from horae.app.machine import SystemClock
from horae.core.model import SECOND, SEGMENTS, Node
from horae.core.runs.segments import rebalance, segment_of
from horae.queues.local import LocalQueue
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.metrics import Metrics

LEASE = 15.0  # seconds: the default
NODES = 3
LOOK = 0.1  # seconds between two looks
WARM_UP = 3.0  # seconds of ordinary life before a death


# ── scale-out ──


@figure(
    "scaleout",
    "due triggers turned into queued runs by one, two and three scheduler processes",
    stores=("postgres",), size=[100_000], schedulers=[1, 2, 3], lead=None,
    quick={"size": [10_000], "schedulers": [1, 2]},
)  # fmt: skip
async def scaleout(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        for schedulers in bench["schedulers"]:
            line = Line("scaleout", bench.store, "fires/s", detail={"size": size, "schedulers": schedulers})
            yield await _scaleout(bench, line, size, schedulers)


async def _scaleout(bench: Bench, line: Line, size: int, schedulers: int) -> Line:
    async def ours() -> tuple[float, dict[str, Any]]:
        async with bench.places.fresh(bench.store) as place, AsyncExitStack() as stack:
            began = now() + (lead(bench, size) + 5 * schedulers) * SECOND
            await register(place, drafts(size, schedule={"every": "1h", "start_at": at(began)}))
            nodes = []
            for number in range(schedulers):
                roles = "scheduler" if number else "coordinator,scheduler"
                nodes.append(await stack.enter_async_context(node(place, node=f"bench-{number}", roles=roles)))
            for each in nodes:
                await each.go()
            await _shared_out(place, schedulers)
            await sleep_until(began)
            before = [{**await each.stat(), "at": began} for each in nodes]
            after = await until(nodes, "fired", size, PATIENCE)
            await judge_fired(place.rows, size)
            shares = sorted(stat["fired"] for stat in after)
            rate, detail = rate_of(size, before, after)
            return rate, {**detail, "shares": shares}

    async def loop() -> float:
        async with bench.places.fresh(bench.store) as place:
            return await bare.advance_and_insert(place, size)

    return await measure(line, bench["trials"], ours, loop)


async def _owners(place: Place) -> Counter[str]:
    return Counter(row[0] for row in await place.rows("SELECT owner FROM segments"))


async def _shared_out(place: Place, nodes: int) -> None:
    """Wait until so many nodes own segments."""
    deadline = time.monotonic() + PATIENCE
    while len(await _owners(place)) != nodes:
        if time.monotonic() > deadline:
            raise Void(f"segments were not shared among {nodes} nodes: {dict(await _owners(place))}")
        await asyncio.sleep(LOOK)


# ── fail-over ──


@figure(
    "failover",
    "kill -9 of the leader, of another scheduler or of an agent among three nodes with default timers: the latest "
    "firing of a trigger due every second; for the agent, until its run has started elsewhere",
    stores=("postgres",), victim=["leader", "scheduler", "agent"], trials=1, quick={"victim": ["scheduler"]},
)  # fmt: skip
async def failover(bench: Bench) -> AsyncIterator[Line]:
    for victim in bench["victim"]:
        aim = None if victim == "agent" else Aim("at most", LEASE + 2)
        line = Line("failover", bench.store, "s", aim=aim, detail={"victim": victim, "lease_s": LEASE})

        async def ours(victim: str = victim) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place, AsyncExitStack() as stack:
                return await _kill(place, stack, victim), {}

        yield await measure(line, bench["trials"], ours)


async def _kill(place: Place, stack: AsyncExitStack, victim: str) -> float:
    every_second = drafts(SEGMENTS, schedule={"every": "1s"})
    await register(place, [replace(draft, segment=number) for number, draft in enumerate(every_second)])
    ups = {}
    for number in range(NODES):
        name = f"n{number}"
        data = str(place.directory / name)
        ups[name] = await stack.enter_async_context(server(place, node=name, data=data))
        await ready(ups[name])
    await _shared_out(place, NODES)
    await asyncio.sleep(WARM_UP)
    leader = (await place.rows("SELECT owner FROM leases"))[0][0]
    if victim == "agent":
        return await _kill_agent(place, ups)
    name = leader if victim == "leader" else next(name for name in ups if name != leader)
    os.kill(ups[name].pid, signal.SIGKILL)
    return await _latest(place, now())


async def _latest(place: Place, killed: int) -> float:
    """Seconds by which the latest record after a death was late, once every trigger is on time again."""
    deadline = time.monotonic() + PATIENCE
    question = f"SELECT count(DISTINCT trigger_id), max(created_at - due_at) FROM history WHERE due_at > {killed}"
    while time.monotonic() < deadline:
        fresh = await place.rows(
            f"SELECT count(DISTINCT trigger_id) FROM history WHERE due_at > {now() - 2 * SECOND}"
            f" AND due_at > {killed + int(LEASE / 2) * SECOND}"
        )
        if fresh[0][0] == SEGMENTS:
            return float((await place.rows(question))[0][1]) / SECOND
        await asyncio.sleep(LOOK)
    raise Void(f"not every trigger was fired again within {PATIENCE:.0f} s")


async def _kill_agent(place: Place, ups: dict[str, Server]) -> float:
    wire = await Wire.connect(next(iter(ups.values())).port)
    job = {"name": "long", "run_once": True, "steps": [{"name": "wait", "run": "sleep 300"}]}
    await wire.json("POST", "/v1/jobs", job)
    wire.close()
    node_of = "SELECT node FROM live WHERE kind = 'shell' AND state = 1 AND attempt = "
    name = await _answer(place, node_of + "1")
    os.kill(ups.pop(name).pid, signal.SIGKILL)
    began = time.monotonic()
    await _answer(place, node_of + "2")
    return time.monotonic() - began


async def _answer(place: Place, question: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while not (rows := await place.rows(question)):
        if time.monotonic() > deadline:
            raise Void(f"nothing came of: {question}")
        await asyncio.sleep(LOOK)
    return str(rows[0][0])


# ── deciding ──


@figure(
    "assignment",
    "a leader's whole round with a thousand schedulers, seconds; moves while nodes come and go against the fewest "
    "possible; how evenly ten million triggers fall on the segments",
    stores=("postgres",), nodes=[1_000], registered=[10_000_000], quick={"registered": [100_000]},
)  # fmt: skip
async def assignment(bench: Bench) -> AsyncIterator[Line]:
    for nodes in bench["nodes"]:
        for triggers in bench["registered"]:
            line = Line("assignment", bench.store, "s", aim=Aim("at most", 1))
            line.detail = {"nodes": nodes, "triggers": triggers, **_churn(nodes), **_evenness(triggers)}

            async def ours(nodes: int = nodes) -> tuple[float, dict[str, Any]]:
                async with bench.places.fresh(bench.store) as place:
                    return await _round(place, nodes), {}

            yield await measure(line, bench["trials"], ours)


async def _round(place: Place, nodes: int) -> float:
    store, clock, queue = await place.open(), SystemClock(), LocalQueue()
    try:
        for number in range(nodes):
            await store.register_node(Node(f"n{number}", ("scheduler",), (), (), 1, "0", "", 0, 0, 0))
        execution = Execution(store, queue, clock, Metrics())
        leader = Cluster(
            store, queue, clock, execution, node="n0", lease_seconds=LEASE, dead_after=2 * LEASE, is_exclusive=False
        )
        await leader.campaign()
        began = time.perf_counter()
        await leader.lead()
        return time.perf_counter() - began
    finally:
        await store.close()


def _churn(nodes: int) -> dict[str, Any]:
    """Return a day of nodes that die and come back: moves made, and the fewest that any assignment needs."""
    dice = random.Random(7)  # a figure that can be repeated
    alive = {f"n{number}" for number in range(nodes)}
    owners: dict[int, str] = {}
    moved = fewest = 0
    for _ in range(1_000):
        change = f"n{dice.randrange(nodes)}"
        alive ^= {change}
        moves = rebalance(owners, alive)
        moved += len(moves)
        fewest += _fewest(owners, alive)
        owners |= moves
    return {"moved": moved, "fewest_possible": fewest}


def _fewest(owners: dict[int, str], alive: set[str]) -> int:
    """Segments that cannot stay: of the dead, and beyond what a fair share allows."""
    held = sorted(Counter(owner for owner in owners.values() if owner in alive).values(), reverse=True)
    share, extra = divmod(SEGMENTS, len(alive))
    kept = sum(min(count, share + (rank < extra)) for rank, count in enumerate(held))
    return SEGMENTS - kept


def _evenness(triggers: int) -> dict[str, Any]:
    counts = Counter(map(segment_of, range(1, triggers + 1)))
    return {"fewest_in_a_segment": min(counts.values()), "most_in_a_segment": max(counts.values())}
