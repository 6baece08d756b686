"""Due moments become runs: each exactly once, on time, whatever happens in between."""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest
import structlog

from horae.core.model import SECOND, Overlap, Run, State
from horae.core.runs.ledger import CATCH_UP, new_run
from horae.core.runs.orders import NEVER, Order, Result
from horae.errors import Unavailable
from horae.queues.local import LocalQueue
from horae.service import firing as module
from horae.service.firing import BEGINNING, Firing, backlog, plans
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock

from ...claiming import claim
from .parts import (
    ALL_SEGMENTS,
    BOTH,
    Machine,
    Probe,
    Told,
    come_round,
    draft,
    fire_due,
    ledger,
    live_until,
    only,
    scheduler,
    set_clock,
    submitted,
    words,
)

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def minutes(runs: list[Run]) -> list[int]:
    return [(run.due_at - START) // MINUTE for run in runs]


def moment(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text).timestamp()) * SECOND


async def finish_all(store: Any, at: int | None = None) -> None:
    """Claim and end everything that waits."""
    while claimed := await claim(store, "n1", "python", [], 1000):
        now = await store.now() if at is None else at
        await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=now) for a in claimed])


# ── the ledger of a scheduler that is always there ──


async def test_a_week_of_cron_leaves_exactly_its_moments(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="*/20 6-18 * * 1-5")
    begin = datetime.datetime.fromtimestamp(START // SECOND, datetime.UTC)
    week = [begin + datetime.timedelta(minutes=i) for i in range(7 * 24 * 60 + 1)]
    expected = [
        round(at.timestamp()) * SECOND
        for at in week
        if at.minute % 20 == 0 and 6 <= at.hour <= 18 and at.isoweekday() <= 5
    ]

    while (upcoming := only(await jobs.get(job.id)).next_at) is not None and upcoming <= START + 7 * 24 * HOUR:
        set_clock(clock, upcoming)
        await fire_due(firing)
        await finish_all(probe.store)

    runs = await ledger(probe, job.id)
    assert [run.due_at for run in runs] == expected
    assert {run.state for run in runs} == {State.SUCCEEDED}
    assert all(run.created_at == run.due_at for run in runs)  # never early, never late


async def test_a_day_with_a_gap_and_one_with_a_fold_fire_as_their_clocks_show(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    """In Berlin 02:30 does not exist on 2027-03-28, and is twice on 2027-10-31."""
    daily = await submitted(jobs, schedule="30 2 * * *", timezone="Europe/Berlin", overlap="allow")
    hourly = await submitted(jobs, schedule="1h", overlap="allow")
    for day in ("2027-03-27", "2027-10-30"):
        set_clock(clock, moment(f"{day}T12:00:00+00:00"))
        await fire_due(firing)  # what lies between is coalesced
        await live_until(firing, probe.store, clock, moment(f"{day}T12:00:00+00:00") + 48 * HOUR)

    berlin = ZoneInfo("Europe/Berlin")
    days = ("2027-03-28", "2027-03-29", "2027-10-31", "2027-11-01")
    by_day: dict[str, list[str]] = {day: [] for day in days}
    for run in await ledger(probe, daily.id):
        local = datetime.datetime.fromtimestamp(run.due_at / SECOND, berlin)
        if local.date().isoformat() in by_day:
            by_day[local.date().isoformat()].append(local.strftime("%H:%M%z"))
    assert by_day == {
        "2027-03-28": ["03:00+0200"],
        "2027-03-29": ["02:30+0200"],
        "2027-10-31": ["02:30+0200"],
        "2027-11-01": ["02:30+0100"],
    }
    due = [run.due_at for run in await ledger(probe, hourly.id)]
    assert due == list(range(START + HOUR, due[-1] + 1, HOUR))  # elapsed time knows no daylight saving


async def test_a_schedule_ends_at_its_end(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, triggers=[{"every": "1m", "end_at": "2027-01-15T08:03:00Z"}], overlap="allow")

    await live_until(firing, probe.store, clock, START + HOUR)

    assert minutes(await ledger(probe, job.id)) == [1, 2, 3]
    assert only(await jobs.get(job.id)).next_at is None


async def test_jitter_moves_every_moment_of_a_trigger_by_the_same_span(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    many = [await submitted(jobs, triggers=[{"cron": "* * * * *", "jitter": "30s"}], overlap="allow") for _ in range(8)]

    await live_until(firing, probe.store, clock, START + 4 * MINUTE)

    spans = []
    for job in many:
        due = [run.due_at for run in await ledger(probe, job.id)]
        assert {after - before for before, after in pairwise(due)} == {MINUTE}
        spans.append(due[0] % MINUTE)
    assert all(0 <= span < 30 * SECOND for span in spans)
    assert len(set(spans)) > 4


@pytest.mark.parametrize("fields", [{"run_once": True}, {"run_at": "2001-01-01T00:00:00Z"}])
async def test_a_moment_in_the_past_is_due_now_and_only_once(
    fields: dict[str, Any], jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, **fields)

    await fire_due(firing)
    clock.advance(3600)
    await fire_due(firing)

    assert words(await ledger(probe, job.id)) == [(START, "queued", "")]


async def test_a_start_in_the_past_gives_one_moment_now_then_goes_on_from_its_anchor(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    trigger = {"every": "1h", "start_at": "2027-01-15T05:40:00Z"}
    job = await submitted(jobs, triggers=[trigger], overlap="allow")

    await fire_due(firing)
    await live_until(firing, probe.store, clock, START + 2 * HOUR)

    assert minutes(await ledger(probe, job.id)) == [0, 40, 100]


async def test_data_priority_and_labels_reach_the_run(jobs: Jobs, firing: Firing, probe: Probe):
    await submitted(jobs, triggers=[{"at": "2001-01-01T00:00:00Z", "data": {"x": [1]}}], priority=9, labels=["gpu"])

    await fire_due(firing)

    assert await claim(probe, "n1", "python", [], 1) == []
    (assignment,) = await claim(probe, "n1", "python", ["gpu", "big"], 1)
    assert assignment.data == '{"x":[1]}'


# ── fixed delay ──


async def test_a_fixed_delay_counts_from_the_finish(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, triggers=[{"every": "10s", "mode": "delay"}])
    await live_until(firing, probe.store, clock, START + 10 * SECOND)
    (assignment,) = await claim(probe, "n1", "python", [], 1)
    await live_until(firing, probe.store, clock, START + 73 * SECOND)  # it runs for a minute and three seconds
    result = Result(assignment.run_id, assignment.fence, State.SUCCEEDED, finished_at=START + 73 * SECOND)
    await probe.finish([result])

    await live_until(firing, probe.store, clock, START + 90 * SECOND)

    assert [(run.due_at - START) // SECOND for run in await ledger(probe, job.id)] == [10, 83]


async def test_a_fixed_delay_that_was_due_during_an_outage_has_its_true_moment(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, triggers=[{"every": "10s", "mode": "delay"}])
    await live_until(firing, probe.store, clock, START + 21 * SECOND)  # it looked at 20 and 21 and found it live
    clock.advance(0.5)
    await finish_all(probe, START + 21 * SECOND + 500_000)
    clock.advance(3600)

    await fire_due(firing)

    assert [run.due_at - START for run in await ledger(probe, job.id)] == [10 * SECOND, 31 * SECOND + 500_000]


async def test_a_fixed_delay_ends_at_its_end(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    trigger = {"every": "10s", "mode": "delay", "end_at": "2027-01-15T08:00:35Z"}
    job = await submitted(jobs, triggers=[trigger])
    for seconds in range(1, 120):
        await live_until(firing, probe.store, clock, START + seconds * SECOND)
        await finish_all(probe)

    assert [(run.due_at - START) // SECOND for run in await ledger(probe, job.id)] == [10, 20, 30]
    assert only(await jobs.get(job.id)).next_at is None


async def test_a_fixed_delay_whose_last_run_ends_too_late_for_another_is_over(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    trigger = {"every": "10s", "mode": "delay", "end_at": "2027-01-15T08:00:35Z"}
    job = await submitted(jobs, triggers=[trigger])
    await live_until(firing, probe.store, clock, START + 25 * SECOND)
    clock.advance(0.5)
    await finish_all(probe, START + 25 * SECOND + 500_000)

    await live_until(firing, probe.store, clock, START + 120 * SECOND)

    assert [(run.due_at - START) // SECOND for run in await ledger(probe, job.id)] == [10]
    assert only(await jobs.get(job.id)).next_at is None


async def test_a_fixed_delay_that_is_skipped_waits_its_whole_delay(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, triggers=[{"every": "1m", "mode": "delay"}])
    await jobs.run_now(job.id)  # by hand, and it takes long

    await live_until(firing, probe.store, clock, START + 3 * MINUTE)

    runs = [run for run in await ledger(probe, job.id) if run.trigger_id is not None]
    assert words(runs) == [(START + i * MINUTE, "skipped", "overlap") for i in (1, 2, 3)]


async def test_a_herd_of_fixed_delays_asks_once_for_their_last_runs(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    await jobs.submit([draft(f"job {i}", triggers=[{"every": "10s", "mode": "delay"}]) for i in range(50)])
    clock.advance(10)

    await fire_due(firing)

    assert probe.calls["load_last_runs"] == 1
    assert (await probe.census()).live == {"queued": 50}


async def test_a_fixed_delay_that_was_deleted_meanwhile_harms_nobody(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    gone = await submitted(jobs, triggers=[{"every": "10s", "mode": "delay"}])
    stays = await submitted(jobs, triggers=[{"every": "10s", "mode": "delay"}])
    await firing.refill()
    await jobs.delete(gone.id)
    clock.advance(10)

    await fire_due(firing)

    assert await ledger(probe, gone.id) == []
    assert len(await ledger(probe, stays.id)) == 1


# ── after an outage ──


@BOTH
async def test_run_latest_runs_the_newest_and_the_others_point_at_it(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m")
    clock.advance(5 * 60 + 30)

    await fire_due(firing)

    runs = await ledger(probe, job.id)
    assert minutes(runs) == [1, 2, 3, 4, 5]
    assert [run.state for run in runs] == [State.COALESCED] * 4 + [State.QUEUED]
    assert {run.into_run_id for run in runs[:-1]} == {runs[-1].id}
    trigger = only(await jobs.get(job.id))
    assert (trigger.last_at, trigger.next_at) == (START + 5 * MINUTE, START + 6 * MINUTE)


@BOTH
async def test_run_all_runs_the_newest_up_to_its_limit_oldest_first(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", misfire={"policy": "run_all", "limit": 3}, overlap="allow")
    clock.advance(6 * 60)

    await fire_due(firing)

    runs = await ledger(probe, job.id)
    assert minutes(runs) == [1, 2, 3, 4, 5, 6]
    assert [run.state for run in runs] == [State.COALESCED] * 3 + [State.QUEUED] * 3
    assert {run.into_run_id for run in runs[:3]} == {runs[3].id}
    assert [run.id for run in runs[3:]] == sorted(run.id for run in runs[3:])


async def test_run_all_with_no_limit_left_skips_every_missed_moment(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", misfire={"policy": "run_all", "limit": 0})
    clock.advance(3 * 60)

    await fire_due(firing)

    assert [word for _, *word in words(await ledger(probe, job.id))] == [["skipped", "misfire"]] * 3


@BOTH
async def test_skip_runs_only_what_is_hardly_late(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="30s", misfire="skip", overlap="allow")
    clock.advance(150)

    await fire_due(firing)

    assert words(await ledger(probe, job.id)) == [
        (START + 30 * SECOND, "skipped", "misfire"),
        (START + 60 * SECOND, "skipped", "misfire"),
        (START + 90 * SECOND, "queued", ""),
        (START + 120 * SECOND, "queued", ""),
        (START + 150 * SECOND, "queued", ""),
    ]


async def test_under_skip_nothing_is_missed_that_is_not_late_however_dense_the_moments(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="10ms", misfire="skip", overlap="allow")
    set_clock(clock, START + 21 * SECOND)

    for _ in range(30):
        await come_round(firing)

    assert {run.state for run in await ledger(probe, job.id)} == {State.QUEUED}


@BOTH
@pytest.mark.parametrize("misfire", ["run_latest", {"policy": "run_all", "limit": 100}, "skip"])
async def test_an_outage_longer_than_one_look_leaves_an_exact_ledger_despite_crashes(
    misfire: Any, jobs: Jobs, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s", misfire=misfire, overlap="allow")
    count = 2 * CATCH_UP + 700
    clock.advance(count)

    while (only(await jobs.get(job.id)).next_at or 0) <= clock.now():
        fresh = scheduler(probe, clock)  # each one does a part of the work, then is gone with all it knew
        await come_round(fresh)

    runs = await ledger(probe, job.id)
    assert [run.due_at for run in runs] == [START + i * SECOND for i in range(1, count + 1)]
    states = Counter(run.state for run in runs)
    ran = {"run_latest": 1, "skip": 61}.get(misfire if isinstance(misfire, str) else "", 100)
    assert states[State.QUEUED] == ran
    if misfire != "skip":
        first_run = next(run for run in runs if run.state is State.QUEUED)
        assert {run.into_run_id for run in runs if run.state is State.COALESCED} == {first_run.id}
    assert all(run.state is State.QUEUED for run in runs[-ran:])


# ── what was missed is caught up beside what is punctual ──


def moments_in(fires: Any) -> int:
    return sum(len(fire.passed) + fire.born for fire in fires)


@BOTH
async def test_a_punctual_moment_does_not_wait_for_what_was_missed(jobs: Jobs, probe: Probe, clock: FakeClock):
    many = (await jobs.submit([draft(f"job {i}", schedule="1m") for i in range(30)])).jobs
    clock.advance(50 * 3600)
    punctual = await submitted(jobs, schedule="5s")
    clock.advance(5)
    firing = scheduler(probe, clock)
    probe.given.clear()

    await firing.refill()
    await firing.tick()

    assert words(await ledger(probe, punctual.id)) == [(clock.now(), "queued", "")]
    assert [moments_in(args[0]) for name, args in probe.given if name == "fire"] == [1]
    assert firing.is_behind
    assert len(firing.backlog) == 30
    assert firing.backlog.moments == pytest.approx(30 * 3000, rel=0.01)
    while firing.is_behind:
        await come_round(firing)
    assert max(moments_in(args[0]) for name, args in probe.given if name == "fire") <= backlog.LARGEST_PORTION
    for job in many[::10]:
        runs = await ledger(probe, job.id)
        assert minutes(runs) == list(range(1, 3001))
        assert Counter(run.state for run in runs) == {State.COALESCED: 2999, State.QUEUED: 1}
        assert {run.into_run_id for run in runs[:-1]} == {runs[-1].id}


async def test_those_with_the_fewest_missed_moments_are_back_first(jobs: Jobs, probe: Probe, clock: FakeClock):
    dense = await submitted(jobs, schedule="1s")
    sparse = await submitted(jobs, schedule="1h")
    clock.advance(5 * 3600 + 10)
    firing = scheduler(probe, clock)

    await come_round(firing)

    assert [run.state for run in await ledger(probe, sparse.id)] == [State.COALESCED] * 4 + [State.QUEUED]
    assert State.QUEUED not in {run.state for run in await ledger(probe, dense.id)}


async def test_of_a_long_past_what_is_punctual_is_read_first(
    jobs: Jobs, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "PAGE", 7)
    await jobs.submit([draft(f"job {i}", schedule="1h") for i in range(40)])
    clock.advance(3600 + 30)
    punctual = await submitted(jobs, schedule="5s")
    clock.advance(5)
    firing = scheduler(probe, clock)

    await firing.refill(sweep=True)
    await firing.tick()

    assert len(await ledger(probe, punctual.id)) == 1
    assert probe.calls["load_due"] == 2
    await fire_due(firing)
    assert (await probe.census()).live == {"queued": 41}


@BOTH
@pytest.mark.parametrize("loss", ["lose_call", "lose_answer"])
async def test_a_store_that_is_lost_while_catching_up_costs_nothing_and_gets_less(
    loss: str, jobs: Jobs, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s")
    clock.advance(1500)
    firing = scheduler(probe, clock)
    await come_round(firing)
    getattr(probe, loss)("fire")

    with pytest.raises(Unavailable):
        await come_round(firing)
    probe.given.clear()
    await come_round(firing)

    assert [moments_in(args[0]) for name, args in probe.given if name == "fire"] == [backlog.LEAST_PORTION]
    await fire_due(firing)
    runs = await ledger(probe, job.id)
    assert [run.due_at for run in runs] == [START + i * SECOND for i in range(1, 1501)]
    assert {run.into_run_id for run in runs[:-1]} == {runs[-1].id}


class Working(Machine):
    """A clock by which every look takes a millisecond."""

    def elapsed(self) -> float:
        self.advance(0.001)
        return super().elapsed()


async def test_others_have_their_turn_while_many_moments_are_prepared(jobs: Jobs, probe: Probe, clock: FakeClock):
    await jobs.submit([draft(f"job {i}", schedule="1m") for i in range(500)])
    clock.advance(60)
    machine = Working()
    machine.advance(60)
    firing = scheduler(probe, machine)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await firing.refill()
    rival = asyncio.create_task(others())
    entries = firing._ahead.take_due(firing.now(), 1000)
    await firing._prepare(entries)
    rival.cancel()

    assert len(entries) == 500
    assert turns >= 10  # a look at the watch for every few of them takes 62 ms of it


async def test_how_much_was_missed_is_among_the_metrics(jobs: Jobs, probe: Probe, clock: FakeClock):
    await submitted(jobs, schedule="1m")
    clock.advance(3600)
    metrics = Metrics()
    firing = Firing(probe, LocalQueue(), clock, metrics)
    firing.own(dict.fromkeys(ALL_SEGMENTS, 0))
    await firing.refill()

    assert b"horae_catch_up_triggers 1.0" in metrics.text()
    assert b"horae_catch_up_moments 60.0" in metrics.text()
    await fire_due(firing)
    assert b"horae_catch_up_moments 0.0" in metrics.text()


async def test_a_policy_that_changes_in_the_middle_leaves_no_moment_pointing_nowhere(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s")
    clock.advance(CATCH_UP + 1500)
    await come_round(firing)  # a part: it points at a run that is still to come
    await jobs.replace(job.id, draft(schedule="1s", misfire={"policy": "run_all", "limit": 0}))
    await fire_due(scheduler(probe, clock))
    await jobs.replace(job.id, draft(schedule="1s"))
    clock.advance(1)

    await fire_due(scheduler(probe, clock))

    runs = await ledger(probe, job.id)
    ids = {run.id for run in runs}
    pointing = [run.into_run_id for run in runs if run.state is State.COALESCED]
    assert len(pointing) >= backlog.FIRST_PORTION // 2
    assert set(pointing) <= ids


async def test_a_run_past_its_start_deadline_is_born_and_then_skipped(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", start_deadline="10s")
    clock.advance(71)

    await fire_due(firing)
    await probe.sweep()

    assert words(await ledger(probe, job.id)) == [(START + MINUTE, "skipped", "start_deadline")]


# ── more than one scheduler ──


@BOTH
async def test_two_schedulers_on_the_same_segments_make_no_duplicates(jobs: Jobs, probe: Probe, clock: FakeClock):
    many = (await jobs.submit([draft(f"job {i}", schedule="1s", overlap="allow") for i in range(40)])).jobs
    pair = [scheduler(probe, clock), scheduler(probe, clock)]

    for _ in range(5):
        clock.advance(1)
        await asyncio.gather(*(fire_due(one) for one in pair))

    for job in many:
        assert [run.due_at - START for run in await ledger(probe, job.id)] == [i * SECOND for i in range(1, 6)]


async def test_two_schedulers_with_stores_of_their_own_do_no_harm(
    postgres_url: str, postgres_store: Any, clock: FakeClock
):
    """On two connections the statements truly meet; whoever loses a deadlock tries again."""
    other = PostgresStore(postgres_url, clock=clock)
    await other.open()
    jobs = Jobs(postgres_store, Told())
    many = (await jobs.submit([draft(f"job {i}", schedule="1s", overlap="allow") for i in range(300)])).jobs
    pair = [scheduler(postgres_store, clock), scheduler(other, clock)]
    try:
        for _ in range(6):
            clock.advance(1)
            await asyncio.gather(*(fire_due(one) for one in pair))
    finally:
        await other.close()

    due = Counter([(run.job_id, run.due_at) for job in many for run in await ledger(postgres_store, job.id)])
    assert set(due.values()) == {1}
    assert len(due) == 300 * 6


async def test_a_scheduler_goes_on_in_time_when_another_one_that_was_faster_is_gone(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s", overlap="allow")
    await firing.refill()
    clock.advance(1)
    await fire_due(scheduler(probe, clock))
    await fire_due(firing)  # too late for this one

    clock.advance(1)
    await fire_due(firing)

    assert [run.due_at - START for run in await ledger(probe, job.id)] == [SECOND, 2 * SECOND]


async def test_a_segment_that_is_taken_away_is_left_alone(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    mine = await submitted(jobs, schedule="1s", segment=1)
    theirs = await submitted(jobs, schedule="1s", segment=2)
    await firing.refill()

    assert firing.own({1: 0})
    assert not firing.own({1: 0})
    clock.advance(1)
    await fire_due(firing)

    assert len(await ledger(probe, mine.id)) == 1
    assert await ledger(probe, theirs.id) == []


async def test_a_job_that_moves_to_another_segment_is_fired_by_its_new_owner(
    jobs: Jobs, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s", segment=1, overlap="allow")
    old, new = scheduler(probe, clock), scheduler(probe, clock)
    old.own({1: 0})
    new.own({2: 0})
    await old.refill()
    await new.refill()
    await jobs.replace(job.id, draft(schedule="1s", segment=2, overlap="allow"))
    clock.advance(1)

    await fire_due(old)
    assert await ledger(probe, job.id) == []
    await new.refill(sweep=True)
    await fire_due(new)

    assert len(await ledger(probe, job.id)) == 1


async def test_a_run_that_takes_the_place_of_a_waiting_one_is_announced(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, queue: Told
):
    job = await submitted(jobs, schedule="1s", overlap="replace")
    clock.advance(1)
    await fire_due(firing)
    queue.take()
    clock.advance(1)

    await fire_due(firing)

    assert [run.state for run in await ledger(probe, job.id)] == [State.CANCELLED, State.QUEUED]
    assert "runs" in queue.take()


@BOTH
async def test_two_schedulers_that_both_own_everything_fire_each_moment_once(probe: Probe, clock: FakeClock):
    queue = Told()
    jobs = Jobs(probe, queue)
    many = (await jobs.submit([draft(f"job {i}", schedule="1s", overlap="allow") for i in range(20)])).jobs
    rivals = [scheduler(probe, clock, queue) for _ in range(2)]
    for _ in range(5):
        clock.advance(1)
        await asyncio.gather(*(fire_due(rival) for rival in rivals))

    for job in many:
        moments = [run.due_at for run in await ledger(probe, job.id)]
        assert moments == [START + n * SECOND for n in range(1, 6)]


@BOTH
async def test_a_scheduler_whose_term_is_over_fires_nothing_and_says_so(probe: Probe, clock: FakeClock):
    jobs = Jobs(probe, Told())
    job = await submitted(jobs, schedule="1s", segment=7)
    lease = await probe.take_lease("leader", "boss", None)
    await probe.assign_segments({7: "old"}, lease)
    metrics = Metrics()
    old = Firing(probe, LocalQueue(), clock, metrics)
    old.own({7: 1})
    await old.refill()
    await probe.assign_segments({7: "new"}, lease)
    clock.advance(1)

    await old.tick()

    assert await ledger(probe, job.id) == []
    assert (old.is_superseded, metrics.fenced) == (True, 1)
    new = scheduler(probe, clock)
    new.own({7: 2})
    await fire_due(new)
    assert len(await ledger(probe, job.id)) == 1


async def test_without_segments_the_scheduler_sleeps(probe: Probe, clock: FakeClock, firing: Firing):
    firing.own({})

    await firing.refill(sweep=True)

    assert await firing.tick() > clock.now()
    assert probe.calls["load_due"] == 0


# ── the look-ahead ──


@pytest.mark.parametrize("change", ["pause", "delete", "reschedule"])
async def test_a_look_ahead_from_before_a_change_fires_nothing(
    change: str, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="5s")
    await firing.refill()
    await {
        "pause": lambda: jobs.set_paused(job.id, True),
        "delete": lambda: jobs.delete(job.id),
        "reschedule": lambda: jobs.replace(job.id, draft(schedule="1h")),
    }[change]()
    clock.advance(5)

    await fire_due(firing)

    assert await ledger(probe, job.id) == []


async def test_a_new_trigger_within_the_window_fires_on_time_after_its_announcement(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, queue: Told
):
    due = queue.watch("due")
    assert await fire_due(firing) > clock.now()
    job = await submitted(jobs, schedule="3s")
    assert await due.wait(0)

    await firing.refill(sweep=True)
    wake_at = await firing.tick()

    assert wake_at <= START + 3 * SECOND
    set_clock(clock, START + 3 * SECOND)
    await firing.tick()
    assert [run.created_at for run in await ledger(probe, job.id)] == [START + 3 * SECOND]


async def test_what_lies_beyond_the_window_is_found_when_it_comes_near(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="25s")

    for _ in range(100):
        await firing.refill()
        wake_at = await firing.tick()
        if wake_at > START + 30 * SECOND:
            break
        assert wake_at > clock.now()
        set_clock(clock, wake_at)

    assert [(run.due_at, run.created_at) for run in await ledger(probe, job.id)] == [(START + 25 * SECOND,) * 2]
    assert probe.calls["load_due"] < 20  # topped up, not polled


async def test_a_scheduler_that_forgets_everything_loses_nothing(jobs: Jobs, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="1s", overlap="allow")

    for _ in range(10):
        clock.advance(1)
        await fire_due(scheduler(probe, clock))

    assert [run.due_at - START for run in await ledger(probe, job.id)] == [i * SECOND for i in range(1, 11)]


async def test_a_store_whose_clock_is_behind_is_asked_again_in_time(jobs: Jobs, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="5s")
    ahead = FakeClock(START + 700_000)  # the scheduler's own clock runs 0.7 s ahead of the store's
    firing = scheduler(probe, ahead)
    await firing.refill()
    set_clock(ahead, START + 5 * SECOND)
    set_clock(clock, START + 4 * SECOND + 300_000)

    await firing.tick()

    assert await ledger(probe, job.id) == []
    assert await fire_due(firing) == START + 5 * SECOND
    assert firing.now() == clock.now()
    ahead.advance(0.7)
    clock.advance(0.7)
    await firing.tick()
    assert [run.created_at for run in await ledger(probe, job.id)] == [START + 5 * SECOND]


async def test_the_distance_of_the_clocks_is_measured(probe: Probe, clock: FakeClock):
    firing = scheduler(probe, FakeClock(START - 90 * SECOND))

    await firing.set_clock()

    assert firing.now() == clock.now()


@pytest.mark.parametrize(("there", "back"), [(10.0, 0.0), (0.0, 10.0), (0.1, 0.1)])
async def test_a_store_that_was_slow_to_tell_the_time_is_never_thought_to_be_ahead(
    there: float, back: float, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    own = FakeClock(START - 90 * SECOND)
    tell = probe.now

    async def tell_slowly() -> int:
        pass_time(there, own, clock)
        told = await tell()
        pass_time(back, own, clock)
        return told

    monkeypatch.setattr(probe, "now", tell_slowly)
    firing = scheduler(probe, own)

    await firing.set_clock()

    assert clock.now() - round(back * SECOND) <= firing.now() <= clock.now() + SECOND // 4


# ── clocks that jump ──


def pass_time(seconds: float, *clocks: FakeClock) -> None:
    for clock in clocks:
        clock.advance(seconds)


@BOTH
@pytest.mark.parametrize("misfire", ["run_latest", "skip", {"policy": "run_all", "limit": 5}])
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_jump_of_the_schedulers_wall_clock_touches_no_moment(
    misfire: Any, hours: int, jobs: Jobs, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", misfire=misfire, overlap="allow")
    machine = Machine()
    firing = scheduler(probe, machine)
    await fire_due(firing)
    machine.jump(hours * 3600)

    for _ in range(3):
        pass_time(60, machine, clock)
        await fire_due(firing)

    assert words(await ledger(probe, job.id)) == [(START + n * MINUTE, "queued", "") for n in (1, 2, 3)]
    assert firing.now() == clock.now()


@BOTH
async def test_a_scheduler_that_starts_with_a_wrong_clock_swallows_no_moment(
    jobs: Jobs, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", overlap="allow")
    machine = Machine()
    machine.jump(3600)
    pass_time(60, machine, clock)

    await fire_due(scheduler(probe, machine))  # the first word on its clock is the answer to its first fire

    assert words(await ledger(probe, job.id)) == [(START + MINUTE, "queued", "")]


async def test_a_jump_is_told_once_and_measured_again(probe: Probe, clock: FakeClock):
    machine = Machine()
    firing = scheduler(probe, machine)
    await firing.set_clock()
    probe.calls.clear()
    with structlog.testing.capture_logs() as told:
        await firing.refill()
        assert probe.calls["now"] == 0
        machine.jump(90)
        pass_time(3, machine, clock)
        await firing.refill()
        pass_time(3, machine, clock)
        await firing.refill()
        await firing.set_clock()

    assert probe.calls["now"] == 2
    assert [(line["event"], line["seconds"]) for line in told] == [("clock.jumped", 90.0)]


@BOTH
@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_step_of_the_stores_clock_neither_doubles_nor_loses_a_moment(
    minutes: int, jobs: Jobs, probe: Probe, clock: FakeClock
):
    """After a step back all waits until the store's clock has come there again; after a step forward all that it
    passed is due."""
    job = await submitted(jobs, schedule="1m", overlap="allow", misfire={"policy": "run_all", "limit": 100})
    machine = Machine()
    firing = scheduler(probe, machine)
    for turn in range(80):
        if turn == 13:
            clock.advance(minutes * 60)
        pass_time(15, machine, clock)
        await fire_due(firing)

    assert firing.now() == clock.now()
    runs = await ledger(probe, job.id)
    assert [run.due_at for run in runs] == [START + n * MINUTE for n in range(1, 21 + minutes)]
    assert all(run.created_at >= run.due_at for run in runs)


async def test_a_definition_that_changes_between_two_reads_is_read_again(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s", overlap="allow")
    clock.advance(1)

    async def rename(*_: Any) -> None:
        await Jobs(probe.store, Told()).replace(job.id, draft("new", schedule="1s", overlap="allow"))

    probe.before("load_definitions", rename)
    await fire_due(firing)

    assert [run.due_at for run in await ledger(probe, job.id)] == [START + SECOND]


# ── batches ──


@BOTH
async def test_a_herd_of_five_thousand_fires_in_a_few_statements(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    for start in range(0, 5000, 500):
        await jobs.submit([draft(f"job {i}", schedule="* * * * *") for i in range(start, start + 500)])
    await fire_due(firing)
    probe.calls.clear()
    set_clock(clock, START + MINUTE)

    await fire_due(firing)

    assert (await probe.census()).live == {"queued": 5000}
    assert probe.calls["fire"] == 5
    assert probe.calls["load_due"] <= 3


async def test_more_overdue_than_one_page_is_fired_page_by_page(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "PAGE", 7)
    monkeypatch.setattr(module, "FIRED_TOGETHER", 5)
    await jobs.submit([draft(f"job {i}", schedule="1m") for i in range(40)])
    clock.advance(60)

    await fire_due(firing)

    assert (await probe.census()).live == {"queued": 40}
    clock.advance(60)
    await fire_due(firing)
    seconds = [run for i in range(1, 41) for run in await ledger(probe, i) if run.due_at == START + 2 * MINUTE]
    assert len(seconds) == 40


async def test_definitions_pushed_out_of_memory_are_read_again(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plans, "MAX_PLANS", 3)
    await jobs.submit([draft(f"job {i}", schedule="1m") for i in range(10)])
    await firing.refill(sweep=True)
    clock.advance(60)

    await fire_due(firing)

    assert (await probe.census()).live == {"queued": 10}


@pytest.mark.parametrize("loss", ["lose_call", "lose_answer"])
async def test_a_store_that_is_lost_while_firing_costs_nothing(
    loss: str, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1s", overlap="allow")
    await firing.refill()
    clock.advance(1)
    getattr(probe, loss)("fire")

    with pytest.raises(Unavailable):
        await firing.tick()
    clock.advance(1)
    await fire_due(firing)

    runs = await ledger(probe, job.id)
    assert [run.due_at for run in runs] == [START + SECOND, START + 2 * SECOND]


async def test_no_flight_is_left_in_the_air_when_the_next_batch_cannot_be_prepared(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRED_TOGETHER", 1)
    await jobs.submit([draft("a", schedule="1s"), draft("b", triggers=[{"every": "1500ms", "mode": "delay"}])])
    await firing.refill()
    clock.advance(2)
    landed = asyncio.Event()

    async def hold(*_: Any) -> None:
        await landed.wait()

    probe.before("fire", hold)
    probe.lose_call("load_last_runs")
    with pytest.raises(Unavailable):
        await firing.tick()

    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_announcements_follow_what_was_made(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, queue: Told
):
    await submitted(jobs, schedule="1s")
    await submitted(jobs, schedule="2s", overlap="replace")
    queue.take()
    clock.advance(1)
    await fire_due(firing)
    assert queue.take() == ["runs"]
    clock.advance(1)
    await fire_due(firing)

    assert set(queue.take()) == {"runs", "cancel"}


async def test_overlap_is_decided_when_the_run_is_made(jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock):
    job = await submitted(jobs, schedule="1m")
    new = new_run(job.id, job.kind, job.policy, START)
    assert new.overlap is Overlap.FORBID
    await probe.enqueue([Order(new)])
    clock.advance(60)

    await fire_due(firing)

    assert [word for _, *word in words(await ledger(probe, job.id))] == [["queued", ""], ["skipped", "overlap"]]
    assert await probe.load_due(ALL_SEGMENTS, (-1, NEVER), START + 2 * MINUTE, 10) == []


# ── moments that fall due while the look-ahead is filled ──


async def filled_while(
    firing: Firing, jobs: Jobs, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Refill with many new definitions; time passes while the first of them are read."""
    monkeypatch.setattr(module, "LOOK_UP", 2)
    for number in range(6):
        await submitted(jobs, f"new {number}", schedule="9s")

    async def late(*_: object) -> None:
        clock.advance(seconds)

    probe.before("load_definitions", late)
    await firing.refill()


@BOTH
async def test_a_moment_does_not_wait_for_the_look_ahead_to_be_filled(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    job = await submitted(jobs, schedule="5s")
    await firing.refill()
    clock.advance(3)
    fired_after: list[int] = []

    async def look(_: object) -> None:
        fired_after.append(probe.calls["load_definitions"])

    probe.after("fire", look)
    probe.calls.clear()
    await filled_while(firing, jobs, probe, clock, monkeypatch, 2)

    assert [run.due_at for run in await ledger(probe, job.id)] == [START + 5 * SECOND]
    assert fired_after == [1]
    assert probe.calls["load_definitions"] == 3


@BOTH
async def test_a_moment_that_falls_due_while_rows_are_read_is_fired_before_they_are_there(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "QUIET", 0)
    job = await submitted(jobs, schedule="5s")
    await firing.refill()
    clock.advance(4.99)
    fired = asyncio.Event()

    async def note(_: object) -> None:
        fired.set()

    async def read_slowly(_: object) -> None:
        clock.advance(0.01)
        await asyncio.wait_for(fired.wait(), 30)

    probe.after("fire", note)
    probe.after("load_due", read_slowly)
    await firing.refill()

    assert [run.due_at for run in await ledger(probe, job.id)] == [START + 5 * SECOND]


@BOTH
async def test_what_fires_while_it_is_read_is_not_fired_again_nor_looked_for_from_the_beginning(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "QUIET", 0)
    job = await submitted(jobs, schedule="5s", overlap="allow")
    await firing.refill()
    clock.advance(6)
    was_read = asyncio.Event()

    async def note(rows: Any) -> None:
        assert [row.next_at for row in rows] == [START + 5 * SECOND], "the look back sees what is about to fire"
        was_read.set()

    async def wait(*_: object) -> None:
        await asyncio.wait_for(was_read.wait(), 30)

    probe.after("load_due", note)
    probe.before("fire", wait)
    await firing.refill()
    probe.given.clear()
    clock.advance(4)
    await firing.refill()
    await firing.tick()

    assert [run.due_at for run in await ledger(probe, job.id)] == [START + 5 * SECOND, START + 10 * SECOND]
    fired = [args[0] for name, args in probe.given if name == "fire"]
    assert [[fire.cur_at for fire in fires] for fires in fired] == [[START + 10 * SECOND]]
    assert ("load_due", BEGINNING) not in [(name, args[1]) for name, args in probe.given if name == "load_due"]


@BOTH
async def test_a_store_that_is_lost_while_a_moment_fires_beside_reading_leaves_nothing_behind(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "QUIET", 0)
    job = await submitted(jobs, schedule="5s")
    await firing.refill()
    clock.advance(6)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    probe.before("load_due", never)
    probe.lose_call("fire")
    with pytest.raises(Unavailable):
        await firing.refill()
    assert {task for task in asyncio.all_tasks() if "load_due" in repr(task)} == set()

    await fire_due(firing)
    assert [run.due_at for run in await ledger(probe, job.id)] == [START + 5 * SECOND]


async def test_a_moment_that_somebody_else_fired_while_the_look_ahead_was_filled_is_looked_for(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOOK_UP", 2)
    monkeypatch.setattr(module, "QUIET", 0)
    job = await submitted(jobs, schedule="5s", overlap="allow")
    await firing.refill()
    for number in range(6):
        await submitted(jobs, f"new {number}", schedule="12s")
    clock.advance(3)

    async def overtake(*_: object) -> None:
        clock.advance(2)
        await fire_due(scheduler(probe.store, clock))

    probe.before("load_definitions", overtake)
    await firing.refill()
    probe.given.clear()
    await firing.refill()

    assert ("load_due", (BEGINNING, ...)) in [(name, (args[1], ...)) for name, args in probe.given]
    clock.advance(5)
    await firing.tick()
    assert [run.due_at for run in await ledger(probe, job.id)] == [START + 5 * SECOND, START + 10 * SECOND]


async def test_what_fires_while_the_look_ahead_is_filled_is_due_again_in_time(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    """Its next moment lies in a range that was read before it moved there."""
    monkeypatch.setattr(module, "QUIET", 0)
    job = await submitted(jobs, schedule="6s", overlap="allow")
    await firing.refill()
    clock.advance(3)
    await filled_while(firing, jobs, probe, clock, monkeypatch, 3)

    clock.advance(6)
    await firing.tick()

    assert [run.due_at for run in await ledger(probe, job.id)] == [START + 6 * SECOND, START + 12 * SECOND]
    assert probe.calls["load_due"] == 3  # the second time with a look back


# ── triggers that cannot be read here ──

UNREADABLE = {
    "zone": {"triggers": '"timezone":"Mars/Olympus_Mons"'},
    "schedule": {"triggers": '"tide":"high"'},
    "policy": {"policy": '{"overlap":"allow","weather":"fair"}'},
    "overlap": {"policy": '{"overlap":"braid"}'},
    "broken policy": {"policy": "{"},
}


async def spoil(store: Any, job_id: int, how: str) -> None:
    """Let a job be what a newer node would have written, or nobody."""
    (column, text), *_ = UNREADABLE[how].items()
    if column == "triggers":
        statement = "UPDATE jobs SET triggers = replace(triggers, '\"every\":\"5s\"', '{}') WHERE id = {}"
    else:
        statement = "UPDATE jobs SET policy = '{}' WHERE id = {}"
    await run_sql(store, statement.format(text, job_id))


async def run_sql(store: Any, statement: str) -> None:
    if isinstance(store, PostgresStore):
        connection = await asyncpg.connect(store._url)
        await connection.execute(statement)
        await connection.close()
    else:
        await store._do(lambda connection: connection.execute(statement))


@BOTH
@pytest.mark.parametrize("how", UNREADABLE)
async def test_a_trigger_that_cannot_be_read_here_stops_no_other(how: str, jobs: Jobs, probe: Probe, clock: FakeClock):
    before = await submitted(jobs, schedule="5s", overlap="allow")
    strange = await submitted(jobs, schedule="5s")
    after = await submitted(jobs, schedule="5s", overlap="allow")
    await spoil(probe.store, strange.id, how)
    metrics = Metrics()
    firing = Firing(probe, LocalQueue(), clock, metrics)
    firing.own(dict.fromkeys(ALL_SEGMENTS, 0))
    with structlog.testing.capture_logs() as told:
        for _ in range(4):
            clock.advance(5)
            await fire_due(firing)
            await firing.refill(sweep=True)

    for job in (before, after):
        assert [run.due_at - START for run in await ledger(probe, job.id)] == [n * 5 * SECOND for n in (1, 2, 3, 4)]
    assert await ledger(probe, strange.id) == []
    assert [(line["event"], line["job_id"]) for line in told] == [("trigger.unreadable", strange.id)]
    assert b"horae_triggers_unreadable 1.0" in metrics.text()
    assert list(metrics.unreadable()) == [only(strange).id]


@BOTH
async def test_a_trigger_is_fired_with_all_it_missed_as_soon_as_it_can_be_read(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="5s", overlap="allow")
    await spoil(probe.store, job.id, "policy")
    clock.advance(20)
    await fire_due(firing)
    assert await ledger(probe, job.id) == []
    await run_sql(probe.store, 'UPDATE jobs SET policy = \'{"overlap":"allow"}\'')  # as one that knows it would see it

    await fire_due(firing)
    assert await ledger(probe, job.id) == []  # not looked at all the time
    await firing.refill(sweep=True)
    await fire_due(firing)

    assert [run.due_at - START for run in await ledger(probe, job.id)] == [n * 5 * SECOND for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("how", ["zone", "policy"])
@pytest.mark.parametrize("way", ["pause", "delete", "replace"])
async def test_a_trigger_that_cannot_be_read_can_be_taken_away(
    how: str, way: str, jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="5s")
    await spoil(probe.store, job.id, how)
    clock.advance(7)

    await {
        "pause": lambda: jobs.set_paused(job.id, True),
        "delete": lambda: jobs.delete(job.id),
        "replace": lambda: jobs.replace(job.id, draft(schedule="5m")),
    }[way]()

    assert words(await ledger(probe, job.id)) == [(START + 5 * SECOND, "skipped", "misfire")]
