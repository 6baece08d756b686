"""Jobs that pause themselves when their runs keep failing."""

from __future__ import annotations

import pytest

from horae.core.events import BEGINNING, EventFilter
from horae.core.model import Job, Reason, State
from horae.core.policy.breaker import paused_because
from horae.core.runs.orders import Result
from horae.errors import Conflict
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.jobs.breaker import Breaker
from horae.service.metrics import Metrics
from horae.service.secrets.sealing import Sealing
from horae.testing import FakeClock

from .parts import BOTH, Probe, Told, draft, node, submitted

N1 = node("n1")


async def pauses(probe: Probe) -> list[int]:
    """Return the jobs of which it was told that they are paused."""
    told, _ = await probe.store.read_events(BEGINNING, 1000, EventFilter(("job.paused",)))
    return [event.job_id or 0 for event in told]


@pytest.fixture
def execution(probe: Probe, queue: Told, clock: FakeClock, metrics: Metrics) -> Execution:
    look = Breaker(probe, queue, Sealing(probe.store)).look
    return Execution(probe, queue, clock, metrics, after_failures=look)


async def end(jobs: Jobs, execution: Execution, job: Job, state: State = State.FAILED, reason: str = "") -> None:
    """Run the job once, with this end."""
    run = await jobs.run_now(job.id)
    (claimed,) = await execution.claim(N1, {"python": 1})
    now = await jobs.now()
    assert await execution.finish([Result(run.id, claimed.fence, state, reason, now, now)]) == {run.id}


async def is_paused(jobs: Jobs, job: Job) -> bool:
    return (await jobs.get(job.id)).paused


@BOTH
async def test_a_job_pauses_itself_after_so_many_failures_in_a_row(jobs: Jobs, execution: Execution, probe: Probe):
    job = await submitted(jobs, pause_after_failures=3)
    await end(jobs, execution, job)
    await end(jobs, execution, job, State.TIMED_OUT)
    assert not await is_paused(jobs, job)

    await end(jobs, execution, job)

    found = await jobs.get(job.id)
    assert found.paused
    assert paused_because(found) == "its last 3 runs failed"
    assert await pauses(probe) == [job.id]
    with pytest.raises(Conflict, match="is paused, because its last 3 runs failed; resume it first"):
        await jobs.run_now(job.id)


async def test_a_success_begins_the_row_anew(jobs: Jobs, execution: Execution):
    job = await submitted(jobs, pause_after_failures=2)
    for state in (State.FAILED, State.SUCCEEDED, State.FAILED):
        await end(jobs, execution, job, state)
    assert not await is_paused(jobs, job)


async def test_a_cancelled_run_neither_counts_nor_ends_the_row(jobs: Jobs, execution: Execution):
    job = await submitted(jobs, pause_after_failures=2)
    await end(jobs, execution, job)
    await end(jobs, execution, job, State.CANCELLED, Reason.REQUESTED)
    assert not await is_paused(jobs, job)
    await end(jobs, execution, job)
    assert await is_paused(jobs, job)


async def test_a_run_that_is_tried_again_has_not_failed(jobs: Jobs, execution: Execution, clock: FakeClock):
    job = await submitted(jobs, pause_after_failures=1, retry={"attempts": 2, "backoff": "1s", "jitter": 0})
    run = await jobs.run_now(job.id)
    for is_last in (False, True):
        (claimed,) = await execution.claim(N1, {"python": 1})
        await execution.finish([Result(run.id, claimed.fence, State.FAILED, finished_at=await jobs.now())])
        assert await is_paused(jobs, job) is is_last
        clock.advance(2)
        await jobs._store.sweep()  # type: ignore[attr-defined]


async def test_a_run_whose_agents_die_counts(jobs: Jobs, execution: Execution):
    job = await submitted(jobs, pause_after_failures=1)
    run = await jobs.run_now(job.id)
    while not (await jobs.get_run(run.id)).state.is_terminal:
        (claimed,) = await execution.claim(N1, {"python": 1})
        await execution.take_back("n1", {run.id: claimed.fence})
    assert (await jobs.get_run(run.id)).reason == Reason.LOST
    assert await is_paused(jobs, job)


@BOTH
async def test_after_a_resume_only_runs_made_since_count(jobs: Jobs, execution: Execution, clock: FakeClock):
    job = await submitted(jobs, pause_after_failures=2)
    for _ in range(2):
        await end(jobs, execution, job)
    clock.advance(10)

    resumed = await jobs.set_paused(job.id, False)

    assert (resumed.paused, paused_because(resumed), resumed.annotations) == (False, "", {})
    clock.advance(1)
    await end(jobs, execution, job)
    assert not await is_paused(jobs, job)
    await end(jobs, execution, job)
    assert await is_paused(jobs, job)


async def test_a_job_that_was_changed_begins_anew(jobs: Jobs, execution: Execution, clock: FakeClock):
    job = await submitted(jobs, pause_after_failures=2)
    await end(jobs, execution, job)
    clock.advance(1)
    await jobs.replace(job.id, draft("mended", pause_after_failures=2))
    clock.advance(1)
    await end(jobs, execution, job)
    assert not await is_paused(jobs, job)


async def test_a_job_that_was_paused_by_hand_has_no_reason(jobs: Jobs):
    job = await submitted(jobs, pause_after_failures=2)
    assert paused_because(await jobs.set_paused(job.id, True)) == ""


async def test_sending_the_document_back_unpaused_takes_the_reason_away(jobs: Jobs, execution: Execution):
    job = await submitted(jobs, pause_after_failures=1)
    await end(jobs, execution, job)
    seen = await jobs.get(job.id)

    after = await jobs.replace(job.id, draft(annotations=seen.annotations, pause_after_failures=1))

    assert (after.paused, after.annotations) == (False, {})


@BOTH
async def test_who_dies_between_the_result_and_the_pause_leaves_it_to_the_next_failure(
    jobs: Jobs, execution: Execution, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, pause_after_failures=2)
    await end(jobs, execution, job)
    probe.lose_call("count_failures")
    await end(jobs, execution, job)  # the result counts, whatever becomes of the look
    assert not await is_paused(jobs, job)

    await end(jobs, execution, job)

    assert await is_paused(jobs, job)
    assert await pauses(probe) == [job.id]


async def test_of_two_who_see_the_last_failure_one_pauses_the_job(
    jobs: Jobs, execution: Execution, probe: Probe, queue: Told
):
    job = await submitted(jobs, pause_after_failures=1)
    other = Breaker(probe.store, queue, Sealing(probe.store))

    async def look(_: int) -> None:
        await other.look([job.id])

    probe.after("count_failures", look)
    await end(jobs, execution, job)

    assert await pauses(probe) == [job.id]
    assert (await jobs.get(job.id)).version == job.version + 1


async def test_a_result_is_accepted_though_the_pause_cannot_be_written(jobs: Jobs, execution: Execution, probe: Probe):
    job = await submitted(jobs, pause_after_failures=1)
    probe.lose_answer("save_job")
    await end(jobs, execution, job)
    assert await is_paused(jobs, job)


async def test_nothing_is_looked_at_for_a_success_or_for_jobs_that_do_not_want_it(
    jobs: Jobs, execution: Execution, probe: Probe
):
    careful, careless = await submitted(jobs, pause_after_failures=1), await submitted(jobs)
    await end(jobs, execution, careful, State.SUCCEEDED)
    await end(jobs, execution, careless)
    assert probe.calls["count_failures"] == 0
    assert probe.calls["load_jobs"] == 2  # to run them
