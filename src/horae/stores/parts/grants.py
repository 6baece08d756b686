"""Roles that somebody has on some jobs."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.identity import User
from horae.core.rights import Grant
from horae.core.roles import Role
from horae.stores.database import Database
from horae.stores.parts.users import users_from
from horae.stores.rows import Row


class GrantPart(Database):
    """What was granted."""

    async def put_grant(self, grant: Grant) -> Grant:
        rows = await self._put("put_grant", *grant[1:])
        return _grant_of(rows[0])

    async def page_grants(self, org: int, after: int, limit: int) -> list[Grant]:
        return [_grant_of(row) for row in await self._get("page_grants", org, after, limit)]

    async def load_grants(self, org: int, who: str) -> list[Grant]:
        return [_grant_of(row) for row in await self._get("load_grants", org, who)]

    async def drop_grant(self, org: int, grant_id: int) -> Grant | None:
        rows = await self._put("drop_grant", org, grant_id)
        return _grant_of(rows[0]) if rows else None

    async def load_owners(self, names: Sequence[str]) -> list[User]:
        return users_from(await self._get("load_owners", self._list(names)))

    async def list_short_owners(self, roles: Sequence[str], permission: str) -> list[tuple[int, str]]:
        rows = await self._get("list_short_owners", self._list(roles), permission)
        return [(row[0], row[1]) for row in rows]

    async def load_waiting_jobs(self, org: int, owner: str, after: int, limit: int) -> list[int]:
        return [row[0] for row in await self._get("load_waiting_jobs", org, owner, after, limit)]


def _grant_of(row: Row) -> Grant:
    found = Grant(*row)
    return found._replace(role=Role(found.role))
