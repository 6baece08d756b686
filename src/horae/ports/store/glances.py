"""The past of jobs at a glance: for people who look at many runs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from horae.core.insight.timeline import Mark
from horae.core.model import Moment, State


class Glances(Protocol):
    """Reads whose cost does not grow with all that is kept."""

    async def load_fates(self, job_ids: Sequence[int], most: int) -> dict[int, list[tuple[int, State]]]:
        """Return how the last runs of each job ended, oldest first, as (run, state); tasks are not among them. Jobs
        without any are left out."""

    async def find_made_since(self, moments: Sequence[Moment]) -> list[int]:
        """Return, for each moment, the lowest id of a run that has ended and was made then or later; where there is
        none, an id above all."""

    async def count_between(self, job_id: int, bounds: Sequence[int]) -> list[Mapping[State, int]]:
        """Count the ended runs of a job by state, from each id of `bounds` (ascending) to the next."""

    async def find_named(self, text: str, org: int | None, most: int) -> list[int]:
        """Return the newest jobs whose name holds a text, whatever the case."""

    async def load_marks(self, first_ids: Sequence[int], length: int, org: int | None) -> list[Mark]:
        """Return the ended runs with so many ids from each of these on; tasks are not among them."""

    async def load_live_marks(self, before: Moment, org: int | None, most: int) -> list[Mark]:
        """Return the newest live runs that were due before a moment; tasks are not among them."""

    async def load_marks_of(self, job_ids: Sequence[int], first_id: int, last_id: int, most: int) -> list[Mark]:
        """Return the newest runs of each of these jobs: live ones, and those that have ended with an id from the first
        to before the last; tasks are not among them."""
