"""What open tabs cost the server while runs end at a steady rate: its CPU time with them, less that without.

A tab is what a browser does for one: it follows the pulse, and reads the overview anew when a beat comes, as often as
overview.js does. Each has a connection of its own, as if all were in different browsers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure
from bench.load import drafts, register
from bench.loadgen import Wire
from bench.node import Server, ready, server
from bench.places import Place

PERIOD = 10  # seconds in which each trigger fires once
WARM = 5.0  # seconds
APART = 2.5  # seconds between two looks of a tab, as in overview.js
TABS = 200
PAGE = "Accept: text/html\r\n"


@figure(
    "tabs",
    "CPU of the server due to 200 open tabs while runs end at this rate; `streams`: of their streams alone",
    rate=[100, 1_000], clients=TABS, seconds=[20], trials=1, quick={"rate": [50], "clients": 20, "seconds": [4]},
)  # fmt: skip
async def tabs(bench: Bench) -> AsyncIterator[Line]:
    for rate in bench["rate"]:
        line = Line("tabs", bench.store, "% of a core", aim=Aim("at most", 20))
        line.detail = {"open": bench["clients"], "rate": rate, "seconds": bench["seconds"][0]}
        async with bench.places.fresh(bench.store) as place:
            await register(place, drafts(rate * PERIOD, schedule={"every": f"{PERIOD}s", "jitter": f"{PERIOD - 1}s"}))
            async with server(place) as up:
                await ready(up)
                try:
                    await _measure(place, up, bench["clients"], bench["seconds"][0], line)
                except Void as why:
                    line.void = str(why)
        yield line


async def _measure(place: Place, up: Server, count: int, seconds: int, line: Line) -> None:
    """Without, with streams, with tabs, without: what others do to the machine meanwhile meets all of them."""
    await asyncio.sleep(PERIOD + WARM)
    before = await _spent(place, up, seconds)
    spent = {}
    for name, looks in (("streams", False), ("tabs", True)):
        crowd = Crowd(up.port, count, looks=looks)
        async with crowd:
            await asyncio.sleep(WARM)
            crowd.forget()
            spent[name] = await _spent(place, up, seconds)
        line.detail[name] = {"beats_per_tab": crowd.beats / count, "looks_per_tab": crowd.looked / count}
        if not crowd.beats:
            raise Void("no tab was told that anything happened")
    after = await _spent(place, up, seconds)
    per_run = (before[0] + after[0]) / (before[1] + after[1])
    shares = {name: (cpu - runs * per_run) / seconds * 100 for name, (cpu, runs) in spent.items()}
    for name, share in shares.items():
        line.detail[name]["share"] = round(share, 1)
    line.value = shares["tabs"]
    line.detail["without"] = [round(cpu / seconds * 100, 1) for cpu, _ in (before, after)]
    line.detail["runs_per_s"] = [round(runs / seconds) for _, runs in (before, *spent.values(), after)]


async def _spent(place: Place, up: Server, seconds: int) -> tuple[float, int]:
    """CPU time of the server, and runs that ended."""
    ended, cpu = await _ended(place), up.cpu_seconds()
    await asyncio.sleep(seconds)
    spent = up.cpu_seconds() - cpu
    return spent, max(1, await _ended(place) - ended)


async def _ended(place: Place) -> int:
    return int((await place.rows("SELECT count(*) FROM history"))[0][0])


class Crowd:
    """Tabs that are open."""

    def __init__(self, port: int, count: int, *, looks: bool) -> None:
        self._port = port
        self._count = count
        self._looks = looks
        self._tasks: list[asyncio.Task[None]] = []
        self.beats = 0
        self.looked = 0

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(self._tab()) for _ in range(self._count)]

    async def __aexit__(self, *why: Any) -> None:
        failed = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if failed:
            raise Void(f"{len(failed)} tabs were cut off")

    def forget(self) -> None:
        self.beats = self.looked = 0

    async def _tab(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        wire = await Wire.connect(self._port)
        writer.write(b"GET /v1/events/pulse HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        last = 0.0
        waiting: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                if not line.startswith(b"data:"):
                    continue
                self.beats += 1
                if self._looks and (waiting is None or waiting.done()):
                    delay = max(0.0, last + APART - time.monotonic())
                    last = time.monotonic() + delay
                    waiting = asyncio.create_task(self._look(wire, delay))
        finally:
            if waiting is not None:
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await waiting
            writer.close()
            wire.close()

    async def _look(self, wire: Wire, delay: float) -> None:
        await asyncio.sleep(delay)
        status, _ = await wire.ask("GET", "/", headers=PAGE)
        if status != 200:
            raise Void(f"the overview was answered with {status}")
        self.looked += 1
