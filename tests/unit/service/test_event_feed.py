"""Who follows what happens gets all of it, once and in order, and costs nothing when nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from horae.core.events import BEGINNING, Cursor, Event, EventFilter
from horae.core.model import Json
from horae.queues.local import LocalQueue
from horae.service.events import feed as feeds
from horae.service.events.documents import Documents
from horae.service.events.feed import EventFeed, Follower
from horae.service.jobs import Jobs
from horae.testing import FakeClock

from .parts import Probe, submitted

DEADLINE = 60.0


class Promptly(FakeClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def feed(probe: Probe, queue: LocalQueue) -> EventFeed:
    return EventFeed(probe, queue, Promptly(), Documents(probe))


@asynccontextmanager
async def running(feed: EventFeed) -> AsyncIterator[None]:
    async def loop() -> None:
        while True:
            await feed.step()

    task = asyncio.create_task(loop())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def first(feed: EventFeed, count: int, after: Cursor, follower: Follower | None = None) -> list[Json]:
    """Return so many events that follow."""
    found: list[Json] = []
    async with asyncio.timeout(DEADLINE), aclosing(feed.follow(follower or Follower(), after)) as told:
        async for _, document in told:
            if document is not None:
                found.append(document)
                if len(found) == count:
                    break
    return found


async def every(probe: Probe) -> list[Event]:
    found, after = [], BEGINNING
    while (page := await probe.store.read_events(after, 1000))[0]:
        found, after = found + page[0], page[1]
    return found


def ids(documents: Sequence[Json]) -> list[str]:
    return [document["id"] for document in documents]


async def test_a_follower_gets_what_was_and_what_comes_without_gap_or_repeat(feed: EventFeed, jobs: Jobs, probe: Probe):
    before = [await submitted(jobs) for _ in range(3)]
    async with running(feed):
        following = asyncio.create_task(first(feed, 6, BEGINNING))
        for _ in range(3):
            await asyncio.sleep(0)
            await jobs.run_now(before[0].id)
        found = await following
    assert ids(found) == [event.id for event in await every(probe)][:6]


async def test_two_followers_are_read_for_once(feed: EventFeed, jobs: Jobs, probe: Probe):
    begin = await feed.begin(None)
    async with running(feed):
        both = [asyncio.create_task(first(feed, 1, begin)) for _ in range(2)]
        while len(feed._seats) < 2:
            await asyncio.sleep(0)
        await submitted(jobs)
        one, other = await asyncio.gather(*both)
    assert one == other
    assert one[0]["type"] == "horae.job.submitted"


async def test_nobody_who_follows_costs_no_statement(feed: EventFeed, jobs: Jobs, probe: Probe):
    async with running(feed):
        for _ in range(20):
            await submitted(jobs)
        assert probe.calls["read_events"] == probe.calls["last_event"] == 0
        await first(feed, 1, BEGINNING)
        for _ in range(20):  # whatever the loop had begun, it ends
            await asyncio.sleep(0.001)
        asked = probe.calls["read_events"]
        await submitted(jobs)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert probe.calls["read_events"] == asked


async def test_a_slow_follower_holds_up_nobody_and_misses_nothing(
    feed: EventFeed, jobs: Jobs, probe: Probe, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "SEAT", 3)
    found: list[str] = []
    async with running(feed), asyncio.timeout(DEADLINE), aclosing(feed.follow(Follower(), BEGINNING)) as told:
        await submitted(jobs)
        async for _, document in told:
            assert document is not None
            found.append(document["id"])
            if len(found) == 1:
                (seat,) = feed._seats
                for _ in range(9):
                    await submitted(jobs)
                while not seat.is_lost:
                    await asyncio.sleep(0.001)
            if len(found) == 10:
                break
    assert found == [event.id for event in await every(probe)]


async def test_what_a_follower_does_not_want_moves_its_place(feed: EventFeed, jobs: Jobs):
    begin = await feed.begin(None)
    told = feed.follow(Follower(EventFilter(("run.finished",))), begin)
    async with running(feed), asyncio.timeout(DEADLINE), aclosing(told):
        waiting = asyncio.create_task(anext(told))
        await asyncio.sleep(0)
        await submitted(jobs)
        place, document = await waiting
    assert document is None
    assert place > begin


async def test_of_another_organisation_nothing_is_told(feed: EventFeed, jobs: Jobs):
    job = await submitted(jobs)
    theirs = await feed.page(Follower(org=7), BEGINNING, 100)
    ours = await feed.page(Follower(org=job.org), BEGINNING, 100)
    assert [document["data"].get("job") for document in theirs.items] == []
    assert job.id in [document["data"].get("job") for document in ours.items]
    assert theirs.cursor == ours.cursor


async def test_a_cursor_that_lies_ahead_is_refused(feed: EventFeed, jobs: Jobs):
    with pytest.raises(Exception, match="lies after all that has happened"):
        await feed.begin(Cursor(0, 10**9, 0))
    with pytest.raises(Exception, match="lies after all that has happened"):
        await feed.page(Follower(), Cursor(0, 10**9, 0), 10)
