"""How long the server takes for each page, and for what pages ask of the API, with millions of runs behind it; and how
many statements."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

from bench.browser import Deed, answers, chromium, first_views, looks_of
from bench.counted import HEADER
from bench.figure import Aim, Bench, Line, Void, figure, percentile
from bench.loadgen import Wire
from bench.node import ready, server
from bench.past import DAYS, FAILING, SKIPPING, fill, rest

LIMIT = 50.0  # milliseconds
TIMES = 30  # each is asked for so often, after a first time that warms up
TOO_LONG = 1000.0  # milliseconds after which it is not asked again
PAGE = "Accept: text/html\r\n"
VIEW_LIMIT = 300.0  # milliseconds until the largest part of a page stands in a browser that has never seen it
SEEN_LIMIT = 100.0  # milliseconds until a browser shows that a key or a press arrived
VIEWS = 3  # each is opened so often


@figure(
    "pages",
    "the slowest page of the dashboard, or question of it to the API, ms of the server, p99; in Chromium: until the "
    "largest part of a page is painted, and until an input is seen",
    registered=[100_000], size=[10_000_000], trials=TIMES, quick={"registered": [2_000], "size": [20_000], "trials": 1},
)  # fmt: skip
async def pages(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:
        for size in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                took = await fill(place, registered, size)
                await rest(place)
                async with server(place, program="bench.counted", roles="api") as up:
                    await ready(up)
                    costs = await look(up.port, registered, size, bench["trials"])
                    in_browser = await _in_browser(bench, up.port, registered, size)
            times = {name: cost["p50_p99_ms"] for name, cost in costs.items()}
            slowest = max(times, key=lambda name: times[name][1])
            over = {name: costs[name] for name, ms in times.items() if ms[1] > LIMIT}
            detail = {"registered": registered, "runs": size, "fill_s": round(took), "slowest": slowest, "over": over}
            detail["first_p50_p99_ms_statements"] = {
                name: (cost["first_ms"], *cost["p50_p99_ms"], cost["statements"]) for name, cost in costs.items()
            }
            yield Line("pages", bench.store, "ms", times[slowest][1], aim=Aim("at most", LIMIT), detail=detail)
            for line in in_browser:
                yield line


async def _in_browser(bench: Bench, port: int, jobs: int, runs: int) -> list[Line]:
    """What somebody waits for in a browser: server, network and browser are all of this machine."""
    views = Line("pages.first_view", bench.store, "ms", aim=Aim("at most", VIEW_LIMIT))
    inputs = Line("pages.input", bench.store, "ms", aim=Aim("at most", SEEN_LIMIT))
    times = min(VIEWS, bench["trials"])
    try:
        async with chromium() as browser:
            looks = await looks_of(browser, port)
            opened, views.bare = await first_views(browser, port, _of_pages(jobs, runs), looks, times)
            acted = await answers(browser, port, DEEDS, looks, times)
    except Void as why:
        views.void = inputs.void = str(why)
        return [views, inputs]
    views.value = max(largest for _, _, largest in opened.values())
    views.detail = {"registered": jobs, "runs": runs, "answered_first_largest_ms": opened}
    inputs.value = max(seen for seen, _ in acted.values())
    inputs.detail = {"registered": jobs, "runs": runs, "seen_and_done_ms": acted}
    return [views, inputs]


async def _open_palette(page: Any) -> None:
    await page.keyboard.press("Control+k")


async def _open_look(page: Any) -> None:
    await page.click("#look summary")


async def _type(page: Any) -> None:
    await page.keyboard.type("team 99", delay=20)


async def _search(page: Any) -> None:
    await page.click("#filters [name=q]")


DEEDS = {
    "find jobs as one types": Deed(
        "/jobs", _type, "location.search.includes('99') && !document.querySelector('#jobs.busy')", _search
    ),
    "choose all jobs of a page": Deed(
        "/jobs", lambda page: page.click("#all"), "!document.getElementById('bulk').hidden"
    ),
    "open the palette": Deed("/", _open_palette, "document.getElementById('palette').open"),
    "find in the palette": Deed(
        "/", _type, "/team 99/.test(document.getElementById('found').textContent)", _open_palette
    ),
    "open the menu of looks": Deed("/runs", _open_look, "document.getElementById('look').open"),
    "turn dark": Deed(
        "/runs", lambda page: page.click("#look [value=dark]"), "document.documentElement.dataset.theme === 'dark'",
        _open_look,
    ),
    "ask before runs are cancelled": Deed(
        "/runs?state=queued", lambda page: page.click("[data-whole=cancel]"), "document.querySelector('dialog[open]')"
    ),
}  # fmt: skip


async def look(port: int, jobs: int, runs: int, times: int) -> dict[str, dict[str, Any]]:
    wire = await Wire.connect(port)
    try:
        return {name: await _cost(wire, path, times) for name, path in _addresses(jobs, runs).items()}
    finally:
        wire.close()


async def _cost(wire: Wire, path: str, times: int) -> dict[str, Any]:
    """What an address costs the server; of its statements the slowest by name."""
    first = await _ask(wire, path)
    seen = [first]
    for _ in range(times):
        if seen[-1]["ms"] > TOO_LONG:
            break
        seen.append(await _ask(wire, path))
    took = [one["ms"] for one in seen[1:] or seen]
    statements = max(one["statements"] for one in seen)
    return {
        "first_ms": first["ms"],
        "p50_p99_ms": (round(median(took), 1), round(percentile(sorted(took), 0.99), 1)),
        "statements": max(len(one["statements"]) for one in seen),
        "slowest": sorted(statements, key=lambda one: -one[1])[:2],
    }


async def _ask(wire: Wire, path: str) -> dict[str, Any]:
    status, head, body = await wire.answer("GET", path, headers="" if path.startswith("/v1/") else PAGE)
    if status not in (200, 503):  # 503: it took so long that it was given up
        raise Void(f"{path}: {status} {body.decode()[:200]}")
    found: dict[str, Any] = json.loads(head.partition(HEADER + b": ")[2].partition(b"\r\n")[0])
    return found


def _addresses(jobs: int, runs: int) -> dict[str, str]:
    return {**_of_pages(jobs, runs), **_of_lists(), **_asked_by_pages(jobs, runs)}


def _of_pages(jobs: int, runs: int) -> dict[str, str]:
    plain = ("/", "/jobs", "/jobs/new", "/runs", "/timeline", "/workflows", "/queues", "/cluster", "/alerts",
             "/settings", "/style", "/docs", "/forecast", "/forecast?span=7d", "/audit")  # fmt: skip
    named = {
        "/jobs/ID": f"/jobs/{jobs // 2}", "/jobs/ID that always fails": f"/jobs/{FAILING}",
        "/jobs/ID always skipped": f"/jobs/{SKIPPING}", "/jobs/ID/edit": f"/jobs/{jobs // 2}/edit",
        "/runs/ID ended": f"/runs/{runs // 2}", "/runs/ID failed": f"/runs/{runs // 33 // 2 * 33}",
        "/runs/ID queued": f"/runs/{runs + 1}", "/runs/ID running": f"/runs/{runs + 10}",
        **{f"/timeline {span}": f"/timeline?span={span}" for span in ("15m", "1h", "24h", "7d", "28d")},
        "/timeline long ago": f"/timeline?span=6h&at={_long_ago()}",
        "/timeline by name": "/timeline?name=team%207",
    }  # fmt: skip
    return {path: path for path in plain} | named


def _of_lists() -> dict[str, str]:
    jobs = (
        "q=team", "q=team%2099", "q=nobody", "owner=owner%207", "kind=shell", "is=paused", "state=failing",
        "state=running", "state=waiting", "state=fine", "sort=name", "sort=next", "sort=last", "page=100",
        "q=team&state=failing", "owner=owner%207&sort=next",
    )  # fmt: skip
    runs = (
        "state=failed", "state=running", "state=queued", "state=cancelled", "state=failed&state=timed_out&since=24h",
        f"job={FAILING}", f"job={FAILING}&state=succeeded", "name=team%2099", "name=nobody", "owner=owner%207",
        "owner=nobody", "node=node%207", "node=nobody", "since=1h", "since=7d", "name=team&state=failed",
    )  # fmt: skip
    return {f"/jobs?{query}": f"/jobs?{query}" for query in jobs} | {
        f"/runs?{query}": f"/runs?{query}" for query in runs
    }


def _asked_by_pages(jobs: int, runs: int) -> dict[str, str]:
    asked = (
        "/v1/overview", "/v1/jobs?limit=8&q=team", "/v1/jobs?limit=8&q=team%2099999", "/v1/jobs?limit=8&q=nobody",
        "/v1/jobs?limit=1000", "/v1/runs?limit=50", "/v1/runs?limit=50&state=failed", "/v1/nodes", "/v1/queues",
        "/v1/forecast?hours=12&limit=0", "/v1/timeline",
    )  # fmt: skip
    named = {
        "/v1/jobs/ID": f"/v1/jobs/{jobs // 2}", "/v1/jobs/ID/days": f"/v1/jobs/{FAILING}/days",
        "/v1/explain/jobs/ID": f"/v1/explain/jobs/{FAILING}", "/v1/runs/ID": f"/v1/runs/{runs // 2}",
    }  # fmt: skip
    return {path: path for path in asked} | named


def _long_ago() -> str:
    return datetime.fromtimestamp(time.time() - DAYS / 2e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
