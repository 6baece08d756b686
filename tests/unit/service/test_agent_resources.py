"""What runs take of their agent: it never gives more than it offers, and has back what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import LOST_LIMIT, SECOND, Overlap, Policy, Reason, State
from horae.files import open_files
from horae.service.agent.agent import Agent
from horae.service.execution import REFUSED_WAIT, Execution, LocalLink
from horae.service.jobs import Jobs
from horae.testing import FakeClock

from .parts import Probe, Told, draft, node
from .test_agent import LEASE, Hands, Leash

GIB = 2**30
OFFERS = {"cpus": 4000, "memory": 8 * GIB, "gpu": 2}


class Stage:
    def __init__(self, agent: Agent, hands: Hands, link: Any, jobs: Jobs, queue: Told) -> None:
        self.agent, self.hands, self.link, self.jobs = agent, hands, link, jobs
        self._queue = queue

    def is_told(self) -> bool:
        """Whether runs were announced since the last time."""
        return "runs" in self._queue.take()

    async def order(self, count: int = 1, **resources: int) -> list[int]:
        policy = Policy(overlap=Overlap.ALLOW, resources=tuple(sorted(resources.items())))
        (job,) = (await self.jobs.submit([replace(draft(), policy=policy)])).jobs
        self.agent.workload.wake()
        return [(await self.jobs.run_now(job.id)).id for _ in range(count)]

    async def states(self, runs: Sequence[int]) -> list[State]:
        await self.agent.delivery.report()
        return [(await self.jobs.get_run(run)).state for run in runs]

    @property
    def free(self) -> dict[str, int]:
        return {**self.agent.workload.free_resources, "slots": self.agent.workload.free["python"]}


@pytest.fixture
async def stage(jobs: Jobs, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path) -> Stage:
    hands = Hands(clock)
    link = Probe(LocalLink(execution, probe, queue))  # type: ignore[arg-type]  # the wire can be watched
    agent = Agent(
        replace(node("n1"), resources=OFFERS), link, {"python": hands}, open_files(tmp_path / "output"), Leash(), clock,
        lease_seconds=LEASE, output_limit=1000,
    )  # fmt: skip
    await agent.join()
    return Stage(agent, hands, link, jobs, queue)


async def test_a_run_takes_what_it_asks_for_and_gives_it_back(stage: Stage) -> None:
    (run,) = await stage.order(slots=2, gpu=1, cpus=1500)

    assert await stage.agent.claim() == 1

    assert stage.free == {"cpus": 2500, "memory": 8 * GIB, "gpu": 1, "slots": 1}
    assert stage.agent.busy == 2
    stage.hands.end(run)
    assert stage.free == {**OFFERS, "slots": 3}
    assert stage.agent.busy == 0


async def test_a_claim_says_what_is_free(stage: Stage) -> None:
    await stage.order(gpu=1)
    await stage.agent.claim()
    await stage.order()
    await stage.agent.claim()
    asked = [args for name, args in stage.link.given if name == "claim"]
    assert asked == [({"python": 3}, OFFERS), ({"python": 2}, {**OFFERS, "gpu": 1})]


@pytest.mark.parametrize("asks", [{"gpu": 2}, {"slots": 2}, {"cpus": 2500}, {"memory": 5 * GIB}])
async def test_what_does_not_fit_waits_and_starts_when_there_is_room(stage: Stage, asks: dict[str, int]) -> None:
    first, second = await stage.order(2, **asks)

    assert await stage.agent.claim() == 1
    stage.is_told()

    assert all(amount >= 0 for amount in stage.free.values())
    assert await stage.states([first, second]) == [State.RUNNING, State.BLOCKED]
    assert (await stage.jobs.get_run(second)).reason == Reason.LIMIT
    stage.hands.end(first)
    assert await stage.states([first]) == [State.SUCCEEDED]
    assert stage.is_told()
    stage.agent.workload.wake()
    assert await stage.agent.claim() == 1
    assert await stage.states([second]) == [State.RUNNING]


async def test_what_no_agent_offers_waits(stage: Stage) -> None:
    runs = await stage.order(1, tape=1)
    assert await stage.agent.claim() == 0
    assert await stage.states(runs) == [State.BLOCKED]


async def test_what_the_whole_cluster_has_is_not_asked_of_an_agent(stage: Stage, probe: Probe) -> None:
    await probe.set_resource("tape", 1)
    first, second = await stage.order(2, tape=1)
    assert await stage.agent.claim() == 1
    assert await stage.states([first, second]) == [State.RUNNING, State.BLOCKED]


async def test_a_run_for_which_there_is_less_free_than_was_believed_is_handed_back_and_loses_no_attempt(
    stage: Stage, clock: FakeClock, probe: Probe
) -> None:
    """It was made before its job asked for anything."""
    (holder,) = await stage.order(gpu=2)
    await stage.agent.claim()
    (job,) = (await stage.jobs.submit([draft(overlap="allow")])).jobs
    run = (await stage.jobs.run_now(job.id)).id
    await stage.jobs.replace(job.id, draft(overlap="allow", resources={"gpu": 1}))

    for _ in range(LOST_LIMIT + 2):
        await stage.agent.leash.beat()
        stage.agent.workload.wake()
        assert await stage.agent.claim() == 0
        assert await stage.states([run]) == [State.BLOCKED]
        found = await stage.jobs.get_run(run)
        assert (found.attempt, found.lost) == (0, 0)
        assert found.message == "the agent n1 has less free than it asks for"
        assert await stage.jobs.list_attempts(run) == []
        clock.advance(REFUSED_WAIT / SECOND)
        await probe.store.sweep()

    stage.hands.end(holder)
    stage.agent.workload.wake()
    assert await stage.agent.claim() == 1
    assert stage.hands.works[run].assignment.attempt == 1


async def test_resources_that_come_free_are_worth_a_claim_only_where_somebody_waits_for_them(stage: Stage) -> None:
    (run,) = await stage.order(gpu=2)
    await stage.agent.claim()
    await stage.agent.claim()
    assert not stage.agent.is_hungry
    stage.is_told()

    stage.hands.end(run)

    assert await stage.states([run]) == [State.SUCCEEDED]
    assert not stage.agent.is_hungry
    assert not stage.is_told()


async def test_a_successor_holds_what_it_asks_for_while_it_waits(stage: Stage, execution: Execution) -> None:
    (run,) = await stage.order(gpu=1)
    stage.hands.obeys = False
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})
    stage.agent.workload.wake()
    await stage.agent.claim()

    assert stage.free["gpu"] == 0  # its own, and that of the copy which is being killed
    stage.hands.end(run, State.FAILED, Reason.ERROR)
    assert (stage.free["gpu"], stage.free["slots"]) == (1, 2)
    stage.hands.end(run)
    assert stage.free == {**OFFERS, "slots": 3}


async def test_what_is_disowned_gives_back_what_its_successor_took(stage: Stage, execution: Execution) -> None:
    (run,) = await stage.order(gpu=1)
    stage.hands.obeys = False
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})
    stage.agent.workload.wake()
    await stage.agent.claim()
    stage.agent.workload.drop_strangers([(run, 1), (run, 2)])
    stage.hands.end(run, State.FAILED, Reason.LOST)
    assert stage.free == {**OFFERS, "slots": 3}
