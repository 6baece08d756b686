"""Whether jobs may run: with the rights of their owner, as they are when the run is made.

An owner that has an account must not be disabled, and must be allowed to run the job: by its role in the organisation
of the job, or by a grant. Owners without an account (of tokens made by hand, and the user who runs the server) have
nothing that could be taken from them.

What was found is believed for a few seconds and then asked for all owners at once; an owner that was never met is asked
for when it is, with all the others of the batch. So firing costs no statement of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from horae.core.identity import User
from horae.core.model import Policy
from horae.core.rights import Granted, may_run
from horae.core.roles import PERMISSIONS, Permission
from horae.ports.store.grants import Grants
from horae.ports.store.grants import Owners as OwnerStore

REFRESH = 5.0  # seconds
MOST = 100_000  # owners that are remembered


class OwnersStore(OwnerStore, Grants, Protocol):
    """Owners, and what was granted to them."""


class Owners:
    def __init__(self, store: OwnersStore) -> None:
        self._store = store
        self._met: set[tuple[int, str]] = set()  # (organisation, name)
        self._users: dict[str, User] = {}  # those that have an account
        self._grants: dict[tuple[int, str], Granted] = {}  # of those whose role is not enough
        self._known_until = 0.0
        self.changed_at = float("-inf")

    async def refresh(self, owners: Iterable[tuple[int, str]] = ()) -> None:
        """Have what is known of these no older than it may be. To be called before `bars`, which does not wait."""
        new, now = {*owners} - self._met, asyncio.get_running_loop().time()
        if now >= self._known_until:
            if len(self._met) > MOST:
                self._met.clear()
            users, grants = await self._load(self._met | new)
            if (users, grants) != (self._users, self._grants):
                self.changed_at = now
            self._users, self._grants, self._known_until = users, grants, now + REFRESH
        elif new:
            users, grants = await self._load(new)
            self._users |= users
            self._grants |= grants
        self._met |= new

    async def _load(self, owners: set[tuple[int, str]]) -> tuple[dict[str, User], dict[tuple[int, str], Granted]]:
        found = await self._store.load_owners(sorted({name for _, name in owners})) if owners else []
        users = {user.name: user for user in found}
        short = [key for key in sorted(owners) if (user := users.get(key[1])) and not _has_role(user, key[0])]
        return users, {key: Granted(await self._store.load_grants(*key)) for key in short}

    def bars(self, org: int, owner: str, job_id: int, policy: Policy) -> bool:
        """Return whether the owner of a job may not run it."""
        user = self._users.get(owner) if self._users else None
        return user is not None and not may_run(user, self._grants.get((org, owner), _NOTHING), org, job_id, policy)


_NOTHING = Granted()


def _has_role(user: User, org: int) -> bool:
    role = user.role_in(org)
    return role is not None and Permission.RUN in PERMISSIONS[role]
