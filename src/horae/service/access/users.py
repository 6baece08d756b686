"""Users and organisations: who there is, and who may say so.

What must stay true:
- Who runs the installation (an admin of all organisations, or the user of a server on loopback) makes and disables
  users, makes organisations, and says who is in which. Admins of an organisation say what its members may do, and take
  them out; of who is no member they learn nothing.
- An organisation keeps an admin: the last one is not taken out (E_LAST_OWNER).
- A user's name is given once, and never that of somebody who owns tokens without an account: it would inherit jobs.
- Whoever is disabled is refused with all sessions and tokens, here at once, on other nodes within CACHE_SECONDS.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Protocol

import structlog

from horae.core.identity import EVERYWHERE, OPERATOR, Member, Organisation, Principal, User, UserKind
from horae.core.model import SECOND
from horae.core.rights import refuse_without
from horae.core.roles import Permission, Role, is_within
from horae.errors import Conflict, Denied, Invalid, NotFound
from horae.ports import deeds
from horae.ports.store.moments import StoreClock
from horae.ports.store.users import Organisations as OrganisationStore
from horae.ports.store.users import Users as UserPort
from horae.service.access import Access
from horae.service.access.credentials import hash_of, new_secret, text_of

INVITE_SECONDS = 24 * 3600.0
PAGE = 1000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,62}")
RESERVED = frozenset({OPERATOR, "anonymous", "nobody", "system", "agent"})

log = structlog.get_logger(__name__)


class UserStore(UserPort, OrganisationStore, StoreClock, Protocol): ...


class Users:
    def __init__(self, store: UserStore, access: Access) -> None:
        self._store, self._access = store, access

    # ── users ──

    async def create(
        self, name: str, who: Principal, *, kind: UserKind = UserKind.PERSON, roles: Mapping[int, Role] | None = None,
        email: str = "",
    ) -> User:  # fmt: skip
        await self.refuse_without_installation(who, "make users")
        refuse_bad_name(name)
        wanted = User(0, name, kind, await self._store.now(), email, roles=roles or {})
        told = {f"role in {org or '*'}": role for org, role in wanted.roles.items()}
        deeds.note(subject=name)
        deeds.note_change(None, {"kind": kind, "email": email or None, **told})
        made = await self._store.add_user(wanted)
        if made is None:
            raise Conflict(f"there is a user {name} already", code="E_NAME_TAKEN", hint="`horae users` lists them")
        log.info("user.created", id=made.id, name=name, kind=kind, by=who.name)
        return made

    async def invite(self, name: str, who: Principal) -> tuple[User, str]:
        """Return the user and a text with which it may set a password, once and within a day. Earlier ones are void."""
        await self.refuse_without_installation(who, "let users set a password")
        user = await self._named(name)
        if user.kind is UserKind.SERVICE:
            raise Conflict(
                f"{name} is a service account, which cannot log in",
                code="E_SERVICE_ACCOUNT",
                hint=f"make a token for it: `horae token create NAME --owner {name}`",
            )
        secret, now = new_secret(), await self._store.now()
        await self._store.set_invite(user.id, hash_of(secret), now + round(INVITE_SECONDS * SECOND))
        log.info("user.invited", id=user.id, name=name, by=who.name)
        return user, text_of("i", user.id, secret)

    async def list_users(self, who: Principal, after: str = "", limit: int = PAGE) -> list[User]:
        """By name: all of them to who runs the installation, to others those of their organisation."""
        if await self.runs_installation(who):
            return await self._store.list_users(after, limit)
        names = sorted({member.name for member in await self._store.list_members(who.org)})
        found = [await self._store.find_user(name) for name in names if name > after][:limit]
        return [user for user in found if user is not None]

    async def set_disabled(self, name: str, who: Principal, *, is_disabled: bool) -> User:
        await self.refuse_without_installation(who, "disable users")
        user = await self._named(name)
        if is_disabled and user.id == who.user_id:
            raise Conflict("nobody disables the account that is in use", code="E_LAST_OWNER", hint="ask another admin")
        deeds.note_change({"disabled": user.disabled_at is not None}, {"disabled": is_disabled})
        await self._store.set_disabled(user.id, await self._store.now() if is_disabled else None)
        if is_disabled:
            await self._access.sessions.end_all(user.id)
        self._access.doubt_user(user.id)
        log.info("user.disabled" if is_disabled else "user.enabled", id=user.id, name=name, by=who.name)
        return await self._named(name)

    async def link(self, name: str, issuer: str, subject: str, who: Principal) -> None:
        """Let a provider's user be this one: nobody but an admin says so, whatever addresses of mail are alike."""
        await self.refuse_without_installation(who, "link users")
        user = await self._named(name)
        deeds.note_change(None, {"issuer": issuer, "subject": subject})
        if not await self._store.link_identity(user.id, issuer, subject):
            raise Conflict("that user of the provider has an account already", code="E_NAME_TAKEN")
        log.info("user.linked", id=user.id, name=name, issuer=issuer, by=who.name)

    async def free_name(self, wanted: str) -> str:
        """Return a name for somebody new, near the one that is wanted."""
        base = re.sub(r"[^A-Za-z0-9._+-]+", "-", wanted.partition("@")[0]).strip("-._+")[:48] or "user"
        for number in itertools.count(1):
            name = base if number == 1 else f"{base}-{number}"
            if name.lower() in RESERVED or await self._store.is_owner_of_tokens(name):
                continue
            if await self._store.find_user(name) is None:
                return name
        raise AssertionError("numbers do not end")

    async def _named(self, name: str) -> User:
        user = await self._store.find_user(name)
        if user is None:
            raise NotFound(f"there is no user {name!r}", hint="`horae users` lists them")
        return user

    # ── organisations ──

    async def create_organisation(self, name: str, who: Principal) -> Organisation:
        await self.refuse_without_installation(who, "make organisations")
        refuse_bad_name(name)
        if name.isdigit():
            raise Invalid("an organisation's name is no number", code="E_PATTERN", path="name")
        deeds.note(subject=name)
        deeds.note_change(None, {"name": name})
        made = await self._store.add_organisation(name, await self._store.now())
        if made is None:
            raise Conflict(f"there is an organisation {name} already", code="E_NAME_TAKEN")
        log.info("organisation.created", id=made.id, name=name, by=who.name)
        return made

    async def list_organisations(self, who: Principal) -> list[Organisation]:
        """Return all of them to who runs the installation, to others their own."""
        found = await self._store.list_organisations()
        return found if await self.runs_installation(who) else [org for org in found if org.id == who.org]

    async def find_organisation(self, text: str, who: Principal) -> int:
        """Return the id of one by its name or number; `*` is all of them. Those that one does not see do not exist."""
        if text == "*" and await self.runs_installation(who):
            return EVERYWHERE
        for org in await self.list_organisations(who):
            if text in (org.name, str(org.id)):
                return org.id
        raise NotFound(f"there is no organisation {text!r}", hint="`horae orgs` lists them")

    async def list_members(self, org: int, who: Principal) -> list[Member]:
        await self._refuse_without_admin(org, who)
        return await self._store.list_members(org)

    async def add_member(self, org: int, name: str, role: Role, who: Principal) -> None:
        """Nobody gives, or takes from somebody, more than is theirs."""
        user = await self._member(org, name, who)
        _refuse_more(role, who)
        _refuse_more(user.roles.get(org), who)
        deeds.note_change({"role": user.roles.get(org)}, {"role": role})
        await self._store.put_member(org, user.id, role, await self._store.now())
        self._access.doubt_user(user.id)
        log.info("member.added", org=org, user=name, role=role, by=who.name)

    async def remove_member(self, org: int, name: str, who: Principal) -> None:
        user = await self._member(org, name, who)
        _refuse_more(user.roles.get(org), who)
        deeds.note_change({"role": user.roles.get(org)}, None)
        if not await self._store.drop_member(org, user.id, unless_last=not who.is_local):
            raise Conflict(
                f"{name} is the last admin there",
                code="E_LAST_OWNER",
                hint="make another member admin first: `horae orgs add ORG NAME --role admin`",
            )
        self._access.doubt_user(user.id)
        log.info("member.removed", org=org, user=name, by=who.name)

    async def _member(self, org: int, name: str, who: Principal) -> User:
        """Return whom somebody may take in or out. Only who runs the installation takes in others than are members: to
        an admin of an organisation somebody of another and somebody who is not there are the same."""
        await self._refuse_without_admin(org, who)
        if await self.runs_installation(who):
            return await self._named(name)
        user = await self._store.find_user(name)
        if user is None or org not in user.roles:
            raise NotFound(
                f"organisation {org} has no member {name!r}",
                hint="`horae orgs members` lists them; who runs the installation adds others",
            )
        return user

    # ── who may ──

    async def runs_installation(self, who: Principal) -> bool:
        if who.is_local or (who.name == OPERATOR and who.role is Role.ADMIN):
            return True
        user = await self._store.get_user(who.user_id) if who.user_id is not None else None
        return user is not None and user.is_installer and who.role is Role.ADMIN

    async def audited(self, wanted: str | None, who: Principal) -> int | None:
        """Return the organisation whose rows of the audit log are wanted, by its name or number; None: those of all,
        which are `*`. Who says nothing has those of its own."""
        if wanted is None:
            return who.bound_to
        if wanted == "*":
            await self.refuse_without_installation(who, "read the audit log of all organisations")
            return None
        return await self.find_organisation(wanted, who)

    async def refuse_without_installation(self, who: Principal, what: str) -> None:
        if not await self.runs_installation(who):
            raise Denied(
                f"only who runs the installation may {what}",
                code="E_ROLE",
                hint="ask an admin of all organisations, or use the server's own machine",
            )

    async def _refuse_without_admin(self, org: int, who: Principal) -> None:
        """Those of other organisations do not exist; who is no admin of one may not say who is a member."""
        if await self.runs_installation(who):
            return
        if org != who.org:
            raise NotFound(f"there is no organisation {org}", hint="`horae orgs` lists them")
        refuse_without(who, Permission.USERS)


def _refuse_more(role: Role | None, who: Principal) -> None:
    if role is not None and not is_within(role, who.role):
        raise Denied(f"{who.name} is {who.role} here, and this is about {role}", code="E_ROLE", hint="ask an admin")


def refuse_bad_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Invalid(
            "a name has 1 to 63 letters, digits and ._@+-, and begins with a letter or digit",
            code="E_PATTERN",
            path="name",
        )
    if name.lower() in RESERVED:
        raise Invalid(f"the name {name} is reserved", code="E_PATTERN", path="name", hint="take another one")
