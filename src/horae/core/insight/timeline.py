"""Time as a picture: runs as bars on the rows of their jobs, and how many of them there were at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from horae.core.insight.arrivals import Window
from horae.core.model import Moment, Run, State

EXPECTED = "expected"
PARTS = 120  # of the past, for which it is counted how many runs there were at once


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


def bar_of(run: Run) -> Bar:
    """What never started is a mark at its due moment."""
    start = run.due_at if run.started_at is None else run.started_at
    end = run.finished_at if run.state.is_terminal else None
    return Bar(start, start if run.started_at is None and run.state.is_terminal else end, run.state.word, run.id)


def busiest(counts: Counter[int], most: int) -> list[int]:
    """Return the jobs with most runs; of equal ones, those that were made first."""
    return sorted(counts, key=lambda job_id: (-counts[job_id], job_id))[:most]


def load_of(runs: Iterable[Run], window: Window, now: Moment) -> list[Load]:
    """Return how many runs there were at once, at most, in each part of the window that is past."""
    end = min(window.end, now)
    changes = Counter[Moment]()
    for run in runs:
        if run.started_at is not None and run.started_at < end:
            changes[max(run.started_at, window.start)] += 1
            changes[max(run.finished_at or now, run.started_at + 1)] -= 1
    length = max(1, (window.end - window.start) // PARTS)
    starts = range(window.start, end, length)
    return [Load(at, most, False) for at, most in zip(starts, _highest(changes, starts, length), strict=True)]


def _highest(changes: Counter[Moment], starts: Sequence[Moment], length: int) -> list[int]:
    ordered, place, level, found = sorted(changes.items()), 0, 0, []
    for start in starts:
        highest = level
        while place < len(ordered) and ordered[place][0] < start + length:
            level += ordered[place][1]
            highest = max(highest, level)
            place += 1
        found.append(highest)
    return found


def is_live(run: Run) -> bool:
    return run.state in (State.QUEUED, State.BLOCKED, State.RUNNING)
