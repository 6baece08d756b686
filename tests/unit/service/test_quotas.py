"""How much of one owner may wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import Job, State
from horae.core.runs.orders import Result
from horae.errors import Error, Limited
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.jobs.orders import ANYBODY, OrderBatch, RunRequest
from horae.service.policy import quotas as module

from ...claiming import claim
from .parts import BOTH, Probe, Told, draft, fire_due, ledger, submitted

FREE = {"overlap": "allow"}


@pytest.fixture(autouse=True)
def fresh_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count is made anew, but where a test says otherwise."""
    monkeypatch.setattr(module, "HOLDS", 0.0)
    monkeypatch.setattr(module, "RARELY", 0)


async def limited(jobs: Jobs, most: int = 2, **fields: Any) -> Job:
    await jobs.queues.put("default", {"most_waiting": most})
    return await submitted(jobs, **FREE, **fields)


@BOTH
async def test_who_has_too_much_waiting_is_refused_until_some_has_started(jobs: Jobs, probe: Probe):
    job = await limited(jobs)
    for _ in range(2):
        await jobs.run_now(job.id)

    with pytest.raises(Limited) as caught:
        await jobs.run_now(job.id)
    assert (caught.value.code, caught.value.status) == ("E_TOO_MUCH_WAITING", 429)
    assert caught.value.message == "2 runs of local are waiting, and at most 2 may"

    await claim(probe.store, "n1", "python", [], 1)
    await jobs.run_now(job.id)


async def test_what_waits_of_others_does_not_count(jobs: Jobs):
    await limited(jobs, 1)
    for owner in ("ann", "bob"):
        (job,) = (await jobs.submit([draft(**FREE)], owner=owner)).jobs
        await jobs.run_now(job.id)
        with pytest.raises(Limited):
            await jobs.run_now(job.id)


async def test_of_jobs_of_a_contract_the_user_counts(jobs: Jobs):
    await limited(jobs, 1)
    ids = [(await submitted(jobs, **FREE, annotations={"rpc": {"user_id": user}})).id for user in (1, 2)]
    for job_id in ids:
        await jobs.run_now(job_id)
        with pytest.raises(Limited, match=f"of {ids.index(job_id) + 1} are"):
            await jobs.run_now(job_id)


@BOTH
async def test_of_many_orders_each_is_answered_for_itself(jobs: Jobs):
    job = await limited(jobs, 3)

    async def batches() -> AsyncIterator[OrderBatch]:
        yield OrderBatch([RunRequest(job.id)] * 5)

    answers = await jobs.orders.place_many(batches(), ANYBODY)
    assert [isinstance(answer, Error) for answer in answers] == [False, False, False, True, True]


async def test_a_limit_of_the_whole_installation_counts_all_queues(probe: Probe, queue: Told):
    jobs = Jobs(probe, queue, most_waiting=2)
    await jobs.queues.put("other", {})
    first, second = await submitted(jobs, **FREE), await submitted(jobs, **FREE, queue="other")
    for job in (first, second):
        await jobs.run_now(job.id)
    for job in (first, second):
        with pytest.raises(Limited):
            await jobs.run_now(job.id)


async def test_a_job_that_runs_at_once_is_refused_and_one_that_runs_later_is_not(jobs: Jobs):
    job = await limited(jobs, 1)
    await jobs.run_now(job.id)
    with pytest.raises(Limited):
        await submitted(jobs, run_once=True)
    with pytest.raises(Limited):
        await submitted(jobs, run_at="2020-01-01T00:00:00Z")
    await submitted(jobs, schedule="1h")
    await submitted(jobs, run_at="2199-01-01T00:00:00Z")
    await submitted(jobs)


@BOTH
async def test_a_due_moment_is_never_refused(jobs: Jobs, firing: Firing, probe: Probe, clock: Any):
    job = await limited(jobs, 1, schedule="1m")
    await jobs.run_now(job.id)
    clock.advance(60)
    await fire_due(firing)
    assert [run.state for run in await ledger(probe, job.id)] == [State.QUEUED, State.QUEUED]


async def test_counting_costs_nothing_where_there_is_no_limit(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, **FREE)
    await jobs.run_now(job.id)
    assert probe.calls["count_waiting"] == 0


async def test_a_count_holds_for_a_while_and_what_was_let_in_is_added(
    jobs: Jobs, probe: Probe, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "HOLDS", 3600.0)
    job = await limited(jobs, 3)
    for _ in range(3):
        await jobs.run_now(job.id)
    assert probe.calls["count_waiting"] == 1

    for a in await claim(probe.store, "n1", "python", [], 3):
        await probe.store.finish([replace(Result(a.run_id, a.fence, State.SUCCEEDED), finished_at=1)])
    with pytest.raises(Limited):
        await jobs.run_now(job.id)
