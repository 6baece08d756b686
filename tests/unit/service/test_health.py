"""A machine that is short of something: its agent takes nothing new, says why, and comes back by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from horae.core.model import Reason, State
from horae.core.runs.orders import Result
from horae.errors import Unavailable
from horae.files import open_files
from horae.service.agent.agent import Agent
from horae.service.agent.health import FIRST_PAUSE, LONGEST_PAUSE, Health
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.testing import START, FakeClock

from .parts import Probe, Told, node
from .test_agent import LEASE, Hands, Leash, Stage

FULL = "/work: No space left on device"


class Machine:
    """Is examined, and says what the test wants."""

    def __init__(self) -> None:
        self.ailment = FULL
        self.looks: list[float] = []
        self.clock: FakeClock | None = None

    async def examine(self) -> str:
        assert self.clock is not None
        self.looks.append(self.clock.elapsed())
        return self.ailment


@pytest.fixture
def machine(clock: FakeClock) -> Machine:
    machine = Machine()
    machine.clock = clock
    return machine


@pytest.fixture
async def stage(
    jobs: Jobs, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, machine: Machine, tmp_path: Path
) -> Stage:
    hands, leash = Hands(clock), Leash()
    link = Probe(LocalLink(execution, probe, queue))  # type: ignore[arg-type]
    agent = Agent(
        node("n1"), link, {"python": hands}, open_files(tmp_path / "output"), leash, clock, lease_seconds=LEASE,
        output_limit=1000, examine=machine.examine,
    )  # fmt: skip
    await agent.join()
    return Stage(agent, hands, leash, link, jobs)


def fall_ill(stage: Stage, run: int) -> None:
    """An attempt that could not be made because of the machine."""
    work = stage.hands.works.pop(run)
    stage.hands._done.pop(run)(
        Result(run, work.assignment.fence, State.FAILED, Reason.LOST, START, START, message=FULL, ailment=FULL)
    )


async def test_an_attempt_that_failed_by_the_machine_is_repeated_and_no_more_are_taken(stage: Stage):
    (run,) = await stage.order(1)
    await stage.agent.claim()
    fall_ill(stage, run)
    assert await stage.agent.delivery.report() == 1
    others = await stage.order(5)
    stage.agent.workload.wake()

    assert await stage.agent.claim() == 0

    assert await stage.states([run, *others]) == [State.QUEUED] * 6
    assert stage.agent.capacity("python") == 0


async def test_what_ails_a_node_is_listed_until_it_is_well(
    stage: Stage, probe: Probe, clock: FakeClock, machine: Machine
):
    (run,) = await stage.order(1)
    await stage.agent.claim()
    fall_ill(stage, run)
    assert stage.agent.health.changed.is_set()
    await stage.agent.delivery.send_ailment()
    assert [one.ailment for one in await probe.list_nodes()] == [FULL]

    machine.ailment = ""
    recovering = asyncio.create_task(stage.agent.health.recover())
    await asyncio.sleep(0)
    clock.advance(FIRST_PAUSE)
    await recovering
    await stage.agent.delivery.send_ailment()

    assert [one.ailment for one in await probe.list_nodes()] == [""]
    assert await stage.agent.delivery.report() == 1
    assert await stage.agent.claim() == 1


async def test_a_word_on_its_health_that_was_lost_is_repeated(stage: Stage, probe: Probe):
    stage.agent.health.note(FULL)
    stage.link.lose_call("note_ailment")
    with pytest.raises(Unavailable):
        await stage.agent.delivery.send_ailment()
    assert stage.agent.health.changed.is_set()


async def test_a_node_that_joins_anew_says_again_what_ails_it(stage: Stage, probe: Probe):
    stage.agent.health.note(FULL)
    await stage.agent.delivery.send_ailment()
    await stage.agent.leash.greet()
    assert [one.ailment for one in await probe.list_nodes()] == [""]
    assert stage.agent.health.changed.is_set()


async def look_until(machine: Machine, clock: FakeClock, count: int) -> list[float]:
    """Return the times of the next looks at a machine, from now on."""
    begin = clock.elapsed()
    while len(machine.looks) < count:
        before = len(machine.looks)
        while len(machine.looks) == before:
            clock.advance(0.5)
            for _ in range(10):
                await asyncio.sleep(0)
    return [look - begin for look in machine.looks]


async def test_a_machine_is_looked_at_with_growing_pauses(clock: FakeClock, machine: Machine):
    health = Health(clock, machine.examine, lambda: None)
    health.note(FULL)
    recovering = asyncio.create_task(health.recover())
    await asyncio.sleep(0)
    assert await look_until(machine, clock, 8) == pytest.approx([1, 3, 7, 15, 31, 63, 123, 183], abs=0.6)
    recovering.cancel()


async def test_a_machine_that_falls_ill_again_at_once_waits_longer(clock: FakeClock, machine: Machine):
    machine.ailment = ""
    health = Health(clock, machine.examine, lambda: None)
    pauses = []
    for wait in (0.0, 1.0, 1.0, LONGEST_PAUSE + 1):
        clock.advance(wait)
        health.note(FULL)
        recovering, begin = asyncio.create_task(health.recover()), clock.elapsed()
        await asyncio.sleep(0)
        while not recovering.done():
            clock.advance(0.5)
            for _ in range(10):
                await asyncio.sleep(0)
        pauses.append(round(clock.elapsed() - begin))
    assert pauses == [1, 2, 4, 1]
