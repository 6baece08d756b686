"""Two real processes on one PostgreSQL: what one makes, the other does at once, without waiting for its next look."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Server

pytestmark = pytest.mark.slow

POLL = 5.0  # seconds after which an agent looks by itself
TIMES = 9


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """One that only answers requests, and one that does the work."""
    servers = []
    for name, roles in (("worker", "coordinator,scheduler,agent"), ("front", "api")):
        (tmp_path / name).mkdir()
        flags = ("--database", postgres_url, "--roles", roles, "--node", name, "--heartbeat-interval", "30")
        servers.append(Server(tmp_path / name, *flags).start())
    yield servers[1], servers[0]
    for server in servers:
        server.stop()


def test_work_made_on_one_node_begins_on_the_other_well_before_it_would_look(pair: tuple[Server, Server]):
    front, _ = pair
    (job,) = front.submit({"name": "job", "handler": "horae.handlers:noop"})
    front.ended(front.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])

    times = []
    for _ in range(TIMES):
        began = time.time()
        run = front.post(f"/v1/jobs/{job['id']}/run", status=201)
        front.ended(run["id"])
        times.append(time.time() - began)

    print(f"run now on another node: p50 {statistics.median(times) * 1000:.0f} ms, most {max(times) * 1000:.0f} ms")
    assert statistics.median(times) < POLL / 2


def test_a_moment_that_comes_from_one_node_is_fired_by_the_other(pair: tuple[Server, Server]):
    front, _ = pair
    (job,) = front.submit({"name": "once", "handler": "horae.handlers:noop", "run_once": True})

    front.wait_until(lambda: front.get("/v1/runs", job_id=job["id"], state="succeeded")["items"], "the moment")


def test_a_cancel_on_one_node_reaches_the_work_on_the_other(pair: tuple[Server, Server]):
    """The heart beats every 30 s here: only the hint can be so quick."""
    front, _ = pair
    (job,) = front.submit({"name": "job", "steps": [{"run": "sleep 600"}]})
    run = front.post(f"/v1/jobs/{job['id']}/run", status=201)
    front.wait_until(lambda: front.get(f"/v1/runs/{run['id']}")["state"] == "running", "the run to start")
    began = time.time()

    front.post(f"/v1/runs/{run['id']}/cancel", status=202)

    assert front.ended(run["id"])["state"] == "cancelled"
    assert time.time() - began < 25
