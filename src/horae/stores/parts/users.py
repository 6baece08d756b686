"""Users, organisations and their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.identity import Member, Organisation, User, UserKind
from horae.core.model import Moment
from horae.core.roles import Role, greatest
from horae.stores.database import Database, Steps
from horae.stores.rows import Row

RACES = 4  # that whoever makes an organisation may lose
MANUAL = "manual"  # the source of what was said by hand
HOLDS = (  # go with it
    "drop_members_in", "drop_sessions_in", "drop_grants_in", "drop_secrets_in", "drop_rules_in", "drop_channels_in",
    "drop_alerts_in", "drop_deliveries_in",
)  # fmt: skip


class UserPart(Database):
    """Who there is."""

    async def add_user(self, user: User, identity: tuple[str, str] | None = None) -> User | None:
        def steps() -> Steps[int | None]:
            made = yield ("add_user", user.name, user.kind, user.email, user.password, user.created_at)
            if not made:
                return None
            user_id = int(made[0][0])
            if identity is not None and not (yield ("add_identity", user_id, *identity)):
                yield ("drop_user", user_id)
                return None
            for org, role in user.roles.items():
                yield ("put_member", org, user_id, role, MANUAL, user.created_at)
            return user_id

        user_id = await self._transact(steps)
        return None if user_id is None else await self.get_user(user_id)

    async def get_user(self, user_id: int) -> User | None:
        return _one(await self._get("get_user", user_id))

    async def find_user(self, name: str) -> User | None:
        return _one(await self._get("find_user", name))

    async def find_identity(self, issuer: str, subject: str) -> User | None:
        return _one(await self._get("find_identity", issuer, subject))

    async def link_identity(self, user_id: int, issuer: str, subject: str) -> bool:
        if await self._put("add_identity", user_id, issuer, subject):
            return True
        known = await self.find_identity(issuer, subject)
        return known is not None and known.id == user_id

    async def list_users(self, after: str, limit: int) -> list[User]:
        return users_from(await self._get("list_users", after, limit))

    async def set_disabled(self, user_id: int, at: Moment | None) -> None:
        await (self._put("enable_user", user_id) if at is None else self._put("disable_user", user_id, at))

    async def set_email(self, user_id: int, email: str) -> None:
        await self._put("set_email", user_id, email)

    async def set_invite(self, user_id: int, hash: str, until: Moment) -> None:
        await self._put("set_invite", user_id, hash, until)

    async def get_invite(self, user_id: int) -> tuple[str, Moment] | None:
        rows = await self._get("get_invite", user_id)
        return (rows[0][0], rows[0][1]) if rows else None

    async def use_invite(self, user_id: int, hash: str, password: str, now: Moment) -> bool:
        return bool(await self._put("use_invite", user_id, hash, password, now))

    async def set_password(self, user_id: int, expected: str | None, password: str) -> bool:
        return bool(await self._put("set_password", user_id, expected, password))

    async def has_person(self) -> bool:
        return bool(await self._get("has_person"))

    async def is_owner_of_tokens(self, name: str) -> bool:
        return bool(await self._get("is_owner_of_tokens", name))

    # ── organisations ──

    async def add_organisation(self, name: str, at: Moment) -> Organisation | None:
        for _ in range(RACES):  # another may take the number meanwhile
            if rows := await self._put("add_organisation", name, at):
                return Organisation(*rows[0])
        return None

    async def list_organisations(self) -> list[Organisation]:
        return [Organisation(*row) for row in await self._get("list_organisations")]

    async def change_organisation(self, wanted: Organisation) -> Organisation | None:
        limits = wanted.most_waiting, wanted.most_jobs
        rows = await self._put("change_organisation", wanted.id, wanted.name, *limits)
        return Organisation(*rows[0]) if rows else None

    async def delete_organisation(self, org: int, now: Moment) -> dict[str, int]:
        def steps() -> Steps[dict[str, int]]:
            yield ("hold_organisation", org)
            jobs, runs, sources = (yield ("organisation_has", org))[0]
            if jobs or runs or sources:
                return {"jobs": jobs, "runs that have not ended": runs, "sources": sources}
            yield ("revoke_tokens_in", org, now)
            for statement in HOLDS:
                yield (statement, org)
            yield ("drop_organisation", org, now)
            return {}

        return await self._transact(steps)

    async def put_member(self, org: int, user_id: int, role: Role, at: Moment) -> None:
        await self._put("put_member", org, user_id, role, MANUAL, at)

    async def drop_member(self, org: int, user_id: int, *, unless_last: bool) -> bool:
        def steps() -> Steps[bool]:
            yield ("hold_organisation", org)
            if unless_last and (yield ("is_admin", org, user_id)) and not (yield ("has_other_admin", org, user_id)):
                return False
            yield ("drop_member", org, user_id)
            return True

        return await self._transact(steps)

    async def sync_members(self, user_id: int, source: str, roles: Mapping[int, Role], at: Moment) -> None:
        def steps() -> Steps[None]:
            for (org,) in (yield ("members_of", user_id, source)):
                if org not in roles:
                    yield ("drop_member_of", user_id, source, org)
            for org, role in roles.items():
                yield ("put_member", org, user_id, role, source, at)

        await self._transact(steps)

    async def list_members(self, org: int) -> list[Member]:
        return [_member(*row) for row in await self._get("list_members", org)]


def _member(org: int, user_id: int, name: str, role: str, source: str) -> Member:
    return Member(org, user_id, name, Role(role), source)


def _one(rows: Sequence[Row]) -> User | None:
    return users_from(rows)[0] if rows else None


def users_from(rows: Sequence[Row]) -> list[User]:
    """Return users of rows that each have one role; those of a user stand together."""
    found: dict[int, tuple[Any, dict[int, Role], dict[int, Moment]]] = {}
    for *known, org, role, added_at in rows:
        _, roles, since = found.setdefault(known[0], (known, {}, {}))
        if org is not None:
            roles[org] = greatest(filter(None, (roles.get(org), Role(role)))) or Role(role)
            since[org] = min(added_at, since.get(org, added_at))
    return [
        User(user_id, name, UserKind(kind), created_at, email, password, disabled_at, roles, since)
        for (user_id, name, kind, created_at, email, password, disabled_at), roles, since in found.values()
    ]
