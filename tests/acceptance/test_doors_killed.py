"""kill -9 within the doors: while many orders are placed, while what waited is released, while the inbox is drained.

The server kills itself at a line that is named (doomed.py), and says so first: each test sees that it did.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

import horae

from .server import Server
from .test_inbox import sql

pytestmark = pytest.mark.slow
BATCH = 1000  # orders that are placed together
ORDERS = 1200
NOWHERE = {"labels": ["nowhere"]}  # no agent takes its runs
JOB = {"name": "mail", "key": "mail", "handler": "horae.handlers:noop", "overlap": "allow"}


# On PostgreSQL, all that a kill leaves half done is the server's to undo: what the store does, it does on both.
@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    where = ("--database", request.getfixturevalue("postgres_url")) if request.param == "postgres" else ()
    server = Server(tmp_path, "--heartbeat-interval", "0.5s", "--lease", "4s", *where)
    yield server
    server.stop()


def start_doomed(server: Server, point: str) -> None:
    mark = server.directory / "mark"
    server.start(sys.executable, "-m", "tests.acceptance.doomed", str(mark), point)


def expect_death(server: Server, point: str) -> None:
    """Wait until it has killed itself, and see that it was there."""
    assert server.process is not None
    assert server.process.wait(180) == -9, server.log()
    assert (server.directory / "mark").read_text() == point
    server.http.close()
    server.http = httpx.Client(base_url=server.url, timeout=30, verify=False)


def place(server: Server, orders: list[Any], key: str) -> list[Any]:
    answer = server.http.post("/v1/runs", json=orders, headers={"Idempotency-Key": key}, timeout=180)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["runs"])


def orders_of(name: str, count: int, **more: Any) -> list[Any]:
    return [{"job": "mail", "data": {"of": name, "n": n}, **more} for n in range(count)]


def made(server: Server, name: str) -> Counter[int]:
    return Counter(run["data"]["n"] for run in server.every("/v1/runs") if (run["data"] or {}).get("of") == name)


# ── many orders ──


ALIKE: dict[str, Any] = {}
APART = {"node": "nowhere"}  # what is not read in one go is not written in one go either


@pytest.mark.parametrize(
    ("point", "more", "left"),
    [
        pytest.param("enqueue:before:3", APART, {BATCH}, marks=pytest.mark.long),
        pytest.param("_carry_out:after:3", APART, {BATCH, ORDERS}, marks=pytest.mark.long),
        pytest.param("enqueue:after:3", APART, {ORDERS}, marks=pytest.mark.long),
        pytest.param("enqueue_alike:before:3", ALIKE, {BATCH}, marks=pytest.mark.long),
        ("within:after:3", ALIKE, {BATCH, ORDERS}),
        pytest.param("enqueue_alike:after:3", ALIKE, {ORDERS}, marks=pytest.mark.long),
    ],
    ids=["before a batch", "within a batch", "after a batch", "before alike", "within alike", "after alike"],
)
def test_many_orders_are_there_once_however_the_server_dies_among_them(
    server: Server, request: pytest.FixtureRequest, point: str, more: dict[str, Any], left: set[int]
):
    is_sqlite = request.node.callspec.params["server"] == "sqlite"
    point = point.replace("within", "_carry_out" if is_sqlite else "_try_alike")
    start_doomed(server, point)
    server.submit({**JOB, **NOWHERE})
    answered = place(server, orders_of("first", 5, **more), "first")  # the first batch that is written
    with pytest.raises(httpx.TransportError):
        place(server, orders_of("second", ORDERS, **more), "second")
    expect_death(server, point)

    server.start()
    assert made(server, "first") == Counter(range(5))
    assert all(server.get(f"/v1/runs/{run['id']}")["data"] == run["data"] for run in answered)
    assert made(server, "second") in [Counter(range(count)) for count in left]  # whole batches

    orders = orders_of("second", ORDERS, **more)
    again = place(server, orders, "second")
    assert [run["data"]["n"] for run in again] == list(range(ORDERS))
    assert made(server, "second") == Counter(range(ORDERS))
    assert [run["id"] for run in place(server, orders, "second")] == [run["id"] for run in again]
    first = place(server, orders_of("first", 5, **more), "first")
    assert [run["id"] for run in first] == [run["id"] for run in answered]


# ── orders for later ──


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("_carry_out:before:2", marks=pytest.mark.long),
        pytest.param("_begin_later:after:1", marks=pytest.mark.long),
        "sweep:after:1",
    ],
    ids=["taken, not made", "made, not committed", "committed, not told"],
)
def test_orders_that_wait_run_once_however_the_server_dies_as_it_releases_them(server: Server, point: str):
    start_doomed(server, point)
    server.submit(JOB)
    at = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
    waiting = place(server, orders_of("later", 50, run_at=at), "later")
    assert {(run["state"], run["reason"]) for run in waiting} == {("blocked", "later")}
    expect_death(server, point)

    server.start()
    ended = [server.ended(run["id"]) for run in waiting]
    assert [run["data"]["n"] for run in ended] == list(range(50))
    assert {run["state"] for run in ended} == {"succeeded"}
    assert made(server, "later") == Counter(range(50))


# ── the inbox ──


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("_place:before:1", marks=pytest.mark.long),
        "_refuse_handed:after:1",
        pytest.param("drain:after:1", marks=pytest.mark.long),
    ],
    ids=["taken, not made", "made, not committed", "committed, not told"],
)
def test_what_was_handed_over_is_there_once_however_the_server_dies_as_it_drains(
    tmp_path: Path, postgres_url: str, point: str
):
    async def hand_over() -> None:
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            for _ in range(50):
                order = await connection.fetchval("INSERT INTO orders DEFAULT VALUES RETURNING id")
                await horae.enqueue(connection, "mail", {"order": order})
        await connection.close()

    server = Server(tmp_path, "--database", postgres_url, "--heartbeat-interval", "0.5s", "--lease", "4s")
    start_doomed(server, point)
    server.submit(JOB)
    sql(postgres_url, "CREATE TABLE orders (id serial PRIMARY KEY)")
    asyncio.run(hand_over())
    expect_death(server, point)
    is_made = bool(sql(postgres_url, "SELECT 1 FROM live"))
    assert is_made == (point == "drain:after:1")
    assert len(sql(postgres_url, "SELECT 1 FROM inbox")) == (0 if is_made else 50)

    server.start()
    server.wait_until(lambda: not sql(postgres_url, "SELECT 1 FROM inbox UNION ALL SELECT 1 FROM live"), "all to end")
    orders = [row[0] for row in sql(postgres_url, "SELECT id FROM orders")]
    done = [json.loads(row[0])["order"] for row in sql(postgres_url, "SELECT data FROM history WHERE state = 10")]
    assert sorted(done) == sorted(orders)
    server.stop()
