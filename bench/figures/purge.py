"""How fast the past goes: history beyond its days, dropped by the service as the leader does it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure
from bench.past import fill
from bench.places import Place
from horae.files import open_files
from horae.service.retention import Retention

JOBS = 10_000
KEPT = 45  # of the ninety days that are filled

WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"


@figure(
    "purge",
    "ended runs dropped a second, with one recent run among the oldest; WAL bytes of each",
    size=[1_000_000], trials=1, quick={"size": [50_000]},
)  # fmt: skip
async def purge(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        line = Line("purge", bench.store, "runs/s", aim=Aim("at least", 5000), detail={"runs": size})
        async with bench.places.fresh(bench.store) as place:
            await fill(place, JOBS, size)
            now = time.time_ns() // 1000
            await place.rows(f"UPDATE history SET finished_at = {now} WHERE id = 2")
            try:
                line.value, detail = await _purge(place, size)
                line.detail |= detail
            except Void as why:
                line.void = str(why)
        yield line


async def _purge(place: Place, size: int) -> tuple[float, dict[str, Any]]:
    store = await place.open()
    retention = Retention(store, open_files(place.directory / "output"), history_days=KEPT)
    before = await _wal(place)
    began, batches = time.perf_counter(), 1
    while await retention.purge():
        batches += 1
    seconds = time.perf_counter() - began
    after = await _wal(place)
    await store.close()
    left = (await place.rows("SELECT count(*) FROM history"))[0][0]
    gone = size - left
    if not 0.48 < gone / size < 0.51:  # where parts are dropped as a whole, rows have a day more
        raise Void(f"{gone} of {size} runs went, half of them were to")
    detail: dict[str, Any] = {"dropped": gone, "batches": batches, "seconds": round(seconds, 2)}
    if before is not None and after is not None:
        detail["wal_bytes_per_run"] = round((after - before) / gone)
    return gone / seconds, detail


async def _wal(place: Place) -> int | None:
    return int((await place.rows(WAL))[0][0]) if place.store == "postgres" else None
