"""Users, organisations and who is a member of which; sessions, and programs that wait to be let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from horae.core.identity import Device, Member, Organisation, Session, User
from horae.core.model import Moment
from horae.core.roles import Role


class Users(Protocol):
    """Who there is."""

    async def add_user(self, user: User, identity: tuple[str, str] | None = None) -> User | None:
        """Keep a new user, under a fresh id in place of the given one, with (issuer, subject) of its provider if it has
        one. None when the name or that identity is taken."""

    async def get_user(self, user_id: int) -> User | None:
        """Return it with its roles; disabled ones too."""

    async def find_user(self, name: str) -> User | None: ...

    async def find_identity(self, issuer: str, subject: str) -> User | None:
        """Return whom a provider means."""

    async def link_identity(self, user_id: int, issuer: str, subject: str) -> bool:
        """Let a provider's user be this one; False when it is another already."""

    async def list_users(self, after: str, limit: int) -> list[User]:
        """By name, from the one after `after`."""

    async def set_disabled(self, user_id: int, at: Moment | None) -> None:
        """None: it may come in again. Who was disabled before keeps the moment."""

    async def set_email(self, user_id: int, email: str) -> None: ...

    async def set_invite(self, user_id: int, hash: str, until: Moment) -> None:
        """Let whoever has the secret of this hash set a password, in place of any earlier one."""

    async def get_invite(self, user_id: int) -> tuple[str, Moment] | None:
        """(hash, until); None when there is none."""

    async def use_invite(self, user_id: int, hash: str, password: str, now: Moment) -> bool:
        """Set the password, if that invitation is there and not over; it is used up by it."""

    async def set_password(self, user_id: int, expected: str | None, password: str) -> bool:
        """Put a password in the place of the one that is expected, if that is still there."""

    async def has_person(self) -> bool:
        """Return whether there is one who is not disabled, and a member somewhere."""

    async def is_owner_of_tokens(self, name: str) -> bool:
        """Return whether a token that belongs to no user has this owner."""


class Organisations(Protocol):
    """Who is a member of what."""

    async def add_organisation(self, name: str, at: Moment) -> Organisation | None:
        """Keep a new one, under the next id that nothing has; None when the name is taken."""

    async def list_organisations(self) -> list[Organisation]:
        """By id."""

    async def put_member(self, org: int, user_id: int, role: Role, at: Moment) -> None:
        """As somebody said by hand, in place of what was said before. Who is one already stays so since then."""

    async def drop_member(self, org: int, user_id: int, *, unless_last: bool) -> bool:
        """Take it out, whoever said that it is one. False, with `unless_last`, when nobody else is an admin there."""

    async def sync_members(self, user_id: int, source: str, roles: Mapping[int, Role], at: Moment) -> None:
        """Let what this source says of a user be this, and nothing else."""

    async def list_members(self, org: int) -> list[Member]:
        """By name."""


class Sessions(Protocol):
    """Who has logged in."""

    async def add_session(self, session: Session) -> int:
        """Keep a session; answers its id. Those that have expired go."""

    async def get_session(self, session_id: int) -> Session | None: ...

    async def list_sessions(self, user_id: int) -> list[Session]: ...

    async def end_session(self, session_id: int) -> None:
        """It is gone. What is not there is no error."""

    async def end_sessions(self, user_id: int) -> None:
        """End all of a user."""

    async def move_session(self, session_id: int, org: int) -> None:
        """Note in which organisation it goes on."""

    async def touch_session(self, session_id: int, seen_at: Moment) -> None:
        """It was used; never earlier than it is said to be already."""

    async def claim_refresh(self, session_id: int, due: Moment, next_try: Moment) -> bool:
        """Let one of many who saw that a session is due for its provider ask; the others, not before `next_try`."""

    async def renew_session(self, session_id: int, refresh: str | None, refresh_at: Moment | None) -> None:
        """Keep what the provider gave in place of what was used."""


class Devices(Protocol):
    """Programs that wait for a user to let them in."""

    async def add_device(self, device: Device) -> Device | None:
        """Keep it, under a fresh id in place of the given one; None when the code is taken. Those that have expired
        go."""

    async def get_device(self, device_id: int) -> Device | None: ...

    async def find_device(self, code: str) -> Device | None: ...

    async def decide_device(self, device_id: int, user_id: int, org: int, state: str) -> bool:
        """A user approves or denies; False when somebody has decided before."""

    async def use_device(self, device_id: int) -> bool:
        """Whoever asked takes what was approved, once."""
