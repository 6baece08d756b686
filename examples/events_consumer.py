"""Prints what happens in Horae, each event once, also after a restart of Horae or of this program.

    python examples/events_consumer.py                              from a server of this machine
    python examples/events_consumer.py https://horae.example        from another; HORAE_TOKEN has the token
    python examples/events_consumer.py nats://127.0.0.1:4222        from the stream on NATS (pip install nats-py)

What happens while this program is away is printed when it comes back: its place is kept in a file, or by the broker.
Should it be killed between an event and its place, that event is printed twice, under the same id.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

PLACE = Path("events.place")


def show(event: dict[str, Any]) -> None:
    about = event["data"]
    print(event["time"], event["type"], event["subject"], about.get("state", ""), flush=True)  # noqa: T201


def from_server(address: str) -> None:
    from horae import SyncClient

    with SyncClient(address) as client:
        for event in client.events(after=PLACE.read_text() if PLACE.exists() else None):
            show(event.data)
            PLACE.write_text(event.id or "")


async def from_nats(address: str) -> None:
    import nats
    from nats.errors import TimeoutError as NothingNew

    client = await nats.connect(address)
    events = await client.jetstream().pull_subscribe("horae.events.>", durable="example", stream="HORAE_EVENTS")
    while True:
        try:
            messages = await events.fetch(100, timeout=5)
        except NothingNew:
            continue
        for message in messages:
            show(json.loads(message.data))
            await message.ack()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
    asyncio.run(from_nats(where)) if where.startswith("nats://") else from_server(where)
