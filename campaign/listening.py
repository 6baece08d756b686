"""What was told: a consumer that follows the events of the cluster, is killed again and again, and goes on from its
place (its judge is campaign.happenings)."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from campaign.cluster import Cluster
from horae.client import Client
from horae.errors import Error

SHORTEST, LONGEST = 1.0, 8.0  # seconds that it lives
PAUSE = 0.3  # seconds before the next one comes
CATCH_UP = 300.0  # seconds for the last events to come, when all is quiet
BEGINNING = "0.0.0"


class Listener:
    def __init__(self, cluster: Cluster, path: Path, seed: int) -> None:
        self._cluster = cluster
        self._file = path.open("a", buffering=1)
        self._chance = random.Random(f"{seed} listener")
        self._place = BEGINNING
        self.lives = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._file.close()

    async def _run(self) -> None:
        while True:
            self.lives += 1
            try:
                async with asyncio.timeout(self._chance.uniform(SHORTEST, LONGEST)):
                    await self._live(self._chance.choice(self._cluster.nodes).url)
            except (Error, TimeoutError):
                await asyncio.sleep(PAUSE)

    async def _live(self, url: str) -> None:
        async with Client(url) as client:
            async for event in client.events(after=self._place):
                self._note(event.data)
                self._place = event.id or self._place

    def _note(self, document: dict[str, Any]) -> None:
        data = document["data"]
        line = {"id": document["id"], "kind": document["type"].removeprefix("horae."), "run": data.get("run")}
        self._file.write(json.dumps({**line, "fence": data.get("fence"), "state": data.get("state")}) + "\n")

    async def catch_up(self) -> None:
        """Return when it has heard of everything, or when the time is up: the judge will tell."""
        deadline = time.monotonic() + CATCH_UP
        while time.monotonic() < deadline:
            address = f"{self._cluster.nodes[0].url}/v1/events"
            answer = await self._cluster.http.get(address, params={"after": self._place, "limit": 1}, timeout=30)
            if answer.is_success and not answer.json()["items"]:
                return
            await asyncio.sleep(PAUSE)
