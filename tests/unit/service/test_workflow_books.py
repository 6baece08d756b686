"""What a server does itself beside an agent of the same node: neither takes the other's runs back; and who takes the
gate of a run that ended is begun at once. On both stores."""

from __future__ import annotations

import asyncio

import pytest

from horae.core.model import Run, State
from horae.core.runs.holdings import holding_of
from horae.core.runs.orders import Result
from horae.core.work import specs
from horae.core.work.kinds import WORKFLOW
from horae.core.work.waiting import WAIT
from horae.errors import Unavailable
from horae.service.workflows.waits import PlainWaits

from .parts import BOTH
from .test_workflows import Scene, task
from .test_workflows import scene as scene

pytestmark = BOTH


async def held_up(scene: Scene) -> Run:
    """A run that the server has claimed, and could not begin yet."""
    job = await scene.submit({"a": task("a")})
    run = await scene.jobs.run_now(job.id)
    scene.probe.lose_call("load_parents")
    with pytest.raises(Unavailable):
        await scene.driver.step()
    assert (await scene.run(run.id)).state is State.RUNNING
    return run


async def test_an_agent_leaves_alone_what_the_server_of_its_node_has_claimed(scene: Scene):
    run = await held_up(scene)

    answers = [await scene.link.beat(0, holding_of(())) for _ in range(3)]
    await scene.link.disown([])  # as an agent does whose own claim broke off

    assert not any(answer is None or answer.in_doubt or answer.differs for answer in answers)
    await scene.settle()
    assert await scene.states(run.id) == {"a": "queued"}
    assert (await scene.run(run.id)).lost == 0


async def test_what_an_agent_holds_is_counted_beside(scene: Scene):
    await held_up(scene)
    await scene.jobs.run_now((await scene.jobs.submit([specs.parse_job({"name": "b", "handler": "m:b"})])).jobs[0].id)
    [given] = await scene.link.claim({"python": 1})
    own = [(given.run_id, given.fence)]

    answer = await scene.link.beat(1, holding_of(own))

    assert answer is not None
    assert not answer.differs
    assert await scene.link.disown(own) == set()
    assert (await scene.run(given.run_id)).lost == 0


async def test_what_neither_knows_of_is_given_back(scene: Scene):
    held = await held_up(scene)
    job = await scene.submit({"a": task("a")}, key="other")
    run = await scene.jobs.run_now(job.id)
    assert len(await scene.link.claim({WORKFLOW: 10})) == 1  # and nobody hears of it

    answers = [await scene.link.beat(0, holding_of(())) for _ in range(2)]
    await scene.link.disown([])

    assert [answer is not None and answer.in_doubt for answer in answers] == [False, True]
    assert ((await scene.run(run.id)).lost, (await scene.run(held.id)).lost) == (1, 0)


async def test_what_a_claim_is_about_to_bring_is_not_given_back_meanwhile(scene: Scene):
    job = await scene.submit({"a": task("a")})
    run = await scene.jobs.run_now(job.id)
    disowning: list[asyncio.Task[object]] = []

    async def doubt(_: object) -> None:
        """The store has claimed, and the answer is on its way."""
        disowning.append(asyncio.create_task(scene.link.disown([])))
        await asyncio.sleep(0)

    scene.probe.after("claim_beside", doubt)
    await scene.settle()
    await disowning[0]

    assert await scene.states(run.id) == {"a": "queued"}
    assert (await scene.run(run.id)).lost == 0


# ── successors ──


async def successors(scene: Scene, **fields: object) -> tuple[Run, Run]:
    """A run that has begun, and one that waits for its end."""
    job = (await scene.jobs.submit([specs.parse_job({"name": "q", "overlap": "queue", **fields})])).jobs[0]
    first, second = await scene.jobs.run_now(job.id), await scene.jobs.run_now(job.id)
    assert (await scene.run(second.id)).state is State.BLOCKED
    return first, second


async def test_servers_are_told_of_the_successor_of_a_workflow_that_ended(scene: Scene):
    first, second = await successors(scene, tasks={"a": task("a")})
    await scene.settle()
    [given] = await scene.claim()
    await scene.execution.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])
    scene.queue.take()
    await scene.driver.step()

    assert (await scene.run(first.id)).state is State.SUCCEEDED
    assert (await scene.run(second.id)).state is State.QUEUED
    assert "endings" in scene.queue.take()


async def test_servers_are_told_of_the_successor_of_a_wait_that_ended(scene: Scene):
    first, second = await successors(scene, wait={"for": 0})
    [given] = await scene.link.claim({WAIT: 10})
    scene.queue.take()
    await scene.link.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])

    assert (await scene.run(first.id)).state is State.SUCCEEDED
    assert (await scene.run(second.id)).state is State.QUEUED
    assert "endings" in scene.queue.take()


async def test_servers_are_told_of_the_successor_of_a_wait_that_was_cancelled(scene: Scene):
    first, second = await successors(scene, wait={"for": 60})
    scene.queue.take()
    await scene.jobs.cancel(first.id)

    assert (await scene.run(second.id)).state is State.QUEUED
    assert "endings" in scene.queue.take()


async def test_servers_are_told_of_a_wait_whose_answer_came_while_it_was_begun(scene: Scene):
    job = (await scene.jobs.submit([specs.parse_job({"name": "q", "wait": {"signal": "go"}})])).jobs[0]
    run = await scene.jobs.run_now(job.id)
    claimed = await scene.link.claim({WAIT: 10})
    results = await PlainWaits(scene.probe).begin(claimed)
    await scene.jobs.signals.send(run.id, "go", "1", "ann")
    scene.queue.take()
    await scene.link.finish(results)

    assert (await scene.run(run.id)).state is State.QUEUED
    assert "endings" in scene.queue.take()


async def test_nobody_wakes_servers_for_the_successor_of_what_agents_do(scene: Scene):
    _, second = await successors(scene, handler="m:a")
    [given] = await scene.claim()
    scene.queue.take()
    await scene.execution.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])

    assert (await scene.run(second.id)).state is State.QUEUED
    assert "endings" not in scene.queue.take()
