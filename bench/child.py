"""A Horae process under the bench's control: wired by bootstrap.App as `horae up` does, without HTTP.

It comes up, says so, and then does what it is told on standard input, one word a line:

    go     run the roles: schedule, claim, execute
    feel   note from now on for how long the event loop does not come round, which takes CPU time too
    rpc    let remote agents in
    stat   answer with counts, CPU time and the moment, as one JSON line
    stop   drain and end

Statements are counted by asyncpg's own query log, because the server of the wheel has no pg_stat_statements.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import structlog
import uvloop

from horae import config as configuration
from horae.app.machine import SystemClock
from horae.app.server import App
from horae.app.store import open_store
from horae.stores.postgres import database, history, lanes
from horae.stores.queries import load_queries

PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
statements: Counter[str] = Counter()  # by the name of their query, or their first word
blocked = blocked_cpu = (
    0.0  # seconds for which the event loop did not come round, at most, and CPU time it used in that
)
BEAT = 0.005  # seconds


def count_statements() -> None:
    connect = lanes.connect
    names = {text: name for name, text in load_queries("postgres").items()}

    def count(record: Any) -> None:
        statements[names.get(record.query) or record.query.partition(" ")[0]] += 1

    async def counted(*args: Any, **settings: Any) -> lanes.Connection:
        connection = await connect(*args, **settings)
        connection.add_query_logger(count)
        return connection

    lanes.connect = database.connect = history.connect = counted


def stat(app: App) -> dict[str, Any]:
    metrics = app.metrics
    times = os.times()
    return {
        "at": app.clock.now(),
        "cpu": time.process_time(),
        "system": times.system,
        "fired": metrics.fired,
        "passed": metrics.passed,
        "claimed": metrics.claimed,
        "finished": sum(metrics.finished.values()),
        "fenced": metrics.fenced,
        "batches": dict(metrics.batches),
        "statements": statements.total(),
        "queries": dict(statements),
        "blocked": blocked,
        "blocked_cpu": blocked_cpu,
        "tasks": len(asyncio.all_tasks()),
        "memory_mib": round(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20),
    }


async def feel() -> None:
    """Note for how long nobody else could run: by the clock, and by the CPU time of this thread, which others do not
    lengthen."""
    global blocked, blocked_cpu
    while True:
        before, used = time.monotonic(), time.thread_time()
        await asyncio.sleep(BEAT)
        blocked = max(blocked, time.monotonic() - before - BEAT)
        blocked_cpu = max(blocked_cpu, time.thread_time() - used)


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


async def orders() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def main(flags: dict[str, str]) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    count_statements()
    config = configuration.load(flags, environ={})
    clock = SystemClock()
    store = await open_store(config, clock)
    app = App(config, store, clock)
    await app.start()
    reader = await orders()
    say(ready=True)
    async with asyncio.TaskGroup() as group:
        tasks: dict[str, asyncio.Task[None]] = {}
        rpc = None
        feeling: asyncio.Task[None] | None = None
        while word := (await reader.readline()).decode().strip():
            if word == "go":
                tasks = app.run_roles(group)
            elif word == "feel":
                feeling = group.create_task(feel())
            elif word == "rpc":
                rpc = await app.serve_rpc()
                say(serving=True)
            elif word == "stat":
                say(**stat(app))
            elif word == "stop":
                break
        if rpc is not None:
            await rpc.stop()
        if feeling is not None:
            feeling.cancel()
        await app.stop(tasks)
    await store.close()
    say(stopped=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
