"""Prints what happens in Horae, from the stream of events on NATS: each event once, also after a restart.

    pip install nats-py
    python examples/events_consumer.py nats://127.0.0.1:4222

The consumer is durable: what happens while this program is away is printed when it comes back. Horae may tell an event
twice, under the same id; a program that acts on events remembers the ids it has seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict

import nats
from nats.errors import TimeoutError as NothingNew

REMEMBERED = 10_000


async def main(address: str) -> None:
    client = await nats.connect(address)
    events = await client.jetstream().pull_subscribe("horae.events.>", durable="example", stream="HORAE_EVENTS")
    seen: OrderedDict[str, None] = OrderedDict()
    while True:
        try:
            messages = await events.fetch(100, timeout=5)
        except NothingNew:
            continue
        for message in messages:
            event = json.loads(message.data)
            if event["id"] not in seen:
                seen[event["id"]] = None
                about = event["data"]
                print(event["time"], event["type"], event["subject"], about.get("state", ""), flush=True)  # noqa: T201
            await message.ack()
        while len(seen) > REMEMBERED:
            seen.popitem(last=False)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
