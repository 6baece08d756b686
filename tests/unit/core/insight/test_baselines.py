"""What is learned of durations, and when a job is told to take unusually long."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from horae.core.insight.baselines import (
    ADOPTED,
    LEAST_RUNS,
    Baseline,
    Ended,
    Expected,
    baseline_from,
    baseline_text,
    learn,
)

Draw = Callable[[random.Random], float]
MONTH = 720  # runs of a job that comes every hour


def normal(mean: float, deviation: float) -> Draw:
    return lambda dice: max(0.05, dice.gauss(mean, deviation))


def skewed(median: float, spread: float) -> Draw:
    return lambda dice: median * math.exp(dice.gauss(0, spread))


STEADY: dict[str, Draw] = {
    "a tenth": normal(10, 1),
    "a third": normal(60, 18),
    "narrow": normal(300, 9),
    "skewed a little": skewed(5, 0.2),
    "skewed": skewed(30, 0.5),
}


def successes(seconds: Iterable[float]) -> list[Ended]:
    return [Ended(each, True) for each in seconds]


def test_the_expected_duration_is_the_usual_one_and_its_spread() -> None:
    dice = random.Random(1)
    found = learn(Baseline(), successes(skewed(20, 0.3)(dice) for _ in range(500))).predict()
    assert found is not None
    assert found.median == pytest.approx(20, rel=0.1)
    assert found.spread == pytest.approx(0.3, rel=0.2)


def test_a_job_that_never_succeeded_has_no_expected_duration() -> None:
    found = learn(Baseline(), [Ended(3.0, False)] * 5)
    assert found.predict() is None
    assert found.share == 0.0


def test_a_single_run_says_how_long_and_that_little_is_known() -> None:
    assert learn(Baseline(), successes([4.0])).predict() == Expected(pytest.approx(4.0), 0.5)


def test_the_share_of_successes_is_learned() -> None:
    dice = random.Random(2)
    found = learn(Baseline(), [Ended(1.0, dice.random() < 0.8) for _ in range(2000)])
    assert found.share == pytest.approx(0.8, abs=0.12)


def test_outliers_hardly_move_what_is_expected() -> None:
    dice = random.Random(3)
    some = [normal(10, 1)(dice) for _ in range(200)]
    some[60:200:20] = [5000.0] * 7
    found = learn(Baseline(), successes(some)).predict()
    assert found is not None
    assert found.median == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_it_does_not_matter_how_runs_are_cut_into_batches(cut: int) -> None:
    dice = random.Random(4)
    some = [Ended(skewed(9, 0.4)(dice), dice.random() < 0.9) for _ in range(300)]
    whole, parts = learn(Baseline(), some), Baseline()
    for start in range(0, len(some), cut):
        parts = baseline_from(baseline_text(learn(parts, some[start : start + cut])))
    assert list(parts) == pytest.approx(list(whole), rel=1e-5, abs=1e-5)


def test_what_a_newer_version_has_added_is_left_out() -> None:
    text = baseline_text(learn(Baseline(), successes([1.0, 2.0])))
    assert baseline_from(text[:-1] + ",7,8]") == baseline_from(text)


def told_within(draw: Draw, jump: Draw, dice: random.Random, runs: int = 3) -> bool:
    baseline = learn(Baseline(), successes(draw(dice) for _ in range(200)))
    for _ in range(runs):
        baseline = learn(baseline, successes([jump(dice)]))
        if baseline.is_unusual:
            return True
    return False


@pytest.mark.parametrize(("mean", "deviation"), [(10, 1), (60, 18), (300, 9), (2, 0.4)])
def test_a_jump_of_six_deviations_is_told_within_three_runs_in_99_of_100_cases(mean: float, deviation: float) -> None:
    dice = random.Random(20)
    steady, jumped = normal(mean, deviation), normal(mean + 6 * deviation, deviation)
    told = sum(told_within(steady, jumped, dice) for _ in range(400))
    assert told >= 396


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_a_jump_of_six_deviations_is_told_where_durations_are_skewed(spread: float) -> None:
    dice = random.Random(21)
    steady, jumped = skewed(10, spread), skewed(10 * math.exp(6 * spread), spread)
    assert sum(told_within(steady, jumped, dice) for _ in range(400)) >= 396


@pytest.mark.parametrize("jobs", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_a_thousand_steady_jobs_raise_at_most_one_false_alarm_in_a_month(jobs: int) -> None:
    dice, alarms = random.Random(22), 0
    for number in range(jobs):
        draw = list(STEADY.values())[number % len(STEADY)]
        baseline, was = Baseline(), False
        for _ in range(MONTH):
            baseline = learn(baseline, (Ended(draw(dice), True),))
            alarms += baseline.is_unusual and not was
            was = baseline.is_unusual
    assert alarms <= 1


def test_one_slow_run_alone_is_not_told() -> None:
    steady = learn(Baseline(), successes([10.0, 10.5, 9.5] * 30))
    assert not learn(steady, successes([500.0, 10.0, 500.0, 500.0])).is_unusual
    assert learn(steady, successes([500.0] * 3)).is_unusual


def test_few_runs_are_not_enough_to_call_anything_unusual() -> None:
    few = learn(Baseline(), successes([10.0, 10.5, 9.5] * (LEAST_RUNS // 4)))
    assert not learn(few, successes([900.0] * 3)).is_unusual


def test_what_stays_long_becomes_usual() -> None:
    steady = learn(Baseline(), successes([10.0, 10.5, 9.5] * 30))
    longer = learn(steady, successes([100.0] * (ADOPTED + 3)))
    found = longer.predict()
    assert not longer.is_unusual
    assert found is not None
    assert found.median == pytest.approx(100.0)


def test_a_jump_by_milliseconds_is_not_told() -> None:
    steady = learn(Baseline(), successes([0.020, 0.0201, 0.0199] * 30))
    assert not learn(steady, successes([0.035] * 3)).is_unusual
