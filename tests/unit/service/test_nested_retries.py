"""A retry of a workflow whose tasks are workflows: these go on from where they failed, too. On both stores."""

from __future__ import annotations

from typing import Any

from horae.core.model import Json, Run, State
from horae.service.jobs.orders import ANYBODY

from .parts import BOTH
from .test_workflows import Scene, broken, task
from .test_workflows import scene as scene

pytestmark = BOTH

INNER: Json = {
    "fetch": task("fetch"),
    "load": task("load", needs=["fetch"], data={"v": "${fetch.result}"}),
}  # fmt: skip


async def retry(scene: Scene, run_id: int, **acts: Any) -> Run:
    scene.ran.clear()
    again = await scene.jobs.workflows.retry(run_id, ANYBODY)
    await scene.settle()
    await scene.work(acts)
    return await scene.run(again.id)


async def test_what_succeeded_within_a_sub_workflow_is_not_done_again(scene: Scene):
    nested = {"tasks": INNER, "returns": "${load.result}"}
    run_id = await scene.begin({"first": task("first"), "sub": {"needs": ["first"], **nested}}, returns="${sub.result}")
    await scene.work({"fetch": lambda _: 5, "load": broken})
    assert (await scene.run(run_id)).state is State.FAILED

    run = await retry(scene, run_id, load=lambda data: data["v"] + 1)

    assert scene.ran == ["load"]
    assert (run.state, run.result) == (State.SUCCEEDED, 6)


async def test_so_it_goes_on_however_deep_and_however_often(scene: Scene):
    deep = {"tasks": {"before": task("before"), "inner": {"needs": ["before"], "tasks": INNER}}}
    run_id = await scene.begin({"sub": deep})
    await scene.work({"load": broken})
    run = await retry(scene, run_id, load=broken)
    assert scene.ran == ["load"]

    run = await retry(scene, run.id)

    assert scene.ran == ["load"]
    assert run.state is State.SUCCEEDED


async def test_a_job_of_its_own_that_is_a_workflow_goes_on_too_and_of_a_fan_out_each_item(scene: Scene):
    await scene.submit(INNER, key="inner")
    run_id = await scene.begin({"each": {"for_each": [0, 1], "job": "inner", "data": {"x": "${item}"}}}, key="outer")
    await scene.work({"load": broken})

    run = await retry(scene, run_id)

    assert scene.ran == ["load", "load"]
    assert run.state is State.SUCCEEDED


async def test_one_that_is_given_something_else_begins_anew(scene: Scene):
    sub = {"needs": [{"task": "first", "on": "end"}], "tasks": INNER, "data": {"was": "${first.state}"}}
    run_id = await scene.begin({"first": task("first"), "sub": sub})
    await scene.work({"first": broken, "load": broken})

    run = await retry(scene, run_id)

    assert scene.ran == ["first", "fetch", "load"]
    assert run.state is State.SUCCEEDED


async def test_one_whose_job_was_made_anew_begins_anew(scene: Scene):
    inner = await scene.submit(INNER, key="inner")
    run_id = await scene.begin({"sub": {"job": "inner"}}, key="outer")
    await scene.work({"load": broken})
    await scene.jobs.delete(inner.id)
    await scene.submit(INNER, key="inner")

    run = await retry(scene, run_id)

    assert scene.ran == ["fetch", "load"]
    assert run.state is State.SUCCEEDED


async def test_who_died_while_it_began_takes_over_the_same(scene: Scene):
    run_id = await scene.begin({"sub": {"tasks": INNER}})
    await scene.work({"load": broken})
    scene.ran.clear()
    again = await scene.jobs.workflows.retry(run_id, ANYBODY)
    await scene.driver.step()
    [sub] = (await scene.tasks(again.id)).values()
    claimed = await scene.link.claim({"workflow": 10})
    assert [a.run_id for a in claimed] == [sub.id]
    await scene.execution.take_back("s1", {a.run_id: a.fence for a in claimed})

    await scene.settle()
    await scene.work()

    assert scene.ran == ["load"]
    assert (await scene.run(again.id)).state is State.SUCCEEDED
