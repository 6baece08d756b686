"""The past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import Moment
from horae.core.runs.past import HistoryPart, Outdated, Remains


class History(Protocol):
    """The past, and how it is removed."""

    async def load_outdated(self, before: Moment, after: int, limit: int) -> Outdated:
        """Ended runs that finished before a moment, among the `limit` oldest after an id, and the attempts of theirs
        that may have left output: named it, or were lost before they could."""

    async def tend_history(self) -> bool:
        """Make what history needs while it is used, such as indexes and room ahead; whether it lies in parts that are
        dropped as a whole."""

    async def load_outdated_parts(self, before: Moment) -> list[HistoryPart]:
        """Parts of which all runs finished before a moment, and into which none will come any more."""

    async def drop_part(self, part: HistoryPart) -> None:
        """Drop a part with the attempts of its runs."""

    async def without_runs(self, first_ids: Sequence[int], width: int) -> list[int]:
        """Return those of these ids from which on, for `width` ids, there is no run, live or ended."""

    async def purge_remains(self, before: Moment, limit: int) -> Remains:
        """Drop what was of no use since before a moment: up to `limit` tombstones of jobs without any run, triggers
        without another moment, and names of nodes that are gone."""

    async def purge(self, run_ids: Sequence[int]) -> None:
        """Drop ended runs with their attempts from history."""

    async def purge_keys(self, before: Moment, limit: int) -> int:
        """Drop up to `limit` idempotency keys that were noted before a moment. They are kept for a day: a
        repeat within that time is recognised."""
