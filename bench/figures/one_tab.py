"""What a browser has to do for one open overview while runs end at a steady rate: for how long its main thread is
blocked at a time, and what it holds as time goes by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bench.browser import blocks, chromium, kept, looks_of, open_tab
from bench.figure import Aim, Bench, Line, Void, figure, percentile
from bench.figures.tabs import APART, PERIOD, WARM
from bench.load import drafts, register
from bench.node import ready, server

BLOCKED_MS = 50.0
GROWTH = 1.1
MINUTE = 60.0
FIRST = 1  # minutes after which it is looked at what it holds: by then its scripts are compiled as they stay


@figure(
    "tab",
    "an open overview in Chromium while runs end at this rate: ms for which its main thread is blocked at a time, the "
    "longest of each look, p95; and what its heap has grown by in so many minutes",
    rate=[1_000], seconds=[60], minutes=30, trials=1, quick={"rate": [50], "seconds": [10], "minutes": 2},
)  # fmt: skip
async def tab(bench: Bench) -> AsyncIterator[Line]:
    for rate in bench["rate"]:
        blocked = Line("tab.blocked", bench.store, "ms", aim=Aim("at most", BLOCKED_MS))
        memory = Line("tab.memory", bench.store, "times", aim=Aim("at most", GROWTH))
        async with bench.places.fresh(bench.store) as place:
            await register(place, drafts(rate * PERIOD, schedule={"every": f"{PERIOD}s", "jitter": f"{PERIOD - 1}s"}))
            async with server(place) as up:
                await ready(up)
                await asyncio.sleep(PERIOD + WARM)
                try:
                    async with chromium() as browser:
                        looks = await looks_of(browser, up.port)
                        async with open_tab(browser, up.port, looks) as page:
                            await page.goto("/")
                            await _block(browser, page, bench["seconds"][0], blocked)
                            await _hold(page, bench["minutes"], memory)
                except Void as why:
                    blocked.void = memory.void = str(why)
        for line in (blocked, memory):
            line.detail["rate"] = rate
            yield line


async def _block(browser: Any, page: Any, seconds: int, line: Line) -> None:
    await asyncio.sleep(WARM)
    await browser.start_tracing(page=page, categories=["toplevel"])
    await asyncio.sleep(seconds)
    found = blocks(await browser.stop_tracing(), APART)
    if not found:
        raise Void("the browser told of nothing that its main thread did")
    walls, processor = (sorted(each) for each in zip(*found, strict=True))
    line.value = percentile(walls, 0.95)
    line.detail = {"looks": len(found), "longest_ms": walls[-1], "p95_cpu_ms": percentile(processor, 0.95)}


async def _hold(page: Any, minutes: int, line: Line) -> None:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    seen = []
    for minute in range(1, minutes + 1):
        await asyncio.sleep(MINUTE)
        if minute >= FIRST:
            seen.append(await kept(session))
    line.value = seen[-1]["JSHeapUsedSize"] / seen[0]["JSHeapUsedSize"]
    line.detail = {"minutes": minutes, "heap_mib": [round(it["JSHeapUsedSize"] / 2**20, 2) for it in seen],
                   **{name: [seen[0][name], seen[-1][name]] for name in ("Nodes", "JSEventListeners")}}  # fmt: skip
