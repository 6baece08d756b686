"""Roles that somebody has on some jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.identity import User
from horae.core.rights import Grant


class Grants(Protocol):
    """What was granted."""

    async def put_grant(self, grant: Grant) -> Grant:
        """Keep it, under a fresh id in place of the given one; where the same was granted already, with the new role
        under the old id."""

    async def page_grants(self, org: int, after: int, limit: int) -> list[Grant]:
        """Of an organisation, oldest first, from the one after this id."""

    async def load_grants(self, org: int, who: str) -> list[Grant]:
        """Of somebody, oldest first."""

    async def drop_grant(self, org: int, grant_id: int) -> Grant | None:
        """Take it back; None when there is none."""


class Owners(Protocol):
    """Owners of jobs."""

    async def load_owners(self, names: Sequence[str]) -> list[User]:
        """Those of these that have an account, with their roles; disabled ones too."""

    async def list_short_owners(self, roles: Sequence[str], permission: str) -> list[tuple[int, str]]:
        """Owners of jobs that have an account, each with the organisation of the jobs, who are disabled, or have there
        neither one of these roles nor one that is a list with this permission. Grants do not count."""

    async def load_waiting_jobs(self, org: int, owner: str, after: int, limit: int) -> list[int]:
        """Jobs of an owner of which runs wait that `end_barred` would end, by id, from the one after this."""
