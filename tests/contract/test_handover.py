"""Word of queued runs over JetStream, on a real server: whatever the broker does with it, runs are claimed once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import ConcurrencyLimit, Policy, State
from horae.core.runs.orders import Queued
from horae.errors import Unavailable
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.queues.publisher import NatsPublisher
from horae.service.announcer import DEMANDING_GAP, WorkAnnouncer
from horae.testing import FakeClock
from horae.wire.nats.broker import WORK, WORK_STREAM, Connector

from ..nats_server import Nats
from ..unit.service.parts import draft
from .test_links import DEADLINE, Remote, Side, a_node, connected, done


@pytest.fixture
def side(sqlite_store: Store, clock: FakeClock, tmp_path: Path, nats: Nats) -> Side:
    return Side(sqlite_store, clock, tmp_path, broker=nats.url)


@asynccontextmanager
async def client_of(nats: Nats) -> AsyncIterator[Any]:
    client = await Connector(nats.url, "test").connect(lambda: None)
    yield client
    await client.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await condition():
            await asyncio.sleep(0.02)


async def waiting_messages(client: Any) -> int:
    """In the stream: neither acknowledged nor too old. -1 while there is no stream."""
    answer = json.loads((await client.request(f"$JS.API.STREAM.INFO.{WORK_STREAM}", b"", timeout=60)).data)
    return int(answer["state"]["messages"]) if "state" in answer else -1


async def taken(remote: Remote) -> None:
    """Until the agent has a message of work."""
    async with asyncio.timeout(DEADLINE):
        assert await remote.link.wait("runs", DEADLINE)


async def quiet(remote: Remote) -> None:
    """Until what coming in announced was heard."""
    while await remote.link.wait("runs", 0.3):
        pass


async def test_a_run_is_told_to_one_agent_claimed_and_then_acknowledged(side: Side, nats: Nats, tmp_path: Path):
    async with side.served() as address, connected(tmp_path / "agent", address) as remote, client_of(nats) as client:
        await remote.link.hello(a_node())
        await quiet(remote)
        (run_id,) = await side.order()
        await taken(remote)
        assert await waiting_messages(client) == 1
        assert [one.run_id for one in await remote.link.claim({"python": 10})] == [run_id]

        async def empty() -> bool:
            return await waiting_messages(client) == 0

        await until(empty)
        assert await remote.link.finish([done(run_id)]) == {run_id}


async def test_only_one_of_two_agents_is_woken_for_one_run(side: Side, tmp_path: Path):
    async with (
        side.served() as address,
        connected(tmp_path / "one", address) as one,
        connected(tmp_path / "two", address, identity="f" * 16, session="t" * 16) as two,
    ):
        await one.link.hello(a_node("n1"))
        await two.link.hello(a_node("n2"))
        await quiet(one)
        await quiet(two)
        await side.order()
        woken = await asyncio.gather(one.link.wait("runs", 3.0), two.link.wait("runs", 3.0))

    assert sorted(woken) == [False, True]


async def test_an_agent_without_room_takes_no_messages(side: Side, nats: Nats, tmp_path: Path):
    async with side.served() as address, connected(tmp_path / "agent", address) as remote, client_of(nats) as client:
        remote.link.room = lambda _: 0  # type: ignore[attr-defined]
        await remote.link.hello(a_node())
        await quiet(remote)
        await side.order()

        async def told() -> bool:
            return await waiting_messages(client) == 1

        await until(told)
        assert not await remote.link.wait("runs", 0.5)
        remote.link.room = lambda _: 1  # type: ignore[attr-defined]
        await taken(remote)


async def test_repeated_foreign_and_malformed_messages_do_no_harm(side: Side, nats: Nats, tmp_path: Path):
    async with side.served() as address, connected(tmp_path / "agent", address) as remote, client_of(nats) as client:
        await remote.link.hello(a_node())
        await quiet(remote)
        (run_id,) = await side.order()
        await taken(remote)
        for payload in (f"{run_id}-1".encode(), b"", b"\xff\xfe", b"99999-1", b"x" * 900):
            for priority in ("0", "nonsense"):
                await client.publish(f"{WORK}.python.{priority}", payload)
        claimed = [one.run_id for one in await remote.link.claim({"python": 10})]

        async def empty() -> bool:
            await remote.link.wait("runs", 0.1)
            assert await remote.link.claim({"python": 10}) == []
            return await waiting_messages(client) == 0

        await until(empty)
    assert claimed == [run_id]


async def test_a_wiped_broker_is_told_again_of_what_waits(side: Side, nats: Nats, tmp_path: Path):
    async with side.served() as address, connected(tmp_path / "agent", address) as remote:
        remote.link.room = lambda _: 0  # type: ignore[attr-defined]
        await remote.link.hello(a_node())
        (run_id,) = await side.order()
        nats.kill()
        nats.wipe()
        nats.start()
        async with client_of(nats) as client:

            async def told() -> bool:
                return await waiting_messages(client) == 1

            await until(told)
    assert await side.state(run_id) is State.QUEUED


async def test_runs_that_not_every_agent_may_take_call_all_of_them(side: Side, tmp_path: Path):
    async with (
        side.served() as address,
        connected(tmp_path / "one", address) as one,
        connected(tmp_path / "two", address, identity="f" * 16, session="t" * 16) as two,
    ):
        await one.link.hello(a_node("n1"))
        await two.link.hello(a_node("n2", labels=("gpu",)))
        await quiet(one)
        await quiet(two)
        (job,) = (await side.jobs.submit([draft(labels=["gpu"])])).jobs
        run_id = (await side.jobs.run_now(job.id)).id
        await asyncio.gather(taken(one), taken(two))
        assert await one.link.claim({"python": 1}) == []
        assert [each.run_id for each in await two.link.claim({"python": 1})] == [run_id]


class Restless(FakeClock):
    """Time that nobody waits for."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class Silent:
    """A courier that notes what it is given, and can be away."""

    def __init__(self) -> None:
        self.carried: list[list[int]] = []
        self.calls = 0
        self.connections = 1
        self.is_away = False

    async def prepare(self, kinds: Any) -> None:
        pass

    async def publish_runs(self, runs: Any) -> None:
        if self.is_away:
            raise Unavailable("away")
        self.carried.append([run.run_id for run in runs])

    async def call_agents(self) -> None:
        self.calls += 1


async def test_what_still_waits_is_told_again_after_a_while_and_nothing_while_no_agent_is_far(
    sqlite_store: Store, tmp_path: Path
):
    clock = Restless()
    near = Side(sqlite_store, clock, tmp_path)
    courier, own = Silent(), LocalQueue()
    handover = WorkAnnouncer(sqlite_store, near.queue, own, courier, clock)

    async def look() -> None:
        own.announce("runs")
        await handover.step()

    runs = await near.order(2)
    await handover.watch_agents()
    await look()
    assert courier.carried == []
    await near.store.register_node(a_node("n1", via="s1"))
    near.queue.announce("nodes")
    await handover.watch_agents()
    await look()
    await look()
    assert courier.carried == [runs]
    clock.advance(20)
    await look()
    assert courier.carried == [runs, runs]
    courier.connections += 1
    courier.is_away = True
    await look()
    assert courier.calls == 1


async def test_of_more_runs_than_can_be_named_none_is_and_everybody_is_called(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("horae.service.announcer.MOST_NAMED", 3)
    clock = Restless()
    near = Side(sqlite_store, clock, tmp_path)
    courier, own = Silent(), LocalQueue()
    handover = WorkAnnouncer(sqlite_store, near.queue, own, courier, clock)
    await near.store.register_node(a_node("n1", via="s1"))
    near.queue.announce("nodes")
    await handover.watch_agents()
    for calls in (1, 2):  # the second time for runs that are behind those it has seen
        await near.order(3)
        own.announce("runs")
        await handover.step()
        assert (courier.carried, courier.calls) == ([], calls)


async def test_everybody_is_called_while_runs_wait_that_demand_more_than_a_slot(sqlite_store: Store, tmp_path: Path):
    clock = Restless()
    near = Side(sqlite_store, clock, tmp_path)
    courier, own = Silent(), LocalQueue()
    handover = WorkAnnouncer(sqlite_store, near.queue, own, courier, clock)
    await near.store.register_node(a_node("n1", via="s1"))
    near.queue.announce("nodes")
    await handover.watch_agents()

    async def look() -> int:
        clock.advance(DEMANDING_GAP)  # which lies between two looks
        own.announce("runs")
        await handover.step()
        return courier.calls

    assert await look() == await look() == 0
    policy = Policy(concurrency_limits=(ConcurrencyLimit(1),))
    [job] = (await near.jobs.submit([replace(draft(), policy=policy)])).jobs
    run = await near.jobs.run_now(job.id)
    assert [await look(), await look()] == [1, 2]  # the second time because a rate may allow one
    await near.jobs.cancel(run.id)
    assert [await look(), await look()] == [2, 2]


async def test_a_stream_that_is_gone_is_no_receipt_and_is_made_again(nats: Nats):
    courier = NatsPublisher(Connector(nats.url, "test"))
    await courier.open()
    try:
        async with asyncio.timeout(DEADLINE), client_of(nats) as client:
            while not courier.connections:
                await asyncio.sleep(0.01)
            await courier.publish_runs([Queued(1, 1, "python", 0, False), Queued(1, 1, "python", 0, False)])
            await client.request(f"$JS.API.STREAM.DELETE.{WORK_STREAM}", b"", timeout=60)
            with pytest.raises(Unavailable):
                await courier.publish_runs([Queued(2, 1, "python", 0, False)])
            await courier.publish_runs([Queued(3, 1, "python", 0, False)])
            assert await waiting_messages(client) == 1
    finally:
        await courier.close()


async def test_a_frozen_broker_is_given_up_soon(nats: Nats):
    courier = NatsPublisher(Connector(nats.url, "test"))
    await courier.open()
    try:
        async with asyncio.timeout(DEADLINE):
            while not courier.connections:
                await asyncio.sleep(0.01)
        nats.signal(signal.SIGSTOP)
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(Unavailable):
                await courier.publish_runs([Queued(1, 1, "python", 0, False)])
        nats.signal(signal.SIGCONT)
    finally:
        await courier.close()
