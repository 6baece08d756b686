"""How many connections to PostgreSQL a node has, at most: what operators reckon with."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import httpx
import pytest

from .server import Server

pytestmark = pytest.mark.slow

DOCUMENTED = 13  # in docs/howto/use-postgres.md
LANES = 8  # firing, looking ahead, claims, results, submits, beats, upkeep, hints


class Watcher(threading.Thread):
    """Counts the connections of nodes, again and again."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.most = 0
        self.enough = threading.Event()

    def run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        connection = await asyncpg.connect(self._url)
        while not self.enough.is_set():
            count = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            self.most = max(self.most, count)
            await asyncio.sleep(0.002)
        await connection.close()


@pytest.mark.long
def test_a_busy_node_has_no_more_connections_than_is_documented(postgres_url: str, tmp_path: Path):
    server = Server(tmp_path, "--database", postgres_url, "--node", "n0")
    watcher = Watcher(postgres_url)
    watcher.start()
    try:
        server.start()
        jobs = server.submit(
            *({"name": f"job {n}", "schedule": "1s", "handler": "horae.handlers:noop"} for n in range(50))
        )

        def read(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=60, verify=False) as client:
                client.get("/v1/runs", params={"limit": 1000})
                client.get(f"/v1/jobs/{jobs[number % len(jobs)]['id']}")
                client.post("/v1/jobs", json={"jobs": [{"name": "more", "handler": "horae.handlers:noop"}]})

        def is_crowded() -> bool:
            list(crowd.map(read, range(64)))
            return watcher.most > LANES and len(server.every("/v1/runs", state="succeeded")) > 100

        with ThreadPoolExecutor(32) as crowd:
            server.wait_until(is_crowded, "a crowd of readers and many runs")
            is_crowded()
    finally:
        server.stop()
        watcher.enough.set()
        watcher.join()

    assert LANES < watcher.most <= DOCUMENTED
    page = Path(__file__).parents[2] / "docs/howto/use-postgres.md"
    assert f"at least {DOCUMENTED} for each node" in page.read_text()
