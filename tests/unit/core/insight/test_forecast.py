"""Forecasts: counts, what is skipped, who follows, where places run out, and clashes with their remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from horae.core.insight.arrivals import Window
from horae.core.insight.cells import Cells
from horae.core.insight.clashes import spread
from horae.core.insight.forecast import Forecast, _load, forecast
from horae.core.insight.planned import Columns, Follower, Places, Planned, Pool
from horae.core.model import SECOND, After, ConcurrencyLimit, Json, Node, OperatorWish, Overlap, Policy, RateLimit
from horae.core.policy.queues import Queue, QueueState
from horae.core.time import cron
from horae.core.time.moments import parse_moment
from horae.core.time.schedule import canonical_text, compile_text
from horae.core.work.policies import policy_text

START = parse_moment("2027-01-15T08:00:00Z")
DAY = Window(START, START + 86_400 * SECOND)
NODE = Node("n", ("agent",), ("shell", "python"), (), 8, "", "", 0, 0, 0)
HERE = Places([NODE])


def planned(
    job_id: int, schedule: Json, seconds: float | None = 5.0, policy: Policy | None = None, **fields: object
) -> Planned:
    text = canonical_text(schedule)
    next_at = compile_text(text, job_id, START - SECOND).next_after(START - 1)
    assert next_at is not None
    median = None if seconds is None else round(seconds * SECOND)
    made = Planned(
        job_id, next_at, None, job_id, 1, "ann", "shell", policy_text(policy or Policy()), text,
        START - SECOND, median, 0.0,
    )  # fmt: skip
    return made._replace(**fields)


def made(
    *triggers: Planned,
    followers: tuple[Follower, ...] = (),
    places: Places = HERE,
    shares: Mapping[int, float] | None = None,
    **asked: object,
) -> Forecast:
    return forecast(DAY, Columns.of(triggers), followers, places, shares or {}, **asked)  # type: ignore[arg-type]


def follower(job_id: int, *heard: tuple[int, str], part_of: int | None = None, share: float = 1.0) -> Follower:
    return Follower(job_id, 1, f"job {job_id}", "ann", "shell", "{}", heard, 5 * SECOND, 0.0, share, part_of)


def test_moments_are_counted_exactly_and_listed_by_job_queue_and_owner() -> None:
    triggers = [
        planned(1, {"cron": "0 * * * *"}), planned(2, {"every": "10m"}, owner="bob"),
        planned(3, {"cron": "0 0 * * *"}, policy=Policy(queue="reports")),
    ]  # fmt: skip
    found = made(*triggers)
    assert (found.moments, found.triggers, found.skipped) == (24 + 144 + 1, 3, 0)
    assert {item.key: item.moments for item in found.items} == {"2": 144, "1": 24, "3": 1}
    by_owner = made(*triggers, by="owner")
    assert {item.name: item.runs for item in by_owner.items} == {"ann": 25, "bob": 144}
    by_queue = made(*triggers, by="queue", limit=1)
    assert ([item.name for item in by_queue.items], by_queue.item_count) == (["default"], 2)
    assert sum(by_queue.items[0].buckets) == pytest.approx(168)
    assert sum(bucket.runs for bucket in found.buckets) == pytest.approx(169)


def test_another_organisation_loads_the_slots_and_is_not_shown() -> None:
    found = made(planned(1, {"cron": "0 * * * *"}), planned(2, {"cron": "0 * * * *"}, org=2), org=1)
    assert [item.key for item in found.items] == ["1"]
    assert found.peak == pytest.approx(2)


@pytest.mark.parametrize(
    ("overlap", "runs"), [(Overlap.FORBID, 720), (Overlap.ALLOW, 1440), (Overlap.REPLACE, 1440), (Overlap.QUEUE, 960)]
)
def test_a_run_longer_than_its_interval_costs_moments_as_the_policy_says(overlap: Overlap, runs: int) -> None:
    found = made(planned(1, {"cron": "* * * * *"}, 90.0, Policy(overlap=overlap)))
    assert found.moments == 1440
    assert found.runs == pytest.approx(runs, rel=0.1)
    assert found.skipped == pytest.approx(1440 - found.runs)


def test_uneven_moments_that_a_run_covers_are_skipped() -> None:
    found = made(planned(1, {"cron": "0,5,30 9-10 * * *"}, 20 * 60.0))
    assert (found.moments, found.runs) == (6, pytest.approx(4))


def test_slots_run_out_when_more_is_wanted_and_runs_are_late() -> None:
    found = made(*(planned(number, {"cron": "0 12 * * *"}, 60.0) for number in range(1, 33)))
    [shortage] = found.shortages
    assert (shortage.what, shortage.name, shortage.capacity) == ("slots", "shell", 8)
    assert shortage.start_at == parse_moment("2027-01-15T12:00:00Z")
    assert shortage.wanted == pytest.approx(32)
    assert shortage.late_seconds == pytest.approx(180, rel=0.1)
    assert found.peak_at == shortage.start_at
    assert max(bucket.late_seconds for bucket in found.buckets) == pytest.approx(180, rel=0.1)


def test_a_queue_and_a_limit_run_out_before_the_slots() -> None:
    limited = Policy(queue="reports", concurrency_limits=(ConcurrencyLimit(2, per="owner"),))
    places = replace(HERE, queues=[Queue(1, "reports", concurrency=3)])
    found = made(*(planned(number, {"cron": "0 12 * * *"}, 60.0, limited) for number in range(1, 7)), places=places)
    assert sorted((one.what, one.name, one.capacity or 0) for one in found.shortages) == [
        ("limit", "owner ann", 2), ("queue", "reports", 3)
    ]  # fmt: skip


def test_a_rate_of_starts_runs_out() -> None:
    slow = Policy(rate_limits=(RateLimit("6/min", per="owner"),))
    found = made(*(planned(number, {"cron": "0 12 * * *"}, 1.0, slow) for number in range(1, 31)))
    late = {(one.what, one.rate): one.late_seconds for one in found.shortages}
    assert late["limit", "6/min"] == pytest.approx(290, rel=0.1)


def test_work_that_no_agent_does_is_told() -> None:
    cordoned = replace(NODE, wanted=OperatorWish.CORDONED)
    [shortage] = made(planned(1, {"cron": "0 12 * * *"}), places=Places([cordoned])).shortages
    assert (shortage.capacity, shortage.late_seconds) == (0, None)


def test_what_waits_now_delays_what_comes() -> None:
    places = replace(HERE, waiting={"shell": 800})
    found = made(planned(1, {"every": "1h"}, 10.0), places=places)
    assert found.buckets[0].late_seconds == pytest.approx(1000, rel=0.2)


def test_jobs_that_never_ran_take_as_long_as_others_of_their_kind() -> None:
    found = made(planned(1, {"every": "1h"}, 40.0), planned(2, {"every": "2h"}, None))
    took = {item.key: item.expected for item in found.items}
    assert took["2"] is not None
    assert took["2"].median == pytest.approx(40, rel=0.2)
    assert any("never succeeded" in note for note in found.notes)


def test_jobs_that_listen_are_as_many_as_the_ends_they_listen_to() -> None:
    source = planned(1, {"cron": "0 * * * *"})
    followers = follower(2, (1, "success")), follower(3, (1, "failure")), follower(4, (3, "end"))
    found = made(source, followers=followers, shares={1: 0.75})
    assert {item.key: item.runs for item in found.items} == pytest.approx({"1": 24, "2": 18, "3": 6, "4": 6})
    assert (found.moments, found.followers) == (24, pytest.approx(30))


def test_tasks_of_a_workflow_come_one_after_another_with_it() -> None:
    flow = planned(1, {"cron": "0 12 * * *"}, kind="workflow")
    found = made(flow, followers=(follower(2, part_of=1), follower(3, part_of=1)))
    assert found.followers == pytest.approx(2)
    assert found.peak == pytest.approx(1)


def test_a_job_that_comes_after_another_begins_when_that_has_ended() -> None:
    after = Policy(after=(After("one", id=1),))
    found = made(planned(1, {"cron": "0 12 * * *"}, 60.0), planned(2, {"cron": "0 12 * * *"}, 60.0, after))
    assert found.peak == pytest.approx(1, abs=0.2)  # one tick has the end of one and the beginning of the other
    assert found.busy_seconds == pytest.approx(120, rel=0.1)


def test_a_run_that_began_before_goes_on() -> None:
    it = planned(1, {"cron": "0 7 * * *"}, 7200.0)._replace(last_at=START - 3600 * SECOND)
    found = made(it)
    assert found.buckets[0].running == pytest.approx(1)
    assert found.buckets[4].running == 0


def test_queues_that_take_nothing_and_those_that_are_paused() -> None:
    places = replace(HERE, queues=[
        Queue(1, "old", state=QueueState.DRAINING), Queue(2, "held", state=QueueState.PAUSED),
    ])  # fmt: skip
    found = made(
        planned(1, {"every": "1h"}, policy=Policy(queue="old")),
        planned(2, {"every": "1h"}, policy=Policy(queue="held")),
        places=places,
    )  # fmt: skip
    assert found.runs == 24
    assert found.peak == 0
    assert any("paused" in note for note in found.notes)


def test_an_interval_from_the_end_of_a_run_has_the_run_in_it() -> None:
    found = made(planned(1, {"every": "5m", "mode": "delay"}, 300.0))
    assert found.runs == pytest.approx(144, rel=0.1)


def test_many_at_the_same_second_are_a_clash_with_a_remedy() -> None:
    midnight = [planned(number, {"cron": "0 0 * * *"}) for number in range(1, 31)]
    hourly = [planned(number, {"cron": "0 * * * *"}) for number in range(31, 36)]
    spread_out = [planned(number, {"cron": "H 0 * * *"}) for number in range(36, 60)]
    found = made(*midnight, *hourly, *spread_out)
    [clash] = found.named({1: "one", 2: "two"}).clashes
    assert (clash.at, clash.triggers, clash.times) == (parse_moment("2027-01-16T00:00:00Z"), 35, 1)
    assert [(crowd.expression, crowd.triggers, crowd.instead) for crowd in clash.crowds] == [
        ("0 0 * * *", 30, "H 0 * * *"), ("0 * * * *", 5, "H * * * *")
    ]  # fmt: skip
    assert clash.crowds[0].jobs == (1, 2, 3, 4, 5)
    assert clash.crowds[0].names == ("one", "two", "3", "4", "5"), "what has gone meanwhile is called by its number"
    assert found.jobs() >= {1, 2, 3, 4, 5, 31, 32}


@pytest.mark.parametrize(
    ("expression", "instead"),
    [
        ("0 0 * * *", "H 0 * * *"),
        ("@daily", "H 0 * * *"),
        ("*/5 * * * *", "H/5 * * * *"),
        ("* * * * *", "H * * * * *"),
        ("0 30 2 * * *", "0 H 2 * * *"),
        ("0 * * * * *", "H * * * * *"),
        ("0 0 12 ? * MON", "0 H 12 ? * MON"),
        ("0,20 * * * *", None),
    ],
)
def test_an_expression_is_spread_without_changing_how_often_it_comes(expression: str, instead: str | None) -> None:
    assert spread(expression) == instead
    if instead is not None:
        assert len(cron.parse(instead, seed=5).times) == len(cron.parse(expression).times)


def test_of_thousands_of_limits_those_are_looked_at_that_may_run_out() -> None:
    wide, tight = (Policy(overlap=Overlap.ALLOW, concurrency_limits=(ConcurrencyLimit(n, per="job"),)) for n in (5, 1))
    triggers = [planned(number, {"cron": "*/5 * * * *"}, 5.0, wide) for number in range(1, 2001)]
    assert len(made(*triggers).notes) == 1
    triggers += [planned(number, {"cron": "*/5 * * * *"}, 900.0, tight) for number in range(2001, 2031)]
    found = made(*triggers)
    assert {one.name for one in found.shortages if one.what == "limit"} <= {f"job {n}" for n in range(2001, 2031)}
    assert any("10 queues and limits more may run out" in note for note in found.notes)


def test_a_limit_that_may_run_out_is_never_passed_over_as_if_it_could_not() -> None:
    slow = Policy(overlap=Overlap.ALLOW, concurrency_limits=(ConcurrencyLimit(2, per="job"),))
    for schedule in ({"every": "1m"}, {"every": "1s"}, {"cron": "*/7 8-18 * * *"}, {"every": "90m"}):
        for seconds in (0.4, 20.0, 700.0, 20_000.0):
            [pool] = [one for one in loaded(planned(1, schedule, seconds, slow)) if one.what == "limit"]
            assert pool.load.bound(of_starts=False) >= max(pool.load.finish().wanted()) - 1e-6


def loaded(*triggers: Planned) -> list[Pool]:
    cells = Cells(DAY, HERE, Columns.of(triggers), (), {})
    _load(cells)
    return list(cells.profiles.pools.values())


def test_what_is_one_is_told_as_one() -> None:
    places = replace(HERE, queues=[Queue(1, "held", state=QueueState.PAUSED)])
    found = made(planned(1, {"every": "1h"}, None, Policy(queue="held")), places=places)
    assert [note[:40] for note in found.notes[1:]] == [
        "1 trigger is of a job that never succeed", "1 trigger is of a queue that is paused: "
    ]  # fmt: skip


def test_a_schedule_of_some_hours_loads_those_hours_alone() -> None:
    found = made(planned(1, {"cron": "* * 10-11 * * *"}, 0.5, Policy(overlap=Overlap.ALLOW)))
    assert found.moments == 7200
    busy = [bucket.at for bucket in found.buckets if bucket.running > 0.1]
    assert (busy[0], busy[-1]) == (parse_moment("2027-01-15T10:00:00Z"), parse_moment("2027-01-15T11:30:00Z"))


def test_nothing_ahead_is_a_forecast_of_nothing() -> None:
    found = made()
    assert (found.moments, found.runs, found.peak, found.items, found.shortages) == (0, 0, 0, [], [])


def test_a_window_that_begins_between_ticks_tells_the_moments_of_schedules() -> None:
    """Thirty runs of 7 s on eight slots: three turns pass before the last begins."""
    window = Window(START + 34 * SECOND, START + 34 * SECOND + 86_400 * SECOND)
    reports = [planned(number, {"cron": "0 3 * * *"}, 7.0) for number in range(1, 31)]
    found = forecast(window, Columns.of(reports), (), HERE, {})
    three = parse_moment("2027-01-16T03:00:00Z")
    assert (found.peak_at, [one.start_at for one in found.shortages]) == (three, [three])
    assert found.late_seconds == pytest.approx(3 * 7, rel=0.2)
    assert [one.at for one in found.buckets] == [window.start + number * 1800 * SECOND for number in range(48)]
    assert sum(one.runs for one in found.buckets) == pytest.approx(30)
