"""A job runs with the rights that its owner has when the run is made."""

from __future__ import annotations

import pytest

from horae.core.identity import User
from horae.core.model import Reason, RunFilter, State
from horae.core.rights import Grant
from horae.core.roles import Role
from horae.core.work.specs import parse_job
from horae.errors import Conflict
from horae.service.jobs import Jobs
from horae.service.policy import owners
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
    document = parse_job(
        {"name": "j", "steps": [{"run": "true"}], "schedule": "@every 1m", "overlap": "allow", **fields}
    )
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
    await world.store.put_member(1, ann, Role.VIEWER)
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
