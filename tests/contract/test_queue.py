"""What every Queue must do: the sentences of ports.Queue, within one process and between two on PostgreSQL or NATS.

A queue may lose, repeat and reorder, so what is checked is what everybody relies on: that an announcement on a
quiet system reaches every watch, that announcing never blocks or fails, and what follows when the server does.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from horae.errors import Unavailable
from horae.ports.transport import Watch
from horae.queues.local import LocalQueue
from horae.queues.nats import NatsWire
from horae.queues.shared import SharedQueue
from horae.stores.postgres.notices import LISTENER, Notices
from horae.stores.queries import load_queries
from horae.wire.nats.broker import HINTS, Connector

from ..nats_server import Nats, running

CHANNEL = load_queries("postgres")["channel"]
DEADLINE = 180.0  # seconds: generous, the machines are slow


def made(url: str) -> SharedQueue:
    if url.startswith("nats:"):
        connector = Connector(url, "test")
        return SharedQueue(lambda: NatsWire.open(connector), debounce=0.002)
    return SharedQueue(lambda: Notices.open(url, timeout=5.0))


async def connected(url: str) -> SharedQueue:
    """Return a queue as another process would have it."""
    queue = made(url)
    await queue.open()
    async with asyncio.timeout(DEADLINE):
        await queue.is_listening.wait()
    return queue


@asynccontextmanager
async def acquainted(url: str) -> AsyncIterator[tuple[SharedQueue, SharedQueue]]:
    """Two queues that know of each other."""
    pair = await connected(url), await connected(url)
    await heard(pair[1].watch("ready"), lambda: pair[0].announce("ready"))
    await heard(pair[0].watch("ready"), lambda: pair[1].announce("ready"))
    yield pair
    for queue in pair:
        await queue.close()


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[tuple[SharedQueue, SharedQueue]]:
    async with acquainted(postgres_url) as pair:
        yield pair


@pytest.fixture
async def nats_nodes(nats: Nats) -> AsyncIterator[tuple[SharedQueue, SharedQueue]]:
    async with acquainted(nats.url) as pair:
        yield pair


@pytest.fixture(params=["postgres", "nats"])
def url(request: pytest.FixtureRequest) -> str:
    """Of a server through which queues hear of each other."""
    if request.param == "nats":
        return str(request.getfixturevalue("nats").url)
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["postgres", "nats"])
def either(request: pytest.FixtureRequest) -> tuple[SharedQueue, SharedQueue]:
    """Two nodes, on each of the servers that there are."""
    return request.getfixturevalue("nats_nodes" if request.param == "nats" else "nodes")  # type: ignore[no-any-return]


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture(params=["local", "postgres", "between nodes", "nats", "between nodes on nats"])
def ends(request: pytest.FixtureRequest) -> tuple[LocalQueue, LocalQueue]:
    """The queue that announces and the one that watches."""
    if request.param == "local":
        queue = LocalQueue()
        return queue, queue
    pair = request.getfixturevalue("nats_nodes" if "nats" in request.param else "nodes")
    return pair if "between" in request.param else (pair[0], pair[0])


async def heard(watch: Watch, announce: Callable[[], None]) -> None:
    """Announce until it is heard: between nodes that have just met, the first may go unheard."""
    async with asyncio.timeout(DEADLINE):
        announce()
        while not await watch.wait(0.2):
            announce()


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(DEADLINE):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
    return found


async def listeners(admin: Any) -> list[int]:
    rows = await admin.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", LISTENER
    )
    return [row[0] for row in rows]


# ── every queue ──


async def test_every_watch_hears_an_announcement(ends: tuple[LocalQueue, LocalQueue]):
    teller, hearer = ends
    watches = [hearer.watch("runs") for _ in range(3)]

    teller.announce("runs")

    assert await asyncio.gather(*(watch.wait(DEADLINE) for watch in watches)) == [True] * 3


async def test_an_announcement_is_kept_until_somebody_waits_and_heard_once(ends: tuple[LocalQueue, LocalQueue]):
    teller, hearer = ends
    watch, other = hearer.watch("due"), hearer.watch("due")
    teller.announce("due")
    assert await other.wait(DEADLINE)  # so it has arrived

    assert await watch.wait(0)
    assert not await watch.wait(0)


async def test_topics_are_apart(ends: tuple[LocalQueue, LocalQueue]):
    teller, hearer = ends
    runs, cancel = hearer.watch("runs"), hearer.watch("cancel")

    teller.announce("runs")

    assert await runs.wait(DEADLINE)
    assert not await cancel.wait(0)


async def test_a_wait_that_was_given_up_loses_nothing(ends: tuple[LocalQueue, LocalQueue]):
    teller, hearer = ends
    watch = hearer.watch("runs")
    waiting = asyncio.create_task(watch.wait(DEADLINE))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    teller.announce("runs")

    assert await watch.wait(DEADLINE)


async def test_announcing_works_before_opening_and_after_closing(url: str):
    queue = made(url)
    watch = queue.watch("runs")
    queue.announce("runs")
    assert await watch.wait(0)
    await queue.open()
    await queue.close()
    await queue.close()
    queue.announce("runs")
    assert await watch.wait(0)


# ── between nodes ──


async def test_a_node_that_is_alone_sends_nothing(postgres_url: str):
    queue = await connected(postgres_url)
    watch = queue.watch("runs")
    for _ in range(100):
        queue.announce("runs")
        await asyncio.sleep(0)
        assert await watch.wait(0)

    async def counted() -> bool:
        return queue.others == 0

    await until(counted)
    for _ in range(100):
        queue.announce("runs")
        await asyncio.sleep(0)
    assert queue.sent == 0
    await queue.close()


async def test_a_node_that_comes_makes_itself_known(url: str):
    first = await connected(url)
    told = first.watch("nodes")
    await told.wait(0)
    second = await connected(url)

    assert await told.wait(DEADLINE)
    assert first.others
    await first.close()
    await second.close()


async def test_a_storm_of_announcements_is_few_messages(either: tuple[SharedQueue, SharedQueue]):
    teller, hearer = either
    before, watch = teller.sent, hearer.watch("runs")
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(10_000):
        teller.announce(("runs", "due", "waiting")[number % 3])
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert await watch.wait(DEADLINE)

    assert teller.sent - before <= 2 + (loop.time() - began) / teller.debounce


async def test_foreign_and_malformed_messages_are_ignored(nodes: tuple[SharedQueue, SharedQueue], admin: Any):
    hearer = nodes[1]
    watch = hearer.watch("runs")
    channel = await admin.fetchval(CHANNEL)
    for payload in ("", "runs", "{}", "0123456789ab", "0123456789ab runs,", f"{hearer.name} runs", "x" * 7999, "é\n"):
        await admin.execute("SELECT pg_notify($1, $2)", channel, payload)
    other = hearer.watch("due")
    await admin.execute("SELECT pg_notify($1, $2)", channel, "0123456789ab unheard,due")

    assert await other.wait(DEADLINE)
    assert not await watch.wait(0)


async def test_a_listener_that_was_cut_off_comes_back_and_looks(nodes: tuple[SharedQueue, SharedQueue], admin: Any):
    """Whatever was missed meanwhile is found, because every watch is woken after LISTEN."""
    teller, hearer = nodes
    watches = [hearer.watch(topic) for topic in ("runs", "cancel")]
    for pid in await listeners(admin):
        await admin.execute("SELECT pg_terminate_backend($1)", pid)

    assert await asyncio.gather(*(watch.wait(DEADLINE) for watch in watches)) == [True, True]
    await heard(hearer.watch("due"), lambda: teller.announce("due"))


async def test_two_schemas_of_one_database_do_not_disturb_each_other(admin: Any):
    ours = await admin.fetchval(CHANNEL)
    await admin.execute("CREATE SCHEMA other")
    await admin.execute("SET search_path = other")

    assert await admin.fetchval(CHANNEL) != ours


# ── on NATS ──


async def test_a_broker_that_was_killed_and_wiped_is_found_again(
    nats: Nats, nats_nodes: tuple[SharedQueue, SharedQueue]
):
    teller, hearer = nats_nodes
    watch = hearer.watch("runs")
    nats.kill()
    teller.announce("runs")  # never blocks, never fails
    own = teller.watch("due")
    teller.announce("due")
    assert await own.wait(0)
    nats.wipe()
    nats.start()

    assert await watch.wait(DEADLINE)
    await heard(hearer.watch("cancel"), lambda: teller.announce("cancel"))


async def test_a_broker_that_is_frozen_holds_nobody_up_and_is_found_again(
    nats: Nats, nats_nodes: tuple[SharedQueue, SharedQueue]
):
    teller, hearer = nats_nodes
    nats.signal(signal.SIGSTOP)
    watch = teller.watch("runs")
    for _ in range(1000):
        teller.announce("runs")
        assert await watch.wait(0)
    async with asyncio.timeout(DEADLINE):
        while teller.is_listening.is_set() or hearer.is_listening.is_set():
            await asyncio.sleep(0.05)
    nats.signal(signal.SIGCONT)

    await heard(hearer.watch("cancel"), lambda: teller.announce("cancel"))


async def test_a_queue_goes_on_with_the_next_server_of_a_cluster(tmp_path: Path):
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        queue = await connected(f"{one.url},127.0.0.1:{two.port}")
        one.kill()
        teller = await connected(two.url)
        await heard(queue.watch("runs"), lambda: teller.announce("runs"))
        await queue.close()
        await teller.close()


async def test_foreign_messages_on_the_subject_of_hints_are_ignored(
    nats: Nats, nats_nodes: tuple[SharedQueue, SharedQueue]
):
    hearer = nats_nodes[1]
    watch, other = hearer.watch("runs"), hearer.watch("due")
    client = await Connector(nats.url, "stranger").connect(lambda: None)
    for payload in (
        b"",
        b"runs",
        b"{}",
        b"\xff\x00",
        b"0123456789ab runs,",
        f"{hearer.name} runs".encode(),
        bytes(9000),
    ):
        await client.publish(HINTS, payload)
    await client.publish(HINTS, b"0123456789ab unheard,due")

    assert await other.wait(DEADLINE)
    assert not await watch.wait(0)
    await client.close()


async def test_a_wrong_password_is_said_and_tried_again(tmp_path: Path):
    with running(tmp_path / "guarded", "--user", "horae", "--pass", "right") as guarded:
        address = guarded.url.removeprefix("nats://")
        with pytest.raises(Unavailable, match=r"(?i)authorization"):
            await Connector(f"nats://horae:wrong@{address}", "test").connect(lambda: None)
        client = await Connector(f"nats://horae:right@{address}", "test").connect(lambda: None)
        await client.close()
