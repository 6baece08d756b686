"""Programs that hand work over in their own transactions, and are killed at any line of it.

    python -m tests.acceptance.producers URL KILLS SEED

One child after the other writes rows of its own and hands work over, in transactions of which some are rolled back,
until it is killed. What a killed one left behind is for the caller to compare.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time

import asyncpg

import horae

NAME = "test producer"  # application_name
LONGEST_LIFE = 0.05  # seconds after its first commit


async def produce(url: str, chance: random.Random, ready: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"application_name": NAME})
    while True:
        transaction = connection.transaction()
        await transaction.start()
        order = await connection.fetchval("INSERT INTO orders DEFAULT VALUES RETURNING id")
        await horae.enqueue(connection, "mail", {"order": order}, key=chance.choice((None, f"order-{order}")))
        if chance.random() < 0.2:
            savepoint = connection.transaction()
            await savepoint.start()
            await horae.enqueue(connection, "mail", {"order": -order})
            await savepoint.rollback()
        if chance.random() < 0.2:
            await transaction.rollback()
        else:
            await transaction.commit()
            os.write(ready, b".")


def kill_one(url: str, chance: random.Random) -> None:
    seed, life = chance.random(), chance.uniform(0, LONGEST_LIFE)
    told, ready = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(produce(url, random.Random(seed), ready))
    os.close(ready)
    has_committed = os.read(told, 1)
    time.sleep(life)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(told)
    assert has_committed, "it ended before its first commit"


def main(url: str, kills: str, seed: str) -> None:
    chance = random.Random(int(seed))
    for _ in range(int(kills)):
        kill_one(url, chance)


if __name__ == "__main__":
    main(*sys.argv[1:])
