"""What workflows ask of PostgreSQL: as many statements for a thousand tasks as for ten."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from horae.core.model import Node, State
from horae.core.runs.orders import Result
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import FakeClock

from ...counting import counted_store, take
from .parts import Probe, Told
from .test_workflows import Scene, task

FEW, MANY = 10, 1000


class CountedScene(Scene):
    sent: list[str]


@pytest.fixture
async def scene(
    postgres_url: str, queue: Told, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CountedScene]:
    async with counted_store(postgres_url, clock, monkeypatch) as (store, sent):
        probe = Probe(store)
        scene = CountedScene(probe, queue, Execution(probe, queue, clock, Metrics()), Jobs(probe, queue))
        scene.sent = sent
        await scene.link.hello(Node("s1", ("scheduler",), (), (), 0, "1", "", clock.now(), clock.now(), 0))
        yield scene


async def waiting(scene: CountedScene, count: int) -> int:
    """Return a workflow with so many tasks, none of which has begun."""
    run_id = await scene.begin({"each": task("each", for_each=list(range(count)))}, key=f"w{count}")
    assert (await scene.probe.tally_tasks(run_id)).counts == {"each": {"queued": count}}
    await take(scene.sent)
    return run_id


def lasting(sent: list[str]) -> list[str]:
    """Without looks at what is remembered for a second or so: a slow machine takes them where a fast one does not."""
    return [one for one in sent if "FROM queues ORDER BY name" not in one]


async def cancelled(scene: CountedScene, count: int) -> list[str]:
    """Return what is sent as such a workflow is cancelled."""
    run_id = await waiting(scene, count)
    await scene.jobs.cancel(run_id)
    await scene.settle()
    sent = await take(scene.sent)
    assert (await scene.run(run_id)).state is State.CANCELLED
    assert (await scene.probe.tally_tasks(run_id)).counts == {"each": {"cancelled": count}}
    return lasting(sent)


async def test_a_thousand_waiting_tasks_are_cancelled_in_as_many_statements_as_ten(scene: CountedScene):
    await cancelled(scene, 1)  # what is only met once does not count
    few, many = await cancelled(scene, FEW), await cancelled(scene, MANY)
    assert many == few, "the very same ones"


async def done(scene: CountedScene, count: int) -> list[str]:
    """Return what servers send as such a workflow begins, and as all its tasks have ended."""
    job = await scene.submit({"each": task("each", for_each=list(range(count)))}, key=f"w{count}")
    run = await scene.jobs.run_now(job.id)
    await take(scene.sent)
    await scene.settle()
    sent = await take(scene.sent)
    claimed = await scene.claim()
    await scene.execution.finish([Result(a.run_id, a.fence, State.SUCCEEDED) for a in claimed])
    await take(scene.sent)
    await scene.settle()
    assert (await scene.run(run.id)).state is State.SUCCEEDED
    return lasting(sent + await take(scene.sent))


async def test_a_thousand_tasks_are_made_and_seen_through_in_as_many_statements_as_ten(scene: CountedScene):
    await done(scene, 1)
    few, many = await done(scene, FEW), await done(scene, MANY)
    assert many == few
