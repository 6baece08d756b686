"""PostgreSQL at its worst, on servers of our own: crashed, locked, starved, cut off, replaced by its standby.

What fails for a while is refused as Unavailable or made good, and the ledger stays whole.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from horae.core.model import SECOND, State
from horae.errors import Unavailable
from horae.ports import Idempotency
from horae.service.cluster import Cluster
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.stores import migrate, postgres
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock

from ..acceptance.server import Server
from ..acceptance.test_crash import check_ledger
from ..unit.service.parts import Told, draft, fire_due, ledger, node, scheduler, submitted
from .postgres_server import Line, Postgres, rows

DEADLINE = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server that may be crashed."""
    server = Postgres.make()
    server.start()
    yield server
    server.remove()


def up(directory: Path, url: str, *flags: str) -> Server:
    directory.mkdir(exist_ok=True)
    return Server(directory, "--database", url, "--heartbeat-interval", "1", *flags).start()


class Crowd:
    """Clients that ask without pause, and count what they are told."""

    def __init__(self, server: Server, size: int, path: str = "/v1/jobs") -> None:
        self.statuses: Counter[int] = Counter()
        self.odd: list[str] = []
        self._url, self._path = server.url, path
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(size)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE) as client:
            while not self._over.is_set():
                answer = client.get(self._path)
                self.statuses[answer.status_code] += 1
                if answer.status_code == 503 and "retry-after" not in answer.headers:
                    self.odd.append(answer.text)
                self._over.wait(0.02)

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


# ── crash, locks, starvation ──


def test_a_server_that_crashes_under_load_costs_no_moment(database: Postgres, tmp_path: Path):
    server = up(tmp_path / "a", database.url)
    jobs = server.submit(*[
        {"name": f"job {i}", "schedule": "1s", "handler": "horae.handlers:noop"} for i in range(20)
    ])  # fmt: skip
    with Crowd(server, 4) as crowd:
        for _ in range(2):
            time.sleep(2)
            database.stop("immediate")
            time.sleep(1)
            database.start()
        server.wait_until(lambda: server.http.get("/readyz").status_code == 200, "the node to be ready again")
        time.sleep(2)

    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.get("/v1/runs", state="queued,running,blocked")["items"], "every run to end")
    assert set(crowd.statuses) == {200, 503}
    assert not crowd.odd
    for job in jobs:
        check_ledger(server, job)
    assert server.stop() == 0


async def test_a_table_that_is_locked_for_long_holds_up_claims_but_no_heartbeat(
    postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgres, "LOCKED", 0.2)
    store = PostgresStore(postgres_url, clock=clock, lease=3)
    jobs = Jobs(store, Told())
    job = await submitted(jobs)
    await jobs.run_now(job.id)
    await store.register_node(node("n1"))
    locker = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(DEADLINE):
        async with locker.transaction():
            await locker.execute("LOCK TABLE live IN ACCESS EXCLUSIVE MODE")
            for _ in range(2):
                with pytest.raises(Unavailable, match="held up"):
                    await store.claim("n1", "python", [], 1)
                assert await store.beat("n1", 0) is not None
        assert len(await store.claim("n1", "python", [], 1)) == 1
    await locker.close()
    await store.close()


def test_a_node_that_is_short_of_connections_stays_alive_under_a_crowd(tmp_path: Path):
    database = Postgres.make(max_connections="12", superuser_reserved_connections="0", max_wal_senders="0",
                             wal_level="minimal", autovacuum="off").start()  # fmt: skip
    try:
        server = up(tmp_path / "a", database.url, "--node", "a")
        others = [asyncio.run(_hold(database.url)) for _ in range(0)]
        before = _node(server)
        with Crowd(server, 100) as crowd:
            server.wait_until(lambda: _node(server)["heartbeat_at"] > before["heartbeat_at"], "a heartbeat")
            time.sleep(4)
        assert not others
        assert set(crowd.statuses) <= {200, 503}
        assert crowd.statuses[200]
        found = _node(server)
        assert found["state"] == "live"
        assert found["started_at"] == before["started_at"]
        server.submit({"name": "after", "handler": "horae.handlers:noop", "run_once": True})
        assert server.stop() == 0
    finally:
        database.remove()
