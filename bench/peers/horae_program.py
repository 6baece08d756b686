"""Horae itself, as the other programs: python -m bench.peers.horae_program URL ACTION COUNT CLIENTS.

URL is that of a server, for work that comes by HTTP; or that of its database, for work handed over in a transaction.
CLIENTS callers share one Client, as those of the others share their pool; with `apart`, each has its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import asyncpg

import horae
from horae.client import Client

JOB = 1  # the only one there


async def enqueue(url: str, count: int, clients: int) -> dict[str, Any]:
    if not url.startswith("http"):
        return await _seconds_of(clients, lambda *start: _in_transactions(url, count // clients, *start))
    async with Client(url) as client:
        return await _seconds_of(clients, lambda *start: _by_http(client, count // clients, *start))


async def apart(url: str, count: int, clients: int) -> dict[str, Any]:
    async def one(*start: Any) -> None:
        async with Client(url) as client:
            await _by_http(client, count // clients, *start)

    return await _seconds_of(clients, one)


async def _seconds_of(clients: int, share: Callable[..., Coroutine[Any, Any, None]]) -> dict[str, Any]:
    """Return how long the shares of all take that begin together, once all have a connection."""
    ready, go = asyncio.Barrier(clients + 1), asyncio.Event()
    shares = [asyncio.create_task(share(ready, go)) for _ in range(clients)]
    await ready.wait()
    began = time.time()
    go.set()
    await asyncio.gather(*shares)
    return {"seconds": time.time() - began}


async def _by_http(client: Client, count: int, ready: asyncio.Barrier, go: asyncio.Event) -> None:
    await client.run_now(JOB)  # a connection is open now
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


ACTIONS = {one.__name__: one for one in (enqueue, apart, bulk, latency)}

if __name__ == "__main__":
    _, url, action, count, clients = sys.argv
    print(json.dumps(asyncio.run(ACTIONS[action](url, int(count), int(clients)))))
