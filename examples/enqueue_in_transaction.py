"""A shop that writes an order and hands its invoice over to Horae, in one transaction: both exist, or neither.

    python examples/enqueue_in_transaction.py postgresql://shop@127.0.0.1/horae

The job has the key `send-invoice`, and the role of the address may hand work over:
docs/howto/enqueue-in-your-transaction.md says how.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg

import horae


async def place_order(connection: asyncpg.Connection, customer: str, *, is_paid: bool) -> None:
    async with connection.transaction():
        order = await connection.fetchval("INSERT INTO shop_orders (customer) VALUES ($1) RETURNING id", customer)
        receipt = await horae.enqueue(connection, "send-invoice", {"order": order}, key=f"invoice-{order}")
        if not is_paid:
            raise ValueError(f"order {order} is not paid: neither the order nor receipt {receipt} will be there")
    print(f"order {order} of {customer}: receipt {receipt}", flush=True)  # noqa: T201


async def main(address: str) -> None:
    connection = await asyncpg.connect(address)
    await connection.execute("CREATE TABLE IF NOT EXISTS shop_orders (id serial PRIMARY KEY, customer text NOT NULL)")
    await place_order(connection, "ada", is_paid=True)
    try:
        await place_order(connection, "bob", is_paid=False)
    except ValueError as error:
        print(error, flush=True)  # noqa: T201
    await horae.wake(connection)  # only for those who cannot wait a tenth of a second
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
