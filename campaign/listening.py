"""What was told: a consumer that follows the events of the cluster, a process that is killed again and again, and goes
on from the last event that it has written down (its judge is campaign.happenings).

    python -m campaign.listening URL FILE        one life of it
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.client import SyncClient
from horae.errors import Error

if TYPE_CHECKING:
    from campaign.cluster import Cluster

ROOT = Path(__file__).parents[1]
SHORTEST, LONGEST = 2.0, 8.0  # seconds that it lives
PAUSE = 0.3  # seconds before the next one comes
CATCH_UP = 300.0  # seconds for the last events to come, when all is quiet
PAGE = 1000
BEGINNING = "0.0.0"
LINE = 4096  # bytes, more than any line has


class Listener:
    def __init__(self, cluster: Cluster, path: Path, seed: int) -> None:
        self._cluster = cluster
        self._path = path
        self._path.touch()
        self._chance = random.Random(f"{seed} listener")
        self._killed = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            url = self._chance.choice(self._cluster.nodes).url
            with self._path.with_suffix(".log").open("ab") as log:
                argv = [sys.executable, "-m", "campaign.listening", url, str(self._path)]
                consumer = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, stdout=log, stderr=log)
            try:
                async with asyncio.timeout(self._chance.uniform(SHORTEST, LONGEST)):
                    await consumer.wait()
            except TimeoutError:
                self._killed += 1
            finally:
                with suppress(ProcessLookupError):
                    consumer.kill()
                await consumer.wait()
            await asyncio.sleep(PAUSE)

    def counts(self) -> dict[str, int]:
        with self._path.open("rb") as file:
            return {"consumers killed": self._killed, "events told": sum(1 for _ in file)}

    async def catch_up(self) -> None:
        """Return when it has heard of everything, or when the time is up: the judge will tell."""
        deadline = time.monotonic() + CATCH_UP
        while time.monotonic() < deadline:
            page = await self._page(last_place(self._path), 1)
            if page is not None and not page["items"]:
                return
            await asyncio.sleep(PAUSE)

    async def stored(self) -> list[str]:
        """Return the ids of all events that there are, in their order; nothing where they cannot be read."""
        found: list[str] = []
        place = BEGINNING
        while page := await self._page(place, PAGE):
            found += [event["id"] for event in page["items"]]
            place = page["cursor"]
            if not page["items"]:
                return found
        return []

    async def _page(self, after: str, limit: int) -> dict[str, Any] | None:
        address = f"{self._cluster.nodes[0].url}/v1/events"
        answer = await self._cluster.http.get(address, params={"after": after, "limit": limit}, timeout=30)
        page: dict[str, Any] | None = answer.json() if answer.is_success else None
        return page


# ── the consumer ──


def last_place(path: Path) -> str:
    """Return the place of the last event that was written down whole."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 2 * LINE))
        lines = file.read().split(b"\n")[:-1]
    return str(json.loads(lines[-1])["place"]) if lines else BEGINNING


def drop_unfinished(path: Path) -> None:
    """Whoever was killed while it wrote has left a part of a line: that event was not heard."""
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)


def consume(url: str, path: Path) -> None:
    """One life: each event is written down with its place in one go, so that both are there or neither."""
    drop_unfinished(path)
    with SyncClient(url) as client, path.open("ab", buffering=0) as file:
        for event in client.events(after=last_place(path)):
            data = event.data["data"]
            line = {"id": event.data["id"], "kind": event.data["type"].removeprefix("horae."), "place": event.id}
            line |= {name: data.get(name) for name in ("run", "fence", "state")}
            file.write(json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    with suppress(Error):  # the server is away: another life begins soon
        consume(sys.argv[1], Path(sys.argv[2]))
