"""A job runs with the rights that its owner has when the run is made."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.identity import User
from horae.core.model import SECOND, Reason, Run, RunFilter, State
from horae.core.rights import Grant
from horae.core.roles import Role
from horae.core.work.specs import parse_job
from horae.errors import Conflict
from horae.service.jobs import Jobs
from horae.service.policy import barring, owners
from horae.service.policy.barring import REST, Barring
from tests.facades.explain.asking import act, finish, why_run
from tests.facades.world import BOTH, World

MINUTE = 60.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of owners is asked for at every look: that it is believed for a while has a test of its own."""
    monkeypatch.setattr(owners, "REFRESH", 0.0)


async def account(world: World, role: Role | None = Role.EDITOR, org: int = 1) -> int:
    user = await world.store.add_user(User(0, "ann", roles={} if role is None else {org: role}))
    assert user is not None
    return user.id


async def submitted(world: World, owner: str = "ann", **fields: object) -> int:
    given = {"name": "j", "steps": [{"run": "true"}], "schedule": "@every 1m", "overlap": "allow", **fields}
    document = parse_job({field: value for field, value in given.items() if value is not None})
    return (await world.jobs.submit([document], owner=owner)).jobs[0].id


async def next_minute(world: World, job: int) -> tuple[State, str]:
    """Return what became of the next moment of a job."""
    world.clock.advance(MINUTE)
    await world.fire()
    newest = (await world.jobs.list_runs(RunFilter(job_id=job))).items[0]
    return newest.state, newest.reason


@BOTH
async def test_moments_of_an_owner_that_was_disabled_are_skipped_and_say_why(world: World) -> None:
    ann, job, other = await account(world), await submitted(world), await submitted(world, "tom")
    assert await next_minute(world, job) == (State.QUEUED, "")
    await world.store.set_disabled(ann, 1)
    assert await next_minute(world, job) == (State.SKIPPED, Reason.OWNER)
    assert await next_minute(world, other) == (State.QUEUED, "")
    await world.store.set_disabled(ann, None)
    assert await next_minute(world, job) == (State.QUEUED, "")
    runs = (await world.jobs.list_runs(RunFilter(job_id=job))).items
    assert len(runs) == 4  # no moment is without its record
    skipped = next(run for run in runs if run.state is State.SKIPPED)
    told = (await world.http.get(f"/v1/explain/runs/{skipped.id}")).json()["sentences"][0]
    assert (told["code"], told["data"]["owner"]) == ("run.skipped.owner", "ann")


@BOTH
async def test_an_owner_that_may_only_look_runs_what_it_was_granted(world: World) -> None:
    ann, job, tagged = await account(world), await submitted(world), await submitted(world, tags=["t"])
    await world.store.put_member(1, ann, Role.VIEWER, 0)
    await world.store.put_grant(Grant(0, 1, "ann", Role.OPERATOR, tag="t"))
    assert await next_minute(world, job) == (State.SKIPPED, Reason.OWNER)
    assert await next_minute(world, tagged) == (State.QUEUED, "")


async def test_a_member_of_another_organisation_alone_runs_nothing_here(world: World) -> None:
    await account(world, Role.ADMIN, org=7)
    job = await submitted(world)
    assert await next_minute(world, job) == (State.SKIPPED, Reason.OWNER)


async def test_whoever_wants_such_a_job_to_run_is_told(world: World) -> None:
    ann, job, other = await account(world), await submitted(world), await submitted(world, "tom")
    await world.store.set_disabled(ann, 1)
    with pytest.raises(Conflict) as refused:
        await world.jobs.run_now(job)
    assert refused.value.code == "E_OWNER"
    many = {"runs": [{"job": job}, {"job": other}, {"job": job}]}
    answers = (await world.http.post("/v1/runs", json=many, headers={"idempotency-key": "1"})).json()["runs"]
    assert [each.get("code", each.get("state")) for each in answers] == ["E_OWNER", "queued", "E_OWNER"]
    alike = (await world.http.post("/v1/runs", json={"runs": [{"job": job}] * 3})).json()["runs"]
    assert [each["code"] for each in alike] == ["E_OWNER"] * 3


# ── runs that others make ──


async def disabled_while_running(world: World, ann: int, job: int) -> None:
    """Let a run of a job begin, take its owner's rights away, and end it."""
    await world.jobs.run_now(job)
    [claimed] = await world.claim("shell")
    await world.store.set_disabled(ann, 1)
    await finish(world, claimed)
    await act(world)


async def newest(world: World, job: int) -> Run:
    return (await world.jobs.list_runs(RunFilter(job_id=job))).items[0]


@BOTH
@pytest.mark.parametrize(
    "follows", [{"after": ["first"]}, {"triggers": [{"on": {"job": "first", "states": ["succeeded"]}}]}]
)
@pytest.mark.parametrize("debounce", [{}, {"debounce": {"seconds": 10}}])
async def test_what_comes_after_another_is_skipped_once_and_says_why(
    world: World, follows: dict[str, Any], debounce: dict[str, Any]
) -> None:
    ann, first = await account(world), await submitted(world, key="first", schedule=None)
    second = await submitted(world, schedule=None, **follows, **debounce)
    await disabled_while_running(world, ann, first)
    run = await newest(world, second)
    assert (run.state, run.reason) == (State.SKIPPED, Reason.OWNER)
    told = (await why_run(world, run)).first
    assert (told["code"], told["data"]["owner"]) == ("run.skipped.owner", "ann")
    await act(world)
    assert len((await world.jobs.list_runs(RunFilter(job_id=second))).items) == 1


@BOTH
async def test_a_workflow_goes_no_further_and_fails(world: World) -> None:
    ann = await account(world)
    tasks = {"a": {"steps": [{"run": "true"}]}, "b": {"needs": ["a"], "steps": [{"run": "true"}]}}
    document = parse_job({"name": "w", "tasks": tasks})
    flow = (await world.jobs.submit([document], owner="ann")).jobs[0].id
    parent = await world.jobs.run_now(flow)
    await act(world)
    [first] = await world.claim("shell")
    await world.store.set_disabled(ann, 1)
    await finish(world, first)
    for _ in range(3):
        await act(world)
    assert await world.claim("shell") == []
    ended = await world.jobs.get_run(parent.id)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.CHILDREN)
    children = (await world.jobs.list_runs(RunFilter(parent_id=parent.id))).items
    [barred] = [run for run in children if run.task == "b"]
    assert (barred.state, barred.reason) == (State.FAILED, Reason.OWNER)
    assert (await why_run(world, barred)).first["code"] == "run.failed.owner"


@BOTH
async def test_a_webhook_is_told_and_makes_no_run(world: World) -> None:
    ann, job = await account(world), await submitted(world, schedule=None, triggers=[{"webhook": {"format": "plain"}}])
    [trigger] = (await world.jobs.get(job)).triggers
    address = (await world.http.post(f"/v1/triggers/{trigger.id}/hook")).json()["hook"]
    await world.store.set_disabled(ann, 1)
    answer = await world.http.post(address, json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "E_OWNER")
    assert not (await world.jobs.list_runs(RunFilter(job_id=job))).items


# ── runs that wait already ──


async def end_barred(world: World) -> int:
    return await Barring(world.store, world.queue, world.clock).end()


@BOTH
async def test_what_waits_of_an_owner_that_was_disabled_ends_and_says_why(world: World) -> None:
    ann, job, other = await account(world), await submitted(world, schedule=None), await submitted(world, "tom")
    queued, foreign = await world.jobs.run_now(job), await world.jobs.run_now(other)
    later = await world.jobs.run_now(job, run_at=world.clock.now() + 60 * SECOND)
    assert await end_barred(world) == 0
    await world.store.set_disabled(ann, 1)
    assert await end_barred(world) == 2
    for run in (queued, later):
        ended = await world.jobs.get_run(run.id)
        assert (ended.state, ended.reason) == (State.SKIPPED, Reason.OWNER)
        told = (await why_run(world, run)).first
        assert (told["code"], told["data"]["owner"]) == ("run.skipped.owner", "ann")
        assert "while it waited" in told["text"]
    assert [claimed.run_id for claimed in await world.claim("shell")] == [foreign.id]
    assert await end_barred(world) == 0


@BOTH
async def test_what_runs_goes_on_and_its_successor_never_starts(world: World) -> None:
    ann, job = await account(world), await submitted(world, schedule=None, overlap="queue")
    running, successor = await world.jobs.run_now(job), await world.jobs.run_now(job)
    [claimed] = await world.claim("shell")
    await world.store.set_disabled(ann, 1)
    assert await end_barred(world) == 1
    assert (await world.jobs.get_run(successor.id)).state is State.SKIPPED
    await finish(world, claimed)
    assert (await world.jobs.get_run(running.id)).state is State.SUCCEEDED
    assert await world.claim("shell") == []


@BOTH
async def test_the_gate_of_a_run_that_ended_is_free_when_the_rights_are_back(world: World) -> None:
    ann, job = await account(world), await submitted(world, schedule=None, overlap="queue")
    for _ in range(2):
        await world.jobs.run_now(job)
    await world.store.set_disabled(ann, 1)
    assert await end_barred(world) == 2
    await world.store.set_disabled(ann, None)
    again = await world.jobs.run_now(job)
    assert [claimed.run_id for claimed in await world.claim("shell")] == [again.id]


@BOTH
async def test_what_waits_goes_on_where_a_role_or_a_grant_is_enough(world: World) -> None:
    ann = await account(world, Role("read+runs.start"))
    job, tagged = await submitted(world, schedule=None), await submitted(world, schedule=None, tags=["t"])
    runs = [await world.jobs.run_now(each) for each in (job, tagged)]
    assert await end_barred(world) == 0
    await world.store.put_grant(Grant(0, 1, "ann", Role.OPERATOR, tag="t"))
    await world.store.put_member(1, ann, Role.VIEWER, 0)
    assert await end_barred(world) == 1
    assert [(await world.jobs.get_run(run.id)).state for run in runs] == [State.SKIPPED, State.QUEUED]
    assert await world.store.drop_member(1, ann, unless_last=False)
    assert await end_barred(world) == 1


@BOTH
async def test_a_task_that_waits_fails_and_its_workflow_with_it(world: World) -> None:
    ann = await account(world)
    document = parse_job({"name": "w", "tasks": {"a": {"steps": [{"run": "true"}]}}})
    flow = (await world.jobs.submit([document], owner="ann")).jobs[0].id
    parent = await world.jobs.run_now(flow)
    await act(world)
    await world.store.set_disabled(ann, 1)
    assert await end_barred(world) == 1
    [task] = (await world.jobs.list_runs(RunFilter(parent_id=parent.id))).items
    assert (task.state, task.reason) == (State.FAILED, Reason.OWNER)
    assert (await why_run(world, task)).first["code"] == "run.failed.owner"
    for _ in range(3):
        await act(world)
    assert (await world.jobs.get_run(parent.id)).state is State.FAILED


async def test_very_many_end_a_batch_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barring, "RUNS_TOGETHER", 2)
    monkeypatch.setattr(barring, "JOBS_TOGETHER", 1)
    ann, jobs = await account(world), [await submitted(world, schedule=None) for _ in range(3)]
    for job in jobs:
        for _ in range(4):
            await world.jobs.run_now(job)
    await world.store.set_disabled(ann, 1)
    assert await end_barred(world) == 12
    assert await world.claim("shell") == []


async def test_the_leader_looks_every_few_seconds(world: World) -> None:
    ann, job = await account(world), await submitted(world, schedule=None)
    duty = Barring(world.store, world.queue, world.clock)
    await duty.tend()
    run = await world.jobs.run_now(job)
    await world.store.set_disabled(ann, 1)
    world.clock.advance(REST / 2)
    await duty.tend()
    assert (await world.jobs.get_run(run.id)).state is State.QUEUED
    world.clock.advance(REST / 2)
    await duty.tend()
    assert (await world.jobs.get_run(run.id)).state is State.SKIPPED


async def test_owners_are_asked_for_together_and_believed_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "REFRESH", 1e9)
    asked: list[list[str]] = []
    load = world.store.load_owners

    async def counting(names: list[str]) -> list[User]:
        asked.append(list(names))
        return await load(names)

    monkeypatch.setattr(world.store, "load_owners", counting)
    jobs = Jobs(world.store, world.queue)
    made = [await submitted(world, name) for name in ("ann", "tom", "ann")]
    asked.clear()
    for _ in range(3):
        for job in made:
            await jobs.run_now(job)
    assert len(asked) <= 2  # each owner once, however many runs
