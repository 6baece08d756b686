"""Output of jobs: one that writes at full speed, and many that write a little all the time; to a directory and to S3.

What counts beside the rate is what the server's process needs for it, and how far behind somebody is who follows.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from campaign import services

from bench.figure import Aim, Bench, Line, Void, figure, measure, percentile
from bench.loadgen import Wire
from bench.node import Server, ready, server
from bench.places import Place

STORES = ("directory", "s3")  # of output
MIB = 2**20
LOOK = 0.1  # seconds between two looks at the memory
PATIENCE = 300.0  # seconds
FOLLOWED = 10  # of those that write all the time
# A line with the time, ten times a second, in a process that starts no other.
CHATTER = 'exec 3<> <(:); for ((n = 0; n < {lines}; n++)); do echo "at $EPOCHREALTIME"; read -rt 0.1 -u 3; done; true'
_STAMP = re.compile(rb"at ([0-9]+\.[0-9]+)")


@asynccontextmanager
async def _up(place: Place, kept: str, **flags: str) -> AsyncIterator[Server]:
    """`horae up` that keeps output in a directory, or in a bucket of a service of its own."""
    if kept == "directory":
        async with server(place, **flags) as up:
            await ready(up)
            yield up
        return
    directory = Path(place.directory)
    bucket = services.bucket(directory)
    await bucket.begin()
    os.environ.update(services.credentials())
    try:
        where = {"files": f"s3://{services.BUCKET}/bench", "files_endpoint": f"http://127.0.0.1:{bucket.port}"}
        async with server(place, **where, **flags) as up:
            await ready(up)
            yield up
    finally:
        await bucket.end()


async def _start(wire: Wire, script: str) -> int:
    steps = [{"run": f"exec bash -c '{script}'"}]
    [job] = (await wire.json("POST", "/v1/jobs", {"name": "talker", "steps": steps}))["jobs"]
    run: int = (await wire.json("POST", f"/v1/jobs/{job['id']}/run"))["id"]
    return run


async def _follow(port: int, run: int, heard: Any) -> None:
    """Every byte of a followed log, as it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /v1/runs/{run}/log/follow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    try:
        while data := await reader.read(MIB):
            heard(data)
            if b"event: end" in data:
                return
    finally:
        writer.close()


class Memory:
    """The most that a process has needed since it was first looked at."""

    def __init__(self, up: Server) -> None:
        self._up = up
        self.first = self.most = up.memory_mib()

    async def watch(self) -> None:
        while True:
            self.most = max(self.most, self._up.memory_mib())
            await asyncio.sleep(LOOK)

    @property
    def grown(self) -> float:
        return round(self.most - self.first, 1)


@asynccontextmanager
async def _watched(up: Server) -> AsyncIterator[Memory]:
    memory = Memory(up)
    watching = asyncio.create_task(memory.watch())
    try:
        yield memory
    finally:
        watching.cancel()


@figure(
    "output.flood", "one job that writes at full speed, followed, and the memory that the server needs more",
    size=[100], quick={"size": [20]}, stores=("sqlite",),
)  # fmt: skip
async def flood(bench: Bench) -> AsyncIterator[Line]:
    size = bench["size"][0] * MIB
    for kept in STORES:

        async def ours(kept: str = kept) -> tuple[float, dict[str, Any]]:
            limit = {"output_limit": f"{2 * bench['size'][0]}MiB"}
            async with bench.places.fresh(bench.store) as place, _up(place, kept, **limit) as up:
                wire = await Wire.connect(up.port)
                heard = 0

                def hear(data: bytes) -> None:
                    nonlocal heard
                    heard += len(data)

                async with _watched(up) as memory, asyncio.timeout(PATIENCE):
                    began = time.perf_counter()
                    run = await _start(wire, f'yes "$(printf %079d 0)" | head -c {size}')
                    await _follow(up.port, run, hear)
                    seconds = time.perf_counter() - began
                _, log = await wire.ask("GET", f"/v1/runs/{run}/log?offset={size}")
                wire.close()
            if heard < size or b"lost" in log:
                raise Void(f"{heard} of {size} bytes were followed, and the log ends with {log[-200:]!r}")
            return size / MIB / seconds, {"memory MiB": memory.grown, "followed MiB": round(heard / MIB)}

        line = Line("output.flood", bench.store, "MiB/s", detail={"kept": kept, "MiB": bench["size"][0]})
        yield await measure(line, bench["trials"], ours)


@figure(
    "output.chatter", "how far behind a follower is while many jobs write ten lines a second",
    size=[200], seconds=[15], quick={"size": [20], "seconds": [4]}, stores=("sqlite",),
)  # fmt: skip
async def chatter(bench: Bench) -> AsyncIterator[Line]:
    jobs, lines = bench["size"][0], bench["seconds"][0] * 10
    for kept in STORES:

        async def ours(kept: str = kept) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place, _up(place, kept, slots=str(jobs)) as up:
                wire = await Wire.connect(up.port)
                behind: list[float] = []
                heard, since = 0, 0.0

                def hear(data: bytes) -> None:
                    nonlocal heard
                    now, stamps = time.time(), [float(stamp) for stamp in _STAMP.findall(data)]
                    heard += len(stamps)
                    behind.extend(1000 * (now - stamp) for stamp in stamps if stamp > since)

                async with _watched(up) as memory, asyncio.timeout(PATIENCE):
                    runs = [await _start(wire, CHATTER.format(lines=lines)) for _ in range(jobs)]
                    since = time.time()  # what was written before anybody followed is no measure
                    await asyncio.gather(*(_follow(up.port, run, hear) for run in runs[:: jobs // FOLLOWED]))
                    wire.close()
                    wire = await Wire.connect(up.port)  # the first one was idle for too long
                    while (await wire.json("GET", "/v1/runs?state=running"))["items"]:
                        await asyncio.sleep(LOOK)
                wire.close()
            followed = len(runs[:: jobs // FOLLOWED])
            if heard != followed * lines:
                raise Void(f"{heard} lines were followed, not {followed * lines}")
            behind.sort()
            told = {"p50 ms": round(percentile(behind, 0.5)), "most ms": round(behind[-1]), "memory MiB": memory.grown}
            return percentile(behind, 0.99), told

        line = Line(
            "output.chatter", bench.store, "ms p99", aim=Aim("at most", 1000), detail={"kept": kept, "jobs": jobs}
        )
        yield await measure(line, bench["trials"], ours)
