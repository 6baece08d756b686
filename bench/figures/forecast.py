"""What a forecast of a day costs with a hundred thousand triggers, and a round of learning with millions of runs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from bench.figure import Aim, Bench, Line, figure
from bench.loadgen import Wire
from bench.node import ready, server, time_command
from bench.past import fill
from bench.places import Place
from horae.core.insight.learning import Mark
from horae.ports.store import Store
from horae.service.insight.forecasting import Forecasting
from horae.service.insight.learning import Learning

T = TypeVar("T")
LIMIT = 1.0  # seconds
ASKED = 5  # forecasts of a server, none of which it remembers
LEARNED = 50_000  # runs of one round
OLD = '{"every":"300d"}'

# A mixture as people have it: midnight, times of their own, spread ones, every few minutes, intervals, once.
TRIGGERS = """
UPDATE jobs SET triggers = replace(triggers, '{old}', CASE
  WHEN id % 20 < 4 THEN '{{"cron":"0 0 * * *"}}'
  WHEN id % 20 < 7 THEN '{{"cron":"' || (id % 60) || ' ' || (id / 60 % 24) || ' * * *","timezone":"Europe/Berlin"}}'
  WHEN id % 20 < 10 THEN '{{"cron":"H H * * *"}}' WHEN id % 20 < 12 THEN '{{"cron":"*/5 * * * *"}}'
  WHEN id % 20 < 14 THEN '{{"every":"1m"}}' WHEN id % 20 < 16 THEN '{{"every":"15m"}}'
  WHEN id % 20 < 18 THEN '{{"every":"1h"}}' WHEN id % 20 < 19 THEN '{{"every":"6h"}}'
  ELSE '{{"cron":"0 * * * *"}}' END)"""
MOMENTS = """
UPDATE due SET next_at = {now} / 1000000 * 1000000 + CASE
  WHEN trigger_id % 20 < 4 THEN 86400 - {now} / 1000000 % 86400
  WHEN trigger_id % 20 < 10 THEN next_at / 1000000 % 1440 * 60
  WHEN trigger_id % 20 < 12 THEN 300 - {now} / 1000000 % 300 WHEN trigger_id % 20 < 14 THEN next_at / 1000000 % 60
  WHEN trigger_id % 20 < 16 THEN next_at / 1000000 % 900 WHEN trigger_id % 20 < 18 THEN next_at / 1000000 % 3600
  WHEN trigger_id % 20 < 19 THEN next_at / 1000000 % 21600 ELSE 3600 - {now} / 1000000 % 3600 END * 1000000 + 1000000"""
DURATIONS = """
INSERT INTO durations (job_id, learned_at, median, spread, share, baseline)
SELECT id, {now}, 100000 + id * 7919 % 997 * (id % 97) * 1000, 0.1 + id % 9 * 0.1, 0.99, '[]' FROM jobs"""


@figure(
    "forecast",
    "a forecast of a day, seconds of processor time with reading, and by the clock from a server; a round of learning",
    registered=[100_000], size=[10_000_000], quick={"registered": [2_000], "size": [20_000]},
)  # fmt: skip
async def forecast(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:
        for size in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                await fill(place, registered, size)
                await _furnish(place)
                yield await _time_server(bench.store, place, registered, size)
                store = await place.open()
                try:
                    make = Forecasting(store).make
                    first, statements, found = await _timed(store, partial(make, hours=24))
                    again, _, _ = await _timed(store, partial(make, hours=24, by="owner"))
                    detail = {"triggers": registered, "runs": size, "moments": found.moments, "again_s": again}
                    detail |= {"statements": statements, "peak": round(found.peak), **await _learning(place, store)}
                finally:
                    await store.close()
            yield Line("forecast", bench.store, "s", first, aim=Aim("at most", LIMIT), detail=detail)


async def _time_server(store: str, place: Place, triggers: int, runs: int) -> Line:
    """Ask a real server. It remembers a forecast for a while, so each question is another one."""
    async with server(place, roles="api") as up:
        await ready(up)
        wire = await Wire.connect(up.port)
        try:
            took = []
            for limit in range(20, 20 + ASKED):
                began = time.perf_counter()
                found = await wire.json("GET", f"/v1/forecast?hours=24&limit={limit}")
                took.append(round(time.perf_counter() - began, 3))
        finally:
            wire.close()
        detail = {"triggers": triggers, "runs": runs, "seconds": took, "moments": found["moments"]}
        detail["cli_s"] = await time_command(up, "forecast", "--hours", "24", "--json")
    return Line("forecast.http", store, "s", max(took), aim=Aim("at most", LIMIT), detail=detail)


async def _furnish(place: Place) -> None:
    """Give each job a schedule that people have, its next moment, and a duration."""
    now = time.time_ns() // 1000
    for statement in (TRIGGERS, MOMENTS, DURATIONS):
        await place.rows(statement.format(now=now, old=OLD))
    await place.settle()


async def _learning(place: Place, store: Store) -> dict[str, Any]:
    """Let a full round be learned. What was made up before is forgotten."""
    await place.rows("DELETE FROM durations")
    newest = await store.newest_run()
    await store.begin_learning(Mark(max(0, newest - LEARNED), newest, 0))
    seconds, statements, found = await _timed(store, Learning(store).learn)
    return {"learned": found.runs, "learn_s": seconds, "learn_statements": statements}


async def _timed(store: Any, ask: Callable[[], Awaitable[T]]) -> tuple[float, int, T]:
    """Return seconds of processor time, statements, and what was asked for."""
    get, put, count = store._get, store._put, 0

    def counted(inner: Any) -> Any:
        async def counting(*args: Any) -> Any:
            nonlocal count
            count += 1
            return await inner(*args)

        return counting

    store._get, store._put = counted(get), counted(put)
    began = time.process_time()
    try:
        found = await ask()
    finally:
        store._get, store._put = get, put
    return round(time.process_time() - began, 3), count, found
