"""What happened: every transition of jobs, triggers, runs, nodes, segments, queues, alerts and settings, as it is
stored and read.

An event says what was true then. It is known by the batch in which it was written and its place in that, which never
change, however often it is told. A cursor is the place after an event; whoever goes on from it misses nothing and hears
nothing twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.model import LARGEST_ID, Moment, State
from horae.errors import Invalid

_CURSOR = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,9})", re.ASCII)

# What can happen, in the words of its type.
KINDS = {
    "job.submitted": "a job was made, with its triggers",
    "job.changed": "what a job does or how was changed",
    "job.paused": "a job was paused, or has paused itself",
    "job.resumed": "a job goes on",
    "job.deleted": "a job was deleted",
    "trigger.added": "a job got another trigger",
    "trigger.changed": "when a trigger is due, or its data, was changed",
    "trigger.enabled": "a trigger goes on",
    "trigger.disabled": "a trigger was put off",
    "trigger.removed": "a trigger was taken away",
    "run.queued": "a run waits for an agent: it was made, or what it waited for has come",
    "run.blocked": "a run waits for something else than an agent; `reason` says for what",
    "run.started": "an agent claimed an attempt",
    "run.cancelling": "a run that is at work shall stop",
    "run.retrying": "an attempt ended, or was lost, and the run will be tried again",
    "run.finished": "a run has ended, in whatever state, also without any attempt",
    "node.joined": "a node came, or came back",
    "node.draining": "a node takes nothing new, because it is about to stop",
    "node.gone": "a node left, or was silent for too long",
    "node.leading": "a node was elected to lead the others; `term` says for which time",
    "node.wanted": "an operator wants something of a node; `reason` says what",
    "segment.assigned": "segments were given to a scheduler",
    "queue.created": "a queue was made",
    "queue.changed": "what a queue is like was changed",
    "queue.paused": "nothing is claimed from a queue any more",
    "queue.resumed": "a queue goes on",
    "queue.deleted": "a queue was deleted",
    "alert.opened": "something goes on of which an alert rule is",
    "alert.closed": "and is over",
    "setting.changed": "something that all nodes have in common was written; its value is not told",
}


class Cursor(NamedTuple):
    """A place between two events: that before the nth one of this batch, counted from 0."""

    stamp: int
    batch: int
    nth: int

    def __str__(self) -> str:
        return f"{self.stamp}.{self.batch}.{self.nth}"


BEGINNING = Cursor(0, 0, 0)


def read_cursor(text: str, path: str = "") -> Cursor:
    found = _CURSOR.fullmatch(text)
    if found is None or max(numbers := [int(each) for each in found.groups()]) > LARGEST_ID:
        hint = "give back the cursor of a page, or the id of the last event of a stream; or leave it out"
        raise Invalid("this is not a cursor of events", code="E_PATTERN", path=path, hint=hint)
    return Cursor(*numbers)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, and what was true then."""

    batch: int
    index: int
    cursor: Cursor  # the place after it
    at: Moment
    kind: str
    state: State | None = None  # of a run
    reason: str = ""
    fence: int | None = None  # of a run; of a job or a queue, its version; of a leader, its term
    run_id: int | None = None
    job_id: int | None = None
    trigger_id: int | None = None
    segments: tuple[int, ...] = ()
    name: str | None = None  # of a node, a queue or a setting

    @property
    def id(self) -> str:
        """The same however often it is told."""
        return f"{self.batch}.{self.index}"


@dataclass(frozen=True, slots=True)
class EventFilter:
    kinds: tuple[str, ...] = ()  # none: all
    job_id: int | None = None
    run_id: int | None = None

    def takes(self, event: Event) -> bool:
        return (
            (not self.kinds or event.kind in self.kinds)
            and self.job_id in (None, event.job_id)
            and self.run_id in (None, event.run_id)
        )


EVERYTHING = EventFilter()


class Batch(NamedTuple):
    """Events that were written together, as they are stored."""

    stamp: int
    id: int
    at: Moment
    kind: str
    state: int | None
    reason: str
    fence: int | None
    name: str | None
    ids: list[int]
    jobs: list[int]


def unpack(batch: Batch) -> list[Event]:
    """Return the events of a batch, in their order."""
    subject = batch.kind.partition(".")[0]
    count = len(batch.ids if subject in ("run", "trigger") else batch.jobs) if subject in _MANY else 1
    return [_event(batch, index, subject, is_last=index + 1 == count) for index in range(count)]


_MANY = ("run", "job", "trigger")  # of which a batch tells one by one


def _event(batch: Batch, index: int, subject: str, *, is_last: bool) -> Event:
    after = Cursor(batch.stamp, batch.id + 1, 0) if is_last else Cursor(batch.stamp, batch.id, index + 1)
    return Event(
        batch.id, index, after, batch.at, batch.kind, None if batch.state is None else State(batch.state), batch.reason,
        batch.fence,
        run_id=batch.ids[index] if subject == "run" else None,
        job_id=batch.jobs[index] if batch.jobs else None,
        trigger_id=batch.ids[index] if subject == "trigger" else None,
        segments=tuple(batch.ids) if subject == "segment" else (),
        name=batch.name,
    )  # fmt: skip
