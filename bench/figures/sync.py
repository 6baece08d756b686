"""What a sync costs: a table of PostgreSQL into a table, and into Parquet files on S3, against the bare library.

Each way is a process of its own, timed from its start to its end, imports included; the memory is the most that the
process and its children had at once. Source and destination are one durable server.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from bench.figure import Aim, Bench, Line, Void, figure, measure
from bench.syncing import Measured, run_bare, run_ours

if TYPE_CHECKING:
    from bench.engines import Servers

AIM = Aim("at least", 0.667, "quotient")  # 1.5 times the time
GROWTH = Aim("at most", 1.25)


@figure(
    "sync",
    "rows a second from a table of PostgreSQL to another and to Parquet on S3; bare: dlt alone, at its fastest",
    stores=("postgres",), size=[200_000, 1_000_000], quick={"size": [20_000]},
)  # fmt: skip
async def sync(bench: Bench) -> AsyncIterator[Line]:
    if importlib.util.find_spec("dlt") is None:
        yield Line("sync", bench.store, "rows/s", void="the engines are needed: make .venv/.stamps/engines")
        return
    from bench.engines import running_servers

    with running_servers() as servers:
        lines: dict[tuple[str, int], Line] = {}
        for size in sorted(bench["size"]):
            servers.fill(size)
            for name in ("postgres", "s3"):
                line = lines[name, size] = await _measured(
                    Line(f"sync.{name}", bench.store, "rows/s", aim=AIM), servers, size, bench["trials"]
                )
                yield line
        for name in ("postgres", "s3"):
            if (line := _growth(name, lines, sorted(bench["size"]), bench.store)) is not None:
                yield line


async def _measured(line: Line, servers: Servers, size: int, trials: int) -> Line:
    """Bare, ours and a bare COPY in turn."""
    name = line.figure.partition(".")[2]
    others: dict[str, list[Measured]] = {"dlt": [], "copy": []}

    async def other(way: str) -> float:
        servers.clear(name)
        others[way].append(await asyncio.to_thread(run_bare, way, servers.order(name)))
        return size / others[way][-1].seconds

    async def ours() -> tuple[float, dict[str, Any]]:
        copied = await other("copy")
        servers.clear(name)
        done = await asyncio.to_thread(run_ours, servers.order(name))
        if (count := servers.count(name)) != size:
            raise Void(f"{count} rows arrived of {size}")
        return size / done.seconds, {"mb": round(done.megabytes), "copy": round(copied)}

    line.detail = {"size": size}
    await measure(line, trials, ours, lambda: other("dlt"))
    for way, runs in others.items():
        line.detail[f"{way}_mb"] = round(max((run.megabytes for run in runs), default=0))
    return line


def _growth(name: str, lines: dict[tuple[str, int], Line], sizes: list[int], store: str) -> Line | None:
    """Return the memory with the most rows divided by that with the fewest."""
    few, many = (lines[name, size].detail.get("mb") for size in (sizes[0], sizes[-1]))
    if len(sizes) < 2 or few is None or many is None:
        return None
    detail = {"sizes": sizes, "mb": [few, many]}
    return Line(f"sync.{name}.growth", store, "times", value=many / few, aim=GROWTH, detail=detail)
