"""What a person waits for: a real Chromium that opens pages and acts in them, by its own clock."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.figure import Void

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZE = {"width": 1280, "height": 900}
PATIENCE = 30_000  # ms that anything may take
TASK = "ThreadControllerImpl::RunTask"
KEPT = ("JSHeapUsedSize", "Nodes", "JSEventListeners")

BARE = "/healthz"  # a line of plain text: what a first view costs a browser of a page that is nearly nothing

# When a page was there, and when its first and its largest part stood there, since it was asked for.
PAINTED = """() => new Promise((resolve) => {
  let largest = 0;
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) largest = entry.startTime; })
    .observe({ type: "largest-contentful-paint", buffered: true });
  setTimeout(() => resolve({
    answered: performance.getEntriesByType("navigation")[0].responseEnd,
    first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
    largest,
  }), 100);
})"""
# From the last key or press until something holds and is painted; and the longest time that an input waited to be seen.
ARM = """() => {
  let began;
  let seen = 0;
  const note = ({ timeStamp }) => { began = timeStamp; };
  for (const kind of ["keydown", "pointerdown"]) addEventListener(kind, note, true);
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) seen = Math.max(seen, entry.duration); })
    .observe({ type: "event", durationThreshold: 16 });
  const holds = () => HOLDS;
  window.acted = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("it did not come")), PATIENCE);
    const look = () => {
      if (began === undefined || !holds()) return requestAnimationFrame(look);
      setTimeout(() => { const done = performance.now() - began; setTimeout(() => resolve({ done, seen }), 100); });
    };
    look();
  });
}"""


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that is done in a page, and the expression that holds once it is seen."""

    path: str
    act: Callable[[Any], Awaitable[None]]
    holds: str
    prepare: Callable[[Any], Awaitable[None]] | None = None


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise Void("playwright is not installed: make test-engines brings it") from None
    program = shutil.which("chromium")
    if program is None:
        raise Void("chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_tab(browser: Any, port: int, looks: Sequence[Any] = ()) -> AsyncIterator[Any]:
    """A tab whose browser keeps nothing of ours but how pages shall look."""
    context = await browser.new_context(base_url=f"http://127.0.0.1:{port}", viewport=SIZE)
    context.set_default_timeout(PATIENCE)
    await context.add_cookies(looks)
    try:
        yield await context.new_page()
    finally:
        await context.close()


def _medians(found: Sequence[dict[str, float]], *names: str) -> tuple[float, ...]:
    return tuple(round(median(it[name] for it in found), 1) for name in names)


def blocks(trace: bytes, apart: float) -> list[tuple[float, float]]:
    """The longest task of the main thread in each so many seconds of a trace, by the clock and of the processor, ms."""
    events = json.loads(trace)["traceEvents"]
    names = {(it["pid"], it["tid"]): it["args"]["name"] for it in events if it["name"] == "thread_name"}
    tasks = [it for it in events if it["name"] == TASK and names.get((it["pid"], it["tid"])) == "CrRendererMain"]
    begin = min((it["ts"] for it in tasks), default=0)
    found: dict[int, tuple[float, float]] = {}
    for at, wall, processor in _spans(tasks):
        place = int((at - begin) / 1e6 / apart)
        found[place] = max(found.get(place, (0.0, 0.0)), (wall / 1000, processor / 1000))
    return [found[place] for place in sorted(found)]


def _spans(tasks: Sequence[Any]) -> Iterator[tuple[float, float, float]]:
    """Yield when each task began, and how long it took by both clocks, be it told as one event (X) or as its beginning
    and its end (B, E); of one that the trace cuts off nobody knows."""
    begun: dict[tuple[int, int], list[Any]] = {}
    for it in sorted(tasks, key=lambda it: it["ts"]):
        if it["ph"] == "X" and "dur" in it:
            yield it["ts"], it["dur"], it.get("tdur", 0)
        elif it["ph"] == "B":
            begun.setdefault((it["pid"], it["tid"]), []).append(it)
        elif it["ph"] == "E" and (open_ := begun.get((it["pid"], it["tid"]))):
            began = open_.pop()
            yield began["ts"], it["ts"] - began["ts"], it.get("tts", 0) - began.get("tts", 0)


async def kept(session: Any) -> dict[str, float]:
    """What a tab holds once its garbage was collected: bytes of its heap, nodes and listeners."""
    await session.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in (await session.send("Performance.getMetrics"))["metrics"]}
    return {name: metrics[name] for name in KEPT}


async def looks_of(browser: Any, port: int) -> list[Any]:
    """The cookie that a first visit leaves: charts are drawn anew once the server knows the zone."""
    async with open_tab(browser, port) as page:
        await page.goto("/style", wait_until="networkidle")
        cookies: list[Any] = await page.context.cookies()
        return cookies


async def first_views(
    browser: Any, port: int, paths: dict[str, str], looks: Sequence[Any], times: int
) -> tuple[dict[str, tuple[float, ...]], float]:
    """By name, ms until a page was there, and until its first and its largest part stood there, medians; and the
    largest of a bare page, which is opened before each. Nothing is cached."""
    found, bare = {}, list[float]()
    for name, path in paths.items():
        seen = []
        for _ in range(times):
            bare.append((await _painted(browser, port, BARE, looks))["largest"])
            seen.append(await _painted(browser, port, path, looks))
        found[name] = _medians(seen, "answered", "first", "largest")
    return found, median(bare)


async def _painted(browser: Any, port: int, path: str, looks: Sequence[Any]) -> dict[str, float]:
    async with open_tab(browser, port, looks) as page:
        await page.goto(path)
        return await page.evaluate(PAINTED)  # type: ignore[no-any-return]


async def answers(
    browser: Any, port: int, deeds: dict[str, Deed], looks: Sequence[Any], times: int
) -> dict[str, tuple[float, ...]]:
    """By name, ms that an input waited to be seen, and until what it was meant for stood there; medians."""
    from playwright.async_api import Error

    found = {}
    for name, deed in deeds.items():
        took = []
        for _ in range(times):
            async with open_tab(browser, port, looks) as page:
                try:
                    took.append(await _time(page, deed))
                except Error as error:
                    raise Void(f"{name}: {error.message}") from None
        found[name] = _medians(took, "seen", "done")
    return found


async def _time(page: Any, deed: Deed) -> dict[str, float]:
    await page.goto(deed.path)
    if deed.prepare is not None:
        await deed.prepare(page)
    await page.evaluate(ARM.replace("HOLDS", deed.holds).replace("PATIENCE", str(PATIENCE)))
    await deed.act(page)
    took: dict[str, float] = await page.evaluate("() => window.acted")
    return took
