"""Horae itself, as the other programs: python -m bench.peers.horae_program URL ACTION COUNT CLIENTS.

URL is that of a server, for work that comes by HTTP; or that of its database, for work handed over in a transaction.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import datetime
from typing import Any

import asyncpg

import horae
from horae.client import Client

JOB = 1  # the only one there


async def enqueue(url: str, count: int, clients: int) -> dict[str, Any]:
    share = _by_http if url.startswith("http") else _in_transactions
    ready, go = asyncio.Barrier(clients + 1), asyncio.Event()
    shares = [asyncio.create_task(share(url, count // clients, ready, go)) for _ in range(clients)]
    await ready.wait()
    began = time.time()
    go.set()
    await asyncio.gather(*shares)
    return {"seconds": time.time() - began}


async def _by_http(url: str, count: int, ready: asyncio.Barrier, go: asyncio.Event) -> None:
    async with Client(url) as client:
        await client.run_now(JOB)  # the connection is open now
        await ready.wait()
        await go.wait()
        for number in range(count):
            await client.run_now(JOB, data={"n": number})


async def _in_transactions(url: str, count: int, ready: asyncio.Barrier, go: asyncio.Event) -> None:
    connection = await asyncpg.connect(url)
    await horae.enqueue(connection, "bench")
    await ready.wait()
    await go.wait()
    for number in range(count):
        async with connection.transaction():
            await horae.enqueue(connection, "bench", {"n": number})
    await connection.close()


async def bulk(url: str, count: int, clients: int) -> dict[str, Any]:
    async with Client(url) as client:
        began = time.time()
        made = await client.run_many({"job": JOB, "data": {"n": n}} for n in range(count))
        assert len(made) == count
        assert all(each.run is not None for each in made)
        return {"seconds": time.time() - began}


async def latency(url: str, count: int, clients: int) -> dict[str, Any]:
    asked: dict[int, float] = {}
    async with Client(url) as client:
        for _ in range(count):
            at = time.time()
            asked[(await client.run_now(JOB)).id] = at
            await asyncio.sleep(0.02)
        late = [await _late(client, run_id, at) for run_id, at in asked.items()]
    return {"late": late}


async def _late(client: Client, run_id: int, at: float) -> float:
    run = await client.wait(run_id)
    assert run.started_at is not None
    return datetime.fromisoformat(run.started_at).timestamp() - at


ACTIONS = {one.__name__: one for one in (enqueue, bulk, latency)}

if __name__ == "__main__":
    _, url, action, count, clients = sys.argv
    print(json.dumps(asyncio.run(ACTIONS[action](url, int(count), int(clients)))))
