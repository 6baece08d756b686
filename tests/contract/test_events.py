"""Events on a real JetStream: what happens is told, with ids that make repeats harmless, also when it was away."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from horae.app.roles import persist
from horae.core.events import BEGINNING
from horae.core.model import Node, State
from horae.core.runs.orders import Result
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.queues.publisher import NatsPublisher
from horae.service.events.documents import Documents
from horae.service.events.publishing import READER, Publishing, _message
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import FakeClock
from horae.wire.nats.broker import EVENT_STREAM, EVENTS, Connector

from ..nats_server import Nats
from ..unit.service.parts import draft

DEADLINE = 180.0


class Promptly(FakeClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.05)


class Told:
    """Services on a store, and who publishes what happens there."""

    def __init__(self, store: Store, nats: Nats) -> None:
        self.courier, clock, queue = NatsPublisher(Connector(nats.url, "test")), Promptly(), LocalQueue()
        self.jobs = Jobs(store, queue)
        self.execution = Execution(store, queue, clock, Metrics())
        self.documents = Documents(store, "0123456789abcdef")
        self.publishing = Publishing(store, self.courier, queue, clock, self.documents, is_leader=lambda: self.leads)
        self.clock = clock
        self.store = store
        self.leads = True


@pytest.fixture
async def told(sqlite_store: Store, nats: Nats) -> AsyncIterator[Told]:
    made = Told(sqlite_store, nats)
    await sqlite_store.save_reader(READER, BEGINNING)
    await made.courier.open()
    telling = asyncio.create_task(persist("events", made.publishing.step, made.clock))
    yield made
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    await made.courier.close()


@asynccontextmanager
async def reader(nats: Nats) -> AsyncIterator[Any]:
    client = await Connector(nats.url, "reader").connect(lambda: None)
    yield client
    await client.close()


async def read(nats: Nats, count: int) -> list[Any]:
    """Return the first so many events of the stream, when they are there."""
    async with reader(nats) as client, asyncio.timeout(DEADLINE):
        found: list[Any] = []
        while len(found) < count:
            asked = json.dumps({"seq": len(found) + 1}).encode()
            answer = json.loads(
                (await client.request(f"$JS.API.STREAM.MSG.GET.{EVENT_STREAM}", asked, timeout=60)).data
            )
            found.append(answer["message"]["data"]) if "message" in answer else await asyncio.sleep(0.05)
        return [json.loads(base64.b64decode(one)) for one in found]


NODE = Node(
    name="a1", roles=("agent",), kinds=("python",), labels=(), slots=1, version="1", address="", started_at=0,
    heartbeat_at=0, beat=0,
)  # fmt: skip


async def one_run(told: Told) -> int:
    (job,) = (await told.jobs.submit([draft()])).jobs
    run_id = (await told.jobs.run_now(job.id)).id
    (claimed,) = await told.execution.claim(NODE, {"python": 1})
    await told.execution.finish(
        [Result(run_id, claimed.fence, State.SUCCEEDED, started_at=1, finished_at=2, exit_code=0)]
    )
    await told.jobs.delete(job.id)
    return run_id


async def test_the_life_of_a_run_is_told_in_its_order_with_job_fence_and_trace(told: Told, nats: Nats):
    run_id = await one_run(told)

    events = await read(nats, 5)

    assert [event["type"] for event in events] == [
        "horae.job.submitted", "horae.run.queued", "horae.run.started", "horae.run.finished", "horae.job.deleted",
    ]  # fmt: skip
    ended = events[3]
    assert (ended["specversion"], ended["source"], ended["subject"]) == (
        "1.0",
        "horae/0123456789abcdef",
        f"runs/{run_id}",
    )
    data = ended["data"]
    assert (data["run"], data["job"], data["fence"], data["state"], data["exit_code"]) == (run_id, 1, 1, "succeeded", 0)
    assert data["trace_id"].endswith(f"{run_id:016x}")
    assert events[2]["data"]["attempt"] == 1
    assert len({event["id"] for event in events}) == 5


async def test_a_retry_is_told_as_such(told: Told, nats: Nats):
    (job,) = (await told.jobs.submit([draft(retry={"attempts": 2})])).jobs
    run_id = (await told.jobs.run_now(job.id)).id
    (claimed,) = await told.execution.claim(NODE, {"python": 1})
    await told.execution.finish([Result(run_id, claimed.fence, State.FAILED, started_at=1, finished_at=2, exit_code=1)])

    events = await read(nats, 4)

    assert [event["type"] for event in events][-1] == "horae.run.retrying"
    data = events[-1]["data"]
    assert (data["job"], data["state"], data["exit_code"], data["attempt"]) == (job.id, "failed", 1, 1)


async def test_events_wait_for_a_broker_that_is_away_and_repeats_are_dropped(told: Told, nats: Nats):
    await read_when_open(told)
    nats.kill()
    await one_run(told)
    nats.start()

    events = await read(nats, 5)
    async with reader(nats) as client:
        again = await client.request(
            f"{EVENTS}.run.finished", b"{}", timeout=60, headers={"Nats-Msg-Id": events[3]["id"]}
        )
    assert json.loads(again.data)["duplicate"] is True


async def read_when_open(told: Told) -> None:
    async with asyncio.timeout(DEADLINE):
        while not told.courier.connections:
            await asyncio.sleep(0.02)


async def test_a_run_that_never_began_is_told_when_it_has_ended(told: Told, nats: Nats):
    (job,) = (await told.jobs.submit([draft()])).jobs
    run_id = (await told.jobs.run_now(job.id)).id
    await told.jobs.cancel(run_id)

    events = await read(nats, 3)

    (ended,) = [event for event in events if event["type"] == "horae.run.finished"]
    assert (ended["data"]["run"], ended["data"]["fence"], ended["data"]["state"]) == (run_id, 0, "cancelled")


async def test_what_a_leader_told_that_died_before_it_noted_so_is_told_once(told: Told, nats: Nats):
    await read_when_open(told)
    told.leads = False
    await one_run(told)
    found, _ = await told.store.read_events(BEGINNING, 3)
    await told.courier.publish_events([_message(each) for each in await told.documents.describe(found)])

    told.leads = True
    ids = [event["id"] for event in await read(nats, 5)]

    assert ids == [event.id for event in (await told.store.read_events(BEGINNING, 10))[0]]
    async with reader(nats) as client:
        info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{EVENT_STREAM}", b"", timeout=60)).data)
    assert info["state"]["messages"] == 5


async def test_who_publishes_for_the_first_time_begins_now(sqlite_store: Store, nats: Nats):
    told = Told(sqlite_store, nats)
    await one_run(told)
    assert await told.publishing._publish() is False
    assert await sqlite_store.load_reader(READER) == await sqlite_store.last_event()
