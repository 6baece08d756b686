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


FIRST = {"run.queued", "run.blocked"}  # with which a run begins that was not born at its end
# What may come after what, of one run. Nothing comes after its end.
NEXT = {
    "run.queued": {"run.queued", "run.blocked", "run.started", "run.finished"},
    "run.blocked": {"run.queued", "run.blocked", "run.started", "run.cancelling", "run.finished"},
    "run.started": {"run.queued", "run.blocked", "run.cancelling", "run.retrying", "run.finished"},
    "run.cancelling": {"run.queued", "run.blocked", "run.retrying", "run.finished"},
    "run.retrying": {"run.queued", "run.blocked", "run.started", "run.finished"},
}


def told(case: Case) -> Iterator[Violation]:
    """Every run has its complete events, each once and in order, and a consumer heard all that there were, as they are
    stored. Not judged where nobody listened: then there are fewer than are demanded."""
    events = case.history.told
    if not events:
        return
    for event_id, number in Counter(event.id for event in events).items():
        if number > 1:
            yield Violation("told", f"event {event_id} was told {number} times")
    if case.history.stored:
        yield from _against_store([event.id for event in events], case.history.stored)
    by_run: dict[int, list[Told]] = defaultdict(list)
    for event in events:
        if event.run is not None:
            by_run[event.run].append(event)
    for run in case.history.final.runs:
        if complaint := _complaint(run, by_run.get(run.id, [])):
            yield of_run(case, "told", run, complaint)


def _against_store(told_ids: list[str], stored: list[str]) -> Iterator[Violation]:
    """What happened after the last look into the store is not judged."""
    heard, kept = dict.fromkeys(told_ids), set(stored)
    if missing := [event_id for event_id in stored if event_id not in heard]:
        yield Violation("told", f"{len(missing)} of {len(stored)} events were not told, the first of them {missing[0]}")
    common = [event_id for event_id in heard if event_id in kept]
    for event_id, expected in zip(common, (one for one in stored if one in heard), strict=True):
        if event_id != expected:
            yield Violation("told", f"event {event_id} was told before {expected}, after which it is stored")
            break
    if common and (strangers := [one for one in told_ids[: told_ids.index(common[-1])] if one not in kept]):
        yield Violation("told", f"{len(strangers)} events were told that are not stored, such as {strangers[0]}")


def _complaint(run: Run, events: Sequence[Told]) -> str:
    kinds = [event.kind for event in events]
    if not events:
        return "nothing was told of it"
    if kinds[0] not in FIRST and len(kinds) > 1:
        return f"the first that was told is {kinds[0]}"
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
