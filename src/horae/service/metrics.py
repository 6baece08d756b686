"""Counts for /metrics, kept so cheaply that the hot path can afford them: a few additions per batch."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

LATENESS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)  # seconds


class Metrics:
    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()  # runs by terminal state
        self.fired = 0  # moments that became runs
        self.passed = 0  # moments that were skipped or coalesced
        self.claimed = 0
        self.fenced = 0  # results refused because their attempt was superseded
        self.retried = 0
        self.lost = 0
        self.batches: Counter[str] = Counter()
        self.busy: Callable[[], int] = int  # asked when somebody looks
        self.slots = 0
        self.leads: Callable[[], bool] = bool
        self.failovers: Callable[[], tuple[int, int]] = lambda: (0, 0)  # met, and of those with commits lost
        self.waiting: dict[str, int] = {}  # live runs by state, as of the last census
        self._late = [0] * (len(LATENESS_BOUNDS) + 1)
        self._late_sum = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe_lateness(self, seconds: Iterable[float]) -> None:
        for value in seconds:
            self._late[bisect_left(LATENESS_BOUNDS, value)] += 1
            self._late_sum += value

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks of a collector."""
        yield _counter("horae_moments_fired", "Due moments that became runs.", self.fired)
        yield _counter("horae_moments_passed", "Due moments that were skipped or coalesced.", self.passed)
        yield _counter("horae_runs_claimed", "Attempts given to this node's agent.", self.claimed)
        yield _counter("horae_attempts_retried", "Failed attempts that will be repeated.", self.retried)
        yield _counter("horae_attempts_lost", "Attempts lost with their agent.", self.lost)
        yield _counter("horae_fenced_writes", "Results refused because their attempt was superseded.", self.fenced)
        yield GaugeMetricFamily("horae_leader", "1 on the node that leads, as far as it knows.", value=self.leads())
        met, lost = self.failovers()
        yield _counter("horae_database_failovers", "Failovers of the database that this process has met.", met)
        yield _counter("horae_database_commits_lost", "Failovers after which commits were certainly missing.", lost)
        finished = CounterMetricFamily("horae_runs_finished", "Runs that ended, by state.", labels=["state"])
        for state, count in self.finished.items():
            finished.add_metric([state], count)
        yield finished
        batches = CounterMetricFamily("horae_batches", "Store batches, by operation.", labels=["operation"])
        for operation, count in self.batches.items():
            batches.add_metric([operation], count)
        yield batches
        live = GaugeMetricFamily("horae_runs_live", "Live runs by state, as of the last census.", labels=["state"])
        for state, count in self.waiting.items():
            live.add_metric([state], count)
        yield live
        yield GaugeMetricFamily("horae_agent_busy", "Attempts this node executes now.", value=self.busy())
        yield GaugeMetricFamily("horae_agent_slots", "Attempts this node can execute at once.", value=self.slots)
        yield self._lateness()

    def _lateness(self) -> Metric:
        total, buckets = 0, []
        for bound, count in zip((*map(str, LATENESS_BOUNDS), "+Inf"), self._late, strict=True):
            total += count
            buckets.append((bound, total))
        family = HistogramMetricFamily("horae_lateness_seconds", "Start of an attempt after its due moment.")
        family.add_metric([], buckets, self._late_sum)
        return family


def _counter(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value=value)
