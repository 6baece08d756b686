"""Counts for /metrics, kept so cheaply that the hot path can afford them: a few additions per batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from horae.core.audit import Outcome
from horae.core.model import SECOND, SEGMENTS, State

LATENESS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)  # seconds

# A series that begins with its first count hides it: what grows is told by what it grew from.
_NONE_ENDED = {state.word: 0 for state in (State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED)}
_NONE_LIVE = {state.word: 0 for state in State if not state.is_terminal}


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
        self.scanned = 0  # due moments that the scheduler has seen to, each once
        self.segment_load = [0] * SEGMENTS  # moments by segment, whoever fired them through this node
        self.dispatches: Counter[str] = Counter()  # runs that others asked this node to run, by what they were told
        self.heartbeats: Counter[tuple[str, str]] = Counter()  # of outside members: role and outcome
        self.outside_segments: dict[str, int] = {}  # outside scheduler → segments, as of the last census
        self.rebalances: Callable[[], int] = int
        self.requests_refused: Callable[[], int] = int
        self.busy: Callable[[], int] = int  # asked when somebody looks
        self.behind: Callable[[], tuple[int, int]] = lambda: (0, 0)  # triggers, and about how many of their moments
        self.unreadable: Callable[[], dict[int, str]] = dict  # triggers that this node's scheduler passes by, and why
        self.slots = 0
        self.leads: Callable[[], bool] = bool
        self.failovers: Callable[[], tuple[int, int]] = lambda: (0, 0)  # met, and of those with commits lost
        self.handed = self.refused = 0  # rows of the inbox that became runs, and that did not
        self.inbox = (0, 0, 0)  # rows, age of the oldest in µs, refused rows: as of the last look
        self.events_delay = 0.0  # seconds that the oldest event waits which cannot be read yet, as of the last look
        self.spans: Callable[[], tuple[int, int]] = lambda: (0, 0)  # told to a collector, and dropped
        self.audited: Counter[str] = Counter()  # rows of the audit log, by outcome
        self.sealed = 0  # the last of them that this node has sealed
        self.oldest_due = self.oldest_queued = 0.0  # seconds, as of the last census
        self.waiting: dict[str, int] = {}  # live runs by state, as of the last census
        self._late = Spread(LATENESS_BOUNDS)
        self._scans = Spread(LATENESS_BOUNDS)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count_ended(self, states: Sequence[State]) -> None:
        """Most runs succeed: to count their states one by one takes ten times as long."""
        succeeded = states.count(State.SUCCEEDED)
        counts = {State.SUCCEEDED: succeeded} if 0 < succeeded == len(states) else Counter(states)
        for state, number in counts.items():
            self.finished[state.word] += number

    def observe_lateness(self, seconds: Iterable[float]) -> None:
        self._late.observe(seconds)

    def observe_scan(self, seconds: float) -> None:
        self._scans.observe([seconds])

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks of a collector."""
        yield _counter("horae_moments_fired", "Due moments that became runs.", self.fired)
        yield _counter("horae_moments_passed", "Due moments that were skipped or coalesced.", self.passed)
        triggers, moments = self.behind()
        yield GaugeMetricFamily("horae_catch_up_triggers", "Triggers that are being caught up.", value=triggers)
        yield GaugeMetricFamily("horae_catch_up_moments", "About how many missed moments they have.", value=moments)
        text = "Triggers that this node cannot read, and so does not fire."
        yield GaugeMetricFamily("horae_triggers_unreadable", text, value=len(self.unreadable()))
        yield _counter("horae_runs_claimed", "Attempts given to this node's agent.", self.claimed)
        yield _counter("horae_attempts_retried", "Failed attempts that will be repeated.", self.retried)
        yield _counter("horae_attempts_lost", "Attempts lost with their agent.", self.lost)
        yield _counter("horae_fenced_writes", "Results refused because their attempt was superseded.", self.fenced)
        yield GaugeMetricFamily("horae_leader", "1 on the node that leads, as far as it knows.", value=self.leads())
        met, lost = self.failovers()
        yield _counter("horae_database_failovers", "Failovers of the database that this process has met.", met)
        yield _counter("horae_database_commits_lost", "Failovers after which commits were certainly missing.", lost)
        finished = CounterMetricFamily("horae_runs_finished", "Runs that ended, by state.", labels=["state"])
        for state, count in {**_NONE_ENDED, **self.finished}.items():
            finished.add_metric([state], count)
        yield finished
        batches = CounterMetricFamily("horae_batches", "Store batches, by operation.", labels=["operation"])
        for operation, count in self.batches.items():
            batches.add_metric([operation], count)
        yield batches
        live = GaugeMetricFamily("horae_runs_live", "Live runs by state, as of the last census.", labels=["state"])
        for state, count in {**_NONE_LIVE, **self.waiting}.items():
            live.add_metric([state], count)
        yield live
        text = "For how long the oldest due moment has not become a run, as of the last census."
        yield GaugeMetricFamily("horae_oldest_due_seconds", text, value=self.oldest_due)
        text = "For how long the oldest queued run has waited for an agent, as of the last census."
        yield GaugeMetricFamily("horae_oldest_queued_seconds", text, value=self.oldest_queued)
        text = "Age of the oldest event that cannot be read yet, because a transaction is open; told by the leader."
        yield GaugeMetricFamily("horae_events_delay_seconds", text, value=self.events_delay)
        told, dropped = self.spans()
        yield _counter("horae_spans_sent", "Spans of traces that a collector has taken.", told)
        yield _counter("horae_spans_dropped", "Spans of traces that no collector has taken in time.", dropped)
        rows = CounterMetricFamily("horae_audit_rows", "Deeds of the audit log, by outcome.", labels=["outcome"])
        for outcome in Outcome:
            rows.add_metric([outcome], self.audited[outcome])
        yield rows
        text = "Requests refused because whoever asked did so too often (`request_rate`)."
        yield _counter("horae_requests_refused", text, self.requests_refused())
        text = "Number of the last row of the audit log that this node has sealed as the leader."
        yield GaugeMetricFamily("horae_audit_sealed", text, value=self.sealed)
        yield from self._contract()
        yield from self._inbox()
        yield GaugeMetricFamily("horae_agent_busy", "Attempts this node executes now.", value=self.busy())
        yield GaugeMetricFamily("horae_agent_slots", "Attempts this node can execute at once.", value=self.slots)
        yield self._late.family("horae_lateness_seconds", "Start of an attempt after its due moment.")
        yield self._scans.family("horae_scan_seconds", "One sweep of this node's scheduler for what is due.")

    def _inbox(self) -> Iterator[Metric]:
        """Work that others hand over in their own transactions."""
        yield _counter("horae_inbox_runs", "Rows of the inbox that became runs, by this node.", self.handed)
        yield _counter("horae_inbox_refusals", "Rows of the inbox that were refused, by this node.", self.refused)
        waiting, age, refused = self.inbox
        yield GaugeMetricFamily("horae_inbox_waiting", "Rows in the inbox, 100,000 at most.", value=waiting)
        text = "Age of the oldest row in the inbox, 0 without any."
        yield GaugeMetricFamily("horae_inbox_oldest_seconds", text, value=age / SECOND)
        yield GaugeMetricFamily("horae_inbox_refused", "Refused rows that wait for a hand.", value=refused)

    def _contract(self) -> Iterator[Metric]:
        """What a cluster of schedulers and agents, Horae's and others, is watched by."""
        yield _counter("horae_moments_scanned", "Due moments that this node's scheduler has seen to.", self.scanned)
        text = "Times that segments changed hands, by this node as the leader or on somebody's word."
        yield _counter("horae_rebalances", text, self.rebalances())
        text = "Due moments of each segment that were seen to here, by Horae or by a scheduler outside it."
        load = CounterMetricFamily("horae_segment_load", text, labels=["segment"])
        for segment, count in enumerate(self.segment_load):
            if count:
                load.add_metric([str(segment)], count)
        yield load
        dispatches = CounterMetricFamily("horae_dispatches", "Dispatches asked of this node.", labels=["outcome"])
        for outcome, count in self.dispatches.items():
            dispatches.add_metric([outcome], count)
        yield dispatches
        text = "Signs of life of members outside Horae that came in here."
        beats = CounterMetricFamily("horae_outside_heartbeats", text, labels=["role", "outcome"])
        for labels, count in self.heartbeats.items():
            beats.add_metric(labels, count)
        yield beats
        text = "Segments held by a scheduler outside Horae, as of the last census."
        segments = GaugeMetricFamily("horae_outside_segments", text, labels=["worker"])
        for worker, count in self.outside_segments.items():
            segments.add_metric([worker], count)
        yield segments


class Spread:
    """How often a time fell below each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: Iterable[float]) -> None:
        """Many at once: in order, those below a bound are found together."""
        values, below = sorted(seconds), 0
        for number, bound in enumerate(self._bounds):
            before, below = below, bisect_right(values, bound)
            self._counts[number] += below - before
        self._counts[-1] += len(values) - below
        self._sum += sum(values)

    def family(self, name: str, text: str) -> Metric:
        total, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        family = HistogramMetricFamily(name, text)
        family.add_metric([], buckets, self._sum)
        return family


def _counter(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value=value)
