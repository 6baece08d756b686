"""How fast jobs and runs are taken in: many in one call, and one by one from many clients."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from itertools import chain, product
from statistics import mean, median
from typing import Any

from bench import bare
from bench.figure import Aim, Bench, Line, Void, figure, measure
from bench.load import CHUNK, drafts, submit
from bench.loadgen import JOB, Wire
from bench.node import Server, cpu_of, ready, server
from bench.places import Place, PostgresPlace
from horae.core.work import specs
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs

SCHEDULE = {"cron": "0 3 1 1 *"}


@figure(
    "submit-bulk",
    "jobs with one trigger each, submitted thousands in a call",
    size=[60_000], quick={"size": [10_000]},
)  # fmt: skip
async def submit_bulk(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:

        async def ours(size: int = size) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                jobs = drafts(size, schedule=SCHEDULE)
                store = await place.open()
                cpu = time.process_time()
                rate = await submit(store, jobs)
                cpu = time.process_time() - cpu
                await store.close()
                await _judge(place, size)
                return rate, {"cpu_us_per_job": round(cpu / size * 1e6, 1), "parse_us_per_job": _parsing()}

        async def loop(size: int = size) -> float:
            async with bench.places.fresh(bench.store) as place:
                return await bare.copy(place, size)

        aim = Aim("at least", 0.2, "quotient") if bench.store == "postgres" else None
        line = Line("submit-bulk", bench.store, "jobs/s", aim=aim, detail={"size": size, "per_call": CHUNK})
        yield await measure(line, bench["trials"], ours, loop)


def _parsing(count: int = 2000) -> float:
    """Return what it takes on top to read a job from its document, µs."""
    document = {"name": "bench", "handler": "horae.handlers:noop", "triggers": [SCHEDULE]}
    began = time.process_time()
    for number in range(count):
        specs.parse_job({**document, "name": f"bench-{number}"})
    return round((time.process_time() - began) / count * 1e6, 1)


async def _judge(place: Place, size: int) -> None:
    jobs = (await place.rows("SELECT count(*) FROM jobs"))[0][0]
    due = (await place.rows("SELECT count(*) FROM due"))[0][0]
    if (jobs, due) != (size, size):
        raise Void(f"{size} jobs and due rows expected; got {jobs} and {due}")


@figure(
    "submit-single",
    "one job a call from many tasks at once, within the process",
    size=[20_000], clients=16, quick={"size": [4_000]},
)  # fmt: skip
async def submit_single(bench: Bench) -> AsyncIterator[Line]:
    clients = bench["clients"]
    for size in bench["size"]:

        async def ours(size: int = size) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                rate = await _one_by_one(place, size, clients)
                await _judge(place, size)
                return rate, {}

        async def loop(size: int = size) -> float:
            async with bench.places.fresh(bench.store) as place:
                return await bare.insert_one_by_one(place, size, clients)

        detail = {"size": size, "clients": clients}
        yield await measure(Line("submit-single", bench.store, "jobs/s", detail=detail), bench["trials"], ours, loop)


async def _one_by_one(place: Place, size: int, clients: int) -> float:
    store = await place.open()
    service = Jobs(store, LocalQueue())
    left = iter(drafts(size, schedule=SCHEDULE))

    async def client() -> None:
        for draft in left:
            await service.submit([draft])

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    seconds = time.perf_counter() - began
    await store.close()
    return size / seconds


@figure(
    "submit-http",
    "one job a request over HTTP, from many connections to a real `horae up`, without a token and with one",
    size=[20_000], clients=16, quick={"size": [2_000]},
)  # fmt: skip
async def submit_http(bench: Bench) -> AsyncIterator[Line]:
    clients = bench["clients"]
    for size, login in product(bench["size"], ("none", "token")):

        async def ours(size: int = size, login: str = login) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                async with server(place) as up:
                    await ready(up)
                    token = await _token(up.port) if login == "token" else ""
                    cpu = up.cpu_seconds()
                    told = await _generate("submit", up.port, clients, size, token)
                    cpu = up.cpu_seconds() - cpu
                await _judge(place, size)
                return told.pop("rate"), {**told, "cpu_us_per_job": round(cpu / size * 1e6, 1)}

        async def loop(size: int = size) -> float:
            async with bench.places.fresh(bench.store) as place:
                return await bare.insert_one_by_one(place, size, clients)

        detail = {"size": size, "clients": clients, "login": login}
        line = Line("submit-http", bench.store, "jobs/s", aim=Aim("at least", 5_000), detail=detail)
        yield await measure(line, bench["trials"], ours, loop)


@figure(
    "submit-http.login",
    "µs of the server's processor for a job over HTTP with a token and its role, and from whoever needs none",
    size=[16_000], clients=16, quick={"size": [480]},
)  # fmt: skip
async def submit_http_login(bench: Bench) -> AsyncIterator[Line]:
    clients = bench["clients"]
    for size in bench["size"]:
        line = Line("submit-http.login", bench.store, "µs", aim=Aim("at most", 1.05, "quotient"))
        line.detail = {"size": size, "clients": clients}
        try:
            async with bench.places.fresh(bench.store) as place:
                async with server(place, request_rate="0") as up:  # one user sends all that the server can take
                    await ready(up)
                    costs = await _cost_of_bursts(up, clients, size // clients)
                await _judge(place, size // clients * clients * 2)
        except Void as why:
            line.void = str(why)
        else:
            line.value, line.bare = (median(one) / clients * 1e6 for one in costs)
            line.detail["mean_us"], line.detail["mean_us_without"] = (mean(one) / clients * 1e6 for one in costs)
        yield line


async def _cost_of_bursts(up: Server, clients: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of the server for bursts of jobs, one from each client: with a token, and without. They go in
    turns, a hundred in a second, so that neither meets a larger store or a busier machine; who goes first changes."""
    costs: dict[str, list[float]] = {await _token_of_account(up.port): [], "": []}
    wires = {login: [await Wire.connect(up.port, login) for _ in range(clients)] for login in costs}
    for number in range(rounds):
        for login in sorted(costs, reverse=number % 2 == 0):
            before = up.precise_cpu_seconds()
            await asyncio.gather(*[wire.json("POST", "/v1/jobs", JOB) for wire in wires[login]])
            costs[login].append(up.precise_cpu_seconds() - before)
    for wire in chain(*wires.values()):
        wire.close()
    with_token, without = costs.values()
    return with_token, without


@figure(
    "run-now",
    "one run a request over HTTP, each with an Idempotency-Key, to a real `horae up`, none of which an agent takes",
    size=[5_000], quick={"size": [500]},
)  # fmt: skip
async def run_now(bench: Bench) -> AsyncIterator[Line]:
    for size, clients in product(bench["size"], (1, 16)):

        async def ours(size: int = size, clients: int = clients) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                async with server(place) as up:
                    await ready(up)
                    await _generate(
                        "run", up.port, clients, size // 10, "first"
                    )  # what is only met once is not to be measured
                    cpu, before = up.cpu_seconds(), await _spent(place)
                    told = await _generate("run", up.port, clients, size, "again")
                    cpu, after = up.cpu_seconds() - cpu, await _spent(place)
                await _judge_runs(place, size + size // 10)
                told["cpu_us_per_run"] = round(cpu / size * 1e6, 1)
                told |= {name: round((after[name] - before[name]) / size, 3) for name in after}
                return told.pop("rate"), told

        async def loop(size: int = size, clients: int = clients) -> float:
            async with bench.places.fresh(bench.store) as place:
                return await bare.insert_one_by_one(place, size, clients)

        line = Line("run-now", bench.store, "runs/s", detail={"size": size, "clients": clients})
        yield await measure(line, bench["trials"], ours, loop)


async def _spent(place: Place) -> dict[str, float]:
    """Return what PostgreSQL has spent; a transaction that ended less than a second ago may be missing."""
    if not isinstance(place, PostgresPlace):
        return {}
    await asyncio.sleep(1.5)
    [(commits, wal)] = await place.rows(
        "SELECT xact_commit, pg_current_wal_insert_lsn() - '0/0' FROM pg_stat_database "
        "WHERE datname = current_database()"
    )
    return {
        "commits_per_run": int(commits),
        "wal_bytes_per_run": int(wal),
        "postgres_cpu_us_per_run": sum(map(cpu_of, await place.backends())) * 1e6,
    }


async def _judge_runs(place: Place, size: int) -> None:
    runs = (await place.rows("SELECT count(*) FROM live"))[0][0]
    if runs != size:
        raise Void(f"{size} queued runs expected; got {runs}")


async def _token(port: int) -> str:
    wire = await Wire.connect(port)
    made = await wire.json("POST", "/v1/tokens", {"name": "bench"})
    wire.close()
    return str(made["token"])


async def _token_of_account(port: int) -> str:
    """Return the token of a program that is no admin, so that its role is looked at, too."""
    wire = await Wire.connect(port)
    await wire.json("POST", "/v1/users", {"name": "bench", "kind": "service", "role": "editor"})
    made = await wire.json("POST", "/v1/tokens", {"name": "bench", "owner": "bench", "role": "editor"})
    wire.close()
    return str(made["token"])


async def _generate(way: str, port: int, clients: int, total: int, more: str = "") -> dict[str, Any]:
    """`more` is a token, or of runs, what their keys begin with."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.loadgen", way, str(port), str(clients), str(total), more, stdout=PIPE
    )
    text, _ = await process.communicate()
    if process.returncode:
        raise Void("the load generator failed; its standard error says why")
    told: dict[str, Any] = json.loads(text)
    return told
