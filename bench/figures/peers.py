"""Beside others: what enters, how fast it starts, how fast it drains, how a herd fires, by their own programs on the
same PostgreSQL.

The bare loop of these figures is the best of the others; what each of them reached is in the detail.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure, measure, percentile
from bench.figures.latency import herd_of
from bench.figures.rates import PATIENCE
from bench.load import INLINE, judge, queue_runs, register
from bench.node import node, ready, server, until
from bench.peers import PEERS, Peer, ask_horae
from bench.places import PostgresPlace
from horae.core.work import specs
from horae.core.work.specs import Draft

Ours = Callable[[], Awaitable[tuple[float, dict[str, Any]]]]


@figure(
    "peers",
    "enqueue one by one and in bulk, enqueue to start, drain, herd: beside other schedulers (make peers), best as bare",
    size=[20_000], clients=[1, 16], agents=[1, 2], lead=None, stores=("postgres",),
    quick={"size": [1_000], "agents": [1]},
)  # fmt: skip
async def peers(bench: Bench) -> AsyncIterator[Line]:
    others = [peer for peer in PEERS if peer.missing is None]
    for peer in PEERS:
        if peer.missing is not None:
            print(f"bench: left out: {peer.missing}", file=sys.stderr)
    lines = []
    async for line in _measured(bench, others):
        lines.append(line)
        yield line
    print(_table(lines), file=sys.stderr)


async def _measured(bench: Bench, others: list[Peer]) -> AsyncIterator[Line]:
    [size] = bench["size"]
    for clients in bench["clients"]:
        for way, aim in (("http", 1.0 if clients == 1 else 1.5), ("transaction", 1.0)):
            line = Line(f"peers.enqueue.{way}", bench.store, "jobs/s", aim=Aim("at least", aim, "quotient"))
            yield await _rate(bench, line, others, "enqueue", size // 10, clients, way)
        if clients > 1:
            line = Line("peers.enqueue.http.apart", bench.store, "jobs/s")
            yield await _rate(bench, line, others, "enqueue", size // 10, clients, "http", ours_by="apart")
    line = Line("peers.bulk", bench.store, "jobs/s", aim=Aim("at least", 1.2, "quotient"))
    yield await _rate(bench, line, others, "bulk", size * 5, 1, "http")
    yield await _latency(bench, others)
    for agents in bench["agents"]:
        yield await _drain(bench, others, size * 5, agents)
    yield await _herd(bench, others, size // 2)


def _table(lines: list[Line]) -> str:
    """Return the ratios, for people: ours, the best of the others, and one divided by the other."""
    rows = [("figure", "clients or processes", "ours", "best peer", "ratio", "aim")]
    for line in lines:
        by = line.detail.get("clients") or line.detail.get("processes") or 1
        ours, best, ratio = (f"{n:.4g}" if n is not None else "-" for n in (line.value, line.bare, line.quotient))
        rows.append((line.figure, str(by), f"{ours} {line.unit}", best, ratio, str(line.aim or "")))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


# ── what enters ──


async def _rate(
    bench: Bench, line: Line, others: list[Peer], action: str, count: int, clients: int, way: str, ours_by: str = ""
) -> Line:
    line.detail = {"jobs": count, "clients": clients}

    async def ours() -> tuple[float, dict[str, Any]]:
        answer = await _ask_ours(bench, way, ours_by or action, count, clients)
        return count / answer["seconds"], {"server_cpu_us": round(answer["cpu"] / count * 1e6)}

    async def one(peer: Peer) -> float:
        return count / float((await _ask(bench, peer, action, count, clients))["seconds"])

    return await _beside(bench, line, [p for p in others if action not in p.lacks], ours, one, best=max)


async def _ask(bench: Bench, peer: Peer, action: str, count: int, clients: int) -> dict[str, Any]:
    async with bench.places.fresh(bench.store) as place:
        assert isinstance(place, PostgresPlace)
        await peer.do(place.url, "prepare")
        return await peer.do(place.url, action, count, clients)


async def _ask_ours(bench: Bench, way: str, action: str, count: int, clients: int) -> dict[str, Any]:
    """A server without agents, so that it is the entrance that is measured; for `latency` one with."""
    roles = {} if action == "latency" else {"roles": "api,coordinator,scheduler"}
    async with bench.places.fresh(bench.store) as place:
        assert isinstance(place, PostgresPlace)
        await register(place, [_parallel_job()])
        async with server(place, **roles) as up:
            await ready(up)
            before = up.cpu_seconds()
            where = f"http://127.0.0.1:{up.port}" if way == "http" else place.url
            answer = await ask_horae(where, action, count, clients)
            return {**answer, "cpu": up.cpu_seconds() - before}


def _parallel_job() -> Draft:
    return specs.parse_job({"name": "bench", "key": "bench", "handler": INLINE, "overlap": "allow"})


# ── enqueue to start ──


async def _latency(bench: Bench, others: list[Peer]) -> Line:
    line = Line("peers.latency", bench.store, "ms p50", aim=Aim("at most", 1.0, "quotient"))

    async def ours() -> tuple[float, dict[str, Any]]:
        late = sorted((await _ask_ours(bench, "http", "latency", 100, 1))["late"])
        return percentile(late, 0.5) * 1000, {"p99_ms": round(percentile(late, 0.99) * 1000, 2)}

    async def one(peer: Peer) -> float:
        return percentile(sorted((await _ask(bench, peer, "latency", 100, 1))["late"]), 0.5) * 1000

    return await _beside(bench, line, others, ours, one, best=min)


# ── drain ──


async def _drain(bench: Bench, others: list[Peer], count: int, agents: int) -> Line:
    line = Line("peers.drain", bench.store, "runs/s", aim=Aim("at least", 1.2, "quotient"))
    line.detail = {"runs": count, "processes": agents}

    async def ours() -> tuple[float, dict[str, Any]]:
        async with bench.places.fresh(bench.store) as place, AsyncExitStack() as stack:
            await queue_runs(place, count)
            nodes = [
                await stack.enter_async_context(
                    node(place, node=f"bench-{n}", roles="agent" if n else "coordinator,agent")
                )
                for n in range(agents)
            ]
            for each in nodes:
                await each.go()
            await until(nodes, "finished", count, PATIENCE)
            await judge(place, count)
            [(first, last)] = await place.rows("SELECT min(started_at), max(finished_at) FROM history")
            return count / (last - first) * 1e6, {}

    async def one(peer: Peer) -> float:
        async with bench.places.fresh(bench.store) as place:
            assert isinstance(place, PostgresPlace)
            await peer.do(place.url, "prepare")
            await peer.do(place.url, "bulk", count)
            await place.settle()
            answers = await asyncio.gather(*(peer.do(place.url, "drain") for _ in range(agents)))
            done = [answer for answer in answers if answer["done"]]
            if sum(answer["done"] for answer in done) != count:
                raise Void(f"{peer.name} ran {sum(answer['done'] for answer in done)} of {count}")
            return count / float(max(a["last"] for a in done) - min(a["first"] for a in done))

    return await _beside(bench, line, [p for p in others if "drain" not in p.lacks], ours, one, best=max)


# ── the herd ──


async def _herd(bench: Bench, others: list[Peer], count: int) -> Line:
    line = Line("peers.herd", bench.store, "s", aim=Aim("at most", 1.0, "quotient"), detail={"triggers": count})

    async def ours() -> tuple[float, dict[str, Any]]:
        return await herd_of(bench, count)

    async def one(peer: Peer) -> float:
        return float((await _ask(bench, peer, "herd", count, 1))["seconds"])

    return await _beside(bench, line, [p for p in others if "herd" not in p.lacks], ours, one, best=min)


async def _beside(
    bench: Bench,
    line: Line,
    others: list[Peer],
    ours: Ours,
    one: Callable[[Peer], Awaitable[float]],
    best: Callable[..., float],
) -> Line:
    """Each of the others, then ours, and again: the best of them is the bare of each trial."""
    reached: dict[str, list[float]] = {peer.name: [] for peer in others}

    async def theirs() -> float:
        for peer in others:
            reached[peer.name].append(await one(peer))
        return best(values[-1] for values in reached.values())

    line = await measure(line, bench["trials"], ours, theirs if others else None)
    line.detail["peers"] = {name: float(f"{median(values):.4g}") for name, values in reached.items() if values}
    return line
