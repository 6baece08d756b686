"""What is known when something is to be explained, and what an explanation is made of.

Facts are read in a bounded number of statements (service.insight.explaining), whatever there is beside them. What they
do not hold is not known, and is said to be so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from horae.core.insight.why.codes import CODES
from horae.core.model import Attempt, Job, Json, Moment, Node, Reason, Run, Trigger
from horae.core.policy.demands import NOTHING, Demand
from horae.core.policy.limits import LimitState
from horae.core.policy.queues import DEFAULT_NAME, DEFAULT_QUEUE, Queue
from horae.core.policy.resources import Supply
from horae.core.time.moments import format_moment
from horae.core.workflows.picture import TaskTally

# Why an attempt gave way that neither failed nor was lost: to wait for something, or because it could not begin.
NOT_TRIED: frozenset[str] = frozenset(
    {Reason.SIGNAL, Reason.SNOOZED, Reason.CHILDREN, Reason.LIMIT, Reason.DESTINATION_BUSY}
)
SHOWN = 5  # of runs, agents and the like that are named


@dataclass(frozen=True, slots=True)
class Sentence:
    """One thing that is so, in words and as data."""

    code: str  # of core.insight.why.codes
    text: str
    data: Json = field(default_factory=dict)
    policy: str = ""  # the line of a document that decided
    unblock: str = ""  # what would change it: a command, or a line of a document

    @property
    def page(self) -> str:
        return CODES[self.code].page


class Standing(NamedTuple):
    """What only a live run has, and nobody else needs to see."""

    queue: int = DEFAULT_QUEUE
    needs: tuple[str, ...] = ()  # labels
    demand: Demand = NOTHING
    start_by: Moment | None = None
    waits_for: int | None = None  # the run that writes where it would write
    latest_at: Moment | None = None  # of an order that waits for others of its kind
    cancel_note: str = ""  # who wants it cancelled


class Line(NamedTuple):
    """Those that go before a run that waits for an agent, counted up to a limit."""

    same: int = 0  # of its kind, queue and priority
    higher: int = 0  # of its queue, with a higher priority
    others: int = 0  # of other queues, with a higher one
    first: tuple[int, ...] = ()  # some of them
    is_cut: bool = False

    @property
    def total(self) -> int:
        return self.same + self.higher + self.others


class Busy(NamedTuple):
    """A run that an agent has now."""

    run_id: int
    job_id: int
    node: str
    kind: str
    started_at: Moment | None


class Neighbour(NamedTuple):
    """A run that was made shortly before or after another."""

    run_id: int
    job_id: int
    node: str | None
    kind: str
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None

    def was_running(self, at: Moment) -> bool:
        return self.started_at is not None and self.started_at <= at < (self.finished_at or at + 1)


class Owner(NamedTuple):
    """Who fires the triggers of a segment."""

    node: str
    since_at: Moment | None = None  # None: since before this was noted


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a sentence may be drawn from."""

    as_of: Moment
    job: Job
    run: Run | None = None
    attempts: Sequence[Attempt] = ()
    nodes: Sequence[Node] = ()
    supplies: Mapping[str, Supply] = field(default_factory=dict)  # what live agents have left, by name
    shared: Mapping[str, int] = field(default_factory=dict)  # what the cluster has
    queue: Queue = field(default_factory=lambda: Queue(DEFAULT_QUEUE, DEFAULT_NAME))
    queue_names: Mapping[str, str] = field(default_factory=dict)
    limits: Sequence[LimitState] = ()
    standing: Standing = field(default_factory=Standing)
    line: Line = field(default_factory=Line)
    busy: Sequence[Busy] = ()
    beside: Sequence[Neighbour] = ()
    others: Mapping[int, Run] = field(default_factory=dict)  # runs that are named: who holds, writes, or is waited for
    holder: Run | None = None  # the run of the job that is live
    tasks: TaskTally | None = None
    owner: Owner | None = None  # of the job's segment
    names: Mapping[int, str] = field(default_factory=dict)  # of jobs

    @property
    def the_run(self) -> Run:
        assert self.run is not None, "only what concerns a run asks for it"
        return self.run

    def trigger(self) -> Trigger | None:
        """Return the trigger that made the run, if the job still has it."""
        wanted = None if self.run is None else self.run.trigger_id
        return next((trigger for trigger in self.job.triggers if trigger.id == wanted), None)


def stamp(moment: Moment) -> str:
    return format_moment(moment)


def span(micros: int) -> str:
    """How long, as people say it: 40 ms, 12.5 s, 3 min 20 s, 5 h 12 min."""
    ms = abs(micros) / 1000
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s".replace(".0 s", " s")
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def listed(items: Sequence[object], most: int = SHOWN) -> str:
    """Return some of them in words: 1, 2, 3 and 4 more."""
    shown = ", ".join(map(str, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
