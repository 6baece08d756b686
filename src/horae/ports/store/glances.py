"""The past of jobs at a glance: for people who look at many runs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from horae.core.insight.timeline import Mark
from horae.core.model import Moment, State


class Late(NamedTuple):
    """Runs that wait for an agent."""

    number: int
    is_cut: bool  # there are more
    run_id: int | None = None  # the one that was made first
    due_at: Moment | None = None


class Held(NamedTuple):
    """Blocked runs that wait for the same."""

    reason: str
    looked: int
    number: int  # of these, those that were made before a moment
    run_id: int | None  # of them, the one that was made first
    created_at: Moment | None


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

    async def find_running(self, org: int | None, most: int) -> list[int]:
        """Return the newest runs that are running; tasks are not among them."""

    async def count_late(self, before: Moment, org: int | None, most: int) -> Late:
        """Count queued runs that were due before a moment; tasks are not among them."""

    async def count_held(self, before: Moment, org: int | None, most: int) -> list[Held]:
        """Count blocked runs by reason, of up to so many; tasks are not among them."""

    async def find_failing(self, first_id: int, org: int | None, looked_at: int, most: int) -> list[int]:
        """Return the newest runs of jobs, from an id on, that failed or timed out, the newest first: of jobs that are
        not deleted, and of which no run has succeeded or been cancelled since. So many runs of each bad end are looked
        at; tasks are not among them."""
