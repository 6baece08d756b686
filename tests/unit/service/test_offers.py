"""Moments that are offered to schedulers outside Horae: theirs first, ours in time, fired once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import SECOND, Job, Moment, State
from horae.errors import Conflict
from horae.service.execution import Execution
from horae.service.external.loans import Lending
from horae.service.external.members import ExternalMembers
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock

from .parts import BOTH, Probe, Told, draft, fire_due, ledger, scheduler, set_clock, submitted, words

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DUE = START + HOUR


@pytest.fixture
def outside(probe: Probe, queue: Told) -> ExternalMembers:
    return ExternalMembers(probe, queue, node="n1")


@pytest.fixture
def lending(probe: Probe, jobs: Jobs, execution: Execution) -> Lending:
    return Lending(probe, jobs, execution)


async def offered(jobs: Jobs, **fields: Any) -> Job:
    wanted = draft(**{"schedule": "1h", "segment": 7, **fields})
    (job,) = (await jobs.submit([replace(wanted, policy=replace(wanted.policy, offered=True))])).jobs
    return job


async def hold(outside: ExternalMembers, segments: int = 10) -> None:
    await outside.join("scheduler", "w1")
    await outside.take_segments("w1", segments)


async def at(firing: Firing, clock: FakeClock, moment: Moment) -> Moment:
    """Live to a moment; answers when the scheduler wants to look again."""
    set_clock(clock, moment)
    return await fire_due(firing)


async def test_without_a_holder_an_offered_moment_is_fired_at_once(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside, 7)  # segments 0 to 6

    await at(firing, clock, DUE)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


async def test_a_job_that_is_not_offered_is_fired_at_once_whoever_holds_its_segment(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await submitted(jobs, schedule="1h", segment=7)
    await hold(outside)
    asked = probe.calls["load_taken_segments"]

    await at(firing, clock, DUE)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]
    assert probe.calls["load_taken_segments"] == asked


@BOTH
async def test_a_moment_whose_segment_is_held_waits_for_the_holder_and_is_then_fired_by_horae(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside)

    wake_at = await at(firing, clock, DUE)
    assert DUE < wake_at <= DUE + 5 * SECOND
    while wake_at < DUE + MINUTE:
        assert await ledger(probe, job.id) == []
        await outside.beat("scheduler", "w1")
        wake_at = await at(firing, clock, wake_at)
    assert wake_at == DUE + MINUTE
    await at(firing, clock, wake_at)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]
    assert (await jobs.get(job.id)).triggers[0].next_at == DUE + HOUR


async def test_a_moment_is_counted_once_however_often_it_was_looked_at(
    jobs: Jobs, probe: Probe, queue: Told, metrics: Metrics, clock: FakeClock, outside: ExternalMembers
):
    firing = Firing(probe, queue, clock, metrics)
    firing.own(dict.fromkeys(range(100), 0))
    await offered(jobs)
    await hold(outside)

    wake_at = await at(firing, clock, DUE)
    while wake_at < DUE + MINUTE:
        assert metrics.scanned == 0
        await outside.beat("scheduler", "w1")
        wake_at = await at(firing, clock, wake_at)
    await at(firing, clock, wake_at)

    assert (metrics.scanned, metrics.segment_load[7]) == (1, 1)
    assert 'horae_segment_load_total{segment="7"} 1.0' in metrics.text().decode()


@BOTH
async def test_a_moment_that_its_holder_fired_is_not_fired_again(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers, lending: Lending
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)

    run = await lending.fire(job.id, worker="w1@scheduler", seconds=30)
    await at(firing, clock, DUE + MINUTE)

    assert run.due_at == DUE
    assert words(await ledger(probe, job.id)) == [(DUE, "running", "")]


async def test_a_holder_that_comes_too_late_is_told(
    jobs: Jobs, firing: Firing, clock: FakeClock, outside: ExternalMembers, lending: Lending
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)
    await at(firing, clock, DUE + MINUTE)

    with pytest.raises(Conflict, match="nothing"):
        await lending.fire(job.id, worker="w1@scheduler", seconds=30)


async def test_moments_that_follow_closely_are_offered_one_after_the_other(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers, lending: Lending
):
    job = await offered(jobs, schedule="10s", overlap="allow")
    await hold(outside)

    for number in range(1, 7):
        await at(firing, clock, START + number * 10 * SECOND)
        run = await lending.fire(job.id, worker="w1@scheduler", seconds=30)
        assert run.due_at == START + number * 10 * SECOND

    assert {run.state for run in await ledger(probe, job.id)} == {State.RUNNING}
    assert len(await ledger(probe, job.id)) == 6


async def release(outside: ExternalMembers, _: Probe) -> None:
    await outside.release_segments("w1")


async def leave(outside: ExternalMembers, _: Probe) -> None:
    await outside.leave("scheduler", "w1")


async def fall_silent(_: ExternalMembers, probe: Probe) -> None:
    await probe.retire_node("w1@scheduler", "gone")


@pytest.mark.parametrize("go", [release, leave, fall_silent])
async def test_a_holder_that_goes_frees_its_moments_at_the_next_look(
    go: Any, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)

    await go(outside, probe)
    await at(firing, clock, DUE + 5 * SECOND)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


async def test_a_hint_is_a_look(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)

    await outside.release_segments("w1")
    await firing.refill(sweep=True)
    await firing.tick()

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


@pytest.mark.parametrize(("down", "fired"), [(20, False), (120, True)])
async def test_a_restart_in_between_loses_nothing(
    down: int, fired: bool, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)

    restarted = scheduler(probe, clock)
    await at(restarted, clock, DUE + down * SECOND)
    assert bool(await ledger(probe, job.id)) is fired
    await at(restarted, clock, DUE + 5 * MINUTE)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


async def test_a_change_of_segments_in_between_loses_nothing(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)

    firing.own({})
    firing.own({7: 1})
    await at(firing, clock, DUE + MINUTE)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


async def test_a_store_that_is_out_of_reach_in_between_loses_nothing(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)
    probe.lose_call("load_taken_segments")
    set_clock(clock, DUE + 10 * SECOND)
    with pytest.raises(Exception, match="the wire was cut"):
        await firing.tick()

    await at(firing, clock, DUE + MINUTE)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


async def test_a_job_that_was_changed_meanwhile_is_judged_by_its_new_policy(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers
):
    job = await offered(jobs)
    await hold(outside)
    await at(firing, clock, DUE)

    await jobs.replace(job.id, draft(schedule="1h", segment=7))
    await firing.refill(sweep=True)
    await firing.tick()

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


@pytest.mark.parametrize(("fields", "seconds"), [({"misfire": "skip"}, 30), ({"start_deadline": "20s"}, 10)])
async def test_an_offer_ends_before_it_is_too_late_to_run_the_moment(
    fields: dict[str, Any],
    seconds: int,
    jobs: Jobs,
    firing: Firing,
    probe: Probe,
    clock: FakeClock,
    outside: ExternalMembers,
):
    job = await offered(jobs, **fields)
    await hold(outside)

    await at(firing, clock, DUE)
    await at(firing, clock, DUE + seconds * SECOND - 1)
    assert await ledger(probe, job.id) == []
    await at(firing, clock, DUE + seconds * SECOND)

    assert words(await ledger(probe, job.id)) == [(DUE, "queued", "")]


async def test_a_fixed_delay_counts_from_the_end_of_its_last_run_offered_or_not(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, outside: ExternalMembers, lending: Lending
):
    job = await offered(jobs, schedule={"every": "1h", "mode": "delay"})
    await hold(outside)
    await at(firing, clock, DUE)
    run = await lending.fire(job.id, worker="w1@scheduler", seconds=30 * 60)
    set_clock(clock, DUE + 20 * MINUTE)
    await lending.finish(run.id, 1, State.SUCCEEDED)

    await at(firing, clock, DUE + 60 * MINUTE)
    await at(firing, clock, DUE + 61 * MINUTE)  # too early, seen from the end of the last run
    await at(firing, clock, DUE + 80 * MINUTE)
    assert len(await ledger(probe, job.id)) == 1
    await at(firing, clock, DUE + 81 * MINUTE)

    assert words(await ledger(probe, job.id))[1:] == [(DUE + 80 * MINUTE, "queued", "")]
