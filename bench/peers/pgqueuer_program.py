"""PGQueuer: python pgqueuer_program.py URL ACTION COUNT CLIENTS, answers with one JSON line (see __init__.py)."""

import asyncio
import json
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 1000


async def prepare(url: str, count: int, clients: int) -> dict[str, object]:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()
    return {}


async def enqueue(url: str, count: int, clients: int) -> dict[str, object]:
    async with asyncpg.create_pool(url, min_size=clients, max_size=clients) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def one() -> None:
            for n in range(count // clients):
                await queries.enqueue("bench", b"%d" % n)

        await asyncio.gather(*(queries.enqueue("bench", b"0") for _ in range(clients)))  # connections are open now
        began = time.time()
        await asyncio.gather(*(one() for _ in range(clients)))
        return {"seconds": time.time() - began}


async def bulk(url: str, count: int, clients: int) -> dict[str, object]:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    began = time.time()
    for _ in range(0, count, BATCH):
        await queries.enqueue(["bench"] * BATCH, [b'{"n":%d}' % n for n in range(BATCH)], [0] * BATCH)
    return {"seconds": time.time() - began}


async def drain(url: str, count: int, clients: int) -> dict[str, object]:
    times: list[float] = []
    async with asyncpg.create_pool(url, min_size=2, max_size=8) as pool:
        manager = PgQueuer(AsyncpgPoolDriver(pool)).qm

        @manager.entrypoint("bench")
        async def work(job: Job) -> None:
            times.append(time.time())

        await manager.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
    return {"first": times[0] if times else None, "last": times[-1] if times else None, "done": len(times)}


async def latency(url: str, count: int, clients: int) -> dict[str, object]:
    late: list[float] = []
    async with asyncpg.create_pool(url, min_size=2, max_size=8) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(url))).qm

        @manager.entrypoint("bench")
        async def work(job: Job) -> None:
            late.append(time.time() - float(job.payload or b"0"))

        running = asyncio.create_task(manager.run(dequeue_timeout=timedelta(seconds=1), batch_size=10))
        await asyncio.sleep(1)
        for _ in range(count):
            await queries.enqueue("bench", repr(time.time()).encode())
            await asyncio.sleep(0.02)
        while len(late) < count:
            await asyncio.sleep(0.05)
        manager.shutdown.set()
        await running
    return {"late": late}


if __name__ == "__main__":
    url, action, count, clients = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    actions = {one.__name__: one for one in (prepare, enqueue, bulk, drain, latency)}
    print(json.dumps(asyncio.run(actions[action](url, count, clients))))
