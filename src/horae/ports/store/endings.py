"""The outbox: what happened to runs, and what became of nodes, for those who wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.runs.endings import Ending


class Endings(Protocol):
    """Rows are written in the transaction in which something happened, and dropped in that of whatever is done about
    it: who dies in between leaves the row to others. Two may act on one row at a time; the effects compare and set."""

    async def load_endings(self, after: int, limit: int) -> list[Ending]:
        """Rows with an id above `after`, oldest first; those that others act on at this moment may be left out."""

    async def drop_endings(self, ids: Sequence[int]) -> None:
        """Nobody waits for these."""
