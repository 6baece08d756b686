"""Time as a picture: runs as bars on the rows of their jobs, and how many of them there were at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    return sorted(sorted(counts), key=counts.__getitem__, reverse=True)[:most]


def load_of(past: Sample, window: Window, now: Moment) -> list[Load]:
    """Return how many runs there were at once in each part of the window that is past: at most, where all are known;
    else on average."""
    end, length = min(window.end, now), max(1, (window.end - window.start) // PARTS)
    starts = range(window.start, end, length)
    spans = _spans(past.marks, end, now)
    found = _highest(spans, starts, length) if past.is_whole else _average(spans, past.weight, starts, length)
    return [Load(at, most, False) for at, most in zip(starts, found, strict=True)]


def _spans(marks: Iterable[Mark], end: Moment, now: Moment) -> list[tuple[Moment, Moment]]:
    """Return from when until when each was running that began before the end."""
    return [
        (begin, finished if finished > begin else begin + 1)
        for begin, finished in [(start, finish or now) for _, _, _, _, start, finish in marks if start is not None]
        if begin < end
    ]


def _highest(spans: Sequence[tuple[Moment, Moment]], starts: Sequence[Moment], length: int) -> list[float]:
    changes, first = Counter[Moment](), starts[0] if starts else 0
    for begin, end in spans:
        changes[begin if begin > first else first] += 1
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
    spans: Sequence[tuple[Moment, Moment]], weight: float, starts: Sequence[Moment], length: int
) -> list[float]:
    """Runs in a part are time that was spent in it; nearly all begin and end in the same one."""
    spent, first, parts = [0] * len(starts), starts[0] if starts else 0, len(starts)
    for began, end in spans:
        begin = began if began > first else first
        place = (begin - first) // length
        while place < parts and end > (edge := first + (place + 1) * length):
            spent[place] += edge - begin
            begin, place = edge, place + 1
        if place < parts and end > begin:
            spent[place] += end - begin
    return [round(each * weight / length, 2) for each in spent]
