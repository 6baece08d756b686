"""Pages are told that something happened: once for all of them, at most once a second, however much it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from horae.core.events import Cursor
from horae.queues.local import LocalQueue
from horae.service.events import pulse as pulses
from horae.service.events.pulse import Beat, Pulse
from horae.service.jobs import Jobs
from horae.testing import FakeClock

from .parts import Probe, draft, submitted

DEADLINE = 60.0


class Halting(FakeClock):
    """A clock on which a beat lasts until it is told to end."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.go_on = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.go_on.wait()
        self.go_on.clear()


@pytest.fixture
def clock() -> Halting:
    return Halting()


@pytest.fixture
def pulse(probe: Probe, queue: LocalQueue, clock: Halting) -> Pulse:
    return Pulse(probe, queue, clock)


@asynccontextmanager
async def running(pulse: Pulse) -> AsyncIterator[None]:
    async def loop() -> None:
        while True:
            await pulse.step()

    task = asyncio.create_task(loop())
    try:
        async with asyncio.timeout(DEADLINE):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def first(pulse: Pulse, begin: Cursor, org: int | None = None) -> Beat:
    async with aclosing(pulse.follow(org, begin)) as beats:
        return await anext(beats)


async def watched(pulse: Pulse, count: int) -> None:
    while len(pulse._seats) < count:
        await asyncio.sleep(0)


async def test_a_beat_names_kinds_and_jobs_and_is_read_once_for_all(pulse: Pulse, jobs: Jobs, probe: Probe):
    begin = await pulse.begin()
    asked = probe.calls["read_events"]
    job = await submitted(jobs)
    async with running(pulse):
        both = await asyncio.gather(first(pulse, begin), first(pulse, begin))
    assert both == [Beat(frozenset({"job.submitted"}), frozenset({job.id}))] * 2
    assert probe.calls["read_events"] - asked == 2  # what there is, and that there is no more


async def test_what_comes_within_a_second_is_one_beat(pulse: Pulse, jobs: Jobs, clock: Halting):
    async with running(pulse), aclosing(pulse.follow(None, await pulse.begin())) as beats:
        coming = asyncio.ensure_future(anext(beats))
        await watched(pulse, 1)
        one = await submitted(jobs)
        assert (await coming).jobs == {one.id}
        others = {(await submitted(jobs)).id for _ in range(3)}
        assert clock.slept == [pulses.BEAT]
        clock.go_on.set()
        assert (await anext(beats)).jobs == others


async def test_more_than_can_be_named_is_many_and_is_passed_over(
    pulse: Pulse, jobs: Jobs, probe: Probe, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pulses, "TOGETHER", 1)
    begin = await pulse.begin()
    for _ in range(pulses.READS + 3):
        await submitted(jobs)
    async with running(pulse):
        beat = await first(pulse, begin)
    assert beat.is_many
    assert len(beat.jobs) == pulses.READS
    assert probe.calls["read_events"] == pulses.READS


async def test_who_is_slow_gets_what_it_missed_as_one(pulse: Pulse, jobs: Jobs, clock: Halting):
    async with running(pulse), aclosing(pulse.follow(None, await pulse.begin())) as beats:
        coming = asyncio.ensure_future(anext(beats))
        await watched(pulse, 1)
        await submitted(jobs)
        await coming
        missed = set()
        for _ in range(2):
            missed.add((await submitted(jobs)).id)
            clock.go_on.set()
            before = len(clock.slept)
            while len(clock.slept) == before:
                await asyncio.sleep(0)
        assert (await anext(beats)).jobs == missed


async def test_who_comes_after_a_beat_of_what_it_has_not_seen_is_told_so(pulse: Pulse, jobs: Jobs):
    begin = await pulse.begin()
    await submitted(jobs)
    async with running(pulse):
        await asyncio.gather(first(pulse, begin), _late(pulse, begin))


async def _late(pulse: Pulse, begin: Cursor) -> None:
    await watched(pulse, 1)
    while pulse._place == begin:
        await asyncio.sleep(0)
    pulse._seats.add(pulses._Seat(None))  # somebody stays, so that the place does
    assert (await first(pulse, begin)).is_many


async def test_an_organisation_is_told_of_its_own_jobs_alone(pulse: Pulse, jobs: Jobs):
    begin = await pulse.begin()
    ours, theirs = [(await jobs.submit([draft("job")], org=org)).jobs[0] for org in (1, 2)]
    async with running(pulse):
        seen = await asyncio.gather(*(first(pulse, begin, org) for org in (1, 2, None)))
    assert [beat.jobs for beat in seen] == [{ours.id}, {theirs.id}, {ours.id, theirs.id}]


async def test_nobody_who_watches_costs_no_statement(pulse: Pulse, jobs: Jobs, probe: Probe):
    async with running(pulse):
        await submitted(jobs)
        for _ in range(20):
            await asyncio.sleep(0)
        assert probe.calls["read_events"] == probe.calls["last_event"] == 0
