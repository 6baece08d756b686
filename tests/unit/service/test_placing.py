"""Where runs wait is decided when they are made, whoever makes them; on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import SECOND, Job, Reason, Run, State
from horae.core.policy.queues import QueueState
from horae.core.runs.orders import Assignment, Result
from horae.errors import Unavailable
from horae.service.execution import Execution
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import FakeClock

from .parts import BOTH, Probe, Told, draft, fire_due, ledger, node, set_clock, submitted, words

pytestmark = BOTH
MINUTE = 60 * SECOND
N1 = node("n1")


@pytest.fixture
def execution(probe: Probe, queue: Told, clock: FakeClock, metrics: Metrics) -> Execution:
    return Execution(probe, queue, clock, metrics)


async def take(execution: Execution, most: int = 10) -> list[Assignment]:
    return await execution.claim(N1, {"python": most})


async def end(execution: Execution, claimed: list[Assignment]) -> None:
    await execution.finish([Result(a.run_id, a.fence, State.SUCCEEDED) for a in claimed])


async def fired(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, **fields: Any) -> tuple[Job, list[Run]]:
    """A job with a moment that has come, and what became of it."""
    job = await submitted(jobs, schedule="1m", **fields)
    set_clock(clock, job.triggers[0].next_at or 0)
    await fire_due(firing)
    return job, await ledger(probe, job.id)


async def test_what_a_trigger_makes_waits_in_the_queue_of_its_job(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, execution: Execution
):
    await jobs.queues.put("reports", {})
    await jobs.queues.set_state("reports", QueueState.PAUSED)
    await fired(jobs, firing, probe, clock, queue="reports")

    assert await take(execution) == []
    await jobs.queues.set_state("reports", QueueState.OPEN)
    assert len(await take(execution)) == 1


async def test_what_is_asked_for_waits_in_the_queue_of_its_job(jobs: Jobs, execution: Execution):
    await jobs.queues.put("reports", {"labels": ["big"]})
    job = await submitted(jobs, queue="reports")
    await jobs.run_now(job.id)

    assert await take(execution) == []
    assert len(await execution.claim(node("n2", labels=("big",)), {"python": 1})) == 1


async def test_of_a_queue_that_is_draining_a_due_moment_is_skipped_and_says_so(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    await jobs.queues.put("reports", {"state": "draining"})

    job, _ = await fired(jobs, firing, probe, clock, queue="reports")

    at = job.triggers[0].next_at or 0
    assert words(await ledger(probe, job.id)) == [(at, "skipped", Reason.QUEUE_DRAINING)]
    await jobs.queues.set_state("reports", QueueState.OPEN)
    set_clock(clock, at + MINUTE)
    await fire_due(firing)
    assert words(await ledger(probe, job.id))[1:] == [(at + MINUTE, "queued", "")]


async def test_a_queue_that_is_paused_later_holds_what_a_known_plan_makes(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, execution: Execution
):
    """The scheduler remembers its plans; not where their runs wait, once a queue has changed."""
    await jobs.queues.put("reports", {})
    job, _ = await fired(
        jobs, firing, probe, clock, queue="reports", overlap="allow", concurrency_limits=[{"limit": 1}]
    )
    await end(execution, await take(execution))
    await jobs.queues.put("reports", {"weights": {"local": 7}})
    set_clock(clock, (job.triggers[0].next_at or 0) + MINUTE)

    await fire_due(firing)

    assert [run.reason for run in await ledger(probe, job.id)] == ["", Reason.LIMIT]


async def test_a_limit_by_the_data_of_runs_holds_for_runs_that_are_asked_for(jobs: Jobs, execution: Execution):
    job = await submitted(jobs, overlap="allow", concurrency_limits=[{"limit": 1, "per": "data.tenant"}])
    runs = [await jobs.run_now(job.id, data={"tenant": tenant}) for tenant in ("acme", "acme", "other")]

    first = await take(execution)

    assert [(run.state, run.reason) for run in runs] == [(State.BLOCKED, Reason.LIMIT)] * 3
    assert sorted(a.run_id for a in first) == [runs[0].id, runs[2].id]
    await end(execution, first)
    assert [a.run_id for a in await take(execution)] == [runs[1].id]


async def test_a_limit_by_data_looks_at_that_of_the_job_where_nothing_else_is_said(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, execution: Execution
):
    limits = [{"limit": 1, "per": "data.tenant"}]
    job = await submitted(jobs, overlap="allow", concurrency_limits=limits, data={"tenant": "acme"}, schedule="1m")
    await jobs.run_now(job.id, data={"tenant": "acme"})
    set_clock(clock, job.triggers[0].next_at or 0)
    await fire_due(firing)

    assert len(await take(execution)) == 1


async def test_a_limit_of_a_queue_holds_for_all_that_wait_there(jobs: Jobs, execution: Execution):
    await jobs.queues.put("default", {"concurrency": 2})
    for name in ("a", "b", "c"):
        await jobs.run_now((await submitted(jobs, name)).id)

    first = await take(execution)

    assert len(first) == 2
    await end(execution, first[:1])
    assert len(await take(execution)) == 1


async def test_jobs_of_a_contract_share_by_the_user_whom_it_names(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, execution: Execution
):
    """Both belong to the owner that all jobs of the contract have."""
    many = await submitted(jobs, "many", overlap="allow", annotations={"rpc": {"user_id": "ann"}})
    for _ in range(20):
        await jobs.run_now(many.id)
    one, _ = await fired(jobs, firing, probe, clock, annotations={"rpc": {"user_id": "bob"}})

    assert one.id in [a.job_id for a in await take(execution, 2)]


async def test_jobs_without_limits_ask_the_store_for_no_demand(jobs: Jobs, probe: Probe):
    job = (await jobs.submit([draft()])).jobs[0]

    await jobs.run_now(job.id)

    assert probe.calls["demand_ids"] == 0


async def test_a_run_keeps_its_limit_although_the_store_was_away_when_it_was_looked_up(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", overlap="allow", concurrency_limits=[{"limit": 1}])
    set_clock(clock, job.triggers[0].next_at or 0)
    probe.lose_call("demand_ids")
    with pytest.raises(Unavailable):
        await fire_due(firing)

    await fire_due(firing)

    assert [word[1:] for word in words(await ledger(probe, job.id))] == [("blocked", "limit")]
