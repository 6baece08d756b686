"""Baselines: how long the runs of a job take, learned from those that have ended, in a few numbers a job.

A baseline forgets: each new run weighs at least 1/MEMORY, so that it follows a job that changes slowly. It is robust:
what lies far off counts as three deviations off, and no more. It is kept in two scales, because both are needed: in
logarithms, where a typical duration and its spread are foretold (twice as long and half as long are equally far), and
in seconds, where a jump is judged.

**A jump** is told when three runs in a row took unusually long: each longer than the mean by LIMIT deviations, and by
more where durations are skewed (Cornish and Fisher's correction), for there long ones are ordinary. A run alone is
never told: of a thousand jobs one is slow every hour. Durations that stay far off for ADOPTED runs in a row are what
the job takes now, and the baseline begins anew with them.

What must stay true: `learn` depends on the order of the runs alone, not on how they were cut into batches (but for the
ninth digit, which is not stored).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import NamedTuple

from horae.core.model import SECOND

MEMORY = 128  # runs that a baseline remembers, about
FAR = 3.0  # deviations: what lies farther off counts as so far
LEAST_RUNS = 20  # before anything is unusual
LIMIT = 2.9  # deviations beyond which a run took unusually long
SURELY_SKEWED = 0.3  # skewness below this may be chance
SMALL_SAMPLE = 3.0  # of few runs the deviation is known badly: the limit is higher by this, divided by their number
TOLD = 3  # runs in a row that took unusually long: then it is told
ADOPTED = 12  # runs far off in a row, after which they are the baseline
LEAST_SHARE = 0.01  # of the mean: a smaller deviation is not believed,
LEAST_SECONDS = 0.01  # nor one of so few
SHORTEST = 0.001  # seconds: all that is shorter is the same
UNKNOWN_SPREAD = 0.5  # in logarithms, of what ran once


class Ended(NamedTuple):
    """How long a run took, and how it ended."""

    seconds: float
    is_success: bool


class Expected(NamedTuple):
    """How long the next run is to take."""

    median: float  # seconds
    spread: float  # deviation of the logarithm: two of three take between median / e^spread and median · e^spread

    def at(self, deviations: float) -> float:
        """Return the seconds that lie so many deviations off."""
        return self.median * math.exp(self.spread * deviations)


class Baseline(NamedTuple):
    runs: int = 0  # successes that it was learned from
    mean: float = 0.0  # seconds
    variance: float = 0.0
    skew: float = 0.0
    log_mean: float = 0.0
    log_variance: float = 0.0
    share: float = 1.0  # of runs that succeed
    ended: int = 0  # runs, of which that share is
    long: int = 0  # runs in a row that took unusually long
    short: int = 0  # and unusually short

    @property
    def is_unusual(self) -> bool:
        """Return whether the job takes unusually long now."""
        return self.long >= TOLD

    def predict(self) -> Expected | None:
        """Return how long the next run is to take; None of a job that never succeeded."""
        if not self.runs:
            return None
        spread = math.sqrt(self.log_variance) if self.runs > 1 else UNKNOWN_SPREAD
        return Expected(math.exp(self.log_mean), spread)

    def surprise(self, seconds: float) -> float:
        """Return how far off a duration lies: 1 and more is unusually long, -1 and less unusually short."""
        if self.runs < LEAST_RUNS:
            return 0.0
        limit = LIMIT * (1 + SMALL_SAMPLE / self.runs)
        skew = max(0.0, self.skew - SURELY_SKEWED)
        limit += skew * (limit * limit - 1) / 6
        return (seconds - self.mean) / (_believed(self.mean, self.variance) * limit)


def learn(baseline: Baseline, ended: Iterable[Ended]) -> Baseline:
    """Return the baseline after these runs, oldest first."""
    share, number = baseline.share, baseline.ended
    for seconds, is_success in ended:
        number += 1
        share += max(1 / number, 1 / MEMORY) * (is_success - share)
        if is_success:  # a failure may end at once, or when its time is over: that says nothing of the work
            baseline = _with_success(baseline, seconds if seconds > SHORTEST else SHORTEST)
    return baseline._replace(share=share, ended=number)


def _with_success(it: Baseline, seconds: float) -> Baseline:
    runs, mean, variance, skew, log_mean, log_variance, share, ended, long, short = it
    surprise, log_seconds = it.surprise(seconds), math.log(seconds)
    long, short = (long + 1 if surprise >= 1 else 0), (short + 1 if surprise <= -1 else 0)
    if not runs or long >= ADOPTED or short >= ADOPTED:
        return Baseline(1, seconds, 0.0, 0.0, log_seconds, 0.0, share, ended)
    weight = 1 / (runs + 1) if runs < MEMORY else 1 / MEMORY
    off, log_off, deviation = seconds - mean, log_seconds - log_mean, _believed(mean, variance)
    if runs >= LEAST_RUNS:
        off = _bounded(off, FAR * deviation)
        log_off = _bounded(log_off, FAR * math.sqrt(max(log_variance, LEAST_SHARE * LEAST_SHARE)))
    if not long:
        skew += weight * (_bounded(off / deviation, FAR) ** 3 - skew)
    return Baseline(
        runs + 1, mean + weight * off, (1 - weight) * (variance + weight * off * off), skew,
        log_mean + weight * log_off, (1 - weight) * (log_variance + weight * log_off * log_off), share, ended, long,
        short,
    )  # fmt: skip


def _bounded(value: float, bound: float) -> float:
    return bound if value > bound else -bound if value < -bound else value


def _believed(mean: float, variance: float) -> float:
    """Return the deviation of durations, as far as it is believed."""
    return max(math.sqrt(variance), LEAST_SHARE * mean, LEAST_SECONDS)


def ended_run(started_at: int, finished_at: int, is_success: bool) -> Ended:
    """Return how long a run took, of its moments."""
    return Ended(max(0, finished_at - started_at) / SECOND, is_success)


# ------------------------------------------------------------------------------------------ storing


def baseline_text(baseline: Baseline) -> str:
    """Return it as it is stored: a JSON list. Nine digits are more than any of it is known to."""
    return json.dumps([it if isinstance(it, int) else float(f"{it:.9g}") for it in baseline], separators=(",", ":"))


def baseline_from(text: str) -> Baseline:
    """Return what was stored; what a newer version has added to it is left out."""
    return Baseline(*json.loads(text)[: len(Baseline._fields)])
