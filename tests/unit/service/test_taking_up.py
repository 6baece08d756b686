"""An agent that comes after another one: what of its work it goes on with, and what it must not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from horae.core.model import Reason, State
from horae.core.runs.orders import Assignment
from horae.files import open_files
from horae.ports.work import Done, Exit, Kept, Memo, Work
from horae.service.agent.agent import Agent
from horae.service.agent.leash import TRUSTED_SHARE
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.testing import FakeClock

from .parts import Probe, Told, node
from .test_agent import LEASE, Hands, Leash, Stage


class LastingHands(Hands):
    """One whose works outlive their agent."""

    def expect(self, kept: Sequence[Kept]) -> None:
        self.expected = [one.name for one in kept]

    def take_up(self, work: Work, kept: Kept, memo: Memo, done: Done) -> None:
        self.start([work], done)

    def lasting(self) -> set[int]:
        return set(self.works)

    async def leave(self) -> None:
        self.works.clear()


class Remains:
    """A process of an earlier life."""

    pid = 1

    def __init__(self) -> None:
        self.kills = 0

    async def wait(self) -> Exit:
        return Exit(-9)

    async def kill(self, grace: float = 5.0) -> Exit:
        self.kills += 1
        return await self.wait()


Next = Callable[..., Any]


@pytest.fixture
def come(jobs: Jobs, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path) -> Next:
    """An agent that finds these attempts kept, prepared and not joined; `session` is that of the life before."""

    async def come(kept: Sequence[Kept] = (), kind: str = "python") -> Stage:
        hands, leash = LastingHands(clock, kind), Leash(keeps=True, kept=list(kept))
        inner = LocalLink(execution, probe, queue)  # type: ignore[arg-type]
        known = await probe.get_node("n1")
        inner.session = known.session if known else 0
        link = Probe(inner)  # type: ignore[arg-type]
        agent = Agent(
            node("n1"), link, {kind: hands}, open_files(tmp_path / "output"), leash, clock, lease_seconds=LEASE,
            output_limit=1000,
        )  # fmt: skip
        await agent.prepare()
        return Stage(agent, hands, leash, link, jobs)

    return come


async def begun(come: Next, count: int = 1) -> tuple[list[int], list[Kept]]:
    """Runs of an agent that has died since, and what its keeper has of them."""
    stage = await come()
    await stage.agent.leash.greet()
    runs = await stage.order(count)
    await stage.agent.claim()
    works = [stage.hands.works[run] for run in runs]
    return runs, [kept_of(work.assignment) for work in works]


def kept_of(assignment: Assignment) -> Kept:
    memo = msgspec.json.encode(Memo(assignment, 0.0, "{}")).decode()
    ends = (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY))
    return Kept(f"{assignment.run_id}-{assignment.fence}", memo, Remains(), *ends)


async def test_what_was_kept_goes_on_under_its_fence_and_is_finished_once(come: Next, probe: Probe) -> None:
    (run,), kept = await begun(come)
    stage = await come(kept)
    assert stage.leash.renewals == []  # nobody has been asked yet

    await stage.agent.leash.greet()
    stage.hands.end(run)
    await stage.agent.delivery.report()

    found = await stage.jobs.get_run(run)
    assert (found.state, found.attempt, found.fence) == (State.SUCCEEDED, 1, 1)
    assert stage.leash.renewals == [pytest.approx(LEASE * TRUSTED_SHARE)]
    assert stage.leash.released == [f"{run}-1"]


async def test_what_was_not_kept_is_taken_back_when_the_next_agent_joins(come: Next) -> None:
    (one, other), kept = await begun(come, 2)
    stage = await come(kept[:1])

    await stage.agent.leash.greet()

    assert await stage.states([one, other]) == [State.RUNNING, State.QUEUED]


async def test_a_node_that_was_declared_gone_takes_nothing_up(come: Next, probe: Probe) -> None:
    (run,), kept = await begun(come)
    stage = await come(kept)
    await probe.retire_node("n1", "gone")

    await stage.agent.leash.greet()

    assert stage.hands.stops == [(run, Reason.LOST)]
    assert stage.agent.busy == 0
    await stage.agent.delivery.report()
    assert await stage.states([run]) == [State.QUEUED]


async def test_a_run_that_is_not_ours_in_the_books_is_killed_before_the_lease_is_renewed(
    come: Next, execution: Execution
) -> None:
    (run,), kept = await begun(come)
    stage = await come(kept)
    await execution.take_back("n1", {run: 1})
    renewed: list[int] = []
    stage.hands.stop = lambda *_: renewed.append(len(stage.leash.renewals))  # type: ignore[method-assign]

    await stage.agent.leash.greet()

    assert renewed == [0]


async def test_an_answer_that_comes_too_late_to_trust_ends_what_was_taken_up(come: Next, clock: FakeClock) -> None:
    """In so long a time somebody may have declared us gone, and take back what we held whenever he goes on."""
    (run,), kept = await begun(come)
    stage = await come(kept)
    hello = stage.link.store.hello

    async def slow(*given: Any) -> Any:
        answer = await hello(*given)
        if stage.agent.busy:
            clock.advance(LEASE)
        return answer

    stage.link.store.hello = slow
    await stage.agent.leash.greet()

    assert stage.hands.stops == [(run, Reason.LOST)]
    assert len(stage.leash.renewals) == 1


async def test_work_that_nobody_here_can_go_on_with_is_dead_before_the_agent_joins(come: Next) -> None:
    (run,), kept = await begun(come)
    stage = await come(kept, kind="shell")
    process = kept[0].process

    assert isinstance(process, Remains)
    assert (process.kills, stage.leash.released, stage.agent.busy) == (1, [f"{run}-1"], 0)
    await stage.agent.leash.greet()
    assert await stage.states([run]) == [State.QUEUED]


async def test_an_agent_that_is_replaced_leaves_what_lasts_and_says_no_goodbye(come: Next, probe: Probe) -> None:
    stage = await come()
    await stage.agent.leash.greet()
    runs = await stage.order(1)
    await stage.agent.claim()

    assert await stage.agent.hand_on(0.0)
    await stage.agent.leave()

    assert await stage.states(runs) == [State.RUNNING]
    assert [n.state for n in await probe.list_nodes()] == ["live"]
    assert stage.hands.stops == []


async def test_an_agent_that_is_replaced_with_nothing_in_hand_says_goodbye(come: Next, probe: Probe) -> None:
    stage = await come()
    await stage.agent.leash.greet()

    assert not await stage.agent.hand_on(0.0)
    await stage.agent.leave()

    assert [n.state for n in await probe.list_nodes()] == ["gone"]
