"""Who looks at runs is told how they stand: all are read together once a second, however many look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from horae.core.model import DEFAULT_ORG, State
from horae.core.work.specs import parse_job
from horae.service.events import run_watch
from horae.service.events.run_watch import RunWatch
from horae.testing import FakeClock

from ..unit.service.parts import Probe
from .world import World

DEADLINE = 60.0


class Held(FakeClock):
    """A clock that sleeps until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds, self.sleepers = 0.0, list[asyncio.Event]()

    def elapsed(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.sleepers.append(woken := asyncio.Event())
        await woken.wait()

    async def slept(self, sleepers: int) -> None:
        while len(self.sleepers) < sleepers:
            await asyncio.sleep(0)

    async def go_on(self, sleepers: int) -> None:
        await self.slept(sleepers)
        self.seconds += run_watch.LOOK
        woken, self.sleepers = self.sleepers, []
        for one in woken:
            one.set()


@pytest.fixture
async def watching(world: World) -> AsyncIterator[tuple[RunWatch, Probe, Held]]:
    clock, probe = Held(), Probe(world.store)
    async with asyncio.timeout(DEADLINE):
        yield RunWatch(probe, world.services.insight, clock), probe, clock  # type: ignore[arg-type]


async def some_run(world: World, name: str = "job") -> int:
    job = (await world.jobs.submit([parse_job({"name": name, "steps": [{"run": "true"}]})])).jobs[0]
    return (await world.jobs.run_now(job.id)).id


async def test_however_many_look_runs_are_read_once_a_second(world: World, watching: Any) -> None:
    watch, probe, clock = watching
    one, other = await some_run(world, "a"), await some_run(world, "b")
    async with aclosing(watch.follow({one, other})) as first, aclosing(watch.follow({other})) as second:
        assert [(await anext(first)).run.id, (await anext(first)).run.id] == [one, other]
        assert (await anext(second)).run.id == other
        assert probe.calls["load_runs"] == 1
        coming = [asyncio.ensure_future(anext(it)) for it in (first, second)]
        await clock.go_on(2)
        await clock.go_on(2)
        await clock.slept(2)
        assert probe.calls["load_runs"] == 3
        await world.jobs.cancel(other)
        await clock.go_on(2)
        assert [(await it).run.state for it in coming] == [State.CANCELLED] * 2
        assert probe.calls["load_runs"] == 4


async def test_a_log_that_grows_is_told_and_a_run_that_has_ended_is_told_of_once_more(
    world: World, watching: Any
) -> None:
    watch, _, clock = watching
    run_id = await some_run(world)
    work = await world.take(run_id)
    async with aclosing(watch.follow({run_id})) as standings:
        assert (await anext(standings)).log_size == 0
        await work.write(b"hello\n")
        coming = asyncio.ensure_future(anext(standings))
        await clock.go_on(1)
        assert (await coming).log_size == 6
        await work.end(State.SUCCEEDED)
        coming = asyncio.ensure_future(anext(standings))
        await clock.go_on(1)
        ended = await coming
        assert (ended.run.state, ended.log_size) == (State.SUCCEEDED, 6)
        assert await anext(standings, None) is None
    assert not watch._watched


async def test_runs_that_are_not_there_or_of_others_are_passed_over(world: World, watching: Any) -> None:
    watch, _, _ = watching
    run_id = await some_run(world)
    assert await watch.visible([run_id, 999], None) == {run_id}
    assert await watch.visible([run_id], DEFAULT_ORG) == {run_id}
    assert await watch.visible([run_id], 7) == frozenset()


async def test_a_stream_tells_of_its_runs_and_refuses_too_many(world: World) -> None:
    run_id = await some_run(world)
    await (await world.take(run_id)).end(State.SUCCEEDED)
    text = await world.hear("/v1/events/pulse", f"runs={run_id},999", until="event: run\n")
    assert text.startswith("event: run\n")
    assert f'"id":{run_id}' in text
    assert '"log_size":0' in text
    for wrong in ("1,x", ",".join(map(str, range(1, 52)))):
        assert (await world.http.get("/v1/events/pulse", params={"runs": wrong})).status_code == 422
