"""What an explanation is drawn from, beyond what everybody may read. Looked at only: nothing of it decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.insight.why.facts import Busy, Done, Line, Neighbour, Owner, Standing
from horae.core.model import Moment, Run
from horae.core.policy.resources import Supply


class Explained(Protocol):
    """Reads of bounded cost, however much there is of anything."""

    async def load_at(self, job_id: int, at: Moment, limit: int) -> list[Run]:
        """Return the records of a job for a moment: live ones, and those among the `limit` of each state that were made
        from then on. Tasks of workflows are not among them."""

    async def load_standing_of(self, run_id: int) -> Standing | None:
        """Return what only a live run has; None when it is not live."""

    async def load_line(self, run_id: int, limit: int) -> Line:
        """Return who goes before a run that waits for an agent, each sort counted up to `limit`; by their ids some of
        its organisation."""

    async def load_busy_of(self, nodes: Sequence[str], limit: int) -> list[Busy]:
        """Return runs that these nodes have now."""

    async def load_beside(self, run: Run, limit: int) -> list[Neighbour]:
        """Return runs made shortly before and after another, `limit` either way, and what its node runs now."""

    async def load_names_in(self, org: int, job_ids: Sequence[int]) -> dict[int, str]:
        """Return the names of those jobs that are of an organisation."""

    async def load_owner(self, segment: int) -> Owner | None: ...

    async def load_done(self, kind: str, subject: str, org: int, limit: int) -> list[Done]:
        """Return what people of an organisation did to something, newest first, of so many deeds of anybody."""

    async def load_supplies(self) -> list[Supply]:
        """Return what agents have that take new work, and what of it is free."""
