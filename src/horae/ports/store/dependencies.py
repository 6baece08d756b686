"""Jobs that come after others."""

from __future__ import annotations

from typing import Protocol

from horae.core.model import Job
from horae.core.runs.following import Follow, Followed


class Dependencies(Protocol):
    """Who comes after whom."""

    async def load_following(self, org: int, owner: str) -> list[Job]:
        """Jobs of an owner that come after others, without the moments of their triggers."""

    async def load_node_listeners(self) -> list[Job]:
        """The same of all owners, of those that may have triggers on nodes."""

    async def follow(self, follow: Follow) -> Followed:
        """Act on rows of the outbox, each once, in one transaction: make the runs that are to be made, as `enqueue`
        does; judge runs that wait for their predecessors (core.policy.dependencies): those that have arrived, and those
        of the jobs that are named. Who may go is given what its predecessors said, and who never will is history.
        Nothing is done, and the rows stay, where a job of which a run is to be made has changed since it was read."""
