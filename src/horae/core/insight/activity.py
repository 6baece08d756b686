"""How much ended, and how late it began, in each part of a time that is over.

Runs are numbered as they are made, so that ids say how many there were: of very many, some of each part are looked at,
and each of these stands for those beside it. So what this costs does not grow with what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from horae.core.insight.arrivals import Window
from horae.core.insight.timeline import Mark
from horae.core.model import Moment, State

BAD = (State.FAILED, State.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids that follow each other, all of which are looked at."""

    first: int
    length: int
    weight: float  # ids that each of them stands for


@dataclass(frozen=True, slots=True)
class Activity:
    """What was, in parts of equal length, the oldest first."""

    window: Window
    ended: Sequence[float]
    bad: Sequence[float]  # of these, those that failed or timed out
    late: Sequence[Moment]  # the worst of those that began then
    marks: Sequence[Mark]  # the runs that were looked at, the oldest first
    is_whole: bool  # there are no others


def pieces_of(bounds: Sequence[int], most: int, length: int) -> list[Piece]:
    """Return which ids to look at between each of these and the next: all, or `most` pieces of a length."""
    return [piece for first, last in pairwise(bounds) for piece in _between(first, last, most, length)]


def _between(first: int, last: int, most: int, length: int) -> list[Piece]:
    count = last - first
    number = min(most, -(-count // length))
    starts = [first + count * place // number for place in range(number)]
    lengths = [min(length, end - start) for start, end in pairwise([*starts, last])]
    return [Piece(start, long, count / sum(lengths)) for start, long in zip(starts, lengths, strict=True)]


def activity_of(window: Window, parts: int, pieces: Iterable[Piece], found: Mapping[int, Mark]) -> Activity:
    """Return what the runs that were found, by id, tell of the parts of a window."""
    ended, bad, late = [0.0] * parts, [0.0] * parts, [0] * parts
    marks, is_whole = [], True
    for piece in pieces:
        is_whole = is_whole and piece.weight == 1
        for mark in (found[run_id] for run_id in range(piece.first, piece.first + piece.length) if run_id in found):
            marks.append(mark)
            place = _part(mark.finished_at, window, parts)
            if place is not None:
                ended[place] += piece.weight
                bad[place] += piece.weight if mark.state in BAD else 0.0
            place = _part(mark.started_at, window, parts)
            if place is not None and mark.started_at is not None:
                late[place] = max(late[place], mark.started_at - mark.due_at)
    return Activity(window, ended, bad, late, marks, is_whole)


def _part(moment: Moment | None, window: Window, parts: int) -> int | None:
    """Return the part in which a moment lies. What ends right now is of the last."""
    if moment is None or not window.start <= moment <= window.end:
        return None
    return min(parts - 1, (moment - window.start) * parts // (window.end - window.start))
