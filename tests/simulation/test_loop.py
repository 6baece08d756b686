"""The loop of the simulation: virtual time, and processes that are paused and killed at any await."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from simulation.loop import CURRENT, Livelock, Loop, Process


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop(random.Random(1), most_steps=10_000)
    yield made
    made.bury()


def live(loop: Loop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def start(loop: Loop, name: str, coroutine: Coroutine[Any, Any, None]) -> Process:
    process = loop.new_process(name)
    loop.spawn(process, coroutine)
    return process


async def tick(told: list[float], seconds: float = 1.0) -> None:
    while True:
        await asyncio.sleep(seconds)
        told.append(asyncio.get_running_loop().time())


def test_a_week_passes_in_no_time(loop: Loop):
    live(loop, 7 * 86_400)

    assert loop.time() == pytest.approx(7 * 86_400, abs=0.01)


def test_a_paused_process_does_nothing_and_then_all_that_it_missed_at_once(loop: Loop):
    told: list[float] = []
    process = start(loop, "a", tick(told))
    live(loop, 2.5)

    loop.pause(process)
    live(loop, 10)
    assert len(told) == 2
    loop.resume(process)
    live(loop, 0.1)

    assert told[2:] == [pytest.approx(12.5, abs=0.01)]


def test_a_killed_process_runs_no_finally(loop: Loop):
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            told.append("finally")

    process = start(loop, "a", work())
    live(loop, 1)

    loop.kill(process)
    live(loop, 10)

    assert told == []


def test_a_fuse_burns_between_two_steps_of_its_process(loop: Loop):
    told: list[float] = []
    process = start(loop, "a", tick(told))
    live(loop, 0.5)

    process.fuse = (3, lambda: loop.kill(process))
    live(loop, 60)

    assert 0 < len(told) < 5
    assert process.is_dead


def test_tasks_belong_to_the_process_that_made_them(loop: Loop):
    told: list[str] = []

    async def inner() -> None:
        told.append(CURRENT.get().name)

    async def outer() -> None:
        await asyncio.create_task(inner())

    start(loop, "a", outer())
    live(loop, 1)

    assert told == ["a"]


def test_within_a_process_callbacks_keep_their_order(loop: Loop):
    told: list[int] = []
    process, other = loop.new_process("a"), loop.new_process("b")
    for number in range(50):
        loop.tell(process, told.append, number)
        loop.tell(other, lambda: None)
    live(loop, 1)

    assert told == list(range(50))


def test_who_runs_in_circles_is_found_out(loop: Loop):
    async def circle() -> None:
        while True:
            await asyncio.sleep(0)

    start(loop, "a", circle())

    with pytest.raises(Livelock, match="a was last"):
        live(loop, 3600)
