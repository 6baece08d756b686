"""Runs on loan: what a worker outside Horae gets, may say, and loses when it falls silent."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import SECOND, Job, Phase, Run, State
from horae.core.runs.orders import Result
from horae.errors import Conflict, Error, NotFound
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.external.loans import Lending
from horae.service.jobs import Jobs
from horae.testing import START, FakeClock

from .parts import BOTH, Probe, Told, ledger, node, set_clock, submitted, words

MINUTE = 60 * SECOND
W1: dict[str, Any] = {"worker": "w1", "seconds": 30}
W2: dict[str, Any] = {"worker": "w2", "seconds": 30}


@pytest.fixture
def lending(probe: Probe, jobs: Jobs, execution: Execution) -> Lending:
    return Lending(probe, jobs, execution)


@pytest.fixture
async def leader(probe: Probe, queue: Told, clock: FakeClock, execution: Execution) -> Cluster:
    found = Cluster(probe, queue, clock, execution, node="boss", lease_seconds=15, dead_after=25, is_exclusive=False)
    await found.campaign()
    return found


async def lead(leader: Cluster, clock: FakeClock, seconds: float) -> None:
    clock.advance(seconds)
    assert await leader.campaign()
    await leader.lead()
    await leader.tidy()


async def queued(jobs: Jobs, **fields: Any) -> Run:
    return await jobs.run_now((await submitted(jobs, **fields)).id)


async def lent(jobs: Jobs, lending: Lending, **fields: Any) -> Run:
    run = await queued(jobs, **fields)
    return await lending.lend_run(run.id, **W1)


async def refused(call: Any, expected: type[Error] = Conflict) -> str:
    """Return the code of a refusal."""
    with pytest.raises(expected) as caught:
        await call
    return caught.value.code


# ── lend ──


async def test_a_worker_that_asks_gets_the_next_run_with_its_job(jobs: Jobs, lending: Lending):
    job = await submitted(jobs, name="nightly")
    run = await jobs.run_now(job.id, data={"a": 1})

    found = await lending.lend(["python", "shell"], **W1)

    assert found is not None
    assert (found.job.name, found.run.id, found.run.data) == ("nightly", run.id, {"a": 1})
    assert (found.run.state, found.run.phase, found.run.node) == (State.RUNNING, Phase.PREPARING, "w1")
    assert await lending.lend(["python", "shell"], **W2) is None


async def test_a_run_is_lent_by_its_id_once(jobs: Jobs, lending: Lending):
    run = await lent(jobs, lending)

    assert run.node == "w1"
    assert await refused(lending.lend_run(run.id, **W2)) == "E_CONFLICT"
    assert (await jobs.get_run(run.id)).node == "w1"


async def test_what_does_not_exist_or_has_ended_is_not_lent(jobs: Jobs, lending: Lending):
    run = await queued(jobs)
    await jobs.cancel(run.id)

    assert await refused(lending.lend_run(run.id, **W1)) == "E_TERMINAL"
    assert await refused(lending.lend_run(999, **W1), NotFound) == "E_NOT_FOUND"


# ── report ──


async def test_a_report_prolongs_the_loan_by_the_stores_clock(jobs: Jobs, lending: Lending, clock: FakeClock):
    run = await lent(jobs, lending)
    clock.advance(20)

    asked = await lending.report(run.id, 1, worker="w2", seconds=60, phase=Phase.RUNNING, progress={"done": 3})

    [loan] = await lending.loans([run.id])
    assert not asked
    assert (loan.worker, loan.until_at, loan.progress) == ("w2", START + 80 * SECOND, {"done": 3})
    assert (await jobs.get_run(run.id)).phase is Phase.RUNNING


async def test_a_worker_hears_of_a_cancel_with_its_report_and_ends_it(jobs: Jobs, lending: Lending):
    run = await lent(jobs, lending)
    await jobs.cancel(run.id)

    assert await lending.report(run.id, 1, **W1)
    await lending.finish(run.id, 1, State.CANCELLED)

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason) == (State.CANCELLED, "requested")


async def test_reports_about_anything_else_are_refused_with_the_reason(jobs: Jobs, lending: Lending):
    waiting = await queued(jobs)
    over = await lent(jobs, lending)
    await lending.finish(over.id, 1, State.SUCCEEDED)

    assert await refused(lending.report(waiting.id, **W1)) == "E_CONFLICT"
    assert await refused(lending.report(over.id, 1, **W1)) == "E_TERMINAL"
    assert await refused(lending.report(999, **W1), NotFound) == "E_NOT_FOUND"


# ── finish ──


@BOTH
async def test_a_success_has_the_result_and_the_moments_of_its_loan(
    probe: Probe, jobs: Jobs, lending: Lending, clock: FakeClock
):
    run = await lent(jobs, lending)
    clock.advance(7)

    await lending.finish(run.id, 1, State.SUCCEEDED, message="done", result={"rows": 3})

    found = await jobs.get_run(run.id)
    assert (found.state, found.message, found.result, found.node) == (State.SUCCEEDED, "done", {"rows": 3}, "w1")
    assert (found.started_at, found.finished_at) == (START, START + 7 * SECOND)
    assert await lending.loans() == []


async def test_a_failure_is_tried_again_as_the_jobs_policy_says(jobs: Jobs, lending: Lending, clock: FakeClock):
    run = await lent(jobs, lending, retry={"attempts": 2, "backoff": "10s"})

    await lending.finish(run.id, 1, State.FAILED, message="no disk")

    assert (await jobs.get_run(run.id)).state is State.BLOCKED
    [attempt] = await jobs.list_attempts(run.id)
    assert (attempt.node, attempt.reason, attempt.message) == ("w1", "error", "no disk")


async def test_a_run_ends_once(jobs: Jobs, lending: Lending):
    run = await lent(jobs, lending)
    await lending.finish(run.id, None, State.SUCCEEDED)

    assert await refused(lending.finish(run.id, 1, State.FAILED)) == "E_TERMINAL"
    assert (await jobs.get_run(run.id)).state is State.SUCCEEDED


async def test_a_result_that_meets_another_one_on_its_way_is_refused(
    probe: Probe, jobs: Jobs, lending: Lending, execution: Execution
):
    run = await lent(jobs, lending)

    async def somebody_else(*_: Any) -> None:
        await probe.store.finish([Result(run.id, 1, State.SUCCEEDED, finished_at=START)])

    probe.before("finish", somebody_else)

    assert await refused(lending.finish(run.id, 1, State.CANCELLED)) == "E_TERMINAL"


# ── silence ──


@BOTH
async def test_a_loan_that_runs_out_is_taken_back_as_if_an_agent_had_died(
    probe: Probe, jobs: Jobs, lending: Lending, leader: Cluster, clock: FakeClock, queue: Told
):
    run = await lent(jobs, lending)
    await lead(leader, clock, 29)
    assert (await jobs.get_run(run.id)).state is State.RUNNING
    queue.take()

    await lead(leader, clock, 6)

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason, found.lost) == (State.QUEUED, "lost", 1)
    [attempt] = await jobs.list_attempts(run.id)
    assert attempt.message == "worker w1 did not report in time"
    assert "runs" in queue.take()


async def test_a_worker_that_reports_keeps_its_run(jobs: Jobs, lending: Lending, leader: Cluster, clock: FakeClock):
    run = await lent(jobs, lending)
    for _ in range(10):
        await lead(leader, clock, 20)
        await lending.report(run.id, 1, **W1)

    assert (await jobs.get_run(run.id)).state is State.RUNNING


async def test_a_late_report_is_told_from_a_good_one_by_its_attempt(
    jobs: Jobs, lending: Lending, leader: Cluster, clock: FakeClock
):
    run = await lent(jobs, lending)
    await lead(leader, clock, 35)
    again = await lending.lend_run(run.id, **W2)

    assert again.attempt == 2
    assert await refused(lending.report(run.id, 1, **W1)) == "E_CONFLICT"
    assert await refused(lending.finish(run.id, 1, State.SUCCEEDED)) == "E_CONFLICT"
    assert (await jobs.get_run(run.id)).node == "w2"
    await lending.finish(run.id, 2, State.SUCCEEDED)
    assert (await jobs.get_run(run.id)).state is State.SUCCEEDED


async def test_a_run_that_every_worker_loses_fails_in_the_end(
    jobs: Jobs, lending: Lending, leader: Cluster, clock: FakeClock
):
    run = await lent(jobs, lending)
    for _ in range(5):
        await lead(leader, clock, 35)
        if (await jobs.get_run(run.id)).state is State.QUEUED:
            await lending.lend_run(run.id, **W1)
    await lead(leader, clock, 35)

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason) == (State.FAILED, "lost")


async def test_a_cancelled_run_of_a_silent_worker_ends_with_its_loan(
    jobs: Jobs, lending: Lending, leader: Cluster, clock: FakeClock
):
    run = await lent(jobs, lending)
    await jobs.cancel(run.id)

    await lead(leader, clock, 35)

    assert (await jobs.get_run(run.id)).state is State.CANCELLED


async def test_a_leader_whose_trust_is_over_takes_no_loan_back(
    jobs: Jobs, lending: Lending, leader: Cluster, clock: FakeClock
):
    run = await lent(jobs, lending)
    clock.advance(35)

    await leader.lead()
    await leader.tidy()

    assert (await jobs.get_run(run.id)).state is State.RUNNING


async def test_loans_are_looked_through_a_few_times_in_a_lease_not_in_every_round(
    probe: Probe, leader: Cluster, clock: FakeClock
):
    for _ in range(15):
        await lead(leader, clock, 1)

    assert probe.calls["load_overdue_loans"] == 3


# ── give back ──


async def test_a_run_that_was_given_back_is_for_the_agents_again(
    jobs: Jobs, lending: Lending, execution: Execution, queue: Told
):
    run = await lent(jobs, lending)
    queue.take()

    await lending.give_back(run.id)

    assert "runs" in queue.take()
    [claimed] = await execution.claim(node(), {"python": 1})
    assert (claimed.run_id, claimed.attempt) == (run.id, 1)
    assert await refused(lending.give_back(run.id)) == "E_CONFLICT"


@BOTH
async def test_a_run_that_was_given_back_has_its_start_deadline_again(
    jobs: Jobs, lending: Lending, probe: Probe, clock: FakeClock
):
    run = await lent(jobs, lending, start_deadline="10s")
    clock.advance(5)
    await lending.give_back(run.id)
    await probe.store.sweep()
    assert (await jobs.get_run(run.id)).state is State.QUEUED

    clock.advance(6)
    await probe.store.sweep()

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason) == (State.SKIPPED, "start_deadline")


# ── fire ──


async def due_job(jobs: Jobs, clock: FakeClock, **fields: Any) -> Job:
    """Return a job whose first moment was a second ago."""
    job = await submitted(jobs, schedule="1m", **fields)
    set_clock(clock, START + MINUTE + SECOND)
    return job


@BOTH
async def test_a_due_moment_is_fired_and_lent_in_one_go(
    probe: Probe, jobs: Jobs, lending: Lending, execution: Execution, clock: FakeClock
):
    job = await due_job(jobs, clock)

    run = await lending.fire(job.id, **W1)

    assert (run.job_id, run.due_at, run.state, run.node) == (job.id, START + MINUTE, State.RUNNING, "w1")
    assert [loan.run_id for loan in await lending.loans()] == [run.id]
    assert await execution.claim(node(), {"python": 10}) == []
    assert (await jobs.get(job.id)).triggers[0].next_at == START + 2 * MINUTE


async def test_of_several_due_triggers_the_oldest_moment_is_fired(jobs: Jobs, lending: Lending, clock: FakeClock):
    job = await submitted(jobs, triggers=[{"every": "2m"}, {"every": "1m"}], overlap="allow")
    set_clock(clock, START + 2 * MINUTE)

    first, second = await lending.fire(job.id, **W1), await lending.fire(job.id, **W1)

    assert {first.due_at, second.due_at} == {START + 2 * MINUTE}
    assert {first.trigger_id, second.trigger_id} == {t.id for t in job.triggers}


async def test_what_is_not_due_is_not_fired(jobs: Jobs, lending: Lending, clock: FakeClock):
    later = await submitted(jobs, schedule="1m")
    paused = await submitted(jobs, schedule="1m", paused=True)
    gone = await submitted(jobs, schedule="1m")
    await jobs.delete(gone.id)

    assert await refused(lending.fire(later.id, **W1)) == "E_NOT_DUE"
    set_clock(clock, START + MINUTE)
    assert await refused(lending.fire(paused.id, **W1)) == "E_NOT_DUE"
    assert await refused(lending.fire(gone.id, **W1)) == "E_NOT_DUE"
    assert await refused(lending.fire(999, **W1), NotFound) == "E_NOT_FOUND"


@BOTH
async def test_a_moment_that_meets_a_live_run_is_skipped_and_never_answered_with_that_run(
    probe: Probe, jobs: Jobs, lending: Lending, clock: FakeClock
):
    job = await due_job(jobs, clock)
    older = await jobs.run_now(job.id)

    with pytest.raises(Conflict, match=r"another run of it is live, so run \d+ is skipped") as caught:
        await lending.fire(job.id, **W1)

    assert caught.value.code == "E_NOT_DUE"
    assert await lending.loans() == []
    assert words(await ledger(probe, job.id)) == [
        (START + MINUTE, "skipped", "overlap"),
        (older.due_at, "queued", ""),
    ]


async def test_a_moment_that_waits_behind_a_live_run_is_not_lent(jobs: Jobs, lending: Lending, clock: FakeClock):
    job = await due_job(jobs, clock, overlap="queue")
    await jobs.run_now(job.id)

    with pytest.raises(Conflict, match="blocked"):
        await lending.fire(job.id, **W1)


async def test_a_moment_past_its_start_deadline_is_not_lent(jobs: Jobs, lending: Lending, clock: FakeClock):
    job = await due_job(jobs, clock, start_deadline="1s")

    with pytest.raises(Conflict, match="could not be lent"):
        await lending.fire(job.id, **W1)


async def test_a_moment_that_the_misfire_policy_passes_over_makes_no_run(
    jobs: Jobs, lending: Lending, clock: FakeClock
):
    job = await submitted(jobs, schedule="1h", misfire="skip")
    set_clock(clock, START + 62 * MINUTE)

    with pytest.raises(Conflict, match="passed the moment over"):
        await lending.fire(job.id, **W1)


async def test_two_who_fire_at_once_make_one_run(probe: Probe, jobs: Jobs, lending: Lending, clock: FakeClock):
    job = await due_job(jobs, clock)

    async def somebody_else(*_: Any) -> None:
        await Lending(probe, jobs, lending._execution).fire(job.id, **W2)

    probe.before("fire", somebody_else)

    with pytest.raises(Conflict, match="somebody else"):
        await lending.fire(job.id, **W1)
    assert [loan.worker for loan in await lending.loans()] == ["w2"]


async def test_a_moment_fired_without_a_worker_waits_for_an_agent(jobs: Jobs, execution: Execution, clock: FakeClock):
    job = await due_job(jobs, clock)

    run = await jobs.fire_due(job.id)

    assert run.state is State.QUEUED
    assert [a.run_id for a in await execution.claim(node(), {"python": 10})] == [run.id]
