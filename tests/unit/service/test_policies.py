"""Every row of docs/reference/policy.md, on both stores: what a policy does, and what holds without it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from horae.core.model import SECOND, Job, Run, State
from horae.core.policy.queues import QueueState, place
from horae.core.runs.lifecycle import backoff
from horae.core.runs.orders import Assignment, Result
from horae.errors import Conflict, Invalid, Limited
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.jobs.breaker import Breaker
from horae.service.metrics import Metrics
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.dependencies import Dependencies
from horae.testing import START, FakeClock

from ...claiming import claim
from .parts import BOTH, Probe, Told, draft, fire_due, ledger, node, set_clock, submitted, words

pytestmark = BOTH

MINUTE = 60 * SECOND
N1 = node("n1")


@pytest.fixture
def execution(probe: Probe, queue: Told, clock: FakeClock, metrics: Metrics) -> Execution:
    look = Breaker(probe, queue, Sealing(probe.store)).look
    return Execution(probe, queue, clock, metrics, after_failures=look)


async def take(probe: Probe, *labels: str, most: int = 1) -> list[Assignment]:
    return await claim(probe.store, "n1", "python", labels, most)


async def asked(jobs: Jobs, job: Job, count: int) -> list[tuple[str, str]]:
    """State and reason of runs that are asked for one after the other."""
    runs = [await jobs.run_now(job.id) for _ in range(count)]
    return [(run.state.word, run.reason) for run in runs]


async def end(jobs: Jobs, execution: Execution, claimed: Assignment, state: State) -> Run:
    await execution.finish([Result(claimed.run_id, claimed.fence, state, finished_at=await jobs.now())])
    return await jobs.get_run(claimed.run_id)


async def missed(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, **fields: Any) -> list[str]:
    """What becomes of ten moments that nobody could fire, a minute apart, the last five seconds ago."""
    job = await submitted(jobs, schedule="1m", overlap="allow", **fields)
    set_clock(clock, (job.triggers[0].next_at or 0) + 9 * MINUTE + 5 * SECOND)
    await fire_due(firing)
    return [f"{state} {reason}".strip() for _, state, reason in words(await ledger(probe, job.id))]


# ── of jobs ──


@pytest.mark.policy("overlap-forbid")
async def test_a_run_beside_another_is_skipped(jobs: Jobs):
    assert await asked(jobs, await submitted(jobs), 2) == [("queued", ""), ("skipped", "overlap")]


@pytest.mark.policy("overlap-queue")
async def test_a_run_waits_for_the_other_if_there_is_room(jobs: Jobs):
    job = await submitted(jobs, overlap="queue")
    assert await asked(jobs, job, 3) == [("queued", ""), ("blocked", "overlap"), ("skipped", "overlap")]
    wide = await submitted(jobs, overlap={"policy": "queue", "limit": 2})
    assert [state for state, _ in await asked(jobs, wide, 4)] == ["queued", "blocked", "blocked", "skipped"]


@pytest.mark.policy("overlap-replace")
async def test_a_run_takes_the_place_of_those_before(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, overlap="replace")
    first = await jobs.run_now(job.id)
    await take(probe)
    second, third = await jobs.run_now(job.id), await jobs.run_now(job.id)
    assert (await jobs.get_run(first.id)).cancel_requested
    assert [(await jobs.get_run(run.id)).state.word for run in (second, third)] == ["cancelled", "blocked"]


@pytest.mark.policy("overlap-allow")
async def test_runs_may_be_live_side_by_side(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, overlap="allow")
    await asked(jobs, job, 3)
    assert len(await take(probe, most=5)) == 3


@pytest.mark.policy("misfire-run-latest")
async def test_of_missed_moments_the_latest_runs(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    found = await missed(jobs, firing, probe, clock)
    assert found == ["coalesced misfire"] * 9 + ["queued"]


@pytest.mark.policy("misfire-run-all")
async def test_of_missed_moments_the_last_ones_run(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    found = await missed(jobs, firing, probe, clock, misfire={"policy": "run_all", "limit": 3})
    assert found == ["coalesced misfire"] * 7 + ["queued"] * 3


@pytest.mark.policy("misfire-skip")
async def test_missed_moments_may_be_skipped(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    found = await missed(jobs, firing, probe, clock, misfire="skip")
    assert found == ["skipped misfire"] * 9 + ["queued"]  # the last is not a minute late yet


@pytest.mark.policy("retry")
async def test_a_run_is_tried_as_often_as_it_may_be(jobs: Jobs, execution: Execution, probe: Probe, clock: FakeClock):
    once, twice = await submitted(jobs), await submitted(jobs, retry={"attempts": 2, "backoff": "10s", "jitter": 0})
    await jobs.run_now(once.id)
    (claimed,) = await take(probe)
    assert (await end(jobs, execution, claimed, State.FAILED)).state is State.FAILED

    await jobs.run_now(twice.id)
    (claimed,) = await take(probe)
    run = await end(jobs, execution, claimed, State.FAILED)
    assert (run.state.word, run.reason, run.eligible_at) == ("blocked", "retry", START + 10 * SECOND)
    clock.advance(10)
    await probe.store.sweep()
    (claimed,) = await take(probe)
    assert (claimed.attempt, (await end(jobs, execution, claimed, State.FAILED)).state) == (2, State.FAILED)


@pytest.mark.policy("retry-backoff")
async def test_the_wait_grows_up_to_a_bound(jobs: Jobs):
    retry = {"attempts": 9, "backoff": "10s", "factor": 3, "cap": "100s", "jitter": 0}
    kept = (await jobs.get((await submitted(jobs, retry=retry)).id)).policy.retry
    assert [backoff(kept, run_id=1, attempt=n) for n in (1, 2, 3, 4)] == [10, 30, 90, 100]
    usual = (await jobs.get((await submitted(jobs, retry=5)).id)).policy.retry
    assert all(0.9 <= backoff(usual, run_id=n, attempt=1) <= 1.1 for n in range(100))


@pytest.mark.policy("timeout")
async def test_a_run_that_took_too_long_is_timed_out(jobs: Jobs, execution: Execution, probe: Probe):
    """That it is killed is shown with every executor (tests/contract/test_executors.py)."""
    job = await submitted(jobs, timeout="10m")
    assert (await jobs.get(job.id)).policy.timeout_seconds == 600
    assert (await submitted(jobs)).policy.timeout_seconds is None
    await jobs.run_now(job.id)
    (claimed,) = await take(probe)
    assert '"timeout_seconds":600' in claimed.policy
    assert (await end(jobs, execution, claimed, State.TIMED_OUT)).state is State.TIMED_OUT


@pytest.mark.policy("start-deadline")
async def test_a_run_that_nobody_starts_in_time_is_skipped(jobs: Jobs, probe: Probe, clock: FakeClock):
    patient, hasty = await submitted(jobs), await submitted(jobs, start_deadline="4m")
    runs = [await jobs.run_now(job.id) for job in (patient, hasty)]
    clock.advance(241)
    await probe.store.sweep()
    found = [await jobs.get_run(run.id) for run in runs]
    assert [(run.state.word, run.reason) for run in found] == [("queued", ""), ("skipped", "start_deadline")]


@pytest.mark.policy("priority")
async def test_what_has_a_higher_priority_starts_first(jobs: Jobs, probe: Probe):
    usual, urgent, free = await submitted(jobs), await submitted(jobs, priority=9), await submitted(jobs)
    runs = [await jobs.run_now(usual.id), await jobs.run_now(urgent.id), await jobs.run_now(free.id, priority=7)]
    assert [run.priority for run in runs] == [5, 9, 7]
    assert [(await take(probe))[0].run_id for _ in runs] == [runs[1].id, runs[2].id, runs[0].id]


@pytest.mark.policy("labels")
async def test_an_agent_must_have_every_label(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, labels=["gpu", "zone=eu"])
    await jobs.run_now(job.id)
    assert await take(probe) == await take(probe, "gpu") == []
    assert len(await take(probe, "gpu", "zone=eu")) == 1


@pytest.mark.policy("queue")
async def test_a_job_names_a_queue_that_is_there(jobs: Jobs):
    await jobs.queues.put("reports", {})
    assert (await submitted(jobs)).policy.queue == "default"
    job = await submitted(jobs, queue="reports")
    kept = (await jobs.get(job.id)).policy
    assert place(kept, "ann", None, jobs.queues.find(kept.queue)).queue == jobs.queues.find("reports").id != 0
    with pytest.raises(Invalid):
        await submitted(jobs, queue="other")


@pytest.mark.policy("share")
async def test_a_run_shares_by_owner_or_by_its_data(jobs: Jobs):
    queue = await jobs.queues.get("default")
    own, by_tenant = await submitted(jobs), await submitted(jobs, share="data.tenant")
    kept = [(await jobs.get(job.id)).policy for job in (own, by_tenant)]
    assert [place(policy, "ann", {"tenant": "t1"}, queue).share for policy in kept] == ["ann", "t1"]


@pytest.mark.policy("pause-after-failures")
async def test_a_job_pauses_itself(jobs: Jobs, execution: Execution, probe: Probe):
    careless, careful = await submitted(jobs), await submitted(jobs, pause_after_failures=2)
    for job in (careless, careful, careless, careful):
        await jobs.run_now(job.id)
        (claimed,) = await take(probe)
        await end(jobs, execution, claimed, State.FAILED)
    assert [(await jobs.get(job.id)).paused for job in (careless, careful)] == [False, True]


@pytest.mark.policy("every-agent")
async def test_a_run_for_every_agent_is_nothing_that_one_agent_takes(jobs: Jobs, execution: Execution):
    alone, everywhere = await submitted(jobs), await submitted(jobs, every="agent")
    runs = [await jobs.run_now(job.id) for job in (alone, everywhere)]
    assert [run.kind for run in runs] == ["python", "every"]
    assert [a.run_id for a in await execution.claim(N1, {"python": 9})] == [runs[0].id]


@pytest.mark.policy("rate-limits")
async def test_only_so_many_start_in_a_time(jobs: Jobs, execution: Execution, clock: FakeClock):
    job = await submitted(jobs, overlap="allow", rate_limits=[{"rate": "1/min", "burst": 2}])
    assert set(await asked(jobs, job, 4)) == {("blocked", "limit")}
    assert len(await execution.claim(N1, {"python": 9})) == 2
    assert await execution.claim(N1, {"python": 9}) == []
    clock.advance(60)
    assert len(await execution.claim(N1, {"python": 9})) == 1


@pytest.mark.policy("concurrency-limits")
async def test_only_so_many_run_at_once(jobs: Jobs, execution: Execution):
    job = await submitted(jobs, overlap="allow", concurrency_limits=[{"limit": 1, "per": "data.tenant"}])
    runs = [await jobs.run_now(job.id, data={"tenant": tenant}) for tenant in ("a", "a", "b")]
    first, second = await execution.claim(N1, {"python": 9})
    assert [first.run_id, second.run_id] == [runs[0].id, runs[2].id]
    await end(jobs, execution, first, State.SUCCEEDED)
    assert [one.run_id for one in await execution.claim(N1, {"python": 9})] == [runs[1].id]


@pytest.mark.policy("debounce")
async def test_of_many_orders_one_run_after_the_last(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="20s", overlap="allow", debounce={"seconds": 10, "at_most": "1m"})
    first = await jobs.run_now(job.id, data={"n": 0})
    assert (first.state.word, first.reason, first.replaced) == ("blocked", "debounce", False)
    for n in (1, 2):
        clock.advance(9)
        again = await jobs.run_now(job.id, data={"n": n})
        assert (again.id, again.replaced) == (first.id, True)
    clock.advance(2)
    await fire_due(firing)
    moment, waiting = sorted(await ledger(probe, job.id), key=lambda run: run.state)
    assert (moment.state.word, waiting.state.word) == ("queued", "blocked")  # a due moment is not held back
    clock.advance(8)
    await probe.store.sweep()
    run = await jobs.get_run(first.id)
    assert (run.state.word, run.data) == ("queued", {"n": 2})


@pytest.mark.policy("debounce-at-most")
async def test_an_order_waits_no_longer_than_it_may(jobs: Jobs, clock: FakeClock):
    job = await submitted(jobs, debounce={"seconds": "10s", "at_most": "1m", "per": "data.path"})
    other = await jobs.run_now(job.id, data={"path": "b"})
    for _ in range(8):
        run = await jobs.run_now(job.id, data={"path": "a"})
        clock.advance(9)
    assert run.eligible_at == START + MINUTE
    assert other.eligible_at == START + 10 * SECOND


@pytest.mark.policy("resources")
async def test_a_run_gets_an_agent_that_has_what_it_asks_for(jobs: Jobs, execution: Execution):
    plain = await submitted(jobs, overlap="allow", resources={"slots": 1})
    job = await submitted(jobs, overlap="allow", resources={"gpu": 1, "slots": 2})
    assert await asked(jobs, plain, 1) == [("queued", "")]
    assert await asked(jobs, job, 2) == [("blocked", "limit")] * 2
    assert [one.job_id for one in await execution.claim(N1, {"python": 9})] == [plain.id]  # an agent of before
    assert await execution.claim(node("n2"), {"python": 1}, free={"gpu": 1}) == []
    (claimed,) = await execution.claim(node("n3"), {"python": 4}, free={"gpu": 1})
    await end(jobs, execution, claimed, State.SUCCEEDED)
    assert len(await execution.claim(node("n3"), {"python": 4}, free={"gpu": 1})) == 1


@pytest.mark.policy("large-runs")
async def test_an_agent_is_kept_for_a_large_run(jobs: Jobs, execution: Execution, probe: Probe, clock: FakeClock):
    await probe.register_node(N1)
    large, small = await submitted(jobs, resources={"slots": 3}), await submitted(jobs, overlap="allow")
    await jobs.run_now(large.id)
    clock.advance(30)
    await asked(jobs, small, 4)
    assert await execution.claim(N1, {"python": 2}) == []
    assert [one.job_id for one in await execution.claim(N1, {"python": 4})] == [large.id, small.id]


@pytest.mark.policy("resources-nobody-has")
async def test_what_no_agent_could_ever_run_waits_and_says_so(jobs: Jobs, execution: Execution, probe: Probe):
    await probe.register_node(node("n1", resources={"gpu": 1}))
    could, never = await submitted(jobs, resources={"gpu": 1}), await submitted(jobs, resources={"gpu": 2})
    assert await jobs.offers.warn([could]) == []
    assert "no live agent offers more than 1" in (await jobs.offers.warn([never]))[0]
    run = await jobs.run_now(never.id)
    assert await execution.claim(N1, {"python": 9}, free={"gpu": 1}) == []
    assert "no live agent offers more than 1" in (await jobs.offers.explain(await jobs.get_run(run.id))).message


# ── of queues ──


@pytest.mark.policy("queue-paused")
async def test_nothing_of_a_paused_queue_starts(jobs: Jobs, probe: Probe):
    await jobs.queues.put("reports", {"state": "paused"})
    await asked(jobs, await submitted(jobs, queue="reports"), 1)
    assert await take(probe) == []
    await jobs.queues.set_state("reports", QueueState.OPEN)
    assert len(await take(probe)) == 1


@pytest.mark.policy("queue-draining-moments")
async def test_a_due_moment_of_a_queue_that_is_draining_is_skipped(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    await jobs.queues.put("reports", {"state": "draining"})
    job = await submitted(jobs, schedule="1m", queue="reports")
    set_clock(clock, job.triggers[0].next_at or 0)
    await fire_due(firing)
    assert [word[1:] for word in words(await ledger(probe, job.id))] == [("skipped", "queue_draining")]


@pytest.mark.policy("queue-priority-offset")
async def test_the_offset_of_a_queue_counts_when_queues_are_compared(jobs: Jobs, probe: Probe):
    await jobs.queues.put("urgent", {"priority_offset": 2})
    ordinary, urgent = await submitted(jobs, priority=6), await submitted(jobs, queue="urgent")
    await asked(jobs, ordinary, 1)
    await asked(jobs, urgent, 1)
    assert [one.job_id for one in await take(probe)] == [urgent.id]


@pytest.mark.policy("queue-labels")
async def test_a_queue_is_for_agents_with_its_labels(jobs: Jobs, probe: Probe):
    await jobs.queues.put("big", {"labels": ["big"]})
    await asked(jobs, await submitted(jobs, queue="big"), 1)
    assert await take(probe) == []
    assert len(await take(probe, "big")) == 1


@pytest.mark.policy("queue-age")
async def test_what_has_waited_long_goes_before_a_higher_priority(
    jobs: Jobs, probe: Probe, queue: Told, clock: FakeClock, execution: Execution
):
    cluster = Cluster(probe, queue, clock, execution, node="n1", lease_seconds=15, dead_after=40, is_exclusive=True)
    low, high = await submitted(jobs, priority=1), await submitted(jobs, priority=2)
    await asked(jobs, low, 1)
    clock.advance(600)
    await asked(jobs, high, 1)
    await cluster.tidy()
    assert [one.job_id for one in await take(probe)] == [low.id]


@pytest.mark.policy("queue-concurrency")
async def test_a_queue_limits_how_many_run_at_once(jobs: Jobs, execution: Execution):
    await jobs.queues.put("default", {"concurrency": 2})
    await asked(jobs, await submitted(jobs, overlap="allow"), 3)
    claimed = await execution.claim(N1, {"python": 9})
    assert len(claimed) == 2
    await end(jobs, execution, claimed[0], State.SUCCEEDED)
    assert len(await execution.claim(N1, {"python": 9})) == 1


@pytest.mark.policy("queue-rate")
async def test_a_queue_limits_how_many_start_in_a_time(jobs: Jobs, execution: Execution):
    await jobs.queues.put("default", {"rate": "1/min", "burst": 2})
    await asked(jobs, await submitted(jobs, overlap="allow"), 3)
    assert len(await execution.claim(N1, {"python": 9})) == 2


@pytest.mark.policy("queue-draining")
async def test_a_queue_that_is_draining_takes_nothing_new(jobs: Jobs, probe: Probe):
    job = await submitted(jobs, overlap="allow")
    await jobs.run_now(job.id)
    await jobs.queues.set_state("default", QueueState.DRAINING)
    with pytest.raises(Conflict, match="draining"):
        await jobs.run_now(job.id)
    assert len(await take(probe)) == 1  # what waits is started


@pytest.mark.policy("queue-kinds")
async def test_a_queue_takes_only_its_kinds(jobs: Jobs):
    await jobs.queues.put("builds", {"kinds": ["shell"]})
    with pytest.raises(Invalid, match="takes shell"):
        await submitted(jobs, queue="builds")


@pytest.mark.policy("queue-weights")
async def test_a_share_gets_as_much_as_it_weighs(jobs: Jobs, probe: Probe):
    await jobs.queues.put("default", {"weights": {"bob": 2, "eve": 4}})
    for owner in ("ann", "bob", "eve"):
        (job,) = (await jobs.submit([draft(overlap="allow")], owner=owner)).jobs
        await asked(jobs, job, 40)
    started = [one.owner for one in await claim(probe, "n1", "python", [], 49)]
    assert Counter(started) == pytest.approx({"ann": 7, "bob": 14, "eve": 28}, abs=1)


@pytest.mark.policy("queue-most-waiting")
async def test_an_owner_may_have_so_much_waiting_in_a_queue(jobs: Jobs):
    await jobs.queues.put("default", {"most_waiting": 2})
    job = await submitted(jobs, overlap="allow")
    await asked(jobs, job, 2)
    with pytest.raises(Limited):
        await jobs.run_now(job.id)
    (other,) = (await jobs.submit([draft()], owner="ann")).jobs
    await jobs.run_now(other.id)


@pytest.mark.policy("most-waiting-per-owner")
async def test_an_owner_may_have_so_much_waiting_in_all(probe: Probe, queue: Told):
    jobs = Jobs(probe, queue, most_waiting=2)
    job = await submitted(jobs, overlap="allow")
    await asked(jobs, job, 2)
    with pytest.raises(Limited):
        await jobs.run_now(job.id)


@pytest.mark.policy("after")
async def test_a_job_comes_after_another(jobs: Jobs, probe: Probe, queue: Told):
    first = await submitted(jobs, key="first")
    await submitted(jobs, key="second", after=["first"])
    await jobs.run_now(first.id)
    assert await ended_after(jobs, probe, queue, State.SUCCEEDED) == ["second"]


@pytest.mark.policy("after-on")
async def test_a_job_comes_after_the_failure_of_another(jobs: Jobs, probe: Probe, queue: Told):
    first = await submitted(jobs, key="first")
    await submitted(jobs, key="clean", after=[{"job": "first", "on": "failure"}])
    await submitted(jobs, key="log", after=[{"job": "first", "on": "end"}])
    await submitted(jobs, key="second", after=["first"])
    await jobs.run_now(first.id)
    assert await ended_after(jobs, probe, queue, State.FAILED) == ["clean", "log"]


@pytest.mark.policy("after-latest")
async def test_a_job_comes_after_the_latest_run_of_another(jobs: Jobs, probe: Probe, queue: Told, clock: FakeClock):
    first = await submitted(jobs, key="first")
    await jobs.run_now(first.id)
    await ended_after(jobs, probe, queue, State.SUCCEEDED)
    clock.advance(5)
    second = await submitted(jobs, key="second", after=[{"job": "first", "moment": "latest"}], run_once=True)
    await jobs.fire_due(second.id)
    await Dependencies(probe.store, queue, Placing(probe.store, queue)).act(await probe.store.load_endings(0, 100))
    assert [one.job_id for one in await take(probe)] == [second.id]


async def ended_after(jobs: Jobs, probe: Probe, queue: Told, state: State) -> list[str]:
    """End the one run that waits; return the keys of the jobs that have one now."""
    (one,) = await take(probe)
    await probe.store.finish([Result(one.run_id, one.fence, state)])
    dependencies = Dependencies(probe.store, queue, Placing(probe.store, queue))
    while rows := await probe.store.load_endings(0, 100):
        await dependencies.act(rows)
    return sorted([(await jobs.get(each.job_id)).key or "" for each in await take(probe, most=9)])
