"""Jobs that come after others."""

from __future__ import annotations

from typing import Protocol

from horae.core.model import Job


class Dependencies(Protocol):
    """Who comes after whom."""

    async def load_following(self, org: int, owner: str) -> list[Job]:
        """Jobs of an owner that come after others, without the moments of their triggers."""
