"""The database queue and NATS side by side: how soon a run starts elsewhere, and how fast a backlog is drained.

Four ways from a server without an agent to one in another process: a node on the same database, told by NOTIFY or by
NATS, and a remote agent, linked by gRPC or by NATS. The ways take turns, so that a noisy minute is everybody's.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.figure import Bench, Line, Void, figure, measure, percentile
from bench.figures.latency import _ask, _spread
from bench.load import queue_runs
from bench.loadgen import Wire
from bench.node import JOBS, Server, _environment, _free_port, ready, server
from bench.places import Place
from horae.core.model import SECOND

WAYS = ("node, database", "node, nats", "agent, grpc", "agent, nats")
MS = 1000  # µs
PATIENCE = 120.0  # seconds


@asynccontextmanager
async def _process(*argv: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=_environment()
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def _broker(directory: Path) -> AsyncIterator[str]:
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if program is None:
        raise Void("there is no nats-server")
    port = _free_port()
    async with _process(program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "nats")):
        yield f"nats://127.0.0.1:{port}"


@asynccontextmanager
async def _apart(way: str, place: Place) -> AsyncIterator[tuple[Server, list[str]]]:
    """A server without an agent, and the command that starts an agent for it."""
    who, by = way.split(", ")
    async with AsyncExitStack() as stack:
        flags = {"roles": "api,coordinator,scheduler", "grpc_port": str(_free_port()), "node": "front"}
        if by == "nats":
            flags["queue"] = await stack.enter_async_context(_broker(place.directory))
        up = await stack.enter_async_context(server(place, **flags))
        await ready(up)
        horae = [sys.executable, "-m", "horae"]
        common = ["--jobs-directory", str(JOBS), "--sandbox", "plain", "--data", str(place.directory / "back")]
        if who == "node":
            queue = ["--queue", flags["queue"]] if by == "nats" else []
            where = [
                "up",
                "--roles",
                "agent",
                "--port",
                str(_free_port()),
                "--database",
                place.flags["database"],
                *queue,
            ]
        elif by == "nats":
            token = place.directory / "token"
            made = [
                *horae,
                "--server",
                f"http://127.0.0.1:{up.port}",
                "token",
                "create",
                "b",
                "--agent",
                "*",
                "--label",
                "*",
            ]
            async with _process(*made, "--file", str(token)):
                while not token.exists() or not token.read_text().strip():
                    await asyncio.sleep(0.05)
            where = ["agent", "--server", flags["queue"], "--token-file", str(token)]
        else:
            where = ["agent", "--server", f"127.0.0.1:{flags['grpc_port']}"]
        yield up, [*horae, *where, "--node", "back", *common]


async def _joined(wire: Wire) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(node["name"] == "back" for node in (await wire.json("GET", "/v1/nodes"))["items"]):
        if time.monotonic() > deadline:
            raise Void("the agent did not join")
        await asyncio.sleep(0.05)


@figure(
    "handover",
    "from enqueued to started by an agent in another process, a hundred a second: database queue and NATS side by side",
    rate=[100], seconds=[8], quick={"seconds": [2]}, stores=("postgres",),
)  # fmt: skip
async def handover(bench: Bench) -> AsyncIterator[Line]:
    rate, count = bench["rate"][0], bench["rate"][0] * bench["seconds"][0]
    for way in WAYS:

        async def ours(way: str = way) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place, _apart(way, place) as (up, agent), _process(*agent):
                wire = await Wire.connect(up.port)
                await _joined(wire)
                asked = await _ask(wire, rate, count)
                await asyncio.sleep(1.0)
                rows = await place.rows("SELECT id, started_at - due_at FROM history WHERE state = 10")
                wire.close()
            if {row[0] for row in rows} != set(asked):
                raise Void(f"{count} runs asked for, {len(rows)} in history")
            waits = sorted(float(row[1]) for row in rows)
            return percentile(waits, 0.5) / MS, _spread(waits, "")

        line = Line("handover", bench.store, "ms p50", detail={"way": way, "rate": rate, "runs": count})
        yield await measure(line, bench["trials"], ours)


@figure(
    "handover.drain",
    "a backlog drained by one agent in another process: database queue and NATS side by side",
    size=[20_000], quick={"size": [5_000]}, stores=("postgres",),
)  # fmt: skip
async def drain(bench: Bench) -> AsyncIterator[Line]:
    size = bench["size"][0]
    for way in WAYS:

        async def ours(way: str = way) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                await queue_runs(place, size)
                async with _apart(way, place) as (_, agent), _process(*agent):
                    seconds = await _drained(place, size)
            return size / seconds, {"seconds": round(seconds, 3)}

        line = Line("handover.drain", bench.store, "runs/s", detail={"way": way, "size": size})
        yield await measure(line, bench["trials"], ours)


async def _drained(place: Place, size: int) -> float:
    """Seconds from the first start to the last end."""
    deadline = time.monotonic() + PATIENCE
    while (rows := await place.rows("SELECT count(*), min(started_at), max(finished_at) FROM history"))[0][0] < size:
        if time.monotonic() > deadline:
            raise Void(f"{rows[0][0]} of {size} runs after {PATIENCE:.0f} s")
        await asyncio.sleep(0.2)
    _, first, last = rows[0]
    return float(last - first) / SECOND
