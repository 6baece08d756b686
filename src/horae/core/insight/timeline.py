"""Time as a picture: runs as bars on the rows of their jobs, and how many of them there were at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from horae.core.insight.arrivals import Window
from horae.core.model import Moment, State

EXPECTED = "expected"
PARTS = 120  # of the past, for which it is counted how many runs there were at once


class Mark(NamedTuple):
    """A run, as far as a picture shows it."""

    id: int
    job_id: int
    state: State
    due_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class Sample(NamedTuple):
    """Runs of a time."""

    marks: list[Mark]
    weight: float = 1.0  # runs that each of them stands for; 1: these are all

    @property
    def is_whole(self) -> bool:
        return self.weight == 1.0

    def beside(self, live: Iterable[Mark]) -> Sample:
        """Return this with runs that were live a moment before: one that has ended since is among both."""
        ended = {mark.id for mark in self.marks}
        return self._replace(marks=[*self.marks, *(mark for mark in live if mark.id not in ended)])


class Bar(NamedTuple):
    """A run, or one that is expected."""

    start: Moment
    end: Moment | None  # None: it goes on
    state: str
    run_id: int | None = None


class Load(NamedTuple):
    at: Moment
    running: float
    is_expected: bool


def bar_of(mark: Mark) -> Bar:
    """What never started is a mark at its due moment."""
    start = mark.due_at if mark.started_at is None else mark.started_at
    end = mark.finished_at if mark.state.is_terminal else None
    return Bar(start, start if mark.started_at is None and mark.state.is_terminal else end, mark.state.word, mark.id)


def busiest(counts: Mapping[int, float], most: int) -> list[int]:
    """Return the jobs with most runs; of equal ones, those that were made first. Of very many, only those that may be
    among them are sorted by both."""
    if len(counts) > most > 0:
        least = nlargest(most, counts.values())[-1]
        counts = {job_id: count for job_id, count in counts.items() if count >= least}
    return sorted(counts, key=lambda job_id: (-counts[job_id], job_id))[:most]


def load_of(past: Sample, window: Window, now: Moment) -> list[Load]:
    """Return how many runs there were at once in each part of the window that is past: at most, where all are known;
    else on average."""
    end, length = min(window.end, now), max(1, (window.end - window.start) // PARTS)
    starts = range(window.start, end, length)
    spans = _spans(past.marks, window.start, end, now)
    found = _highest(spans, starts, length) if past.is_whole else _average(spans, past.weight, starts, length)
    return [Load(at, most, False) for at, most in zip(starts, found, strict=True)]


def _spans(marks: Iterable[Mark], start: Moment, end: Moment, now: Moment) -> Iterator[tuple[Moment, Moment]]:
    """Yield from when until when each was running."""
    for mark in marks:
        if mark.started_at is not None and mark.started_at < end:
            yield max(mark.started_at, start), max(mark.finished_at or now, mark.started_at + 1)


def _highest(spans: Iterable[tuple[Moment, Moment]], starts: Sequence[Moment], length: int) -> list[float]:
    changes = Counter[Moment]()
    for begin, end in spans:
        changes[begin] += 1
        changes[end] -= 1
    ordered, place, level, found = sorted(changes.items()), 0, 0, list[float]()
    for start in starts:
        highest = level
        while place < len(ordered) and ordered[place][0] < start + length:
            level += ordered[place][1]
            highest = max(highest, level)
            place += 1
        found.append(highest)
    return found


def _average(
    spans: Iterable[tuple[Moment, Moment]], weight: float, starts: Sequence[Moment], length: int
) -> list[float]:
    spent = [0] * len(starts)
    for begin, end in spans:
        place = (begin - starts[0]) // length
        while place < len(spent) and end > starts[place] + length:
            spent[place] += starts[place] + length - begin
            begin, place = starts[place] + length, place + 1
        if place < len(spent):
            spent[place] += end - begin
    return [round(each * weight / length, 2) for each in spent]
