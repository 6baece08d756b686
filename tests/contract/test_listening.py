"""Triggers that listen to the ends of other jobs' runs, rule by rule, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from horae.core.model import Reason, Run, State
from horae.core.runs.endings import RUN, Ending
from horae.core.runs.following import Follow
from horae.core.runs.orders import Result
from horae.core.time.moments import format_moment
from horae.core.work.specs import parse_jobs, parse_trigger
from horae.errors import Invalid
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.policy.placing import Placing
from horae.service.workflows.dependencies import Dependencies
from horae.stores.postgres import PostgresStore
from horae.testing import FakeClock

from .test_dependencies import World


@pytest.fixture
async def world(store: Store, clock: FakeClock) -> World:
    return World(store, clock)


def on(job: int | str, *states: str, **fields: Any) -> dict[str, Any]:
    return {"on": {"job": job, "states": list(states)}, **fields}


async def listen(world: World, *triggers: dict[str, Any], **fields: Any) -> int:
    """A job `extract`, and a job `alarm` with these triggers."""
    await world.job("extract", every=None)
    return await world.job("alarm", every=None, triggers=list(triggers), **fields)


async def fail(world: World, state: State = State.FAILED, result: str | None = None) -> Run:
    run = await world.run_now("extract")
    await world.end("extract", state, result)
    found = await world.store.get_run(run.id)
    assert found is not None
    return found


# ── what fires ──


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED])
async def test_only_the_states_that_are_named_fire(world: World, state: State):
    await listen(world, on("extract", "failed", "timed_out"))
    await fail(world, state)
    assert len(await world.runs("alarm")) == (state in (State.FAILED, State.TIMED_OUT))


async def test_its_run_is_due_now_by_its_trigger_and_is_told_what_has_ended(world: World):
    alarm = await listen(world, on("extract", "failed", data={"to": "ann"}))
    ended = await fail(world, result='{"rows":7}')
    run = await world.run("alarm")
    [trigger] = (await world.jobs.get(alarm)).triggers
    assert (run.state, run.trigger_id, run.due_at) == (State.QUEUED, trigger.id, world.clock.now())
    assert run.data == {
        "to": "ann",
        "event": {
            "job": "extract", "run": ended.id, "state": "failed", "reason": ended.reason, "message": ended.message,
            "result": {"rows": 7}, "due_at": format_moment(ended.due_at),
        },
    }  # fmt: skip


async def test_the_data_of_the_job_stays_where_the_trigger_has_none(world: World):
    await listen(world, on("extract", "failed"), data={"own": 1})
    await fail(world)
    data = (await world.run("alarm")).data
    assert data is not None
    assert (data["own"], data["event"]["state"]) == (1, "failed")


async def test_a_result_that_is_too_large_is_left_out_and_it_says_so(world: World):
    await listen(world, on("extract", "succeeded"))
    await fail(world, State.SUCCEEDED, json.dumps("x" * 300_000))
    data = (await world.run("alarm")).data
    assert data is not None
    assert data["event"]["result"] is None
    assert "too large" in data["event"]["left_out"]


async def test_a_skipped_run_fires_who_listens_for_that(world: World):
    await listen(world, on("extract", "skipped"))
    await world.run_now("extract")
    await world.run_now("extract")  # it is skipped: one is live
    await world.act()
    assert len(await world.runs("alarm")) == 1


async def test_every_trigger_fires_for_itself_and_each_end_once(world: World):
    await listen(world, on("extract", "failed", "succeeded"), on("extract", "failed"), overlap="allow")
    await fail(world)
    await fail(world, State.SUCCEEDED)
    runs = await world.runs("alarm")
    assert [run.data["event"]["state"] for run in runs if run.data] == ["failed", "failed", "succeeded"]
    assert len({run.trigger_id for run in runs[:2]}) == 2


@pytest.mark.parametrize("what", ["paused", "disabled", "deleted"])
async def test_who_is_paused_disabled_or_deleted_is_not_fired(world: World, what: str):
    alarm = await listen(world, on("extract", "failed", enabled=what != "disabled"))
    if what == "paused":
        await world.jobs.set_paused(alarm, True)
    elif what == "deleted":
        await world.jobs.delete(alarm)
    await fail(world)
    assert await world.runs("alarm") == []


async def test_a_run_under_way_when_the_trigger_came_fires_it(world: World):
    await world.job("extract", every=None)
    await world.run_now("extract")
    await world.start()
    await world.job("alarm", every=None, triggers=[on("extract", "failed")])
    await world.end("extract", State.FAILED)
    assert len(await world.runs("alarm")) == 1


async def test_the_overlap_of_its_job_holds(world: World):
    await listen(world, on("extract", "failed"), overlap="forbid")
    await fail(world)
    await fail(world)
    assert [run.state for run in await world.runs("alarm")] == [State.RUNNING, State.SKIPPED]


async def test_many_ends_are_one_run_of_a_debounced_job(world: World):
    await listen(world, on("extract", "failed"), debounce={"seconds": 10})
    await fail(world)
    last = await fail(world)
    run = await world.run("alarm")
    assert (run.state, run.reason) == (State.BLOCKED, Reason.DEBOUNCE)
    assert run.data is not None
    assert run.data["event"]["run"] == last.id


async def test_a_chain_of_events_goes_to_its_end(world: World):
    await listen(world, on("extract", "failed"))
    await world.job("escalate", every=None, triggers=[on("alarm", "failed")])
    await fail(world)
    await world.end("alarm", State.FAILED)
    assert (await world.run("escalate")).state is State.QUEUED


# ── once ──


async def test_a_row_that_comes_twice_makes_one_run(world: World):
    await listen(world, on("extract", "failed"), overlap="allow")
    ended = await fail(world)
    follow = await world.dependencies._concerned(
        [Ending(1, RUN, ended.id, ended.job_id, None, ended.due_at, ended.state, None, None)]
    )
    [birth] = follow.births
    await world.store.follow(Follow([1], [birth]))  # there is no such row any more
    again = await world.store.enqueue([birth.order])
    assert again[0].replayed
    assert len(await world.runs("alarm")) == 1


async def test_two_who_act_on_the_same_ends_make_one_run_of_each(world: World, postgres_url: str, clock: FakeClock):
    await listen(world, on("extract", "failed"), overlap="allow")
    other = PostgresStore(postgres_url, clock=clock.now)
    await other.open()
    store = other if isinstance(world.store, PostgresStore) else world.store
    second = Dependencies(store, LocalQueue(), Placing(store, LocalQueue()))
    try:
        for _ in range(5):
            await world.run_now("extract")
            await world.start()
            given = world.held.pop(world.ids["extract"])
            await world.store.finish([Result(given.run_id, given.fence, State.FAILED, finished_at=clock.now())])
            rows = await world.store.load_endings(0, 100)
            await asyncio.gather(world.dependencies.act(rows), second.act(rows))
            await world.act()
        runs = await world.runs("alarm")
        assert len({run.data["event"]["run"] for run in runs if run.data}) == len(runs) == 5
    finally:
        await other.close()


# ── as it is written ──


async def test_who_is_listened_to_knows_it_until_nobody_listens(world: World):
    alarm = await listen(world, on("extract", "failed"))
    extract = world.ids["extract"]
    assert (await world.jobs.get(extract)).followed
    assert [job.id for job in await world.jobs.following.followers_of(await world.jobs.get(extract))] == [alarm]
    [trigger] = (await world.jobs.get(alarm)).triggers
    await world.jobs.triggers.delete(trigger.id)
    await fail(world)
    assert not (await world.jobs.get(extract)).followed


async def test_jobs_that_come_together_may_listen_to_each_other_and_the_same_again_changes_nothing(world: World):
    document = {"jobs": [
        {"name": "b", "key": "b", "handler": "a:b", "triggers": [on("a", "failed")]},
        {"name": "a", "key": "a", "handler": "a:b"},
    ]}  # fmt: skip
    made = (await world.jobs.submit(parse_jobs(document))).jobs
    b, a = [await world.jobs.get(job.id) for job in made]
    assert b.triggers[0].schedule == {"on": {"job": "a", "states": ["failed"], "id": a.id}}
    assert a.followed
    again = (await world.jobs.submit(parse_jobs(document))).jobs
    assert [job.version for job in again] == [b.version, a.version]
    assert [t.id for t in again[0].triggers] == [t.id for t in b.triggers]


async def test_a_trigger_that_is_added_or_changed_later_listens_too(world: World):
    await world.job("extract", every=None)
    alarm = await world.job("alarm", every=None)
    trigger = await world.jobs.triggers.add(alarm, parse_trigger(on("extract", "succeeded")))
    await world.jobs.triggers.replace(trigger.id, parse_trigger(on(world.ids["extract"], "failed")))
    await fail(world)
    assert (await world.run("alarm")).trigger_id == trigger.id


async def test_a_job_that_is_not_there_is_refused_at_its_path(world: World):
    with pytest.raises(Invalid) as raised:
        await world.job("alarm", every=None, triggers=[{"every": "1h"}, on("extrakt", "failed")])
    [problem] = raised.value.listed()
    assert (problem.path, problem.code) == ("triggers[1].on.job", "E_NOT_FOUND")
    alarm = await world.job("alarm", every=None)
    with pytest.raises(Invalid) as raised:
        await world.jobs.triggers.add(alarm, parse_trigger(on(99, "failed")))
    assert raised.value.code == "E_NOT_FOUND"


async def test_a_circle_is_refused_also_one_of_itself_and_one_through_after(world: World):
    alarm = await listen(world, on("extract", "failed"))
    with pytest.raises(Invalid) as raised:
        await world.job("extract", every=None, after=["alarm"])
    assert raised.value.code == "E_CYCLE"
    assert "extract after alarm after extract" in raised.value.message
    with pytest.raises(Invalid) as raised:
        await world.job("x", every=None, triggers=[on("x", "failed")])
    assert raised.value.code == "E_CYCLE"
    with pytest.raises(Invalid) as raised:
        await world.jobs.triggers.add(alarm, parse_trigger(on(alarm, "failed")))
    assert raised.value.code == "E_CYCLE"
