"""A real server with few slots and much to do: users of the RPC contract get them by weight, and nobody waits behind
another's heap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server

pytestmark = pytest.mark.slow
WEIGHTS = {"ann": 1, "bob": 2, "eve": 4}
UNIT = 100  # runs of a user for each unit of weight
BATCH = 50  # calls in a request
SLOTS = 4
NAP = 0.01  # seconds
HANDLER = f"""
import asyncio

from horae.handlers import handler

@handler
async def nap():
    await asyncio.sleep({NAP})
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "naps.py").write_text(HANDLER)
    server = Server(tmp_path, "--handler-slots", str(SLOTS), "--jobs-directory", str(jobs)).start()
    yield server
    server.stop()


def submit(server: Server, user: str, count: int = 1) -> list[int]:
    """In batches of JSON-RPC."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "submit_job", "params": [user, None, "naps:nap"]}
    ids: list[int] = []
    for first in range(0, count, BATCH):
        answers = server.post("/rpc", [call] * min(BATCH, count - first))
        ids += [int(answer["result"]) for answer in answers]
    return ids


def ran(server: Server, users: dict[int, str], count: int) -> list[Any]:
    """All runs in the order in which they started, once so many have ended."""
    server.wait_until(lambda: len(server.every("/v1/runs", state="succeeded")) >= count, "the runs to end")
    runs = server.every("/v1/runs", state="succeeded")
    return [{**run, "user": users[run["job_id"]]} for run in sorted(runs, key=lambda run: run["started_at"])]


def test_three_users_share_slots_by_weight_and_a_fourth_starts_at_once(server: Server) -> None:
    weights = [word for user, weight in WEIGHTS.items() for word in ("--weight", f"{user}={weight}")]
    server.cli("queues", "set", "default", *weights)
    server.cli("queues", "pause", "default")
    users: dict[int, str] = {}
    for user, weight in WEIGHTS.items():
        users |= dict.fromkeys(submit(server, user, weight * UNIT), user)

    server.cli("queues", "resume", "default")
    server.wait_until(lambda: server.get("/v1/runs", state="succeeded", limit=100)["cursor"], "a hundred runs to end")
    [newcomer] = submit(server, "dan")
    runs = ran(server, {**users, newcomer: "dan"}, len(users) + 1)

    together = len(users) // 2  # in which none of the three has run out of work
    started = Counter(run["user"] for run in runs if run["user"] != "dan" and run in runs[:together])
    for user, weight in WEIGHTS.items():
        assert started[user] == pytest.approx(together * weight / sum(WEIGHTS.values()), rel=0.05), started
    own = next(run for run in runs if run["user"] == "dan")
    before = [run for run in runs if own["created_at"] <= run["started_at"] < own["started_at"]]
    left = [run for run in runs if run["started_at"] > own["started_at"]]
    assert len(before) <= 2 * SLOTS  # those that were claimed already, and those of one claim
    assert len(left) > together // 2  # it had not to wait until the others were done
