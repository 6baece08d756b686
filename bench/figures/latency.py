"""How late: of a steady rate, of a herd due in one moment, and of a run asked for by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from bench import bare
from bench.costs import by_run, spent
from bench.figure import Aim, Bench, Line, Void, figure, measure, percentile
from bench.figures.census import more
from bench.figures.rates import PATIENCE, lead
from bench.load import at, drafts, judge, register, sleep_until
from bench.loadgen import JOB, Wire
from bench.node import node, now, ready, server, until
from bench.places import Place
from horae.core.model import SECOND

WARM = 3 * SECOND  # of the steady rate before it is looked at
MS = 1000  # µs


# ── lateness ──


@figure(
    "lateness",
    "start minus due moment at a steady rate, with few and many triggers registered, all of them recurring",
    registered=[1_000, 100_000, 1_000_000], rate=[100, 1_000], seconds=[10], lead=None, trials=1,
    quick={"registered": [1_000], "rate": [100], "seconds": [3]},
)  # fmt: skip
async def lateness(bench: Bench) -> AsyncIterator[Line]:
    for rate in bench["rate"]:
        few: float | None = None
        for registered in bench["registered"]:
            line = await _lateness(bench, rate, registered, bench["seconds"][0])
            yield line
            if few is None:
                few = line.value
            elif line.value is not None and few:
                detail = {"rate": rate, "registered": registered, "p99_ms": line.value, "p99_ms_with_fewest": few}
                aim = Aim("at most", 1.25) if rate >= 1_000 and registered >= 1_000_000 else None
                yield Line("lateness.growth", bench.store, "times", line.value / few, aim=aim, detail=detail)


async def _lateness(bench: Bench, rate: int, registered: int, seconds: int) -> Line:
    aim = Aim("at most", 20) if rate >= 1_000 and registered >= 1_000_000 else None
    line = Line("lateness", bench.store, "ms p99", aim=aim)
    line.detail = {"rate": rate, "registered": registered, "seconds": seconds}

    async def ours() -> tuple[float, dict[str, Any]]:
        period = registered * SECOND // rate
        async with bench.places.fresh(bench.store) as place:
            began = now() + lead(bench, registered) * SECOND
            schedule = {"every": f"{period // MS}ms", "start_at": at(began), "jitter": f"{period // MS - 1}ms"}
            loaded = await register(place, drafts(registered, schedule=schedule))
            async with node(place) as one:
                await one.go()
                start, end = began + WARM, began + WARM + seconds * SECOND
                await sleep_until(start)
                before, cost = await one.stat(), await spent(place)
                await sleep_until(end + SECOND)
                after = await one.stat()
                costs = by_run(cost, await spent(place), after["finished"] - before["finished"] or 1)
                waits = await _waits(place, start, end)
                await _judge_moments(place, start, end, period, len(waits))
            cpu = (after["cpu"] - before["cpu"]) / (after["at"] - before["at"]) * SECOND
            return waits[int(len(waits) * 0.99)][0] / MS, {
                **_spread([wait for wait, _ in waits], ""),
                **_spread(sorted(end for _, end in waits), "_until_finished"),
                "runs": len(waits), "cpu_share": round(cpu, 3), "load_jobs_per_s": round(loaded), **costs,
                "queries": more(before["queries"], after["queries"]),
            }  # fmt: skip

    return await measure(line, bench["trials"], ours, lambda: timers(rate))


async def _waits(place: Place, start: int, end: int) -> list[tuple[float, float]]:
    """(start - due, finish - due) of the runs due in a window, µs, sorted."""
    rows = await place.rows(
        f"SELECT started_at - due_at, finished_at - due_at FROM history"
        f" WHERE state = 10 AND due_at > {start} AND due_at <= {end}"
    )
    if not rows:
        raise Void("no run was due in the window")
    return sorted((float(wait), float(end)) for wait, end in rows)


async def _judge_moments(place: Place, start: int, end: int, period: int, runs: int) -> None:
    """Every moment of every trigger within the window has its run, once."""
    past = 10 * SECOND * 1_000_000 // period * period  # keeps the divisions positive
    moments = (
        await place.rows(
            f"SELECT sum(({end} - next_at + {past}) / {period} - ({start} - next_at + {past}) / {period}) FROM due"
        )
    )[0][0]
    twice = (
        await place.rows(
            "SELECT count(*) FROM (SELECT trigger_id, due_at FROM history GROUP BY 1, 2 HAVING count(*) > 1) AS twice"
        )
    )[0][0]
    if int(moments) != runs or twice:
        raise Void(f"{moments} moments were due, {runs} runs succeeded, {twice} moments ran twice")


def _spread(waits: list[float], suffix: str) -> dict[str, float]:
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_ms{suffix}": round(percentile(waits, share) / MS, 2) for name, share in shares.items()}


async def timers(rate: int, seconds: float = 3.0) -> float:
    """Return how late a bare timer of the same rate is on this machine now, p99 in ms."""
    late, due = [], time.time() + 0.05
    for _ in range(int(rate * seconds)):
        due += 1 / rate
        wait = due - time.time()
        if wait > 0:
            await asyncio.sleep(wait)
        late.append(time.time() - due)
    return max(percentile(sorted(late), 0.99) * 1000, 0.001)


# ── the herd ──

HERD_AIMS = {("sqlite", 10_000): 0.7, ("postgres", 10_000): 0.7, ("sqlite", 100_000): 5.0, ("postgres", 100_000): 8.0}


@figure(
    "herd",
    "triggers all due at the same moment: seconds until the last has started",
    size=[1_000, 10_000, 100_000], lead=None, quick={"size": [1_000]},
)  # fmt: skip
async def herd(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        bound = HERD_AIMS.get((bench.store, size))
        aim = None if bound is None else Aim("at most", bound)
        yield await _herd(bench, Line("herd", bench.store, "s", aim=aim, detail={"size": size}), size)


async def _herd(bench: Bench, line: Line, size: int) -> Line:
    async def loop() -> float:
        """Return how long the bare claim-and-delete loop takes for as many."""
        async with bench.places.fresh(bench.store) as place:
            return size / await bare.claim_and_delete(place, size)

    return await measure(line, bench["trials"], lambda: herd_of(bench, size), loop)


async def herd_of(bench: Bench, size: int) -> tuple[float, dict[str, Any]]:
    """Return how long it took until the last of so many had started."""
    async with bench.places.fresh(bench.store) as place:
        moment = now() + (lead(bench, size) + 6) * SECOND
        await register(place, drafts(size, schedule={"every": "1h", "start_at": at(moment)}))
        async with node(place) as one:
            await one.go()
            await sleep_until(moment)
            before = await one.stat()
            (after,) = await until([one], "finished", size, PATIENCE)
        await judge(place, size)
        first, last = (await place.rows("SELECT min(started_at), max(started_at) FROM history"))[0]
        return (last - moment) / SECOND, {
            "first_s": round((first - moment) / SECOND, 4),
            "in_history_s": round((after["at"] - moment) / SECOND, 3),
            "cpu_us_per_run": round((after["cpu"] - before["cpu"]) / size * 1e6, 1),
        }


# ── by hand ──


@figure(
    "pickup",
    "from the moment a client asks for a run over HTTP until its handler starts, a hundred a second",
    rate=[100], seconds=[8], quick={"seconds": [2]},
)  # fmt: skip
async def pickup(bench: Bench) -> AsyncIterator[Line]:
    for rate in bench["rate"]:
        count = rate * bench["seconds"][0]

        async def ours(rate: int = rate, count: int = count) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place, server(place) as up:
                await ready(up)
                wire = await Wire.connect(up.port)
                asked = await _ask(wire, rate, count)
                await asyncio.sleep(0.5)
                rows = await place.rows("SELECT id, started_at, due_at FROM history WHERE state = 10")
                wire.close()
            if {row[0] for row in rows} != set(asked):
                raise Void(f"{count} runs asked for, {len(rows)} in history")
            whole = sorted(float(started - asked[run]) for run, started, _ in rows)
            inner = sorted(float(started - due) for _, started, due in rows)
            return percentile(whole, 0.5) / MS, {**_spread(whole, ""), **_spread(inner, "_from_enqueued")}

        async def loop(rate: int = rate) -> float:
            return await timers(rate)

        detail = {"rate": rate, "runs": count}
        line = Line("pickup", bench.store, "ms p50", aim=Aim("at most", 2), detail=detail)
        yield await measure(line, bench["trials"], ours, loop)


async def _ask(wire: Wire, rate: int, count: int) -> dict[int, int]:
    """Run id → when its request was sent. Each job has long ended when its turn comes again."""
    job = {name: value for name, value in JOB.items() if name != "schedule"}
    jobs = [(await wire.json("POST", "/v1/jobs", job))["jobs"][0]["id"] for _ in range(50)]
    asked: dict[int, int] = {}
    due = time.time()
    for number in range(count):
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - time.time()))
        sent = now()
        run = await wire.json("POST", f"/v1/jobs/{jobs[number % 50]}/run", {})
        asked[run["id"]] = sent
    return asked
