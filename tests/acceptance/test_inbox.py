"""Work handed over in others' transactions, while they and the server are killed: it exists if and only if their
rows do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

import horae

from .producers import NAME
from .server import Server
from .server import horae as horae_program

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PRODUCERS = 3  # at the same time
TICKING = 200  # jobs of every second, beside them
CLERKS, LEAST = 4, 3  # who order over HTTP, and how often each does


def sql(url: str, statement: str, *args: Any) -> list[Any]:
    async def fetch() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return list(await connection.fetch(statement, *args))
        finally:
            await connection.close()

    return asyncio.run(fetch())


@pytest.fixture
def server(postgres_url: str, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, "--database", postgres_url, "--heartbeat-interval", "0.5s", "--lease", "4s").start()
    server.submit({"name": "mail", "key": "mail", "handler": "horae.handlers:noop", "concurrency": "allow"})
    sql(postgres_url, "CREATE TABLE orders (id serial PRIMARY KEY)")
    yield server
    server.stop()


def test_work_that_is_handed_over_is_done(server: Server, postgres_url: str):
    async def hand_over() -> None:
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await horae.enqueue(connection, "mail", {"order": 1})
        await connection.close()

    asyncio.run(hand_over())

    def done() -> Any:
        return [run for run in server.every("/v1/runs") if run["state"] == "succeeded"]

    [run] = server.wait_until(done, "the run to succeed")
    assert run["data"] == {"order": 1}


def test_the_example_leaves_an_order_and_its_invoice_or_neither(server: Server, postgres_url: str):
    server.submit({"name": "invoice", "key": "send-invoice", "handler": "horae.handlers:noop", "concurrency": "allow"})
    example = [sys.executable, "examples/enqueue_in_transaction.py", postgres_url]
    said = subprocess.run(example, cwd=ROOT, capture_output=True, text=True, timeout=180, check=True).stdout

    server.wait_until(lambda: sql(postgres_url, "SELECT 1 FROM history WHERE state = 10"), "the invoice to be sent")
    assert "order 1 of ada: receipt 1" in said
    assert "order 2 is not paid" in said
    assert sql(postgres_url, "SELECT customer FROM shop_orders") == [("ada",)]
    assert [row[0] for row in sql(postgres_url, "SELECT data FROM history")] == ['{"order":1}']
    assert sql(postgres_url, "SELECT 1 FROM inbox") == []


@pytest.mark.long
def test_operators_grant_and_revoke_and_see_what_was_refused(server: Server, postgres_url: str):
    role = f"app_{uuid.uuid4().hex[:12]}"
    sql(postgres_url, f"CREATE ROLE {role} LOGIN")
    try:
        where = ("--database", postgres_url)
        _cli("inbox", "grant", role, "--owner", "local", *where)
        assert role in _cli("inbox", "grants", *where)
        sql(postgres_url.replace("postgres:@", f"{role}:@"), "SELECT horae_enqueue('nothing')")
        server.wait_until(lambda: sql(postgres_url, "SELECT 1 FROM inbox_refused"), "it to be refused")
        [refused] = json.loads(_cli("--json", "inbox", "refused", *where))["items"]
        assert (refused["job"], refused["code"], refused["role"]) == ("nothing", "E_NOT_FOUND", role)

        server.submit({"name": "nothing", "key": "nothing", "handler": "horae.handlers:noop"})
        assert "1 handed in again" in _cli("inbox", "retry", str(refused["receipt"]), *where)
        server.wait_until(lambda: sql(postgres_url, "SELECT 1 FROM history WHERE state = 10"), "it to be done")
        _cli("inbox", "revoke", role, *where)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            sql(postgres_url.replace("postgres:@", f"{role}:@"), "SELECT horae_enqueue('nothing')")
    finally:
        sql(postgres_url, f"DROP ROLE {role}")


def test_a_database_of_one_process_has_no_inbox(tmp_path: Path):
    with pytest.raises(AssertionError, match="only a PostgreSQL database has an inbox"):
        _cli("inbox", "grants", "--data", str(tmp_path))


def _cli(*args: str) -> str:
    done = subprocess.run([horae_program(), *args], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def crash_while_it_drains(server: Server, url: str, producers: list[subprocess.Popen[bytes]]) -> bool:
    """Kill the server after it has taken something, and start it again; return False when all producers are done."""

    def made() -> int:
        return int(sql(url, "SELECT last_value FROM run_id")[0][0])

    before = made()
    server.wait_until(lambda: made() > before or all(p.poll() is not None for p in producers), "the server to drain")
    is_busy = any(producer.poll() is None for producer in producers)
    server.kill()
    server.start()
    return is_busy


class Crowd:
    """What a server has to do besides: jobs of every second, and orders over HTTP by several at a time."""

    def __init__(self, server: Server, url: str) -> None:
        jobs = [
            {"name": f"tick {n}", "handler": "horae.handlers:noop", "schedule": "@every 1s", "overlap": "allow"}
            for n in range(TICKING)
        ]
        web = {"name": "web", "key": "web", "handler": "horae.handlers:noop", "concurrency": "allow"}
        self._server, self._url = server, url
        self.ticking = [job["id"] for job in server.submit(*jobs)]
        [self.web] = [job["id"] for job in server.submit(web)]
        self.answered: dict[str, int] = {}  # runs, by their orders
        self._over = threading.Event()
        self._clerks = [threading.Thread(target=self._order, args=(n,)) for n in range(CLERKS)]

    def __enter__(self) -> Crowd:
        fired = "SELECT DISTINCT job_id FROM history WHERE job_id = ANY($1)"
        self._server.wait_until(lambda: len(sql(self._url, fired, self.ticking)) == TICKING, "all of them to fire")
        for clerk in self._clerks:
            clerk.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for clerk in self._clerks:
            clerk.join(600)

    def _order(self, clerk: int) -> None:
        """Order until it is over; an order that is not answered is repeated under its key until it is."""
        with httpx.Client(base_url=self._server.url, timeout=10, verify=False) as http:
            number = 0
            while number < LEAST or not self._over.is_set():
                order = f"{clerk}-{number}"
                try:
                    answer = http.post(
                        f"/v1/jobs/{self.web}/run", json={"data": {"web": order}}, headers={"Idempotency-Key": order}
                    )
                except httpx.TransportError:  # it was killed
                    self._over.wait(0.02)
                    continue
                if answer.status_code == 201:
                    self.answered[order] = answer.json()["id"]
                    number += 1


def kill_around_commit(server: Server, url: str, *, kills: int, crashes: int, seed: int) -> int:
    """Kill producers and the server; return how many orders there are, each of which has run once."""
    [mail] = (row[0] for row in sql(url, "SELECT id FROM jobs WHERE key = 'mail'"))
    command = [sys.executable, "-m", "tests.acceptance.producers", url, str(kills // PRODUCERS)]
    producers = [subprocess.Popen([*command, str(seed + n)], cwd=ROOT) for n in range(PRODUCERS)]
    for _ in range(crashes):
        if not crash_while_it_drains(server, url, producers):
            break
    assert [producer.wait(600) for producer in producers] == [0] * PRODUCERS
    gone = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()"
    server.wait_until(lambda: not sql(url, gone, NAME), "the server to notice that the last of them died")
    left = "SELECT 1 FROM inbox UNION ALL SELECT 1 FROM live WHERE job_id = $1"
    server.wait_until(lambda: not sql(url, left, mail), "every run to end")
    orders = [row[0] for row in sql(url, "SELECT id FROM orders")]
    ended = sql(url, "SELECT data FROM history WHERE state = 10 AND job_id = $1", mail)
    done = Counter(json.loads(row[0])["order"] for row in ended)
    assert sql(url, "SELECT 1 FROM inbox_refused") == []
    assert done == Counter(orders)
    return len(orders)


def test_work_exists_exactly_if_the_callers_row_does_whoever_is_killed(server: Server, postgres_url: str):
    assert kill_around_commit(server, postgres_url, kills=60, crashes=2, seed=1) >= 60


def test_so_it_does_on_a_server_that_fires_and_takes_orders_meanwhile(server: Server, postgres_url: str):
    with Crowd(server, postgres_url) as crowd:
        assert kill_around_commit(server, postgres_url, kills=30, crashes=1, seed=2) >= 30

    ordered = "SELECT data, id FROM history WHERE state = 10 AND job_id = $1"
    left = "SELECT 1 FROM live WHERE job_id = $1"
    server.wait_until(lambda: not sql(postgres_url, left, crowd.web), "the last order to end")
    found = {json.loads(row[0])["web"]: row[1] for row in sql(postgres_url, ordered, crowd.web)}
    assert crowd.answered.items() <= found.items()
    assert len(crowd.answered) >= CLERKS * LEAST
    assert len(sql(postgres_url, ordered, crowd.web)) == len(found)  # each ran once
