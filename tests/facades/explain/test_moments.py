"""Why a job or a trigger has a run for a moment, or none, and when it goes next: a test per situation."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import SECOND, Job, State
from horae.core.time.moments import format_moment, parse_moment
from tests.facades.explain.asking import runs_of, why_job, why_run, why_trigger
from tests.facades.world import BOTH, World
from tests.unit.service.parts import node

# The clock of the tests begins at 2027-01-15T08:00:00Z.
EVERY_HOUR: dict[str, Any] = {"schedule": "@every 1h"}
BERLIN = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}


async def _triggered(world: World, *triggers: Any) -> Job:
    return await world.submit(triggers=list(triggers))


def _go_to(world: World, moment: str) -> None:
    world.clock.advance((parse_moment(moment) - world.clock.now()) / SECOND)


# ── why it does not fire ──
@BOTH
async def test_a_trigger_that_is_switched_off_says_so(world: World) -> None:
    job = await _triggered(world, {"cron": "0 * * * *", "enabled": False})
    answer = await why_trigger(world, job.triggers[0].id)
    assert (answer.codes[0], answer.first["policy"]) == ("trigger.disabled", "enabled: false")
    assert (await why_job(world, job.id, "2027-01-15T10:00:00Z")).codes == ["trigger.disabled"]


@BOTH
async def test_a_job_paused_by_a_person_names_the_person(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    _, token = await world.services.access.create("ann", "user", "ann", None)
    world.clock.advance(5)
    await world.http.post(f"/v1/jobs/{job.id}/pause", headers={"authorization": f"Bearer {token}"})
    answer = await why_job(world, job.id)
    assert answer.codes[0] == "job.paused"
    assert answer.first["data"] == {"by": "ann", "at": format_moment(world.clock.now())}
    assert (answer.first["unblock"], answer.body["next_at"]) == (f"horae resume {job.id}", None)


async def test_who_paused_a_job_is_forgotten_when_it_goes_on(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    await world.http.post(f"/v1/jobs/{job.id}/pause")
    await world.http.post(f"/v1/jobs/{job.id}/resume")
    assert (await world.jobs.get(job.id)).annotations == {}
    assert "job.paused" not in (await why_job(world, job.id)).codes


@BOTH
async def test_a_job_that_paused_itself_says_after_how_many_failures(world: World) -> None:
    job = await world.submit(pause_after_failures=1, **EVERY_HOUR)
    work = await world.start_run(job.id)
    await work.end(State.FAILED, exit_code=1)
    answer = await why_job(world, job.id)
    assert (answer.codes[0], answer.first["policy"]) == ("job.paused.breaker", "pause_after_failures: 1")
    assert answer.first["data"]["because"] == "its last run failed"


@BOTH
async def test_a_deleted_job_says_when(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    world.clock.advance(5)
    await world.http.delete(f"/v1/jobs/{job.id}")
    answer = await why_job(world, job.id)
    assert (answer.codes[0], answer.first["data"]["at"]) == ("job.deleted", format_moment(world.clock.now()))


@BOTH
async def test_a_trigger_that_is_over_names_its_last_moment(world: World) -> None:
    job = await _triggered(world, {"at": "2027-01-15T09:00:00Z"})
    _go_to(world, "2027-01-15T09:00:00Z")
    await world.fire()
    answer = await why_trigger(world, job.triggers[0].id)
    assert answer.codes[0] == "trigger.over"
    assert "its last moment was 2027-01-15T09:00:00Z" in answer.first["text"]


async def test_a_webhook_has_no_moments(world: World) -> None:
    job = await _triggered(world, {"webhook": {}})
    assert (await why_trigger(world, job.triggers[0].id)).codes[0] == "trigger.outside"
    assert (await why_job(world, job.id, "2027-01-15T10:00:00Z")).codes == ["trigger.outside"]


async def test_a_job_without_a_trigger_says_what_would_run_it(world: World) -> None:
    job = await world.submit()
    answer = await why_job(world, job.id)
    assert (answer.codes[0], answer.first["unblock"]) == ("job.no_trigger", f"horae run {job.id}")


async def test_a_job_that_comes_after_others_names_them(world: World) -> None:
    await world.submit(key="extract")
    job = await world.submit(key="load", after=["extract"])
    answer = await why_job(world, job.id)
    assert (answer.codes[0], answer.first["data"]["after"]) == ("job.follows", ["extract"])


@BOTH
async def test_a_moment_that_nobody_fires_says_that_no_scheduler_owns_its_segment(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    world.clock.advance(3600 + 60)
    answer = await why_job(world, job.id)
    assert answer.codes[:2] == ["trigger.overdue", "segment.unowned"]
    assert (answer.first["data"]["seconds"], answer.first["data"]["segment"]) == (60, job.segment)
    at = await why_job(world, job.id, "2027-01-15T09:00:00Z")
    assert at.codes == ["moment.pending"]


@BOTH
async def test_a_moment_that_its_owner_does_not_fire_names_the_owner(world: World) -> None:
    await world.store.register_node(node("s1", roles=("scheduler",), heartbeat_at=world.clock.now()))
    lease = await world.store.take_lease("leader", "s1", None)
    assert lease is not None
    job = await world.submit(**EVERY_HOUR)
    await world.store.assign_segments({job.segment: "s1"}, lease)
    world.clock.advance(3600 + 60)
    answer = await why_job(world, job.id)
    assert answer.codes[0] == "trigger.overdue"
    assert answer.first["data"]["owner"] == "s1"
    assert "last heard of at 2027-01-15T08:00:00Z" in answer.first["text"]


# ── moments ──
@BOTH
async def test_when_it_goes_next_is_said_in_its_own_zone_too(world: World) -> None:
    job = await _triggered(world, BERLIN)
    answer = await why_job(world, job.id)
    assert (answer.codes[0], answer.body["next_at"]) == ("trigger.next", "2027-01-16T01:30:00Z")
    assert answer.first["data"]["local"] == "2027-01-16T02:30:00+01:00"


@BOTH
async def test_a_moment_that_is_still_to_come_says_so(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    assert (await why_job(world, job.id, "2027-01-15T10:00:00Z")).codes == ["moment.not_yet"]


@BOTH
async def test_a_moment_that_the_schedule_has_not_names_its_neighbours(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    world.clock.advance(7200)
    answer = await why_job(world, job.id, "2027-01-15T09:30:00Z")
    assert answer.codes == ["moment.none"]
    assert (answer.first["data"]["before"], answer.first["data"]["after"]) == (
        "2027-01-15T09:00:00Z",
        "2027-01-15T10:00:00Z",
    )


async def test_neighbours_are_found_however_far_they_are(world: World) -> None:
    job = await world.submit(schedule="0 0 29 2 *")
    _go_to(world, "2030-01-01T00:00:00Z")
    answer = await why_job(world, job.id, "2029-12-01T00:00:00Z")
    assert (answer.first["data"]["before"], answer.first["data"]["after"]) == (
        "2028-02-29T00:00:00Z",
        "2032-02-29T00:00:00Z",
    )


@BOTH
async def test_a_moment_before_the_trigger_was_made_says_so(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    answer = await why_job(world, job.id, "2027-01-15T07:00:00Z")
    assert (answer.codes, answer.first["unblock"]) == (["moment.before_creation"], f"horae run {job.id}")


async def test_a_moment_outside_start_and_end_names_the_line(world: World) -> None:
    job = await _triggered(
        world, {"cron": "0 * * * *", "start_at": "2027-02-01T00:00:00Z", "end_at": "2027-03-01T00:00:00Z"}
    )
    early = await why_job(world, job.id, "2027-01-20T00:00:00Z")
    late = await why_job(world, job.id, "2027-03-02T00:00:00Z")
    assert (early.codes, early.first["policy"]) == (["moment.before_start"], "start_at: 2027-02-01T00:00:00Z")
    assert (late.codes, late.first["policy"]) == (["moment.after_end"], "end_at: 2027-03-01T00:00:00Z")


@pytest.mark.parametrize(("gap", "then"), [("run_after", "runs at 03:00"), ("skip", "is left out")])
async def test_a_time_that_does_not_exist_says_what_becomes_of_it(world: World, gap: str, then: str) -> None:
    job = await _triggered(world, {**BERLIN, "dst": {"gap": gap}})
    answer = await why_job(world, job.id, "2027-03-28T02:30")
    assert answer.codes[0] == "moment.gap"
    assert then in answer.first["text"]
    assert answer.first["policy"] == f"dst: {{gap: {gap}}}"


async def test_a_time_that_exists_twice_names_both_moments(world: World) -> None:
    job = await _triggered(world, BERLIN)
    answer = await why_job(world, job.id, "2027-10-31T02:30")
    assert answer.codes[0] == "moment.fold"
    assert (answer.first["data"]["first_at"], answer.first["data"]["second_at"]) == (
        "2027-10-31T00:30:00Z",
        "2027-10-31T01:30:00Z",
    )
    assert answer.first["policy"] == "dst: {fold: first}"


@BOTH
async def test_a_run_moved_by_daylight_saving_time_says_how(world: World) -> None:
    job = await _triggered(world, BERLIN)
    _go_to(world, "2027-03-28T01:00:00Z")
    await world.fire()
    run = next(one for one in await runs_of(world, job.id) if one["state"] == "queued")
    answer = await why_run(world, run["id"])
    assert answer.get("moment.moved")["data"]["note"] == "gap: 02:30 does not exist, runs at 03:00"


async def test_a_spread_moment_says_by_what(world: World) -> None:
    job = await _triggered(world, {"cron": "0 * * * *", "jitter": "10m"})
    answer = await why_job(world, job.id, "2027-01-15T10:00:00Z")
    assert answer.codes == ["moment.none", "moment.spread"]


async def test_a_delay_has_no_fixed_moments(world: World) -> None:
    job = await _triggered(world, {"every": "1h", "mode": "delay"})
    answer = await why_job(world, job.id, "2027-01-15T10:00:00Z")
    assert (answer.codes, answer.first["policy"]) == (["moment.delay"], "mode: delay")


@BOTH
async def test_a_moment_that_passed_while_the_job_was_paused_says_that_it_was_changed_since(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    await world.http.post(f"/v1/jobs/{job.id}/pause")
    _go_to(world, "2027-01-15T09:30:00Z")
    paused = await why_job(world, job.id, "2027-01-15T09:00:00Z")
    assert paused.codes == ["job.paused"]
    await world.http.post(f"/v1/jobs/{job.id}/resume")
    resumed = await why_job(world, job.id, "2027-01-15T09:00:00Z")
    assert (resumed.codes, resumed.first["data"]["changed_at"]) == (["moment.changed"], "2027-01-15T09:30:00Z")
    assert resumed.first["data"]["changes"][0]["by"] == "local"
    assert "local changed the job at 2027-01-15T09:30:00Z" in resumed.first["text"]
    assert resumed.first["text"].endswith("before, it was paused")


@BOTH
async def test_a_schedule_that_was_changed_since_is_told_as_it_was_and_by_whom(world: World) -> None:
    document = {"name": "job", "key": "k", "steps": [{"run": "true"}]}
    job_id = (await world.submit(key="k", schedule="0 12 * * *")).id
    _go_to(world, "2027-01-15T10:00:00Z")
    await world.http.put(f"/v1/jobs/{job_id}", json={**document, "schedule": "@every 1h"})
    _go_to(world, "2027-01-15T10:30:00Z")
    await world.http.put(f"/v1/jobs/{job_id}", json={**document, "schedule": "0 9 * * *"})
    answer = await why_job(world, job_id, "2027-01-15T09:00:00Z")
    assert answer.codes == ["moment.before_creation", "moment.changed"]
    changed = answer.get("moment.changed")
    first, second = changed["data"]["changes"]
    assert [(one["at"], one["by"]) for one in (first, second)] == [
        ("2027-01-15T10:00:00Z", "local"), ("2027-01-15T10:30:00Z", "local"),
    ]  # fmt: skip
    assert (len(first["before"]), second["before"]) == (1, ["every 1h"])
    assert f"before, it was {first['before'][0]}, and 1 change came after that" in changed["text"]


# ── records ──
@BOTH
async def test_a_moment_with_a_record_is_explained_by_it(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    _go_to(world, "2027-01-15T09:00:00Z")
    await world.fire()
    [run] = await world.work("shell", State.FAILED, "it broke")
    _go_to(world, "2027-01-15T11:30:00Z")
    await world.fire()
    answer = await why_job(world, job.id, "2027-01-15T09:00:00Z")
    assert (answer.body["run_id"], answer.codes[0]) == (run.id, "run.failed.other")
    assert answer.first["data"]["run_id"] == run.id
    missed = await why_trigger(world, job.triggers[0].id, "2027-01-15T10:00:00Z")
    assert missed.codes[0] == "run.coalesced"


@BOTH
async def test_the_record_of_a_moment_is_found_among_very_many(world: World) -> None:
    job = await world.submit(schedule="@every 1m", overlap="allow")
    for _ in range(300):
        world.clock.advance(60)
        await world.fire()
    while await world.work("shell"):
        pass
    for minute in (1, 17, 150, 299):
        at = format_moment(parse_moment("2027-01-15T08:00:00Z") + minute * 60 * SECOND)
        answer = await why_job(world, job.id, at)
        assert answer.codes[0] == "run.succeeded"
        assert f"due {at}" in answer.first["text"]


@BOTH
async def test_a_job_with_nothing_to_do_tells_how_its_last_run_ended(world: World) -> None:
    job = await world.submit(**EVERY_HOUR)
    work = await world.start_run(job.id)
    await work.end(State.FAILED, reason="exit", exit_code=3, message="step 1 ended with exit code 3")
    answer = await why_job(world, job.id)
    assert answer.codes[:2] == ["trigger.next", "run.failed.exit"]
    assert answer.codes[-1] == "job.idle"
    own = [one["text"] for one in answer.body["sentences"] if one["data"].get("run_id") == work.run_id]
    assert own[0].startswith(f"run {work.run_id}, due ")
    assert len(own) > 1
    assert all(text.startswith(f"run {work.run_id}: ") for text in own[1:]), "when it was due is said once"
