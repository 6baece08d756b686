"""A run that comes alone starts as it is made, on an agent of the same process; and what may go wrong on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.core.definitions import Idempotency
from horae.core.model import State
from horae.errors import Unavailable
from horae.service.at_once import PAUSE, AtOnce
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.jobs.orders import RunRequest
from horae.testing import FakeClock

from .parts import Probe, Told
from .test_agent import Stage, stage

__all__ = ["stage"]
KEY = Idempotency("s", "k", "d")


@pytest.fixture
async def ready(stage: Stage, probe: Probe, clock: FakeClock, queue: Told) -> Stage:
    """An agent that knows of nothing that waits, with three slots; and a job."""
    await stage.order(0)
    await stage.agent.claim()
    stage.jobs.orders.start_at_once = AtOnce(stage.link.store, stage.agent, clock).start
    probe.calls.clear()
    queue.take()
    return stage


async def ask(stage: Stage, key: Idempotency | None = None) -> int:
    return (await stage.jobs.orders.place(RunRequest(1, idempotency=key))).id


async def test_it_runs_without_a_claim_and_without_calling_anybody(ready: Stage, probe: Probe, queue: Told):
    run = await ask(ready)

    assert list(ready.hands.works) == [run]
    assert await ready.states([run]) == [State.RUNNING]
    assert (probe.calls["enqueue_started"], probe.calls["claim_beside"], probe.calls["enqueue"]) == (1, 0, 0)
    assert "runs" not in queue.take()
    assert ready.agent.busy == 1
    assert ready.agent.capacity("python") == 2


async def test_it_is_counted_as_a_claim(ready: Stage, execution: Execution):
    await ask(ready)

    assert execution._metrics.claimed == 1


async def test_its_slot_is_free_again_when_it_has_ended(ready: Stage):
    run = await ask(ready)
    ready.hands.end(run)
    await ready.agent.delivery.report()

    assert ready.agent.capacity("python") == 3
    assert await ready.states([run]) == [State.SUCCEEDED]


async def test_without_a_free_slot_it_waits(ready: Stage, queue: Told):
    runs = [await ask(ready) for _ in range(4)]

    assert await ready.states(runs) == [State.RUNNING] * 3 + [State.QUEUED]
    assert "runs" in queue.take()


async def test_those_that_come_together_are_one_batch(ready: Stage, probe: Probe):
    await ask(ready)  # what its job is like is known now
    probe.calls.clear()
    await asyncio.gather(*(ask(ready) for _ in range(3)))

    assert (probe.calls["enqueue_started"], probe.calls["enqueue"]) == (0, 1)


@pytest.mark.parametrize("state", ["draining", "cordoned", "hungry", "in doubt", "claiming", "ill", "away"])
async def test_an_agent_that_may_not_take_it_leaves_it_to_a_claim(ready: Stage, probe: Probe, state: str):
    agent = ready.agent
    match state:
        case "draining":
            agent.draining = True
        case "cordoned":
            agent.leash.cordoned = True
        case "hungry":
            agent.workload.wake()
        case "in doubt":
            agent.leash.in_doubt = True
        case "claiming":
            agent.leash.claims = 1
        case "ill":
            agent.health.ailment = "its disk is full"
        case _:
            agent.leash.is_joined = False
    run = await ask(ready)

    assert await ready.states([run]) == [State.QUEUED]
    assert probe.calls["enqueue_started"] == 0


async def test_a_claim_meanwhile_does_not_count_on_its_slot(ready: Stage, probe: Probe):
    asked: list[Any] = []

    async def claim_now(*_: Any) -> None:
        ready.agent.workload.wake()
        await ready.agent.claim()
        asked.extend(args[0][0].room["python"] for name, args in probe.given if name == "claim_beside")

    probe.before("enqueue_started", claim_now)
    await ask(ready)

    assert asked[-1] == 2
    assert ready.agent.capacity("python") == 2


async def test_where_something_waits_it_is_enqueued_and_not_tried_again_for_a_while(
    ready: Stage, probe: Probe, clock: FakeClock
):
    other = Jobs(probe, Told())  # of another process, that has not told ours yet
    first = (await other.orders.place(RunRequest(1))).id
    second, third = await ask(ready), await ask(ready)

    assert await ready.states([first, second, third]) == [State.QUEUED] * 3
    assert probe.calls["enqueue_started"] == 1
    await ready.agent.claim()
    ready.agent.workload.wake()
    await ready.agent.claim()
    for run in list(ready.hands.works):
        ready.hands.end(run)
    await ready.agent.delivery.report()
    ready.agent.workload.wake()
    await ready.agent.claim()
    clock.advance(PAUSE)
    assert await ready.states([await ask(ready)]) == [State.RUNNING]


async def test_a_run_whose_answer_was_lost_is_given_back(ready: Stage, probe: Probe):
    """It is the agent's in the books, and the agent does not know of it."""
    probe.lose_answer("enqueue_started")
    with pytest.raises(Unavailable):
        await ask(ready)
    assert ready.agent.leash.in_doubt
    assert not ready.hands.works
    assert ready.agent.capacity("python") == 3

    await ready.agent.claim()  # in doubt, it agrees on what is its own first
    ready.agent.workload.wake()
    await ready.agent.claim()

    [run] = ready.hands.works
    assert (await ready.jobs.get_run(run)).attempt == 2


async def test_a_run_whose_answer_was_lost_is_known_by_its_key(ready: Stage, probe: Probe):
    probe.lose_answer("enqueue_started")
    run = await ask(ready, KEY)

    assert ready.agent.leash.in_doubt
    assert await ask(ready, KEY) == run


async def test_a_call_that_did_not_arrive_is_made_under_its_key(ready: Stage, probe: Probe):
    probe.lose_call("enqueue_started")
    run = await ask(ready, KEY)

    assert await ready.states([run]) == [State.QUEUED]


async def test_an_agent_that_was_given_up_meanwhile_does_not_start_it(ready: Stage, probe: Probe):
    async def give_up(_: Any) -> None:
        ready.agent.leash.life += 1

    probe.after("enqueue_started", give_up)
    run = await ask(ready)

    assert not ready.hands.works
    await ready.agent.delivery.report()
    assert await ready.states([run]) == [State.QUEUED]


async def test_agreeing_on_what_is_ours_waits_for_what_is_being_made(ready: Stage, probe: Probe):
    """Else a run that was made this moment would be taken back, and started all the same."""
    disowned: list[asyncio.Task[None]] = []

    async def disown(_: Any) -> None:
        disowned.append(asyncio.create_task(ready.agent.leash.clear_doubt()))
        await asyncio.sleep(0)

    probe.after("enqueue_started", disown)
    run = await ask(ready)
    await disowned[0]

    assert list(ready.hands.works) == [run]
    assert await ready.states([run]) == [State.RUNNING]
    assert not ready.hands.stops


async def test_what_demands_more_than_a_slot_keeps_the_slots(ready: Stage, probe: Probe, queue: Told):
    ready.jobs.orders._queue.announce("limits")
    run = await ask(ready)

    assert probe.calls["enqueue_started"] == 0
    assert await ready.states([run]) == [State.QUEUED]
