"""What people do with jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.core.definitions import Idempotency
from horae.core.model import SECOND, JobFilter, State
from horae.core.runs.orders import NEVER, Order, Result
from horae.core.runs.segments import segment_of
from horae.errors import Conflict, Invalid, NotFound, Stale, Unavailable
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.jobs.changes import Submitted
from horae.testing import START, FakeClock

from ...claiming import claim
from .parts import (
    ALL_SEGMENTS,
    BOTH,
    Probe,
    Told,
    draft,
    fire_due,
    ledger,
    live_until,
    only,
    scheduler,
    submitted,
    trigger_draft,
    words,
)

MINUTE = 60 * SECOND
KEY = Idempotency("local POST /v1/jobs", "abc", "d1")


async def claimed(store: Any, node: str = "n1") -> Any:
    (assignment,) = await claim(store, node, "python", [], 1)
    return assignment


async def finish(store: Any, assignment: Any, state: State = State.SUCCEEDED) -> None:
    result = Result(assignment.run_id, assignment.fence, state, finished_at=await store.now())
    assert (await store.finish([result])).accepted == {assignment.run_id}


# ── submit ──


@BOTH
async def test_a_submitted_job_gets_ids_a_segment_and_its_first_moment(jobs: Jobs, queue: Told):
    job = await submitted(jobs, schedule="1m", data={"a": 1})

    assert job.segment == segment_of(job.id)
    assert (job.version, job.created_at, job.updated_at, job.owner) == (1, START, START, "local")
    assert only(job).next_at == START + MINUTE
    assert await jobs.get(job.id) == job
    assert (await submitted(jobs, segment=42)).segment == 42


async def test_only_a_moment_that_comes_soon_is_announced(jobs: Jobs, queue: Told):
    await submitted(jobs, schedule="1h")
    assert queue.take() == []
    await submitted(jobs, schedule="5s")
    assert queue.take() == ["due"]


async def test_a_paused_draft_is_born_without_a_moment(jobs: Jobs):
    job = await submitted(jobs, schedule="1m", paused=True)

    assert job.paused
    assert only(job).next_at is None


async def test_a_draft_to_run_once_on_a_schedule_has_one_moment(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, key="k", schedule="0 * * * *", run_once=True)
    again = await submitted(jobs, key="k", schedule="0 * * * *", run_once=True)
    assert again == job

    await live_until(firing, probe.store, clock, START + 180 * MINUTE)

    assert [run.due_at for run in await ledger(probe, job.id)] == [START]
    assert (await submitted(jobs, key="k", schedule="0 * * * *", run_once=True)).version == 1


@BOTH
async def test_a_draft_whose_key_exists_replaces_that_job(jobs: Jobs):
    first = await submitted(jobs, key="nightly", schedule="1h")
    second = await submitted(jobs, "renamed", key="nightly", schedule="2h")

    assert (second.id, second.version, second.name) == (first.id, 2, "renamed")
    assert only(second).next_at == START + 120 * MINUTE
    assert len((await jobs.list(JobFilter())).items) == 1


async def test_the_same_draft_again_changes_nothing(jobs: Jobs, probe: Probe):
    first = await submitted(jobs, key="nightly", schedule="1h", annotations={"a": 1}, retry=3)
    again = await submitted(jobs, key="nightly", schedule="1h", annotations={"a": 1}, retry=3)

    assert again == first
    assert probe.calls["save_job"] == 0


async def test_an_unchanged_trigger_keeps_its_id_and_its_moment(jobs: Jobs, clock: FakeClock):
    first = await submitted(jobs, key="k", triggers=[{"every": "1h"}, {"every": "2h"}])
    clock.advance(600)
    second = await submitted(jobs, key="k", triggers=[{"every": "2h"}, {"every": "3h"}])

    assert second.triggers[0].id == first.triggers[1].id
    assert second.triggers[0].next_at == first.triggers[1].next_at
    assert second.triggers[1].id not in [t.id for t in first.triggers]
    assert second.triggers[1].next_at == START + 600 * SECOND + 180 * MINUTE


@BOTH
async def test_concurrent_submits_share_a_few_store_calls(jobs: Jobs, probe: Probe):
    answers = await asyncio.gather(*(jobs.submit([draft(f"job {i}", schedule="1h")]) for i in range(300)))

    assert len({answer.jobs[0].id for answer in answers}) == 300
    assert [answer.jobs[0].name for answer in answers] == [f"job {i}" for i in range(300)]
    assert probe.calls["submit"] <= 2
    assert probe.calls["allocate"] <= 2


@BOTH
async def test_concurrent_submits_of_one_key_make_one_job(jobs: Jobs):
    answers = await asyncio.gather(*(jobs.submit([draft(f"job {i}", key="k", schedule="1h")]) for i in range(6)))

    assert len({answer.jobs[0].id for answer in answers}) == 1
    (job,) = (await jobs.list(JobFilter())).items
    assert job.version == 6


async def test_a_request_of_several_jobs_is_done_when_one_of_them_exists(jobs: Jobs):
    old = await submitted(jobs, "old", key="a", schedule="1h")

    answer = await jobs.submit([draft("new", key="b"), draft("changed", key="a", schedule="1h"), draft("third")])

    assert [job.name for job in answer.jobs] == ["new", "changed", "third"]
    assert answer.jobs[1].id == old.id


# ── idempotency ──


async def test_a_repeated_request_gets_the_first_answer(jobs: Jobs):
    first = await jobs.submit([draft(schedule="1h")], idempotency=KEY)
    again = await jobs.submit([draft(schedule="1h")], idempotency=KEY)

    assert (first.replayed, again.replayed) == (False, True)
    assert again.jobs == first.jobs
    assert len((await jobs.list(JobFilter())).items) == 1


@BOTH
async def test_many_repeats_at_once_act_once(jobs: Jobs):
    answers = await asyncio.gather(*(jobs.submit([draft(schedule="1h")], idempotency=KEY) for _ in range(8)))

    assert len({answer.jobs[0].id for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1


async def test_a_key_used_for_another_request_is_refused(jobs: Jobs):
    await jobs.submit([draft()], idempotency=KEY)

    with pytest.raises(Conflict) as caught:
        await jobs.submit([draft("other")], idempotency=Idempotency(KEY.scope, KEY.key, "d2"))
    assert caught.value.code == "E_IDEMPOTENCY_MISMATCH"


@BOTH
async def test_a_repeated_upsert_of_several_jobs_makes_none_twice(jobs: Jobs):
    await submitted(jobs, "old", key="a")
    drafts = [draft("nameless"), draft("changed", key="a")]

    first = await jobs.submit(drafts, idempotency=KEY)
    again = await jobs.submit(drafts, idempotency=KEY)

    assert [job.id for job in again.jobs] == [job.id for job in first.jobs]
    assert len((await jobs.list(JobFilter())).items) == 2


@BOTH
@pytest.mark.parametrize("names", [["first"], ["first", "other"]])
async def test_an_upsert_whose_answer_was_lost_is_not_done_again(jobs: Jobs, probe: Probe, names: list[str]):
    await submitted(jobs, "old", key="first")
    drafts = [draft(name, key=name) for name in names]
    probe.lose_answer("save_job" if len(names) == 1 else "save_jobs")
    with pytest.raises(Unavailable):
        await jobs.submit(drafts, idempotency=KEY)
    later = await submitted(jobs, "later", key="first")

    again = await jobs.submit(drafts, idempotency=KEY)

    assert again.jobs[0] == later
    assert [job.name for job in again.jobs[1:]] == names[1:]


@BOTH
async def test_an_upsert_that_changes_nothing_is_remembered_too(jobs: Jobs):
    job = await submitted(jobs, "same", key="a", schedule="1h")
    first = await jobs.submit([draft("same", key="a", schedule="1h")], idempotency=KEY)
    later = await submitted(jobs, "later", key="a", schedule="1h")

    again = await jobs.submit([draft("same", key="a", schedule="1h")], idempotency=KEY)

    assert first == Submitted([job])
    assert again == Submitted([later], replayed=True)


@BOTH
async def test_many_upserts_are_a_handful_of_calls_and_only_what_changes_is_written(jobs: Jobs, probe: Probe):
    first = (await jobs.submit([draft(f"n{n}", key=f"k{n}", schedule="1h") for n in range(100)])).jobs
    changed = [draft(f"n{n}" if n % 2 else f"new {n}", key=f"k{n}", schedule="1h") for n in range(100)]
    changed.append(draft("one more", key="more"))
    probe.calls.clear()

    done = await jobs.submit(changed, idempotency=KEY)

    assert [job.name for job in done.jobs] == [each.name for each in changed]
    assert [job.id for job in done.jobs[:100]] == [job.id for job in first]
    assert {job.version for job in done.jobs[0:100:2]} == {2}
    assert done.jobs[1:100:2] == first[1::2]
    assert await jobs.get_many([job.id for job in done.jobs]) == done.jobs
    assert sum(probe.calls.values()) < 15, probe.calls
    assert (await jobs.submit(changed, idempotency=KEY)).replayed


@BOTH
async def test_many_upserts_go_on_past_one_that_fires_meanwhile(
    jobs: Jobs, probe: Probe, firing: Firing, clock: FakeClock
):
    await jobs.submit([draft(f"n{n}", key=f"k{n}", schedule="1m") for n in range(3)])
    clock.advance(59)

    async def fire_meanwhile(*_: object) -> None:
        await live_until(firing, probe.store, clock, START + MINUTE)

    probe.before("save_jobs", fire_meanwhile)
    done = await jobs.submit([draft(f"new {n}", key=f"k{n}", schedule="1m") for n in range(3)])

    assert [(job.name, only(job).next_at, only(job).last_at) for job in done.jobs] == [
        (f"new {n}", START + 2 * MINUTE, START + MINUTE) for n in range(3)
    ]
    assert [job.name for job in await jobs.get_many([job.id for job in done.jobs])] == ["new 0", "new 1", "new 2"]


@BOTH
async def test_a_plan_says_what_a_submit_would_do_and_does_nothing(jobs: Jobs):
    job = await submitted(jobs, "same", key="a", schedule="1h")
    await submitted(jobs, "old", key="b")
    drafts = [
        draft("same", key="a", schedule="1h"),
        draft("new", key="b", schedule="2h"),
        draft("c", key="c"),
        draft("d"),
    ]

    planned = await jobs.plan(drafts)

    assert [(each.draft.name, each.outcome) for each in planned] == [
        ("same", "unchanged"), ("new", "changed"), ("c", "created"), ("d", "created"),
    ]  # fmt: skip
    assert planned[0].job_id == job.id
    assert len((await jobs.list(JobFilter())).items) == 2


@BOTH
async def test_many_repeats_of_an_upsert_at_once_act_once(jobs: Jobs):
    old = await submitted(jobs, "old", key="a", schedule="1h")

    answers = await asyncio.gather(
        *(jobs.submit([draft("new", key="a", schedule="1h")], idempotency=KEY) for _ in range(6))
    )

    assert {(answer.jobs[0].id, answer.jobs[0].version) for answer in answers} == {(old.id, 2)}
    assert [answer.replayed for answer in answers].count(False) == 1


@BOTH
async def test_a_repeated_upsert_does_not_undo_what_came_after_it(jobs: Jobs):
    await submitted(jobs, "old", key="a")
    await jobs.submit([draft("first", key="a")], idempotency=KEY)
    await submitted(jobs, "second", key="a")

    again = await jobs.submit([draft("first", key="a")], idempotency=KEY)

    assert again.replayed
    assert again.jobs[0].name == "second"
    with pytest.raises(Conflict) as caught:
        await jobs.submit([draft("third", key="a")], idempotency=Idempotency(KEY.scope, KEY.key, "d2"))
    assert caught.value.code == "E_IDEMPOTENCY_MISMATCH"


# ── read ──


async def test_what_is_not_there_is_not_found(jobs: Jobs):
    for call in (jobs.get, jobs.triggers.get, jobs.get_run, jobs.delete, jobs.run_now, jobs.cancel, jobs.triggers.list):
        with pytest.raises(NotFound):
            await call(4711)  # type: ignore[operator]


# ── replace ──


async def test_a_replace_of_an_old_version_is_refused_and_changes_nothing(jobs: Jobs):
    job = await submitted(jobs, schedule="1h")
    await jobs.replace(job.id, draft("second", schedule="1h"), expected_version=1)

    with pytest.raises(Stale) as caught:
        await jobs.replace(job.id, draft("third", schedule="1h"), expected_version=1)

    assert caught.value.code == "E_VERSION_CONFLICT"
    assert (await jobs.get(job.id)).name == "second"


async def test_an_edit_keeps_a_moment_that_is_due(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="1m")
    clock.advance(61)

    await jobs.replace(job.id, draft("renamed", schedule="1m"))
    await fire_due(firing)

    assert [run.due_at for run in await ledger(probe, job.id)] == [START + MINUTE]


@BOTH
async def test_a_replace_with_new_triggers_survives_a_race_with_firing(jobs: Jobs, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="1m", overlap="allow")
    clock.advance(60)

    async def fire_meanwhile(*_: Any) -> None:
        await fire_due(scheduler(probe.store, clock))

    probe.before("save_job", fire_meanwhile)
    changed = await jobs.replace(job.id, draft(triggers=[{"every": "1m"}, {"every": "7m"}, {"every": "9m"}]))

    assert [t.schedule for t in changed.triggers] == [{"every": "1m"}, {"every": "7m"}, {"every": "9m"}]
    assert len({t.id for t in changed.triggers}) == 3
    assert changed.triggers[0].last_at == START + MINUTE
    assert [run.due_at for run in await ledger(probe, job.id)] == [START + MINUTE]


@BOTH
async def test_two_jobs_cannot_take_one_key_however_they_race(jobs: Jobs, probe: Probe):
    one, two = await submitted(jobs, "one"), await submitted(jobs, "two")

    answers = await asyncio.gather(
        *(jobs.replace(job.id, draft(job.name, key="k")) for job in (one, two)), return_exceptions=True
    )

    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(refused) == 1
    assert isinstance(refused[0], Conflict)
    assert refused[0].code == "E_KEY_TAKEN"
    with pytest.raises(Conflict):
        await jobs.replace(one.id if answers[0] is refused[0] else two.id, draft(key="k"))


# ── pause and resume ──


async def test_moments_that_pass_while_paused_are_not_made_up_for(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", overlap="allow")
    await live_until(firing, probe.store, clock, START + 2 * MINUTE)
    paused = await jobs.set_paused(job.id, True)
    assert only(paused).next_at is None
    await live_until(firing, probe.store, clock, START + 5 * MINUTE + SECOND)

    resumed = await jobs.set_paused(job.id, False)

    assert only(resumed).next_at == START + 6 * MINUTE
    await live_until(firing, probe.store, clock, START + 7 * MINUTE)
    assert [(run.due_at - START) // MINUTE for run in await ledger(probe, job.id)] == [1, 2, 6, 7]


async def test_pausing_twice_changes_nothing(jobs: Jobs):
    job = await submitted(jobs, schedule="1m")
    paused = await jobs.set_paused(job.id, True)

    assert await jobs.set_paused(job.id, True) == paused
    assert paused.version == 2


async def test_a_once_that_has_fired_does_not_fire_again_after_a_pause(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, run_once=True)
    await fire_due(firing)
    await jobs.set_paused(job.id, True)
    resumed = await jobs.set_paused(job.id, False)

    assert only(resumed).next_at is None
    clock.advance(3600)
    await fire_due(firing)
    assert len(await ledger(probe, job.id)) == 1


# ── moments that are due when their trigger changes ──

CHANGES = {
    "pause": lambda jobs, job: jobs.set_paused(job.id, True),
    "disable": lambda jobs, job: jobs.triggers.patch(only(job).id, enabled=False),
    "drop": lambda jobs, job: jobs.triggers.delete(only(job).id),
    "reschedule": lambda jobs, job: jobs.replace(job.id, draft(schedule="7h", overlap="allow")),
    "move": lambda jobs, job: jobs.triggers.patch(only(job).id, next_at=START + 60 * MINUTE),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_moment_that_was_due_before_a_change_is_accounted_for(
    change: str, jobs: Jobs, probe: Probe, clock: FakeClock, queue: Told
):
    job = await submitted(jobs, schedule="1m", overlap="allow")
    clock.advance(3 * 60 + 1)  # nobody fired meanwhile
    queue.take()

    await CHANGES[change](jobs, job)

    runs = await ledger(probe, job.id)
    assert words(runs) == [
        (START + MINUTE, "coalesced", "misfire"),
        (START + 2 * MINUTE, "coalesced", "misfire"),
        (START + 3 * MINUTE, "queued", ""),
    ]
    assert {run.into_run_id for run in runs[:2]} == {runs[2].id}
    assert "runs" in queue.take()
    await fire_due(scheduler(probe.store, clock))
    assert len(await ledger(probe, job.id)) == 3


async def test_a_moment_that_was_due_before_the_delete_ends_with_the_job(jobs: Jobs, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="1m", misfire="run_all", overlap="allow")
    clock.advance(2 * 60 + 1)

    await jobs.delete(job.id)

    assert words(await ledger(probe, job.id)) == [
        (START + MINUTE, "cancelled", "deleted"),
        (START + 2 * MINUTE, "cancelled", "deleted"),
    ]


@BOTH
async def test_more_missed_moments_than_one_statement_takes_are_all_accounted_for_by_a_pause(
    jobs: Jobs, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s")
    clock.advance(4500)

    await jobs.set_paused(job.id, True)

    runs = await ledger(probe, job.id)
    assert [run.due_at for run in runs] == [START + i * SECOND for i in range(1, 4501)]
    assert {run.into_run_id for run in runs[:-1]} == {runs[-1].id}
    assert runs[-1].state is State.QUEUED


# ── triggers ──


async def test_a_moved_moment_fires_once_and_the_schedule_goes_on(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1h", overlap="allow")
    await live_until(firing, probe.store, clock, START + 60 * MINUTE)

    moved = await jobs.triggers.patch(only(job).id, next_at=START + 61 * MINUTE)

    assert moved.next_at == START + 61 * MINUTE
    await live_until(firing, probe.store, clock, START + 180 * MINUTE)
    assert [(run.due_at - START) // MINUTE for run in await ledger(probe, job.id)] == [60, 61, 120, 180]


async def test_a_moment_moved_far_ahead_leaves_out_what_lies_between(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1h", overlap="allow")
    await jobs.triggers.patch(only(job).id, next_at=START + 150 * MINUTE)

    await live_until(firing, probe.store, clock, START + 180 * MINUTE)

    assert [(run.due_at - START) // MINUTE for run in await ledger(probe, job.id)] == [150, 180]


@pytest.mark.parametrize("minutes", [60, 59])
async def test_a_moment_never_moves_to_or_before_the_last_fired(
    minutes: int, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1h")
    await live_until(firing, probe.store, clock, START + 60 * MINUTE)

    with pytest.raises(Invalid) as caught:
        await jobs.triggers.patch(only(job).id, next_at=START + minutes * MINUTE)
    assert caught.value.path == "next_at"


async def test_a_new_schedule_after_the_clock_went_back_begins_after_the_last_fired(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1h")
    await live_until(firing, probe.store, clock, START + 60 * MINUTE)
    clock.advance(-1800)

    changed = await jobs.triggers.replace(only(job).id, trigger_draft(cron="*/10 * * * *"))

    assert changed.next_at == START + 70 * MINUTE


async def test_what_does_not_fire_cannot_be_moved(jobs: Jobs):
    job = await submitted(jobs, schedule="1h")
    await jobs.triggers.patch(only(job).id, enabled=False)
    with pytest.raises(Conflict):
        await jobs.triggers.patch(only(job).id, next_at=START + MINUTE)
    await jobs.triggers.patch(only(job).id, enabled=True)
    await jobs.set_paused(job.id, True)

    with pytest.raises(Conflict) as caught:
        await jobs.triggers.patch(only(job).id, next_at=START + MINUTE)
    assert caught.value.code == "E_PAUSED"


async def test_a_disabled_trigger_rests_and_goes_on_with_its_next_moment(jobs: Jobs, clock: FakeClock):
    job = await submitted(jobs, triggers=[{"every": "1h"}, {"every": "2h"}])
    off = await jobs.triggers.patch(job.triggers[0].id, enabled=False)
    assert off.next_at is None
    clock.advance(90 * 60)

    on = await jobs.triggers.patch(job.triggers[0].id, enabled=True)

    assert on.next_at == START + 120 * MINUTE
    assert (await jobs.get(job.id)).triggers[1].next_at == START + 120 * MINUTE


async def test_data_can_be_changed_and_taken_away(jobs: Jobs):
    job = await submitted(jobs, triggers=[{"every": "1h", "data": {"a": 1}}])

    assert (await jobs.triggers.patch(only(job).id, data={"b": 2})).data == {"b": 2}
    assert (await jobs.triggers.patch(only(job).id, enabled=True)).data == {"b": 2}
    assert (await jobs.triggers.patch(only(job).id, data=None)).data is None


@BOTH
async def test_triggers_are_added_replaced_and_deleted(jobs: Jobs, clock: FakeClock):
    job = await submitted(jobs)
    clock.advance(10)
    added = await jobs.triggers.add(job.id, trigger_draft(every="1h"))
    assert added.next_at == START + 10 * SECOND + 60 * MINUTE

    replaced = await jobs.triggers.replace(added.id, trigger_draft(every="2h"))

    assert (replaced.id, replaced.next_at) == (added.id, START + 10 * SECOND + 120 * MINUTE)
    assert [t.id for t in (await jobs.triggers.list(job.id)).items] == [added.id]
    await jobs.triggers.delete(added.id)
    assert (await jobs.get(job.id)).triggers == ()
    with pytest.raises(NotFound):
        await jobs.triggers.get(added.id)


async def test_a_job_has_at_most_a_hundred_triggers(jobs: Jobs):
    job = await submitted(jobs, triggers=[{"every": f"{n}h"} for n in range(1, 101)])

    with pytest.raises(Invalid) as caught:
        await jobs.triggers.add(job.id, trigger_draft(every="1m"))
    assert caught.value.code == "E_LIMIT"


# ── delete ──


@BOTH
async def test_a_deleted_job_is_readable_but_not_listed_and_never_fires(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m")
    await firing.refill()

    await jobs.delete(job.id)

    gone = await jobs.get(job.id)
    assert gone.deleted_at == START
    assert gone.paused is False
    assert (await jobs.list(JobFilter())).items == []
    for call in (jobs.delete, jobs.run_now, lambda i: jobs.set_paused(i, True), lambda i: jobs.replace(i, draft())):
        with pytest.raises(NotFound):
            await call(job.id)
    clock.advance(120)
    await fire_due(firing)
    assert await ledger(probe, job.id) == []


@BOTH
async def test_a_delete_that_breaks_off_leaves_the_job_as_it_was(
    jobs: Jobs, probe: Probe, firing: Firing, clock: FakeClock
):
    """It is deleted or it goes on: never enabled, and never due again."""
    job = await submitted(jobs, schedule="1m")
    probe.lose_call("delete_job")

    with pytest.raises(Unavailable):
        await jobs.delete(job.id)

    assert await jobs.get(job.id) == job
    clock.advance(60)
    await fire_due(firing)
    assert [run.due_at for run in await ledger(probe, job.id)] == [START + MINUTE]


@BOTH
async def test_a_moment_that_fires_while_its_job_is_deleted_ends_with_it(
    jobs: Jobs, probe: Probe, firing: Firing, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m")

    async def fire(*_: Any) -> None:
        clock.advance(60)
        await fire_due(firing)

    probe.before("delete_job", fire)
    await jobs.delete(job.id)

    assert words(await ledger(probe, job.id)) == [(START + MINUTE, "cancelled", "deleted")]
    assert probe.calls["delete_job"] == 2


async def test_deleting_asks_for_what_runs(jobs: Jobs, probe: Probe, queue: Told):
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    await claimed(probe)
    queue.take()

    await jobs.delete(job.id)

    assert (await jobs.get_run(run.id)).cancel_requested
    assert "cancel" in queue.take()


# ── run now ──


@BOTH
async def test_run_now_makes_a_run_that_is_due_now(jobs: Jobs, queue: Told, clock: FakeClock):
    job = await submitted(jobs)
    clock.advance(5)

    run = await jobs.run_now(job.id, data={"x": 1}, node="n7")

    assert (run.state, run.due_at, run.trigger_id, run.data, run.pin) == (
        State.QUEUED, START + 5 * SECOND, None, {"x": 1}, "n7",
    )  # fmt: skip
    assert queue.take() == ["runs"]


async def test_run_now_on_a_paused_job_is_refused(jobs: Jobs):
    job = await submitted(jobs, paused=True)

    with pytest.raises(Conflict) as caught:
        await jobs.run_now(job.id)
    assert caught.value.code == "E_PAUSED"


async def test_run_now_tells_of_an_overlap(jobs: Jobs):
    job = await submitted(jobs)
    await jobs.run_now(job.id)

    second = await jobs.run_now(job.id)

    assert (second.state, second.reason) == (State.SKIPPED, "overlap")


async def test_run_now_under_replace_stops_what_runs(jobs: Jobs, probe: Probe, queue: Told):
    job = await submitted(jobs, overlap="replace")
    first = await jobs.run_now(job.id)
    await claimed(probe)
    queue.take()

    second = await jobs.run_now(job.id)

    assert (second.state, second.reason) == (State.BLOCKED, "overlap")
    assert (await jobs.get_run(first.id)).cancel_requested
    assert "cancel" in queue.take()


@BOTH
async def test_a_repeated_run_now_makes_one_run(jobs: Jobs):
    job = await submitted(jobs, overlap="allow")

    first, again = [await jobs.run_now(job.id, idempotency=KEY) for _ in range(2)]

    assert first.id == again.id
    with pytest.raises(Conflict) as caught:
        await jobs.run_now(job.id, idempotency=Idempotency(KEY.scope, KEY.key, "d2"))
    assert caught.value.code == "E_IDEMPOTENCY_MISMATCH"


async def test_run_now_that_meets_a_deletion_is_told_so(jobs: Jobs, probe: Probe):
    job = await submitted(jobs)

    async def delete(*_: Any) -> None:
        await jobs.delete(job.id)

    probe.before("enqueue", delete)
    with pytest.raises(NotFound, match="deleted"):
        await jobs.run_now(job.id)
    assert await ledger(probe, job.id) == []


async def test_many_runs_at_once_share_a_few_store_calls(jobs: Jobs, probe: Probe):
    many = [await submitted(jobs, f"job {i}") for i in range(20)]

    async def until_the_others_wait(first: list[Order]) -> None:
        while len(first) + len(jobs.orders._waiting._waiting) < len(many):
            await asyncio.sleep(0)

    probe.before("enqueue", until_the_others_wait)
    async with asyncio.timeout(60):
        runs = await asyncio.gather(*(jobs.run_now(job.id) for job in many))

    assert [run.job_id for run in runs] == [job.id for job in many]
    assert probe.calls["enqueue"] == 2


# ── cancel ──


@BOTH
async def test_cancelling_a_waiting_run_ends_it(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, overlap="queue")
    queued, blocked = await jobs.run_now(job.id), await jobs.run_now(job.id)
    assert blocked.state is State.BLOCKED

    for run in (blocked, queued):
        ended = await jobs.cancel(run.id)
        assert (ended.state, ended.reason) == (State.CANCELLED, "requested")


async def test_cancelling_the_holder_of_a_gate_wakes_agents_for_its_successor(jobs: Jobs, queue: Told):
    job = await submitted(jobs, overlap="queue")
    first, second = await jobs.run_now(job.id), await jobs.run_now(job.id)
    queue.take()

    await jobs.cancel(first.id)

    assert (await jobs.get_run(second.id)).state is State.QUEUED
    assert "runs" in queue.take()


async def test_cancelling_a_running_run_asks_its_agent(jobs: Jobs, probe: Probe, queue: Told):
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    await claimed(probe)
    queue.take()

    asked = await jobs.cancel(run.id)

    assert (asked.state, asked.cancel_requested) == (State.RUNNING, True)
    assert queue.take() == ["cancel"]


async def test_a_finished_run_cannot_be_cancelled(jobs: Jobs, probe: Probe):
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    await finish(probe, await claimed(probe))

    with pytest.raises(Conflict) as caught:
        await jobs.cancel(run.id)
    assert caught.value.code == "E_TERMINAL"


@BOTH
async def test_a_run_that_is_claimed_while_it_is_cancelled_is_asked_to_stop(jobs: Jobs, probe: Probe):
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)

    async def claim(*_: Any) -> None:
        await claimed(probe.store)

    probe.before("cancel", claim)

    assert (await jobs.cancel(run.id)).cancel_requested


# ── races ──


@BOTH
@pytest.mark.parametrize("change", ["pause", "rename", "reschedule", "move"])
async def test_a_change_that_races_with_a_fire_loses_nothing_and_fires_nothing_twice(
    change: str, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", overlap="allow")
    await firing.refill()
    clock.advance(60)
    await firing.refill()

    async def fire(*_: Any) -> None:
        await fire_due(scheduler(probe.store, clock))

    changes = {**CHANGES, "rename": lambda jobs, job: jobs.replace(job.id, draft("x", schedule="1m", overlap="allow"))}
    probe.before("save_job", fire)
    await changes[change](jobs, job)
    await fire_due(firing)  # its look-ahead is from before

    assert words(await ledger(probe, job.id)) == [(START + MINUTE, "queued", "")]
    after = only(await jobs.get(job.id))
    expected = {"pause": None, "rename": 2 * MINUTE, "reschedule": MINUTE + 420 * MINUTE, "move": 60 * MINUTE}[change]
    assert after.next_at == (None if expected is None else START + expected)


async def test_a_job_that_keeps_changing_is_a_conflict_not_a_loop(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, schedule="1h")

    async def change_again(*_: Any) -> None:
        other = Jobs(probe.store, Told())
        await other.replace(job.id, draft(f"v{(await other.get(job.id)).version}", schedule="1h"))
        probe.before("save_job", change_again)

    probe.before("save_job", change_again)
    with pytest.raises(Conflict):
        await jobs.set_paused(job.id, True)


async def test_a_moment_that_falls_into_the_look_ahead_while_it_is_saved_is_announced(
    jobs: Jobs, probe: Probe, queue: Told, clock: FakeClock
):
    """The scheduler looks ten seconds ahead from its own now, which may be later than the one a submit saw."""

    async def take_long(*_: Any) -> None:
        clock.advance(3)

    probe.before("submit", take_long)
    await submitted(jobs, schedule="12s")

    assert queue.take() == ["due"]


async def test_no_row_is_left_due_after_everything_is_deleted(jobs: Jobs, probe: Probe):
    for i in range(5):
        await jobs.delete((await submitted(jobs, f"job {i}", schedule="1m")).id)

    assert await probe.load_due(ALL_SEGMENTS, (-1, NEVER), NEVER, 10) == []
    assert (await jobs.triggers.list()).items == []
