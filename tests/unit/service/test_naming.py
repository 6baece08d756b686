"""Whose a name is: who beats keeps it, who stands still is superseded."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from horae.core.model import Node
from horae.errors import ConfigError, Superseded
from horae.service.cluster.coordination import patience
from horae.service.cluster.names import LOOK, find_session, join
from horae.service.execution import Execution, LocalLink
from horae.testing import START, FakeClock

from .parts import BOTH, Probe, Told, node

LEASE = 15.0


def nobody(_: Node) -> bool:
    return False


async def looking(clock: FakeClock, seconds: float, task: asyncio.Task[int]) -> None:
    """Let a start look for so long, or until it has decided."""
    for _ in range(round(seconds / LOOK)):
        async with asyncio.timeout(60):
            while not clock._sleepers and not task.done():
                await asyncio.sleep(0)
        clock.advance(LOOK)
    async with asyncio.timeout(60):
        while not clock._sleepers and not task.done():
            await asyncio.sleep(0)


def starting(probe: Probe, clock: FakeClock) -> asyncio.Task[int]:
    return asyncio.create_task(find_session(probe, clock, "n1", lease_seconds=LEASE, is_dead=nobody))  # type: ignore[arg-type]


async def test_a_name_that_nobody_has_is_free(probe: Probe, clock: FakeClock):
    assert await starting(probe, clock) == 0
    await probe.register_node(node("n1"))
    await probe.retire_node("n1", "gone")

    assert await starting(probe, clock) == 1


async def test_an_earlier_life_that_is_certainly_dead_is_not_waited_for(probe: Probe, clock: FakeClock):
    await probe.register_node(node("n1"))

    assert await find_session(probe, clock, "n1", lease_seconds=LEASE, is_dead=lambda _: True) == 1  # type: ignore[arg-type]


@BOTH
async def test_a_process_that_beats_keeps_its_name_and_is_named(probe: Probe, clock: FakeClock):
    await probe.register_node(
        replace(node("n1"), holder="pid 4711 on build-3", address="10.0.0.3:8080", started_at=START)
    )
    start = starting(probe, clock)
    await looking(clock, LEASE / 2, start)
    assert not start.done()

    await probe.beat("n1", 0)
    await looking(clock, 1, start)

    with pytest.raises(ConfigError) as refused:
        await start
    assert refused.value.code == "E_NODE_TAKEN"
    for part in ("n1", "pid 4711 on build-3", "10.0.0.3:8080", "since 2027-01-15T08:00:00Z"):
        assert part in refused.value.message
    assert "--node" in refused.value.hint


@BOTH
async def test_a_process_that_stands_still_for_its_lease_is_superseded(probe: Probe, clock: FakeClock):
    """Behind the fence of the session: whatever it asks when it wakes is refused."""
    execution = Execution(probe, Told(), clock, None)  # type: ignore[arg-type]
    old, new = (LocalLink(execution, probe, Told()) for _ in range(2))  # type: ignore[arg-type]
    await old.hello(node("n1"))
    start = starting(probe, clock)
    await looking(clock, patience(LEASE) - 1, start)
    assert not start.done()
    await looking(clock, 2, start)

    new.session = await start
    await new.hello(node("n1"))

    with pytest.raises(Superseded):
        await old.beat(0)
    with pytest.raises(Superseded):
        await old.goodbye()
    assert await new.beat(0) is not None


async def test_of_two_that_take_a_name_at_once_one_is_refused(probe: Probe, clock: FakeClock):
    execution = Execution(probe, Told(), clock, None)  # type: ignore[arg-type]
    one, two = (LocalLink(execution, probe, Told()) for _ in range(2))  # type: ignore[arg-type]
    for link in (one, two):
        link.session = await starting(probe, clock)
    await one.hello(node("n1"))

    with pytest.raises(Superseded):
        await two.hello(node("n1"))

    assert await one.beat(0) is not None


@BOTH
async def test_a_late_word_of_an_earlier_life_keeps_nobody_from_starting(probe: Probe, clock: FakeClock):
    execution = Execution(probe, Told(), clock, None)  # type: ignore[arg-type]
    link = LocalLink(execution, probe, Told())  # type: ignore[arg-type]

    async def look() -> None:
        link.session = await find_session(probe, clock, "n1", lease_seconds=LEASE, is_dead=lambda _: True)  # type: ignore[arg-type]

    await look()
    await probe.register_node(node("n1"), session=0, line="earlier")  # sent before it died

    await join(look, lambda: link.hello(node("n1")))

    assert link.session == 2
    with pytest.raises(Superseded):
        await probe.register_node(node("n1"), session=1, line="earlier")


@BOTH
async def test_a_stranger_that_took_the_name_meanwhile_keeps_it(probe: Probe, clock: FakeClock):
    execution = Execution(probe, Told(), clock, None)  # type: ignore[arg-type]
    link = LocalLink(execution, probe, Told())  # type: ignore[arg-type]
    looks = []

    async def look() -> None:
        looks.append(starting(probe, clock))
        link.session = await looks[-1]

    await look()
    await probe.register_node(node("n1"), session=0, line="stranger")
    task = asyncio.create_task(join(look, lambda: link.hello(node("n1"))))
    async with asyncio.timeout(60):
        while len(looks) < 2:
            await asyncio.sleep(0)
    await looking(clock, LEASE / 2, looks[-1])
    await probe.beat("n1", 0)
    await looking(clock, 1, looks[-1])

    with pytest.raises(ConfigError) as refused:
        await task
    assert refused.value.code == "E_NODE_TAKEN"
