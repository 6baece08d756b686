"""What is left of runs that ended long ago, for whoever removes it."""

from __future__ import annotations

from typing import NamedTuple


class Outdated(NamedTuple):
    """Ended runs past their age."""

    run_ids: list[int]
    outputs: list[tuple[int, int, int]]  # (run id, attempt, fence)
    last: int | None = None  # the last run that was looked at, kept ones too; None when there were no more


class HistoryPart(NamedTuple):
    """A part of history that is dropped as a whole: runs from an id on, and below another."""

    name: str
    first: int
    end: int


class Remains(NamedTuple):
    """How much was dropped of what nobody needs any more."""

    jobs: int
    triggers: int
    nodes: int
