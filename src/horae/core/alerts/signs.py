"""Signs: what events and looks at the store say of jobs, nodes and queues, good or bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from horae.core.alerts.rules import About
from horae.core.alerts.states import Sign
from horae.core.events import Event
from horae.core.members import owner_of
from horae.core.model import SECOND, Moment, Node, NodeState, Reason, State
from horae.core.policy.queues import Figures, Queue
from horae.core.runs.wording import say_reason
from horae.core.time.moments import format_duration, format_moment

FAILED = (State.FAILED, State.TIMED_OUT)
MISSED = frozenset({Reason.MISFIRE, Reason.START_DEADLINE, Reason.MISSED})
FULL = ("no space left", "disk quota")  # in what a machine is short of
FINISHED = "run.finished"
KINDS = (FINISHED, "job.deleted")  # of events that are always read
STARTED = "run.started"  # read where lateness counts


class JobFacts(NamedTuple):
    """What rules ask of a job."""

    id: int
    org: int
    owner: str
    name: str
    key: str | None
    queue: str
    is_part: bool  # of a workflow, which people see alone

    @property
    def about(self) -> About:
        return About(self.org, self.id, self.key, self.owner, self.queue)

    @property
    def subject(self) -> str:
        return f"job:{self.id}"

    @property
    def shown(self) -> str:
        return f"job {self.name} ({self.id})"


class Late(NamedTuple):
    """A job of which something waits since its moment."""

    job_id: int
    due_at: Moment  # the oldest
    run_id: int


class Start(NamedTuple):
    """When a run was due that has begun."""

    due_at: Moment
    is_first: bool  # attempt


class Disk(NamedTuple):
    """How full the disk of a node was."""

    node: str
    used: float  # percent
    at: Moment


def signs_of(events: Iterable[Event], jobs: Mapping[int, JobFacts], starts: Mapping[int, Start]) -> list[Sign]:
    """Return what events say, in their order. What is no job of its own says nothing."""
    found: list[Sign] = []
    for event in events:
        job = jobs.get(event.job_id or 0)
        if job is None or job.is_part:
            continue
        if event.kind == FINISHED:
            found += _ended(event, job)
        elif event.kind == STARTED and (start := starts.get(event.run_id or 0)) is not None:
            found += _began(event, job, start)
        elif event.kind == "job.deleted":
            found += [_sign(when, job, event, is_bad=False) for when in ("failure", "missed", "late", "slow")]
    return found


def _ended(event: Event, job: JobFacts) -> list[Sign]:
    said = say_reason(event.reason)
    if event.reason in MISSED and event.state is not State.SUCCEEDED:
        found = [_sign("missed", job, event, is_bad=True, text=said)]
        return found + [_sign("failure", job, event, is_bad=True, text=said)] * (event.state in FAILED)
    if event.state in FAILED:
        assert event.state is not None
        word = event.state.word.replace("_", " ")
        return [_sign("failure", job, event, is_bad=True, text=f"{word}: {said}" if said else word)]
    if event.state is State.SUCCEEDED:
        return [_sign(when, job, event, is_bad=False) for when in ("failure", "missed", "silent")]
    return []


def _sign(when: str, job: JobFacts, event: Event, *, is_bad: bool, text: str = "") -> Sign:
    return Sign(when, job.subject, job.shown, job.about, is_bad, event.at, text, event.run_id)


def _began(event: Event, job: JobFacts, start: Start) -> list[Sign]:
    """Whether it was late is for each rule to say. That of another attempt says nothing."""
    if not start.is_first:
        return []
    delay = max(0, event.at - start.due_at)
    text = f"it began {format_duration(delay // SECOND * SECOND)} after its moment"
    return [_sign("late", job, event, is_bad=False, text=text)._replace(amount=delay / SECOND)]


# ── by looks ──


def late_signs(waiting: Iterable[Late], jobs: Mapping[int, JobFacts], now: Moment) -> list[Sign]:
    """Return signs of jobs of which something waits; that one does no longer is told by events."""
    return [
        Sign(
            "late", job.subject, job.shown, job.about, True, now, f"it waits since {format_moment(late.due_at)}",
            late.run_id, (now - late.due_at) / SECOND,
        )
        for late in waiting
        if (job := jobs.get(late.job_id)) is not None and not job.is_part
    ]  # fmt: skip


def slow_signs(unusual: Iterable[int], jobs: Mapping[int, JobFacts], now: Moment) -> list[Sign]:
    return [
        Sign("slow", job.subject, job.shown, job.about, True, now, "its last runs took unusually long")
        for job_id in unusual
        if (job := jobs.get(job_id)) is not None and not job.is_part
    ]


def node_signs(nodes: Iterable[Node], now: Moment) -> list[Sign]:
    """Return signs of nodes that were declared gone: who left by its own word has no holder any more."""
    return [
        Sign("node_gone", f"node:{n.name}", f"node {n.name}", About(owner_of(n)), True, now,
             f"it was heard of last at {format_moment(n.heartbeat_at)}")
        for n in nodes
        if n.state is NodeState.GONE and n.holder
    ]  # fmt: skip


def queue_signs(queues: Iterable[Queue], figures: Mapping[int, Figures], now: Moment) -> list[Sign]:
    """Return how long something has waited in each queue, by the due moment of what waits longest."""
    oldest = [(queue, figures.get(queue.id, Figures()).oldest_at) for queue in queues]
    return [
        Sign(
            "queue_waiting", f"queue:{it.name}", f"queue {it.name}", About(it.org, queue=it.name), False, now,
            "" if due_at is None else f"the oldest waits since {format_moment(due_at)}",
            amount=0.0 if due_at is None else (now - due_at) / SECOND,
        )
        for it, due_at in oldest
    ]  # fmt: skip


def disk_signs(disks: Iterable[Disk], nodes: Iterable[Node], now: Moment) -> list[Sign]:
    """Return how full the disks of living nodes are; one that says it is full is."""
    used = {disk.node: disk.used for disk in disks}
    found = []
    for node in nodes:
        is_full = any(words in node.ailment.lower() for words in FULL)
        if node.state is not NodeState.GONE and (is_full or node.name in used):
            amount = 100.0 if is_full else used[node.name]
            text = node.ailment if is_full else f"its disk is {amount:.0f} % full"
            name = f"node {node.name}"
            found.append(
                Sign("disk_full", f"node:{node.name}", name, About(owner_of(node)), False, now, text, amount=amount)
            )
    return found
