"""The judge of what was told: of every run its complete events, each once, in their order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from campaign.case import Case, Violation, of_run
from campaign.history import Run, Told

EXECUTED = ("succeeded", "failed", "timed_out")


class Step(NamedTuple):
    before: str
    after: str


# What may come after what, of one run. It begins anywhere, and nothing comes after its end.
NEXT = {
    "run.queued": {"run.queued", "run.blocked", "run.started", "run.finished"},
    "run.blocked": {"run.queued", "run.blocked", "run.started", "run.cancelling", "run.finished"},
    "run.started": {"run.queued", "run.blocked", "run.cancelling", "run.retrying", "run.finished"},
    "run.cancelling": {"run.queued", "run.blocked", "run.retrying", "run.finished"},
    "run.retrying": {"run.queued", "run.blocked", "run.started", "run.finished"},
}


def told(case: Case) -> Iterator[Violation]:
    """Every run has its complete events, each once and in order. Not judged where nobody listened."""
    events = case.history.told
    if not events:
        return
    for event_id, number in Counter(event.id for event in events).items():
        if number > 1:
            yield Violation("told", f"event {event_id} was told {number} times")
    by_run: dict[int, list[Told]] = defaultdict(list)
    for event in events:
        if event.run is not None:
            by_run[event.run].append(event)
    for run in case.history.final.runs:
        if complaint := _complaint(run, by_run.get(run.id, [])):
            yield of_run(case, "told", run, complaint)


def _complaint(run: Run, events: Sequence[Told]) -> str:
    kinds = [event.kind for event in events]
    if not events:
        return "nothing was told of it"
    for step in map(Step, kinds, kinds[1:]):
        if step.after not in NEXT.get(step.before, ()):
            return f"{step.after} was told after {step.before}"
    if run.finished_at is None:
        return ""
    if kinds[-1] != "run.finished" or events[-1].state != run.state:
        return f"it is {run.state}, and the last that was told is {kinds[-1]} {events[-1].state}"
    fences = [event.fence or 0 for event in events]
    if fences != sorted(fences):
        return f"its fences were told in the order {fences}"
    begun = {event.fence for event in events if event.kind == "run.started"}
    missing = {one.fence for one in run.earlier} | ({run.fence} if run.state in EXECUTED and run.fence else set())
    return f"that attempts with the fences {sorted(missing - begun)} began was not told" if missing - begun else ""
